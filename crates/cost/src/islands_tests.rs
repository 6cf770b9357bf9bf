//! NVLink domains wider than a node.

use std::sync::Arc;

use phalanx_model::{
    CostTable, DeviceMask, DomainCost, DomainName, LevelCost, LevelName, Levels, LinkKind, Node,
};
use proptest::prelude::*;

use crate::compiled::{Compiled, Estimate, Rank, Scratch};
use crate::measurements::bus_factor;
use crate::{Algorithm, Collective, Constants, Inner, fixtures};

const GIB: u64 = 1 << 30;
/// Fifth generation NVLink: 18 x 50 GB/s one way.
const NVLINK5_MB: u32 = 900_000;

/// Above the node: the cluster, the NVLink domain (the rack), and what may stand below it.
fn levels() -> Levels {
    let name = |text| LevelName::new(text).unwrap();
    Levels::new(vec![name("cluster"), name("rack"), name("half")], name("node"))
}

fn rack_cost(inside_mb_per_s: u32, uplink_mb_per_s: u32) -> CostTable {
    let cost = LevelCost { inside_mb_per_s, uplink_mb_per_s, latency_ns: 500 };
    CostTable { levels: [(LevelName::new("rack").unwrap(), cost)].into(), ..CostTable::default() }
}

/// Racks of 18 trays with four GB300 and four 400G NICs each.
fn racks(count: u32) -> Vec<Node> {
    let tray = fixtures::switched("NVIDIA GB300", 4, 18, 4);
    let at = |index: u32| (index / 18, index % 18);
    let names = (0..count * 18).map(at).map(|(rack, tray)| (format!("r{rack}"), tray));
    let node = |(rack, index): (String, u32)| {
        let half = if index < 9 { "low" } else { "high" };
        fixtures::node(&format!("{rack}-t{index:02}"), &["c", &rack, half], tray.clone())
    };
    names.map(node).collect()
}

fn all_of(nodes: impl IntoIterator<Item = u32>) -> Vec<Rank> {
    let rank = |node| (0..4).map(move |device| Rank { node, devices: DeviceMask::one(device) });
    nodes.into_iter().flat_map(rank).collect()
}

fn ask(compiled: &Compiled, ranks: &[Rank], collective: Collective, bytes: u64) -> Estimate {
    compiled.time(&mut Scratch::default(), ranks, collective, bytes, None)
}

/// GB/s of an all-reduce, as nccl-tests has it.
fn busbw(compiled: &Compiled, ranks: &[Rank]) -> f64 {
    let estimate = ask(compiled, ranks, Collective::AllReduce, 16 * GIB);
    let factor = bus_factor(Collective::AllReduce, estimate.span.ranks);
    16.0 * 1_073_741_824.0 * factor / estimate.time.ns
}

/// Measured: GB300 in a rack of 72 937 GB/s, over InfiniBand alone about 200.
#[test]
fn a_rack_is_as_fast_as_measured_and_so_is_what_leaves_it() {
    let nodes = racks(18);
    let compiled = |table| Compiled::new(&nodes, &levels(), &table, &Constants::DEFAULT);
    let with = compiled(rack_cost(NVLINK5_MB, 0));
    let one = all_of(0..18);
    let rack = busbw(&with, &one);
    // One tray of each rack; and a rack whose switches nobody knows of.
    let spread = busbw(&with, &all_of((0..18).map(|rack| rack * 18)));
    let unknown = busbw(&compiled(rack_cost(0, 0)), &one);
    assert!((rack / 937.0 - 1.0).abs() < 0.05, "{rack}");
    for over_nics in [spread, unknown] {
        assert!((over_nics / 200.0 - 1.0).abs() < 0.05, "{over_nics}");
        assert!((rack / over_nics / 4.7 - 1.0).abs() < 0.1, "{rack} {over_nics}");
    }
    let estimate = ask(&with, &one, Collective::AllReduce, GIB);
    assert_eq!((estimate.span.nodes, estimate.span.per_node, estimate.span.inner), (1, 72, Inner::Nvlink));
    assert_eq!(estimate.time.algorithm, Algorithm::Nvls);
    assert_eq!(with.bottleneck(&estimate).to_string(), "the NVLinks of rack c/r0");
}

/// The law that a switch keeps: what an all-reduce gets per byte is the same for 8 and for 72 devices.
#[test]
fn more_trays_of_a_rack_cost_nothing() {
    let nodes = racks(1);
    let compiled = Compiled::new(&nodes, &levels(), &rack_cost(NVLINK5_MB, 0), &Constants::DEFAULT);
    let ns = |trays| ask(&compiled, &all_of(0..trays), Collective::AllReduce, GIB).time.ns;
    assert!((ns(2) / ns(18) - 1.0).abs() < 1e-9, "{} {}", ns(2), ns(18));
    assert!((busbw(&compiled, &all_of(0..18)) / (2.0 * 71.0 / 72.0) / 478.0 - 1.0).abs() < 0.044);
}

/// Of two racks, everything between them leaves by the NICs of 18 trays each; trays in turns are one rack still.
#[test]
fn only_what_leaves_a_rack_uses_nics_and_uplinks() {
    let nodes = racks(2);
    let estimate = |table: &CostTable, ranks: &[Rank], collective| {
        let compiled = Compiled::new(&nodes, &levels(), table, &Constants::DEFAULT);
        let estimate = ask(&compiled, ranks, collective, GIB);
        (estimate, compiled.bottleneck(&estimate).to_string())
    };
    let (sorted, mixed) = (all_of(0..36), all_of((0..18).flat_map(|tray| [tray, tray + 18])));
    let free = rack_cost(NVLINK5_MB, 0);
    let (all, named) = estimate(&free, &sorted, Collective::AllReduce);
    assert_eq!((all.span.ranks, all.span.nodes, all.span.per_node), (144, 2, 72));
    assert_eq!((all.span.nic_mb, all.time.algorithm), (18.0 * 200_000.0, Algorithm::NvlsTree));
    assert_eq!(named, "the NVLinks of rack c/r0");
    assert_eq!(estimate(&free, &mixed, Collective::AllReduce).0.span, all.span);
    let (few, named) = estimate(&free, &all_of([0, 18, 19]), Collective::AllReduce);
    assert_eq!((few.span.nodes, few.span.nic_mb, named.as_str()), (2, 200_000.0, "the NICs of rack c/r0"));

    let narrow = rack_cost(NVLINK5_MB, 300_000);
    for collective in [Collective::AllReduce, Collective::AllToAll] {
        let (slow, named) = estimate(&narrow, &mixed, collective);
        assert_eq!((slow.span.uplink_mb, named.as_str()), (300_000.0, "the uplink of rack c/r0"));
    }
    // Switches below the rack carry what leaves the trays below them: half of it each.
    let mut halves = free;
    let half = LevelCost { uplink_mb_per_s: 300_000, ..LevelCost::default() };
    halves.levels.insert(LevelName::new("half").unwrap(), half);
    let (slow, named) = estimate(&halves, &sorted, Collective::AllToAll);
    assert!(
        (slow.span.uplink_mb / 600_000.0 - 1.0).abs() < 1e-12
            && named.starts_with("the uplink of half c/r0/")
    );
    // 36 ranks send to 72 through each.
    assert!((slow.span.uplink_cut_us - 36.0 * 72.0 / 144.0 / 300_000.0).abs() < 1e-12);
    let (inside, _) = estimate(&halves, &all_of(0..18), Collective::AllToAll);
    assert!(inside.span.uplink_mb.is_infinite() && inside.time.ns * 3.0 < slow.time.ns);
}

/// What has no NVLink, and a domain whose own switches are gone, use the NICs.
#[test]
fn what_cannot_use_the_switch_does_not() {
    let ranks = all_of(0..2);
    let time = |nodes: &[Node], table: &CostTable, ranks: &[Rank]| {
        let compiled = Compiled::new(nodes, &levels(), table, &Constants::DEFAULT);
        ask(&compiled, ranks, Collective::AllReduce, GIB).time.ns
    };
    let (with, without) = (rack_cost(NVLINK5_MB, 0), rack_cost(0, 0));
    let whole = racks(1);
    assert!(time(&whole, &with, &ranks) * 2.0 < time(&whole, &without, &ranks));
    let mut sliced = racks(1);
    Arc::make_mut(&mut sliced[0].machine).devices[2].is_sliced = true;
    let hosts = [0, 1].map(|node| Rank { node, devices: DeviceMask::EMPTY });
    let path = ["c", "r0"].map(|name| DomainName::new(name).unwrap()).to_vec();
    let lost = LevelCost { latency_ns: 500, ..LevelCost::default() };
    let gone = CostTable { domains: vec![DomainCost { path, cost: lost }], ..with.clone() };
    for (nodes, table, ranks) in
        [(&sliced, &with, &ranks[..]), (&whole, &with, &hosts[..]), (&whole, &gone, &ranks[..])]
    {
        let same = time(nodes, table, ranks) - time(nodes, &without, ranks);
        assert!(same.abs() <= 0.0, "{same}");
    }
}

fn any_tray() -> impl Strategy<Value = phalanx_model::Machine> {
    let kind = prop_oneof![
        Just(LinkKind::Nvlink(18)),
        Just(LinkKind::Nvlink(2)),
        Just(LinkKind::Xgmi),
        Just(LinkKind::Socket)
    ];
    let models = prop::sample::select(vec!["", "V100", "H100 80GB", "GB300", "MI300X"]);
    (models, 1..9_u32, kind, 0..3_u32, prop::bool::weighted(0.1)).prop_map(
        |(model, count, kind, nics, cut)| {
            let mut machine = fixtures::mesh(model, count, kind);
            (0..nics).for_each(|_| fixtures::add_nic(&mut machine, &[(0, LinkKind::PcieSwitch)]));
            machine.devices[0].is_sliced = cut;
            machine
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever stands in the racks, more inside them never costs more.
    #[test]
    fn more_inside_never_costs_more(
        trays in prop::collection::vec((any_tray(), 0..3_u32, 0..2_u32, any::<u64>()), 1..7),
        inside in 0..1_200_000_u32, more in 0..1_200_000_u32, uplink in 0..1_000_000_u32,
        half in 0..1_000_000_u32, bytes in 0..1_u64 << 36, neighbours in 1..5_u32, kind in 0..6_usize,
    ) {
        let nodes: Vec<Node> = trays.iter().enumerate().map(|(index, (tray, rack, half, _))| {
            let path = ["c".to_owned(), format!("r{rack}"), format!("h{half}")];
            fixtures::node(&format!("n{index}"), &path.each_ref().map(String::as_str), tray.clone())
        }).collect();
        let rank = |(node, (tray, _, _, mask)): (u32, &(phalanx_model::Machine, u32, u32, u64))| {
            let devices = DeviceMask(mask & tray.device_mask().0);
            Rank { node, devices }
        };
        let ranks: Vec<Rank> = (0..).zip(&trays).map(rank).collect();
        let collective = [
            Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll,
            Collective::Broadcast, Collective::PointToPoint,
        ][kind];
        let ns = |inside| {
            let mut table = rack_cost(inside, uplink);
            let cost = LevelCost { uplink_mb_per_s: half, ..LevelCost::default() };
            table.levels.insert(LevelName::new("half").unwrap(), cost);
            let compiled = Compiled::new(&nodes, &levels(), &table, &Constants::DEFAULT);
            let mut scratch = Scratch::default();
            let estimate = compiled.time_beside(&mut scratch, &ranks, neighbours, collective, bytes, None);
            let again = compiled.time_beside(&mut scratch, &ranks, neighbours, collective, bytes, None);
            assert_eq!(estimate, again, "a scratch remembers nothing");
            assert!(estimate.time.ns.is_finite());
            estimate.time.ns
        };
        prop_assert!(ns(inside.saturating_add(more)) <= ns(inside) * (1.0 + 1e-12));
        prop_assert!(ns(inside) <= ns(0) * (1.0 + 1e-12));
    }
}
