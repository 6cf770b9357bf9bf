//! Nodes that are lost, drained and tainted.

use std::time::Instant;

use serde_json::json;

use super::{Site, real_job, real_pod};
use crate::support::{JOBS, NODES, PODS, Seat, assert_disjoint};

/// The whole gang on other nodes than this one.
fn until_elsewhere(site: &Site, node: &str) -> Vec<Seat> {
    site.cluster.until(&format!("all of it, and none on {node}"), |cluster| {
        let mut seats = cluster.seats();
        seats.retain(|seat| {
            seat.gang == "ring" && seat.phase == "Running" && seat.node.as_deref() != Some(node)
        });
        (seats.len() == 2).then_some(seats)
    })
}

#[test]
fn a_gang_outlives_a_kubelet_that_stops_a_drain_and_a_taint() {
    let Some(mut site) = Site::of(3) else { return };
    site.serve_all();
    site.cluster.schedule(0);
    site.cluster.create(JOBS, &real_job("ring", 2, 8, "sleep inf"));
    let before = site.cluster.until_runs("ring", 2);
    let (lost, node) = (before[1].name.clone(), before[1].node.clone().unwrap());
    let at = site.place(&node);

    // Its kubelet is gone: the pod is evicted and stays on its way out.
    site.cluster.plane.stop_kubelet(at);
    site.cluster.until("its pod on its way out", |cluster| {
        let pod = cluster.api().get(&format!("{PODS}/{lost}")).unwrap();
        pod["metadata"]["deletionTimestamp"].is_string().then_some(())
    });
    // The Job controller waits before it makes a pod in the place of one that failed.
    site.cluster.until("a pod in its stead", |cluster| {
        let seats = cluster.seats();
        let others = seats.iter().filter(|seat| seat.gang == "ring" && seat.name != lost);
        (others.count() >= 2).then_some(())
    });
    let began = Instant::now();
    assert_disjoint(&until_elsewhere(&site, &node));
    println!("running elsewhere {:.1} s after its pod was replaced", began.elapsed().as_secs_f64());

    // Its kubelet is back: what it still ran ends, and the node has room again.
    site.cluster.plane.start_kubelet(at).unwrap();
    site.until_offers(at, 8);
    site.cluster.until("an end of the lost pod", |cluster| {
        cluster.api().get(&format!("{PODS}/{lost}")).err().map(|_| ())
    });

    // As `kubectl drain` does.
    let ring = until_elsewhere(&site, &node);
    let (drained, name) = (ring[0].node.clone().unwrap(), ring[0].name.clone());
    let cordon = |on: bool| json!({ "spec": { "unschedulable": on } });
    site.cluster.api().patch(&format!("{NODES}/{drained}"), &cordon(true)).unwrap();
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
    site.cluster.create(&format!("{PODS}/{name}/eviction"), &eviction);
    assert_disjoint(&until_elsewhere(&site, &drained));
    site.cluster.api().patch(&format!("{NODES}/{drained}"), &cordon(false)).unwrap();

    // A taint of an operator, which the gang does not tolerate.
    let ring = until_elsewhere(&site, &drained);
    let tainted = ring[0].node.clone().unwrap();
    let taint = json!({ "spec": { "taints": [{ "key": "example.com/broken", "effect": "NoExecute" }] } });
    site.cluster.api().patch(&format!("{NODES}/{tainted}"), &taint).unwrap();
    assert_disjoint(&until_elsewhere(&site, &tainted));
    let job = site.cluster.api().get(&format!("{JOBS}/ring")).unwrap();
    assert_eq!(job["spec"]["suspend"], false, "{job:#}");

    // Nothing of it holds anything once it is gone.
    let none = json!({ "spec": { "taints": null } });
    site.cluster.api().patch(&format!("{NODES}/{tainted}"), &none).unwrap();
    site.cluster.api().delete(&format!("{JOBS}/ring?propagationPolicy=Background")).unwrap();
    site.cluster.create(JOBS, &real_job("all", 3, 8, "sleep inf"));
    assert_disjoint(&site.cluster.until_runs("all", 3));
    site.cluster.create(PODS, &real_pod("more", 1, "sleep inf"));
    site.cluster.until_explained("more", "needs");
}
