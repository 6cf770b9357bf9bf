//! Waiting for a job: `run` shows its output, `submit --wait` only how it goes. Both exit as the job does.
//!
//! Threads read the daemon's streams and wait for signals; the main thread takes what happens from one channel
//! and so is the only one that prints. A daemon that is restarted meanwhile is waited for: the job goes on.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::signal::{SigSet, Signal};
use phalanx_api::client::{self, ClientError, Server};
use phalanx_api::protocol::{Answer, JobRef, JobView, LogAsk, Verb as Ask};
use phalanx_model::{Ending, JobId};

use super::{Session, jobs, logs};
use crate::failure::Failure;
use crate::output::{print_error, try_print};
use crate::show;

/// How often and how many times a daemon that went away is looked for: for two minutes.
const RECONNECT: Duration = Duration::from_millis(500);
const RECONNECTS: u32 = 240;
/// What shells report for a program that Ctrl-C ended.
pub(super) const INTERRUPTED: u8 = 130;

/// What Ctrl-C means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    Cancel,
    Leave,
}

/// What the main thread hears of.
enum Happening {
    Event {
        what: String,
        detail: String,
    },
    Line {
        task: Option<u32>,
        rank: u32,
        line: String,
    },
    /// The log is read to its end.
    LogsOver,
    Ended(Box<JobView>),
    DaemonGone,
    Interrupted,
    Failed(Failure),
}

/// Interrupts wait to be taken by a thread, from now on and in every thread that follows.
pub(crate) fn block_interrupts() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGHUP);
    let _ = signals.thread_block();
    signals
}

/// Waits for the end without showing output. Ctrl-C ends the wait and not the job.
pub(crate) fn wait(session: &Session, job: JobId) -> Result<ExitCode, Failure> {
    let interrupts = block_interrupts();
    let view = Follower::start(session, job, None, Interrupt::Leave, interrupts)?.finish()?;
    let Some(view) = view else { return Ok(ExitCode::from(INTERRUPTED)) };
    if session.out.format.is_document() {
        jobs::show(session, &view)?;
    }
    Ok(exit_code(&view))
}

/// Waits for the end; with the number of its members it shows the output of the job until then.
pub(crate) fn run(
    session: &Session,
    job: JobId,
    ranks: Option<u32>,
    interrupt: Interrupt,
    interrupts: SigSet,
) -> Result<ExitCode, Failure> {
    let view = Follower::start(session, job, ranks, interrupt, interrupts)?.finish()?;
    Ok(view.map_or(ExitCode::from(INTERRUPTED), |view| exit_code(&view)))
}

/// What came of waiting for a job to run.
pub(super) enum Begun {
    /// It runs; interrupts are heard of here from now on.
    Running(Interrupts),
    /// It ended, or this was left, with this code.
    Ended(ExitCode),
}

/// Ctrl-C and the like, as the thread that waits for them tells.
pub(super) struct Interrupts(Receiver<Happening>);

impl Interrupts {
    /// Until one comes, or none can.
    pub(crate) fn wait(&self) {
        while let Ok(happening) = self.0.recv() {
            if matches!(happening, Happening::Interrupted) {
                return;
            }
        }
    }
}

/// Waits until the job runs. Ctrl-C cancels it.
pub(super) fn until_running(session: &Session, job: JobId, interrupts: SigSet) -> Result<Begun, Failure> {
    let mut follower = Follower::start(session, job, None, Interrupt::Cancel, interrupts)?;
    follower.until_running = true;
    let came = follower.follow()?;
    Ok(match came {
        Came::Running => Begun::Running(Interrupts(follower.happenings)),
        Came::Ended(view) => Begun::Ended(exit_code(&view)),
        Came::Left => Begun::Ended(ExitCode::from(INTERRUPTED)),
    })
}

/// The job's own code as far as a process can have it; a code that would look like success becomes 1.
fn exit_code(view: &JobView) -> ExitCode {
    ExitCode::from(code_of(view))
}

/// As [`exit_code`], to be compared.
pub(super) fn code_of(view: &JobView) -> u8 {
    let code = view.ending.as_ref().map_or(1, Ending::exit_code);
    match u8::try_from(code & 0xff).unwrap_or(1) {
        0 if code != 0 => 1,
        code => code,
    }
}

struct Follower<'a> {
    session: &'a Session,
    job: JobId,
    /// Members of the job, when their output is shown.
    ranks: Option<u32>,
    interrupt: Interrupt,
    happenings: Receiver<Happening>,
    bar: Option<ProgressBar>,
    /// This is over when the job runs.
    until_running: bool,
}

/// Why a follower is done.
enum Came {
    Running,
    Ended(Box<JobView>),
    /// This was left before the end.
    Left,
}

impl<'a> Follower<'a> {
    fn start(
        session: &'a Session,
        job: JobId,
        ranks: Option<u32>,
        interrupt: Interrupt,
        interrupts: SigSet,
    ) -> Result<Self, Failure> {
        let (tell, happenings) = channel();
        let server = session.server()?.clone();
        follow_events(server.clone(), job, tell.clone());
        if ranks.is_some() {
            follow_logs(server, job, tell.clone());
        }
        std::thread::spawn(
            move || while interrupts.wait().is_ok() && tell.send(Happening::Interrupted).is_ok() {},
        );
        let bar = session.out.has_progress().then(|| spinner(job));
        Ok(Self { session, job, ranks, interrupt, happenings, bar, until_running: false })
    }

    /// The job as it ended; `None` when this was left before.
    fn finish(self) -> Result<Option<JobView>, Failure> {
        match self.follow()? {
            Came::Ended(view) => Ok(Some(*view)),
            Came::Running | Came::Left => Ok(None),
        }
    }

    fn follow(&self) -> Result<Came, Failure> {
        let mut ended = None;
        let mut logs_over = self.ranks.is_none();
        let mut interrupts = 0;
        while let Ok(happening) = self.happenings.recv() {
            match happening {
                Happening::Event { what, .. } if self.until_running && what == "running" => {
                    if let Some(bar) = &self.bar {
                        bar.finish_and_clear();
                    }
                    return Ok(Came::Running);
                }
                Happening::Event { what, detail } => self.event(&what, &detail),
                Happening::Line { task, rank, line } => {
                    if self.line(task, rank, &line).is_err() {
                        // Nobody reads any more: as if interrupted, and there is no second chance to be.
                        self.on_interrupt();
                        return Ok(Came::Left);
                    }
                }
                Happening::LogsOver => logs_over = true,
                Happening::Ended(view) => ended = Some(view),
                Happening::DaemonGone => {
                    self.say("the daemon is gone; the job goes on, and this waits for it")
                }
                Happening::Failed(failure) => return Err(failure),
                Happening::Interrupted => {
                    interrupts += 1;
                    let leaves = self.on_interrupt();
                    if leaves || interrupts > 1 {
                        return Ok(Came::Left);
                    }
                }
            }
            if logs_over && let Some(view) = ended.take_if(|_| true) {
                self.close(&view);
                return Ok(Came::Ended(view));
            }
        }
        Ok(Came::Left)
    }

    /// Whether this leaves now.
    fn on_interrupt(&self) -> bool {
        let job = self.job;
        if self.interrupt == Interrupt::Leave {
            self.say(&format!(
                "job {job} goes on; `phalanx logs -f {job}` shows it, `phalanx cancel {job}` ends it"
            ));
            return true;
        }
        match self.session.ask(Ask::Cancel { job: JobRef::Id(job) }) {
            Ok(_) => self.say(&format!("job {job} is being cancelled; Ctrl-C again leaves at once")),
            Err(failure) => self.say(&format!("job {job} could not be cancelled: {}", failure.message)),
        }
        false
    }

    fn event(&self, what: &str, detail: &str) {
        // Said before this follows, and after it by the last line.
        if what == "submitted" || Ending::WORDS.contains(&what) {
            return;
        }
        let text = if detail.is_empty() { what.to_owned() } else { format!("{what}: {detail}") };
        match &self.bar {
            // From here on the program itself shows how it goes.
            Some(bar) if what == "running" && self.ranks.is_some() => bar.finish_and_clear(),
            Some(bar) if !bar.is_finished() => bar.set_message(text),
            _ => self.say(&text),
        }
    }

    fn line(&self, task: Option<u32>, rank: u32, line: &str) -> std::io::Result<()> {
        let text = logs::line_of(
            task,
            rank,
            line,
            logs::Prefix { task: true, rank: self.ranks.is_some_and(|n| n > 1) },
        );
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        try_print(&text)
    }

    /// A line to standard error.
    fn say(&self, text: &str) {
        let line = || self.session.out.note(text);
        match &self.bar {
            Some(bar) => bar.suspend(line),
            None => line(),
        }
    }

    /// How it ended.
    fn close(&self, view: &JobView) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let is_bad = !matches!(view.ending, Some(Ending::Succeeded));
        let out = &self.session.out;
        if !out.format.is_document() && (is_bad || !out.page.quiet) {
            print_error(&show::jobs::ended_line(&out.page, view));
        }
    }
}

fn spinner(job: JobId) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner:.cyan} {prefix} {elapsed:.dim} {wide_msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(format!("job {job}"));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Tells of every event once, and then how the job ended.
fn follow_events(server: Server, job: JobId, tell: Sender<Happening>) {
    std::thread::spawn(move || {
        let mut told = 0;
        let gone = || drop(tell.send(Happening::DaemonGone));
        let result = persist(gone, || {
            // After a reconnection the daemon tells everything again.
            let mut again = told;
            for answer in client::ask(&server, Ask::Follow { job: JobRef::Id(job) })? {
                match answer? {
                    Answer::Event { .. } if again > 0 => again -= 1,
                    Answer::Event { what, detail, .. } => {
                        told += 1;
                        let _ = tell.send(Happening::Event { what, detail });
                    }
                    Answer::Job(view) => {
                        let _ = tell.send(Happening::Ended(view));
                        return Ok(true);
                    }
                    _ => {}
                }
            }
            Ok(false)
        });
        if let Err(error) = result {
            let _ = tell.send(Happening::Failed(error.into()));
        }
    });
}

/// Tells of every line once, until the job has ended.
fn follow_logs(server: Server, job: JobId, tell: Sender<Happening>) {
    std::thread::spawn(move || {
        let mut told: BTreeMap<(Option<u32>, u32, u32), u64> = BTreeMap::new();
        // The other thread says that the daemon is gone.
        let result = persist(
            || (),
            || {
                let mut again = told.clone();
                let verb =
                    Ask::Logs { job: JobRef::Id(job), ask: LogAsk { follow: true, ..LogAsk::default() } };
                for answer in client::ask(&server, verb)? {
                    let Answer::Log { task, rank, attempt, line, .. } = answer? else { continue };
                    match again.get_mut(&(task, attempt, rank)).filter(|left| **left > 0) {
                        Some(left) => *left -= 1,
                        None => {
                            *told.entry((task, attempt, rank)).or_default() += 1;
                            let _ = tell.send(Happening::Line { task, rank, line });
                        }
                    }
                }
                // A stream that broke looks like one that ended, so the job itself says which it was.
                has_ended(&server, job)
            },
        );
        let _ = match result {
            Ok(()) => tell.send(Happening::LogsOver),
            Err(error) => tell.send(Happening::Failed(error.into())),
        };
    });
}

fn has_ended(server: &Server, job: JobId) -> Result<bool, ClientError> {
    let answer = client::ask_once(server, Ask::Get { job: JobRef::Id(job) })?;
    Ok(matches!(answer, Answer::Job(view) if view.ending.is_some()))
}

/// Repeats until `attempt` is done, while the daemon comes back in time.
pub(super) fn persist(
    on_gone: impl Fn(),
    mut attempt: impl FnMut() -> Result<bool, ClientError>,
) -> Result<(), ClientError> {
    let mut failures = 0;
    loop {
        match attempt() {
            Ok(true) => return Ok(()),
            Ok(false) => failures = 0,
            Err(error @ (ClientError::Refused(_) | ClientError::Misunderstood(_) | ClientError::NoHttp)) => {
                return Err(error);
            }
            Err(error) if failures >= RECONNECTS => return Err(error),
            Err(_) => {
                if failures == 0 {
                    on_gone();
                }
                failures += 1;
            }
        }
        std::thread::sleep(RECONNECT);
    }
}
