//! Elastic gangs change their size at boundaries that they declare: they end there and start again from the work that
//! they saved. The part of their placement that they keep is reserved for them in between.

use phalanx_model::{
    Boundary, Change, GangId, Input, JobId, Outcome, Phase, Placement, Reserved, Resize, StopCause,
    StopStage, Timestamp,
};

use super::Ledger;
use super::apply::refuse;

impl Ledger {
    /// A gang saved its work and may be stopped now: the ledger stops it if it is to have another size.
    pub(super) fn boundary(&mut self, gang: GangId, at: Timestamp, out: &mut Outcome) {
        if self.record(gang).is_none() {
            return refuse(out, format!("boundary of gang {gang}"), "no such gang");
        }
        self.checkpointed(gang, at, out);
        let Some(record) = self.record_mut(gang) else { return };
        let before = record.boundary.replace(Boundary { at, every_ms: None });
        if let (Some(before), Some(now)) = (before, record.boundary.as_mut()) {
            now.every_ms = Some(at.since(before.at)).filter(|every| *every > 0).or(before.every_ms);
        }
        match record.phase.clone() {
            Phase::Running { .. } => {}
            // The work of the gang is saved: there is nothing left to wait for.
            Phase::Stopping { cause, stage: StopStage::Advised, .. } => {
                return self.stop_harder(gang, cause, StopStage::Advised, out);
            }
            _ => return,
        }
        if let Some(resize) = self.record(gang).and_then(|record| record.resize.as_ref()) {
            let cause = StopCause::Resized { size: resize.size };
            return self.begin_stop(gang, cause, out);
        }
        let Some((min, size)) = self.gang(gang).map(|asked| (asked.min, asked.size)) else { return };
        if before.is_none() && size > min {
            // Other gangs may have this gang shrink from now on.
            self.pending.try_all();
            self.replan = true;
        }
        if size < self.grows_to(gang) {
            self.at_boundary.insert(gang);
            self.replan = true;
        }
    }

    /// The largest size to which a gang grows by itself.
    pub(crate) fn grows_to(&self, gang: GangId) -> u32 {
        let max = self.gang(gang).map_or(0, |asked| asked.max);
        self.record(gang).and_then(|record| record.grows_to).map_or(max, |set| set.min(max))
    }

    /// Gangs that just declared that they may grow.
    pub(crate) fn take_at_boundary(&mut self) -> Vec<GangId> {
        std::mem::take(&mut self.at_boundary).into_iter().collect()
    }

    /// Running gangs that can shrink at their next boundary, and were not asked to yet.
    pub(crate) fn shrinkable(&self) -> impl Iterator<Item = GangId> + '_ {
        let may = |id: &&GangId| {
            let sizes = self.gang(**id).is_some_and(|gang| gang.size > gang.min);
            let record = self.record(**id).filter(|_| !self.is_held(id.job));
            sizes
                && record.is_some_and(|r| {
                    matches!(r.phase, Phase::Running { .. }) && r.boundary.is_some() && r.resize.is_none()
                })
        };
        self.elastic.iter().filter(may).copied()
    }

    /// The size with which a gang is to start again.
    pub(crate) fn resized_to(&self, gang: GangId) -> Option<u32> {
        self.record(gang)?.resize.as_ref().map(|resize| resize.size)
    }

    /// Sets the size of a gang from its next boundary or its next start on.
    pub(crate) fn ask_resize(&mut self, gang: GangId, resize: Resize, out: &mut Outcome) {
        out.changes.push(Change::ResizeAsked { gang, resize: resize.clone() });
        if let Some(record) = self.record_mut(gang) {
            record.resize = Some(resize);
        }
        self.note_stay(gang);
    }

    /// Grows a gang at its boundary.
    pub(crate) fn grow(&mut self, gang: GangId, size: u32, out: &mut Outcome) {
        let Some(keeps) = self.record(gang).and_then(|record| record.placement.clone()) else { return };
        self.ask_resize(gang, Resize { size, keeps, by: None }, out);
        self.begin_stop(gang, StopCause::Resized { size }, out);
    }

    /// Cancels a change of the size of a gang.
    pub(crate) fn keep_size(&mut self, gang: GangId) {
        if let Some(record) = self.record_mut(gang) {
            record.resize = None;
        }
        self.note_stay(gang);
    }

    /// Gangs that are to shrink for a gang.
    pub(super) fn shrinking_for(&self, by: GangId) -> impl Iterator<Item = GangId> + '_ {
        let by = Some(by);
        let resize = |id: &GangId| self.record(*id).and_then(|record| record.resize.as_ref());
        self.elastic.iter().copied().filter(move |id| resize(id).is_some_and(|resize| resize.by == by))
    }

    /// Cancels the shrinking of gangs for a gang that no longer waits for it.
    pub(super) fn call_off_shrinks_for(&mut self, by: GangId) {
        let asked: Vec<GangId> = self.elastic.iter().copied().collect();
        for gang in asked {
            let Some(record) = self.record_mut(gang) else { continue };
            let is_for = record.resize.as_ref().is_some_and(|resize| resize.by == Some(by));
            if is_for && matches!(record.phase, Phase::Running { .. }) {
                record.resize = None;
            }
        }
    }

    /// Gives a gang its new size, and reserves its own placement until it starts again.
    pub(super) fn keep_place(&mut self, gang: GangId, out: &mut Outcome) {
        if self.is_held(gang.job) {
            return self.keep_size(gang);
        }
        let Some(resize) = self.record(gang).and_then(|record| record.resize.clone()) else { return };
        let kept = u32::try_from(resize.keeps.slots.len()).unwrap_or(u32::MAX);
        self.set_size(gang, kept);
        self.reserve_again(gang, resize.keeps, out);
    }

    /// Reserves a placement for a gang that has just stopped, and starts again there.
    pub(super) fn reserve_again(&mut self, gang: GangId, placement: Placement, out: &mut Outcome) {
        let reserved = Reserved { placement, at: None, evicts: true, made_at: self.now };
        out.changes.push(Change::GangReserved { gang, reserved: reserved.clone() });
        if let Some(record) = self.record_mut(gang) {
            record.reserved = Some(reserved);
        }
    }

    pub(super) fn is_held(&self, job: JobId) -> bool {
        self.job(job).is_some_and(|job| job.turn.held_by.is_some())
    }

    /// Sets the number of members of an elastic gang.
    pub(super) fn set_size(&mut self, id: GangId, size: u32) {
        let Some(gang) = self.gang(id).filter(|gang| gang.is_elastic()) else { return };
        let (before, size) = (gang.size, size.clamp(gang.min, gang.max));
        let job = self.jobs.get_mut(&id.job).filter(|_| size != before);
        if let Some(gang) = job.and_then(|entry| entry.job.gang_mut(id.index)) {
            gang.size = size;
        }
    }

    /// Records whether a gang holds capacity and may change its size.
    pub(super) fn note_elastic(&mut self, gang: GangId) {
        let holds = self.record(gang).is_some_and(|record| record.holds_capacity());
        if holds && self.gang(gang).is_some_and(phalanx_model::Gang::is_elastic) {
            self.elastic.insert(gang);
        } else if self.elastic.remove(&gang) {
            self.at_boundary.remove(&gang);
        }
    }

    /// Applies a user's request for another size, from the next boundary on. The gang keeps to it: it does not grow
    /// further by itself until the user lets it.
    pub(super) fn resize(&mut self, input: &Input, out: &mut Outcome) {
        let Input::GangResized { gang: id, size } = input else { return };
        let refused = match size {
            Some(size) => self.set_by_user(*id, *size, out),
            None => self.let_grow(*id),
        };
        if let Err(why) = refused {
            refuse(out, format!("size of gang {id}"), &why);
        }
    }

    fn set_by_user(&mut self, id: GangId, size: u32, out: &mut Outcome) -> Result<(), String> {
        let (gang, record) = self.gang(id).zip(self.record(id)).ok_or("no such gang")?;
        let (min, max, step) = (gang.min, gang.max, gang.size_step());
        if !gang.is_elastic() || size < min || size > max || !size.is_multiple_of(step) {
            let by = if step > 1 { format!(" in steps of {step}") } else { String::new() };
            return Err(format!("{size} is not within {min} to {max} members{by}"));
        }
        if record.is_pending() {
            self.set_growth(id, Some(size));
            self.set_size(id, size);
            self.relist(id);
            return Ok(());
        }
        if let Some(by) = record.resize.as_ref().and_then(|resize| resize.by) {
            return Err(format!("the gang shrinks for gang {by} at its next boundary"));
        }
        let (has, held) = (gang.size, record.placement.clone().filter(|_| record.holds_capacity()));
        self.set_growth(id, Some(size));
        match held {
            _ if size == has => self.keep_size(id),
            Some(mut keeps) => {
                keeps.slots.truncate(size as usize);
                self.ask_resize(id, Resize { size, keeps, by: None }, out);
            }
            None => {}
        }
        Ok(())
    }

    /// The gang grows by itself again. A size that the user set and that it does not have yet is taken back.
    fn let_grow(&mut self, id: GangId) -> Result<(), String> {
        let (gang, record) = self.gang(id).zip(self.record(id)).ok_or("no such gang")?;
        if !gang.is_elastic() {
            return Err("it has one size only".to_owned());
        }
        let is_running = matches!(record.phase, Phase::Running { .. });
        let takes_back = is_running && record.resize.as_ref().is_some_and(|resize| resize.by.is_none());
        self.set_growth(id, None);
        if takes_back {
            self.keep_size(id);
        }
        Ok(())
    }

    fn set_growth(&mut self, id: GangId, to: Option<u32>) {
        if let Some(record) = self.record_mut(id) {
            record.grows_to = to;
        }
    }
}
