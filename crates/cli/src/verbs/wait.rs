//! Waiting for several jobs: one stream of the daemon says which have ended.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use phalanx_api::client::{self, Server};
use phalanx_api::protocol::{Answer, JobRef, JobView, Verb as Ask};
use phalanx_model::{Ending, JobId};
use phalanx_spec::quantity::parse_duration_ns;

use super::Session;
use super::follow::{INTERRUPTED, block_interrupts, code_of, persist};
use crate::args::Wait;
use crate::failure::Failure;
use crate::output::{Items, print_error};
use crate::show;

/// The longest wait of a channel: longer times wait for ever.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// Jobs that a message names.
const NAMED_MAX: usize = 8;

/// What the main thread receives.
enum Happening {
    Ended(Box<JobView>),
    DaemonGone,
    Interrupted,
    Failed(Failure),
}

/// Waits for all jobs, or for the first. Ctrl-C ends the wait and not the jobs.
pub(super) fn wait(session: &Session, asked: &Wait) -> Result<ExitCode, Failure> {
    let interrupts = block_interrupts();
    let timeout = asked.timeout.as_deref().map(duration).transpose()?;
    let began = Instant::now();
    let jobs = numbers(session, &asked.jobs)?;
    let (sender, happenings) = channel();
    follow(session.server()?.clone(), jobs.clone(), sender.clone());
    std::thread::spawn(
        move || while interrupts.wait().is_ok() && sender.send(Happening::Interrupted).is_ok() {},
    );
    let wanted = if asked.any { 1 } else { jobs.len() };
    let mut ended: BTreeMap<JobId, JobView> = BTreeMap::new();
    while ended.len() < wanted {
        let left = timeout.map_or(FOREVER, |timeout| timeout.saturating_sub(began.elapsed()));
        match happenings.recv_timeout(left) {
            Ok(Happening::Ended(view)) => {
                say(session, &view);
                ended.insert(view.id, *view);
            }
            Ok(Happening::DaemonGone) => {
                session.out.note("the daemon is gone; the jobs go on, and this command waits for the daemon");
            }
            Ok(Happening::Interrupted) => return Ok(ExitCode::from(INTERRUPTED)),
            Ok(Happening::Failed(failure)) => return Err(failure),
            Err(RecvTimeoutError::Timeout) => return Err(late(&jobs, &ended)),
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::unexpected()),
        }
    }
    let ended: Vec<JobView> = ended.into_values().collect();
    if session.out.format.is_document() {
        session.out.show("JobList", Items { items: &ended }, |_| String::new(), Vec::new)?;
    }
    Ok(ExitCode::from(ended.iter().map(code_of).max().unwrap_or(0)))
}

fn duration(text: &str) -> Result<Duration, Failure> {
    let ns =
        parse_duration_ns(text).map_err(|e| Failure::usage(format!("--timeout: {e}"), "as in 90s or 2h"))?;
    Ok(Duration::from_nanos(ns))
}

/// Each job once. A name is looked up now: later it could be that of another job.
fn numbers(session: &Session, jobs: &[String]) -> Result<Vec<JobId>, Failure> {
    let number = |job: &String| match JobRef::parse(job) {
        JobRef::Id(id) => Ok(id),
        JobRef::Tasks(id, tasks) => {
            let message = format!("this waits for whole jobs, and {id}.{tasks} is a part of job {id}");
            Err(Failure::usage(message, format!("`phalanx wait {id}` waits for all of its tasks")))
        }
        name => match session.ask(Ask::Get { job: name })? {
            Answer::Job(view) => Ok(view.id),
            _ => Err(Failure::unexpected()),
        },
    };
    let mut jobs = jobs.iter().map(number).collect::<Result<Vec<JobId>, Failure>>()?;
    jobs.sort_unstable();
    jobs.dedup();
    Ok(jobs)
}

/// Reports each job once; after a restart of the daemon this asks for the jobs that are left.
fn follow(server: Server, mut left: Vec<JobId>, sender: Sender<Happening>) {
    std::thread::spawn(move || {
        let gone = || drop(sender.send(Happening::DaemonGone));
        let result = persist(gone, || {
            for answer in client::ask(&server, Ask::Wait { jobs: left.clone() })? {
                if let Answer::Job(view) = answer? {
                    left.retain(|id| *id != view.id);
                    let _ = sender.send(Happening::Ended(view));
                }
            }
            Ok(left.is_empty())
        });
        if let Err(error) = result {
            let _ = sender.send(Happening::Failed(error.into()));
        }
    });
}

/// How a job ended, on standard error.
fn say(session: &Session, view: &JobView) {
    let out = &session.out;
    let is_bad = !matches!(view.ending, Some(Ending::Succeeded));
    if !out.format.is_document() && (is_bad || !out.page.quiet) {
        print_error(&show::jobs::ended_line(&out.page, view));
    }
}

fn late(jobs: &[JobId], ended: &BTreeMap<JobId, JobView>) -> Failure {
    let left: Vec<String> =
        jobs.iter().filter(|id| !ended.contains_key(*id)).map(ToString::to_string).collect();
    let named = left.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = left.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let noun = if left.len() == 1 { "job" } else { "jobs" };
    Failure::unavailable(
        format!("--timeout is over, and {noun} {named}{more} did not end"),
        "the jobs go on; `phalanx wait` waits for them again",
    )
}
