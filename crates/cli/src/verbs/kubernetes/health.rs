//! `health` of the nodes of a cluster: what their agents publish, and what operators ask of them.

use std::process::ExitCode;

use phalanx_api::protocol::{HealthView, hardware};
use phalanx_kube::crd::requests::{Finding, Request};
use phalanx_kube::user::{Asked, HealthSeen};
use phalanx_model::Grade;

use super::{Session, say};
use crate::args::{Hardware, Health, HealthAct, HealthReportOf};
use crate::failure::Failure;
use crate::show;
use crate::verbs::cluster::node_name;

pub(super) fn health(session: &Session, asked: Health) -> Result<ExitCode, Failure> {
    match asked.act {
        None => show(session, asked.node.as_deref()),
        Some(HealthAct::Clear(asked)) => {
            ask(session, &asked.verb.what, &Request::Clear { reason: String::new() })
        }
        Some(HealthAct::Report(asked)) => {
            let HealthReportOf { what, grade, xid, bandwidth, reason } = asked.verb;
            if bandwidth.is_some() {
                let hint = "cordon the node, or report a grade";
                return Err(Failure::usage("measured bandwidths are for one machine so far", hint));
            }
            let grade = grade.unwrap_or_default();
            if xid.is_none() && grade == Grade::Ok {
                return Err(Failure::usage("nothing is reported to be ok", "say `phalanx health clear`"));
            }
            if xid.is_some() && what.device.is_none() {
                return Err(Failure::usage("an Xid is of a GPU", "name it: NODE:GPU"));
            }
            let finding = xid.map_or(Finding::Grade(grade), Finding::Xid);
            ask(session, &what, &Request::Report { finding, reason })
        }
    }
}

fn show(session: &Session, node: Option<&str>) -> Result<ExitCode, Failure> {
    let one = node.map(node_name).transpose()?;
    let view = view(session.cluster.health(one.as_ref())?);
    let names = || view.lines.iter().map(show::health::hardware).collect();
    session.out.show("Health", &view, |page| show::health::page(page, &view, one.is_some()), names)?;
    Ok(ExitCode::SUCCESS)
}

fn view(seen: HealthSeen) -> HealthView {
    let (sources, missing) = match seen.nodes {
        0 => (
            Vec::new(),
            vec!["no agent has said what stands in a node; see nodeAgent of the chart".to_owned()],
        ),
        1 => (vec!["what the agent of 1 node published".to_owned()], Vec::new()),
        nodes => (vec![format!("what the agents of {nodes} nodes published")], Vec::new()),
    };
    let devices = u32::try_from(seen.devices).unwrap_or(u32::MAX);
    HealthView {
        lines: seen.lines,
        samples: Vec::new(),
        ports: Vec::new(),
        pressure: Vec::new(),
        bandwidths: Vec::new(),
        devices,
        sources,
        missing,
        breaker: None,
    }
}

fn ask(session: &Session, what: &Hardware, request: &Request) -> Result<ExitCode, Failure> {
    let Hardware { node, device } = what;
    let name = hardware(node, *device);
    let done = match session.cluster.ask_agent(node, *device, request)? {
        Asked::Done(grade) => format!("{name} is graded {grade}"),
        Asked::Waits => format!("{name}: the agent of {node} does it when it runs"),
    };
    say(session, &[done])?;
    Ok(ExitCode::SUCCESS)
}
