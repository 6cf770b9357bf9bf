//! The least lost work with which the nodes of one domain free enough members.
//!
//! A victim on one node concerns that node alone: each node has a price for each number of members that it frees, and
//! the nodes are a knapsack that a table solves exactly. Victims on several nodes link these nodes: sets of these
//! victims are tried, all of them if they are few, else by adding and dropping one at a time, and the table prices the
//! rest.

use std::collections::BTreeMap;

use super::select::Budget;
use super::weigh::{Field, Unit, VictimAmount};

/// The most victims of one node of which every set is priced; if there are more, only the cheapest are.
const ALL_SETS_MAX: usize = 8;
/// The same for each node of a large domain.
const FEW_SETS_MAX: usize = 4;
const LARGE_DOMAIN: usize = 64;
/// The most victims on several nodes of which every set is tried.
const ALL_SPANNING_MAX: usize = 6;
/// Cells of a table; a domain with more is cut to its cheapest nodes.
const CELLS_MAX: u64 = 1 << 15;

/// Lost work, and gangs.
pub(super) type Price = (u64, u32);

const fn plus(one: Price, other: Price) -> Price {
    (one.0.saturating_add(other.0), one.1.saturating_add(other.1))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The victim is of a higher class than need be.
    Barred,
    /// The victim is on one node of the domain.
    Local,
    /// The victim is on several nodes of the domain, and not taken.
    Spanning,
    Taken,
}

/// A set of victims of one node.
#[derive(Clone, Debug)]
struct Choice {
    members: u32,
    price: Price,
    units: Vec<usize>,
}

/// The offer of one node: the members that it frees anyway, and sets of victims for more.
#[derive(Clone, Debug, Default)]
struct Offer {
    anyway: u32,
    choices: Vec<Choice>,
}

impl Offer {
    fn most(&self) -> u32 {
        self.choices.iter().map(|choice| choice.members).max().unwrap_or(0)
    }

    /// The best price of one member, times a constant.
    fn rate(&self) -> u128 {
        self.choices.iter().map(|choice| rate(choice.price, choice.members)).min().unwrap_or(u128::MAX)
    }
}

fn rate(price: Price, members: u32) -> u128 {
    ((u128::from(price.0) << 16) + u128::from(price.1)) / u128::from(members.max(1))
}

pub(super) struct Knapsack<'f> {
    field: &'f Field<'f>,
    states: Vec<State>,
}

impl<'f> Knapsack<'f> {
    pub(super) fn new(field: &'f Field<'f>, is_allowed: impl Fn(&Unit) -> bool) -> Self {
        let state = |unit: &Unit| if is_allowed(unit) { State::Local } else { State::Barred };
        Self { field, states: field.units.iter().map(state).collect() }
    }

    fn is_allowed(&self, unit: usize) -> bool {
        self.states[unit] != State::Barred
    }

    fn price(&self, unit: usize) -> Price {
        (self.field.units[unit].lost_device_ms, 1)
    }

    /// A lower bound of the cost of victims that free so many members: as if devices could be freed one by one.
    pub(super) fn least(&self, nodes: &[usize], need: u32, each: u32) -> Price {
        let mut devices: Vec<(usize, u32)> = Vec::new();
        let mut spare = 0_u32;
        for at in nodes {
            spare = spare.saturating_add(self.field.nodes[*at].now.devices.count());
            let allowed = self.field.freed_on(*at).iter().filter(|(unit, _)| self.is_allowed(*unit));
            devices.extend(allowed.map(|(unit, amount)| (*unit, amount.devices.count())));
        }
        devices.sort_unstable();
        let mut missing = need.saturating_mul(each).saturating_sub(spare);
        let mut order: Vec<(u128, usize, u32)> = devices
            .chunk_by(|one, other| one.0 == other.0)
            .filter_map(|of| Some((of.first()?.0, of.iter().map(|(_, devices)| devices).sum())))
            .filter(|(_, devices)| *devices > 0)
            .map(|(unit, devices)| (rate(self.price(unit), devices), unit, devices))
            .collect();
        order.sort_unstable();
        let mut least = 0_u64;
        for (_, unit, devices) in order {
            let part = missing.min(devices);
            let lost = u128::from(self.field.units[unit].lost_device_ms) * u128::from(part);
            least = least.saturating_add(u64::try_from(lost / u128::from(devices)).unwrap_or(u64::MAX));
            missing -= part;
            if missing == 0 {
                break;
            }
        }
        (least, 0)
    }

    /// The cheapest units that free so many members on these nodes, as far as the budget allows.
    pub(super) fn solve(
        &mut self,
        nodes: &[usize],
        need: u32,
        budget: &mut Budget,
    ) -> Option<(Price, Vec<usize>)> {
        let spanning = self.begin(nodes);
        let sets_max = if nodes.len() > LARGE_DOMAIN { FEW_SETS_MAX } else { ALL_SETS_MAX };
        let plain: Vec<Offer> = nodes.iter().map(|at| self.offer(*at, sets_max)).collect();
        budget.spend(plain.iter().map(|offer| 1 + offer.choices.len() as u64).sum());
        let mut domain = Domain { knapsack: self, nodes, need, plain, sets_max };
        let best = if spanning.len() <= ALL_SPANNING_MAX {
            domain.try_all(&spanning, budget)
        } else {
            domain.climb(&spanning, budget)
        };
        for unit in spanning {
            self.states[unit] = State::Local;
        }
        best
    }

    /// Marks the units that are on several nodes, and returns them, the cheapest first.
    fn begin(&mut self, nodes: &[usize]) -> Vec<usize> {
        let mut touched: Vec<usize> =
            nodes.iter().flat_map(|at| self.field.freed_on(*at)).map(|(unit, _)| *unit).collect();
        touched.sort_unstable();
        let spans = |of: &[usize]| of.first().copied().filter(|unit| of.len() > 1 && self.is_allowed(*unit));
        let mut spanning: Vec<usize> = touched.chunk_by(usize::eq).filter_map(spans).collect();
        spanning.sort_by_key(|unit| (self.price(*unit), *unit));
        for unit in &spanning {
            self.states[*unit] = State::Spanning;
        }
        spanning
    }

    /// The offer of a node beside the units on several nodes that are taken.
    fn offer(&self, at: usize, sets_max: usize) -> Offer {
        let node = &self.field.nodes[at];
        let freed = self.field.freed_on(at);
        let taken = freed.iter().filter(|(unit, _)| self.states[*unit] == State::Taken);
        let now = taken.fold(node.now, |now, (_, amount)| now.plus(*amount));
        let before = self.field.members(node.now);
        let anyway = self.field.members(now) - before;
        let mut local: Vec<(usize, VictimAmount)> =
            freed.iter().filter(|(unit, _)| self.states[*unit] == State::Local).copied().collect();
        let mut best: BTreeMap<u32, Choice> = BTreeMap::new();
        let mut keep = |units: &[(usize, VictimAmount)], is_in: &dyn Fn(usize) -> bool| {
            let (mut amount, mut price) = (now, (0, 0));
            for (_, (unit, freed)) in units.iter().enumerate().filter(|(bit, _)| is_in(*bit)) {
                (amount, price) = (amount.plus(*freed), plus(price, self.price(*unit)));
            }
            let members = self.field.members(amount) - before - anyway;
            if members > 0 && best.get(&members).is_none_or(|choice| price < choice.price) {
                let chosen = units.iter().enumerate().filter(|(bit, _)| is_in(*bit));
                let units = chosen.map(|(_, (unit, _))| *unit).collect();
                best.insert(members, Choice { members, price, units });
            }
        };
        if local.len() <= sets_max {
            (1_usize..1 << local.len()).for_each(|set| keep(&local, &|bit| set & (1 << bit) != 0));
        } else {
            // In order of cost, and then in order of cost for each device.
            for _ in 0..2 {
                (1..=local.len()).for_each(|count| keep(&local, &|bit| bit < count));
                local.sort_by_key(|(unit, amount)| (rate(self.price(*unit), amount.devices.count()), *unit));
            }
        }
        // Of equal prices, more members are better.
        let mut choices: Vec<Choice> = Vec::new();
        for choice in best.into_values().rev() {
            if choices.last().is_none_or(|more| choice.price < more.price) {
                choices.push(choice);
            }
        }
        Offer { anyway, choices }
    }
}

/// One domain, while its units on several nodes are tried.
struct Domain<'k, 'f, 'n> {
    knapsack: &'k mut Knapsack<'f>,
    nodes: &'n [usize],
    need: u32,
    /// The offers of nodes with none of these units taken.
    plain: Vec<Offer>,
    sets_max: usize,
}

type Best = Option<(Price, Vec<usize>)>;

impl Domain<'_, '_, '_> {
    fn try_all(&mut self, spanning: &[usize], budget: &mut Budget) -> Best {
        let mut best: Best = None;
        for set in 0_usize..1 << spanning.len() {
            let taken: Vec<usize> = spanning
                .iter()
                .enumerate()
                .filter(|(bit, _)| set & (1 << bit) != 0)
                .map(|(_, unit)| *unit)
                .collect();
            self.keep_better(&taken, &mut best, budget);
        }
        best
    }

    /// Starts with none of the units on several nodes, with all of them, and with those that free members cheaply; then
    /// adds and drops one unit at a time as long as that is cheaper.
    fn climb(&mut self, spanning: &[usize], budget: &mut Budget) -> Best {
        let mut best: Best = None;
        let mut taken: Vec<usize> = Vec::new();
        for start in [self.cheap(spanning), Vec::new(), spanning.to_vec()] {
            // The first set that is enough is sought whatever it costs.
            if (best.is_none() || !budget.is_spent()) && self.keep_better(&start, &mut best, budget) {
                taken = start;
            }
        }
        let mut is_better = best.is_some();
        while std::mem::take(&mut is_better) {
            for unit in spanning.iter().rev().copied() {
                if budget.is_spent() {
                    return best;
                }
                let mut other: Vec<usize> = taken.iter().copied().filter(|of| *of != unit).collect();
                if other.len() == taken.len() {
                    other.push(unit);
                }
                if self.keep_better(&other, &mut best, budget) {
                    (taken, is_better) = (other, true);
                }
            }
        }
        best
    }

    /// The units on several nodes that are taken if members are freed at the best price first.
    fn cheap(&self, spanning: &[usize]) -> Vec<usize> {
        let field = self.knapsack.field;
        let domain: BTreeMap<usize, usize> = self.nodes.iter().copied().zip(0..).collect();
        let alone = |unit: usize| {
            let freed = field.freed_by(unit).iter().filter(|(at, _)| domain.contains_key(at));
            let more = freed.map(|(at, amount)| {
                let now = field.nodes[*at].now;
                field.members(now.plus(*amount)) - field.members(now)
            });
            (more.sum::<u32>(), unit)
        };
        let of_spanning = spanning.iter().map(|unit| alone(*unit)).filter(|(members, _)| *members > 0);
        let mut order: Vec<(u128, u32, Option<usize>)> = of_spanning
            .map(|(members, unit)| (rate(self.knapsack.price(unit), members), members, Some(unit)))
            .collect();
        order.extend(self.plain.iter().map(|offer| (offer.rate(), offer.most(), None)));
        order.sort_unstable();
        let mut freed = 0_u32;
        let enough = order.iter().take_while(|(_, members, _)| {
            let is_short = freed < self.need;
            freed = freed.saturating_add(*members);
            is_short
        });
        enough.filter_map(|(.., unit)| *unit).collect()
    }

    /// Prices a set of units on several nodes, with the best of the others. Returns whether that is cheaper than
    /// before.
    fn keep_better(&mut self, taken: &[usize], best: &mut Best, budget: &mut Budget) -> bool {
        let price = taken.iter().fold((0, 0), |sum, unit| plus(sum, self.knapsack.price(*unit)));
        if best.as_ref().is_some_and(|(before, _)| price >= *before) {
            budget.spend(1);
            return false;
        }
        taken.iter().for_each(|unit| self.knapsack.states[*unit] = State::Taken);
        let offers = self.offers(taken);
        taken.iter().for_each(|unit| self.knapsack.states[*unit] = State::Spanning);
        let anyway: u32 = offers.iter().map(|offer| offer.anyway).sum();
        let Some((rest, mut units)) = table(&offers, self.need.saturating_sub(anyway), budget) else {
            return false;
        };
        let price = plus(price, rest);
        let is_better = best.as_ref().is_none_or(|(before, _)| price < *before);
        if is_better {
            units.extend_from_slice(taken);
            *best = Some((price, units));
        }
        is_better
    }

    /// The offers of nodes with these units taken.
    fn offers(&self, taken: &[usize]) -> Vec<Offer> {
        let field = self.knapsack.field;
        let mut offers = self.plain.clone();
        for (at, _) in taken.iter().flat_map(|unit| field.freed_by(*unit)) {
            if let Ok(place) = self.nodes.binary_search(at) {
                offers[place] = self.knapsack.offer(*at, self.sets_max);
            }
        }
        offers
    }
}

/// The cheapest choices, at most one of each node, that free so many members.
fn table(offers: &[Offer], need: u32, budget: &mut Budget) -> Option<(Price, Vec<usize>)> {
    if need == 0 {
        return Some(((0, 0), Vec::new()));
    }
    let mut offers: Vec<&Offer> = offers.iter().filter(|offer| !offer.choices.is_empty()).collect();
    if offers.iter().map(|offer| offer.most()).fold(0, u32::saturating_add) < need {
        budget.spend(offers.len() as u64);
        return None;
    }
    let cells = |offers: &[&Offer]| {
        offers.iter().map(|offer| offer.choices.len() as u64).sum::<u64>() * u64::from(need)
    };
    if cells(&offers) > CELLS_MAX {
        // Keeps the cheapest nodes, thrice as many as would do.
        offers.sort_by_key(|offer| offer.rate());
        let mut most = 0_u32;
        let enough = offers.iter().take_while(|offer| {
            let is_short = most < need.saturating_mul(3);
            most = most.saturating_add(offer.most());
            is_short
        });
        let enough = enough.count();
        offers.truncate(enough);
    }
    budget.spend(cells(&offers));
    let need = need as usize;
    let mut least: Vec<Option<Price>> = vec![None; need + 1];
    least[0] = Some((0, 0));
    let mut chosen: Vec<Vec<Option<u8>>> = Vec::with_capacity(offers.len());
    for offer in &offers {
        let mut of_offer = vec![None; need + 1];
        for members in (1..=need).rev() {
            for (at, choice) in (0_u8..=u8::MAX).zip(&offer.choices) {
                let rest = members.saturating_sub(choice.members as usize);
                let Some(price) = least[rest].map(|rest| plus(rest, choice.price)) else { continue };
                if least[members].is_none_or(|before| price < before) {
                    (least[members], of_offer[members]) = (Some(price), Some(at));
                }
            }
        }
        chosen.push(of_offer);
    }
    let price = least[need]?;
    let (mut members, mut units) = (need, Vec::new());
    for (offer, of_offer) in offers.iter().zip(&chosen).rev() {
        if let Some(choice) = of_offer[members].and_then(|at| offer.choices.get(usize::from(at))) {
            units.extend_from_slice(&choice.units);
            members = members.saturating_sub(choice.members as usize);
        }
    }
    Some((price, units))
}
