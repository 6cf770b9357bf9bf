//! The best device subset for every free mask, built once per hardware shape.
//!
//! A ring over a set of devices runs at its slowest link, so a set is worth the largest bottleneck over all
//! rings through it. For up to [`TABLE_DEVICES_MAX`] devices that is a table over all masks, found by dynamic
//! programming over (set, end of the path): `reach[mask]` holds the devices at which a path can end that
//! starts at the lowest device of `mask` and visits all of it using only links of at least B.

mod rest;

use std::cmp::Reverse;
use std::sync::Arc;

use phalanx_model::{DeviceMask, ShapeCost};

/// 2^16 masks of 4 bytes: 256 KiB per shape. DGX-2 has 16 GPUs; larger machines go without a table.
const TABLE_DEVICES_MAX: u32 = 16;
/// Up to here the best subset of every mask is a table too: 3^8 pairs of mask and subset.
const PICKS_DEVICES_MAX: u32 = 8;
/// The bandwidth if nothing limits it, or if it is unknown.
pub(crate) const NO_LIMIT: u32 = u32::MAX;

/// The bandwidths of device sets of hardware shapes, computed once for each shape.
#[derive(Clone, Debug, Default)]
pub struct Shapes(Vec<Arc<ShapeTable>>);

impl Shapes {
    /// Adds the tables that the other has and this one lacks.
    pub fn learn(&mut self, other: &Self) {
        for table in &other.0 {
            if self.find(table.cost()).is_none() {
                self.0.push(table.clone());
            }
        }
    }

    fn find(&self, cost: &ShapeCost) -> Option<&Arc<ShapeTable>> {
        self.0.iter().find(|table| table.cost() == cost)
    }

    /// The table of a shape; built if it does not exist yet.
    pub(crate) fn of(&mut self, cost: &ShapeCost) -> Arc<ShapeTable> {
        if let Some(table) = self.find(cost) {
            return table.clone();
        }
        let built = Arc::new(ShapeTable::build(cost));
        self.0.push(built.clone());
        built
    }
}

impl FromIterator<Arc<ShapeTable>> for Shapes {
    fn from_iter<I: IntoIterator<Item = Arc<ShapeTable>>>(tables: I) -> Self {
        let mut shapes = Self::default();
        for table in tables {
            if !shapes.0.iter().any(|known| Arc::ptr_eq(known, &table)) {
                shapes.0.push(table);
            }
        }
        shapes
    }
}

/// The bandwidth of device sets of one hardware shape, in MB/s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShapeTable {
    cost: ShapeCost,
    /// Indexed by mask; empty when the shape is too large or unknown.
    ring_mb_per_s: Vec<u32>,
    slowest_pair: u32,
    /// Free masks that offer the same are one class; empty: a class is a number of devices.
    class_of: Vec<u16>,
    /// By class.
    offers: Vec<Offer>,
    /// Sets of one size differ and only the best of each size is known: the offer may exceed what the free devices
    /// have.
    is_estimated: bool,
    /// What each mask offers as the rest of a machine, in picoseconds for a megabyte: less is better. Empty where only
    /// the number of devices matters.
    rest_ps: Vec<u64>,
    /// The best subset by mask and number of devices: inside the node alone, and beside other nodes.
    inside: Vec<u8>,
    spanning: Vec<u8>,
}

/// What a set of devices is worth to a gang that stays inside the node: its bandwidth, then what the rest is worth to
/// others, then the bandwidth of all pairs, then how few devices stay free beside it behind links that it uses. More is
/// better.
type Alone = (u32, Reverse<u64>, u64, Reverse<u32>);

/// The same for a gang that has members on other nodes: the slower of NICs and ring comes first.
type Beside = (u32, Alone);

/// The offer of a free mask: by number of devices, the fastest set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Offer {
    pub(crate) devices: u32,
    /// When the gang stays on this node: the ring through the set.
    pub(crate) inside: Vec<u32>,
    /// The bandwidth if the gang spans several nodes: the slower of ring and NICs.
    pub(crate) spanning: Vec<u32>,
}

impl Offer {
    pub(crate) fn unlimited(devices: u32) -> Self {
        let all = vec![NO_LIMIT; devices as usize + 1];
        Self { devices, inside: all.clone(), spanning: all }
    }
}

impl ShapeTable {
    pub(crate) fn build(cost: &ShapeCost) -> Self {
        let square = usize::try_from(u64::from(cost.devices) * u64::from(cost.devices)).unwrap_or(usize::MAX);
        let sound = cost.devices <= TABLE_DEVICES_MAX && cost.pair_mb_per_s.len() == square;
        let ring_mb_per_s = if sound { ring_table(cost) } else { Vec::new() };
        let mut table = Self {
            cost: cost.clone(),
            ring_mb_per_s,
            slowest_pair: cost
                .pair_mb_per_s
                .iter()
                .copied()
                .filter(|pair| *pair > 0)
                .min()
                .unwrap_or(NO_LIMIT),
            class_of: Vec::new(),
            offers: Vec::new(),
            is_estimated: false,
            rest_ps: Vec::new(),
            inside: Vec::new(),
            spanning: Vec::new(),
        };
        if sound {
            table.rest_ps = rest::table(cost.devices, |set| table.speed(set));
        }
        if sound && cost.devices <= PICKS_DEVICES_MAX {
            table.tabulate();
        } else {
            table.count_only();
        }
        table
    }

    pub(crate) const fn cost(&self) -> &ShapeCost {
        &self.cost
    }

    /// Every mask's best subsets, and the classes that follow.
    fn tabulate(&mut self) {
        let width = self.cost.devices as usize + 1;
        let masks = 1_usize << self.cost.devices;
        let (mut inside, mut spanning) = (vec![0_u8; masks * width], vec![0_u8; masks * width]);
        let mut offers = Vec::with_capacity(masks);
        for mask in 0..masks as u64 {
            let free = DeviceMask(mask);
            let mut best: Vec<Option<(Alone, Beside)>> = vec![None; width];
            // Downwards, so that of equals the lowest numbers stay.
            let mut set = mask;
            loop {
                let devices = DeviceMask(set);
                let count = devices.count() as usize;
                let at = mask as usize * width + count;
                let alone = self.alone(free, devices);
                let beside = (alone.0.min(self.nics(devices)), alone);
                let best = best.get_mut(count).map(|best| best.get_or_insert((alone, beside)));
                if let Some((best_alone, best_beside)) = best {
                    if alone >= *best_alone {
                        *best_alone = alone;
                        inside[at] = set as u8;
                    }
                    if beside >= *best_beside {
                        *best_beside = beside;
                        spanning[at] = set as u8;
                    }
                }
                if set == 0 {
                    break;
                }
                set = (set - 1) & mask;
            }
            let best = || best.iter().flatten();
            offers.push(Offer {
                devices: free.count(),
                inside: best().map(|(alone, _)| alone.0).collect(),
                spanning: best().map(|(_, beside)| beside.0).collect(),
            });
        }
        let mut distinct = offers.clone();
        distinct.sort();
        distinct.dedup();
        let class = |offer: &Offer| distinct.binary_search(offer).unwrap_or(0) as u16;
        self.class_of = offers.iter().map(class).collect();
        (self.offers, self.inside, self.spanning) = (distinct, inside, spanning);
    }

    /// A class for each number of devices. If sets of one size differ, the offer is the best of them.
    fn count_only(&mut self) {
        let devices = self.cost.devices.min(phalanx_model::DEVICES_PER_NODE_MAX);
        let mut full = Offer::unlimited(devices);
        if !self.ring_mb_per_s.is_empty() {
            (full.inside, full.spanning) = (vec![0; devices as usize + 1], vec![0; devices as usize + 1]);
            for mask in (0..1_u64 << devices).map(DeviceMask) {
                let (at, speed) = (mask.count() as usize, self.speed(mask));
                self.is_estimated |= full.inside[at] > 0 && full.inside[at] != speed;
                full.inside[at] = full.inside[at].max(speed);
                full.spanning[at] = full.spanning[at].max(speed.min(self.nics(mask)));
            }
        }
        let offer = |count: u32| Offer {
            devices: count,
            inside: full.inside[..=count as usize].to_vec(),
            spanning: full.spanning[..=count as usize].to_vec(),
        };
        self.offers = (0..=devices).map(offer).collect();
    }

    /// The bandwidth of the NICs next to these devices. NICs of unknown bandwidth are assumed to be no faster than
    /// the slowest path inside the machine.
    pub(crate) fn nics(&self, devices: DeviceMask) -> u32 {
        match self.cost.nics_of(devices) {
            0 => self.slowest_pair,
            nics => nics,
        }
    }

    /// Whether the bandwidth out of the machine is known.
    pub(crate) fn knows_nics(&self) -> bool {
        self.cost.knows_nics()
    }

    /// The class of a free mask; `None` if the mask has devices that the shape lacks.
    pub(crate) fn class_of(&self, free: DeviceMask) -> Option<u16> {
        if self.class_of.is_empty() {
            return (free.0.checked_shr(self.cost.devices).unwrap_or(0) == 0).then(|| free.count() as u16);
        }
        self.class_of.get(usize::try_from(free.0).ok()?).copied()
    }

    pub(crate) const fn is_estimated(&self) -> bool {
        self.is_estimated
    }

    /// By class, ascending by nothing in particular.
    pub(crate) fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// The best `count` devices of `free` for a gang that has members on other nodes: NICs count.
    pub(crate) fn best_spanning(&self, free: DeviceMask, count: u32) -> Option<DeviceMask> {
        self.tabulated(&self.spanning, free, count).unwrap_or_else(|| self.best(free, count))
    }

    fn tabulated(&self, picks: &[u8], free: DeviceMask, count: u32) -> Option<Option<DeviceMask>> {
        if picks.is_empty() || !self.knows(free) {
            return None;
        }
        if free.count() < count {
            return Some(None);
        }
        let at = usize::try_from(free.0).ok()? * (self.cost.devices as usize + 1) + count as usize;
        picks.get(at).map(|set| Some(DeviceMask(u64::from(*set))))
    }

    /// The highest NIC bandwidth of `count` devices of `free` whose ring has at least `ring`, and that set.
    pub(crate) fn best_nics(&self, free: DeviceMask, count: u32, ring: u32) -> Option<(u32, DeviceMask)> {
        if !self.knows(free) {
            return self.best(free, count).map(|set| (self.nics(set), set));
        }
        let fast = subsets(free, count).filter(|set| self.speed(*set) >= ring);
        fast.map(|set| (self.nics(set), set)).max_by_key(|(nics, set)| (*nics, Reverse(*set)))
    }

    /// Whether the table covers these devices. A machine may claim a shape and have more devices than it.
    fn knows(&self, mask: DeviceMask) -> bool {
        usize::try_from(mask.0).is_ok_and(|mask| mask < self.ring_mb_per_s.len())
    }

    /// The bottleneck of the best ring through `mask`; the largest value for a single device.
    pub(crate) fn ring(&self, mask: DeviceMask) -> u32 {
        if mask.count() <= 1 {
            return u32::MAX;
        }
        usize::try_from(mask.0).ok().and_then(|i| self.ring_mb_per_s.get(i)).copied().unwrap_or(0)
    }

    /// The bandwidth of a set: if it has several rings, all of them together.
    pub(crate) fn speed(&self, mask: DeviceMask) -> u32 {
        if mask.count() <= 1 || !self.knows(mask) {
            return NO_LIMIT;
        }
        let together = usize::try_from(mask.0).ok().and_then(|i| self.cost.sets_mb_per_s.get(i));
        together.copied().unwrap_or_else(|| self.ring(mask))
    }

    /// The best `count` devices of `free`: the fastest, then those that leave the best places for others, then those
    /// with the most bandwidth between all pairs, then those that share the fewest links with others, then the lowest
    /// numbers. `None` when there are not enough.
    pub(crate) fn best(&self, free: DeviceMask, count: u32) -> Option<DeviceMask> {
        if free.count() < count {
            return None;
        }
        if count == 0 {
            return Some(DeviceMask::EMPTY);
        }
        if let Some(tabulated) = self.tabulated(&self.inside, free, count) {
            return tabulated;
        }
        if !self.knows(free) || free.count() == count {
            return Some(free.iter().take(count as usize).collect());
        }
        // Lowest numbers win a tie, so a later candidate has to be strictly better.
        let mut sets = subsets(free, count);
        let first = sets.next()?;
        let better = |best: (DeviceMask, Alone), set: DeviceMask| {
            let value = self.alone(free, set);
            if value > best.1 { (set, value) } else { best }
        };
        Some(sets.fold((first, self.alone(free, first)), better).0)
    }

    fn alone(&self, free: DeviceMask, set: DeviceMask) -> Alone {
        let rest = free.minus(set);
        (self.speed(set), Reverse(self.rest_ps(rest)), self.pairs(set), Reverse(self.neighbours(rest, set)))
    }

    /// Devices of `rest` that share a link with the set, once for every such link: whoever comes there shares it.
    fn neighbours(&self, rest: DeviceMask, set: DeviceMask) -> u32 {
        let used = self.cost.groups.iter().filter(|group| !group.and(set).is_empty());
        used.map(|group| group.and(rest).count()).sum()
    }

    /// What free devices are worth to gangs that come later: the mean time of one megabyte there, in picoseconds, summed
    /// over the sizes of jobs. Only masks of equally many devices compare.
    pub(crate) fn rest_ps(&self, free: DeviceMask) -> u64 {
        usize::try_from(free.0).ok().and_then(|mask| self.rest_ps.get(mask)).copied().unwrap_or(0)
    }

    /// Bandwidth of all pairs of a set together.
    fn pairs(&self, set: DeviceMask) -> u64 {
        let pair = |a: u32| set.iter().filter(move |b| *b > a).map(move |b| u64::from(self.cost.pair(a, b)));
        set.iter().flat_map(pair).sum()
    }

    /// The devices of `mask` in the order of its best ring, from the lowest device.
    pub(crate) fn ring_order(&self, mask: DeviceMask) -> Vec<u32> {
        let devices: Vec<u32> = mask.iter().collect();
        if devices.len() < 4 || !self.knows(mask) {
            return devices; // Every order of three is the same ring.
        }
        hamiltonian_path(&self.cost, &devices, self.ring(mask)).unwrap_or(devices)
    }
}

/// All subsets of `free` with `count` devices, at least one, in ascending order of the subset of positions.
fn subsets(free: DeviceMask, count: u32) -> impl Iterator<Item = DeviceMask> {
    let positions: Vec<u32> = free.iter().collect();
    let end = 1_u64 << positions.len().min(63);
    let mut next = Some((1_u64 << count) - 1);
    std::iter::from_fn(move || {
        let set = next.filter(|s| *s < end)?;
        // Gosper's hack: the next larger number with as many bits.
        let low = set & set.wrapping_neg();
        let ripple = set + low;
        next = Some(ripple | (((set ^ ripple) >> 2) / low));
        Some(DeviceMask(set).iter().filter_map(|at| positions.get(at as usize)).copied().collect())
    })
}

/// For every mask the largest B such that a ring of links of at least B visits all of it.
fn ring_table(cost: &ShapeCost) -> Vec<u32> {
    let devices = cost.devices;
    let mut table = vec![0_u32; 1 << devices];
    let mut steps: Vec<u32> = cost.pair_mb_per_s.iter().copied().filter(|b| *b > 0).collect();
    steps.sort_unstable();
    steps.dedup();
    for at_least in steps {
        let adjacent = adjacency(cost, at_least);
        let reach = reachable_ends(&adjacent, devices);
        for (mask, best) in table.iter_mut().enumerate() {
            let start = mask.trailing_zeros();
            let closes = match mask.count_ones() {
                0 | 1 => false,
                _ => reach[mask] & adjacent[start as usize] != 0,
            };
            if closes {
                *best = at_least;
            }
        }
    }
    table
}

/// `adjacent[a]` holds the devices that `a` reaches with at least this bandwidth.
fn adjacency(cost: &ShapeCost, at_least: u32) -> Vec<u32> {
    let near = |a: u32| {
        let linked = (0..cost.devices).filter(|b| *b != a && cost.pair(a, *b) >= at_least);
        linked.fold(0_u32, |set, b| set | 1 << b)
    };
    (0..cost.devices).map(near).collect()
}

fn reachable_ends(adjacent: &[u32], devices: u32) -> Vec<u32> {
    let mut reach = vec![0_u32; 1 << devices];
    for mask in 1_usize..1 << devices {
        let start = mask.trailing_zeros();
        if mask.count_ones() == 1 {
            reach[mask] = 1 << start;
            continue;
        }
        let mut ends = 0_u32;
        for end in (start + 1)..devices {
            let bit = 1_usize << end;
            // A path ends at `end` if one over the rest ends next to it.
            if mask & bit != 0 && reach[mask & !bit] & adjacent[end as usize] != 0 {
                ends |= 1 << end;
            }
        }
        reach[mask] = ends;
    }
    reach
}

/// A ring through `devices` over links of at least `at_least`, from the first device, walked back from its
/// end.
fn hamiltonian_path(cost: &ShapeCost, devices: &[u32], at_least: u32) -> Option<Vec<u32>> {
    let count = u32::try_from(devices.len()).ok()?;
    let pair_mb_per_s =
        devices.iter().flat_map(|a| devices.iter().map(|b| cost.pair(*a, *b))).collect::<Vec<u32>>();
    let local = ShapeCost { devices: count, pair_mb_per_s, ..ShapeCost::default() };
    let adjacent = adjacency(&local, at_least.max(1));
    let reach = reachable_ends(&adjacent, count);
    let mut mask = (1_usize << count) - 1;
    // The last device must close the ring; of several the highest number, so that the order ascends.
    let closing = reach[mask] & adjacent[0];
    let mut end = closing.checked_ilog2()?;
    let mut back = vec![end];
    while mask.count_ones() > 1 {
        mask &= !(1 << end);
        end = (reach[mask] & adjacent[end as usize]).checked_ilog2()?;
        back.push(end);
    }
    back.iter().rev().map(|i| devices.get(*i as usize).copied()).collect()
}

#[cfg(test)]
mod tests;
