//! Questions that change nothing, answered by the predicates that decide.

use serde::{Deserialize, Serialize};

use crate::{Job, JobId, NodeName, Rejection, Report};

/// What would happen if …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// … this job were submitted now?
    Submitted(Box<Job>),
    /// … this running job ended now? Which pending gangs could start then?
    Ended(JobId),
    /// … this node were drained?
    Drained(NodeName),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    Unknown {
        what: String,
    },
}
