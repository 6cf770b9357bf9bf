//! Services: jobs whose gangs are equal replicas. A desired number of them runs.

use serde::{Deserialize, Serialize};

use crate::{GangId, JobId, LevelName, Timestamp};

/// The gangs of the job are replicas, which run and end independently. The desired number is between `min` and all
/// replicas without `surge`. The desired replicas are those with the lowest numbers that have not ended; the others
/// are scaled in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replicas {
    /// The minimum. Replicas with lower numbers cannot be preempted.
    pub min: u32,
    /// The metric that decides the desired number. `None`: a user sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// A replica is placed in the domain of this level that has the fewest replicas, if it fits there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<LevelName>,
    /// The surge: extra replicas that may run while others are replaced. A replica stops when its replacement runs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub surge: u32,
    /// The number of each gang among the replicas, for gangs that took over the number of another gang. Other gangs
    /// have their index. The engine maintains it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<u16>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Replicas {
    /// The number of a gang among the replicas.
    #[must_use]
    pub fn number(&self, gang: GangId) -> u32 {
        self.numbers.get(gang.index as usize).map_or(gang.index, |number| (*number).into())
    }

    /// The largest desired number, for a job with this many gangs.
    #[must_use]
    pub const fn most(&self, gangs: u32) -> u32 {
        gangs.saturating_sub(self.surge)
    }

    /// One gang takes over the number of another gang, which gets the last number.
    pub fn replace(&mut self, gang: GangId, by: GangId, gangs: u32) {
        let indices = (0..=u16::MAX).take(gangs as usize);
        if self.numbers.is_empty() {
            self.numbers = indices.clone().collect();
        }
        let (gang, by) = (gang.index as usize, by.index as usize);
        let (Some(number), Some(left)) = (self.numbers.get(gang).copied(), self.numbers.get(by).copied())
        else {
            return;
        };
        let last = u16::try_from(gangs.saturating_sub(1)).unwrap_or(u16::MAX);
        self.numbers.iter_mut().filter(|other| **other > left).for_each(|other| *other -= 1);
        (self.numbers[by], self.numbers[gang]) = (number, last);
        if indices.eq(self.numbers.iter().copied()) {
            self.numbers.clear();
        }
    }
}

/// The target of a metric per replica: a utilisation, pending requests, tokens per second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Target {
    pub metric: String,
    /// In thousandths of its unit, at least 1.
    pub value_milli: u64,
    /// The stabilization time: the service scales in when fewer replicas were needed for this time.
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

/// The desired number of replicas of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Service {
    pub job: JobId,
    pub replicas: u32,
    /// The latest evaluations of its metric, oldest first. An evaluation that needs no more than a later evaluation
    /// is dropped. Empty if a user sets the desired number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<Look>,
    /// A user set the desired number: its metric changes nothing until the user gives the number back to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_set: bool,
}

/// One evaluation of the metric: the number of replicas that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Look {
    pub at: Timestamp,
    pub replicas: u32,
}

/// An interactive allocation, and when it was last used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Session {
    pub job: JobId,
    pub used_at: Timestamp,
}
