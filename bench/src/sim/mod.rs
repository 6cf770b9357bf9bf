//! Results that other schedulers published from their simulators, and what comes out of our world under their settings.

mod compare;
mod fgd;
mod gavel;
mod muri;
mod overload;
mod philly;
mod pollux;
mod python;
mod shockwave;
mod speed;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use phalanx_sim::replay::metrics::Metrics;
use phalanx_sim::replay::{Job, Replay, Scheduler};
use phalanx_sim::trace::{Format, Selection, Trace};
use serde::Serialize;

use crate::tables::{self, Marks, Table, number};

const DAY_MS: u64 = 86_400_000;
const MARKS: Marks = Marks { begin: "<!-- `make bench-sim` writes from here -->", end: "<!-- to here -->" };

/// One published figure, and ours.
#[derive(Serialize)]
pub(crate) struct Row {
    setting: String,
    policy: &'static str,
    measure: &'static str,
    published: f64,
    ours: f64,
    difference_percent: f64,
}

impl Row {
    fn new(setting: String, policy: &'static str, measure: &'static str, published: f64, ours: f64) -> Self {
        let difference_percent = (ours / published - 1.0) * 100.0;
        Self { setting, policy, measure, published, ours, difference_percent }
    }
}

/// A published table: its word on the command line, its title, and what makes it.
type Source = (&'static str, &'static str, fn(&Path) -> Result<Vec<Row>, String>);

const SOURCES: [Source; 5] = [
    ("muri", "Muri: four traces on 8 nodes of 8 GPUs", muri::measure),
    ("shockwave", "Shockwave: 120 jobs on 32 V100, rounds of 120 s", shockwave::measure),
    ("gavel", "Gavel: continuous jobs on 36 V100, 36 P100 and 36 K80, rounds of 360 s", gavel::measure),
    ("pollux", "Pollux: eight workloads on 16 nodes of 4 T4", pollux::measure),
    ("fgd", "FGD: ten workloads of openb on 1,213 nodes, ten seeds", fgd::measure),
];

struct Arguments {
    is_json: bool,
    folder: PathBuf,
    only: Vec<String>,
    load_milli: Option<u32>,
    /// A file with marks between which tables go, and a page.
    into: Option<PathBuf>,
    page: Option<PathBuf>,
    picture: Option<PathBuf>,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let words = || SOURCES.map(|(word, ..)| word).join(", ");
    let (what, rest) = arguments
        .split_first()
        .ok_or_else(|| format!("say which: {}, compare, overload, philly, speed, all", words()))?;
    let arguments = parse(rest)?;
    let Arguments { folder, only, load_milli, is_json, .. } = &arguments;
    let (mut tables, mut picture) = (Vec::new(), None);
    let mut show = |table: Table| {
        if !is_json {
            println!("{}", table.text());
        }
        tables.push(table);
    };
    match what.as_str() {
        "compare" => compare::measure(folder, only, *load_milli, *is_json, &mut show)?,
        "overload" => picture = Some(overload::measure(folder, only, *is_json, &mut show)?),
        "philly" => return philly::measure(folder, only, *is_json),
        "speed" => return speed::measure(only, *is_json),
        "all" => {
            for source in &SOURCES {
                show(published(source, folder, *is_json)?);
            }
            compare::measure(folder, only, *load_milli, *is_json, &mut show)?;
            picture = Some(overload::measure(folder, only, *is_json, &mut show)?);
        }
        word => {
            let source = SOURCES.iter().find(|(known, ..)| *known == word);
            let source = source.ok_or_else(|| {
                format!("{word} is none of {}, compare, overload, philly, speed, all", words())
            })?;
            show(published(source, folder, *is_json)?);
        }
    }
    if let Some(file) = &arguments.into {
        match what.as_str() {
            "all" => MARKS.splice(file, &tables::markdown(&tables))?,
            _ => MARKS.merge(file, &tables)?,
        }
    }
    if let Some((file, picture)) = arguments.picture.as_ref().zip(picture) {
        tables::write(file, &picture)?;
    }
    arguments.page.as_ref().map_or(Ok(()), |file| tables::write(file, &tables::page(&tables)))
}

fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/traces");
    let mut of = Arguments {
        is_json: false,
        folder,
        only: Vec::new(),
        load_milli: None,
        into: None,
        page: None,
        picture: None,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut after =
            |what: &str| rest.next().cloned().ok_or_else(|| format!("{argument} needs {what} after it"));
        match argument.as_str() {
            "--json" => of.is_json = true,
            "--data" => of.folder = PathBuf::from(after("a path")?),
            "--only" => of.only.push(after("a name")?),
            "--load" => of.load_milli = Some(load(&after("a number")?)?),
            "--into" => of.into = Some(PathBuf::from(after("a file")?)),
            "--page" => of.page = Some(PathBuf::from(after("a file")?)),
            "--picture" => of.picture = Some(PathBuf::from(after("a file")?)),
            other => {
                let known = "--json, --data, --only, --load, --into, --page, --picture";
                return Err(format!("unknown argument {other}; known are {known}"));
            }
        }
    }
    Ok(of)
}

/// What was published beside what comes out.
fn published((_, title, measure): &Source, folder: &Path, is_json: bool) -> Result<Table, String> {
    let rows = measure(folder)?;
    if is_json {
        println!("{}", serde_json::to_string(&rows).map_err(|e| e.to_string())?);
    }
    let decimals = |value: f64| if value.abs() < 1_000.0 { 2 } else { 0 };
    let row = |row: &Row| {
        let difference = number(row.difference_percent, 2);
        let plus = if row.difference_percent >= 0.005 { "+" } else { "" };
        vec![
            row.setting.clone(),
            row.policy.to_owned(),
            row.measure.to_owned(),
            number(row.published, decimals(row.published)),
            number(row.ours, decimals(row.published)),
            format!("{plus}{difference} %"),
        ]
    };
    let columns = vec!["setting", "policy", "measure", "published", "ours", "difference"];
    Ok(Table { title: (*title).to_owned(), columns, rows: rows.iter().map(row).collect() })
}

/// In thousandths.
fn load(text: &str) -> Result<u32, String> {
    let milli = phalanx_spec::quantity::parse_milli(text).ok();
    let load = milli.and_then(|milli| u32::try_from(milli).ok()).filter(|milli| *milli > 0);
    load.ok_or_else(|| "--load needs a positive number after it, such as 1.5".to_owned())
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|e| format!("{}: {e}; name the traces with --data", file.display()))
}

/// The jobs with devices that were submitted on these days of a trace, at a load in thousandths of the recorded one.
fn jobs_of_days(file: &Path, format: Format, days: &Range<u64>, load_milli: u32) -> Result<Vec<Job>, String> {
    let selection = Selection {
        from_ms: days.start * DAY_MS,
        until_ms: days.end.checked_mul(DAY_MS),
        gpus_min: 1,
        load_milli,
        ..Selection::default()
    };
    let trace = selection.apply(trace(file, format)?).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(Job::all_of(&trace))
}

/// What comes of jobs under a policy, and how many seconds the replay takes.
fn replayed(policy: &mut dyn Scheduler, replay: &Replay<'_>) -> Result<(Metrics, f64), String> {
    let begin = Instant::now();
    let outcome = replay.run(policy).map_err(|e| e.to_string())?;
    let seconds = begin.elapsed().as_secs_f64();
    Ok((Metrics::of(&outcome), seconds))
}

fn trace(file: &Path, format: Format) -> Result<Trace, String> {
    format.read(read(file)?.as_bytes()).map_err(|e| format!("{}: {e}", file.display()))
}
