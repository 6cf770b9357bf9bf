use proptest::prelude::*;

use super::*;

fn axis(kind: AxisKind, degree: u32, collective: Collective, bytes: u64) -> Axis {
    Axis { kind, degree, collective, bytes, calls: 1 }
}

fn data(degree: u32, bytes: u64) -> Axis {
    axis(AxisKind::Data, degree, Collective::AllReduce, bytes)
}

fn pipeline(degree: u32, bytes: u64) -> Axis {
    axis(AxisKind::Pipeline, degree, Collective::PointToPoint, bytes)
}

/// Leaves of sites with these ranks; NICs of 50 GB/s for each rank, leaves with `uplink` MB/s.
fn leaves(of: &[&[u32]], uplink: u32) -> Sites {
    let domain = Domain { parent: None, uplink_mb_per_s: uplink, latency_ns: 1_000 };
    let site = |parent, ranks| Site {
        parent: Some(parent),
        ranks,
        nic_mb_per_s: 50_000 * ranks,
        latency_ns: 2_000,
        inside_mb_per_s: 370_000,
    };
    let sites: Vec<Site> =
        (0..).zip(of).flat_map(|(leaf, sites)| sites.iter().map(move |ranks| site(leaf, *ranks))).collect();
    Sites::new(&vec![domain; of.len()], &sites).unwrap()
}

fn mapped(axes: &[Axis], sites: &Sites, swaps: u32) -> Mapping {
    map(&Grid::new(axes).unwrap(), sites, swaps, &mut Scratch::default()).unwrap()
}

#[test]
fn heavy_groups_stay_in_the_leaf_and_light_ones_cross() {
    // Two leaves of four nodes with two ranks each, numbered along the pipeline first: every data group of
    // the given order has ranks in both leaves.
    let sites = leaves(&[&[2, 2, 2, 2], &[2, 2, 2, 2]], 25_000);
    let found = mapped(&[pipeline(2, 1 << 20), data(8, 1 << 30)], &sites, 1_000);
    assert_eq!(found.nesting, [AxisKind::Data, AxisKind::Pipeline]);
    assert!(found.gain_ns() > found.found.ns, "{found:?}");
    for group in Grid::new(&[pipeline(2, 1), data(8, 1)]).unwrap().groups(1) {
        let leaf: Vec<u32> = group.map(|rank| found.seats[rank as usize].site / 4).collect();
        assert!(leaf.iter().all(|l| *l == leaf[0]), "{leaf:?}");
    }
    // Where the pipeline is the heavy one, it is the other way round.
    let found = mapped(&[data(8, 1 << 20), pipeline(2, 1 << 30)], &sites, 1_000);
    assert_eq!(found.nesting, [AxisKind::Pipeline, AxisKind::Data]);
}

/// Latency, transfer and the filling of the pipeline: `2 * 0.566 * sqrt(latency * transfer * 1e8 / (bytes + 1e8))`.
fn call_ns(latency_ns: u64, transfer_ns: u64, bytes: u64) -> u64 {
    let product = u128::from(latency_ns) * u128::from(transfer_ns) * 1_281_424 * 100;
    let filling = (product / (u128::from(bytes) + 100_000_000)).isqrt();
    latency_ns + transfer_ns + u64::try_from(filling).unwrap()
}

#[track_caller]
fn same(left: u64, right: u64) {
    assert!(left.abs_diff(right) <= 2, "{left} {right}");
}

#[test]
fn an_all_reduce_takes_what_its_equation_says() {
    // Four ranks on two sites with one NIC of 50 GB/s for each rank: the ring leaves each site once.
    let bytes = 1_000_000_000;
    let sites = leaves(&[&[2, 2]], 0);
    let found = mapped(&[data(4, bytes)], &sites, 0);
    // 2 * 3/4 GB through 100 GB/s are 15 ms. A hop outside takes 16.06 us and twice 2 us, one inside 3.4 us; there
    // are one of the first and two of the second, twice around.
    let hop = 16_060 + 4_000;
    same(found.found.ns, call_ns(8_400 + 2 * (hop + 2 * 3_400), 15_000_000, bytes));
    // An order that goes back and forth crosses twice as often.
    let seat = |(site, index)| Seat { site, index };
    let order = [(0, 0), (1, 0), (0, 1), (1, 1)].map(seat);
    let grid = Grid::new(&[data(4, bytes)]).unwrap();
    let worse = predict(&grid, &sites, &order, &mut Scratch::default()).unwrap();
    same(worse.ns, call_ns(8_400 + 2 * 3 * hop, 30_000_000, bytes));
    // All-to-all: 2 * 2 pairs of a fourth of the bytes, whatever the order is.
    let expert = axis(AxisKind::Expert, 4, Collective::AllToAll, bytes);
    same(mapped(&[expert], &sites, 0).found.ns, call_ns(8_400 + hop, 10_000_000, bytes));
    // Stages of a pipeline talk side by side: twice the bytes through the middle NIC.
    let sites = leaves(&[&[1, 1, 1]], 0);
    same(mapped(&[pipeline(3, bytes)], &sites, 0).found.ns, call_ns(8_400 + hop, 40_000_000, bytes));
}

#[test]
fn groups_of_an_axis_share_an_uplink() {
    // One leaf each; the uplink is the slowest. Two data groups over it take twice as long as one.
    let bytes = 1_000_000_000;
    let latency = 8_400 + 2 * (16_060 + 6_000);
    let one = mapped(&[data(2, bytes)], &leaves(&[&[1], &[1]], 10_000), 0).found.ns;
    same(one, call_ns(latency, 100_000_000, bytes));
    let sites = leaves(&[&[2], &[2]], 10_000);
    let two = mapped(&[pipeline(2, 0), data(2, bytes)], &sites, 0).as_given.axes_ns;
    same(two[1], call_ns(latency, 200_000_000, bytes));
}

#[test]
fn what_is_left_over_is_taken_from_small_domains_first() {
    // Groups of four on leaves with 3, 2 and 3 ranks and as much uplink: in their order, the second leaf is cut.
    let domain = |uplink_mb_per_s| Domain { parent: None, uplink_mb_per_s, latency_ns: 1_000 };
    let site = |parent, ranks| Site {
        parent: Some(parent),
        ranks,
        nic_mb_per_s: 0,
        latency_ns: 2_000,
        inside_mb_per_s: 0,
    };
    let domains = [domain(30_000), domain(20_000), domain(30_000)];
    let sites = Sites::new(&domains, &[site(0, 3), site(1, 2), site(2, 3)]).unwrap();
    let bytes = 1_000_000_000;
    let found = mapped(&[data(4, bytes), pipeline(2, 1 << 10)], &sites, 0);
    // Two groups leave the first leaf, where they take 2 * 1.5 GB through 30 GB/s.
    let latency = 8_400 + 2 * (16_060 + 6_000 + 2 * 3_400);
    same(found.nested.axes_ns[0], call_ns(latency, 100_000_000, bytes));
}

#[test]
fn parts_stay_together() {
    // In the order of the sites, data groups cross; they would not if ranks 0 and 2 could go to one leaf.
    let sites = leaves(&[&[2], &[2]], 10_000);
    let axes = [pipeline(2, 1 << 10), data(2, 1 << 30)];
    let grid = Grid::new(&axes).unwrap();
    let free = mapped(&axes, &sites, 100);
    assert!(free.gain_ns() > 0);
    let part = Part { ranks: 2, labels: vec![0, 0, 1, 1] };
    let kept = map_within(&grid, &sites, &[part], 100, &mut Scratch::default()).unwrap();
    assert_eq!(kept.gain_ns(), 0);
    assert_eq!(kept.seats[0].site, kept.seats[1].site);
    let split = Part { ranks: 4, labels: vec![0, 0, 1, 1] };
    assert_eq!(map_within(&grid, &sites, &[split], 100, &mut Scratch::default()), Err(GridError::PartSplit));
}

#[test]
fn uneven_counts_are_packed() {
    // Groups of four on leaves with 6, 4 and 6 ranks: each leaf holds one whole, where topology order would
    // cut the second and the third.
    let sites = leaves(&[&[3, 3], &[2, 2], &[3, 3]], 10_000);
    let axes = [data(4, 1 << 30), pipeline(4, 1 << 10)];
    let found = mapped(&axes, &sites, 0);
    let grid = Grid::new(&axes).unwrap();
    let whole = |seats: &[Seat]| {
        let leaf_of = |rank: u32| seats[rank as usize].site / 2;
        grid.groups(0)
            .filter_map(|mut group| group.next().map(|a| group.all(|b| leaf_of(a) == leaf_of(b))))
            .filter(|w| *w)
            .count()
    };
    assert_eq!(whole(&found.seats), 3);
    assert!(found.nested.ns < found.as_given.ns);
}

#[test]
fn tensor_groups_never_leave_a_site() {
    let sites = leaves(&[&[8, 4], &[4, 8]], 10_000);
    let tensor = axis(AxisKind::Tensor, 4, Collective::AllReduce, 1 << 26);
    let axes = [tensor, data(3, 1 << 28), pipeline(2, 1 << 22)];
    let found = mapped(&axes, &sites, 10_000);
    for group in Grid::new(&axes).unwrap().groups(0) {
        let sites: Vec<u32> = group.map(|rank| found.seats[rank as usize].site).collect();
        assert!(sites.iter().all(|site| *site == sites[0]));
    }
    let grid = Grid::new(&[tensor, data(3, 1)]).unwrap();
    let split = map(&grid, &leaves(&[&[8, 2, 2]], 0), 0, &mut Scratch::default());
    assert_eq!(split, Err(GridError::TensorSplit { site: 1, ranks: 2, degree: 4 }));
}

#[test]
fn segments_are_the_inner_groups_of_every_nesting() {
    let tensor = axis(AxisKind::Tensor, 4, Collective::AllReduce, 1);
    let expert = axis(AxisKind::Expert, 2, Collective::AllToAll, 1);
    let grid = Grid::new(&[tensor, expert, data(3, 1), pipeline(2, 1)]).unwrap();
    assert_eq!(grid.segments(), [8, 12, 16, 24]);
    assert!(Grid::new(&[tensor]).unwrap().segments().is_empty());
}

#[test]
fn bad_input_is_named() {
    let domain = |parent| Domain { parent, uplink_mb_per_s: 1, latency_ns: u32::MAX };
    let site =
        |parent, ranks| Site { parent, ranks, nic_mb_per_s: 1, latency_ns: u32::MAX, inside_mb_per_s: 1 };
    assert_eq!(Grid::new(&[]), Err(GridError::NoAxes));
    assert_eq!(Grid::new(&[data(2, 1), data(2, 1)]), Err(GridError::Twice(AxisKind::Data)));
    assert_eq!(Grid::new(&[data(0, 1)]), Err(GridError::OutOfRange(AxisKind::Data)));
    assert_eq!(Grid::new(&[data(1 << 9, 1), pipeline(1 << 9, 1)]), Err(GridError::TooLarge));
    let tensor = axis(AxisKind::Tensor, 2, Collective::AllReduce, 1);
    assert_eq!(Grid::new(&[data(2, 1), tensor]), Err(GridError::TensorNotFirst));
    assert_eq!(Sites::new(&[domain(Some(0))], &[]), Err(GridError::Parent(0)));
    assert_eq!(Sites::new(&[domain(None)], &[site(Some(1), 1)]), Err(GridError::NoDomain(0)));
    assert_eq!(Sites::new(&[], &[site(Some(u32::MAX), 1)]), Err(GridError::NoDomain(0)));
    let most = GridError::TooMany { what: "ranks", max: RANKS_MAX };
    assert_eq!(Sites::new(&[], &[site(None, u32::MAX), site(None, 1)]), Err(most));
    let sites = Sites::new(&[domain(None)], &[site(Some(0), 2), site(Some(0), 0), site(None, 2)]).unwrap();
    let most = Axis { calls: CALLS_MAX, ..data(4, BYTES_MAX) };
    assert_eq!(mapped(&[most], &sites, 10).found.ns, u64::MAX / 1_000 + 1, "saturates");
    let grid = Grid::new(&[data(4, 1)]).unwrap();
    let seat = |(site, index)| Seat { site, index };
    let ask = |seats: [(u32, u32); 4]| predict(&grid, &sites, &seats.map(seat), &mut Scratch::default());
    assert_eq!(ask([(0, 0), (0, 1), (2, 1), (0, 0)]), Err(GridError::Seat(3)));
    assert_eq!(ask([(0, 0), (1, 0), (2, 1), (2, 0)]), Err(GridError::Seat(1)));
    assert_eq!(ask([(0, 0), (9, 0), (2, 1), (2, 0)]), Err(GridError::Seat(1)));
    let two = Grid::new(&[data(2, 1)]).unwrap();
    let wrong = map(&two, &sites, 1, &mut Scratch::default());
    assert_eq!(wrong, Err(GridError::Ranks { grid: 2, sites: 4 }));
}

/// A tiny grid of up to eight ranks on up to four sites in two leaves.
fn tiny() -> impl Strategy<Value = (Vec<Axis>, Sites)> {
    let bytes = || (10_u32..30).prop_map(|shift| 1_u64 << shift);
    let degrees = prop::sample::select(vec![
        (2, 2, 1),
        (4, 2, 1),
        (2, 4, 1),
        (2, 3, 1),
        (3, 2, 1),
        (7, 1, 1),
        (2, 2, 2),
    ]);
    let all_to_all = any::<bool>();
    (degrees, bytes(), bytes(), bytes(), all_to_all, prop::collection::vec(0_u32..4, 8), 1_u32..200_000)
        .prop_map(|((d, p, e), data_bytes, pipeline_bytes, expert_bytes, is_direct, homes, uplink)| {
            let collective = if is_direct { Collective::AllToAll } else { Collective::AllGather };
            let axes = [
                axis(AxisKind::Expert, e, collective, expert_bytes),
                data(d, data_bytes),
                pipeline(p, pipeline_bytes),
            ];
            let mut counts = [0; 4];
            for home in homes.iter().take((d * p * e) as usize) {
                counts[*home as usize] += 1;
            }
            (axes.to_vec(), leaves(&[&counts[..2], &counts[2..]], uplink))
        })
}

/// The best order of all: every permutation of the seats.
fn brute_force(grid: &Grid, sites: &Sites) -> u64 {
    fn permute(seats: &mut Vec<Seat>, from: usize, best: &mut u64, ask: &mut impl FnMut(&[Seat]) -> u64) {
        if from == seats.len() {
            *best = (*best).min(ask(seats));
            return;
        }
        for at in from..seats.len() {
            // Seats of one site are the same.
            if seats[from..at].iter().all(|seat| seat.site != seats[at].site) {
                seats[from..=at].rotate_right(1);
                permute(seats, from + 1, best, ask);
                seats[from..=at].rotate_left(1);
            }
        }
    }
    let held = (0..).zip(sites.sites());
    let mut seats: Vec<Seat> =
        held.flat_map(|(site, held)| (0..held.ranks).map(move |index| Seat { site, index })).collect();
    let (mut best, mut scratch) = (u64::MAX, Scratch::default());
    permute(&mut seats, 0, &mut best, &mut |seats| predict(grid, sites, seats, &mut scratch).unwrap().ns);
    best
}

#[test]
fn tiny_grids_come_close_to_the_best_of_all_orders() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    // Gaps in millionths of the best.
    let (mut optimal, mut worst, mut sum) = (0, 0, 0);
    let cases = 300;
    for _ in 0..cases {
        let (axes, sites) = tiny().new_tree(&mut runner).unwrap().current();
        let grid = Grid::new(&axes).unwrap();
        let best = brute_force(&grid, &sites);
        let found = map(&grid, &sites, grid.swaps(), &mut Scratch::default()).unwrap().found.ns;
        assert!(found >= best, "{found} is better than the best {best}");
        let gap = ((found - best) * 1_000_000).checked_div(best).unwrap_or(0);
        optimal += u32::from(found == best);
        worst = worst.max(gap);
        sum += gap;
    }
    let mean = sum / u64::from(cases);
    println!("{optimal} of {cases} optimal; gap in millionths: mean {mean}, worst {worst}");
    assert!(optimal >= cases * 95 / 100, "{optimal} of {cases}");
    assert!(mean < 5_000, "{mean}");
}

proptest! {
    #[test]
    fn never_worse_than_the_order_of_the_sites((axes, sites) in tiny(), swaps in 0_u32..200) {
        let grid = Grid::new(&axes).unwrap();
        let mut scratch = Scratch::default();
        let found = map(&grid, &sites, swaps, &mut scratch).unwrap();
        prop_assert!(found.found.ns <= found.nested.ns && found.nested.ns <= found.as_given.ns);
        prop_assert!(found.swaps_tried <= swaps && found.swaps_made <= found.swaps_tried);
        // The prediction is that of its seats, and every seat is taken once.
        prop_assert_eq!(&predict(&grid, &sites, &found.seats, &mut scratch).unwrap(), &found.found);
        // Memory that was used before changes nothing.
        prop_assert_eq!(map(&grid, &sites, swaps, &mut Scratch::default()).unwrap(), found);
    }
}
