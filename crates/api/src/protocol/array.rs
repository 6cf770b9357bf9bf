//! How users name jobs and tasks of arrays, and what they see of an array.

use std::fmt;

use phalanx_model::{JobId, Progress, Tasks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A job as users name it: its number, or its name where that is clear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobRef {
    Id(JobId),
    /// The newest unfinished job of that name, else the newest.
    Name(String),
    /// Tasks of an array, by their numbers.
    Tasks(JobId, Tasks),
}

impl fmt::Display for JobRef {
    /// As [`JobRef::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Name(name) => f.write_str(name),
            Self::Tasks(id, tasks) => write!(f, "{id}.{tasks}"),
        }
    }
}

impl JobRef {
    /// A number is a number, `7.3` or `7.3-9` are tasks of job 7, and everything else is a name. Never a prefix of either.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let number = |text: &str| text.parse().ok().map(JobId);
        let tasks = |text: &str| {
            let (job, tasks) = text.split_once('.')?;
            Some(Self::Tasks(number(job)?, Tasks::read(tasks).ok()?))
        };
        number(text).map(Self::Id).or_else(|| tasks(text)).unwrap_or_else(|| Self::Name(text.to_owned()))
    }

    /// The job as it is named here, without its tasks.
    #[must_use]
    pub fn whole(&self) -> Self {
        match self {
            Self::Tasks(id, _) => Self::Id(*id),
            other => other.clone(),
        }
    }

    /// The tasks that are named.
    #[must_use]
    pub const fn tasks(&self) -> Option<&Tasks> {
        match self {
            Self::Tasks(_, tasks) => Some(tasks),
            _ => None,
        }
    }
}

/// The tasks of an array, of which a view lists a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArrayView {
    /// Their numbers, such as `0-99999`.
    pub numbers: Tasks,
    pub tasks: u32,
    /// How many may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
    pub progress: Progress,
    /// Tasks that are not listed.
    pub left_out: u32,
}

impl ArrayView {
    /// The number of tasks in each state, without the states that no task is in.
    #[must_use]
    pub fn counts(&self) -> Vec<(u32, &'static str)> {
        let Progress { pending, starting, running, stopping, succeeded, failed, .. } = self.progress;
        let all = [
            (running, "running"),
            (starting, "starting"),
            (stopping, "stopping"),
            (pending, "pending"),
            (succeeded, "succeeded"),
            (failed, "not succeeded"),
        ];
        all.into_iter().filter(|(count, _)| *count > 0).collect()
    }
}
