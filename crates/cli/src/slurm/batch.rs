//! The first process of a job: it gives the script its environment and its files, and passes signals on.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nix::sys::signal::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::allocation::Allocation;
use super::job::{Kept, SECRET};
use super::{Tool, tasks};
use crate::failure::Failure;
use crate::output::print_error;

/// Output that background processes of a script still write after its end is copied for so long.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// The most bytes of a secret.
const KEPT_BYTES_MAX: u64 = 1 << 20;
/// Variables of the submission that mean nothing, or something else, in the job.
const NOT_EXPORTED: [&str; 9] = [
    "PHALANX_",
    "SLURM_",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "ROCR_VISIBLE_DEVICES",
    "CUDA_MPS_",
    "SBATCH_",
    "_",
    "OLDPWD",
];

/// Whether a variable of the submission goes to the job.
pub(super) fn is_exported(name: &str) -> bool {
    !NOT_EXPORTED
        .iter()
        .any(|of| if of.len() > 1 && of.ends_with('_') { name.starts_with(of) } else { name == *of })
}

/// Runs the script, and ends as it does.
pub(super) fn main() -> Result<ExitCode, Failure> {
    let look = |name: &str| std::env::var(name).ok();
    let Some(allocation) = Allocation::of_this_process(&look)? else {
        return Err(Failure::usage("slurm __batch is for jobs", "`phalanx slurm sbatch` submits one"));
    };
    let kept = kept(&look)?;
    let dir = Spool::new()?;
    let mut command = program(&kept, &dir)?;
    command.envs(environment(&allocation, &kept, &dir, &look));
    command.env_remove(format!("PHALANX_SECRET_{SECRET}_FD"));
    let facts = &allocation.facts;
    // Before the script is there, so that no signal falls between the two.
    let own = facts.signal.map(|(number, _)| number);
    let usual = [SIGTERM, SIGINT, SIGHUP];
    let all: Vec<i32> = usual.into_iter().chain(own.filter(|number| !usual.contains(number))).collect();
    let signals =
        Signals::new(all).map_err(|e| Failure::internal(format!("signals cannot be received: {e}")))?;
    let copies = if facts.terminal {
        Copies(None)
    } else {
        command.stdin(input(&allocation)?);
        Copies::begin(&allocation, &mut command)?
    };
    let mut child = command.spawn().map_err(|e| not_started(&kept, &e))?;
    // The ends of the pipes that are the script's.
    drop(command);
    let pid = i32::try_from(child.id()).unwrap_or(0);
    pass_on(signals, pid, &allocation);
    let status = child.wait().map_err(|e| Failure::internal(format!("the script was lost: {e}")))?;
    copies.end();
    Ok(tasks::exit_code(status))
}

fn input(allocation: &Allocation) -> Result<Stdio, Failure> {
    let Some(pattern) = &allocation.facts.input else { return Ok(Stdio::null()) };
    let name = allocation.file_name(pattern, 0, 0);
    File::open(&name).map(Stdio::from).map_err(|e| Failure::file("read", Path::new(&name), &e))
}

/// What the daemon kept of the submission.
fn kept(look: &dyn Fn(&str) -> Option<String>) -> Result<Kept, Failure> {
    let broken =
        |what: &dyn std::fmt::Display| Failure::internal(format!("the submission cannot be read: {what}"));
    let number: i32 = look(&format!("PHALANX_SECRET_{SECRET}_FD"))
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| broken(&"the daemon did not give it"))?;
    let file = File::open(format!("/proc/self/fd/{number}")).map_err(|e| broken(&e))?;
    let mut text = String::new();
    file.take(KEPT_BYTES_MAX).read_to_string(&mut text).map_err(|e| broken(&e))?;
    // The script does not inherit it.
    let _ = nix::unistd::close(number);
    serde_json::from_str(&text).map_err(|e| broken(&e))
}

fn not_started(kept: &Kept, error: &io::Error) -> Failure {
    let what = if kept.script.is_some() { "the script" } else { "the command" };
    Failure::usage(format!("{what} cannot be started: {error}"), "")
}

/// The script in the folder, started as its first line says; or the program that the arguments name.
fn program(kept: &Kept, dir: &Spool) -> Result<Command, Failure> {
    let Some(script) = &kept.script else {
        let mut words = kept.arguments.iter();
        let mut command = Command::new(words.next().map(String::as_str).unwrap_or_default());
        command.args(words);
        return Ok(command);
    };
    let path = dir.0.join("slurm_script");
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o700).open(&path)?;
        file.write_all(script.as_bytes())
    };
    write().map_err(|e| Failure::file("write", &path, &e))?;
    // As the kernel reads `#!`, which it does not on file systems that forbid programs.
    let first = script.lines().next().unwrap_or_default().trim_start_matches("#!").trim();
    let (interpreter, argument) =
        first.split_once([' ', '\t']).map_or((first, None), |(path, rest)| (path, Some(rest.trim())));
    let mut command = Command::new(interpreter);
    command.args(argument).arg(&path).args(&kept.arguments);
    Ok(command)
}

/// The environment of the submission below that of the job, and Slurm's variables above both.
fn environment(
    allocation: &Allocation,
    kept: &Kept,
    dir: &Spool,
    look: &dyn Fn(&str) -> Option<String>,
) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = kept
        .environment
        .iter()
        .filter(|(name, _)| is_exported(name))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    all.extend(allocation.variables(&look));
    all.extend(allocation.of_task(0, 0, 0));
    all.insert("SLURM_TASK_PID".to_owned(), std::process::id().to_string());
    all.insert("ENVIRONMENT".to_owned(), "BATCH".to_owned());
    let path = all.get("PATH").cloned().or_else(|| look("PATH")).unwrap_or_default();
    all.insert("PATH".to_owned(), format!("{}:{path}", dir.bin().display()));
    all
}

/// A folder of the job's own, with the script and with Slurm's commands.
struct Spool(PathBuf);

impl Spool {
    fn new() -> Result<Self, Failure> {
        let base = std::env::temp_dir();
        let broken = |e: &dyn std::fmt::Display| {
            Failure::unavailable(format!("no folder can be made in {}: {e}", base.display()), "set TMPDIR")
        };
        let dir = nix::unistd::mkdtemp(&base.join("phalanx-slurm-XXXXXX")).map_err(|e| broken(&e))?;
        let spool = Self(dir);
        let program = std::env::current_exe().map_err(|e| broken(&e))?;
        let fill = || -> io::Result<()> {
            std::fs::create_dir(spool.bin())?;
            Tool::ALL.iter().try_for_each(|tool| symlink(&program, spool.bin().join(tool.word())))?;
            std::fs::set_permissions(&spool.0, PermissionsExt::from_mode(0o700))
        };
        fill().map_err(|e| broken(&e))?;
        Ok(spool)
    }

    fn bin(&self) -> PathBuf {
        self.0.join("bin")
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Signals for the script, or for the steps that it runs. SIGTERM comes to all processes of a job by itself, and this one
/// stays for the script's last words.
fn pass_on(mut signals: Signals, script: i32, allocation: &Allocation) {
    let (own, job) = (allocation.facts.signal, tasks::mark(allocation));
    std::thread::spawn(move || {
        for number in signals.forever() {
            let Some((_, to_script)) = own.filter(|(of, _)| *of == number) else { continue };
            let Ok(signal) = Signal::try_from(number) else { continue };
            if to_script {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(script), signal);
            } else {
                tasks::signal_all(&job, None, signal);
            }
        }
    });
}

/// Output that goes to files, and to the log of the job.
struct Copies(Option<Receiver<()>>);

impl Copies {
    fn begin(allocation: &Allocation, command: &mut Command) -> Result<Self, Failure> {
        let facts = &allocation.facts;
        let Some(output) = &facts.output else { return Ok(Self(None)) };
        let open = |pattern: &str| open(&allocation.file_name(pattern, 0, 0), facts.truncates);
        let (done, ends) = channel();
        let (reader, writer) = pipe()?;
        copy(reader, open(output)?, io::stdout(), done.clone());
        let error = facts.error.as_ref().filter(|error| *error != output);
        let errors = match error {
            None => writer.try_clone().map_err(|e| Failure::internal(e.to_string()))?,
            Some(error) => {
                let (reader, writer) = pipe()?;
                copy(reader, open(error)?, io::stderr(), done);
                writer
            }
        };
        command.stdout(writer).stderr(errors);
        Ok(Self(Some(ends)))
    }

    /// Waits for the rest of the output.
    fn end(self) {
        let Some(ends) = self.0 else { return };
        // Until every copy is done, which the end of the channel says.
        while ends.recv_timeout(LAST_OUTPUT).is_ok() {}
    }
}

fn pipe() -> Result<(io::PipeReader, io::PipeWriter), Failure> {
    io::pipe().map_err(|e| Failure::internal(format!("no pipe can be made: {e}")))
}

/// A file of output.
pub(super) fn open(name: &str, truncates: bool) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    if truncates {
        File::create(name).map_err(|e| Failure::file("write", Path::new(name), &e))?;
    }
    options.open(name).map_err(|e| Failure::file("write", Path::new(name), &e))
}

/// Copies until all writers are gone; `done` is dropped then.
fn copy(mut from: io::PipeReader, mut file: File, mut log: impl Write + Send + 'static, done: Sender<()>) {
    std::thread::spawn(move || {
        let mut chunk = vec![0; 16 << 10];
        let mut is_told = false;
        loop {
            let bytes = match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => chunk.get(..count).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            // One of the two may be full; the other still gets all.
            if let Err(e) = file.write_all(bytes)
                && !std::mem::replace(&mut is_told, true)
            {
                print_error(&format!("the file of the output cannot be written: {e}\n"));
            }
            let _ = log.write_all(bytes).and_then(|()| log.flush());
        }
        drop(done);
    });
}
