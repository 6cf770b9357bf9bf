//! The domain tree of a [`Graph`]: the hosts of each domain on every level, and the uplink of each domain.
//!
//! A level takes its domains from the tiers of switches, from domains that the source names, or from a torus. Groups
//! follow from the cables that exist, not from those that are up: a dead uplink degrades a domain and does not
//! dissolve it. So a change of a link or a host costs the depth of the tree.
//!
//! Identity is the path: domains of one name below different parents are different domains.

mod groups;
mod name;
mod tiers;

use std::collections::BTreeMap;

use crate::{DomainName, End, FabricLink, Graph, LevelName, NodeName};
use groups::Groups;

/// The source of a level's domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// One domain with all hosts.
    Root,
    /// Hosts that reach the same switches of this tier. Tier 1 has the switches that are cabled to hosts.
    Tier(u8),
    /// The hosts' memberships of this level's name.
    Named,
    /// One domain per torus.
    Torus,
    /// Blocks of a torus that are joined by optical switches.
    Cube,
}

/// A level of the tree and the source of its domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub level: LevelName,
    pub source: Source,
}

/// One domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Index into [`Domains::levels`].
    pub level: u32,
    /// The index of its parent. `None` for the outermost domain.
    pub parent: Option<u32>,
    pub name: DomainName,
    pub hosts: u32,
    pub devices: u32,
    /// Its uplink to the next tier of switches.
    pub uplink: Uplink,
}

/// The cables that leave a domain, and their bandwidth, one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uplink {
    pub cables: u32,
    pub live: u32,
    pub mb_per_s: u64,
    pub nominal_mb_per_s: u64,
}

/// The tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domains {
    /// The levels, outermost first, without the node.
    pub levels: Vec<LevelName>,
    /// Parents before children.
    pub domains: Vec<Domain>,
    /// Innermost domain of each host of the graph.
    pub of_host: Vec<u32>,
    /// The uplink of each host.
    pub host_uplinks: Vec<Uplink>,
    /// A host that the source does not place on a level has a domain of its own there.
    pub unplaced: Vec<(u32, LevelName)>,
    sources: Vec<Source>,
    is_gone: Vec<bool>,
    /// The counted devices of each host.
    devices: Vec<u32>,
    /// How each link was last added to the uplinks.
    added: Vec<Added>,
}

/// A link as it was added to the uplinks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Added {
    link: FabricLink,
    /// The domains whose uplink contains the link, from the inside outwards.
    domains: Vec<u32>,
    /// The hosts whose uplink contains the link.
    hosts: [Option<u32>; 2],
}

/// The levels that a graph suggests, outermost first: the root, tiers of switches, named levels, tori. Levels that
/// distinguish no hosts are left out. `known` are names of levels in the order of the source. Names without
/// memberships of any host are used for the tiers of switches, if there are as many.
#[must_use]
pub fn rules(graph: &Graph, root: &LevelName, known: &[LevelName]) -> Vec<Rule> {
    let (mut named, own): (Vec<LevelName>, Vec<LevelName>) = known.iter().cloned().partition(|level| {
        graph.hosts.iter().any(|host| host.domains.iter().any(|membership| membership.level == *level))
    });
    let mut found = tier_rules(graph, root, &own);
    for level in graph.hosts.iter().flat_map(|host| host.domains.iter().map(|m| &m.level)) {
        if !named.contains(level) {
            named.push(level.clone());
        }
    }
    found.extend(named.into_iter().map(|level| Rule { level, source: Source::Named }));
    if !graph.tori.is_empty() {
        for (text, source) in [("torus", Source::Torus), ("cube", Source::Cube)] {
            found.extend(LevelName::new(text).ok().map(|level| Rule { level, source }));
        }
    }
    // A named level with the name of the root or of a tier comes from the source, and stays.
    let names: Vec<LevelName> =
        found.iter().filter(|r| r.source == Source::Named).map(|r| r.level.clone()).collect();
    found.retain(|rule| rule.source == Source::Named || !names.contains(&rule.level));
    found.retain(|rule| rule.level != *root);
    let mut counted: Vec<(usize, Rule)> = Vec::new();
    for rule in found {
        let alone = derive(graph, std::slice::from_ref(&rule));
        let placed = graph.hosts.len() - alone.unplaced.len();
        let distinct = alone.domains.len() - alone.unplaced.len();
        // A level with one domain for all hosts repeats the root, and hosts outside its switches are there for
        // management. A level with a domain for every host repeats the node.
        let is_root = distinct == 1 && (alone.unplaced.is_empty() || rule.source != Source::Named);
        if distinct > 0 && !is_root && distinct < placed.max(2) && !repeats_finer(graph, &rule, &alone) {
            // Rounded up, so that one unplugged host changes no order.
            counted.push((placed.div_ceil(distinct), rule));
        }
    }
    // Coarser levels contain finer ones: more hosts for each domain, of those that have one. Stable: equals keep
    // the order of the source.
    counted.sort_by_key(|(hosts, _)| std::cmp::Reverse(*hosts));
    let mut rules = vec![Rule { level: root.clone(), source: Source::Root }];
    rules.extend(counted.into_iter().map(|(_, rule)| rule));
    rules
}

/// Whether a tier has one domain of its own beside stand-ins, and as many domains as the tier below: a chain of switches
/// above one leaf. It parts no hosts that the finer level does not part.
fn repeats_finer(graph: &Graph, rule: &Rule, alone: &Domains) -> bool {
    let Source::Tier(tier @ 2..) = rule.source else { return false };
    let is_own = |domain: &&Domain| !domain.name.as_str().starts_with(STAND_IN);
    let placed = |domains: &Domains| domains.domains.len() - domains.unplaced.len();
    let own = alone.domains.iter().filter(is_own).count() - alone.unplaced.len();
    own == 1 && placed(alone) > 1 && {
        let finer = derive(graph, &[Rule { level: rule.level.clone(), source: Source::Tier(tier - 1) }]);
        placed(&finer) == placed(alone) && finer.unplaced.len() == alone.unplaced.len()
    }
}

/// A rule for each tier of switches, under the names that the source has for all of them from the top, or else under
/// [`TIER_NAMES`]. From the top, so that of levels with equally many domains the outer level comes first.
fn tier_rules(graph: &Graph, root: &LevelName, own: &[LevelName]) -> Vec<Rule> {
    let mut tiers: Vec<u8> = tiers::of_switches(graph).into_iter().filter(|tier| *tier > 0).collect();
    tiers.sort_unstable_by_key(|tier| std::cmp::Reverse(*tier));
    tiers.dedup();
    let own = if own.len() == tiers.len() { own } else { &[] };
    let usual =
        |tier: u8| TIER_NAMES.get(usize::from(tier).checked_sub(1)?).and_then(|n| LevelName::new(*n).ok());
    let rules = tiers.iter().enumerate().filter_map(|(at, tier)| {
        let level = own.get(at).filter(|level| *level != root).cloned().or_else(|| usual(*tier))?;
        Some(Rule { level, source: Source::Tier(*tier) })
    });
    rules.collect()
}

/// Names of the levels of switches by tier, the first for those that hosts hang on.
pub const TIER_NAMES: [&str; 4] = ["leaf", "block", "pod", "core"];

/// The tier of each switch above the hosts: 1 for switches that are cabled to hosts, 0 if no host reaches the switch.
#[must_use]
pub fn tiers(graph: &Graph) -> Vec<u8> {
    tiers::of_switches(graph)
}

/// Derives the tree. The rules are levels, outermost first.
#[must_use]
pub fn derive(graph: &Graph, rules: &[Rule]) -> Domains {
    let tiers = tiers::of_switches(graph);
    let top = rules.iter().filter_map(|rule| if let Source::Tier(t) = rule.source { Some(t) } else { None });
    // The first tier decides which cables of a host belong to its fabric.
    let groups = Groups::of(graph, &tiers, top.max().unwrap_or(1));
    let mut tree = Domains {
        levels: rules.iter().map(|rule| rule.level.clone()).collect(),
        domains: Vec::new(),
        of_host: Vec::with_capacity(graph.hosts.len()),
        host_uplinks: vec![Uplink::default(); graph.hosts.len()],
        unplaced: Vec::new(),
        sources: rules.iter().map(|rule| rule.source).collect(),
        is_gone: vec![false; graph.hosts.len()],
        devices: Vec::with_capacity(graph.hosts.len()),
        added: Vec::with_capacity(graph.links.len()),
    };
    let mut known: BTreeMap<(Option<u32>, DomainName), u32> = BTreeMap::new();
    for (index, host) in (0_u32..).zip(&graph.hosts) {
        let mut parent = None;
        let devices = host.machine.as_ref().map_or(0, |machine| machine.device_count());
        let named: Vec<Option<DomainName>> =
            rules.iter().map(|rule| name_of(graph, &groups, rule, index)).collect();
        for (level, (rule, name)) in (0_u32..).zip(rules.iter().zip(&named)) {
            let name = name.clone().unwrap_or_else(|| {
                tree.unplaced.push((index, rule.level.clone()));
                // Hosts that share a finer domain stay together.
                let finer = named.iter().skip(level as usize + 1).flatten().next();
                stand_in(finer, &host.name)
            });
            let next = u32::try_from(tree.domains.len()).unwrap_or(u32::MAX);
            let id = *known.entry((parent, name.clone())).or_insert(next);
            if id == next {
                let uplink = Uplink::default();
                tree.domains.push(Domain { level, parent, name, hosts: 0, devices: 0, uplink });
            }
            parent = Some(id);
        }
        tree.of_host.push(parent.unwrap_or(u32::MAX));
        tree.devices.push(devices);
        tree.count(index, 1, i64::from(devices));
    }
    tree.join_links(graph, &tiers, &groups);
    tree
}

impl Domains {
    /// From the innermost domain of a host outwards.
    pub fn around(&self, host: u32) -> impl Iterator<Item = u32> + '_ {
        self.outwards(self.of_host.get(host as usize).copied())
    }

    fn outwards(&self, from: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(from.filter(|id| (*id as usize) < self.domains.len()), |id| {
            self.domains.get(*id as usize).and_then(|domain| domain.parent)
        })
    }

    /// The domains of a host, outermost first, as [`crate::Node::path`] has them.
    #[must_use]
    pub fn path(&self, host: u32) -> Vec<DomainName> {
        let mut path: Vec<DomainName> = self
            .around(host)
            .filter_map(|id| self.domains.get(id as usize))
            .map(|d| d.name.clone())
            .collect();
        path.reverse();
        path
    }

    /// The path of one domain, outermost first.
    #[must_use]
    pub fn path_of(&self, domain: u32) -> Vec<DomainName> {
        let domains = self.outwards(Some(domain)).filter_map(|id| self.domains.get(id as usize));
        let mut path: Vec<DomainName> = domains.map(|d| d.name.clone()).collect();
        path.reverse();
        path
    }

    /// The domains of one level, in the order of the hosts.
    pub fn level(&self, level: u32) -> impl Iterator<Item = (u32, &Domain)> {
        (0..).zip(&self.domains).filter(move |(_, domain)| domain.level == level)
    }

    /// Whether a domain stands in for a level that its hosts do not have: its one child lies directly in its parent.
    #[must_use]
    pub fn is_stand_in(&self, domain: u32) -> bool {
        let Some(name) = self.domains.get(domain as usize).map(|found| found.name.as_str()) else {
            return false;
        };
        let Some(finer) = name.strip_prefix(STAND_IN) else { return false };
        let mut children = self.domains.iter().filter(|child| child.parent == Some(domain));
        // On several levels in turn, the finest of them gives the name.
        let is_finer = |child: &Domain| [finer, name].contains(&child.name.as_str());
        children.next().is_some_and(is_finer) && children.next().is_none()
    }

    #[must_use]
    pub fn source(&self, level: u32) -> Option<Source> {
        self.sources.get(level as usize).copied()
    }

    /// Sets how many cables of a link carry traffic, in the graph and on the way up the tree. A measurement over
    /// other cables is dropped.
    pub fn set_live(&mut self, graph: &mut Graph, link: u32, live: u16) {
        let Some(found) = graph.links.get_mut(link as usize) else { return };
        let live = live.min(found.cables);
        if found.live != live {
            found.live = live;
            found.measured = None;
        }
        self.replace(link as usize, *found);
    }

    /// Sets or removes the measurement of a link.
    pub fn set_measured(&mut self, graph: &mut Graph, link: u32, measured: Option<crate::Measured>) {
        let Some(found) = graph.links.get_mut(link as usize) else { return };
        found.measured = measured;
        self.replace(link as usize, *found);
    }

    /// A host leaves. Its domains stay known for its return.
    pub fn remove(&mut self, host: u32) {
        self.set_gone(host, true);
    }

    pub fn restore(&mut self, host: u32) {
        self.set_gone(host, false);
    }

    fn set_gone(&mut self, host: u32, gone: bool) {
        let Some(was) = self.is_gone.get_mut(host as usize) else { return };
        if std::mem::replace(was, gone) == gone {
            return;
        }
        let devices = self.devices.get(host as usize).copied().map_or(0, i64::from);
        let sign = if gone { -1 } else { 1 };
        self.count(host, sign, sign * devices);
    }

    fn count(&mut self, host: u32, hosts: i64, devices: i64) {
        let mut at = self.of_host.get(host as usize).copied();
        while let Some(domain) = at.and_then(|id| self.domains.get_mut(id as usize)) {
            domain.hosts = u32::try_from(i64::from(domain.hosts) + hosts).unwrap_or(0);
            domain.devices = u32::try_from(i64::from(domain.devices) + devices).unwrap_or(0);
            at = domain.parent;
        }
    }

    /// Finds the domains that each link leaves, and adds it to their uplinks.
    fn join_links(&mut self, graph: &Graph, tiers: &[u8], groups: &Groups) {
        let first_host = groups.first_hosts();
        let tier_of = |end: End| match end {
            End::Host(_) => 0,
            End::Switch(s) => tiers.get(s as usize).copied().unwrap_or(0),
        };
        for link in &graph.links {
            let (low, high) =
                if tier_of(link.a) <= tier_of(link.b) { (link.a, link.b) } else { (link.b, link.a) };
            let mut added = Added { link: *link, domains: Vec::new(), hosts: [None, None] };
            match (low, high) {
                // A cable between two hosts is an uplink of both.
                (End::Host(a), End::Host(b)) => added.hosts = [Some(a), Some(b)],
                (End::Host(host), End::Switch(switch)) | (End::Switch(switch), End::Host(host)) => {
                    // Cables to another fabric, or by mistake to another unit, do not belong to the host's uplink.
                    let own = groups.of_host(1, host);
                    if own.is_none() || own == groups.of_switch(1, switch) {
                        added.hosts = [Some(host), None];
                    }
                }
                (End::Switch(switch), End::Switch(_)) => {
                    let (from, to) = (tier_of(low), tier_of(high));
                    let host = groups.of_switch(from, switch).and_then(|group| first_host(from, group));
                    let is_left = |id: &u32| {
                        self.domains.get(*id as usize).is_some_and(|domain| {
                            matches!(self.source(domain.level), Some(Source::Tier(t)) if (from..to).contains(&t))
                        })
                    };
                    added.domains =
                        host.map(|host| self.around(host).filter(is_left).collect()).unwrap_or_default();
                }
            }
            self.for_each_uplink(&added, |uplink| uplink.add(link));
            self.added.push(added);
        }
    }

    fn replace(&mut self, link: usize, now: FabricLink) {
        let Some(mut added) = self.added.get(link).cloned() else { return };
        let before = std::mem::replace(&mut added.link, now);
        self.for_each_uplink(&added, |uplink| {
            uplink.remove(&before);
            uplink.add(&now);
        });
        if let Some(slot) = self.added.get_mut(link) {
            *slot = added;
        }
    }

    fn for_each_uplink(&mut self, added: &Added, change: impl Fn(&mut Uplink)) {
        for id in &added.domains {
            if let Some(domain) = self.domains.get_mut(*id as usize) {
                change(&mut domain.uplink);
            }
        }
        for host in added.hosts.into_iter().flatten() {
            if let Some(uplink) = self.host_uplinks.get_mut(host as usize) {
                change(uplink);
            }
        }
    }
}

impl Uplink {
    fn add(&mut self, link: &FabricLink) {
        self.cables = self.cables.saturating_add(u32::from(link.cables));
        self.live = self.live.saturating_add(u32::from(link.live));
        self.mb_per_s = self.mb_per_s.saturating_add(link.carries_mb_per_s());
        self.nominal_mb_per_s = self.nominal_mb_per_s.saturating_add(link.nominal_mb_per_s());
    }

    fn remove(&mut self, link: &FabricLink) {
        self.cables = self.cables.saturating_sub(u32::from(link.cables));
        self.live = self.live.saturating_sub(u32::from(link.live));
        self.mb_per_s = self.mb_per_s.saturating_sub(link.carries_mb_per_s());
        self.nominal_mb_per_s = self.nominal_mb_per_s.saturating_sub(link.nominal_mb_per_s());
    }
}

/// The domain of a host on one level, if the source names it.
fn name_of(graph: &Graph, groups: &Groups, rule: &Rule, index: u32) -> Option<DomainName> {
    let host = graph.hosts.get(index as usize)?;
    match rule.source {
        Source::Root => Some(rule_name(rule)),
        Source::Tier(tier) => groups.name_of_host(tier, index),
        Source::Named => host.domains.iter().find(|m| m.level == rule.level).map(|m| m.domain.clone()),
        Source::Torus => torus_name(graph, index),
        Source::Cube => cube_name(graph, index),
    }
}

/// A host that no source places is in a domain of its own, or in the domain of its finer level, with a name that no
/// rack has.
fn stand_in(finer: Option<&DomainName>, host: &NodeName) -> DomainName {
    let own = match finer {
        Some(finer) => of_finer(finer).ok_or(()),
        None => DomainName::new(format!("{HOST_ALONE}{host}")).map_err(|_| ()),
    };
    own.or_else(|_| DomainName::new(host.as_str()))
        .unwrap_or_else(|_| unreachable!("names of both kinds are alike"))
}

/// What the name of a domain starts with that stands in for a level which its one finer domain does not have.
pub const STAND_IN: &str = "of:";
/// What the name of a domain starts with that one host has for itself, as no source places the host.
pub const HOST_ALONE: &str = "host:";

fn of_finer(finer: &DomainName) -> Option<DomainName> {
    if finer.as_str().starts_with(STAND_IN) {
        return Some(finer.clone());
    }
    DomainName::new(format!("{STAND_IN}{finer}")).ok()
}

fn rule_name(rule: &Rule) -> DomainName {
    DomainName::new(rule.level.as_str()).unwrap_or_else(|_| unreachable!("names of both kinds are alike"))
}

fn torus_name(graph: &Graph, host: u32) -> Option<DomainName> {
    let place = graph.hosts.get(host as usize)?.torus?;
    Some(graph.tori.get(place.torus as usize)?.name.clone())
}

/// `cube-0-1-2`: the block of the torus that contains a host's first chip.
fn cube_name(graph: &Graph, host: u32) -> Option<DomainName> {
    let place = graph.hosts.get(host as usize)?.torus?;
    let cube = graph.tori.get(place.torus as usize).map(|torus| torus.cube).filter(|edge| *edge > 0)?;
    let [x, y, z] = place.at.map(|at| at / cube);
    DomainName::new(format!("cube-{x}-{y}-{z}")).ok()
}
