//! Owners that make no pods for now: suspended by an eviction, because their gang could not start whole, or by their users.
//!
//! A suspended owner takes its pods away, and nothing counts against it: a deleted pod is a failure for a Job, which it
//! makes again later and later. What was suspended by us says so, and is let go on when its gang has a place.

use phalanx_model::{Exit, FailureClass, MemberId};

use super::Books;
use super::gang::{Gang, Member};
use super::objects::{Above, Told};
use super::submit::gang_of;
use crate::gang::{GangKey, GangSpec, Suspend};

/// How ranks end whose pods went with their owner's suspension.
pub(super) fn owner_suspended() -> Exit {
    Exit::failed(FailureClass::Infrastructure, "its owner was suspended")
}

impl Books {
    /// What the object of a gang says, of this very gang, and the owner of that object.
    fn owners(&self, key: &GangKey) -> Option<(&Told, &GangSpec, Option<&Above>)> {
        let told = self.told(key)?;
        let spec = told.of(key)?;
        Some((told, spec, told.above.as_ref().and_then(|above| self.above.get(above))))
    }

    /// The field that suspends the owner of a gang.
    pub(super) fn suspend_of(&self, key: &GangKey) -> Option<Suspend> {
        let (_, spec, above) = self.owners(key)?;
        above.and_then(|above| above.suspend.as_ref()).or(spec.suspend.as_ref()).cloned()
    }

    /// Whether the owner of a gang is suspended, by whomever.
    pub(super) fn is_suspended(&self, key: &GangKey) -> bool {
        let is = |(_, spec, above): (_, &GangSpec, Option<&Above>)| {
            spec.is_suspended || above.is_some_and(|above| above.is_suspended)
        };
        self.owners(key).is_some_and(is)
    }

    /// Whether its pods come once its owner is let go on. One that its user suspended stays so.
    pub(super) fn is_resumable(&self, key: &GangKey) -> bool {
        let is_ours = |(told, _, above): (&Told, _, Option<&Above>)| {
            told.is_resumable || above.is_some_and(|above| above.is_resumable)
        };
        self.is_suspended(key) && self.owners(key).is_some_and(is_ours)
    }

    /// What takes all pods of a gang back, and brings them again. Nothing where that would stop another gang, or where
    /// nothing is made again.
    pub(super) fn taken_back_by(&self, key: &GangKey) -> Option<Suspend> {
        let suspend = self.suspend_of(key)?;
        let (told, ..) = self.owners(key)?;
        let beside = told.above.as_ref().and_then(|above| self.above.get(above));
        let beside = beside.into_iter().flat_map(|above| &above.owned).flat_map(|of| self.gangs_of(of));
        let goes_on = |gang: &Gang| gang.key != *key && gang.run().is_some_and(|run| run.stops.is_none());
        let is_alone = !self.gangs_of(&GangKey { part: None, ..key.clone() }).chain(beside).any(goes_on);
        (is_alone && self.makes_pods(key) && suspend.keeps_what_it_owns()).then_some(suspend)
    }

    /// Whether a pod that has a rank of the gang has a node.
    pub(super) fn has_bound(&self, key: &GangKey) -> bool {
        let Some(Gang { pods, job: Some(submitted), .. }) = self.gangs.get(key) else { return false };
        let names = submitted.seats.iter().filter_map(|seat| seat.pod.as_ref());
        names.filter_map(|name| pods.get(name)).any(|pod| pod.known.node.is_some())
    }

    /// Ends the ranks of a start whose pods do not come: their owner is suspended, and not because it is to go on with this
    /// start. Whether others of them are bound is how a successor knows that.
    pub(super) fn end_with_owner(&mut self, key: &GangKey) {
        if !self.is_suspended(key) {
            return;
        }
        let goes_on = self.is_resumable(key) && !self.has_bound(key);
        let Some(Gang { pods, job: Some(submitted), .. }) = self.gangs.get(key) else { return };
        let Some(run) = submitted.run.as_ref().filter(|run| run.stops.is_none()) else { return };
        let ranks = (0..).zip(submitted.seats.iter().zip(&run.members));
        let lost = ranks.filter(|(_, (seat, member))| match member {
            Member::Vacant { .. } => true,
            Member::Placed if goes_on => false,
            Member::Placed => {
                let pod = seat.pod.as_ref().and_then(|name| pods.get(name));
                pod.is_none_or(|pod| pod.known.node.is_none())
            }
            _ => false,
        });
        let id = |rank| MemberId { gang: gang_of(submitted.id), attempt: run.attempt, rank };
        let lost: Vec<MemberId> = lost.map(|(rank, _)| id(rank)).collect();
        for member in lost {
            self.exit(member, owner_suspended());
        }
    }
}

#[cfg(test)]
mod tests;
