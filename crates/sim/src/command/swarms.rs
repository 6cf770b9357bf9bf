//! `swarm`: so many seeds, one after the other.

use super::words::Words;
use super::{CommandError, Host};
use crate::{FailureKind, swarm as run_swarm};

pub(super) fn swarm(words: &[&str], host: &mut dyn Host) -> Result<(), CommandError> {
    let mut words = Words::read(words, &[])?;
    let first = words.take_number("--seed")?.unwrap_or(1);
    let runs = words.take_number("--runs")?.unwrap_or(100);
    words.done()?;
    let (mut steps, mut starts, mut evictions, mut crashes) = (0, 0, 0, 0);
    for seed in first..first.saturating_add(runs) {
        let Ok(report) = std::panic::catch_unwind(|| run_swarm(seed)) else {
            return Err(CommandError::Crash(format!("SEED {seed}: the engine crashed")));
        };
        if let Some(failure) = &report.failure {
            let text = report.to_string();
            return Err(match failure.kind {
                FailureKind::Liveness => CommandError::Liveness(text),
                _ => CommandError::Correctness(text),
            });
        }
        steps += report.steps;
        starts += report.starts;
        evictions += report.evictions;
        crashes += report.crashes;
    }
    let text = format!(
        "{runs} runs from seed {first}: {steps} steps, {starts} starts, {evictions} evictions, {crashes} crashes, \
         nothing broken\n"
    );
    host.print(text.as_bytes()).map_err(CommandError::Input)
}
