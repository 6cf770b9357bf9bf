//! Faults of ranks: one is killed, one is frozen, one is slowed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::record::Basis;
use super::ring::EVERY;
use super::scene::{Kept, Late, Plan, Scene};
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
pub(super) fn plan(step_ms: u64) -> Plan {
    Plan {
        nodes: Nodes::Declared(CLUSTER.to_owned()),
        queues: "",
        ranks: RANKS,
        devices: 8,
        step_ms,
        kept: Kept::default(),
    }
}

pub(super) fn is_killed(scene: &mut Scene) -> Result<(), String> {
    let pid = scene.pid(VICTIM)?;
    scene.inject(format!("sent SIGKILL to rank {VICTIM} (process {pid})"))?;
    scene.at_end(2, Late::FewAgain);
    scene.signal(VICTIM, Signal::SIGKILL)?;
    let stopping = scene.event("stopping", |_| true)?;
    scene.found.noticed(stopping.at.0);
    scene.runs_again(2)?;
    // Phalanx names the rank that ended first. Other ranks fail because this one is gone, and on a busy machine the end of one of
    // them may be seen first.
    let last = scene.last_event("stopping")?.detail;
    scene.found.check(0, last.contains("rank "), last);
    let (gang, pids) = (scene.gang()?, scene.pids()?);
    let are_new = !pids.contains(&pid);
    let found = format!("attempt {} runs with {} new processes", gang.attempt, pids.len());
    scene.found.check(1, gang.attempt == 2 && are_new, found);
    Ok(())
}

pub(super) fn is_frozen(scene: &mut Scene) -> Result<(), String> {
    scene.paced()?;
    scene.inject(format!("sent SIGSTOP to rank {VICTIM} (process {})", scene.pid(VICTIM)?))?;
    scene.at_end(1, Late::Stays);
    scene.signal(VICTIM, Signal::SIGSTOP)?;
    let stalls = stalls(scene);
    // The job can end only now, also if Phalanx has not reported it.
    scene.note(format!("sent SIGCONT to rank {VICTIM}"));
    scene.signal(VICTIM, Signal::SIGCONT)?;
    stalls?;
    let on = scene.event("stalled no more", |_| true)?;
    scene.found.check(2, true, format!("stalled no more {}", on.detail));
    Ok(())
}

fn stalls(scene: &mut Scene) -> Result<(), String> {
    let stalled = scene.event("stalled", |_| true)?;
    scene.found.noticed(stalled.at.0);
    let shown = scene.gang()?.progress.and_then(|progress| progress.stalled_since).is_some();
    scene.found.check(0, shown, format!("the job is shown as stalled: {}", stalled.detail));
    Ok(())
}

/// Of a period, the rank is stopped for the first time and runs for the second.
const STOPPED: Duration = Duration::from_millis(150);
const RUNS: Duration = Duration::from_millis(50);

pub(super) fn is_slowed(scene: &mut Scene) -> Result<(), String> {
    let victim = scene.pid(VICTIM)?;
    scene.paced()?;
    scene.inject(format!(
        "began to stop rank {VICTIM} (process {victim}) for {} of every {} ms by SIGSTOP and SIGCONT",
        STOPPED.as_millis(),
        (STOPPED + RUNS).as_millis()
    ))?;
    scene.at_end(1, Late::Stays);
    let is_over = AtomicBool::new(false);
    let seen = std::thread::scope(|threads| {
        threads.spawn(|| slow(victim, &is_over));
        let seen = scene.event("straggler", |detail| detail.starts_with(&format!("rank {VICTIM} ")));
        is_over.store(true, Ordering::SeqCst);
        seen
    })?;
    scene.found.noticed(seen.at.0);
    scene.note("let the rank run at full speed again");
    scene.found.check(0, true, seen.detail);
    scene.go_on(EVERY)
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
