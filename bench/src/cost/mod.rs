//! The cost model against public measurements, printed as text or as one JSON object.

mod curves;
mod golden;
mod plot;
mod points;
mod sia;
mod speed;
mod stats;
mod tables;
mod training;

use std::path::{Path, PathBuf};

use phalanx_cost::Constants;
use serde::Serialize;

#[derive(Serialize)]
struct Report {
    curves: curves::Curves,
    placements: sia::Sia,
    points: points::Points,
    training: training::Training,
    figures: golden::Golden,
    speed: Vec<speed::Speed>,
}

struct Arguments {
    is_json: bool,
    is_fit: bool,
    plot: Option<PathBuf>,
    data: PathBuf,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let arguments = parse(arguments)?;
    let data = &arguments.data;
    if !data.is_dir() {
        return Err(format!("{} is not there; name the folder of measurements with --data", data.display()));
    }
    let curves = tables::read(data)?;
    let report = report(&curves, data)?;
    if let Some(file) = &arguments.plot {
        let svg = plot::draw(&curves, &report.curves);
        crate::tables::write(file, &svg)?;
    }
    if arguments.is_json {
        let json = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
        println!("{json}");
    } else {
        report.print();
    }
    if arguments.is_fit {
        eprintln!("{:#?}", report.curves.constants);
    }
    Ok(())
}

fn report(curves: &[tables::Curve], data: &Path) -> Result<Report, String> {
    let placements = sia::report(data)?;
    let training = training::report(data)?;
    Ok(Report {
        curves: curves::report(curves),
        points: points::report(&placements, &training.dlperf),
        placements,
        training,
        figures: golden::report(),
        speed: speed::report()?,
    })
}

impl Report {
    fn print(&self) {
        self.curves.print();
        self.placements.print();
        self.points.print();
        self.training.print();
        self.figures.print();
        speed::print(&self.speed);
        let moved = phalanx_cost::calibrate::Parameter::all().filter(|parameter| {
            let (built_in, fitted) =
                (parameter.get(&Constants::DEFAULT), parameter.get(&self.curves.constants));
            self.curves.determines(&parameter.name()) && stats::apart(built_in, fitted) > 0.01
        });
        for parameter in moved {
            println!("\nnote: the built-in {} is no longer what fits; see --fit", parameter.name());
        }
    }
}

fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/measured");
    let mut parsed = Arguments { is_json: false, is_fit: false, plot: None, data };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().map(PathBuf::from).ok_or(format!("{argument} needs a path after it"));
        match argument.as_str() {
            "--json" => parsed.is_json = true,
            "--fit" => parsed.is_fit = true,
            "--plot" => parsed.plot = Some(value()?),
            "--data" => parsed.data = value()?,
            other => {
                return Err(format!("unknown argument {other}; known are --json, --fit, --plot, --data"));
            }
        }
    }
    Ok(parsed)
}
