//! Training jobs with tensor, pipeline and data parallel ranks on partly filled Clos clusters: the predicted
//! communication time of a step, ours against that of other schedulers, by one evaluator for all.
//!
//! Ours is the engine's placement and the engine's order of ranks on it. Every peer is measured twice: with
//! the ranks in its own order, and with our order on its placement.

mod compare;
mod evaluate;
mod job;
mod scene;

#[cfg(test)]
mod tests;

use serde::Serialize;

use compare::{Bench, Figures};

/// Which states are drawn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    /// Nodes of the cluster: leaves of 32, blocks of 8 leaves.
    pub(crate) blocks: usize,
    /// How much is taken before, in hundredths.
    pub(crate) fills: Vec<u32>,
    /// How much more the nodes of a leaf, and the leaves of a block, can send than their uplink carries.
    pub(crate) oversubscriptions: Vec<u32>,
    pub(crate) seeds: Vec<u64>,
    /// Ranks of the jobs.
    pub(crate) sizes: Vec<u32>,
}

#[derive(Serialize)]
struct Report {
    plan: Plan,
    cases: usize,
    /// Cases in which ours was slower than some peer.
    worse: usize,
    by_size: Vec<Figures>,
    /// The largest first.
    losses: Vec<compare::Loss>,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut plan = Plan {
        blocks: 8,
        fills: vec![50, 70, 85],
        oversubscriptions: vec![1, 2, 4],
        seeds: vec![42, 43, 44],
        sizes: job::SIZES.to_vec(),
    };
    let mut is_json = false;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => is_json = true,
            "--seeds" => {
                let seeds = arguments.next().and_then(|given| seeds(given));
                plan.seeds = seeds.ok_or("--seeds takes FIRST-LAST, at most 100 of them")?;
            }
            _ => return Err("grid takes --json and --seeds FIRST-LAST".to_owned()),
        }
    }
    let report = measure(plan)?;
    if is_json {
        println!("{}", serde_json::to_string(&report).map_err(|e| e.to_string())?);
    } else {
        report.print();
    }
    Ok(())
}

fn seeds(given: &str) -> Option<Vec<u64>> {
    let (first, last) = given.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (last.checked_sub(first)? < 100).then(|| (first..=last).collect())
}

fn measure(plan: Plan) -> Result<Report, String> {
    let mut bench = Bench::default();
    for seed in &plan.seeds {
        for fill in &plan.fills {
            for oversubscription in &plan.oversubscriptions {
                let scene = scene::Scene::draw(plan.blocks, *fill, *oversubscription, *seed);
                for size in &plan.sizes {
                    for job in job::jobs(*size) {
                        bench.case(&scene, &job)?;
                    }
                }
            }
        }
    }
    bench.losses.sort_by(|a, b| b.percent().total_cmp(&a.percent()));
    let (cases, worse) = (bench.cases(), bench.worse());
    Ok(Report { plan, cases, worse, by_size: bench.figures(), losses: bench.losses })
}

/// Losses that are printed, the largest; JSON has all.
const LOSSES_SHOWN: usize = 20;

impl Report {
    fn print(&self) {
        println!("{} cases on {} blocks of 8 leaves of 32 nodes", self.cases, self.plan.blocks);
        println!("communication time of a step that ours saves, of all | of what leaves the node");
        println!(
            "  ranks  against        cases   own order: mean    max   least | mean     our order: mean    max   least | mean"
        );
        for f in &self.by_size {
            let (own, mapped) = (&f.own, &f.mapped);
            println!(
                "  {:>5}  {:<13} {:>6}  {:>14.1} % {:>5.1} % {:>6.1} % | {:>4.1} %  {:>12.1} % {:>5.1} % {:>6.1} % | {:>4.1} %",
                f.ranks,
                f.peer,
                f.cases,
                own.mean,
                own.max,
                own.min,
                own.mean_outside,
                mapped.mean,
                mapped.max,
                mapped.min,
                mapped.mean_outside,
            );
        }
        println!("ours slower than some peer in {} of {} cases", self.worse, self.cases);
        for loss in self.losses.iter().take(LOSSES_SHOWN) {
            println!("  {loss}");
        }
        if self.losses.len() > LOSSES_SHOWN {
            println!("  and {} more, all in --json", self.losses.len() - LOSSES_SHOWN);
        }
    }
}
