//! The engine on the same state: facts in, the placement out of `StartMembers`.

use std::sync::Arc;

use phalanx_discover::topo_m;
use phalanx_engine::{Config, Engine, Placer};
use phalanx_model::{
    CostTable, DeviceMask, DomainName, Epoch, Exit, Gang, Input, Job, JobId, JobName, LevelName, Levels,
    Machine, MemberId, Needs, Node, NodeName, Order, Outcome, Owner, Pattern, Policy, Program, QueueName,
    Segment, ShapeCost, Timestamp, Topology, Traffic,
};

use super::{Ask, Cluster, GPUS_PER_NODE, Placed};

/// The matrix of a machine with 8 GPUs behind `NVSwitch` and 8 rails.
const MACHINE: &str = include_str!("../../../fixtures/topo_m/h100-nvswitch-8.txt");
/// One rail: 400 Gb/s.
pub(crate) const RAIL_MB_PER_S: u32 = 50_000;

/// An engine with a cluster's nodes.
pub(crate) struct Ours {
    engine: Engine,
    levels: Vec<LevelName>,
    nodes: Vec<(NodeName, usize)>,
    out: Outcome,
    jobs: u64,
}

/// The machine of every node.
pub(crate) fn machine() -> Result<Machine, String> {
    let read = topo_m::parse(MACHINE).map_err(|e| e.to_string())?;
    let mut machine = read.with_model("NVIDIA H100 80GB HBM3", 80 << 30).machine;
    for nic in &mut machine.nics {
        nic.bytes_per_s = Some(u64::from(RAIL_MB_PER_S) * 1_000_000);
    }
    (machine.cpu_milli, machine.memory_bytes) = (192_000, 2 << 40);
    Ok(machine)
}

/// The levels and nodes of a cluster as the engine knows them; what is not free is held by others.
fn facts(cluster: &Cluster, costs: &mut CostTable) -> Result<(Levels, Vec<Node>), String> {
    let name = |e: phalanx_model::NameError| e.to_string();
    let machine = Arc::new(machine()?);
    let shape: ShapeCost = phalanx_cost::shape_cost(&machine);
    costs.shapes.insert(machine.shape.clone(), shape);
    let above: Vec<LevelName> =
        cluster.levels.iter().map(LevelName::new).collect::<Result<_, _>>().map_err(name)?;
    let levels = Levels::new(above, LevelName::new("node").map_err(name)?);
    let mut nodes = Vec::new();
    for ((text, path), free) in cluster.names.iter().zip(&cluster.paths).zip(&cluster.free) {
        let path = path.iter().map(DomainName::new).collect::<Result<_, _>>().map_err(name)?;
        let node = Node::new(NodeName::new(text).map_err(name)?, path, Arc::clone(&machine));
        nodes.push(Node { foreign: DeviceMask::first(GPUS_PER_NODE - free), ..node });
    }
    Ok((levels, nodes))
}

/// A search for places alone, on a cluster's nodes.
pub(crate) fn placer(cluster: &Cluster, mut costs: CostTable) -> Result<Placer, String> {
    let (levels, nodes) = facts(cluster, &mut costs)?;
    Ok(Placer::new(&levels, nodes, &costs))
}

impl Ours {
    /// What is not free is held by others. `costs` says what uplinks carry; shapes are filled in.
    pub(crate) fn new(cluster: &Cluster, mut costs: CostTable) -> Result<Self, String> {
        let (levels, facts) = facts(cluster, &mut costs)?;
        let mut nodes: Vec<(NodeName, usize)> = facts.iter().map(|node| node.name.clone()).zip(0..).collect();
        let above = levels.above.clone();
        let mut inputs = vec![Input::LevelsConfigured { levels }, Input::CostsCompiled { table: costs }];
        inputs.extend(facts.into_iter().map(|node| Input::NodeObserved { node: Box::new(node) }));
        nodes.sort();
        let mut ours = Self {
            engine: Engine::new(Epoch(1), Config::default()),
            levels: above,
            nodes,
            out: Outcome::default(),
            jobs: 0,
        };
        ours.step(&inputs)?;
        Ok(ours)
    }

    /// Steps at a standing clock, so that no deadline passes; facts that are refused are errors.
    fn step(&mut self, inputs: &[Input]) -> Result<(), String> {
        let _ = self.engine.step(Timestamp(0), inputs, &mut self.out);
        let refused = self.out.changes.iter().find_map(|change| match change {
            phalanx_model::Change::InputRejected { what, why } => Some(format!("{what}: {why}")),
            _ => None,
        });
        refused.map_or(Ok(()), Err)
    }

    /// Submits a gang that sends `bytes` in an all-reduce. Where it was placed, and its job; a gang that
    /// would have to wait is taken back.
    pub(crate) fn place(&mut self, ask: &Ask, bytes: u64) -> Result<Option<(JobId, Placed)>, String> {
        self.jobs += 1;
        let id = JobId(self.jobs);
        let job = Box::new(self.job(id, ask, bytes)?);
        self.step(&[Input::JobSubmitted { job }])?;
        let started = self.out.effects.iter().find_map(|effect| match &effect.order {
            Order::StartMembers { gang, placement, .. } if gang.job == id => Some(placement.clone()),
            _ => None,
        });
        let Some(placement) = started else {
            self.step(&[Input::CancelRequested { job: id, by: "bench".to_owned() }]).ok();
            self.step(&[Input::JobForgotten { job: id }])?;
            return Ok(None);
        };
        let mut placed = Placed::new();
        for slot in &placement.slots {
            let at = self.nodes.binary_search_by(|(name, _)| name.cmp(&slot.node));
            let node =
                at.ok().and_then(|at| self.nodes.get(at)).ok_or("placed on a node that is not there")?.1;
            match placed.last_mut() {
                Some((last, pods)) if *last == node => *pods += 1,
                _ => placed.push((node, 1)),
            }
        }
        Ok(Some((id, placed)))
    }

    /// Ends a gang that was placed.
    pub(crate) fn release(&mut self, id: JobId, pods: u32) -> Result<(), String> {
        let member = |rank| MemberId { gang: id.gang(0), attempt: 1, rank };
        let cancel = Input::CancelRequested { job: id, by: "bench".to_owned() };
        let exits =
            (0..pods).map(|rank| Input::MemberExited { member: member(rank), exit: Exit::succeeded() });
        let inputs: Vec<Input> =
            std::iter::once(cancel).chain(exits).chain([Input::JobForgotten { job: id }]).collect();
        self.step(&inputs)
    }

    fn job(&self, id: JobId, ask: &Ask, bytes: u64) -> Result<Job, String> {
        let name = |e: phalanx_model::NameError| e.to_string();
        let level = |at: Option<usize>| at.and_then(|at| self.levels.get(at)).cloned();
        let segment = ask.slice.and_then(|s| Some(Segment { size: s.pods, level: level(Some(s.level))? }));
        let gang = Gang {
            size: ask.pods,
            min: ask.pods,
            max: ask.pods,
            needs: Needs { devices: ask.gpus, ..Needs::default() },
            members_per_node: None,
            // Which domain is best follows from the costs; what is preferred would only add a wait.
            topology: Topology {
                required: level(ask.required),
                segments: segment.into_iter().collect(),
                ..Topology::default()
            },
            traffic: Some(Traffic { pattern: Pattern::AllReduce, bytes, compute_ns: 0 }),
            program: Program::default(),
            roles: Vec::new(),
            grid: Vec::new(),
        };
        Ok(Job {
            id,
            name: JobName::new(format!("job-{}", id.0)).map_err(name)?,
            key: None,
            owner: Owner { uid: 1_000, gid: 1_000, name: "bench".to_owned() },
            queue: QueueName::new("default").map_err(name)?,
            priority: 0,
            submitted_at: Timestamp(id.0),
            gangs: vec![gang],
            policy: Policy::default(),
            turn: phalanx_model::Turn::default(),
        })
    }
}
