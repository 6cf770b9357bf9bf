//! A user's submission after parsing: jobs, gangs and policies.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Array, Axis, ClassName, JobId, JobName, LevelName, Needs, NodeName, PartNeed, Placement, Policy,
    PreemptMode, QueueName, Replicas, RoleName, Slot, Timestamp,
};

/// The owner of a job: the peer of the control socket. The job's processes run as this user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
    pub name: String,
}

impl Owner {
    /// Whether a rule that lists users means this one: by name, by number, or as [`crate::Access::ALL`].
    #[must_use]
    pub fn is_meant_by(&self, said: &str) -> bool {
        said == crate::Access::ALL
            || said == self.name
            || said.parse().is_ok_and(|number: u32| number == self.uid)
    }
}

/// One submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Job {
    pub id: JobId,
    pub name: JobName,
    /// Idempotency key: a second submission of one owner with this key is the same job.
    pub key: Option<String>,
    pub owner: Owner,
    pub queue: QueueName,
    /// Higher goes first.
    pub priority: i32,
    pub submitted_at: Timestamp,
    /// One description for each gang; of an array usually one for all tasks, see [`Job::gang_at`].
    pub gangs: Vec<Gang>,
    pub policy: Policy,
    /// Further terms of the order in which jobs start.
    #[serde(default)]
    pub turn: Turn,
}

/// The terms that decide when a job starts, besides its queue and its priority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Turn {
    /// The priority class. `None` means the default class of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassName>,
    /// The user who holds the job until its release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boost: Option<Boost>,
    /// The dependencies: the job waits until these jobs end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<After>,
    /// The begin time: the job does not start earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_at: Option<Timestamp>,
    /// The deadline: a gang that has not started by then ends as [`Ending::DeadlineMissed`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The gangs are tasks of an array, which run and end independently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Array>,
    /// The job may also run on spot nodes, which can be reclaimed at short notice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_spot: bool,
    /// Its gangs are replicas of a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Replicas>,
}

impl Turn {
    /// Whether the gangs run and end independently.
    #[must_use]
    pub const fn has_lone_gangs(&self) -> bool {
        self.array.is_some() || self.service.is_some()
    }
}

/// A priority boost for a time, given by an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Boost {
    pub priority: i32,
    pub until: Timestamp,
    pub by: String,
}

/// A dependency on the end of another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct After {
    pub job: JobId,
    pub end: EndOf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndOf {
    /// The job must succeed. If it does not, dependent jobs end too.
    #[default]
    Success,
    /// The job must end without success.
    Failure,
    Any,
}

/// Members that start together or not at all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gang {
    /// Members without those of `roles`. For an elastic gang: its current, last or first size.
    pub size: u32,
    /// The fewest members with which the gang starts or goes on.
    pub min: u32,
    /// The most members to which the gang grows.
    pub max: u32,
    /// What each of these members needs on its node.
    pub needs: Needs,
    /// Members with other needs: a launcher, parameter servers. They start with the gang or not at all, inside the
    /// same required domain. Their ranks follow those of the gang.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// Exactly this many members on every node that is used.
    pub members_per_node: Option<u32>,
    pub topology: Topology,
    pub traffic: Option<Traffic>,
    /// The axes of the parallelism grid, innermost first. Ranks are numbered along the first axis, then the second.
    /// The product of the degrees is `size`. Empty: one ring through all members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grid: Vec<Axis>,
    pub program: Program,
}

/// Equal members in addition to the members of the gang itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Role {
    pub name: RoleName,
    pub size: u32,
    pub needs: Needs,
    /// Members of the role that must share a lower domain, as [`Topology::segments`] for the members of the gang.
    /// Each size divides the size of the role: a segment as large as the role keeps all of its members together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// The program of the role. `None` means the program of the gang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
}

impl Gang {
    /// Members of all roles.
    #[must_use]
    pub fn member_count(&self) -> u32 {
        self.roles.iter().fold(self.size, |sum, role| sum.saturating_add(role.size))
    }

    /// Whether its size may change.
    #[must_use]
    pub const fn is_elastic(&self) -> bool {
        self.min < self.max
    }

    /// The step in which the size changes: whole nodes if `members_per_node` is set, and whole segments.
    #[must_use]
    pub fn size_step(&self) -> u32 {
        let each = self.members_per_node.unwrap_or(1).max(1);
        let widest = self.topology.segments.first().map_or(1, |segment| segment.size.max(1));
        let (mut a, mut b) = (each, widest);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        (each / a.max(1)).saturating_mul(widest)
    }

    /// The same gang with another size.
    #[must_use]
    pub fn of_size(&self, size: u32) -> Self {
        Self { size, ..self.clone() }
    }

    /// Removes a role, if it exists.
    pub fn drop_role(&mut self, at: usize) {
        if at >= self.roles.len() {
            return;
        }
        self.roles.remove(at);
        for set in &mut self.topology.together {
            set.retain(|party| *party as usize != at + 1);
            set.iter_mut().filter(|party| **party as usize > at).for_each(|party| *party -= 1);
        }
        self.topology.together.retain(|set| !set.is_empty());
    }

    /// The role of a rank, as an index into [`Self::roles`]. `None` for the members of the gang itself.
    #[must_use]
    pub fn role_of(&self, rank: u32) -> Option<usize> {
        let mut first = self.size;
        self.roles.iter().position(|role| {
            let is_before = rank < first;
            first = first.saturating_add(role.size);
            !is_before && rank < first
        })
    }

    /// The needs of a member of a role, see [`Self::role_of`].
    #[must_use]
    pub fn needs_of(&self, role: Option<usize>) -> &Needs {
        role.and_then(|role| self.roles.get(role)).map_or(&self.needs, |role| &role.needs)
    }

    /// The segments of the members of a role, see [`Self::role_of`].
    #[must_use]
    pub fn segments_of(&self, role: Option<usize>) -> &[Segment] {
        role.and_then(|role| self.roles.get(role)).map_or(&self.topology.segments, |role| &role.segments)
    }

    /// The needs of the gang's own members, then those of each role.
    pub fn all_needs(&self) -> impl Iterator<Item = &Needs> {
        std::iter::once(&self.needs).chain(self.roles.iter().map(|role| &role.needs))
    }

    /// The same, to change them.
    pub fn all_needs_mut(&mut self) -> impl Iterator<Item = &mut Needs> {
        std::iter::once(&mut self.needs).chain(self.roles.iter_mut().map(|role| &mut role.needs))
    }

    /// The needs with the number of members that have them.
    pub fn all_members(&self) -> impl Iterator<Item = (&Needs, u32)> {
        let sizes = std::iter::once(self.size).chain(self.roles.iter().map(|role| role.size));
        self.all_needs().zip(sizes)
    }

    /// The programs that its members run: its own, and those of its roles.
    pub fn programs_mut(&mut self) -> impl Iterator<Item = &mut Program> {
        let roles = self.roles.iter_mut().filter_map(|role| role.program.as_mut());
        std::iter::once(&mut self.program).chain(roles)
    }

    /// Whole devices of all members.
    #[must_use]
    pub fn device_count(&self) -> u32 {
        self.all_members()
            .fold(0, |sum, (needs, size)| sum.saturating_add(needs.devices.saturating_mul(size)))
    }

    /// Thousandths of devices that the gang holds in a placement, without weights. A share or a slice counts as the
    /// compute that it requests, and a slice by its profile, or a replica, as a whole device.
    #[must_use]
    pub fn held_milli(&self, placement: &Placement) -> u64 {
        let of_slot = |slot: &Slot| match &self.needs_of(self.role_of(slot.rank)).part {
            Some(PartNeed::Share { compute_milli, .. } | PartNeed::Slice { compute_milli, .. }) => {
                u64::from(*compute_milli)
            }
            None | Some(PartNeed::Profile(_) | PartNeed::Replica) => u64::from(slot.devices.count()) * 1_000,
        };
        placement.slots.iter().map(of_slot).fold(0, u64::saturating_add)
    }

    /// The program of a member of a role, see [`Self::role_of`].
    #[must_use]
    pub fn program_of(&self, role: Option<usize>) -> &Program {
        role.and_then(|role| self.roles.get(role)?.program.as_ref()).unwrap_or(&self.program)
    }
}

/// The topology rules of a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Topology {
    /// Required: all members must be inside one domain of this level.
    pub required: Option<LevelName>,
    /// Preferred: the gang waits up to `wait_ms` for a placement inside one domain of this level.
    pub preferred: Option<LevelName>,
    /// Without a preferred level, the time for which the gang waits for a nearer placement than one that is free.
    pub wait_ms: u64,
    /// The worth of an hour of waiting for a nearer placement than one that is free, in thousandths of an hour of
    /// running; [`Self::ANYWHERE`]: no wait is worth anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_milli: Option<u32>,
    /// Parts of the gang that must share a lower domain, widest first: each size divides the one before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// At most so many members inside any one domain of a level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<Spread>,
    /// Chips along x, y, z of a torus, in any rotation: the devices of the gang must form this box of one torus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<[u16; 3]>,
    /// Sets of roles whose members must all be on one node: 0 means the members of the gang itself, and `n` means
    /// those of `roles[n - 1]`. No role is in two sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Vec<u32>>,
    /// Nodes of related work. The members of the gang itself are placed on these nodes if they fit there, and
    /// otherwise inside the innermost domains around these nodes that hold the gang.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<NodeName>,
}

impl Topology {
    /// The `price_milli` of a gang that does not wait for a nearer placement.
    pub const ANYWHERE: u32 = u32::MAX;
    /// The `wait_ms` of a gang that starts at the nearest placement or not at all.
    pub const FOREVER_MS: u64 = u64::MAX;
}

/// Spreads members, so that the failure of one domain stops at most `max` of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    pub level: LevelName,
    /// Members inside one domain of the level, at least 1.
    pub max: u32,
}

/// Consecutive ranks that must be inside one domain of a level, such as a tensor-parallel set in one NVLink domain.
/// If `size` does not divide the gang, one segment is smaller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Segment {
    /// Members.
    pub size: u32,
    pub level: LevelName,
}

/// The communication of one step, from which the cost of a placement is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Traffic {
    pub pattern: Pattern,
    /// Message bytes per rank and step.
    pub bytes: u64,
    /// Time a step computes, in nanoseconds.
    pub compute_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    #[default]
    AllReduce,
    AllToAll,
}

/// How the processes of the members are started, and how they find each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LaunchKind {
    /// One process per rank.
    #[default]
    Ranks,
    /// One `torchrun` agent per node, which starts the ranks of that node.
    Torchrun,
    /// One process per node, with the address of the JAX coordinator.
    Jax,
    /// One launcher for all ranks. The host file and the rank file say where the ranks run.
    Mpi,
    /// One process per node, with the `PHALANX_*` variables only.
    None,
}

/// The program of a member. Only worlds read it; the engine carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Program {
    pub launch: LaunchKind,
    pub argv: Vec<String>,
    /// The user's own variables. They override every variable that Phalanx sets.
    pub env: BTreeMap<String, String>,
    pub workdir: String,
    /// Secrets by name, with the source of each value and never the value.
    pub secrets: BTreeMap<String, SecretSource>,
    /// Given to the ranks as `PHALANX_CKPT_DIR`.
    pub checkpoint_dir: Option<String>,
    /// Sets the locked-memory and open-file limits that RDMA needs.
    pub rdma: bool,
    /// A command line that runs, or a URL that is called, on start, end and preemption.
    pub notify: Option<String>,
    /// The file mode mask of the submitter. None: that of the world.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// The first rank, or the launcher, runs in a terminal to which users attach.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminal: bool,
}

/// The source from which a secret is read when a member starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SecretSource {
    /// Sent with the submission, and kept in a file that only the owner can read.
    Submitted,
    /// A file that the owner can read.
    File(String),
}

impl Job {
    /// Whether the job saves its work when it is told to stop, and goes on from there: it asks for a signal ahead, or has
    /// a directory for checkpoints.
    #[must_use]
    pub fn saves_work(&self) -> bool {
        let saves = self.policy.stop.advisory.is_some()
            || self.gangs.iter().any(|gang| gang.program.checkpoint_dir.is_some());
        saves && self.policy.preempt.mode == PreemptMode::Requeue
    }
}

/// The cause of a failure. `retry` lists these classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The program ended with a non-zero code or a signal that Phalanx did not send.
    UserCode,
    /// A member could not be started: command not found, port taken, deadline.
    StartUp,
    /// The machine is gone, was rebooted, or is being drained.
    Node,
    /// The gang was stopped for other work, or by its owner. Nothing failed: where it is to start again at all it waits for
    /// the shortest pause, and no retry is counted.
    Preemption,
    /// Phalanx lost the member: its shim died, its state could not be read.
    Infrastructure,
}

impl FailureClass {
    pub const ALL: [Self; 5] =
        [Self::UserCode, Self::StartUp, Self::Node, Self::Preemption, Self::Infrastructure];

    /// The class as users write and read it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::UserCode => "user_code",
            Self::StartUp => "start_up",
            Self::Node => "node",
            Self::Preemption => "preemption",
            Self::Infrastructure => "infrastructure",
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Succeeded,
    Failed {
        class: FailureClass,
        /// The rank that failed first, if a rank failed.
        rank: Option<u32>,
        /// The exit code of the rank, if it has one.
        code: Option<i32>,
        detail: String,
    },
    Cancelled {
        by: String,
    },
    /// The time limit was reached.
    TimeLimit,
    /// The gang was preempted, and its policy does not requeue it.
    Preempted {
        detail: String,
    },
    /// The gang could not start by its deadline.
    DeadlineMissed,
    /// A dependency did not end as required.
    DependencyFailed {
        job: JobId,
    },
    /// The session was idle for as long as its limit.
    IdleLimit,
}

/// No user's name has a space in it.
const FOR_GANG: &str = "gang ";

impl Ending {
    /// The exit code of `phalanx run`: the job's own code, 124 for the time limit, 130 for a cancel.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Succeeded => 0,
            Self::Failed { code: Some(code), .. } if *code != 0 => *code,
            Self::Failed { .. } | Self::DependencyFailed { .. } => 1,
            Self::Cancelled { .. } => 130,
            Self::Preempted { .. } => 143,
            Self::TimeLimit | Self::DeadlineMissed | Self::IdleLimit => 124,
        }
    }

    /// The ending of a job with these gangs: the ending of the first gang that failed by itself. The other gangs were
    /// stopped because of it, see [`Self::for_another_gang`].
    #[must_use]
    pub fn of_job<'a>(gangs: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let mut bad = gangs.filter(|e| **e != Self::Succeeded);
        let own = bad.clone().find(|e| !matches!(e, Self::Cancelled { by } if by.starts_with(FOR_GANG)));
        own.or_else(|| bad.next()).cloned().unwrap_or(Self::Succeeded)
    }

    /// The `by` of a gang that is cancelled because another gang of its job failed.
    #[must_use]
    pub fn for_another_gang(gang: crate::GangId) -> String {
        format!("{FOR_GANG}{gang}")
    }

    /// Every word of [`Self::word`].
    pub const WORDS: [&str; 8] = [
        "succeeded",
        "failed",
        "cancelled",
        "time_limit",
        "preempted",
        "deadline_missed",
        "dependency_failed",
        "idle_limit",
    ];

    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
            Self::TimeLimit => "time_limit",
            Self::Preempted { .. } => "preempted",
            Self::DeadlineMissed => "deadline_missed",
            Self::DependencyFailed { .. } => "dependency_failed",
            Self::IdleLimit => "idle_limit",
        }
    }
}
