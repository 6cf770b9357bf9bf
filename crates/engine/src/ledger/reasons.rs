//! The last reason of a pending gang.

use phalanx_model::{GangId, Reason};

use super::Ledger;

impl Ledger {
    /// Why a gang is pending, as of its last evaluation.
    pub(crate) fn reason_of(&self, id: GangId) -> Option<Reason> {
        let record = self.record(id).filter(|record| record.is_pending())?;
        if let Some(reason) = self.kept_back(id) {
            return Some(reason);
        }
        if record.reserved.as_ref().is_some_and(|reserved| reserved.evicts) {
            let victims = self.victims_of(id);
            if !victims.is_empty() {
                return Some(Reason::Preempting { victims });
            }
        }
        let Some(place) = self.pending.place_of(id) else {
            let nearer = self.reservations.get(&id).and_then(|reservation| reservation.nearer.clone());
            return nearer.or_else(|| self.reserved_reason(id));
        };
        let request = self.pending.request(place.request);
        if let Some(full) = request.full_in(place.queue) {
            return Some(Reason::QueueLimit(full.limit.clone()));
        }
        match &request.reason {
            Reason::PreferredWait { level, .. } => {
                let until = self.preferred_until(id).unwrap_or_default();
                Some(Reason::PreferredWait { level: level.clone(), until })
            }
            reason => Some(reason.clone()),
        }
    }
}
