//! Faults of Phalanx itself: its scheduler is killed, the agent of a node is killed.

use super::cluster::GPUS;
use super::hardware::{ends, probe};
use super::scene::{Late, RANKS, Scene};
use super::seen::Pod;
use crate::drill::ring::{EVERY, now_ms};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/phalanx-scheduler";

/// Who leads, as the Lease has it.
fn leader(scene: &Scene<'_>) -> Option<String> {
    scene.cluster.get(LEASE).ok()?["spec"]["holderIdentity"].as_str().map(str::to_owned)
}

/// Starts the scheduler again, and waits until it leads.
fn leads_again(scene: &mut Scene<'_>, before: Option<&String>) -> Result<(), String> {
    scene.note("started the scheduler again");
    scene.cluster.schedule()?;
    let leader = scene.until("a new leader", || {
        leader(scene).filter(|leader| !leader.is_empty() && Some(leader) != before)
    })?;
    scene.shown("kubectl get lease -n kube-system phalanx-scheduler", format!("holderIdentity: {leader}"));
    Ok(())
}

/// Waits for steps without Phalanx, or a part of it.
fn steps_without(scene: &mut Scene<'_>, number: usize, what: &str) -> Result<(), String> {
    let before = scene.step();
    scene.go_on(2 * EVERY)?;
    let found = format!("steps {before} to {} were completed without {what}", scene.step());
    scene.found.check(number, true, found);
    Ok(())
}

pub(super) fn scheduler_is_killed(scene: &mut Scene<'_>) -> Result<(), String> {
    let before = leader(scene);
    scene.inject("sent SIGKILL to the scheduler");
    scene.at_end(1, Late::Stays);
    scene.at_end(2, Late::NoneAgain);
    scene.cluster.kill_scheduler()?;
    steps_without(scene, 0, "a scheduler")?;
    leads_again(scene, before.as_ref())?;
    // Only the third node has so many.
    probe(scene, u32::try_from(GPUS).unwrap_or(u32::MAX), None)?;
    let place = ends(scene)?;
    let is_free = !scene.gang()?.iter().any(|pod| place.starts_with(pod.node.as_deref().unwrap_or_default()));
    scene.found.check(3, is_free, format!("it ran on {place}"));
    scene.go_on(EVERY)
}

pub(super) fn scheduler_is_killed_while_it_binds(scene: &mut Scene<'_>) -> Result<(), String> {
    let before = leader(scene);
    scene.until_first_bound()?;
    // Every millisecond counts: it binds the pods one right after another.
    let at = now_ms();
    scene.cluster.kill_scheduler()?;
    scene.inject_at(at, "sent SIGKILL to the scheduler as soon as the first pod had a node");
    let bound = scene.pods()?.iter().filter(|pod| pod.node.is_some()).count();
    scene.note(format!("{bound} of {RANKS} pods had a node when the scheduler had ended"));
    leads_again(scene, before.as_ref())?;
    let gang = scene.runs_again("after the first start", |_| true)?;
    let places: Vec<String> = gang.iter().map(Pod::place).collect();
    let found = format!("{bound} of {RANKS} pods had a node; now all run on {}", places.join("; "));
    scene.found.check(0, true, found);
    scene.begin()
}

pub(super) fn agent_is_killed(scene: &mut Scene<'_>) -> Result<(), String> {
    let node = scene.victim()?.node.unwrap_or_default();
    let at = scene.cluster.number(&node)?;
    scene.inject(format!("sent SIGKILL to the agent of {node}"));
    scene.at_end(1, Late::Stays);
    scene.at_end(2, Late::NoneAgain);
    scene.cluster.kill_agent(at)?;
    let offers = scene.until("a kubelet that misses the device plugin", || {
        scene.cluster.offers(at).filter(|gpus| *gpus < GPUS)
    })?;
    let from = format!("kubectl get node {node} -o json");
    scene.found.quote(
        from.clone(),
        Some(now_ms()),
        format!("nvidia.com/gpu: {offers} in status.allocatable"),
    );
    steps_without(scene, 0, "the agent")?;
    scene.note("started the agent again");
    scene.cluster.serve(at)?;
    scene.cluster.until_offers(at, GPUS)?;
    let found = format!("nvidia.com/gpu: {GPUS} in status.allocatable of {node}");
    scene.shown(&from, found.clone());
    scene.found.check(3, true, found);
    scene.go_on(EVERY)
}
