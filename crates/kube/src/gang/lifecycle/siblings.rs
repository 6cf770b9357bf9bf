//! Pods of one owner that start one by one and require a topology share one domain: a Job with more completions than run at
//! once, a Deployment, a group without a minimum. The first pod chooses the domain, one that has room for the others if
//! there is one; they go where that pod is, or wait. When none of them holds a place, the next chooses again.
//!
//! They are decided one after another, as pods with rules between them are ([`crate::constraint::serial`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_model::NodeName;

use super::single_pods::OwnerContext;
use crate::api;
use crate::cluster::node_sets::Condition;
use crate::filter::Requirements;
use crate::gang::Lifecycle;
use crate::gang::state::Gang;
use crate::recognise::{self, GangKey, GangSpec, Source};

/// Pods that start one by one, by their owners.
pub(in crate::gang) type Siblings = BTreeMap<Arc<str>, BTreeSet<GangKey>>;

/// The nodes that a pod may have, if not all, and the line in which it stands.
type Turn = (Option<Condition>, Condition);

/// The owner whose pods share one domain with this one, if it starts by itself.
pub(in crate::gang) fn owner_of(pod: &api::Pod, gang: &Gang) -> Option<Arc<str>> {
    if gang.key.source != Source::Pod {
        return None;
    }
    match &gang.kin {
        Some(OwnerContext { has_joined: true, .. }) => None,
        Some(OwnerContext { of, .. }) => Some(of.to_string().into()),
        None => recognise::owner_in_one_domain(pod).map(|owner| owner.to_string().into()),
    }
}

impl Lifecycle {
    /// The pod of a gang of one has this owner from now on, or none.
    pub(in crate::gang) fn has_owner(&mut self, key: &GangKey, owner: Option<Arc<str>>) {
        let Some(gang) = self.gangs.get_mut(key).filter(|gang| gang.owner != owner) else { return };
        if let Some(before) = std::mem::replace(&mut gang.owner, owner.clone())
            && let Some(of_it) = self.siblings.get_mut(&before)
        {
            of_it.remove(key);
            if of_it.is_empty() {
                self.siblings.remove(&before);
            }
        }
        if let Some(owner) = owner {
            self.siblings.entry(owner).or_default().insert(key.clone());
        }
    }

    /// The domain that a pod by itself shares with other pods of its owner, and the line in which these stand.
    ///
    /// # Errors
    /// If the level that it names is not there.
    pub(in crate::gang) fn domain_of_siblings(
        &mut self,
        key: &GangKey,
        spec: Option<&GangSpec>,
        requirements: &Requirements,
    ) -> Result<Option<Turn>, String> {
        let Some(owner) = self.gangs.get(key).and_then(|gang| gang.owner.clone()) else { return Ok(None) };
        let Some(asked) = spec.and_then(|spec| spec.topology.required.as_ref()) else { return Ok(None) };
        let level = self.cluster.nodes.domain_of(asked)?;
        let line = Condition::from(format!("one {level} for the pods of {owner}"));
        let domains = self.cluster.nodes.domains(&level);
        if let Some(node) = self.first_of_siblings(key, &owner) {
            let condition = Condition::from(format!("the {level} of the other pods of {owner}"));
            let nodes = domains.into_iter().find(|domain| domain.contains(&node)).unwrap_or_default();
            self.cluster.nodes.meet(&condition, nodes);
            return Ok(Some((Some(condition), line)));
        }
        let count = self.count_of_siblings(key, &owner);
        let room = self.room();
        let places = room.places(&self.cluster.nodes, requirements, count);
        self.constraints.room = Some(room);
        let in_domain = |domain: &BTreeSet<NodeName>| {
            domain.iter().filter_map(|node| places.get(node)).sum::<usize>().min(count)
        };
        let most = domains.iter().map(in_domain).max().unwrap_or(0);
        if most == 0 {
            return Ok(Some((None, line)));
        }
        let condition = Condition::from(format!("a {level} with room for {most} pods of {owner}"));
        let nodes = domains.into_iter().filter(|domain| in_domain(domain) == most).flatten().collect();
        self.cluster.nodes.meet(&condition, nodes);
        Ok(Some((Some(condition), line)))
    }

    /// The one that chooses for its siblings chooses again after the next change: another domain may have more room then.
    pub(in crate::gang) fn look_again_for_siblings(&mut self, key: &GangKey) {
        let Some(gang) = self.gangs.get(key).filter(|gang| gang.owner.is_some()) else { return };
        if gang.job.as_ref().is_some_and(|job| job.line.is_some() && job.run.is_none()) {
            self.rechecks.look_again(key);
        }
    }

    /// A node of another pod of the same owner, the same for all of them.
    fn first_of_siblings(&self, key: &GangKey, owner: &str) -> Option<NodeName> {
        let others = self.siblings.get(owner)?.iter().filter(|other| *other != key);
        others.filter_map(|other| Some(self.gangs.get(other)?.nodes())).flatten().min().cloned()
    }

    /// Pods of an owner that run at once: as it says, or as many as there are.
    fn count_of_siblings(&self, key: &GangKey, owner: &str) -> usize {
        let of = self.gangs.get(key).and_then(|gang| gang.kin.as_ref()).map(|kin| &kin.of);
        let said = of.filter(|of| of.source == Source::Job).and_then(|of| self.said(of));
        let there = self.siblings.get(owner).map_or(1, BTreeSet::len);
        said.map_or(there, |spec| spec.size() as usize)
    }

    /// A pod by itself has got a place or has none any more: one of the same owner that waits is looked at again.
    pub(in crate::gang) fn tell_siblings(&mut self, key: &GangKey) {
        let owner = self.gangs.get(key).and_then(|gang| gang.owner.as_ref());
        let Some(siblings) = owner.and_then(|owner| self.siblings.get(owner)) else { return };
        let is_waiting = |other: &&GangKey| {
            let job = self.gangs.get(*other).and_then(|gang| gang.job.as_ref());
            job.is_some_and(|job| job.run.is_none())
        };
        self.changed.extend(siblings.iter().filter(is_waiting).cloned());
    }
}

impl Gang {
    /// Where its pods are, or are to be.
    fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        let bound = self.pods.values().filter(|pod| !pod.known.is_over());
        let bound = bound.filter_map(|pod| pod.known.node.as_ref());
        let placed = self.run().into_iter().flat_map(|run| &run.placement.slots).map(|slot| &slot.node);
        bound.chain(placed)
    }
}

#[cfg(test)]
mod tests;
