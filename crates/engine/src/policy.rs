//! Who goes first: one queue, priority, then first come first served. (Shares, preemption and back-fill by
//! reservation have their own issue.)

use std::cmp::Reverse;

use phalanx_model::GangId;

use crate::ledger::Ledger;

/// The pending gangs in the order in which they are looked at. Total: ends on the job's number.
pub(crate) fn order(ledger: &Ledger) -> Vec<GangId> {
    let mut pending: Vec<_> = ledger
        .active()
        .filter(|(_, _, record)| record.is_pending())
        .map(|(job, _, record)| (Reverse(job.priority), job.submitted_at, record.id))
        .collect();
    pending.sort_unstable();
    pending.into_iter().map(|(_, _, gang)| gang).collect()
}
