//! The number of members of an attempt in each state, so that a fact about one member costs the same in a gang of ten
//! and of a hundred thousand.

use phalanx_model::{GangId, MemberRecord, MemberState};

use super::Ledger;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    requested: u32,
    ready: u32,
    running: u32,
    succeeded: u32,
    failed: u32,
}

impl Tally {
    pub(super) fn of(members: &[MemberRecord]) -> Self {
        let mut tally = Self::default();
        members.iter().for_each(|m| *tally.of_state(&m.state) += 1);
        tally
    }

    fn of_state(&mut self, state: &MemberState) -> &mut u32 {
        match state {
            MemberState::Requested => &mut self.requested,
            MemberState::Ready => &mut self.ready,
            MemberState::Running => &mut self.running,
            MemberState::Exited(exit) if exit.is_success() => &mut self.succeeded,
            MemberState::Exited(_) => &mut self.failed,
        }
    }

    pub(super) const fn all_ready(self) -> bool {
        self.requested == 0 && self.running == 0 && self.succeeded == 0 && self.failed == 0
    }

    /// Whether any member is gone.
    pub(super) const fn any_exited(self) -> bool {
        self.succeeded > 0 || self.failed > 0
    }

    /// Whether each member passed the start barrier, or is gone.
    pub(super) const fn all_through(self) -> bool {
        self.requested == 0 && self.ready == 0
    }

    pub(super) const fn all_exited(self) -> bool {
        self.all_through() && self.running == 0
    }

    pub(super) const fn all_succeeded(self) -> bool {
        self.all_exited() && self.failed == 0
    }
}

impl Ledger {
    pub(super) fn tally(&self, gang: GangId) -> Tally {
        self.tallies.get(&gang).copied().unwrap_or_default()
    }

    /// Counts the members of a gang again, after they were set as a whole.
    pub(super) fn count_members(&mut self, gang: GangId) {
        let members = self.record(gang).filter(|r| r.holds_capacity()).map(|r| Tally::of(&r.members));
        match members {
            Some(tally) => self.tallies.insert(gang, tally),
            None => self.tallies.remove(&gang),
        };
    }

    /// Changes the state of one member; nothing happens if there is no such member.
    pub(super) fn set_member(&mut self, gang: GangId, rank: u32, state: MemberState) {
        let mut tally = self.tally(gang);
        let Some(member) = self.record_mut(gang).and_then(|r| r.members.get_mut(rank as usize)) else {
            return;
        };
        let before = tally.of_state(&member.state);
        *before = before.saturating_sub(1);
        *tally.of_state(&state) += 1;
        member.state = state;
        self.tallies.insert(gang, tally);
    }

    pub(super) fn member_state(&self, gang: GangId, rank: u32) -> Option<&MemberState> {
        Some(&self.record(gang)?.members.get(rank as usize)?.state)
    }
}
