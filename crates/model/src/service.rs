//! Services: jobs whose gangs are equal replicas, as many of them running as are wanted.

use serde::{Deserialize, Serialize};

use crate::{GangId, JobId, LevelName, Timestamp};

/// The gangs of the job are replicas that run and end by themselves. Between `min` and all of them but `surge` are wanted at
/// a time: those with the lowest numbers that have not ended. The others rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// So many always: those with the numbers below do not make way.
    pub min: u32,
    /// Without one, as many are wanted as somebody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// A replica goes to the domain of this level that has the fewest of them, where it fits there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<LevelName>,
    /// So many more may run at once while others leave their nodes, each of which goes once another runs in its stead.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub surge: u32,
    /// The number of each gang among the replicas, where one took over from another; else each has its index. The engine
    /// keeps it.
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
        self.numbers.get(usize::from(gang.index)).map_or_else(|| gang.index.into(), |number| (*number).into())
    }

    /// The most that may be wanted, of a job with so many gangs.
    #[must_use]
    pub fn most(&self, gangs: usize) -> u32 {
        u32::try_from(gangs).unwrap_or(u32::MAX).saturating_sub(self.surge)
    }

    /// Of so many gangs one takes over the number of another, which is the last from now on.
    pub fn replace(&mut self, gang: GangId, by: GangId, gangs: usize) {
        let indices = (0..=u16::MAX).take(gangs);
        if self.numbers.is_empty() {
            self.numbers = indices.clone().collect();
        }
        let (gang, by) = (usize::from(gang.index), usize::from(by.index));
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
