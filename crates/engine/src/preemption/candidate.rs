//! A gang that may be preempted for another gang, and the cost of that.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Range;

use phalanx_model::{Gang, GangId};

use crate::cluster::Pick;
use crate::queueing::Contender;

/// A gang that may be preempted, or members by which an elastic one may shrink, and its cost: the cheapest go first.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) rank: i32,
    /// The service level, among candidates of the queue of the preempting gang: the candidate that had most service
    /// goes first.
    pub(crate) level: Reverse<u32>,
    /// Work since its last checkpoint.
    pub(crate) lost_device_ms: u64,
    /// The same, but nothing for surplus members of an elastic gang.
    pub(crate) costs_device_ms: u64,
    /// More devices first: fewer gangs are preempted.
    pub(crate) devices: Reverse<u64>,
    pub(crate) id: GangId,
    pub(crate) gang: &'a Gang,
    /// The ranks, if these are not all.
    pub(crate) chunk: Option<Range<u32>>,
    pub(crate) contender: Contender,
    pub(crate) picks: Cow<'a, [Pick]>,
}

impl Candidate<'_> {
    pub(crate) const fn cost(&self) -> (i32, Reverse<u32>, u64, Reverse<u64>, GangId) {
        (self.rank, self.level, self.costs_device_ms, self.devices, self.id)
    }
}
