//! Jobs of 1, 2, 4 and 8 GPUs that come and go on one machine: how fast they are where the engine puts them, beside
//! other rules and beside a choice that tries every set and looks one job ahead.

mod machines;
mod play;
mod rules;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::Serialize;

use crate::tables::Table;
use machines::{Bench, read_all};
use play::draw;
use rules::{RULES, Rule};

/// The share of the devices that is taken when a job comes, in percent.
const FILLS: [u32; 3] = [50, 70, 90];
/// Jobs of each machine and fill.
const JOBS: usize = 2_000;

/// What became of one machine's jobs at one fill.
#[derive(Debug, Serialize)]
struct Row {
    machine: String,
    devices: u32,
    fill_percent: u32,
    jobs: usize,
    /// By rule, in the order of [`RULES`]: mean predicted time of an all-reduce of 1 GB of jobs of two GPUs and more, in
    /// milliseconds.
    mean_ms: Vec<f64>,
    /// Decisions of the engine that are as fast as the fastest free set, and of these those that leave the others no
    /// less than any equally fast set.
    fastest: usize,
    best_rest: usize,
}

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let (mut json, mut data, mut seed) = (false, None, 42);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--json" => json = true,
            "--data" => data = Some(PathBuf::from(value()?)),
            "--seed" => seed = value()?.parse().map_err(|_| "--seed is not a number".to_owned())?,
            _ => return Err(format!("{arg}: islands [--json] [--seed N] [--data FOLDER]")),
        }
    }
    let machines = read_all(data.as_deref())?;
    let mut rows = Vec::new();
    for machine in &machines {
        for fill in FILLS {
            rows.push(row(machine, fill, seed)?);
        }
    }
    if json {
        println!("{}", serde_json::to_string(&rows).map_err(|error| error.to_string())?);
        return Ok(());
    }
    print!("{}", by_machine(&rows).text());
    print!("{}", over_all(&rows).text());
    println!("{}", said(&rows, machines.len()));
    Ok(())
}

fn row(machine: &Bench, fill: u32, seed: u64) -> Result<Row, String> {
    let events = draw(machine.devices, fill, seed, JOBS);
    let (mut mean_ms, mut fastest, mut best_rest, mut jobs) = (Vec::new(), 0, 0, 0);
    for rule in RULES {
        let played = play::play(machine, rule, &events)?;
        jobs = played.times_ns.len();
        let sum: u64 = played.times_ns.iter().sum();
        mean_ms.push(as_f64(sum) / 1e6 / as_f64(jobs.max(1) as u64));
        if rule == Rule::Phalanx {
            (fastest, best_rest) = (played.fastest, played.best_rest);
        }
    }
    let (name, devices) = (machine.name.clone(), machine.devices);
    Ok(Row { machine: name, devices, fill_percent: fill, jobs, mean_ms, fastest, best_rest })
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
const fn as_f64(number: u64) -> f64 {
    number as f64
}

/// How much longer a rule's jobs take than with foresight.
fn ratio(row: &Row, rule: usize) -> f64 {
    let best = row.mean_ms.last().copied().unwrap_or(0.0);
    let own = row.mean_ms.get(rule).copied().unwrap_or(0.0);
    if best > 0.0 { own / best } else { 1.0 }
}

fn columns(first: &[&'static str]) -> Vec<&'static str> {
    first.iter().copied().chain(RULES.iter().map(|rule| rule.word())).collect()
}

fn by_machine(rows: &[Row]) -> Table {
    let cells = |row: &Row| {
        let numbers = (0..RULES.len()).map(|rule| format!("{:.3}", ratio(row, rule)));
        let first = [row.machine.clone(), row.devices.to_string(), row.fill_percent.to_string()];
        first.into_iter().chain(numbers).collect()
    };
    Table {
        title: "Islands: mean predicted time of an all-reduce of 1 GB, over that with foresight".into(),
        columns: columns(&["machine", "GPUs", "fill %"]),
        rows: rows.iter().map(cells).collect(),
    }
}

/// Geometric means over machines.
fn over_all(rows: &[Row]) -> Table {
    let mean = |fill: u32, rule: usize| {
        let of_fill = || rows.iter().filter(|row| fill == 0 || row.fill_percent == fill);
        let sum: f64 = of_fill().map(|row| ratio(row, rule).ln()).sum();
        (sum / as_f64(of_fill().count().max(1) as u64)).exp()
    };
    let cells = |fill: u32| {
        let word = if fill == 0 { "all".to_owned() } else { format!("at {fill} %") };
        std::iter::once(word).chain((0..RULES.len()).map(|rule| format!("{:.3}", mean(fill, rule)))).collect()
    };
    Table {
        title: "Islands: geometric mean over machines".into(),
        columns: columns(&["fill"]),
        rows: FILLS.into_iter().chain([0]).map(cells).collect(),
    }
}

fn said(rows: &[Row], machines: usize) -> String {
    let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum::<usize>();
    let (jobs, fastest, best_rest) = (sum(|row| row.jobs), sum(|row| row.fastest), sum(|row| row.best_rest));
    let percent = |part: usize| 100.0 * as_f64(part as u64) / as_f64(jobs.max(1) as u64);
    format!(
        "{machines} machines, {jobs} jobs of two GPUs and more: {:.2} % are as fast as on any free set, {:.2} % leave the best \
         rest of those too.",
        percent(fastest),
        percent(best_rest)
    )
}
