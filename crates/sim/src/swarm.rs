//! The seeded swarm: a random cluster, random work and random faults; then everything is healed, and all work
//! must end.

mod kinds;

use std::fmt;
use std::sync::Arc;

use phalanx_engine::Config;
use phalanx_model::{
    Admin, Advisory, DeviceMask, DomainName, Exit, FailureClass, Gang, Input, Job, JobId, JobName, LevelName,
    Levels, Needs, Node, NodeName, Outcome, Owner, Phase, Policy, Program, QueueName, Retry, Segment, Stop,
    Timestamp, Topology,
};
use phalanx_scenario::{Script, Shape};

use crate::{Failure, FailureKind, Faults, Rng, World};

/// What a seed made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub nodes: u64,
    pub levels: u64,
    pub jobs: u64,
    /// Things that happen before all is healed.
    pub turns: u64,
    pub bypass_max: u32,
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
    /// Starts of gangs, attempts counted each.
    pub starts: u64,
    /// Jobs that ended, and those of them that succeeded.
    pub ended: u64,
    pub succeeded: u64,
    /// What broke, if anything.
    pub failure: Option<Failure>,
}

impl fmt::Display for SwarmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.parameters;
        write!(
            f,
            "SEED {}: {} nodes, {} levels, {} jobs, {} turns, bypass {}, {:?}: {} steps, {} starts, {} crashes, \
             {} jobs ended, {} succeeded",
            self.seed,
            p.nodes,
            p.levels,
            p.jobs,
            p.turns,
            p.bypass_max,
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

/// One run, with every kind of request. The same seed is the same run, on every platform.
///
/// # Panics
/// Where the engine does: a broken invariant.
#[must_use]
pub fn swarm(seed: u64) -> SwarmReport {
    run(seed, Some(Rng::new(!seed)))
}

/// The same with members alone that need devices, CPUs and memory: what a seed was before there were other kinds.
///
/// # Panics
/// Where the engine does: a broken invariant.
#[must_use]
pub fn plain_swarm(seed: u64) -> SwarmReport {
    run(seed, None)
}

fn run(seed: u64, kinds: Option<Rng>) -> SwarmReport {
    let mut rng = Rng::new(seed);
    let parameters = parameters(&mut rng);
    let config = Config { bypass_max: parameters.bypass_max };
    let mut swarm = Swarm {
        world: World::new(config, parameters.faults, rng.bits()),
        rng,
        kinds,
        parameters,
        submitted: 0,
        crashes: 0,
    };
    let failure = swarm.run().err();
    let records = || swarm.world.engine().jobs().flat_map(|(_, records)| records);
    let count = |good: fn(&Phase) -> bool| records().filter(|r| good(&r.phase)).count() as u64;
    SwarmReport {
        seed,
        parameters,
        steps: swarm.world.steps(),
        crashes: swarm.crashes,
        starts: records().map(|r| u64::from(r.attempt)).sum(),
        ended: count(|p| matches!(p, Phase::Finished { .. })),
        succeeded: count(|p| matches!(p, Phase::Finished { ending: phalanx_model::Ending::Succeeded, .. })),
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
    };
    Parameters {
        nodes: rng.between(1, 6),
        levels: rng.between(1, 3),
        jobs: rng.between(1, 25),
        turns: rng.between(50, 300),
        bypass_max: u32::try_from(rng.between(0, 4)).unwrap_or(0),
        faults,
    }
}

struct Swarm {
    world: World,
    rng: Rng,
    /// Draws what is not plain, apart from everything else.
    kinds: Option<Rng>,
    parameters: Parameters,
    submitted: u64,
    crashes: u64,
}

const LEVELS: [&str; 3] = ["cluster", "block", "leaf"];
/// Long enough for every wait, limit and back-off of every job one after the other.
const LIVENESS_MS: u64 = 30 * 24 * 3_600_000;
const LIVENESS_TURNS: u64 = 200_000;

impl Swarm {
    fn run(&mut self) -> Result<(), Failure> {
        self.build()?;
        for _ in 0..self.parameters.turns {
            self.turn()?;
        }
        self.heal()?;
        self.finish()
    }

    fn build(&mut self) -> Result<(), Failure> {
        let above = LEVELS.iter().take(usize::try_from(self.parameters.levels).unwrap_or(1));
        let mut levels = Levels::new(above.map(|l| named(l)).collect(), named("node"));
        if let Some(rng) = &mut self.kinds {
            kinds::limit(&mut levels, rng);
        }
        self.world.configure(levels)?;
        for i in 0..self.parameters.nodes {
            let node = self.any_node(i);
            self.world.add_node(node)?;
        }
        Ok(())
    }

    fn any_node(&mut self, index: u64) -> Node {
        let rng = &mut self.rng;
        let shape = *rng.pick(&Shape::ALL).unwrap_or(&Shape::Pcie);
        let devices = if shape == Shape::HybridCubeMesh { 8 } else { rng.between(0, 8) };
        let mut machine = shape
            .machine(u32::try_from(devices).unwrap_or(0), "V100")
            .unwrap_or_else(|_| unreachable!("a constant model is a name"));
        machine.cpu_milli = rng.between(1, 16) * 1_000;
        machine.memory_bytes = rng.between(1, 64) << 30;
        if let Some(rng) = &mut self.kinds {
            kinds::equip(&mut machine, rng);
        }
        let foreign = if rng.chance(20) { rng.bits() & rng.bits() } else { 0 };
        // Names that are prefixes of each other, and domains that are named like nodes.
        let name: NodeName = named(&format!("n{}", index % 3 * 10 + index / 3));
        Node {
            path: (0..self.parameters.levels)
                .map(|_| named::<DomainName>(&format!("n{}", rng.below(3))))
                .collect(),
            address: name.to_string(),
            name,
            admin: Admin::Open,
            foreign: DeviceMask(foreign).and(machine.device_mask()),
            machine: Arc::new(machine),
            uuids: Vec::new(),
            torus: None,
        }
    }

    /// One thing happens.
    fn turn(&mut self) -> Result<(), Failure> {
        let nodes: Vec<NodeName> = self.world.declared().map(|(n, _)| n.name.clone()).collect();
        let node = self.rng.pick(&nodes).cloned().unwrap_or_else(|| named("n0"));
        let there = self.world.engine().nodes().any(|n| n.name == node);
        match self.rng.below(100) {
            0..25 if self.submitted < self.parameters.jobs => {
                self.submitted += 1;
                let (job, script) = self.any_job();
                self.world.submit(&job, &script).map(|_| ())
            }
            25..30 => match self.any_started() {
                Some(job) => self.world.tell([Input::CancelRequested { job, by: "user".to_owned() }]),
                None => Ok(()),
            },
            30..38 => {
                let living = self.world.living();
                let Some(member) = self.rng.pick(&living).copied() else { return Ok(()) };
                let code = i32::try_from(self.rng.below(3)).unwrap_or(1);
                self.world.end_member(member, Exit::code(code))
            }
            38..42 if there => self.world.tell([Input::NodeCordoned { node }]),
            42..45 if there => self.world.tell([Input::DrainRequested { node }]),
            45..52 if there => self.world.tell([Input::NodeUncordoned { node }]),
            52..54 => self.world.lose_node(&node),
            54..58 => self.world.return_node(&node),
            58..63 => {
                self.crashes += 1;
                self.world.crash()
            }
            63..65 => {
                let ms = self.rng.below(600_000);
                self.world.jump(ms)
            }
            65..67 => {
                let ms = self.rng.below(60_000);
                self.world.step_back(ms)
            }
            67..85 => self.world.next_at().map_or(Ok(()), |at| self.world.advance_to(at)),
            _ => {
                let ms = self.rng.below(20_000);
                self.world.advance_to(self.world.now().plus(ms))
            }
        }
    }

    fn any_started(&mut self) -> Option<JobId> {
        let jobs: Vec<JobId> = self.world.engine().jobs().map(|(job, _)| job.id).collect();
        self.rng.pick(&jobs).copied()
    }

    fn any_job(&mut self) -> (Job, Script) {
        let gangs = (0..if self.rng.chance(20) { self.rng.between(2, 3) } else { 1 })
            .map(|_| {
                let mut gang = self.any_gang();
                if let Some(rng) = &mut self.kinds {
                    let there: Vec<NodeName> = self.world.engine().nodes().map(|n| n.name.clone()).collect();
                    kinds::vary(&mut gang, &there, rng);
                }
                gang
            })
            .collect();
        let rng = &mut self.rng;
        let small = |rng: &mut Rng| u32::try_from(rng.below(3)).unwrap_or(0);
        let policy = Policy {
            time_limit_ms: rng.chance(40).then(|| rng.between(1, 120_000)),
            start_deadline_ms: rng.between(1, 60_000),
            stop: Stop {
                advisory: rng.chance(30).then(|| Advisory { signal: 10, lead_ms: rng.below(30_000) }),
                grace_ms: rng.below(30_000),
            },
            retry: Retry {
                max: small(rng),
                on: FailureClass::ALL.into_iter().filter(|_| rng.chance(60)).collect(),
                backoff_ms: rng.below(10_000),
                backoff_max_ms: rng.below(60_000),
            },
            preempt: phalanx_model::Preempt::default(),
        };
        let script = Script {
            starts_ms: (!rng.chance(3)).then(|| rng.below(5_000)),
            runs_ms: Some(rng.below(120_000)),
            code: i32::try_from(rng.below(5) / 4).unwrap_or(0),
            term_ms: (!rng.chance(20)).then(|| rng.below(40_000)),
            fail_start: rng.chance(3).then_some(0),
        };
        let job = Job {
            id: JobId(0),
            name: named::<JobName>(&format!("job-{}", self.submitted)),
            key: rng.chance(10).then(|| format!("key-{}", rng.below(3))),
            owner: Owner { uid: 1000, gid: 1000, name: "user".to_owned() },
            queue: named::<QueueName>("default"),
            priority: i32::try_from(rng.below(3)).unwrap_or(0),
            submitted_at: Timestamp(0),
            gangs,
            policy,
            turn: phalanx_model::Turn::default(),
        };
        (job, script)
    }

    fn any_gang(&mut self) -> Gang {
        // Of nodes that are there: a gang that waits for others may wait for ever.
        let there: Vec<NodeName> = self.world.engine().nodes().map(|n| n.name.clone()).collect();
        let rng = &mut self.rng;
        let nodes = match rng.chance(15) {
            true => there.into_iter().filter(|_| rng.chance(60)).collect(),
            false => Vec::new(),
        };
        let mut levels: Vec<&str> = LEVELS.iter().copied().take(3).collect();
        levels.extend(["node", "nvlink", "pcie", "socket"]);
        let size = u32::try_from(rng.between(1, 8)).unwrap_or(1);
        let level = |percent: u64, rng: &mut Rng| {
            let picked = rng.pick(&levels).map(|l| named::<LevelName>(l));
            picked.filter(|_| rng.chance(percent))
        };
        let devices = u32::try_from(rng.below(4)).unwrap_or(0);
        let topology = Topology {
            required: level(30, rng),
            preferred: level(30, rng),
            wait_ms: rng.below(60_000),
            segments: any_segments(&levels, devices, rng),
            ..Topology::default()
        };
        Gang {
            size,
            min: size,
            max: size,
            needs: Needs {
                devices,
                models: if rng.chance(10) { Needs::of_model("v100") } else { Vec::new() },
                cpu_milli: rng.below(4) * 500,
                memory_bytes: rng.below(4) << 29,
                nodes,
                ..Needs::default()
            },
            members_per_node: rng.chance(15).then_some(1),
            topology,
            traffic: None,
            program: Program::default(),
            roles: Vec::new(),
            grid: Vec::new(),
        }
    }

    /// No more faults; every node is there, open, and ours alone.
    fn heal(&mut self) -> Result<(), Failure> {
        self.world.set_faults(Faults::none());
        let nodes: Vec<Node> = self.world.declared().map(|(n, _)| n.clone()).collect();
        nodes.into_iter().try_for_each(|node| {
            self.world.add_node(Node { admin: Admin::Open, foreign: DeviceMask::EMPTY, ..node })
        })
    }

    /// All work ends, nothing is held, and nothing is left to decide.
    fn finish(&mut self) -> Result<(), Failure> {
        let until = self.world.now().plus(LIVENESS_MS);
        for _ in 0..LIVENESS_TURNS {
            match self.world.next_at() {
                Some(at) if at <= until => self.world.advance_to(at)?,
                _ => break,
            }
        }
        let stuck: Vec<String> = self
            .world
            .engine()
            .jobs()
            .flat_map(|(_, records)| records)
            .filter(|r| !r.is_finished())
            .map(|r| format!("{r:?}, {:?}", self.world.engine().reason(r.id)))
            .collect();
        if !stuck.is_empty() {
            return Err(self
                .world
                .failure(FailureKind::Liveness, format!("never ended: {}", stuck.join("; "))));
        }
        if !self.world.checker().holds_nothing() || !self.world.living().is_empty() {
            let what = "all work ended, and something is still held".to_owned();
            return Err(self.world.failure(FailureKind::Correctness, what));
        }
        let mut copy = self.world.engine().clone();
        let mut out = Outcome::default();
        let _ = copy.step(self.world.now(), &[], &mut out);
        if out != Outcome::default() {
            let what = format!("a settled engine still decides: {out:?}");
            return Err(self.world.failure(FailureKind::Correctness, what));
        }
        Ok(())
    }
}

/// None most often, or one or two inside each other. Some do not nest, or name a level that is not there: those are
/// refused. Members without devices are in no group inside a node.
fn any_segments(levels: &[&str], devices: u32, rng: &mut Rng) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let is_in_node = |level: &str| ["nvlink", "pcie", "socket"].contains(&level);
    for level in levels.iter().filter(|level| devices > 0 || !is_in_node(level)) {
        if segments.len() < 2 && rng.chance(10) {
            let most = segments.last().map_or(6, |outer| u64::from(outer.size));
            let size = u32::try_from(rng.between(1, most)).unwrap_or(1);
            segments.push(Segment { size, level: named(level) });
        }
    }
    segments
}

/// A name that is a constant, or made of one and a number.
fn named<T: TryFrom<String>>(text: &str) -> T {
    T::try_from(text.to_owned()).unwrap_or_else(|_| unreachable!("a constant is a name"))
}
