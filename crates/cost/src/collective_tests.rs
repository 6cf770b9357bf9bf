//! Laws that the equations keep, and well-known figures with what they assume.

use phalanx_model::{
    CostTable, DeviceMask, DomainCost, DomainName, LevelCost, LevelName, Levels, LinkKind, Machine, Node,
};
use proptest::prelude::*;

use crate::collective::time;
use crate::compiled::{Compiled, Rank, Scratch};
use crate::measurements::Site;
use crate::{Algorithm, Collective, Constants, Inner, Limit, Network, Span, fixtures, ring, shape_cost};

const GIB: u64 = 1 << 30;
const CONSTANTS: &Constants = &Constants::DEFAULT;

fn site(hardware: &str, link: &str, nodes: u32, per_node: u32, gigabits: f64) -> Span {
    let network = Network::Verbs;
    Site { hardware, link, nodes, per_node, nic_mb: gigabits * 125.0, network }.span().expect("a known link")
}

fn all_reduce_ms(span: &Span, bytes: u64) -> f64 {
    time(span, Collective::AllReduce, bytes, None, CONSTANTS).ns / 1e6
}

/// 200 MB are 50 million parameters in FP32; a step takes 200 ms.
#[test]
fn nvlink_hides_what_a_slow_network_makes_half_of_the_step() {
    let one_link = all_reduce_ms(&site("V100", "nvlink:1", 1, 4, 0.0), 200_000_000);
    let island = all_reduce_ms(&site("V100", "nvlink:4", 1, 4, 0.0), 200_000_000);
    let network = all_reduce_ms(&site("V100", "nvlink:4", 4, 1, 25.0), 200_000_000);
    assert!(island < 10.0 && 10.0 < one_link && one_link < 20.0, "{island} {one_link}");
    assert!((80.0..120.0).contains(&network), "{network}");
}

/// One PCIe root for 8 GPUs against NVLink, 1 GiB. From Blackwell on it is more than ten times.
#[test]
fn nvlink_rings_are_several_times_as_fast_as_pcie_rings() {
    for (hardware, link, times) in [
        ("V100", "nvlink:6", 2.0..10.5),
        ("A100", "", 2.0..10.5),
        ("H100", "", 2.0..10.5),
        ("B200", "", 10.0..20.0),
    ] {
        let nvlink = all_reduce_ms(&site(hardware, link, 1, 8, 0.0), GIB);
        let ratio = all_reduce_ms(&site(hardware, "pcie", 1, 8, 0.0), GIB) / nvlink;
        assert!(times.contains(&ratio), "{hardware}: {ratio}");
    }
}

/// 100 MB on 8 H100, and on two nodes of 8 with one 100G NIC each.
#[test]
fn under_a_millisecond_inside_and_several_across() {
    assert!(all_reduce_ms(&site("H100", "", 1, 8, 0.0), 100_000_000) < 1.0);
    let across = all_reduce_ms(&site("H100", "", 2, 8, 100.0), 100_000_000);
    assert!((5.0..10.0).contains(&across), "{across}");
}

/// 16 H100, 1 GiB: with a 400G rail for every GPU that is used, and with one 100G NIC per node.
#[test]
fn two_full_nodes_beat_eight_nodes_of_two() {
    for (full, spread) in [(3200.0, 800.0), (100.0, 100.0)] {
        let full = all_reduce_ms(&site("H100", "", 2, 8, full), GIB);
        assert!(full < all_reduce_ms(&site("H100", "", 8, 2, spread), GIB));
    }
}

/// 600 GB/s of an A100 and 900 GB/s of an H100 are both directions together: 300 and 450 one way, of which
/// NCCL counts on 240 and 371.
#[test]
fn nvlink_totals_are_of_both_directions() {
    for (hardware, one_way_mb) in [("A100", 300_000.0), ("H100", 450_000.0)] {
        let span = site(hardware, "", 1, 8, 0.0);
        assert!((0.75..0.85).contains(&(span.ring_mb / one_way_mb)), "{}", span.ring_mb);
    }
}

#[test]
fn the_tuner_changes_its_mind_with_the_size() {
    let chosen = |span: &Span, bytes| time(span, Collective::AllReduce, bytes, None, CONSTANTS).algorithm;
    let one = site("H100", "", 1, 8, 0.0);
    assert_eq!(chosen(&one, 8), Algorithm::Ring, "low latency protocol");
    assert_eq!(chosen(&one, GIB), Algorithm::Nvls);
    let many = site("H100", "", 64, 8, 3200.0);
    assert_eq!(chosen(&many, 8), Algorithm::Tree);
    assert_eq!(chosen(&many, GIB), Algorithm::NvlsTree);
    let forced = time(&many, Collective::AllReduce, GIB, Some(Algorithm::Ring), CONSTANTS);
    assert_eq!(forced.algorithm, Algorithm::Ring);
    let staged = time(&many, Collective::AllReduce, GIB, Some(Algorithm::Hierarchical), CONSTANTS);
    assert_eq!((staged.algorithm, staged.limit), (Algorithm::Hierarchical, Limit::Nic));
    let none =
        time(&site("A100", "", 1, 8, 0.0), Collective::AllReduce, GIB, Some(Algorithm::Nvls), CONSTANTS);
    assert_eq!(none.algorithm, Algorithm::Ring, "a switch that cannot add");
}

/// Halving the bus bandwidth doubles; an all-gather sends half of an all-reduce.
#[test]
fn collectives_stand_in_their_proportions() {
    let span = site("A100", "", 1, 8, 0.0);
    let ns = |collective| time(&span, collective, 16 * GIB, None, CONSTANTS).ns;
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
    assert!(near(ns(Collective::AllReduce), 2.0 * ns(Collective::AllGather)));
    assert!(near(ns(Collective::AllGather), ns(Collective::ReduceScatter)));
    assert!(near(ns(Collective::Broadcast), ns(Collective::PointToPoint)));
    assert!(near(ns(Collective::Broadcast) * 7.0 / 8.0, ns(Collective::AllGather)));
}

fn any_span() -> impl Strategy<Value = Span> {
    let hardware = prop::sample::select(vec!["V100", "A100", "H100", "B200", "MI300X", "T4", "?"]);
    let link = prop::sample::select(vec!["", "pcie", "nvlink:1", "nvlink:12"]);
    let network = prop::sample::select(Network::ALL.to_vec());
    (hardware, link, 1..200_u32, 1..17_u32, 1.0..4000.0_f64, network).prop_map(
        |(hardware, link, nodes, per_node, gigabits, network)| {
            let site = Site { hardware, link, nodes, per_node, nic_mb: gigabits * 125.0, network };
            site.span().expect("a known link")
        },
    )
}

fn any_collective() -> impl Strategy<Value = Collective> {
    prop::sample::select(vec![
        Collective::AllReduce,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AllToAll,
        Collective::Broadcast,
        Collective::PointToPoint,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// More bytes never take less, more bandwidth never more, less latency never more, and what is forced is
    /// never faster than what is chosen.
    #[test]
    fn times_are_monotone(
        span in any_span(), collective in any_collective(), bytes in 0..1_u64 << 40, more in 0..1_u64 << 30,
        by in 1.0..10.0_f64,
    ) {
        let ns = |span: &Span, bytes| time(span, collective, bytes, None, CONSTANTS).ns;
        let base = ns(&span, bytes);
        prop_assert!(base.is_finite() && base >= 0.0);
        prop_assert!(ns(&span, bytes + more) >= base);
        let faster = [
            Span { ring_mb: span.ring_mb * by, pair_mb: span.pair_mb * by, ..span },
            Span { nvls_mb: span.nvls_mb * by, ..span },
            Span { nic_mb: span.nic_mb * by, nic_cut_us: span.nic_cut_us / by, ..span },
        ];
        for faster in faster {
            prop_assert!(ns(&faster, bytes) <= base * (1.0 + 1e-12));
        }
        let slower =
            [Span { hop_ns: 1e4 * by, ..span }, Span { uplink_mb: 1e3 * by, uplink_cut_us: by, ..span }];
        for slower in slower {
            prop_assert!(ns(&slower, bytes) >= base);
        }
        let forced = time(&span, collective, bytes, Some(Algorithm::Ring), CONSTANTS).ns;
        prop_assert!(forced >= base);
    }

    /// On the same links, fewer ranks never take longer in a ring. (In-switch reduction is different: the
    /// more take part, the less each port carries.)
    #[test]
    fn fewer_ranks_on_the_same_links_are_not_slower(nodes in 2..100_u32, per_node in 2..9_u32, bytes in 0..GIB) {
        let ns = |nodes, per_node| {
            let span = site("A100", "", nodes, per_node, 200.0);
            time(&span, Collective::AllReduce, bytes, Some(Algorithm::Ring), CONSTANTS).ns
        };
        prop_assert!(ns(nodes - 1, per_node) <= ns(nodes, per_node));
        prop_assert!(ns(nodes, per_node - 1) <= ns(nodes, per_node));
    }
}

fn levels() -> Levels {
    let name = |text| LevelName::new(text).unwrap();
    Levels::new(vec![name("cluster"), name("leaf")], name("node"))
}

fn compiled(nodes: &[Node], leaf_mb_per_s: u32) -> Compiled {
    let mut table = CostTable::default();
    let cost = LevelCost { uplink_mb_per_s: leaf_mb_per_s, latency_ns: 500, ..LevelCost::default() };
    table.levels.insert(LevelName::new("leaf").unwrap(), cost);
    Compiled::new(nodes, &levels(), &table, CONSTANTS)
}

fn ranks(parts: &[(u32, u64)]) -> Vec<Rank> {
    let devices = parts.iter().flat_map(|(node, mask)| DeviceMask(*mask).iter().map(move |d| (*node, d)));
    devices.map(|(node, device)| Rank { node, devices: DeviceMask::one(device) }).collect()
}

/// A topology and words about it come to the same span.
#[test]
fn a_compiled_topology_is_what_words_say() {
    let nodes =
        ["a", "b"].map(|name| fixtures::node(name, &["c", "l"], fixtures::switched("H100", 8, 18, 8)));
    let compiled = compiled(&nodes, 0);
    let ranks = ranks(&[(0, 0xff), (1, 0xff)]);
    let estimate = compiled.time(&mut Scratch::default(), &ranks, Collective::AllReduce, GIB, None);
    let words = site("H100", "", 2, 8, 3200.0);
    assert_eq!(Span { hop_ns: 0.0, ..estimate.span }, words);
    assert_eq!(estimate.time, time(&words, Collective::AllReduce, GIB, None, CONSTANTS));
}

/// Asking twice, in another rank order of equal crossings, and after other questions gives the same.
#[test]
fn a_scratch_remembers_nothing() {
    let names = [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y")];
    let nodes =
        names.map(|(name, leaf)| fixtures::node(name, &["c", leaf], fixtures::switched("H100", 8, 18, 8)));
    let compiled = compiled(&nodes, 100_000);
    let mut scratch = Scratch::default();
    let mut ask = |ranks: &[Rank]| compiled.time(&mut scratch, ranks, Collective::AllReduce, GIB, None);
    let sorted = ranks(&[(0, 0xff), (1, 0xff), (2, 0xff), (3, 0xff)]);
    let mixed = ranks(&[(0, 0xff), (2, 0xff), (1, 0xff), (3, 0xff)]);
    let first = ask(&sorted);
    assert!(ask(&mixed).time.ns > first.time.ns * 1.9, "each leaf is left twice");
    assert_eq!(ask(&sorted), first);
    // Round robin over nodes: NCCL puts the ranks of a node together.
    let robin: Vec<Rank> =
        (0..8).flat_map(|d| (0..4).map(move |node| Rank { node, devices: DeviceMask::one(d) })).collect();
    assert_eq!(ask(&robin), first);
    assert!(ask(&[Rank { node: 99, devices: DeviceMask::one(0) }]).time.ns <= 0.0, "no such node");
}

/// A leaf that lost cables, and a node that lost a NIC.
#[test]
fn one_domain_may_differ_from_its_level() {
    let nodes = [("a", "x"), ("b", "y")]
        .map(|(name, leaf)| fixtures::node(name, &["c", leaf], fixtures::switched("H100", 8, 18, 8)));
    let bottleneck = |path: &[&str], uplink_mb_per_s| {
        let path = path.iter().map(|name| DomainName::new(*name).unwrap()).collect();
        let cost = LevelCost { uplink_mb_per_s, latency_ns: 0, ..LevelCost::default() };
        let table = CostTable { domains: vec![DomainCost { path, cost }], ..CostTable::default() };
        let compiled = Compiled::new(&nodes, &levels(), &table, CONSTANTS);
        let ranks = ranks(&[(0, 0xff), (1, 0xff)]);
        let estimate = compiled.time(&mut Scratch::default(), &ranks, Collective::AllReduce, GIB, None);
        (compiled.bottleneck(&estimate).to_string(), estimate.time.mb_per_s)
    };
    assert_eq!(bottleneck(&["c", "y"], 50_000), ("the uplink of leaf c/y".to_owned(), 50_000.0));
    assert_eq!(bottleneck(&["c", "y", "b"], 40_000), ("the NIC of b".to_owned(), 40_000.0));
}

#[test]
fn neighbours_share_the_nics() {
    let nodes =
        ["a", "b"].map(|name| fixtures::node(name, &["c", "l"], fixtures::switched("H100", 8, 18, 1)));
    let compiled = compiled(&nodes, 0);
    let mut scratch = Scratch::default();
    let pair = ranks(&[(0, 1), (1, 1)]);
    let mut ns = |neighbours| {
        compiled.time_beside(&mut scratch, &pair, neighbours, Collective::AllReduce, GIB, None).time.ns
    };
    let (alone, shared) = (ns(1), ns(8));
    assert!(shared > alone * 7.5 && shared < alone * 8.5, "{alone} {shared}");
}

/// Two pairs behind two switches with one narrow uplink each.
#[test]
fn the_uplink_of_a_group_bounds_what_leaves_it() {
    let mut machine = fixtures::mesh("A100", 4, LinkKind::PcieBridges);
    let group = |mask| phalanx_model::DeviceGroup {
        uplink_mb_per_s: 8_000,
        ..phalanx_model::DeviceGroup::new(LevelName::new("switch").unwrap(), DeviceMask(mask))
    };
    machine.groups = vec![group(0b0011), group(0b1100)];
    let nodes = [fixtures::node("a", &["c", "l"], machine)];
    let compiled = compiled(&nodes, 0);
    let mut scratch = Scratch::default();
    let mut ring = |mask| {
        compiled.time(&mut scratch, &ranks(&[(0, mask)]), Collective::AllReduce, GIB, None).span.ring_mb
    };
    assert_eq!((ring(0b0011), ring(0b0110), ring(0b1111)), (24_000.0, 8_000.0, 8_000.0));
}

/// What the engine does with the integer table: the set with the best rings, then with the most bandwidth between
/// all pairs, then what leaves others the best rings, then the lowest numbers. Whatever is free, it costs at most
/// 2 % over the best set that the whole model knows.
#[test]
fn sets_chosen_on_integers_are_nearly_the_best_of_the_model() {
    let pix = |a: u32, b: u32| if a / 2 == b / 2 { LinkKind::PcieSwitch } else { LinkKind::Numa };
    let boxes: Vec<(&str, Machine)> = vec![
        ("hybrid cube mesh", fixtures::hybrid_cube_mesh()),
        ("NVSwitch", fixtures::switched("H100", 8, 18, 0)),
        ("two sockets", fixtures::two_sockets("A100", 8)),
        (
            "PCIe pairs",
            fixtures::machine("A10", 8, |a, b| if a / 4 == b / 4 { pix(a, b) } else { LinkKind::Socket }),
        ),
        ("full xGMI mesh", fixtures::mesh("MI300X", 8, LinkKind::Xgmi)),
    ];
    let mut scratch = Scratch::default();
    for (name, machine) in boxes {
        let cost = shape_cost(&machine);
        let compiled = compiled(&[fixtures::node("n", &["c", "l"], machine)], 0);
        let mut model = |set: DeviceMask| {
            let rank = [Rank { node: 0, devices: set }];
            compiled.time(&mut scratch, &rank, Collective::AllReduce, GIB, None).time.ns
        };
        let worth = |set: DeviceMask| {
            let members: Vec<u32> = set.iter().collect();
            let pairs = members.iter().flat_map(|a| members.iter().map(|b| u64::from(cost.pair(*a, *b))));
            let together = cost.sets_mb_per_s.get(usize::try_from(set.0).unwrap()).copied();
            (together.unwrap_or_else(|| ring::slowest_pair(&cost, &members)), pairs.sum::<u64>())
        };
        let known: Vec<(f64, (u32, u64))> =
            (0..256).map(|mask| (model(DeviceMask(mask)), worth(DeviceMask(mask)))).collect();
        for free in (0..256_u64).map(DeviceMask) {
            for count in 2..=free.count() {
                let sets = || {
                    (0..256_usize)
                        .filter(|set| set.count_ones() == count && DeviceMask(*set as u64).is_subset_of(free))
                };
                let best = sets().map(|set| known[set].0).fold(f64::INFINITY, f64::min);
                // Ties go to the first, which is the lowest.
                let left = |set: usize| free.minus(DeviceMask(set as u64));
                let value = |set: usize| {
                    let left = left(set);
                    let left_at = usize::try_from(left.0).unwrap();
                    let left_mb = if left.count() < 2 { u32::MAX } else { known[left_at].1.0 };
                    (known[set].1, left_mb)
                };
                let chosen = sets().reduce(|a, b| if value(b) > value(a) { b } else { a }).unwrap();
                let chosen_ns = known[chosen].0;
                assert!(chosen_ns <= best * 1.02, "{name}, {count} of {free}: {chosen_ns} and {best}");
            }
        }
    }
}

#[test]
fn the_memory_of_a_host_is_a_way_of_its_own() {
    let nodes = [fixtures::node("a", &["c", "l"], fixtures::mesh("", 0, LinkKind::Socket))];
    let compiled = compiled(&nodes, 0);
    let ranks = [Rank { node: 0, devices: DeviceMask::EMPTY }; 4];
    let estimate = compiled.time(&mut Scratch::default(), &ranks, Collective::AllReduce, GIB, None);
    assert_eq!((estimate.span.inner, estimate.span.ranks), (Inner::Host, 4));
}
