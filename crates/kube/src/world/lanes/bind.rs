//! The lane of bindings, and of what has to be ready before them.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use kube::Client;
use phalanx_model::{FailureClass, MemberId, NodeName, Timestamp};
use phalanx_shell::unix_now;
use tokio::sync::{mpsc, watch};

use super::super::bind::{bind, prepare};
use super::super::call::Limited;
use super::super::desk::Message;
use super::super::lease::Term;
use super::super::metrics::Metrics;
use super::open::{Open, Opened};
use super::turn::{Turn, Turns};
use super::{Deadlines, InFlight, LANE_MAX, TOO_MANY};
use crate::gang::pods::READY_BY;
use crate::messages::{Event, PodRef, Step, Unbound};

/// For so long the devices of a claim may take to get ready, as long as in kube-scheduler unless it is told otherwise.
/// A gang that has to run earlier has less.
const DEVICES: Duration = Duration::from_secs(600);

/// What waits for its turn.
enum Asked {
    Bind(Box<Binding>),
    Prepare { member: MemberId, steps: Vec<Step>, ready_until: Instant },
}

struct Binding {
    pod: PodRef,
    node: NodeName,
    member: MemberId,
    before: Vec<Step>,
    annotations: BTreeMap<String, String>,
    ready_until: Instant,
    opened: Opened,
    /// An earlier one of the same pod.
    earlier: Option<watch::Sender<bool>>,
}

pub(super) struct BindLane {
    queue: mpsc::Sender<Asked>,
    open: Open,
    desk: Sender<Message>,
    ready: Duration,
}

impl BindLane {
    pub(super) fn new(
        client: Client,
        term: Term,
        desk: Sender<Message>,
        deadlines: Deadlines,
        in_flight: InFlight,
        metrics: Metrics,
    ) -> Self {
        let (queue, asked) = mpsc::channel(LANE_MAX);
        let turns = Turns::new(in_flight.bindings.clone(), deadlines.binding);
        let binder = Binder { client, term, desk: desk.clone(), in_flight, metrics };
        tokio::spawn(run(binder, turns, asked));
        Self { queue, open: Open::default(), desk, ready: deadlines.ready }
    }

    pub(super) fn open(&self) -> Open {
        self.open.clone()
    }

    /// Binds a pod to a node when its turn comes, and tells the desk what became of it.
    pub(super) fn bind(
        &self,
        pod: PodRef,
        node: NodeName,
        member: MemberId,
        before: Vec<Step>,
        annotations: BTreeMap<String, String>,
    ) {
        if self.open.len() >= LANE_MAX {
            return answer(&self.desk, member, Err(unbound(&pod, TOO_MANY)));
        }
        let ready_until = self.ready_until(annotations.get(READY_BY).map(String::as_str));
        let (opened, earlier) = self.open.begin(&pod);
        let binding = Binding { pod, node, member, before, annotations, ready_until, opened, earlier };
        let Err(error) = self.queue.try_send(Asked::Bind(Box::new(binding))) else { return };
        if let Asked::Bind(binding) = error.into_inner() {
            answer(&self.desk, member, Err(unbound(&binding.pod, TOO_MANY)));
        }
    }

    /// Gets ready what a gang needs.
    pub(super) fn prepare(&self, member: MemberId, steps: Vec<Step>) {
        let ready_until = self.ready_until(None);
        if self.queue.try_send(Asked::Prepare { member, steps, ready_until }).is_err() {
            let detail = TOO_MANY.to_owned();
            let _ = self.desk.send(Message::Event(Event::Unprepared { member, detail }));
        }
    }

    /// By when devices have to be ready: at the deadline of the gang, if it says one that is not over. A pod that joins a gang
    /// that runs has no part in its deadline any more.
    fn ready_until(&self, ready_by: Option<&str>) -> Instant {
        let left = ready_by.and_then(|text| left(text, unix_now())).unwrap_or(self.ready);
        Instant::now() + left.min(DEVICES)
    }
}

/// From now to a time.
fn left(ready_by: &str, now: Timestamp) -> Option<Duration> {
    let at: jiff::Timestamp = ready_by.parse().ok()?;
    let left = u64::try_from(at.as_millisecond()).ok()?.checked_sub(now.0)?;
    (left > 0).then(|| Duration::from_millis(left))
}

/// What a binding needs.
#[derive(Clone)]
struct Binder {
    client: Client,
    term: Term,
    desk: Sender<Message>,
    in_flight: InFlight,
    metrics: Metrics,
}

/// Begins what is asked for in its order, many at once.
async fn run(binder: Binder, turns: Turns, mut queue: mpsc::Receiver<Asked>) {
    while let Some(asked) = queue.recv().await {
        // Waiting here keeps the pods of one gang together.
        let Some(held) = turns.next().await else { return };
        if binder.term.is_over() {
            return;
        }
        let binder = binder.clone();
        match asked {
            Asked::Bind(binding) => {
                let turn = turns.begin(held, binding.ready_until, binding.opened.off());
                tokio::spawn(binder.bind(*binding, turn));
            }
            Asked::Prepare { member, steps, ready_until } => {
                let turn = turns.begin(held, ready_until, watch::channel(false).1);
                tokio::spawn(binder.prepare(member, steps, turn));
            }
        }
    }
}

impl Binder {
    async fn bind(self, binding: Binding, mut turn: Turn) {
        let Self { client, term, desk, in_flight, metrics } = self;
        let Binding { pod, node, member, before, annotations, opened, earlier, .. } = binding;
        let begun = Instant::now();
        let may_begin = match earlier {
            Some(earlier) => turn.after(earlier).await,
            None => turn.check(),
        };
        let result = match may_begin {
            Ok(()) => bind(&client, &term, &pod, &node, &before, annotations, &mut turn).await,
            Err(why) => Err(unbound(&pod, why)),
        };
        if result.as_ref().is_err_and(|unbound| unbound.may_come) {
            in_flight.may_come();
        }
        drop((turn, opened));
        let took = begun.elapsed();
        metrics.bound(if result.is_ok() { "bound" } else { "failed" }, took);
        let error = result.as_ref().err().map(|unbound| unbound.detail.as_str());
        let seconds = took.as_secs_f64();
        tracing::debug!(%pod, node = node.as_str(), seconds, error, "a binding has its answer");
        answer(&desk, member, result);
    }

    async fn prepare(self, member: MemberId, steps: Vec<Step>, mut turn: Turn) {
        let requests = Limited::by_term(self.client, self.term);
        if let Err(detail) = prepare(&requests, &steps, &mut turn).await {
            let _ = self.desk.send(Message::Event(Event::Unprepared { member, detail }));
        }
    }
}

/// One that never began.
fn unbound(pod: &PodRef, why: &str) -> Unbound {
    let detail = format!("pod {} is not bound: {why}", pod.name);
    Unbound { class: FailureClass::StartUp, detail, may_come: false }
}

/// The desk lives as long as the process.
fn answer(desk: &Sender<Message>, member: MemberId, result: Result<(), Unbound>) {
    let _ = desk.send(Message::Event(Event::Bound { member, result }));
}
