//! A cluster in full use, told to the engine as a world tells it after a restart: the places of the gangs that run were
//! found by the search alone, and none of it counts in what is measured.

use phalanx_engine::Placer;
use phalanx_model::{
    CostTable, Gang, GangRecord, Input, Job, JobId, Levels, MemberRecord, MemberState, Node, Phase,
    Placement, Settings, SyncKind, Timestamp,
};

use super::Sizes;
use super::load::{HOUR_MS, Load, below, gpus_of, guaranteed_gpus, job, weighted};
use super::world::{Stepped, World};
use crate::placement::cluster;
use crate::placement::mix::Random;
use crate::placement::resident_bytes;

const LEAVES_PER_BLOCK: u32 = 16;
/// Jobs told in one step.
const CHUNK: usize = 1_000;
/// A day after the world's beginning, so that there was time to run and to wait.
const NOW: Timestamp = Timestamp(24 * HOUR_MS);
/// Classes of what runs and of what waits, and how many of a hundred gangs are of each. Nothing that waits is of a higher
/// class than what runs and may be evicted, so that the cluster is at rest until somebody is owed something.
const RUNNING: [(&str, u64); 2] = [("serving", 10), ("training", 90)];
const WAITING: [(&str, u64); 3] = [("training", 60), ("research", 25), ("opportunistic", 15)];
/// Largest gang of a service, which only those have who are guaranteed something.
const SERVING_GPUS_MAX: u32 = 8;
/// Largest gang of those who are guaranteed nothing: who needs many GPUs at once has some that are his own.
const OPEN_GPUS_MAX: u64 = 32;
/// Draws that bring the sizes of the running gangs to what fills the cluster, for each gang.
const DRAWS_MAX: usize = 1_000;

/// What building took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Built {
    /// Resident memory for nodes and levels alone, and for everything.
    pub(super) nodes_bytes: u64,
    pub(super) all_bytes: u64,
    /// The first plan over everything that waits.
    pub(super) first: Stepped,
    /// Steps until the cluster was at rest, and what they did.
    pub(super) rest: Stepped,
    pub(super) rounds: u32,
}

/// A cluster of which so many thousandths are used. Whatever waits is held back by somebody where `is_held`.
pub(super) fn build(
    sizes: &Sizes,
    used_milli: u64,
    is_held: bool,
    random: &mut Random,
) -> Result<(World, Load, Built), String> {
    let load = Load::draw(sizes.gpus, sizes.queues, random)?;
    let (levels, nodes, costs) = cluster::build(sizes.gpus / cluster::GPUS_PER_NODE, LEAVES_PER_BLOCK)?;
    let mut built = Built::default();
    let before = resident_bytes();
    let mut world = World::new(NOW);
    tell_cluster(&mut world, &load, &levels, nodes.clone(), &costs);
    built.nodes_bytes = resident_bytes().saturating_sub(before);

    let sync = SyncKind::Jobs;
    world.step(&[Input::SyncBegin { kind: sync }]);
    let target = u64::from(sizes.gpus) * used_milli / 1_000;
    let placed = place(&levels, nodes, &costs, running(&load, sizes.running, target, random)?)?;
    tell_running(&mut world, &load, placed, random)?;
    tell_pending(&mut world, &load, sizes.pending, is_held, random)?;
    built.first = world.step(&[Input::SyncEnd { kind: sync }]);
    world.settle(|did| {
        built.rounds += 1;
        built.rest.started += did.started;
        built.rest.evicted += did.evicted;
        built.rest.ended += did.ended;
    })?;
    built.all_bytes = resident_bytes().saturating_sub(before);
    Ok((world, load, built))
}

fn tell_cluster(world: &mut World, load: &Load, levels: &Levels, nodes: Vec<Node>, costs: &CostTable) {
    let mut inputs = vec![
        Input::LevelsConfigured { levels: levels.clone() },
        Input::CostsCompiled { table: costs.clone() },
        Input::SettingsConfigured { settings: Box::new(Settings::default()) },
    ];
    inputs.extend(nodes.into_iter().map(|node| Input::NodeObserved { node: Box::new(node) }));
    let queues = load.tops.iter().chain(load.teams.iter().map(|team| &team.queue));
    inputs.extend(queues.map(|queue| Input::QueueObserved { queue: Box::new(queue.clone()) }));
    world.step(&inputs);
}

/// So many requests that they come to `target` GPUs together, largest first: drawn from the mix, and then again one by one
/// as long as that brings the sum closer.
fn running(load: &Load, count: usize, target: u64, random: &mut Random) -> Result<Vec<Gang>, String> {
    let gpus = |request: usize| load.requests.get(request).map_or(0, |r| u64::from(gpus_of(&r.gang)));
    let mut drawn: Vec<usize> = (0..count).map(|_| load.request(random)).collect();
    let mut sum: u64 = drawn.iter().map(|request| gpus(*request)).sum();
    let mut draws = 0;
    while sum != target {
        draws += 1;
        if draws > count * DRAWS_MAX {
            return Err(format!("{count} gangs of this mix do not come to {target} GPUs"));
        }
        let (at, other) = (below(random, count), load.request(random));
        let Some(request) = drawn.get_mut(at) else { continue };
        let changed = sum - gpus(*request) + gpus(other);
        if changed.abs_diff(target) < sum.abs_diff(target) {
            (*request, sum) = (other, changed);
        }
    }
    let mut gangs: Vec<Gang> = drawn.iter().map(|request| load.requests[*request].gang.clone()).collect();
    gangs.sort_by_key(|gang| std::cmp::Reverse(gpus_of(gang)));
    Ok(gangs)
}

/// A place for each of them.
fn place(
    levels: &Levels,
    nodes: Vec<Node>,
    costs: &CostTable,
    gangs: Vec<Gang>,
) -> Result<Vec<(Gang, Placement)>, String> {
    let mut placer = Placer::new(levels, nodes, costs);
    let mut placed = Vec::with_capacity(gangs.len());
    for gang in gangs {
        let found = placer.place(&gang).and_then(|_| placer.placement(&gang));
        let Some(placement) = found else {
            return Err(format!(
                "{} GPUs are free, and a gang of {} has no place",
                placer.free_devices(),
                gang.size
            ));
        };
        placer.take(&gang);
        placed.push((gang, placement));
    }
    Ok(placed)
}

/// What runs, each in a queue that lacks as much, as often as it lacks it.
fn tell_running(
    world: &mut World,
    load: &Load,
    placed: Vec<(Gang, Placement)>,
    random: &mut Random,
) -> Result<(), String> {
    let mut lacks: Vec<u64> = load.teams.iter().map(|team| team.due).collect();
    let mut told = Vec::new();
    for (gang, placement) in placed {
        let gpus = u64::from(gpus_of(&gang));
        let takes = |team: &usize| gpus <= OPEN_GPUS_MAX || guaranteed_gpus(&load.teams[*team].queue) > 0;
        let weights =
            (0..lacks.len()).map(|team| if takes(&team) && lacks[team] >= gpus { lacks[team] } else { 0 });
        let team = if weights.clone().any(|weight| weight > 0) {
            weighted(weights, random)
        } else {
            (0..lacks.len()).filter(takes).max_by_key(|team| lacks[*team]).ok_or("no queue works")?
        };
        lacks[team] = lacks[team].saturating_sub(gpus);
        let mut class = RUNNING[weighted(RUNNING.iter().map(|(_, weight)| *weight), random)].0;
        if gpus_of(&gang) > SERVING_GPUS_MAX || guaranteed_gpus(&load.teams[team].queue) == 0 {
            class = "training";
        }
        let id = world.next_job();
        let mut job = job(id, gang, &load.teams[team].queue.name, class, NOW, random)?;
        // Most of the limit is still to come, so that few of them end by it while something is measured.
        let limit_ms = job.policy.time_limit_ms.unwrap_or(24 * HOUR_MS);
        let since = Timestamp(NOW.0.saturating_sub(random.below(limit_ms / 2)));
        job.submitted_at = since;
        let record = running_record(&job, placement, since, random);
        world.running.push(record.id);
        told.push(Input::JobObserved { job: Box::new(job), gangs: vec![record] });
        if told.len() == CHUNK {
            world.step(&std::mem::take(&mut told));
        }
    }
    world.step(&told);
    Ok(())
}

fn running_record(job: &Job, placement: Placement, since: Timestamp, random: &mut Random) -> GangRecord {
    let members = placement.slots.iter().map(|_| MemberRecord { state: MemberState::Running }).collect();
    let saved = Timestamp(since.0 + random.below(NOW.since(since)));
    GangRecord {
        phase: Phase::Running { since },
        attempt: 1,
        first_started_at: Some(since),
        checkpointed_at: (random.below(2) == 0).then_some(saved),
        placement: Some(placement),
        members,
        ..GangRecord::pending(job.id.gang(0), since)
    }
}

/// A job that waits, of any size and of a team to which as much is due.
pub(super) fn waiting(
    world: &mut World,
    load: &Load,
    at: Timestamp,
    random: &mut Random,
) -> Result<Job, String> {
    let gang = load.requests[load.request(random)].gang.clone();
    let class = WAITING[weighted(WAITING.iter().map(|(_, weight)| *weight), random)].0;
    let team = load.team(gpus_of(&gang), random).ok_or("no queue works")?;
    job(world.next_job(), gang, &team.queue.name, class, at, random)
}

fn tell_pending(
    world: &mut World,
    load: &Load,
    count: usize,
    is_held: bool,
    random: &mut Random,
) -> Result<(), String> {
    let mut told = Vec::new();
    for _ in 0..count {
        let at = Timestamp(NOW.0 - random.below(12 * HOUR_MS));
        let mut job = waiting(world, load, at, random)?;
        job.turn.held_by = is_held.then(|| "bench".to_owned());
        let record = GangRecord::pending(JobId(job.id.0).gang(0), at);
        told.push(Input::JobObserved { job: Box::new(job), gangs: vec![record] });
        if told.len() == CHUNK {
            world.step(&std::mem::take(&mut told));
        }
    }
    world.step(&told);
    Ok(())
}
