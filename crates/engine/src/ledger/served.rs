//! The device time that gangs had while they ran, and what follows from it in queues that order by service.
//!
//! Service is counted when a run ends, and when it reaches the next level of its queue: so a level follows from the
//! record alone, and never falls while the thresholds of the queue do not change.

use phalanx_model::{GangId, Outcome, Phase, Served, Timestamp};

use super::Ledger;

impl Ledger {
    /// The service that a gang has had so far.
    pub(crate) fn served(&self, id: GangId) -> Served {
        let Some((gang, record)) = self.gang(id).zip(self.record(id)) else { return Served::NONE };
        match (&record.phase, &record.placement) {
            (Phase::Running { since }, Some(placement)) => {
                record.served.with(gang.held_milli(placement), *since, self.now)
            }
            _ => record.served,
        }
    }

    /// Counts the service of a gang so far; before its run ends. Returns whether its level changed.
    pub(super) fn count_service(&mut self, gang: GangId) -> bool {
        if !self.record(gang).is_some_and(|record| matches!(record.phase, Phase::Running { .. })) {
            return false;
        }
        let served = self.served(gang);
        if let Some(record) = self.record_mut(gang) {
            record.served = served;
        }
        self.note_service(gang)
    }

    /// Sets the level of a gang by its counted service. Returns whether the level changed.
    fn note_service(&mut self, id: GangId) -> bool {
        let Some(entry) = self.jobs.get(&id.job) else { return false };
        let Some(record) = entry.gangs.get(id.index as usize) else { return false };
        let is_other = self.queues.note_service(&entry.job, id, record.served);
        self.note_shield(id);
        is_other
    }

    /// Records a gang that had more service than others and has just started: it is protected for a while.
    pub(super) fn note_shield(&mut self, gang: GangId) {
        let runs = self.record(gang).is_some_and(|record| matches!(record.phase, Phase::Running { .. }));
        let is_left_alone = runs && self.queues.level_of(gang) > 0 && self.stays_until(gang) > self.now;
        if is_left_alone {
            self.shielded.insert(gang);
        } else {
            self.shielded.remove(&gang);
        }
    }

    /// When a running gang becomes preemptible for gangs of its queue for which it is not preemptible now: it reaches
    /// the next level, or its protection ends.
    pub(super) fn yields_at(&self, gang: GangId) -> Option<Timestamp> {
        let shielded_until = self.shielded.contains(&gang).then(|| self.stays_until(gang));
        self.rises_at(gang).into_iter().chain(shielded_until).min()
    }

    /// When a running gang has had enough service to reach the next level of its queue.
    fn rises_at(&self, id: GangId) -> Option<Timestamp> {
        let (job, gang, record) = (self.job(id.job)?, self.gang(id)?, self.record(id)?);
        let (Phase::Running { since }, Some(placement)) = (&record.phase, &record.placement) else {
            return None;
        };
        let levels = self.queues.order_of(job)?.levels();
        let next_us = levels.get(self.queues.level_of(id) as usize)?.saturating_mul(1_000);
        let missing_us = next_us.saturating_sub(record.served.device_us);
        let milli = gang.held_milli(placement);
        let span_ms = (milli > 0).then(|| missing_us.div_ceil(milli))?;
        Some(record.served.until.max(*since).plus(span_ms))
    }

    /// A running gang may be preemptible from now on: gangs of its queue that had less service are evaluated again.
    /// Returns whether its timer was for this.
    pub(super) fn yields(&mut self, gang: GangId, out: &mut Outcome) -> bool {
        if self.yields_at(gang).is_none_or(|at| at > self.now) {
            return false;
        }
        if self.count_service(gang) {
            // A change for gangs that were preempted before, as a change from outside would be.
            self.preempted.clear();
        }
        self.note_shield(gang);
        let known = self.queue_of(gang.job).zip(self.job(gang.job));
        if let Some((queue, job)) = known {
            let (rank, level) = (self.queues.rank_of(job), self.queues.level_of(gang));
            let had_less = |(id, hold): (&GangId, &crate::cycle::Reservation)| {
                let is_below = hold.waits.0 == queue && hold.rank == rank && hold.level < level;
                (is_below && !hold.preempts).then_some(*id)
            };
            for waits in self.reservations.iter().filter_map(had_less).collect::<Vec<_>>() {
                let why = format!("job {} has attained more service and can be preempted", gang.job);
                self.release_reservation(waits, why, out);
            }
            self.pending.try_below(queue, rank, level);
            self.replan = true;
        }
        true
    }

    /// The queues were rebuilt, and may have another order.
    pub(super) fn serve_anew(&mut self, gang: GangId) {
        self.note_service(gang);
        if self.rises_at(gang).is_some() || self.shielded.contains(&gang) {
            self.retime(gang);
        }
    }

    /// Sets the level by the observed service of a gang, which this engine did not count itself.
    pub(super) fn adopt_service(&mut self, gang: GangId) {
        self.note_service(gang);
    }
}
