//! The pump itself: one thread that owns the engine.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use phalanx_engine::Engine;
use phalanx_journal::{FileStorage, Journal, JournalError, Storage};
use phalanx_model::{Change, Effect, Input, Outcome, Timestamp, Wake};

use crate::ask::{self, Ask, Handle, Reply};
use crate::rotate::Rotation;

/// Messages taken into one step.
const BATCH_MAX: usize = 1024;
/// How often a journal that could not be written is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// Where orders go. Calls return soon; answers come back later as facts, through a [`Handle`].
pub trait World {
    /// Carries out orders. They are durable: a successor will know of them.
    fn carry_out(&mut self, effects: &[Effect], engine: &Engine);
    /// Told what changed by which facts, after the step is durable.
    fn changed(&mut self, now: Timestamp, facts: &[Input], changes: &[Change], engine: &Engine);
    /// Told something that an operator should read.
    fn warn(&mut self, message: &str);
    /// Told how long the engine took over a step of so many facts that gave so many orders, before they are durable.
    fn stepped(&mut self, _took: Duration, _facts: usize, _orders: usize) {}
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    pub steps: u64,
    pub inputs: u64,
    pub effects: u64,
    /// The slowest step of the engine alone, in microseconds.
    pub step_max_us: u64,
    pub journal_failures: u64,
}

/// Owns the engine, the journal and the world's outgoing side.
pub struct Pump<W, S = FileStorage> {
    pub(crate) engine: Engine,
    /// Where state is kept by a world itself there need be none.
    pub(crate) journal: Option<Journal<S>>,
    pub(crate) world: W,
    asks: Receiver<Ask>,
    pub(crate) wake: Wake,
    pub(crate) clock: Box<dyn Fn() -> Timestamp + Send>,
    /// Facts that could not be journalled yet.
    backlog: Vec<Input>,
    /// Told to stop while a step waited for the disk.
    stopping: bool,
    pub(crate) out: Outcome,
    pub(crate) metrics: Metrics,
    pub(crate) rotation: Option<Rotation<S>>,
}

/// Facts, and who waits until they are durable.
type Requested = (Vec<Input>, Reply);

enum Turn {
    GoOn,
    Stop,
}

impl<W: World, S: Storage> Pump<W, S> {
    /// A pump, and the way in. The world is built with the handle, so that it can answer.
    pub fn new(
        engine: Engine,
        journal: impl Into<Option<Journal<S>>>,
        clock: impl Fn() -> Timestamp + Send + 'static,
        world: impl FnOnce(Handle) -> W,
    ) -> (Self, Handle) {
        let (handle, asks) = ask::channel();
        let pump = Self {
            engine,
            journal: journal.into(),
            world: world(handle.clone()),
            asks,
            wake: Wake(None),
            clock: Box::new(clock),
            backlog: Vec::new(),
            stopping: false,
            out: Outcome::default(),
            metrics: Metrics::default(),
            rotation: None,
        };
        (pump, handle)
    }

    /// The first step: the world as it was found. Until it is durable, nothing is served.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn begin(&mut self, facts: &[Input]) -> Result<(), JournalError> {
        let now = (self.clock)();
        self.record_facts(now, facts)?;
        self.step(now, facts);
        if let Some(journal) = &mut self.journal {
            journal.decisions(&self.out)?;
            journal.sync()?;
        }
        self.dispatch(now, facts);
        Ok(())
    }

    /// Runs until it is told to stop.
    pub fn run(mut self) -> Metrics {
        while !self.stopping && matches!(self.turn(), Turn::GoOn) {}
        self.metrics
    }

    fn turn(&mut self) -> Turn {
        let first = match self.asks.recv_timeout(self.patience()) {
            Ok(ask) => Some(ask),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Turn::Stop,
        };
        let mut inputs = std::mem::take(&mut self.backlog);
        let mut replies = Vec::new();
        let mut turn = Turn::GoOn;
        let rest: Vec<Ask> = self.asks.try_iter().take(BATCH_MAX).collect();
        for ask in first.into_iter().chain(rest) {
            match ask {
                Ask::Facts(facts) => inputs.extend(facts),
                Ask::Request(facts, reply) => replies.push((facts, reply)),
                Ask::Look(look) => look(&self.engine),
                Ask::Stop => turn = Turn::Stop,
            }
        }
        let replies = self.without_new_work_on_a_full_disk(replies);
        let now = (self.clock)();
        let due = self.wake.0.is_some_and(|at| at <= now);
        if inputs.is_empty() && replies.is_empty() && !due {
            return turn;
        }
        let requested: Vec<Input> = replies.iter().flat_map(|(facts, _)| facts.iter().cloned()).collect();
        let kept = inputs.len();
        inputs.extend(requested);
        if let Err(error) = self.record_facts(now, &inputs) {
            // New work is refused, what the world did is kept and told later.
            self.refuse(&error, replies.into_iter().map(|(_, reply)| reply));
            inputs.truncate(kept);
            self.backlog = inputs;
            std::thread::sleep(RETRY);
            return turn;
        }
        self.step(now, &inputs);
        self.make_durable();
        self.dispatch(now, &inputs);
        for (_, reply) in replies {
            reply(Ok((&self.engine, &self.out.changes)));
        }
        self.rotate_if_large();
        turn
    }

    /// Refuses submissions while the journal cannot keep its reserve: cancels, stops and exits go on in it.
    fn without_new_work_on_a_full_disk(&mut self, mut replies: Vec<Requested>) -> Vec<Requested> {
        let is_new =
            |(facts, _): &Requested| facts.iter().any(|fact| matches!(fact, Input::JobSubmitted { .. }));
        if !replies.iter().any(is_new) {
            return replies;
        }
        let facts = replies.iter().filter(|asked| is_new(asked)).flat_map(|(facts, _)| facts);
        let facts: Vec<Input> = facts.cloned().collect();
        let Some(Err(error)) = self.journal.as_mut().map(|journal| journal.reserve(&facts)) else {
            return replies;
        };
        let refused: Vec<Reply> =
            replies.extract_if(.., |asked| is_new(asked)).map(|(_, reply)| reply).collect();
        self.refuse(&error, refused.into_iter());
        replies
    }

    fn record_facts(&mut self, now: Timestamp, facts: &[Input]) -> Result<(), JournalError> {
        self.journal.as_mut().map_or(Ok(()), |journal| journal.facts(now, facts))
    }

    fn patience(&self) -> Duration {
        if !self.backlog.is_empty() {
            return Duration::ZERO;
        }
        const LONG: Duration = Duration::from_secs(3600);
        let now = (self.clock)();
        self.wake.0.map_or(LONG, |at| Duration::from_millis(at.since(now)).min(LONG))
    }

    fn step(&mut self, now: Timestamp, inputs: &[Input]) {
        let began = Instant::now();
        self.wake = self.engine.step(now, inputs, &mut self.out);
        let took = began.elapsed();
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.metrics.steps += 1;
        self.metrics.inputs += inputs.len() as u64;
        self.metrics.effects += self.out.effects.len() as u64;
        self.metrics.step_max_us = self.metrics.step_max_us.max(took_us);
        self.world.stepped(took, inputs.len(), self.out.effects.len());
    }

    /// The step has happened; its orders wait here until they are on the disk, however long that takes.
    /// Questions are answered meanwhile, new work is refused, and what runs goes on.
    fn make_durable(&mut self) {
        let mut written = false;
        loop {
            let Some(journal) = &mut self.journal else { return };
            let result = if written { Ok(()) } else { journal.decisions(&self.out) };
            written |= result.is_ok();
            let Err(error) = result.and_then(|()| journal.sync()) else { return };
            let mut refused = Vec::new();
            for ask in self.asks.try_iter().take(BATCH_MAX).collect::<Vec<_>>() {
                match ask {
                    Ask::Facts(facts) => self.backlog.extend(facts),
                    Ask::Request(_, reply) => refused.push(reply),
                    Ask::Look(look) => look(&self.engine),
                    // Held back: a stop now would let a successor decide anew what was decided.
                    Ask::Stop => self.stopping = true,
                }
            }
            self.refuse(&error, refused.into_iter());
            std::thread::sleep(RETRY);
        }
    }

    fn refuse(&mut self, error: &JournalError, replies: impl Iterator<Item = Reply>) {
        self.metrics.journal_failures += 1;
        let why =
            format!("the journal cannot be written ({error}); free space on that disk, it is tried again");
        self.world.warn(&why);
        replies.for_each(|reply| reply(Err(&why)));
    }

    pub(crate) fn dispatch(&mut self, now: Timestamp, facts: &[Input]) {
        self.world.changed(now, facts, &self.out.changes, &self.engine);
        self.world.carry_out(&self.out.effects, &self.engine);
    }
}
