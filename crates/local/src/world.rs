//! The world that the pump drives: orders go to the hands, changes to the record, the notices and whoever
//! follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use phalanx_model::show::count;
use phalanx_model::{
    Change, Effect, Epoch, FailureClass, GangId, Input, JobId, Node, NodeName, Order, Phase, Signal, Slot,
    StopCause, Timestamp,
};
use phalanx_shell::{Engine, World, sentences};

use crate::Paths;
use crate::account::Accounting;
use crate::clock::Clock;
use crate::feed::Feed;
use crate::hands::Task;
use crate::launch::{self, Start};
use crate::limits::PendingBytes;
use crate::losses;
use crate::metrics::Counts;
use crate::notify::{Notice, Notifier};
use crate::record::Recorder;
use crate::spot::Meter;
use crate::user::Account;
use phalanx_api::protocol::EventView;
use phalanx_views::{self as views, Books, Map};

/// A shim waits this much longer at the gate than the engine: the engine's word names the rank that is late.
const GATE_SLACK_MS: u64 = 10_000;

pub(crate) struct LocalWorld {
    pub(crate) paths: Paths,
    pub(crate) map: Map,
    pub(crate) hands: Sender<Task>,
    pub(crate) recorder: Recorder,
    pub(crate) notifier: Notifier,
    pub(crate) meter: Meter,
    pub(crate) pending: Arc<PendingBytes>,
    /// The last that was written down.
    pub(crate) epoch: Epoch,
    pub(crate) clock: Clock,
    pub(crate) counts: Counts,
    pub(crate) account: Accounting,
    pub(crate) feed: Feed,
}

impl World for LocalWorld {
    fn carry_out(&mut self, effects: &[Effect], engine: &Engine) {
        for effect in effects {
            if effect.id.epoch > self.epoch {
                self.epoch = effect.id.epoch;
                losses::remember_epoch(&self.paths, self.epoch);
            }
            let (id, gang, attempt) = (effect.id, effect.order.gang(), effect.order.attempt());
            let task = match &effect.order {
                Order::StartMembers { placement, deadline, .. } => {
                    let Some(job) = engine.job(gang.job) else { continue };
                    let start = Start {
                        job: job.clone(),
                        gang,
                        attempt,
                        placement: placement.clone(),
                        gate_deadline_ms: deadline.since(self.clock.now()).saturating_add(GATE_SLACK_MS),
                        account: Account::default(),
                    };
                    // Those of the gang, and not the thousands beside them.
                    let of_gang = placement.slots.iter().filter_map(|slot| engine.node(&slot.node));
                    let nodes: BTreeMap<NodeName, Node> =
                        of_gang.map(|node| (node.name.clone(), node.clone())).collect();
                    Task::Start { id, start: Box::new(start), nodes }
                }
                Order::ReleaseMembers { .. } => Task::Release { id, gang, attempt },
                Order::SignalMembers { signal, .. } => {
                    let term_at = term_at(engine, gang, *signal, self.clock.now());
                    Task::Signal { id, gang, attempt, signal: *signal, term_at }
                }
                Order::KillMembers { .. } => Task::Kill { id, gang, attempt, size: size_of(engine, gang) },
            };
            // The hands live as long as the daemon.
            let _ = self.hands.send(task);
        }
    }

    fn changed(&mut self, now: Timestamp, facts: &[Input], changes: &[Change], engine: &Engine) {
        self.account.stepped(now, facts, changes, engine);
        // A job of many gangs changes in many ways in one step, and is written down once.
        let mut touched: BTreeSet<JobId> = BTreeSet::new();
        let mut gangs: BTreeSet<GangId> = BTreeSet::new();
        let mut unstarted: BTreeMap<(JobId, &str), u64> = BTreeMap::new();
        for change in changes {
            self.measure(now, change, engine);
            self.counts.changed(change);
            gangs.extend(change.gang());
            if let Change::GangFinished { gang, ending } = change {
                touched.insert(gang.job);
                if is_unstarted_task(engine, *gang) {
                    *unstarted.entry((gang.job, ending.word())).or_default() += 1;
                    continue;
                }
            }
            let Some((job, event)) = event(now, change, engine) else {
                if let Change::InputRejected { what, why } = change {
                    self.warn(&format!("a fact was not used: {what}: {why}"));
                }
                continue;
            };
            touched.insert(job);
            self.notify(engine, job, change, &event.detail);
            if !matches!(change, Change::JobFinished { .. }) {
                self.recorder.event(job, event);
            } else {
                self.recorder.last_event(job, event);
                launch::forget_secrets(&self.paths, job);
                self.pending.forget(job);
            }
        }
        // Of a hundred thousand tasks that are cancelled, one line says so.
        for ((job, word), tasks) in unstarted {
            let detail = format!("{} before they started", count(tasks, "task"));
            self.recorder.event(job, EventView { at: now, what: word.to_owned(), detail, record: None });
        }
        let books = Books::all(engine);
        for view in touched.into_iter().filter_map(|id| views::changed(&books, &self.map, id, &gangs)) {
            let job = engine.job(view.id);
            self.recorder.job(view, job);
        }
        // Whoever hears of a change finds its events.
        self.feed.stepped(now, facts, changes);
    }

    fn stepped(&mut self, took: Duration, _: usize, _: usize) {
        self.counts.stepped(took);
    }

    fn warn(&mut self, message: &str) {
        tracing::warn!(warning = message, "the scheduler goes on");
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
        let notice = engine.job(id).and_then(|job| Notice::of(job, event, detail.to_owned()));
        let Some(mut notice) = notice else { return };
        if let Change::JobFinished { ending, .. } = change {
            notice.ending = Some((ending.word(), ending.exit_code()));
        }
        if !self.notifier.send(notice) {
            self.warn(&format!("job {id}: too many notices wait, the {event} notice is dropped"));
        }
    }
}

/// When SIGTERM comes to a gang that is signalled now.
fn term_at(engine: &Engine, gang: GangId, signal: Signal, now: Timestamp) -> Timestamp {
    match (signal, engine.gang(gang).map(|record| &record.phase)) {
        (Signal::Advisory(_), Some(Phase::Stopping { next_at, .. })) => *next_at,
        _ => now,
    }
}

fn is_unstarted_task(engine: &Engine, gang: GangId) -> bool {
    let is_task = engine.job(gang.job).is_some_and(|job| job.turn.array.is_some());
    is_task && engine.gang(gang).is_some_and(|record| record.attempt == 0)
}

/// Whether a gang is stopped since a node or a device failed, and not since somebody drains a node.
fn is_loss(change: &Change, engine: &Engine) -> bool {
    let Change::GangStopping { gang, cause, .. } = change else { return false };
    let is_graded = || {
        let slots = engine.gang(*gang).and_then(|record| Some(&record.placement.as_ref()?.slots));
        slots.is_some_and(|slots| {
            let drains = |slot: &Slot| {
                engine.node(&slot.node).is_some_and(|node| node.health.drains_any(slot.devices))
            };
            slots.iter().any(drains)
        })
    };
    match cause {
        StopCause::Failure { class, .. } => *class == FailureClass::Node,
        StopCause::Displaced { class, .. } => *class == FailureClass::Node && is_graded(),
        _ => false,
    }
}

/// A change as one line of a job's history; of a task of an array with its number.
pub(crate) fn event(at: Timestamp, change: &Change, engine: &Engine) -> Option<(JobId, EventView)> {
    let task = change.gang().and_then(|gang| engine.job(gang.job)?.task_number(gang.index));
    let (job, what, mut detail) = match (change, task) {
        // Of another job its own end says so.
        (Change::GangFinished { gang, ending }, Some(_)) => {
            (gang.job, ending.word(), sentences::ended(ending))
        }
        _ => sentences::change(at, change, engine)?,
    };
    if let Some(task) = task {
        detail = format!("task {task}{}{detail}", if detail.is_empty() { "" } else { ": " });
    }
    // What people will want to settle an argument with is kept whole, and so are losses of hardware, which are counted.
    let is_argued = matches!(
        change,
        Change::GangStopping { cause: StopCause::Preempted(_), .. }
            | Change::GangReserved { .. }
            | Change::ReservationDropped { .. }
    );
    let is_kept = is_argued || is_loss(change, engine);
    let record = if is_kept { serde_json::to_value(change).ok() } else { None };
    Some((job, EventView { at, what: what.to_owned(), detail, record }))
}

/// How many members a gang has now, for an order that does not name them.
fn size_of(engine: &Engine, gang: GangId) -> u32 {
    engine.gang(gang).map_or(0, |r| u32::try_from(r.members.len()).unwrap_or(u32::MAX))
}
