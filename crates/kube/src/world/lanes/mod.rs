//! What the lifecycle ask the API for. A call is repeated while that can help and its time is not over; what it means is never
//! decided here.
//!
//! There are three lanes, and none waits for another: an eviction that a disruption budget refuses does not keep pods from
//! being bound, and a status that hangs keeps neither. Each has a bound of its own, and requests of its own that are on
//! their way at once.
//!
//! | lane | calls |
//! |---|---|
//! | `bind` | bindings, and what has to be ready before them |
//! | `stop` | what takes pods and claims away, what tells pods of it, what suspends their owners and lets them go on |
//! | `report` | conditions, events, statuses, requests for nodes |
//!
//! These orders matter between calls, and are kept:
//!
//! * Bindings begin in the order in which the lifecycle ask for them: the pods of one gang stay together. Of one pod one binding
//!   is made at a time, the newest, so that no late answer to an earlier start binds it elsewhere.
//! * A stop may overtake the bindings of its pods. Those that have not begun never begin, and those that wait for the
//!   devices of a claim wait no longer. Of one that is on its way nothing is lost: both name the UID of the pod, so the one
//!   that comes second is refused, or the pod that was just bound is deleted.
//! * A binding may overtake the stop of an earlier start of its gang: its pod is another one, with another UID, and the
//!   stop cannot mean it.
//! * What a pod was reserved of a claim is given back after the last binding of this pod has its answer. Otherwise the
//!   binding would reserve it again, for a pod that is gone.
//! * What suspends an owner and what lets it go on are done one after the other: a suspension that is tried again because
//!   its answer was lost would take back what came after it.
//! * Of the statuses of one object only the newest is written, and none while another may still be on its way, see `report`.
//!
//! Nothing else has to keep an order. The engine gives an order again until it sees what it asked for.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::json;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use self::bind::BindLane;
use self::report::ReportLane;
use self::stop::StopLane;
use super::call::Limited;
use super::desk::Message;
use super::explain::Stand;
use super::groups::GroupStand;
use super::lease::Term;
use super::metrics::Metrics;
use super::trouble::Trouble;
use crate::crd;
use crate::gang::lifecycle::orphaned_bindings::REQUEST_MS;
use crate::messages::Call;

mod bind;
mod open;
mod report;
mod stop;
#[cfg(test)]
mod tests;
mod turn;

pub(super) use turn::Turn;

/// How many bindings are on their way at once.
const BINDINGS: usize = 16;
/// The same for requests that take something away.
const STOPS: usize = 8;
/// Calls of one lane that have no answer yet. More is as if the API server had refused them: what matters is asked again.
const LANE_MAX: usize = 100_000;

const TOO_MANY: &str = "too many calls wait for their turn";

/// How long things may take before a pod is bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// From the turn of a binding to its last try.
    pub(super) binding: Duration,
    /// From the decision to start a gang until its pods have to run.
    pub(super) ready: Duration,
}

/// Calls of which another that leads would have to know: bindings, and what takes pods away.
#[derive(Clone)]
pub(super) struct InFlight {
    bindings: Arc<Semaphore>,
    stops: Arc<Semaphore>,
    /// Since when no binding can come any more that was given up without an answer.
    settles_at: Arc<Mutex<Option<Instant>>>,
}

impl InFlight {
    fn new() -> Self {
        let (bindings, stops) = (Arc::new(Semaphore::new(BINDINGS)), Arc::new(Semaphore::new(STOPS)));
        Self { bindings, stops, settles_at: Arc::default() }
    }

    /// A binding may come although it was given up.
    fn may_come(&self) {
        let at = Instant::now() + Duration::from_millis(REQUEST_MS);
        *self.settles_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// Lets none of them begin any more, and waits until all have ended, for so long at most. Whether nothing can come of them.
    pub(super) async fn have_ended(&self, within: Duration) -> bool {
        let all = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let ended = async {
            let bindings = self.bindings.acquire_many(all(BINDINGS)).await.map(SemaphorePermit::forget);
            let stops = self.stops.acquire_many(all(STOPS)).await.map(SemaphorePermit::forget);
            bindings.is_ok() && stops.is_ok()
        };
        let have_ended = tokio::time::timeout(within, ended).await.unwrap_or(false);
        // What waits for its turn never begins.
        self.bindings.close();
        self.stops.close();
        let settles_at = *self.settles_at.lock().unwrap_or_else(PoisonError::into_inner);
        have_ended && settles_at.is_none_or(|at| at <= Instant::now())
    }
}

/// All lanes.
pub(super) struct Lanes {
    term: Term,
    in_flight: InFlight,
    bind: BindLane,
    stop: StopLane,
    report: ReportLane,
}

impl Lanes {
    pub(super) fn new(
        client: Client,
        term: Term,
        desk: Sender<Message>,
        deadlines: Deadlines,
        metrics: Metrics,
        provisioning_class: Option<String>,
    ) -> Self {
        let in_flight = InFlight::new();
        let limited = Limited::new(client.clone(), term.clone(), Arc::clone(&in_flight.stops));
        let busy = Arc::clone(&in_flight.bindings);
        let report = ReportLane::new(client.clone(), term.clone(), desk.clone(), busy, provisioning_class);
        let bind = BindLane::new(client, term.clone(), desk.clone(), deadlines, in_flight.clone(), metrics);
        let stop = StopLane::new(limited, desk, bind.open());
        Self { term, in_flight, bind, stop, report }
    }

    pub(super) fn in_flight(&self) -> InFlight {
        self.in_flight.clone()
    }

    /// Hands calls to their lanes in the order in which they come, until none is sent any more, or another may lead.
    pub(super) async fn run(self, mut calls: mpsc::UnboundedReceiver<Call>) {
        while let Some(call) = calls.recv().await {
            if self.term.is_over() {
                return;
            }
            self.hand_on(call);
        }
    }

    /// Never waits.
    fn hand_on(&self, call: Call) {
        match call {
            Call::Bind { pod, node, member, before, annotations } => {
                self.report.explainer.forget(&pod);
                self.bind.bind(pod, node, member, before, annotations);
            }
            Call::Prepare { member, steps } => self.bind.prepare(member, steps),
            Call::Stop { pods, suspend, grace_s, evict, note } => {
                self.stop.stop(pods, suspend, evict, grace_s, note);
            }
            Call::Advise { pods, within_ms } => self.stop.advise(pods, within_ms),
            Call::Nominate { pods } => self.report.nominate(pods),
            Call::Release { claim, pod, is_deleted } => self.stop.release(claim, pod, is_deleted),
            Call::Resume { suspend } => self.stop.resume(suspend),
            Call::TakeSign { owner, version } => self.stop.take_sign(owner, version),
            Call::Explain { pods, gang, reason, message } => {
                self.report.explainer.explain(pods, gang, &Stand { reason, message });
            }
            Call::Forget { pod } => self.report.explainer.forget(&pod),
            Call::QueueStatus { name, status } => self.report.status("queues", name, json!(*status)),
            Call::FabricStatus { status } => {
                self.report.status("fabrics", crd::SINGLETON.to_owned(), json!(*status));
            }
            Call::Group { about, condition } => {
                self.report.explainer.group(about, GroupStand::Upstream(condition));
            }
            Call::VolcanoStatus { about, status } => {
                self.report.explainer.group(about, GroupStand::Volcano(status));
            }
            Call::Admit { group, job, scheduler } => self.report.admit(group, job, scheduler),
            Call::Provision { gang, wanted } => self.report.provision(gang, wanted),
            Call::Tell(event) => self.report.explainer.tell(*event),
        }
    }
}

/// The desk lives as long as the process.
fn trouble(desk: &Sender<Message>, trouble: Trouble) {
    let _ = desk.send(Message::Trouble(trouble));
}
