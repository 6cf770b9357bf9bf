//! What the news of a pod mean for its rank, as the engine is told.

use std::sync::Arc;

use phalanx_model::{Exit, FailureClass, Input, MemberId, Timestamp};

use super::submit::gang_of;
use crate::gang::Lifecycle;
use crate::gang::pods::State;
use crate::gang::state::{Gang, Member, Run, Stage};
use crate::recognise::GangKey;

impl Lifecycle {
    /// What a pod's news mean for its rank.
    pub(in crate::gang) fn follow(&mut self, now: Timestamp, key: &GangKey, name: &Arc<str>) {
        let Some(gang) = self.gangs.get_mut(key) else { return };
        let Gang { pods, job, .. } = gang;
        let (Some(submitted), Some(pod)) = (job.as_mut(), pods.get(name)) else { return };
        if submitted.rank_of(name).is_none() && !pod.known.is_going && !pod.known.is_over() {
            // It has a place, and not here.
            if pod.known.node.is_some() {
                return;
            }
            let Some(free) = submitted.seat_for(pods, pod) else { return self.explain_late(key, name) };
            let seat = &mut submitted.seats[free];
            seat.pod = Some(Arc::clone(name));
            // Its place was kept and counted as ready, so that the others could start.
            if let Some(member) = submitted.run.as_mut().and_then(|run| run.members.get_mut(free))
                && seat.is_late()
                && matches!(member, Member::Bound | Member::Running)
            {
                *member = Member::Placed;
            }
            self.bind_if_complete(key);
            return;
        }
        let Some(rank) = submitted.rank_of(name) else { return };
        if pod.known.is_going && self.cluster.nodes.is_out_of_reach(pod.known.node.as_ref()) {
            return self.lose_out_of_reach(now, key, rank);
        }
        let is_alone = submitted.seats.len() == 1;
        let (job, Some(run)) = (submitted.id, submitted.run.as_mut()) else { return };
        let id = MemberId {
            gang: gang_of(job),
            attempt: run.attempt,
            rank: u32::try_from(rank).unwrap_or(u32::MAX),
        };
        let is_there = run.has_placed(rank, &pod.known);
        let Some(member) = run.members.get_mut(rank) else { return };
        let Some(node) = &pod.known.node else { return };
        if !is_there {
            let detail = format!("was bound to {node} by somebody else");
            return self.exit(id, Exit::failed(FailureClass::Infrastructure, detail));
        }
        let noted = pod.known.noted.as_ref().filter(|note| note.attempt == run.attempt);
        let chosen = run.placement.slots.get(rank).map(|slot| slot.devices);
        if let Some(note) = noted.filter(|note| Some(note.devices) != chosen) {
            self.moved.insert(id, note.devices);
        } else {
            self.moved.remove(&id);
        }
        if member.is_spared() {
            *member = Member::Running;
        }
        if matches!(member, Member::Placed | Member::Binding) {
            *member = Member::Bound;
            self.facts.push(Input::MemberReady { member: id });
        }
        let is_released = run.stage == Stage::Released;
        match &pod.known.state {
            State::Over(exit) => {
                let exit = exit.clone();
                self.vacate(now, id, exit);
            }
            State::Running if *member == Member::Bound && (is_released || is_alone) => {
                *member = Member::Running;
                self.facts.push(Input::MemberReleased { member: id });
            }
            State::Running if matches!(member, Member::Vacant { .. }) => *member = Member::Running,
            _ => {}
        }
    }

    /// The rank is over, as the engine is told once.
    pub(in crate::gang) fn exit(&mut self, id: MemberId, exit: Exit) {
        let Some(member) = self.run_mut(id).and_then(|run| run.members.get_mut(id.rank as usize)) else {
            return;
        };
        if *member == Member::Exited {
            return;
        }
        *member = Member::Exited;
        self.facts.push(Input::MemberExited { member: id, exit });
        self.end_spared(id);
        if let Some(slot) = self.run_mut(id).and_then(|run| run.free(id.rank as usize))
            && let Some(key) = self.jobs.get(&id.gang.job).cloned()
        {
            self.give_back(&key, [slot]);
        }
    }

    /// The start that a member belongs to, while it lasts.
    pub(in crate::gang) fn run_mut(&mut self, id: MemberId) -> Option<&mut Run> {
        let key = self.jobs.get(&id.gang.job)?;
        let run = self.gangs.get_mut(key)?.job.as_mut()?.run.as_mut()?;
        (run.attempt == id.attempt).then_some(run)
    }
}
