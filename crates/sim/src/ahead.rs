//! What comes next: the production engine goes on from a snapshot in the modelled world, and each gang's course is written
//! down. Nothing of it is known, all of it is predicted: jobs end as [`Basis`] says.

use std::collections::BTreeMap;

use phalanx_engine::{Config, Engine};
use phalanx_model::{
    Change, Gang, GangId, GangRecord, Input, Job, NodeName, Phase, Preemption, QueueName, QueueReport,
    Reason, Resource, Snapshot, StopCause, Timestamp,
};
use phalanx_scenario::{Event, Script};
use phalanx_sentences as sentences;
use serde::Serialize;

use crate::{Failure, World};

/// From an order to start until the ranks run: as long as a container and a framework take to come up. Declared.
const START_MS: u64 = 30_000;
/// How often jobs save their work that were seen to do so, or can be asked to. Declared.
const SAVES_MS: u64 = 30 * 60 * 1_000;

/// What says when a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// How long its owner's jobs of that name took last.
    PastRuns,
    /// Its time limit.
    Limit,
    /// Nothing: it goes on.
    Nothing,
}

/// What a gang does from the moment of the snapshot on.
#[derive(Clone, Debug, Serialize)]
pub struct Course {
    pub job: String,
    pub queue: QueueName,
    pub devices: u32,
    pub basis: Basis,
    /// It holds its devices from the beginning.
    pub is_running: bool,
    /// Why it waits at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<Wait>,
    pub starts: Vec<Start>,
    /// It had to leave its nodes, and not by an end of its own.
    pub stops: Vec<Displaced>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<&'static str>,
    /// Devices times milliseconds for which it holds them.
    pub held_device_ms: u64,
    #[serde(skip)]
    holds_since: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// A stable word.
    pub reason: &'static str,
    /// As the engine says it.
    pub sentence: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Start {
    pub at: Timestamp,
    pub nodes: Vec<NodeName>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Displaced {
    pub at: Timestamp,
    /// As the engine says it.
    pub why: String,
    /// For whom, by which rule, and what it costs: where it makes way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction: Option<Preemption>,
}

/// A queue after the first step, and over the whole time.
#[derive(Clone, Debug, Serialize)]
pub struct QueueCourse {
    pub name: QueueName,
    pub depth: u32,
    pub weight_milli: u64,
    /// Of devices, in thousandths: what it is guaranteed, what is due to it, what it uses, and all there is.
    pub guaranteed: u64,
    pub due: Option<u64>,
    pub used: u64,
    pub capacity: u64,
    /// Devices times milliseconds that its gangs hold, those of queues below it included.
    pub held_device_ms: u64,
}

/// How it goes on.
#[derive(Clone, Debug)]
pub struct Ahead {
    pub gangs: BTreeMap<GangId, Course>,
    pub queues: Vec<QueueCourse>,
    /// What the engine did not take.
    pub refused: Vec<String>,
}

/// Lets a snapshot go on for so long, with changes that people make first.
///
/// # Errors
/// When the engine goes on and on without time passing.
pub fn ahead(snapshot: &Snapshot, changes: Vec<Input>, horizon_ms: u64) -> Result<Ahead, Failure> {
    let mut world = World::resume(snapshot, Config::default(), |engine, job| script(engine, job).0)?;
    let begin = world.now();
    let mut courses = Courses { gangs: BTreeMap::new() };
    courses.list(world.engine(), begin);
    world.told(changes, |engine, job| script(engine, job).0)?;
    courses.list(world.engine(), begin);
    courses.waits(world.engine());
    let reports = world.engine().queues();
    let mut events = world.take_events();
    let refused = events.iter().filter_map(|(_, event)| refusal(event)).collect();
    let until = begin.plus(horizon_ms);
    // Nodes that are taken back are gone then.
    let notices: BTreeMap<(Timestamp, NodeName), ()> =
        world.engine().notices().map(|notice| ((notice.ends_at, notice.node.clone()), ())).collect();
    for (at, node) in notices.into_keys().filter(|(at, _)| *at <= until) {
        world.advance_to(at)?;
        world.lose_node(&node)?;
    }
    world.advance_to(until)?;
    events.extend(world.take_events());
    for (at, event) in &events {
        if let Event::Changed(change) = event {
            courses.take(*at, change, world.engine());
        }
    }
    courses.close(until);
    let queues = queue_courses(&reports, &courses.gangs);
    Ok(Ahead { gangs: courses.gangs, queues, refused })
}

fn refusal(event: &Event) -> Option<String> {
    match event {
        Event::Changed(Change::JobRejected { why, .. }) => Some(why.to_string()),
        Event::Changed(Change::InputRejected { what, why }) => Some(format!("{what}: {why}")),
        _ => None,
    }
}

/// What the members of a job do, and what that rests on. Where its limit ends it, the engine does.
fn script(engine: &Engine, job: &Job) -> (Script, Basis) {
    let records = job.gang_ids().filter_map(|id| engine.gang(id));
    let mut is_saved = job.policy.stop.advisory.is_some();
    let mut ran_ms = 0;
    for record in records {
        is_saved |= record.checkpointed_at.is_some();
        if let Phase::Running { since } = record.phase {
            ran_ms = ran_ms.max(engine.now().since(since));
        }
    }
    // What ran longer than such jobs do is no such job.
    let likely = engine.likely_ms(job).map(|(ms, _)| ms).filter(|ms| *ms > ran_ms);
    let basis = match (likely, job.policy.time_limit_ms) {
        (Some(_), _) => Basis::PastRuns,
        (None, Some(_)) => Basis::Limit,
        (None, None) => Basis::Nothing,
    };
    let saves_ms = is_saved.then_some(SAVES_MS);
    let starts_ms = Some(START_MS.min(job.policy.start_deadline_ms / 2));
    (Script { starts_ms, runs_ms: likely, saves_ms, ..Script::default() }, basis)
}

struct Courses {
    gangs: BTreeMap<GangId, Course>,
}

impl Courses {
    /// Writes down gangs that are not known yet.
    fn list(&mut self, engine: &Engine, begin: Timestamp) {
        for (job, records) in engine.jobs() {
            for (gang, record) in job.each_gang().zip(records).filter(|(_, record)| !record.is_finished()) {
                let fresh = || course(engine, job, gang, record, begin);
                self.gangs.entry(record.id).or_insert_with(fresh);
            }
        }
    }

    fn waits(&mut self, engine: &Engine) {
        for (id, reason) in engine.reasons() {
            if matches!(reason, Reason::ScaledIn { .. }) {
                // It is not wanted, and so does not wait.
                self.gangs.remove(&id);
            } else if let Some(course) = self.gangs.get_mut(&id) {
                let sentence = sentences::reason(engine, &reason);
                course.waits = Some(Wait { reason: reason.word(), sentence });
            }
        }
    }

    fn take(&mut self, at: Timestamp, change: &Change, engine: &Engine) {
        match change {
            Change::GangPlaced { gang, placement, .. } => {
                let Some(course) = self.gangs.get_mut(gang) else { return };
                let mut nodes: Vec<NodeName> = placement.slots.iter().map(|slot| slot.node.clone()).collect();
                nodes.dedup();
                course.starts.push(Start { at, nodes });
                course.holds_since = Some(at);
            }
            Change::GangStopping { gang, cause, .. } => {
                let Some(course) = self.gangs.get_mut(gang) else { return };
                let eviction = match cause {
                    StopCause::Preempted(eviction) => Some(eviction.clone()),
                    StopCause::Displaced { .. } => None,
                    _ => return,
                };
                course.stops.push(Displaced { at, why: sentences::stop(engine, cause), eviction });
            }
            Change::GangRetrying { gang, .. } => self.release(*gang, at),
            Change::GangFinished { gang, ending } => {
                self.release(*gang, at);
                if let Some(course) = self.gangs.get_mut(gang) {
                    (course.ends_at, course.ending) = (Some(at), Some(ending.word()));
                }
            }
            _ => {}
        }
    }

    fn release(&mut self, gang: GangId, at: Timestamp) {
        if let Some(course) = self.gangs.get_mut(&gang)
            && let Some(since) = course.holds_since.take()
        {
            let held = u64::from(course.devices).saturating_mul(at.since(since));
            course.held_device_ms = course.held_device_ms.saturating_add(held);
        }
    }

    fn close(&mut self, until: Timestamp) {
        let all: Vec<GangId> = self.gangs.keys().copied().collect();
        all.into_iter().for_each(|gang| self.release(gang, until));
    }
}

fn course(engine: &Engine, job: &Job, gang: &Gang, record: &GangRecord, begin: Timestamp) -> Course {
    let is_running = record.holds_capacity();
    Course {
        job: job.name.to_string(),
        queue: job.queue.clone(),
        devices: gang.device_count(),
        basis: script(engine, job).1,
        is_running,
        waits: None,
        starts: Vec::new(),
        stops: Vec::new(),
        ends_at: None,
        ending: None,
        held_device_ms: 0,
        holds_since: is_running.then_some(begin),
    }
}

fn queue_courses(reports: &[QueueReport], gangs: &BTreeMap<GangId, Course>) -> Vec<QueueCourse> {
    let parents: BTreeMap<&QueueName, Option<&QueueName>> =
        reports.iter().map(|report| (&report.queue.name, report.queue.parent.as_ref())).collect();
    let mut held: BTreeMap<&QueueName, u64> = BTreeMap::new();
    for course in gangs.values() {
        let above = |name: &&QueueName| parents.get(*name).copied().flatten();
        // No deeper than there are queues, whatever the tree says.
        for name in std::iter::successors(Some(&course.queue), above).take(reports.len().max(1)) {
            let sum = held.entry(name).or_default();
            *sum = sum.saturating_add(course.held_device_ms);
        }
    }
    let queue = |report: &QueueReport| {
        let gpus = report.resources.iter().find(|good| good.resource == Resource::Gpus);
        QueueCourse {
            name: report.queue.name.clone(),
            depth: report.depth,
            weight_milli: report.queue.weight_milli,
            guaranteed: gpus.map_or(0, |good| good.guaranteed),
            due: gpus.and_then(|good| good.fair_share),
            used: gpus.map_or(0, |good| good.used),
            capacity: gpus.map_or(0, |good| good.capacity),
            held_device_ms: held.get(&report.queue.name).copied().unwrap_or(0),
        }
    };
    reports.iter().map(queue).collect()
}
