//! Progress by the measurements of Pollux (`simulator/` of petuum/adaptdl, `osdi21-artifact`): how long a step takes by
//! place and batch, and what it is worth by how noisy gradients are then.
//!
//! As `applications.py` and `simulator.py` have it: work is in steps of the first batch size; a step with a batch `scale`
//! times as large is worth `(var + sqr) / (var / scale + sqr)` of them, with the variance and the square of gradients as
//! measured in that epoch; what does not fit in memory at once is accumulated. Between measured batch sizes everything is
//! linear, and so are step times between measured numbers of nodes and devices, where theirs are over a triangulation.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::{Job, Machines, Part, Progress, Rate};
use crate::trace::TraceJob;

/// One kind of training.
#[derive(Clone, Debug, Default)]
pub struct Application {
    /// Step times by how many devices there are on each node, from the rotation that is least.
    places: BTreeMap<Vec<u32>, Vec<Step>>,
    /// The same by nodes and devices, where the place itself was not measured.
    sizes: BTreeMap<(u32, u32), Vec<Step>>,
    /// By batch size.
    epochs: BTreeMap<u32, Vec<Epoch>>,
    /// Work done at the end of each epoch.
    ends: Vec<f64>,
    /// Least and most samples on one device at once.
    local: (u32, u32),
}

/// A measured step: samples on each device, and seconds of all of it and of its all-reduce.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    samples: u32,
    step_s: f64,
    sync_s: f64,
}

/// Square and variance of gradients.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    sqr: f64,
    var: f64,
}

/// The files of one application.
#[derive(Clone, Debug, Default)]
pub struct Tables<'a> {
    /// `placements.csv` and `scalability.csv`.
    pub placements: &'a str,
    pub scalability: &'a str,
    /// `validation-N.csv`, by batch size N.
    pub validations: BTreeMap<u32, String>,
    /// The most samples on one device, where that is less than was measured.
    pub local_max: Option<u32>,
}

impl Application {
    /// # Errors
    /// Names the table and the line that cannot be read.
    pub fn read(tables: &Tables<'_>) -> Result<Self, String> {
        let mut of = Self::default();
        let mut sums: BTreeMap<(u32, u32), BTreeMap<u32, (f64, Step)>> = BTreeMap::new();
        for line in rows("placements", tables.placements, "placement,local_bsz,step_time,sync_time")? {
            let digits = line.text(0).chars().map(|digit| digit.to_digit(10));
            let place: Vec<u32> = digits.collect::<Option<_>>().ok_or_else(|| line.wrong(0))?;
            let step = line.step(1)?;
            let size = (u32::try_from(place.len()).unwrap_or(u32::MAX), place.iter().sum());
            let sum = sums.entry(size).or_default().entry(step.samples).or_default();
            *sum = (
                sum.0 + 1.0,
                Step { step_s: sum.1.step_s + step.step_s, sync_s: sum.1.sync_s + step.sync_s, ..step },
            );
            of.places.entry(place).or_default().push(step);
        }
        for (size, steps) in sums {
            let mean = |(count, sum): (f64, Step)| Step {
                step_s: sum.step_s / count,
                sync_s: sum.sync_s / count,
                ..sum
            };
            of.sizes.insert(size, steps.into_values().map(mean).collect());
        }
        let columns = "num_nodes,num_replicas,local_bsz,step_time,sync_time";
        for line in rows("scalability", tables.scalability, columns)? {
            of.sizes.entry((line.whole(0)?, line.whole(1)?)).or_default().push(line.step(2)?);
        }
        of.places
            .values_mut()
            .chain(of.sizes.values_mut())
            .for_each(|steps| steps.sort_by_key(|step| step.samples));
        for (batch, text) in &tables.validations {
            of.validate(*batch, text)?;
        }
        let samples = || of.places.values().flatten().map(|step| step.samples);
        let least = samples().min().ok_or("placements: it has no rows")?;
        of.local = (least, tables.local_max.or(samples().max()).unwrap_or(least).max(1));
        Ok(of)
    }

    /// The first epochs that all batch sizes have count; what is done at their ends is the least of all.
    fn validate(&mut self, batch: u32, text: &str) -> Result<(), String> {
        let what = format!("validation-{batch}");
        let lines = rows(&what, text, "progress,iteration,metric,grad_sqr,grad_var")?;
        if lines.is_empty() || batch == 0 {
            return Err(format!("{what}: it has no rows, or no batch size"));
        }
        let mut ends = Vec::new();
        for line in &lines {
            ends.push(line.real(0)?);
            self.epochs.entry(batch).or_default().push(Epoch { sqr: line.real(3)?, var: line.real(4)? });
        }
        if self.epochs.len() > 1 {
            ends.truncate(self.ends.len());
            self.ends.truncate(ends.len());
            ends.iter_mut().zip(&self.ends).for_each(|(end, other)| *end = end.min(*other));
        }
        self.ends = ends;
        Ok(())
    }

    /// All work.
    fn work(&self) -> f64 {
        self.ends.last().copied().unwrap_or(0.0)
    }

    /// Devices that a batch can be shared out to.
    fn devices_max(&self, batch: u32) -> u32 {
        (batch / self.local.0.max(1)).max(1)
    }

    /// How fast work gets on in an epoch on a place, by second.
    fn speed(&self, place: &[u32], batch: u32, epoch: usize) -> f64 {
        let devices: u32 = place.iter().sum();
        let (first, most) =
            (self.least_batch(), self.epochs.last_key_value().map_or(batch, |(most, _)| *most));
        let local = batch.div_ceil(devices.max(1));
        // How noisy gradients are is not known from one batch on one device.
        let least_parts = if devices == 1 && batch > first { 2 } else { 1 };
        let parts = local.div_ceil(self.local.1).max(least_parts);
        let samples = local.div_ceil(parts).min(most / (devices * parts).max(1));
        let batch = devices * samples * parts;
        let Step { step_s, sync_s, .. } = self.step(place, f64::from(samples));
        let Epoch { sqr, var } = self.gradients(batch, epoch);
        let scale = f64::from(batch) / f64::from(first);
        let worth = (var + sqr) / (var / scale + sqr);
        worth / (step_s + (step_s - sync_s) * f64::from(parts - 1))
    }

    fn least_batch(&self) -> u32 {
        self.epochs.first_key_value().map_or(1, |(least, _)| *least)
    }

    fn gradients(&self, batch: u32, epoch: usize) -> Epoch {
        let of = |(size, epochs): (&u32, &Vec<Epoch>)| {
            epochs.get(epoch).or(epochs.last()).map(|epoch| (f64::from(*size), *epoch))
        };
        let below = self.epochs.range(..=batch).next_back().and_then(of);
        let above = self.epochs.range(batch..).next().and_then(of);
        match (below, above) {
            (Some((low, a)), Some((high, b))) => {
                let at = |a, b| between(f64::from(batch), (low, a), (high, b));
                Epoch { sqr: at(a.sqr, b.sqr), var: at(a.var, b.var) }
            }
            (Some((_, one)), None) | (None, Some((_, one))) => one,
            (None, None) => Epoch { sqr: 1.0, var: 0.0 },
        }
    }

    /// Nodes in a ring: it does not matter with which it begins.
    fn step(&self, place: &[u32], samples: f64) -> Step {
        let rotations = (0..place.len()).map(|at| [&place[at..], &place[..at]].concat());
        if let Some(steps) = rotations.min().and_then(|least| self.places.get(&least)) {
            return at_samples(steps, samples);
        }
        let (nodes, devices) = (place.len(), f64::from(place.iter().sum::<u32>()));
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        // On the measured numbers of nodes to both sides, with as many devices on each as here.
        let on = |beside: u32| {
            (
                f64::from(beside),
                self.at_devices(beside, devices * f64::from(beside) / f64::from(nodes), samples),
            )
        };
        let counts = || self.sizes.keys().map(|(nodes, _)| *nodes);
        let below = counts().filter(|count| *count <= nodes).max().or(counts().min());
        let above = counts().filter(|count| *count >= nodes).min().or(counts().max());
        let (Some(below), Some(above)) = (below, above) else { return Step::default() };
        let ((low, a), (high, b)) = (on(below), on(above));
        a.mixed(b, |a, b| between(f64::from(nodes), (low, a), (high, b)))
    }

    fn at_devices(&self, nodes: u32, devices: f64, samples: f64) -> Step {
        let measured: Vec<(f64, &Vec<Step>)> = self
            .sizes
            .range((nodes, 0)..=(nodes, u32::MAX))
            .map(|((_, with), steps)| (f64::from(*with), steps))
            .collect();
        let below = measured.iter().rfind(|(with, _)| *with <= devices).or(measured.first());
        let above = measured.iter().find(|(with, _)| *with >= devices).or(measured.last());
        let (Some((low, a)), Some((high, b))) = (below, above) else { return Step::default() };
        at_samples(a, samples).mixed(at_samples(b, samples), |a, b| between(devices, (*low, a), (*high, b)))
    }
}

impl Step {
    fn mixed(self, other: Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self { step_s: of(self.step_s, other.step_s), sync_s: of(self.sync_s, other.sync_s), ..self }
    }
}

/// Between the two measured numbers of samples beside it, or on the line through the last two.
fn at_samples(steps: &[Step], samples: f64) -> Step {
    let above = steps.iter().position(|step| f64::from(step.samples) >= samples).unwrap_or(steps.len());
    let last = above.clamp(1, steps.len().saturating_sub(1).max(1));
    match (steps.get(last - 1), steps.get(last)) {
        (Some(a), Some(b)) => {
            let (low, high) = (f64::from(a.samples), f64::from(b.samples));
            a.mixed(*b, |a, b| between(samples, (low, a), (high, b)))
        }
        (only, _) => only.copied().unwrap_or_default(),
    }
}

/// On the line through two points.
fn between(x: f64, (low, a): (f64, f64), (high, b): (f64, f64)) -> f64 {
    if high > low { a + (b - a) * (x - low) / (high - low) } else { a }
}

/// A line of a table.
struct Line {
    what: String,
    fields: Vec<String>,
}

fn rows(table: &str, text: &str, columns: &str) -> Result<Vec<Line>, String> {
    let mut lines = text.lines().map(str::trim_end);
    let header = lines.next().unwrap_or_default();
    if header != columns {
        return Err(format!("{table}: its first line is {header:?}, not {columns:?}"));
    }
    let line = |(number, line): (usize, &str)| {
        let fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        let what = format!("{table}, line {}", number + 2);
        if fields.len() != columns.split(',').count() {
            return Err(format!("{what}: it has {} columns", fields.len()));
        }
        Ok(Line { what, fields })
    };
    lines.enumerate().filter(|(_, line)| !line.is_empty()).map(line).collect()
}

impl Line {
    fn text(&self, at: usize) -> &str {
        self.fields.get(at).map_or("", String::as_str)
    }

    fn wrong(&self, at: usize) -> String {
        format!("{}: {:?} is no number that can be", self.what, self.text(at))
    }

    fn real(&self, at: usize) -> Result<f64, String> {
        self.text(at).parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| self.wrong(at))
    }

    fn whole(&self, at: usize) -> Result<u32, String> {
        self.text(at)
            .parse()
            .ok()
            .filter(|number| (1..1 << 20).contains(number))
            .ok_or_else(|| self.wrong(at))
    }

    fn step(&self, at: usize) -> Result<Step, String> {
        let step = Step { samples: self.whole(at)?, step_s: self.real(at + 1)?, sync_s: self.real(at + 2)? };
        if step.step_s <= 0.0 || step.sync_s > step.step_s {
            return Err(self.wrong(at + 1));
        }
        Ok(step)
    }
}

/// Jobs that train with a batch size of their user's, on as many devices as they are given.
#[derive(Debug, Default)]
pub struct Trained {
    applications: Vec<Application>,
    names: Vec<String>,
    /// By job: its application and its batch size.
    of: Vec<(usize, u32)>,
    known: RefCell<Speeds>,
}

/// By application, batch size and epoch, and then by devices on each node.
type Speeds = BTreeMap<(usize, u32, usize), BTreeMap<Vec<u32>, f64>>;

impl Trained {
    #[must_use]
    pub fn new(applications: BTreeMap<String, Application>) -> Self {
        let (names, applications) = applications.into_iter().unzip();
        Self { applications, names, ..Self::default() }
    }

    /// A job of Pollux's workloads, which is this one's next: with the devices that its user tuned it for, or as few as one
    /// and as many as its batch can be shared out to. Nothing where it trains what was not measured.
    pub fn add(&mut self, job: &TraceJob) -> Option<Job> {
        let training = job.training.as_ref()?;
        let application = self.names.iter().position(|name| *name == training.model)?;
        let (of, batch) = (&self.applications[application], training.batch_size?);
        self.of.push((application, batch));
        let gpus_max = of.devices_max(batch).max(job.gpus);
        Some(Job { work: of.work(), gpus_min: 1, gpus_max, ..Job::asking(job) })
    }
}

impl Progress for Trained {
    fn rate(&self, job: usize, _: &Job, place: &[Part], _: &Machines, done: f64) -> Rate {
        let Some((application, batch)) = self.of.get(job).copied() else { return Rate::steady(0.0) };
        let of = &self.applications[application];
        let epoch = of.ends.partition_point(|end| *end <= done).min(of.ends.len().saturating_sub(1));
        let devices: Vec<u32> = place.iter().map(|part| part.devices.count()).collect();
        let mut known = self.known.borrow_mut();
        let known = known.entry((application, batch, epoch)).or_default();
        let speed = match known.get(&devices) {
            Some(speed) => *speed,
            None => {
                let speed = of.speed(&devices, batch, epoch);
                known.insert(devices, speed);
                speed
            }
        };
        Rate { per_ms: speed / 1_000.0, until: of.ends.get(epoch).copied().unwrap_or(f64::INFINITY) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACEMENTS: &str = "placement,local_bsz,step_time,sync_time\n\
        1,8,1.0,0.0\n1,16,2.0,0.0\n2,8,1.5,0.5\n2,16,2.5,0.5\n13,8,3.0,2.0\n13,16,4.0,2.0\n22,8,2.0,1.0\n22,16,3.0,1.0\n";
    const SCALABILITY: &str =
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n4,4,8,5.0,4.0\n4,8,8,6.0,5.0\n";
    const VALIDATION: &str = "progress,iteration,metric,grad_sqr,grad_var\n100,100,1,1,3\n200,200,2,1,7\n";

    fn tables() -> Tables<'static> {
        let validations =
            BTreeMap::from([(16, VALIDATION.to_owned()), (64, VALIDATION.replace("200,2", "150,2"))]);
        Tables { placements: PLACEMENTS, scalability: SCALABILITY, validations, local_max: None }
    }

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn a_step_takes_what_was_measured_and_between_that_a_mean() {
        let of = Application::read(&tables()).unwrap();
        assert!(is_near(of.step(&[2], 12.0).step_s, 2.0));
        // From whichever node one counts; and a place that was not measured by its size: the mean of 13 and 22.
        assert!(is_near(of.step(&[3, 1], 8.0).step_s, 3.0));
        // Three nodes lie between two, of which only four devices were measured, and four.
        assert!(is_near(of.step(&[1, 1, 2], 8.0).step_s, (2.5 + 16.0 / 3.0) / 2.0));
    }

    #[test]
    fn larger_batches_are_worth_more_the_noisier_gradients_are() {
        let of = Application::read(&tables()).unwrap();
        // One step of 16 samples on one device takes 2 s; four times as large on two are two parts of 16 on each: 2.5 s and
        // 2 s without the sum, and worth 4 / (3 / 4 + 1) in the first epoch and 8 / (7 / 4 + 1) in the second.
        assert!(is_near(of.speed(&[1], 16, 0), 0.5));
        assert!(is_near(of.speed(&[2], 64, 0), 4.0 / 1.75 / 4.5));
        assert!(is_near(of.speed(&[2], 64, 1), 8.0 / 2.75 / 4.5));
        assert_eq!((of.work(), of.devices_max(64)), (150.0, 8));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let wrong = |text: &str| Application::read(&Tables { placements: text, ..tables() }).unwrap_err();
        assert_eq!(
            wrong("a,b\n"),
            "placements: its first line is \"a,b\", not \"placement,local_bsz,step_time,sync_time\""
        );
        let header = PLACEMENTS.lines().next().unwrap();
        assert_eq!(
            wrong(&format!("{header}\n1,8,x,0\n")),
            "placements, line 2: \"x\" is no number that can be"
        );
        assert_eq!(wrong(&format!("{header}\n1,8,1\n")), "placements, line 2: it has 3 columns");
        assert_eq!(wrong(&format!("{header}\n")), "placements: it has no rows");
    }
}
