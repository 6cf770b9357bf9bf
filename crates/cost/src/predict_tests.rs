//! Laws that a prediction keeps, and measured ratios that it comes near to.

use std::collections::BTreeMap;

use phalanx_model::{
    CostTable, DeviceMask, LevelCost, LevelName, Levels, LinkKind, Node, NodeName, Pattern, Placement, Slot,
    Traffic,
};
use proptest::prelude::*;

use crate::{Bottleneck, Constants, CostError, Input, Prediction, compile, fixtures, predict};

fn levels() -> Levels {
    let name = |text| LevelName::new(text).unwrap();
    Levels::new(vec![name("cluster"), name("leaf")], name("node"))
}

/// One slot per device, in the order given.
fn placement(parts: &[(&str, u64)]) -> Placement {
    let devices = parts.iter().flat_map(|(node, mask)| DeviceMask(*mask).iter().map(move |d| (*node, d)));
    let slots = (0..).zip(devices).map(|(rank, (node, device))| Slot {
        rank,
        node: NodeName::new(node).unwrap(),
        devices: DeviceMask::one(device),
        part: None,
    });
    Placement { slots: slots.collect(), level: LevelName::new("cluster").unwrap() }
}

fn all_reduce(bytes: u64) -> Traffic {
    Traffic { pattern: Pattern::AllReduce, bytes, compute_ns: 0 }
}

fn all_to_all(bytes: u64) -> Traffic {
    Traffic { pattern: Pattern::AllToAll, ..all_reduce(bytes) }
}

fn uplinks(leaf_mb_per_s: u32) -> BTreeMap<LevelName, LevelCost> {
    let cost = LevelCost { uplink_mb_per_s: leaf_mb_per_s, latency_ns: 500, ..LevelCost::default() };
    BTreeMap::from([(LevelName::new("leaf").unwrap(), cost)])
}

fn run(nodes: &[Node], table: &CostTable, parts: &[(&str, u64)], traffic: Traffic) -> Prediction {
    let constants = &Constants::DEFAULT;
    let input = Input { table, levels: &levels(), nodes, placement: &placement(parts), traffic, constants };
    predict(&input).expect("a good placement")
}

/// Two leaves of two H100 nodes each, one 50 GB/s rail per GPU.
fn cluster() -> Vec<Node> {
    let names = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")];
    let machine = || fixtures::switched("H100", 8, 18, 8);
    names.map(|(name, leaf)| fixtures::node(name, &["c", leaf], machine())).to_vec()
}

const GIB: u64 = 1 << 30;

#[test]
fn inside_one_node_nvlink_is_the_bottleneck() {
    let nodes = cluster();
    let table = compile(&nodes, &BTreeMap::new());
    let all = run(&nodes, &table, &[("a1", 0xff)], all_reduce(16 * GIB));
    assert_eq!(all.bottleneck, Bottleneck::NvLink { node: nodes[0].name.clone() });
    // Measured: 16 GiB in 62.3 ms on 8 H200, 275.6 GB/s through the switch, and 25 us for the first byte.
    assert!((265..285).contains(&(all.bandwidth_bytes_per_s / 1_000_000_000)), "{all:?}");
    assert!((60_000_000..65_000_000).contains(&all.communication_ns), "{all:?}");
    assert_eq!(all.latency_ns, 25_000);
    assert!(all.crossings.iter().all(|crossing| crossing.count == 0));
    let one = run(&nodes, &table, &[("a1", 1)], all_reduce(GIB));
    assert_eq!((one.communication_ns, one.bottleneck), (0, Bottleneck::None));
}

#[test]
fn the_node_with_the_least_nics_holds_the_ring_back() {
    let nodes = cluster();
    let table = compile(&nodes, &BTreeMap::new());
    let uneven = run(&nodes, &table, &[("a1", 0xff), ("a2", 0x0f)], all_reduce(GIB));
    let even = run(&nodes, &table, &[("a1", 0x3f), ("a2", 0x3f)], all_reduce(GIB));
    assert_eq!(uneven.bottleneck, Bottleneck::Nic { node: nodes[1].name.clone() });
    assert_eq!(uneven.bandwidth_bytes_per_s, 200_000_000_000, "four rails of 50 GB/s");
    assert!(even.step_ns < uneven.step_ns, "6 + 6 beats 8 + 4");
}

#[test]
fn smallest_domain_first_is_not_right_in_general() {
    // One GPU of each of two nodes in one leaf, against two full nodes across a spine.
    let nodes = cluster();
    let table = compile(&nodes, &uplinks(400_000));
    let spread = run(&nodes, &table, &[("a1", 1), ("a2", 1)], all_reduce(GIB));
    let packed = run(&nodes, &table, &[("a1", 0xff), ("b1", 0xff)], all_reduce(GIB));
    assert!(packed.communication_ns < spread.communication_ns);
}

#[test]
fn uplinks_are_shared_by_the_crossings_of_the_ring() {
    let nodes = cluster();
    let table = compile(&nodes, &uplinks(100_000));
    let sorted =
        run(&nodes, &table, &[("a1", 0xff), ("a2", 0xff), ("b1", 0xff), ("b2", 0xff)], all_reduce(GIB));
    let mixed =
        run(&nodes, &table, &[("a1", 0xff), ("b1", 0xff), ("a2", 0xff), ("b2", 0xff)], all_reduce(GIB));
    let count = |prediction: &Prediction| prediction.crossings.iter().map(|c| c.count).collect::<Vec<_>>();
    assert_eq!((count(&sorted), count(&mixed)), (vec![0, 2, 4], vec![0, 4, 4]));
    let leaf = Bottleneck::Uplink { level: LevelName::new("leaf").unwrap(), domain: "c/a".to_owned() };
    assert_eq!((&sorted.bottleneck, &mixed.bottleneck), (&leaf, &leaf));
    assert_eq!(sorted.bandwidth_bytes_per_s, 100_000_000_000);
    assert_eq!(mixed.bandwidth_bytes_per_s, 50_000_000_000);
}

#[test]
fn all_to_all_goes_through_the_cut() {
    let nodes = cluster();
    let table = compile(&nodes, &uplinks(100_000));
    let across = run(&nodes, &table, &[("a1", 0xff), ("b1", 0xff)], all_to_all(GIB));
    assert_eq!(across.bottleneck.to_string(), "the uplink of leaf c/a");
    // 8 x 8 / 16 GiB through 100 GB/s, and filling the pipeline.
    let transfer = across.communication_ns - across.latency_ns;
    assert!((100..103).contains(&(transfer * 100 / (4 * GIB / 100))), "{transfer}");
    let inside = run(&nodes, &table, &[("a1", 0xff)], all_to_all(GIB));
    assert!(inside.step_ns < across.step_ns);
}

#[test]
fn ranks_without_devices_use_memory_inside_and_sockets_between() {
    let nodes: Vec<Node> = ["n1", "n2"]
        .map(|name| fixtures::node(name, &["c", "l"], fixtures::mesh("", 0, LinkKind::Socket)))
        .to_vec();
    let table = compile(&nodes, &BTreeMap::new());
    let slot =
        |rank, node: &Node| Slot { rank, node: node.name.clone(), devices: DeviceMask::EMPTY, part: None };
    let level = levels().node;
    let local = Placement { slots: vec![slot(0, &nodes[0]), slot(1, &nodes[0])], level: level.clone() };
    let split = Placement { slots: vec![slot(0, &nodes[0]), slot(1, &nodes[1])], level };
    let input = Input {
        table: &table,
        levels: &levels(),
        nodes: &nodes,
        placement: &local,
        traffic: all_reduce(GIB),
        constants: &Constants::DEFAULT,
    };
    let local = predict(&input).unwrap();
    let split = predict(&Input { placement: &split, ..input }).unwrap();
    assert_eq!(local.bottleneck, Bottleneck::HostMemory { node: nodes[0].name.clone() });
    assert_eq!(split.bottleneck, Bottleneck::Nic { node: nodes[0].name.clone() });
    assert!(local.step_ns < split.step_ns);
}

#[test]
fn a_declared_uplink_of_the_nodes_is_their_nic() {
    let declared = |mb_per_s| {
        let cost = LevelCost { uplink_mb_per_s: mb_per_s, latency_ns: 5_000, ..LevelCost::default() };
        BTreeMap::from([(levels().node, cost)])
    };
    let bandwidth = |nodes: &[Node], mb_per_s| {
        let table = compile(nodes, &declared(mb_per_s));
        let prediction = run(nodes, &table, &[("a1", 0x0f), ("a2", 0x0f)], all_reduce(GIB));
        assert_eq!(prediction.bottleneck.to_string(), "the NIC of a1");
        prediction.bandwidth_bytes_per_s
    };
    let found = cluster();
    let mut none = cluster();
    for node in &mut none {
        std::sync::Arc::make_mut(&mut node.machine).nics.clear();
    }
    assert_eq!(bandwidth(&none, 0), 736_250_000, "sockets: 1.25 GB/s, and one pair of streams for two nodes");
    assert_eq!(bandwidth(&none, 12_500), 12_500_000_000, "for NICs that nobody found");
    assert_eq!(bandwidth(&found, 12_500), 12_500_000_000, "as a limit");
    assert_eq!(bandwidth(&found, 400_000), 200_000_000_000, "the four rails found are slower");
}

#[test]
fn the_constants_of_a_site_count() {
    let nodes = cluster();
    let table = compile(&nodes, &BTreeMap::new());
    let mut constants = Constants::DEFAULT;
    constants.networks.verbs.share /= 2.0;
    let input = Input {
        table: &table,
        levels: &levels(),
        nodes: &nodes,
        placement: &placement(&[("a1", 0xff), ("a2", 0xff)]),
        traffic: all_reduce(GIB),
        constants: &constants,
    };
    let bandwidth = |input: &Input<'_>| predict(input).expect("a good placement").bandwidth_bytes_per_s;
    let usual = bandwidth(&Input { constants: &Constants::DEFAULT, ..input });
    assert_eq!(bandwidth(&input), 200_000_000_000, "half of eight rails");
    assert!(usual > 250_000_000_000, "what the switch adds up: {usual}");
}

#[test]
fn a_bad_placement_says_what_is_wrong() {
    let nodes = cluster();
    let table = compile(&nodes, &BTreeMap::new());
    let error = |placement: &Placement| {
        let input = Input {
            table: &table,
            levels: &levels(),
            nodes: &nodes,
            placement,
            traffic: all_reduce(1),
            constants: &Constants::DEFAULT,
        };
        predict(&input).unwrap_err().to_string()
    };
    assert!(
        error(&placement(&[("z", 1)])).starts_with("rank 0 is placed on z, which is not among the nodes")
    );
    assert_eq!(error(&placement(&[("a1", 1 << 8)])), "rank 0 has devices 8 of a1, which has only 8");
    let twice = error(&placement(&[("a1", 1), ("a1", 1)]));
    assert_eq!(twice, "rank 1 has devices 0 of a1, which another rank has as well");
    assert!(matches!(
        predict(&Input {
            table: &table,
            levels: &levels(),
            nodes: &[],
            placement: &placement(&[("a1", 1)]),
            traffic: all_reduce(1),
            constants: &Constants::DEFAULT,
        }),
        Err(CostError::UnknownNode { .. })
    ));
}

/// V100 nodes with one NVLink quad for a model of 138 (VGG16) or 26 (ResNet-50) million parameters, against
/// one GPU of each of four nodes over sockets. Published ratios 4.95 and 1.97, with unstated compute times: so
/// the direction and the order are checked, not the digits. Compute of a step at batch 64 on a V100: about
/// 280 ms and 180 ms.
#[test]
fn spreading_hurts_the_larger_model_more() {
    let nodes: Vec<Node> = ["n1", "n2", "n3", "n4"]
        .map(|name| fixtures::node(name, &["c", "l"], fixtures::hybrid_cube_mesh()))
        .to_vec();
    let table = compile(&nodes, &BTreeMap::new());
    let ratio_percent = |parameters: u64, compute_ns: u64| {
        let traffic = Traffic { compute_ns, ..all_reduce(4 * parameters) };
        let close = run(&nodes, &table, &[("n1", 0x0f)], traffic);
        let spread = run(&nodes, &table, &[("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1)], traffic);
        spread.step_ns * 100 / close.step_ns
    };
    let (vgg, resnet) = (ratio_percent(138_000_000, 280_000_000), ratio_percent(26_000_000, 180_000_000));
    assert!((300..600).contains(&vgg), "{vgg}");
    assert!((140..250).contains(&resnet), "{resnet}");
}

/// A100: one node against two with 16 x 100G, 1 GiB; measured 1.33.
#[test]
fn two_nodes_with_many_nics_are_a_little_slower_than_one() {
    let mut machine = fixtures::switched("A100", 8, 12, 8);
    for nic in &mut machine.nics {
        nic.bytes_per_s = Some(25_000_000_000);
    }
    let nodes = ["n1", "n2"].map(|name| fixtures::node(name, &["c", "l"], machine.clone())).to_vec();
    let table = compile(&nodes, &BTreeMap::new());
    let one = run(&nodes, &table, &[("n1", 0xff)], all_reduce(GIB));
    let two = run(&nodes, &table, &[("n1", 0xff), ("n2", 0xff)], all_reduce(GIB));
    let percent = two.communication_ns * 100 / one.communication_ns;
    assert!((120..150).contains(&percent), "{percent}");
}

fn any_machine() -> impl Strategy<Value = phalanx_model::Machine> {
    let kind = prop_oneof![
        (0..=255_u8).prop_map(LinkKind::Nvlink),
        Just(LinkKind::Xgmi),
        Just(LinkKind::PcieSwitch),
        Just(LinkKind::HostBridge),
        Just(LinkKind::Socket),
    ];
    let models = prop::sample::select(vec!["", "V100", "H100 80GB", "GB200", "MI300X"]);
    (models, 1..9_u32, kind, 0..3_u32, any::<Option<u64>>(), any::<bool>()).prop_map(
        |(model, devices, kind, nics, speed, keep_links)| {
            let mut machine = fixtures::mesh(model, devices, kind);
            for _ in 0..nics {
                fixtures::add_nic(&mut machine, &[(0, LinkKind::PcieSwitch)]);
            }
            if let Some(nic) = machine.nics.first_mut() {
                nic.bytes_per_s = speed;
            }
            if !keep_links {
                machine.links.clear();
            }
            machine
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the machines and the traffic: an answer, which is consistent in itself, no better for more
    /// bytes, and the same for every order of the nodes.
    #[test]
    fn any_input_has_a_consistent_answer(
        machines in prop::collection::vec(any_machine(), 1..5),
        masks in prop::collection::vec(any::<u64>(), 4),
        uplink in any::<u32>(),
        latency_ns in any::<u32>(),
        bytes in any::<u64>(),
        more in any::<u64>(),
        compute_ns in any::<u64>(),
        to_all in any::<bool>(),
    ) {
        let mut nodes: Vec<Node> = machines.into_iter().enumerate().map(|(i, machine)| {
            fixtures::node(&format!("n{i}"), &["c", if i % 2 == 0 { "even" } else { "odd" }], machine)
        }).collect();
        let cost = LevelCost { uplink_mb_per_s: uplink, latency_ns, ..LevelCost::default() };
        let table = compile(&nodes, &BTreeMap::from([(LevelName::new("leaf").unwrap(), cost)]));
        let names: Vec<String> = nodes.iter().map(|node| node.name.to_string()).collect();
        let parts: Vec<(&str, u64)> = names.iter().zip(&nodes).zip(&masks)
            .map(|((name, node), mask)| (name.as_str(), mask & node.machine.device_mask().0)).collect();
        let pattern = if to_all { Pattern::AllToAll } else { Pattern::AllReduce };
        let traffic = Traffic { pattern, bytes, compute_ns };
        let small = run(&nodes, &table, &parts, traffic);
        let large = run(&nodes, &table, &parts, Traffic { bytes: bytes.saturating_add(more), ..traffic });
        prop_assert!(small.communication_ns <= large.communication_ns);
        prop_assert!(small.latency_ns <= small.communication_ns);
        prop_assert!(compute_ns <= small.step_ns);
        prop_assert_eq!(small.bottleneck == Bottleneck::None, small.bandwidth_bytes_per_s == 0);
        nodes.reverse();
        prop_assert_eq!(small, run(&nodes, &table, &parts, traffic));
    }

    /// A set that is part of another is not slower inside one node behind a switch that only forwards.
    #[test]
    fn more_ranks_behind_a_switch_are_not_faster(mask in 1..256_u64, bytes in 0..GIB) {
        let nodes = [fixtures::node("a1", &["c", "a"], fixtures::switched("A100", 8, 12, 8))];
        let table = compile(&nodes, &BTreeMap::new());
        let all = run(&nodes, &table, &[("a1", 0xff)], all_reduce(bytes));
        let some = run(&nodes, &table, &[("a1", mask)], all_reduce(bytes));
        prop_assert!(some.step_ns <= all.step_ns);
    }
}
