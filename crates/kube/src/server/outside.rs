//! Gangs that wait and that the engine does not have, in the documents: incomplete, suspended, not supported, refused.

use phalanx_api::protocol::{Filtered, JobCounts, JobView, PreparedFilter, WaitingReason};

use super::access::Sight;
use super::documents::Reader;
use crate::gang::Outside;

const PENDING: &str = "pending";

/// Those that a user sees.
fn seen<'a>(reader: &'a Reader<'_>) -> impl Iterator<Item = &'a Outside> {
    reader.picture.outside.iter().filter(|of| reader.sight.has_namespace(&of.namespace))
}

/// The same as jobs.
pub(super) fn all<'a>(reader: &'a Reader<'_>) -> impl Iterator<Item = JobView> + use<'a> {
    let sees_all = reader.sight == Sight::All;
    seen(reader).map(move |of| view(of, sees_all))
}

fn view(of: &Outside, sees_all: bool) -> JobView {
    JobView {
        id: of.id,
        name: of.name.clone(),
        owner: of.namespace.clone(),
        uid: 0,
        queue: String::new(),
        priority: 0,
        class: String::new(),
        state: PENDING.to_owned(),
        reason: of.reason.to_owned(),
        detail: detail(of, sees_all),
        submitted_at: of.since,
        started_at: None,
        finished_at: None,
        ending: None,
        exit_code: None,
        gangs: Vec::new(),
        array: None,
        service: None,
        job: None,
        events: Vec::new(),
        spot: None,
    }
}

/// Some reasons name gangs of other namespaces.
fn detail(of: &Outside, sees_all: bool) -> String {
    if sees_all { of.why.clone() } else { "the condition PodScheduled of its pods says why".to_owned() }
}

/// Whether a filter lets it through; its queue is not known.
pub(super) fn is_meant(view: &JobView, filter: &PreparedFilter<'_>) -> bool {
    let JobView { id, name, uid, owner, queue, state, .. } = view;
    filter.admits(Filtered { id: *id, name, uid: *uid, owner, queue }, || state)
}

pub(super) fn count(reader: &Reader<'_>, counts: JobCounts) -> JobCounts {
    let more = u32::try_from(seen(reader).count()).unwrap_or(u32::MAX);
    JobCounts { pending: counts.pending.saturating_add(more), ..counts }
}

/// With a line for each reason, after those of the engine.
pub(super) fn reasons(reader: &Reader<'_>, mut waiting: Vec<WaitingReason>) -> Vec<WaitingReason> {
    let of_engine = waiting.len();
    for of in seen(reader) {
        match waiting[of_engine..].iter_mut().find(|line| line.reason == of.reason) {
            Some(line) => line.jobs = line.jobs.saturating_add(1),
            None => waiting.push(WaitingReason {
                reason: of.reason.to_owned(),
                jobs: 1,
                devices: 0,
                job: of.id,
                name: of.name.clone(),
                detail: detail(of, reader.sight == Sight::All),
            }),
        }
    }
    waiting
}
