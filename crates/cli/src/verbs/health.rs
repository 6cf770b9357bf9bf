//! `health`: what is wrong with nodes and GPUs.

use std::process::ExitCode;

use phalanx_api::protocol::{Answer, HealthFinding, HealthReport, Verb as Ask};

use super::{Session, cluster};
use crate::args::{Health, HealthAct, HealthReportOf};
use crate::failure::Failure;
use crate::show;

pub(super) fn health(session: &Session, asked: Health) -> Result<ExitCode, Failure> {
    match asked.act {
        None => show(session, asked.node.as_deref()),
        Some(HealthAct::Clear(asked)) => {
            let what = asked.verb.what;
            session.done(Ask::ClearHealth { node: what.node, device: what.device })
        }
        Some(HealthAct::Report(asked)) => session.done(Ask::ReportHealth(asked.verb.into())),
    }
}

impl From<HealthReportOf> for HealthReport {
    fn from(said: HealthReportOf) -> Self {
        let grade = HealthFinding::Grade(said.grade.unwrap_or_default());
        let finding = said.xid.map_or(grade, HealthFinding::Xid);
        let finding = said.bandwidth.map_or(finding, HealthFinding::Bandwidth);
        Self { node: said.what.node, device: said.what.device, finding, reason: said.reason }
    }
}

fn show(session: &Session, node: Option<&str>) -> Result<ExitCode, Failure> {
    let one = node.map(cluster::node_name).transpose()?;
    let is_one = one.is_some();
    let Answer::Health(view) = session.ask(Ask::Health { node: one })? else {
        return Err(Failure::unexpected());
    };
    let names = || {
        let name = |line: &phalanx_health::Line| show::health::hardware(line);
        view.lines.iter().filter(|line| line.grade != phalanx_model::Grade::Ok).map(name).collect()
    };
    session.out.show("Health", &view, |page| show::health::page(page, &view, is_one), names)?;
    Ok(ExitCode::SUCCESS)
}
