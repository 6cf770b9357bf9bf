//! Roles that must be on one node.

use std::collections::BTreeSet;

use phalanx_engine::Placer;
use phalanx_model::{Change, Gang, Input, JobId, Rejection, Topology};
use phalanx_testkit::{Watched, costs, gang, job, levels, node};

use super::brute::{self, Cluster, Rng, agrees, counts_agree, is_placed, is_possible};

/// A gang with roles of which some must be on one node, or two sets of them.
fn draw(rng: &mut Rng, cluster: &Cluster, roles: usize) -> Gang {
    let mut gang = brute::gang(rng, cluster, roles);
    let mut parties: Vec<u32> = (0..=u32::try_from(roles).unwrap()).filter(|_| rng.chance(60)).collect();
    let apart = if rng.chance(30) { parties.len() / 2 } else { 0 };
    let second = parties.split_off(apart);
    gang.topology.together = [parties, second].into_iter().filter(|set| !set.is_empty()).collect();
    gang
}

/// In a small cluster such a gang is placed exactly if there is a placement, and every placement meets the request.
#[test]
fn what_must_be_on_one_node_is_placed_whenever_there_is_a_place() {
    let (mut found, mut none, mut both) = (0, 0, 0);
    for seed in 0..10_000 {
        let mut rng = Rng(seed);
        let cluster = brute::cluster(&mut rng);
        let mut placer = Placer::new(&cluster.levels, cluster.nodes.clone(), &cluster.costs);
        let roles = rng.pick(&[1, 1, 1, 2, 2, 3]);
        let mut gang = draw(&mut rng, &cluster, roles);
        if roles > 2 {
            gang.roles.iter_mut().for_each(|role| role.size = role.size.min(2));
        } else if rng.chance(30) {
            brute::in_parts(&mut rng, &mut gang);
            let together: BTreeSet<u32> = gang.topology.together.iter().flatten().copied().collect();
            let others = (1..).zip(&mut gang.roles).filter(|(party, _)| together.contains(party));
            others.for_each(|(_, role)| role.segments.clear());
        }
        let expected = agrees(&cluster, &mut placer, &gang, seed);
        both += u32::from(expected && gang.roles.iter().any(|role| !role.segments.is_empty()));
        let topology = Topology { together: Vec::new(), ..gang.topology.clone() };
        let without = Gang { topology, ..gang };
        found += u32::from(expected);
        none += u32::from(!expected && is_possible(&cluster, &without));
    }
    assert!(
        found > 2_000 && none > 500 && both > 100,
        "{found} found, {none} not for that alone, {both} with parts"
    );
}

/// The counts behind a reason say that the gang fits exactly if it does.
#[test]
fn counts_agree_with_places_of_what_must_be_together() {
    for seed in 0..6_000 {
        let mut rng = Rng(seed);
        let cluster = brute::cluster(&mut rng);
        let mut gang = draw(&mut rng, &cluster, 1);
        gang.topology.required = None;
        counts_agree(&cluster, &gang, seed);
    }
}

/// More roles than the search solves jointly: every result is valid.
#[test]
fn many_roles_that_must_be_together_are_where_they_have_to_be() {
    let mut found = 0;
    for seed in 0..4_000 {
        let mut rng = Rng(seed);
        let cluster = brute::cluster(&mut rng);
        let mut gang = draw(&mut rng, &cluster, 9);
        gang.roles.iter_mut().for_each(|role| role.size = 1);
        let mut placer = Placer::new(&cluster.levels, cluster.nodes.clone(), &cluster.costs);
        found += u32::from(is_placed(&cluster, &mut placer, &gang, seed));
    }
    assert!(found > 50, "{found}");
}

/// Two pairs on two nodes, each of which would hold three of the four members.
#[test]
fn pairs_stay_together_beside_others() {
    let nodes: Vec<_> = ["a", "b"].map(|name| node(name).path(["all"]).gpus(4).cpus(16).build()).into();
    let mut placer = Placer::new(&levels(&["cluster"]), nodes.clone(), &costs(&nodes));
    let pair = |devices: u32| gang(1).devices(devices);
    let pairs =
        pair(3).role("a", pair(0).cpu_milli(9_000)).role("b", pair(3)).role("c", pair(0).cpu_milli(9_000));
    let gang = pairs.together([0, 1]).together([2, 3]).build();
    placer.place(&gang).unwrap();
    let slots = placer.placement(&gang).unwrap().slots;
    let at = |rank: usize| slots[rank].node.as_str();
    assert_eq!((at(0), at(2)), (at(1), at(3)), "{slots:?}");
    assert_ne!(at(0), at(2));
}

#[test]
fn what_is_no_role_is_refused_and_what_no_node_holds_too() {
    let of = |gang: Gang| {
        let nodes = ["a", "b"].map(|name| node(name).path(["all"]).gpus(4).cpus(16).build());
        let mut watched = Watched::with_nodes(&levels(&["cluster"]), &nodes);
        let out = watched.step(&[Input::JobSubmitted { job: Box::new(job(1, gang).build()) }]);
        out.changes.iter().find_map(|change| match change {
            Change::JobRejected { job: JobId(1), why } => Some(why.clone()),
            _ => None,
        })
    };
    let two = || gang(1).devices(3).role("other", gang(1).devices(3));
    assert_eq!(of(two().build()), None);
    assert!(
        matches!(of(two().together([0, 2]).build()), Some(Rejection::BadField { field, .. }) if field == "together")
    );
    assert!(matches!(of(two().together([0]).together([0]).build()), Some(Rejection::BadField { .. })));
    let in_parts = gang(1).devices(3).role("other", gang(2).devices(1).segment(2, "cluster"));
    assert!(
        matches!(of(in_parts.together([0, 1]).build()), Some(Rejection::BadField { field, .. }) if field == "roles.other.segments")
    );
    let refused = of(two().together([0, 1]).build());
    assert!(
        matches!(&refused, Some(Rejection::LargerThanCluster { where_, .. }) if where_.contains("must share a node")),
        "{refused:?}"
    );
}
