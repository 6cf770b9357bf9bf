//! Heads: the gangs that are first in order and fit nowhere now. As many heads as are configured have a reservation, if
//! a time can be promised. As many again are protected by counting how often they are bypassed: a head that reached its
//! bypass limit has a placement reserved without a time.
//!
//! A head is eligible if it would fit if no other gang ran. A head that would not, or that no end of a running
//! gang would help, keeps its reason and shields no other gang.

use phalanx_model::{Gang, GangId, Timestamp};

use super::earliest_start::Soonest;
use super::reservation::Reservation;
use super::run::Cycle;
use crate::cluster::Pick;
use crate::placement::waits_for_capacity;
use crate::queueing::{QueueAt, RequestClassId, SetAside, Versions};

/// Searches of one cycle for placements of heads that do not start; the next step goes on.
const LOOKS_MAX: u32 = 64;

/// The most known ends that are looked at together before they are looked at one by one.
const KNOWN_ENDS_MAX: usize = 8;
/// The least time for which a placement without a known start is reserved.
const HELD_LEAST_MS: u64 = 60_000;

/// A head without a reservation.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) gang: GangId,
    request: RequestClassId,
    queue: QueueAt,
    /// When and where the head would start if no other gang did. The cycle foresees this before its first start.
    soonest: Option<Soonest>,
    /// Starts in this cycle that delay the head.
    bypassed: u32,
}

/// The heads of one cycle.
#[derive(Debug, Default)]
pub(super) struct Heads {
    /// Heads without a reservation, in order.
    pub(super) waiting: Vec<Head>,
    /// The head whose request class the cycle has not considered yet: the gangs behind it are no heads yet.
    awaits: Option<RequestClassId>,
    looks: u32,
    /// A head reached its bypass limit, and has its placement reserved before the cycle considers another gang.
    is_any_due: bool,
}

impl Cycle<'_> {
    /// Reserves placements for the heads, and records those that are to be protected.
    pub(super) fn reserve_heads(&mut self) {
        self.reserve_due();
        let depth = self.draft.queues.settings().reservation_depth as usize;
        loop {
            if self.heads.awaits.is_some_and(|request| self.draft.pending.request(request).is_open) {
                return;
            }
            if self.heads.waiting.len() >= depth {
                return;
            }
            self.draft.pending.restore_at(self.versions());
            let heads: Vec<(QueueAt, GangId)> =
                self.heads.waiting.iter().map(|head| (head.queue, head.gang)).collect();
            let Some(head) = self.draft.pending.head(&self.draft.queues, &heads) else { return };
            let asked = self.draft.pending.request(head.request);
            if asked.is_open {
                // The cycle considers this request class before it ends.
                self.heads.awaits = Some(head.request);
                return;
            }
            if let Err(full) = self.draft.queues.room(head.queue, &asked.least, asked.key.is_fixed) {
                self.draft.pending.stick(head.request, head.queue, full);
                continue;
            }
            if self.heads.looks >= LOOKS_MAX {
                self.goes_on = true;
                return;
            }
            self.heads.looks += 1;
            self.reserve_head(head.gang(), head.request, head.queue);
        }
    }

    fn reserve_head(&mut self, gang: GangId, request: RequestClassId, queue: QueueAt) {
        if self.near(request).is_none() {
            return self.draft.pending.set_aside(request, SetAside::OnHardware);
        }
        let reserved = self.draft.reservations.keys().filter(|id| !self.evicts(**id)).count();
        let is_within = reserved < self.draft.queues.settings().reservation_depth as usize;
        let is_due = self.is_due(gang);
        let mut head = Head { gang, request, queue, soonest: None, bypassed: 0 };
        if !is_within && !is_due {
            return self.heads.waiting.push(head);
        }
        let soonest = if is_due { self.foresee_place(&head) } else { self.foresee(&head) };
        let Some(soonest) = soonest else { return };
        let has_time = soonest.at.is_some() && is_within;
        if has_time || is_due && self.draft.queues.hold_idle_milli() > 0 {
            self.hold_for(gang, request, soonest);
        } else {
            head.soonest = Some(soonest);
            self.heads.waiting.push(head);
        }
    }

    /// When a head would start if no other gang did, and where if that is known. If no time is known, the places are not
    /// searched: whether the ends of running gangs help the head at all is found when its place is to be reserved.
    fn foresee(&mut self, head: &Head) -> Option<Soonest> {
        self.book_against_future(head.request, head.queue);
        if let Some(ends) = self.few_known_ends(head.request) {
            // If no end is known and the head fits nowhere now, there is nothing to search.
            let reason = &self.draft.pending.request(head.request).reason;
            let is_full = ends.is_empty() && waits_for_capacity(reason);
            if is_full || self.fits_after(head.request, &ends, false).is_none() {
                return Some(Soonest::UNKNOWN);
            }
        }
        self.foresee_place(head)
    }

    /// When and where a head would start if no other gang did. A gang that no end of a running gang would help is no head.
    fn foresee_place(&mut self, head: &Head) -> Option<Soonest> {
        self.book_against_future(head.request, head.queue);
        let soonest = self.soonest(head.gang, head.request);
        if soonest.is_none() {
            self.draft.pending.set_aside(head.request, SetAside::BesideReservations);
        }
        soonest
    }

    /// The gangs whose ends are known, if they are at most [`KNOWN_ENDS_MAX`]: then one search finds whether all of these ends
    /// make room for the head. `None` if there are more, if windows close nodes, and for a gang that needs named resources,
    /// which domains may limit.
    fn few_known_ends(&self, request: RequestClassId) -> Option<Vec<GangId>> {
        let gang = &self.draft.pending.request(request).key.gang;
        let is_plain = gang.all_needs().all(|needs| needs.named.is_empty());
        let starting = self.chosen_ends().filter(|(at, _)| at.is_some()).map(|(_, gang)| gang);
        let known: Vec<GangId> =
            self.ledger.ends().map(|(_, gang)| gang).chain(starting).take(KNOWN_ENDS_MAX + 1).collect();
        let is_few = known.len() <= KNOWN_ENDS_MAX;
        (is_plain && is_few && self.ledger.windows().is_clear(None)).then_some(known)
    }

    /// Foresees the start of every head, before a start is booked that may delay it.
    pub(super) fn foresee_heads(&mut self) {
        let mut foreseen = 0;
        while foreseen < self.heads.waiting.len() {
            let mut head = self.heads.waiting.remove(foreseen);
            if head.soonest.is_none() {
                head.soonest = self.foresee(&head);
            }
            if head.soonest.is_some() {
                self.heads.waiting.insert(foreseen, head);
                foreseen += 1;
            } else {
                // The next gang in order is a head instead.
                self.reserve_heads();
            }
        }
    }

    /// Reserves a placement without a time for each head that reached its bypass limit.
    pub(super) fn reserve_due(&mut self) {
        if !std::mem::take(&mut self.heads.is_any_due) {
            return;
        }
        // If two heads are bypassed by one start, the first in order has its placement reserved first.
        for head in std::mem::take(&mut self.heads.waiting) {
            let is_due =
                head.bypassed > 0 && self.is_due(head.gang) && self.draft.queues.hold_idle_milli() > 0;
            let soonest = if is_due {
                self.book_against_future(head.request, head.queue);
                self.soonest(head.gang, head.request)
            } else {
                None
            };
            match soonest {
                Some(soonest) => self.hold_for(head.gang, head.request, soonest),
                None => self.heads.waiting.push(head),
            }
        }
    }

    fn versions(&self) -> Versions {
        Versions { hardware: self.ledger.hardware_version(), reservations: self.draft.reservations.version() }
    }

    fn hold_for(&mut self, gang: GangId, request: RequestClassId, soonest: Soonest) {
        let key = &self.draft.pending.request(request).key;
        let (asked, rank) = (key.gang.clone(), key.rank);
        self.hold(gang, &asked, rank, soonest.into_place());
    }

    /// Counts a bypass for each head that could start sooner without a start that was booked.
    pub(super) fn count_bypasses(&mut self, starting: GangId, picks: &[Pick]) {
        let mut heads = std::mem::take(&mut self.heads.waiting);
        heads.retain(|head| head.gang != starting);
        for head in &mut heads {
            if head.bypassed < self.config.bypass_max && self.is_delayed(head, picks) {
                head.bypassed += 1;
                self.bypassed.push(head.gang);
                self.heads.is_any_due |= self.is_due(head.gang);
            }
        }
        self.heads.waiting = heads;
    }

    /// Whether a head could start sooner without a start. If it is not known which gang ends first, every device that
    /// the head could use may be the one that it lacks at that time.
    fn is_delayed(&mut self, head: &mut Head, picks: &[Pick]) -> bool {
        let Some(soonest) = &head.soonest else { return false };
        if soonest.at.is_none() && self.takes_usable(head, picks) {
            return true;
        }
        if !self.is_near(head, soonest, picks) {
            return false;
        }
        self.book_against_future(head.request, head.queue);
        let found = self.fits_after(head.request, &soonest.ends, soonest.is_near);
        let is_delayed = found.is_none();
        if let Some(((picks, order), soonest)) = found.zip(head.soonest.as_mut()) {
            // The head finds another placement as soon.
            (soonest.picks, soonest.order) = (picks, order);
        }
        is_delayed
    }

    /// Whether a start takes devices that a head could use.
    fn takes_usable(&self, head: &Head, picks: &[Pick]) -> bool {
        let tree = self.tree();
        let gang = &self.draft.pending.request(head.request).key.gang;
        gang.all_needs().any(|needs| {
            let listed = tree.listed(needs);
            picks.iter().any(|pick| {
                let eligible = tree.kind(&tree.nodes[pick.node as usize]).eligible(needs);
                listed.has(pick.node as usize) && !eligible.and(pick.devices).is_empty()
            })
        })
    }

    /// Whether a start is on nodes of the placement that a head waits for, or may use up resources counted by domain.
    fn is_near(&self, head: &Head, soonest: &Soonest, picks: &[Pick]) -> bool {
        let counts_by_domain = |gang: &Gang| gang.all_needs().any(|needs| !needs.named.is_empty());
        let is_on = |pick: &Pick| soonest.picks.iter().any(|own| own.node == pick.node);
        counts_by_domain(&self.draft.pending.request(head.request).key.gang) || picks.iter().any(is_on)
    }

    /// Whether a head reached its bypass limit.
    pub(super) fn is_due(&self, head: GangId) -> bool {
        let now = self.bypassed.iter().filter(|bypassed| **bypassed == head).count();
        let before = self.ledger.record(head).map_or(0, |record| record.bypassed);
        before.saturating_add(u32::try_from(now).unwrap_or(u32::MAX)) >= self.config.bypass_max
    }

    /// Releases the reservations without a known start that have kept devices idle for as long as the wait of their gangs is
    /// worth.
    pub(super) fn release_costly(&mut self) {
        let (now, share_milli) = (self.ledger.now(), self.draft.queues.hold_idle_milli());
        let timeless = self.draft.reservations.iter().filter(|(_, held)| held.at.is_none() && !held.preempts);
        let until = |(id, held): (&GangId, &Reservation)| {
            let since = self.ledger.record(*id)?.pending_since;
            let idle = held.idle_devices(self.tree(), &self.draft.space);
            let devices = held.picks.iter().map(|pick| pick.devices.count()).sum();
            Some((*id, idle_until(held.made_at, since, (idle, devices), share_milli)?))
        };
        for (id, until) in timeless.filter_map(until).collect::<Vec<_>>() {
            if until > now {
                self.again_at = self.again_at.min(until);
            } else {
                self.release(id);
                let why = "GPUs stayed idle for it as long as its wait is worth";
                self.dropped.push((id, why.to_owned()));
            }
        }
    }
}

/// The time until which `idle` of the `devices` of a placement may stay idle for a gang that has been pending since a time:
/// until their idle time is the given share of the gang's waiting time, both in device time. `None` if it never is.
fn idle_until(
    made_at: Timestamp,
    pending_since: Timestamp,
    (idle, devices): (u32, u32),
    share_milli: u64,
) -> Option<Timestamp> {
    let worth_milli = u128::from(share_milli) * u128::from(devices);
    let cost_milli = u128::from(idle) * 1_000;
    let more_milli = cost_milli.checked_sub(worth_milli).filter(|more| *more > 0)?;
    let held_ms = worth_milli * u128::from(made_at.since(pending_since)) / more_milli;
    Some(made_at.plus(u64::try_from(held_ms).unwrap_or(u64::MAX).max(HELD_LEAST_MS)))
}
