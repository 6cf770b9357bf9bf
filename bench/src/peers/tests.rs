use phalanx_model::CostTable;

use super::ours::Ours;
use super::*;

/// One cluster, blocks of two leaves, leaves with so many free GPUs on each node.
fn cluster(leaves: &[&[u32]]) -> Cluster {
    let mut nodes = Vec::new();
    for (leaf, free) in leaves.iter().enumerate() {
        for node in 0..free.len() {
            let path = ["c".to_owned(), format!("b{}", leaf / 2), format!("l{leaf}")];
            nodes.push((format!("n{leaf}{node}"), path.to_vec()));
        }
    }
    let mut cluster = Cluster::new(&["cluster", "block", "leaf"], nodes);
    cluster.free = leaves.concat();
    cluster
}

fn ask(pods: u32, gpus: u32) -> Ask {
    Ask { pods, gpus, required: None, preferred: Some(2), slice: None }
}

fn placed(peer: Peer, cluster: &Cluster, ask: &Ask) -> Option<Placed> {
    let placed = peer.place(cluster, ask, &mut Rng(1));
    assert!(placed.as_ref().is_none_or(|placed| cluster.holds(placed, ask)), "{peer:?} {placed:?}");
    placed
}

#[test]
fn naive_takes_nodes_by_name() {
    let cluster = cluster(&[&[8, 0], &[4, 8]]);
    assert_eq!(placed(Peer::Naive, &cluster, &ask(3, 4)), Some(vec![(0, 2), (2, 1)]));
    assert_eq!(placed(Peer::Naive, &cluster, &ask(6, 4)), None, "all or nothing");
    assert_eq!(
        placed(Peer::Naive, &cluster, &Ask { required: Some(2), ..ask(3, 4) }),
        Some(vec![(2, 1), (3, 2)])
    );
}

#[test]
fn kueue_takes_the_tightest_domain_of_the_lowest_level_that_fits() {
    // Of the leaves that hold two nodes, the one with the least room.
    let one = cluster(&[&[8, 8, 8], &[8, 8, 0], &[0, 0, 8], &[8, 8, 8]]);
    assert_eq!(placed(Peer::Kueue, &one, &ask(2, 8)), Some(vec![(3, 1), (4, 1)]));
    // No leaf holds four: up to a block, the tightest; then the fullest leaf first and the tightest for the
    // rest.
    assert_eq!(placed(Peer::Kueue, &one, &ask(4, 8)), Some(vec![(8, 1), (9, 1), (10, 1), (11, 1)]));
    assert_eq!(placed(Peer::Kueue, &one, &Ask { required: Some(2), ..ask(4, 8) }), None);
    // Nothing holds all but the cluster.
    assert_eq!(placed(Peer::Kueue, &one, &ask(9, 8)).map(|p| p.len()), Some(9));
    assert_eq!(placed(Peer::Kueue, &one, &ask(10, 8)), None);
    // Slices of two nodes in a leaf: leaf 0 holds one of them, and leaf 2 none.
    let slice = Some(Slice { pods: 2, level: 2 });
    let two = placed(Peer::Kueue, &one, &Ask { slice, preferred: Some(0), ..ask(4, 8) }).unwrap();
    assert_eq!(two, [(0, 1), (1, 1), (3, 1), (4, 1)]);
    assert_eq!(placed(Peer::Kueue, &one, &Ask { slice, ..ask(8, 8) }), None);
}

#[test]
fn slurm_tree_fills_leaves_by_distance_then_fit() {
    let one = cluster(&[&[8, 8, 8], &[8, 0, 0], &[8, 8, 8], &[8, 8, 0]]);
    // The top switch is block 0, the first that covers four nodes; its largest leaf first, and then the rest.
    assert_eq!(placed(Peer::SlurmTree, &one, &ask(4, 8)), Some(vec![(0, 1), (1, 1), (2, 1), (3, 1)]));
    // Over both blocks: leaf 0 and its neighbour, though leaf 2 is larger, and then what holds the rest
    // tightest.
    let six = placed(Peer::SlurmTree, &one, &ask(6, 8)).unwrap();
    assert_eq!(six, [(0, 1), (1, 1), (2, 1), (3, 1), (9, 1), (10, 1)]);
}

#[test]
fn slurm_block_aggregates_by_powers_of_two() {
    let one = cluster(&[&[8, 8, 8], &[8, 8, 0], &[8, 8, 8], &[8, 0, 0]]);
    // Three nodes are one base block: that with the fewest free nodes that holds them.
    assert_eq!(placed(Peer::SlurmBlock, &one, &ask(3, 8)), Some(vec![(0, 1), (1, 1), (2, 1)]));
    // Four are two base blocks: the aligned pair with the fewest free nodes.
    assert_eq!(placed(Peer::SlurmBlock, &one, &ask(4, 8)), Some(vec![(6, 1), (7, 1), (8, 1), (9, 1)]));
    // Segments of two inside a base block.
    let slice = Some(Slice { pods: 2, level: 2 });
    let four = placed(Peer::SlurmBlock, &one, &Ask { slice, ..ask(4, 8) }).unwrap();
    assert_eq!(four, [(0, 1), (1, 1), (3, 1), (4, 1)]);
}

#[test]
fn bin_packing_takes_what_is_fullest() {
    let one = cluster(&[&[8, 8], &[4, 8], &[8, 2], &[8, 8]]);
    assert_eq!(placed(Peer::BinPack, &one, &ask(2, 4)), Some(vec![(4, 2)]));
    assert_eq!(placed(Peer::BinPack, &one, &ask(3, 4)), Some(vec![(2, 1), (3, 2)]));
}

#[test]
fn every_policy_places_whole_gangs_or_none() {
    let mut rng = Rng(3);
    for _ in 0..300 {
        let free: Vec<Vec<u32>> =
            (0..5).map(|_| (0..4).map(|_| [0, 1, 4, 7, 8][rng.below(5)]).collect()).collect();
        let free: Vec<&[u32]> = free.iter().map(Vec::as_slice).collect();
        let cluster = cluster(&free);
        let gpus = [1, 2, 4, 8][rng.below(4)];
        let ask = ask(rng.log_uniform(1, 64), gpus);
        let fits = cluster.free.iter().map(|free| free / gpus).sum::<u32>() >= ask.pods;
        for peer in Peer::ALL {
            assert_eq!(placed(peer, &cluster, &ask).is_some(), fits, "{peer:?} {ask:?}");
        }
        assert_eq!(cluster.fewest(2, &ask).is_some(), fits);
        let mut ours = Ours::new(&cluster, CostTable::default()).unwrap();
        let found = ours.place(&ask, 1 << 30).unwrap();
        assert_eq!(found.is_some(), fits, "{ask:?}");
        if let Some((id, found)) = found {
            assert!(cluster.holds(&found, &ask));
            assert!(cluster.crossed(2, &found) >= cluster.fewest(2, &ask).unwrap());
            ours.release(id, ask.pods).unwrap();
            assert!(ours.place(&ask, 1 << 30).unwrap().is_some(), "what is released is free again");
        }
    }
}
