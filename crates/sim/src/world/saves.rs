//! Work that is saved: every so often, when a member is advised to, and when a scenario says so.

use phalanx_model::{Exit, Gang, GangId, Input, JobId, MemberId, MemberState, Timestamp};

use super::{Due, World};
use crate::Failure;

impl World {
    /// How long the work took that a gang has saved, in milliseconds; none for one that saves nothing by itself.
    #[must_use]
    pub fn saved_ms(&self, gang: GangId) -> Option<u64> {
        let saves = self.scripts.get(&gang.job).is_some_and(|script| script.saves_ms.is_some());
        let saved = self.saved.get(&gang).copied();
        if saves { saved.or(Some(0)) } else { saved }
    }

    /// The ranks of a job's running gangs save what they have done.
    ///
    /// # Errors
    /// When the checker finds something broken.
    pub fn save(&mut self, job: JobId) -> Result<(), Failure> {
        let records = self.engine.jobs().filter(|(of, _)| of.id == job).flat_map(|(_, records)| records);
        let running: Vec<(GangId, u32)> = records.map(|record| (record.id, record.attempt)).collect();
        for (gang, attempt) in running {
            self.checkpoint(gang, attempt, self.now);
        }
        self.settle()
    }

    /// As a script asks for, for as long as its gang runs.
    pub(super) fn save_again(&mut self, gang: GangId, attempt: u32) {
        let lead = MemberId { gang, attempt, rank: 0 };
        let Some(member) = self.members.0.get(&lead).filter(|m| m.lives()) else { return };
        let saves_ms = member.script.saves_ms;
        self.checkpoint(gang, attempt, self.now);
        if let Some(ms) = saves_ms {
            self.plan(self.now.plus(ms), Due::Save { gang, attempt });
        }
    }

    /// Members that save take the advice: they write what they have done until now, and end.
    pub(super) fn advise(&mut self, gang: GangId, attempt: u32) {
        for id in self.members.of_attempt(gang, attempt) {
            let Some(member) = self.members.0.get(&id).filter(|m| m.state == MemberState::Running) else {
                continue;
            };
            if member.script.saves_ms.is_some() {
                let (at, version) = (self.now.plus(member.script.save_takes_ms), member.version);
                self.plan(at, Due::Saved { member: id, version, until: self.now });
            }
        }
    }

    pub(super) fn saved_and_ends(&mut self, member: MemberId, until: Timestamp) {
        self.checkpoint(member.gang, member.attempt, until);
        self.change(member, MemberState::Exited(Exit::succeeded()));
    }

    /// A checkpoint is whole while all ranks live, and has as much in it as the one that did the least. One that has
    /// no more in it than the one before is none.
    fn checkpoint(&mut self, gang: GangId, attempt: u32, until: Timestamp) {
        let ids = self.members.of_attempt(gang, attempt);
        let done = ids.iter().map(|id| {
            let member = self.members.0.get(id).filter(|member| member.lives())?;
            member.done_by(until)
        });
        let whole: Option<Vec<u64>> = done.collect();
        let Some(done_ms) = whole.and_then(|all| all.into_iter().min()) else { return };
        let saved = self.saved.entry(gang).or_default();
        if done_ms > *saved {
            *saved = done_ms;
            let job = self.engine.job(gang.job);
            let is_elastic = job.and_then(|job| job.gang_at(gang.index)).is_some_and(Gang::is_elastic);
            // What can change its size says so whenever its work is saved.
            let (boundary, saved) =
                (Input::BoundaryReached { gang, at: until }, Input::GangCheckpointed { gang, at: until });
            self.report(if is_elastic { boundary } else { saved });
        }
    }
}
