//! What a comparison of policies came to: as a table for a terminal, as JSON, and as one page for a browser that needs
//! nothing else. All are texts; nothing is written here.

mod bins;
mod curves;
mod json;
mod page;
mod per_job;
mod table;
mod watch;

use serde::Serialize;

use crate::Failure;
use crate::replay::metrics::{Metrics, ratios};
use crate::replay::{JobOutcome, Outcome, Replay, Scheduler};
use crate::trace;
use curves::{Axis, Grid};
use watch::{Seen, Watch};

pub use curves::POINTS_MAX;
pub use per_job::PerJob;

/// All that is shown. Times are ms where the name says so, and s otherwise.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of Phalanx.
    pub version: &'static str,
    /// What was typed, with which the same report comes out again.
    pub command: String,
    pub seed: u64,
    /// Files that were read, in that order.
    pub inputs: Vec<Input>,
    pub trace: TraceFacts,
    pub cluster: ClusterFacts,
    /// What is modelled, declared and left out, a sentence each.
    pub world: Vec<String>,
    /// Of a GPU-hour, declared.
    pub price: f64,
    /// Starts of the bins of everything over time: `from_ms + index * step_ms`.
    pub time: TimeAxis,
    /// Devices of each row of the maps.
    pub leaf_gpus: Vec<u32>,
    /// Of the shares over time.
    pub queues: Vec<String>,
    /// Values at which the distributions are told.
    pub axes: Axes,
    pub policies: Vec<PolicyReport>,
    /// By policy what became of every job, if that is asked for; it is a file of its own ([`PerJob`]).
    #[serde(skip)]
    pub jobs: Vec<(String, Vec<JobOutcome>)>,
}

/// A file, so that a result can be held against what it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Input {
    pub name: String,
    pub bytes: u64,
    /// `fnv1a64:` and 16 digits: tells files apart, and is no protection from whoever means to deceive.
    pub digest: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct TraceFacts {
    pub format: String,
    /// Of the part that was selected.
    pub summary: trace::Summary,
    /// Jobs of it that are replayed.
    pub replayed: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct ClusterFacts {
    pub name: String,
    pub nodes: usize,
    pub gpus: u32,
    /// Domains right above the nodes.
    pub leaves: usize,
    pub models: Vec<String>,
    /// Outermost first.
    pub levels: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TimeAxis {
    pub from_ms: u64,
    pub step_ms: u64,
    pub points: usize,
}

/// Ascending.
#[derive(Clone, Debug, Serialize)]
pub struct Axes {
    pub seconds: Vec<f64>,
    /// Finish-time fairness.
    pub rho: Vec<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PolicyReport {
    /// As it is asked for.
    pub name: String,
    /// Whether it knows how long jobs take, which no scheduler does.
    pub is_oracle: bool,
    pub metrics: Metrics,
    pub cost: Cost,
    pub over_time: OverTime,
    /// Percent of the jobs that are compared, by value of the axes.
    pub distributions: Distributions,
}

/// At the declared price of a GPU-hour, whether or not a GPU is in use.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cost {
    /// Of all that were up, from the first submission to the last end.
    pub cluster: f64,
    /// The same for each GPU-hour of work that was kept, as at the best place.
    pub per_useful_gpu_hour: f64,
}

/// Means of each bin.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OverTime {
    /// Of the devices that are up: held by jobs, asked for by all jobs that are there, free on nodes in use in part.
    pub allocated_percent: Vec<f64>,
    pub wanted_percent: Vec<f64>,
    pub broken_percent: Vec<f64>,
    pub waiting_jobs: Vec<f64>,
    pub running_jobs: Vec<f64>,
    /// By queue: of the devices that are up.
    pub queues_percent: Vec<Vec<f64>>,
    /// By row of leaves: of its devices.
    pub leaves_percent: Vec<Vec<f64>>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Distributions {
    pub completion: Vec<f64>,
    pub waited: Vec<f64>,
    pub fairness: Vec<f64>,
    /// Jobs by domains right above the nodes beyond the fewest: 0, 1, 2, 3, and more.
    pub leaves_beyond: [u64; 5],
}

/// How far something long is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// What it is at: a policy.
    pub what: &'a str,
    /// Of all together, such as the jobs of all policies.
    pub done: u64,
    pub all: u64,
    /// What is counted.
    pub unit: &'static str,
}

/// Facts that the replays do not know.
#[derive(Clone, Debug)]
pub struct About {
    pub command: String,
    pub seed: u64,
    pub inputs: Vec<Input>,
    pub trace: TraceFacts,
    pub cluster: String,
    pub world: Vec<String>,
    /// In the charts over time, at most.
    pub points_max: usize,
    /// Whether to keep what became of every job.
    pub keeps_jobs: bool,
    /// Of a GPU-hour, in thousandths.
    pub price_milli: u64,
}

impl Input {
    #[must_use]
    pub fn of(name: &str, bytes: &[u8]) -> Self {
        // FNV-1a, 64 bit (Fowler, Noll, Vo; draft-eastlake-fnv).
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self { name: name.to_owned(), bytes: bytes.len() as u64, digest: format!("fnv1a64:{hash:016x}") }
    }
}

/// A policy that is to run, under the name that it is asked for with.
pub struct Entry {
    pub name: String,
    pub is_oracle: bool,
    pub policy: Box<dyn Scheduler>,
}

/// What is left of a replay until all are done.
struct Done {
    name: String,
    is_oracle: bool,
    outcome: Outcome,
    seen: Seen,
}

impl Report {
    /// Runs the policies one after the other on the same replay.
    ///
    /// # Errors
    /// What a policy did that cannot be.
    pub fn of(
        replay: &Replay<'_>,
        entries: Vec<Entry>,
        about: About,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Self, Failure> {
        let each = replay.jobs.len() as u64;
        let all = entries.len() as u64 * each;
        let points_max = about.points_max.clamp(1, POINTS_MAX);
        let mut done = Vec::new();
        for (before, Entry { name, is_oracle, policy }) in (0..).zip(entries) {
            let mut tell = |ended: usize| {
                let done = before * each + ended as u64;
                progress(Progress { what: &name, done, all, unit: "jobs" });
            };
            let mut watch = Watch::new(policy, replay.cluster, replay.jobs, points_max, &mut tell);
            let outcome = replay.run(&mut watch)?;
            let seen = watch.seen;
            done.push(Done { name, is_oracle, outcome, seen });
        }
        Ok(Self::put_together(replay, &done, about))
    }

    fn put_together(replay: &Replay<'_>, done: &[Done], about: About) -> Self {
        let machines = replay.cluster;
        let levels = machines.levels.above.iter().chain([&machines.levels.node]);
        let from_ms = replay.jobs.first().map_or(0, |job| job.submit_ms);
        let ends = done.iter().map(|done| from_ms + done.outcome.makespan_ms);
        let grid = Grid {
            from_ms,
            end_ms: ends.max().unwrap_or(from_ms),
            step_ms: done.iter().map(|done| done.seen.leaves.width_ms()).max().unwrap_or(1),
            points_max: about.points_max.clamp(1, POINTS_MAX),
        }
        .fitted();
        let mut leaf_gpus = vec![0; watch::leaf_rows(machines)];
        for node in 0..machines.nodes.len() {
            let row = watch::row_of_leaf(machines, machines.leaf_of(node));
            if let Some(gpus) = leaf_gpus.get_mut(row) {
                *gpus += machines.gpus_on(node);
            }
        }
        let seconds = Axis::of_times(done.iter().map(|done| &done.outcome));
        let rho = Axis::of_fairness();
        let price = about.price_milli as f64 / 1_000.0;
        // Jobs that did all their work under every policy.
        let ended_in = |done: &Done, job: usize| done.outcome.jobs[job].end_ms.is_some();
        let ended_in_all = |job: usize| done.iter().all(|done| ended_in(done, job));
        let compared: Vec<bool> = (0..replay.jobs.len()).map(ended_in_all).collect();
        let report = |done: &Done| {
            let metrics = Metrics::among(&done.outcome, |job| compared[job]);
            PolicyReport {
                name: done.name.clone(),
                is_oracle: done.is_oracle,
                cost: Cost::of(&metrics, price),
                metrics,
                over_time: curves::over_time(&done.outcome, &done.seen, &grid, &leaf_gpus),
                distributions: done.distributions(&seconds, &rho, |job| compared[job]),
            }
        };
        let policies = done.iter().map(report).collect();
        let kept = done.iter().filter(|_| about.keeps_jobs);
        let jobs = kept.map(|done| (done.name.clone(), done.outcome.jobs.clone())).collect();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            command: about.command,
            seed: about.seed,
            inputs: about.inputs,
            trace: about.trace,
            cluster: ClusterFacts {
                name: about.cluster,
                nodes: machines.nodes.len(),
                gpus: machines.gpus(),
                leaves: machines.leaves(),
                models: machines.models.clone(),
                levels: levels.map(ToString::to_string).collect(),
            },
            world: about.world,
            price,
            time: TimeAxis { from_ms, step_ms: grid.step_ms, points: grid.points() },
            leaf_gpus,
            queues: watch::queues(replay.jobs).0,
            axes: Axes { seconds: seconds.0, rho: rho.0 },
            policies,
            jobs,
        }
    }

    /// For a terminal, with lines of at most 130 characters.
    #[must_use]
    pub fn table(&self) -> String {
        table::table(self)
    }

    /// All figures, rounded to a thousandth; the same bytes for the same inputs.
    #[must_use]
    pub fn json(&self) -> String {
        json::text(self)
    }

    /// One page that loads nothing.
    #[must_use]
    pub fn html(&self) -> String {
        page::page(self)
    }
}

impl Cost {
    fn of(metrics: &Metrics, price: f64) -> Self {
        let cluster = metrics.gpu_hours.up * price;
        let useful = metrics.gpu_hours.useful;
        Self { cluster, per_useful_gpu_hour: if useful > 0.0 { cluster / useful } else { 0.0 } }
    }
}

impl Done {
    /// Of the jobs that are `compared`, by index.
    fn distributions(&self, seconds: &Axis, rho: &Axis, compared: impl Fn(usize) -> bool) -> Distributions {
        let compared: Vec<&JobOutcome> = self
            .outcome
            .jobs
            .iter()
            .enumerate()
            .filter(|(at, _)| compared(*at))
            .map(|(_, job)| job)
            .collect();
        let ended = || compared.iter().copied();
        let beyond = |job: &JobOutcome| job.leaves.saturating_sub(job.leaves_least).min(4);
        let mut leaves_beyond = [0; 5];
        for job in ended() {
            if let Some(count) = leaves_beyond.get_mut(beyond(job) as usize) {
                *count += 1;
            }
        }
        Distributions {
            completion: seconds.shares(&curves::seconds(ended().filter_map(|job| job.completion_ms()))),
            waited: seconds.shares(&curves::seconds(ended().filter_map(|job| job.waited_ms()))),
            fairness: rho.shares(&ratios(&self.outcome, ended())),
            leaves_beyond,
        }
    }
}
