//! What lies between the devices of one machine, for every set of them.

use std::collections::BTreeMap;

use phalanx_model::{DEVICES_PER_NODE_MAX, DeviceMask, LinkKind, Machine, ShapeCost};

use crate::Network;
use crate::link;
use crate::ring::{self, Fabric, best_ring};
use crate::span::Era;
use crate::table::{knows_near_nics, near_nic_sets};

/// Up to this many devices every set has an entry in a table.
const TABLE_DEVICES_MAX: u32 = 8;

/// The fastest port in wide use, 400 Gbit/s: a larger total is that of several NICs.
pub(crate) const NIC_MB_PER_S_MAX: u32 = 50_000;

/// The way between some devices of one machine, one way, in MB/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Within {
    pub(crate) ring_mb: u32,
    /// Into the first and out of the last device, where the ring goes on on another node.
    pub(crate) path_mb: u32,
    pub(crate) pair_mb: u32,
    pub(crate) fabric: Fabric,
    /// One byte from every device to every other, through the slowest uplink of a socket or a group, in us.
    pub(crate) cut_us: f64,
}

const NOTHING: Within =
    Within { ring_mb: u32::MAX, path_mb: u32::MAX, pair_mb: u32::MAX, fabric: Fabric::NvLink, cut_us: 0.0 };

/// One machine, ready for questions.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    machine: Machine,
    cost: ShapeCost,
    sets: Sets,
    is_switched: bool,
    /// Every pair has links of its own.
    direct: Vec<DeviceMask>,
    era: Era,
    /// For each device, those that it reaches over PCIe, which others use at the same time.
    shared: Vec<DeviceMask>,
    /// Groups and sockets, and what their uplinks carry in MB/s.
    cuts: Vec<(DeviceMask, f64)>,
    /// The devices near each NIC of the collective, and its bandwidth in MB/s.
    nics: Vec<(DeviceMask, f64)>,
    /// Whether any link between a device and a NIC was readable.
    knows_near_nics: bool,
    /// What the slot of each device carries, in MB/s.
    slots_mb: Vec<f64>,
    /// What a device without a NIC of its own gets through those of others.
    far_nic_mb: f64,
    network: Network,
}

/// What was searched so far.
#[derive(Clone, Debug)]
enum Sets {
    /// By mask.
    Table(Vec<Within>),
    /// By number of devices, where all are alike.
    Uniform(Vec<Within>),
    Some(BTreeMap<u64, Within>),
}

impl Shape {
    pub(crate) fn new(machine: &Machine, cost: ShapeCost) -> Self {
        let is_switched = ring::is_switched(machine);
        let devices = machine.device_count().min(DEVICES_PER_NODE_MAX);
        let is_direct = |a, b| {
            let linked = matches!(link::kind(machine, a, b), Some(LinkKind::Nvlink(_) | LinkKind::Xgmi));
            linked && !is_switched
        };
        let direct = (0..devices).map(|a| (0..devices).filter(|b| a == *b || is_direct(a, *b)).collect());
        let is_shared =
            |a, b| !matches!(link::kind(machine, a, b), Some(LinkKind::Nvlink(_) | LinkKind::Xgmi));
        let shared = (0..devices).map(|a| (0..devices).filter(|b| a != *b && is_shared(a, *b)).collect());
        let nics = near_nic_sets(machine);
        let fastest = machine.nics.first();
        let network = fastest.map_or(Network::Sockets, |nic| {
            Network::of_nic(&nic.name, nic.bytes_per_s.unwrap_or(0) / 1_000_000)
        });
        Self {
            sets: Sets::Some(BTreeMap::new()),
            is_switched,
            direct: direct.collect(),
            shared: shared.collect(),
            cuts: cuts(machine, &cost),
            era: machine.devices.first().map(|device| Era::of(link::generation(device))).unwrap_or_default(),
            nics,
            knows_near_nics: knows_near_nics(machine),
            slots_mb: machine
                .devices
                .iter()
                .map(|device| f64::from(link::slot_line_mb_per_s(device)))
                .collect(),
            far_nic_mb: f64::from(machine.devices.first().map_or(0, link::far_nic_mb_per_s)),
            network,
            machine: machine.clone(),
            cost,
        }
    }

    pub(crate) const fn is_switched(&self) -> bool {
        self.is_switched
    }

    /// Whether none of these devices is cut into slices, which have no NVLink.
    pub(crate) fn is_whole(&self, devices: DeviceMask) -> bool {
        let device = |index: u32| self.machine.devices.get(index as usize);
        devices.iter().all(|index| device(index).is_some_and(|device| !device.is_sliced))
    }

    pub(crate) fn devices(&self) -> u32 {
        self.machine.device_count()
    }

    pub(crate) const fn era(&self) -> Era {
        self.era
    }

    pub(crate) fn is_direct(&self, devices: DeviceMask) -> bool {
        devices.iter().all(|a| self.direct.get(a as usize).is_some_and(|near| devices.is_subset_of(*near)))
    }

    /// Every set where there are few devices, every number of them where all are alike.
    pub(crate) fn search_all(&mut self) {
        let devices = self.devices().min(DEVICES_PER_NODE_MAX);
        if self.is_uniform() {
            let alike = (0..=devices).map(|count| self.find(DeviceMask::first(count)));
            self.sets = Sets::Uniform(alike.collect());
        } else if devices <= TABLE_DEVICES_MAX {
            let table = (0..1_u64 << devices).map(|mask| self.find(DeviceMask(mask)));
            self.sets = Sets::Table(table.collect());
        }
    }

    /// Makes the answer for one set ready.
    pub(crate) fn search(&mut self, devices: DeviceMask) {
        let found = self.find(devices);
        if let Sets::Some(sets) = &mut self.sets {
            sets.insert(devices.0, found);
        }
    }

    pub(crate) fn within(&self, devices: DeviceMask) -> Within {
        let at = usize::try_from(devices.0).unwrap_or(usize::MAX);
        let known = match &self.sets {
            Sets::Table(table) => table.get(at),
            Sets::Uniform(alike) => alike.get(devices.count() as usize),
            Sets::Some(sets) => sets.get(&devices.0),
        };
        known.copied().unwrap_or_else(|| self.in_order(devices))
    }

    fn is_uniform(&self) -> bool {
        let pairs = (0..self.cost.devices).flat_map(|a| (0..a).map(move |b| (a, b)));
        let mut kinds = pairs.map(|(a, b)| (link::kind(&self.machine, a, b), self.cost.pair(a, b)));
        let first = kinds.next();
        kinds.all(|kind| Some(kind) == first)
            && self.machine.groups.iter().all(|group| group.uplink_mb_per_s == 0)
    }

    fn find(&self, devices: DeviceMask) -> Within {
        let Some(ring) = best_ring(&self.machine, &self.cost, devices) else { return NOTHING };
        let pairs = devices.iter().flat_map(|a| devices.iter().filter(move |b| *b > a).map(move |b| (a, b)));
        let pair_mb = pairs.map(|(a, b)| self.cost.pair(a, b)).min().unwrap_or(0).max(1);
        // A full mesh of n has n - 1 rings without a common link, but n such paths.
        let path_mb = match ring.fabric {
            Fabric::Xgmi if ring.count > 1 => ring.mb_per_s / ring.count * (ring.count + 1),
            _ => ring.mb_per_s,
        };
        let uplink = group_uplink(&self.machine, devices, ring.fabric);
        Within {
            ring_mb: ring.mb_per_s.min(uplink),
            path_mb: path_mb.min(uplink),
            pair_mb,
            fabric: ring.fabric,
            cut_us: self.cut_us(devices),
        }
    }

    fn cut_us(&self, devices: DeviceMask) -> f64 {
        let around = |(group, uplink_mb): &(DeviceMask, f64)| {
            let others = devices.minus(*group);
            let own = group.and(devices).iter().filter_map(|a| self.shared.get(a as usize));
            own.map(|shared| f64::from(shared.and(others).count())).sum::<f64>() / uplink_mb
        };
        self.cuts.iter().map(around).fold(0.0, f64::max)
    }

    /// A set that nobody searched: the ring in order of index, which follows the wiring on real machines.
    fn in_order(&self, devices: DeviceMask) -> Within {
        let Some(first) = devices.iter().next().filter(|_| devices.count() > 1) else { return NOTHING };
        let next = devices.iter().skip(1).chain(std::iter::once(first));
        let slowest = devices.iter().zip(next).min_by_key(|(a, b)| self.cost.pair(*a, *b));
        let (a, b) = slowest.unwrap_or((first, first));
        let mb = self.cost.pair(a, b).max(1);
        let fabric = ring::fabric_of(link::kind(&self.machine, a, b));
        let mb = mb.min(group_uplink(&self.machine, devices, fabric));
        Within { ring_mb: mb, path_mb: mb, pair_mb: mb, fabric, cut_us: self.cut_us(devices) }
    }

    pub(crate) const fn has_nics(&self) -> bool {
        self.cost.nic_mb_per_s > 0
    }

    /// All NICs of the collective together.
    pub(crate) fn all_nic_mb(&self) -> f64 {
        f64::from(self.cost.nic_mb_per_s)
    }

    /// The NICs near the devices that are used, and their network: one GPU of eight gets its own rail, not all
    /// of them, and none more than its slot carries.
    pub(crate) fn nic_mb(&self, devices: DeviceMask) -> (f64, Network) {
        let all = self.all_nic_mb();
        let devices = devices.and(DeviceMask::first(self.devices()));
        if devices.is_empty() {
            return (all, self.network);
        }
        if !self.knows_near_nics {
            return (self.part_of_nics(all, devices), self.network);
        }
        let (mut near, mut total) = (0.0, 0.0);
        for (set, mb) in &self.nics {
            total += mb;
            if !set.and(devices).is_empty() {
                near += mb;
            }
        }
        if near <= 0.0 {
            // No NIC of its own: through those of other devices, as far as the way there carries.
            return (self.far_nic_mb.min(all), self.network);
        }
        // The table may say less, or more, than what the machine lists.
        ((all * near / total.max(1.0)).min(self.slots_mb(devices)), self.network)
    }

    /// Of NICs of which nobody knows where they stand, what these devices reach: their part of all, and at least
    /// one NIC; through their own slots.
    pub(crate) fn part_of_nics(&self, all_mb: f64, devices: DeviceMask) -> f64 {
        let devices = devices.and(DeviceMask::first(self.devices()));
        if devices.is_empty() {
            return all_mb;
        }
        let listed = f64::from(u32::try_from(self.nics.len()).unwrap_or(u32::MAX)).max(1.0);
        let one_mb = (all_mb / listed).min(f64::from(NIC_MB_PER_S_MAX));
        let part_mb = all_mb * f64::from(devices.count()) / f64::from(self.devices().max(1));
        part_mb.max(one_mb).min(self.slots_mb(devices))
    }

    /// One NIC, where they are alike; without NICs the fastest in wide use.
    pub(crate) fn nic_each_mb(&self) -> f64 {
        self.nics.iter().map(|(_, mb)| *mb).reduce(f64::max).unwrap_or(f64::from(NIC_MB_PER_S_MAX))
    }

    /// What the slots of these devices carry together, in MB/s.
    fn slots_mb(&self, devices: DeviceMask) -> f64 {
        let slots = devices.iter().filter_map(|device| self.slots_mb.get(device as usize));
        slots.sum::<f64>()
    }
}

/// A ring over PCIe leaves every group that does not hold all of it once.
pub(crate) fn group_uplink(machine: &Machine, devices: DeviceMask, fabric: Fabric) -> u32 {
    if !matches!(fabric, Fabric::Pcie | Fabric::Socket) {
        return u32::MAX;
    }
    let groups = machine.groups.iter().filter(|group| group.uplink_mb_per_s > 0);
    let left =
        groups.filter(|group| !group.devices.and(devices).is_empty() && !devices.is_subset_of(group.devices));
    left.map(|group| group.uplink_mb_per_s).min().unwrap_or(u32::MAX)
}

/// What carries all that leaves some devices over PCIe: the known uplinks of groups, and the link of each socket to
/// the others.
fn cuts(machine: &Machine, cost: &ShapeCost) -> Vec<(DeviceMask, f64)> {
    let groups = machine.groups.iter().filter(|group| group.uplink_mb_per_s > 0);
    let groups = groups.map(|group| (group.devices, f64::from(group.uplink_mb_per_s)));
    let to_others = |socket: DeviceMask| {
        let others = DeviceMask::first(cost.devices).minus(socket);
        let pairs = socket.iter().flat_map(|a| others.iter().map(move |b| (a, b)));
        pairs.map(|(a, b)| cost.pair(a, b)).max().map(|mb| (socket, f64::from(mb.max(1))))
    };
    groups.chain(sockets(machine).into_iter().filter_map(to_others)).collect()
}

/// The devices of each socket: those joined by anything nearer. What nobody could read stands alone.
fn sockets(machine: &Machine) -> Vec<DeviceMask> {
    let mut rest = DeviceMask::first(machine.device_count().min(DEVICES_PER_NODE_MAX));
    let mut sockets = Vec::new();
    while let Some(first) = rest.iter().next() {
        let (mut socket, mut edge) = (DeviceMask::one(first), vec![first]);
        while let Some(a) = edge.pop() {
            let is_near = |b: &u32| link::kind(machine, a, *b).is_some_and(|kind| kind < LinkKind::Socket);
            for b in rest.minus(socket).iter().filter(is_near) {
                socket = socket.union(DeviceMask::one(b));
                edge.push(b);
            }
        }
        rest = rest.minus(socket);
        sockets.push(socket);
    }
    sockets
}
