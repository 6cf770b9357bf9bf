//! Faults of pods: the rank of one is killed, one is deleted.

use nix::sys::signal::Signal;

use super::cluster::PODS;
use super::scene::{Late, Scene, VICTIM};
use super::seen::Pod;

pub(super) fn rank_is_killed(scene: &mut Scene<'_>) -> Result<(), String> {
    let victim = scene.victim()?;
    let pid = Scene::pid(&victim)?;
    scene
        .inject(format!("sent SIGKILL to rank {VICTIM} (process {pid} in the container of {})", victim.name));
    Scene::signal(pid, Signal::SIGKILL)?;
    let path = format!("{PODS}/{}", victim.name);
    scene.until("its pod to fail", || {
        let pod = Pod::of(&scene.cluster.get(&path).ok()?)?;
        (pod.phase == "Failed").then_some(())
    })?;
    scene.shown("kubectl get pods", format!("{}: Failed", victim.name));
    is_replaced(scene, &victim)
}

pub(super) fn is_deleted(scene: &mut Scene<'_>) -> Result<(), String> {
    let victim = scene.victim()?;
    scene.inject(format!("deleted the pod {} of rank {VICTIM}, as `kubectl delete pod` does", victim.name));
    scene.cluster.delete(&format!("{PODS}/{}", victim.name))?;
    scene.shown("kubectl get pods", format!("{}: Terminating", victim.name));
    is_replaced(scene, &victim)
}

/// The Job makes another pod of the rank.
fn is_replaced(scene: &mut Scene<'_>, lost: &Pod) -> Result<(), String> {
    scene.at_end(1, Late::OthersStay(VICTIM));
    scene.at_end(2, Late::FewAgain);
    let gang = scene.runs_again("with a new pod", |pod| pod.uid != lost.uid)?;
    let new = gang.iter().find(|pod| pod.rank == VICTIM).ok_or("the rank has no pod")?;
    let found = format!("{} was on {}, {} is on {}", lost.name, lost.place(), new.name, new.place());
    scene.found.check(0, new.place() == lost.place(), found);
    Ok(())
}
