//! Shockwave's 120 jobs on 32 V100 under Gavel's max-min fairness and Themis, in rounds of 120 s.
//!
//! Settings from `scheduler/` of uw-mad-dash/shockwave: throughputs of `tacc_throughputs.json`; batch sizes change by
//! epoch; whoever did not run in the round before loses 20 s of the round (`simulate`, `preemption_overhead`); the
//! finish-time fairness of a job is its completion time over its run time alone (`duration_every_epoch`) times the jobs of
//! the trace per GPU (`get_finish_time_fairness`).

use std::path::Path;

use phalanx_sim::policies::{Gavel, Goal};
use phalanx_sim::replay::measured::{Phased, Throughputs, batch_in, kind, steps_of_epoch};
use phalanx_sim::replay::metrics::Metrics;
use phalanx_sim::replay::{Job, Machines, Outcome, Rack, Rate, Replay, Settings};
use phalanx_sim::trace::{BatchMode, Format, TraceJob, Training};

use super::Row;

const TRACE: &str = "120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace";
const GPUS: u32 = 32;
const ROUND_MS: u64 = 120_000;
const PREEMPTION_MS: u64 = 20_000;
/// More than any job of the trace has.
const EPOCHS_MAX: u32 = 2_000;
/// `scheduler/reproduce/pickles/tacc_32gpus`: makespan in s, mean JCT in s, worst finish-time fairness, and % of jobs
/// above 1.05.
const PUBLISHED: [(&str, Goal, [f64; 4]); 2] = [
    ("max-min", Goal::MaxMinUnaware, [33_208.0, 11_274.0, 2.95, 25.0]),
    ("themis", Goal::FinishTime, [31_929.0, 11_302.0, 3.44, 22.5]),
];

/// A job in epochs, its speed in each, and how long it would take alone, in ms.
#[expect(clippy::cast_precision_loss, reason = "numbers of steps are far below 2^53")]
fn job(of: &TraceJob, speeds: &Throughputs) -> Option<(Job, Vec<Rate>, f64)> {
    let training = of.training.as_ref()?;
    let first = training.batch_size?;
    let epochs = training.steps? as f64 / f64::from(steps_of_epoch(&training.model, first)?);
    let per_ms = |batch: u32| {
        let steps_per_s = speeds.of("v100", &kind(training, Some(batch)), of.gpus)?;
        Some(steps_per_s / 1_000.0 / f64::from(steps_of_epoch(&training.model, batch)?))
    };
    let mut phases: Vec<Rate> = Vec::new();
    for epoch in 0..EPOCHS_MAX {
        if f64::from(epoch) >= epochs {
            break;
        }
        let rate = per_ms(batch_in(training, first, of.gpus, epoch)).or_else(|| per_ms(first))?;
        match phases.last_mut() {
            Some(last) if last.per_ms.to_bits() == rate.to_bits() => last.until = f64::from(epoch + 1),
            _ => phases.push(Rate { per_ms: rate, until: f64::from(epoch + 1) }),
        }
    }
    phases.last_mut()?.until = f64::INFINITY;
    let whole = (0..EPOCHS_MAX).take_while(|epoch| f64::from(*epoch) < epochs);
    let each = whole.map(|epoch| {
        let batch = profiled_batch(training, first, of.gpus, epoch, epochs);
        Some(1.0 / per_ms(batch).or_else(|| per_ms(first))?)
    });
    let alone_ms = each.sum::<Option<f64>>()?;
    Some((Job { work: epochs, ..Job::asking(of) }, phases, alone_ms))
}

/// The batch size with which the published fairness takes an epoch to run alone (`utils.py`, `get_accordion_bs_pattern`):
/// Accordion keeps the first one for the first 30 of 100 epochs too, and so is slower than it is simulated.
fn profiled_batch(training: &Training, first: u32, gpus: u32, epoch: u32, epochs: f64) -> u32 {
    let is_again =
        training.model == "Recommendation" && ((60..70).contains(&epoch) || (80..90).contains(&epoch));
    if training.batch == BatchMode::Accordion && (is_again || f64::from(epoch) <= epochs.ceil() * 0.3) {
        return first;
    }
    batch_in(training, first, gpus, epoch)
}

pub(super) fn measure(folder: &Path) -> Result<Vec<Row>, String> {
    let folder = folder.join("shockwave");
    let speeds = Throughputs::read(&super::read(&folder.join("tacc_throughputs.json"))?)?;
    let trace = super::trace(&folder.join(TRACE), Format::Shockwave)?;
    let mut jobs = Vec::new();
    let mut progress = Phased::default();
    let mut alone_ms = Vec::new();
    for of in &trace.jobs {
        let (job, phases, ms) = job(of, &speeds).ok_or_else(|| format!("row {} was not measured", of.row))?;
        jobs.push(job);
        progress.phases.push(phases);
        alone_ms.push(ms);
    }
    let racks = [Rack { model: "v100", nodes: 8, gpus_per_node: GPUS / 8 }];
    let machines = Machines::plain(&racks).map_err(|e| e.to_string())?;
    let settings = Settings { start_ms: PREEMPTION_MS, ..Settings::default() };
    let replay = Replay { cluster: &machines, jobs: &jobs, progress: &progress, settings, node_events: &[] };
    let mut rows = Vec::new();
    for (policy, goal, published) in PUBLISHED {
        let outcome = replay.run(&mut Gavel::new(goal, ROUND_MS)).map_err(|e| e.to_string())?;
        let metrics = Metrics::of(&outcome);
        let (worst, unfair_percent) = fairness(&outcome, &alone_ms);
        let ours = [metrics.makespan_s, metrics.completion_s.mean, worst, unfair_percent];
        let measures = ["makespan, s", "mean JCT, s", "worst FTF", "% FTF > 1.05"];
        for ((measure, published), ours) in measures.into_iter().zip(published).zip(ours) {
            rows.push(Row::new("120 jobs".to_owned(), policy, measure, published, ours));
        }
    }
    Ok(rows)
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds are exact below 2^53")]
fn fairness(outcome: &Outcome, alone_ms: &[f64]) -> (f64, f64) {
    let contention = (outcome.jobs.len() as f64 / f64::from(GPUS)).max(1.0);
    let ended = outcome.jobs.iter().zip(alone_ms);
    let ratios: Vec<f64> = ended
        .filter_map(|(job, alone_ms)| Some(job.completion_ms()? as f64 / (alone_ms * contention)))
        .collect();
    let unfair = ratios.iter().filter(|ratio| **ratio > 1.05).count() as f64;
    (ratios.iter().copied().fold(0.0, f64::max), unfair / ratios.len().max(1) as f64 * 100.0)
}
