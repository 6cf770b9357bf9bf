//! A world that does at once what it is told: members come to the gate, go through it, and end when they are told to.

use std::fmt::{self, Write};

use nix::time::{ClockId, clock_gettime};
use phalanx_engine::{Config, Engine};
use phalanx_model::{
    Change, Epoch, Exit, GangId, Input, JobId, MemberId, Order, Outcome, Phase, Signal, StopCause, Timestamp,
};

/// Steps until nothing is left to answer; more means that gangs make way for each other in turn.
const ROUNDS_MAX: u32 = 10_000;

/// What this thread has computed for so far: the engine has no other, so whatever else runs on the machine does not count.
pub(super) fn cpu_ns() -> u64 {
    let spent = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(std::time::Duration::from);
    spent.map_or(0, |spent| u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX))
}

/// An engine, and what runs.
#[derive(Clone)]
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) now: Timestamp,
    wake: Option<Timestamp>,
    out: Outcome,
    /// What the world has to say.
    answers: Vec<Input>,
    /// Gangs whose members are all through the gate, in no order.
    pub(super) running: Vec<GangId>,
    /// The first fact or job that was refused.
    pub(super) refused: Option<String>,
    /// Of everything that the engine said since the beginning.
    pub(super) digest: Digest,
    next_job: u64,
}

/// FNV-1a of 64 bits: equal where the same was decided, in the same order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digest(pub(super) u64);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

/// What one step took and did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stepped {
    pub(super) ns: u64,
    /// Gangs.
    pub(super) started: u32,
    pub(super) evicted: u32,
    pub(super) ended: u32,
    pub(super) accepted: u32,
    /// Orders and changes of any kind.
    pub(super) said: u32,
}

impl World {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            engine: Engine::new(Epoch(1), Config::default()),
            now,
            wake: None,
            out: Outcome::default(),
            answers: Vec::new(),
            running: Vec::new(),
            refused: None,
            digest: Digest(0xcbf2_9ce4_8422_2325),
            next_job: 1,
        }
    }

    /// A job's number.
    pub(super) const fn next_job(&mut self) -> u64 {
        self.next_job += 1;
        self.next_job - 1
    }

    /// One step of the engine, timed by itself; its orders are answered at the next [`Self::settle`].
    pub(super) fn step(&mut self, inputs: &[Input]) -> Stepped {
        let begin = cpu_ns();
        let wake = self.engine.step(self.now, inputs, &mut self.out);
        let ns = cpu_ns().saturating_sub(begin);
        self.wake = wake.0;
        let mut did = Stepped { ns, ..Stepped::default() };
        did.said = u32::try_from(self.out.effects.len() + self.out.changes.len()).unwrap_or(u32::MAX);
        let out = std::mem::take(&mut self.out);
        // Writing to a number does not fail.
        let _ = write!(self.digest, "{:?} {:?} {:?}", out.changes, out.effects, self.wake);
        out.changes.iter().for_each(|change| self.hear(change, &mut did));
        for effect in &out.effects {
            self.answers.push(Input::EffectDone { effect: effect.id });
            self.obey(&effect.order);
        }
        self.out = out;
        did
    }

    fn hear(&mut self, change: &Change, did: &mut Stepped) {
        match change {
            Change::JobAccepted { .. } => did.accepted += 1,
            Change::JobRejected { job, why } => {
                self.refused.get_or_insert_with(|| format!("job {job}: {why}"));
            }
            Change::InputRejected { what, why } => {
                self.refused.get_or_insert_with(|| format!("{what}: {why}"));
            }
            Change::GangPlaced { .. } => did.started += 1,
            Change::GangRunning { gang, .. } => self.running.push(*gang),
            Change::GangStopping { gang, cause, .. } => {
                did.evicted += u32::from(matches!(cause, StopCause::Preempted(_)));
                self.no_longer_runs(*gang);
            }
            Change::GangFinished { gang, .. } => {
                did.ended += 1;
                self.no_longer_runs(*gang);
            }
            Change::JobFinished { job, .. } => self.answers.push(Input::JobForgotten { job: *job }),
            _ => {}
        }
    }

    fn no_longer_runs(&mut self, gang: GangId) {
        if let Some(at) = self.running.iter().position(|running| *running == gang) {
            self.running.swap_remove(at);
        }
    }

    fn obey(&mut self, order: &Order) {
        let (gang, attempt) = (order.gang(), order.attempt());
        let member = |rank| MemberId { gang, attempt, rank };
        let ranks = 0..self.engine.gang(gang).map_or(0, |record| record.members.len());
        let members = ranks.filter_map(|rank| u32::try_from(rank).ok()).map(member);
        match order {
            Order::StartMembers { .. } => {
                self.answers.extend(members.map(|member| Input::MemberReady { member }))
            }
            Order::ReleaseMembers { .. } => {
                self.answers.extend(members.map(|member| Input::MemberReleased { member }));
            }
            Order::SignalMembers { signal: Signal::Advisory(_), .. } => {}
            Order::SignalMembers { .. } | Order::KillMembers { .. } => {
                let exit = Exit::by_signal(15);
                self.answers.extend(members.map(|member| Input::MemberExited { member, exit: exit.clone() }));
            }
        }
    }

    /// All members of a gang end well.
    pub(super) fn exits(&self, gang: GangId) -> Vec<Input> {
        let Some(record) = self.engine.gang(gang) else { return Vec::new() };
        let ranks = (0..record.members.len()).filter_map(|rank| u32::try_from(rank).ok());
        let member = |rank| MemberId { gang, attempt: record.attempt, rank };
        ranks.map(|rank| Input::MemberExited { member: member(rank), exit: Exit::succeeded() }).collect()
    }

    /// Answers until there is nothing to say and no timer is due. Each step is given to `seen`.
    pub(super) fn settle(&mut self, mut seen: impl FnMut(&Stepped)) -> Result<(), String> {
        for _ in 0..ROUNDS_MAX {
            if self.answers.is_empty() && self.wake.is_none_or(|at| at > self.now) {
                return Ok(());
            }
            self.now = self.now.plus(1);
            let inputs = std::mem::take(&mut self.answers);
            let did = self.step(&inputs);
            seen(&did);
        }
        Err(format!("the cluster does not come to rest in {ROUNDS_MAX} steps"))
    }

    /// Time passes, and what is due in it is done.
    pub(super) fn pass(&mut self, ms: u64) -> Result<(), String> {
        self.now = self.now.plus(ms);
        self.settle(|_| ())
    }

    /// Jobs are cancelled, end and are forgotten.
    pub(super) fn cancel(&mut self, jobs: &[JobId]) -> Result<(), String> {
        let cancel = |job: &JobId| Input::CancelRequested { job: *job, by: "bench".to_owned() };
        let inputs: Vec<Input> = jobs.iter().map(cancel).collect();
        self.step(&inputs);
        self.settle(|_| ())
    }

    /// GPUs that gangs hold, and gangs that wait.
    pub(super) fn books(&self) -> (u64, usize) {
        let (mut held, mut pending) = (0, 0);
        for (job, records) in self.engine.jobs() {
            for (gang, record) in job.gangs.iter().zip(records) {
                held += if record.holds_capacity() { u64::from(super::load::gpus_of(gang)) } else { 0 };
                pending += usize::from(record.is_pending());
            }
        }
        (held, pending)
    }

    /// How long a gang has been running.
    pub(super) fn running_ms(&self, gang: GangId) -> Option<u64> {
        match self.engine.gang(gang)?.phase {
            Phase::Running { since } => Some(self.now.since(since)),
            _ => None,
        }
    }
}
