//! Pods that start by themselves: what holds for them all the same.
//!
//! A pod may say its queue itself. One that came to a gang that ran has what holds for that gang; one of an object whose pods
//! are no gang, a Job without indices or a group without a minimum, what holds for the object.

use crate::api;
use crate::gang::Lifecycle;
use crate::gang::pods::Known;
use crate::gang::state::Gang;
use crate::recognise::{self as recognise, GangKey, GangSpec, Membership, Source, TopologyRule};

/// What a pod by itself belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerContext {
    pub(crate) of: GangKey,
    /// It came when that ran.
    pub(crate) has_joined: bool,
}

impl OwnerContext {
    pub(crate) const fn joined(of: GangKey) -> Self {
        Self { of, has_joined: true }
    }

    /// The object of a pod that is in no gang of it, where its signs can be read.
    pub(in crate::gang) fn lone(own: Option<Membership>) -> Option<Self> {
        let of = own?.gang;
        (of.source != Source::Pod).then_some(Self { of, has_joined: false })
    }
}

/// Whether anything is to be read from a pod by itself: all of them would be much to keep.
pub(in crate::gang) fn has_signs(pod: &api::Pod, known: &Known) -> bool {
    known.barred.is_none() && recognise::says_alone(pod).unwrap_or(true)
}

impl Lifecycle {
    /// What holds for a pod by itself; nothing where nobody says anything.
    ///
    /// # Errors
    /// What of it cannot be read.
    pub(in crate::gang) fn spec_alone(&self, key: &GangKey) -> Result<Option<GangSpec>, String> {
        let Some(gang) = self.gangs.get(key) else { return Ok(None) };
        let own = self.spec_of_pods(key)?;
        let of = gang.kin.as_ref().and_then(|kin| self.spec(&kin.of).ok().flatten());
        let mut spec = GangSpec::alone(key.clone(), own.as_ref(), of.as_ref());
        // A pod that came to a gang which runs is in the domain of that, see [`super::proximity`].
        if let Some(spec) = spec.as_mut().filter(|_| gang.joined().is_some()) {
            spec.topology = TopologyRule::default();
        }
        Ok(spec)
    }
}

impl Gang {
    /// The name of the gang that its only pod came to when that ran.
    pub(in crate::gang) fn joined(&self) -> Option<&str> {
        self.kin.as_ref().filter(|kin| kin.has_joined).map(|kin| &*kin.of.name)
    }
}
