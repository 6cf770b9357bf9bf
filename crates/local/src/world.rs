//! The world that the pump drives: orders go to the hands, changes to the record, the notices and whoever
//! follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;

use phalanx_model::{
    Change, Effect, GangId, GangRecord, JobId, Node, NodeName, Order, Phase, Placement, Reason, Reserved,
    Resize, Signal, StopCause, Timestamp,
};
use phalanx_shell::{Engine, World};
use phalanx_spec::quantity::format_milli;

use crate::Paths;
use crate::hands::Task;
use crate::launch::{self, Start};
use crate::notify::{Notice, Notifier};
use crate::protocol::EventView;
use crate::record::Recorder;
use crate::spot::Meter;
use crate::views::{self, Map};

/// A shim waits this much longer at the gate than the engine: the engine's word names the rank that is late.
const GATE_SLACK_MS: u64 = 10_000;

pub(crate) struct LocalWorld {
    pub(crate) paths: Paths,
    pub(crate) map: Map,
    pub(crate) hands: Sender<Task>,
    pub(crate) recorder: Recorder,
    pub(crate) notifier: Notifier,
    pub(crate) meter: Meter,
}

impl World for LocalWorld {
    fn carry_out(&mut self, effects: &[Effect], engine: &Engine) {
        for effect in effects {
            let (id, gang, attempt) = (effect.id, effect.order.gang(), effect.order.attempt());
            let task = match &effect.order {
                Order::StartMembers { placement, deadline, .. } => {
                    let Some(job) = engine.job(gang.job) else { continue };
                    let start = Start {
                        job: job.clone(),
                        gang,
                        attempt,
                        placement: placement.clone(),
                        gate_deadline_ms: deadline
                            .since(phalanx_shell::unix_now())
                            .saturating_add(GATE_SLACK_MS),
                    };
                    let nodes: BTreeMap<NodeName, Node> =
                        engine.nodes().map(|n| (n.name.clone(), n.clone())).collect();
                    Task::Start { id, start: Box::new(start), nodes }
                }
                Order::ReleaseMembers { .. } => Task::Release { id, gang, attempt },
                Order::SignalMembers { signal, .. } => {
                    let term_at = term_at(engine, gang, *signal);
                    Task::Signal { id, gang, attempt, signal: *signal, term_at }
                }
                Order::KillMembers { .. } => {
                    Task::Kill { id, gang, attempt, size: views::size_of(engine, gang) }
                }
            };
            // The hands live as long as the daemon.
            let _ = self.hands.send(task);
        }
    }

    fn changed(&mut self, now: Timestamp, changes: &[Change], engine: &Engine) {
        // A job of many gangs changes in many ways in one step, and is written down once.
        let mut touched: BTreeSet<JobId> = BTreeSet::new();
        for change in changes {
            self.measure(now, change, engine);
            let Some((job, event)) = event(now, change, engine) else {
                if let Change::InputRejected { what, why } = change {
                    self.warn(&format!("a fact was not used: {what}: {why}"));
                }
                continue;
            };
            touched.insert(job);
            self.notify(engine, job, change, &event.detail);
            self.recorder.event(job, event);
            if matches!(change, Change::JobFinished { .. }) {
                launch::forget_secrets(&self.paths, job);
            }
        }
        for job in touched {
            if let Some(view) = views::job(engine, &self.map, job, false) {
                self.recorder.job(view, engine.job(job));
            }
        }
    }

    fn warn(&mut self, message: &str) {
        crate::say::say(message);
    }
}

impl LocalWorld {
    /// What a gang has on spot nodes, from the start of its ranks until their last process is gone.
    fn measure(&mut self, now: Timestamp, change: &Change, engine: &Engine) {
        match change {
            Change::GangRunning { gang, .. } => {
                if let Some((job, record)) = engine.job(gang.job).zip(engine.gang(*gang)) {
                    self.meter.begin(job, record, now);
                }
            }
            Change::GangRetrying { gang, .. } | Change::GangFinished { gang, .. } => {
                if let Some(event) = self.meter.end(*gang, now) {
                    self.recorder.event(gang.job, event);
                }
            }
            _ => {}
        }
    }

    fn notify(&mut self, engine: &Engine, id: JobId, change: &Change, detail: &str) {
        let event = match change {
            Change::GangRunning { .. } => "start",
            Change::JobFinished { .. } => "end",
            Change::GangStopping { cause: StopCause::Displaced { .. } | StopCause::Preempted(_), .. } => {
                "preemption"
            }
            _ => return,
        };
        let Some(job) = engine.job(id) else { return };
        let Some(to) = job.gangs.iter().find_map(|g| g.program.notify.clone()) else { return };
        let notice = Notice {
            to,
            owner: job.owner.clone(),
            job: id.0,
            name: job.name.to_string(),
            event,
            detail: detail.to_owned(),
            ending: match change {
                Change::JobFinished { ending, .. } => Some((ending.word(), ending.exit_code())),
                _ => None,
            },
        };
        if !self.notifier.send(notice) {
            self.warn(&format!("job {id}: too many notices wait, the {event} notice is dropped"));
        }
    }
}

/// When SIGTERM comes to a gang that is signalled now.
fn term_at(engine: &Engine, gang: GangId, signal: Signal) -> Timestamp {
    let now = phalanx_shell::unix_now();
    match (signal, engine.gang(gang).map(|record| &record.phase)) {
        (Signal::Advisory(_), Some(Phase::Stopping { next_at, .. })) => *next_at,
        _ => now,
    }
}

/// A change as one line of a job's history.
pub(crate) fn event(at: Timestamp, change: &Change, engine: &Engine) -> Option<(JobId, EventView)> {
    let (job, what, detail) = line_of(at, change, engine)?;
    // What people will want to settle an argument with is kept whole.
    let is_kept = matches!(
        change,
        Change::GangStopping { cause: StopCause::Preempted(_), .. }
            | Change::GangReserved { .. }
            | Change::ReservationDropped { .. }
    );
    let record = if is_kept { serde_json::to_value(change).ok() } else { None };
    Some((job, EventView { at, what: what.to_owned(), detail, record }))
}

fn line_of(at: Timestamp, change: &Change, engine: &Engine) -> Option<(JobId, &'static str, String)> {
    Some(match change {
        Change::JobAccepted { job } => (*job, "submitted", String::new()),
        Change::GangPlaced { gang, attempt, placement } => {
            let where_ = format!("attempt {attempt} on {} (one {})", nodes_of(placement), placement.level);
            (gang.job, "starting", where_)
        }
        Change::GangRunning { gang, attempt } => (gang.job, "running", format!("attempt {attempt}")),
        Change::GangStopping { gang, cause: cause @ StopCause::Preempted(_), .. } => {
            (gang.job, "evicted", views::stop_sentence(engine, cause))
        }
        Change::GangStopping { gang, cause, .. } => {
            (gang.job, "stopping", views::stop_sentence(engine, cause))
        }
        Change::GangRetrying { gang, failures, .. } => {
            let times = match failures {
                0 => String::new(),
                1 => "after 1 failure".to_owned(),
                n => format!("after {n} failures"),
            };
            (gang.job, "waiting again", times)
        }
        Change::JobFinished { job, ending } => (*job, ending.word(), detail_of(ending)),
        Change::ServiceScaled { job, before, replicas, load_milli } => {
            let load = load_milli.map(|load| format!("; they have {} of its metric", format_milli(load)));
            (*job, "scaled", format!("{replicas} replicas instead of {before}{}", load.unwrap_or_default()))
        }
        // Said of what was submitted in this very step.
        Change::ReasonChanged { reason: Reason::None, .. } => return None,
        Change::ReasonChanged { gang, reason } => {
            let sentence = views::reason_sentence(engine, reason);
            (gang.job, "pending", format!("{}: {sentence}", reason.word()))
        }
        Change::GangReserved { gang, reserved } => {
            let free = match reserved.at {
                None if is_kept(engine, *gang, reserved) => "its own until it starts again".to_owned(),
                Some(free) => format!("free {} from now at the latest", views::span(free.since(at))),
                None => "no time limit says when it is free".to_owned(),
            };
            (gang.job, "reserved", format!("{}; {free}", nodes_of(&reserved.placement)))
        }
        Change::ReplicaLeaves { gang, leave } => (
            gang.job,
            "leaves",
            format!("{} once another runs in its stead: {}", views::gang_name(engine, *gang), leave.detail),
        ),
        Change::ReplicaStays { gang } => (gang.job, "stays", views::gang_name(engine, *gang)),
        Change::ReplicaReplaced { gang, by } => {
            let (gang_name, by) = (views::gang_name(engine, *gang), views::gang_name(engine, *by));
            (gang.job, "replaced", format!("{by} runs in the stead of {gang_name}"))
        }
        Change::ResizeAsked { gang, resize } => (gang.job, "resize", resize_sentence(engine, *gang, resize)),
        Change::ReservationDropped { gang, why } => (gang.job, "reservation dropped", why.clone()),
        Change::JobRejected { .. } | Change::InputRejected { .. } | Change::GangFinished { .. } => {
            return None;
        }
    })
}

/// Whether a gang has this place held because it just had it, and is to start there with another size.
fn is_kept(engine: &Engine, gang: GangId, reserved: &Reserved) -> bool {
    // It may have started again by now.
    let is_its = |record: &GangRecord| record.resize.is_some() || record.holds_capacity();
    reserved.evicts && engine.gang(gang).is_some_and(is_its)
}

fn resize_sentence(engine: &Engine, gang: GangId, resize: &Resize) -> String {
    let size = resize.size;
    let is_stopping = |record: &GangRecord| matches!(record.phase, Phase::Stopping { .. });
    match resize.by {
        Some(by) => {
            format!("to {size} members for {}, from its next boundary on", views::gang_name(engine, by))
        }
        // It stands at its boundary already.
        None if engine.gang(gang).is_some_and(is_stopping) => {
            format!("to {size} members: nobody waits for what is free")
        }
        None => format!("to {size} members, from its next boundary on"),
    }
}

fn nodes_of(placement: &Placement) -> String {
    let mut nodes: Vec<&str> = placement.slots.iter().map(|s| s.node.as_str()).collect();
    nodes.dedup();
    nodes.join(", ")
}

fn detail_of(ending: &phalanx_model::Ending) -> String {
    match ending {
        phalanx_model::Ending::Failed { class, detail, .. } => format!("{class}: {detail}"),
        phalanx_model::Ending::Cancelled { by } => format!("by {by}"),
        phalanx_model::Ending::Preempted { detail } => detail.clone(),
        phalanx_model::Ending::DependencyFailed { job } => format!("job {job} ended otherwise"),
        _ => String::new(),
    }
}
