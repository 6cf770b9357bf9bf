//! Claims that are made for pods that ask for extended resources, on nodes where no device plugin has them.
//!
//! Which claim that is depends on the node, so it is made once a place is known: first here, with its devices, then at the
//! API server with the steps of the pod's binding. One that an earlier start or an earlier scheduler made is found by its
//! pod, and used where it is the same; any other is deleted first, so that a pod never has two.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodExtendedResourceClaimStatus;
use serde_json::json;

use super::ask::{is_allocated, made_for};
use super::give::{Unprepared, release};
use super::{Claim, ClaimState, Path};
use crate::api;
use crate::digest::hex;
use crate::dra::{ExtendedAsk, extended_prefix, is_extended, is_offered, is_reached_by};
use crate::messages::PodRef;
use crate::messages::{Call, Step};

/// What serves the extended resources of a pod on a node.
pub(super) struct Served {
    /// The claim for those that no device plugin has there.
    pub(super) claim: Option<Path>,
    /// It is made with this start, and is only decided for now.
    pub(super) is_new: bool,
    /// What the status of the pod has to say.
    status: Option<PodExtendedResourceClaimStatus>,
}

impl ClaimState {
    /// Finds the claim for the extended resources of a pod on a node, or makes one that is not allocated.
    ///
    /// # Errors
    /// Where an earlier one has to go first, or the node cannot serve the pod.
    pub(super) fn serve(
        &mut self,
        ask: &ExtendedAsk,
        pod: &PodRef,
        node: &api::Node,
        calls: &mut Vec<Call>,
    ) -> Result<Served, Unprepared> {
        let wanted = ask.claim(&self.inventory, node).map_err(Unprepared::Short)?;
        let mut found = None;
        let mut is_alone = true;
        for path in self.extended_of(pod) {
            let Some(claim) = self.claims.get_mut(&path) else { continue };
            let is_going = claim.is_releasing() || claim.seen.metadata.deletion_timestamp.is_some();
            let is_it = wanted.as_ref().is_some_and(|wanted| wanted.spec == claim.seen.spec)
                && (!is_allocated(claim.now()) || is_reached_by(claim.now(), node));
            if is_it && !is_going && found.is_none() {
                found = Some(path);
                continue;
            }
            is_alone = false;
            if !is_going {
                release(claim, &path, pod, calls);
            }
        }
        if !is_alone {
            return Err(Unprepared::Waits);
        }
        let Some(wanted) = wanted else { return Ok(Served { claim: None, is_new: false, status: None }) };
        let is_new = found.is_none();
        let path = found.unwrap_or_else(|| self.unused_name(pod));
        let status = Some(wanted.status(&path.1));
        if is_new {
            let seen = Arc::new(wanted.made_for(&pod.namespace, &pod.name, &pod.uid, &path.1));
            self.claims.insert(path.clone(), Claim::new(seen));
        }
        Ok(Served { claim: Some(path), is_new, status })
    }

    /// The claims that were made for the extended resources of a pod: more than one where schedulers did not know each other.
    pub(super) fn extended_of(&self, pod: &PodRef) -> Vec<Path> {
        let prefix = extended_prefix(&pod.name);
        let first: Path = (Arc::clone(&pod.namespace), prefix.as_str().into());
        let named = self.claims.range(first..);
        let named = named
            .take_while(|((namespace, name), _)| *namespace == pod.namespace && name.starts_with(&prefix));
        let is_its = |claim: &Claim| is_extended(&claim.seen) && made_for(&claim.seen) == Some(&*pod.uid);
        named.filter(|(_, claim)| is_its(claim)).map(|(path, _)| path.clone()).collect()
    }

    /// No name comes twice, also not after a claim is gone or after a restart: news of it may come late.
    fn unused_name(&mut self, pod: &PodRef) -> Path {
        loop {
            self.made += 1;
            let seed = format!("{} {:?} {}", pod.uid, self.begun, self.made);
            let number = hex(seed.as_bytes(), 5);
            let path = (Arc::clone(&pod.namespace), format!("{}{number}", extended_prefix(&pod.name)).into());
            if !self.claims.contains_key(&path) {
                return path;
            }
        }
    }
}

impl Served {
    /// Says on the pod which claim serves it, or that none does any more.
    pub(super) fn step(&self, pod: &PodRef, is_told: bool) -> Option<Step> {
        (is_told || self.status.is_some()).then(|| Step::Patch {
            path: format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name),
            patch: json!({
                "metadata": { "uid": &*pod.uid },
                "status": { "extendedResourceClaimStatus": self.status },
            }),
        })
    }
}

/// Whole accelerators that device plugins of a node have to give a pod.
pub(super) fn by_plugin(ask: &ExtendedAsk, node: &api::Node, is_device: impl Fn(&str) -> bool) -> u32 {
    let totals = ask.totals();
    let offered = totals.iter().filter(|(resource, _)| is_device(resource) && is_offered(node, resource));
    offered.fold(0, |sum, (_, count)| sum.saturating_add(u32::try_from(*count).unwrap_or(u32::MAX)))
}
