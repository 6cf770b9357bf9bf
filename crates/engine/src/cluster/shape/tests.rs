use super::*;

/// Pair bandwidths from a matrix of small numbers.
fn shape(rows: &[&[u32]]) -> ShapeTable {
    let devices = u32::try_from(rows.len()).unwrap();
    ShapeTable::build(&ShapeCost { devices, pair_mb_per_s: rows.concat(), ..ShapeCost::default() })
}

/// V100 hybrid cube mesh: 2 is a double link, 1 a single one, both above PCIe (0 here stands for 1/10).
fn hybrid_cube_mesh() -> ShapeTable {
    shape(&[
        &[0, 10, 10, 20, 1, 1, 20, 1],
        &[10, 0, 20, 10, 1, 1, 1, 20],
        &[10, 20, 0, 20, 10, 1, 1, 1],
        &[20, 10, 20, 0, 1, 10, 1, 1],
        &[1, 1, 10, 1, 0, 20, 10, 20],
        &[1, 1, 1, 10, 20, 0, 20, 10],
        &[20, 1, 1, 1, 10, 20, 0, 10],
        &[1, 20, 1, 1, 20, 10, 10, 0],
    ])
}

fn mask(devices: &[u32]) -> DeviceMask {
    devices.iter().copied().collect()
}

#[test]
fn four_of_a_cube_mesh_come_from_one_island() {
    let table = hybrid_cube_mesh();
    assert_eq!(table.best(DeviceMask::first(8), 4), Some(mask(&[0, 1, 2, 3])));
    // By one ring {0, 1, 6, 7} is as fast as {4, 5, 6, 7}, and leaves a pair with a double link.
    assert_eq!(table.best(mask(&[0, 1, 4, 5, 6, 7]), 4), Some(mask(&[0, 1, 6, 7])));
    // Two of each island: nothing but PCIe closes the ring.
    assert_eq!(table.ring(mask(&[0, 1, 4, 5])), 1);
}

#[test]
fn a_pair_takes_a_double_link_and_leaves_the_rest_whole() {
    let table = hybrid_cube_mesh();
    let pair = table.best(DeviceMask::first(8), 2).unwrap();
    assert_eq!(table.ring(pair), 20);
}

#[test]
fn ring_order_visits_every_device_once_over_good_links() {
    let table = hybrid_cube_mesh();
    for bits in 0..256_u64 {
        let set = DeviceMask(bits);
        let order = table.ring_order(set);
        assert_eq!(order.iter().copied().collect::<DeviceMask>(), set);
        assert_eq!(order.len(), set.count() as usize);
        if order.len() > 1 {
            let around = order.iter().zip(order.iter().cycle().skip(1));
            let slowest = around.map(|(a, b)| table.cost.pair(*a, *b)).min();
            assert_eq!(slowest, Some(table.ring(set)), "{set}");
        }
    }
}

/// The table against every permutation.
#[test]
fn the_table_is_the_brute_force_optimum() {
    fn best_ring(cost: &ShapeCost, path: &mut Vec<u32>, rest: &mut Vec<u32>, slowest: u32) -> u32 {
        if rest.is_empty() {
            let close = cost.pair(path[0], path[path.len() - 1]);
            return slowest.min(close);
        }
        let mut best = 0;
        for i in 0..rest.len() {
            let next = rest.remove(i);
            let link = cost.pair(path[path.len() - 1], next);
            path.push(next);
            best = best.max(best_ring(cost, path, rest, slowest.min(link)));
            path.pop();
            rest.insert(i, next);
        }
        best
    }
    let table = hybrid_cube_mesh();
    for bits in 1..256_u64 {
        let devices: Vec<u32> = DeviceMask(bits).iter().collect();
        if devices.len() < 2 {
            continue;
        }
        let mut rest = devices[1..].to_vec();
        let expected = best_ring(&table.cost, &mut vec![devices[0]], &mut rest, u32::MAX);
        assert_eq!(table.ring(DeviceMask(bits)), expected, "{}", DeviceMask(bits));
    }
}

#[test]
fn an_unknown_shape_still_gives_devices() {
    let table = ShapeTable::build(&ShapeCost::default());
    assert_eq!(table.best(mask(&[3, 5, 7]), 2), Some(mask(&[3, 5])));
    assert_eq!(table.best(mask(&[3]), 2), None);
    assert_eq!(table.ring_order(mask(&[3, 5, 7, 9])), [3, 5, 7, 9]);
}

#[test]
fn subsets_are_all_and_distinct() {
    let sets: Vec<DeviceMask> = subsets(mask(&[1, 3, 4, 9, 60]), 3).collect();
    assert_eq!(sets.len(), 10);
    assert!(sets.iter().all(|s| s.count() == 3 && s.is_subset_of(mask(&[1, 3, 4, 9, 60]))));
}

/// Two islands of four: AMD's MI100 with xGMI bridges, or two PCIe switches.
fn two_islands() -> ShapeTable {
    let pair = |a: u32, b: u32| match (a == b, a / 4 == b / 4) {
        (true, _) => 0,
        (_, true) => 40,
        _ => 10,
    };
    let pair_mb_per_s = (0..8).flat_map(|a| (0..8).map(move |b| pair(a, b))).collect();
    ShapeTable::build(&ShapeCost { devices: 8, pair_mb_per_s, ..ShapeCost::default() })
}

/// The pair with a double link that was taken first, 0 and 6, broke both islands.
#[test]
fn a_pair_of_a_cube_mesh_leaves_a_whole_island() {
    let table = hybrid_cube_mesh();
    let all = DeviceMask::first(8);
    let pair = table.best(all, 2).unwrap();
    assert_eq!(table.ring(pair), 20);
    let islands = [mask(&[0, 1, 2, 3]), mask(&[4, 5, 6, 7])];
    assert!(islands.iter().any(|island| island.is_subset_of(all.minus(pair))), "{pair}");
}

/// With one device busy the whole island was broken, because the ring of all that was left is as slow either way.
#[test]
fn small_jobs_take_devices_of_the_broken_island() {
    let table = two_islands();
    for busy in 0..8 {
        let free = DeviceMask::first(8).minus(DeviceMask::one(busy));
        let broken = DeviceMask(0b1111 << (busy / 4 * 4));
        for count in 1..=3 {
            let set = table.best(free, count).unwrap();
            assert!(set.is_subset_of(broken), "{count} with {busy} busy: {set}");
            assert_eq!(table.best_spanning(free, count), Some(set));
        }
        assert_eq!(table.best(free, 4), Some(DeviceMask::first(8).minus(broken)));
    }
}

/// How many places of each size are left counts, not only the best of them.
#[test]
fn the_rest_is_worth_the_places_that_it_offers() {
    let table = two_islands();
    let worth = |devices: &[u32]| table.rest_ps(mask(devices));
    assert!(worth(&[0, 1, 2, 3, 4, 5]) < worth(&[0, 1, 2, 4, 5, 6]), "four in one island");
    assert!(worth(&[0, 1, 2, 3, 4, 5]) < worth(&[0, 1, 2, 3, 4]) + 1, "two pairs more");
    assert_eq!(worth(&[0, 1, 2]), worth(&[4, 6, 7]));
    assert!(worth(&[0, 1, 4]) < worth(&[0, 4]));
    let naive = |free: DeviceMask, size: u32| {
        // Every way to take places of one size after each other.
        fn least(table: &ShapeTable, free: DeviceMask, size: u32) -> u64 {
            let places = subsets(free, size).map(|set| {
                let ps = 2 * 1_000_000_000_000 * u64::from(size - 1) / u64::from(size);
                ps / u64::from(table.speed(set)) + least(table, free.minus(set), size)
            });
            if free.count() < size { 0 } else { places.min().unwrap_or(0) }
        }
        least(&table, free, size) / u64::from((free.count() / size).max(1))
    };
    for bits in 0..256 {
        let free = DeviceMask(bits);
        assert_eq!(table.rest_ps(free), naive(free, 2) + naive(free, 4), "{free}");
    }
}

#[test]
fn a_machine_whose_devices_are_alike_keeps_no_table() {
    let pair_mb_per_s = (0..256).map(|at| if at % 17 == 0 { 0 } else { 50_000 }).collect();
    let alike = ShapeTable::build(&ShapeCost { devices: 16, pair_mb_per_s, ..ShapeCost::default() });
    assert!(alike.rest_ps.is_empty());
    assert_eq!(alike.best(DeviceMask::first(16), 4), Some(DeviceMask::first(4)));
}

/// A prefill and a decode of four GPUs each lost half of their throughput where both had GPUs behind both PCIe roots: with
/// NVSwitch every pair is equally fast, and the lowest numbers went first.
#[test]
fn jobs_beside_each_other_have_pcie_roots_of_their_own() {
    let roots = [mask(&[0, 2, 4, 6]), mask(&[1, 3, 5, 7])];
    let pair_mb_per_s = (0..64).map(|at| if at % 9 == 0 { 0 } else { 400_000 }).collect();
    let cost = ShapeCost { devices: 8, pair_mb_per_s, groups: roots.to_vec(), ..ShapeCost::default() };
    let table = ShapeTable::build(&cost);
    let all = DeviceMask::first(8);
    let first = table.best(all, 4).unwrap();
    assert_eq!((first, table.best(all.minus(first), 4)), (roots[0], Some(roots[1])));
    // The root that is in use already is used up first.
    assert_eq!(table.best(all.minus(mask(&[1])), 2), Some(mask(&[3, 5])));
    assert_eq!(table.best_spanning(all.minus(mask(&[1])), 3), Some(mask(&[3, 5, 7])));
}
