//! Measures steps in which nodes change, and the cancel of a large array: in an idle cluster and in a full one.

use std::fmt::Write;

use phalanx_model::later::SpotNotice;
use phalanx_model::{Array, DeviceMask, Input, Job, Node, NodeName, Policy, Tasks, Turn};

use super::figures::Unit;
use super::load::job;
use super::trials::{Trial, add};
use super::world::{Stepped, World};
use super::{Asked, BURST_PART, Sizes};
use crate::placement::mix;

/// Nodes that change in one step, of 64 nodes: 1,000 of 12,800.
const CHANGED_OF_64: usize = 5;
/// The changed nodes are this far apart, so that they are in every leaf.
const CHANGED_STRIDE: usize = 11;
/// The engine refuses jobs with more gangs.
const TASKS_MAX: usize = 10_000;
/// From the notice of a node until its provider reclaims the node.
const NOTICE_MS: u64 = 10_000_000;
/// CPU that foreign pods use on a node.
const FOREIGN_CPU_MILLI: u64 = 1_000;

/// Measures in an idle cluster.
pub(super) fn idle(asked: &Asked, trial: &mut Trial<'_>) -> Result<(), String> {
    if let Some(often) = asked.samples("cordon") {
        trial.cordon(often)?;
    }
    at_once(asked, trial, "idle")
}

/// Measures in a full cluster.
pub(super) fn full(asked: &Asked, trial: &mut Trial<'_>) -> Result<(), String> {
    if let Some(often) = asked.samples("foreign_use") {
        trial.foreign_use(often)?;
    }
    at_once(asked, trial, "full")
}

/// Whether a measurement that needs an idle cluster is asked for.
pub(super) fn needs_idle(asked: &Asked) -> bool {
    ["cordon", "remove", "drain", "notice", "array_cancel"].iter().any(|name| asked.samples(name).is_some())
}

/// Measures single steps that change much. Each sample has a copy of the cluster, which no earlier sample changed.
fn at_once(asked: &Asked, trial: &mut Trial<'_>, cluster: &str) -> Result<(), String> {
    let reclaimed_at = trial.world.now.plus(NOTICE_MS);
    if let Some(often) = asked.samples("remove") {
        trial.nodes_at_once(&format!("remove_{cluster}"), often, |node| Input::NodeRemoved { node });
    }
    if let Some(often) = asked.samples("drain") {
        trial.nodes_at_once(&format!("drain_{cluster}"), often, |node| Input::DrainRequested { node });
    }
    if let Some(often) = asked.samples("notice") {
        trial.nodes_at_once(&format!("notice_{cluster}"), often, |node| Input::SpotNoticed {
            notice: SpotNotice { node, ends_at: reclaimed_at },
        });
    }
    if let Some(often) = asked.samples("array_cancel") {
        let tasks = tasks(&asked.sizes);
        let half = u32::try_from(tasks / 2).ok();
        for (limit, running_max) in [("", None), ("_half", half), ("_one", Some(1))] {
            let name = format!("array_cancel_{cluster}{limit}");
            trial.array_cancel(&name, often, tasks, running_max)?;
        }
    }
    Ok(())
}

/// Tasks of the array: as many as a burst has jobs.
fn tasks(sizes: &Sizes) -> usize {
    (sizes.pending / BURST_PART).clamp(2, TASKS_MAX)
}

impl Trial<'_> {
    /// Cordons one idle node in each step, then uncordons the nodes.
    fn cordon(&mut self, repeat: usize) -> Result<(), String> {
        let all: Vec<NodeName> = self.world.engine.nodes().map(|node| node.name.clone()).collect();
        let some = (0..repeat.min(all.len())).filter_map(|at| all.get(at * 7 % all.len()));
        let cordons = some.clone().map(|node| Input::NodeCordoned { node: node.clone() });
        self.one_by_one("cordon", cordons)?;
        self.one_by_one("uncordon", some.map(|node| Input::NodeUncordoned { node: node.clone() }))
    }

    /// Foreign pods come to a node and leave: first with CPU alone, then with one device. Gangs hold all devices of these
    /// nodes, so no pending gang can start there.
    fn foreign_use(&mut self, repeat: usize) -> Result<(), String> {
        let engine = &self.world.engine;
        let is_full = |node: &&Node| engine.free(&node.name).is_some_and(|free| free.devices.is_empty());
        let full: Vec<Node> = engine.nodes().filter(is_full).cloned().collect();
        if full.is_empty() {
            return Err("foreign_use needs a node whose devices are all in use; there is none".to_owned());
        }
        for (name, foreign) in
            [("foreign_use_cpu", DeviceMask::EMPTY), ("foreign_use_device", DeviceMask::one(0))]
        {
            let nodes = (0..repeat.div_ceil(2)).filter_map(|at| full.get(at * 13 % full.len()));
            let comes_and_goes = nodes.flat_map(|node| {
                let mut used = node.clone();
                used.foreign_use.cpu_milli = FOREIGN_CPU_MILLI;
                used.foreign = foreign;
                [used, node.clone()]
            });
            let observed = |node| Input::NodeObserved { node: Box::new(node) };
            self.one_by_one(name, comes_and_goes.map(observed))?;
        }
        Ok(())
    }

    /// One step for each input.
    fn one_by_one(&mut self, name: &str, inputs: impl Iterator<Item = Input>) -> Result<(), String> {
        let (mut times, mut sum) = (Vec::new(), Stepped::default());
        for input in inputs {
            self.world.pass(1)?;
            let did = self.world.step(&[input]);
            times.push(did.ns);
            add(&mut sum, &did);
            self.world.settle(|_| ())?;
        }
        self.figures.times(name, Unit::Us, &mut times);
        self.figures.count(&format!("{name}_started"), u64::from(sum.started));
        Ok(())
    }

    /// One step with an input for each of many nodes.
    fn nodes_at_once(&mut self, name: &str, repeat: usize, input: impl Fn(NodeName) -> Input) {
        let all: Vec<NodeName> = self.world.engine.nodes().map(|node| node.name.clone()).collect();
        let count = (all.len() * CHANGED_OF_64 / 64).max(1);
        let mut times = Vec::new();
        for round in 0..repeat {
            let some = all.iter().skip(round % CHANGED_STRIDE).step_by(CHANGED_STRIDE).take(count);
            let inputs: Vec<Input> = some.cloned().map(&input).collect();
            let mut world = self.world.clone();
            world.now = world.now.plus(1);
            times.push(world.step(&inputs).ns);
            self.end_of(world);
        }
        self.figures.times(name, Unit::Ms, &mut times);
        self.figures.count(&format!("{name}_nodes"), count as u64);
    }

    /// Cancels an array that has just been submitted. In an idle cluster as many of its tasks have started as may run at
    /// once, in a full cluster none.
    fn array_cancel(
        &mut self,
        name: &str,
        repeat: usize,
        tasks: usize,
        running_max: Option<u32>,
    ) -> Result<(), String> {
        let (mut times, mut started, mut ended) = (Vec::new(), 0, 0);
        for _ in 0..repeat {
            let mut world = self.world.clone();
            let array = self.array(world.next_job(), tasks, running_max)?;
            let id = array.id;
            world.now = world.now.plus(1);
            started += u64::from(world.step(&[Input::JobSubmitted { job: Box::new(array) }]).started);
            world.now = world.now.plus(1);
            let did = world.step(&[Input::CancelRequested { job: id, by: "bench".to_owned() }]);
            times.push(did.ns);
            ended += u64::from(did.ended);
            self.end_of(world);
        }
        self.figures.times(name, Unit::Ms, &mut times);
        self.figures.count(&format!("{name}_started"), started);
        self.figures.count(&format!("{name}_ended"), ended);
        Ok(())
    }

    /// Tasks of one GPU without a time limit, in a queue without a guarantee: these preempt nothing.
    fn array(&mut self, id: u64, tasks: usize, running_max: Option<u32>) -> Result<Job, String> {
        let open = &self.load.teams.last().ok_or("no queue works")?.queue.name;
        let one = job(id, mix::of_size(1), open, "training", self.world.now, &mut self.random)?;
        Ok(Job {
            gangs: vec![mix::of_size(1)],
            policy: Policy::default(),
            turn: Turn {
                array: Some(Array {
                    tasks: Tasks::first(u32::try_from(tasks).unwrap_or(u32::MAX)),
                    running_max,
                }),
                ..one.turn
            },
            ..one
        })
    }

    /// Keeps the refusal and the digest of a copy of the cluster.
    fn end_of(&mut self, copy: World) {
        // Writing to a number does not fail.
        let _ = write!(self.world.digest, "{}", copy.digest.0);
        if self.world.refused.is_none() {
            self.world.refused = copy.refused;
        }
    }
}
