//! Which racks: an exact search over sets.
//!
//! A rack with f free nodes has room for c = f / segment units. A set of racks holds a job of q units and a rest
//! exactly when its units are enough and the rest fits beside them in one rack, or when there is a unit to spare.
//! What stays free is the sum of f less the nodes of the job, so that of sets with equally many racks the one with
//! the smallest sum is sought.
//!
//! The fewest racks are those with the most units. The set with the smallest sum differs from these in few racks:
//! they hold fewer units to spare than one rack holds, and each change costs one at least.

use std::cmp::Reverse;
use std::ops::Range;

use super::racks::{Need, RackUse, blocks};

/// Steps of a search before it is content with what it has; about 10 ms, and 16 MiB of memory.
const STEPS_MAX: usize = 1 << 22;
const NEVER: u64 = u64::MAX;
/// A set weighs (racks, free nodes) in the upper and lower half.
const ONE_RACK: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rack {
    at: u32,
    free: u32,
    units: u32,
    has_slack: bool,
}

/// How much a block holds.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    units: u64,
    /// Whether a rest fits beside these units.
    has_slack: bool,
}

pub(super) struct Found {
    /// Blocks of the level below that are used.
    pub(super) blocks: u32,
    pub(super) is_best: bool,
}

/// The racks of a row as one job sees them, the best set so far, and memory that is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Sets {
    need: Need,
    racks: Vec<Rack>,
    /// Racks to choose from, which hold the job together; sorted by [`Sets::fewest`]: the most units first, then the
    /// fewest free nodes, then by index.
    among: Vec<Rack>,
    chosen: Vec<Rack>,
    best: Vec<Rack>,
    change: Change,
    spread: Spread,
}

/// Memory of [`Sets::exchange`].
#[derive(Clone, Debug, Default)]
struct Change {
    /// Racks that may be put in (+1) or left out (-1), by index into those to choose from.
    items: Vec<(usize, isize)>,
    /// The least change of the sum of free nodes, by units lost and by racks put in less those left out.
    least: Vec<i64>,
    /// For each item and state, whether the item is part of it.
    takes: Vec<bool>,
    /// Free nodes of the first racks that hold as many units as the last one of the fewest.
    sums: Vec<i64>,
    is_in: Vec<bool>,
}

/// Memory of [`Sets::spread`].
#[derive(Clone, Debug, Default)]
struct Spread {
    blocks: Vec<(Range<usize>, Room)>,
    /// The least weight by blocks used and state.
    least: Vec<u64>,
    now: Vec<u64>,
    /// The state before the block at hand.
    from: Vec<u32>,
    /// By block, blocks used and state: the state before it if the block is used.
    back: Vec<u32>,
}

impl Need {
    fn fits(self, room: Room) -> bool {
        room.units >= u64::from(self.units) + u64::from(self.rest > 0 && !room.has_slack)
    }
}

impl Room {
    fn of(racks: &[Rack]) -> Self {
        racks.iter().fold(Self::default(), |room, rack| Self {
            units: room.units + u64::from(rack.units),
            has_slack: room.has_slack || rack.has_slack,
        })
    }
}

impl Sets {
    pub(super) fn load(&mut self, free: &[u32], need: Need) {
        self.need = need;
        let racks = (0..).zip(free).map(|(at, free)| Rack {
            at,
            free: *free,
            units: free / need.segment,
            has_slack: need.rest > 0 && free % need.segment >= need.rest,
        });
        self.racks.clear();
        self.racks.extend(racks);
    }

    /// The best block of a level: the fewest blocks of the level below, then the least weight, then the first. Its
    /// racks are kept in `best`.
    ///
    /// When no block has room, how many segments fit the one with the most.
    pub(super) fn best_block(&mut self, level: u8, below: Option<u8>) -> Result<Found, u64> {
        let mut best: Option<(u32, u64)> = None;
        let (mut most, mut is_best) = (0, true);
        for block in blocks(0..self.racks.len(), level) {
            let room = Room::of(&self.racks[block.clone()]);
            most = most.max(room.units + u64::from(room.has_slack));
            if !self.need.fits(room) {
                continue;
            }
            let (parts, limit) = (self.parts(&block, below), best);
            if limit.is_some_and(|(least, _)| least < parts) {
                continue;
            }
            let limit = limit.filter(|(least, _)| *least == parts).map(|(_, weight)| weight);
            let (weight, proven) = self.best_within(&block, parts, limit);
            is_best &= proven;
            if best.is_none_or(|best| (parts, weight) < best) {
                best = Some((parts, weight));
                self.best.clone_from(&self.chosen);
            }
        }
        match best {
            Some((blocks, weight)) => {
                // Blocks of single racks are as many as the racks.
                let racks = u32::try_from(weight / ONE_RACK).unwrap_or(u32::MAX);
                Ok(Found {
                    blocks: if below.is_some_and(|below| below > 0) { blocks } else { racks },
                    is_best,
                })
            }
            None => Err(most),
        }
    }

    /// Sets `spread` to the blocks of the level below in a block that has room. Says how many of them the job takes
    /// at least; 0 where that level is the rack, so that they are counted as racks.
    fn parts(&mut self, block: &Range<usize>, below: Option<u8>) -> u32 {
        let Self { need, racks, spread, .. } = self;
        let Some(below) = below.filter(|below| *below > 0) else { return 0 };
        spread.blocks.clear();
        spread.blocks.extend(blocks(block.clone(), below).map(|part| {
            let room = Room::of(&racks[part.clone()]);
            (part, room)
        }));
        spread.blocks.sort_unstable_by_key(|(part, room)| (Reverse(room.units), part.start));
        u32::try_from(spread.fewest_blocks(*need)).unwrap_or(u32::MAX)
    }

    /// The least weight of a set in a block, over so many blocks of the level below (0 for any), with its racks in
    /// `chosen`; [`NEVER`] if it is not below the limit. Says whether it is known to be the least.
    fn best_within(&mut self, block: &Range<usize>, parts: u32, limit: Option<u64>) -> (u64, bool) {
        self.among.clear();
        self.among.extend_from_slice(&self.racks[block.clone()]);
        let (bound, proven) = self.fewest(limit);
        if parts == 0 || bound == NEVER {
            return (bound, proven);
        }
        // The roomiest of these blocks are enough where nothing is better in all of them.
        let parts = parts as usize;
        self.among.clear();
        for part in self.spread.roomiest(self.need, parts) {
            self.among.extend_from_slice(&self.racks[part]);
        }
        let (weight, roomiest_proven) = self.fewest(limit);
        if weight == bound {
            return (weight, proven);
        }
        let states = (self.need.units as usize + 1) * if self.need.rest > 0 { 2 } else { 1 };
        if states.saturating_mul(parts).saturating_mul(block.len()) > STEPS_MAX {
            return (weight, false);
        }
        let Self { need, racks, among, spread, .. } = self;
        spread.weigh_blocks(racks, *need, parts, states);
        among.clear();
        spread.trace(parts, states, |part| among.extend_from_slice(&racks[part]));
        let (weight, proven) = self.fewest(limit);
        (weight, proven && roomiest_proven)
    }
}

impl Spread {
    /// The fewest blocks that hold the job together: those with the most room, of which one may be changed for
    /// another where the rest fits.
    fn fewest_blocks(&self, need: Need) -> usize {
        let slack = self.blocks.iter().position(|(_, room)| room.has_slack);
        let mut units = 0;
        for (i, (_, room)) in self.blocks.iter().enumerate() {
            let changed = slack.and_then(|slack| self.blocks.get(slack.max(i)));
            if let Some((_, with_slack)) = changed {
                let room = Room { units: units + with_slack.units, has_slack: true };
                if need.fits(room) {
                    return i + 1;
                }
            }
            units += room.units;
            if need.fits(Room { units, has_slack: slack.is_some_and(|slack| slack <= i) }) {
                return i + 1;
            }
        }
        self.blocks.len()
    }

    /// The roomiest blocks, so many of them, with one where the rest fits if it has to.
    fn roomiest(&self, need: Need, parts: usize) -> impl Iterator<Item = Range<usize>> {
        let units: u64 = self.blocks.iter().take(parts).map(|(_, room)| room.units).sum();
        let slack = self.blocks.iter().position(|(_, room)| room.has_slack);
        let is_enough = need.fits(Room { units, has_slack: slack.is_some_and(|slack| slack < parts) });
        let last = parts.saturating_sub(1);
        let last = if is_enough { last } else { slack.unwrap_or(last) };
        self.blocks
            .iter()
            .take(parts.saturating_sub(1))
            .chain(self.blocks.get(last))
            .map(|(part, _)| part.clone())
    }

    /// Fills `least` and `back` for up to so many blocks. State k is that k units are held at least, and k +
    /// units + 1 that the rest is as well.
    fn weigh_blocks(&mut self, racks: &[Rack], need: Need, parts: usize, states: usize) {
        let Self { blocks, least, now, from, back } = self;
        least.clear();
        least.resize((parts + 1) * states, NEVER);
        least[0] = 0;
        back.clear();
        for (part, _) in &*blocks {
            let start = back.len();
            back.resize(start + (parts + 1) * states, u32::MAX);
            // From many blocks to few, so that those without this one are not changed yet.
            for used in (1..=parts).rev() {
                let before = &least[(used - 1) * states..used * states];
                now.clear();
                now.extend_from_slice(before);
                from.clear();
                from.extend(0..u32::try_from(states).unwrap_or(u32::MAX));
                for rack in &racks[part.clone()] {
                    add_rack(*rack, need, now, from);
                }
                for state in 0..states {
                    let at = used * states + state;
                    if now[state] < least[at] {
                        least[at] = now[state];
                        back[start + at] = from[state];
                    }
                }
            }
        }
    }

    /// Visits the blocks of the least weight.
    fn trace(&self, parts: usize, states: usize, mut visit: impl FnMut(Range<usize>)) {
        let (mut used, mut state) = (parts, states - 1);
        for (i, (part, _)) in self.blocks.iter().enumerate().rev() {
            let at = (i * (parts + 1) + used) * states + state;
            if self.back[at] != u32::MAX {
                visit(part.clone());
                (used, state) = (used - 1, self.back[at] as usize);
            }
        }
    }
}

/// Lets states use one rack more.
fn add_rack(rack: Rack, need: Need, now: &mut [u64], from: &mut [u32]) {
    let (units, own) = (need.units as usize, rack.units as usize);
    // Units beside which the rest fits, if it does.
    let beside = if rack.has_slack { Some(own) } else { own.checked_sub(1) };
    let weight = ONE_RACK + u64::from(rack.free);
    let mut step = |to: usize, via: usize| {
        let sum = now[via].saturating_add(weight);
        if sum < now[to] {
            (now[to], from[to]) = (sum, from[via]);
        }
    };
    for held in (0..=units).rev() {
        if need.rest > 0 {
            let with_rest = units + 1;
            step(with_rest + held, with_rest + held.saturating_sub(own));
            if let Some(beside) = beside {
                step(with_rest + held, held.saturating_sub(beside));
            }
        }
        step(held, held.saturating_sub(own));
    }
}

impl Sets {
    /// The set of the fewest racks of `among` that hold the job, and of these the one with the fewest free nodes, in
    /// `chosen`. Says its weight, [`NEVER`] if it is not below the limit, and whether it is known to be best.
    fn fewest(&mut self, limit: Option<u64>) -> (u64, bool) {
        let Need { units, rest, .. } = self.need;
        if let [rack] = *self.among {
            // All of a job that one block has room for.
            self.chosen.clear();
            self.chosen.push(rack);
            let weight = ONE_RACK + u64::from(rack.free);
            return (if limit.is_some_and(|limit| limit <= weight) { NEVER } else { weight }, true);
        }
        self.among.sort_unstable_by_key(|rack| (Reverse(rack.units), rack.free, rack.at));
        let (mut best, mut is_best) = (limit.unwrap_or(NEVER), true);
        let mut found = NEVER;
        // With a unit to spare for the rest, or with the rest in the slack of a rack that has to be there: the first
        // one of those with equally many units.
        for forced in 0..=self.among.len() {
            let rack = forced.checked_sub(1).and_then(|i| self.among.get(i)).copied();
            let need = match rack {
                None => units + u32::from(rest > 0),
                Some(rack) if rack.has_slack && !self.has_equal_before(forced - 1) => {
                    units.saturating_sub(rack.units)
                }
                Some(_) if rest == 0 => break,
                Some(_) => continue,
            };
            let base = rack.map_or(0, |rack| ONE_RACK + u64::from(rack.free));
            let (weight, proven) = self.exchange(forced.checked_sub(1), need, best.saturating_sub(base));
            is_best &= proven;
            if let Some(weight) = weight.map(|weight| weight + base).filter(|weight| *weight < best) {
                (best, found) = (weight, weight);
                let is_in = |i: usize| self.change.is_in.get(i) == Some(&true) || forced == i + 1;
                self.chosen.clear();
                self.chosen.extend((0..).zip(&self.among).filter(|(i, _)| is_in(*i)).map(|(_, rack)| *rack));
            }
        }
        (found, is_best)
    }

    /// Whether a rack before this one has equally many units and slack.
    fn has_equal_before(&self, at: usize) -> bool {
        let Some((own, before)) = self.among.get(at).zip(self.among.get(..at)) else { return false };
        before.iter().rev().take_while(|rack| rack.units == own.units).any(|rack| rack.has_slack)
    }

    /// The least weight of a set of `among` without one of them that holds so many units, if it may be below the
    /// limit; the set is in `change.is_in`.
    fn exchange(&mut self, without: Option<usize>, need: u32, limit: u64) -> (Option<u64>, bool) {
        let Self { among, change, .. } = self;
        let others = || (0..).zip(&*among).filter(|(i, _)| Some(*i) != without);
        let (mut units, mut racks, mut sum, mut last) = (0, 0_usize, 0_u64, 0);
        for (_, rack) in others() {
            if units >= need {
                break;
            }
            units += rack.units;
            racks += 1;
            sum += u64::from(rack.free);
            last = rack.units;
        }
        if units < need || racks as u64 * ONE_RACK >= limit {
            return (None, true);
        }
        change.is_in.clear();
        change.is_in.resize(among.len(), false);
        for (i, _) in others().take(racks) {
            change.is_in[i] = true;
        }
        let weight = racks as u64 * ONE_RACK;
        // Nothing is lighter than racks whose free nodes are all taken.
        let (spare, segment) = ((units - need) as usize, self.need.segment);
        if racks == 0 || sum == u64::from(need) * u64::from(segment) {
            return (Some(weight + sum), true);
        }
        let (gain, proven) = change.improve(among, without, last, spare);
        (Some(weight + sum.saturating_sub(gain)), proven)
    }

    /// Writes the best set, racks in order: whole segments from the first rack on, and the rest where it fits.
    pub(super) fn fill(&mut self, out: &mut Vec<RackUse>) {
        let Need { segment, units, rest } = self.need;
        self.best.sort_unstable_by_key(|rack| rack.at);
        out.clear();
        let (mut units, mut rest) = (units, rest);
        for rack in &self.best {
            let segments = rack.units.min(units);
            units -= segments;
            out.push(RackUse { rack: rack.at, segments, rest: 0 });
        }
        for (used, rack) in out.iter_mut().zip(&self.best) {
            if rest > 0 && rack.free - used.segments * segment >= rest {
                used.rest = std::mem::take(&mut rest);
            }
        }
    }
}

impl Change {
    /// Changes the first racks of `among` for others, as many, that hold up to `spare` units less, so that the sum
    /// of their free nodes is the least. `last` are the units of the last one; racks with as many fill up. Says by
    /// how much the sum is less, and whether that is known to be the most.
    fn improve(&mut self, among: &[Rack], without: Option<usize>, last: u32, spare: usize) -> (u64, bool) {
        let others = || (0..).zip(among).filter(|(i, _)| Some(*i) != without);
        let lost = |units: u32| units.abs_diff(last) as usize;
        self.items.clear();
        // Of equals, those with the most free nodes are left out first, and those with the fewest are put in.
        let (mut units, mut equals) = (last, 0);
        let mut is_useful = |rack: &Rack| {
            equals = if rack.units == units { equals + 1 } else { 1 };
            units = rack.units;
            equals * lost(units) <= spare
        };
        let above = || others().filter(|(_, rack)| rack.units > last);
        let above_count = above().count();
        let top = (0..among.len()).rev().filter(|i| Some(*i) != without && among[*i].units > last);
        self.items.extend(top.filter(|i| is_useful(&among[*i])).map(|i| (i, -1)));
        let bottom = others().filter(|(_, rack)| rack.units < last);
        self.items.extend(bottom.filter(|(_, rack)| is_useful(rack)).map(|(i, _)| (i, 1)));
        let width = 2 * spare + 1;
        if self.items.len().saturating_mul((spare + 1) * width) > STEPS_MAX {
            return (0, false);
        }
        self.weigh(among, spare, lost);

        let equal = || others().filter(|(_, rack)| rack.units == last).map(|(i, _)| i);
        self.sums.clear();
        self.sums.push(0);
        let mut sum = 0;
        self.sums.extend(equal().map(|i| {
            sum += i64::from(among[i].free);
            sum
        }));
        let filled = self.is_in.iter().filter(|is_in| **is_in).count() - above_count;
        let mut best = (0, 0, spare);
        for state in 0..(spare + 1) * width {
            // More put in than left out means fewer that fill up.
            let (lost, net) = (state / width, state % width);
            let fill = (filled + spare).checked_sub(net).and_then(|fill| self.sums.get(fill));
            if let Some(fill) = fill.filter(|_| self.least[state] < i64::MAX) {
                best = best.min((self.least[state] + fill - self.sums[filled], lost, net));
            }
        }
        let (change, mut lost_units, mut net) = best;
        let fill = filled + spare - net;
        for (nth, i) in equal().enumerate() {
            self.is_in[i] = nth < fill;
        }
        for (item, (i, sign)) in self.items.iter().enumerate().rev() {
            if self.takes[(item * (spare + 1) + lost_units) * width + net] {
                self.is_in[*i] = *sign > 0;
                lost_units -= lost(among[*i].units);
                net = net.wrapping_add_signed(-sign);
            }
        }
        (change.unsigned_abs(), true)
    }

    /// Fills `least` and `takes`: a knapsack over the items, with the units lost (0 to `spare`) and the racks put in
    /// less those left out (-spare to spare) as its state.
    fn weigh(&mut self, among: &[Rack], spare: usize, lost: impl Fn(u32) -> usize) {
        let width = 2 * spare + 1;
        self.least.clear();
        self.least.resize((spare + 1) * width, i64::MAX);
        self.least[spare] = 0;
        self.takes.clear();
        self.takes.resize(self.items.len() * self.least.len(), false);
        for ((i, sign), takes) in self.items.iter().zip(self.takes.chunks_exact_mut((spare + 1) * width)) {
            let (free, own) = (i64::from(among[*i].free) * *sign as i64, lost(among[*i].units));
            for to in (own..=spare).rev() {
                for net in 0..width {
                    let Some(via) = net.checked_add_signed(-sign).filter(|via| *via < width) else {
                        continue;
                    };
                    let before = self.least[(to - own) * width + via];
                    let at = to * width + net;
                    if before < i64::MAX && before + free < self.least[at] {
                        self.least[at] = before + free;
                        takes[at] = true;
                    }
                }
            }
        }
    }
}
