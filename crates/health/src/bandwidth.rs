//! The measured bandwidth of a node's network: the measurement that counts, and what it counts as by now.

use phalanx_model::{Bandwidth, NodeName, Timestamp, Uplink};
use serde::{Deserialize, Serialize};

use crate::{MINUTE_MS, Policy};

/// If a measurement goes on, the engine hears the time of the last one so often.
const SAY_EVERY_MS: u64 = 10 * MINUTE_MS;

/// The measurement of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Measured {
    last: Option<Measurement>,
    /// A person said so at this time, also that the network is nominal: no sample counts until that decays.
    #[serde(skip_serializing_if = "Option::is_none")]
    said_at: Option<Timestamp>,
    /// What the engine knows: what it counts as, and when it was measured.
    told: Option<(u16, Timestamp)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Measurement {
    permille: u16,
    at: Timestamp,
    detail: String,
}

impl Measured {
    pub(crate) const fn is_nothing(&self) -> bool {
        self.last.is_none() && self.told.is_none() && self.said_at.is_none()
    }

    /// Whether the network is as it should be.
    pub(crate) const fn is_nominal(&self) -> bool {
        self.last.is_none()
    }

    /// A person, or a tool of an operator, measured it: that counts, whatever was measured before and whatever samples show,
    /// until it decays. The engine hears it in any case.
    pub(crate) fn report(&mut self, now: Timestamp, permille: u16, detail: String) {
        let is_slow = Bandwidth::in_steps(permille) < Bandwidth::NOMINAL;
        self.last = is_slow.then_some(Measurement { permille, at: now, detail });
        self.said_at = Some(now);
        if is_slow {
            // No measurement counts as 0, so the engine hears this one.
            self.told = self.told.map(|(_, at)| (0, at));
        }
    }

    /// A sample shows it: that counts if it is slow, no better than what an earlier measurement counts as by now, and no
    /// person said otherwise.
    pub(crate) fn sample(&mut self, now: Timestamp, permille: u16, detail: String, policy: &Policy) {
        let counts = Bandwidth::in_steps(permille);
        if self.said_at.is_none() && counts < Bandwidth::NOMINAL && counts <= self.counts(now, policy) {
            self.last = Some(Measurement { permille, at: now, detail });
        }
    }

    pub(crate) fn clear(&mut self) {
        (self.last, self.said_at) = (None, None);
    }

    /// Time passed.
    pub(crate) fn tick(&mut self, now: Timestamp, policy: &Policy) {
        if self.counts(now, policy) == Bandwidth::NOMINAL {
            self.last = None;
        }
        // That the network is nominal counts as long as any other measurement.
        if self.said_at.is_some_and(|at| now.since(at) >= policy.bandwidth_decay_ms) {
            self.said_at = None;
        }
    }

    fn counts(&self, now: Timestamp, policy: &Policy) -> u16 {
        self.last.as_ref().map_or(Bandwidth::NOMINAL, |last| {
            Bandwidth::decayed(last.permille, now.since(last.at), policy.bandwidth_decay_ms)
        })
    }

    /// When it counts as nominal again: within half a step of it.
    pub(crate) fn ends_at(&self, policy: &Policy) -> Option<Timestamp> {
        let last = self.last.as_ref()?;
        let missing = u64::from(Bandwidth::NOMINAL.saturating_sub(last.permille)).max(1);
        // The most that may be missing of a share that counts as nominal.
        let rest = u64::from(Bandwidth::STEP / 2);
        // Missing shares are rounded down. So long before its end more than the rest is missing for the last time.
        let left_ms =
            (u128::from(rest + 1) * u128::from(policy.bandwidth_decay_ms)).div_ceil(u128::from(missing));
        let left_ms = u64::try_from(left_ms).unwrap_or(u64::MAX);
        Some(last.at.plus(policy.bandwidth_decay_ms.saturating_sub(left_ms).saturating_add(1)))
    }

    /// The fact as it is now; `None` if the network is nominal.
    pub(crate) fn fact(&self, node: &NodeName, now: Timestamp, policy: &Policy) -> Option<Bandwidth> {
        let last = self.last.as_ref()?;
        let counts_permille = self.counts(now, policy);
        (counts_permille < Bandwidth::NOMINAL).then(|| Bandwidth {
            uplink: Uplink::Node(node.clone()),
            permille: last.permille,
            counts_permille,
            at: last.at,
            detail: last.detail.clone(),
        })
    }

    /// The fact, if the engine does not know it: it counts as another step, or was measured again long after.
    pub(crate) fn news(&mut self, node: &NodeName, now: Timestamp, policy: &Policy) -> Option<Bandwidth> {
        let fact = self.fact(node, now, policy);
        let is_known = match (&fact, self.told) {
            (Some(fact), Some((counts, at))) => {
                fact.counts_permille == counts && fact.at.since(at) < SAY_EVERY_MS
            }
            (None, None) => true,
            _ => false,
        };
        if is_known {
            return None;
        }
        self.told = fact.as_ref().map(|fact| (fact.counts_permille, fact.at));
        Some(fact.unwrap_or_else(|| Bandwidth::nominal(Uplink::Node(node.clone()), now)))
    }
}
