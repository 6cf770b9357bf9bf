//! Owners that make no pods for now: suspended by an eviction, because their gang could not start whole, or by their users.
//!
//! A suspended owner takes its pods away, and nothing counts against it: a deleted pod is a failure for a Job, which it
//! makes again later and later. What was suspended by us says so, and is let go on when its gang has a place.

use phalanx_model::{Exit, FailureClass, MemberId, Timestamp};

use kube::api::DynamicObject;

use super::submit::gang_of;
use crate::gang::Lifecycle;
use crate::gang::objects::{Above, Owner, Told, is_signed};
use crate::gang::pods::State;
use crate::gang::state::{Gang, Member, Pod};
use crate::messages::Call;
use crate::recognise::{self as recognise, GangKey, GangSpec, Suspend};

/// How ranks end whose pods went with their owner's suspension: nothing failed.
pub(in crate::gang) fn owner_suspended() -> Exit {
    Exit::failed(FailureClass::Preemption, "its owner was suspended")
}

/// An owner that was let go on by somebody else, and that still says that this scheduler suspended it: that holds no longer,
/// and a later suspension is its user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gang) struct Overruled {
    uid: Option<String>,
    /// Of the object as it was seen.
    version: Option<String>,
}

impl Overruled {
    /// Of an owner as it is now; `known` is what was known of it, but for whether it is suspended now.
    pub(in crate::gang) fn of(object: &DynamicObject, known: &Above) -> Option<Self> {
        let meta = &object.metadata;
        let was = known.overruled.as_ref().is_some_and(|before| before.uid == meta.uid);
        let is = is_signed(object) && (!known.is_suspended || was);
        is.then(|| Self { uid: meta.uid.clone(), version: meta.resource_version.clone() })
    }
}

impl Lifecycle {
    /// Takes from an owner what it says wrongly: that it was suspended by this scheduler.
    pub(in crate::gang) fn take_sign(&mut self, owner: &Owner) {
        let Some(above) = self.above.get(owner).filter(|_| self.has_begun) else { return };
        if let (Some(Overruled { version: Some(version), .. }), Some(suspend)) =
            (&above.overruled, &above.suspend)
        {
            self.calls.push(Call::TakeSign { owner: suspend.clone(), version: version.clone() });
        }
    }

    /// The same of all that are there.
    pub(in crate::gang) fn take_signs(&mut self) {
        let all: Vec<Owner> = self.above.keys().cloned().collect();
        all.iter().for_each(|owner| self.take_sign(owner));
    }

    /// An owner is to be suspended: what it says of that from now on is true.
    pub(in crate::gang) fn signs(&mut self, suspend: &Suspend) {
        let object = &suspend.object;
        let owner = (object.kind.clone(), object.namespace.clone(), object.name.clone());
        if let Some(above) = self.above.get_mut(&owner) {
            above.overruled = None;
        }
    }

    /// What the object of a gang says, of this very gang, and the owner of that object.
    fn owners(&self, key: &GangKey) -> Option<(&Told, &GangSpec, Option<&Above>)> {
        let told = self.told(key)?;
        let spec = told.of(key)?;
        Some((told, spec, told.above.as_ref().and_then(|above| self.above.get(above))))
    }

    /// The field that suspends the owner of a gang. Nothing where the gang could not be told again without its pods: then
    /// nobody would let its owner go on.
    pub(in crate::gang) fn suspend_of(&self, key: &GangKey) -> Option<Suspend> {
        let (_, spec, above) = self.owners(key)?;
        let by_above = || above.and_then(|above| above.suspend.as_ref());
        spec.suspend.as_ref().or_else(by_above).filter(|_| spec.has_templates()).cloned()
    }

    /// The field that lets the owner of a gang go on: also where it could not be suspended any more.
    pub(in crate::gang) fn resumed_by(&self, key: &GangKey) -> Option<Suspend> {
        let (_, spec, above) = self.owners(key)?;
        let by_above = || above.and_then(|above| above.suspend.clone());
        let by_itself = || recognise::suspend_of(spec.object.as_ref()?);
        spec.suspend.clone().or_else(by_above).or_else(by_itself)
    }

    /// Whether the owner of a gang is suspended, by whomever. What follows another's field says only later that it may go on.
    pub(in crate::gang) fn is_suspended(&self, key: &GangKey) -> bool {
        let Some((_, spec, above)) = self.owners(key) else { return false };
        match above {
            Some(above) if above.rules(spec) => above.is_suspended,
            above => spec.is_suspended || above.is_some_and(|above| above.is_suspended),
        }
    }

    /// Whether its pods come once its owner is let go on. One that its user suspended stays so.
    pub(in crate::gang) fn is_resumable(&self, key: &GangKey) -> bool {
        let is_ours = |(told, spec, above): (&Told, &GangSpec, Option<&Above>)| {
            spec.is_next && (told.is_resumable || above.is_some_and(|above| above.is_resumable))
        };
        self.is_suspended(key) && self.owners(key).is_some_and(is_ours)
    }

    /// What takes all pods of a gang back, and brings them again. Nothing where that would stop another gang, or where
    /// nothing is made again.
    pub(in crate::gang) fn taken_back_by(&self, key: &GangKey) -> Option<Suspend> {
        let suspend = self.suspend_of(key)?;
        let (told, ..) = self.owners(key)?;
        let beside = told.above.as_ref().and_then(|above| self.above.get(above));
        let beside = beside.into_iter().flat_map(|above| &above.owned).flat_map(|of| self.gangs_of(of));
        let goes_on = |gang: &Gang| gang.key != *key && gang.run().is_some_and(|run| !run.is_stopping());
        let is_alone = !self.gangs_of(&key.object()).chain(beside).any(goes_on);
        (is_alone && self.makes_pods(key)).then_some(suspend)
    }

    /// Whether a pod that has a rank of the gang has a node, and has not failed there.
    pub(in crate::gang) fn has_bound(&self, key: &GangKey) -> bool {
        let Some(Gang { pods, job: Some(submitted), .. }) = self.gangs.get(key) else { return false };
        let names = submitted.seats.iter().filter_map(|seat| seat.pod.as_ref());
        let is_bound = |pod: &Pod| pod.known.node.is_some() && !pod.known.has_failed();
        names.filter_map(|name| pods.get(name)).any(is_bound)
    }

    /// Ends the ranks of a start whose pods do not come: their owner is suspended, and not because it is to go on with this
    /// start. Whether others of them are bound is how a successor knows that.
    pub(in crate::gang) fn end_with_owner(&mut self, key: &GangKey) {
        if !self.is_suspended(key) {
            return;
        }
        let goes_on = self.is_resumable(key) && !self.has_bound(key);
        let Some(Gang { pods, job: Some(submitted), .. }) = self.gangs.get(key) else { return };
        let Some(run) = submitted.run.as_ref().filter(|run| !run.is_stopping()) else { return };
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

    /// Nobody makes pods for it any more: ranks that wait for one wait in vain, and it is not to start again.
    pub(in crate::gang) fn end_vacant(&mut self, now: Timestamp, key: &GangKey) {
        if self.makes_pods(key) {
            return;
        }
        let Some(Gang { pods, job: Some(submitted), .. }) = self.gangs.get(key) else { return };
        let Some(run) = submitted.run.as_ref() else { return };
        let ranks = (0..).zip(submitted.seats.iter().zip(&run.members));
        let vacant = ranks.filter(|(_, (_, member))| matches!(member, Member::Vacant { .. }));
        let ended = vacant.filter_map(|(rank, (seat, _))| {
            let exit = match seat.pod.as_ref().and_then(|name| pods.get(name)).map(|pod| &pod.known.state) {
                Some(State::Over(exit)) => exit.clone(),
                Some(_) => return None,
                None => Exit::failed(FailureClass::Infrastructure, "its pod is gone, and so is its owner"),
            };
            Some((MemberId { gang: gang_of(submitted.id), attempt: run.attempt, rank }, exit))
        });
        for (id, exit) in ended.collect::<Vec<_>>() {
            self.vacate(now, id, exit);
        }
    }
}

#[cfg(test)]
mod kinds;
#[cfg(test)]
pub(in crate::gang) mod tests;
