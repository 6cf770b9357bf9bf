//! How the race is scaled to this machine, what was measured, and what is predicted.

use phalanx_examples::v100::{MODELS, Model, Seat, Site};
use phalanx_model::Placement;
use serde_json::Value;

use crate::cluster::{By, NODES, Run, WORKERS};

/// 10 Gbit/s, which the cost model takes where it knows of no network card.
const NETWORK_MB_PER_S: f64 = 1_250.0;

/// What stands for the links of two V100 machines here, and for bytes and time.
pub(crate) struct Scale {
    /// Of each rank when all send in a ring on one node; measured.
    pub(crate) inside_mb_per_s: f64,
    /// Of a node; chosen.
    pub(crate) between_mb_per_s: f64,
    /// Of a byte of gradients.
    pub(crate) bytes: f64,
    /// That fill the longest phase of computation.
    iterations: u64,
}

impl Scale {
    /// The network is to the links of a node as it is on V100, where the cost model says how long both take; bytes are so
    /// many that the network takes `slower` times as long.
    pub(crate) fn of(site: &Site, probe: &Run, slower: u32) -> Result<Self, String> {
        let (inside_mb_per_s, iterations) =
            (ring_mb_per_s(probe)?, told(probe, "iterations")?.as_u64().unwrap_or(1));
        let model = MODELS.first().ok_or("no model is trained")?;
        let inside = site.predict(&site.placement(&probe.seats)?, model)?.communication_ns;
        let halves =
            (0..WORKERS).map(|at| -> Seat { (format!("{at}"), NODES[at % NODES.len()].to_owned(), None) });
        let between = site.predict(&site.regular(&halves.collect::<Vec<_>>())?, model)?.communication_ns;
        let between_mb_per_s = inside_mb_per_s * ms(inside) / ms(between);
        // A ring passes twice all but its own part through every link.
        let factor = 2.0 * (1.0 - 1.0 / float(WORKERS as u64));
        let bytes =
            ms(between) / 1e3 * f64::from(slower) * between_mb_per_s * 1e6 / factor / float(model.bytes);
        Ok(Self { inside_mb_per_s, between_mb_per_s, bytes, iterations })
    }

    pub(crate) fn between_bytes_per_s(&self) -> u64 {
        whole(self.between_mb_per_s * 1e6)
    }

    /// The links as the cost model has them: made so much faster that the network has 10 Gbit/s. With as many more bytes,
    /// times are the same.
    pub(crate) fn site(&self, site: &Site) -> Result<Site, String> {
        site.with_links(u32::try_from(whole(self.inside_mb_per_s * self.magnified())).unwrap_or(u32::MAX))
    }

    fn magnified(&self) -> f64 {
        NETWORK_MB_PER_S / self.between_mb_per_s
    }

    fn bytes_of(&self, model: &Model) -> u64 {
        whole(float(model.bytes) * self.bytes)
    }

    /// The model as it is trained here, on [`Scale::site`]; computation as it was measured under both placements.
    pub(crate) fn of_model(&self, at: usize, model: &Model, outcomes: &[Outcome]) -> Model {
        let bytes = whole(float(self.bytes_of(model)) * self.magnified());
        let each = outcomes.iter().filter_map(|outcome| Some(outcome.steps.get(at)?.compute_ms()));
        let compute_ns = whole(each.sum::<f64>() / float(outcomes.len() as u64) * 1e6);
        Model { bytes, compute_ns, ..*model }
    }

    /// Of the worker: no calibration, then each model.
    pub(crate) fn arguments(&self, longest_ns: u64, steps: u32) -> Vec<String> {
        let mut words = vec!["0".to_owned()];
        for model in &MODELS {
            let iterations = float(self.iterations) * float(model.compute_ns) / float(longest_ns);
            let numbers = [self.bytes_of(model), whole(iterations), u64::from(steps)];
            words.push(model.name.to_owned());
            words.extend(numbers.map(|number| number.to_string()));
        }
        words
    }
}

/// What a job said of the links between its ranks.
pub(crate) fn ring_mb_per_s(run: &Run) -> Result<f64, String> {
    told(run, "ring_mb_per_s")?.as_f64().ok_or_else(|| "a speed is no number".to_owned())
}

fn told<'a>(run: &'a Run, what: &str) -> Result<&'a Value, String> {
    let found = run.printed.iter().map(|line| &line[what]).find(|value| !value.is_null());
    found.ok_or_else(|| format!("a job did not tell {what}"))
}

/// What the steps of one model took.
pub(crate) struct Steps {
    /// Seconds of computation and of communication; the slowest rank counts.
    each: Vec<(f64, f64)>,
}

impl Steps {
    fn of(&self, part: impl Fn(&(f64, f64)) -> f64) -> (f64, f64, f64) {
        let mut all: Vec<f64> = self.each.iter().map(part).collect();
        all.sort_by(f64::total_cmp);
        let at = |quarter: usize| {
            all.get((all.len().saturating_sub(1) * quarter + 2) / 4).copied().unwrap_or(f64::NAN)
        };
        (at(1) * 1e3, at(2) * 1e3, at(3) * 1e3)
    }

    /// Milliseconds of a step: the first quartile, the median and the third.
    pub(crate) fn quartiles(&self) -> (f64, f64, f64) {
        self.of(|(compute, all_reduce)| compute + all_reduce)
    }

    /// Median.
    pub(crate) fn compute_ms(&self) -> f64 {
        self.of(|(compute, _)| *compute).1
    }

    /// Median.
    pub(crate) fn all_reduce_ms(&self) -> f64 {
        self.of(|(_, all_reduce)| *all_reduce).1
    }
}

/// A job that has run.
pub(crate) struct Outcome {
    pub(crate) by: By,
    pub(crate) placement: Placement,
    /// What a rank sent to the next while all did.
    pub(crate) ring_mb_per_s: f64,
    /// Of each of [`MODELS`].
    pub(crate) steps: Vec<Steps>,
}

/// The steps of a model, without the first, in which connections are opened.
pub(crate) fn measured(run: &Run, model: &str) -> Result<Steps, String> {
    let of_model = run.printed.iter().filter(|line| line["model"] == model).skip(1);
    let each = of_model.map(|line| Some((line["compute_s"].as_f64()?, line["all_reduce_s"].as_f64()?)));
    let each: Option<Vec<_>> = each.collect();
    each.filter(|each| !each.is_empty())
        .map(|each| Steps { each })
        .ok_or_else(|| format!("{model} told of no step"))
}

/// How many times longer a step of a model is under the first outcome than under the last.
pub(crate) fn times(outcomes: &[Outcome], model: usize) -> f64 {
    let median = |outcome: Option<&Outcome>| {
        outcome.and_then(|outcome| outcome.steps.get(model)).map_or(f64::NAN, |steps| steps.quartiles().1)
    };
    median(outcomes.first()) / median(outcomes.last())
}

/// Milliseconds of the all-reduce, as the cost model has it.
pub(crate) fn predicted_ms(site: &Site, model: &Model, outcome: &Outcome) -> Result<f64, String> {
    site.predict(&outcome.placement, model).map(|step| ms(step.communication_ns))
}

/// [`times`] of each of these models, as the cost model has it.
pub(crate) fn predicted_times(
    site: &Site,
    models: &[Model],
    outcomes: &[Outcome],
) -> Result<Vec<f64>, String> {
    let step = |outcome: Option<&Outcome>, model: &Model| {
        let outcome = outcome.ok_or("nothing has run")?;
        site.predict(&outcome.placement, model).map(|step| ms(step.step_ns))
    };
    models.iter().map(|model| Ok(step(outcomes.first(), model)? / step(outcomes.last(), model)?)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds for people")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "bytes and counts below 2^53")]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}
