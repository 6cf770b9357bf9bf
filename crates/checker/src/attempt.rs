//! One attempt of a gang: the placement of its members, and the members that still hold devices.

use std::collections::BTreeSet;

use phalanx_model::{Exit, Placement, Timestamp};

/// An attempt that may hold devices.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) placement: Placement,
    pub(crate) ready: BTreeSet<u32>,
    pub(crate) exited: BTreeSet<u32>,
    /// Not found after a restart: lost, or not started and to be started again.
    pub(crate) missing: BTreeSet<u32>,
    pub(crate) released: bool,
    /// The gang is being stopped, and does not start again in what is left of this placement.
    pub(crate) is_stopping: bool,
    /// The gang is being stopped for its hardware, or moves: it keeps its placement until it is killed for the second time.
    pub(crate) is_whole: bool,
    /// When its members were told first to be killed.
    pub(crate) killed_at: Option<Timestamp>,
}

/// From here on a kill is a second one. (A successor repeats the first.)
pub(crate) const KILL_AGAIN_MS: u64 = 10_000;

impl Attempt {
    /// Just ordered.
    pub(crate) fn ordered(placement: Placement) -> Self {
        let (ready, exited, missing) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (released, is_stopping, is_whole, killed_at) = (false, false, false, None);
        Self { placement, ready, exited, missing, released, is_stopping, is_whole, killed_at }
    }

    /// Its members are to be killed.
    pub(crate) fn kill(&mut self, now: Timestamp) {
        let first = *self.killed_at.get_or_insert(now);
        self.is_stopping |= self.is_whole && now.since(first) >= KILL_AGAIN_MS;
    }

    /// Whether the attempt holds no devices: its last member is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.placement.slots.iter().all(|slot| self.is_gone(slot.rank))
    }

    /// Whether a member holds its devices: as long as any member of its gang is there, but while the gang is being
    /// stopped only as long as the member itself is there.
    pub(crate) fn holds(&self, rank: u32) -> bool {
        if self.is_stopping { !self.is_gone(rank) } else { !self.is_over() }
    }

    fn is_gone(&self, rank: u32) -> bool {
        self.exited.contains(&rank) || self.missing.contains(&rank)
    }

    pub(crate) fn all_exited(&self) -> bool {
        self.placement.slots.iter().all(|s| self.exited.contains(&s.rank))
    }

    /// A member that succeeded had been released, even if its release was not reported.
    pub(crate) fn end(&mut self, rank: u32, exit: &Exit) {
        self.exited.insert(rank);
        if exit.is_success() {
            self.ready.insert(rank);
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.placement.slots.iter().all(|s| self.ready.contains(&s.rank))
    }
}
