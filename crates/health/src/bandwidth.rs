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
        self.last.is_none() && self.told.is_none()
    }

    /// Whether the network is as it should be.
    pub(crate) const fn is_nominal(&self) -> bool {
        self.last.is_none()
    }

    /// A person, or a tool of an operator, measured it: that counts, whatever was measured before.
    pub(crate) fn report(&mut self, now: Timestamp, permille: u16, detail: String) {
        let is_slow = permille < Bandwidth::NOMINAL;
        self.last = is_slow.then_some(Measurement { permille, at: now, detail });
    }

    /// A sample shows it: that counts if it is no better than what an earlier measurement counts as by now.
    pub(crate) fn sample(&mut self, now: Timestamp, permille: u16, detail: String, policy: &Policy) {
        if Bandwidth::in_steps(permille) <= self.counts(now, policy) {
            self.report(now, permille, detail);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.last = None;
    }

    /// Time passed.
    pub(crate) fn tick(&mut self, now: Timestamp, policy: &Policy) {
        if self.counts(now, policy) == Bandwidth::NOMINAL {
            self.last = None;
        }
    }

    fn counts(&self, now: Timestamp, policy: &Policy) -> u16 {
        self.last.as_ref().map_or(Bandwidth::NOMINAL, |last| {
            Bandwidth::decayed(last.permille, now.since(last.at), policy.bandwidth_decay_ms)
        })
    }

    /// When it is nominal again.
    pub(crate) fn ends_at(&self, policy: &Policy) -> Option<Timestamp> {
        self.last.as_ref().map(|last| last.at.plus(policy.bandwidth_decay_ms))
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
