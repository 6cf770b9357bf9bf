//! Nodes, and the map of the cluster.

use std::process::ExitCode;

use phalanx_api::protocol::{Answer, JobRef, Verb as Ask};
use phalanx_model::NodeName;

use super::Session;
use crate::failure::Failure;
use crate::show;

pub(super) fn nodes(session: &Session) -> Result<ExitCode, Failure> {
    let view = session.nodes()?;
    let names = || view.nodes.iter().map(|node| node.name.to_string()).collect();
    let body = serde_json::json!({
        "items": view.nodes, "isolation": view.isolation, "notes": view.notes, "warnings": view.warnings
    });
    session.out.show("NodeList", body, |page| show::nodes::list(page, &view), names)?;
    Ok(ExitCode::SUCCESS)
}

/// The map; with the name of a job only that one has its letter.
pub(super) fn map(session: &Session, job: Option<&str>) -> Result<ExitCode, Failure> {
    let lit = match job.map(|job| session.ask(Ask::Get { job: JobRef::parse(job) })).transpose()? {
        None => None,
        Some(Answer::Job(view)) => Some(view.id),
        Some(_) => return Err(Failure::unexpected()),
    };
    let Answer::Map(view) = session.ask(Ask::Map)? else { return Err(Failure::unexpected()) };
    let names = || view.nodes.iter().map(|node| node.name.to_string()).collect();
    session.out.show("Map", &view, |page| show::map::page(page, &view, lit), names)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn node_name(text: &str) -> Result<NodeName, Failure> {
    NodeName::new(text)
        .map_err(|e| Failure::usage(format!("{text:?} is no node: {e}"), "`phalanx nodes` lists them"))
}
