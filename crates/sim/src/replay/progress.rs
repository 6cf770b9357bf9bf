//! How fast a job gets on where it is.

use super::{Crossings, Job, Machines, Part};

/// Work per millisecond, for as long as less than `until` of it is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub per_ms: f64,
    /// Work done at which the rate is asked for again; more than all of it where it never changes.
    pub until: f64,
}

impl Rate {
    #[must_use]
    pub const fn steady(per_ms: f64) -> Self {
        Self { per_ms, until: f64::INFINITY }
    }
}

/// A model of progress. Rates may depend on the place and on what is done, and on others only where [`Self::is_shared`].
pub trait Progress {
    /// Whether rates depend on who sends across the same uplinks: then [`Self::rate_among`] is asked, and again whenever
    /// that changes.
    fn is_shared(&self) -> bool {
        false
    }

    /// The rate beside others; they and the job itself are in the crossings.
    fn rate_among(
        &self,
        job: usize,
        of: &Job,
        place: &[Part],
        cluster: &Machines,
        done: f64,
        _: &Crossings,
    ) -> Rate {
        self.rate(job, of, place, cluster, done)
    }

    /// Rates of 0 are taken for what never ends.
    fn rate(&self, job: usize, of: &Job, place: &[Part], cluster: &Machines, done: f64) -> Rate;

    /// How long all work takes with all the devices that the job asks for at its best place, where that is known.
    fn alone_ms(&self, _job: usize, _of: &Job) -> Option<f64> {
        None
    }
}

/// A job runs as recorded wherever it is, and with fewer devices in proportion longer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded;

impl Progress for Recorded {
    fn rate(&self, _: usize, of: &Job, place: &[Part], _: &Machines, _: f64) -> Rate {
        Rate::steady(of.part_of(place))
    }

    fn alone_ms(&self, _: usize, of: &Job) -> Option<f64> {
        Some(of.work)
    }
}

/// How many times as long as at its best place a job is predicted to take on a place, at least 1. Devices that it lacks
/// and jobs that share its uplinks do not count.
pub(super) fn slowdown(
    progress: &dyn Progress,
    job: usize,
    of: &Job,
    place: &[Part],
    cluster: &Machines,
    done: f64,
) -> f64 {
    let per_ms = progress.rate(job, of, place, cluster, done).per_ms;
    let Some(alone_ms) = progress.alone_ms(job, of).filter(|alone_ms| *alone_ms > 0.0 && per_ms > 0.0) else {
        return 1.0;
    };
    let best = of.work / alone_ms * of.part_of(place);
    (best / per_ms).max(1.0)
}
