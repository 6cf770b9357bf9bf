//! Steps of training on small clusters.

use phalanx_model::{CostTable, DeviceMask, LevelName, Levels, LinkKind, Machine, ShapeName};

use crate::compiled::{Compiled, Rank, Scratch};
use crate::step::{Group, GroupKind, Servers, Workload, place_shards, time};
use crate::{Collective, Constants, fixtures};

fn compiled(machines: Vec<Machine>) -> Compiled {
    let names = (0..).map(|index| format!("n{index}"));
    let nodes: Vec<_> =
        names.zip(machines).map(|(name, machine)| fixtures::node(&name, &["c"], machine)).collect();
    let level = |text| LevelName::new(text).unwrap();
    let levels = Levels::new(vec![level("cluster")], level("node"));
    Compiled::new(&nodes, &levels, &CostTable::default(), &Constants::DEFAULT)
}

fn all_of(nodes: u32) -> Vec<Rank> {
    (0..nodes).flat_map(|node| (0..8).map(move |d| Rank { node, devices: DeviceMask::one(d) })).collect()
}

fn group(kind: GroupKind, degree: u32, collective: Collective, bytes: u64) -> Group {
    Group { kind, degree, collective, bytes, calls: 1 }
}

const MB: u64 = 1_000_000;

#[test]
fn gradients_hide_behind_computing_and_activations_do_not() {
    let compiled = compiled(vec![fixtures::switched("H100", 8, 18, 8); 2]);
    let mut scratch = Scratch::default();
    let mut step = |kind, compute_ns| {
        let groups = vec![group(kind, 0, Collective::AllReduce, 1_000 * MB)];
        let workload = Workload { compute_ns, overlap_permille: 500, groups, ..Workload::default() };
        time(&compiled, &mut scratch, &all_of(2), &workload)
    };
    let long = step(GroupKind::Data, 100_000_000);
    assert!(long.communication_ns > 0.0 && long.exposed_ns <= 0.0, "{long:?}");
    let short = step(GroupKind::Data, 1_000_000);
    assert!((short.exposed_ns - (short.communication_ns - 500_000.0)).abs() < 1.0, "{short:?}");
    let tensor = step(GroupKind::Tensor, 100_000_000);
    assert!((tensor.exposed_ns - tensor.communication_ns).abs() < 1e-6, "{tensor:?}");
}

/// 8 tensor ranks inside each node and data parallel over nodes, against the other way around.
#[test]
fn tensor_groups_belong_inside_a_node() {
    let compiled = compiled(vec![fixtures::switched("H100", 8, 18, 8); 8]);
    let mut scratch = Scratch::default();
    let workload = Workload {
        compute_ns: 50_000_000,
        groups: vec![
            group(GroupKind::Tensor, 8, Collective::AllReduce, 500 * MB),
            group(GroupKind::Data, 0, Collective::AllReduce, 500 * MB),
        ],
        ..Workload::default()
    };
    let inside = time(&compiled, &mut scratch, &all_of(8), &workload);
    let across: Vec<Rank> =
        (0..8).flat_map(|d| (0..8).map(move |node| Rank { node, devices: DeviceMask::one(d) })).collect();
    let tensor = Workload { groups: workload.groups[..1].to_vec(), ..workload.clone() };
    assert!(
        time(&compiled, &mut scratch, &across, &tensor).exposed_ns
            > 5.0 * time(&compiled, &mut scratch, &all_of(8), &tensor).exposed_ns
    );
    // Eight data parallel groups at once have one rail each: as one group alone on its rail.
    let data = Workload {
        groups: vec![group(GroupKind::Data, 0, Collective::AllReduce, 500 * MB)],
        ..Workload::default()
    };
    let one: Vec<Rank> = all_of(8).into_iter().filter(|rank| rank.devices == DeviceMask::one(0)).collect();
    let one = time(&compiled, &mut scratch, &one, &data).communication_ns;
    let tensor_ns = time(&compiled, &mut scratch, &all_of(8), &tensor).communication_ns;
    assert!(((inside.communication_ns - tensor_ns) / one - 1.0).abs() < 0.01, "{inside:?} {one}");
}

#[test]
fn servers_go_where_the_nics_are() {
    let rich = fixtures::switched("H100", 8, 18, 8);
    let mut poor = fixtures::switched("H100", 8, 18, 2);
    poor.shape = ShapeName::new("poor").unwrap();
    let compiled = compiled(vec![rich, poor.clone(), poor]);
    let near = place_shards(&compiled, &[0, 1, 2], 12);
    let on = |node| near.iter().filter(|at| **at == node).count();
    assert_eq!((on(0), on(1), on(2)), (8, 2, 2));
    assert_eq!(place_shards(&compiled, &[], 3), Vec::<u32>::new());
    let mut scratch = Scratch::default();
    let mut ns = |shards: Vec<u32>| {
        let servers = Some(Servers { shards, bytes: 400 * MB });
        time(&compiled, &mut scratch, &all_of(3), &Workload { servers, ..Workload::default() })
            .communication_ns
    };
    let (spread, crowded) = (ns(near), ns(vec![1; 12]));
    assert!(spread < crowded, "{spread} {crowded}");
    assert!(ns(Vec::new()) <= 0.0);
}

/// A GPU and its NIC on one PCIe switch against a GPU whose NICs all are on the other socket.
#[test]
fn a_nic_on_another_socket_is_slower() {
    let mut near = fixtures::mesh("A100", 2, LinkKind::Numa);
    fixtures::add_nic(&mut near, &[(0, LinkKind::PcieSwitch), (1, LinkKind::Socket)]);
    let compiled = compiled(vec![near.clone(), near]);
    let nic = |device| compiled.nic_mb(0, DeviceMask::one(device));
    assert!(nic(0) > 2.0 * nic(1), "{} {}", nic(0), nic(1));
}
