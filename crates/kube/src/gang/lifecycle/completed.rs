//! Ranks that have done what they had to: the others start without them. Their pods may be gone by then, taken by the collector
//! of ended pods or by somebody who tidies up; then their Job tells, or that they were seen to succeed and nobody made them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::gang::Lifecycle;
use crate::gang::state::{Gang, Pod, Seat};
use crate::recognise::{GangKey, GangSpec};

impl Lifecycle {
    /// What the Jobs of a gang say of its members that have completed.
    pub(in crate::gang) fn add_completed(&self, key: &GangKey, spec: &mut GangSpec) {
        let told = self.told(key).into_iter().chain(self.owned_by(key));
        for completed in told.filter_map(|told| told.completed.as_ref()) {
            let name = completed.role.as_deref().unwrap_or_default();
            let Some(role) = spec.roles.iter_mut().find(|role| &*role.name == name) else { continue };
            let first = completed.copy.saturating_mul(role.per_copy);
            role.completed.extend(completed.indices.iter().map(|index| first.saturating_add(*index)));
        }
    }

    /// Ranks of a gang that have no pod, and that nobody makes one for any more.
    pub(in crate::gang) fn through(&self, key: &GangKey) -> BTreeSet<usize> {
        let Some(job) = self.gangs.get(key).and_then(|gang| gang.job.as_ref()) else {
            return BTreeSet::new();
        };
        if job.seats.iter().all(|seat| seat.pod.is_some()) {
            return BTreeSet::new();
        }
        let Ok(Some(spec)) = self.spec(key) else { return BTreeSet::new() };
        let is_through = |seat: &Seat| {
            let role = spec.role(seat.role.as_deref().unwrap_or_default());
            let number = seat.index.filter(|_| seat.pod.is_none());
            role.zip(number).is_some_and(|(role, number)| role.completed.contains(&number))
        };
        job.seats.iter().enumerate().filter(|(_, seat)| is_through(seat)).map(|(rank, _)| rank).collect()
    }

    /// Whether ranks of it have ended in an earlier start: the others start without them.
    pub(in crate::gang) fn has_ended_in_part(&self, key: &GangKey) -> bool {
        let Some(Gang { pods, job: Some(submitted), .. }) = self.gangs.get(key) else { return false };
        let names = submitted.seats.iter().filter_map(|seat| seat.pod.as_ref());
        names.filter_map(|name| pods.get(name)).any(|pod| pod.known.is_done())
            || !self.through(key).is_empty()
    }
}

/// Seats that have no pod get the numbers of the members that have completed and have none, in the order of both.
pub(in crate::gang) fn number(spec: Option<&GangSpec>, seats: &mut [Seat]) {
    for role in spec.into_iter().flat_map(|spec| &spec.roles) {
        let is_of = |seat: &Seat| seat.role.as_deref().unwrap_or_default() == &*role.name;
        let known: BTreeSet<u32> =
            seats.iter().filter(|seat| is_of(seat)).filter_map(|seat| seat.index).collect();
        let mut free = role.completed.difference(&known).copied();
        for seat in seats.iter_mut().filter(|seat| seat.pod.is_none() && seat.index.is_none()) {
            if is_of(seat) {
                seat.index = free.next();
            }
        }
    }
}

impl Gang {
    /// Remembers a pod that has ended well, is gone, and that nobody made: nobody makes it again.
    pub(in crate::gang) fn remember(&mut self, name: &Arc<str>, pod: &Pod) {
        if pod.known.is_done() && !pod.known.has_owner {
            self.through.insert(Arc::clone(name), pod.role.clone());
        }
    }

    /// How many such there were of a role, unless they came again.
    pub(in crate::gang) fn seen_through(&self, role: Option<&str>) -> usize {
        let is_it = |(name, of): &(&Arc<str>, &Option<Arc<str>>)| {
            !self.pods.contains_key(*name) && (role.is_none() || of.as_deref() == role)
        };
        self.through.iter().filter(is_it).count()
    }
}

#[cfg(test)]
mod tests;
