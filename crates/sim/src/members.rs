//! The processes of the simulated world.

use std::collections::BTreeMap;

use phalanx_model::{
    DeviceMask, Exit, FailureClass, GangId, MemberId, MemberState, NodeName, Slot, Timestamp,
};
use phalanx_scenario::Script;

/// One process group.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) node: NodeName,
    pub(crate) devices: DeviceMask,
    /// It has a part of its device, and others may stand beside it.
    pub(crate) is_part: bool,
    pub(crate) script: Script,
    /// Work that it began with, saved by an earlier attempt: in milliseconds.
    pub(crate) done_ms: u64,
    /// How fast it works, in thousandths.
    pub(crate) speed_milli: u64,
    pub(crate) runs_since: Option<Timestamp>,
    pub(crate) state: MemberState,
    /// Counts changes, so that an end which was planned before them does not come.
    pub(crate) version: u64,
}

impl Member {
    pub(crate) const fn lives(&self) -> bool {
        !matches!(self.state, MemberState::Exited(_))
    }

    /// Work that is done by then, in milliseconds; none while it does not run.
    pub(crate) fn done_by(&self, until: Timestamp) -> Option<u64> {
        let ran_ms = until.since(self.runs_since?);
        Some(self.done_ms.saturating_add(ran_ms.saturating_mul(self.speed_milli) / 1_000))
    }

    /// How long it takes to do all of its work from now on; none if it runs without end.
    pub(crate) fn rest_ms(&self) -> Option<u64> {
        let work_ms = self.script.runs_ms?.saturating_sub(self.done_ms);
        Some(work_ms.saturating_mul(1_000).div_ceil(self.speed_milli))
    }

    pub(crate) fn enter(&mut self, state: MemberState) {
        self.state = state;
        self.version += 1;
    }
}

/// All of them, those that ended too: a successor of the engine asks for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members(pub(crate) BTreeMap<MemberId, Member>);

impl Members {
    pub(crate) fn of_attempt(&self, gang: GangId, attempt: u32) -> Vec<MemberId> {
        let first = MemberId { gang, attempt, rank: 0 };
        let last = MemberId { gang, attempt, rank: u32::MAX };
        self.0.range(first..=last).map(|(id, _)| *id).collect()
    }

    pub(crate) fn on_node(&self, node: &NodeName) -> Vec<MemberId> {
        self.0.iter().filter(|(_, m)| m.lives() && m.node == *node).map(|(id, _)| *id).collect()
    }

    /// A living member that has one of these devices, and one of the two has it whole. (Whether parts overlap, the
    /// checker sees.)
    pub(crate) fn holder(&self, slot: &Slot) -> Option<MemberId> {
        let mut living = self.0.iter().filter(|(_, m)| m.lives() && m.node == slot.node);
        let is_in_the_way =
            |m: &Member| !m.devices.and(slot.devices).is_empty() && (!m.is_part || slot.part.is_none());
        living.find(|(_, m)| is_in_the_way(m)).map(|(id, _)| *id)
    }

    /// Old attempts whose last process is gone leave.
    pub(crate) fn forget_before(&mut self, gang: GangId, attempt: u32) {
        self.0.retain(|id, m| id.gang != gang || id.attempt >= attempt || m.lives());
    }
}

/// A member that never was.
pub(crate) fn never_started(detail: &str) -> Exit {
    Exit::failed(FailureClass::StartUp, detail)
}
