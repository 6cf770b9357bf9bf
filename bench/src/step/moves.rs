//! Defragmentation: every node is half used by a gang that may move, and a gang waits for eight whole nodes below one leaf switch.

use std::collections::BTreeSet;
use std::hint::black_box;

use phalanx_model::{
    Answer, Defragmentation, Gang, GangId, Input, Job, JobId, Question, QueueName, Settings, Timestamp,
};

use super::Sizes;
use super::figures::{Figures, Unit};
use super::load::{HOUR_MS, job};
use super::world::{World, cpu_ns};
use crate::placement::cluster;
use crate::placement::mix::{Random, level, of_size};

const LEAVES_PER_BLOCK: u32 = 16;
/// Gangs that are submitted in one step.
const CHUNK: usize = 1_000;
/// Members of the gang that waits, each with a whole node.
const WIDE: u32 = 8;
/// Longer than the class of what runs protects it.
const RAN_MS: u64 = 20 * 60_000;

/// Measures the plan as a question, the same as a step in which the gangs are told to move, and a look that finds that moves do
/// not pay. What was refused.
pub(super) fn measure(sizes: &Sizes, often: usize, figures: &mut Figures) -> Result<Option<String>, String> {
    let mut random = Random(sizes.seed);
    let mut world = halves(sizes, &mut random)?;
    let wide = submit(&mut world, &wide(), &mut random)?;
    let (mut questions, mut steps, mut looks, mut moved) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..often {
        let began = cpu_ns();
        let answer = black_box(world.engine.what_if(&Question::Defragmented(Some(wide))));
        questions.push(cpu_ns() - began);
        let Answer::WouldOpen(opening) = answer else { return Err(format!("nothing moves: {answer:?}")) };
        moved = opening.moves.len() as u64;

        let mut copy = world.clone();
        steps.push(copy.step(&[Input::DefragmentationRequested { gang: Some(wide) }]).ns);
        let stopping = copy.running.len() as u64 + moved;
        if stopping != world.running.len() as u64 {
            return Err("the step moves other gangs than the question says".to_owned());
        }

        let mut copy = world.clone();
        let defragmentation =
            Defragmentation { is_automatic: true, stays_ms: 0, ..Defragmentation::default() };
        let settings = Settings { defragmentation, ..Settings::default() };
        copy.step(&[Input::SettingsConfigured { settings: Box::new(settings) }]);
        copy.settle(|_| ())?;
        copy.now = Timestamp((copy.now.0 / 60_000 + 1) * 60_000);
        looks.push(copy.step(&[]).ns);
        if copy.running.len() != world.running.len() {
            return Err("the moves pay, so the look was more than a look".to_owned());
        }
    }
    figures.times("moves_question", Unit::Ms, &mut questions);
    figures.times("moves_step", Unit::Ms, &mut steps);
    figures.times("moves_look", Unit::Ms, &mut looks);
    figures.count("moves_gangs", moved);
    figures.count("moves_candidates", world.running.len() as u64);
    Ok(world.refused)
}

/// A cluster in which every node is half used by one gang of four GPUs.
fn halves(sizes: &Sizes, random: &mut Random) -> Result<World, String> {
    let (levels, nodes, costs) = cluster::build(sizes.gpus / cluster::GPUS_PER_NODE, LEAVES_PER_BLOCK)?;
    let count = nodes.len();
    let mut world = World::new(Timestamp(24 * HOUR_MS));
    let mut inputs = vec![
        Input::LevelsConfigured { levels },
        Input::CostsCompiled { table: costs },
        Input::SettingsConfigured { settings: Box::new(Settings::default()) },
    ];
    inputs.extend(nodes.into_iter().map(|node| Input::NodeObserved { node: Box::new(node) }));
    world.step(&inputs);
    let half = of_size(cluster::GPUS_PER_NODE / 2);
    for _ in 0..(2 * count).div_ceil(CHUNK) {
        let mut jobs = Vec::with_capacity(CHUNK);
        for _ in 0..CHUNK {
            jobs.push(Input::JobSubmitted { job: Box::new(of(&mut world, &half, random)?) });
        }
        world.step(&jobs);
        world.settle(|_| ())?;
    }
    let waiting: Vec<JobId> = world.engine.in_order().iter().map(|gang| gang.job).collect();
    world.cancel(&waiting)?;
    let mut known = BTreeSet::new();
    let is_second = |id: &GangId| {
        let placement = world.engine.gang(*id).and_then(|record| record.placement.as_ref());
        placement.is_some_and(|placement| !known.insert(placement.slots[0].node.clone()))
    };
    let mut running = world.running.clone();
    running.sort_unstable();
    let gone: Vec<JobId> = running.into_iter().filter(is_second).map(|gang| gang.job).collect();
    world.cancel(&gone)?;
    world.pass(RAN_MS)?;
    Ok(world)
}

fn wide() -> Gang {
    let mut wide = of_size(WIDE * cluster::GPUS_PER_NODE);
    wide.members_per_node = Some(cluster::GPUS_PER_NODE);
    wide.topology.required = level("leaf");
    wide
}

/// A job that may move, and saves its work when it is told to.
fn of(world: &mut World, gang: &Gang, random: &mut Random) -> Result<Job, String> {
    let queue = QueueName::new("default").map_err(|e| e.to_string())?;
    let mut job = job(world.next_job(), gang.clone(), &queue, "training", world.now, random)?;
    job.policy.preempt.may_move = true;
    job.policy.time_limit_ms = None;
    job.policy.stop.advisory = Some(phalanx_model::Advisory { signal: 10, lead_ms: 30_000 });
    Ok(job)
}

fn submit(world: &mut World, gang: &Gang, random: &mut Random) -> Result<GangId, String> {
    let job = of(world, gang, random)?;
    let id = job.id.gang(0);
    world.step(&[Input::JobSubmitted { job: Box::new(job) }]);
    world.settle(|_| ())?;
    Ok(id)
}
