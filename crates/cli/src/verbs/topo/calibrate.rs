//! Fits the constants of the cost model to measurements of a site.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use phalanx_cost::calibrate::{Fit, Parameter, error};
use phalanx_cost::measurements::{self, Measurement};
use phalanx_cost::{Constants, calibrate};
use serde::Serialize;
use serde_json::json;

use super::super::Session;
use super::load::read_large;
use crate::args::Calibrate;
use crate::failure::Failure;
use crate::output::Format;
use crate::show;
use crate::submission::shown;

/// Fewer measurements than this say more of the day than of the site.
const FEW: usize = 8;
/// A mean error that grows by no more is no worse.
const WORSE: f64 = 0.005;

/// What the fit does to the measurements of one file on one setup.
#[derive(Debug, Serialize)]
pub(crate) struct Group {
    pub(crate) file: String,
    pub(crate) setup: String,
    pub(crate) measurements: usize,
    pub(crate) error_before: f64,
    pub(crate) error_after: f64,
}

impl Group {
    pub(crate) fn is_worse(&self) -> bool {
        self.error_after > self.error_before + WORSE
    }
}

pub(super) fn run(session: &Session, calibrate: &Calibrate) -> Result<ExitCode, Failure> {
    let (mut all, mut grouped) = (Vec::new(), BTreeMap::new());
    for file in &calibrate.measurements {
        for measurement in read(file)? {
            let group = (shown(file), measurement.setup.clone());
            grouped.entry(group).or_insert_with(Vec::new).push(measurement.clone());
            all.push(measurement);
        }
    }
    if all.len() < FEW {
        session
            .out
            .note(&format!("{} measurements are few; constants move no further than they must", all.len()));
    }
    let start = match &calibrate.start {
        Some(path) => read_constants(path)?,
        None => Constants::DEFAULT,
    };
    let fit = calibrate::calibrate(&all, &start);
    let group = |((file, setup), of): ((String, String), Vec<Measurement>)| Group {
        file,
        setup,
        measurements: of.len(),
        error_before: error(&of, &start),
        error_after: error(&of, &fit.constants),
    };
    let groups: Vec<Group> = grouped.into_iter().map(group).collect();
    let names = || fit.moved.iter().map(|moved| moved.parameter.name()).collect();
    let body = document(all.len(), &fit, &groups);
    session.out.show("Calibration", body, |page| show::fit::page(page, all.len(), &fit, &groups), names)?;
    if let Some(Format::File(to)) = &calibrate.to {
        let from: Vec<String> = calibrate.measurements.iter().map(|file| shown(file)).collect();
        let head = format!(
            "# Constants of the cost model, fitted by `phalanx topo calibrate` to {} measurements in {}.\n",
            all.len(),
            from.join(", ")
        );
        let text = toml::to_string_pretty(&fit.constants).map_err(|e| Failure::internal(e.to_string()))?;
        fs::write(to, head + &text).map_err(|e| Failure::file("write", to, &e))?;
        let hint = format!("`constants: {}` in a cluster file uses them", to.display());
        session.out.note(&format!("written to {}; {hint}", to.display()));
    }
    Ok(ExitCode::SUCCESS)
}

fn document(measurements: usize, fit: &Fit, groups: &[Group]) -> serde_json::Value {
    json!({
        "measurements": measurements,
        "error_before": fit.error_before,
        "error_after": fit.error_after,
        "constants": fit.moved.iter().map(|moved| json!({
            "name": moved.parameter.name(),
            "before": moved.before,
            "after": moved.after,
            "measurements": moved.measurements,
        })).collect::<Vec<_>>(),
        "not_determined": fit.kept.iter().map(|kept| json!({
            "name": kept.parameter.name(),
            "sizes": kept.sizes,
            "needs": kept.needs,
        })).collect::<Vec<_>>(),
        "setups": groups,
    })
}

/// Whether a fit gave some kind of machine constants of its own.
pub(crate) fn is_scoped(fit: &Fit) -> bool {
    fit.moved.iter().any(|moved| matches!(moved.parameter, Parameter::OfKind(..)))
}

fn read(file: &Path) -> Result<Vec<Measurement>, Failure> {
    let measured = measurements::parse(&read_large(file)?).map_err(|e| {
        Failure::usage(format!("{}: {e}", shown(file)), "docs/cost-model.md describes the columns")
    })?;
    if measured.is_empty() {
        return Err(Failure::usage(format!("{} has no measurements", shown(file)), "give at least one line"));
    }
    Ok(measured)
}

fn read_constants(path: &Path) -> Result<Constants, Failure> {
    let text = read_large(path)?;
    toml::from_str(&text).map_err(|e| {
        let hint = "expected every constant of crates/cost/constants.toml, and nothing else but `kinds`";
        Failure::usage(format!("{}: {}", shown(path), e.message()), hint)
    })
}
