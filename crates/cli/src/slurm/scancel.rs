//! `scancel`: cancels jobs, by number or by what the options say.

use std::process::ExitCode;

use phalanx_api::protocol::{JobRef, Verb as Ask};

use super::options::{self, After, Flag, Takes, Where, alias, ignored, refused, used};
use super::rows::{self, Meant};
use crate::failure::Failure;
use crate::output;
use crate::verbs::Session;

use Takes::{Nothing, Value};

const FROM: Where<'static> = Where { command: "scancel", place: None };

pub(super) const FLAGS: &[Flag] = &[
    used("user", 'u', Value),
    used("me", ' ', Nothing),
    used("name", 'n', Value),
    alias("jobname", ' ', Value, "name"),
    used("states", 't', Value),
    alias("state", ' ', Value, "states"),
    used("partition", 'p', Value),
    used("signal", 's', Value),
    used("quiet", 'Q', Nothing),
    used("verbose", 'v', Nothing),
    ignored("full", 'f', Nothing, ""),
    ignored("ctld", ' ', Nothing, ""),
    ignored("hurry", 'H', Nothing, ""),
    ignored("account", 'A', Value, "jobs have queues and no accounts"),
    refused("batch", 'b', Nothing, "signals go to whole jobs", "`phalanx exec JOB -- kill -USR1 PID`"),
    refused(
        "interactive",
        'i',
        Nothing,
        "jobs are cancelled without a question",
        "`phalanx cancel --dry-run` shows which are meant",
    ),
    refused("nodelist", 'w', Value, "jobs are not chosen by node", "`phalanx drain NODE` empties a node"),
    refused("qos", 'q', Value, "jobs are not chosen by class", "name the jobs"),
    refused("reservation", 'R', Value, "there are no named reservations", "leave the option out"),
    refused("wckey", ' ', Value, "there are no such keys", "leave the option out"),
    refused("clusters", 'M', Value, "there is one cluster", "leave the option out"),
];

pub(super) fn scancel(session: &Session, words: &[String]) -> Result<ExitCode, Failure> {
    let given = options::read(&[FLAGS], FROM, words, After::Options)?;
    super::note(&FROM, &given);
    if let Some(text) = given.get("signal") {
        let number = super::job::signal_number(text);
        if !matches!(number, Some(9 | 15)) {
            let what = format!(
                "--signal={text} is not supported: a job is asked to end with SIGTERM, and then killed"
            );
            return Err(FROM.refuse(&what, "`phalanx exec JOB -- kill -USR1 PID` signals a process of a job"));
        }
    }
    let mut jobs: Vec<JobRef> = Vec::new();
    for id in given.words.iter().flat_map(|word| rows::split_ids(word)) {
        jobs.push(rows::job(&id, FROM)?);
    }
    let mut meant = Meant::read(&given, FROM)?;
    if jobs.is_empty() {
        if meant.is_nothing() {
            return Err(
                FROM.refuse("no job is named", "scancel JOB, or --user, --name, --partition, --state")
            );
        }
        // One's own, unless users are named.
        meant.of_user(rows::me());
        jobs = cancelled(session, &meant)?;
    } else if !meant.is_nothing() {
        let mut of_all = Vec::new();
        for job in jobs {
            meant.jobs = vec![job.clone()];
            of_all.extend(match job {
                JobRef::Tasks(..) => tasks(session, &meant, job)?,
                _ => cancelled(session, &meant)?,
            });
        }
        jobs = of_all;
    }
    let mut code = ExitCode::SUCCESS;
    for job in jobs {
        match session.ask(Ask::Cancel { job }) {
            Ok(phalanx_api::protocol::Answer::Done { detail }) if given.has("verbose") => {
                output::print_error(&format!("scancel: {detail}\n"));
            }
            Ok(_) => {}
            Err(failure) if given.has("quiet") && failure.is_not_found() => {}
            Err(failure) => code = failure.report(&session.out.format),
        }
    }
    Ok(code)
}

/// The tasks that were named, and no others of their array.
fn tasks(session: &Session, meant: &Meant, named: JobRef) -> Result<Vec<JobRef>, Failure> {
    if meant.has_states() {
        let hint = "name the tasks alone; `squeue -r -j JOB` lists their states";
        return Err(FROM.refuse("tasks of an array with --state are not supported", hint));
    }
    let is_meant = !meant.ask(session, false, false)?.is_empty();
    Ok(if is_meant { vec![named] } else { Vec::new() })
}

/// Jobs, and tasks of arrays, that are in a state that is meant.
fn cancelled(session: &Session, meant: &Meant) -> Result<Vec<JobRef>, Failure> {
    let views = meant.ask(session, false, false)?;
    let mut jobs = Vec::new();
    for view in &views {
        let rows = rows::of(view);
        let is_listed = view.array.as_ref().is_none_or(|array| array.left_out == 0);
        let is_whole = (is_listed || !meant.has_states())
            && rows.iter().filter(|row| row.ended_at.is_none()).all(|row| meant.is_in_state(row));
        if is_whole {
            jobs.push(JobRef::Id(view.id));
            continue;
        }
        // The states of tasks that the daemon does not list are not known.
        if view.array.as_ref().is_some_and(|array| array.left_out > 0) {
            let what = format!("the array {} has too many tasks for --state", view.id);
            return Err(FROM.refuse(&what, &format!("name its tasks: scancel {}_[0-9]", view.id)));
        }
        for row in rows.iter().filter(|row| row.ended_at.is_none() && meant.is_in_state(row)) {
            jobs.push(rows::job(&row.id, FROM)?);
        }
    }
    Ok(jobs)
}
