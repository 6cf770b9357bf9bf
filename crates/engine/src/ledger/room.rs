//! What is taken, and what is held: the same in devices, in the queues that are billed for it, and for whoever waits.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;

use phalanx_model::{GangId, Placement};

use super::{Freed, Ledger};
use crate::guard::Guard;
use crate::plan::{Hold, Pick, Space};
use crate::policy::Holder;

impl Ledger {
    /// Where a gang is that holds capacity.
    pub(crate) fn picks(&self, gang: GangId) -> Option<&[Pick]> {
        let picks = self.picks.get(&gang)?;
        debug_assert!(
            self.gang(gang).zip(self.record(gang)).is_some_and(|(found, record)| record
                .placement
                .as_ref()
                .is_some_and(|placement| self.tree.picks_of(placement, found) == *picks)),
            "what {gang} has is where it is"
        );
        Some(picks)
    }

    /// Its queue is billed for what a gang has, or is to have.
    pub(super) fn charge(&mut self, id: GangId, placement: &Placement) {
        let Some((job, gang)) = self.job(id.job).zip(self.gang(id)) else { return };
        let picks =
            self.picks.get(&id).map_or_else(|| Cow::Owned(self.tree.picks_of(placement, gang)), Cow::from);
        let bill = self.queues.goods.held(&self.tree, self.queues.settings(), &picks, gang);
        let (seat, is_fixed) = (self.queues.seat_of(job, id), self.queues.is_fixed(job, id));
        let name = job.queue.clone();
        let queue = self.queues.ensure(&name);
        let (stays_until, leaves) = (self.stays_until(id), self.leaves(id));
        self.queues.charge(queue, seat, Holder { bill, is_fixed, stays_until, leaves }, self.now);
    }

    pub(super) fn discharge(&mut self, id: GangId) {
        let Some((queue, job)) = self.queue_of(id.job).zip(self.job(id.job)) else { return };
        let seat = self.queues.seat_of(job, id);
        self.queues.discharge(queue, seat, self.now);
        let path = self.queues.path_to_root(queue);
        if self.guards.stand(Guard::RoomWakes) {
            self.line.room_again(path.into_iter());
        }
    }

    /// What is free, counted anew.
    pub(super) fn recount_space(&mut self) {
        self.space = Space::free_of(&self.tree);
        self.freed = Freed::All;
        self.picks.clear();
        self.on_nodes.clear();
        let held: Vec<(GangId, Placement)> = self
            .active()
            .filter(|(_, _, record)| record.holds_capacity() && self.guards.stand(Guard::HeldIsTaken))
            .filter_map(|(_, _, record)| Some((record.id, record.placement.clone()?)))
            .collect();
        for (gang, placement) in &held {
            self.occupy(*gang, placement);
        }
        for hold in std::mem::take(&mut self.holds).into_values() {
            self.queues.want(hold.waits.0, &hold.waits.1, false);
        }
        self.unlaid = self.active().filter(|(_, _, r)| r.reserved.is_some()).map(|(_, _, r)| r.id).collect();
    }

    /// Withholds what is reserved for gangs that were observed.
    pub(crate) fn lay_holds(&mut self) {
        let of = |id: GangId| {
            let record = self.record(id)?;
            let job = self.job(id.job)?;
            Some((record.reserved.as_ref()?.made_at, Reverse(self.queues.rank_of(job)), id))
        };
        // In the order in which they were promised.
        let unlaid: BTreeSet<_> = self.unlaid.iter().filter_map(|id| of(*id)).collect();
        self.unlaid.clear();
        unlaid.into_iter().for_each(|(.., id)| self.lay_hold(id));
    }

    /// Withholds what is reserved for a gang.
    pub(super) fn lay_hold(&mut self, id: GangId) {
        let (Some(job), Some(gang), Some(record)) = (self.job(id.job), self.gang(id), self.record(id)) else {
            return;
        };
        let Some(reserved) = record.reserved.as_ref().filter(|_| record.is_pending()) else { return };
        let picks = self.tree.picks_of(&reserved.placement, gang);
        let rank = self.queues.rank_of(job);
        let mut hold = Hold::new(picks, gang, reserved.at, rank, reserved.made_at);
        let least = self.queues.goods.least(&self.tree, self.queues.settings(), gang);
        let (name, evicts) = (job.queue.clone(), reserved.evicts);
        (hold.evicts, hold.waits) = (evicts, (self.queues.ensure(&name), least));
        hold.level = self.queues.level_of(id);
        self.queues.want(hold.waits.0, &hold.waits.1, true);
        self.holds.insert(id, hold);
        Hold::lay_all(self.holds.values_mut(), &self.tree, &mut self.space);
    }

    /// Lays the reservations again that withhold something on some nodes, where what is free is not what it was.
    pub(super) fn lay_holds_again(&mut self, nodes: &BTreeSet<u32>) {
        for hold in self.holds.values_mut().filter(|hold| hold.is_on_any(nodes)) {
            hold.lift(&self.tree, &mut self.space);
        }
        Hold::lay_all(self.holds.values_mut(), &self.tree, &mut self.space);
    }

    /// Nothing is held for it any more.
    pub(crate) fn drop_hold(&mut self, gang: GangId) {
        let mut hold = self.holds.remove(&gang);
        if let Some(hold) = &mut hold {
            hold.lift(&self.tree, &mut self.space);
            self.queues.want(hold.waits.0, &hold.waits.1, false);
            self.freed.add(hold.picks.iter().map(|pick| pick.node));
        }
        // What is not laid down yet counts as used as well.
        if hold.is_some() | self.unlaid.remove(&gang) {
            if self.guards.stand(Guard::UncountedWithHold) {
                self.discharge(gang);
            }
            self.replan = true;
            self.call_off_shrinks_for(gang);
        }
        if let Some(record) = self.record_mut(gang) {
            record.reserved = None;
        }
    }

    /// Remembers where a gang is that holds capacity.
    pub(super) fn seat(&mut self, id: GangId, placement: &Placement) {
        if let Some(gang) = self.gang(id) {
            let picks = self.tree.picks_of(placement, gang);
            self.set_picks(id, Some(picks));
        }
    }

    pub(super) fn take(&mut self, gang: GangId, placement: &Placement) {
        self.occupy(gang, placement);
        self.charge(gang, placement);
    }

    fn occupy(&mut self, gang: GangId, placement: &Placement) {
        let Some(found) = self.jobs.get(&gang.job).and_then(|e| e.job.gangs.get(usize::from(gang.index)))
        else {
            return;
        };
        let picks = self.tree.picks_of(placement, found);
        let was_free = self.space.take(&self.tree, &picks, found);
        self.space.load(&self.tree, &picks, found, true);
        if !was_free {
            // What a gang has is withheld for no other gang.
            let nodes: BTreeSet<u32> = picks.iter().map(|pick| pick.node).collect();
            self.lay_holds_again(&nodes);
        }
        self.set_picks(gang, Some(picks));
    }

    /// Once the record no longer holds it. Also what held nothing makes way: others may have waited for it to
    /// go first.
    pub(super) fn give_back(&mut self, gang: GangId, held: Option<&Placement>) {
        self.replan = true;
        let Some(placement) = held.filter(|_| self.guards.stand(Guard::GivenBack)) else { return };
        self.discharge(gang);
        let picks = self.set_picks(gang, None);
        if let Some(found) = self.jobs.get(&gang.job).and_then(|e| e.job.gangs.get(usize::from(gang.index))) {
            let picks = picks.unwrap_or_else(|| self.tree.picks_of(placement, found));
            self.space.give_back(&self.tree, &picks, found);
            self.space.load(&self.tree, &picks, found, false);
            if self.guards.stand(Guard::FreedWakes) {
                self.freed.add(picks.iter().map(|pick| pick.node));
            }
        }
    }
}
