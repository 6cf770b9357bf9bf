//! Hardware shapes of the instances, and what a device set of one is worth, by trying every ring.

use phalanx_model::{DeviceMask, NicCost, ShapeCost, ShapeName};

use super::rng::Rng;

/// No bandwidth limits this.
pub(super) const NO_LIMIT: u64 = u64::MAX;

pub(super) struct Hardware {
    pub(super) name: ShapeName,
    pub(super) cost: ShapeCost,
}

/// `NVLinks` between the GPUs of a DGX-1 with V100 (NVIDIA DGX-1 system architecture white paper, figure 4).
const CUBE_MESH: [[u32; 8]; 8] = [
    [0, 1, 1, 2, 0, 0, 2, 0],
    [1, 0, 2, 1, 0, 0, 0, 2],
    [1, 2, 0, 2, 1, 0, 0, 0],
    [2, 1, 2, 0, 0, 1, 0, 0],
    [0, 0, 1, 0, 0, 2, 1, 2],
    [0, 0, 0, 1, 2, 0, 2, 1],
    [2, 0, 0, 0, 1, 2, 0, 1],
    [0, 2, 0, 0, 2, 1, 1, 0],
];
const NVLINK_MB_PER_S: u32 = 25_000;
const PCIE_MB_PER_S: u32 = 12_000;
const SOCKET_MB_PER_S: u32 = 8_000;
const NICS_MB_PER_S: [u32; 5] = [0, 5_000, 12_500, 25_000, 50_000];

/// Any shape; `index` keeps names apart.
pub(super) fn any(rng: &mut Rng, index: usize) -> Hardware {
    match rng.below(8) {
        0 => switched(rng, index, 8, &NICS_MB_PER_S),
        1 => rails(rng, index),
        2 => cube_mesh(rng, index, false),
        3 => cube_mesh(rng, index, true),
        4 => pcie(rng, index),
        5 => switched(rng, index, 1, &NICS_MB_PER_S),
        _ => motley(rng, index),
    }
}

/// Shapes of which every device set can be searched for several gangs at once: equal devices, or few.
pub(super) fn for_queue(rng: &mut Rng, index: usize) -> Hardware {
    match rng.below(4) {
        0 | 1 => switched(rng, index, 8, &NICS_MB_PER_S[2..]),
        2 => switched(rng, index, 4, &NICS_MB_PER_S[2..]),
        _ => {
            let devices = 4;
            let pair = |a, b| if a / 2 == b / 2 { NVLINK_MB_PER_S } else { SOCKET_MB_PER_S };
            let near = [DeviceMask(0b0011), DeviceMask(0b1100)];
            let nics = near.map(|near| NicCost { near, mb_per_s: 12_500 });
            shape("pairs", index, devices, pair, nics.to_vec(), 0)
        }
    }
}

fn shape(
    word: &str,
    index: usize,
    devices: u32,
    mut pair: impl FnMut(u32, u32) -> u32,
    nics: Vec<NicCost>,
    nic_mb_per_s: u32,
) -> Hardware {
    let side = devices as usize;
    let mut pair_mb_per_s = vec![0; side * side];
    for a in 0..devices {
        for b in a + 1..devices {
            let (at, back) = ((a * devices + b) as usize, (b * devices + a) as usize);
            pair_mb_per_s[at] = pair(a, b);
            pair_mb_per_s[back] = pair_mb_per_s[at];
        }
    }
    let sum = nics.iter().map(|nic| nic.mb_per_s).sum();
    let nic_mb_per_s = if nics.is_empty() { nic_mb_per_s } else { sum };
    let name = ShapeName::new(format!("{word}{index}")).unwrap_or_else(|_| unreachable!("a word is a name"));
    Hardware { name, cost: ShapeCost { devices, pair_mb_per_s, nic_mb_per_s, nics, ..ShapeCost::default() } }
}

/// All devices behind one switch, and of the NICs only their sum is known.
fn switched(rng: &mut Rng, index: usize, devices: u32, nics_mb_per_s: &[u32]) -> Hardware {
    let nics = rng.pick(nics_mb_per_s) * devices;
    shape("switched", index, devices, |_, _| 360_000, Vec::new(), nics)
}

/// All devices behind one switch, and a NIC for each.
fn rails(rng: &mut Rng, index: usize) -> Hardware {
    let rail = *rng.pick(&[12_500, 25_000, 50_000]);
    let nics = (0..8).map(|device| NicCost { near: DeviceMask::one(device), mb_per_s: rail });
    shape("rails", index, 8, |_, _| 360_000, nics.collect(), 0)
}

/// Direct links; NICs on the PCIe switch of each pair. With `sets`, rings add up.
fn cube_mesh(rng: &mut Rng, index: usize, sets: bool) -> Hardware {
    let pair = |a: u32, b: u32| match CUBE_MESH[a as usize][b as usize] {
        0 => SOCKET_MB_PER_S,
        links => links * NVLINK_MB_PER_S,
    };
    let nics = (0..4).map(|pair| NicCost { near: DeviceMask(0b11 << (2 * pair)), mb_per_s: 12_500 });
    let nics = if rng.chance(60) { nics.collect() } else { Vec::new() };
    let mut hardware = shape("mesh", index, 8, pair, nics, *rng.pick(&NICS_MB_PER_S));
    if sets {
        let rings = inside(&hardware.cost);
        let together = |ring: &u64| u32::try_from(*ring).map_or(0, |ring| ring * *rng.pick(&[1, 2, 3]));
        hardware.cost.sets_mb_per_s = rings.iter().map(together).collect();
    }
    hardware
}

/// Two sockets, with a NIC each.
fn pcie(rng: &mut Rng, index: usize) -> Hardware {
    let devices = *rng.pick(&[4, 8]);
    let half = devices / 2;
    let pair = |a, b| if (a < half) == (b < half) { PCIE_MB_PER_S } else { SOCKET_MB_PER_S };
    let lower = DeviceMask::first(half);
    let near = [lower, DeviceMask::first(devices).minus(lower)];
    let nics = near.map(|near| NicCost { near, mb_per_s: *rng.pick(&NICS_MB_PER_S[1..]) });
    shape("pcie", index, devices, pair, nics.to_vec(), 0)
}

/// No two links need be equal, and a NIC may be near to anything.
fn motley(rng: &mut Rng, index: usize) -> Hardware {
    let devices = u32::try_from(rng.between(2, 8)).unwrap_or(2);
    let count = rng.below(4);
    let all = DeviceMask::first(devices);
    let nics: Vec<NicCost> = (0..count)
        .map(|_| NicCost { near: DeviceMask(rng.bits()).and(all), mb_per_s: *rng.pick(&NICS_MB_PER_S[1..]) })
        .collect();
    let sum = *rng.pick(&NICS_MB_PER_S);
    let speeds = [5_000, 8_000, 12_000, 20_000, 25_000, 40_000, 50_000];
    let mut hardware = shape("motley", index, devices, |_, _| *rng.pick(&speeds), nics, sum);
    if rng.chance(30) {
        hardware.cost.sets_mb_per_s = (0..1 << devices).map(|_| *rng.pick(&speeds)).collect();
    }
    hardware
}

/// What an exchange inside a machine gets, by device set.
pub(super) fn inside(cost: &ShapeCost) -> Vec<u64> {
    let sets = (0..1_u64 << cost.devices).map(DeviceMask);
    sets.map(|set| inside_of(cost, set)).collect()
}

pub(super) fn inside_of(cost: &ShapeCost, set: DeviceMask) -> u64 {
    if set.count() <= 1 {
        return NO_LIMIT;
    }
    let known = usize::try_from(set.0).ok().and_then(|at| cost.sets_mb_per_s.get(at));
    if let Some(known) = known {
        return u64::from(*known);
    }
    let mut rest: Vec<u32> = set.iter().collect();
    let first = rest.remove(0);
    best_ring(cost, first, first, &mut rest, u32::MAX).into()
}

/// The best of all orders in which a ring from `last` over the rest goes back to `first`, by its slowest pair.
fn best_ring(cost: &ShapeCost, first: u32, last: u32, rest: &mut Vec<u32>, slowest: u32) -> u32 {
    if rest.is_empty() {
        return slowest.min(cost.pair(last, first));
    }
    let mut best = 0;
    for at in 0..rest.len() {
        let next = rest.remove(at);
        best = best.max(best_ring(cost, first, next, rest, slowest.min(cost.pair(last, next))));
        rest.insert(at, next);
    }
    best
}

/// Whether it does not matter which devices of the machine are taken.
pub(super) fn is_uniform(cost: &ShapeCost) -> bool {
    let pairs = (0..cost.devices).flat_map(|a| (0..a).map(move |b| cost.pair(a, b)));
    let mut pairs = pairs.collect::<Vec<u32>>();
    pairs.dedup();
    pairs.len() <= 1 && cost.nics.is_empty() && cost.sets_mb_per_s.is_empty()
}

/// What leaves a machine from these devices; where nobody told of NICs, what its slowest way inside carries.
pub(super) fn nics_of(shape: &ShapeCost, devices: DeviceMask) -> u64 {
    let slowest = || shape.pair_mb_per_s.iter().copied().filter(|pair| *pair > 0).min();
    match shape.nics_of(devices) {
        0 => slowest().map_or(NO_LIMIT, u64::from),
        nics => u64::from(nics),
    }
}
