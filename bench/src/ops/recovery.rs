//! Nodes are lost under a gang of real processes, and it runs again from its checkpoint.
//!
//! The nodes are declared and share this machine. A lost node is emulated: its ranks are killed, and it is reported as
//! broken, all at one moment.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_model::{Grade, NodeName};

use crate::daemon::{Daemon, job, word};

/// Enough for the gang, and as many spare ones as are lost at most.
const CLUSTER: &str = "nodes:\n- {name: 'n[1-7]', devices: {count: 8, model: Bench GPU}}\n";
const RANKS: u32 = 4;

#[derive(serde::Serialize)]
pub(super) struct Recovery {
    /// Nodes that are lost at once, of a gang of four.
    lost: usize,
    runs: usize,
    /// From the loss until all ranks run again; from the least to the most.
    seconds: Vec<f64>,
    median_s: f64,
    /// Steps that rank 0 does again, at most; it saves every 15 steps.
    steps_again: u64,
    /// Ranks on nodes that were not lost which have other nodes now, over all runs.
    moved: usize,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, runs, seconds, median_s, steps_again, moved } = self;
        let (least, most) =
            (seconds.first().copied().unwrap_or_default(), seconds.last().copied().unwrap_or_default());
        write!(
            f,
            "recovery, {lost} of {RANKS} nodes lost (emulated), {runs} runs: all ranks run again after {median_s:.2} s \
             ({least:.2} to {most:.2}); at most {steps_again} steps done again; {moved} healthy ranks moved"
        )
    }
}

pub(super) fn measure(lost: usize, runs: usize) -> Result<Recovery, String> {
    let mut seconds = Vec::new();
    let (mut steps_again, mut moved) = (0, 0);
    for _ in 0..runs {
        let daemon = Daemon::start(CLUSTER, "")?;
        let run = lose(&daemon, lost)?;
        seconds.push(run.0);
        steps_again = steps_again.max(run.1);
        moved += run.2;
    }
    seconds.sort_unstable_by(f64::total_cmp);
    let median_s = seconds.get(seconds.len() / 2).copied().unwrap_or_default();
    Ok(Recovery { lost, runs, seconds, median_s, steps_again, moved })
}

/// Seconds until all ranks run again, steps that are done again, healthy ranks that moved.
fn lose(daemon: &Daemon, count: usize) -> Result<(f64, u64, usize), String> {
    let id = daemon.submit(job(RANKS, &script(daemon.folder()))?)?;
    let before = daemon.until("the gang runs", || daemon.nodes(id, 1))?;
    daemon.until("a checkpoint", || (number(daemon, "step") >= 30).then_some(()))?;
    let lost: Vec<&(u32, NodeName)> = before.iter().take(count).collect();
    let begun = Instant::now();
    for (rank, node) in &lost {
        let pid = fs::read_to_string(daemon.folder().join(format!("pid-{rank}"))).unwrap_or_default();
        let pid = pid.trim().parse().map_err(|_| format!("rank {rank} did not say its number"))?;
        daemon.report(node, Grade::Broken, "lost in a benchmark")?;
        match kill(Pid::from_raw(pid), Signal::SIGKILL) {
            // The gang is stopped since the first report.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    let is_lost = |node: &NodeName| lost.iter().any(|(_, lost)| lost == node);
    // A start between two reports may have another node of the lost ones, and is taken back.
    let whole = || daemon.nodes(id, 2).filter(|slots| !slots.iter().any(|(_, node)| is_lost(node)));
    let after = daemon.until("the gang runs again", whole)?;
    let seconds = begun.elapsed().as_secs_f64();
    let resumed = daemon.until("rank 0 resumes", || {
        let text = fs::read_to_string(daemon.folder().join("resumed")).ok()?;
        text.lines().nth(1)?.parse::<u64>().ok()
    })?;
    let moved = before.iter().filter(|(_, node)| !is_lost(node) && !after.iter().any(|(_, n)| n == node));
    let again = number(daemon, "reached-1").saturating_sub(resumed);
    Ok((seconds, again, moved.count()))
}

fn number(daemon: &Daemon, file: &str) -> u64 {
    let text = fs::read_to_string(daemon.folder().join(file)).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Ranks with whole nodes; rank 0 counts steps of 20 ms, saves every 15 of them, and goes on from what it saved.
fn script(folder: &Path) -> String {
    format!(
        "cd {}
         echo $$ > pid-$PHALANX_RANK
         trap 'exit 0' TERM
         if [ $PHALANX_RANK != 0 ]; then while :; do sleep 0.1; done; fi
         n=$(cat step 2>/dev/null || echo 0); echo $n >> resumed
         while :; do
           n=$((n+1)); echo $n > reached-$PHALANX_ATTEMPT
           if [ $((n % 15)) = 0 ]; then echo $n > step.next && mv step.next step && touch $PHALANX_CHECKPOINTED; fi
           sleep 0.02
         done",
        word(folder)
    )
}
