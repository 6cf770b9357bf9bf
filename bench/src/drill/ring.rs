//! The gang of every drill: the example `ring-allreduce`. What it saves, reports and prints.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;

use super::record::{Sample, Steps};

/// Ranks write a checkpoint every so many steps.
pub(super) const EVERY: u64 = 10;
/// The expectation of every fault.
pub(super) const FINISHES: &str = "the job finishes with the correct result";
pub(super) const FEW_AGAIN: &str =
    "at most 10 steps are done again, for a checkpoint is written every 10 steps";

/// The wall clock, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    since_1970(SystemTime::now())
}

fn since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// When a rank wrote the file of its progress, and the step in it.
pub(super) fn progress(file: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(file).ok()?;
    let step = text.split_whitespace().find_map(|word| word.strip_prefix("step="))?.parse().ok()?;
    let written = fs::metadata(file).and_then(|meta| meta.modified()).ok()?;
    Some((since_1970(written), step))
}

/// What rank 0 prints at the end.
#[derive(Clone, Copy, Deserialize)]
pub(super) struct Printed {
    world_size: u32,
    steps: u64,
    resumed_from: u64,
    steps_measured: u64,
    wrong: u64,
    stopped: bool,
}

impl Printed {
    /// The last result among the lines of rank 0.
    pub(super) fn of_lines(lines: impl Iterator<Item = String>) -> Result<Self, String> {
        let results = lines.filter_map(|line| line.strip_prefix("RESULT ").map(str::to_owned));
        let text = results.last().ok_or("rank 0 printed no result")?;
        serde_json::from_str(&text).map_err(|e| format!("its result {text:?}: {e}"))
    }

    /// What the job printed and saved, if that is the correct result of so many ranks that have reached this step.
    pub(super) fn verified(&self, ranks: u32, reached: u64, checkpoints: &Path) -> Result<String, String> {
        let Self { world_size, steps, resumed_from, steps_measured, wrong, stopped } = *self;
        let is_whole = world_size == ranks
            && steps >= reached
            && resumed_from.checked_add(steps_measured) == Some(steps);
        if !is_whole || wrong != 0 || stopped {
            return Err(format!(
                "its result is not that of {ranks} ranks and {reached} steps: {world_size} ranks, {steps} steps of which \
                 {steps_measured} since step {resumed_from}, {wrong} wrong sums, stopped: {stopped}"
            ));
        }
        for rank in 0..ranks {
            let saved = fs::read_to_string(checkpoints.join(format!("rank-{rank}.ckpt"))).unwrap_or_default();
            if saved.trim() != steps.to_string() {
                return Err(format!("the checkpoint of rank {rank} is {saved:?}, and not step {steps}"));
            }
        }
        Ok(format!(
            "{steps} steps, {wrong} wrong sums, the checkpoints of all {ranks} ranks are at step {steps}"
        ))
    }
}

/// Where the steps of the gang began again, and how many were lost.
pub(super) fn steps(
    samples: &[Sample],
    printed: Option<&Printed>,
    at_fault: u64,
    fault_ms: Option<u64>,
) -> Steps {
    let restarts = samples.windows(2).filter_map(|pair| match pair {
        // The first step of an attempt is the one after its checkpoint.
        [before, after] if after.attempt > before.attempt => {
            Some((before.step, after.step.saturating_sub(1)))
        }
        _ => None,
    });
    let mut restarts: Vec<(u64, u64)> = restarts.collect();
    let mut steps = Steps { at_fault, ..Steps::default() };
    if let Some(printed) = printed {
        steps.total = Some(printed.steps);
        // A first step may go by between two looks at the file.
        if let Some((_, from)) = restarts.last_mut() {
            *from = printed.resumed_from;
            steps.resumed_from = Some(printed.resumed_from);
        }
    }
    steps.again = restarts.iter().map(|(reached, from)| reached.saturating_sub(*from)).sum();
    let Some(fault) = fault_ms else { return steps };
    let gaps = samples.windows(2).filter(|pair| pair[1].at_ms >= fault);
    steps.pause_ms = gaps.map(|pair| pair[1].at_ms.saturating_sub(pair[0].at_ms)).max();
    steps
}
