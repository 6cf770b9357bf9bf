//! What came of a replay.

use super::Losses;

/// One job, as far as it came. Times are ms since the start of the trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobOutcome {
    pub name: String,
    pub gpus: u32,
    pub queue: Option<String>,
    pub submit_ms: u64,
    pub first_start_ms: Option<u64>,
    /// When it had done all its work; nothing where it did not.
    pub end_ms: Option<u64>,
    /// When its time limit ended it. All that it did was in vain.
    pub killed_ms: Option<u64>,
    /// Time in which it held devices.
    pub held_ms: u64,
    /// The same, by device.
    pub held_gpu_ms: u64,
    /// Time of that in which it started or came back.
    pub starting_ms: u64,
    /// Work that it had to do, did, and did in vain. What is done and kept at the end is `done - lost`.
    pub work: f64,
    pub done: f64,
    pub lost: f64,
    pub losses: Losses,
    /// How long it would take at its best place, where the model of progress knows.
    pub alone_ms: Option<f64>,
    pub starts: u32,
    /// It was stopped, by the policy or with a node.
    pub preemptions: u32,
    /// It changed its place without waiting.
    pub moves: u32,
    /// Domains right above the nodes that it had at its last start, and the fewest that would have held it then.
    pub leaves: u32,
    pub leaves_least: u32,
}

/// The cluster between two events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub at_ms: u64,
    pub gpus_allocated: u32,
    pub gpus_up: u32,
    /// What all jobs that are there ask for.
    pub gpus_wanted: u64,
    pub running: u32,
    pub waiting: u32,
}

/// A replay that came to its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub policy: String,
    /// In the order of the jobs.
    pub jobs: Vec<JobOutcome>,
    /// Whenever something changed.
    pub samples: Vec<Sample>,
    /// How often the policy was asked.
    pub decisions: u64,
    /// From the first submission to the last end.
    pub makespan_ms: u64,
}

impl JobOutcome {
    /// From submission to end.
    #[must_use]
    pub fn completion_ms(&self) -> Option<u64> {
        Some(self.end_ms?.saturating_sub(self.submit_ms))
    }

    /// From submission to end without the time in which it had devices.
    #[must_use]
    pub fn waited_ms(&self) -> Option<u64> {
        Some(self.completion_ms()?.saturating_sub(self.held_ms))
    }
}
