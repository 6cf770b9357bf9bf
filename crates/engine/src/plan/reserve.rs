//! Reservations: a concrete place at a time for the head of the line, and who may go in front of it.

use std::cmp::Reverse;

use phalanx_model::{Gang, GangId, Reason, Reserved, Timestamp};

use super::elastic::Found;
use super::holds::Hold;
use super::pass::Pass;
use super::search::{Ceiling, placement};
use super::space::Pick;
use super::together::Choice;
use super::windows::A_WINDOW;
use crate::guard::Guard;
use crate::ledger::{Desk, longest_ms};
use crate::policy::{AskId, AskKey, Bill, Holder, QueueAt, Turn};

impl Pass<'_> {
    /// Whoever has a place reserved and can start goes first.
    pub(super) fn start_reserved(&mut self) {
        let order = self.holds_in_order();
        for (turn, id) in order.iter().copied().enumerate() {
            let Some(at) = self.desk.holds.get(&id).map(|hold| hold.at) else { continue };
            let is_gone = self.ledger.reserved_place_is_gone(id) || self.close_for_reserved(id);
            let started = !is_gone
                && (self.start_held(id, &[])
                    || self.start_held(id, order.get(turn + 1..).unwrap_or_default()));
            // Those that were told to make way hold it until their last process is gone, however long that takes.
            let is_late =
                at.is_some_and(|at| at <= self.ledger.now()) && self.ledger.making_way_for(id).is_empty();
            if !started && self.desk.holds.contains_key(&id) && (is_late || is_gone) {
                self.lift_for_good(id);
                let why =
                    if is_gone { "a node of it takes no work" } else { "what was to end by then has not" };
                self.dropped.push((id, why.to_owned()));
            }
        }
    }

    /// Whom something is held for, who goes first first: what was reserved earlier stays before what was reserved later.
    fn holds_in_order(&self) -> Vec<GangId> {
        let (now, ageing_ms) = (self.ledger.now(), self.desk.queues.settings().ageing_ms);
        let place = |(id, hold): (&GangId, &Hold)| {
            let made_at = self.ledger.record(*id).and_then(|r| r.reserved.as_ref()).map(|r| r.made_at);
            let level = self.desk.queues.level_of(*id);
            let turn = self.ledger.job(id.job).map(|job| Turn::of(job, *id, level, now, ageing_ms));
            (Reverse((hold.is_owed, hold.rank)), made_at, turn, *id)
        };
        let mut order: Vec<_> = self.desk.holds.iter().map(place).collect();
        order.sort_unstable();
        order.into_iter().map(|(.., id)| id).collect()
    }

    fn lift_for_good(&mut self, id: GangId) {
        let tree = self.tree();
        if let Some(mut hold) = self.desk.holds.remove(&id) {
            hold.lift(tree, &mut self.desk.space);
            self.desk.freed.add(hold.picks.iter().map(|pick| pick.node));
            // Who may use that is looked for in the next turn.
            self.unlikely.clear();
            self.desk.queues.want(hold.waits.0, &hold.waits.1, false);
            self.unclaim(id);
        }
    }

    /// What was counted as used for it is not any more.
    fn unclaim(&mut self, id: GangId) {
        let Some(job) = self.ledger.job(id.job) else { return };
        let queues = &mut self.desk.queues;
        if let Some(queue) = queues.find(&job.queue) {
            queues.discharge(queue, queues.seat_of(job, id), self.ledger.now());
            let path = self.desk.queues.path_to_root(queue);
            self.desk.line.room_again(path.into_iter());
        }
    }

    /// Starts a gang that has a place reserved: anywhere, if that is sooner; where others make way for it, there. What is
    /// held for those behind it, and promised for no time, does not stand in its way. Whether it started.
    fn start_held(&mut self, id: GangId, behind: &[GangId]) -> bool {
        let tree = self.tree();
        let Some((gang, job)) = self.ledger.wanted(id).zip(self.ledger.job(id.job)) else { return false };
        let Some(mut hold) = self.desk.holds.remove(&id) else { return false };
        let Desk { space, search, queues, holds, .. } = &mut self.desk;
        hold.lift(tree, space);
        let ends_at = longest_ms(&job.policy).map(|span| self.ledger.now().plus(span));
        for (other, held) in holds.iter_mut() {
            // What others were evicted for stays, and what is promised for a time.
            let is_behind = held.at.is_none() && behind.contains(other);
            // And whoever goes before it did so when others were asked to make way.
            let made_way = hold.evicts && held.makes_way_for(hold.rank, hold.is_owed);
            let yields = !held.evicts && (is_behind || made_way || held.begins_after(ends_at));
            if yields && self.ledger.guards().stand(Guard::HoldsYield) {
                held.lift(tree, space);
            }
        }
        let evicts = self.ledger.cleared_place(id).is_some();
        let ceiling = Ceiling(tree.level_of_required(&gang));
        let gang = gang.into_owned();
        let found = if evicts {
            let is_free =
                space.has_room(tree, &gang, &hold.picks) || !self.ledger.guards().stand(Guard::FreeWhenGone);
            let gang = if gang.is_elastic() { gang.of_size(hold.member_count()) } else { gang };
            is_free.then(|| Found { gang, ceiling, picks: hold.picks.clone(), order: Vec::new(), time_ns: 0 })
        } else {
            search.place(tree, space, &gang, ceiling).map(|found| {
                let (picks, order) = (search.picks().to_vec(), search.order().to_vec());
                Found { gang, ceiling, picks, order, time_ns: found.cost.time_ns }
            })
        };
        let queue = queues.find(&job.queue);
        let mut started = false;
        if let (Some(found), Some(queue)) = (found, queue) {
            let is_fixed = self.desk.queues.is_fixed(job, id);
            if evicts {
                // It was counted when the others were told to make way.
                self.unclaim(id);
            }
            let most =
                if evicts { self.ledger.resized_to(id) } else { self.ledger.gang(id).map(|gang| gang.size) };
            let Found { gang, ceiling, picks, order, time_ns } =
                self.enlarged(id, queue, found, most.unwrap_or(0));
            let bill = self.admit(queue, &gang, &picks, is_fixed);
            if let Err(full) = &bill {
                // The queue may use less than when this was reserved.
                self.dropped.push((id, full.limit.to_string()));
            }
            if let Ok(bill) = bill {
                let choice = Choice { gang: id, size: gang.size, ceiling, picks, order, time_ns };
                // It may start elsewhere than where it was held for.
                self.desk.freed.add(hold.picks.iter().map(|pick| pick.node));
                self.choose(choice, &gang, queue, Holder::new(bill, is_fixed));
                started = true;
            }
        }
        let Desk { space, holds, freed, queues, .. } = &mut self.desk;
        if self.dropped.iter().any(|(dropped, _)| *dropped == id) {
            freed.add(hold.picks.iter().map(|pick| pick.node));
            queues.want(hold.waits.0, &hold.waits.1, false);
        } else if started {
            queues.want(hold.waits.0, &hold.waits.1, false);
        } else {
            holds.insert(id, hold);
        }
        Hold::lay_all(holds.values_mut(), tree, space);
        started
    }

    /// Lays or lifts what is held, by what a candidate has to respect: it may use what is held only if it has ended by
    /// then, or goes before whom it is held for.
    pub(super) fn hold_against(&mut self, ask: AskId, queue: QueueAt) {
        let (tree, now) = (self.tree(), self.ledger.now());
        let Desk { line, holds, space, queues, .. } = &mut self.desk;
        let key = &line.ask(ask).key;
        let ends_at = key.span_ms.map(|span| now.plus(span));
        let is_owed = queues.is_owed_in(queue, &line.ask(ask).least);
        let mut laid = Vec::new();
        for hold in holds.values_mut() {
            if hold.begins_after(ends_at)
                || hold.makes_way_for(key.rank, is_owed)
                || hold.had_more(queue, (key.rank, key.level), is_owed)
                || !self.ledger.guards().stand(Guard::EndsInTime)
            {
                hold.lift(tree, space);
            } else {
                laid.push(hold);
            }
        }
        Hold::lay_all(laid.into_iter(), tree, space);
    }

    /// The same for a place that is to be reserved: it may be used for longer than what is held begins to be.
    pub(super) fn hold_from(&mut self, ask: AskId, queue: QueueAt) {
        let tree = self.tree();
        let Desk { line, holds, space, queues, .. } = &mut self.desk;
        let asked = line.ask(ask);
        let (rank, level) = (asked.key.rank, asked.key.level);
        let is_owed = queues.is_owed_in(queue, &asked.least);
        let yields = |hold: &&mut Hold| {
            hold.makes_way_for(rank, is_owed) || hold.had_more(queue, (rank, level), is_owed)
        };
        let (yielding, laid): (Vec<&mut Hold>, Vec<&mut Hold>) = holds.values_mut().partition(yields);
        yielding.into_iter().for_each(|hold| hold.lift(tree, space));
        Hold::lay_all(laid.into_iter(), tree, space);
    }

    /// Whom room is held for, if the gang would fit without that.
    pub(super) fn held_for(&mut self, gang: &Gang) -> Option<Reason> {
        let tree = self.tree();
        let Desk { holds, space, search, .. } = &mut self.desk;
        let laid: Vec<GangId> = holds.iter().filter(|(_, hold)| hold.is_laid()).map(|(id, _)| *id).collect();
        if laid.is_empty() {
            return None;
        }
        holds.values_mut().for_each(|hold| hold.lift(tree, space));
        let fits = search.place(tree, space, gang, Ceiling(tree.level_of_required(gang))).is_some();
        let were_laid = holds.iter_mut().filter(|(id, _)| laid.contains(id)).map(|(_, hold)| hold);
        Hold::lay_all(were_laid, tree, space);
        let ahead = *laid.first()?;
        fits.then(|| Reason::Priority { ahead, at: holds.get(&ahead).and_then(|hold| hold.at) })
    }

    /// Reserves places for the heads of the line, as many as are configured. Whether one was reserved.
    pub(super) fn reserve_heads(&mut self) {
        let depth = self.desk.queues.settings().reservation_depth;
        self.hope(None);
        loop {
            let held = self.desk.holds.iter().filter(|(id, _)| !self.evicts(**id)).count();
            let used = held + self.unreserved.len();
            if used >= depth as usize {
                return;
            }
            let Desk { line, queues, .. } = &self.desk;
            let Some(head) = line.head(queues, |gang| self.unreserved.contains(&gang)) else { return };
            if line.ask(head.ask).is_open || !may_reserve(&line.ask(head.ask).reason) {
                // It is looked at before this turn ends, or time alone keeps it.
                return;
            }
            let (id, ask) = (head.gang(), line.ask(head.ask));
            let key = ask.key.clone();
            if let Err(full) = queues.room(head.queue, &ask.least, key.is_fixed) {
                self.desk.line.stick(head.ask, head.queue, full);
                continue;
            }
            self.hold_from(head.ask, head.queue);
            match self.soonest(&key) {
                Some((picks, order, at)) if at.is_some() || self.is_due(id) && self.may_idle(&picks) => {
                    self.hold(id, &key.gang, key.rank, Place { picks, order, at, evicts: false });
                }
                _ => {
                    self.unreserved.insert(id);
                    self.hope(Some(id));
                }
            }
        }
    }

    /// Whether so much more may be kept idle for somebody whose start nobody knows.
    fn may_idle(&self, picks: &[Pick]) -> bool {
        let Desk { space, holds, queues, .. } = &self.desk;
        let held = holds.values().filter(|hold| hold.at.is_none()).map(Hold::idle_devices);
        let more = picks.iter().map(|pick| pick.devices.and(space.free(pick.node as usize).devices).count());
        let idle: u32 = held.chain(more).sum();
        let all: u32 = self.tree().roots().map(|root| self.tree().domains[0][root].devices).sum();
        u64::from(idle) * 1_000 <= u64::from(all) * u64::from(queues.settings().hold_idle_max_milli)
    }

    fn evicts(&self, id: GangId) -> bool {
        self.ledger.cleared_place(id).is_some()
            || self.reserved.iter().any(|(gang, reserved, _)| *gang == id && reserved.evicts)
    }

    /// Holds a place for a gang from now on.
    pub(super) fn hold(&mut self, id: GangId, gang: &Gang, rank: i32, place: Place) {
        let tree = self.tree();
        let Place { picks, order, at, evicts } = place;
        let Some(placement) = placement(tree, &picks, &order, gang) else { return };
        // What is held for somebody behind it is not held any more.
        let behind = self.desk.holds.iter().filter(|(_, hold)| hold.overlaps(&picks));
        for behind in behind.map(|(gang, _)| *gang).collect::<Vec<_>>() {
            self.lift_for_good(behind);
            self.reserved.retain(|(reserved, ..)| *reserved != behind);
            let name = self.ledger.job(id.job).map_or("", |job| job.name.as_str());
            self.dropped.push((behind, format!("job {} ({name}) goes first", id.job)));
        }
        let Desk { space, holds, line, queues, .. } = &mut self.desk;
        let ask = line.place_of(id).map(|place| line.ask(place.ask));
        let reason = ask.map_or(Reason::None, |ask| ask.reason.clone());
        let least = ask.map_or_else(Bill::new, |ask| ask.least.clone());
        let waited = line.delist(queues, id);
        let made_at = self.ledger.now();
        let mut hold = Hold::new(picks, gang, at, rank, made_at);
        (hold.evicts, hold.level) = (evicts, queues.level_of(id));
        if let Some(place) = waited {
            // It waits all the same.
            // What is owed as much does not make way for another in this very turn.
            hold.is_owed = queues.is_owed_in(place.queue, &least);
            hold.waits = (place.queue, least);
            queues.want(place.queue, &hold.waits.1, true);
        }
        hold.lay(tree, space);
        holds.insert(id, hold);
        self.reserved.push((id, Reserved { placement, at, evicts, made_at }, reason));
    }

    /// The first place that comes free for a gang as those that run end, and when; without a time where somebody has to
    /// end whose end is not known.
    fn soonest(&mut self, key: &AskKey) -> Option<(Vec<Pick>, Vec<u32>, Option<Timestamp>)> {
        let tree = self.tree();
        let gang = &key.gang;
        let ceiling = Ceiling(tree.level_of_required(gang));
        // Those that start in this turn end too.
        let mut new: Vec<(Option<Timestamp>, GangId)> = self.chosen_ends().collect();
        // Nodes are there again when their windows end.
        new.extend(self.ledger.windows().ends(self.ledger.now()).map(|at| (Some(at), A_WINDOW)));
        new.sort_by_key(|(at, gang)| (at.is_none(), *at, *gang));
        let ledger = self.ledger;
        let mut ends = Vec::new();
        let mut source = in_order(ledger.ends(), &new).chain(ledger.endless().map(|gang| (None, gang)));
        let mut future = Future { pass: self, key, ends: &mut ends, ended: 0 };
        // The fewest ends after which it fits: twice as many each time, then halved.
        let mut enough = 1;
        loop {
            let missing = enough - future.ends.len();
            future.ends.extend(source.by_ref().take(missing));
            let there = future.ends.len();
            future.move_to(there);
            if future.fits(gang, ceiling) {
                enough = there;
                break;
            }
            if there < enough {
                future.move_to(0);
                return None;
            }
            enough *= 2;
        }
        let mut short = (enough.next_power_of_two() / 2).min(enough.saturating_sub(1));
        while enough - short > 1 {
            let middle = short.midpoint(enough);
            future.move_to(middle);
            if future.fits(gang, ceiling) {
                enough = middle;
            } else {
                short = middle;
            }
        }
        future.move_to(enough);
        let fits = future.fits(gang, ceiling);
        let found = fits.then(|| future.pass.desk.search.picks().to_vec());
        let order = future.pass.desk.search.order().to_vec();
        future.move_to(0);
        let at = ends.get(enough.saturating_sub(1)).and_then(|(at, _)| *at);
        Some((found?, order, at))
    }
}

/// Known ends and those of gangs that only start now, by time; of those whose end nobody knows, the new ones last.
fn in_order<'a>(
    known: impl Iterator<Item = (Timestamp, GangId)> + 'a,
    new: &'a [(Option<Timestamp>, GangId)],
) -> impl Iterator<Item = (Option<Timestamp>, GangId)> + 'a {
    let mut known = known.map(|(at, gang)| (Some(at), gang)).peekable();
    let mut new = new.iter().copied().peekable();
    std::iter::from_fn(move || match (known.peek(), new.peek()) {
        (Some(old), Some(next)) if next.0.is_some() && (next.0, next.1) < (old.0, old.1) => new.next(),
        (Some(_), _) => known.next(),
        (None, _) => new.next(),
    })
}

/// Time alone keeps the others.
const fn may_reserve(reason: &Reason) -> bool {
    super::waits_for_capacity(reason) || matches!(reason, Reason::Priority { .. } | Reason::Window { .. })
}

/// A place to be held.
pub(super) struct Place {
    pub(super) picks: Vec<Pick>,
    pub(super) order: Vec<u32>,
    pub(super) at: Option<Timestamp>,
    pub(super) evicts: bool,
}

/// The space as it will be when so many have ended.
struct Future<'p, 'a, 'e> {
    pass: &'p mut Pass<'a>,
    key: &'e AskKey,
    ends: &'e mut Vec<(Option<Timestamp>, GangId)>,
    ended: usize,
}

impl Future<'_, '_, '_> {
    fn move_to(&mut self, wanted: usize) {
        let tree = self.pass.tree();
        while self.ended != wanted {
            let gives_back = self.ended < wanted;
            let at = if gives_back { self.ended } else { self.ended - 1 };
            self.ended = if gives_back { self.ended + 1 } else { self.ended - 1 };
            let Some((_, id)) = self.ends.get(at) else { continue };
            let ledger = self.pass.ledger;
            let Some(gang) = ledger.gang(*id) else { continue };
            let Some(mut picks) = self.pass.picks_of(*id) else { continue };
            Hold::unheld(&self.pass.desk.holds.values().filter(|hold| hold.is_laid()), &mut picks);
            if gives_back {
                self.pass.desk.space.give_back(tree, &picks, gang);
            } else {
                self.pass.desk.space.take(tree, &picks, gang);
            }
        }
    }

    fn fits(&mut self, gang: &Gang, ceiling: Ceiling) -> bool {
        let tree = self.pass.tree();
        let ended = self.ends.get(..self.ended).unwrap_or_default();
        let last = ended.iter().filter_map(|(at, _)| *at).next_back();
        self.pass.close_for_future(self.key, last, ended.last().and_then(|(at, _)| *at));
        let Desk { search, space, .. } = &mut self.pass.desk;
        search.place(tree, space, gang, ceiling).is_some()
    }
}
