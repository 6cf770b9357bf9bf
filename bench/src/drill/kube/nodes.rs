//! Faults of nodes: the kubelet of one stops, one is drained, one is tainted.

use serde_json::json;

use super::cluster::{GPUS, JOBS, PODS, is_ready, node_path};
use super::scene::{Late, Scene};
use super::seen::Pod;

/// The node of the pod that suffers: its number and its name.
fn victim(scene: &Scene<'_>) -> Result<(usize, String), String> {
    let node = scene.victim()?.node.unwrap_or_default();
    Ok((scene.cluster.number(&node)?, node))
}

/// Waits until the gang runs without a node.
fn leaves(scene: &mut Scene<'_>, number: usize, node: &str) -> Result<(), String> {
    let gang = scene.runs_again(&format!("without {node}"), |pod| pod.node.as_deref() != Some(node))?;
    let places: Vec<String> = gang.iter().map(Pod::place).collect();
    scene.found.check(number, true, format!("the gang runs on {}", places.join("; ")));
    Ok(())
}

pub(super) fn kubelet_stops(scene: &mut Scene<'_>) -> Result<(), String> {
    let (at, node) = victim(scene)?;
    let lost: Vec<Pod> =
        scene.before.iter().filter(|pod| pod.node.as_ref() == Some(&node)).cloned().collect();
    scene.inject(format!("killed the kubelet of {node}; its containers go on"));
    scene.at_end(2, Late::FewAgain);
    scene.cluster.plane.stop_kubelet(at);
    scene.until("the node is not ready", || (!is_ready(&scene.cluster.node(at).ok()?)).then_some(()))?;
    scene.shown("kubectl get nodes", format!("{node}: NotReady"));
    scene.found.check(0, true, format!("the condition Ready of {node} is not True"));
    leaves(scene, 1, &node)?;
    scene.note("started the kubelet again");
    scene.cluster.plane.start_kubelet(at).map_err(|e| e.to_string())?;
    let is_there = |pod: &Pod| {
        let now = scene.cluster.get(&format!("{PODS}/{}", pod.name)).ok();
        now.and_then(|now| Pod::of(&now)).is_some_and(|now| now.uid == pod.uid && !now.is_over())
    };
    scene.until("the end of the lost pods", || (!lost.iter().any(is_there)).then_some(()))?;
    scene.cluster.until_offers(at, GPUS)?;
    let names: Vec<&str> = lost.iter().map(|pod| pod.name.as_str()).collect();
    scene.found.check(3, true, format!("{} ended; {node} offers {GPUS} GPUs", names.join(" and ")));
    Ok(())
}

pub(super) fn is_drained(scene: &mut Scene<'_>) -> Result<(), String> {
    let (_, node) = victim(scene)?;
    scene.inject(format!("cordoned {node} and evicted its pods, as `kubectl drain` does"));
    scene.at_end(1, Late::FewAgain);
    scene.cluster.patch(&node_path(&node), &json!({ "spec": { "unschedulable": true } }))?;
    let there: Vec<String> = scene
        .before
        .iter()
        .filter(|pod| pod.node.as_ref() == Some(&node))
        .map(|pod| pod.name.clone())
        .collect();
    for pod in &there {
        let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod } });
        scene.cluster.post(&format!("{PODS}/{pod}/eviction"), &eviction)?;
    }
    scene.shown("kubectl get pods", format!("{}: Terminating", there.join(", ")));
    leaves(scene, 0, &node)?;
    let failed = scene.cluster.get(&format!("{JOBS}/{}", scene.job()))?["status"]["failed"].as_u64();
    let failed = failed.unwrap_or_default();
    let found = format!("{failed} in status.failed of the Job, {} pods were evicted", there.len());
    scene.found.check(2, failed <= there.len() as u64, found);
    scene.note("uncordoned the node");
    scene.cluster.patch(&node_path(&node), &json!({ "spec": { "unschedulable": null } }))
}

pub(super) fn is_tainted(scene: &mut Scene<'_>) -> Result<(), String> {
    let (_, node) = victim(scene)?;
    scene.inject(format!(
        "gave {node} the taint example.com/broken:NoExecute, which the gang does not tolerate"
    ));
    scene.at_end(1, Late::FewAgain);
    let taint = json!({ "spec": { "taints": [{ "key": "example.com/broken", "effect": "NoExecute" }] } });
    scene.cluster.patch(&node_path(&node), &taint)?;
    let victim = format!("{PODS}/{}", scene.victim()?.name);
    scene.until("the eviction of the pods", || match scene.cluster.get(&victim) {
        Ok(pod) => Pod::of(&pod)?.is_leaving.then_some(()),
        Err(_) => Some(()),
    })?;
    scene.shown("kubectl get pods", format!("the pods on {node}: Terminating"));
    leaves(scene, 0, &node)?;
    scene.note("removed the taint");
    scene.cluster.patch(&node_path(&node), &json!({ "spec": { "taints": null } }))
}
