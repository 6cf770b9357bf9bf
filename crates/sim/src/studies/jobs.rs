//! Jobs that an input declares by distributions.

use serde::Deserialize;

use super::input::{LONG, Milli, Mix, SECOND, Time};
use super::{Source, StudyError};
use crate::replay::Job;
use crate::trace::generate::{Arrivals, Load, Runs};

/// Most jobs of a study.
const JOBS_MAX: f64 = 100_000.0;

/// Jobs that arrive at random (Poisson).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Jobs {
    /// GPUs of a job: its weight.
    pub(super) gpus: Mix,
    pub(super) mean_run: Time<SECOND, LONG>,
    /// Run times are log-normal with this deviation of their logarithms; exponential without it.
    #[serde(default)]
    sigma: Option<Milli<1, 4_000>>,
    /// The GPU time that all jobs ask for, over that of the cluster in the span of the study.
    load: Milli<1, 3_000>,
    /// How long jobs are submitted.
    pub(super) submitted_for: Time<SECOND, LONG>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub(super) submit_ms: u64,
    pub(super) gpus: u32,
    pub(super) run_ms: u64,
}

impl Jobs {
    /// Draws jobs that ask for their load of a cluster with so many GPUs over a span, by submission. All run times are
    /// stretched so that the load is exact.
    pub(super) fn draw(
        &self,
        source: &Source<'_>,
        gpus: u32,
        span_ms: u64,
        seed: u64,
    ) -> Result<Vec<Drawn>, StudyError> {
        if let Some((largest, _)) = self.gpus.0.last().filter(|(largest, _)| *largest > gpus) {
            let what = format!("jobs.gpus: a job of {largest} GPUs does not fit a cluster of {gpus}");
            return Err(source.wrong(what));
        }
        let work_ms = self.load.real() * f64::from(gpus) * span_ms as f64;
        let count = (work_ms / self.gpus.mean() / self.mean_run.0 as f64).max(1.0);
        if count > JOBS_MAX {
            let what = format!("jobs: {count:.0} jobs would be drawn, and {JOBS_MAX:.0} are the limit");
            return Err(source.wrong(what + ": raise mean_run, or lower load or submitted_for"));
        }
        let per_hour = count / self.submitted_for.0 as f64 * 3_600_000.0;
        let runs = match self.sigma {
            None => Runs::Exponential { mean_ms: self.mean_run.0 },
            Some(sigma) => Runs::LogNormal { median_ms: self.mean_run.0, sigma_milli: sigma.0 },
        };
        // More than are wanted: those that come after the span of submissions are dropped.
        let load = Load {
            arrivals: Arrivals::Poisson { jobs_per_hour_milli: whole(per_hour * 1_000.0), day: None },
            runs,
            gpus: self.gpus.0.clone(),
            ..Load::new(whole(count * 1.5) + 50, seed)
        };
        let trace = load.generate().map_err(|error| source.wrong(format!("jobs: {error}")))?;
        let drawn = trace
            .jobs
            .into_iter()
            .filter_map(|job| Some(Drawn { submit_ms: job.submit_ms, gpus: job.gpus, run_ms: job.run_ms? }));
        let mut drawn: Vec<Drawn> = drawn.filter(|job| job.submit_ms < self.submitted_for.0).collect();
        let found_ms: f64 = drawn.iter().map(|job| f64::from(job.gpus) * job.run_ms as f64).sum();
        let stretch = work_ms / found_ms.max(1.0);
        drawn.iter_mut().for_each(|job| job.run_ms = whole(job.run_ms as f64 * stretch).max(1_000));
        if drawn.is_empty() {
            return Err(source.wrong("jobs: none is drawn; raise load or submitted_for"));
        }
        Ok(drawn)
    }
}

impl Drawn {
    /// As it is replayed: its run time is work at its best place. Jobs of one GPU do not communicate.
    pub(super) fn recorded(&self, communication_milli: u32) -> Job {
        Job {
            submit_ms: self.submit_ms,
            work: self.run_ms as f64,
            gpus: self.gpus,
            gpus_min: self.gpus,
            gpus_max: self.gpus,
            traffic_milli: if self.gpus > 1 { communication_milli } else { 0 },
            ..Job::default()
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within 100,000 jobs and 100 days"
)]
fn whole(number: f64) -> u64 {
    number as u64
}
