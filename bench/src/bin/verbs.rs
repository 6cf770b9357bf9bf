//! How long a person waits for an answer: whole runs of the `phalanx` command on a machine with a thousand
//! finished jobs in its history.
//!
//! `cargo build --release -p phalanx-cli && cargo run --release -p phalanx-bench --bin verbs`

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use phalanx_api::client::ask_once;
use phalanx_api::protocol::{Answer, JobFilter, Verb};
use phalanx_local::Paths;
use phalanx_model::{JobId, Owner, Timestamp};
use phalanx_spec::{JobFile, SubmitContext};

const FINISHED: u64 = 1_000;
const RUNS: usize = 21;
/// What a person is promised, per answer.
const PROMISE: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let phalanx = own.with_file_name("phalanx");
    if !phalanx.exists() {
        return Err(format!("{} is not built: cargo build --release -p phalanx-cli", phalanx.display()));
    }
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let paths = Paths::new(dir.path().join("state"));
    let command = |args: &[&str]| phalanx_command(&phalanx, &paths, args);
    finish(command(&["up", "--detach"]))?;
    let measured = fill(&paths).and_then(|last| measure(&command, last));
    finish(command(&["down"]))?;
    measured
}

fn phalanx_command(phalanx: &Path, paths: &Paths, args: &[&str]) -> Command {
    let mut command = Command::new(PathBuf::from(phalanx));
    command.env("PHALANX_STATE", paths.root()).args(args).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn finish(mut command: Command) -> Result<(), String> {
    let status = command.status().map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}")) }
}

/// Submits jobs and waits until all have ended; the last one's number.
fn fill(paths: &Paths) -> Result<JobId, String> {
    let socket = paths.socket();
    let owner = Owner { uid: 0, gid: 0, name: String::new() };
    let (id, submitted_at, default_workdir) = (JobId(0), Timestamp(0), "/".to_owned());
    let file = JobFile::from_yaml("name: filler\ncommand: [/bin/true]\n", "filler");
    let context = SubmitContext { id, owner, submitted_at, default_workdir };
    let job = file.and_then(|f| f.into_job(context)).map_err(|e| e.to_string())?;
    let mut last = JobId(0);
    for _ in 0..FINISHED {
        let verb = Verb::Submit { job: Box::new(job.clone()), secrets: std::collections::BTreeMap::new() };
        match ask_once(&socket, verb).map_err(|e| e.to_string())? {
            Answer::Submitted { job, .. } => last = job,
            other => return Err(format!("submitting gave {other:?}")),
        }
    }
    loop {
        let verb = Verb::List { finished: false, filter: JobFilter::default(), limit: 1 };
        match ask_once(&socket, verb).map_err(|e| e.to_string())? {
            Answer::Jobs(jobs) if jobs.is_empty() => return Ok(last),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn measure(command: &dyn Fn(&[&str]) -> Command, last: JobId) -> Result<bool, String> {
    let last = last.to_string();
    let verbs: [&[&str]; 7] = [
        &["ps"],
        &["ps", "-a"],
        &["get", &last],
        &["get", "1"],
        &["why", &last],
        &["nodes"],
        &["topo", "show"],
    ];
    println!("{FINISHED} finished jobs; whole runs of the command, {RUNS} each, in ms");
    println!("{:<14} {:>8} {:>8} {:>8}", "verb", "min", "median", "max");
    let mut kept = true;
    for args in verbs {
        let mut times = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            let began = Instant::now();
            finish(command(args))?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let (min, median, max) = (times[0], times[RUNS / 2], times[RUNS - 1]);
        kept &= median < PROMISE;
        let ms = |t: Duration| format!("{:.1}", t.as_secs_f64() * 1e3);
        println!("{:<14} {:>8} {:>8} {:>8}", args.join(" "), ms(min), ms(median), ms(max));
    }
    println!("the promise of {} ms is {}", PROMISE.as_millis(), if kept { "kept" } else { "broken" });
    Ok(kept)
}
