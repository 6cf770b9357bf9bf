//! A submission with a key that was used before.

use phalanx_model::{Gang, Job, JobId};

use super::{Failure, get, refuse};
use crate::daemon::Daemon;
use phalanx_api::Peer;
use phalanx_api::protocol::{Answer, ErrorCode, JobRef};

/// The job of the key, if that is what is submitted again.
pub(super) fn answer(daemon: &Daemon, peer: &Peer, job: &Job, existing: JobId) -> Result<Answer, Failure> {
    let known = get(daemon, peer, &JobRef::Id(existing))?;
    if let Some(what) = known.job.as_deref().and_then(|known| difference(known, job)) {
        let message = format!(
            "key {:?} is that of job {existing} ({}), of which {what} differs",
            job.key.as_deref().unwrap_or_default(),
            known.name
        );
        let hint =
            "a key stands for one job, so that it can be submitted again; use another key for another job";
        return Err(refuse(ErrorCode::Rejected, message, hint));
    }
    Ok(Answer::Submitted { job: existing, name: known.name, existing: true })
}

/// What makes another job of it. Sizes and priorities of a job change while it lives, and do not.
fn difference(known: &Job, again: &Job) -> Option<&'static str> {
    if known.name != again.name {
        return Some("the name");
    }
    if known.gang_count() != again.gang_count() {
        return Some("the number of gangs");
    }
    if (0..known.gang_count()).any(|index| known.task_number(index) != again.task_number(index)) {
        return Some("the numbers of its tasks");
    }
    known.gangs.iter().zip(&again.gangs).find_map(|(known, again)| difference_of_gang(known, again))
}

fn difference_of_gang(known: &Gang, again: &Gang) -> Option<&'static str> {
    if known.program != again.program {
        Some("what runs")
    } else if requested(known) != requested(again) || known.roles.len() != again.roles.len() {
        Some("what a rank needs")
    } else {
        None
    }
}

/// What was asked for, without what the engine or a queue adds to it.
fn requested(gang: &Gang) -> impl PartialEq {
    let needs = &gang.needs;
    (needs.devices, needs.part.clone(), needs.cpu_milli, needs.memory_bytes, needs.named.clone())
}
