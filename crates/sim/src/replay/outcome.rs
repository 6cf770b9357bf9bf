//! What came of a replay.

use super::{Losses, WHOLE_MILLI};

/// One job, as far as it came. Times are ms since the start of the trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobOutcome {
    pub name: String,
    pub gpus: u32,
    /// Thousandths that it asks for of each of them; nothing where it asks for whole ones.
    pub share_milli: Option<u32>,
    pub queue: Option<String>,
    pub submit_ms: u64,
    pub first_start_ms: Option<u64>,
    /// When it had done all its work; nothing where it did not.
    pub end_ms: Option<u64>,
    /// When its time limit ended it. All that it did was in vain.
    pub killed_ms: Option<u64>,
    /// Time in which it held devices.
    pub held_ms: u64,
    /// The same, by thousandth of a device.
    pub held_gpu_us: u64,
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
    /// Thousandths of devices that jobs have.
    pub milli_allocated: u64,
    pub gpus_up: u32,
    /// Thousandths of devices that all jobs that are there ask for.
    pub milli_wanted: u64,
    pub running: u32,
    pub waiting: u32,
}

impl Sample {
    /// The devices that jobs have, shares as parts of one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
    pub fn allocated(&self) -> f64 {
        self.milli_allocated as f64 / f64::from(WHOLE_MILLI)
    }

    /// The same of what all jobs that are there ask for.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
    pub fn wanted(&self) -> f64 {
        self.milli_wanted as f64 / f64::from(WHOLE_MILLI)
    }
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
    /// The devices that it asks for in all, shares as parts of one.
    #[must_use]
    pub fn devices(&self) -> f64 {
        f64::from(self.gpus) * f64::from(self.share_milli.unwrap_or(WHOLE_MILLI)) / f64::from(WHOLE_MILLI)
    }

    /// Time in which it held devices, by device.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 µs, 285 years")]
    pub fn held_gpu_ms(&self) -> f64 {
        self.held_gpu_us as f64 / f64::from(WHOLE_MILLI)
    }

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
