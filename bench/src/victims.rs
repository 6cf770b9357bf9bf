//! Whom the engine evicts, against the cheapest that would have been enough: on small clusters, where every set of victims
//! can be tried. An integer programme would find the same as trying all.

mod racks;

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_engine::{Config, Engine, Placer};
use phalanx_model::{
    Change, ClassName, CostTable, DeviceMask, DomainName, Epoch, Gang, GangRecord, Input, Job, JobId,
    JobName, LevelName, Levels, MemberRecord, MemberState, Needs, Node, NodeName, Outcome, Owner, Phase,
    Placement, Policy, QueueName, Slot, StopCause, Timestamp, Turn,
};

use crate::placement::mix::{Random, of_size};

const INSTANCES: u64 = 500;
const NODES: u32 = 6;
const GPUS_PER_NODE: u32 = 8;
/// Gangs that run: each set of them is tried.
const RUNNING_MAX: usize = 10;
const HOUR_MS: u64 = 3_600_000;
const NOW: Timestamp = Timestamp(1_000 * HOUR_MS);

/// A gang that runs, by node the devices that it has, and the work that is lost with it, in milliseconds of one device.
struct Runs {
    held: BTreeMap<NodeName, DeviceMask>,
    lost: u64,
}

struct Instance {
    levels: Levels,
    nodes: Vec<Node>,
    costs: CostTable,
    facts: Vec<Input>,
    runs: Vec<Runs>,
    wants: Gang,
}

/// What a set of victims costs.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    lost: u64,
    gangs: u32,
}

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let instances = match args {
        [] => INSTANCES,
        [flag, number] if flag == "--instances" => {
            number.parse().map_err(|_| format!("{number} is no number"))?
        }
        _ => return Err("victims [--instances N]".into()),
    };
    let mut tally = Tally::default();
    for seed in 0..instances {
        let instance = Instance::draw(seed)?;
        if instance.fits_without(0) {
            continue;
        }
        let Some(cheapest) = instance.cheapest() else { continue };
        tally.judge(seed, cheapest, chosen(&instance.facts, &instance.wants)?)?;
    }
    println!("small clusters: {instances} instances, {NODES} nodes, up to {RUNNING_MAX} gangs");
    tally.tell();
    let mut tally = Tally::default();
    let mut seed = 0;
    while tally.judged + tally.missed < instances {
        let racks = racks::Racks::draw(seed)?;
        if let Some(cheapest) = racks.cheapest() {
            tally.judge(seed, cheapest, chosen(&racks.facts, &racks.wants)?)?;
        }
        seed += 1;
    }
    println!(
        "racks: {seed} drawn, up to {} racks of {} models, cordoned nodes",
        racks::RACKS_MAX,
        racks::MODELS.len()
    );
    tally.tell();
    Ok(())
}

/// The engine's victims against the cheapest, over many instances.
#[derive(Debug, Default)]
struct Tally {
    judged: u64,
    best: u64,
    missed: u64,
    ours: u128,
    least: u128,
    /// The largest ratio, and where it was.
    worst: (f64, u64),
    gangs: [u64; 2],
}

impl Tally {
    /// An error if the engine loses less than can be enough: then one of the two counts wrongly.
    fn judge(&mut self, seed: u64, cheapest: Cost, chosen: Option<Cost>) -> Result<(), String> {
        let Some(chosen) = chosen else {
            self.missed += 1;
            return Ok(());
        };
        if chosen.lost < cheapest.lost {
            return Err(format!("instance {seed}: the engine lost less work than any set that is enough"));
        }
        self.judged += 1;
        self.best += u64::from(chosen.lost == cheapest.lost);
        (self.ours, self.least) =
            (self.ours + u128::from(chosen.lost), self.least + u128::from(cheapest.lost));
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let ratio = chosen.lost as f64 / cheapest.lost.max(1) as f64;
        if ratio > self.worst.0 {
            self.worst = (ratio, seed);
        }
        self.gangs = [self.gangs[0] + u64::from(chosen.gangs), self.gangs[1] + u64::from(cheapest.gangs)];
        Ok(())
    }

    fn tell(&self) {
        let Self { judged, best, missed, ours, least, worst, gangs } = self;
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let gap = (*ours as f64 / (*least).max(1) as f64 - 1.0) * 100.0;
        println!(
            "  {judged} judged: least work lost in {best}; in all {gap:.2} % more than the least, at worst {:.2} times (seed {})",
            worst.0, worst.1
        );
        println!("  gangs preempted: {} by the engine, {} where the least is lost", gangs[0], gangs[1]);
        println!("  no victims found where some would have been enough: {missed}");
    }
}

impl Instance {
    fn draw(seed: u64) -> Result<Self, String> {
        let mut random = Random(seed);
        let name = |e: phalanx_model::NameError| e.to_string();
        let machine = Arc::new(crate::peers::ours::machine()?);
        let levels =
            Levels::new(vec![LevelName::new("leaf").map_err(name)?], LevelName::new("node").map_err(name)?);
        let node = |at: u32| -> Result<Node, String> {
            let path = vec![DomainName::new(format!("l{}", at / 3)).map_err(name)?];
            Ok(Node::new(NodeName::new(format!("n{at}")).map_err(name)?, path, Arc::clone(&machine)))
        };
        let nodes = (0..NODES).map(node).collect::<Result<Vec<_>, _>>()?;
        let costs = phalanx_cost::compile(&nodes, &BTreeMap::new());
        let mut facts = vec![
            Input::LevelsConfigured { levels: levels.clone() },
            Input::CostsCompiled { table: costs.clone() },
        ];
        facts.extend(nodes.iter().map(|node| Input::NodeObserved { node: Box::new(node.clone()) }));
        let mut free: Vec<u64> = nodes.iter().map(|_| (1 << GPUS_PER_NODE) - 1).collect();
        let mut runs = Vec::new();
        while runs.len() < RUNNING_MAX {
            let (fact, of) = running(runs.len() as u64 + 1, &nodes, &mut free, &mut random)?;
            let Some(of) = of else { break };
            facts.extend(fact);
            runs.push(of);
        }
        let mut wants = of_size(1 + u32::try_from(random.below(3)).unwrap_or(0));
        wants.needs = Needs { devices: 4 << random.below(2), ..Needs::default() };
        let required = ["leaf", "node"].get(usize::try_from(random.below(4)).unwrap_or(0));
        let required =
            required.filter(|level| **level == "leaf" || wants.size * wants.needs.devices <= GPUS_PER_NODE);
        wants.topology.required = required.map(|level| LevelName::new(*level)).transpose().map_err(name)?;
        Ok(Self { levels, nodes, costs, facts, runs, wants })
    }

    /// Whether the gang fits without these.
    fn fits_without(&self, gone: u32) -> bool {
        let mut nodes = self.nodes.clone();
        for (_, of) in self.runs.iter().enumerate().filter(|(at, _)| gone & (1 << at) == 0) {
            for node in &mut nodes {
                let held = of.held.get(&node.name).copied().unwrap_or(DeviceMask::EMPTY);
                node.foreign = node.foreign.union(held);
            }
        }
        Placer::new(&self.levels, nodes, &self.costs).place(&self.wants).is_some()
    }

    fn cost(&self, gone: u32) -> Cost {
        let of = self.runs.iter().enumerate().filter(|(at, _)| gone & (1 << at) != 0);
        of.fold(Cost::default(), |sum, (_, of)| Cost { lost: sum.lost + of.lost, gangs: sum.gangs + 1 })
    }

    /// The set that loses least, of all that are enough.
    fn cheapest(&self) -> Option<Cost> {
        let mut sets: Vec<(u64, u32)> =
            (1_u32..1 << self.runs.len()).map(|set| (self.cost(set).lost, set)).collect();
        sets.sort_unstable();
        sets.into_iter().find(|(_, set)| self.fits_without(*set)).map(|(_, set)| self.cost(set))
    }
}

/// Whom the engine evicts for a gang, after these facts.
fn chosen(facts: &[Input], wants: &Gang) -> Result<Option<Cost>, String> {
    let mut engine = Engine::new(Epoch(1), Config::default());
    let mut out = Outcome::default();
    let _ = engine.step(NOW, facts, &mut out);
    let job = job(1_000, "serving", wants.clone())?;
    let _ = engine.step(NOW, &[Input::JobSubmitted { job: Box::new(job) }], &mut out);
    let mut sum = Cost::default();
    for change in &out.changes {
        if let Change::GangStopping { cause: StopCause::Preempted(eviction), .. } = change {
            sum = Cost { lost: sum.lost + eviction.lost_device_ms, gangs: sum.gangs + 1 };
        }
    }
    Ok((sum.gangs > 0).then_some(sum))
}

/// A gang that runs on devices that were free, and what is lost with it; nothing once nothing fits.
fn running(
    id: u64,
    nodes: &[Node],
    free: &mut [u64],
    random: &mut Random,
) -> Result<(Option<Input>, Option<Runs>), String> {
    let devices = 1_u32 << random.below(4);
    let members = 1 + u32::try_from(random.below(3)).unwrap_or(0);
    let first = usize::try_from(random.below(nodes.len() as u64)).unwrap_or(0);
    let mut slots = Vec::new();
    let mut held: BTreeMap<NodeName, DeviceMask> = BTreeMap::new();
    for at in (first..nodes.len()).chain(0..first) {
        while slots.len() < members as usize && free[at].count_ones() >= devices {
            let mut mask = 0_u64;
            (0..devices).for_each(|_| {
                let lowest = free[at] & free[at].wrapping_neg();
                (mask, free[at]) = (mask | lowest, free[at] & !lowest);
            });
            let rank = u32::try_from(slots.len()).unwrap_or(0);
            let node = nodes[at].name.clone();
            let mine = held.entry(node.clone()).or_insert(DeviceMask::EMPTY);
            *mine = mine.union(DeviceMask(mask));
            slots.push(Slot { rank, node, devices: DeviceMask(mask), part: None });
        }
    }
    if slots.is_empty() {
        return Ok((None, None));
    }
    let (fact, lost) = observed(id, slots, devices, random)?;
    Ok((Some(fact), Some(Runs { held, lost })))
}

/// A gang that runs in these slots with so many devices each, and the work that is lost with it.
fn observed(id: u64, slots: Vec<Slot>, devices: u32, random: &mut Random) -> Result<(Input, u64), String> {
    let size = u32::try_from(slots.len()).unwrap_or(0);
    let mut gang = of_size(size);
    gang.needs = Needs { devices, ..Needs::default() };
    let since = Timestamp(NOW.0 - HOUR_MS / 4 - random.below(4 * HOUR_MS));
    let saved_at = Timestamp(since.0 + random.below(NOW.0 - since.0));
    let job = job(id, "training", gang)?;
    let level = LevelName::new("leaf").map_err(|e| e.to_string())?;
    let record = GangRecord {
        phase: Phase::Running { since },
        attempt: 1,
        checkpointed_at: Some(saved_at),
        members: slots.iter().map(|_| MemberRecord { state: MemberState::Running }).collect(),
        placement: Some(Placement { slots, level }),
        ..GangRecord::pending(job.id.gang(0), since)
    };
    let lost = u64::from(size * devices) * NOW.since(saved_at);
    Ok((Input::JobObserved { job: Box::new(job), gangs: vec![record] }, lost))
}

fn job(id: u64, class: &str, gang: Gang) -> Result<Job, String> {
    let name = |e: phalanx_model::NameError| e.to_string();
    Ok(Job {
        id: JobId(id),
        name: JobName::new(format!("job-{id}")).map_err(name)?,
        key: None,
        owner: Owner { uid: 1_000, gid: 1_000, name: "user".into() },
        queue: QueueName::new("default").map_err(name)?,
        priority: 0,
        submitted_at: Timestamp(NOW.0 - 10 * HOUR_MS),
        gangs: vec![gang],
        policy: Policy::default(),
        turn: Turn { class: Some(ClassName::new(class).map_err(name)?), ..Turn::default() },
    })
}

#[cfg(test)]
mod tests {
    /// Fails where the engine evicts fewer than can be enough: then one of the two counts wrongly.
    #[test]
    fn the_engine_is_no_better_than_the_best() {
        super::run(&["--instances".to_owned(), "8".to_owned()]).unwrap();
    }
}
