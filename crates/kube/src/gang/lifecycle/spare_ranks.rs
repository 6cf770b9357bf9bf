//! Gangs that have more pods than they need at least: they go on without one that cannot be bound, or that nobody makes
//! again.

use std::sync::Arc;

use phalanx_model::{Exit, Input, MemberId};

use crate::gang::Lifecycle;
use crate::gang::state::{Gang, Member};
use crate::messages::WaitsFor;
use crate::recognise::{GangKey, GangSpec};

impl Lifecycle {
    /// Lets the gang of a rank go on without it, if the others are enough: of all, and of its role. Whether they are.
    ///
    /// The place stays its own, for a pod that comes later.
    pub(in crate::gang) fn spare(&mut self, id: MemberId) -> bool {
        let Some(key) = self.jobs.get(&id.gang.job).cloned() else { return false };
        let Some((min, role_min)) = self.fewest(&key, id.rank) else { return false };
        let Some(Gang { job: Some(submitted), .. }) = self.gangs.get_mut(&key) else { return false };
        let Some(run) = submitted.run.as_mut().filter(|run| run.attempt == id.attempt) else { return false };
        let rank = id.rank as usize;
        let Some(role) = submitted.seats.get(rank).map(|seat| seat.role.clone()) else { return false };
        let others = submitted.seats.iter().zip(&run.members).enumerate();
        let rest = others.filter(|(at, (_, member))| *at != rank && !member.is_spared());
        let (mut of_all, mut of_role) = (0_u32, 0_u32);
        for (_, (seat, _)) in rest {
            of_all += 1;
            of_role += u32::from(seat.role == role);
        }
        if of_all < min || of_role < role_min || run.is_stopping() {
            return false;
        }
        let Some(member) = run.members.get_mut(rank) else { return false };
        let was_awaited = matches!(member, Member::Placed | Member::Binding);
        if !member.is_spared() {
            *member = Member::Spared;
        }
        if was_awaited {
            self.facts.push(Input::MemberReady { member: id });
        }
        true
    }

    /// How many pods a gang needs at least, and how many of the role of this rank.
    fn fewest(&self, key: &GangKey, rank: u32) -> Option<(u32, u32)> {
        let role = &self.gangs.get(key)?.job.as_ref()?.seats.get(rank as usize)?.role;
        let fewest = |spec: &GangSpec| {
            let of_role = spec.role(role.as_deref().unwrap_or_default());
            (spec.min, of_role.map_or(spec.min, |role| role.min))
        };
        match self.said(key) {
            Some(spec) => Some(fewest(spec)),
            None => self.spec(key).ok().flatten().as_ref().map(fewest),
        }
    }

    /// On the pod that its gang goes on without.
    pub(in crate::gang) fn explain_spared(&mut self, id: MemberId, why: &str) {
        let Some(gang) = self.jobs.get(&id.gang.job).and_then(|key| self.gangs.get(key)) else { return };
        let seat = gang.job.as_ref().and_then(|job| job.seats.get(id.rank as usize));
        let Some(pod) = seat.and_then(|seat| seat.pod.clone()) else { return };
        let key = gang.key.clone();
        let message: Arc<str> = format!("its gang has started without it: {why}").into();
        self.say(&key, &[pod], WaitsFor::GANG, message);
    }

    /// Ranks that were spared end with the last of the others.
    pub(in crate::gang) fn end_spared(&mut self, id: MemberId) {
        let Some(run) = self.run_mut(id) else { return };
        if !run.members.iter().all(|member| *member == Member::Exited || member.is_spared()) {
            return;
        }
        let spared = (0..).zip(&mut run.members).filter_map(|(rank, member)| {
            let was = std::mem::replace(member, Member::Exited);
            was.is_spared().then_some(MemberId { rank, ..id })
        });
        let spared: Vec<MemberId> = spared.collect();
        self.facts
            .extend(spared.into_iter().map(|member| Input::MemberExited { member, exit: Exit::succeeded() }));
    }
}
