//! Listing, describing, explaining and cancelling jobs.

use std::process::ExitCode;

use phalanx_api::protocol::{Answer, JobFilter, JobRef, JobView, Verb as Ask, WhyView};
use phalanx_model::{NodeName, Placement};
use serde::Serialize;
use serde_json::json;

use super::Session;
use crate::args::{Cancel, Ps};
use crate::failure::Failure;
use crate::output::Items;
use crate::show;
use crate::show::why::Names;

/// Jobs that are cancelled at once.
const CANCELLED_MAX: u32 = 10_000;
/// Jobs whose names `why` and `submit --dry-run` know.
const NAMES_MAX: u32 = 10_000;

pub(super) fn ps(session: &Session, ps: &Ps) -> Result<ExitCode, Failure> {
    let filter = ps.which.filter(ps.mine.then(own_uid));
    let finished = ps.all || filter.wants_ended();
    let verb = Ask::List { finished, filter, limit: ps.limit };
    let Answer::Jobs(jobs) = session.ask(verb)? else { return Err(Failure::unexpected()) };
    list(session, &jobs, finished)?;
    Ok(ExitCode::SUCCESS)
}

fn list(session: &Session, jobs: &[JobView], finished: bool) -> Result<(), Failure> {
    let names = || jobs.iter().map(|job| job.id.to_string()).collect();
    let body = Items { items: jobs };
    session.out.show("JobList", body, |page| show::jobs::list(page, jobs, finished), names)
}

/// A view, and which of the nodes in it are only declared.
#[derive(Serialize)]
struct Marked<'a, T> {
    #[serde(flatten)]
    view: &'a T,
    declared_nodes: Vec<NodeName>,
}

pub(super) fn get(session: &Session, job: &str) -> Result<ExitCode, Failure> {
    let Answer::Job(view) = session.ask(Ask::Get { job: JobRef::parse(job) })? else {
        return Err(Failure::unexpected());
    };
    show(session, &view)?;
    Ok(ExitCode::SUCCESS)
}

/// One job in full.
pub(super) fn show(session: &Session, view: &JobView) -> Result<(), Failure> {
    let fleet = session.fleet()?;
    let placements = view.gangs.iter().filter_map(|g| g.placement.as_ref());
    let body = Marked { view, declared_nodes: fleet.declared_of(placements) };
    let names = || vec![view.id.to_string()];
    session.out.show("Job", body, |page| show::jobs::one(page, view, &fleet), names)
}

pub(super) fn why(session: &Session, job: &str) -> Result<ExitCode, Failure> {
    let Answer::Why(view) = session.ask(Ask::Why { job: JobRef::parse(job) })? else {
        return Err(Failure::unexpected());
    };
    let (fleet, names) = (session.fleet()?, names(session)?);
    let body = Marked { view: &view, declared_nodes: fleet.declared_of(nearest(&view)) };
    let words = || view.reports.iter().map(|r| r.reason.word().to_owned()).collect();
    session.out.show("Why", body, |page| show::why::page(page, &view, &names, &fleet), words)?;
    Ok(ExitCode::SUCCESS)
}

fn nearest(view: &WhyView) -> impl Iterator<Item = &Placement> {
    view.reports.iter().filter_map(|r| r.nearest.as_ref())
}

/// Names of the jobs that are not finished.
pub(super) fn names(session: &Session) -> Result<Names, Failure> {
    let verb = Ask::List { finished: false, filter: JobFilter::default(), limit: NAMES_MAX };
    let Answer::Jobs(jobs) = session.ask(verb)? else { return Err(Failure::unexpected()) };
    Ok(jobs.into_iter().map(|job| (job.id, job.name)).collect())
}

fn own_uid() -> u32 {
    nix::unistd::getuid().as_raw()
}

/// Cancels the jobs that the flags mean: one's own, unless users are named.
pub(super) fn cancel_by(session: &Session, asked: &Cancel) -> Result<ExitCode, Failure> {
    let is_own = !asked.all_users && !asked.which.names_a_user();
    let filter = asked.which.filter(is_own.then(own_uid));
    if filter.wants_ended() {
        return Err(Failure::usage(
            "jobs in a state like that have ended",
            "`phalanx ps --states` lists them",
        ));
    }
    let verb = Ask::List { finished: false, filter, limit: CANCELLED_MAX };
    let Answer::Jobs(jobs) = session.ask(verb)? else { return Err(Failure::unexpected()) };
    if asked.dry_run || jobs.is_empty() {
        list(session, &jobs, false)?;
        session.out.note(if jobs.is_empty() {
            "no job is meant by that"
        } else {
            "none of these was cancelled"
        });
        return Ok(ExitCode::SUCCESS);
    }
    cancel(session, &jobs.iter().map(|job| job.id.to_string()).collect::<Vec<_>>())
}

/// Every job is tried; the first failure is the exit code, and what was done is one document.
pub(super) fn cancel(session: &Session, jobs: &[String]) -> Result<ExitCode, Failure> {
    if let [job] = jobs {
        return session.done(Ask::Cancel { job: JobRef::parse(job) });
    }
    let mut done = Vec::new();
    let mut first = ExitCode::SUCCESS;
    for job in jobs {
        match session.ask(Ask::Cancel { job: JobRef::parse(job) }) {
            Ok(Answer::Done { detail }) => done.push(detail),
            Ok(_) => return Err(Failure::unexpected()),
            Err(failure) => {
                let code = failure.report(&session.out.format);
                first = if first == ExitCode::SUCCESS { code } else { first };
            }
        }
    }
    let items: Vec<_> = done.iter().map(|detail| json!({ "detail": detail })).collect();
    let page =
        |page: &show::Page| done.iter().filter(|_| !page.quiet).map(|detail| format!("{detail}\n")).collect();
    session.out.show("DoneList", json!({ "items": items }), page, Vec::new)?;
    Ok(first)
}
