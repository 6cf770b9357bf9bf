//! The engine that is derived from the objects of a cluster: what a scheduler that begins now would know, before it decides
//! anything.
//!
//! The facts are followed with an empty plan, so a gang is shown as placed only if the scheduler that leads has written its
//! placement on its pods. Why gangs wait and when they may start is worked out from these facts by the same code.

use std::collections::BTreeSet;

use phalanx_health::Line;
use phalanx_model::{CostTable, Epoch, Input, Job, JobId, LevelName, Levels, NodeName, Plan, Timestamp};
use phalanx_shell::{Config, Engine, cost};
use phalanx_views::Map;

use super::objects::Objects;
use crate::gang::{Lifecycle, Numbers, Options, Outside};
use crate::messages::Event;

/// The level of nodes if the cluster says nothing of levels.
const NODE: &str = "node";

/// See the module.
pub(super) struct Picture {
    /// Counts pictures: another number is another picture.
    pub(super) number: u64,
    pub(super) engine: Engine,
    pub(super) map: Map,
    /// Gangs that wait and that the engine does not have, by number.
    pub(super) outside: Vec<Outside>,
    /// What agents of nodes found wrong, worst first.
    pub(super) health: Vec<Line>,
    /// Nodes whose agents report.
    pub(super) agents: usize,
    /// Why the circuit breaker holds grades, if it does.
    pub(super) breaker: Option<String>,
    /// Kinds that the API server refuses to list.
    pub(super) unread: Vec<&'static str>,
}

impl Picture {
    /// Derives the engine from the objects; gangs that were known keep their numbers.
    pub(super) fn derive(
        objects: &Objects,
        options: &Options,
        numbers: &mut Numbers,
        (number, now): (u64, Timestamp),
    ) -> Option<Self> {
        let mut lifecycle = Lifecycle::new(options.clone()).numbered(std::mem::take(numbers));
        let (mut health, mut agents, mut unread) = (Vec::new(), 0, Vec::new());
        for event in objects.events() {
            match event {
                Event::Found { node, found: Some(found) } => {
                    agents += 1;
                    if let Ok(node) = NodeName::new(node.clone()) {
                        health.extend(found.grades.iter().map(|(device, of)| of.line(&node, *device)));
                    }
                }
                Event::Unreadable { list, .. } => unread.push(*list),
                _ => {}
            }
            lifecycle.observe(now, event.clone());
        }
        health.sort_by_key(|line| std::cmp::Reverse(line.grade));
        let facts = lifecycle.begin(now);
        let breaker = lifecycle.health().1.map(str::to_owned);
        let mut engine = Engine::new(Epoch(1), Config::default());
        engine.follow(now, &facts, &Plan::default(), &[]);
        let mut outside = lifecycle.outside(|job| engine.job(job).is_some());
        outside.sort_by_key(|of| of.id);
        *numbers = lifecycle.numbers();
        let map = map_of(&facts)?;
        Some(Self { number, engine, map, outside, health, agents, breaker, unread })
    }

    /// The namespaces that have jobs.
    pub(super) fn namespaces(&self) -> Vec<&str> {
        let of_engine = self.engine.jobs().map(|(job, _)| namespace(job));
        let named: BTreeSet<&str> =
            of_engine.chain(self.outside.iter().map(|of| of.namespace.as_str())).collect();
        named.into_iter().collect()
    }

    /// The jobs of the engine and those outside of it: number, name and namespace.
    pub(super) fn jobs(&self) -> impl Iterator<Item = (JobId, &str, &str)> {
        let of_engine = self.engine.jobs().map(|(job, _)| (job.id, job.name.as_str(), namespace(job)));
        of_engine.chain(self.outside.iter().map(|of| (of.id, &*of.name, &*of.namespace)))
    }
}

/// The namespace of the pods of a job.
pub(super) fn namespace(job: &Job) -> &str {
    &job.owner.name
}

/// Levels and costs, as the facts configure them.
fn map_of(facts: &[Input]) -> Option<Map> {
    let (mut levels, mut costs) = (None, CostTable::default());
    for fact in facts {
        match fact {
            Input::LevelsConfigured { levels: said } => levels = Some(said.clone()),
            Input::CostsCompiled { table } => costs = table.clone(),
            _ => {}
        }
    }
    let levels = match levels {
        Some(levels) => levels,
        None => Levels::new(Vec::new(), LevelName::new(NODE).ok()?),
    };
    Some(Map { levels, costs, constants: cost::Constants::DEFAULT })
}
