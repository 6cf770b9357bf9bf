//! Recorded jobs on a modelled cluster, under any policy: one discrete-event world for all of them.
//!
//! A [`Scheduler`] is told what happens and answers with [`Act`]s. The world checks each against its own books: no
//! device twice, whole gangs, devices of a model that will do. [`Progress`] says how fast a job gets on where it is.
//! `docs/design/0003-simulator.md` has the definitions.
//!
//! Time is in whole milliseconds. Work is `f64`, with + - x / alone, so that every platform gives the same bytes.

mod books;
mod crossings;
mod faults;
mod free;
mod job;
mod losses;
mod machines;
pub mod measured;
pub mod metrics;
pub mod muri;
mod outcome;
mod placed;
pub mod pollux;
mod progress;
mod state;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub use crossings::Crossings;
pub use faults::NodeFaults;
pub use free::Free;
pub use job::Job;
pub use losses::Losses;
pub use machines::{Machines, Part, Place, Rack, WHOLE_MILLI, gpus_of, milli_of};
pub use outcome::{JobOutcome, Outcome, Sample};
pub use placed::Placed;
pub use progress::{Progress, Rate, Recorded};
pub use state::{Phase, State, View};

use crate::{Failure, FailureKind};
use books::{Books, Reached};

/// Decisions without anything happening before a policy is called stuck: one with rounds of a minute idles for two years.
const IDLE_DECISIONS_MAX: u64 = 1_000_000;

/// Starts of each job on the average before a policy is called stuck: more than a job of two months takes with turns of a
/// minute.
const STARTS_MAX: u64 = 100_000;

/// What a policy orders. An order is carried out at once; what it costs is in [`Settings`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A waiting job starts. One that runs moves there; what it has done is kept.
    Start { job: usize, place: Place },
    /// A running job gives up its devices. Where its progress is not kept, it falls back to its last checkpoint.
    Stop { job: usize, keep_progress: bool },
}

/// A policy.
pub trait Scheduler {
    fn name(&self) -> String;

    /// A job is there.
    fn submitted(&mut self, _now: u64, _index: usize, _job: &Job) {}

    /// A job has done all its work, and its devices are free.
    fn ended(&mut self, _now: u64, _index: usize) {}

    /// A job ran to its time limit, and its devices are free. It does not come back.
    fn killed(&mut self, now: u64, index: usize) {
        self.ended(now, index);
    }

    /// A job lost its devices with a node; it waits.
    fn interrupted(&mut self, _now: u64, _index: usize) {}

    fn node_lost(&mut self, _now: u64, _node: usize) {}

    fn node_back(&mut self, _now: u64, _node: usize) {}

    /// Asked once whenever something happened, after all of it. Acts are carried out in their order. Gives when it
    /// wants to be asked again even if nothing happens.
    fn decide(&mut self, view: &View<'_>, acts: &mut Vec<Act>) -> Option<u64>;

    /// What went wrong inside it, if anything did: the replay ends with it.
    fn problem(&mut self) -> Option<String> {
        None
    }
}

/// When the time that a start takes is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartCost {
    /// At every start and every move.
    #[default]
    AtStart,
    /// From each running job whenever anything happens, and never at its last stretch: what the simulator of Muri
    /// does (`simulator/run_sim.py` of Rivendile/Muri).
    AtEveryEvent,
}

/// What starting and stopping cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Each start takes so long until work goes on, unless the job says otherwise.
    pub start_ms: u64,
    /// And so long more where there is something to restore.
    pub restore_ms: u64,
    pub start_cost: StartCost,
    /// Running jobs save what they did every so often; without it only when they are stopped with their progress kept.
    pub checkpoint_every_ms: Option<u64>,
    /// What of that time they stand still for it.
    pub checkpoint_ms: u64,
    /// A time limit stretches with the slowdown that is predicted for the place of each run.
    pub stretches_limits: bool,
}

/// Something happens to a node, whatever the policy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    pub at_ms: u64,
    pub node: usize,
    pub what: NodeChange,
}

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeChange {
    Back,
    Lost,
    /// From now on it takes so many thousandths of the time for the same work, and whoever has devices of it is as slow:
    /// members of a gang wait for each other. No policy is told.
    Slowed {
        times_milli: u32,
    },
}

/// A replay that has not run yet.
#[derive(Clone, Copy)]
pub struct Replay<'a> {
    pub cluster: &'a Machines,
    /// Sorted by submission.
    pub jobs: &'a [Job],
    pub progress: &'a dyn Progress,
    pub settings: Settings,
    /// Sorted by time.
    pub node_events: &'a [NodeEvent],
}

/// What will happen, by time; at one time in the order of this list, then of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The work until the end of a rate is done, or the time until the limit is over, unless the job's run changed since.
    Reached {
        job: usize,
        run: u32,
    },
    Submitted {
        job: usize,
    },
    Node {
        index: usize,
    },
    /// The policy asked for it.
    Asked,
}

impl Replay<'_> {
    /// Runs it to the end: until all jobs are done, or nothing more can happen.
    ///
    /// # Errors
    /// When the policy orders what cannot be, or asks to be woken for ever.
    pub fn run(&self, scheduler: &mut dyn Scheduler) -> Result<Outcome, Failure> {
        let mut books = Books::new(self);
        let mut due: BinaryHeap<Reverse<(u64, Due)>> = BinaryHeap::new();
        due.extend(
            self.jobs.iter().enumerate().map(|(job, of)| Reverse((of.submit_ms, Due::Submitted { job }))),
        );
        let nodes = self.node_events.iter().enumerate();
        due.extend(nodes.map(|(index, event)| Reverse((event.at_ms, Due::Node { index }))));
        let (mut acts, mut idle, mut asked_for) = (Vec::new(), 0, None);
        while let Some(Reverse((now, next))) = due.peek().copied()
            && !books.is_over()
        {
            // What was planned for a run that has changed since does not happen.
            let is_moot = match next {
                Due::Reached { job, run } => !books.is_run(job, run),
                Due::Asked => asked_for != Some(now),
                Due::Submitted { .. } | Due::Node { .. } => false,
            };
            if is_moot {
                due.pop();
                continue;
            }
            books.advance(now);
            let happened = self.happen(&mut books, &mut due, scheduler);
            idle = if happened { 0 } else { idle + 1 };
            if happened || asked_for == Some(now) {
                acts.clear();
                let asks = scheduler.decide(&books.view(), &mut acts).filter(|at| *at > now);
                due.extend(asks.filter(|_| asks != asked_for).map(|at| Reverse((at, Due::Asked))));
                asked_for = asks;
                if let Some(what) = scheduler.problem() {
                    return Err(refused(scheduler, now, &what));
                }
                idle = if acts.is_empty() { idle } else { 0 };
                for act in acts.drain(..) {
                    books.carry_out(act).map_err(|what| refused(scheduler, now, &what))?;
                }
            }
            if books.starts() > STARTS_MAX.saturating_mul(self.jobs.len() as u64) {
                let what = "its jobs take turns for ever: give them longer turns than a start takes";
                return Err(refused(scheduler, now, what));
            }
            books.replan(&mut due);
            books.sample();
            if idle > IDLE_DECISIONS_MAX {
                return Err(refused(scheduler, now, "it asks to be woken for ever, and orders nothing"));
            }
        }
        Ok(books.outcome(scheduler.name()))
    }

    /// All that is due now. Whether any of it was more than a wake.
    fn happen(
        &self,
        books: &mut Books<'_>,
        due: &mut BinaryHeap<Reverse<(u64, Due)>>,
        scheduler: &mut dyn Scheduler,
    ) -> bool {
        let mut happened = false;
        let now = books.now();
        while let Some(Reverse((at, what))) = due.peek().copied()
            && at <= now
        {
            due.pop();
            match what {
                Due::Reached { job, run } => {
                    let Some(reached) = books.reached(job, run) else { continue };
                    happened = true;
                    match reached {
                        Reached::Rate => {}
                        Reached::End => scheduler.ended(now, job),
                        Reached::Limit => scheduler.killed(now, job),
                    }
                }
                Due::Submitted { job } => {
                    if books.submitted(job) {
                        happened = true;
                        scheduler.submitted(now, job, &self.jobs[job]);
                    }
                }
                Due::Node { index } => {
                    happened = true;
                    let NodeEvent { node, what, .. } = self.node_events[index];
                    match what {
                        NodeChange::Lost => {
                            for job in books.lose(node) {
                                scheduler.interrupted(now, job);
                            }
                            scheduler.node_lost(now, node);
                        }
                        NodeChange::Back => {
                            books.bring_back(node);
                            scheduler.node_back(now, node);
                        }
                        NodeChange::Slowed { times_milli } => books.slow(node, times_milli),
                    }
                }
                Due::Asked => {}
            }
        }
        happened
    }
}

fn refused(scheduler: &dyn Scheduler, now: u64, what: &str) -> Failure {
    let what = format!("policy {} at {now} ms: {what}", scheduler.name());
    Failure { kind: FailureKind::Correctness, what, log: String::new() }
}
