//! Extended resources that only some nodes offer: accelerators that the scheduler does not know as devices, devices, network
//! cards. Pods that do not request them go to such nodes last.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use phalanx_model::NodeName;

/// See the module.
#[derive(Default)]
pub(super) struct RareResources {
    /// The version of what nodes offer, see [`super::nodes::NodeState::offers_version`].
    pub(super) seen: u64,
    pub(super) names: BTreeSet<Box<str>>,
    /// The nodes that offer none of them; none if no resource is rare.
    pub(super) plain: BTreeSet<NodeName>,
}

impl RareResources {
    pub(super) fn of<'a>(
        seen: u64,
        nodes: impl Iterator<Item = (&'a NodeName, &'a BTreeMap<String, Quantity>)> + Clone,
    ) -> Self {
        let offered = |amount: &Quantity| !amount.0.trim_start_matches('0').is_empty();
        let extended = |offers: &'a BTreeMap<String, Quantity>| {
            offers
                .iter()
                .filter(move |(name, amount)| is_extended(name) && offered(amount))
                .map(|(name, _)| name)
        };
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, offers) in nodes.clone() {
            extended(offers).for_each(|name| *counts.entry(name).or_default() += 1);
        }
        let all = nodes.clone().count();
        let names: BTreeSet<Box<str>> =
            counts.into_iter().filter(|(_, count)| *count < all).map(|(name, _)| name.into()).collect();
        let mut plain = BTreeSet::new();
        if !names.is_empty() {
            let is_plain = |offers| extended(offers).all(|name| !names.contains(name.as_str()));
            plain.extend(nodes.filter(|(_, offers)| is_plain(offers)).map(|(name, _)| name.clone()));
        }
        Self { seen, names, plain }
    }
}

/// Whether device plugins and administrators bring it, and not the kubelet itself.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_some_nodes_offer_and_not_all_is_rare() {
        let node = |name: &str, offers: &[(&str, &str)]| {
            let always = [("cpu", "8"), ("hugepages-2Mi", "1Gi"), ("devices.kubevirt.io/kvm", "1k")];
            let offers = always.iter().chain(offers);
            let offers = offers.map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())));
            (NodeName::new(name).unwrap(), offers.collect::<BTreeMap<_, _>>())
        };
        let nodes = [
            node("tpu", &[("google.com/tpu", "4")]),
            node("nic", &[("rdma/hca", "1")]),
            node("none", &[("google.com/tpu", "0"), ("hugepages-1Gi", "8Gi")]),
        ];
        let rare = RareResources::of(7, nodes.iter().map(|(name, offers)| (name, offers)));
        assert_eq!(rare.names.iter().map(|name| &**name).collect::<Vec<_>>(), ["google.com/tpu", "rdma/hca"]);
        assert_eq!(rare.plain.iter().map(NodeName::as_str).collect::<Vec<_>>(), ["none"]);
        let same = RareResources::of(8, nodes[2..].iter().map(|(name, offers)| (name, offers)));
        assert!(same.names.is_empty() && same.plain.is_empty(), "nothing to choose");
    }
}
