//! Services as people see them.

use phalanx_model::{GangRecord, JobId, Phase, Reason, Replicas};

use phalanx_api::protocol::ServiceView;

use crate::Books;

pub(crate) fn service(
    books: &Books<'_>,
    id: JobId,
    asked: &Replicas,
    records: &[&GangRecord],
) -> Option<ServiceView> {
    let running = records.iter().filter(|record| matches!(record.phase, Phase::Running { .. })).count();
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Some(ServiceView {
        wanted: books.replicas(id)?,
        running: count(running),
        min: asked.min,
        max: asked.most(count(records.len())),
        has_target: asked.target.is_some(),
        is_set: books.service(id).is_some_and(|service| service.is_set),
    })
}

/// Whether it is a replica that is not wanted now.
pub(crate) fn rests(books: &Books<'_>, record: &GangRecord) -> bool {
    let is_of_service = books.job(record.id.job).is_some_and(|job| job.turn.service.is_some());
    is_of_service && matches!(books.reason(record.id), Some(Reason::ScaledIn { .. }))
}
