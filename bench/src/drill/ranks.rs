//! Faults of ranks: one is killed, one is frozen, one is slowed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::record::Basis;
use super::scene::{EVERY, Kept, Plan, Scene};
use crate::daemon::Nodes;

/// Four ranks with a node each, and a fifth node.
const CLUSTER: &str =
    "nodes:\n- {name: 'n[1-5]', devices: {count: 8, link: nvlink, model: NVIDIA H100 80GB HBM3}}\n";
const RANKS: u32 = 4;
/// The rank that suffers. Rank 0 reports the steps.
const VICTIM: u32 = 2;

pub(super) const BASIS: Basis = Basis {
    real: "the daemon, the ranks, their sockets, signals and checkpoints",
    declared: "5 nodes of 8 GPUs; all ranks run on this machine",
    emulated: "nothing",
};

/// A gang on declared nodes.
pub(super) fn plan(steps: u64, step_ms: u64) -> Plan {
    Plan {
        nodes: Nodes::Declared(CLUSTER.to_owned()),
        queues: "",
        ranks: RANKS,
        devices: 8,
        steps,
        step_ms,
        kept: Kept::default(),
    }
}

pub(super) fn is_killed(scene: &mut Scene) -> Result<(), String> {
    let pid = scene.pid(VICTIM)?;
    scene.inject(format!("sent SIGKILL to rank {VICTIM} (process {pid})"));
    scene.signal(VICTIM, Signal::SIGKILL)?;
    let stopping = scene.event("stopping")?;
    scene.noticed(stopping.at.0);
    // Other ranks end because this one is gone, and Phalanx may hear of them first.
    scene.check(0, stopping.detail.contains("rank "), stopping.detail);
    scene.runs_again(2)?;
    let (gang, pids) = (scene.gang()?, scene.pids()?);
    let are_new = !pids.contains(&pid);
    let found = format!("attempt {} runs with {} new processes", gang.attempt, pids.len());
    scene.check(1, gang.attempt == 2 && are_new, found);
    check_steps(scene, 2);
    Ok(())
}

/// Whether no more steps were lost than lie between two checkpoints.
pub(super) fn check_steps(scene: &mut Scene, number: usize) {
    let again = scene.steps_again();
    scene.check(number, again <= EVERY, format!("{again} steps were done again"));
}

/// Whether the gang still has its first attempt, its processes and its nodes.
pub(super) fn check_stays(scene: &mut Scene, number: usize, pids: &[Pid]) -> Result<(), String> {
    let (attempt, stays) = (scene.gang()?.attempt, scene.pids()? == pids);
    let found = format!(
        "attempt {attempt}, {} processes, on the same nodes",
        if stays { "the same" } else { "other" }
    );
    scene.check(number, attempt == 1 && stays, found);
    Ok(())
}

pub(super) fn is_frozen(scene: &mut Scene) -> Result<(), String> {
    scene.paced()?;
    let pids = scene.pids()?;
    scene.inject(format!("sent SIGSTOP to rank {VICTIM} (process {})", scene.pid(VICTIM)?));
    scene.signal(VICTIM, Signal::SIGSTOP)?;
    let stalls = stalls(scene, &pids);
    // The job can end only now, also if Phalanx has not reported it.
    scene.note(format!("sent SIGCONT to rank {VICTIM}"));
    scene.signal(VICTIM, Signal::SIGCONT)?;
    stalls?;
    let on = scene.event("stalled no more")?;
    scene.check(2, true, format!("stalled no more {}", on.detail));
    Ok(())
}

fn stalls(scene: &mut Scene, pids: &[Pid]) -> Result<(), String> {
    let stalled = scene.event("stalled")?;
    scene.noticed(stalled.at.0);
    let shown = scene.gang()?.progress.and_then(|progress| progress.stalled_since).is_some();
    scene.check(0, shown, format!("the job is shown as stalled: {}", stalled.detail));
    check_stays(scene, 1, pids)
}

/// Of a period, the rank is stopped for the first time and runs for the second.
const STOPPED: Duration = Duration::from_millis(150);
const RUNS: Duration = Duration::from_millis(50);

pub(super) fn is_slowed(scene: &mut Scene) -> Result<(), String> {
    let (pids, victim) = (scene.pids()?, scene.pid(VICTIM)?);
    scene.paced()?;
    scene.inject(format!(
        "began to stop rank {VICTIM} (process {victim}) for {} of every {} ms by SIGSTOP and SIGCONT",
        STOPPED.as_millis(),
        (STOPPED + RUNS).as_millis()
    ));
    let is_over = AtomicBool::new(false);
    let seen = std::thread::scope(|threads| {
        threads.spawn(|| slow(victim, &is_over));
        let seen = scene.event("straggler");
        is_over.store(true, Ordering::SeqCst);
        seen
    })?;
    scene.noticed(seen.at.0);
    scene.note("let the rank run at full speed again");
    scene.check(0, seen.detail.starts_with(&format!("rank {VICTIM} ")), seen.detail);
    scene.go_on(EVERY)?;
    check_stays(scene, 1, &pids)
}

/// Leaves the process running.
fn slow(pid: Pid, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        let stopped = kill(pid, Signal::SIGSTOP);
        std::thread::sleep(STOPPED);
        if kill(pid, Signal::SIGCONT).is_err() || stopped.is_err() {
            return;
        }
        std::thread::sleep(RUNS);
    }
}
