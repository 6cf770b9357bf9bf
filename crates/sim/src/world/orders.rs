//! What orders do to members, and what members do by themselves.

use phalanx_model::{
    Effect, Exit, FailureClass, GangId, Input, MemberId, MemberState, Order, Placement, Signal,
};

use super::{Due, World};
use crate::Failure;
use crate::members::{Member, never_started};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

impl World {
    pub(super) fn carry_out(&mut self, effect: &Effect, made: u64) -> Result<(), Failure> {
        if effect.id.epoch != self.epoch {
            self.refuse(effect);
            return Ok(());
        }
        if self.rng.chance(self.faults.order_lost) {
            self.report(Input::EffectUnknown { effect: effect.id });
            return Ok(());
        }
        match &effect.order {
            Order::StartMembers { gang, attempt, placement, .. } => {
                if self.rng.chance(self.faults.start_refused)
                    && self.members.of_attempt(*gang, *attempt).is_empty()
                {
                    // Refused for good: a repeat of this order would find it killed.
                    self.killed.insert((*gang, *attempt));
                    let (class, detail) = (FailureClass::StartUp, "the world refused".to_owned());
                    self.report(Input::EffectFailed { effect: effect.id, class, detail });
                    return Ok(());
                }
                self.start(*gang, *attempt, placement, made)?;
            }
            Order::ReleaseMembers { gang, attempt } => self.release(*gang, *attempt),
            Order::SignalMembers { gang, attempt, signal: Signal::Terminate } => {
                self.terminate(*gang, *attempt);
            }
            Order::SignalMembers { gang, attempt, signal: Signal::Advisory(_) } => {
                self.advise(*gang, *attempt);
            }
            Order::KillMembers { gang, attempt } => self.kill(*gang, *attempt),
        }
        let answer = if self.rng.chance(self.faults.answer_lost) {
            Input::EffectUnknown { effect: effect.id }
        } else {
            Input::EffectDone { effect: effect.id }
        };
        self.report(answer);
        Ok(())
    }

    fn start(&mut self, gang: GangId, attempt: u32, placement: &Placement, made: u64) -> Result<(), Failure> {
        if self.killed.contains(&(gang, attempt)) {
            return Ok(());
        }
        self.members.forget_before(gang, attempt);
        let script = self.scripts.get(&gang.job).cloned().unwrap_or_default();
        for slot in &placement.slots {
            let id = MemberId { gang, attempt, rank: slot.rank };
            if self.members.0.contains_key(&id) {
                continue; // Carrying out an order twice is the same as once.
            }
            // Also when the node is back: an order from before it was lost does not survive on the way.
            let gone = self.lost.contains(&slot.node)
                || self.lost_at.get(&slot.node).is_some_and(|lost| made < *lost);
            if !gone
                && self.is_watched
                && let Some(holder) = self.members.holder(slot)
            {
                let what = format!("{id} and {holder} both run on devices {} of {}", slot.devices, slot.node);
                return Err(self.broken(&what));
            }
            let member = Member {
                node: slot.node.clone(),
                devices: slot.devices,
                is_part: slot.part.is_some(),
                script: script.clone(),
                done_ms: self.saved.get(&gang).copied().unwrap_or(0),
                speed_milli: script.speed_milli(placement.slots.len()),
                runs_since: None,
                state: MemberState::Requested,
                version: 0,
            };
            self.members.0.insert(id, member);
            let fails = script.fail_start == Some(slot.rank) || self.rng.chance(self.faults.member_start);
            if gone {
                self.change(id, MemberState::Exited(Exit::failed(FailureClass::Node, "the node is lost")));
            } else if fails {
                let exit = never_started("the command was not found");
                self.change_after(id, 0, MemberState::Exited(exit));
            } else if let Some(ms) = script.starts_ms
                && !self.rng.chance(self.faults.member_stuck)
            {
                self.change_after(id, ms, MemberState::Ready);
            }
        }
        Ok(())
    }

    fn release(&mut self, gang: GangId, attempt: u32) {
        for id in self.members.of_attempt(gang, attempt) {
            if self.members.0.get(&id).is_some_and(|m| m.state == MemberState::Ready) {
                self.change(id, MemberState::Running);
            }
        }
    }

    fn terminate(&mut self, gang: GangId, attempt: u32) {
        for id in self.members.of_attempt(gang, attempt) {
            let Some(member) = self.members.0.get(&id).filter(|m| m.lives()) else { continue };
            // At the gate nothing of the user's runs that could ignore it.
            let takes = if member.state == MemberState::Running { member.script.term_ms } else { Some(0) };
            if let Some(ms) = takes {
                self.change_after(id, ms, MemberState::Exited(Exit::by_signal(SIGTERM)));
            }
        }
    }

    /// After this, every member of the attempt is owed an end, also those that never began.
    fn kill(&mut self, gang: GangId, attempt: u32) {
        self.killed.insert((gang, attempt));
        let ranks = self.engine.gang(gang).filter(|r| r.attempt == attempt).map_or(0, |r| r.members.len());
        for rank in (0..ranks).filter_map(|r| u32::try_from(r).ok()) {
            let id = MemberId { gang, attempt, rank };
            match self.members.0.get(&id).map(|m| m.state.clone()) {
                None => {
                    self.report(Input::MemberExited { member: id, exit: never_started("was not started") })
                }
                Some(MemberState::Exited(exit)) => self.report(Input::MemberExited { member: id, exit }),
                Some(_) => self.change(id, MemberState::Exited(Exit::by_signal(SIGKILL))),
            }
        }
    }

    pub(super) fn change_after(&mut self, member: MemberId, ms: u64, next: MemberState) {
        let Some(version) = self.members.0.get(&member).map(|m| m.version) else { return };
        self.plan(self.now.plus(ms), Due::Member { member, version, next });
    }

    /// A member changes now, and the engine will be told.
    pub(super) fn change(&mut self, id: MemberId, next: MemberState) {
        let Some(member) = self.members.0.get_mut(&id).filter(|m| m.lives()) else { return };
        member.enter(next.clone());
        if next == MemberState::Running {
            member.runs_since = Some(self.now);
        }
        let fact = match next {
            MemberState::Requested => return,
            MemberState::Ready => Input::MemberReady { member: id },
            MemberState::Running => Input::MemberReleased { member: id },
            MemberState::Exited(exit) => Input::MemberExited { member: id, exit },
        };
        // What was saved need not run again.
        let rest_ms = member.rest_ms();
        let (code, saves_ms) = (member.script.code, member.script.saves_ms);
        let released = matches!(fact, Input::MemberReleased { .. });
        self.report(fact);
        if !released {
            return;
        }
        if let Some(ms) = rest_ms {
            self.change_after(id, ms, MemberState::Exited(Exit::code(code)));
        }
        if let Some(ms) = saves_ms.filter(|_| id.rank == 0) {
            self.plan(self.now.plus(ms), Due::Save { gang: id.gang, attempt: id.attempt });
        }
    }
}
