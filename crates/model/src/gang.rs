//! The state of a gang: its phase, members and placement. The ledger keeps these records, and a world keeps them
//! across a restart (see `docs/states.md`).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    ClassName, DeviceMask, DevicePart, Ending, FailureClass, GangId, LevelName, NodeName, QueueName,
    Timestamp, WeighedLink,
};

/// Which member gets which devices of which node, and which rank it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Placement {
    /// In rank order: `slots[r].rank == r`.
    pub slots: Vec<Slot>,
    /// The narrowest level whose single domain holds every member.
    pub level: LevelName,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Slot {
    pub rank: u32,
    pub node: NodeName,
    pub devices: DeviceMask,
    /// The part of the device, if the member has only a part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<DevicePart>,
}

/// Everything the ledger must remember of a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GangRecord {
    pub id: GangId,
    pub phase: Phase,
    /// Starts so far, the current one included.
    pub attempt: u32,
    /// Failures that counted against [`crate::Retry::max`].
    pub failures: u32,
    /// Those since the gang last ran for as long as the longest pause between tries, [`crate::Retry::backoff_max_ms`]: the
    /// pause doubles with each of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures_in_a_row: u32,
    /// Times a later gang was started ahead of this one while it waited.
    pub bypassed: u32,
    /// When the gang last became pending.
    pub pending_since: Timestamp,
    pub first_started_at: Option<Timestamp>,
    pub checkpointed_at: Option<Timestamp>,
    /// Time between the last two checkpoints of its present attempt; of the first checkpoint, since the attempt began to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saves_every_ms: Option<u64>,
    /// From the start order until all processes of all members are gone; [`Self::held`] is the part of it that the gang
    /// holds. A finished gang keeps its last placement for people to read, and holds no capacity.
    pub placement: Option<Placement>,
    /// One record per rank of the current attempt. Empty while the gang is pending.
    pub members: Vec<MemberRecord>,
    /// The gang's reservation while it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Reserved>,
    /// The last preemption of the gang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<Preemption>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub evictions: u32,
    /// The nodes of its last attempt, if other nodes could not read a checkpoint from there: once there is one, the gang
    /// resumes on these nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<NodeName>,
    /// When the gang last reported that its size may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary: Option<Boundary>,
    /// A requested size. It applies at the next boundary or the next start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<Resize>,
    /// The size that a user set, in members: the gang grows no further by itself. It may still shrink for others, and
    /// grow back. `None`: it grows up to [`crate::Gang::max`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grows_to: Option<u32>,
    /// Set while the replica waits for its replacement to run, after which it stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves: Option<Leave>,
    /// The attained service of all attempts, as far as it is counted.
    #[serde(default, skip_serializing_if = "Served::is_none")]
    pub served: Served,
    /// The gang is protected from preemption for now, see [`crate::Input::GangProtected`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_protected: bool,
    /// Hardware failed under its last attempt, or its node was drained: until it starts again, it may use spare nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost_hardware: bool,
    /// Where it was then, until places near by have been sought for what it lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_on: Option<Placement>,
    /// Nodes that are kept free for the gang while it is stopped for its hardware: it starts again there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves_to: Vec<NodeName>,
    /// The slow links that its last start used or avoided; of many, the slowest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weighed: Vec<WeighedLink>,
}

/// The device time that a gang attained, counted up to `until`. Device time since then is added by [`Served::with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Served {
    /// Millionths of a second of one device.
    pub device_us: u64,
    pub until: Timestamp,
}

impl Served {
    pub const NONE: Self = Self { device_us: 0, until: Timestamp(0) };

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.device_us == 0
    }

    /// Adds the service of `device_milli` devices from `since` until `now`, unless it is counted already.
    #[must_use]
    pub fn with(self, device_milli: u64, since: Timestamp, now: Timestamp) -> Self {
        let more = now.since(self.until.max(since)).saturating_mul(device_milli);
        // An empty record must stay equal to a missing one, so `until` does not move without service.
        if more == 0 {
            return self;
        }
        Self { device_us: self.device_us.saturating_add(more), until: self.until.max(now) }
    }
}

/// Why a replica of a service leaves its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Leave {
    pub detail: String,
    /// The deadline for the exit of its last process, even if no replacement runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A moment at which an elastic gang has saved its work and may restart with another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Boundary {
    pub at: Timestamp,
    /// The time since the previous boundary of the same attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
}

/// Another size for an elastic gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resize {
    /// Members.
    pub size: u32,
    /// The part of its placement that the gang keeps. It restarts there, and on more devices if these are free.
    pub keeps: Placement,
    /// The gang for which it shrinks. `None` if it grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<GangId>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A future placement with a start time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reserved {
    pub placement: Placement,
    /// The latest time at which all of the capacity is free. `None` if a gang that holds some of it has no time
    /// limit.
    pub at: Option<Timestamp>,
    /// Gangs were preempted for the reservation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evicts: bool,
    pub made_at: Timestamp,
}

/// Why a gang was preempted, and the cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Preemption {
    /// The gang that preempts.
    pub by: GangId,
    pub rule: PreemptionRule,
    pub at: Timestamp,
    /// Work since the last checkpoint, or since the start if there is none, in milliseconds of one device.
    pub lost_device_ms: u64,
    /// The longest time to save work and exit, if the class of the preempting gang allows less than the gang
    /// requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_max_ms: Option<u64>,
}

/// The rule by which one gang preempts another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PreemptionRule {
    /// `queue` reclaims its guarantee from a gang that `borrower` runs above its own guarantee.
    Guarantee { queue: QueueName, borrower: QueueName },
    /// `queue` is below its fair share, and `borrower` is above its own.
    FairShare { queue: QueueName, borrower: QueueName },
    /// A higher class preempts a lower class.
    Class { class: ClassName, over: ClassName },
    /// In a queue that orders by attained service, a lower level preempts a higher level.
    LessServed { queue: QueueName, level: u32, over: u32 },
    /// A gang that lost hardware needs the spare nodes that a gang that takes spot nodes uses meanwhile.
    Spare,
}

impl std::fmt::Display for PreemptionRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Guarantee { queue, borrower } => {
                write!(f, "{queue} reclaimed its guarantee from {borrower}")
            }
            Self::FairShare { queue, borrower } => {
                write!(f, "{queue} reclaimed its fair share from {borrower}")
            }
            Self::Class { class, over } => write!(f, "class {class} may preempt class {over}"),
            Self::LessServed { queue, level, over } => {
                write!(
                    f,
                    "queue {queue} orders by attained service, and level {level} goes before level {over}"
                )
            }
            Self::Spare => f.write_str("the spare node that it used is needed for a gang that lost hardware"),
        }
    }
}

/// The phase of a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Pending, and not eligible before `not_before` (back-off).
    Pending {
        not_before: Timestamp,
    },
    /// Members are being prepared up to the start barrier. No user process runs yet.
    Starting {
        deadline: Timestamp,
    },
    /// Every member was released.
    Running {
        since: Timestamp,
    },
    /// Members are being stopped. Each holds its devices until its last process is gone.
    Stopping {
        cause: StopCause,
        stage: StopStage,
        next_at: Timestamp,
    },
    Finished {
        ending: Ending,
        at: Timestamp,
    },
}

/// Why a gang is being stopped. The cause decides what follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// A member failed; retry or end by policy.
    Failure {
        class: FailureClass,
        rank: Option<u32>,
        code: Option<i32>,
        detail: String,
    },
    /// The cause lies outside the gang, for example a drained node. The gang is requeued, and its retries do not
    /// count.
    Displaced {
        class: FailureClass,
        detail: String,
        /// The deadline for the exit of its last process. It bounds the grace period.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// Preempted by another gang.
    Preempted(Preemption),
    /// The gang restarts with another size.
    Resized {
        size: u32,
    },
    /// The gang moves to other nodes, which are kept for it, and so opens a place for a gang that waits (defragmentation).
    Moved {
        /// The gang that waits.
        by: GangId,
        to: Placement,
        /// What the move costs: its restart, and the work that is not saved, in milliseconds of one device.
        lost_device_ms: u64,
    },
    Cancelled {
        by: String,
    },
    TimeLimit,
    /// The service needs only `replicas` replicas, and this replica is beyond them.
    ScaledIn {
        replicas: u32,
    },
    /// The session reached its idle limit.
    IdleLimit,
}

impl StopCause {
    /// Whether a member that exited is not needed where it was: a gang that is resized, or lost hardware, starts again in
    /// the placement that it had, or what is left of it. A gang that moves leaves as a whole, so that its queue is charged for it
    /// until it starts again.
    #[must_use]
    pub const fn frees_exited(&self) -> bool {
        !matches!(self, Self::Resized { .. }) && !self.keeps_all_until_it_hangs()
    }

    /// Whether the gang holds all of its placement until its last member is gone, unless some of them hang.
    const fn keeps_all_until_it_hangs(&self) -> bool {
        self.is_of_hardware() || matches!(self, Self::Moved { .. })
    }

    /// Whether a node or a device is what the gang lost, or has to leave.
    #[must_use]
    pub const fn is_of_hardware(&self) -> bool {
        matches!(
            self,
            Self::Failure { class: FailureClass::Node, .. }
                | Self::Displaced { class: FailureClass::Node, .. }
        )
    }
}

/// The stage of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopStage {
    Advised,
    Terminated,
    Killed,
    /// Members that were killed are still there when the kill is repeated: they hang, and nobody knows for how long.
    Lingering,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberRecord {
    pub state: MemberState,
}

/// The state of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// The start was ordered, and the world has not answered.
    Requested,
    /// At the start barrier: everything is prepared, and no user process runs.
    Ready,
    /// Released from the start barrier.
    Running,
    /// All of its processes are gone.
    Exited(Exit),
}

/// How a member exited. Reported when its last process is gone, grandchildren included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exit {
    /// Exit code of the rank's own process.
    pub code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// The failure class if something other than the program failed.
    pub class: Option<FailureClass>,
    pub detail: String,
    /// When the rank's own process ended, in nanoseconds of the boot clock of its machine, if that is known. What it left may end
    /// later, and only times of one machine can be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
}

impl Exit {
    /// Ended with code 0.
    #[must_use]
    pub const fn succeeded() -> Self {
        Self::code(0)
    }

    #[must_use]
    pub const fn code(code: i32) -> Self {
        Self { code: Some(code), signal: None, class: None, detail: String::new(), ended_ns: None }
    }

    #[must_use]
    pub const fn by_signal(signal: i32) -> Self {
        Self { code: None, signal: Some(signal), class: None, detail: String::new(), ended_ns: None }
    }

    /// A member that never ran the user's program.
    #[must_use]
    pub fn failed(class: FailureClass, detail: impl Into<String>) -> Self {
        Self { code: None, signal: None, class: Some(class), detail: detail.into(), ended_ns: None }
    }

    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code == Some(0) && self.class.is_none()
    }

    /// The exit code as a shell reports it: the code, or 128 + the signal.
    #[must_use]
    pub fn shell_code(&self) -> Option<i32> {
        self.code.or_else(|| self.signal.map(|s| 128 + s))
    }
}

impl GangRecord {
    /// A pending gang that was never started.
    #[must_use]
    pub const fn pending(id: GangId, since: Timestamp) -> Self {
        Self {
            id,
            phase: Phase::Pending { not_before: since },
            attempt: 0,
            failures: 0,
            failures_in_a_row: 0,
            bypassed: 0,
            pending_since: since,
            first_started_at: None,
            checkpointed_at: None,
            saves_every_ms: None,
            placement: None,
            members: Vec::new(),
            reserved: None,
            evicted: None,
            evictions: 0,
            pinned: Vec::new(),
            boundary: None,
            resize: None,
            grows_to: None,
            leaves: None,
            served: Served::NONE,
            is_protected: false,
            lost_hardware: false,
            was_on: None,
            moves_to: Vec::new(),
            weighed: Vec::new(),
        }
    }

    /// Whether the gang holds devices: from the start order until its last process is gone.
    #[must_use]
    pub const fn holds_capacity(&self) -> bool {
        matches!(self.phase, Phase::Starting { .. } | Phase::Running { .. } | Phase::Stopping { .. })
    }

    /// Whether members of the gang that have exited hold nothing: the gang is being stopped, and does not start again in
    /// its placement. A gang that is resized keeps its placement until it starts again, and so do one that lost
    /// hardware and one that moves, unless some of their members hang; the members of a gang that starts or runs may still be needed.
    #[must_use]
    pub const fn frees_exited(&self) -> bool {
        match &self.phase {
            Phase::Stopping { cause, stage: StopStage::Lingering, .. }
                if cause.keeps_all_until_it_hangs() =>
            {
                true
            }
            Phase::Stopping { cause, .. } => cause.frees_exited(),
            _ => false,
        }
    }

    /// The part of its placement that the gang holds; `None` if it holds no capacity.
    #[must_use]
    pub fn held(&self) -> Option<Cow<'_, Placement>> {
        let placement = self.placement.as_ref().filter(|_| self.holds_capacity())?;
        let is_gone = |slot: &Slot| {
            let member = self.members.get(slot.rank as usize);
            member.is_some_and(|member| matches!(member.state, MemberState::Exited(_)))
        };
        if !self.frees_exited() || !placement.slots.iter().any(is_gone) {
            return Some(Cow::Borrowed(placement));
        }
        let slots = placement.slots.iter().filter(|slot| !is_gone(slot)).cloned().collect();
        Some(Cow::Owned(Placement { slots, level: placement.level.clone() }))
    }

    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished { .. })
    }

    #[must_use]
    pub const fn is_pending(&self) -> bool {
        matches!(self.phase, Phase::Pending { .. })
    }
}

impl Phase {
    /// The words of [`Self::word`] for a gang that has not ended; the others are [`Ending::WORDS`].
    pub const LIVING: [&str; 4] = ["pending", "starting", "running", "stopping"];

    /// The phase as users read it.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "pending",
            Self::Starting { .. } => "starting",
            Self::Running { .. } => "running",
            Self::Stopping { .. } => "stopping",
            Self::Finished { ending, .. } => ending.word(),
        }
    }
}
