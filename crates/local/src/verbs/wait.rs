//! Waiting for the ends of many jobs on one connection.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use phalanx_model::JobId;

use super::list::LIST_PART;
use super::{FOLLOW, Failure, get, has_ended, refuse};
use crate::daemon::Daemon;
use phalanx_api::protocol::{Answer, ErrorCode, JobRef, WAIT_JOBS_MAX};
use phalanx_api::{Peer, Reply};

/// How often many jobs are looked at; up to [`LIST_PART`] jobs are looked at every [`FOLLOW`].
const FOLLOW_MANY: Duration = Duration::from_secs(1);

/// Sends each job once, when it has ended. The engine is asked in parts, so that decisions go on in between.
pub(super) fn wait(
    daemon: &Arc<Daemon>,
    peer: &Peer,
    jobs: Vec<JobId>,
    reply: &mut dyn Reply,
) -> Result<(), Failure> {
    if jobs.len() > WAIT_JOBS_MAX {
        let message = format!("{} jobs are too many to wait for, the limit is {WAIT_JOBS_MAX}", jobs.len());
        return Err(refuse(ErrorCode::BadRequest, message, "wait for fewer jobs at once"));
    }
    let mut left: BTreeSet<JobId> = jobs.into_iter().collect();
    loop {
        let ids: Vec<JobId> = left.iter().copied().collect();
        for part in ids.chunks(LIST_PART) {
            let part = part.to_vec();
            let ended: Vec<JobId> = daemon
                .engine
                .look(move |engine| part.into_iter().filter(|id| has_ended(engine, *id)).collect())?;
            for id in ended {
                // An unknown job is refused here: the engine does not know it, and the history neither.
                let view = get(daemon, peer, &JobRef::Id(id))?;
                reply.send(&Answer::Job(Box::new(view)))?;
                left.remove(&id);
            }
        }
        if left.is_empty() {
            return Ok(reply.send(&Answer::End)?);
        }
        reply.flush()?;
        if reply.is_gone() {
            return Ok(());
        }
        std::thread::sleep(if left.len() > LIST_PART { FOLLOW_MANY } else { FOLLOW });
    }
}
