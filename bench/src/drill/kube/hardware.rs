//! Faults of GPUs: one is gone, or the kernel log of its node reports an Xid.

use phalanx_health::Action;
use phalanx_model::DeviceMask;
use serde_json::{Value, json};

use super::cluster::{GPUS, IMAGE, JOBS, PODS};
use super::scene::{Late, Scene};
use super::seen::Pod;
use crate::drill::hardware::xid_of;
use crate::drill::ring::EVERY;

/// A job beside the gang.
const PROBE: &str = "probe";

/// A GPU of the pod that suffers: the number of its node, and its own. It has no health yet: one that was cleared is on probation.
fn victim(scene: &Scene<'_>) -> Result<(usize, u32), String> {
    let victim = scene.victim()?;
    let node = scene.cluster.number(victim.node.as_deref().unwrap_or_default())?;
    let topology = scene.cluster.topology(node)?;
    let is_ok = |gpu: &u32| topology["spec"]["devices"][*gpu as usize]["health"].is_null();
    Ok((node, gpus(&victim).and_then(|gpus| gpus.iter().find(is_ok)).ok_or("the rank has no healthy GPU")?))
}

fn gpus(pod: &Pod) -> Option<DeviceMask> {
    pod.devices.as_ref()?.parse().ok()
}

/// Waits until the gang runs without a GPU.
fn leaves(scene: &mut Scene<'_>, number: usize, at: usize, gpu: u32) -> Result<Vec<Pod>, String> {
    let node = scene.cluster.name(at).to_owned();
    let uses =
        |pod: &Pod| pod.node.as_ref() == Some(&node) && gpus(pod).is_some_and(|gpus| gpus.contains(gpu));
    let gang = scene.runs_again(&format!("without GPU {gpu} of {node}"), |pod| !uses(pod))?;
    let places: Vec<String> = gang.iter().map(Pod::place).collect();
    scene.found.check(number, !gang.iter().any(uses), format!("the gang runs on {}", places.join("; ")));
    Ok(gang)
}

fn offers(scene: &mut Scene<'_>, number: usize, at: usize, gpus: usize) -> Result<(), String> {
    scene.cluster.until_offers(at, gpus)?;
    let node = scene.cluster.name(at).to_owned();
    let found = format!("{node}: nvidia.com/gpu: {gpus} in status.allocatable");
    scene.shown(&format!("kubectl get node {node} -o json"), found.clone());
    scene.found.check(number, true, found);
    Ok(())
}

pub(super) fn gpu_is_lost(scene: &mut Scene<'_>) -> Result<(), String> {
    let (at, gpu) = victim(scene)?;
    let node = scene.cluster.name(at).to_owned();
    scene.inject(format!("took GPU {gpu} of {node} out of what its agent finds"));
    scene.at_end(2, Late::FewAgain);
    scene.cluster.describe(at, Some(gpu))?;
    offers(scene, 0, at, GPUS - 1)?;
    leaves(scene, 1, at, gpu)?;
    scene.note("put the GPU back");
    scene.cluster.describe(at, None)?;
    scene.until("an agent that finds the GPU again", || {
        let topology = scene.cluster.topology(at).ok()?;
        (topology["spec"]["devices"][gpu as usize]["unhealthy"] != true).then_some(())
    })?;
    clear(scene, &node, gpu)?;
    offers(scene, 3, at, GPUS)
}

/// An operator says that a GPU is repaired.
fn clear(scene: &mut Scene<'_>, node: &str, gpu: u32) -> Result<(), String> {
    let gpu = format!("{node}:{gpu}");
    scene.note(format!("cleared the GPU with `phalanx health clear {gpu}`"));
    scene.cluster.phalanx(&["health", "clear", &gpu]).map(drop)
}

/// Waits until the agent of a node has graded a GPU so; says why.
fn graded(scene: &mut Scene<'_>, at: usize, gpu: u32, grade: &str) -> Result<String, String> {
    let node = scene.cluster.name(at).to_owned();
    let health = scene.until(&format!("the grade {grade} of GPU {gpu} of {node}"), || {
        let health = scene.cluster.topology(at).ok()?["spec"]["devices"][gpu as usize]["health"].take();
        (health["grade"] == grade).then_some(health)
    })?;
    let why = health["reason"].as_str().unwrap_or_default().to_owned();
    let found = format!("GPU {gpu} of {node} is graded {grade}: {why}");
    scene.shown(&format!("kubectl get nodetopology {node} -o json"), found.clone());
    Ok(found)
}

fn log(scene: &mut Scene<'_>, action: Action) -> Result<(usize, u32), String> {
    let (at, gpu) = victim(scene)?;
    let (xid, node) = (xid_of(action), scene.cluster.name(at).to_owned());
    scene.inject(format!("wrote Xid {xid} of GPU {gpu} into the kernel log that the agent of {node} reads"));
    scene.cluster.log_xid(at, gpu, xid)?;
    Ok((at, gpu))
}

pub(super) fn gpu_is_watched(scene: &mut Scene<'_>) -> Result<(), String> {
    let (at, gpu) = log(scene, Action::Watch)?;
    scene.at_end(1, Late::Stays);
    let found = graded(scene, at, gpu, "Suspect")?;
    scene.found.check(
        0,
        scene.cluster.offers(at) == Some(GPUS),
        format!("{found}; its kubelet offers {GPUS}"),
    );
    scene.go_on(2 * EVERY)
}

pub(super) fn gpu_breaks(scene: &mut Scene<'_>) -> Result<(), String> {
    let (at, gpu) = log(scene, Action::Broken)?;
    scene.at_end(2, Late::FewAgain);
    let found = graded(scene, at, gpu, "Broken")?;
    scene.found.check(0, true, found);
    let gang = leaves(scene, 1, at, gpu)?;
    offers(scene, 3, at, GPUS - 1)?;
    // All that the gang has left of the node.
    let node = scene.cluster.name(at).to_owned();
    let held: u32 = gang
        .iter()
        .filter(|pod| pod.node.as_ref() == Some(&node))
        .filter_map(gpus)
        .map(|of| of.count())
        .sum();
    let wanted = u32::try_from(GPUS).unwrap_or(u32::MAX) - held;
    probe(scene, wanted, Some(&node))?;
    let why = waits(scene)?;
    clear(scene, &node, gpu)?;
    let place = ends(scene)?;
    scene.found.check(
        4,
        true,
        format!("it waited for {wanted} GPUs of {node} ({why}), and then ran on {place}"),
    );
    Ok(())
}

/// Creates a job of one pod with so many GPUs, of one node if that is named, which ends at once.
pub(super) fn probe(scene: &mut Scene<'_>, gpus: u32, node: Option<&str>) -> Result<(), String> {
    let selector = node.map_or_else(|| json!({}), |node| json!({ "kubernetes.io/hostname": node }));
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": PROBE },
        "spec": { "completions": 1, "parallelism": 1, "completionMode": "Indexed", "template": { "spec": {
            "schedulerName": "phalanx", "restartPolicy": "Never", "nodeSelector": selector,
            "containers": [{ "name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/true"],
                "resources": { "limits": { "nvidia.com/gpu": gpus.to_string() } } }],
        } } },
    });
    scene.cluster.post(JOBS, &job)?;
    scene.note(format!("created another job, of one pod with {gpus} GPUs"));
    Ok(())
}

fn pods_of_probe(scene: &Scene<'_>) -> Vec<Value> {
    let list = scene.cluster.get(&format!("{PODS}?labelSelector=job-name%3D{PROBE}")).unwrap_or_default();
    list["items"].as_array().cloned().unwrap_or_default()
}

/// Waits until the other job has a reason why it waits.
fn waits(scene: &Scene<'_>) -> Result<String, String> {
    scene.cluster.wait("a reason why the other job waits", || {
        let pod = pods_of_probe(scene).into_iter().next()?;
        let conditions = pod["status"]["conditions"].as_array()?;
        let waits =
            conditions.iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "False")?;
        waits["message"].as_str().map(str::to_owned)
    })
}

/// Waits until the other job has ended well, and says where it ran.
pub(super) fn ends(scene: &Scene<'_>) -> Result<String, String> {
    scene.cluster.wait("the end of the other job", || {
        let pods = pods_of_probe(scene);
        pods.iter().filter_map(Pod::of).find(|pod| pod.phase == "Succeeded").map(|pod| pod.place())
    })
}
