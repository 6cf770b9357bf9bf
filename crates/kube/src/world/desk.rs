//! The thread that owns the lifecycle: what watches tell and what the engine orders meet here, one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use phalanx_model::{
    Change, Effect, EffectId, Epoch, GangId, GangRecord, Input, JobId, LevelName, NodeName, Order, QueueName,
    QueueReport, Slot, StopCause, Timestamp,
};
use phalanx_shell::{Engine, Handle, World, sentences, unix_now};
use tokio::sync::mpsc::UnboundedSender;

use super::gang_log;
use super::lease::Leader;
use super::metrics::Metrics;
use super::pulse::Beat;
use super::traces::{GangSpans, TurnSpans};
use super::trouble::Trouble;
use super::waits::StartWaits;
use crate::gang::Lifecycle;
use crate::gang::report::promises::Promise;
use crate::gang::report::waits::NAMED_MAX;
use crate::messages::{Call, EVICTED, Event, STARTING, STOPPING, Stopping, WaitsFor};

/// Messages taken before facts are told.
const BATCH_MAX: usize = 4_096;

/// What the desk is told.
pub(super) enum Message {
    Event(Event),
    /// The first list of a kind is complete, or it is watched again.
    Listed(&'static str),
    /// A kind is refused, and given up for now.
    Unwatched(&'static str, Trouble),
    Orders(Vec<(EffectId, Order, Option<Stopping>)>),
    News(Vec<News>),
    /// Something that an operator should read.
    Trouble(Trouble),
    /// Somebody asks whether it is still at work.
    Beat(Beat),
    /// Nothing is decided any more.
    Stop(String),
    /// This process decides from now on.
    Leads(Leader),
}

/// What a step of the engine meant for a gang.
pub(super) enum News {
    Refused(JobId, WaitsFor, String),
    /// With the word of its ending, and why, where there is more to say.
    Ended(JobId, &'static str, String),
    Waits(GangId),
    Explained(JobId, WaitsFor, String),
    Starts(Box<Started>),
    /// Which start of it.
    Runs(GangId, u32),
    /// Gangs are preempted for it, and these slots are reserved; nothing: it lost them.
    Nominated(GangId, Option<Vec<Slot>>),
    /// It makes way for another.
    Evicted(JobId, String),
    Stops(JobId, String),
}

/// A gang has its places.
pub(super) struct Started {
    pub(super) gang: GangId,
    pub(super) attempt: u32,
    pub(super) nodes: usize,
    /// The narrowest that holds it.
    pub(super) level: LevelName,
    pub(super) queue: Option<QueueName>,
    /// Of the event.
    pub(super) note: String,
}

/// The event loop: the lifecycle, with what comes in and what goes out.
pub(super) struct Desk {
    pub(super) lifecycle: Lifecycle,
    pub(super) messages: Receiver<Message>,
    pub(super) calls: UnboundedSender<Call>,
    /// Lists that are not complete.
    pub(super) unlisted: Vec<&'static str>,
    pub(super) metrics: Metrics,
    pub(super) is_ready: Arc<AtomicBool>,
    /// Queues are resources here, and there is one that has a status.
    pub(super) has_queues: bool,
    /// Nothing until this process leads.
    pub(super) leader: Option<Leader>,
    /// Pods say that another led before this one: it may not know yet that it does not any more.
    pub(super) begins_at: Option<Instant>,
    /// Something happened since the queues were reported, and when that was.
    pub(super) is_new: bool,
    pub(super) reported: Instant,
    /// When over-committed nodes and pending gangs were counted last.
    pub(super) counted: Instant,
    /// Why the circuit breaker holds grades, if it does.
    pub(super) held: Option<String>,
    pub(super) start_waits: StartWaits,
    /// Nothing where no collector is named.
    pub(super) spans: Option<GangSpans>,
    /// Nothing until there is one.
    pub(super) engine: Option<Handle>,
}

const LONG: Duration = Duration::from_secs(3_600);

const WATCHES_ENDED: &str = "all watches have ended";

impl Desk {
    /// Takes what comes until all first lists are complete and this process leads.
    pub(super) fn gather(&mut self) -> Result<(Epoch, Vec<Input>), String> {
        loop {
            let patience = self.begins_at.map_or(LONG, |at| at.saturating_duration_since(Instant::now()));
            match self.messages.recv_timeout(patience) {
                Ok(message) => drop(self.take(message)?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(WATCHES_ENDED.to_owned()),
            }
            let is_listed = self.unlisted.is_empty();
            self.is_ready.store(is_listed, Ordering::Release);
            let Some(leader) = self.leader.as_ref().filter(|_| is_listed) else { continue };
            let waits = self.lifecycle.was_led_before();
            let at = *self
                .begins_at
                .get_or_insert_with(|| Instant::now() + if waits { leader.patience } else { Duration::ZERO });
            if at <= Instant::now() {
                let epoch = leader.epoch;
                let facts = self.lifecycle.begin(unix_now());
                self.start_waits.told(&facts);
                self.trace(|spans, lifecycle| spans.told(lifecycle, &facts));
                return Ok((epoch, facts));
            }
        }
    }

    /// Goes on until it is told to stop.
    pub(super) fn run(&mut self, engine: &Handle) -> String {
        self.engine = Some(engine.clone());
        // What followed from the first lists: in a quiet cluster nothing else comes for long.
        self.send_calls();
        loop {
            let patience =
                self.lifecycle.wake().map_or(LONG, |at| Duration::from_millis(at.since(unix_now())));
            let patience =
                if self.is_new && self.has_queues { patience.min(Duration::from_secs(1)) } else { patience };
            let first = match self.messages.recv_timeout(patience) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return WATCHES_ENDED.to_owned(),
            };
            self.report(engine);
            let mut facts = Vec::new();
            let rest: Vec<Message> = self.messages.try_iter().take(BATCH_MAX).collect();
            let backlog = rest.len() + usize::from(first.is_some());
            self.metrics.backlog.set(i64::try_from(backlog).unwrap_or(i64::MAX));
            for message in first.into_iter().chain(rest) {
                match self.take(message) {
                    Ok(more) => facts.extend(more),
                    Err(why) => return why,
                }
            }
            let news = self.lifecycle.settle(unix_now());
            self.start_waits.told(&news);
            self.trace(|spans, lifecycle| spans.told(lifecycle, &news));
            facts.extend(news);
            let (nodes, gangs) = self.lifecycle.counts();
            self.metrics.nodes.set(i64::try_from(nodes).unwrap_or(i64::MAX));
            self.metrics.gangs.set(i64::try_from(gangs).unwrap_or(i64::MAX));
            self.count(engine);
            self.send_calls();
            self.is_new |= !facts.is_empty();
            if !facts.is_empty() && engine.report(facts).is_err() {
                return "the engine has stopped".to_owned();
            }
        }
    }

    fn send_calls(&mut self) {
        for call in self.lifecycle.calls() {
            if let (Some(spans), Call::Bind { member, .. }) = (&mut self.spans, &call) {
                spans.asked(*member);
            }
            // Whoever makes the calls lives as long as the process.
            let _ = self.calls.send(call);
        }
    }

    /// Where somebody collects traces.
    fn trace(&mut self, what: impl FnOnce(&mut GangSpans, &Lifecycle)) {
        if let Some(spans) = &mut self.spans {
            what(spans, &self.lifecycle);
        }
    }

    /// How the queues stand, now and then, where something happened since.
    fn report(&mut self, engine: &Handle) {
        const EVERY: Duration = Duration::from_secs(5);
        if !self.has_queues || !self.is_new || self.reported.elapsed() < EVERY {
            return;
        }
        (self.reported, self.is_new) = (Instant::now(), false);
        let look = |engine: &Engine| {
            let past: BTreeMap<_, _> =
                engine.decayed_usage().map(|(queue, past)| (queue.clone(), past)).collect();
            let with = |report: QueueReport| {
                let past = past.get(&report.queue.name).copied();
                (report, past)
            };
            let reports: Vec<_> = engine.queues().into_iter().map(with).collect();
            (reports, first_in_line(engine), promises(engine))
        };
        if let Ok((reports, line, promises)) = engine.look(look) {
            self.lifecycle.report(&reports, &line, &promises);
        }
    }

    /// How much is closed, and what the circuit breaker holds.
    fn watch_health(&mut self) {
        let (grades, held) = self.lifecycle.health();
        self.metrics.graded.set(&grades);
        self.metrics.are_grades_held.set(held.is_some().into());
        if held != self.held.as_deref() {
            match held {
                Some(why) => tracing::warn!(why, "the circuit breaker holds grades of hardware"),
                None => tracing::info!("the circuit breaker holds no grade any more"),
            }
            self.held = held.map(str::to_owned);
        }
    }

    /// Every pod and every gang is looked at: now and then, while anything happens at all.
    fn count(&mut self, engine: &Handle) {
        const EVERY: Duration = Duration::from_secs(10);
        if self.counted.elapsed() < EVERY {
            return;
        }
        self.watch_health();
        let nodes = self.lifecycle.overcommitted().len();
        self.metrics.nodes_overcommitted.set(i64::try_from(nodes).unwrap_or(i64::MAX));
        let pending = |engine: &Engine| -> Vec<(QueueName, JobId)> {
            let jobs = engine.jobs().filter(|(_, gangs)| gangs.iter().any(GangRecord::is_pending));
            jobs.map(|(job, _)| (job.queue.clone(), job.id)).collect()
        };
        if let Ok(pending) = engine.look(pending) {
            self.metrics.set_pending(&self.lifecycle.pending(&pending));
        }
        self.counted = Instant::now();
    }

    /// Gangs have events of what happens to them; of a single pod only what is bad has one, its status says the rest.
    fn say(&mut self, job: JobId, reason: &'static str, is_warning: bool, note: String) {
        if is_warning || self.lifecycle.is_gang(job) {
            self.lifecycle.tell_job(job, reason, is_warning, note);
        }
    }

    fn take(&mut self, message: Message) -> Result<Vec<Input>, String> {
        match message {
            Message::Event(event) => {
                self.has_queues |= matches!(event, Event::Queue(_));
                if let Event::Bound { member, result } = &event {
                    self.trace(|spans, _| spans.answered(*member, result));
                }
                self.lifecycle.observe(unix_now(), event);
            }
            Message::Listed(list) => {
                self.unlisted.retain(|known| *known != list);
                if self.metrics.watched(list) {
                    self.lifecycle.observe(unix_now(), Event::Unreadable { list, is_unreadable: false });
                    tracing::info!(kind = list, "a kind is watched again");
                }
            }
            Message::Unwatched(list, trouble) => {
                self.unlisted.retain(|known| *known != list);
                self.metrics.unwatched(list);
                self.lifecycle.observe(unix_now(), Event::Unreadable { list, is_unreadable: true });
                self.metrics.troubles.inc();
                trouble.say();
            }
            Message::Orders(orders) => {
                for (_, order, stopping) in &orders {
                    let cause = stopping.as_ref().map(|stopping| &stopping.cause);
                    self.trace(|spans, _| spans.ordered(order, cause));
                    self.lifecycle.carry_out(order, stopping.as_ref());
                    if let Order::ReleaseMembers { gang, .. } = order
                        && let Some(took) = self.start_waits.bound(gang.job)
                    {
                        self.metrics.start_time.observe(took);
                    }
                }
                return Ok(orders.into_iter().map(|(effect, ..)| Input::EffectDone { effect }).collect());
            }
            Message::News(news) => {
                // Reasons stand in the statuses of queues.
                self.is_new = true;
                news.into_iter().for_each(|one| self.hear(one));
            }
            Message::Trouble(trouble) => {
                self.metrics.troubles.inc();
                trouble.say();
            }
            // Whoever asked may be gone.
            Message::Beat(beat) => drop(beat.send(self.engine.clone())),
            Message::Stop(why) => return Err(why),
            Message::Leads(leader) => {
                self.lifecycle.lead(&leader.name);
                self.leader = Some(leader);
            }
        }
        Ok(Vec::new())
    }

    /// What a step of the engine meant for a gang: for the lifecycle, and for whoever looks on.
    fn hear(&mut self, news: News) {
        match news {
            News::Refused(job, waits_for, why) => {
                if self.lifecycle.is_news_to(job, &why) {
                    self.metrics.refusals.inc();
                    gang_log::refused(&self.lifecycle, job, waits_for, &why);
                }
                self.trace(|spans, _| spans.ended(job, Some(&why)));
                self.start_waits.ended(job);
                self.lifecycle.job_refused(job, &why, waits_for);
            }
            News::Ended(job, ending, why) => {
                gang_log::ended(&self.lifecycle, job, ending, &why);
                self.trace(|spans, _| spans.ended(job, None));
                self.start_waits.ended(job);
                self.lifecycle.job_ended(job);
            }
            News::Waits(gang) => {
                self.trace(|spans, _| spans.waits(gang.job));
                self.start_waits.waits(gang.job);
                self.lifecycle.gang_waits(gang);
            }
            News::Explained(job, waits_for, why) => {
                gang_log::waits(&self.lifecycle, job, waits_for, &why);
                self.trace(|spans, _| spans.explained(job, waits_for, &why));
                self.lifecycle.explain_job(job, waits_for, &why);
            }
            News::Starts(started) => {
                self.metrics.starts.inc();
                gang_log::starts(&self.lifecycle, &started);
                self.say(started.gang.job, STARTING, false, started.note);
            }
            News::Runs(gang, attempt) => gang_log::runs(&self.lifecycle, gang, attempt),
            News::Nominated(gang, Some(slots)) => self.lifecycle.nominate(gang, &slots),
            News::Nominated(gang, None) => self.lifecycle.end_nomination(gang),
            News::Evicted(job, why) => {
                self.metrics.evictions.inc();
                gang_log::makes_way(&self.lifecycle, job, &why);
                self.say(job, EVICTED, true, why);
            }
            News::Stops(job, why) => {
                gang_log::stops(&self.lifecycle, job, &why);
                self.say(job, STOPPING, true, why);
            }
        }
    }
}

/// The engine's side: everything goes to the desk.
pub(super) struct KubeWorld {
    pub(super) desk: Sender<Message>,
    pub(super) metrics: Metrics,
    /// Nothing where no collector is named.
    pub(super) spans: Option<TurnSpans>,
}

impl World for KubeWorld {
    fn carry_out(&mut self, effects: &[Effect], engine: &Engine) {
        let stopping = |order: &Order| engine.gang(order.gang()).and_then(Stopping::of);
        let orders: Vec<_> =
            effects.iter().map(|effect| (effect.id, effect.order.clone(), stopping(&effect.order))).collect();
        if !orders.is_empty() {
            let _ = self.desk.send(Message::Orders(orders));
        }
    }

    fn changed(&mut self, now: Timestamp, facts: &[Input], changes: &[Change], engine: &Engine) {
        let is_policy =
            |fact: &Input| matches!(fact, Input::SettingsConfigured { .. } | Input::LevelsConfigured { .. });
        if facts.iter().any(is_policy)
            && let Some((level, _)) = engine.spares_without_level()
        {
            tracing::warn!(spares = %level, "no spare nodes are kept: the nodes have no such level");
        }
        let news: Vec<News> = changes.iter().filter_map(|change| news(now, change, engine)).collect();
        if !news.is_empty() {
            let _ = self.desk.send(Message::News(news));
        }
        for change in changes {
            if let Change::InputRejected { what, why } = change {
                tracing::warn!(fact = what, reason = why, "a fact was not used");
            }
        }
    }

    fn warn(&mut self, message: &str) {
        tracing::warn!(error = message, "the engine goes on without");
    }

    fn stepped(&mut self, took: Duration, facts: usize, orders: usize) {
        self.metrics.step_time.observe(took);
        if let Some(spans) = &self.spans {
            spans.stepped(took, facts, orders);
        }
    }
}

/// As they would go, as many of each queue as its status names.
fn first_in_line(engine: &Engine) -> Vec<(QueueName, JobId)> {
    let mut named: BTreeMap<&QueueName, usize> = BTreeMap::new();
    let jobs = engine.in_order().into_iter().filter_map(|gang| engine.job(gang.job));
    let first = jobs.filter(|job| {
        let count = named.entry(&job.queue).or_default();
        *count += 1;
        *count <= NAMED_MAX
    });
    first.map(|job| (job.queue.clone(), job.id)).collect()
}

/// What gangs that wait were promised.
fn promises(engine: &Engine) -> Vec<Promise> {
    let promises =
        engine.jobs().flat_map(|(job, gangs)| gangs.iter().filter_map(|gang| Promise::of(job, gang)));
    promises.collect()
}

fn news(now: Timestamp, change: &Change, engine: &Engine) -> Option<News> {
    let told = || sentences::change(now, change, engine);
    Some(match change {
        Change::JobRejected { job, why } => News::Refused(*job, WaitsFor::of_rejection(why), why.to_string()),
        // The lifecycle has to hear of it, whatever there is to say.
        Change::JobFinished { job, ending } => {
            News::Ended(*job, ending.word(), told().map_or_else(String::new, |(.., why)| why))
        }
        // What starts again at once was ordered already.
        Change::GangRetrying { gang, .. } if engine.gang(*gang).is_some_and(GangRecord::is_pending) => {
            News::Waits(*gang)
        }
        Change::GangReserved { gang, reserved } if reserved.evicts => {
            News::Nominated(*gang, Some(reserved.placement.slots.clone()))
        }
        Change::ReservationDropped { gang, .. } => News::Nominated(*gang, None),
        Change::GangPlaced { gang, attempt, placement } => {
            let nodes: BTreeSet<&NodeName> = placement.slots.iter().map(|slot| &slot.node).collect();
            News::Starts(Box::new(Started {
                gang: *gang,
                attempt: *attempt,
                nodes: nodes.len(),
                level: placement.level.clone(),
                queue: engine.job(gang.job).map(|job| job.queue.clone()),
                note: told()?.2,
            }))
        }
        Change::GangRunning { gang, attempt } => News::Runs(*gang, *attempt),
        Change::GangStopping { gang, cause: StopCause::Preempted(_), .. } => {
            News::Evicted(gang.job, told()?.2)
        }
        Change::GangStopping {
            gang, cause: StopCause::Failure { .. } | StopCause::Displaced { .. }, ..
        } => News::Stops(gang.job, told()?.2),
        Change::ReasonChanged { gang, reason } => {
            let (job, what, detail) = told()?;
            debug_assert_eq!(job, gang.job, "a reason is about its gang");
            let why = if detail.is_empty() { what.to_owned() } else { detail };
            News::Explained(job, WaitsFor::of(reason), why)
        }
        _ => return None,
    })
}
