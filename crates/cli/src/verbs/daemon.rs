//! Starting and stopping the daemon, and the hidden verbs that it starts itself.

use std::fs::{DirBuilder, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use phalanx_api::client;
use phalanx_api::protocol::{Answer, Verb as Ask};
use phalanx_journal::JournalError;
use phalanx_local::daemon::{UpError, UpOptions};
use phalanx_local::daemon_log::{self, DaemonLog};
use phalanx_node::IsolationChoice;
use phalanx_shell::log::{self, Format};

use owo_colors::OwoColorize as _;

use super::Session;
use crate::args::Up;
use crate::failure::Failure;
use crate::output;

/// Longest wait for a daemon to answer after its start (it may replay a long journal), and to be gone.
const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);
/// Lines of the log that are shown when a daemon dies.
const LINES_SHOWN: usize = 12;
const LOG_READ_MAX: u64 = 1 << 20;

pub(super) fn up(session: &Session, up: Up) -> Result<ExitCode, Failure> {
    if up.detach {
        return detach(session, &up);
    }
    if up.detached {
        // Out of the terminal's session, so that closing it does not end the daemon.
        nix::unistd::setsid().map_err(|e| Failure::internal(format!("cannot leave the terminal: {e}")))?;
    }
    begin_log(session, &up);
    let Up { cluster, queues, found, limits, cgroup, metrics, kernel_log, sample_every, idle_after, .. } = up;
    let (dcgm, dcgm_job_mapping) = (up.dcgm, up.dcgm_job_mapping);
    let (limits, isolation) = (limits.given(), cgroup.map_or(IsolationChoice::Best, IsolationChoice::In));
    let paths = session.paths.clone();
    let options = UpOptions {
        cluster,
        queues,
        found,
        limits,
        isolation,
        metrics,
        kernel_log,
        sample_every,
        idle_after,
        dcgm,
        dcgm_job_mapping,
        api: up.api.at,
        api_tls: up.api.tls(),
        api_oidc: up.api.oidc,
        preflight: up.preflight.options(),
        ..UpOptions::new(paths)
    };
    phalanx_local::daemon::up(&options).map_err(|e| failure(&e))?;
    Ok(ExitCode::SUCCESS)
}

/// Text unless told otherwise: people read it, and `up --detach` shows its end where the daemon does not start.
fn begin_log(session: &Session, up: &Up) {
    let (format, level) = up.log.settings();
    let format = format.unwrap_or(Format::Text);
    if up.detached {
        let log = DaemonLog::of_stderr(session.paths.daemon_log());
        log::begin_in(format, level, move || log.clone());
    } else {
        log::begin(format, level);
    }
}

fn failure(error: &UpError) -> Failure {
    let message = error.to_string();
    match error {
        UpError::AlreadyRunning(_) => Failure::unavailable(message, ""),
        UpError::Cluster(_) | UpError::Queues(_) | UpError::Oidc(_) => {
            let (first, rest) = message.split_once('\n').unwrap_or((&message, ""));
            Failure { excerpt: rest.to_owned(), ..Failure::usage(first, "") }
        }
        UpError::Io { path, .. } => {
            let hint = format!("is {} yours to use? --state names another folder", path.display());
            Failure::unavailable(message, hint)
        }
        UpError::Journal(JournalError::Damaged { .. }) => Failure::unavailable(
            message,
            "`phalanx doctor` shows what is damaged, `phalanx doctor --cut` cuts it off and keeps a copy",
        ),
        UpError::Cgroup(_) => {
            Failure::unavailable(message, "`systemctl start phalanx-ranks` makes that of the unit")
        }
        UpError::Limits(_)
        | UpError::Api(..)
        | UpError::Certificate(_)
        | UpError::NoAddress(_)
        | UpError::Metrics(..)
        | UpError::JobMapping(..)
        | UpError::HealthPolicy(_) => Failure::usage(message, ""),
        UpError::Tokens(..) | UpError::Journal(_) | UpError::History(_) | UpError::Thread(_) => {
            Failure::unavailable(message, "nothing was changed")
        }
    }
}

/// Starts this program again, in the background, and waits until it answers or dies.
fn detach(session: &Session, up: &Up) -> Result<ExitCode, Failure> {
    let (root, log_path) = (session.paths.root(), session.paths.daemon_log());
    if let Ok(Answer::Pong { pid, .. }) = client::ask_once(&session.paths.socket(), Ask::Ping) {
        let message = format!("a daemon already runs with {} (pid {pid})", root.display());
        return Err(Failure::unavailable(message, "`phalanx down` stops it; jobs go on"));
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(root)
        .map_err(|e| Failure::file("make", root, &e))?;
    let (log, begin) = daemon_log::open(&log_path).map_err(|e| Failure::file("open", &log_path, &e))?;
    let mut child = spawn(session, up, log)?;
    let asked = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
            let lines = last_lines(&log_path, begin);
            let failure = Failure::unavailable(format!("the daemon did not start ({status})"), "");
            let excerpt = if lines.is_empty() {
                String::new()
            } else {
                format!("{} says:\n{lines}", log_path.display())
            };
            return Err(Failure { exit: code.unwrap_or(failure.exit), hint: lines, excerpt, ..failure });
        }
        if let Ok(Answer::Pong { pid, .. }) = client::ask_once(&session.paths.socket(), Ask::Ping)
            && pid == child.id()
        {
            return ready(session, pid);
        }
        if asked.elapsed() > START {
            let message = format!("the daemon (pid {}) does not answer yet", child.id());
            return Err(Failure::unavailable(message, format!("it goes on; see {}", log_path.display())));
        }
        std::thread::sleep(LOOK);
    }
}

fn spawn(session: &Session, up: &Up, log: File) -> Result<Child, Failure> {
    let broken = |e: std::io::Error| Failure::internal(format!("cannot start the daemon: {e}"));
    let exe = std::env::current_exe().map_err(broken)?;
    let mut command = Command::new(exe);
    command.arg("up").arg("--__detached").arg("--state").arg(session.paths.root());
    if let Some(cgroup) = &up.cgroup {
        command.arg("--cgroup").arg(cgroup);
    }
    command.args(up.api.flags()?);
    if let Some(at) = &up.metrics {
        command.arg(format!("--metrics={at}"));
    }
    let kernel_log =
        std::path::absolute(&up.kernel_log).map_err(|e| Failure::file("find", &up.kernel_log, &e))?;
    command.arg("--kernel-log").arg(kernel_log);
    if let Some(url) = &up.dcgm {
        command.arg(format!("--dcgm={url}"));
    }
    command.arg(format!("--sample-every={}ms", up.sample_every.as_millis()));
    command.arg(format!("--idle-after={}ms", up.idle_after.as_millis()));
    let files =
        [("--cluster", &up.cluster), ("--queues", &up.queues), ("--dcgm-job-mapping", &up.dcgm_job_mapping)];
    for (flag, file) in files {
        if let Some(file) = file {
            command.arg(flag).arg(std::path::absolute(file).map_err(|e| Failure::file("find", file, &e))?);
        }
    }
    if up.found {
        command.arg("--found");
    }
    command.args(up.preflight.flags()).args(up.limits.flags()).args(up.log.flags());
    let out = log.try_clone().map_err(broken)?;
    // Of no folder, so that none is kept busy.
    command.current_dir("/").stdin(Stdio::null()).stdout(out).stderr(log).spawn().map_err(broken)
}

fn ready(session: &Session, pid: u32) -> Result<ExitCode, Failure> {
    let root = session.paths.root().display().to_string();
    let warnings = client::nodes(&session.paths.socket()).map_or_else(|_| Vec::new(), |view| view.warnings);
    let body = serde_json::json!({ "pid": pid, "state": root, "warnings": warnings });
    let page = |quiet: bool| {
        if quiet { String::new() } else { format!("the daemon runs (pid {pid}, state in {root})\n") }
    };
    session.out.show("Daemon", body, |p| page(p.quiet), || vec![pid.to_string()])?;
    for warning in warnings {
        output::print_error(&format!("{} {warning}\n", "warning:".yellow()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The last lines that were written since `begin`, indented.
fn last_lines(path: &Path, begin: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(begin))?;
        file.take(LOG_READ_MAX).read_to_end(&mut bytes)
    });
    if read.is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let lines = lines.get(lines.len().saturating_sub(LINES_SHOWN)..).unwrap_or_default();
    lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Stops the daemon and waits until it is gone.
pub(super) fn down(session: &Session) -> Result<ExitCode, Failure> {
    let code = session.done(Ask::Stop)?;
    let asked = Instant::now();
    while client::ask_once(&session.paths.socket(), Ask::Ping).is_ok() {
        if asked.elapsed() > STOP {
            return Err(Failure::unavailable("the daemon still answers", "it may be busy; try again"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(code)
}

/// Sleeps until SIGTERM.
pub(super) fn hold() -> ExitCode {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    match signals.thread_block().and_then(|()| signals.wait()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
