//! Lost nodes under one large job: what they cost it, with and without spare nodes.

use std::collections::BTreeMap;

use phalanx_model::{Settings as Policy, Spares};
use phalanx_spec::queues::Preset;
use serde::Deserialize;

use super::input::{Count, DAY, HOUR, List, MINUTE, SECOND, Time};
use super::page::{Cell, Page, Table};
use super::{Around, Source, StudyError, mean, one_leaf, percent};
use crate::policies::{Rules, named};

use crate::replay::{Job, JobOutcome, Machines, NodeFaults, Placed, Replay, Settings};

/// The longest mean time until a node is lost.
const RARE: u64 = 10_000 * DAY;
/// Other jobs come for so many times as long as the job would take without losses, in thousandths; and so many at most.
const OTHERS_MILLI: u64 = 2_000;
const OTHERS_MAX: u64 = 100_000;
const GPUS_PER_NODE: u32 = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failures {
    nodes: Count<1, 4_000>,
    mtbf: Time<HOUR, RARE>,
    repair: Time<MINUTE, { 100 * DAY }>,
    job: Large,
    others: Others,
    spares: List<Count<0, 4_000>, 16>,
    checkpoint: List<Time<SECOND, { 10 * DAY }>, 8>,
    checkpoint_cost: Time<0, HOUR>,
    start: Time<0, HOUR>,
    restore: Time<0, HOUR>,
    seeds: List<Count<0, { u32::MAX }>, 16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Large {
    nodes: Count<1, 4_000>,
    run: Time<HOUR, { 100 * DAY }>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Others {
    nodes: Count<0, 4_000>,
    run: Time<MINUTE, { 100 * DAY }>,
}

/// What became of the large job, in the mean over seeds.
#[derive(Clone, Copy)]
struct Figures {
    ettr_percent: f64,
    losses: f64,
    waited_h: f64,
}

pub(super) fn page(source: &Source<'_>, around: &mut dyn Around) -> Result<Page, StudyError> {
    let input: Failures = source.read()?;
    input.check(source)?;
    let machines = Machines::from(one_leaf(input.nodes.0)?);
    let columns = [
        "spare nodes",
        "of all, %",
        "saves every, min",
        "ETTR, %",
        "by formula, %",
        "restarts",
        "waited before each, min",
    ];
    let mut table = Table::new("", &columns);
    let mut best: Option<(u32, u64, f64)> = None;
    let of = (input.spares.0.len() * input.checkpoint.0.len() * input.seeds.0.len()) as u64;
    let mut done = 0;
    for spares in &input.spares.0 {
        for every in &input.checkpoint.0 {
            let mut runs = Vec::new();
            for seed in &input.seeds.0 {
                done += 1;
                around.begin("failures", done, of);
                runs.push(input.run(source, &machines, spares.0, every.0, u64::from(seed.0))?);
            }
            let of = |figure: fn(&Figures) -> f64| mean(runs.iter().map(figure));
            let (ettr, losses) = (of(|run| run.ettr_percent), of(|run| run.losses));
            let waited_min = if losses > 0.0 { of(|run| run.waited_h) * 60.0 / losses } else { 0.0 };
            if best.is_none_or(|(.., most)| ettr > most) {
                best = Some((spares.0, every.0, ettr));
            }
            table.rows.push(vec![
                Cell::Number(f64::from(spares.0), 0),
                Cell::Number(percent(f64::from(spares.0), f64::from(input.nodes.0)), 1),
                Cell::Number(every.0 as f64 / MINUTE as f64, 1),
                Cell::Number(ettr, 1),
                Cell::Number(input.by_formula(every.0), 1),
                Cell::Number(losses, 0),
                Cell::Number(waited_min, 1),
            ]);
        }
    }
    let (spares, every_ms, ettr) = best.unwrap_or_default();
    let between_h = input.between_losses_ms() / HOUR as f64;
    let best_every_min =
        (2.0 * input.checkpoint_cost.0 as f64 * input.between_losses_ms()).sqrt() / MINUTE as f64;
    Ok(Page {
        study: "failures",
        title: "Lost nodes under one large job (modelled)",
        question: "A node is lost every few hours. How much of its time does a job that needs nearly all nodes spend on work that \
                   lasts, and how many spare nodes does it take? Claimed: an effective training time ratio (ETTR) of 97 % on 9,600 \
                   GPUs (ByteRobust, SOSP 2025)."
            .to_owned(),
        basis: "The engine places all jobs, first come first served; only the spare nodes differ. A node is lost and back after \
                exponential times, the same under every setting. A loss is seen at once. Other jobs come for twice as long as the job would take. ETTR is the time that the job would take \
                without losses and checkpoints, over the time from its submission to its end. The formula knows no waiting: 1 - \
                cost / interval - interval / 2M - restart / M, with M the mean time between losses of a node of the job, and restart the start and the restore."
            .to_owned(),
        tables: vec![table],
        findings: vec![
            format!(
                "The job loses a node every {between_h:.1} h on the average. With {spares} spare nodes and a checkpoint every {:.1} \
                 min its ETTR is {ettr:.1} %.",
                every_ms as f64 / MINUTE as f64
            ),
            format!("The best interval between checkpoints is {best_every_min:.1} min (Young 1974: √(2 · cost · M))."),
        ],
        input: source.input(),
        declared: source.text.to_owned(),
    })
}

impl Failures {
    fn check(&self, source: &Source<'_>) -> Result<(), StudyError> {
        let most = self.spares.0.iter().map(|spares| spares.0).max().unwrap_or(0);
        if self.job.nodes.0 + most > self.nodes.0 {
            let what = format!(
                "job.nodes: {} and {most} spare nodes are more than the {} nodes; lower either",
                self.job.nodes.0, self.nodes.0
            );
            return Err(source.wrong(what));
        }
        if self.others_count() > OTHERS_MAX {
            let what = format!("others: {} jobs, and {OTHERS_MAX} are the limit", self.others_count());
            return Err(source.wrong(what + "; lower `nodes` or raise `run`"));
        }
        Ok(())
    }

    fn others_span_ms(&self) -> u64 {
        self.job.run.0 * OTHERS_MILLI / 1_000
    }

    fn others_count(&self) -> u64 {
        self.others_span_ms() * u64::from(self.others.nodes.0) / self.others.run.0
    }

    /// Mean time between losses of a node of the job.
    fn between_losses_ms(&self) -> f64 {
        self.mtbf.0 as f64 / f64::from(self.job.nodes.0)
    }

    /// The effective training time ratio where a replacement is always there.
    fn by_formula(&self, every_ms: u64) -> f64 {
        let (every, between) = (every_ms as f64, self.between_losses_ms());
        let restart = (self.start.0 + self.restore.0) as f64;
        (1.0 - self.checkpoint_cost.0 as f64 / every - every / (2.0 * between) - restart / between) * 100.0
    }

    /// The large job, and then the others at equal distances.
    fn jobs(&self) -> Vec<Job> {
        let job = |name: String, submit_ms: u64, nodes: u32, run_ms: u64| {
            let gpus = nodes * GPUS_PER_NODE;
            let work = run_ms as f64;
            Job { name, submit_ms, work, gpus, gpus_min: gpus, gpus_max: gpus, ..Job::default() }
        };
        let large = job("job".to_owned(), 0, self.job.nodes.0, self.job.run.0);
        let count = self.others_count();
        let other = |at: u64| {
            let submit_ms = SECOND + self.others_span_ms() / count.max(1) * at;
            job(format!("other-{at}"), submit_ms, 1, self.others.run.0)
        };
        std::iter::once(large).chain((0..count).map(other)).collect()
    }

    fn run(
        &self,
        source: &Source<'_>,
        machines: &Machines,
        spares: u32,
        every_ms: u64,
        seed: u64,
    ) -> Result<Figures, StudyError> {
        let spares = (spares > 0).then_some(Spares { level: None, nodes: spares, is_filled: false });
        let settings = Policy { spares, ..Preset::FirstCome.settings() };
        let rules = Rules { settings, starts_ms: self.start.0 + self.restore.0, ..Rules::default() };
        let scheduler = named("phalanx", machines, &rules, &BTreeMap::new());
        let mut scheduler = scheduler.map_err(|error| source.wrong(error))?;
        let faults =
            NodeFaults { mtbf_ms: Some(self.mtbf.0), repair_ms: self.repair.0, ..NodeFaults::default() };
        let end_ms = self.job.run.0.saturating_mul(10);
        let events = faults.events(self.nodes.0 as usize, end_ms, seed);
        let node_events = &events.map_err(|error| source.wrong(format!("mtbf: {error}")))?;
        let settings = Settings {
            start_ms: self.start.0,
            restore_ms: self.restore.0,
            checkpoint_every_ms: Some(every_ms),
            checkpoint_ms: self.checkpoint_cost.0,
            ..Settings::default()
        };
        let (jobs, progress) = (self.jobs(), &Placed::default());
        let replay = Replay { cluster: machines, jobs: &jobs, progress, settings, node_events };
        let outcome = replay.run(scheduler.as_mut())?;
        let large = outcome.jobs.first().ok_or_else(|| source.wrong("job: it did not run"))?;
        let took_ms = large.completion_ms().ok_or_else(|| source.wrong("job: it never ends"))?;
        if took_ms > end_ms {
            return Err(source.wrong(
                "job: it does not end within ten times its run; raise `mtbf` or `spares`, or lower `job.run`",
            ));
        }
        Ok(Figures {
            ettr_percent: percent(self.job.run.0 as f64, took_ms as f64),
            losses: f64::from(large.starts.saturating_sub(1)),
            waited_h: waited_ms(large, took_ms) / HOUR as f64,
        })
    }
}

/// The time in which it held nothing.
fn waited_ms(job: &JobOutcome, took_ms: u64) -> f64 {
    took_ms.saturating_sub(job.held_ms) as f64
}
