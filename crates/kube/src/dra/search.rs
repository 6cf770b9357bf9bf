//! Which devices for which request.
//!
//! Requests are served in order, each with the first of its alternatives that leaves room for the rest; the devices
//! of one request are tried as combinations, those that the caller prefers first. The first choice that satisfies
//! everything is taken.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};

use super::capacity;
use super::error::{Shortage, Unallocatable};
use super::inventory::{DeviceId, Inventory};
use super::pools::{self, Counters, Reach, Slot, View};
use super::request::{Choice, ClaimAsk, RESULTS_MAX};
use super::result;
use crate::api::Node;
use crate::quantity::Amount;

/// Devices that are tried before the search gives up, where the caller knows nothing better.
pub const TRIED_MAX: u32 = 100_000;

/// A device that is given to a request, for now.
pub(super) struct Pick {
    pub(super) claim: usize,
    pub(super) choice: usize,
    pub(super) request: usize,
    pub(super) slot: usize,
    pub(super) is_admin: bool,
    /// What it takes of a device that is shared.
    pub(super) share: Option<BTreeMap<String, Amount>>,
    took_counters: bool,
}

impl Inventory {
    /// Allocates claims that are not allocated yet, all on one node, or none.
    ///
    /// `prefer` says which devices the placement chose; others are taken only where these do not do. `share_id`
    /// makes a UUID for each share of a device. At most `tried_max` devices are tried. Nothing is remembered: the
    /// caller tells with [`Inventory::claim_applied`] once it means to write the results, with the time as their
    /// `allocationTimestamp`: kube-scheduler cannot bind a pod to a claim whose allocation has none.
    ///
    /// # Errors
    /// When the claims cannot be satisfied on this node, cannot be understood, or the bound was reached.
    pub fn allocate(
        &self,
        claims: &[&ResourceClaim],
        node: &Node,
        prefer: &dyn Fn(&DeviceId) -> bool,
        share_id: &mut dyn FnMut() -> String,
        tried_max: u32,
    ) -> Result<Vec<AllocationResult>, Unallocatable> {
        self.search(claims, node, View::AsItIs, prefer, share_id, tried_max)
    }

    /// What [`Inventory::allocate`] would give were no device held by any claim. Shares have no identifiers.
    ///
    /// # Errors
    /// As there.
    pub fn could_allocate(
        &self,
        claims: &[&ResourceClaim],
        node: &Node,
        tried_max: u32,
    ) -> Result<Vec<AllocationResult>, Unallocatable> {
        self.search(claims, node, View::AsIfFree, &|_| false, &mut String::new, tried_max)
    }

    fn search(
        &self,
        claims: &[&ResourceClaim],
        node: &Node,
        view: View,
        prefer: &dyn Fn(&DeviceId) -> bool,
        share_id: &mut dyn FnMut() -> String,
        tried_max: u32,
    ) -> Result<Vec<AllocationResult>, Unallocatable> {
        let asks = self.asks(claims)?;
        let reach = self.reach(node, view);
        let mut search = Search::new(&reach, &asks, prefer, tried_max);
        search.find_all()?;
        if !search.request(0)? {
            return Err(Unallocatable::Short(search.shortages()));
        }
        let Search { picks, .. } = search;
        let results = asks.iter().enumerate().map(|(claim, ask)| {
            let picks: Vec<&Pick> = picks.iter().filter(|pick| pick.claim == claim).collect();
            result::allocation(ask, &picks, &reach, node, share_id)
        });
        Ok(results.collect())
    }
}

struct Search<'a> {
    reach: &'a Reach<'a>,
    asks: &'a [ClaimAsk<'a>],
    /// Claim and request of each step.
    steps: Vec<(usize, usize)>,
    /// Slots in the order in which they are tried.
    order: Vec<usize>,
    /// What is known of step, choice and slot.
    selected: HashMap<(usize, usize, usize), bool>,
    /// The devices of choices that want all.
    all: HashMap<(usize, usize), Vec<usize>>,
    counters: Vec<Counters<'a>>,
    picks: Vec<Pick>,
    tried: u32,
    tried_max: u32,
}

impl<'a> Search<'a> {
    fn new(
        reach: &'a Reach<'a>,
        asks: &'a [ClaimAsk<'a>],
        prefer: &dyn Fn(&DeviceId) -> bool,
        tried_max: u32,
    ) -> Self {
        let steps = asks
            .iter()
            .enumerate()
            .flat_map(|(claim, ask)| (0..ask.requests.len()).map(move |at| (claim, at)));
        let mut order: Vec<usize> = (0..reach.slots.len()).collect();
        order.sort_by_cached_key(|slot| !prefer(&reach.slots[*slot].id));
        Self {
            reach,
            asks,
            steps: steps.collect(),
            order,
            selected: HashMap::new(),
            all: HashMap::new(),
            counters: reach.counters.clone(),
            picks: Vec::new(),
            tried: 0,
            tried_max,
        }
    }

    fn choices(&self, step: usize) -> &'a [Choice<'a>] {
        let (claim, request) = self.steps[step];
        &self.asks[claim].requests[request].choices
    }

    /// Who wants all devices must know which these are, before anything is given away.
    fn find_all(&mut self) -> Result<(), Unallocatable> {
        for step in 0..self.steps.len() {
            let claim = &self.asks[self.steps[step].0].name;
            for (at, choice) in
                self.choices(step).iter().enumerate().filter(|(_, choice)| choice.count.is_none())
            {
                if let Some((pool, why)) = self.reach.broken.first() {
                    let (claim, field) = (claim.clone(), choice.field.clone());
                    return Err(Unallocatable::Pool {
                        claim,
                        field,
                        pool: pool.to_string(),
                        why: why.clone(),
                    });
                }
                let mut devices = Vec::new();
                for slot in self.order.clone() {
                    if self.is_selected(step, at, slot)? && self.share(choice, slot).is_some() {
                        devices.push(slot);
                    }
                }
                self.all.insert((step, at), devices);
            }
        }
        Ok(())
    }

    /// Serves this step and those behind it.
    fn request(&mut self, step: usize) -> Result<bool, Unallocatable> {
        if step == self.steps.len() {
            return Ok(true);
        }
        for (at, choice) in self.choices(step).iter().enumerate() {
            let is_served = match choice.count {
                Some(count) => self.some(step, at, count, 0)?,
                None => self.every(step, at)?,
            };
            if is_served {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Finds so many devices more for a choice, among those from a place in the order on.
    fn some(&mut self, step: usize, choice: usize, count: usize, from: usize) -> Result<bool, Unallocatable> {
        if count == 0 {
            return self.request(step + 1);
        }
        if self.picks_of(self.steps[step].0).count() + count > RESULTS_MAX {
            return Ok(false);
        }
        for place in from..self.order.len().saturating_sub(count - 1) {
            let slot = self.order[place];
            if !self.is_free(step, choice, slot) || !self.is_selected(step, choice, slot)? {
                continue;
            }
            if self.pick(step, choice, slot)? {
                if self.some(step, choice, count - 1, place + 1)? {
                    return Ok(true);
                }
                self.put_back();
            }
        }
        Ok(false)
    }

    /// Takes all devices of a choice, of which there must be one. Where a constraint forbids one of them, this is a
    /// choice that cannot be had; upstream ends the attempt with an error, and does not try the next alternative.
    fn every(&mut self, step: usize, choice: usize) -> Result<bool, Unallocatable> {
        let devices = self.all.get(&(step, choice)).cloned().unwrap_or_default();
        let before = self.picks.len();
        if devices.is_empty() || self.picks_of(self.steps[step].0).count() + devices.len() > RESULTS_MAX {
            return Ok(false);
        }
        for slot in devices {
            if !self.is_free(step, choice, slot) || !self.pick(step, choice, slot)? {
                self.put_back_to(before);
                return Ok(false);
            }
        }
        if self.request(step + 1)? {
            return Ok(true);
        }
        self.put_back_to(before);
        Ok(false)
    }

    fn picks_of(&self, claim: usize) -> impl Iterator<Item = &Pick> {
        self.picks.iter().filter(move |pick| pick.claim == claim)
    }

    /// Whether nobody else has the device. Admin access is beside others; a claim never has a device twice but for
    /// shares of it.
    fn is_free(&self, step: usize, choice: usize, slot: usize) -> bool {
        let claim = self.steps[step].0;
        let Slot { device, is_taken, shares, .. } = &self.reach.slots[slot];
        let mut here = self.picks.iter().filter(|pick| pick.slot == slot);
        if self.choices(step)[choice].is_admin {
            return !here.any(|pick| pick.claim == claim);
        }
        let is_multiple = device.allow_multiple_allocations.unwrap_or(false);
        let is_held = *is_taken || !is_multiple && shares.is_some();
        !is_held && !here.any(|pick| if pick.is_admin { pick.claim == claim } else { pick.share.is_none() })
    }

    fn is_selected(&mut self, step: usize, choice: usize, slot: usize) -> Result<bool, Unallocatable> {
        if let Some(known) = self.selected.get(&(step, choice, slot)) {
            return Ok(*known);
        }
        let claim = &self.asks[self.steps[step].0].name;
        let selected = self.choices(step)[choice].selects(claim, &self.reach.slots[slot])?;
        self.selected.insert((step, choice, slot), selected);
        Ok(selected)
    }

    /// What a choice takes of a device's capacity, if that is there. Admin access takes nothing.
    fn share(&self, choice: &Choice<'_>, slot: usize) -> Option<BTreeMap<String, Amount>> {
        let Slot { device, shares, .. } = &self.reach.slots[slot];
        let share = capacity::share(device, &choice.capacity)?;
        if choice.is_admin {
            return Some(BTreeMap::new());
        }
        let before = shares.map(|shares| &shares.consumed);
        let here = self.picks.iter().filter(|pick| pick.slot == slot).filter_map(|pick| pick.share.as_ref());
        capacity::fits(device, before.into_iter().chain(here).chain([&share])).then_some(share)
    }

    /// Gives a device to a choice, if taints, constraints, counters and capacity allow it.
    fn pick(&mut self, step: usize, at: usize, slot: usize) -> Result<bool, Unallocatable> {
        self.tried += 1;
        if self.tried > self.tried_max {
            return Err(Unallocatable::BudgetExhausted { tried: self.tried_max });
        }
        let (claim, request) = self.steps[step];
        let choice = &self.choices(step)[at];
        let Slot { device, pool, shares, .. } = &self.reach.slots[slot];
        if !choice.tolerates(&self.reach.slots[slot]) || !self.is_within_constraints(claim, choice, slot) {
            return Ok(false);
        }
        let Some(share) = self.share(choice, slot) else { return Ok(false) };
        let is_shared = device.allow_multiple_allocations.unwrap_or(false) && !choice.is_admin;
        let is_used = is_shared
            && (shares.is_some() || self.picks.iter().any(|pick| pick.slot == slot && !pick.is_admin));
        // The first share of a device takes its counters, for all that follow.
        let took_counters = !choice.is_admin && !is_used && device.consumes_counters.is_some();
        if took_counters {
            let counters = &mut self.counters[*pool];
            pools::take(counters, device, Amount::minus);
            if counters.values().any(|left| *left < Amount::ZERO) {
                pools::take(counters, device, Amount::plus);
                return Ok(false);
            }
        }
        let share = is_shared.then_some(share);
        self.picks.push(Pick {
            claim,
            choice: at,
            request,
            slot,
            is_admin: choice.is_admin,
            share,
            took_counters,
        });
        Ok(true)
    }

    fn is_within_constraints(&self, claim: usize, choice: &Choice<'_>, slot: usize) -> bool {
        let ask = &self.asks[claim];
        let name = |pick: &Pick| &ask.requests[pick.request].choices[pick.choice].name;
        ask.constraints.iter().filter(|constraint| constraint.covers(&choice.name)).all(|constraint| {
            let covered = self.picks_of(claim).filter(|pick| constraint.covers(name(pick)));
            constraint.admits(covered.map(|pick| &self.reach.slots[pick.slot]), &self.reach.slots[slot])
        })
    }

    fn put_back(&mut self) {
        let Some(pick) = self.picks.pop() else { return };
        if pick.took_counters {
            let slot = &self.reach.slots[pick.slot];
            pools::take(&mut self.counters[slot.pool], slot.device, Amount::plus);
        }
    }

    fn put_back_to(&mut self, count: usize) {
        while self.picks.len() > count {
            self.put_back();
        }
    }

    /// What there is for each choice by itself. Only asked when nothing is picked.
    fn shortages(&mut self) -> Vec<Shortage> {
        let mut shortages = Vec::new();
        for step in 0..self.steps.len() {
            for (at, choice) in self.choices(step).iter().enumerate() {
                let claim = self.asks[self.steps[step].0].name.clone();
                let (request, wanted) = (choice.name.clone(), choice.count);
                let mut short =
                    Shortage { claim, request, wanted, selected: 0, taken: 0, tainted: 0, small: 0 };
                for slot in 0..self.reach.slots.len() {
                    if !self.is_selected(step, at, slot).unwrap_or(false) {
                        continue;
                    }
                    short.selected += 1;
                    if !self.is_free(step, at, slot) {
                        short.taken += 1;
                    } else if !choice.tolerates(&self.reach.slots[slot]) {
                        short.tainted += 1;
                    } else if !self.could_hold(choice, slot) {
                        short.small += 1;
                    }
                }
                shortages.push(short);
            }
        }
        shortages
    }

    fn could_hold(&mut self, choice: &Choice<'_>, slot: usize) -> bool {
        let Slot { device, pool, .. } = &self.reach.slots[slot];
        let counters = &mut self.counters[*pool];
        pools::take(counters, device, Amount::minus);
        let needs_none = choice.is_admin || device.consumes_counters.is_none();
        let has_counters = needs_none || counters.values().all(|left| *left >= Amount::ZERO);
        pools::take(counters, device, Amount::plus);
        has_counters && self.share(choice, slot).is_some()
    }
}
