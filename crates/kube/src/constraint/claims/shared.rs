//! Claims that several pods of one gang share, and that are not allocated yet.
//!
//! Devices are mostly of one node, so pods that share some are to be on one node: the engine is asked for that. Where all
//! nodes reach the devices, each may be anywhere. The claim is allocated with the first of them, and is reserved for each
//! before it is bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceClaim;

use super::ask::Sharing;
use super::{Asked, ClaimState, Path, Used};
use crate::cluster::nodes::NodeState;
use crate::dra::TRIED_MAX;
use crate::recognise::GangKey;

/// Users that the API server lets a claim have.
const USERS_MAX: usize = 256;

/// See the module. By the name of the claim.
#[derive(Default)]
pub(crate) struct Shared(BTreeMap<Arc<str>, (Sharing, Vec<usize>)>);

impl Shared {
    /// A rank of the gang asks for this.
    pub(crate) fn add(&mut self, rank: usize, asked: &Asked) {
        for sharing in &asked.shared {
            let new = || (sharing.clone(), Vec::new());
            let (_, ranks) = self.0.entry(Arc::clone(&sharing.claim)).or_insert_with(new);
            // A pod may call one claim by two names.
            if ranks.last() != Some(&rank) {
                ranks.push(rank);
            }
        }
    }

    /// Ranks that have to be on one node, set by set: those that share a claim, and whoever shares another with one of them.
    ///
    /// # Errors
    /// Where more share one than a claim can be for.
    pub(crate) fn sets(&self, is_of_node: impl Fn(&Arc<str>) -> bool) -> Result<Vec<Vec<usize>>, String> {
        let mut sets: Vec<Vec<usize>> = Vec::new();
        for (claim, (sharing, ranks)) in self.0.iter().filter(|(_, (_, ranks))| ranks.len() > 1) {
            if ranks.len() > USERS_MAX && !sharing.is_for_group {
                let name = &sharing.name;
                return Err(format!(
                    "spec.resourceClaims[{name}]: {} pods of the gang share ResourceClaim {claim}, at most {USERS_MAX} \
                     can; give each a claim of its own by spec.resourceClaims[].resourceClaimTemplateName",
                    ranks.len()
                ));
            }
            if !is_of_node(claim) {
                continue;
            }
            let (with, mut apart): (Vec<_>, Vec<_>) =
                sets.into_iter().partition(|set| set.iter().any(|rank| ranks.contains(rank)));
            let mut all: Vec<usize> = with.into_iter().flatten().chain(ranks.iter().copied()).collect();
            all.sort_unstable();
            all.dedup();
            apart.push(all);
            sets = apart;
        }
        sets.sort_unstable();
        Ok(sets)
    }
}

impl ClaimState {
    /// Whether a pod is the one that a claim is allocated with, of those that share it.
    pub(crate) fn carries(&self, key: &GangKey, pod: &str, used: &[Used]) -> bool {
        let mut claims = used
            .iter()
            .filter_map(Used::object)
            .filter_map(|object| self.claims.get(&(Arc::clone(&key.namespace), Arc::clone(object))));
        claims.any(|claim| claim.carrier.as_ref().is_some_and(|(of, name)| of == key && &**name == pod))
    }

    /// Pods that share a claim with one that is not there any more need not wait for it.
    pub(crate) fn free_carriers(&mut self, key: &GangKey, pod: &str) {
        for claim in self.claims.values_mut() {
            if claim.carrier.as_ref().is_some_and(|(of, name)| of == key && &**name == pod) {
                claim.carrier = None;
            }
        }
    }

    /// Whether a claim may get devices that not all nodes reach: then pods that share it are on one node.
    pub(crate) fn is_of_node(&self, path: &Path, nodes: &NodeState) -> bool {
        let Some(claim) = self.claims.get(path) else { return false };
        // It may be allocated, and on its way back.
        let claim = ResourceClaim { status: None, ..(*claim.seen).clone() };
        nodes.iter().any(|(_, node)| {
            let given = self.inventory.could_allocate(&[&claim], node, TRIED_MAX);
            given.is_ok_and(|given| given.iter().any(|allocation| allocation.node_selector.is_some()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(claims: &[&[usize]]) -> Vec<Vec<usize>> {
        let of = |(at, ranks): (usize, &&[usize])| {
            let claim: Arc<str> = format!("claim-{at}").into();
            let sharing = Sharing { name: "c".into(), claim: Arc::clone(&claim), is_for_group: false };
            (claim, (sharing, ranks.to_vec()))
        };
        Shared(claims.iter().enumerate().map(of).collect()).sets(|_| true).unwrap()
    }

    #[test]
    fn who_shares_a_claim_with_one_of_a_set_is_in_it() {
        assert_eq!(sets(&[&[0, 1], &[2], &[3, 5]]), [[0, 1], [3, 5]]);
        assert_eq!(sets(&[&[0, 1], &[2, 3], &[4, 6], &[1, 2]]), [vec![0, 1, 2, 3], vec![4, 6]]);
        assert_eq!(sets(&[&[4], &[0]]), Vec::<Vec<usize>>::new(), "nobody shares them");
    }
}
