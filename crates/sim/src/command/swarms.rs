//! `swarm` and `rerun`: the seeded swarm, and what it finds made short.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::words::Words;
use super::{CommandError, Host};
use crate::report::Progress;
use crate::{CASE_BYTES_MAX, Case, Failure, FailureKind, SwarmReport, crowded_swarm, recorded_swarm, shrink};

pub(super) const RERUN_HELP: &str = "\
usage: rerun FILE

What a failing run did, again, from the file that `swarm --shrink` wrote.
";

pub(super) const SWARM_HELP: &str = "\
usage: swarm [options]

Random work, clusters and faults, checked after every step; then all is healed, and all work must end.

  --seed N       the first seed (1); the next run has the next one
  --runs K       so many runs (100)
  --steps N      runs until the engine has made so many steps
  --crowded      heads that need much, and a stream of small jobs behind them
  --shrink FILE  what the first seed that fails did is made as short as it fails, and written there

exit codes: 0 nothing broken, 1 the engine crashed, 2 an invariant is broken, 3 no progress,
            64 wrong usage, 66 a file cannot be read or written
";

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

pub(super) fn swarm(words: &[&str], host: &mut dyn Host) -> Result<(), CommandError> {
    let mut words = Words::read(words, &["--crowded"])?;
    let is_crowded = words.take("--crowded").is_some();
    let draw: Draw = if is_crowded { crowded_swarm } else { recorded_swarm };
    let first = words.take_number("--seed")?.unwrap_or(1);
    let runs = words.take_number("--runs")?.unwrap_or(100);
    let (steps, file) = (words.take_number("--steps")?, words.take("--shrink"));
    words.done()?;
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
            if let Some(file) = file {
                shrunken(seed, draw, file, host)?;
            }
            return Err(broken(
                kind,
                format!(
                    "{what}\nrepeat it with: swarm{} --seed {seed} --runs 1",
                    if is_crowded { " --crowded" } else { "" }
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

pub(super) fn rerun(words: &[&str], host: &mut dyn Host) -> Result<(), CommandError> {
    let mut words = Words::read(words, &[])?;
    let [file] = *std::mem::take(&mut words.bare).as_slice() else {
        return Err(CommandError::Usage("rerun needs one file".to_owned()));
    };
    words.done()?;
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
