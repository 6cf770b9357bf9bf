//! Where a gang stands: its phase, its members, its placement. These are the ledger's own records, and they
//! are what a world keeps for it across a restart (see `docs/states.md`).

use serde::{Deserialize, Serialize};

use crate::{
    ClassName, DeviceMask, DevicePart, Ending, FailureClass, GangId, LevelName, NodeName, QueueName,
    Timestamp,
};

/// Which member gets which devices of which node, and which rank it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// In rank order: `slots[r].rank == r`.
    pub slots: Vec<Slot>,
    /// The narrowest level whose single domain holds every member.
    pub level: LevelName,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    pub rank: u32,
    pub node: NodeName,
    pub devices: DeviceMask,
    /// Where it has a part of a device: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<DevicePart>,
}

/// Everything the ledger must remember of a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangRecord {
    pub id: GangId,
    pub phase: Phase,
    /// Starts so far, the current one included.
    pub attempt: u32,
    /// Failures that counted against [`crate::Retry::max`].
    pub failures: u32,
    /// Times a later gang was started ahead of this one while it waited.
    pub bypassed: u32,
    /// When it began to wait, this time.
    pub pending_since: Timestamp,
    pub first_started_at: Option<Timestamp>,
    pub checkpointed_at: Option<Timestamp>,
    /// Held from the order to start until every member's processes are gone; a finished gang keeps its last one
    /// for people to read, and holds nothing.
    pub placement: Option<Placement>,
    /// One per rank of the current attempt; empty while it waits.
    pub members: Vec<MemberRecord>,
    /// Capacity that is held for it while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Reserved>,
    /// The last time that it had to make way, and how often it had to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<Eviction>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub evictions: u32,
    /// Where its checkpoint is, if it can be read there only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<NodeName>,
    /// The last time that it said that its size may change now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary: Option<Boundary>,
    /// The size that it is to have, from its next boundary or its next start on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<Resize>,
    /// It is to leave its nodes once another replica runs in its stead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves: Option<Leave>,
    /// What it had of devices in all its attempts, as far as that was counted.
    #[serde(default, skip_serializing_if = "Served::is_none")]
    pub served: Served,
    /// It may not be made to make way for now, see [`crate::Input::GangProtected`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_protected: bool,
}

/// Device time that a gang has had while it ran, counted up to a moment. What a run that goes on had since then comes on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    /// With what so many thousandths of devices had from `since` until `now`, as far as that is not counted yet.
    #[must_use]
    pub fn with(self, device_milli: u64, since: Timestamp, now: Timestamp) -> Self {
        let more = now.since(self.until.max(since)).saturating_mul(device_milli);
        // Nothing is nothing, whenever it was looked at: what is not written down must not differ.
        if more == 0 {
            return self;
        }
        Self { device_us: self.device_us.saturating_add(more), until: self.until.max(now) }
    }
}

/// Why a replica of a service leaves its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    pub detail: String,
    /// Its last process has to be gone by then, whether or not another runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A moment at which an elastic gang may be stopped and started with another size: its work is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    pub at: Timestamp,
    /// From the one before it, of the same attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
}

/// Another size for an elastic gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// Members.
    pub size: u32,
    /// What it keeps of its place: it starts there again, or with more where that is free.
    pub keeps: Placement,
    /// Whom it shrinks for; nobody where it grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<GangId>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A future placement with a start time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    pub placement: Placement,
    /// When all of it is free at the latest; unknown where somebody in the way has no time limit.
    pub at: Option<Timestamp>,
    /// Gangs were told to make way for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evicts: bool,
    pub made_at: Timestamp,
}

/// Why a gang had to make way, and what that cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// Whom it makes way for.
    pub by: GangId,
    pub rule: EvictionRule,
    pub at: Timestamp,
    /// Work since the last checkpoint, or since the start where there is none: milliseconds of one device.
    pub lost_device_ms: u64,
    /// Longest time to save its work and end, where the class of the other allows less than it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_max_ms: Option<u64>,
}

/// By what right one gang evicts another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvictionRule {
    /// `queue` takes back what is guaranteed to it, from one that `borrower` runs above its own guarantee.
    Guarantee { queue: QueueName, borrower: QueueName },
    /// `queue` has less than its due share, and `borrower` more.
    FairShare { queue: QueueName, borrower: QueueName },
    /// A class goes before a lower one.
    Class { class: ClassName, over: ClassName },
    /// In a queue that goes by service, a lower level goes before a higher one.
    LessServed { queue: QueueName, level: u32, over: u32 },
}

impl std::fmt::Display for EvictionRule {
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
        }
    }
}

/// Where a gang stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits for capacity; not before `not_before` (back-off).
    Pending {
        not_before: Timestamp,
    },
    /// Members are being brought to the gate; nothing of the user's runs yet.
    Starting {
        deadline: Timestamp,
    },
    /// Every member was released.
    Running {
        since: Timestamp,
    },
    /// Members are being stopped; holds its devices until the last process is gone.
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

/// Why a gang is being stopped, and so what comes after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// A member failed; retry or end by policy.
    Failure {
        class: FailureClass,
        rank: Option<u32>,
        code: Option<i32>,
        detail: String,
    },
    /// Not the gang's fault (a node is drained, other work goes first): it waits again, and nothing counts
    /// against its retries.
    Displaced {
        class: FailureClass,
        detail: String,
        /// Its last process has to be gone by then: that bounds its grace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// It makes way for another.
    Preempted(Eviction),
    /// It starts again with another size, from where it is now.
    Resized {
        size: u32,
    },
    Cancelled {
        by: String,
    },
    TimeLimit,
    /// It is a replica of a service that needs so many only: it rests.
    ScaledIn {
        replicas: u32,
    },
    /// Nobody used the session.
    IdleLimit,
}

/// How far the stopping went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopStage {
    Advised,
    Terminated,
    Killed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    pub state: MemberState,
}

/// Where one member stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// Ordered; the world has not answered.
    Requested,
    /// Stands at the gate: everything is prepared, nothing of the user's runs.
    Ready,
    /// Let through the gate.
    Running,
    /// All of its processes are gone.
    Exited(Exit),
}

/// How a member ended. Reported only when its last process, grandchildren included, is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code of the rank's own process.
    pub code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// Set when it was not the program that failed.
    pub class: Option<FailureClass>,
    pub detail: String,
}

impl Exit {
    /// Ended with code 0.
    #[must_use]
    pub const fn succeeded() -> Self {
        Self { code: Some(0), signal: None, class: None, detail: String::new() }
    }

    #[must_use]
    pub const fn code(code: i32) -> Self {
        Self { code: Some(code), signal: None, class: None, detail: String::new() }
    }

    /// A member that never ran the user's program.
    #[must_use]
    pub fn failed(class: FailureClass, detail: impl Into<String>) -> Self {
        Self { code: None, signal: None, class: Some(class), detail: detail.into() }
    }

    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code == Some(0) && self.class.is_none()
    }

    /// A shell's way of putting it: the code, or 128 + the signal.
    #[must_use]
    pub fn shell_code(&self) -> Option<i32> {
        self.code.or_else(|| self.signal.map(|s| 128 + s))
    }
}

impl GangRecord {
    /// One that waits since then, and was never started.
    #[must_use]
    pub const fn pending(id: GangId, since: Timestamp) -> Self {
        Self {
            id,
            phase: Phase::Pending { not_before: since },
            attempt: 0,
            failures: 0,
            bypassed: 0,
            pending_since: since,
            first_started_at: None,
            checkpointed_at: None,
            placement: None,
            members: Vec::new(),
            reserved: None,
            evicted: None,
            evictions: 0,
            pinned: Vec::new(),
            boundary: None,
            resize: None,
            leaves: None,
            served: Served::NONE,
            is_protected: false,
        }
    }

    /// Holds devices: from the order to start until the last process is gone.
    #[must_use]
    pub const fn holds_capacity(&self) -> bool {
        matches!(self.phase, Phase::Starting { .. } | Phase::Running { .. } | Phase::Stopping { .. })
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
    /// The word users read.
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
