//! A real cluster's trace against seven other policies: how many GPUs stay unallocated.
//!
//! The order of arrivals and of nodes is that of the published runs, seed by seed: Go's random stream is computed, so
//! what others published is not only cited but run again. See [`trace`] for the settings.

mod baselines;
mod engine;
mod go_rand;
mod replay;
mod trace;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::Serialize;

use baselines::{POLICIES, Policy};
use go_rand::Table;
use replay::{Decider, Outcome};
use trace::{Published, Trace, WORKLOADS};

struct Arguments {
    is_json: bool,
    workloads: Vec<String>,
    seeds: (u32, u32),
    data: PathBuf,
}

/// One policy on one workload in one order of nodes.
#[derive(Clone, Debug, Serialize)]
struct Cell {
    workload: String,
    /// `permuted` (one permutation per seed, that of the published run) or `name`.
    order: &'static str,
    policy: &'static str,
    /// Unallocated GPUs in percent at 100 % arrived, over seeds.
    mean: f64,
    sd: f64,
    /// The same at 130 % arrived.
    mean_at_130: f64,
    /// Mean time of one decision, in µs, with all bookkeeping of the run.
    decision_us: f64,
    published: Option<Theirs>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Theirs {
    mean: f64,
    sd: f64,
    mean_at_130: f64,
    /// Seeds whose published figure came out again, to the last of its two decimals.
    seeds_reproduced: usize,
}

#[derive(Serialize)]
struct Report {
    seeds: (u32, u32),
    /// Ours is below the better of FGD and first-fit in every workload and order.
    is_below_both_everywhere: bool,
    cells: Vec<Cell>,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let arguments = parse(arguments)?;
    let cells = cells(&arguments, &["permuted", "name"], &deciders().collect::<Vec<_>>())?;
    let report = Report { seeds: arguments.seeds, is_below_both_everywhere: is_below_both(&cells), cells };
    if arguments.is_json {
        println!("{}", serde_json::to_string(&report).map_err(|error| error.to_string())?);
    } else {
        report.print();
    }
    Ok(())
}

/// Workload, policy, published mean and ours, of all that was published, in the same order of nodes.
pub(crate) fn published_means(data: &Path) -> Result<Vec<(String, &'static str, f64, f64)>, String> {
    let arguments = Arguments { data: data.to_owned(), ..parse(&[])? };
    let others: Vec<Decider> = POLICIES.into_iter().map(Decider::Other).collect();
    let cells = cells(&arguments, &["permuted"], &others)?.into_iter();
    Ok(cells.filter_map(|of| Some((of.workload, of.policy, of.published?.mean, of.mean))).collect())
}

fn cells(arguments: &Arguments, orders: &[&'static str], deciders: &[Decider]) -> Result<Vec<Cell>, String> {
    if !arguments.data.join("openb").is_dir() {
        let there = arguments.data.display();
        return Err(format!("{there} has no folder openb; name the folder of traces with --data"));
    }
    let published = trace::published(&arguments.data)?;
    let table = Table::new();
    let mut cells = Vec::new();
    for workload in &arguments.workloads {
        let trace = Trace::read(&arguments.data, workload)?;
        for order in orders {
            for decider in deciders {
                let mut outcomes = Vec::new();
                for seed in arguments.seeds.0..=arguments.seeds.1 {
                    let arrivals = trace.arrivals(seed, &table);
                    outcomes.push(replay::run(&trace, arrivals, *order == "name", *decider)?);
                }
                let cell = Cell::of(workload, order, *decider, &outcomes);
                cells.push(cell.beside(&published, &outcomes, arguments.seeds.0));
            }
            eprintln!("{workload}, nodes {order}: done");
        }
    }
    Ok(cells)
}

fn deciders() -> impl Iterator<Item = Decider> {
    POLICIES.into_iter().map(Decider::Other).chain([Decider::Ours])
}

impl Decider {
    const fn name(self) -> &'static str {
        match self {
            Self::Other(policy) => policy.name(),
            Self::Ours => "Phalanx",
        }
    }
}

/// Mean and population standard deviation.
#[expect(clippy::cast_precision_loss, reason = "seeds are few")]
fn spread(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / count;
    (mean, (values.map(|value| (value - mean) * (value - mean)).sum::<f64>() / count).sqrt())
}

impl Cell {
    fn of(workload: &str, order: &'static str, decider: Decider, outcomes: &[Outcome]) -> Self {
        let (mean, sd) = spread(outcomes.iter().map(|outcome| outcome.at[0]));
        let (mean_at_130, _) = spread(outcomes.iter().map(|outcome| outcome.at[1]));
        let (decision_us, _) = spread(outcomes.iter().map(|outcome| outcome.mean_us));
        let (workload, policy) = (workload.to_owned(), decider.name());
        Self { workload, order, policy, mean, sd, mean_at_130, decision_us, published: None }
    }

    /// With what was published for the same seeds; that was with permuted nodes.
    fn beside(mut self, published: &Published, outcomes: &[Outcome], first: u32) -> Self {
        let theirs = published.get(&(self.workload.clone(), self.policy.to_owned()));
        let Some(theirs) = theirs.filter(|_| self.order == "permuted") else { return self };
        let seeds = (first..).zip(outcomes).filter_map(|(seed, outcome)| Some((theirs.get(&seed)?, outcome)));
        let pairs: Vec<([f64; 2], [f64; 2])> =
            seeds.map(|(theirs, ours)| (theirs.map(|allocated| 100.0 - allocated), ours.at)).collect();
        if !pairs.is_empty() {
            let (mean, sd) = spread(pairs.iter().map(|(theirs, _)| theirs[0]));
            let (mean_at_130, _) = spread(pairs.iter().map(|(theirs, _)| theirs[1]));
            let is_same = |(theirs, ours): &&([f64; 2], [f64; 2])| (theirs[0] - ours[0]).abs() < 0.006;
            let seeds_reproduced = pairs.iter().filter(is_same).count();
            self.published = Some(Theirs { mean, sd, mean_at_130, seeds_reproduced });
        }
        self
    }
}

/// Whether ours is below the better of FGD and first-fit wherever it was run.
fn is_below_both(cells: &[Cell]) -> bool {
    let others = [Policy::Fgd.name(), Policy::FirstFit.name()];
    let ours = cells.iter().filter(|cell| cell.policy == Decider::Ours.name());
    let is_beaten = |ours: &Cell, other: &Cell| {
        (&ours.workload, ours.order) == (&other.workload, other.order)
            && others.contains(&other.policy)
            && ours.mean >= other.mean
    };
    ours.clone().all(|ours| !cells.iter().any(|other| is_beaten(ours, other)))
}

impl Report {
    fn print(&self) {
        let (first, last) = self.seeds;
        println!(
            "unallocated GPUs in %, 100 % of the capacity arrived, mean and sd over seeds {first}-{last}"
        );
        println!("\"published\" is what the authors of FGD published for the same runs\n");
        print!("{:24}", "");
        deciders().for_each(|decider| print!("{:>14}", decider.name()));
        println!();
        for row in self.cells.chunks(deciders().count()) {
            let Some(head) = row.first() else { continue };
            print!("{:24}", format!("{}, {}", head.workload, head.order));
            row.iter().for_each(|cell| print!("{:>14}", format!("{:.2} ±{:.2}", cell.mean, cell.sd)));
            println!();
            if row.iter().any(|cell| cell.published.is_some()) {
                print!("{:24}", "  published");
                for cell in row {
                    let theirs = |theirs: Theirs| format!("{:.2} ±{:.2}", theirs.mean, theirs.sd);
                    print!("{:>14}", cell.published.map_or("-".to_owned(), theirs));
                }
                print!("\n{:24}", "  seeds that agree");
                for cell in row {
                    let agree = |theirs: Theirs| theirs.seeds_reproduced.to_string();
                    print!("{:>14}", cell.published.map_or("-".to_owned(), agree));
                }
                println!();
            }
        }
        let ours = self.cells.iter().filter(|cell| cell.policy == Decider::Ours.name());
        let (mean_us, _) = spread(ours.map(|cell| cell.decision_us));
        println!("\none decision of Phalanx: {mean_us:.0} µs");
        let verdict = if self.is_below_both_everywhere { "is" } else { "is NOT" };
        println!("Phalanx {verdict} below the better of FGD and first-fit in every row");
    }
}

fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/traces");
    let mut parsed = Arguments {
        is_json: false,
        workloads: WORKLOADS.map(str::to_owned).to_vec(),
        seeds: (42, 51),
        data: PathBuf::from(beside),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--json" => parsed.is_json = true,
            "--data" => parsed.data = PathBuf::from(value()?),
            "--workload" => {
                let name = value()?;
                if !WORKLOADS.contains(&name.as_str()) {
                    return Err(format!("there is no workload {name}; there are {}", WORKLOADS.join(", ")));
                }
                parsed.workloads = vec![name.clone()];
            }
            "--seeds" => {
                let text = value()?;
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let seeds: Option<(u32, u32)> = first.parse().ok().zip(last.parse().ok());
                let fine = seeds.filter(|(first, last)| first <= last && last - first < 1_000);
                parsed.seeds = fine.ok_or_else(|| format!("{text} is no range of seeds, such as 42-51"))?;
            }
            other => return Err(format!("{other} is not known here")),
        }
    }
    Ok(parsed)
}
