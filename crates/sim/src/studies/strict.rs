//! Strict against relaxed placement: whether a job waits for near places, starts on far ones, or has that priced.

use std::collections::BTreeMap;

use phalanx_model::{Delay, Settings as Policy, Topology};
use serde::Deserialize;

use super::input::{Count, DAY, HOUR, List, MINUTE, Part, SECOND, Time};
use super::jobs::Jobs;
use super::page::{Cell, Page, Table};
use super::{Around, Source, StudyError, mean};
use crate::policies::{Rules, named};
use crate::replay::metrics::Metrics;
use crate::replay::{Job, Machines, Outcome, Placed, Replay, Settings};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Strict {
    communication: List<Part, 8>,
    scattered: Scattered,
    mix: Mixed,
    start: Time<0, HOUR>,
    restore: Time<0, HOUR>,
    checkpoint: Time<MINUTE, DAY>,
}

/// A job finds its GPUs idle on half nodes, and whole nodes come free later.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scattered {
    run: List<Time<MINUTE, { 10 * DAY }>, 8>,
    nodes_free_after: List<Time<MINUTE, { 10 * DAY }>, 8>,
}

/// Many jobs, each of which may wait or not.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mixed {
    cluster: String,
    jobs: Jobs,
    seeds: List<Count<0, { u32::MAX }>, 16>,
}

/// How long a gang waits for the nearest place, by its word: as long as that is worth, without end, or not at all.
pub const WAITS: [(&str, Delay); 3] =
    [("priced", Delay::PAR), ("nearest", Delay::For(Topology::FOREVER_MS)), ("anywhere", Delay::For(0))];

/// A cluster with two leaves of two nodes; each node is half taken.
const CLUSTER: &str = "2x2x8";
/// The halves that come free at once: they are taken only so that the others stand apart.
const FILLER_MS: u64 = SECOND;
/// When the job comes: the halves are free by then.
const ARRIVES_MS: u64 = 2 * MINUTE;

/// Metrics of one wait policy, in the mean over seeds.
#[derive(Clone, Copy)]
struct Figures {
    mean_s: f64,
    p99_s: f64,
    waited_s: f64,
    useful_percent: f64,
}

pub(super) fn page(source: &Source<'_>, around: &mut dyn Around) -> Result<Page, StudyError> {
    let input: Strict = source.read()?;
    let mut runs = Runs { source, input: &input, around, done: 0, all: input.runs() };
    let (scattered, far) = input.scattered(&mut runs)?;
    let (mix, over) = input.mixed(&mut runs)?;
    let worst = over.iter().copied().fold(0.0, f64::max);
    let verdict = if worst <= 1.05 { "is never" } else { "is at times" };
    Ok(Page {
        study: "strict",
        title: "Strict against relaxed placement (predicted)",
        question: "A job could start now on GPUs that are far apart. Should it wait for near ones? `nearest` waits however long \
                   it takes, `anywhere` never waits, and `priced` waits until that has cost as much as the far place would."
            .to_owned(),
        basis: "All runs are of the engine with its default preset; only `wait` differs. It knows no run times. The cost model \
                predicts how much slower a job is on its place. Useful: work, over the GPU time that jobs hold."
            .to_owned(),
        tables: vec![scattered, mix],
        findings: vec![
            far,
            format!(
                "On the mix `priced` {verdict} more than 5 % behind the better of the two: its mean completion is {} of that, and \
                 {worst:.3} at worst.",
                over.iter().map(|ratio| format!("{ratio:.3}")).collect::<Vec<_>>().join(", ")
            ),
        ],
        input: source.input(),
        declared: source.text.to_owned(),
    })
}

/// What all runs share.
struct Runs<'a> {
    source: &'a Source<'a>,
    input: &'a Strict,
    around: &'a mut dyn Around,
    done: u64,
    all: u64,
}

impl Runs<'_> {
    fn run(&mut self, machines: &Machines, jobs: &[Job], wait: (&str, Delay)) -> Result<Outcome, StudyError> {
        self.done += 1;
        self.around.begin(wait.0, self.done, self.all);
        let input = self.input;
        let settings = Policy { wait: wait.1, ..Rules::default().settings };
        let starts_ms = input.start.0 + input.restore.0;
        let rules = Rules { settings, starts_ms, ..Rules::default() };
        let scheduler = named("phalanx", machines, &rules, &BTreeMap::new());
        let mut scheduler = scheduler.map_err(|error| self.source.wrong(error))?;
        let progress = &Placed::default();
        let settings = Settings {
            start_ms: input.start.0,
            restore_ms: input.restore.0,
            checkpoint_every_ms: Some(input.checkpoint.0),
            ..Settings::default()
        };
        let replay = Replay { cluster: machines, jobs, progress, settings, node_events: &[] };
        Ok(replay.run(scheduler.as_mut())?)
    }

    fn machines(&mut self, word: &str) -> Result<Machines, StudyError> {
        let cluster = self.around.cluster(word);
        Ok(Machines::from(cluster.map_err(|error| self.source.wrong(format!("mix: {error}")))?))
    }
}

impl Strict {
    fn runs(&self) -> u64 {
        let Scattered { run, nodes_free_after } = &self.scattered;
        let of_each = run.0.len() * nodes_free_after.0.len() + self.mix.seeds.0.len();
        (of_each * self.communication.0.len() * WAITS.len()) as u64
    }

    /// The table, and what the wait is worth in a sentence.
    fn scattered(&self, runs: &mut Runs<'_>) -> Result<(Table, String), StudyError> {
        let title = "16 GPUs are idle on four half nodes, and two whole nodes come free later (completion)";
        let columns = [
            "communication, %",
            "run, min",
            "whole nodes free after, min",
            "priced, min",
            "nearest, min",
            "anywhere, min",
            "priced over the better",
        ];
        let mut table = Table::new(title, &columns);
        let machines = runs.machines(CLUSTER)?;
        let minutes = |ms: u64| Cell::Number(ms as f64 / 60_000.0, 1);
        let mut worst = [1.0_f64; 3];
        for communication in &self.communication.0 {
            for run in &self.scattered.run.0 {
                for free in &self.scattered.nodes_free_after.0 {
                    let jobs = half_taken(*communication, run.0, free.0);
                    let mut took = [0; 3];
                    for (wait, took) in WAITS.into_iter().zip(&mut took) {
                        let outcome = runs.run(&machines, &jobs, wait)?;
                        *took = outcome.jobs.last().and_then(|job| job.completion_ms()).unwrap_or(0);
                    }
                    let better = took[1].min(took[2]).max(1) as f64;
                    for (worst, ms) in worst.iter_mut().zip(took) {
                        *worst = worst.max(ms as f64 / better);
                    }
                    let mut row =
                        vec![Cell::Number(communication.percent(), 1), minutes(run.0), minutes(free.0)];
                    row.extend(took.map(minutes));
                    row.push(Cell::Number(took[0] as f64 / better, 2));
                    table.rows.push(row);
                }
            }
        }
        let of = |((word, _), worst): ((&str, Delay), f64)| format!("{worst:.2} with `{word}`");
        let worst: Vec<String> = WAITS.into_iter().zip(worst).map(of).collect();
        let worst = worst.join(", ");
        let finding =
            format!("The single job takes at most, over the better of `nearest` and `anywhere`: {worst}.");
        Ok((table, finding))
    }

    /// The table, and by part of communication the mean completion of `priced` over the better of the two others.
    fn mixed(&self, runs: &mut Runs<'_>) -> Result<(Table, Vec<f64>), StudyError> {
        let machines = runs.machines(&self.mix.cluster)?;
        let title = format!(
            "A mix of jobs on {} GPUs in {} leaves (means over {} seeds)",
            machines.gpus(),
            machines.leaves(),
            self.mix.seeds.0.len()
        );
        let columns = [
            "communication, %",
            "wait",
            "mean completion, h",
            "p99, h",
            "mean wait, min",
            "useful, %",
            "completion over the better",
        ];
        let mut table = Table::new(title, &columns);
        let mut over = Vec::new();
        for communication in &self.communication.0 {
            let mut all: [Vec<Figures>; 3] = Default::default();
            for seed in &self.mix.seeds.0 {
                let jobs = &self.mix.jobs;
                let drawn =
                    jobs.draw(runs.source, machines.gpus(), jobs.submitted_for.0, u64::from(seed.0))?;
                let jobs: Vec<Job> = drawn.iter().map(|job| job.recorded(communication.0)).collect();
                for (wait, figures) in WAITS.into_iter().zip(&mut all) {
                    figures.push(Figures::of(&Metrics::of(&runs.run(&machines, &jobs, wait)?)));
                }
            }
            let means = all.map(|figures| Figures::mean(&figures));
            let better = means[1].mean_s.min(means[2].mean_s).max(1.0);
            over.push(means[0].mean_s / better);
            for ((word, _), of) in WAITS.into_iter().zip(means) {
                table.rows.push(vec![
                    Cell::Number(communication.percent(), 1),
                    Cell::word(word),
                    Cell::Number(of.mean_s / 3_600.0, 2),
                    Cell::Number(of.p99_s / 3_600.0, 1),
                    Cell::Number(of.waited_s / 60.0, 1),
                    Cell::Number(of.useful_percent, 1),
                    Cell::Number(of.mean_s / better, 3),
                ]);
            }
        }
        Ok((table, over))
    }
}

impl Figures {
    fn of(metrics: &Metrics) -> Self {
        Self {
            mean_s: metrics.completion_s.mean,
            p99_s: metrics.completion_s.p99,
            waited_s: metrics.waited_s.mean,
            useful_percent: metrics.goodput_percent,
        }
    }

    fn mean(all: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| mean(all.iter().map(figure));
        Self {
            mean_s: of(|f| f.mean_s),
            p99_s: of(|f| f.p99_s),
            waited_s: of(|f| f.waited_s),
            useful_percent: of(|f| f.useful_percent),
        }
    }
}

/// Eight jobs of half a node take all of it. Four end at once, so that half of every node is idle; those on two nodes end
/// later, and those on the others go on. The last job wants two nodes.
fn half_taken(communication: Part, run_ms: u64, free_after_ms: u64) -> Vec<Job> {
    let job = |at: u64, gpus: u32, run_ms: u64| Job {
        name: at.to_string(),
        submit_ms: at,
        work: run_ms as f64,
        gpus,
        gpus_min: gpus,
        gpus_max: gpus,
        ..Job::default()
    };
    let ends_ms = [free_after_ms + ARRIVES_MS, free_after_ms + ARRIVES_MS, 100 * DAY, 100 * DAY];
    let halves = (0..8).zip(ends_ms.into_iter().flat_map(|ms| [ms, FILLER_MS]));
    let last = Job { traffic_milli: communication.0, ..job(ARRIVES_MS, 16, run_ms) };
    halves.map(|(at, ms)| job(at, 4, ms)).chain([last]).collect()
}
