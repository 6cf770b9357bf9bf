//! Submitting a job: for real, as a dry run, and with its output on this terminal.

use std::collections::BTreeMap;
use std::process::ExitCode;

use phalanx_api::protocol::{Answer, DryRunView, JobRef, Verb as Ask};
use phalanx_model::{Gang, Job, JobId, NodeName};
use phalanx_spec::JobFile;
use serde::Serialize;

use super::follow::{self, Interrupt};
use super::{Session, jobs, terminal};
use crate::args::{JobArgs, Run, Submit};
use crate::failure::{Failure, USAGE};
use crate::output::Format;
use crate::show;
use crate::show::dry_run::DryRun;
use crate::submission::Submission;

/// What the daemon made of a submission.
#[derive(Serialize)]
pub(crate) struct Submitted {
    pub(crate) job: JobId,
    name: String,
    /// The key was used before, and this is that job.
    existing: bool,
}

pub(super) fn submit(session: &Session, submit: Submit) -> Result<ExitCode, Failure> {
    let Submit { job, dry_run, wait, image, kind: _, reach: _ } = submit;
    if image.is_some() {
        let hint = "say --to kubernetes; on one machine a job runs as a process";
        return Err(Failure::usage("--image is for clusters", hint));
    }
    let submission = read(session, job)?;
    if dry_run {
        return preview(session, &submission.job);
    }
    let submitted = hand_over(session, submission)?;
    if wait {
        return follow::wait(session, submitted.job);
    }
    let names = || vec![submitted.job.to_string()];
    session.out.show("Submitted", &submitted, |page| sentence(&submitted, page.quiet), names)?;
    Ok(ExitCode::SUCCESS)
}

/// The job as it is written, with the numbers of the jobs that it waits for by name.
pub(super) fn read(session: &Session, mut job: JobArgs) -> Result<Submission, Failure> {
    for after in &mut job.after {
        *after = by_number(session, after)?;
    }
    Submission::read(job)
}

/// `train:any` with the number of the job that `train` means now: the newest unfinished job of that name, else the newest.
fn by_number(session: &Session, after: &str) -> Result<String, Failure> {
    let (name, end) = after.find(':').map_or((after, ""), |at| after.split_at(at));
    let is_number = name.trim().bytes().all(|byte| byte.is_ascii_digit());
    // Of what is no name either, the reader of the flag says what is wrong.
    if is_number {
        return Ok(after.to_owned());
    }
    let Answer::Job(known) = session.ask(Ask::Get { job: JobRef::Name(name.trim().to_owned()) })? else {
        return Err(Failure::unexpected());
    };
    Ok(format!("{}{end}", known.id))
}

/// Submits a job that a user will sit at.
pub(super) fn begin(session: &Session, submission: Submission) -> Result<JobId, Failure> {
    let submitted = hand_over(session, submission)?;
    session.out.note(sentence(&submitted, false).trim_end());
    Ok(submitted.job)
}

pub(super) fn run(session: &Session, run: Run) -> Result<ExitCode, Failure> {
    if run.pty {
        return terminal::run(session, run.job);
    }
    let interrupt = if run.detach_on_interrupt { Interrupt::Leave } else { Interrupt::Cancel };
    let submission = read(session, run.job)?;
    let ranks = submission.job.gangs.iter().map(Gang::member_count).max().unwrap_or(1);
    // Before the job exists, so that no Ctrl-C can fall between the two.
    let interrupts = follow::block_interrupts();
    let submitted = hand_over(session, submission)?;
    session.out.note(sentence(&submitted, false).trim_end());
    follow::run(session, submitted.job, Some(ranks), interrupt, interrupts)
}

/// A job waits for nodes that are not there, as they may come; a name that was mistyped should not go unseen.
fn note_unknown_nodes(session: &Session, job: &Job) -> Result<(), Failure> {
    let named = || {
        let needs = job.gangs.iter().map(|gang| &gang.needs);
        needs.flat_map(|needs| needs.nodes.iter().chain(&needs.avoid).chain(&needs.prefer))
    };
    if named().next().is_none() {
        return Ok(());
    }
    let known = session.nodes()?;
    for name in named().filter(|name| !known.nodes.iter().any(|node| node.name == **name)) {
        session.out.note(&format!("no node is named {name} now; `phalanx nodes` lists those that there are"));
    }
    Ok(())
}

pub(crate) fn hand_over(
    session: &Session,
    Submission { job, secrets, file }: Submission,
) -> Result<Submitted, Failure> {
    note_unknown_nodes(session, &job)?;
    let verb = if session.server()?.is_elsewhere() {
        // Folders and variables of this machine mean nothing there: it starts as a job file does that a program sends.
        Ask::SubmitFile { text: text_for_elsewhere(file.as_deref(), &secrets)?, key: None, dry_run: false }
    } else {
        Ask::Submit { job: Box::new(with_umask(job)), secrets }
    };
    let Answer::Submitted { job, name, existing } = session.ask(verb)? else {
        return Err(Failure::unexpected());
    };
    Ok(Submitted { job, name, existing })
}

fn text_for_elsewhere(file: Option<&JobFile>, secrets: &BTreeMap<String, String>) -> Result<String, Failure> {
    let here = "submit it on the machine of the daemon, without PHALANX_URL";
    let Some(file) = file else {
        return Err(Failure::usage("batch scripts are not sent to another machine", here));
    };
    if let Some(name) = secrets.keys().next() {
        let hint = format!("name a file there: --secret {name}=FILE; or {here}");
        return Err(Failure::usage(format!("the secret {name} is not sent to another machine"), hint));
    }
    serde_json::to_string(file).map_err(|e| Failure::internal(format!("the job file cannot be written: {e}")))
}

/// Ranks make files as the submitter does.
fn with_umask(mut job: Job) -> Job {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask =
        status.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("Umask:")?.trim(), 8).ok());
    for program in job.gangs.iter_mut().flat_map(Gang::programs_mut) {
        program.umask = mask;
    }
    job
}

fn sentence(Submitted { job, name, existing }: &Submitted, quiet: bool) -> String {
    match (quiet, existing) {
        (true, _) => format!("{job}\n"),
        (false, true) => {
            format!("job {job} ({name}) was submitted with this key before; nothing new was submitted\n")
        }
        (false, false) => format!("job {job} ({name}) is submitted\n"),
    }
}

/// A dry run as a document.
#[derive(Serialize)]
struct Preview<'a> {
    #[serde(flatten)]
    view: &'a DryRunView,
    declared_nodes: Vec<NodeName>,
}

pub(crate) fn preview(session: &Session, job: &Job) -> Result<ExitCode, Failure> {
    note_unknown_nodes(session, job)?;
    let Answer::DryRun(view) = session.ask(Ask::DryRun { job: Box::new(job.clone()) })? else {
        return Err(Failure::unexpected());
    };
    if let Some(why) = view.rejected.as_ref().filter(|why| why.existing().is_none()) {
        if session.out.format == Format::Json || session.out.format == Format::Yaml {
            let body = Preview { view: &view, declared_nodes: Vec::new() };
            session.out.show("DryRun", body, |_| String::new(), Vec::new)?;
            return Ok(ExitCode::from(USAGE));
        }
        let known = session.nodes()?;
        let devices = known.nodes.iter().map(|node| node.devices).sum();
        let (message, hint) = phalanx_local::unfit(job, why, devices);
        return Err(Failure::usage(format!("this job would be refused: {message}"), hint));
    }
    if let Some(existing) = view.rejected.as_ref().and_then(|why| why.existing()) {
        session.out.note(&format!("job {existing} has this key already; nothing new would be submitted"));
        let verb = Ask::Get { job: JobRef::Id(existing) };
        let Answer::Job(known) = session.ask(verb)? else { return Err(Failure::unexpected()) };
        jobs::show(session, &known)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (fleet, names) = (session.fleet()?, jobs::names(session)?);
    let placements = view.reports.iter().filter_map(|r| r.nearest.as_ref());
    let body = Preview { view: &view, declared_nodes: fleet.declared_of(placements) };
    let dry_run = DryRun { job, view: &view, fleet: &fleet, names: &names };
    let words = || view.reports.iter().map(|r| r.reason.word().to_owned()).collect();
    session.out.show("DryRun", body, |page| show::dry_run::page(page, &dry_run), words)?;
    Ok(ExitCode::SUCCESS)
}
