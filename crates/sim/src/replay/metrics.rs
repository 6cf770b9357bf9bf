//! What a replay comes to in numbers. Definitions are in `docs/design/0003-simulator.md`.
#![allow(clippy::cast_precision_loss, reason = "milliseconds are exact below 2^53")]

use serde::Serialize;

use super::{JobOutcome, Losses, Outcome, Sample};

const MS_PER_HOUR: f64 = 3_600_000.0;
/// Jobs whose finish-time fairness is above this count as treated unfairly (Shockwave, NSDI 2023, section 8.2).
const UNFAIR: f64 = 1.05;
/// Jobs that take less alone have no finish-time fairness.
const FAIR_MS_MIN: f64 = 1_000.0;

/// Of some times in s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// Jobs of like size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SizeClass {
    /// Devices from, and to and with.
    pub gpus: (u32, u32),
    pub jobs: usize,
    pub completion_s: Spread,
    pub waited_s: Spread,
}

/// One policy on one trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    pub policy: String,
    pub jobs: usize,
    /// Those that did all their work.
    pub ended: usize,
    /// Those that their time limits ended: they failed.
    pub killed: usize,
    /// Those whose times and fairness are below: all that ended, or where several policies are compared, all that ended
    /// under each of them.
    pub compared: usize,
    pub completion_s: Spread,
    pub waited_s: Spread,
    pub makespan_s: f64,
    pub by_size: Vec<SizeClass>,
    /// Of the device time from the first submission to the last end: what jobs held, and what came to work that was
    /// kept, as at the best place.
    pub allocated_percent: f64,
    pub useful_percent: f64,
    /// Of what jobs held, what came to work that was kept.
    pub goodput_percent: f64,
    pub fairness: Fairness,
    pub preemptions: u64,
    pub moves: u64,
    /// Of work that was done and not kept.
    pub lost_gpu_hours: f64,
    /// Effective training time ratio: of the time from their first start to their end, that in which jobs got on with work
    /// that was kept, by device.
    pub ettr_percent: f64,
    /// Of the time that jobs worked, over what it would have taken at the best place: what the cost model predicts for
    /// their communication.
    pub place_slowdown: f64,
    pub gpu_hours: GpuHours,
    /// Domains right above the nodes that jobs crossed, over the fewest that would have held them when they started.
    pub leaves_over_least: f64,
}

/// Device time until the last end, and where it went. What jobs held is the sum of all below that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuHours {
    /// Of nodes that were up.
    pub up: f64,
    pub held: f64,
    /// Came to work that was kept, as at the best place.
    pub useful: f64,
    /// Starts and restores.
    pub starting: f64,
    /// Jobs stood still to save their work.
    pub saving: f64,
    /// Work in vain, for a node was lost or the policy stopped it.
    pub lost_nodes: f64,
    pub stops: f64,
    /// The time limit of the job ended it.
    pub limits: f64,
    /// Jobs were slower for a slow node, and for places across which they communicate.
    pub slow_nodes: f64,
    pub places: f64,
}

/// Finish-time fairness (Themis, NSDI 2020, section 3): completion time over what it would have been alone on an equal
/// share of the cluster. The share follows from the mean contention while the job was there, as Shockwave counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Fairness {
    pub mean: f64,
    pub worst: f64,
    /// Of jobs above 1.05.
    pub unfair_percent: f64,
}

impl Metrics {
    #[must_use]
    pub fn of(outcome: &Outcome) -> Self {
        Self::among(outcome, |_| true)
    }

    /// With the times and the fairness of those jobs alone that are `compared`, by index. Policies under which other jobs
    /// ended have no times in common but those of the jobs that ended under all of them.
    #[must_use]
    pub fn among(outcome: &Outcome, compared: impl Fn(usize) -> bool) -> Self {
        let is_compared = |(index, job): &(usize, &JobOutcome)| job.end_ms.is_some() && compared(*index);
        let both = outcome.jobs.iter().enumerate().filter(is_compared);
        let compared: Vec<&JobOutcome> = both.map(|(_, job)| job).collect();
        let ended: Vec<&JobOutcome> = outcome.jobs.iter().filter(|job| job.end_ms.is_some()).collect();
        let sum = |of: fn(&JobOutcome) -> f64| outcome.jobs.iter().map(of).sum::<f64>();
        let held = sum(JobOutcome::held_gpu_ms);
        let useful = sum(useful_gpu_ms);
        let places = sum(|job| job.losses.places);
        let end_ms = outcome.jobs.iter().filter_map(|job| job.end_ms.max(job.killed_ms)).max().unwrap_or(0);
        let up = integral(&outcome.samples, end_ms, |sample| f64::from(sample.gpus_up));
        let leaves = ended.iter().map(|job| f64::from(job.leaves)).sum::<f64>();
        let least = ended.iter().map(|job| f64::from(job.leaves_least)).sum::<f64>();
        Self {
            policy: outcome.policy.clone(),
            jobs: outcome.jobs.len(),
            ended: ended.len(),
            killed: outcome.jobs.iter().filter(|job| job.killed_ms.is_some()).count(),
            compared: compared.len(),
            completion_s: Spread::of(compared.iter().filter_map(|job| job.completion_ms())),
            waited_s: Spread::of(compared.iter().filter_map(|job| job.waited_ms())),
            makespan_s: outcome.makespan_ms as f64 / 1_000.0,
            by_size: by_size(&compared),
            allocated_percent: percent(held, up),
            useful_percent: percent(useful, up),
            goodput_percent: percent(useful, held),
            fairness: Fairness::of(outcome, &compared),
            preemptions: outcome.jobs.iter().map(|job| u64::from(job.preemptions)).sum(),
            moves: outcome.jobs.iter().map(|job| u64::from(job.moves)).sum(),
            lost_gpu_hours: sum(|job| job.losses.in_vain()) / MS_PER_HOUR,
            ettr_percent: ettr_percent(&ended),
            place_slowdown: if useful > 0.0 { 1.0 + places / useful } else { 1.0 },
            gpu_hours: GpuHours {
                up: up / MS_PER_HOUR,
                held: held / MS_PER_HOUR,
                useful: useful / MS_PER_HOUR,
                starting: sum(|job| job.starting_ms as f64 * job.devices()) / MS_PER_HOUR,
                saving: sum(|job| job.losses.saving) / MS_PER_HOUR,
                lost_nodes: sum(|job| job.losses.lost_nodes) / MS_PER_HOUR,
                stops: sum(|job| job.losses.stops) / MS_PER_HOUR,
                limits: sum(|job| job.losses.limits) / MS_PER_HOUR,
                slow_nodes: sum(|job| job.losses.slow_nodes) / MS_PER_HOUR,
                places: places / MS_PER_HOUR,
            },
            leaves_over_least: if least > 0.0 { leaves / least } else { 1.0 },
        }
    }
}

impl Spread {
    #[must_use]
    pub fn of(times_ms: impl Iterator<Item = u64>) -> Self {
        let mut sorted: Vec<u64> = times_ms.collect();
        sorted.sort_unstable();
        let seconds = |at: usize| sorted.get(at).map_or(0.0, |ms| *ms as f64 / 1_000.0);
        // The nearest rank: the least that is not below so many of a hundred.
        let rank = |percent: usize| (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        let sum: u128 = sorted.iter().map(|ms| u128::from(*ms)).sum();
        let mean = if sorted.is_empty() { 0.0 } else { sum as f64 / sorted.len() as f64 / 1_000.0 };
        Self {
            mean,
            p50: seconds(rank(50)),
            p99: seconds(rank(99)),
            max: seconds(sorted.len().saturating_sub(1)),
        }
    }
}

impl Fairness {
    fn of(outcome: &Outcome, compared: &[&JobOutcome]) -> Self {
        let ratios = ratios(outcome, compared.iter().copied());
        let count = ratios.len().max(1) as f64;
        let unfair = ratios.iter().filter(|ratio| **ratio > UNFAIR).count();
        Self {
            mean: ratios.iter().sum::<f64>() / count,
            worst: ratios.iter().copied().fold(0.0, f64::max),
            unfair_percent: unfair as f64 / count * 100.0,
        }
    }
}

/// Finish-time fairness of those of these jobs that ended.
#[must_use]
pub fn ratios<'a>(outcome: &Outcome, jobs: impl Iterator<Item = &'a JobOutcome>) -> Vec<f64> {
    let demand = Contention::of(&outcome.samples);
    jobs.filter_map(|job| ratio(&demand, job)).collect()
}

/// Device time that came to work that was kept: as at the best place, or where that is not known what a job held without
/// what starts, work in vain, checkpoints and slow nodes took.
fn useful_gpu_ms(job: &JobOutcome) -> f64 {
    match job.alone_ms {
        Some(alone_ms) if job.work > 0.0 => alone_ms * job.devices() * ((job.done - job.lost) / job.work),
        _ => {
            let starting = job.starting_ms as f64 * job.devices();
            let Losses { saving, slow_nodes, places, .. } = job.losses;
            job.held_gpu_ms() - starting - job.losses.in_vain() - saving - slow_nodes - places
        }
    }
}

/// Of all jobs together. Waiting after the first start counts against it, and what slows work down does not.
fn ettr_percent(ended: &[&JobOutcome]) -> f64 {
    let time = |job: &&&JobOutcome| {
        let gpus = job.devices();
        let starting_gpu_ms = job.starting_ms as f64 * gpus;
        let works = job.held_gpu_ms() - starting_gpu_ms - job.losses.saving - job.losses.in_vain();
        let there_ms = job.end_ms.unwrap_or(0).saturating_sub(job.first_start_ms.unwrap_or(0));
        (works, there_ms as f64 * gpus)
    };
    let (works, there) = ended.iter().map(|job| time(&job)).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    percent(works, there)
}

/// Finish-time fairness of one job; nothing for one that has not ended, or would take less than a second alone: whatever it
/// waited, it would be thousands of times that. Where nothing is known of its best place, it would
/// take as long alone as it held devices without what starts and work in vain took.
fn ratio(demand: &Contention, job: &JobOutcome) -> Option<f64> {
    let completion_ms = job.completion_ms()?;
    let vain_ms = if job.gpus > 0 { job.losses.in_vain() / job.devices() } else { 0.0 };
    let alone_ms = job.alone_ms.unwrap_or(job.held_ms as f64 - job.starting_ms as f64 - vain_ms);
    if alone_ms < FAIR_MS_MIN {
        return None;
    }
    let contention = demand.mean(job.submit_ms, job.end_ms?).max(1.0);
    Some(completion_ms as f64 / (alone_ms * contention))
}

/// How many times over the cluster was asked for, integrated over time.
struct Contention(Vec<(u64, f64, f64)>);

impl Contention {
    /// By sample: when, the integral until then, and the value from then on.
    fn of(samples: &[Sample]) -> Self {
        let (mut area, mut last) = (0.0, (0, 0.0));
        let step = |sample: &Sample| {
            area += last.1 * (sample.at_ms - last.0) as f64;
            last = (sample.at_ms, sample.wanted() / f64::from(sample.gpus_up.max(1)));
            (sample.at_ms, area, last.1)
        };
        Self(samples.iter().map(step).collect())
    }

    fn until(&self, at_ms: u64) -> f64 {
        let after = self.0.partition_point(|(at, ..)| *at <= at_ms);
        let before = after.checked_sub(1).and_then(|at| self.0.get(at));
        before.map_or(0.0, |(at, area, value)| area + value * (at_ms - at) as f64)
    }

    fn mean(&self, from_ms: u64, to_ms: u64) -> f64 {
        (self.until(to_ms) - self.until(from_ms)) / (to_ms - from_ms).max(1) as f64
    }
}

fn integral(samples: &[Sample], end_ms: u64, of: impl Fn(&Sample) -> f64) -> f64 {
    let ends = samples.iter().skip(1).map(|sample| sample.at_ms.min(end_ms)).chain([end_ms]);
    samples.iter().zip(ends).map(|(sample, end)| of(sample) * end.saturating_sub(sample.at_ms) as f64).sum()
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}

/// 1, 2 to 7, 8 to 63, and more.
fn by_size(ended: &[&JobOutcome]) -> Vec<SizeClass> {
    let classes = [(1, 1), (2, 7), (8, 63), (64, u32::MAX)];
    let class = |gpus: (u32, u32)| {
        let of: Vec<&&JobOutcome> =
            ended.iter().filter(|job| (gpus.0..=gpus.1).contains(&job.gpus)).collect();
        SizeClass {
            gpus,
            jobs: of.len(),
            completion_s: Spread::of(of.iter().filter_map(|job| job.completion_ms())),
            waited_s: Spread::of(of.iter().filter_map(|job| job.waited_ms())),
        }
    };
    classes.into_iter().map(class).filter(|class| class.jobs > 0).collect()
}
