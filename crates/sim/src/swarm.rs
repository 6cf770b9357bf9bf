//! The seeded swarm: a random cluster, random work and random faults; then everything is healed, and all work
//! must end.

mod kinds;
mod serving;
mod sharing;

use std::fmt;
use std::sync::Arc;

use phalanx_engine::Config;
use phalanx_model::{
    Admin, Advisory, DeviceMask, DomainName, Exit, FailureClass, Gang, Input, Job, JobId, JobName, LevelName,
    Levels, Needs, Node, NodeName, Outcome, Owner, Phase, Policy, Program, QueueBound, QueueName,
    QueueReport, Reason, Retry, Segment, Stop, Timestamp, Topology,
};
use phalanx_scenario::{Script, Shape};

use crate::{Failure, FailureKind, Faults, Rng, World};
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
    let is_shared = !seed.is_multiple_of(3);
    run(seed, Some(Rng::new(!seed)), is_shared.then(|| Sharing::new(Rng::new(seed.rotate_left(32)))))
}

/// The same with members alone that need devices, CPUs and memory: what a seed was before there were other kinds.
///
/// # Panics
/// Where the engine does: a broken invariant.
#[must_use]
pub fn plain_swarm(seed: u64) -> SwarmReport {
    run(seed, None, None)
}

fn run(seed: u64, kinds: Option<Rng>, sharing: Option<Sharing>) -> SwarmReport {
    let mut rng = Rng::new(seed);
    let mut parameters = parameters(&mut rng);
    if sharing.is_some() {
        parameters = Parameters { is_shared: true, jobs: parameters.jobs * 2, ..parameters };
    }
    let config = Config { bypass_max: parameters.bypass_max };
    let mut world = World::new(config, parameters.faults, rng.bits());
    if parameters.faults == Faults::none() && parameters.is_shared {
        world = world.keeping_promises();
    }
    let serving = Serving::new(Rng::new(seed.rotate_left(16)));
    let mut swarm = Swarm { world, rng, kinds, sharing, serving, parameters, submitted: 0, crashes: 0 };
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

struct Swarm {
    world: World,
    rng: Rng,
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
        if let Some(sharing) = &mut self.sharing {
            let devices = self.world.declared().map(|(node, _)| u64::from(node.machine.device_count())).sum();
            let facts = sharing.build(devices);
            self.world.tell(facts)?;
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
            spot: None,
            torus: None,
        }
    }

    /// One thing happens.
    fn turn(&mut self) -> Result<(), Failure> {
        if self.sharing.is_some() && self.rng.chance(15) {
            return self.operate();
        }
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
                // Where promises are kept, nothing comes late.
                match self.world.checker().is_strict {
                    true => self.world.advance_to(self.world.now().plus(ms)),
                    false => self.world.jump(ms),
                }
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
            self.world.tell([fact])?;
        }
        match self.sharing.as_mut().and_then(|sharing| sharing.act(&jobs, now)) {
            Some(Act::Tell(fact)) => self.world.tell([fact]),
            Some(Act::Save(job)) => self.world.save(job),
            None => Ok(()),
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
            ..Policy::default()
        };
        let mut script = Script {
            starts_ms: (!rng.chance(3)).then(|| rng.below(5_000)),
            runs_ms: Some(rng.below(120_000)),
            code: i32::try_from(rng.below(5) / 4).unwrap_or(0),
            term_ms: (!rng.chance(20)).then(|| rng.below(40_000)),
            fail_start: rng.chance(3).then_some(0),
            ..Script::default()
        };
        let mut job = Job {
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
        if let Some(sharing) = &mut self.sharing {
            let others: Vec<JobId> = self.world.engine().jobs().map(|(job, _)| job.id).collect();
            sharing.vary(&mut job, &mut script, &others, self.world.now());
            self.serving.vary(&mut job);
        }
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

    /// No more faults; every node is there, open, and ours alone; nobody is held back or limited.
    fn heal(&mut self) -> Result<(), Failure> {
        self.world.set_faults(Faults::none());
        let nodes: Vec<Node> = self.world.declared().map(|(n, _)| n.clone()).collect();
        nodes.into_iter().try_for_each(|node| {
            self.world.add_node(Node { admin: Admin::Open, foreign: DeviceMask::EMPTY, ..node })
        })?;
        let Some(sharing) = &mut self.sharing else { return Ok(()) };
        let mut facts = sharing.heal();
        let held = self.world.engine().jobs().filter(|(job, _)| job.turn.held_by.is_some());
        let by = || "operator".to_owned();
        facts.extend(held.map(|(job, _)| Input::JobReleased { job: job.id, by: by() }));
        self.world.tell(facts)
    }

    /// All work ends, nothing is held, and nothing is left to decide.
    fn finish(&mut self) -> Result<(), Failure> {
        let is_owed = |reason: &Reason| matches!(reason, Reason::QueueLimit(limit) if matches!(limit.bound, QueueBound::Kept(_)));
        if let Some(sharing) = &mut self.sharing {
            let facts = sharing.owe_nothing();
            // Only what is owed to others, and who waits for that, may wait.
            let follows = |reason: &Reason| {
                matches!(
                    reason,
                    Reason::Dependency { .. } | Reason::ArrayLimit { .. } | Reason::Resting { .. }
                )
            };
            self.work_out(|reason| is_owed(reason) || follows(reason))?;
            self.world.tell(facts)?;
        }
        self.work_out(|_| false)?;
        if !self.world.checker().holds_nothing() || !self.world.living().is_empty() {
            let what = "all work ended, and something is still held".to_owned();
            return Err(self.world.failure(FailureKind::Correctness, what));
        }
        let in_use =
            |report: &QueueReport| report.running > 0 || report.goods.iter().any(|good| good.used > 0);
        if let Some(report) = self.world.engine().queues().into_iter().find(in_use) {
            let what = format!("all work ended, and a queue still uses something: {report:?}");
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

    /// Time passes until nothing happens any more; who has not ended then waits for a reason that is good enough.
    fn work_out(&mut self, is_good: impl Fn(&Reason) -> bool) -> Result<(), Failure> {
        let until = self.world.now().plus(LIVENESS_MS);
        for _ in 0..LIVENESS_TURNS {
            match self.world.next_at() {
                Some(at) if at <= until => self.world.advance_to(at)?,
                _ => break,
            }
        }
        let engine = self.world.engine();
        let records = engine.jobs().flat_map(|(_, records)| records).filter(|r| !r.is_finished());
        let stuck: Vec<String> = records
            .filter(|r| !(r.is_pending() && engine.reason(r.id).as_ref().is_some_and(&is_good)))
            .map(|r| {
                format!(
                    "{r:?}, {:?}, {:?}",
                    engine.reason(r.id),
                    engine.job(r.id.job).map(|job| &job.gangs[usize::from(r.id.index)])
                )
            })
            .collect();
        if stuck.is_empty() {
            return Ok(());
        }
        Err(self.world.failure(FailureKind::Liveness, format!("never ended: {}", stuck.join("; "))))
    }
}

/// None most often, or one or two inside each other. Some do not nest, or name a level that is not there: those are
/// refused. Members without devices are in no group inside a node.
fn any_segments(levels: &[&str], devices: u32, rng: &mut Rng) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let is_in_node = |level: &str| ["nvlink", "pcie", "socket"].contains(&level);
    for level in levels.iter().filter(|level| devices > 0 || !is_in_node(level)) {
        // Two levels inside the node that do not nest are searched within a budget only, and may wait for ever.
        let is_second = is_in_node(level) && segments.iter().any(|outer| is_in_node(outer.level.as_str()));
        if segments.len() < 2 && rng.chance(10) && !is_second {
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
