//! The jobs of a replay.

use super::{Part, WHOLE_MILLI, milli_of};
use crate::trace::{Trace, TraceJob, Training};

/// A job that is replayed. It has no identity but its place in the list, which is sorted by time of submission.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// As the trace names it.
    pub name: String,
    pub submit_ms: u64,
    /// All of its work, in the unit of the replay's [`super::Progress`]: milliseconds at nominal speed, or iterations.
    pub work: f64,
    /// What it asks for, and runs with unless it is elastic.
    pub gpus: u32,
    pub gpus_min: u32,
    pub gpus_max: u32,
    /// Thousandths that it asks for of each of these devices; nothing where it asks for whole ones. Shares of one job may
    /// be on one device.
    pub share_milli: Option<u32>,
    /// Models of device that will do; empty for any.
    pub models: Vec<String>,
    pub user: Option<String>,
    pub queue: Option<String>,
    /// Greater goes first.
    pub priority: i32,
    /// What its user said it would take at most, without starts. It is ended there, whoever the policy is.
    pub limit_ms: Option<u64>,
    /// How long each start takes until work goes on, where it differs from [`super::Settings::start_ms`].
    pub start_ms: Option<u64>,
    /// Share of its time, in thousandths, in which it communicates where it is placed best.
    pub traffic_milli: u32,
    pub training: Option<Training>,
}

impl Job {
    /// A recorded job, whose work is the time that it ran. Nothing for one without devices, which competes for nothing
    /// here, or whose run time is not known.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 ms, 285,000 years")]
    pub fn recorded(of: &TraceJob) -> Option<Self> {
        let run_ms = of.run_ms.filter(|_| of.gpus > 0)?;
        let limit_ms = of.limit_ms.map(|limit_ms| raised(limit_ms, run_ms));
        Some(Self { work: run_ms as f64, limit_ms, ..Self::asking(of) })
    }

    /// What a recorded job asks for, with no work yet.
    #[must_use]
    pub fn asking(of: &TraceJob) -> Self {
        Self {
            name: of.id.clone(),
            submit_ms: of.submit_ms,
            work: 0.0,
            gpus: of.gpus,
            gpus_min: of.gpus,
            gpus_max: of.gpus,
            share_milli: Some(of.gpu_milli).filter(|milli| *milli < WHOLE_MILLI),
            models: of.gpu_models.clone(),
            user: of.user.clone(),
            queue: of.queue.clone(),
            priority: of.priority.unwrap_or(0),
            limit_ms: of.limit_ms,
            start_ms: None,
            traffic_milli: 0,
            training: of.training.clone(),
        }
    }

    /// Thousandths that it asks for of each of its devices.
    #[must_use]
    pub fn each_milli(&self) -> u32 {
        self.share_milli.unwrap_or(WHOLE_MILLI)
    }

    /// How many of its shares one device has room for; 1 where it asks for whole devices.
    #[must_use]
    pub fn on_each_device(&self) -> u32 {
        (WHOLE_MILLI / self.each_milli().max(1)).max(1)
    }

    /// Thousandths of devices that it asks for in all.
    #[must_use]
    pub fn milli(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.each_milli())
    }

    /// The devices that it asks for in all, shares as parts of one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
    pub fn devices(&self) -> f64 {
        self.milli() as f64 / f64::from(WHOLE_MILLI)
    }

    /// What a place has of the devices that it asks for; above 1 for an elastic job with more.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
    pub fn part_of(&self, place: &[Part]) -> f64 {
        milli_of(place) as f64 / self.milli().max(1) as f64
    }

    /// Jobs of a trace that can be replayed as recorded, by submission.
    #[must_use]
    pub fn all_of(trace: &Trace) -> Vec<Self> {
        trace.jobs.iter().filter_map(Self::recorded).collect()
    }
}

/// The limit of a job that ran longer than that where it was recorded, for nobody ended it there: a quarter and a minute
/// more than it ran.
const fn raised(limit_ms: u64, run_ms: u64) -> u64 {
    if run_ms <= limit_ms { limit_ms } else { run_ms.saturating_add(run_ms / 4).saturating_add(60_000) }
}
