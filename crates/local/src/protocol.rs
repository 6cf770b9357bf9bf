//! What goes over the control socket: one JSON line per request, one or more per answer.
//!
//! The socket is a Unix socket; who asks is known from the kernel (`SO_PEERCRED`), never from the request.
//! Shapes carry [`VERSION`]; fields are only ever added within one version.

mod advise;
mod array;
mod asks;
mod audit;
mod bill;
mod cluster;
mod defrag;
mod endpoints;
mod filter;
mod health;
mod progress;
mod terminal;

use std::collections::BTreeMap;
use std::fmt;

use phalanx_model::{
    Boundary, DeviceMask, Ending, GangId, Job, JobId, JobUpdate, Leave, Levels, NodeName, Phase, Placement,
    Preemption, Queue, QueueName, Rejection, Report, Reserved, Resize, Settings, Snapshot, Timestamp,
};
use phalanx_spec::quantity::format_micro;
use serde::{Deserialize, Serialize};

pub use advise::{AdviceView, AdviseAsk, JobAdvice};
pub use array::{ArrayView, JobRef};
pub use asks::{BoostAsk, LogAsk, News, WindowAsk};
pub use audit::{AuditFilter, AuditView, ClosedBy, REASON_CHARS_MAX};
pub use bill::{BillAsk, BillBy, BillLine, BillView};
pub use cluster::{
    BudgetView, HeldView, NodeView, NodesView, QueueDetailView, QueueView, TopologyView, WaitingView,
    WindowKind, WindowView,
};
pub use defrag::{DefragView, MoveView};
pub use endpoints::{EndpointState, EndpointView, EndpointsView};
pub use filter::JobFilter;
pub use health::{HealthFinding, HealthReport, HealthView, PortView, PressureView, SampleView, hardware};
pub use progress::{CheckpointView, ProgressView, StragglerView};
pub use terminal::{ExecAsk, TerminalView};

/// Version of every shape below; shown as `apiVersion` in `-o json`.
pub const VERSION: &str = "phalanx/v1";
/// A request line is at most this long.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Jobs that one request waits for.
pub const WAIT_JOBS_MAX: usize = 10_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    pub version: String,
    pub verb: Verb,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Answers [`Answer::Pong`].
    Ping,
    /// `job.id`, `job.owner` and `job.submitted_at` are set by the daemon. Secret values go to files that
    /// only the owner reads, never to the journal.
    Submit {
        job: Box<Job>,
        secrets: BTreeMap<String, String>,
    },
    /// What [`Verb::Submit`] would do; nothing is submitted.
    DryRun {
        job: Box<Job>,
    },
    List {
        /// Also those that have ended.
        finished: bool,
        #[serde(default)]
        filter: JobFilter,
        /// At most so many, the newest.
        limit: u32,
    },
    Get {
        job: JobRef,
    },
    Why {
        job: JobRef,
    },
    /// Streams [`Answer::Log`] lines, then [`Answer::End`].
    Logs {
        job: JobRef,
        #[serde(flatten)]
        ask: LogAsk,
    },
    /// Streams [`Answer::Event`] lines until the job has finished, then [`Answer::Job`].
    Follow {
        job: JobRef,
    },
    /// Streams [`Answer::Job`] for each of these jobs when it has ended, then [`Answer::End`].
    Wait {
        /// At most [`WAIT_JOBS_MAX`].
        jobs: Vec<JobId>,
    },
    /// Where the terminal of a running job is; answers [`Answer::Terminal`].
    Terminal {
        job: JobRef,
    },
    /// Starts a command beside a rank of a running job; answers [`Answer::Terminal`]. The command begins when its client
    /// comes, and ends when that goes.
    Exec {
        job: JobRef,
        ask: ExecAsk,
    },
    Cancel {
        job: JobRef,
    },
    Nodes,
    /// Everything about the machines, for pictures and checks.
    Topology,
    Queues,
    /// One queue with every term of the order, and what waits in it.
    Queue {
        queue: QueueName,
    },
    /// The whole tree: queues that are not named are gone. For operators.
    ApplyQueues {
        settings: Box<Settings>,
        queues: Vec<Queue>,
    },
    /// It waits until it is released; what runs goes on.
    Hold {
        job: JobRef,
    },
    Release {
        job: JobRef,
    },
    /// More priority for a while, or no longer. For operators.
    Boost {
        job: JobRef,
        boost: Option<BoostAsk>,
    },
    /// Other values for what may change of a job that has not ended.
    Update {
        job: JobRef,
        update: JobUpdate,
    },
    /// What runs of a job is stopped and starts again; with `hold`, once it is released.
    Requeue {
        job: JobRef,
        #[serde(default)]
        hold: bool,
    },
    /// So many replicas of a service are wanted; `None`: as many as its metric needs.
    Scale {
        job: JobRef,
        replicas: Option<u32>,
    },
    /// Where the replicas of a service are reached; with the distances from a node if one is given.
    Endpoints {
        job: JobRef,
        #[serde(default)]
        from: Option<NodeName>,
    },
    /// Moves that open a place for a job that waits, or for the first for which they can; only operators may have them done.
    Defrag {
        #[serde(default)]
        job: Option<JobRef>,
        #[serde(default)]
        apply: bool,
    },
    /// Another size for a job's elastic gangs, in members, from their next boundary on; `None`: they grow by themselves.
    Resize {
        job: JobRef,
        size: Option<u32>,
    },
    /// What a rank has to say of its gang; its owner and operators may.
    Tell {
        job: JobRef,
        /// Index of the gang in its job.
        gang: u32,
        news: News,
    },
    /// What happened: to one job in order, or the newest of all.
    History {
        job: Option<JobRef>,
        limit: u32,
    },
    /// Who changed what, the newest. Users see what they did themselves, operators all of it.
    Audit {
        #[serde(default)]
        filter: AuditFilter,
        limit: u32,
    },
    /// What devices were for, and what it cost. Users see what their own jobs held, operators all of it.
    Bill(BillAsk),
    /// What to ask for next time. Users see it of their own jobs, operators of all.
    Advise(AdviseAsk),
    Cordon {
        node: NodeName,
        /// At most [`REASON_CHARS_MAX`] characters.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Now; or so that it is empty by a time, which leaves it to what ends before.
    Drain {
        node: NodeName,
        #[serde(default)]
        by: Option<Timestamp>,
        #[serde(default)]
        reason: Option<String>,
    },
    Uncordon {
        node: NodeName,
    },
    /// The health of a node and its devices, or of all.
    Health {
        #[serde(default)]
        node: Option<NodeName>,
    },
    /// Evidence about a node or a device. For operators.
    ReportHealth(HealthReport),
    /// A node or a device is repaired. For operators.
    ClearHealth {
        node: NodeName,
        /// `None`: the node itself.
        device: Option<u32>,
    },
    /// What is to come: windows, drains by a time, nodes that are taken back.
    Calendar,
    /// A window of maintenance, or a block for a queue. For operators.
    AddWindow(WindowAsk),
    /// Calls off windows of these nodes: all, or those that begin in the second of this time. For operators.
    RemoveWindow {
        nodes: Vec<String>,
        begins_at: Option<Timestamp>,
    },
    /// A node is taken back so soon; as soon as the cluster file says where nothing is said. For operators.
    NoticeSpot {
        node: NodeName,
        in_ms: Option<u64>,
    },
    /// All that rebuilds the scheduler as it is now, elsewhere.
    Snapshot,
    /// Ends the daemon; jobs go on and are adopted by the next one.
    Stop,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Pong {
        version: String,
        pid: u32,
        epoch: u64,
    },
    /// `existing`: the key was used before, and this is that job.
    Submitted {
        job: JobId,
        name: String,
        existing: bool,
    },
    DryRun(DryRunView),
    Jobs(Vec<JobView>),
    Job(Box<JobView>),
    Why(WhyView),
    Log {
        /// Number of the task of an array.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<u32>,
        rank: u32,
        attempt: u32,
        /// When it was written, to a second, by the wall clock; only if it was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
        line: String,
    },
    Event {
        at: Timestamp,
        what: String,
        detail: String,
    },
    Endpoints(EndpointsView),
    Defrag(Box<DefragView>),
    Nodes(NodesView),
    Topology(TopologyView),
    /// Parents before their children.
    Queues(Vec<QueueView>),
    Queue(Box<QueueDetailView>),
    History(Vec<HistoryView>),
    /// Oldest first.
    Audit(Vec<AuditView>),
    Bill(BillView),
    Advice(AdviceView),
    Health(HealthView),
    /// By when they begin.
    Calendar(Vec<WindowView>),
    Snapshot(Box<Snapshot>),
    Terminal(TerminalView),
    Done {
        detail: String,
    },
    /// A stream is over.
    End,
    Error(ErrorView),
}

/// An error, as the user reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorView {
    pub code: ErrorCode,
    pub message: String,
    /// What to do; may be empty.
    pub hint: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    BadRequest,
    NotFound,
    Forbidden,
    Rejected,
    /// The journal or the disk; try again later.
    Unavailable,
    Internal,
}

/// One job, for `ps` and `get`. Times are Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageView {
    /// Of all of them.
    pub busy_percent: u32,
    /// Since when no kernel has run on any, if that is longer than the daemon was told to bear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    pub rank: u32,
    pub node: NodeName,
    pub devices: DeviceMask,
    /// requested, ready, running, exited
    pub state: String,
    pub exit_code: Option<i32>,
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    pub at: Timestamp,
    pub what: String,
    pub detail: String,
    /// Of an eviction, a reservation or an operator's word: all of it, as the journal has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<serde_json::Value>,
}

/// An event among those of all jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryView {
    pub job: JobId,
    /// Empty where the job is forgotten.
    pub name: String,
    #[serde(flatten)]
    pub event: EventView,
}

/// Predicted, never measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedView {
    pub step_us: u64,
    pub communication_us: u64,
    pub bandwidth_bytes_per_s: u64,
    /// In words: what the slowest part is, and on what message this rests.
    pub sentence: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRunView {
    pub rejected: Option<Rejection>,
    pub reports: Vec<Report>,
    /// For each report with a place: what the cost model says of it.
    pub predicted: Vec<Option<PredictedView>>,
    /// What a scheduler that only counts devices would choose (first fit), where it would start now.
    pub first_fit: Vec<Option<FirstFitView>>,
    pub levels: Levels,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstFitView {
    pub placement: Placement,
    pub predicted: PredictedView,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyView {
    pub job: JobView,
    pub reports: Vec<Report>,
    pub now: Timestamp,
}

impl ErrorView {
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: hint.into() }
    }
}
