//! The nodes and jobs of a swarm, drawn from its seed.

use std::sync::Arc;

use phalanx_model::{
    Advisory, DeviceMask, DomainName, FailureClass, Gang, Input, Job, JobId, JobName, LevelName, Needs, Node,
    NodeName, Owner, Policy, Program, QueueName, Retry, Segment, Stop, Tasks, Timestamp, Topology,
};
use phalanx_scenario::{Script, Shape};

use super::{LEVELS, Swarm, kinds, named};
use crate::Rng;

impl Swarm<'_> {
    pub(super) fn any_node(&mut self, index: u64) -> Node {
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
        let path =
            (0..self.parameters.levels).map(|_| named::<DomainName>(&format!("n{}", rng.below(3)))).collect();
        let foreign = DeviceMask(foreign).and(machine.device_mask());
        let mut node = Node { foreign, ..Node::new(name, path, Arc::new(machine)) };
        if let Some(rng) = &mut self.kinds {
            kinds::surround(&mut node, rng);
        }
        node
    }

    /// Cancels a job, or one task of an array.
    pub(super) fn any_cancel(&mut self, job: JobId) -> Input {
        let by = "user".to_owned();
        let array = self.world.engine().job(job).and_then(|job| job.turn.array.clone());
        match array.filter(|_| self.rng.chance(50)) {
            Some(array) => {
                let numbers: Vec<u32> = array.tasks.numbers().collect();
                let number = self.rng.pick(&numbers).copied().unwrap_or_default();
                Input::TasksCancelRequested { job, tasks: Tasks::one(number), by }
            }
            None => Input::CancelRequested { job, by },
        }
    }

    pub(super) fn any_started(&mut self) -> Option<JobId> {
        let jobs: Vec<JobId> = self.world.engine().jobs().map(|(job, _)| job.id).collect();
        self.rng.pick(&jobs).copied()
    }

    pub(super) fn any_job(&mut self) -> (Job, Script) {
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
            id: self.world.next_job(),
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
        // Only nodes that exist: a gang that waits for other nodes may wait for ever.
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
}

/// Most often none, else one or two nested segments. Some do not nest, or name a level that does not exist: those are
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
