//! What several devices or groups of one machine share: uplinks, slots and NICs.

use phalanx_model::{
    CostTable, DeviceGroup, DeviceMask, LevelCost, LevelName, Levels, LinkKind, Machine, Nic,
};

use crate::compiled::{Compiled, Rank, Scratch};
use crate::step::{self, Group, GroupKind, Workload};
use crate::{Collective, Constants, Limit, fixtures};

const GIB: u64 = 1 << 30;

fn level(text: &str) -> LevelName {
    LevelName::new(text).unwrap()
}

/// `count` nodes of one kind; `node_mb_per_s` is declared for the uplink of each.
fn compiled(machine: &Machine, count: u32, node_mb_per_s: u32) -> Compiled {
    let node = |index| fixtures::node(&format!("n{index:02}"), &["c"], machine.clone());
    let nodes: Vec<_> = (0..count).map(node).collect();
    let levels = Levels::new(vec![level("cluster")], level("node"));
    let cost = LevelCost { uplink_mb_per_s: node_mb_per_s, ..LevelCost::default() };
    let table = CostTable { levels: [(level("node"), cost)].into(), ..CostTable::default() };
    Compiled::new(&nodes, &levels, &table, &Constants::DEFAULT)
}

fn rank(node: u32, device: u32) -> Rank {
    Rank { node, devices: DeviceMask::one(device) }
}

/// Four GPUs on each of two sockets: 16 of 8 x 8 parts go each way through the one link between them.
#[test]
fn an_all_to_all_waits_for_the_link_between_the_sockets() {
    let ask = |machine: &Machine, devices: &[u32]| {
        let ranks: Vec<Rank> = devices.iter().map(|device| rank(0, *device)).collect();
        compiled(machine, 1, 0).time(&mut Scratch::default(), &ranks, Collective::AllToAll, GIB, None)
    };
    let cut = |machine: &Machine, devices: &[u32]| ask(machine, devices).span.inner_cut_us;
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let sockets = fixtures::two_sockets("A100", 8);
    let between = 10_000.0;
    assert!(near(cut(&sockets, &all), 16.0 / between), "{}", cut(&sockets, &all));
    assert!(near(cut(&sockets, &[0, 1, 2, 3]), 0.0) && near(cut(&sockets, &[0, 1, 2, 4]), 3.0 / between));
    let estimate = ask(&sockets, &all);
    let bytes = 1_073_741_824.0;
    let transfer_ns = bytes * 2.0 / between / Constants::DEFAULT.all_to_all_share * 1e3;
    assert!((1.0..1.05).contains(&(estimate.time.ns / transfer_ns)), "{} {transfer_ns}", estimate.time.ns);
    assert_eq!(estimate.time.limit, Limit::Inside);

    // Two switches with narrow uplinks; a pair that has NVLink does not use them.
    let mut switches = fixtures::mesh("A40", 4, LinkKind::PcieBridges);
    let group =
        |mask| DeviceGroup { uplink_mb_per_s: 8_000, ..DeviceGroup::new(level("switch"), DeviceMask(mask)) };
    switches.groups = vec![group(0b0011), group(0b1100)];
    assert!(near(cut(&switches, &all[..4]), 4.0 / 8_000.0));
    for link in &mut switches.links {
        if (link.a, link.b) == (phalanx_model::Port::Device(1), phalanx_model::Port::Device(2)) {
            link.kind = LinkKind::Nvlink(4);
        }
    }
    assert!(near(cut(&switches, &all[..4]), 3.0 / 8_000.0));
    assert!(near(cut(&fixtures::switched("H100", 8, 18, 0), &all), 0.0));
}

/// Where nobody knows which NIC is near, a GPU has its part of them, a single NIC whole, and never more than its
/// slot carries.
#[test]
fn one_device_has_not_all_nics_of_its_node() {
    let bare = fixtures::mesh("NVIDIA H100", 8, LinkKind::Nvlink(18));
    let declared = |mb_per_s: u64| {
        let nic = Nic { bytes_per_s: Some(mb_per_s * 1_000_000), ..Nic::default() };
        Machine { nics: vec![nic], ..bare.clone() }
    };
    let mut eight = declared(50_000);
    eight.nics = vec![eight.nics[0].clone(); 8];
    let mut all_near = bare.clone();
    for _ in 0..8 {
        let links: Vec<_> = (0..8).map(|device| (device, LinkKind::Numa)).collect();
        fixtures::add_nic(&mut all_near, &links);
    }
    for (name, machine, node_mb, wanted) in [
        ("a total", declared(400_000), 0, [50_000.0, 100_000.0, 400_000.0]),
        ("eight without links", eight, 0, [50_000.0, 100_000.0, 400_000.0]),
        ("an uplink", bare.clone(), 400_000, [50_000.0, 100_000.0, 400_000.0]),
        ("one of 100G", declared(12_500), 0, [12_500.0; 3]),
        ("an uplink of 100G", bare.clone(), 12_500, [12_500.0; 3]),
        ("all near to all", all_near, 0, [63_015.0, 126_030.0, 400_000.0]),
    ] {
        let compiled = compiled(&machine, 16, node_mb);
        let mut scratch = Scratch::default();
        let mut nic = |devices| {
            let ranks: Vec<Rank> = (0..2).map(|node| Rank { node, devices }).collect();
            compiled.time(&mut scratch, &ranks, Collective::AllReduce, GIB, None).span.nic_mb
        };
        let found = [1, 2, 8].map(|count| nic(DeviceMask::first(count)));
        assert_eq!(found, wanted, "{name}");
        let mut ns =
            |ranks: Vec<Rank>| compiled.time(&mut scratch, &ranks, Collective::AllReduce, GIB, None).time.ns;
        let spread = ns((0..16).map(|node| rank(node, 0)).collect());
        let packed = ns((0..2).flat_map(|node| (0..8).map(move |device| rank(node, device))).collect());
        assert!(packed < spread, "{name}: two full nodes beat sixteen with one GPU each");
    }
}

/// A NIC for every two of eight GPUs: groups share it where their GPUs do, on any of their nodes.
#[test]
fn interleaved_groups_share_the_nics_that_both_are_near_to() {
    let mut machine = fixtures::mesh("H100", 8, LinkKind::Nvlink(18));
    for nic in 0..4 {
        let kind = |device| if device / 2 == nic { LinkKind::PcieBridges } else { LinkKind::Numa };
        fixtures::add_nic(&mut machine, &(0..8).map(|device| (device, kind(device))).collect::<Vec<_>>());
    }
    let compiled = compiled(&machine, 3, 0);
    let ns = |stride: u32, ranks: &[Rank]| {
        let group = |kind, degree, bytes| Group {
            kind,
            degree,
            collective: Collective::AllReduce,
            bytes,
            calls: if bytes == 0 { 0 } else { 1 },
        };
        let groups = vec![group(GroupKind::Tensor, stride, 0), group(GroupKind::Data, 0, GIB)];
        let workload = Workload { groups, ..Workload::default() };
        step::time(&compiled, &mut Scratch::default(), ranks, &workload).communication_ns
    };
    let alone = ns(1, &[rank(0, 0), rank(1, 0)]);
    for (name, ranks, times) in [
        ("one NIC for both", [rank(0, 0), rank(0, 1), rank(1, 0), rank(1, 1)], 2.0),
        ("a NIC each", [rank(0, 0), rank(0, 2), rank(1, 0), rank(1, 2)], 1.0),
        ("shared on the second node", [rank(0, 0), rank(2, 0), rank(1, 0), rank(1, 1)], 2.0),
    ] {
        let ratio = ns(2, &ranks) / alone;
        assert!((ratio / times - 1.0).abs() < 0.05, "{name}: {ratio}");
    }
}
