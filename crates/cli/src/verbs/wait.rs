//! `wait`: until jobs have ended, over restarts of the daemon.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use phalanx_local::protocol::{Answer, JobRef, JobView, Verb as Ask};
use phalanx_model::{Ending, JobId};
use phalanx_spec::quantity::parse_duration_ns;

use super::{Session, follow};
use crate::args::Wait;
use crate::failure::Failure;
use crate::output::Items;
use crate::show;

/// Between two looks at jobs.
const LOOK: Duration = Duration::from_millis(300);
/// How long a daemon that went away is waited for.
const GONE: Duration = Duration::from_secs(120);

pub(super) fn wait(session: &Session, asked: &Wait) -> Result<ExitCode, Failure> {
    let timeout = asked.timeout.as_deref().map(duration).transpose()?;
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    // What a name stands for is settled now: a later job of that name is another.
    let mut waiting = Vec::new();
    for job in &asked.jobs {
        let Answer::Job(view) = session.ask(Ask::Get { job: JobRef::parse(job) })? else {
            return Err(Failure::unexpected());
        };
        waiting.push(view.id);
    }
    let mut ended: Vec<JobView> = Vec::new();
    let mut gone_since: Option<Instant> = None;
    loop {
        match look(session, &mut waiting, &mut ended) {
            Ok(()) => gone_since = None,
            Err(failure) => {
                let since = *gone_since.get_or_insert_with(Instant::now);
                if !failure.is_of_a_gone_daemon() || since.elapsed() > GONE {
                    return Err(failure);
                }
            }
        }
        if waiting.is_empty() || asked.any && !ended.is_empty() {
            break;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            let left: Vec<String> = waiting.iter().map(ToString::to_string).collect();
            let message = format!("not all jobs have ended: {} of {}", left.len(), asked.jobs.len());
            return Err(Failure::unavailable(message, format!("still there: {}", left.join(", "))));
        }
        std::thread::sleep(LOOK);
    }
    let names = || ended.iter().map(|job| job.id.to_string()).collect();
    let body = Items { items: &ended };
    session.out.show("JobList", body, |page| show::jobs::list(page, &ended, true), names)?;
    let bad = ended.iter().find(|job| job.ending.as_ref().map_or(0, Ending::exit_code) != 0);
    Ok(bad.map_or(ExitCode::SUCCESS, follow::exit_code))
}

/// Moves the jobs that have ended, in the order in which they are waited for.
fn look(session: &Session, waiting: &mut Vec<JobId>, ended: &mut Vec<JobView>) -> Result<(), Failure> {
    let mut at = 0;
    while let Some(job) = waiting.get(at).copied() {
        match session.ask(Ask::Get { job: JobRef::Id(job) })? {
            Answer::Job(view) if view.ending.is_some() => {
                ended.push(*view);
                waiting.remove(at);
            }
            Answer::Job(_) => at += 1,
            _ => return Err(Failure::unexpected()),
        }
    }
    Ok(())
}

fn duration(text: &str) -> Result<Duration, Failure> {
    let ns = parse_duration_ns(text).map_err(|e| Failure::usage(format!("--timeout: {e}"), "as in 90m"))?;
    Ok(Duration::from_nanos(ns))
}
