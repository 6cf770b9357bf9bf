//! Gangs with roles: placed whenever there is a placement for all, and where the roles serve best.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod brute;
mod many;
mod named;
mod near;
mod together;

use brute::{Rng, agrees, best_worth, counts_agree, is_possible, judge, worth};
use phalanx_engine::Placer;

/// In a small cluster a gang with roles is placed exactly if there is a placement, and every placement meets the
/// request.
#[test]
fn a_place_for_all_roles_is_found_whenever_there_is_one() {
    let (mut found, mut none) = (0, 0);
    for seed in 0..15_000 {
        let mut rng = Rng(seed);
        let cluster = brute::cluster(&mut rng);
        let mut placer = Placer::new(&cluster.levels, cluster.nodes.clone(), &cluster.costs);
        let roles = rng.pick(&[1, 1, 1, 1, 1, 1, 1, 1, 2, 4]);
        let mut gang = brute::gang(&mut rng, &cluster, roles);
        if roles > 2 {
            gang.roles.iter_mut().for_each(|role| role.size = 1);
        }
        let place = placer.place(&gang);
        let expected = agrees(&cluster, &mut placer, &gang, seed);
        found += u32::from(expected);
        none += u32::from(!expected);
        assert_eq!(placer.place(&gang), place, "{seed}");
    }
    assert!(found > 4_000 && none > 4_000, "{found} found, {none} not");
}

/// The same if members of roles have to be together, role by role.
#[test]
fn a_place_for_roles_in_parts_is_found_whenever_there_is_one() {
    let (mut found, mut none, mut with_parts) = (0, 0, 0);
    for seed in 0..5_000 {
        let mut rng = Rng(seed);
        let cluster = brute::cluster(&mut rng);
        let mut placer = Placer::new(&cluster.levels, cluster.nodes.clone(), &cluster.costs);
        let roles = rng.pick(&[1, 1, 1, 2]);
        let mut gang = brute::gang(&mut rng, &cluster, roles);
        brute::in_parts(&mut rng, &mut gang);
        let place = placer.place(&gang);
        let expected = agrees(&cluster, &mut placer, &gang, seed);
        found += u32::from(expected);
        none += u32::from(!expected);
        let mut loose = gang.clone();
        loose.roles.iter_mut().for_each(|role| role.segments.clear());
        with_parts += u32::from(!expected && is_possible(&cluster, &loose));
        assert_eq!(placer.place(&gang), place, "{seed}");
    }
    assert!(
        found > 1_000 && none > 1_000 && with_parts > 60,
        "{found} found, {none} not, {with_parts} by parts"
    );
}

/// Servers without devices are placed so that the slowest has the most of its NICs, and then as near to the gang as
/// possible.
#[test]
fn servers_get_the_best_share_of_the_nics() {
    let mut judged = 0;
    for seed in 0..40_000 {
        let mut rng = Rng(seed);
        let cluster = brute::cluster(&mut rng);
        let mut gang = brute::gang(&mut rng, &cluster, 1);
        if gang.roles.len() != 1 || gang.roles[0].needs.devices > 0 || gang.traffic.is_none() {
            continue;
        }
        // Shared amounts of nodes and domains are dealt out in order, and count in no bandwidth.
        gang.topology.spread.clear();
        gang.roles[0].needs.named.clear();
        let mut placer = Placer::new(&cluster.levels, cluster.nodes.clone(), &cluster.costs);
        if placer.place(&gang).is_none() {
            continue;
        }
        let used = judge(&cluster, &gang, &placer.placement(&gang).unwrap()).unwrap();
        assert_eq!(worth(&cluster, &used), best_worth(&cluster, &gang, &used), "{seed}: {used:?}");
        judged += 1;
    }
    assert!(judged > 1_500, "{judged}");
}

/// The counts behind a reason say that the gang fits exactly if it does.
#[test]
fn counts_agree_with_places() {
    for seed in 0..6_000 {
        let mut rng = Rng(seed);
        let cluster = brute::cluster(&mut rng);
        let mut gang = brute::gang(&mut rng, &cluster, 1);
        gang.topology.required = None;
        counts_agree(&cluster, &gang, seed);
    }
}

/// The capacity that a gang with roles took is free again when the gang releases it.
#[test]
fn what_roles_take_they_give_back() {
    for seed in 0..5_000 {
        let mut rng = Rng(seed);
        let cluster = brute::cluster(&mut rng);
        let mut placer = Placer::new(&cluster.levels, cluster.nodes.clone(), &cluster.costs);
        let gang = brute::gang(&mut rng, &cluster, 1);
        let Some(first) = placer.place(&gang) else { continue };
        let shares: Vec<_> = placer.shares().collect();
        placer.take(&gang);
        placer.give_back(&gang, &shares);
        assert_eq!(placer.place(&gang), Some(first), "{seed}");
        assert_eq!(placer.shares().collect::<Vec<_>>(), shares, "{seed}");
    }
}

/// More roles than the search solves jointly: every result is valid, and no missing result is reported as impossible.
#[test]
fn more_roles_are_placed_or_not_denied() {
    let (mut found, mut missed) = (0, 0);
    for seed in 0..8_000 {
        let mut rng = Rng(seed);
        let cluster = brute::cluster(&mut rng);
        if cluster.nodes.len() > 2 {
            continue;
        }
        let mut gang = brute::gang(&mut rng, &cluster, 8);
        gang.topology.required = None;
        gang.roles.iter_mut().for_each(|role| role.size = 1);
        let mut placer = Placer::new(&cluster.levels, cluster.nodes.clone(), &cluster.costs);
        if placer.place(&gang).is_some() {
            found += 1;
            let placement = placer.placement(&gang).unwrap();
            judge(&cluster, &gang, &placement).unwrap_or_else(|why| panic!("{seed}: {why}; {gang:?}"));
        } else if is_possible(&cluster, &gang) {
            missed += 1;
            assert!(placer.most_that_fits(&gang, 0) >= gang.size, "{seed}: {gang:?}");
        }
    }
    assert!(found > 20 && missed > 0, "{found} found, {missed} missed");
}
