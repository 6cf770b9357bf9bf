//! Collectives by message size: fitted on every curve, and on all files but one.

use phalanx_cost::calibrate::predicted_ns;
use phalanx_cost::measurements::Measurement;
use phalanx_cost::{Collective, Constants, calibrate};
use serde::Serialize;

use super::stats::Errors;
use super::tables::Curve;

/// From this size on bandwidth decides.
const LARGE_BYTES: u64 = 64 << 20;

#[derive(Serialize)]
pub(crate) struct Curves {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) fitted_on_all: Set,
    /// Each file predicted by constants that were fitted on all the other files, from the priors on.
    pub(crate) one_file_left_out: Set,
    #[serde(skip)]
    pub(crate) constants: Constants,
    /// Message, measured and predicted, of the fit on all.
    #[serde(skip)]
    pub(crate) points: Vec<Point>,
}

pub(crate) struct Point {
    pub(crate) curve: usize,
    pub(crate) is_large: bool,
    pub(crate) measured_ns: f64,
    pub(crate) predicted_ns: f64,
}

#[derive(Serialize)]
pub(crate) struct Parameter {
    name: String,
    prior: f64,
    fitted: f64,
    /// Measurements in which it has a part, and the curves they are of.
    measurements: usize,
    curves: Vec<&'static str>,
    /// The smallest and the largest value over the fits without one file.
    range_left_out: [f64; 2],
}

#[derive(Serialize)]
pub(crate) struct Set {
    all_reduce_large: Errors,
    all_reduce: Errors,
    /// All-gather curves as well.
    all_collectives_large: Errors,
    curves: Vec<OfCurve>,
}

#[derive(Clone, Serialize)]
struct OfCurve {
    name: &'static str,
    file: &'static str,
    collective: &'static str,
    large: Errors,
    all: Errors,
    #[serde(skip)]
    pairs: Vec<(u64, f64, f64)>,
    #[serde(skip)]
    is_all_reduce: bool,
}

pub(crate) fn report(curves: &[Curve]) -> Curves {
    let everything: Vec<Measurement> = measurements(curves, None);
    let fit = calibrate(&everything, &Constants::PRIOR);
    let fitted = curves.iter().map(|curve| of_curve(curve, &fit.constants)).collect();
    let mut files: Vec<&str> = curves.iter().map(|curve| curve.file).collect();
    files.dedup();
    let left_out: Vec<(&str, Constants)> = files
        .into_iter()
        .map(|file| (file, calibrate(&measurements(curves, Some(file)), &Constants::PRIOR).constants))
        .collect();
    let without =
        |file: &str| left_out.iter().find(|(left, _)| *left == file).map(|(_, constants)| *constants);
    let left = curves.iter().filter_map(|curve| Some(of_curve(curve, &without(curve.file)?))).collect();
    let parameters = fit.moved.iter().map(|moved| {
        let values = || left_out.iter().map(|(_, constants)| moved.parameter.get(constants));
        let has = |curve: &&Curve| {
            curve.measurements.iter().any(|measurement| moved.parameter.moves(measurement, &Constants::PRIOR))
        };
        Parameter {
            name: moved.parameter.name(),
            prior: moved.before,
            fitted: moved.after,
            measurements: moved.measurements,
            curves: curves.iter().filter(has).map(|curve| curve.name).collect(),
            range_left_out: [values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max)],
        }
    });
    let points = curves.iter().enumerate().flat_map(|(at, curve)| {
        curve.measurements.iter().map(move |measurement| Point {
            curve: at,
            is_large: measurement.bytes >= LARGE_BYTES,
            measured_ns: measurement.ns,
            predicted_ns: predicted_ns(measurement, &fit.constants),
        })
    });
    Curves {
        parameters: parameters.collect(),
        fitted_on_all: set(fitted),
        one_file_left_out: set(left),
        constants: fit.constants,
        points: points.collect(),
    }
}

fn measurements(curves: &[Curve], without: Option<&str>) -> Vec<Measurement> {
    let kept = curves.iter().filter(|curve| Some(curve.file) != without);
    kept.flat_map(|curve| curve.measurements.iter().cloned()).collect()
}

fn of_curve(curve: &Curve, constants: &Constants) -> OfCurve {
    let pairs: Vec<(u64, f64, f64)> =
        curve.measurements.iter().map(|m| (m.bytes, predicted_ns(m, constants), m.ns)).collect();
    let is_all_reduce = curve.collective == Collective::AllReduce;
    OfCurve {
        name: curve.name,
        file: curve.file,
        collective: if is_all_reduce { "all-reduce" } else { "all-gather" },
        large: errors(&pairs, LARGE_BYTES),
        all: errors(&pairs, 0),
        pairs,
        is_all_reduce,
    }
}

fn errors(pairs: &[(u64, f64, f64)], from: u64) -> Errors {
    Errors::of(pairs.iter().filter(|(bytes, ..)| *bytes >= from).map(|(_, p, m)| (*p, *m)))
}

fn set(curves: Vec<OfCurve>) -> Set {
    let pairs = |every: bool| {
        let kept = curves.iter().filter(|curve| every || curve.is_all_reduce);
        kept.flat_map(|curve| curve.pairs.clone()).collect::<Vec<_>>()
    };
    Set {
        all_reduce_large: errors(&pairs(false), LARGE_BYTES),
        all_reduce: errors(&pairs(false), 0),
        all_collectives_large: errors(&pairs(true), LARGE_BYTES),
        curves,
    }
}

impl Curves {
    /// Whether the fit on all files determines this constant.
    pub(crate) fn determines(&self, name: &str) -> bool {
        self.parameters.iter().any(|parameter| parameter.name == name)
    }

    pub(crate) fn print(&self) {
        println!("Collectives by message size: mean error | share within 25 % of points");
        for (title, set) in [
            ("(a) constants fitted on all files", &self.fitted_on_all),
            ("(b) each file predicted by a fit on the others", &self.one_file_left_out),
        ] {
            println!("\n{title}");
            println!("{:42} {:>25}   {:>25}", "", "64 MiB and more", "all sizes");
            for curve in &set.curves {
                println!("{:42} {}   {}", curve.name, curve.large, curve.all);
            }
            println!("{:42} {}   {}", "all-reduce, all curves", set.all_reduce_large, set.all_reduce);
            println!("{:42} {}", "with all-gather", set.all_collectives_large);
        }
        println!("\nFitted constants: prior, fitted, range over the fits without one file, points");
        for p in &self.parameters {
            let [low, high] = p.range_left_out;
            println!(
                "{:24} {:>12.3} {:>14.3} {:>14.3} .. {:<14.3} {:>4}",
                p.name, p.prior, p.fitted, low, high, p.measurements
            );
            let on = if p.curves.len() == self.fitted_on_all.curves.len() {
                "all curves".to_owned()
            } else {
                p.curves.join("; ")
            };
            println!("{:24}   on {on}", "");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use phalanx_cost::MachineKind;

    use super::*;

    /// How much worse a fit to one site may make a machine of the same kind, or on the same network, elsewhere: the two
    /// share a constant, and the site may be the odd one.
    const SHARED: f64 = 0.4;

    /// Points of one site alone leave another machine's prediction as it is: constants belong to a kind of machine or to
    /// a network. Before, `ring_share` fitted to MI300X or A100 moved that of all machines.
    #[test]
    fn a_fit_to_one_site_alone_makes_no_other_machine_worse() {
        let measured = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/measured");
        if !measured.is_dir() {
            return;
        }
        let curves = super::super::tables::read(&measured).unwrap();
        let mut worst: Vec<String> = Vec::new();
        for site in &curves {
            let fit = calibrate(&site.measurements, &Constants::DEFAULT);
            for other in curves.iter().filter(|other| other.file != site.file) {
                let (before, after) = (of_curve(other, &Constants::DEFAULT), of_curve(other, &fit.constants));
                let change = |before: &Errors, after: &Errors| (before.mean, after.mean);
                let (before, after) = change(&before.all, &after.all);
                let span = |curve: &Curve| curve.measurements[0].span;
                let (here, there) = (span(site), span(other));
                let is_shared = MachineKind::of(&here) == MachineKind::of(&there)
                    || here.nodes > 1 && there.nodes > 1 && here.network == there.network;
                if after > before + if is_shared { SHARED } else { 1e-12 } {
                    worst.push(format!("{} on {}: {before:.3} to {after:.3}", site.name, other.name));
                }
            }
        }
        assert!(worst.is_empty(), "{worst:#?}");
    }
}
