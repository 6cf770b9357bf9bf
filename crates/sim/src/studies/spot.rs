//! Training on spot nodes: cheaper, and reclaimed now and then.

use phalanx_model::{Queue, QueueName, Settings, Spot};
use serde::Deserialize;

use super::input::{Count, DAY, HOUR, LONG, List, MINUTE, Milli, SECOND, Time};
use super::jobs::{Drawn, Jobs};
use super::page::{Cell, Page, Table};
use super::{Around, Source, StudyError, mean, one_leaf, percent};
use crate::fleet::{Fleet, FleetReport, Reclaims, Training};

const HOUR_MS: f64 = 3_600_000.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spots {
    nodes: Count<1, 1_000>,
    lasts: Time<HOUR, LONG>,
    jobs: Jobs,
    start: Time<0, HOUR>,
    checkpoint: Time<MINUTE, DAY>,
    save: Time<0, HOUR>,
    reclaims: List<Reclaim, 32>,
    replaced_after: Time<SECOND, DAY>,
    discounts: List<Milli<1, 999>, 8>,
    seed: Count<0, { u32::MAX }>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reclaim {
    every: Time<MINUTE, LONG>,
    notice: Time<0, HOUR>,
}

const COLUMNS: [&str; 7] = [
    "mean time to reclaim, h",
    "notice, s",
    "restarts",
    "lost, GPU-h",
    "lost, % of the work",
    "GPU time held, of nodes that stay",
    "completion, of nodes that stay",
];

/// What came of one way in which nodes are reclaimed.
struct Outcome {
    /// Whether the notice is long enough to save.
    can_save: bool,
    lost_percent: f64,
    /// By discount.
    saved_percent: Vec<f64>,
}

pub(super) fn page(source: &Source<'_>, around: &mut dyn Around) -> Result<Page, StudyError> {
    let input: Spots = source.read()?;
    let queue = QueueName::new("training").map_err(|error| source.wrong(error))?;
    let mut fleet = input.fleet(source, &queue)?;
    let runs = input.reclaims.0.len() as u64 + 1;
    around.begin("nodes that stay", 1, runs);
    let stays = fleet.run()?;
    fleet.nodes.iter_mut().for_each(|node| node.spot = Some(Spot::default()));
    let mut table = Table::new("", &COLUMNS);
    table.columns.extend(input.discounts.0.iter().map(|off| format!("saved at -{:.0} %, %", off.percent())));
    let mut all = Vec::new();
    for (at, reclaim) in (2..).zip(&input.reclaims.0) {
        around.begin("spot nodes", at, runs);
        let reclaims = Reclaims {
            every_ms: reclaim.every.0,
            notice_ms: reclaim.notice.0,
            back_ms: input.replaced_after.0,
        };
        let report = Fleet { reclaims: Some(reclaims), ..fleet.clone() }.run()?;
        let outcome = Outcome::of(&input, reclaim, &stays, &report);
        let mut row = vec![
            Cell::Number(reclaim.every.0 as f64 / HOUR_MS, 1),
            Cell::Number(reclaim.notice.0 as f64 / 1_000.0, 0),
            Cell::Number(f64::from(report.restarts), 0),
            Cell::Number(report.lost_gpu_ms / HOUR_MS, 1),
            Cell::Number(outcome.lost_percent, 2),
            Cell::Number(report.held_gpu_ms / stays.held_gpu_ms.max(1.0), 3),
            Cell::Number(longer(&stays, &report), 2),
        ];
        row.extend(outcome.saved_percent.iter().map(|saved| Cell::Number(*saved, 1)));
        table.rows.push(row);
        all.push(outcome);
    }
    let findings = findings(&all);
    Ok(Page {
        study: "spot",
        title: "Spot capacity (modelled)",
        question: "What does training on spot nodes save? Cloud providers claim 60 to 90 %.".to_owned(),
        basis: format!(
            "{} jobs are drawn from the input below. A reclaimed node gets its notice, is gone when the notice ends, and is \
             replaced later. A job pays for the GPU time that it holds. Completion is the mean of the jobs that end both ways.",
            fleet.training.len()
        ),
        tables: vec![table],
        findings,
        input: source.input(),
        declared: source.text.to_owned(),
    })
}

impl Spots {
    fn fleet(&self, source: &Source<'_>, queue: &QueueName) -> Result<Fleet, StudyError> {
        let cluster = one_leaf(self.nodes.0)?;
        // While nodes are gone, the engine refuses a job that does not fit the others.
        let half = self.nodes.0 * 4;
        if let Some((largest, _)) = self.jobs.gpus.0.last().filter(|(gpus, _)| *gpus > half) {
            let what =
                format!("jobs.gpus: a job of {largest} GPUs is more than half of the nodes hold ({half})");
            return Err(source.wrong(what + "; raise nodes, or leave it out"));
        }
        let drawn =
            self.jobs.draw(source, self.nodes.0 * 8, self.jobs.submitted_for.0, u64::from(self.seed.0))?;
        let training = |job: Drawn| Training {
            queue: queue.clone(),
            submit_ms: job.submit_ms,
            gpus: job.gpus,
            elastic: None,
            run_ms: job.run_ms,
            starts_ms: self.start.0,
            checkpoint_ms: self.checkpoint.0,
            save_ms: self.save.0,
            takes_spot: true,
        };
        Ok(Fleet {
            levels: cluster.levels,
            nodes: cluster.nodes,
            settings: Settings::default(),
            queues: vec![Queue::named(queue.clone())],
            services: Vec::new(),
            training: drawn.into_iter().map(training).collect(),
            reclaims: None,
            end_ms: self.lasts.0,
            seed: u64::from(self.seed.0),
        })
    }
}

impl Outcome {
    fn of(input: &Spots, reclaim: &Reclaim, stays: &FleetReport, report: &FleetReport) -> Self {
        let held = report.held_gpu_ms / stays.held_gpu_ms.max(1.0);
        let saved = |discount: &Milli<1, 999>| 100.0 - (100.0 - discount.percent()) * held;
        Self {
            can_save: reclaim.notice.0 >= input.save.0,
            lost_percent: percent(report.lost_gpu_ms, report.trained_gpu_ms),
            saved_percent: input.discounts.0.iter().map(saved).collect(),
        }
    }
}

/// What is saved, and what is lost with a notice and without.
fn findings(all: &[Outcome]) -> Vec<String> {
    let span = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| (least.min(x), most.max(x)))
    };
    let (least, most) = span(&mut all.iter().flat_map(|one| one.saved_percent.iter().copied()));
    let saved = format!("Spot nodes save {least:.1} to {most:.1} %.");
    let lost = [(true, "as long as saving takes"), (false, "shorter than that")].map(|(can_save, notice)| {
        let of = all.iter().filter(|one| one.can_save == can_save);
        let (least, most) = span(&mut of.map(|one| one.lost_percent));
        (least <= most)
            .then(|| format!("If the notice is {notice}, at most {most:.2} % of the work is lost."))
    });
    [Some(saved)].into_iter().chain(lost).flatten().collect()
}

/// Mean completion of the jobs that ended both ways, the second over the first.
pub(super) fn longer(before: &FleetReport, after: &FleetReport) -> f64 {
    let both = || {
        let both = before.completions_ms.iter().zip(&after.completions_ms);
        both.filter_map(|(before, after)| before.zip(*after))
    };
    let [before, after] = [mean(both().map(|(a, _)| a as f64)), mean(both().map(|(_, b)| b as f64))];
    if before > 0.0 { after / before } else { 1.0 }
}
