//! Volcano's `HyperNode`s: named domains of nodes and of other HyperNodes, by tier. Tier 1 is next to the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use phalanx_model::domains::{HOST_ALONE, STAND_IN};
use phalanx_model::{DomainName, Graph, Host, LevelName, Membership, NodeName};
use regex::{Regex, RegexBuilder};

use super::nodes::{NodeObject, NodeObjects};
use super::tree::Tree;
use super::{NODES_MAX, Reading, listed, printable};
use crate::gap::{self, Gap};

/// The largest compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;
const TIER_MAX: u32 = 1000;
/// Among how many names a similar one is looked for.
const NAMES_TRIED: usize = 2000;

/// A domain and how its members are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HyperNode {
    pub name: DomainName,
    /// The name of the domain: that of the object, unless a label has another one.
    pub domain: DomainName,
    /// From 1, next to the nodes.
    pub tier: u32,
    pub tier_name: Option<String>,
    pub members: Vec<Member>,
    place: (u32, u32),
}

/// Some members of a HyperNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// `None` where the object does not say; then a name of a HyperNode is meant where there is one.
    pub kind: Option<MemberKind>,
    pub selector: Selector,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberKind {
    Node,
    HyperNode,
}

/// Which nodes or HyperNodes are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    Exact(String),
    /// Matches anywhere in the name, unless it is anchored.
    Pattern(String),
    /// Nodes that meet all of them.
    Labels(Vec<Requirement>),
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

pub(super) fn read(tree: &Tree, gaps: &mut Vec<Gap>) -> Result<HyperNode, String> {
    let name = tree.name().ok_or("a HyperNode has no name and is left out")?;
    let left_out = |why: String| format!("the HyperNode {:?} is left out: {why}", printable(name));
    let tier = tree.at(&["spec", "tier"]).and_then(Tree::number::<u32>).filter(|tier| *tier <= TIER_MAX);
    let tier = tier.ok_or_else(|| left_out(format!("its tier is no number up to {TIER_MAX}")))?;
    let mut members = Vec::new();
    let shown = printable(name);
    for member in tree.items_at(&["spec", "members"]) {
        match read_member(member) {
            Ok(member) => members.push(member),
            Err(what) => {
                gaps.push(Gap::new(member.place(), format!("a member of {} is left out: {what}", shown)))
            }
        }
    }
    let name = DomainName::new(name).map_err(|error| left_out(error.to_string()))?;
    let labelled = tree.text_at(&["metadata", "labels", NAME_LABEL]);
    Ok(HyperNode {
        domain: labelled.and_then(|text| DomainName::new(text).ok()).unwrap_or_else(|| name.clone()),
        name,
        tier,
        tier_name: tree.text_at(&["spec", "tierName"]).filter(|name| !name.is_empty()).map(printable),
        members,
        place: tree.place(),
    })
}

fn read_member(tree: &Tree) -> Result<Member, String> {
    let kind = match tree.text_at(&["type"]) {
        None => None,
        Some("Node") => Some(MemberKind::Node),
        Some("HyperNode") => Some(MemberKind::HyperNode),
        Some(other) => {
            return Err(format!("its type is {:?}, and there are Node and HyperNode", printable(other)));
        }
    };
    let selector = |path: &[&str]| tree.text_at(path).filter(|text| !text.is_empty());
    // Early examples have the name without a selector.
    let exact = selector(&["selector", "exactMatch", "name"]).or_else(|| selector(&["name"]));
    if let Some(name) = exact {
        return Ok(Member { kind, selector: Selector::Exact(name.to_owned()) });
    }
    if let Some(pattern) = selector(&["selector", "regexMatch", "pattern"]) {
        return Ok(Member { kind, selector: Selector::Pattern(pattern.to_owned()) });
    }
    let labels =
        tree.at(&["selector", "labelMatch"]).ok_or("it has no exactMatch, regexMatch or labelMatch")?;
    let equal = labels.at(&["matchLabels"]).map_or(&[][..], Tree::entries).iter().map(|(key, value)| {
        let values = vec![value.text().unwrap_or_default().to_owned()];
        Ok(Requirement { key: key.clone(), operator: Operator::In, values })
    });
    let expressions = labels.items_at(&["matchExpressions"]).iter().map(|expression| {
        let operator = match expression.text_at(&["operator"]) {
            Some("In") => Operator::In,
            Some("NotIn") => Operator::NotIn,
            Some("Exists") => Operator::Exists,
            Some("DoesNotExist") => Operator::DoesNotExist,
            other => {
                return Err(format!("the operator {:?} is not known", printable(other.unwrap_or_default())));
            }
        };
        let key = expression.text_at(&["key"]).ok_or("an expression has no key")?.to_owned();
        let values =
            expression.items_at(&["values"]).iter().filter_map(Tree::text).map(str::to_owned).collect();
        Ok(Requirement { key, operator, values })
    });
    let requirements: Vec<Requirement> = equal.chain(expressions).collect::<Result<_, String>>()?;
    if requirements.is_empty() {
        return Err("its labelMatch is empty".to_owned());
    }
    Ok(Member { kind, selector: Selector::Labels(requirements) })
}

impl Requirement {
    fn is_met(&self, node: &NodeObject) -> bool {
        let value = node.labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// Places the nodes in the domains that HyperNodes name. Without a list of nodes, those that are named exactly are
/// the hosts.
///
/// A tier's level is called by its tier name where all of the tier agree, otherwise `tier-2`.
#[must_use]
pub fn place(hyper_nodes: &[HyperNode], nodes: Option<&NodeObjects>) -> Reading {
    let mut by_name: BTreeMap<&str, &HyperNode> = BTreeMap::new();
    let (hosts, gaps) = nodes.map_or_else(Default::default, NodeObjects::hosts);
    let mut reading = Reading { gaps, graph: Graph { hosts, ..Graph::default() }, levels: Vec::new() };
    for hyper_node in hyper_nodes {
        if by_name.contains_key(hyper_node.name.as_str()) {
            let what = format!("the HyperNode {} is here a second time; the first is kept", hyper_node.name);
            reading.gaps.push(Gap::new(hyper_node.place, what));
        } else {
            by_name.insert(hyper_node.name.as_str(), hyper_node);
        }
    }
    if nodes.is_none() {
        reading.graph.hosts = named_hosts(&by_name);
    }
    let names: BTreeMap<String, usize> =
        (0..).zip(&reading.graph.hosts).map(|(at, host)| (host.name.as_str().to_owned(), at)).collect();
    let tree = Members { by_name: &by_name, hosts: &names, nodes }.resolve(&mut reading.gaps);
    let levels = levels(&by_name);
    for (at, host) in reading.graph.hosts.iter_mut().enumerate() {
        let mut taken: BTreeMap<u32, &HyperNode> = BTreeMap::new();
        for first in tree.of_host.get(&at).into_iter().flatten() {
            // Parents have higher tiers, so this ends.
            let mut next = by_name.get(first).copied();
            while let Some(hyper_node) = next {
                let known = taken.entry(hyper_node.tier).or_insert(hyper_node);
                if known.name != hyper_node.name {
                    let what = format!(
                        "the node {} is in {} and in {}, both of tier {}; the first is kept",
                        host.name, known.name, hyper_node.name, hyper_node.tier
                    );
                    reading.gaps.push(Gap::new(hyper_node.place, what));
                    break;
                }
                next = tree
                    .parents
                    .get(hyper_node.name.as_str())
                    .and_then(|parent| by_name.get(parent))
                    .copied();
            }
        }
        let member = |(tier, hyper_node): (&u32, &&HyperNode)| {
            Some(Membership { level: levels.get(tier)?.clone(), domain: hyper_node.domain.clone() })
        };
        host.domains.extend(taken.iter().rev().filter_map(member));
    }
    let outside: Vec<&str> =
        reading.graph.hosts.iter().filter(|h| h.domains.is_empty()).map(|h| h.name.as_str()).collect();
    if !outside.is_empty() {
        let what = format!(
            "{} in no HyperNode: {}",
            super::counted(outside.len(), "node"),
            listed(outside.into_iter())
        );
        reading.gaps.push(Gap::new((0, 0), what));
    }
    reading.levels = levels.into_values().rev().collect();
    reading.gaps = gap::listed(reading.gaps);
    reading
}

/// Without a list of nodes: what is named and is no HyperNode.
fn named_hosts(by_name: &BTreeMap<&str, &HyperNode>) -> Vec<Host> {
    let members = by_name.values().flat_map(|hyper_node| &hyper_node.members);
    let exact = members.filter_map(|member| match (&member.selector, member.kind) {
        (Selector::Exact(name), Some(MemberKind::Node)) => Some(name),
        (Selector::Exact(name), None) if !by_name.contains_key(name.as_str()) => Some(name),
        _ => None,
    });
    let names: BTreeSet<NodeName> = exact.filter_map(|name| NodeName::new(name.as_str()).ok()).collect();
    names.into_iter().take(NODES_MAX).map(Host::new).collect()
}

/// Levels by tier.
fn levels(by_name: &BTreeMap<&str, &HyperNode>) -> BTreeMap<u32, LevelName> {
    let mut names: BTreeMap<u32, BTreeSet<Option<&str>>> = BTreeMap::new();
    for hyper_node in by_name.values() {
        names.entry(hyper_node.tier).or_default().insert(hyper_node.tier_name.as_deref());
    }
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let mut levels = BTreeMap::new();
    for (tier, names) in &names {
        let name = names.first().copied().flatten().filter(|name| names.len() == 1 && used.insert(name));
        let level = name.and_then(|name| LevelName::new(name).ok());
        if let Some(level) = level.or_else(|| LevelName::new(format!("tier-{tier}")).ok()) {
            levels.insert(*tier, level);
        }
    }
    levels
}

struct Members<'a> {
    by_name: &'a BTreeMap<&'a str, &'a HyperNode>,
    hosts: &'a BTreeMap<String, usize>,
    nodes: Option<&'a NodeObjects>,
}

/// Who is in what, by name.
#[derive(Default)]
struct Inside<'a> {
    parents: BTreeMap<&'a str, &'a str>,
    of_host: BTreeMap<usize, Vec<&'a str>>,
}

impl<'a> Members<'a> {
    fn resolve(&self, gaps: &mut Vec<Gap>) -> Inside<'a> {
        let mut inside = Inside::default();
        let mut order: Vec<&HyperNode> = self.by_name.values().copied().collect();
        order.sort_by(|a, b| (a.tier, &a.name).cmp(&(b.tier, &b.name)));
        for hyper_node in order {
            for member in &hyper_node.members {
                if let Err(what) = self.add(hyper_node, member, &mut inside) {
                    gaps.push(Gap::new(
                        hyper_node.place,
                        format!("the HyperNode {}: {what}", hyper_node.name),
                    ));
                }
            }
        }
        inside
    }

    fn add(&self, into: &'a HyperNode, member: &'a Member, inside: &mut Inside<'a>) -> Result<(), String> {
        let mut add_host = |at: usize| inside.of_host.entry(at).or_default().push(into.name.as_str());
        match &member.selector {
            Selector::Exact(name) => {
                let child = self.by_name.get(name.as_str()).filter(|_| member.kind != Some(MemberKind::Node));
                if let Some(child) = child {
                    return add_child(into, child, inside);
                }
                let host = self.hosts.get(name).filter(|_| member.kind != Some(MemberKind::HyperNode));
                add_host(*host.ok_or_else(|| self.absent(name, member.kind))?);
            }
            Selector::Pattern(pattern) => {
                let regex = compile(pattern)?;
                if member.kind == Some(MemberKind::HyperNode) {
                    // A pattern is not said to mean only lower tiers; others cannot be members.
                    let mut matching = self
                        .by_name
                        .values()
                        .filter(|h| h.tier < into.tier && regex.is_match(h.name.as_str()));
                    return matching.try_for_each(|child| add_child(into, child, inside));
                }
                if self.nodes.is_none() {
                    return Err(format!(
                        "which nodes {:?} matches needs the list of nodes",
                        printable(pattern)
                    ));
                }
                self.hosts.iter().filter(|(name, _)| regex.is_match(name)).for_each(|(_, at)| add_host(*at));
            }
            Selector::Labels(requirements) => {
                let nodes = self.nodes.ok_or("which nodes have its labels needs the list of nodes")?;
                let is_meant =
                    |node: &&NodeObject| requirements.iter().all(|requirement| requirement.is_met(node));
                let matching = nodes.nodes().filter(is_meant);
                matching.filter_map(|node| self.hosts.get(node.name.as_str())).for_each(|at| add_host(*at));
            }
        }
        Ok(())
    }

    fn absent(&self, name: &str, kind: Option<MemberKind>) -> String {
        // `nvlink-network0` is easily written for `nvlink_network-0`.
        let plain =
            |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        let known: Box<dyn Iterator<Item = &str>> = match kind {
            Some(MemberKind::Node) => Box::new(self.hosts.keys().map(String::as_str)),
            _ => Box::new(self.by_name.keys().copied()),
        };
        let meant = known.take(NAMES_TRIED).find(|known| plain(known) == plain(name));
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        format!("its member {:?} is not there{meant}", printable(name))
    }
}

fn add_child<'a>(into: &'a HyperNode, child: &'a HyperNode, inside: &mut Inside<'a>) -> Result<(), String> {
    if child.tier >= into.tier {
        return Err(format!(
            "its member {} is of tier {}, which is not below its own {}",
            child.name, child.tier, into.tier
        ));
    }
    match inside.parents.get(child.name.as_str()) {
        Some(known) if *known != into.name.as_str() => {
            Err(format!("its member {} is in {known} already, where it stays", child.name))
        }
        _ => {
            inside.parents.insert(child.name.as_str(), into.name.as_str());
            Ok(())
        }
    }
}

fn compile(pattern: &str) -> Result<Regex, String> {
    let regex = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).nest_limit(50).build();
    regex.map_err(|_| format!("{:?} is no pattern that can be used", printable(pattern)))
}

/// The label with the name of a domain that is not the name of its object.
const NAME_LABEL: &str = "phalanx.dev/domain";

/// Volcano's HyperNodes for the levels of a graph: the innermost level is tier 1, with its nodes by name; every
/// level above has the domains of the one below. A host that lacks a level is a member of the next one.
///
/// A HyperNode has the name of its domain, if Kubernetes accepts the name and no other domain has it. Otherwise the
/// level stands before it, and a label has the domain's own name.
#[must_use]
pub fn to_volcano(graph: &Graph, levels: &[LevelName]) -> String {
    let names = Names::of(graph, levels);
    let mut text = String::new();
    for (tier, level) in (1..).zip(levels.iter().rev()) {
        let finer = levels.iter().rev().take(tier - 1).rev();
        let mut members: BTreeMap<&DomainName, BTreeSet<(bool, String)>> = BTreeMap::new();
        for host in &graph.hosts {
            let Some(domain) = domain(host, level).filter(|domain| !is_stand_in(host, domain)) else {
                continue;
            };
            let inside = finer.clone().find_map(|finer| {
                self::domain(host, finer).filter(|d| !is_stand_in(host, d)).map(|d| names.of_domain(finer, d))
            });
            let is_node = inside.is_none();
            let member = inside.unwrap_or_else(|| host.name.to_string());
            members.entry(domain).or_default().insert((is_node, member));
        }
        for (domain, members) in members {
            let name = names.of_domain(level, domain);
            let label = if name != domain.as_str() && is_label(domain.as_str()) {
                format!("  labels:\n    {NAME_LABEL}: {}\n", quoted(domain.as_str()))
            } else {
                String::new()
            };
            let tier_name = quoted(level.as_str());
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "---\napiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\nmetadata:\n  name: {name}\n{label}spec:\n  tier: {tier}\n  tierName: {tier_name}\n  members:\n"
            );
            for (is_node, member) in members {
                let (kind, member) = (if is_node { "Node" } else { "HyperNode" }, quoted(&member));
                let _ = write!(
                    text,
                    "  - type: {kind}\n    selector:\n      exactMatch:\n        name: {member}\n"
                );
            }
        }
    }
    text
}

/// Whether a domain only stands in for a level that the host does not have.
fn is_stand_in(host: &Host, domain: &DomainName) -> bool {
    let finer = domain.as_str().strip_prefix(STAND_IN);
    finer.is_some_and(|finer| host.domains.iter().any(|m| m.domain.as_str() == finer))
        || domain.as_str().strip_prefix(HOST_ALONE) == Some(host.name.as_str())
}

/// The names of HyperNodes, by level and domain.
struct Names<'a>(BTreeMap<(&'a LevelName, &'a DomainName), String>);

impl<'a> Names<'a> {
    fn of(graph: &'a Graph, levels: &'a [LevelName]) -> Self {
        let mut all: BTreeSet<(&LevelName, &DomainName)> = BTreeSet::new();
        for level in levels {
            all.extend(graph.hosts.iter().filter_map(|host| Some((level, domain(host, level)?))));
        }
        let mut count: BTreeMap<String, u32> = BTreeMap::new();
        for (_, domain) in &all {
            *count.entry(object_name(domain.as_str())).or_default() += 1;
        }
        // A node of this name would be taken for the member that is meant.
        let nodes: BTreeSet<&str> = graph.hosts.iter().map(|host| host.name.as_str()).collect();
        let is_free = |own: &str| count.get(own) == Some(&1) && !nodes.contains(own);
        let mut used: BTreeSet<String> = count.keys().filter(|own| is_free(own)).cloned().collect();
        let mut found = BTreeMap::new();
        for (level, domain) in all {
            let own = object_name(domain.as_str());
            if is_free(&own) {
                found.insert((level, domain), own);
                continue;
            }
            let first = object_name(&format!("{level}-{domain}"));
            let others = (2..=u32::MAX).map(|number| format!("{first}-{number}"));
            let is_new = |name: &String| !used.contains(name) && !nodes.contains(name.as_str());
            let name = std::iter::once(first.clone()).chain(others).find(is_new).unwrap_or(first.clone());
            used.insert(name.clone());
            found.insert((level, domain), name);
        }
        Self(found)
    }

    fn of_domain(&self, level: &LevelName, domain: &DomainName) -> String {
        self.0.get(&(level, domain)).cloned().unwrap_or_else(|| object_name(&format!("{level}-{domain}")))
    }
}

fn domain<'a>(host: &'a Host, level: &LevelName) -> Option<&'a DomainName> {
    host.domains.iter().find(|m| m.level == *level).map(|m| &m.domain)
}

/// Whether Kubernetes accepts a text as the value of a label.
pub(super) fn is_label(text: &str) -> bool {
    let good = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let ends = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63 && text.bytes().all(good) && text.starts_with(ends) && text.ends_with(ends)
}

/// A name that Kubernetes accepts for an object: lower case letters, digits, `-` and `.`.
pub(super) fn object_name(text: &str) -> String {
    let good = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let name: String = text.chars().map(good).take(phalanx_model::ids::NAME_BYTES_MAX).collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "topology".to_owned() } else { name.to_owned() }
}

/// A YAML scalar that no reader takes for a number. Names and label keys hold nothing to escape.
pub(super) fn quoted(text: &str) -> String {
    format!("{text:?}")
}
