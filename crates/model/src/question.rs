//! Questions that change nothing, answered by the predicates that decide.

use serde::{Deserialize, Serialize};

use crate::{GangId, Job, JobId, NodeName, Opening, Rejection, Report};

/// What would happen if …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// … this job were submitted now?
    Submitted(Box<Job>),
    /// … these running jobs ended now? Which pending gangs could start then?
    Ended(Vec<JobId>),
    /// … this node were drained?
    Drained(NodeName),
    /// … gangs that may move opened a place for this gang, or for the first one for which they can?
    Defragmented(Option<GangId>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// One report per gang of the job.
    WouldBe(Vec<Report>),
    Rejected(Rejection),
    /// Jobs that could then start, and jobs that would be stopped.
    Moves {
        start: Vec<JobId>,
        stop: Vec<JobId>,
    },
    /// What would move, and for which gang.
    WouldOpen(Box<Opening>),
    /// Nothing would move.
    OpensNothing {
        why: String,
    },
    Unknown {
        what: String,
    },
}
