//! Nodes.

use std::process::ExitCode;

use phalanx_api::protocol::{Answer, Verb as Ask};
use phalanx_model::NodeName;

use super::Session;
use crate::failure::Failure;
use crate::show;

pub(super) fn nodes(session: &Session) -> Result<ExitCode, Failure> {
    let Answer::Nodes(view) = session.ask(Ask::Nodes)? else { return Err(Failure::unexpected()) };
    let names = || view.nodes.iter().map(|node| node.name.to_string()).collect();
    let body = serde_json::json!({
        "items": view.nodes, "isolation": view.isolation, "notes": view.notes, "warnings": view.warnings
    });
    session.out.show("NodeList", body, |page| show::nodes::list(page, &view), names)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn node_name(text: &str) -> Result<NodeName, Failure> {
    NodeName::new(text)
        .map_err(|e| Failure::usage(format!("{text:?} is no node: {e}"), "`phalanx nodes` lists them"))
}
