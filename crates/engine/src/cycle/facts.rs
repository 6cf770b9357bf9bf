//! The state of the ledger that a scheduling cycle reads. A cycle changes none of it: the cycle decides, and the ledger
//! commits the decisions.

use std::borrow::Cow;

use phalanx_model::{Gang, GangId, GangRecord, Job, JobId, Placement, Timestamp};

use super::calendar::Windows;
use crate::cluster::{Hardware, Pick};
use crate::queueing::{Queues, RequestKey, longest_ms};

pub(crate) trait Facts {
    fn now(&self) -> Timestamp;

    /// The hardware, whatever runs on it.
    fn hardware(&self) -> Hardware<'_>;

    /// A count of the changes of nodes.
    fn hardware_version(&self) -> u64;

    /// The calendar.
    fn windows(&self) -> &Windows;

    fn job(&self, id: JobId) -> Option<&Job>;

    fn gang(&self, id: GangId) -> Option<&Gang>;

    fn record(&self, id: GangId) -> Option<&GangRecord>;

    /// A gang with its record.
    fn known(&self, id: GangId) -> Option<(&Gang, &GangRecord)>;

    /// The gang as it is to be placed: with its fewest members, and on the nodes that it is pinned to.
    fn wanted(&self, id: GangId) -> Option<Cow<'_, Gang>>;

    /// The gangs of a job that have not ended.
    fn gangs_of(&self, job: JobId) -> Vec<GangId>;

    /// The picks of a gang that holds capacity.
    fn picks(&self, gang: GangId) -> Option<&[Pick]>;

    /// Gangs whose ends are known, by end.
    fn ends(&self) -> Box<dyn Iterator<Item = (Timestamp, GangId)> + '_>;

    /// Gangs that hold capacity and whose end is not known.
    fn endless(&self) -> Box<dyn Iterator<Item = GangId> + '_>;

    /// Gangs that were told to end and are about to be gone, with the time until which that is expected.
    fn about_to_be_gone(&self) -> Box<dyn Iterator<Item = (GangId, Timestamp)> + '_>;

    /// Running gangs that can shrink at their next boundary, and have not been asked to shrink yet.
    fn shrinkable(&self) -> Box<dyn Iterator<Item = GangId> + '_>;

    /// The size with which a gang is to start again.
    fn resized_to(&self, gang: GangId) -> Option<u32>;

    /// The largest size to which a gang grows by itself.
    fn grows_to(&self, gang: GangId) -> u32;

    /// The time until which a gang waits for its preferred level.
    fn preferred_until(&self, gang: GangId) -> Option<Timestamp>;

    /// How long a gang is expected to run from its next start on.
    fn expected_ms(&self, gang: GangId) -> u64;

    /// The placement that other gangs are preempted for.
    fn cleared_place(&self, gang: GangId) -> Option<&Placement>;

    /// Whether a node or a device of the placement reserved for a gang is gone.
    fn reserved_place_is_gone(&self, gang: GangId) -> bool;

    /// Gangs that are preempted or shrink for this gang, and still hold capacity.
    fn victims_of(&self, gang: GangId) -> Vec<GangId>;

    /// Whether a gang was preempted, and no input from outside changed anything since.
    fn was_just_preempted(&self, gang: GangId) -> bool;

    /// Whether a time is set at which preemption is tried again.
    fn looks_again(&self) -> bool;
}

/// The request of a pending gang, which other gangs may share.
pub(crate) fn request_key(facts: &dyn Facts, queues: &Queues, id: GangId) -> Option<RequestKey> {
    let job = facts.job(id.job)?;
    Some(RequestKey {
        gang: RequestKey::gang_of(&*facts.wanted(id)?),
        span_ms: longest_ms(&job.policy),
        is_patient: facts.preferred_until(id).is_some_and(|until| until > facts.now()),
        rank: queues.rank_of(job),
        level: queues.level_of(id),
        is_fixed: queues.is_fixed(job, id),
        blocks: facts.windows().blocks_of(queues, &job.queue),
    })
}
