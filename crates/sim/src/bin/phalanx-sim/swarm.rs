//! The seeded swarm, and what it finds made short.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use phalanx_sim::{CASE_BYTES_MAX, Case, Failure, FailureKind, SwarmReport, recorded_swarm, shrink, swarm};

const CRASH: u8 = 1;
const INVARIANT: u8 = 2;
const NO_PROGRESS: u8 = 3;
/// As `sysexits.h` has them: wrong usage, and input that cannot be read.
const USAGE: u8 = 64;
const NO_INPUT: u8 = 66;

const HELP: &str = "\
usage: phalanx-sim swarm [--seed N] [--runs K | --steps N] [--shrink FILE]
       phalanx-sim rerun FILE

swarm   random work, clusters and faults, checked after every step; then all is healed, and all work must end
  --seed N       the first seed (1); the next run has the next one
  --runs K       so many runs (100)
  --steps N      runs until the engine has made so many steps
  --shrink FILE  what the first seed that fails did is made as short as it fails, and written there
rerun   the same again from such a file

exit codes: 0 nothing broken, 1 the engine crashed, 2 an invariant is broken, 3 no progress,
            64 wrong usage, 66 a file cannot be read or written";

pub(crate) fn help() -> &'static str {
    HELP
}

struct Options {
    seed: u64,
    runs: u64,
    steps: Option<u64>,
    shrink: Option<PathBuf>,
}

fn options(words: &[&str]) -> Result<Options, String> {
    let mut options = Options { seed: 1, runs: 100, steps: None, shrink: None };
    for pair in words.chunks(2) {
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
        match pair {
            ["--seed", n] => options.seed = number(n)?,
            ["--runs", n] => options.runs = number(n)?,
            ["--steps", n] => options.steps = Some(number(n)?),
            ["--shrink", file] => options.shrink = Some(PathBuf::from(file)),
            [alone @ ("--seed" | "--runs" | "--steps" | "--shrink")] => {
                return Err(format!("{alone} needs a value"));
            }
            [unknown, ..] => return Err(format!("unknown option {unknown:?}")),
            [] => {}
        }
    }
    Ok(options)
}

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

pub(crate) fn swarms(words: &[&str]) -> u8 {
    let options = match options(words) {
        Ok(options) => options,
        Err(what) => {
            eprintln!("phalanx-sim: {what}\n{HELP}");
            return USAGE;
        }
    };
    println!(
        "swarm from seed {}, phalanx {} (commit {})",
        options.seed,
        env!("CARGO_PKG_VERSION"),
        option_env!("PHALANX_COMMIT").unwrap_or("unknown")
    );
    let (begin, mut sums) = (Instant::now(), Sums::default());
    let is_over = |sums: &Sums| options.steps.map_or(sums.runs >= options.runs, |steps| sums.steps >= steps);
    let mut seed = options.seed;
    while !is_over(&sums) {
        let failure = match catch_unwind(|| swarm(seed)) {
            Ok(report) => {
                sums.add(&report);
                report.failure.as_ref().map(|failure| (failure.kind, report.to_string()))
            }
            Err(_) => Some((FailureKind::Crash, format!("SEED {seed}: the engine crashed"))),
        };
        if let Some((kind, what)) = failure {
            eprintln!("{what}\nrepeat it with: phalanx-sim swarm --seed {seed} --runs 1");
            if let Some(file) = &options.shrink
                && let Err(why) = shrunken(seed, file)
            {
                eprintln!("phalanx-sim: {}: {why}", file.display());
                return NO_INPUT;
            }
            return code(kind);
        }
        seed = seed.wrapping_add(1);
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{} runs, seeds {} to {}: {} steps, {} starts, {} evictions, {} restarts, {} orders of old leaders refused; \
         nothing broken; {:.1} s, {:.0} steps/s",
        sums.runs,
        options.seed,
        seed.wrapping_sub(1),
        sums.steps,
        sums.starts,
        sums.evictions,
        sums.crashes,
        sums.refused,
        seconds,
        sums.steps as f64 / seconds.max(0.001)
    );
    0
}

const fn code(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Crash => CRASH,
        FailureKind::Correctness => INVARIANT,
        FailureKind::Liveness => NO_PROGRESS,
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
fn shrunken(seed: u64, file: &Path) -> Result<(), String> {
    hush();
    let mut case = Case::default();
    let failure = failure_of(|| recorded_swarm(seed, |_| (), &mut case).failure).ok_or("the seed passes")?;
    let short = shrink(&case, |case| {
        failure_of(|| case.run(|_| ()).err()).is_some_and(|other| other.is_like(&failure))
    });
    let text = short.to_text().map_err(|error| error.to_string())?;
    std::fs::write(file, text).map_err(|error| error.to_string())?;
    eprintln!(
        "{} of {} operations are enough; repeat them with: phalanx-sim rerun {}",
        short.operations.len(),
        case.operations.len(),
        file.display()
    );
    Ok(())
}

pub(crate) fn rerun(file: &Path) -> u8 {
    let read = || -> Result<Case, String> {
        let bytes = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
        if bytes > CASE_BYTES_MAX {
            return Err(format!("has {bytes} bytes, at most {CASE_BYTES_MAX} are read"));
        }
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        Case::from_text(&text).map_err(|error| error.to_string())
    };
    let case = match read() {
        Ok(case) => case,
        Err(why) => {
            eprintln!("phalanx-sim: {}: {why}", file.display());
            return NO_INPUT;
        }
    };
    hush();
    match failure_of(|| case.run(|_| ()).err()) {
        Some(failure) => {
            eprintln!("{failure}");
            code(failure.kind)
        }
        None => {
            println!("{}: {} operations, nothing broken", file.display(), case.operations.len());
            0
        }
    }
}
