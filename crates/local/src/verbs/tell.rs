//! What ranks tell of their gang.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use phalanx_model::later::Metric;
use phalanx_model::{GangId, Input, JobId};

use super::{Failure, own, refuse};
use crate::daemon::Daemon;
use crate::sessions::{LOOK_MS, used};
use phalanx_api::Peer;
use phalanx_api::protocol::{Answer, ErrorCode, JobRef, News};

/// Metrics of one job: each name is kept in the books.
const METRICS_MAX: usize = 64;
const METRIC_NAME_BYTES_MAX: usize = 64;

/// The names of metrics that jobs gave.
#[derive(Debug, Default)]
pub(crate) struct MetricNames(Mutex<BTreeMap<JobId, BTreeSet<String>>>);

impl MetricNames {
    fn admits(&self, job: JobId, name: &str) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let names = all.entry(job).or_default();
        let admits = names.contains(name) || names.len() < METRICS_MAX;
        if admits {
            names.insert(name.to_owned());
        }
        admits
    }

    pub(crate) fn forget(&self, job: JobId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&job);
    }
}

pub(super) fn tell(
    daemon: &Daemon,
    peer: &Peer,
    wanted: &JobRef,
    index: u32,
    news: News,
) -> Result<Answer, Failure> {
    let view = own(daemon, peer, wanted)?;
    let gang = view.id.gang(index);
    let known = daemon.engine.look(move |e| e.gang(gang).map(|r| r.holds_capacity()))?;
    match known {
        Some(true) => {}
        Some(false) => {
            let message = format!("gang {gang} does not run");
            return Err(refuse(ErrorCode::BadRequest, message, "ranks tell while they run"));
        }
        None => {
            let message = format!("job {} has no gang {index}", view.id);
            return Err(refuse(
                ErrorCode::NotFound,
                message,
                format!("`phalanx get {}` shows them", view.id),
            ));
        }
    }
    let at = daemon.clock.now();
    let (fact, detail) = match news {
        News::Checkpoint => (Input::GangCheckpointed { gang, at }, format!("gang {gang} saved its work")),
        News::Metric { name, value_milli } => {
            check_metric(daemon, gang, &name)?;
            let detail = format!("gang {gang} has a new value of {name}");
            (Input::MetricObserved { metric: Metric { gang, name, value_milli, at } }, detail)
        }
        News::Active => {
            let id = view.id;
            let limit = move |e: &phalanx_shell::Engine| e.job(id).and_then(|job| job.policy.idle_limit_ms);
            let (limit_ms, used_at) = daemon.engine.look(move |e| (limit(e), e.used_at(id)))?;
            if limit_ms.is_none() {
                let message = format!("job {id} is no session");
                return Err(refuse(ErrorCode::BadRequest, message, "`session: {idle: 30m}` makes it one"));
            }
            let detail = format!("job {id} is in use");
            if used_at.is_some_and(|used_at| at.since(used_at) < LOOK_MS.min(limit_ms.unwrap_or(0) / 4)) {
                return Ok(Answer::Done { detail });
            }
            (used(id, at), detail)
        }
        News::Boundary => {
            let is_elastic = view
                .gangs
                .iter()
                .find(|of_view| of_view.id == gang)
                .is_some_and(|gang| gang.elastic.is_some());
            let size = if is_elastic { "may have another size from here" } else { "keeps its size" };
            let detail = format!("gang {gang} saved its work, and {size}");
            (Input::BoundaryReached { gang, at }, detail)
        }
    };
    // A fact about a gang that runs; when it ended just now there is nobody to tell.
    daemon.engine.request(vec![fact], |_, _| ())?;
    Ok(Answer::Done { detail })
}

fn check_metric(daemon: &Daemon, gang: GangId, name: &str) -> Result<(), Failure> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    if name.is_empty() || name.len() > METRIC_NAME_BYTES_MAX || !name.chars().all(is_word) {
        let hint = format!("letters, digits and _ - . / : , {METRIC_NAME_BYTES_MAX} at most");
        return Err(refuse(ErrorCode::BadRequest, format!("{name:?} is no name of a metric"), hint));
    }
    if !daemon.metrics.admits(gang.job, name) {
        let message = format!("job {} has {METRICS_MAX} metrics, and no more are kept", gang.job);
        return Err(refuse(ErrorCode::Rejected, message, "give new values to those there are"));
    }
    Ok(())
}
