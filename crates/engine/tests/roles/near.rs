//! Gangs that are to be near to nodes.

use phalanx_engine::Placer;
use phalanx_model::{Gang, NodeName};

use super::brute::{self, Cluster, Rng, is_possible, judge};

/// Levels between a node and the nearest of these nodes; 0 if the node is one of them.
fn distance(cluster: &Cluster, node: usize, near: &[NodeName]) -> usize {
    if near.contains(&cluster.nodes[node].name) {
        return 0;
    }
    let shared = |other: usize| {
        let levels = cluster.levels.above.iter();
        levels.take_while(|level| cluster.domain(node, level) == cluster.domain(other, level)).count()
    };
    let others = (0..cluster.nodes.len()).filter(|other| near.contains(&cluster.nodes[*other].name));
    cluster.levels.above.len() + 1 - others.map(shared).max().unwrap_or(0)
}

/// The gang starts exactly if it would without the rule, and no nearer placement holds it.
#[test]
fn what_is_to_be_near_is_as_near_as_it_can_be() {
    let (mut moved, mut kept) = (0, 0);
    for seed in 0..8_000 {
        let mut rng = Rng(seed);
        let cluster = brute::cluster(&mut rng);
        let mut placer = Placer::new(&cluster.levels, cluster.nodes.clone(), &cluster.costs);
        let anywhere = brute::gang(&mut rng, &cluster, 0);
        let mut near: Vec<NodeName> =
            cluster.nodes.iter().filter(|_| rng.chance(30)).map(|node| node.name.clone()).collect();
        near.push(NodeName::new("unknown").unwrap());
        let mut gang = anywhere.clone();
        gang.topology.near.clone_from(&near);
        let places = |placer: &mut Placer, gang: &Gang| {
            placer.place(gang)?;
            let placement = placer.placement(gang)?;
            Some(judge(&cluster, gang, &placement).unwrap_or_else(|why| panic!("{seed}: {why}; {gang:?}")))
        };
        let (before, after) = (places(&mut placer, &anywhere), places(&mut placer, &gang));
        assert_eq!(before.is_some(), after.is_some(), "{seed}: {gang:?}");
        let Some(used) = after else { continue };
        let nodes = (0..cluster.nodes.len()).filter(|node| used[*node][0] > 0);
        let farthest = nodes.map(|node| distance(&cluster, node, &near)).max().unwrap();
        let mut nearer = anywhere;
        let too_far = (0..cluster.nodes.len()).filter(|node| distance(&cluster, *node, &near) >= farthest);
        nearer.needs.avoid.extend(too_far.map(|node| cluster.nodes[node].name.clone()));
        assert!(!is_possible(&cluster, &nearer), "{seed}: {farthest} is not the nearest for {gang:?}");
        moved += u32::from(before.as_ref() != Some(&used));
        kept += u32::from(before.as_ref() == Some(&used));
    }
    assert!(moved > 300 && kept > 300, "{moved} moved, {kept} stayed");
}
