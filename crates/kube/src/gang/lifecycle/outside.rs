//! Pending gangs that are not in the engine: incomplete, suspended, not supported, or refused.

use phalanx_model::{JobId, Timestamp};

use super::submit::name_of;
use crate::gang::Lifecycle;
use crate::gang::state::Gang;
use crate::messages::WaitsFor;

/// A gang that the engine does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    /// It keeps its number if the engine gets it later.
    pub id: JobId,
    pub name: String,
    pub namespace: String,
    pub since: Timestamp,
    /// The reason of the condition of its pods.
    pub reason: &'static str,
    pub why: String,
}

impl Lifecycle {
    /// All of them; `has` says which jobs the engine has.
    pub fn outside(&mut self, has: impl Fn(JobId) -> bool) -> Vec<Outside> {
        let waits = |gang: &Gang| match (&gang.job, &gang.waits) {
            (Some(job), _) => {
                let why = "the scheduler refuses it; the condition of its pods says why";
                (!has(job.id)).then(|| (WaitsFor::CHANGE.reason(), why.to_owned()))
            }
            (None, Some(waiting)) => Some((waiting.what.reason(), waiting.why.to_string())),
            // Its pods have ended.
            (None, None) => None,
        };
        let of = |gang: &Gang| {
            let id = gang.job.as_ref().map(|job| job.id);
            Some((gang.key.clone(), id, gang.created(), waits(gang)?))
        };
        let found: Vec<_> = self.gangs.values().filter_map(of).collect();
        let mut outside = Vec::with_capacity(found.len());
        for (key, id, since, (reason, why)) in found {
            let Ok(name) = name_of(&key) else { continue };
            let id = id.unwrap_or_else(|| self.number(&key));
            let (name, namespace) = (name.to_string(), key.namespace.to_string());
            self.known_numbers.insert(key, id);
            outside.push(Outside { id, name, namespace, since, reason, why });
        }
        outside
    }
}
