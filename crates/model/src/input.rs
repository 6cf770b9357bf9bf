//! Facts: everything that can change the engine. Past tense, and never wrong about the past.

use serde::{Deserialize, Serialize};

use crate::later::{Calendar, Health, Metric, SpotNotice};
use crate::past::PastRuns;
use crate::queue::{FadedUse, Queue, Settings};
use crate::{
    Boost, CostTable, DeviceMask, EffectId, Exit, FailureClass, ForeignUse, GangId, GangRecord, Job, JobId,
    Levels, MemberId, MemberState, Node, NodeName, QueueName, Service, Session, Timestamp,
};

/// One kind of thing that a world lists anew after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncKind {
    Nodes,
    Jobs,
    Queues,
    /// Members that exist in the world. Those the ledger expects and nobody observed are lost.
    Members,
}

/// A fact. A bad one becomes a typed rejection; none stops a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// A list of one kind begins: what is not observed before its end is gone.
    SyncBegin {
        kind: SyncKind,
    },
    SyncEnd {
        kind: SyncKind,
    },

    LevelsConfigured {
        levels: Levels,
    },
    CostsCompiled {
        table: CostTable,
    },
    NodeObserved {
        node: Box<Node>,
    },
    /// What others use of a node that is there.
    NodeUseObserved {
        node: NodeName,
        /// See [`Node::foreign`].
        foreign: DeviceMask,
        #[serde(default, skip_serializing_if = "ForeignUse::is_nothing")]
        foreign_use: ForeignUse,
    },
    NodeRemoved {
        node: NodeName,
    },
    NodeCordoned {
        node: NodeName,
    },
    NodeUncordoned {
        node: NodeName,
    },
    DrainRequested {
        node: NodeName,
    },

    SettingsConfigured {
        settings: Box<Settings>,
    },
    QueueObserved {
        queue: Box<Queue>,
    },
    QueueRemoved {
        queue: QueueName,
    },
    /// What a queue had used, as it was last known.
    UsageObserved {
        queue: QueueName,
        usage: FadedUse,
    },

    /// New work.
    JobSubmitted {
        job: Box<Job>,
    },
    /// Known work, with where it stood.
    JobObserved {
        job: Box<Job>,
        gangs: Vec<GangRecord>,
    },
    CancelRequested {
        job: JobId,
        by: String,
    },
    /// It waits until it is released; what runs goes on.
    JobHeld {
        job: JobId,
        by: String,
    },
    JobReleased {
        job: JobId,
        by: String,
    },
    /// More priority for a while, or no longer.
    JobBoosted {
        job: JobId,
        boost: Option<Boost>,
    },
    /// A finished job left the books (retention).
    JobForgotten {
        job: JobId,
    },

    /// A member stands at the gate.
    MemberReady {
        member: MemberId,
    },
    /// A member went through the gate.
    MemberReleased {
        member: MemberId,
    },
    /// All of a member's processes are gone.
    MemberExited {
        member: MemberId,
        exit: Exit,
    },
    /// A member found in the world, after a restart.
    MemberObserved {
        member: MemberId,
        state: MemberState,
    },
    /// Members hold other devices of their nodes than they were given, and as many. Those that were exchanged are told
    /// together.
    DevicesObserved {
        members: Vec<(MemberId, DeviceMask)>,
    },
    /// A gang's ranks saved their work.
    GangCheckpointed {
        gang: GangId,
        at: Timestamp,
    },

    /// A gang that runs may not be made to make way for now, or may again: a budget of its world for disruptions says so.
    GangProtected {
        gang: GangId,
        is_protected: bool,
    },

    /// A gang's ranks saved their work, and its size may change now.
    BoundaryReached {
        gang: GangId,
        at: Timestamp,
    },

    EffectDone {
        effect: EffectId,
    },
    /// Nothing of the order happened.
    EffectFailed {
        effect: EffectId,
        class: FailureClass,
        detail: String,
    },
    /// A time-out: it may have happened.
    EffectUnknown {
        effect: EffectId,
    },

    CalendarObserved {
        calendar: Calendar,
    },
    SpotNoticed {
        notice: SpotNotice,
    },

    /// Known to the model, and recorded by the ledger; no policy uses it yet.
    GangResized {
        gang: GangId,
        size: u32,
    },
    /// So many replicas are wanted: somebody said so, or a world lists what it knows.
    ServiceObserved {
        service: Service,
    },
    /// Somebody used a session.
    SessionObserved {
        session: Session,
    },
    MetricObserved {
        metric: Metric,
    },
    /// Known to the model, and recorded by the ledger; no policy uses it yet.
    HealthGraded {
        health: Health,
    },

    /// How long a user's jobs of one name took, as it was last known.
    RunsObserved {
        runs: PastRuns,
    },
}
