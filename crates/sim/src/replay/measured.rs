//! Progress by measured throughputs: the tables of Gavel and of Shockwave, and batch sizes that change while a job trains.

use std::collections::BTreeMap;

use super::{Job, Machines, Part, Progress, Rate};
use crate::trace::{BatchMode, Training};

/// Steps per second by model of device, type of job and number of devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Throughputs(BTreeMap<(String, String, u32), f64>);

impl Throughputs {
    /// Reads `simulation_throughputs.json` of Gavel or `tacc_throughputs.json` of Shockwave: by model of device, by
    /// `('type', devices)`, by what it shares its devices with: `null` where it does not.
    ///
    /// # Errors
    /// With the key at which it is none.
    pub fn read(text: &str) -> Result<Self, String> {
        type Tables = BTreeMap<String, BTreeMap<String, BTreeMap<String, serde_json::Value>>>;
        let tables: Tables =
            serde_json::from_str(text).map_err(|e| format!("no table of throughputs: {e}"))?;
        let mut all = BTreeMap::new();
        for (device, of) in tables {
            for (key, shared) in of {
                let Some(alone) = shared.get("null").and_then(serde_json::Value::as_f64) else { continue };
                let parsed = key.strip_prefix("('").and_then(|rest| rest.strip_suffix(')'));
                let (kind, gpus) =
                    parsed.and_then(|rest| rest.rsplit_once("', ")).ok_or_else(|| wrong(&key))?;
                let gpus = gpus.parse().map_err(|_| wrong(&key))?;
                all.insert((device.clone(), kind.to_owned(), gpus), alone);
            }
        }
        Ok(Self(all))
    }

    #[must_use]
    pub fn of(&self, device: &str, kind: &str, gpus: u32) -> Option<f64> {
        self.0.get(&(device.to_owned(), kind.to_owned(), gpus)).copied()
    }

    /// Types of job that were measured on a model with so many devices.
    pub fn kinds(&self, device: &str, gpus: u32) -> impl Iterator<Item = (&str, f64)> {
        let of = self.0.iter().filter(move |((on, _, with), _)| on == device && *with == gpus);
        of.map(|((_, kind, _), speed)| (kind.as_str(), *speed))
    }
}

fn wrong(key: &str) -> String {
    format!("{key} is no ('type', devices)")
}

/// `ResNet-18 (batch size 32)`, as the tables name it.
#[must_use]
pub fn kind(training: &Training, batch_size: Option<u32>) -> String {
    match batch_size {
        Some(size) => format!("{} (batch size {size})", training.model),
        None => training.model.clone(),
    }
}

/// Work in steps, at the speed that was measured on the model of device that a job has: Gavel.
#[derive(Clone, Debug, Default)]
pub struct ByModel {
    /// By job, by model of the machines: steps per millisecond.
    pub speeds: Vec<Vec<f64>>,
}

impl Progress for ByModel {
    fn rate(&self, job: usize, _: &Job, place: &[Part], cluster: &Machines, _: f64) -> Rate {
        let model = place.first().and_then(|part| cluster.model_of.get(part.node));
        let speed = model.and_then(|model| self.speeds.get(job)?.get(*model));
        Rate::steady(speed.copied().unwrap_or(0.0))
    }
}

/// Work in epochs, at a speed that changes with what is done: Shockwave.
#[derive(Clone, Debug, Default)]
pub struct Phased {
    /// By job, in order; the last for ever.
    pub phases: Vec<Vec<Rate>>,
}

impl Progress for Phased {
    fn rate(&self, job: usize, _: &Job, _: &[Part], _: &Machines, done: f64) -> Rate {
        let phases = self.phases.get(job).map(Vec::as_slice).unwrap_or_default();
        let now = phases.iter().find(|phase| done < phase.until).or(phases.last());
        now.copied().unwrap_or(Rate::steady(0.0))
    }
}

/// Samples of one epoch, by model of Shockwave's traces (`scheduler/scheduler.py`, `dataset_size_dict`).
const SAMPLES: [(&str, u32); 5] = [
    ("ResNet-18", 50_000),
    ("ResNet-50", 100_000),
    ("Transformer", 10_000),
    ("LM", 59_675),
    ("Recommendation", 117_907),
];
/// The largest batch that was measured.
const BATCH_MAX: [(&str, u32); 5] =
    [("ResNet-18", 256), ("ResNet-50", 128), ("Transformer", 128), ("LM", 80), ("Recommendation", 8_192)];
/// By model, first batch size and devices: the epochs from which the noise scale of the gradient allows twice as much
/// (`scheduler/utils.py`, `get_gns_bs_pattern`).
#[rustfmt::skip]
const DOUBLES: [(&str, u32, u32, &[u32]); 33] = [
    ("ResNet-18", 16, 1, &[31, 41, 51, 71]), ("ResNet-18", 32, 1, &[21, 31, 51]), ("ResNet-18", 64, 1, &[11, 31]),
    ("ResNet-18", 128, 1, &[11]), ("ResNet-18", 16, 2, &[21, 31, 91, 111]), ("ResNet-18", 32, 2, &[11, 21, 41]),
    ("ResNet-18", 64, 2, &[21, 41]), ("ResNet-18", 128, 2, &[41]), ("ResNet-18", 16, 4, &[11, 21, 81, 91]),
    ("ResNet-18", 32, 4, &[21, 31, 61]), ("ResNet-18", 64, 4, &[11, 61]), ("ResNet-18", 128, 4, &[11]),
    ("ResNet-50", 64, 1, &[101]), ("ResNet-50", 32, 2, &[101, 111]), ("ResNet-50", 64, 2, &[81]),
    ("ResNet-50", 32, 4, &[131, 221]), ("ResNet-50", 64, 4, &[191]),
    ("LM", 5, 1, &[31, 41, 61, 71]), ("LM", 10, 1, &[11, 21, 41]), ("LM", 20, 1, &[11, 41]), ("LM", 40, 1, &[11]),
    ("LM", 5, 2, &[31, 51, 61, 71]), ("LM", 10, 2, &[11, 31, 41]), ("LM", 20, 2, &[31, 41]), ("LM", 40, 2, &[11]),
    ("LM", 5, 4, &[11, 31, 71, 91]), ("LM", 10, 4, &[11, 31, 61]), ("LM", 20, 4, &[11, 61]), ("LM", 40, 4, &[61]),
    ("Recommendation", 512, 1, &[21, 41, 71, 91]), ("Recommendation", 1_024, 1, &[21, 51, 91]),
    ("Recommendation", 2_048, 1, &[21, 41]), ("Recommendation", 4_096, 1, &[41]),
];

fn of_model(table: &[(&str, u32)], model: &str) -> Option<u32> {
    table.iter().find(|(name, _)| *name == model).map(|(_, number)| *number)
}

/// Steps of one epoch with a batch size; none for a model that is not in Shockwave's traces.
#[must_use]
pub fn steps_of_epoch(model: &str, batch_size: u32) -> Option<u32> {
    Some(of_model(&SAMPLES, model)?.div_ceil(batch_size.max(1)))
}

/// The batch size in an epoch, counted from 0, of a job that began with `first` on so many devices.
///
/// Accordion trains with small batches while gradients change fast, and with the largest otherwise (`_simulate_accordion`
/// in Shockwave's `scheduler/scheduler.py`); the other rule doubles them by the gradient noise scale.
#[must_use]
pub fn batch_in(training: &Training, first: u32, gpus: u32, epoch: u32) -> u32 {
    let model = training.model.as_str();
    let most = of_model(&BATCH_MAX, model).unwrap_or(first);
    match training.batch {
        BatchMode::Static => first,
        BatchMode::Accordion => {
            let is_critical = match model {
                "LM" => epoch < 10,
                "Recommendation" => {
                    epoch
                        < if first <= 1_024 {
                            30
                        } else if first == 2_048 {
                            40
                        } else {
                            10
                        }
                }
                "ResNet-50" => epoch % 30 < 10,
                "ResNet-18" => {
                    let head = if first == 256 { 20 } else { 10 };
                    epoch < head || (150..160).contains(&epoch) || (250..260).contains(&epoch)
                }
                _ => true,
            };
            if is_critical { first } else { most }
        }
        BatchMode::Gns => {
            let row =
                DOUBLES.iter().find(|(name, batch, with, _)| (*name, *batch, *with) == (model, first, gpus));
            let doubled = row.map_or(0, |(.., epochs)| epochs.iter().filter(|from| epoch >= **from).count());
            let batch = (0..doubled).fold(first, |batch, _| batch.saturating_mul(2));
            batch.min(most)
        }
    }
}
