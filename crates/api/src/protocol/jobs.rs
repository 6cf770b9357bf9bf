//! Jobs as people see them.

use std::fmt;

use phalanx_model::{
    Boundary, DeviceMask, Ending, GangId, Job, JobId, Leave, Levels, NodeName, Phase, Placement, Preemption,
    Rejection, Report, Reserved, Resize, Timestamp,
};
use phalanx_spec::quantity::format_micro;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ArrayView, ProgressView};

/// One job, for `ps` and `get`. Times are Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobView {
    pub id: JobId,
    pub name: String,
    pub owner: String,
    pub uid: u32,
    pub queue: String,
    pub priority: i32,
    /// Its class of priority; empty where it names none.
    #[serde(default)]
    pub class: String,
    /// pending, starting, running, stopping, succeeded, failed, cancelled, time_limit
    pub state: String,
    /// Why it waits (a stable word and a sentence), or how it ended.
    pub reason: String,
    pub detail: String,
    pub submitted_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub ending: Option<Ending>,
    pub exit_code: Option<i32>,
    /// Of an array a part: first the tasks that run, then those that failed, the next that is to start, and others.
    pub gangs: Vec<GangView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Box<ArrayView>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceView>,
    /// The submission itself; empty in lists, and for users who do not own the job.
    pub job: Option<Box<Job>>,
    pub events: Vec<EventView>,
    /// What it had on spot nodes so far; of attempts that are over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<SpotView>,
}

/// Time on spot nodes, and what it costs by the prices that the cluster file declares, in millionths of its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpotView {
    pub device_ms: u64,
    /// What it would cost on nodes that are not taken back.
    pub list_micro: u64,
    pub spot_micro: u64,
}

/// `for 2.4 instead of 7, by declared prices: 4.6 saved`, to a ten-thousandth.
impl fmt::Display for SpotView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let money = |micro: u64| format_micro(micro / 100 * 100);
        let (list, paid) = (self.list_micro, self.spot_micro);
        let less = if paid > list { "more" } else { "saved" };
        let (between, paid, list) = (money(list.abs_diff(paid)), money(paid), money(list));
        write!(f, "for {paid} instead of {list}, by declared prices: {between} {less}")
    }
}

/// The replicas of a service: its gangs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceView {
    pub wanted: u32,
    pub running: u32,
    pub min: u32,
    pub max: u32,
    /// A metric can decide how many are wanted.
    #[serde(default)]
    pub has_target: bool,
    /// A user set how many are wanted.
    #[serde(default)]
    pub is_set: bool,
}

/// What the GPUs of a gang do, by the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageView {
    /// Of all of them.
    pub busy_percent: u32,
    /// Since when no kernel has run on any, if that is longer than the daemon was told to bear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GangView {
    pub id: GangId,
    /// Number of the task of an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u32>,
    /// Members of the gang itself: those that it has, or is to start with.
    pub size: u32,
    /// Where that may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<ElasticView>,
    pub devices_per_member: u32,
    /// Members beside them; their ranks follow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleView>,
    pub phase: Option<Phase>,
    pub attempt: u32,
    pub failures: u32,
    pub placement: Option<Placement>,
    /// What its GPUs do, if that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
    /// How it gets on, if its ranks tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressView>,
    pub members: Vec<MemberView>,
    pub estimated_start: Option<Timestamp>,
    /// What is held for it while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Reserved>,
    /// The last time that it had to make way, and how often it had to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<Preemption>,
    #[serde(default)]
    pub evictions: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpointed_at: Option<Timestamp>,
    /// Why it leaves its nodes once another replica runs in its stead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves: Option<Leave>,
    /// Predicted by the cost model for this placement and the job's traffic (or 1 GiB all-reduce).
    pub predicted: Option<PredictedView>,
}

/// The sizes that an elastic gang may have, in members, and which it is to have next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ElasticView {
    pub min: u32,
    pub max: u32,
    /// The last moment at which its size could change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary: Option<Boundary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<Resize>,
    /// The size that a user set: it grows no further by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grows_to: Option<u32>,
}

/// Members of a gang that need something else than the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoleView {
    pub name: String,
    pub size: u32,
    pub devices_per_member: u32,
}

impl GangView {
    /// Members of all roles.
    #[must_use]
    pub fn member_count(&self) -> u32 {
        self.roles.iter().fold(self.size, |sum, role| sum.saturating_add(role.size))
    }

    /// Devices of all members.
    #[must_use]
    pub fn device_count(&self) -> u32 {
        let own = self.size.saturating_mul(self.devices_per_member);
        let roles = self.roles.iter().map(|role| role.size.saturating_mul(role.devices_per_member));
        roles.fold(own, u32::saturating_add)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberView {
    pub rank: u32,
    pub node: NodeName,
    pub devices: DeviceMask,
    /// requested, ready, running, exited
    pub state: String,
    pub exit_code: Option<i32>,
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
    pub at: Timestamp,
    pub what: String,
    pub detail: String,
    /// Of an eviction, a reservation or an operator's word: all of it, as the journal has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<serde_json::Value>,
}

/// An event among those of all jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryView {
    pub job: JobId,
    /// Empty where the job is forgotten.
    pub name: String,
    #[serde(flatten)]
    pub event: EventView,
}

/// Predicted, never measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedView {
    pub step_us: u64,
    pub communication_us: u64,
    pub bandwidth_bytes_per_s: u64,
    /// In words: what the slowest part is, and on what message this rests.
    pub sentence: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DryRunView {
    pub rejected: Option<Rejection>,
    pub reports: Vec<Report>,
    /// For each report with a place: what the cost model says of it.
    pub predicted: Vec<Option<PredictedView>>,
    /// What a scheduler that only counts devices would choose (first fit), where it would start now.
    pub first_fit: Vec<Option<FirstFitView>>,
    pub levels: Levels,
    /// The same for people: when it would start, and why not now.
    #[serde(default)]
    pub sentences: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FirstFitView {
    pub placement: Placement,
    pub predicted: PredictedView,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhyView {
    pub job: JobView,
    pub reports: Vec<Report>,
    pub now: Timestamp,
    /// The same for people: why it waits, and what would change that.
    #[serde(default)]
    pub sentences: Vec<String>,
}
