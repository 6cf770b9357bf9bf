//! Lists of jobs, out of the books and out of the history.

use std::collections::BTreeSet;
use std::sync::Arc;

use phalanx_api::protocol::{ErrorCode, JobFilter, JobView};
use phalanx_model::JobId;

use super::{Failure, refuse, unreadable};
use crate::daemon::Daemon;
use phalanx_views::{self as views, Books};

/// Jobs of a list that are looked at in one go: the thread that is asked decides in between.
pub(super) const LIST_PART: usize = 200;
/// Jobs in one list, and one more that says whether there are others.
const LIST_MAX: u32 = 10_001;
/// A text, a pattern for names, and states, in a filter: each job or node in the books is compared with them.
const TEXT_BYTES_MAX: usize = 256;
const STATES_MAX: usize = 16;

/// Whether a text of a filter is short enough.
pub(super) fn check_text(text: Option<&String>) -> Result<(), Failure> {
    if text.is_none_or(|text| text.len() <= TEXT_BYTES_MAX) {
        return Ok(());
    }
    let message = format!("a name or a text of a filter has at most {TEXT_BYTES_MAX} bytes");
    Err(refuse(ErrorCode::BadRequest, message, "shorten it"))
}

/// The newest jobs that are meant, the newest last.
pub(super) fn list(
    daemon: &Daemon,
    finished: bool,
    filter: &JobFilter,
    limit: u32,
) -> Result<Vec<JobView>, Failure> {
    let limit = limit.min(LIST_MAX);
    check_text(filter.name.as_ref())?;
    check_text(filter.text.as_ref())?;
    if filter.states.len() > STATES_MAX {
        let message = format!("a filter has at most {STATES_MAX} states");
        return Err(refuse(ErrorCode::BadRequest, message, "name fewer"));
    }
    let of_books = filter.clone();
    let ids =
        daemon.engine.look(move |e| views::newest(&Books::all(e), limit as usize, finished, &of_books))?;
    // A short list searches for its own jobs alone.
    let is_short = ids.len() <= LIST_PART;
    let reasons = if is_short {
        Arc::default()
    } else {
        daemon.shared.reasons.get(|| daemon.engine.look(|e| views::reasons(&Books::all(e))))?
    };
    let mut jobs = Vec::with_capacity(ids.len());
    for part in ids.chunks(LIST_PART) {
        let (map, ids, reasons) = (daemon.map.clone(), part.to_vec(), Arc::clone(&reasons));
        jobs.extend(daemon.engine.look(move |e| views::jobs(&Books::all(e), &map, &ids, &reasons))?);
    }
    daemon.usage.say(&mut jobs);
    daemon.progress.say(&mut jobs);
    if finished {
        let known: BTreeSet<JobId> = jobs.iter().map(|j| j.id).collect();
        let older = daemon.recorder.finished(filter, limit).map_err(unreadable)?;
        jobs.extend(older.into_iter().filter(|j| !known.contains(&j.id)));
        jobs.sort_by_key(|j| j.id);
    }
    let surplus = jobs.len().saturating_sub(limit as usize);
    Ok(jobs.split_off(surplus))
}
