//! A part of a trace, or the same work in less time.

use super::{Trace, TraceJob};

/// Load as it was recorded.
const WHOLE_LOAD: u32 = 1_000;

/// Which jobs are kept, and how fast they come. By default all, as they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Submitted from here on; becomes time 0 of what is kept.
    pub from_ms: u64,
    /// Submitted before this.
    pub until_ms: Option<u64>,
    /// Of one of these; of anybody where none is named.
    pub users: Vec<String>,
    /// Of one of these; of any where none is named.
    pub queues: Vec<String>,
    /// With at least so many devices: 1 leaves work without any out.
    pub gpus_min: u32,
    /// With at most so many devices.
    pub gpus_max: Option<u32>,
    /// A job with more devices gets so many, and runs as long as it did.
    pub gpus_cap: Option<u32>,
    /// Jobs that are left when all else was looked at.
    pub first: Option<usize>,
    /// In thousandths: 1500 divides all gaps between submissions by 1.5. Runs, waits, limits and the time between submission
    /// and deadline stay.
    pub load_milli: u32,
    /// Processors count as devices: for logs that know no others, as SWF.
    pub cpus_are_gpus: bool,
}

/// Why nothing can be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    #[error("a load of 0 has no jobs; 1 is the load as it was recorded")]
    NoLoad,
    #[error("the window from {from_ms} ms until {until_ms} ms is empty; `until` is to be later than `from`")]
    NoWindow { from_ms: u64, until_ms: u64 },
    #[error("none of {jobs} jobs is selected; they are submitted from 0 to {last_ms} ms")]
    NoJob { jobs: usize, last_ms: u64 },
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            from_ms: 0,
            until_ms: None,
            users: Vec::new(),
            queues: Vec::new(),
            gpus_min: 0,
            gpus_max: None,
            gpus_cap: None,
            first: None,
            load_milli: WHOLE_LOAD,
            cpus_are_gpus: false,
        }
    }
}

impl Selection {
    /// The jobs that are kept, in their order. Bad rows stay as they were reported.
    ///
    /// # Errors
    /// When no job is left.
    pub fn apply(&self, mut trace: Trace) -> Result<Trace, SelectionError> {
        if self.load_milli == 0 {
            return Err(SelectionError::NoLoad);
        }
        if let Some(until_ms) = self.until_ms.filter(|until| *until <= self.from_ms) {
            return Err(SelectionError::NoWindow { from_ms: self.from_ms, until_ms });
        }
        let (jobs, last_ms) = (trace.jobs.len(), trace.jobs.last().map_or(0, |job| job.submit_ms));
        if self.cpus_are_gpus {
            trace.jobs.iter_mut().for_each(count_cpus);
        }
        trace.jobs.retain(|job| self.keeps(job));
        trace.jobs.truncate(self.first.unwrap_or(usize::MAX));
        if trace.jobs.is_empty() {
            return Err(SelectionError::NoJob { jobs, last_ms });
        }
        for job in &mut trace.jobs {
            job.gpus = job.gpus.min(self.gpus_cap.unwrap_or(u32::MAX));
            let slack = job.deadline_ms.map(|at| at.saturating_sub(job.submit_ms));
            job.submit_ms = faster(job.submit_ms - self.from_ms, self.load_milli);
            job.deadline_ms = slack.map(|slack| job.submit_ms + slack);
        }
        trace.start_unix_ms = trace.start_unix_ms.map(|start| start + self.from_ms);
        Ok(trace)
    }

    fn keeps(&self, job: &TraceJob) -> bool {
        let is_one = |names: &[String], name: Option<&String>| {
            names.is_empty() || name.is_some_and(|name| names.contains(name))
        };
        job.submit_ms >= self.from_ms
            && self.until_ms.is_none_or(|until| job.submit_ms < until)
            && job.gpus >= self.gpus_min
            && self.gpus_max.is_none_or(|most| job.gpus <= most)
            && is_one(&self.users, job.user.as_ref())
            && is_one(&self.queues, job.queue.as_ref())
    }
}

/// Rounded down, so the order stays.
fn faster(ms: u64, load_milli: u32) -> u64 {
    let ms = u128::from(ms) * u128::from(WHOLE_LOAD) / u128::from(load_milli);
    u64::try_from(ms).unwrap_or(u64::MAX)
}

/// A device for each whole processor.
fn count_cpus(job: &mut TraceJob) {
    let cpus = job.cpu_milli.unwrap_or(0) / 1_000;
    if job.gpus == 0 {
        job.gpus = u32::try_from(cpus).unwrap_or(u32::MAX).min(super::GPUS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let job = |(at, gpus, queue): &(u64, u32, &str)| TraceJob {
            queue: Some((*queue).to_owned()),
            deadline_ms: Some(at + 70),
            run_ms: Some(100),
            ..TraceJob::new(at.to_string(), *at, *gpus)
        };
        let jobs = [(0, 1, "a"), (300, 8, "b"), (600, 0, "a"), (900, 64, "a")].iter().map(job).collect();
        Trace { jobs, start_unix_ms: Some(5_000), ..Trace::default() }
    }

    fn ids(selection: &Selection) -> Vec<String> {
        selection.apply(trace()).unwrap().jobs.into_iter().map(|job| job.id).collect()
    }

    #[test]
    fn jobs_are_kept_by_window_queue_size_and_number() {
        let all = Selection::default();
        assert_eq!(all.apply(trace()), Ok(trace()));
        assert_eq!(ids(&Selection { from_ms: 300, until_ms: Some(900), ..all.clone() }), ["300", "600"]);
        assert_eq!(ids(&Selection { queues: vec!["a".to_owned()], ..all.clone() }), ["0", "600", "900"]);
        assert_eq!(ids(&Selection { gpus_min: 1, gpus_max: Some(8), ..all.clone() }), ["0", "300"]);
        assert_eq!(ids(&Selection { gpus_min: 1, first: Some(2), ..all.clone() }), ["0", "300"]);
        let nobody = Selection { users: vec!["eve".to_owned()], ..all.clone() };
        assert_eq!(nobody.apply(trace()), Err(SelectionError::NoJob { jobs: 4, last_ms: 900 }));
        let never = Selection { from_ms: 5, until_ms: Some(5), ..all.clone() };
        assert_eq!(never.apply(trace()), Err(SelectionError::NoWindow { from_ms: 5, until_ms: 5 }));
        assert_eq!(Selection { load_milli: 0, ..all }.apply(trace()), Err(SelectionError::NoLoad));
    }

    #[test]
    fn a_greater_load_divides_the_gaps_and_nothing_else() {
        let selection =
            Selection { from_ms: 300, load_milli: 1_500, gpus_cap: Some(32), ..Selection::default() };
        let selected = selection.apply(trace()).unwrap();
        let seen = |job: &TraceJob| (job.submit_ms, job.deadline_ms, job.run_ms, job.gpus);
        let seen: Vec<_> = selected.jobs.iter().map(seen).collect();
        assert_eq!(
            seen,
            [(0, Some(70), Some(100), 8), (200, Some(270), Some(100), 0), (400, Some(470), Some(100), 32)]
        );
        assert_eq!(selected.start_unix_ms, Some(5_300));
    }

    #[test]
    fn processors_may_stand_for_devices() {
        let mut trace = trace();
        trace.jobs.iter_mut().for_each(|job| job.cpu_milli = Some(16_500));
        let selection = Selection { cpus_are_gpus: true, ..Selection::default() };
        let gpus: Vec<u32> = selection.apply(trace).unwrap().jobs.iter().map(|job| job.gpus).collect();
        assert_eq!(gpus, [1, 8, 16, 64]);
    }
}
