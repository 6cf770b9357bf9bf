//! The tasks of a step on one node. `srun` starts this process beside each rank of the job, and says on its standard input
//! what to run.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::allocation::Allocation;
use super::batch;
use crate::failure::Failure;
use crate::output::print_error;

/// The hidden word of this process.
pub(super) const WORD: &str = "__tasks";
/// A step description is at most this long.
const STEP_BYTES_MAX: u64 = 8 << 20;
/// Variables of the rank beside which tasks run; they win over those of `srun`.
const OF_THE_RANK: [&str; 4] =
    ["PHALANX_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES"];
/// What is passed on to tasks.
const PASSED_ON: [i32; 8] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT];

/// What runs on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) argv: Vec<String>,
    pub(super) dir: String,
    /// The environment of `srun`, and what is Slurm's of the step.
    pub(super) environment: BTreeMap<String, String>,
    /// The node in its job, the first task on it, and how many there are.
    pub(super) node: usize,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) gpus_per_task: Option<u32>,
    pub(super) is_labelled: bool,
    pub(super) kills: bool,
    pub(super) output: Option<String>,
    pub(super) error: Option<String>,
    pub(super) input: Option<String>,
    pub(super) truncates: bool,
}

/// Finds the processes of a job, or of one of its steps.
pub(super) fn mark(allocation: &Allocation) -> String {
    format!("{}.{}", allocation.reference(), allocation.attempt)
}

/// Sends a signal to the tasks of a job, or of one of its steps, on this machine.
pub(super) fn signal_all(job: &str, step: Option<&str>, signal: Signal) {
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let is_meant = match words.as_slice() {
            [_, slurm, word, of, number, ..] => {
                *slurm == b"slurm"
                    && *word == WORD.as_bytes()
                    && *of == job.as_bytes()
                    && step.is_none_or(|step| *number == step.as_bytes())
            }
            _ => false,
        };
        if is_meant {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// The code that a shell reports.
pub(super) fn exit_code(status: ExitStatus) -> ExitCode {
    ExitCode::from(code(status))
}

pub(super) fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code & 0xff).unwrap_or(1)
}

/// Runs the tasks, and ends with the highest of their codes.
pub(super) fn main() -> Result<ExitCode, Failure> {
    let look = |name: &str| std::env::var(name).ok();
    let Some(allocation) = Allocation::of_this_process(&look)? else {
        return Err(Failure::usage("slurm __tasks is for jobs", "`srun` in a job starts it"));
    };
    let mut text = String::new();
    let broken = |what: &dyn std::fmt::Display| Failure::internal(format!("the step cannot be read: {what}"));
    io::stdin().take(STEP_BYTES_MAX).read_to_string(&mut text).map_err(|e| broken(&e))?;
    let step: Step = serde_json::from_str(&text).map_err(|e| broken(&e))?;
    let signals =
        Signals::new(PASSED_ON).map_err(|e| Failure::internal(format!("signals cannot be received: {e}")))?;
    run(&allocation, &step, signals)
}

fn run(allocation: &Allocation, step: &Step, mut signals: Signals) -> Result<ExitCode, Failure> {
    let mut readers = Vec::new();
    let pids = Arc::new(Mutex::new(Vec::new()));
    let (tell, ended) = channel();
    for local in 0..step.count {
        let task = step.first.saturating_add(local);
        let mut command = command(allocation, step, task, local)?;
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(e) => {
                signal(&pids, Signal::SIGTERM);
                let program = step.argv.first().map(String::as_str).unwrap_or_default();
                return Err(Failure::not_found(format!("srun: {program} cannot be started: {e}"), ""));
            }
        };
        drop(command);
        if step.is_labelled {
            readers.extend(label(&mut child, task));
        }
        pids.lock().unwrap_or_else(PoisonError::into_inner).push(i32::try_from(child.id()).unwrap_or(0));
        let tell = tell.clone();
        std::thread::spawn(move || {
            let status = child.wait();
            let _ = tell.send((task, status));
        });
    }
    drop(tell);
    let passing = Arc::clone(&pids);
    std::thread::spawn(move || {
        for number in signals.forever() {
            if let Ok(number) = Signal::try_from(number) {
                signal(&passing, number);
            }
        }
    });
    let mut highest = 0;
    for (task, status) in ended {
        let status = status.map_err(|e| Failure::internal(format!("task {task} was lost: {e}")))?;
        let code = code(status);
        if code != 0 {
            let node = allocation.nodes.get(step.node).map(String::as_str).unwrap_or_default();
            let how = match status.signal() {
                Some(signal) => format!("Terminated by signal {signal}"),
                None => format!("Exited with exit code {code}"),
            };
            print_error(&format!("srun: error: {node}: task {task}: {how}\n"));
            if step.kills {
                signal(&pids, Signal::SIGTERM);
            }
        }
        highest = highest.max(code);
    }
    readers.into_iter().for_each(|reader: std::thread::JoinHandle<()>| drop(reader.join()));
    Ok(ExitCode::from(highest))
}

fn signal(pids: &Mutex<Vec<i32>>, signal: Signal) {
    for pid in pids.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|pid| **pid > 0) {
        let _ = kill(Pid::from_raw(*pid), signal);
    }
}

/// One task, ready to start.
fn command(allocation: &Allocation, step: &Step, task: u32, local: u32) -> Result<Command, Failure> {
    let mut words = step.argv.iter();
    let mut command = Command::new(words.next().map(String::as_str).unwrap_or_default());
    command.args(words).current_dir(&step.dir).env_clear().envs(&step.environment);
    let own: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| OF_THE_RANK.iter().any(|of| name.starts_with(of)))
        .collect();
    command.envs(own.iter().map(|(name, value)| (name, value)));
    command.envs(allocation.of_task(task, local, step.node));
    for name in ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"] {
        let Some((_, all)) = own.iter().find(|(of, _)| of == name) else { continue };
        if let Some(part) = step.gpus_per_task.and_then(|each| part(all, local, each)) {
            command.env(name, &part);
            command.env("SLURM_STEP_GPUS", &part);
        }
    }
    let open = |pattern: &str| batch::open(&allocation.file_name(pattern, task, step.node), false);
    command.stdin(match &step.input {
        Some(pattern) if pattern != "none" => {
            let name = allocation.file_name(pattern, task, step.node);
            std::fs::File::open(&name)
                .map(Stdio::from)
                .map_err(|e| Failure::file("read", std::path::Path::new(&name), &e))?
        }
        _ => Stdio::null(),
    });
    if step.is_labelled {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    if let Some(output) = &step.output {
        let file = open(output)?;
        let errors = match &step.error {
            Some(error) => open(error)?,
            None => file.try_clone().map_err(|e| Failure::internal(e.to_string()))?,
        };
        command.stdout(file).stderr(errors);
    } else if let Some(error) = &step.error {
        command.stderr(open(error)?);
    }
    Ok(command)
}

/// The devices of one task among those of its node.
fn part(all: &str, local: u32, each: u32) -> Option<String> {
    let all: Vec<&str> = all.split(',').collect();
    let (local, each) = (usize::try_from(local).ok()?, usize::try_from(each).ok()?);
    let part = all.get(local.checked_mul(each)?..local.checked_add(1)?.checked_mul(each)?)?;
    Some(part.join(","))
}

/// Writes `3: ` before each line of a task.
fn label(child: &mut Child, task: u32) -> Vec<std::thread::JoinHandle<()>> {
    fn copy(
        from: impl Read + Send + 'static,
        task: u32,
        mut to: impl Write + Send + 'static,
    ) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while from.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                let mut text = format!("{task}: ").into_bytes();
                text.append(&mut line);
                if to.write_all(&text).and_then(|()| to.flush()).is_err() {
                    break;
                }
            }
        })
    }
    let output = child.stdout.take().map(|from| copy(from, task, io::stdout()));
    let errors = child.stderr.take().map(|from| copy(from, task, io::stderr()));
    output.into_iter().chain(errors).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_divide_the_devices_of_their_node() {
        let all = "4,5,6,7";
        assert_eq!(part(all, 0, 1).as_deref(), Some("4"));
        assert_eq!(part(all, 1, 2).as_deref(), Some("6,7"));
        assert_eq!(part(all, 2, 2), None);
        assert_eq!(part("GPU-a,GPU-b", 1, 1).as_deref(), Some("GPU-b"));
    }
}
