//! From machines to the integer tables that the engine reads.

use std::collections::BTreeMap;

use phalanx_model::{
    CostTable, DEVICES_PER_NODE_MAX, DeviceMask, LevelCost, LevelName, Machine, Nic, NicCost, Node, Port,
    ShapeCost,
};

use crate::link::{self, NIC_MB_PER_S};
use crate::ring::{best_ring, slowest_pair};
use crate::shape::{NIC_MB_PER_S_MAX, group_uplink};

/// The tables of these nodes: one entry per shape, the levels as given, and the built-in constants; a calibrated site
/// replaces those by [`crate::Constants::collectives`]. Of nodes that claim one shape and
/// differ, the first by name counts, so the order of `nodes` does not matter.
#[must_use]
pub fn compile(nodes: &[Node], levels: &BTreeMap<LevelName, LevelCost>) -> CostTable {
    let mut sorted: Vec<&Node> = nodes.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut shapes = BTreeMap::new();
    for node in sorted {
        if !shapes.contains_key(&node.machine.shape) {
            shapes.insert(node.machine.shape.clone(), shape_cost(&node.machine));
        }
    }
    CostTable { shapes, levels: levels.clone(), ..CostTable::default() }
}

/// Pair and NIC bandwidths of one machine. Devices beyond [`DEVICES_PER_NODE_MAX`] are left out.
#[must_use]
pub fn shape_cost(machine: &Machine) -> ShapeCost {
    let devices = machine.device_count().min(DEVICES_PER_NODE_MAX);
    let seen = || (0..devices).zip(&machine.devices);
    let mut pair_mb_per_s = Vec::new();
    for (a, device_a) in seen() {
        for (b, device_b) in seen() {
            let pair = if a == b {
                0
            } else {
                link::pair_mb_per_s(device_a, device_b, link::between(machine, a, b))
            };
            pair_mb_per_s.push(pair);
        }
    }
    let nic_mb_per_s = near_nics(machine, machine.device_mask());
    let mut cost = ShapeCost {
        devices,
        pair_mb_per_s,
        nic_mb_per_s,
        nics: nic_costs(machine, devices),
        groups: groups(machine, devices),
        ..ShapeCost::default()
    };
    limit_nics(machine, &mut cost);
    cost.sets_mb_per_s = sets(machine, &cost);
    cost
}

/// Up to this many devices, what every set of them gets is a table: 256 numbers for 8. Larger meshes of direct
/// links are not built.
const SETS_DEVICES_MAX: u32 = 8;

/// What every device set gets: rings over direct links together, and a ring over PCIe as far as the uplinks of the groups
/// that it leaves carry. Empty where the slowest pair of one ring says as much.
fn sets(machine: &Machine, cost: &ShapeCost) -> Vec<u32> {
    if cost.devices > SETS_DEVICES_MAX {
        return Vec::new();
    }
    let mut says_more = false;
    let of_set = |mask: u64| {
        let devices = DeviceMask(mask);
        let Some(best) = best_ring(machine, cost, devices) else { return 0 };
        let members: Vec<u32> = devices.iter().collect();
        let mb_per_s = best.mb_per_s.min(group_uplink(machine, devices, best.fabric));
        says_more |= mb_per_s != slowest_pair(cost, &members);
        mb_per_s
    };
    let table: Vec<u32> = (0..1_u64 << cost.devices).map(of_set).collect();
    if says_more { table } else { Vec::new() }
}

/// NICs by what is near to them. Where nobody knows that, and there is a NIC's worth for every device, each device has its
/// part: or else one device of eight would be told the bandwidth of the whole machine, and a gang be faster the more
/// machines it is spread over.
#[expect(clippy::cast_precision_loss, reason = "a few NICs")]
fn nic_costs(machine: &Machine, devices: u32) -> Vec<NicCost> {
    let sets = near_nic_sets(machine);
    let all_mb: f64 = sets.iter().map(|(_, mb)| mb).sum();
    let part_mb = all_mb / f64::from(devices.max(1));
    let one_mb = (all_mb / sets.len().max(1) as f64).min(f64::from(NIC_MB_PER_S_MAX));
    if sets.is_empty() || knows_near_nics(machine) || devices == 0 || part_mb < one_mb {
        return sets.into_iter().map(|(near, mb)| NicCost { near, mb_per_s: rounded(mb) }).collect();
    }
    let part = |device| NicCost { near: DeviceMask::one(device), mb_per_s: rounded(part_mb) };
    (0..devices).map(part).collect()
}

/// Groups that say something: those of several devices, and not of all.
fn groups(machine: &Machine, devices: u32) -> Vec<DeviceMask> {
    let all = DeviceMask::first(devices);
    let seen = machine.groups.iter().map(|group| group.devices.and(all));
    let mut groups: Vec<DeviceMask> = seen.filter(|group| group.count() > 1 && *group != all).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// What devices get of NICs is also limited by the way to a far one, and by the slots of the devices. Both are left out
/// where they change nothing.
fn limit_nics(machine: &Machine, cost: &mut ShapeCost) {
    let near = |device: u32| {
        let near = cost.nics.iter().filter(|nic| nic.near.contains(device));
        near.fold(0_u32, |sum, nic| sum.saturating_add(nic.mb_per_s))
    };
    let slots = || machine.devices.iter().map(link::slot_line_mb_per_s);
    let has_no_near_nic = (0..cost.devices).any(|device| near(device) == 0);
    let is_beyond_slot = (0..cost.devices).zip(slots()).any(|(device, slot)| near(device) > slot);
    let far_mb_per_s = machine.devices.first().map_or(0, link::far_nic_mb_per_s);
    if !cost.nics.is_empty() && has_no_near_nic {
        cost.far_mb_per_s = far_mb_per_s;
    }
    if is_beyond_slot {
        cost.slot_mb_per_s = slots().min().unwrap_or(0);
    }
}

/// Whether it is known which NIC stands next to which device.
pub(crate) fn knows_near_nics(machine: &Machine) -> bool {
    machine.links.iter().any(|link| matches!(link.b, Port::Nic(_)))
}

/// All NICs that are near to one of `devices`, together, in MB/s; 0 when there are none.
pub(crate) fn near_nics(machine: &Machine, devices: DeviceMask) -> u32 {
    let is_used = |set: &DeviceMask| machine.devices.is_empty() || !set.and(devices).is_empty();
    let near = near_nic_sets(machine).into_iter().filter(|(set, _)| is_used(set));
    rounded(near.map(|(_, mb)| mb).sum())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
const fn rounded(mb_per_s: f64) -> u32 {
    mb_per_s as u32
}

/// The NICs of the collective: for each the devices that it is near to, and its bandwidth in MB/s.
pub(crate) fn near_nic_sets(machine: &Machine) -> Vec<(DeviceMask, f64)> {
    let sets = machine.collective_nics().into_iter();
    #[expect(clippy::cast_precision_loss, reason = "2^53 MB/s are far away")]
    sets.filter_map(|(nic, near)| Some((near, speed_mb_per_s(machine.nics.get(nic as usize)?) as f64)))
        .collect()
}

fn speed_mb_per_s(nic: &Nic) -> u64 {
    nic.bytes_per_s.map_or(u64::from(NIC_MB_PER_S), |bytes| bytes / 1_000_000)
}

#[cfg(test)]
mod tests {
    use phalanx_model::{DeviceGroup, LinkKind};

    use super::*;
    use crate::fixtures;

    #[test]
    fn pairs_are_symmetric_and_ordered_by_distance() {
        let cost = shape_cost(&fixtures::hybrid_cube_mesh());
        assert_eq!(cost.pair(0, 0), 0);
        assert_eq!(cost.pair(0, 3), 40_000, "two NVLinks of a V100");
        for a in 0..8 {
            for b in 0..8 {
                assert_eq!(cost.pair(a, b), cost.pair(b, a));
            }
        }
        let kinds = [
            LinkKind::PcieSwitch,
            LinkKind::PcieBridges,
            LinkKind::HostBridge,
            LinkKind::Numa,
            LinkKind::Socket,
        ];
        for model in ["V100", "A100", "H100", "", "no such thing"] {
            let device = fixtures::device(model);
            let link = |kind| phalanx_model::Link::new(Port::Device(0), Port::Device(1), kind);
            let pairs = kinds.map(|kind| link::pair_mb_per_s(&device, &device, Some(link(kind))));
            assert!(pairs.is_sorted_by(|near, far| near >= far), "{model}: {pairs:?}");
        }
    }

    #[test]
    fn what_a_source_says_of_a_link_counts() {
        let mut machine = fixtures::mesh("H100", 2, LinkKind::PcieSwitch);
        machine.links[0].nominal_mb_per_s = 24_000;
        assert_eq!(shape_cost(&machine).pair(0, 1), 24_000, "a slot of half the lanes");
        machine.links[0].kind = LinkKind::Nvlink(18);
        machine.links[0].nominal_mb_per_s = 450_000;
        assert_eq!(shape_cost(&machine).pair(0, 1), 18 * 20_600, "the line rate is not reached");
        machine.devices[1].is_sliced = true;
        assert_eq!(shape_cost(&machine).pair(0, 1), 22_000, "a slice has no NVLink");
    }

    #[test]
    fn storage_nics_do_not_count() {
        let mut machine = fixtures::switched("H100", 8, 18, 8);
        assert_eq!(shape_cost(&machine).nic_mb_per_s, 8 * 50_000);
        fixtures::add_nic(&mut machine, &(0..8).map(|d| (d, LinkKind::Socket)).collect::<Vec<_>>());
        assert_eq!(shape_cost(&machine).nic_mb_per_s, 8 * 50_000, "far from every device");
        assert_eq!(near_nics(&machine, DeviceMask::first(4)), 4 * 50_000, "one rail per device");
    }

    /// One NIC beside two of eight: the others reach it past the sockets, and one alone gets no more than its slot.
    #[test]
    fn a_device_far_from_every_nic_gets_what_the_way_there_carries() {
        let mut machine = fixtures::hybrid_cube_mesh();
        machine.nics.clear();
        machine.links.retain(|link| !matches!(link.b, Port::Nic(_)));
        let near = [(2, LinkKind::PcieSwitch), (3, LinkKind::PcieSwitch)];
        let far = [0, 1, 4, 5, 6, 7].map(|device| (device, LinkKind::Socket));
        fixtures::add_nic(&mut machine, &[near.as_slice(), far.as_slice()].concat());
        let cost = shape_cost(&machine);
        let nics = |devices: &[u32]| cost.nics_of(devices.iter().copied().collect());
        // A slot of Gen3 beside a NIC of 50 GB/s, and the link between the sockets.
        assert_eq!([nics(&[2]), nics(&[2, 3]), nics(&[0, 2])], [15_754, 31_508, 31_508]);
        assert_eq!([nics(&[0]), nics(&[0, 7])], [6_000; 2]);
        let all_near: Vec<_> = (0..8).map(|device| (device, LinkKind::PcieSwitch)).collect();
        machine.links.retain(|link| !matches!(link.b, Port::Nic(_)));
        machine.nics[0].bytes_per_s = Some(10_000_000_000);
        machine.links.extend(
            all_near.iter().map(|(d, kind)| phalanx_model::Link::new(Port::Device(*d), Port::Nic(0), *kind)),
        );
        machine.links.sort_by_key(|link| (link.a, link.b));
        let cost = shape_cost(&machine);
        assert_eq!((cost.far_mb_per_s, cost.slot_mb_per_s), (0, 0), "nothing that limits is left out");
    }

    #[test]
    fn a_ring_over_pcie_has_no_more_than_the_uplinks_that_it_leaves_by() {
        let mut machine = fixtures::mesh("A100", 4, LinkKind::HostBridge);
        assert!(shape_cost(&machine).sets_mb_per_s.is_empty(), "the slowest pair says as much");
        let level = LevelName::new("pcie").unwrap();
        let halves = [0b0011, 0b1100].map(DeviceMask);
        machine.groups = halves.map(|half| DeviceGroup::new(level.clone(), half)).to_vec();
        machine.groups.iter_mut().for_each(|group| group.uplink_mb_per_s = 3_000);
        let cost = shape_cost(&machine);
        assert_eq!(cost.groups, halves);
        let of = |mask: usize| cost.sets_mb_per_s[mask];
        assert_eq!([of(0b0011), of(0b0101), of(0b1111)], [cost.pair(0, 1), 3_000, 3_000]);
    }

    #[test]
    fn nics_without_speed_or_links_get_the_default() {
        let mut machine = fixtures::switched("H100", 2, 18, 0);
        assert_eq!(shape_cost(&machine).nic_mb_per_s, 0);
        assert!(!shape_cost(&machine).knows_nics());
        assert_eq!(shape_cost(&machine).nics, [], "no NIC is not a NIC for every device");
        machine.nics = vec![Nic::default(), Nic { bytes_per_s: Some(u64::MAX), ..Nic::default() }];
        assert_eq!(shape_cost(&machine).nic_mb_per_s, u32::MAX, "saturates");
        machine.nics.pop();
        assert_eq!(shape_cost(&machine).nic_mb_per_s, 12_500);
    }

    #[test]
    fn of_nics_that_stand_nowhere_a_device_has_its_part() {
        let mut machine = fixtures::switched("H100", 8, 18, 0);
        let nics_of = |machine: &Machine| [1, 8].map(|n| shape_cost(machine).nics_of(DeviceMask::first(n)));
        machine.nics = vec![Nic { bytes_per_s: Some(400_000_000_000), ..Nic::default() }];
        assert_eq!(nics_of(&machine), [50_000, 400_000], "a declared bandwidth is no single NIC");
        machine.nics = vec![Nic { bytes_per_s: Some(12_500_000_000), ..Nic::default() }];
        assert_eq!(nics_of(&machine), [12_500; 2], "one that all share");
    }

    #[test]
    fn the_order_of_nodes_does_not_matter() {
        let (a, b) = (fixtures::switched("H100", 8, 18, 8), fixtures::hybrid_cube_mesh());
        // Both claim one shape: the first by name counts.
        let mut nodes = vec![fixtures::node("n2", &["l"], a), fixtures::node("n10", &["l"], b)];
        std::sync::Arc::make_mut(&mut nodes[1].machine).shape = nodes[0].machine.shape.clone();
        let forward = compile(&nodes, &BTreeMap::new());
        nodes.reverse();
        assert_eq!(forward, compile(&nodes, &BTreeMap::new()));
    }
}
