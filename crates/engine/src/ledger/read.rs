//! The view of the ledger that a scheduling cycle reads.

use std::borrow::Cow;

use phalanx_model::{Gang, GangId, GangRecord, Job, JobId, Placement, Timestamp};

use super::Ledger;
use crate::cluster::{Hardware, Pick};
use crate::cycle::{Facts, Windows};

impl Facts for Ledger {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn hardware(&self) -> Hardware<'_> {
        Self::hardware(self)
    }

    fn hardware_version(&self) -> u64 {
        self.hardware_version
    }

    fn windows(&self) -> &Windows {
        &self.windows
    }

    fn job(&self, id: JobId) -> Option<&Job> {
        Self::job(self, id)
    }

    fn gang(&self, id: GangId) -> Option<&Gang> {
        Self::gang(self, id)
    }

    fn record(&self, id: GangId) -> Option<&GangRecord> {
        Self::record(self, id)
    }

    fn known(&self, id: GangId) -> Option<(&Gang, &GangRecord)> {
        let entry = self.jobs.get(&id.job)?;
        entry.job.gang_at(id.index).zip(entry.gangs.get(id.index as usize))
    }

    fn wanted(&self, id: GangId) -> Option<Cow<'_, Gang>> {
        Self::wanted(self, id)
    }

    fn gangs_of(&self, job: JobId) -> Vec<GangId> {
        Self::gangs_of(self, job)
    }

    fn picks(&self, gang: GangId) -> Option<&[Pick]> {
        Self::picks(self, gang)
    }

    fn ends(&self) -> Box<dyn Iterator<Item = (Timestamp, GangId)> + '_> {
        Box::new(self.ends.iter().copied())
    }

    fn endless(&self) -> Box<dyn Iterator<Item = GangId> + '_> {
        Box::new(self.endless.iter().copied())
    }

    fn about_to_be_gone(&self) -> Box<dyn Iterator<Item = (GangId, Timestamp)> + '_> {
        Box::new(Self::about_to_be_gone(self))
    }

    fn shrinkable(&self) -> Box<dyn Iterator<Item = GangId> + '_> {
        Box::new(Self::shrinkable(self))
    }

    fn resized_to(&self, gang: GangId) -> Option<u32> {
        Self::resized_to(self, gang)
    }

    fn grows_to(&self, gang: GangId) -> u32 {
        Self::grows_to(self, gang)
    }

    fn preferred_until(&self, gang: GangId) -> Option<Timestamp> {
        Self::preferred_until(self, gang)
    }

    fn expected_ms(&self, gang: GangId) -> u64 {
        Self::expected_ms(self, gang)
    }

    fn cleared_place(&self, gang: GangId) -> Option<&Placement> {
        Self::cleared_place(self, gang)
    }

    fn reserved_place_is_gone(&self, gang: GangId) -> bool {
        Self::reserved_place_is_gone(self, gang)
    }

    fn victims_of(&self, gang: GangId) -> Vec<GangId> {
        Self::victims_of(self, gang)
    }

    fn was_just_preempted(&self, gang: GangId) -> bool {
        self.preempted.contains(&gang)
    }

    fn looks_again(&self) -> bool {
        self.again_at.is_some()
    }
}
