//! Facts: everything that can change the engine. They are in the past tense.

use serde::{Deserialize, Serialize};

use crate::health::Health;
use crate::later::{Calendar, Metric, SpotNotice};
use crate::past::PastRuns;
use crate::queue::{DecayedUsage, Queue, Settings};
use crate::{
    Bandwidth, Boost, CostTable, DeviceMask, EffectId, Exit, FailureClass, ForeignUse, GangId, GangRecord,
    Job, JobId, JobUpdate, Levels, MemberId, MemberState, Node, NodeName, QueueName, Service, Session, Tasks,
    Timestamp,
};

/// A kind of object that a world lists again after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncKind {
    Nodes,
    Jobs,
    Queues,
    /// Members that exist in the world. Members that the ledger expects and the world does not observe are lost.
    Members,
}

/// A fact. An invalid fact becomes a typed rejection and never stops a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// A list of one kind begins. Objects that are not observed before its end are gone.
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
    /// The foreign use of a known node changed.
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
    /// Gangs that may move are to open a place for this pending gang, or for the first one for which they can.
    DefragmentationRequested {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gang: Option<GangId>,
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
    /// The last known usage of a queue.
    UsageObserved {
        queue: QueueName,
        usage: DecayedUsage,
    },

    /// New work.
    JobSubmitted {
        job: Box<Job>,
    },
    /// A known job with the records of its gangs.
    JobObserved {
        job: Box<Job>,
        #[serde(with = "crate::records")]
        gangs: Vec<GangRecord>,
    },
    /// A user cancels tasks of an array. Numbers that the array does not have, and tasks that have ended, are left out.
    TasksCancelRequested {
        job: JobId,
        tasks: Tasks,
        by: String,
    },
    CancelRequested {
        job: JobId,
        by: String,
    },
    /// The job's pending gangs wait until its release. Running gangs go on.
    JobHeld {
        job: JobId,
        by: String,
    },
    JobReleased {
        job: JobId,
        by: String,
    },
    /// The job has a priority boost for a time, or its boost ended.
    JobBoosted {
        job: JobId,
        boost: Option<Boost>,
    },
    /// A user changed a job that has not ended.
    JobUpdated {
        job: JobId,
        update: JobUpdate,
    },
    /// A user wants what runs of the job stopped and started again.
    JobRequeued {
        job: JobId,
        by: String,
    },
    /// The record of a finished job expired (retention).
    JobForgotten {
        job: JobId,
    },

    /// A member reached the start barrier.
    MemberReady {
        member: MemberId,
    },
    /// A member was released from the start barrier.
    MemberReleased {
        member: MemberId,
    },
    /// All of a member's processes are gone.
    MemberExited {
        member: MemberId,
        exit: Exit,
    },
    /// A member was found in the world after a restart.
    MemberObserved {
        member: MemberId,
        state: MemberState,
    },
    /// Members hold other devices of their nodes than the engine assigned, and as many. Members that exchanged
    /// devices are reported together.
    DevicesObserved {
        members: Vec<(MemberId, DeviceMask)>,
    },
    /// A gang's ranks saved their work.
    GangCheckpointed {
        gang: GangId,
        at: Timestamp,
    },

    /// A running gang became protected from preemption, or is no longer protected: a disruption budget of its world
    /// decides.
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
    /// The order timed out, and may have been carried out.
    EffectUnknown {
        effect: EffectId,
    },

    CalendarObserved {
        calendar: Calendar,
    },
    SpotNoticed {
        notice: SpotNotice,
    },

    /// A user set the size of an elastic gang, in members, from its next boundary on. `None`: it grows by itself again.
    GangResized {
        gang: GangId,
        size: Option<u32>,
    },
    /// The desired replicas of a service were set by a user, or were listed by a world.
    ServiceObserved {
        service: Service,
    },
    /// A session was used.
    SessionObserved {
        session: Session,
    },
    MetricObserved {
        metric: Metric,
    },
    /// The grade of devices of a node, or of the node itself, changed.
    HealthGraded {
        health: Health,
    },
    /// A link was measured, or its measurement counts for less than before.
    BandwidthMeasured {
        bandwidth: Bandwidth,
    },

    /// The last known run times of a user's jobs of one name.
    RunsObserved {
        runs: PastRuns,
    },
}
