//! Services: jobs whose gangs are equal replicas, as many of them running as are wanted.

use serde::{Deserialize, Serialize};

use crate::{JobId, LevelName, Timestamp};

/// The gangs of the job are replicas that run and end by themselves. Between `min` and all of them are wanted at a time:
/// the first ones that have not ended. The others rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// So many always: the first `min` gangs do not make way.
    pub min: u32,
    /// Without one, as many are wanted as somebody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// A replica goes to the domain of this level that has the fewest of them, where it fits there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<LevelName>,
}

/// What one replica is to have of a metric that replicas tell of: a utilisation, requests that wait, tokens a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub metric: String,
    /// In thousandths of its unit, at least 1.
    pub value_milli: u64,
    /// Fewer replicas are wanted once fewer were needed for so long.
    #[serde(default = "five_minutes_ms")]
    pub settle_ms: u64,
}

/// The stabilization window of the Kubernetes Horizontal Pod Autoscaler, when it scales in.
const fn five_minutes_ms() -> u64 {
    5 * 60_000
}

impl Target {
    #[must_use]
    pub fn new(metric: impl Into<String>, value_milli: u64) -> Self {
        Self { metric: metric.into(), value_milli, settle_ms: five_minutes_ms() }
    }
}

/// How many replicas of a service are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    pub job: JobId,
    pub replicas: u32,
    /// What the latest looks at its metric said, the oldest first; of those that said no more than a later one, only the
    /// later. Nothing where somebody says how many are wanted: the looks begin anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<Look>,
}

/// So many replicas were needed by the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    pub at: Timestamp,
    pub replicas: u32,
}

/// An interactive allocation and when somebody last used it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub job: JobId,
    pub used_at: Timestamp,
}
