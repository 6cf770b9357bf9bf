//! Proactive migration of a gang of real processes.
//!
//! The nodes are declared, and each is a network namespace of this machine with a link to a switch. The link of one node is
//! degraded with `tc`, reported, and cut some seconds later. With migration the gang has left the node by then; without, it
//! hangs, and loses its work since the last checkpoint. The reports are made by the benchmark, in place of a monitor of the fabric.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use phalanx_model::{Grade, JobId};

use crate::daemon::{Daemon, beside, job, word};
use crate::network::{Network, is_possible};

const CLUSTER: &str = "nodes:\n- {name: 'n[1-3]', devices: {count: 8, model: Bench GPU}}\n";
const NODES: usize = 3;
const RANKS: u32 = 2;
/// From the degradation of a link until it is cut.
const CUT_AFTER: Duration = Duration::from_secs(8);
/// Until somebody reports a link that was cut.
const NOTICED_AFTER: Duration = Duration::from_millis(500);

#[derive(serde::Serialize)]
pub(super) struct Migration {
    migrates: bool,
    runs: usize,
    /// Steps that the job does again, at most.
    steps_again: u64,
    /// Without a completed step: from the last one before its stop to the first one after its restart. From the least to the
    /// most.
    paused_s: Vec<f64>,
    median_s: f64,
    /// Time of a step before the degradation, and after it, in milliseconds; the median of all runs.
    step_ms: [f64; 2],
}

impl fmt::Display for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { migrates, runs, steps_again, paused_s, median_s, step_ms: [before, degraded] } = self;
        let with = if *migrates { "with" } else { "without" };
        let (least, most) =
            (paused_s.first().copied().unwrap_or_default(), paused_s.last().copied().unwrap_or_default());
        write!(
            f,
            "a link is degraded (a step takes {degraded:.0} ms, and {before:.0} ms before) and cut {} s later, {with} migration, \
             {runs} runs: at most {steps_again} steps done again; no step for {median_s:.2} s ({least:.2} to {most:.2})",
            CUT_AFTER.as_secs()
        )
    }
}

/// `None` where network namespaces cannot be made.
pub(super) fn measure(migrates: bool, runs: usize) -> Result<Option<Migration>, String> {
    if !is_possible() {
        return Ok(None);
    }
    let measured: Vec<Run> = (0..runs).map(|_| one_run(migrates)).collect::<Result<_, _>>()?;
    let sorted = |of: fn(&Run) -> f64| {
        let mut all: Vec<f64> = measured.iter().map(of).collect();
        all.sort_unstable_by(f64::total_cmp);
        all
    };
    let median = |all: &[f64]| all.get(all.len() / 2).copied().unwrap_or_default();
    let paused_s = sorted(|run| run.paused_s);
    Ok(Some(Migration {
        migrates,
        runs,
        steps_again: measured.iter().map(|run| run.steps_again).max().unwrap_or_default(),
        median_s: median(&paused_s),
        paused_s,
        step_ms: [median(&sorted(|run| run.step_ms)), median(&sorted(|run| run.degraded_ms))],
    }))
}

struct Run {
    steps_again: u64,
    paused_s: f64,
    step_ms: f64,
    degraded_ms: f64,
}

fn one_run(migrates: bool) -> Result<Run, String> {
    let network = Network::build(NODES)?;
    let when = if migrates { "always" } else { "never" };
    let daemon = Daemon::start(CLUSTER, &format!("migration: {{when: {when}}}\n"))?;
    let id = daemon.submit(job(RANKS, &script(&daemon, &network)?)?)?;
    let before = daemon.until("the gang runs", || daemon.nodes(id, 1))?;
    let (_, leaves) = before.last().ok_or("the gang has no ranks")?;
    let begun = reach(&daemon, id, 1, 20)?;
    let step_ms = ms_per(20, begun, reach(&daemon, id, 1, 40)?);
    network.degrade(leaves)?;
    let (degraded_at, step) = (Instant::now(), step_of(&daemon, id, 1));
    let degraded_ms = ms_per(3, degraded_at, reach(&daemon, id, 1, step + 3)?);
    daemon.report(leaves, Grade::DrainAfterJob, "its link is degraded")?;
    let mut last = (step_of(&daemon, id, 1), Instant::now());
    let (mut is_cut, mut is_reported) = (false, false);
    let (first, goes_on) = daemon.until("the gang goes on", || {
        let step = step_of(&daemon, id, 1);
        if step > last.0 {
            last = (step, Instant::now());
        }
        if !is_cut && degraded_at.elapsed() >= CUT_AFTER {
            is_cut = true;
            if let Err(why) = network.cut(leaves) {
                return Some((0, Err(why)));
            }
        }
        if is_cut && !is_reported && degraded_at.elapsed() >= CUT_AFTER + NOTICED_AFTER {
            is_reported = true;
            if let Err(why) = daemon.report(leaves, Grade::Broken, "its link is down") {
                return Some((0, Err(why)));
            }
        }
        Some((step_of(&daemon, id, 2), Ok(()))).filter(|(step, _)| *step > 0)
    })?;
    goes_on?;
    let paused_s = last.1.elapsed().as_secs_f64();
    if is_cut == migrates {
        return Err(format!("the gang restarted {} the cut", if is_cut { "after" } else { "before" }));
    }
    if !is_cut {
        // Whoever has left does not notice.
        std::thread::sleep(CUT_AFTER.saturating_sub(degraded_at.elapsed()));
        network.cut(leaves)?;
        let step = step_of(&daemon, id, 2);
        reach(&daemon, id, 2, step + 20)?;
    }
    let after = daemon.nodes(id, 2).ok_or("the gang does not run")?;
    if after.iter().any(|(_, node)| node == leaves) {
        return Err(format!("the gang runs on {leaves}"));
    }
    // The step that the second attempt reported first is the one after that from which it resumed.
    let steps_again = last.0.saturating_sub(first.saturating_sub(1));
    Ok(Run { steps_again, paused_s, step_ms, degraded_ms })
}

fn ms_per(steps: u32, begin: Instant, end: Instant) -> f64 {
    end.saturating_duration_since(begin).as_secs_f64() * 1e3 / f64::from(steps)
}

/// The completed steps that rank 0 reported in an attempt.
fn step_of(daemon: &Daemon, id: JobId, attempt: u32) -> u64 {
    let file = daemon.paths().attempt(id.gang(0), attempt).join("progress.0");
    let text = fs::read_to_string(file).unwrap_or_default();
    let word = text.split_whitespace().find_map(|word| word.strip_prefix("step="));
    word.and_then(|step| step.parse().ok()).unwrap_or(0)
}

fn reach(daemon: &Daemon, id: JobId, attempt: u32, step: u64) -> Result<Instant, String> {
    daemon.until("a step", || (step_of(daemon, id, attempt) >= step).then(Instant::now))
}

/// All-reduces of 128 KiB between the namespaces of the nodes, with a checkpoint every 10 of them.
fn script(daemon: &Daemon, network: &Network) -> Result<String, String> {
    let ring = beside("ring-allreduce", "phalanx-examples")?;
    let settings = "--bytes 128KiB --warmup 0 --steps 1000000 --step-sleep-ms 10 --checkpoint-every 10";
    Ok(network.script(daemon.folder(), &format!("{} {settings}", word(&ring))))
}
