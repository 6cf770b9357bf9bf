//! `swarm` and `rerun`: the seeded swarm, and what it finds made short.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::{Args, ValueHint};

use super::{CommandError, Host};
use crate::report::Progress;
use crate::{CASE_BYTES_MAX, Case, Failure, FailureKind, SwarmReport, crowded_swarm, recorded_swarm, shrink};

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0   nothing is broken
  1   the engine crashed
  2   an invariant is broken
  3   no progress
  64  wrong usage, or, of `phalanx sim`, a file that cannot be read or written
  66  of `phalanx-sim`, a file that cannot be read or written";

#[derive(Debug, Args)]
pub struct Swarm {
    /// Seed of the first run; each further run has the next seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of runs
    #[arg(long, value_name = "K", default_value_t = 100)]
    runs: u64,
    /// Run until the engine has made this many steps, whatever the number of runs
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Draw queue heads that need many GPUs, and a stream of small jobs behind them
    #[arg(long)]
    crowded: bool,
    /// Shorten the first failing run to the operations that it needs to fail, and write them to a file for `rerun`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    shrink: Option<String>,
}

#[derive(Debug, Args)]
pub struct Rerun {
    /// File that `swarm --shrink` wrote
    #[arg(value_hint = ValueHint::FilePath)]
    file: String,
}

/// Makes the run of a seed.
type Draw = fn(u64, &mut Case) -> SwarmReport;

/// Sums over all runs.
#[derive(Default)]
struct Sums {
    runs: u64,
    steps: u64,
    starts: u64,
    evictions: u64,
    crashes: u64,
    refused: u64,
}

impl Sums {
    const fn add(&mut self, report: &SwarmReport) {
        self.runs += 1;
        self.steps += report.steps;
        self.starts += report.starts;
        self.evictions += report.evictions;
        self.crashes += report.crashes;
        self.refused += report.refused;
    }
}

impl Swarm {
    pub(super) fn run(&self, host: &mut dyn Host) -> Result<(), CommandError> {
        let draw: Draw = if self.crowded { crowded_swarm } else { recorded_swarm };
        let (first, runs, steps) = (self.seed, self.runs, self.steps);
        let commit = option_env!("PHALANX_COMMIT").unwrap_or("unknown");
        let version = env!("CARGO_PKG_VERSION");
        say(host, &format!("swarm from seed {first}, phalanx {version} (commit {commit})"))?;
        let (begin, mut sums) = (host.seconds(), Sums::default());
        let is_over = |sums: &Sums| steps.map_or(sums.runs >= runs, |steps| sums.steps >= steps);
        let mut seed = first;
        while !is_over(&sums) {
            let failure = match catch_unwind(|| draw(seed, &mut Case::default())) {
                Ok(report) => {
                    sums.add(&report);
                    let (done, all) = steps.map_or((sums.runs, runs), |steps| (sums.steps, steps));
                    let unit = if steps.is_some() { "steps" } else { "runs" };
                    host.progress(Some(Progress { what: "swarm", done, all, unit }));
                    report.failure.as_ref().map(|failure| (failure.kind, report.to_string()))
                }
                Err(_) => Some((FailureKind::Crash, format!("SEED {seed}: the engine crashed"))),
            };
            if let Some((kind, what)) = failure {
                host.progress(None);
                if let Some(file) = &self.shrink {
                    shrunken(seed, draw, file, host)?;
                }
                return Err(broken(
                    kind,
                    format!(
                        "{what}\nrepeat it with: swarm{} --seed {seed} --runs 1",
                        if self.crowded { " --crowded" } else { "" }
                    ),
                ));
            }
            seed = seed.wrapping_add(1);
        }
        host.progress(None);
        let seconds = host.seconds() - begin;
        let Sums { runs, steps, starts, evictions, crashes, refused } = sums;
        say(
            host,
            &format!(
                "{runs} runs, seeds {first} to {}: {steps} steps, {starts} starts, {evictions} evictions, {crashes} restarts, \
                 {refused} orders of old leaders refused; nothing broken; {seconds:.1} s, {:.0} steps/s",
                seed.wrapping_sub(1),
                steps as f64 / seconds.max(0.001)
            ),
        )
    }
}

fn say(host: &mut dyn Host, line: &str) -> Result<(), CommandError> {
    host.print(format!("{line}\n").as_bytes()).map_err(CommandError::Input)
}

const fn broken(kind: FailureKind, what: String) -> CommandError {
    match kind {
        FailureKind::Crash => CommandError::Crash(what),
        FailureKind::Correctness => CommandError::Correctness(what),
        FailureKind::Liveness => CommandError::Liveness(what),
    }
}

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What breaks in a run, a panic included. Panics say nothing themselves.
fn failure_of(run: impl FnOnce() -> Option<Failure>) -> Option<Failure> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let what = PANIC.with(RefCell::take);
        Some(Failure { kind: FailureKind::Crash, what, log: String::new() })
    })
}

/// Keeps what a panic says for [`failure_of`].
fn hush() {
    std::panic::set_hook(Box::new(|panic| PANIC.with(|kept| *kept.borrow_mut() = panic.to_string())));
}

/// Writes the shortest case that fails as a seed does.
fn shrunken(seed: u64, draw: Draw, file: &str, host: &mut dyn Host) -> Result<(), CommandError> {
    hush();
    let cannot = |why: &dyn std::fmt::Display| CommandError::Input(format!("{file}: {why}"));
    let mut case = Case::default();
    let failure = failure_of(|| draw(seed, &mut case).failure);
    let failure = failure.ok_or_else(|| cannot(&"the seed passes"))?;
    let short =
        shrink(&case, |case| failure_of(|| case.run().err()).is_some_and(|other| other.is_like(&failure)));
    let text = short.to_text().map_err(|error| cannot(&error))?;
    host.write(file, text.as_bytes()).map_err(CommandError::Input)?;
    host.note(&format!(
        "{} of {} operations are enough; repeat them with: rerun {file}",
        short.operations.len(),
        case.operations.len()
    ));
    Ok(())
}

impl Rerun {
    pub(super) fn run(&self, host: &mut dyn Host) -> Result<(), CommandError> {
        let file = self.file.as_str();
        let cannot = |why: &dyn std::fmt::Display| CommandError::Input(format!("{file}: {why}"));
        let bytes = host.read(file, CASE_BYTES_MAX + 1).map_err(CommandError::Input)?;
        if bytes.len() as u64 > CASE_BYTES_MAX {
            return Err(cannot(&format!("is too long; at most {CASE_BYTES_MAX} bytes are read")));
        }
        let text = String::from_utf8(bytes).map_err(|_| cannot(&"is no text"))?;
        let case = Case::from_text(&text).map_err(|error| cannot(&error))?;
        hush();
        match failure_of(|| case.run().err()) {
            Some(failure) => Err(broken(failure.kind, failure.to_string())),
            None => say(host, &format!("{file}: {} operations, nothing broken", case.operations.len())),
        }
    }
}
