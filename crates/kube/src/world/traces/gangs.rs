//! Spans of gangs: one from when a gang is handed in until all of its pods are bound, with what it waited for and what was
//! decided as events, and below it one for the bindings of each start, from the first that is asked for to the last answer.
//!
//! They are made when the gang is bound; until then there is a small record of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use opentelemetry::trace::{Event, Span, SpanBuilder, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;
use phalanx_model::{GangRecord, Input, Job, JobId, MemberId, NodeName, Order, Placement, Signal, StopCause};

use super::count;
use crate::gang::Lifecycle;
use crate::messages::{Unbound, WaitsFor};
use crate::world::metrics::TraceCounts;

/// Gangs that are followed at once; further ones have no span.
const GANGS_MAX: usize = 65_536;
/// Sorts of reasons, one after the other, that one gang's span tells.
const REASONS_MAX: usize = 16;
/// Starts of one gang before it was bound, the last ones.
const STARTS_MAX: usize = 8;
/// Characters of a sentence.
const WHY_MAX: usize = 200;

/// How a gang's span ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Bound,
    Refused,
    /// Nobody wants it any more.
    Ended,
}

/// See the module.
pub(crate) struct GangSpans {
    tracer: SdkTracer,
    counts: TraceCounts,
    gangs: BTreeMap<JobId, Followed>,
}

/// A gang that the engine has.
struct Followed {
    attributes: Vec<KeyValue>,
    /// It was handed in, or waits again.
    since: SystemTime,
    /// From when on what, why.
    reasons: Vec<(SystemTime, &'static str, String)>,
    starts: Vec<Start>,
    /// Its span has ended; it has another if it waits again.
    is_bound: bool,
}

/// A decision to start it.
struct Start {
    at: SystemTime,
    attempt: u32,
    pods: usize,
    nodes: usize,
    level: String,
    /// The first binding that was asked for, and the last that was answered.
    bindings: Option<(SystemTime, SystemTime)>,
    /// The first binding that failed.
    failed: Option<String>,
    /// When it was taken back, and why.
    ended: Option<(SystemTime, String)>,
}

impl GangSpans {
    pub(super) const fn new(tracer: SdkTracer, counts: TraceCounts) -> Self {
        Self { tracer, counts, gangs: BTreeMap::new() }
    }

    /// What the engine is told.
    pub(crate) fn told(&mut self, lifecycle: &Lifecycle, facts: &[Input]) {
        for fact in facts {
            match fact {
                Input::JobSubmitted { job } => self.follow(lifecycle, job, false),
                // Where it stood before this process began nobody here knows.
                Input::JobObserved { job, gangs } => {
                    self.follow(lifecycle, job, !gangs.iter().all(GangRecord::is_pending));
                }
                _ => {}
            }
        }
    }

    fn follow(&mut self, lifecycle: &Lifecycle, job: &Job, is_bound: bool) {
        let Some(key) = lifecycle.key_of(job.id) else { return };
        if self.gangs.len() >= GANGS_MAX {
            return self.counts.dropped(1);
        }
        let pods = job.gangs.iter().map(|gang| gang.member_count() as usize).sum();
        let mut attributes = vec![
            KeyValue::new("phalanx.queue", job.queue.to_string()),
            KeyValue::new("phalanx.gang", key.name.to_string()),
            KeyValue::new("phalanx.gang.kind", key.source.word()),
            KeyValue::new("k8s.namespace.name", key.namespace.to_string()),
            count("phalanx.pods", pods),
        ];
        attributes.extend(key.part.as_ref().map(|part| KeyValue::new("phalanx.gang.part", part.to_string())));
        let since = SystemTime::now();
        let followed = Followed { attributes, since, reasons: Vec::new(), starts: Vec::new(), is_bound };
        self.gangs.insert(job.id, followed);
    }

    /// Why a gang waits.
    pub(crate) fn explained(&mut self, job: JobId, waits_for: WaitsFor, why: &str) {
        let Some(gang) = self.gangs.get_mut(&job).filter(|gang| !gang.is_bound) else { return };
        let word = waits_for.reason();
        let is_known = gang.reasons.last().is_some_and(|(_, known, _)| *known == word);
        if !is_known && gang.reasons.len() < REASONS_MAX {
            gang.reasons.push((SystemTime::now(), word, short(why)));
        }
    }

    /// What the engine orders.
    pub(crate) fn ordered(&mut self, order: &Order, cause: Option<&StopCause>) {
        match order {
            Order::StartMembers { gang, attempt, placement, .. } => {
                self.decided(gang.job, *attempt, placement);
            }
            Order::ReleaseMembers { gang, .. } => {
                if let Some(followed) = self.gangs.get_mut(&gang.job).filter(|gang| !gang.is_bound) {
                    followed.is_bound = true;
                    followed.end(&self.tracer, Outcome::Bound, None);
                }
            }
            Order::SignalMembers { signal: Signal::Advisory(_), .. } => {}
            Order::SignalMembers { gang, attempt, signal: Signal::Terminate }
            | Order::KillMembers { gang, attempt } => {
                if let Some(start) = self.start(gang.job, *attempt) {
                    start.ended.get_or_insert_with(|| (SystemTime::now(), taken_back(cause)));
                }
            }
        }
    }

    fn decided(&mut self, job: JobId, attempt: u32, placement: &Placement) {
        let Some(gang) = self.gangs.get_mut(&job).filter(|gang| !gang.is_bound) else { return };
        if gang.starts.last().is_some_and(|last| last.attempt == attempt) {
            return;
        }
        if gang.starts.len() == STARTS_MAX {
            gang.starts.remove(0);
        }
        let nodes: BTreeSet<&NodeName> = placement.slots.iter().map(|slot| &slot.node).collect();
        gang.starts.push(Start {
            at: SystemTime::now(),
            attempt,
            pods: placement.slots.len(),
            nodes: nodes.len(),
            level: placement.level.to_string(),
            bindings: None,
            failed: None,
            ended: None,
        });
    }

    /// A binding is asked for.
    pub(crate) fn asked(&mut self, member: MemberId) {
        if let Some(start) = self.start(member.gang.job, member.attempt)
            && start.bindings.is_none()
        {
            let now = SystemTime::now();
            start.bindings = Some((now, now));
        }
    }

    /// What became of a binding.
    pub(crate) fn answered(&mut self, member: MemberId, result: &Result<(), Unbound>) {
        let Some(start) = self.start(member.gang.job, member.attempt) else { return };
        if let Some((_, last)) = &mut start.bindings {
            *last = SystemTime::now();
        }
        if let Err(unbound) = result {
            start.failed.get_or_insert_with(|| short(&unbound.detail));
        }
    }

    /// Its places were taken back: it waits for another start.
    pub(crate) fn waits(&mut self, job: JobId) {
        let Some(gang) = self.gangs.get_mut(&job).filter(|gang| gang.is_bound) else { return };
        gang.since = SystemTime::now();
        gang.reasons.clear();
        gang.starts.clear();
        gang.is_bound = false;
    }

    /// The engine has it no more; where it was refused, why.
    pub(crate) fn ended(&mut self, job: JobId, refused: Option<&str>) {
        let Some(gang) = self.gangs.remove(&job).filter(|gang| !gang.is_bound) else { return };
        let outcome = if refused.is_some() { Outcome::Refused } else { Outcome::Ended };
        gang.end(&self.tracer, outcome, refused);
    }

    fn start(&mut self, job: JobId, attempt: u32) -> Option<&mut Start> {
        let gang = self.gangs.get_mut(&job).filter(|gang| !gang.is_bound)?;
        gang.starts.last_mut().filter(|start| start.attempt == attempt)
    }
}

impl Followed {
    fn end(&self, tracer: &SdkTracer, outcome: Outcome, why: Option<&str>) {
        let now = SystemTime::now();
        let span = SpanBuilder::from_name("gang")
            .with_start_time(self.since)
            .with_attributes(self.said(outcome))
            .with_events(self.events(now, outcome));
        let span = tracer.build_with_context(span, &Context::new());
        let context = Context::new().with_span(span);
        for start in &self.starts {
            start.bind(tracer, &context);
        }
        if let Some(why) = why {
            context.span().set_status(Status::error(short(why)));
        }
        context.span().end_with_timestamp(now);
    }

    fn said(&self, outcome: Outcome) -> Vec<KeyValue> {
        let word = match outcome {
            Outcome::Bound => "bound",
            Outcome::Refused => "refused",
            Outcome::Ended => "ended",
        };
        let mut said = self.attributes.clone();
        said.push(KeyValue::new("phalanx.outcome", word));
        said.extend(self.reasons.last().map(|(_, reason, _)| KeyValue::new("phalanx.reason", *reason)));
        said.extend(self.starts.last().into_iter().flat_map(Start::said));
        said
    }

    /// In the order in which they came.
    fn events(&self, now: SystemTime, outcome: Outcome) -> Vec<Event> {
        let event = |name: &'static str, at, said| Event::new(name, at, said, 0);
        let mut events = vec![event("queued", self.since, Vec::new())];
        events.extend(self.reasons.iter().map(|(at, reason, why)| {
            let said =
                vec![KeyValue::new("phalanx.reason", *reason), KeyValue::new("phalanx.why", why.clone())];
            event("waits", *at, said)
        }));
        for start in &self.starts {
            events.push(event("decided", start.at, start.said()));
            events.extend(
                start.ended.as_ref().map(|(at, why)| {
                    event("taken back", *at, vec![KeyValue::new("phalanx.why", why.clone())])
                }),
            );
        }
        events.sort_by_key(|event| event.timestamp);
        if outcome == Outcome::Bound {
            events.push(event("bound", now, Vec::new()));
        }
        events
    }
}

impl Start {
    fn said(&self) -> Vec<KeyValue> {
        vec![
            KeyValue::new("phalanx.attempt", i64::from(self.attempt)),
            count("phalanx.nodes", self.nodes),
            KeyValue::new("phalanx.level", self.level.clone()),
        ]
    }

    /// The bindings of this start, below the span of its gang.
    fn bind(&self, tracer: &SdkTracer, parent: &Context) {
        let Some((first, last)) = self.bindings else { return };
        let mut said = self.said();
        said.push(count("phalanx.pods", self.pods));
        let span = SpanBuilder::from_name("bind").with_start_time(first).with_attributes(said);
        let mut span = tracer.build_with_context(span, parent);
        let why = self.failed.as_ref().or(self.ended.as_ref().map(|(_, why)| why));
        if let Some(why) = why {
            span.set_status(Status::error(why.clone()));
        }
        span.end_with_timestamp(last);
    }
}

fn taken_back(cause: Option<&StopCause>) -> String {
    match cause {
        Some(StopCause::Failure { detail, .. } | StopCause::Displaced { detail, .. }) => short(detail),
        Some(StopCause::Preempted(eviction)) => short(&eviction.rule.to_string()),
        Some(StopCause::Cancelled { by }) => short(by),
        _ => "it was stopped".to_owned(),
    }
}

fn short(why: &str) -> String {
    why.chars().take(WHY_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use opentelemetry::trace::{SpanId, TracerProvider};
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanProcessor};
    use phalanx_model::{DeviceMask, FailureClass, GangId, LevelName, QueueName, Slot, StopCause, Timestamp};
    use serde_json::json;

    use super::*;
    use crate::gang::Options;
    use crate::messages::Event as Seen;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl Kept {
        fn take(&self) -> Vec<SpanData> {
            std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    impl SpanProcessor for Kept {
        fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &Context) {}

        fn on_end(&self, span: SpanData) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(span);
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
            Ok(())
        }
    }

    /// A lifecycle with one pod that has been handed in, and its gang.
    fn lifecycle() -> (Lifecycle, Vec<Input>, GangId) {
        let mut lifecycle = Lifecycle::new(Options::of_queue(QueueName::new("default").unwrap()));
        let node =
            json!({ "metadata": { "name": "n" }, "status": { "allocatable": { "cpu": "8", "pods": "9" } } });
        lifecycle.observe(NOW, Seen::Node(Box::new(serde_json::from_value(node).unwrap())));
        let pod = json!({
            "metadata": { "namespace": "x", "name": "one", "uid": "1" },
            "spec": { "schedulerName": "phalanx", "containers": [{ "name": "c" }] },
        });
        lifecycle.observe(NOW, Seen::Pod(Box::new(serde_json::from_value(pod).unwrap())));
        let facts = lifecycle.begin(NOW);
        let job = facts.iter().find_map(|fact| match fact {
            Input::JobSubmitted { job } => Some(job.id),
            _ => None,
        });
        (lifecycle, facts, GangId { job: job.unwrap(), index: 0 })
    }

    fn start(gang: GangId, attempt: u32) -> Order {
        let slot =
            Slot { rank: 0, node: NodeName::new("n").unwrap(), devices: DeviceMask::EMPTY, part: None };
        let placement = Placement { slots: vec![slot], level: LevelName::new("node").unwrap() };
        Order::StartMembers { gang, attempt, placement, deadline: NOW }
    }

    fn events(span: &SpanData) -> Vec<&str> {
        span.events.iter().map(|event| &*event.name).collect()
    }

    fn said(span: &SpanData, key: &str) -> String {
        let value = span.attributes.iter().find(|said| said.key.as_str() == key);
        value.map(|said| said.value.to_string()).unwrap_or_default()
    }

    #[test]
    fn starts_that_are_taken_back_are_in_the_span_and_what_is_evicted_has_another() {
        let kept = Kept::default();
        let provider = SdkTracerProvider::builder().with_span_processor(kept.clone()).build();
        let mut spans = GangSpans::new(provider.tracer("test"), TraceCounts::default());
        let (lifecycle, facts, gang) = lifecycle();
        spans.told(&lifecycle, &facts);
        let member = |attempt| MemberId { gang, attempt, rank: 0 };
        spans.ordered(&start(gang, 1), None);
        spans.asked(member(1));
        let lost = Unbound { class: FailureClass::StartUp, detail: "no answer".to_owned(), may_come: true };
        spans.answered(member(1), &Err(lost));
        spans.ordered(&Order::KillMembers { gang, attempt: 1 }, None);
        spans.ordered(&start(gang, 2), None);
        spans.asked(member(2));
        spans.answered(member(1), &Ok(()));
        spans.answered(member(2), &Ok(()));
        assert!(kept.take().is_empty(), "it is not bound yet");
        spans.ordered(&Order::ReleaseMembers { gang, attempt: 2 }, None);
        let [first, second, whole] = &kept.take()[..] else { panic!("not three spans") };
        assert_eq!([&*first.name, &*second.name, &*whole.name], ["bind", "bind", "gang"]);
        assert_eq!((&first.status, &second.status), (&Status::error("no answer"), &Status::Unset));
        assert_eq!(
            (first.parent_span_id, whole.parent_span_id),
            (whole.span_context.span_id(), SpanId::INVALID)
        );
        assert_eq!(events(whole), ["queued", "decided", "taken back", "decided", "bound"]);
        assert_eq!([said(whole, "phalanx.attempt"), said(whole, "phalanx.gang")], ["2", "one"]);

        // What runs has none; it is evicted, and another start is refused.
        spans.explained(gang.job, WaitsFor::Nodes, "no room");
        spans.ordered(&Order::KillMembers { gang, attempt: 2 }, Some(&StopCause::TimeLimit));
        spans.waits(gang.job);
        spans.explained(gang.job, WaitsFor::Nodes, "no room");
        spans.explained(gang.job, WaitsFor::Nodes, "still no room");
        spans.ended(gang.job, Some("never fits"));
        let [refused] = &kept.take()[..] else { panic!("not one span") };
        assert_eq!(events(refused), ["queued", "waits"]);
        assert_eq!(refused.status, Status::error("never fits"));
        let words = [said(refused, "phalanx.outcome"), said(refused, "phalanx.attempt")];
        assert_eq!(words, ["refused", ""]);
        spans.ended(gang.job, None);
        assert!(kept.take().is_empty(), "it is forgotten");
    }
}
