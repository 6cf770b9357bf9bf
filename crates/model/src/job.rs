//! What a user submits, after parsing: jobs, gangs and policies.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Axis, ClassName, JobId, JobName, LevelName, Needs, NodeName, PartNeed, Placement, QueueName, Replicas,
    RoleName, Slot, Timestamp,
};

/// Who owns a job: the peer of the control socket. Its processes run as this user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
    pub name: String,
}

/// One submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    pub gangs: Vec<Gang>,
    pub policy: Policy,
    /// What else decides when it goes.
    #[serde(default)]
    pub turn: Turn,
}

/// What decides when a job goes, beside its queue and its priority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Its class of priority; the cluster's default class where it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassName>,
    /// Who holds it back until it is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boost: Option<Boost>,
    /// It waits for the ends of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<After>,
    /// Not before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_at: Option<Timestamp>,
    /// It is of no use later: what has not started by then ends as [`Ending::DeadlineMissed`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Its gangs are tasks that run and end by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Array>,
    /// It also goes to nodes that may be taken back at short notice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_spot: bool,
    /// Its gangs are replicas of a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Replicas>,
}

impl Turn {
    /// Whether its gangs run and end by themselves.
    #[must_use]
    pub const fn has_lone_gangs(&self) -> bool {
        self.array.is_some() || self.service.is_some()
    }
}

/// More priority for a while, given by an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boost {
    pub priority: i32,
    pub until: Timestamp,
    pub by: String,
}

/// The end of another job that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    pub job: JobId,
    pub end: EndOf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndOf {
    /// It succeeded; when it did not, whoever waits for it ends too.
    #[default]
    Success,
    /// It did not succeed.
    Failure,
    Any,
}

/// Tasks that run by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// So many at once, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
}

/// Members that start together or not at all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gang {
    /// Members, those of `roles` not counted. Of an elastic gang: those that it has, had last, or is to start with.
    pub size: u32,
    /// The fewest with which it starts or goes on.
    pub min: u32,
    /// The most to which it grows.
    pub max: u32,
    /// What each of these members needs on its node.
    pub needs: Needs,
    /// Members beside them that need something else: a launcher, parameter servers. They start with the gang or
    /// not at all, inside the same required domain; their ranks follow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// Exactly this many members on every node that is used.
    pub members_per_node: Option<u32>,
    pub topology: Topology,
    pub traffic: Option<Traffic>,
    /// The axes of its parallelism, the innermost first: ranks are numbered along the first, then the second. Their
    /// degrees multiply to `size`. Empty: one ring through all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grid: Vec<Axis>,
    pub program: Program,
}

/// Equal members beside those of the gang itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Role {
    pub name: RoleName,
    pub size: u32,
    pub needs: Needs,
    /// Its own members that must share a lower domain, as [`Topology::segments`] are those of the gang itself. Each size
    /// divides that of the role: one as large as the role keeps all of it together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// Where it is nothing of its own, what the gang runs.
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

    /// The members by which its size changes: whole nodes where it has as many on each, and whole segments.
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

    /// The same gang with so many members.
    #[must_use]
    pub fn of_size(&self, size: u32) -> Self {
        Self { size, ..self.clone() }
    }

    /// Takes one of its roles away, if it has such.
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

    /// The role of a rank, as an index into [`Self::roles`]; none for the members of the gang itself.
    #[must_use]
    pub fn role_of(&self, rank: u32) -> Option<usize> {
        let mut first = self.size;
        self.roles.iter().position(|role| {
            let is_before = rank < first;
            first = first.saturating_add(role.size);
            !is_before && rank < first
        })
    }

    /// What a member of a role needs, see [`Self::role_of`].
    #[must_use]
    pub fn needs_of(&self, role: Option<usize>) -> &Needs {
        role.and_then(|role| self.roles.get(role)).map_or(&self.needs, |role| &role.needs)
    }

    /// The parts in which the members of a role come, see [`Self::role_of`].
    #[must_use]
    pub fn segments_of(&self, role: Option<usize>) -> &[Segment] {
        role.and_then(|role| self.roles.get(role)).map_or(&self.topology.segments, |role| &role.segments)
    }

    /// What the members of the gang itself need, then role by role.
    pub fn all_needs(&self) -> impl Iterator<Item = &Needs> {
        std::iter::once(&self.needs).chain(self.roles.iter().map(|role| &role.needs))
    }

    /// The same, and how many members need it.
    pub fn all_members(&self) -> impl Iterator<Item = (&Needs, u32)> {
        let sizes = std::iter::once(self.size).chain(self.roles.iter().map(|role| role.size));
        self.all_needs().zip(sizes)
    }

    /// Whole devices of all members.
    #[must_use]
    pub fn device_count(&self) -> u32 {
        self.all_members()
            .fold(0, |sum, (needs, size)| sum.saturating_add(needs.devices.saturating_mul(size)))
    }

    /// Thousandths of devices that it holds in a place, whatever they are worth: a share or a slice counts as much as it
    /// asks for of the compute, a slice by its profile as a whole device.
    #[must_use]
    pub fn held_milli(&self, placement: &Placement) -> u64 {
        let of_slot = |slot: &Slot| match &self.needs_of(self.role_of(slot.rank)).part {
            Some(PartNeed::Share { compute_milli, .. } | PartNeed::Slice { compute_milli, .. }) => {
                u64::from(*compute_milli)
            }
            None | Some(PartNeed::Profile(_)) => u64::from(slot.devices.count()) * 1_000,
        };
        placement.slots.iter().map(of_slot).fold(0, u64::saturating_add)
    }

    /// What a member of a role runs, see [`Self::role_of`].
    #[must_use]
    pub fn program_of(&self, role: Option<usize>) -> &Program {
        role.and_then(|role| self.roles.get(role)?.program.as_ref()).unwrap_or(&self.program)
    }
}

/// Where the whole gang must or should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Topology {
    /// All members inside one domain of this level, or nothing starts.
    pub required: Option<LevelName>,
    /// All members inside one domain of this level if that comes free within `wait_ms`.
    pub preferred: Option<LevelName>,
    pub wait_ms: u64,
    /// What an hour of waiting for `preferred` is worth, in thousandths of an hour of running. Where it is said and can be
    /// priced, `wait_ms` is what it is worth to wait at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_milli: Option<u32>,
    /// Parts of the gang that must share a lower domain, widest first: each size divides the one before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// At most so many members inside any one domain of a level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<Spread>,
    /// Chips along x, y, z of a torus, in any rotation: all devices of the gang are such a box of one torus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<[u16; 3]>,
    /// Sets of which all members are on one node: 0 stands for those of the gang itself, `n` for those of
    /// `roles[n - 1]`. None is in two sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Vec<u32>>,
    /// What it belongs to runs here: the members of the gang itself are on these nodes if they fit there, and otherwise
    /// inside the innermost domains around them that hold it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<NodeName>,
}

/// Keeps members apart: a failure of one domain takes at most so many.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Spread {
    pub level: LevelName,
    /// Members inside one domain of the level, at least 1.
    pub max: u32,
}

/// Consecutive ranks that must be inside one domain of a level: a tensor-parallel set in one NVLink domain. Where
/// `size` does not divide the gang, one segment is smaller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Segment {
    /// Members.
    pub size: u32,
    pub level: LevelName,
}

/// How the ranks talk in one step; lets the cost of a placement be predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Traffic {
    pub pattern: Pattern,
    /// Message bytes per rank and step.
    pub bytes: u64,
    /// Time a step computes, in nanoseconds.
    pub compute_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    #[default]
    AllReduce,
    AllToAll,
}

/// How the members' processes are laid out and told of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchKind {
    /// One process per rank.
    #[default]
    Ranks,
    /// One `torchrun` agent per node, which starts the ranks of that node.
    Torchrun,
    /// One process per node, told of the JAX coordinator.
    Jax,
    /// One launcher for all; host file and rank file say where the ranks go.
    Mpi,
    /// One process per node, told nothing but `PHALANX_*`.
    None,
}

/// What a member runs. Only worlds read it; the engine carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Program {
    pub launch: LaunchKind,
    pub argv: Vec<String>,
    /// The user's own variables: they win over everything Phalanx sets.
    pub env: BTreeMap<String, String>,
    pub workdir: String,
    /// Names, and where each value comes from; never the value.
    pub secrets: BTreeMap<String, SecretSource>,
    /// Given to the ranks as `PHALANX_CKPT_DIR`.
    pub checkpoint_dir: Option<String>,
    /// Sets the locked-memory and open-file limits that RDMA needs.
    pub rdma: bool,
    /// Run on start, end and preemption: a command line, or a URL.
    pub notify: Option<String>,
}

/// Where a secret's value is read when a member starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretSource {
    /// Handed over with the submission and kept in a file that only the owner can read.
    Submitted,
    /// A file that the owner can read.
    File(String),
}

/// What happens when time is up, a member fails, or the job is to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Running time of one attempt.
    pub time_limit_ms: Option<u64>,
    /// From the order to start until every member stands at the gate.
    pub start_deadline_ms: u64,
    pub stop: Stop,
    pub retry: Retry,
    #[serde(default)]
    pub preempt: Preempt,
    /// It is a session, and ends when nobody used it for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_limit_ms: Option<u64>,
}

/// What becomes of a gang that has to make way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preempt {
    #[serde(default)]
    pub mode: PreemptMode,
    /// Its checkpoint can be read on the nodes where it was saved only: it resumes there or nowhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_pinned: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreemptMode {
    /// It saves its work, ends, and waits again in its old place of the line.
    #[default]
    Requeue,
    /// It ends for good.
    Cancel,
    /// It does not make way; so it is given only what is guaranteed to its queue or to nobody.
    Never,
}

/// How a gang is stopped: the advisory signal if asked, then SIGTERM, then SIGKILL after the grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    pub advisory: Option<Advisory>,
    pub grace_ms: u64,
}

/// A signal that asks ranks to save their work, ahead of SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advisory {
    /// Signal number, e.g. 10 for SIGUSR1 on Linux.
    pub signal: i32,
    pub lead_ms: u64,
}

/// Which failures restart the gang, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Restarts, not counting the first start.
    pub max: u32,
    pub on: Vec<FailureClass>,
    /// Doubles with every failure, up to `backoff_max_ms`.
    pub backoff_ms: u64,
    pub backoff_max_ms: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            time_limit_ms: None,
            start_deadline_ms: 60_000,
            stop: Stop { advisory: None, grace_ms: 30_000 },
            retry: Retry { max: 0, on: Vec::new(), backoff_ms: 1_000, backoff_max_ms: 300_000 },
            preempt: Preempt::default(),
            idle_limit_ms: None,
        }
    }
}

/// Whose fault a failure is. `retry` names these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The program ended with a non-zero code or a signal that Phalanx did not send.
    UserCode,
    /// A member could not be started: command not found, port taken, deadline.
    StartUp,
    /// The machine is gone, was rebooted, or is being drained.
    Node,
    /// Stopped for other work.
    Preemption,
    /// Phalanx lost the member: its shim died, its state could not be read.
    Infrastructure,
}

impl FailureClass {
    pub const ALL: [Self; 5] =
        [Self::UserCode, Self::StartUp, Self::Node, Self::Preemption, Self::Infrastructure];

    /// The word users write and read.
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
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Succeeded,
    Failed {
        class: FailureClass,
        /// The rank that failed first, where one did.
        rank: Option<u32>,
        /// Its exit code, where it has one.
        code: Option<i32>,
        detail: String,
    },
    Cancelled {
        by: String,
    },
    /// Ran longer than its time limit.
    TimeLimit,
    /// Had to make way, and does not wait again.
    Preempted {
        detail: String,
    },
    /// Could not start by its deadline.
    DeadlineMissed,
    /// What it waited for ended otherwise.
    DependencyFailed {
        job: JobId,
    },
    /// A session that nobody used for as long as its limit.
    IdleLimit,
}

/// No user's name has a space in it.
const FOR_GANG: &str = "gang ";

impl Ending {
    /// What `phalanx run` exits with: the job's own code, 124 for the time limit, 130 for a cancel.
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

    /// How a job with these gangs ended: as the first that did not succeed of its own accord. (The others were
    /// stopped for it, see [`Self::for_another_gang`].)
    #[must_use]
    pub fn of_job<'a>(gangs: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let mut bad = gangs.filter(|e| **e != Self::Succeeded);
        let own = bad.clone().find(|e| !matches!(e, Self::Cancelled { by } if by.starts_with(FOR_GANG)));
        own.or_else(|| bad.next()).cloned().unwrap_or(Self::Succeeded)
    }

    /// Whose word stops a gang because another one of its job ended badly.
    #[must_use]
    pub fn for_another_gang(gang: crate::GangId) -> String {
        format!("{FOR_GANG}{gang}")
    }

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
