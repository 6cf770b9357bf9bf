//! Crowds: heads of the queue that need much, and a stream of small jobs behind them. A gang is protected in many ways,
//! and each of these clusters has something beside the heads that once removed the protection.

use phalanx_model::{
    DeviceMask, DomainLimit, Gang, Input, Job, LevelName, Levels, Needs, Node, NodeName, Policy, Program,
    Settings, Topology, Turn,
};
use phalanx_scenario::{Script, Shape};

use super::{Operation, Swarm, named};
use crate::{Failure, Rng};

/// A crowd has random numbers of its own.
pub(super) struct Crowd {
    rng: Rng,
    /// Whether the ends of small jobs are known.
    has_limits: bool,
    /// Heads and small jobs need some of a resource that their domain has for all of its nodes.
    has_power: bool,
    /// Small jobs left.
    stream: u64,
}

impl Crowd {
    pub(super) fn new(mut rng: Rng) -> Self {
        let (has_limits, has_power) = (rng.chance(50), rng.chance(25));
        let stream = rng.between(30, 60);
        Self { rng, has_limits, has_power, stream }
    }

    fn gang(&self, size: u32, devices: u32, nodes: &[NodeName]) -> Gang {
        let mut needs = Needs { devices, nodes: nodes.to_vec(), ..Needs::default() };
        if self.has_power {
            needs.named.insert(named("power"), u64::from(devices));
        }
        Gang {
            size,
            min: size,
            max: size,
            needs,
            members_per_node: None,
            topology: Topology::default(),
            traffic: None,
            program: Program::default(),
            roles: Vec::new(),
            grid: Vec::new(),
        }
    }

    fn script(runs_ms: Option<u64>) -> Script {
        Script { runs_ms, ..Script::default() }
    }
}

impl Swarm<'_> {
    /// Builds the cluster, the gangs that run in it, the heads, and then the stream.
    pub(super) fn crowd(&mut self, mut crowd: Crowd) -> Result<(), Failure> {
        let nodes = crowd.rng.between(1, 3);
        self.draw_cluster(&mut crowd, nodes)?;
        let first: NodeName = named("n0");
        let here = std::slice::from_ref(&first);
        let is_disputed = crowd.rng.chance(30);
        if is_disputed {
            // A gang holds the device that others then use.
            let bad = node("bad", 8, "H100");
            self.happen(Operation::Node(Box::new(bad.clone())))?;
            let mut holder = crowd.gang(1, 8, &[named("bad")]);
            holder.needs.named.clear();
            self.submit(holder, Policy::default(), Crowd::script(Some(120_000)))?;
            self.happen(Operation::Pass(2_000))?;
            self.observe_use(&bad, DeviceMask(crowd.rng.bits() & 0xff))?;
        }
        for _ in 0..2 {
            self.small(&mut crowd, here)?;
            self.happen(Operation::Pass(crowd.rng.below(1_500)))?;
        }
        if crowd.rng.chance(30) {
            // No present node can hold this gang.
            let away = node("away", 8, "H100");
            self.happen(Operation::Node(Box::new(away.clone())))?;
            self.happen(Operation::Lose(away.name.clone()))?;
            self.submit(crowd.gang(1, 8, &[away.name]), Policy::default(), Crowd::script(Some(1_000)))?;
        }
        for _ in 0..crowd.rng.between(1, 2) {
            let (size, devices) = *crowd.rng.pick(&[(8, 1), (1, 8), (2, 4), (4, 2)]).unwrap_or(&(8, 1));
            let on = if crowd.rng.chance(50) { here } else { &[] };
            let head = crowd.gang(size, devices, on);
            self.submit(head, Policy::default(), Crowd::script(Some(5_000)))?;
        }
        while crowd.stream > 0 {
            crowd.stream -= 1;
            self.small(&mut crowd, here)?;
            self.happen(Operation::Pass(crowd.rng.between(500, 1_500)))?;
            self.meddle(&mut crowd, nodes)?;
        }
        Ok(())
    }

    fn draw_cluster(&mut self, crowd: &mut Crowd, nodes: u64) -> Result<(), Failure> {
        let level: LevelName = named("cluster");
        let mut levels = Levels::new(vec![level.clone()], named("node"));
        if crowd.has_power {
            let amount = crowd.rng.between(8, 12);
            levels.limits.push(DomainLimit { level, path: None, resource: named("power"), amount });
        }
        self.tell(Input::LevelsConfigured { levels })?;
        let settings =
            Settings { reservation_depth: *crowd.rng.pick(&[1, 1, 2]).unwrap_or(&1), ..Settings::default() };
        self.tell(Input::SettingsConfigured { settings: Box::new(settings) })?;
        for at in 0..nodes {
            let model = if crowd.rng.chance(70) { "H100" } else { "A100" };
            self.happen(Operation::Node(Box::new(node(&format!("n{at}"), 8, model))))?;
        }
        if crowd.rng.chance(40) {
            // At all times: a gang that could go there if the node were open waits for running gangs all the same.
            self.happen(Operation::Node(Box::new(node("closed", 8, "H100"))))?;
            self.tell(Input::NodeCordoned { node: named("closed") })?;
        }
        Ok(())
    }

    /// A small job, most often on one node, so that it delays a head.
    fn small(&mut self, crowd: &mut Crowd, here: &[NodeName]) -> Result<(), Failure> {
        let devices = u32::try_from(crowd.rng.between(2, 4)).unwrap_or(4);
        let on = if crowd.rng.chance(80) { here } else { &[] };
        let gang = crowd.gang(1, devices, on);
        let runs_ms = crowd.rng.between(500, 1_500);
        let policy = Policy {
            time_limit_ms: crowd.has_limits.then_some(2_000),
            start_deadline_ms: 3_000,
            ..Policy::default()
        };
        self.submit(gang, policy, Crowd::script(Some(runs_ms)))
    }

    fn submit(&mut self, gang: Gang, policy: Policy, script: Script) -> Result<(), Failure> {
        self.submitted += 1;
        let job = Job {
            id: self.world.next_job(),
            name: named(&format!("job-{}", self.submitted)),
            gangs: vec![gang],
            policy,
            turn: Turn::default(),
            ..self.any_job().0
        };
        self.happen(Operation::Submit { job: Box::new(Job { key: None, priority: 0, ..job }), script })
    }

    /// Now and then a leader dies, another version reads a journal, or others come to a node and go again.
    fn meddle(&mut self, crowd: &mut Crowd, nodes: u64) -> Result<(), Failure> {
        match crowd.rng.below(100) {
            0..2 => {
                self.crashes += 1;
                self.happen(Operation::Crash)
            }
            2..4 if nodes > 1 => {
                let last = node(&format!("n{}", nodes - 1), 8, "H100");
                let devices = DeviceMask(crowd.rng.bits() & crowd.rng.bits() & 0xff);
                self.observe_use(&last, devices)
            }
            _ => Ok(()),
        }
    }

    /// Observes the use of a node by others. This function alone states how that is reported.
    fn observe_use(&mut self, node: &Node, devices: DeviceMask) -> Result<(), Failure> {
        self.happen(Operation::Node(Box::new(Node { foreign: devices, ..node.clone() })))
    }
}

fn node(name: &str, devices: u32, model: &str) -> Node {
    let mut machine = Shape::NvSwitch
        .machine(devices, model)
        .unwrap_or_else(|_| unreachable!("a constant model is a name"));
    (machine.cpu_milli, machine.memory_bytes) = (96_000, 1 << 40);
    Node::new(named(name), vec![named("cluster")], std::sync::Arc::new(machine))
}
