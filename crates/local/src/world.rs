//! The world that the pump drives: orders go to the hands, changes to the record, the notices and whoever
//! follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;

use phalanx_model::{Change, Effect, JobId, Node, NodeName, Order, Timestamp};
use phalanx_shell::{Engine, World};

use crate::Paths;
use crate::hands::Task;
use crate::launch::{self, Start};
use crate::notify::{Notice, Notifier};
use crate::record::Recorder;
use crate::views::{self, Map};

/// A shim waits this much longer at the gate than the engine: the engine's word names the rank that is late.
const GATE_SLACK_MS: u64 = 10_000;

pub(crate) struct LocalWorld {
    pub(crate) paths: Paths,
    pub(crate) map: Map,
    pub(crate) hands: Sender<Task>,
    pub(crate) recorder: Recorder,
    pub(crate) notifier: Notifier,
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
                Order::SignalMembers { signal, .. } => Task::Signal { id, gang, attempt, signal: *signal },
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
            let Some((job, what, detail)) = event(change) else {
                if let Change::InputRejected { what, why } = change {
                    self.warn(&format!("a fact was not used: {what}: {why}"));
                }
                continue;
            };
            self.recorder.event(job, now, what, &detail);
            touched.insert(job);
            self.notify(engine, job, change, &detail);
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
    fn notify(&mut self, engine: &Engine, id: JobId, change: &Change, detail: &str) {
        let event = match change {
            Change::GangRunning { .. } => "start",
            Change::JobFinished { .. } => "end",
            Change::GangStopping {
                cause: phalanx_model::StopCause::Displaced { .. } | phalanx_model::StopCause::Preempted(_),
                ..
            } => "preemption",
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

/// A change as one line of a job's history.
pub(crate) fn event(change: &Change) -> Option<(JobId, &'static str, String)> {
    Some(match change {
        Change::JobAccepted { job } => (*job, "submitted", String::new()),
        Change::GangPlaced { gang, attempt, placement } => {
            let mut nodes: Vec<&str> = placement.slots.iter().map(|s| s.node.as_str()).collect();
            nodes.dedup();
            let where_ = format!("attempt {attempt} on {} (one {})", nodes.join(", "), placement.level);
            (gang.job, "starting", where_)
        }
        Change::GangRunning { gang, attempt } => (gang.job, "running", format!("attempt {attempt}")),
        Change::GangStopping { gang, cause, .. } => (gang.job, "stopping", views::stop_sentence(cause)),
        Change::GangRetrying { gang, failures, .. } => {
            let times = match failures {
                0 => String::new(),
                1 => "after 1 failure".to_owned(),
                n => format!("after {n} failures"),
            };
            (gang.job, "waiting again", times)
        }
        Change::JobFinished { job, ending } => (*job, ending.word(), detail_of(ending)),
        Change::ReasonChanged { gang, reason } => {
            (gang.job, "pending", format!("{}: {reason}", reason.word()))
        }
        Change::GangReserved { gang, reserved } => {
            let mut nodes: Vec<&str> = reserved.placement.slots.iter().map(|s| s.node.as_str()).collect();
            nodes.dedup();
            (gang.job, "reserved", format!("on {}", nodes.join(", ")))
        }
        Change::ReservationDropped { gang, why } => (gang.job, "reservation dropped", why.clone()),
        Change::JobRejected { .. } | Change::InputRejected { .. } | Change::GangFinished { .. } => {
            return None;
        }
    })
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
