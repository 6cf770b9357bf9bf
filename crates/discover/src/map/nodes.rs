//! A map and the nodes of a cluster, each from the other.

use std::sync::Arc;

use phalanx_model::domains::{Domains, Rule, Source, Uplink, derive};
use phalanx_model::{
    CostTable, DomainName, End, FabricLink, Graph, Host, LevelCost, Levels, Machine, Membership, Node,
    Origin, Switch,
};

/// The map of a cluster's nodes: it has no switches, and uplinks as the table has them.
#[must_use]
pub fn of_nodes(levels: &Levels, nodes: &[Node], costs: &CostTable) -> (Graph, Domains) {
    let mut graph = Graph { tori: levels.tori.clone(), ..Graph::default() };
    for node in nodes {
        let mut host = Host::new(node.name.clone());
        let pairs = levels.above.iter().zip(&node.path);
        host.domains = pairs
            .map(|(level, domain)| Membership { level: level.clone(), domain: domain.clone() })
            .collect();
        host.machine = Some(Arc::clone(&node.machine));
        host.torus = node.torus;
        host.address = Some(node.address.clone()).filter(|address| *address != node.name.as_str());
        graph.hosts.push(host);
    }
    let named = |level: &phalanx_model::LevelName| Rule { level: level.clone(), source: Source::Named };
    let rules: Vec<Rule> = levels.above.iter().map(named).collect();
    let mut domains = derive(&graph, &rules);
    let paths: Vec<Vec<DomainName>> =
        (0_u32..).take(domains.domains.len()).map(|id| domains.path_of(id)).collect();
    for (domain, path) in domains.domains.iter_mut().zip(&paths) {
        let Some(level) = levels.above.get(domain.level as usize) else { continue };
        domain.uplink = declared(costs.levels.get(level).copied(), costs.uplink(level, path));
    }
    for (uplink, node) in domains.host_uplinks.iter_mut().zip(nodes) {
        let own = DomainName::new(node.name.as_str());
        let path: Vec<DomainName> = node.path.iter().cloned().chain(own.ok()).collect();
        *uplink = declared(costs.levels.get(&levels.node).copied(), costs.uplink(&levels.node, &path));
    }
    (graph, domains)
}

fn declared(of_level: Option<LevelCost>, own: Option<LevelCost>) -> Uplink {
    let mb_per_s = |cost: Option<LevelCost>| cost.map_or(0, |cost| u64::from(cost.uplink_mb_per_s));
    let (mb_per_s, nominal) = (mb_per_s(own), mb_per_s(of_level));
    // Without cables that are known, what is usual is what there should be.
    Uplink { cables: 0, live: 0, mb_per_s, nominal_mb_per_s: nominal.max(mb_per_s) }
}

/// The hosts of a map as nodes that are declared.
#[must_use]
pub fn to_nodes(graph: &Graph, domains: &Domains) -> Vec<Node> {
    let bare = Arc::new(Machine::bare(Origin::Declared));
    let node = |(index, host): (u32, &Host)| Node {
        address: host.address.clone().unwrap_or_else(|| host.name.to_string()),
        torus: host.torus,
        ..Node::new(
            host.name.clone(),
            domains.path(index),
            host.machine.clone().unwrap_or_else(|| Arc::clone(&bare)),
        )
    };
    (0_u32..).zip(&graph.hosts).map(node).collect()
}

/// The domains as a tree of switches, one for each, for formats that know no rails: hosts hang on their
/// innermost domain. A name that several domains have becomes its path.
#[must_use]
pub fn as_tree(graph: &Graph, domains: &Domains) -> Graph {
    let mut names: Vec<&DomainName> = domains.domains.iter().map(|domain| &domain.name).collect();
    names.sort();
    let is_unique = |name: &DomainName| {
        let first = names.partition_point(|known| *known < name);
        names.get(first + 1).is_none_or(|next| *next != name)
    };
    let mut tree = Graph { hosts: graph.hosts.clone(), tori: graph.tori.clone(), ..Graph::default() };
    let depth = domains.levels.len();
    // A domain that stands in for a level is no switch: what is in it hangs on the next one.
    let mut switch_of: Vec<Option<u32>> = Vec::with_capacity(domains.domains.len());
    for (id, domain) in (0_u32..).zip(&domains.domains) {
        let parent = domain.parent.and_then(|parent| switch_of.get(parent as usize).copied().flatten());
        if domains.is_stand_in(id) {
            switch_of.push(parent);
            continue;
        }
        let path: Vec<String> = domains.path_of(id).iter().map(ToString::to_string).collect();
        let name = match is_unique(&domain.name) {
            true => domain.name.clone(),
            false => DomainName::new(path.join(".")).unwrap_or_else(|_| domain.name.clone()),
        };
        let tier = u8::try_from(depth - domain.level as usize).ok();
        let switch = u32::try_from(tree.switches.len()).unwrap_or(u32::MAX);
        tree.switches.push(Switch { name, tier, rail: None });
        switch_of.push(Some(switch));
        if let Some(parent) = parent {
            let mb_per_s = u32::try_from(domain.uplink.mb_per_s).unwrap_or(u32::MAX);
            let link = FabricLink::new(End::Switch(switch), End::Switch(parent));
            tree.links.push(FabricLink { mb_per_s, ..link });
        }
    }
    for (host, domain) in (0_u32..).zip(&domains.of_host) {
        if let Some(switch) = switch_of.get(*domain as usize).copied().flatten() {
            tree.links.push(FabricLink::new(End::Host(host), End::Switch(switch)));
        }
    }
    tree
}

/// Calls the one outermost domain like its level, whatever name a file gives the whole: maps of one cluster under
/// two names are compared as one.
pub fn plain_root(graph: &mut Graph, domains: &mut Domains) {
    if domains.level(0).count() != 1 {
        return;
    }
    let Some(level) = domains.levels.first().cloned() else { return };
    let Ok(name) = DomainName::new(level.as_str()) else { return };
    for membership in graph.hosts.iter_mut().flat_map(|host| &mut host.domains) {
        if membership.level == level {
            membership.domain = name.clone();
        }
    }
    if let Some(root) = domains.domains.iter_mut().find(|domain| domain.level == 0) {
        root.name = name;
    }
}
