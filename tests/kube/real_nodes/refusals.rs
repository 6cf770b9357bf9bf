//! A node that turns every pod away at admission, and stays ready.

use tokio::runtime::Runtime;

use super::{Site, plugin, real_job};
use crate::support::{JOBS, assert_disjoint};

#[test]
fn a_gang_leaves_a_node_whose_kubelet_refuses_its_pods() {
    let Some(mut site) = Site::of(2) else { return };
    let runtime = Runtime::new().unwrap();
    for at in 0..2 {
        runtime.block_on(plugin::serve(&site.node(at).kubelet_folder(), at == 0));
        site.until_offers(at, 8);
    }
    site.cluster.schedule(0);
    // Each fits either node; where both have room the first one is taken.
    site.cluster.create(JOBS, &real_job("pair", 2, 4, "sleep inf"));
    let pair = site.cluster.until("a gang that runs on the other node", |cluster| {
        let mut seats = cluster.seats();
        seats.retain(|seat| seat.gang == "pair" && seat.phase == "Running");
        (seats.len() == 2).then_some(seats)
    });
    assert_disjoint(&pair);
    assert!(pair.iter().all(|seat| seat.node.as_deref() == Some(site.node(1).name())), "{pair:?}");
    let refused = site.cluster.failures("pair");
    assert!((1..=4).contains(&refused), "{refused} pods were turned away");
}
