//! What a user changes of a job that was submitted.

use serde::{Deserialize, Serialize};

use crate::{Job, QueueName};

/// What is to change of a job. `None` leaves it as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobUpdate {
    /// In milliseconds, above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Only while none of its gangs holds capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
}

impl JobUpdate {
    /// Changes the job. Whether it may be changed so is for others to say.
    pub fn apply(&self, job: &mut Job) {
        job.policy.time_limit_ms = self.time_limit_ms.or(job.policy.time_limit_ms);
        job.priority = self.priority.unwrap_or(job.priority);
        if let Some(queue) = &self.queue {
            job.queue = queue.clone();
        }
    }
}
