//! `endpoints`: where the replicas of a service are reached.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use phalanx_api::protocol::{Answer, EndpointState, EndpointView, EndpointsView, JobRef, Verb as Ask};
use phalanx_model::{JobId, NodeName, Timestamp};
use serde_json::Value;

use super::{Session, cluster};
use crate::args::Endpoints;
use crate::failure::Failure;
use crate::output::{self, Document, Format};
use crate::show;

/// How often the file of `--into` is compared with the daemon.
const EVERY: Duration = Duration::from_secs(1);
/// A file that is empty for longer than a replica takes to rewrite it withdraws the replica.
const SETTLES_MS: u64 = 1_500;

pub(super) fn endpoints(session: &Session, asked: &Endpoints) -> Result<ExitCode, Failure> {
    let from = asked.from.as_deref().map(cluster::node_name).transpose()?;
    if let Some(file) = &asked.into {
        return keep(session, asked, from.as_ref(), file);
    }
    let view = ask(session, JobRef::parse(&asked.job), from.as_ref())?;
    match &asked.format {
        format @ (Format::Haproxy | Format::Envoy | Format::PrometheusSd) => {
            output::print(&text(format, &view)?)?;
        }
        _ => {
            let names = || show::endpoints::names(&view);
            session.out.show("Endpoints", &view, |page| show::endpoints::page(page, &view), names)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(session: &Session, job: JobRef, from: Option<&NodeName>) -> Result<EndpointsView, Failure> {
    match session.ask(Ask::Endpoints { job, from: from.cloned() })? {
        Answer::Endpoints(view) => Ok(view),
        _ => Err(Failure::unexpected()),
    }
}

fn text(format: &Format, view: &EndpointsView) -> Result<String, Failure> {
    let pretty = |value: Value| format!("{value:#}\n");
    Ok(match format {
        Format::Haproxy => show::endpoints::haproxy(view),
        Format::Envoy => pretty(show::endpoints::envoy(view)),
        Format::PrometheusSd => pretty(show::endpoints::prometheus_sd(view)),
        Format::Json => Document::new("Endpoints", view).line()?,
        Format::Name => show::endpoints::names(view).into_iter().map(|name| name + "\n").collect(),
        _ => {
            let hint = "with --into: json, name, haproxy, envoy or prometheus-sd";
            return Err(Failure::usage("tables are for people", hint));
        }
    })
}

/// Writes the file whenever its text changes, and runs the command, until the service ends. If the daemon cannot answer, the file
/// stays as it is: the replicas probably run.
fn keep(
    session: &Session,
    asked: &Endpoints,
    from: Option<&NodeName>,
    file: &Path,
) -> Result<ExitCode, Failure> {
    let mut last = ask(session, JobRef::parse(&asked.job), from)?;
    let mut kept = Kept { session, asked, file, written: None, is_due: false };
    kept.write(&last)?;
    let mut noted = String::new();
    loop {
        std::thread::sleep(EVERY);
        // By its number: a newer job may have the same name.
        let failure = match ask(session, JobRef::Id(last.job), from) {
            Ok(view) => {
                last = settled(&last, view, output::now());
                kept.write(&last).err()
            }
            Err(failure) if failure.is_not_found() && has_ended(session, last.job) => {
                kept.write(&EndpointsView { endpoints: Vec::new(), ..last })?;
                return Err(failure);
            }
            Err(failure) => Some(failure),
        };
        let message = failure.map(|failure| failure.message).unwrap_or_default();
        if !message.is_empty() && message != noted {
            session.out.note(&format!("{message}; {} stays as it is", file.display()));
        }
        noted = message;
    }
}

/// Whether the daemon says so of a service; the node of `--from` may be what it does not find.
fn has_ended(session: &Session, job: JobId) -> bool {
    matches!(ask(session, JobRef::Id(job), None), Err(failure) if failure.is_not_found())
}

/// A replica that rewrites its line empties the file for a moment: until it is empty for longer, the line before counts.
fn settled(last: &EndpointsView, mut view: EndpointsView, now: Timestamp) -> EndpointsView {
    for one in &mut view.endpoints {
        let is_fresh = one.reported_at.is_some_and(|at| now.since(at) < SETTLES_MS);
        let is_same = |of: &&EndpointView| (of.replica, of.attempt) == (one.replica, one.attempt);
        let before = last.endpoints.iter().find(is_same).filter(|of| of.state == EndpointState::Ready);
        if let Some(before) = before.filter(|_| is_fresh && one.state == EndpointState::NotReady) {
            *one = before.clone();
        }
    }
    view
}

/// The file, its text, and whether the command still has to be run for it.
struct Kept<'a> {
    session: &'a Session,
    asked: &'a Endpoints,
    file: &'a Path,
    written: Option<String>,
    is_due: bool,
}

impl Kept<'_> {
    fn write(&mut self, view: &EndpointsView) -> Result<(), Failure> {
        let text = text(&self.asked.format, &stable(view.clone()))?;
        if self.written.as_ref() != Some(&text) {
            replace(self.file, &text)?;
            (self.written, self.is_due) = (Some(text), true);
        }
        if let Some(command) = self.asked.then.as_ref().filter(|_| self.is_due) {
            // If it fails, it is run again at the next look.
            self.is_due = !run(self.session, command);
        }
        Ok(())
    }
}

/// Without what changes with each request.
fn stable(mut view: EndpointsView) -> EndpointsView {
    for endpoint in &mut view.endpoints {
        (endpoint.load, endpoint.reported_at) = (None, None);
    }
    view
}

/// Replaces the file whole, or not at all.
fn replace(file: &Path, text: &str) -> Result<(), Failure> {
    let broken = |error: std::io::Error| {
        Failure::unavailable(format!("{} cannot be written: {error}", file.display()), "")
    };
    phalanx_node::file::write(file, text.as_bytes(), 0o644, None).map_err(broken)
}

/// Whether the command succeeded.
fn run(session: &Session, command: &str) -> bool {
    let why = match Command::new("/bin/sh").args(["-c", command]).status() {
        Ok(status) if status.success() => return true,
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    session.out.note(&format!("{command}: {why}"));
    false
}

#[cfg(test)]
mod tests {
    use phalanx_model::DeviceMask;

    use super::*;

    #[test]
    fn a_line_that_is_being_rewritten_withdraws_nothing() {
        let one = |state, attempt, at| EndpointView {
            replica: 0,
            attempt,
            state,
            node: NodeName::new("a").unwrap(),
            path: Vec::new(),
            devices: DeviceMask::EMPTY,
            address: "127.0.0.1".to_owned(),
            port: Some(1),
            load: None,
            capacity: None,
            weight: 256,
            distance: None,
            reported_at: Some(Timestamp(at)),
            unread: None,
        };
        let view = |one| EndpointsView {
            job: JobId(1),
            name: "web".to_owned(),
            levels: Vec::new(),
            endpoints: vec![one],
            from: None,
        };
        let (ready, not) = (EndpointState::Ready, EndpointState::NotReady);
        let after = |attempt, at, now| {
            let last = view(one(ready, 1, 500));
            settled(&last, view(one(not, attempt, at)), Timestamp(now)).endpoints[0].state
        };
        assert_eq!(after(1, 10_000, 10_900), ready, "it has just been emptied");
        assert_eq!(after(1, 10_000, 12_000), not, "it stays empty");
        assert_eq!(after(2, 10_000, 10_900), not, "another attempt");
    }
}
