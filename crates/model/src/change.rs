//! What changed in a step.

use serde::{Deserialize, Serialize};

use crate::{
    Ending, GangId, JobId, Leave, Placement, Reason, Rejection, Reserved, Resize, StopCause, Timestamp,
};

/// One thing that changed in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Change {
    JobAccepted {
        job: JobId,
    },
    JobRejected {
        job: JobId,
        why: Rejection,
    },
    /// A fact was rejected: which fact, and why.
    InputRejected {
        what: String,
        why: String,
    },
    GangPlaced {
        gang: GangId,
        attempt: u32,
        placement: Placement,
    },
    GangRunning {
        gang: GangId,
        attempt: u32,
    },
    GangStopping {
        gang: GangId,
        attempt: u32,
        cause: StopCause,
    },
    /// All processes of an attempt are gone, and the gang is requeued.
    GangRetrying {
        gang: GangId,
        failures: u32,
        not_before: Timestamp,
    },
    /// A pending gang got a reservation.
    GangReserved {
        gang: GangId,
        reserved: Reserved,
    },
    /// An elastic gang will be resized: at its next boundary, or at once if it must free capacity.
    ResizeAsked {
        gang: GangId,
        resize: Resize,
    },
    /// A pending gang lost its reservation: why.
    ReservationDropped {
        gang: GangId,
        why: String,
    },
    GangFinished {
        gang: GangId,
        ending: Ending,
    },
    JobFinished {
        job: JobId,
        ending: Ending,
    },
    /// The desired number of replicas of a service changed.
    ServiceScaled {
        job: JobId,
        before: u32,
        replicas: u32,
        /// The total of the metric over all replicas, if the metric caused the change, in thousandths of its unit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        load_milli: Option<u64>,
    },
    /// A replica will stop when its replacement runs.
    ReplicaLeaves {
        gang: GangId,
        leave: Leave,
    },
    /// A replica will not be replaced after all.
    ReplicaStays {
        gang: GangId,
    },
    /// A running replica took over the number of a replica that leaves its nodes.
    ReplicaReplaced {
        gang: GangId,
        by: GangId,
    },
    /// The reason of a pending gang changed.
    ReasonChanged {
        gang: GangId,
        reason: Reason,
    },
}

impl Change {
    /// The gang that the change is about, if it is about one.
    #[must_use]
    pub const fn gang(&self) -> Option<GangId> {
        match self {
            Self::GangPlaced { gang, .. }
            | Self::GangRunning { gang, .. }
            | Self::GangStopping { gang, .. }
            | Self::GangRetrying { gang, .. }
            | Self::GangFinished { gang, .. }
            | Self::ReasonChanged { gang, .. }
            | Self::GangReserved { gang, .. }
            | Self::ReservationDropped { gang, .. }
            | Self::ResizeAsked { gang, .. } => Some(*gang),
            _ => None,
        }
    }
}
