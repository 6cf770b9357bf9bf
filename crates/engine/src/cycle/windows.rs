//! Windows of the calendar in a scheduling cycle: they close nodes to each gang that would still run there.

use phalanx_model::{Gang, GangId, JobId, Reason, Timestamp};

use super::calendar::Stay;
use super::draft::Draft;
use super::reserve::ReservedPlacement;
use super::run::Cycle;
use crate::cluster::space::Pick;
use crate::placement::Ceiling;
use crate::queueing::longest_ms;
use crate::queueing::{RequestClassId, RequestKey};

/// Represents the end of a window among the ends of gangs: no job has so many gangs.
pub(super) const A_WINDOW: GangId = JobId(0).gang(u32::MAX);

impl Cycle<'_> {
    /// Closes the nodes from which windows bar the gangs of a request class, if they start now.
    pub(super) fn close_for(&mut self, request: RequestClassId) {
        let (tree, now) = (self.tree(), self.ledger.now());
        let Draft { pending, space, .. } = &mut self.draft;
        let key = &pending.request(request).key;
        self.closed.lay(self.ledger.windows(), tree, space, &stay(key, now));
    }

    /// The same for a gang that has a reservation. Returns whether windows bar the gang from the reserved placement at
    /// its time.
    pub(super) fn close_for_reserved(&mut self, id: GangId) -> bool {
        let (tree, now, windows) = (self.tree(), self.ledger.now(), self.ledger.windows());
        if windows.is_clear(None) {
            return false;
        }
        let Some(job) = self.ledger.job(id.job) else { return false };
        let Draft { queues, reservations, space, .. } = &mut self.draft;
        let blocks = windows.blocks_of(queues, &job.queue);
        let (span_ms, is_fixed) = (longest_ms(&job.policy), queues.is_fixed(job, id));
        let from = |from: Timestamp| Stay {
            from,
            until: span_ms.map(|span| from.plus(span)),
            blocks: &blocks,
            is_fixed,
        };
        self.closed.lay(windows, tree, space, &from(now));
        reservations.get(&id).is_some_and(|hold| {
            hold.at.is_some_and(|at| windows.bars(&from(at.max(now)), &nodes_of(&hold.picks)))
        })
    }

    /// The same for a gang of a request class that starts at another time, as far as that time is known.
    pub(super) fn close_for_future(
        &mut self,
        key: &RequestKey,
        last: Option<Timestamp>,
        at: Option<Timestamp>,
    ) {
        let (tree, now) = (self.tree(), self.ledger.now());
        let from = at.or(last).unwrap_or(now).max(now);
        let until = at.and(key.span_ms).map(|span| from.plus(span));
        let stay = Stay { from, until, blocks: &key.blocks, is_fixed: key.is_fixed };
        self.closed.lay(self.ledger.windows(), tree, &mut self.draft.space, &stay);
    }

    /// Whether windows bar a request class from a placement that other gangs have to leave first.
    pub(super) fn is_barred(&self, request: RequestClassId, place: &ReservedPlacement) -> bool {
        let (now, key) = (self.ledger.now(), &self.draft.pending.request(request).key);
        let until = place.at.unwrap_or(now).max(now);
        let stay = Stay { until: key.span_ms.map(|span| until.plus(span)), ..stay(key, now) };
        self.ledger.windows().bars(&stay, &nodes_of(&place.picks))
    }

    /// Returns the reason of the windows, if they keep a gang from starting.
    pub(super) fn kept_by_windows(&mut self, request: RequestClassId, gang: &Gang) -> Option<Reason> {
        if self.closed.is_empty() {
            return None;
        }
        self.open_all();
        let tree = self.tree();
        let Draft { search, space, .. } = &mut self.draft;
        let fits = search.place(tree, space, gang, Ceiling(tree.level_of_required(gang))).is_some();
        let fits = fits || self.held_for(gang).is_some();
        let stay = stay(&self.draft.pending.request(request).key, self.ledger.now());
        let reason = self.ledger.windows().reason(&stay);
        self.close_for(request);
        reason.filter(|_| fits)
    }

    /// Whether no window begins before gangs that start now, or might start, have ended.
    pub(super) fn has_no_window(&self, gangs: impl Iterator<Item = GangId>) -> bool {
        let now = self.ledger.now();
        let span = |id: GangId| self.ledger.job(id.job).and_then(|job| longest_ms(&job.policy));
        let longest = gangs.map(span).reduce(|longest, span| Some(longest?.max(span?))).flatten();
        self.ledger.windows().is_clear(longest.map(|span| now.plus(span)))
    }

    /// Opens all nodes that windows closed.
    pub(super) fn open_all(&mut self) {
        let tree = self.tree();
        self.closed.lift(tree, &mut self.draft.space);
    }
}

fn stay(key: &RequestKey, now: Timestamp) -> Stay<'_> {
    let until = key.span_ms.map(|span| now.plus(span));
    Stay { from: now, until, blocks: &key.blocks, is_fixed: key.is_fixed }
}

fn nodes_of(picks: &[Pick]) -> Vec<u32> {
    let mut nodes: Vec<u32> = picks.iter().map(|pick| pick.node).collect();
    nodes.sort_unstable();
    nodes
}
