//! The seeded swarm: a random cluster, random work and random faults; then everything is healed, and all work
//! must end.

mod case;
mod crowd;
mod draw;
mod ending;
mod kinds;
mod serving;
mod sharing;
mod shrink;

use std::fmt;

use phalanx_model::{
    Answer, Bandwidth, DeviceMask, Exit, GangId, Grade, Health, Input, JobId, Levels, NodeName, Phase,
    Question, Uplink,
};

pub use case::{CASE_BYTES_MAX, Case, CaseError, Conditions, Operation};
pub use shrink::shrink;

use crate::{Failure, Faults, Rng, World};
use crowd::Crowd;
use serving::Serving;
use sharing::{Act, Sharing};

/// What a seed made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub nodes: u64,
    pub levels: u64,
    pub jobs: u64,
    /// Things that happen before all is healed.
    pub turns: u64,
    pub bypass_max: u32,
    /// There are queues and classes.
    pub is_shared: bool,
    pub faults: Faults,
}

/// How one run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwarmReport {
    pub seed: u64,
    pub parameters: Parameters,
    /// Steps of the engine.
    pub steps: u64,
    pub crashes: u64,
    /// Orders of a leader that has a successor.
    pub refused: u64,
    /// Starts of gangs, attempts counted each.
    pub starts: u64,
    /// Jobs that ended, and those of them that succeeded.
    pub ended: u64,
    pub succeeded: u64,
    /// How often a gang made way for another.
    pub evictions: u64,
    /// What broke, if anything.
    pub failure: Option<Failure>,
}

impl fmt::Display for SwarmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.parameters;
        write!(
            f,
            "SEED {}: {} nodes, {} levels, {} jobs, {} turns, bypass {}, shared {}, {:?}: {} steps, {} starts, {} crashes, \
             {} jobs ended, {} succeeded",
            self.seed,
            p.nodes,
            p.levels,
            p.jobs,
            p.turns,
            p.bypass_max,
            p.is_shared,
            p.faults,
            self.steps,
            self.starts,
            self.crashes,
            self.ended,
            self.succeeded
        )?;
        self.failure.as_ref().map_or(Ok(()), |failure| write!(f, "\n{failure}"))
    }
}

/// One run, with every kind of request, two of three in a cluster that is shared by queues. The same seed is the same run, on every platform.
///
/// # Panics
/// Where the engine does: a broken invariant.
#[must_use]
pub fn swarm(seed: u64) -> SwarmReport {
    let mut case = Case::default();
    let report = recorded_swarm(seed, &mut case);
    if report.failure.is_none() {
        return report;
    }
    // Once more, and the last steps are kept.
    let failure = case.run().err().or(report.failure);
    SwarmReport { failure, ..report }
}

/// The same; what is done stands in the case, also when the engine panics.
///
/// # Panics
/// Where the engine does: a broken invariant.
#[must_use]
pub fn recorded_swarm(seed: u64, case: &mut Case) -> SwarmReport {
    let stream = |bits| Rng::new(seed.rotate_left(bits));
    let drawn = || Sharing::new(stream(32), [stream(8), stream(56), stream(12)]);
    let sharing = (!seed.is_multiple_of(3)).then(drawn);
    run(seed, Some(Rng::new(!seed)), sharing, case)
}

/// One run in which small jobs crowd heads that need much; nothing goes wrong but what it draws.
///
/// # Panics
/// Where the engine does: a broken invariant.
#[must_use]
pub fn crowded_swarm(seed: u64, case: &mut Case) -> SwarmReport {
    let mut rng = Rng::new(seed.rotate_left(24));
    let parameters = Parameters {
        nodes: 0,
        levels: 1,
        jobs: 0,
        turns: 0,
        bypass_max: u32::try_from(rng.between(1, 6)).unwrap_or(1),
        is_shared: false,
        faults: Faults::none(),
    };
    let streams = Streams { crowd: Some(Crowd::new(rng)), ..Streams::none(seed) };
    live(seed, parameters, true, streams, case)
}

/// The same with members alone that need devices, CPUs and memory: what a seed was before there were other kinds.
///
/// # Panics
/// Where the engine does: a broken invariant.
#[must_use]
pub fn plain_swarm(seed: u64) -> SwarmReport {
    run(seed, None, None, &mut Case::default())
}

fn run(seed: u64, kinds: Option<Rng>, sharing: Option<Sharing>, case: &mut Case) -> SwarmReport {
    let mut rng = Rng::new(seed);
    let mut parameters = parameters(&mut rng);
    let mut trouble = Rng::new(seed.rotate_left(48));
    if kinds.is_some() && parameters.faults != Faults::none() {
        parameters.faults.news_max_ms = trouble.below(3_000);
        parameters.faults.two_leaders = trouble.below(60);
        parameters.faults.disk_full = trouble.below(4);
    }
    if sharing.is_some() {
        parameters = Parameters { is_shared: true, jobs: parameters.jobs * 2, ..parameters };
    }
    let is_strict = parameters.faults == Faults::none() && parameters.is_shared;
    let health = Rng::new(seed.rotate_left(40));
    let streams = Streams { rng, trouble, health, kinds, sharing, crowd: None };
    live(seed, parameters, is_strict, streams, case)
}

/// What a run draws from.
struct Streams {
    rng: Rng,
    trouble: Rng,
    /// Draws the health of nodes and devices, apart from everything else.
    health: Rng,
    kinds: Option<Rng>,
    sharing: Option<Sharing>,
    crowd: Option<Crowd>,
}

impl Streams {
    fn none(seed: u64) -> Self {
        let (rng, trouble) = (Rng::new(seed), Rng::new(seed.rotate_left(48)));
        let health = Rng::new(seed.rotate_left(40));
        Self { rng, trouble, health, kinds: None, sharing: None, crowd: None }
    }
}

fn live(
    seed: u64,
    parameters: Parameters,
    is_strict: bool,
    streams: Streams,
    case: &mut Case,
) -> SwarmReport {
    let Streams { mut rng, trouble, health, kinds, sharing, crowd } = streams;
    let conditions = Conditions::new(rng.bits(), parameters.bypass_max, parameters.faults, is_strict);
    let world = conditions.world();
    *case = Case { conditions, operations: Vec::new() };
    let serving = Serving::new(Rng::new(seed.rotate_left(16)));
    let mut swarm = Swarm {
        world,
        case,
        rng,
        trouble,
        health,
        links: Rng::new(seed.rotate_left(20)),
        kinds,
        sharing,
        serving,
        parameters,
        submitted: 0,
        crashes: 0,
    };
    let failure = swarm.run(crowd).err();
    let records = || swarm.world.engine().jobs().flat_map(|(_, records)| records);
    let count = |good: fn(&Phase) -> bool| records().filter(|r| good(&r.phase)).count() as u64;
    SwarmReport {
        seed,
        parameters,
        steps: swarm.world.steps(),
        crashes: swarm.crashes,
        refused: swarm.world.refused(),
        starts: records().map(|r| u64::from(r.attempt)).sum(),
        ended: count(|p| matches!(p, Phase::Finished { .. })),
        succeeded: count(|p| matches!(p, Phase::Finished { ending: phalanx_model::Ending::Succeeded, .. })),
        evictions: records().map(|r| u64::from(r.evictions)).sum(),
        failure,
    }
}

fn parameters(rng: &mut Rng) -> Parameters {
    // A third of the runs is calm, so that what faults would cover up is seen.
    let calm = rng.chance(33);
    let mut up_to = |most: u64| if calm { 0 } else { rng.below(most + 1) };
    let faults = Faults {
        delay_max_ms: up_to(3_000),
        duplicate: up_to(20),
        order_lost: up_to(10),
        answer_lost: up_to(10),
        start_refused: up_to(10),
        member_start: up_to(5),
        member_stuck: up_to(5),
        ..Faults::none()
    };
    Parameters {
        nodes: rng.between(1, 6),
        levels: rng.between(1, 3),
        jobs: rng.between(1, 25),
        turns: rng.between(50, 300),
        bypass_max: u32::try_from(rng.between(0, 4)).unwrap_or(0),
        is_shared: false,
        faults,
    }
}

struct Swarm<'a> {
    world: World,
    case: &'a mut Case,
    rng: Rng,
    /// Draws when the disk is full, apart from everything else.
    trouble: Rng,
    /// Draws the health of nodes and devices, apart from everything else.
    health: Rng,
    /// Draws measured bandwidths, the same.
    links: Rng,
    /// Draws what is not plain, apart from everything else.
    kinds: Option<Rng>,
    sharing: Option<Sharing>,
    /// Where there is sharing.
    serving: Serving,
    parameters: Parameters,
    submitted: u64,
    crashes: u64,
}

const LEVELS: [&str; 3] = ["cluster", "block", "leaf"];
/// How long a disk is full at most.
const DISK_FULL_MS: u64 = 30_000;
/// Turns in which the health of something changes.
const GRADED_PERCENT: u64 = 5;
/// Turns in which a link is measured.
const MEASURED_PERCENT: u64 = 5;

impl Swarm<'_> {
    fn run(&mut self, crowd: Option<Crowd>) -> Result<(), Failure> {
        if let Some(crowd) = crowd {
            self.crowd(crowd)?;
        } else {
            self.build()?;
            for _ in 0..self.parameters.turns {
                self.turn()?;
            }
        }
        if let Some(sharing) = &mut self.sharing {
            self.case.conditions.unlimited = sharing.heal();
            self.case.conditions.owed_nothing = sharing.owe_nothing();
        }
        self.world.heal(&self.case.conditions.unlimited)?;
        self.world.finish(&self.case.conditions.owed_nothing)
    }

    /// It is written down before it happens: whatever comes of it can be repeated.
    fn happen(&mut self, operation: Operation) -> Result<(), Failure> {
        self.case.operations.push(operation);
        self.case.operations.last().map_or(Ok(()), |operation| self.world.carry(operation))
    }

    fn tell(&mut self, fact: Input) -> Result<(), Failure> {
        self.happen(Operation::Tell(Box::new(fact)))
    }

    fn build(&mut self) -> Result<(), Failure> {
        let above = LEVELS.iter().take(usize::try_from(self.parameters.levels).unwrap_or(1));
        let mut levels = Levels::new(above.map(|l| named(l)).collect(), named("node"));
        if let Some(rng) = &mut self.kinds {
            kinds::limit(&mut levels, rng);
        }
        self.tell(Input::LevelsConfigured { levels })?;
        for i in 0..self.parameters.nodes {
            let node = self.any_node(i);
            self.happen(Operation::Node(Box::new(node)))?;
        }
        if let Some(sharing) = &mut self.sharing {
            let devices = self.world.declared().map(|(node, _)| u64::from(node.machine.device_count())).sum();
            let facts = sharing.build(devices);
            self.happen(Operation::TellAll(facts))?;
        }
        Ok(())
    }

    /// The health of a node, or of some of its devices, changes.
    fn grade(&mut self) -> Result<(), Failure> {
        let rng = &mut self.health;
        let nodes: Vec<_> = self.world.engine().nodes().collect();
        let Some(node) = rng.pick(&nodes) else { return Ok(()) };
        let grade = rng.pick(&Grade::ALL).copied().unwrap_or_default();
        let some = DeviceMask(rng.bits() & rng.bits());
        // Most often devices are meant; without any it is the node itself.
        let devices = if rng.chance(20) { DeviceMask::EMPTY } else { some.and(node.machine.device_mask()) };
        let health = Health { node: node.name.clone(), devices, grade, detail: "drawn".to_owned() };
        self.tell(Input::HealthGraded { health })
    }

    /// The network of a node, or the uplink of a domain around it, is measured.
    fn measure(&mut self) -> Result<(), Failure> {
        let rng = &mut self.links;
        let nodes: Vec<_> = self.world.engine().nodes().collect();
        let Some(node) = rng.pick(&nodes) else { return Ok(()) };
        let above = usize::try_from(rng.below(4)).unwrap_or(0);
        let uplink = match node.path.get(..above) {
            Some(path) if !path.is_empty() => Uplink::Domain(path.to_vec()),
            _ => Uplink::Node(node.name.clone()),
        };
        let share = u16::try_from(rng.below(1_400)).unwrap_or(0).min(Bandwidth::NOMINAL);
        let (at, detail) = (self.world.engine().now(), "drawn".to_owned());
        let bandwidth = Bandwidth { uplink, permille: share, counts_permille: share, at, detail };
        self.tell(Input::BandwidthMeasured { bandwidth })
    }

    /// One thing happens.
    fn turn(&mut self) -> Result<(), Failure> {
        if self.trouble.chance(self.parameters.faults.disk_full) {
            let ms = self.trouble.below(DISK_FULL_MS);
            self.happen(Operation::FillDisk(ms))?;
        }
        if self.health.chance(GRADED_PERCENT) {
            self.grade()?;
        }
        if self.links.chance(MEASURED_PERCENT) {
            self.measure()?;
        }
        if self.sharing.is_some() && self.rng.chance(15) {
            return self.operate();
        }
        let nodes: Vec<NodeName> = self.world.declared().map(|(n, _)| n.name.clone()).collect();
        let node = self.rng.pick(&nodes).cloned().unwrap_or_else(|| named("n0"));
        let there = self.world.engine().nodes().any(|n| n.name == node);
        let operation = match self.rng.below(100) {
            0..25 if self.submitted < self.parameters.jobs => {
                self.submitted += 1;
                let (job, script) = self.any_job();
                Operation::Submit { job: Box::new(job), script }
            }
            25..30 => {
                let Some(job) = self.any_started() else { return Ok(()) };
                Operation::Tell(Box::new(self.any_cancel(job)))
            }
            30..38 => {
                let living = self.world.living();
                let Some(member) = self.rng.pick(&living).copied() else { return Ok(()) };
                let exit = Exit::code(i32::try_from(self.rng.below(3)).unwrap_or(1));
                Operation::End { member, exit }
            }
            38..42 if there => Operation::Tell(Box::new(Input::NodeCordoned { node })),
            42..45 if there => Operation::Tell(Box::new(Input::DrainRequested { node })),
            45..52 if there => Operation::Tell(Box::new(Input::NodeUncordoned { node })),
            52..54 => Operation::Lose(node),
            54..58 => Operation::Return(node),
            58..63 => {
                self.crashes += 1;
                Operation::Crash
            }
            63..65 => {
                let ms = self.rng.below(600_000);
                // Where promises are kept, nothing comes late.
                if self.world.checker().is_strict { Operation::Pass(ms) } else { Operation::Jump(ms) }
            }
            65..67 => Operation::StepBack(self.rng.below(60_000)),
            67..85 => Operation::Next,
            _ => Operation::Pass(self.rng.below(20_000)),
        };
        self.happen(operation)
    }

    /// Somebody does something with a queue, the settings or a job.
    fn operate(&mut self) -> Result<(), Failure> {
        let jobs: Vec<(JobId, bool, bool)> = self
            .world
            .engine()
            .jobs()
            .map(|(job, records)| {
                (job.id, job.turn.held_by.is_some(), records.iter().all(|record| record.is_finished()))
            })
            .collect();
        let now = self.world.now();
        if let Some(fact) = self.serving.act(self.world.engine(), now) {
            self.tell(fact)?;
        }
        match self.sharing.as_mut().and_then(|sharing| sharing.act(&jobs, now)) {
            Some(Act::Tell(Input::DefragmentationRequested { gang })) => self.defragment(gang),
            Some(Act::Tell(fact)) => self.tell(fact),
            Some(Act::Save(job)) => self.happen(Operation::Save(job)),
            None => Ok(()),
        }
    }

    /// Gangs move as the question says: it is refused only if they do not.
    fn defragment(&mut self, gang: Option<GangId>) -> Result<(), Failure> {
        match self.world.engine().what_if(&Question::Defragmented(gang)) {
            Answer::WouldOpen(_) => self.tell(Input::DefragmentationRequested { gang }),
            _ => Ok(()),
        }
    }
}

/// A name that is a constant, or made of one and a number.
fn named<T: TryFrom<String>>(text: &str) -> T {
    T::try_from(text.to_owned()).unwrap_or_else(|_| unreachable!("a constant is a name"))
}
