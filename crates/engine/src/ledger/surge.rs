//! Replicas of a service that leave their nodes once others run in their place.
//!
//! While some replicas leave, so many more may run, up to the surge of the service. As soon as one of these runs, it
//! takes over the number of the first replica that leaves, and with the number its protection, if that number is within
//! the minimum; the leaving replica is the last from then on, stops, and is scaled in.

use std::collections::BTreeSet;

use phalanx_model::{
    Admin, Change, Decision, FailureClass, GangId, Job, JobId, Leave, NodeName, Outcome, Phase, Plan, Slot,
    StopCause, Timestamp,
};

use super::Ledger;
use super::calendar::stop_ms;

/// Replicas by their numbers.
struct Crew {
    /// Wanted replicas that leave.
    leaving: Vec<GangId>,
    /// Replicas beyond the wanted number, as long as the others leave.
    stand_ins: Vec<GangId>,
    /// Replicas that are neither wanted nor stand-ins.
    resting: Vec<GangId>,
}

impl Ledger {
    /// Tells a gang to leave, and be gone by a time if there is one: once another replica runs in its place, or now.
    pub(super) fn displace(&mut self, gang: GangId, leave: Leave, out: &mut Outcome) {
        let known = self.record(gang).and_then(|record| record.leaves.clone());
        let until = [&leave, known.as_ref().unwrap_or(&leave)].into_iter().filter_map(|l| l.until).min();
        let is_late = until.is_some_and(|until| self.stops_for(gang, until) <= self.now);
        if is_late || known.is_none() && !self.may_be_replaced(gang) {
            return self.leave_now(gang, leave, out);
        }
        let leave = Leave { until, ..known.clone().unwrap_or(leave) };
        // What kept it there until a replacement runs may be over.
        self.replan = true;
        if known.as_ref() == Some(&leave) {
            return;
        }
        if let Some(record) = self.record_mut(gang) {
            record.leaves = Some(leave.clone());
        }
        self.note_leaving(gang);
        self.retime(gang);
        self.relist_replicas(gang.job);
        out.changes.push(Change::ReplicaLeaves { gang, leave });
    }

    pub(super) fn leave_now(&mut self, gang: GangId, leave: Leave, out: &mut Outcome) {
        let Leave { detail, until } = leave;
        self.begin_stop(gang, StopCause::Displaced { class: FailureClass::Node, detail, until }, out);
    }

    /// Whether another replica can run first in place of a gang.
    pub(super) fn may_be_replaced(&self, gang: GangId) -> bool {
        let runs = self.record(gang).is_some_and(|record| matches!(record.phase, Phase::Running { .. }));
        let surge = self.job(gang.job).and_then(|job| job.turn.service.as_ref()).map_or(0, |s| s.surge);
        runs && surge > 0
    }

    /// When a gang must be asked to stop, so that it is gone by a time.
    pub(super) fn stops_for(&self, gang: GangId, until: Timestamp) -> Timestamp {
        Timestamp(until.0.saturating_sub(self.job(gang.job).map_or(0, stop_ms)))
    }

    /// Records whether a gang is leaving.
    pub(super) fn note_leaving(&mut self, gang: GangId) {
        if self.record(gang).is_some_and(|record| record.leaves.is_some() && record.holds_capacity()) {
            self.leaving.insert(gang);
        } else {
            self.leaving.remove(&gang);
        }
    }

    /// A replica has left, or need not leave any more: as many replicas are wanted as before.
    pub(super) fn has_left(&mut self, gang: GangId, out: &mut Outcome) {
        if self.record_mut(gang).and_then(|record| record.leaves.take()).is_some() {
            self.note_leaving(gang);
            self.rest_beyond(gang.job, out);
        }
    }

    /// A node takes work again: replicas that were to leave it stay, if nothing else keeps them from that.
    pub(super) fn stay_on(&mut self, node: &NodeName, out: &mut Outcome) {
        let stays = |gang: &GangId| {
            let placement = self.record(*gang).and_then(|record| record.placement.as_ref());
            let mut slots = placement.iter().flat_map(|placement| &placement.slots);
            slots.clone().any(|slot| slot.node == *node)
                && slots.all(|slot| self.lets_stay(&slot.node, slot.devices))
        };
        for gang in self.leaving.iter().copied().filter(stays).collect::<Vec<_>>() {
            out.changes.push(Change::ReplicaStays { gang });
            self.has_left(gang, out);
            self.retime(gang);
        }
    }

    /// How many replicas may run now.
    pub(super) fn allowed(&self, job: &Job, wanted: u32) -> usize {
        let crew = if self.has_leaving(job.id) { self.crew(job.id) } else { None };
        (wanted as usize).saturating_add(crew.map_or(0, |crew| crew.stand_ins.len()))
    }

    fn has_leaving(&self, id: JobId) -> bool {
        self.leaving.range(id.gang(0)..=id.gang(u32::MAX)).next().is_some()
    }

    fn crew(&self, id: JobId) -> Option<Crew> {
        let job = self.job(id)?;
        let surge = job.turn.service.as_ref()?.surge as usize;
        let wanted = self.replicas_of(job)? as usize;
        let mut first = self.by_number(id);
        let mut others = first.split_off(wanted.min(first.len()));
        first.retain(|gang| self.leaving.contains(gang));
        let resting = others.split_off(first.len().min(surge).min(others.len()));
        Some(Crew { leaving: first, stand_ins: others, resting })
    }

    /// Replicas that have not ended.
    pub(super) fn by_number(&self, id: JobId) -> Vec<GangId> {
        let mut gangs = self.gangs_of(id);
        if let Some(service) = self.job(id).and_then(|job| job.turn.service.as_ref()) {
            gangs.sort_by_key(|gang| service.number(*gang));
        }
        gangs
    }

    /// Stops replicas that are not wanted and scales them in; lets wanted replicas start.
    pub(super) fn rest_beyond(&mut self, id: JobId, out: &mut Outcome) {
        self.hand_over(id, out);
        // Those that leave may have nobody to wait for any more.
        self.replan |= self.has_leaving(id);
        let Some(replicas) = self.job(id).and_then(|job| self.replicas_of(job)) else { return };
        let Some(crew) = self.crew(id) else { return };
        for gang in self.by_number(id) {
            let rests = crew.resting.contains(&gang);
            match self.record(gang).map(|record| record.is_pending()) {
                Some(true) => {
                    if rests && self.record(gang).is_some_and(|record| record.reserved.is_some()) {
                        self.drop_reservation(gang);
                        let why = format!("the service needs only {replicas} replicas");
                        out.changes.push(Change::ReservationDropped { gang, why });
                    }
                    self.relist(gang);
                }
                Some(false) if rests => self.begin_stop(gang, StopCause::ScaledIn { replicas }, out),
                _ => {}
            }
        }
    }

    /// Running replicas beyond the wanted number take over from replicas that leave, which go now.
    pub(super) fn hand_over(&mut self, id: JobId, out: &mut Outcome) {
        while let Some((gang, by)) = self.next_to_hand_over(id) {
            let seats: Vec<_> = [gang, by].into_iter().map(|of| (of, self.held(of))).collect();
            // A replica is protected by its number.
            seats.iter().for_each(|(of, _)| self.discharge(*of));
            if let Some(job) = self.jobs.get_mut(&id).map(|entry| &mut entry.job) {
                let gangs = job.gang_count();
                job.turn.service.iter_mut().for_each(|service| service.replace(gang, by, gangs));
            }
            for (of, placement) in &seats {
                placement.iter().for_each(|placement| self.charge(*of, placement));
            }
            out.changes.push(Change::ReplicaReplaced { gang, by });
            let leave = self.record_mut(gang).and_then(|record| record.leaves.take());
            self.note_leaving(gang);
            leave.into_iter().for_each(|leave| self.leave_now(gang, leave, out));
            self.relist_replicas(id);
        }
    }

    fn next_to_hand_over(&self, id: JobId) -> Option<(GangId, GangId)> {
        if !self.has_leaving(id) {
            return None;
        }
        let Crew { leaving, stand_ins, .. } = self.crew(id)?;
        let runs = |gang: &GangId| {
            self.record(*gang).is_some_and(|record| matches!(record.phase, Phase::Running { .. }))
        };
        Some((*leaving.first()?, stand_ins.into_iter().find(runs)?))
    }

    /// Replicas that leave their nodes now because no other replica is coming to take over: there is no room, or the
    /// other replica did not start.
    pub(crate) fn departures(&self) -> Plan {
        let jobs: BTreeSet<JobId> = self.leaving.iter().map(|gang| gang.job).collect();
        let crews = jobs.into_iter().filter_map(|id| self.crew(id));
        let alone = crews.filter(|crew| !crew.stand_ins.iter().any(|gang| self.is_coming(*gang)));
        let stays = |gang: &GangId| {
            let phase = self.record(*gang).map(|record| &record.phase);
            matches!(phase, Some(Phase::Starting { .. } | Phase::Running { .. }))
        };
        let leaving = alone.flat_map(|crew| crew.leaving).filter(stays).filter(|gang| !self.may_stay(*gang));
        Plan { decisions: leaving.map(|gang| Decision::Leave { gang }).collect() }
    }

    /// Whether a replica leaves only because its hardware is closed to new gangs: without another replica it stays.
    fn may_stay(&self, gang: GangId) -> bool {
        let placement = self.record(gang).and_then(|record| record.placement.as_ref());
        let mut slots = placement.iter().flat_map(|placement| &placement.slots);
        let health = |slot: &Slot| {
            let node = self.nodes.get(&slot.node).filter(|node| node.admin != Admin::Draining)?;
            Some((node.health.drains_any(slot.devices), node.health.closing(slot.devices).is_some()))
        };
        slots.clone().all(|slot| health(slot).is_some_and(|(drains, _)| !drains))
            && slots.any(|slot| health(slot).is_some_and(|(_, is_closed)| is_closed))
    }

    /// Whether a replica starts, or may yet: no cycle has searched a placement for it, or gangs are preempted for it.
    fn is_coming(&self, gang: GangId) -> bool {
        let Some(record) = self.record(gang).filter(|record| record.is_pending()) else { return true };
        let makes_room = record.reserved.as_ref().is_some_and(|reserved| reserved.evicts);
        makes_room
            || self.pending.place_of(gang).is_some_and(|place| {
                let request = self.pending.request(place.request);
                request.is_open && request.full_in(place.queue).is_none()
            })
    }
}
