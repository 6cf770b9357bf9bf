//! `endpoints`: where the replicas of a service are reached.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use phalanx_local::protocol::{Answer, EndpointsView, JobRef, Verb as Ask};
use serde_json::Value;

use super::{Session, cluster};
use crate::args::Endpoints;
use crate::failure::Failure;
use crate::output::{self, Document, Format};
use crate::show;

/// How often the file of `--into` is compared with the daemon.
const EVERY: Duration = Duration::from_secs(1);

pub(super) fn endpoints(session: &Session, asked: &Endpoints) -> Result<ExitCode, Failure> {
    if let Some(file) = &asked.into {
        return keep(session, asked, file);
    }
    let view = ask(session, asked)?;
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

fn ask(session: &Session, asked: &Endpoints) -> Result<EndpointsView, Failure> {
    let from = asked.from.as_deref().map(cluster::node_name).transpose()?;
    match session.ask(Ask::Endpoints { job: JobRef::parse(&asked.job), from })? {
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

/// Writes the file whenever its text changes, and runs the command, until the service ends. While the daemon does not answer, the
/// file stays as it is: the replicas probably run.
fn keep(session: &Session, asked: &Endpoints, file: &Path) -> Result<ExitCode, Failure> {
    let mut kept = Kept { session, asked, file, written: None };
    let mut last: Option<EndpointsView> = None;
    let mut has_failed = false;
    loop {
        match (ask(session, asked), &last) {
            (Ok(view), _) => {
                kept.write(&stable(view.clone()))?;
                (last, has_failed) = (Some(view), false);
            }
            (Err(failure), Some(_)) if failure.is_unavailable() => {
                if !std::mem::replace(&mut has_failed, true) {
                    session.out.note(&format!("{}; {} stays as it is", failure.message, file.display()));
                }
            }
            (Err(failure), Some(view)) => {
                kept.write(&EndpointsView { endpoints: Vec::new(), ..view.clone() })?;
                return Err(failure);
            }
            (Err(failure), None) => return Err(failure),
        }
        std::thread::sleep(EVERY);
    }
}

/// The file, and its text.
struct Kept<'a> {
    session: &'a Session,
    asked: &'a Endpoints,
    file: &'a Path,
    written: Option<String>,
}

impl Kept<'_> {
    fn write(&mut self, view: &EndpointsView) -> Result<(), Failure> {
        let text = text(&self.asked.format, view)?;
        if self.written.as_ref() == Some(&text) {
            return Ok(());
        }
        replace(self.file, &text)?;
        self.written = Some(text);
        if let Some(command) = &self.asked.then {
            run(self.session, command);
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

fn run(session: &Session, command: &str) {
    let why = match Command::new("/bin/sh").args(["-c", command]).status() {
        Ok(status) if status.success() => return,
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    session.out.note(&format!("{command}: {why}"));
}
