//! Working in a terminal of a job: `run --pty`, `alloc`, `attach`, `exec`. The daemon says where the terminal is; what is
//! typed and shown goes between this process and the keeper.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::SigSet;
use phalanx_api::protocol::{Answer, ExecAsk, JobRef, TerminalView, Verb as Ask};
use phalanx_local::RANK_TERMINAL as RANK;
use phalanx_model::JobId;
use phalanx_node::terminal::{self, Outcome, Surface, Surroundings, keeper};

use super::follow::{self, INTERRUPTED, Interrupt};
use super::{Session, submit};
use crate::args::{Alloc, Exec, JobArgs};
use crate::failure::Failure;
use crate::output::print_error;
use crate::submission::Submission;

/// How long a keeper that was just started may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);
/// The kind of terminal where this one does not say.
const PLAIN: &str = "vt100";
/// How a shell is named that is not known.
const SHELL: &str = "/bin/bash";
/// What a failed attachment is told to do next.
const AGAIN: &str = "`phalanx get` shows whether the job still runs; try again";

/// The keeper itself.
pub(super) fn keep(words: &[String]) -> ExitCode {
    match keeper::Ask::read(words) {
        Some(ask) => keeper::main(&ask),
        None => {
            print_error("__terminal is for the daemon\n");
            ExitCode::from(crate::failure::USAGE)
        }
    }
}

/// A shell on the first node of a job that holds the others.
pub(super) fn alloc(session: &Session, alloc: Alloc) -> Result<ExitCode, Failure> {
    let mut job = alloc.job;
    if job.command.is_empty() && job.file.is_none() {
        job.command = vec![variable("SHELL").unwrap_or_else(|| SHELL.to_owned())];
    }
    if job.launch.is_none() && job.file.is_none() {
        job.launch = Some("mpi".to_owned());
    }
    run(session, job)
}

/// Submits a job whose first rank has a terminal, waits until it runs, and attaches.
pub(super) fn run(session: &Session, mut job: JobArgs) -> Result<ExitCode, Failure> {
    check()?;
    job.terminal = true;
    // Who sits at one terminal wants one process with all GPUs of the node, and not one process for each GPU.
    if job.file.is_none() && job.launch.is_none() && job.ranks.is_none() && job.ranks_per_node.is_none() {
        job.launch = Some("none".to_owned());
    }
    if !job.env.iter().any(|env| env == "TERM" || env.starts_with("TERM=")) {
        job.env.push(format!("TERM={}", kind()));
    }
    sit_at(session, submit::read(session, job)?)
}

/// # Errors
/// If standard input is not a terminal.
pub(crate) fn check() -> Result<(), Failure> {
    if terminal::client::has_terminal() {
        return Ok(());
    }
    let hint = "without a terminal, leave --pty out; `phalanx submit` with `terminal: true` in its file starts a job \
                that `phalanx attach` connects to later";
    Err(Failure::usage("standard input is not a terminal", hint))
}

/// Submits a job that has a terminal, waits until it runs, and attaches.
pub(crate) fn sit_at(session: &Session, submission: Submission) -> Result<ExitCode, Failure> {
    // Before the job exists, so that no Ctrl-C can fall between the two.
    let interrupts = follow::block_interrupts();
    let job = submit::begin(session, submission)?;
    let told = match follow::until_running(session, job, interrupts)? {
        follow::Begun::Running(told) => told,
        follow::Begun::Ended(code) => return Ok(code),
    };
    let Ok(place) = place_of(session, Ask::Terminal { job: JobRef::Id(job) }) else {
        // It ended before this came: its output is in its log, and its code is the answer.
        return follow::run(session, job, Some(1), Interrupt::Cancel, interrupts);
    };
    let outcome = connect(session, &place, Surface::Terminal, move || told.wait())?;
    finish(session, job, outcome, interrupts)
}

/// Connects to the terminal of a job that runs.
pub(super) fn attach(session: &Session, job: &str) -> Result<ExitCode, Failure> {
    if !terminal::client::has_terminal() {
        let hint = "`phalanx logs -f` shows what the job writes";
        return Err(Failure::usage("standard input is not a terminal", hint));
    }
    let interrupts = follow::block_interrupts();
    let place = place_of(session, Ask::Terminal { job: JobRef::parse(job) })?;
    let outcome = connect(session, &place, Surface::Terminal, move || wait_for_one(interrupts))?;
    finish(session, place.member.gang.job, outcome, interrupts)
}

/// The job ends with what ran in its terminal, and this exits as the job does.
fn finish(session: &Session, job: JobId, outcome: Outcome, interrupts: SigSet) -> Result<ExitCode, Failure> {
    match outcome {
        Outcome::Detached => {
            let text = format!(
                "job {job} goes on; `phalanx attach {job}` comes back to it, `phalanx cancel {job}` ends it"
            );
            session.out.note(&text);
            Ok(ExitCode::SUCCESS)
        }
        Outcome::Ended { .. } | Outcome::Lost => {
            follow::run(session, job, None, Interrupt::Leave, interrupts)
        }
    }
}

/// Runs a command beside a rank, and exits with its code.
pub(super) fn exec(session: &Session, exec: &Exec) -> Result<ExitCode, Failure> {
    let at_terminal = terminal::client::has_terminal();
    if exec.pty && !at_terminal {
        return Err(Failure::usage("standard input is not a terminal", "leave --pty out"));
    }
    let in_terminal = exec.pty || (!exec.no_pty && at_terminal && std::io::stdout().is_terminal());
    let surface = if in_terminal { Surface::Terminal } else { Surface::Pipes };
    let ask = ExecAsk { rank: exec.rank, argv: exec.command.clone(), terminal: in_terminal.then(kind) };
    let interrupts = follow::block_interrupts();
    let place = place_of(session, Ask::Exec { job: JobRef::parse(&exec.job), ask })?;
    Ok(match connect(session, &place, surface, move || wait_for_one(interrupts))? {
        Outcome::Ended { code, signal } => {
            let code = code.or_else(|| signal.map(|signal| 128 + signal)).unwrap_or(1);
            ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
        }
        Outcome::Detached => ExitCode::SUCCESS,
        Outcome::Lost => {
            print_error("the command ended with the job, or was interrupted\n");
            ExitCode::from(INTERRUPTED)
        }
    })
}

fn connect(
    session: &Session,
    place: &TerminalView,
    surface: Surface,
    let_go: impl FnOnce() + Send + 'static,
) -> Result<Outcome, Failure> {
    let job = place.member.gang.job;
    // The terminal of a job stays when this leaves; that of a command does not.
    let stays = place.name == RANK;
    let around = Surroundings {
        uid: place.uid,
        surface,
        patience: PATIENCE,
        let_go: Box::new(let_go),
        on_attached: Box::new(move || {
            if stays {
                session.out.note(&format!("attached to job {job}; Ctrl-] d leaves it running"));
            }
        }),
    };
    terminal::attach(&place.dir, &place.name, around).map_err(|e| Failure::unavailable(e.to_string(), AGAIN))
}

fn place_of(session: &Session, ask: Ask) -> Result<TerminalView, Failure> {
    match session.ask(ask)? {
        Answer::Terminal(place) => Ok(place),
        _ => Err(Failure::unexpected()),
    }
}

/// Until one of these signals comes, or none can be waited for.
fn wait_for_one(signals: SigSet) {
    let _ = signals.wait();
}

pub(crate) fn kind() -> String {
    variable("TERM").unwrap_or_else(|| PLAIN.to_owned())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
