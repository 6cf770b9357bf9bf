//! Queues, what happened, and what people and ranks say of a job.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use phalanx_api::protocol::{Answer, AuditFilter, BoostAsk, JobRef, News as Told, Verb as Ask};
use phalanx_local::queues::QueuesError;
use phalanx_model::{JobUpdate, QueueName};
use phalanx_spec::SharePolicy;
use phalanx_spec::quantity::{parse_duration_ns, parse_milli, parse_time_limit_ns};

use super::calendar::past;
use super::cluster::node_name;
use super::{Session, jobs};
use crate::args::{Audit, Boost, History, News, Queues, QueuesVerb, Tell, Update};
use crate::failure::Failure;
use crate::output::{self, Items};
use crate::show;

pub(super) fn queues(session: &Session, asked: &Queues) -> Result<ExitCode, Failure> {
    match (&asked.verb, &asked.name) {
        (Some(QueuesVerb::Apply { file }), _) => apply(session, file),
        (None, Some(name)) => one(session, name),
        (None, None) => list(session),
    }
}

fn list(session: &Session) -> Result<ExitCode, Failure> {
    let Answer::Queues(queues) = session.ask(Ask::Queues)? else { return Err(Failure::unexpected()) };
    let names = || queues.iter().map(|queue| queue.name.clone()).collect();
    let body = Items { items: &queues };
    session.out.show("QueueList", body, |page| show::queues::list(page, &queues), names)?;
    Ok(ExitCode::SUCCESS)
}

fn one(session: &Session, name: &str) -> Result<ExitCode, Failure> {
    let queue = QueueName::new(name)
        .map_err(|e| Failure::usage(format!("{name:?} is no queue: {e}"), "`phalanx queues` lists them"))?;
    let Answer::Queue(view) = session.ask(Ask::Queue { queue })? else { return Err(Failure::unexpected()) };
    let names = || view.waiting.iter().map(|gang| gang.gang.to_string()).collect();
    session.out.show("Queue", &view, |page| show::queues::one(page, &view), names)?;
    Ok(ExitCode::SUCCESS)
}

fn apply(session: &Session, file: &Path) -> Result<ExitCode, Failure> {
    let SharePolicy { settings, queues } = read(file)?;
    session.done(Ask::ApplyQueues { settings: Box::new(settings), queues })
}

fn read(file: &Path) -> Result<SharePolicy, Failure> {
    let read = if file.as_os_str() == "-" {
        let mut text = String::new();
        // One byte more than is read: the parser says that it is too long.
        let most = phalanx_spec::FILE_BYTES_MAX as u64 + 1;
        let taken = std::io::stdin().take(most).read_to_string(&mut text);
        taken.map_err(|e| Failure::file("read", file, &e))?;
        phalanx_local::queues::parse(&text, "standard input")
    } else {
        File::open(file).map_err(|e| Failure::file("read", file, &e))?;
        phalanx_local::queues::read(file)
    };
    read.map_err(|e: QueuesError| {
        let text = e.to_string();
        let (message, excerpt) = text.split_once('\n').unwrap_or((&text, ""));
        Failure { excerpt: excerpt.to_owned(), ..Failure::usage(message, "") }
    })
}

pub(super) fn history(session: &Session, asked: &History) -> Result<ExitCode, Failure> {
    let verb = Ask::History { job: asked.job.as_deref().map(JobRef::parse), limit: asked.limit };
    let Answer::History(events) = session.ask(verb)? else { return Err(Failure::unexpected()) };
    let is_one = asked.job.is_some();
    let words = || events.iter().map(|event| event.event.what.clone()).collect();
    let names =
        if session.out.format.is_document() { show::why::Names::new() } else { jobs::names(session)? };
    let body = Items { items: &events };
    session.out.show("History", body, |page| show::history::list(page, &events, is_one, &names), words)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn audit(session: &Session, asked: &Audit) -> Result<ExitCode, Failure> {
    let since = asked.since.as_deref().map(|text| past("--since", text, output::now())).transpose()?;
    let node = asked.node.as_deref().map(node_name).transpose()?;
    let filter = AuditFilter { user: asked.user.clone(), node, since };
    let Answer::Audit(acts) = session.ask(Ask::Audit { filter, limit: asked.limit })? else {
        return Err(Failure::unexpected());
    };
    let words = || acts.iter().map(|act| act.verb.clone()).collect();
    let body = Items { items: &acts };
    session.out.show("Audit", body, |page| show::audit::list(page, &acts), words)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn boost(session: &Session, asked: &Boost) -> Result<ExitCode, Failure> {
    let boost = match (asked.priority, &asked.duration) {
        (Some(priority), Some(text)) => {
            let ns =
                parse_duration_ns(text).map_err(|e| Failure::usage(format!("--for: {e}"), "as in 2h"))?;
            Some(BoostAsk { priority, for_ms: ns / 1_000_000 })
        }
        _ => None,
    };
    session.done(Ask::Boost { job: JobRef::parse(&asked.job), boost })
}

pub(super) fn update(session: &Session, asked: &Update) -> Result<ExitCode, Failure> {
    let limit = |text: &String| {
        let ns =
            parse_time_limit_ns(text).map_err(|e| Failure::usage(format!("--time: {e}"), "as in 90m"))?;
        Ok::<u64, Failure>(ns / 1_000_000)
    };
    let queue = |name: &String| {
        QueueName::new(name.as_str())
            .map_err(|e| Failure::usage(format!("--queue: {e}"), "`phalanx queues` lists them"))
    };
    let update = JobUpdate {
        time_limit_ms: asked.time.as_ref().map(limit).transpose()?,
        priority: asked.priority,
        queue: asked.queue.as_ref().map(queue).transpose()?,
    };
    session.done(Ask::Update { job: JobRef::parse(&asked.job), update })
}

pub(super) fn tell(session: &Session, asked: &Tell) -> Result<ExitCode, Failure> {
    let Some(job) = &asked.job else {
        return Err(Failure::usage("which job?", "--job names it; inside a job PHALANX_JOB_ID does"));
    };
    let news = match &asked.news {
        News::Checkpoint => Told::Checkpoint,
        News::Active => Told::Active,
        News::Boundary => Told::Boundary,
        News::Metric { value } => metric(value)?,
    };
    session.done(Ask::Tell { job: JobRef::parse(job), gang: asked.gang, news })
}

/// `NAME=VALUE`; the value may be below zero.
fn metric(text: &str) -> Result<Told, Failure> {
    let bad = || Failure::usage(format!("{text:?} is not NAME=VALUE"), "as in queue_length=12");
    let (name, value) = text.split_once('=').ok_or_else(bad)?;
    let (sign, digits) = value.strip_prefix('-').map_or((1, value), |digits| (-1, digits));
    let milli = parse_milli(digits).map_err(|e| Failure::usage(format!("{text:?}: {e}"), ""))?;
    let value_milli = i64::try_from(milli).map_err(|_| bad())? * sign;
    Ok(Told::Metric { name: name.to_owned(), value_milli })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_read_as_people_write_them() {
        let read = |text: &str| match metric(text) {
            Ok(Told::Metric { name, value_milli }) => Some((name, value_milli)),
            _ => None,
        };
        assert_eq!(read("queue_length=12"), Some(("queue_length".to_owned(), 12_000)));
        assert_eq!(read("loss=-0.25"), Some(("loss".to_owned(), -250)));
        for bad in ["", "x", "x=", "x=y", "x=--1", "x=1e300", "x=99999999999999999999"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
