//! How long the whole engine computes: facts in, effects out, in a full cluster with many queues.

mod figures;
mod fill;
mod growth;
mod load;
mod moves;
mod nodes;
mod questions;
mod trials;
mod world;

#[cfg(test)]
mod tests;

use crate::placement::mix::Random;
use figures::{Figures, Unit};
use fill::Built;
use trials::Trial;
use world::World;

/// How much there is of everything.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    gpus: u32,
    queues: u32,
    pending: usize,
    running: usize,
    seed: u64,
}

const FULL: Sizes = Sizes { gpus: 102_400, queues: 1_000, pending: 50_000, running: 10_000, seed: 42 };
/// Of the GPUs, in thousandths: used in a full cluster, and in one with room.
const USED_MILLI: u64 = 985;
const ROOM_MILLI: u64 = 900;
/// Of the gangs that wait, a fifth as many are submitted at once.
const BURST_PART: usize = 5;

/// What can be measured by itself, and how often each is.
const SAMPLES: [(&str, usize); 14] = [
    ("questions", 40),
    ("completion", 1_000),
    ("quota", 300),
    ("preempt", 300),
    ("burst", 5),
    ("heartbeat", 1_000),
    ("mix", 200),
    ("foreign_use", 1_000),
    ("cordon", 200),
    ("remove", 5),
    ("drain", 5),
    ("notice", 5),
    ("array_cancel", 5),
    ("moves", 5),
];

struct Asked {
    sizes: Sizes,
    json: bool,
    growth: bool,
    only: Option<String>,
    repeat: Option<usize>,
}

impl Asked {
    /// How often something is measured; none where it is not asked for.
    fn samples(&self, of: &str) -> Option<usize> {
        let (_, often) = SAMPLES.into_iter().find(|(name, _)| *name == of)?;
        let is_asked = self.only.as_ref().is_none_or(|only| only == of);
        is_asked.then_some(self.repeat.unwrap_or(often))
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let asked = read(arguments)?;
    if asked.growth {
        return growth::run(&asked);
    }
    let mut figures = Figures::default();
    let refused = measure(&asked, &mut figures)?;
    if asked.json {
        println!("{}", figures.json());
    } else {
        let Sizes { gpus, queues, pending, running, seed } = asked.sizes;
        println!(
            "{gpus} GPUs, {running} running gangs, {pending} pending in {queues} queues, seed {seed}; CPU times"
        );
        figures.lines().for_each(|line| println!("{line}"));
    }
    match refused.into_iter().next() {
        Some(first) => {
            Err(format!("facts were refused, so not all of this was measured; the first: {first}"))
        }
        None => Ok(()),
    }
}

fn read(arguments: &[String]) -> Result<Asked, String> {
    let mut asked = Asked { sizes: FULL, json: false, growth: false, only: None, repeat: None };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--json" => {
                asked.json = true;
                continue;
            }
            "--growth" => {
                asked.growth = true;
                continue;
            }
            _ => {}
        }
        let text = rest.next().ok_or_else(|| format!("{argument} wants a value"))?;
        let number = || text.parse::<u32>().map_err(|_| format!("{text} is no number"));
        let sizes = &mut asked.sizes;
        match argument.as_str() {
            "--gpus" => sizes.gpus = number()?,
            "--queues" => sizes.queues = number()?,
            "--pending" => sizes.pending = number()? as usize,
            "--running" => sizes.running = number()? as usize,
            "--seed" => sizes.seed = u64::from(number()?),
            "--repeat" => asked.repeat = Some(number()? as usize),
            "--only" if SAMPLES.iter().any(|(name, _)| name == text) => asked.only = Some(text.clone()),
            "--only" => {
                let known = SAMPLES.map(|(name, _)| name).join(", ");
                return Err(format!("{text} cannot be measured; there are {known}"));
            }
            other => return Err(format!("{other} is not known here")),
        }
    }
    Ok(asked)
}

/// What the engine refused: the first of each cluster.
fn measure(asked: &Asked, figures: &mut Figures) -> Result<Vec<String>, String> {
    let sizes = &asked.sizes;
    let mut random = Random(sizes.seed);
    let (world, load, built) = fill::build(sizes, USED_MILLI, false, &mut random)?;
    tell_built(&world, &built, sizes, figures);
    let burst = asked.samples("burst");
    let mut trial = Trial { world, load, random, figures };
    trial.warm_up()?;
    if let Some(often) = asked.samples("heartbeat") {
        trial.heartbeat(often)?;
    }
    if let Some(often) = asked.samples("preempt") {
        trial.preempt(often)?;
    }
    if let Some(often) = asked.samples("completion") {
        trial.completion(often)?;
    }
    if let Some(often) = asked.samples("quota") {
        trial.quota(often)?;
    }
    if let Some(often) = burst {
        trial.burst("burst_full", sizes.pending / BURST_PART, often)?;
    }
    if let Some(often) = asked.samples("mix") {
        trial.mix(often)?;
    }
    if let Some(often) = asked.samples("questions") {
        trial.questions(often)?;
    }
    nodes::full(asked, &mut trial)?;
    let mut digest = trial.world.digest.0;
    let mut refused: Vec<String> = trial.world.refused.into_iter().collect();
    if let Some(often) = burst {
        // Nobody else may take the room that the burst is to find.
        let mut random = Random(sizes.seed);
        let (world, load, _) = fill::build(sizes, ROOM_MILLI, true, &mut random)?;
        let mut trial = Trial { world, load, random, figures };
        trial.burst("burst_free", sizes.pending / BURST_PART, often)?;
        refused.extend(trial.world.refused);
        digest ^= trial.world.digest.0;
    }
    if nodes::needs_idle(asked) {
        let mut random = Random(sizes.seed);
        let empty = Sizes { pending: 0, running: 0, ..sizes.clone() };
        let (world, load, _) = fill::build(&empty, 0, false, &mut random)?;
        let mut trial = Trial { world, load, random, figures };
        nodes::idle(asked, &mut trial)?;
        refused.extend(trial.world.refused);
        digest ^= trial.world.digest.0;
    }
    if let Some(often) = asked.samples("moves") {
        refused.extend(moves::measure(sizes, often, figures)?);
    }
    figures.count("digest", digest);
    Ok(refused)
}

/// What was built, and what the engine did with it before anything is timed.
fn tell_built(world: &World, built: &Built, sizes: &Sizes, figures: &mut Figures) {
    let (held, pending) = world.books();
    figures.count("gpus", u64::from(sizes.gpus));
    figures.count("used_gpus", held);
    figures.count("running", world.running.len() as u64);
    figures.count("pending", pending as u64);
    figures.count("nodes_bytes_per_gpu", built.nodes_bytes / u64::from(sizes.gpus));
    figures.count("bytes_per_gpu", built.all_bytes / u64::from(sizes.gpus));
    figures.times("first_plan", Unit::Ms, &mut [built.first.ns]);
    figures.count("rest_rounds", u64::from(built.rounds));
    figures.count("rest_started", u64::from(built.first.started + built.rest.started));
    figures.count("rest_evicted", u64::from(built.first.evicted + built.rest.evicted));
}
