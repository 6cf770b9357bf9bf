//! Counted amounts: CPUs, memory and named resources of nodes, and the limits of domains.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{DomainLimit, DomainName, Needs, NodeName, ResourceName};

use crate::start::{Member, Start};
use crate::{Checker, Violation};

impl Checker {
    /// Checks the use of a start's nodes by all live members, for the resources that the start needs there. Other
    /// nodes are not checked: a node that shrank is no fault of this start.
    pub(crate) fn check_amounts(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        let resources = named(start);
        for (name, there) in self.neighbours_of(start) {
            let Some(node) = self.nodes.get(name) else { continue };
            let mut check = |what: &str, has: u64, need: &dyn Fn(&Needs) -> u64| {
                let sum = |of: &dyn Fn(&&Member<'_>) -> bool| -> u64 {
                    let needs = there.iter().filter(of).map(|member| need(member.needs()));
                    needs.fold(0, u64::saturating_add)
                };
                let (own, wanted) = (sum(&|member| member.of.id == start.id), sum(&|_| true));
                if own > 0 && wanted > has {
                    let (node, what) = (name.clone(), what.to_owned());
                    found.push(Violation::OverCapacity { node, what, has, wanted });
                }
            };
            let others = &node.foreign_use;
            check("cpu_milli", node.machine.cpu_milli.saturating_sub(others.cpu_milli), &|n| n.cpu_milli);
            let memory = node.machine.memory_bytes.saturating_sub(others.memory_bytes);
            check("memory_bytes", memory, &|needs| needs.memory_bytes);
            for resource in &resources {
                if self.is_counted_on_nodes(resource) {
                    let all = node.machine.named.get(*resource).copied().unwrap_or(0);
                    let theirs = others.named.get(*resource).copied().unwrap_or(0);
                    check(resource.as_str(), all.saturating_sub(theirs), &|needs| amount(needs, resource));
                }
            }
        }
    }

    /// Checks the limits of the domains around the nodes of a start.
    pub(crate) fn check_limits(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        for resource in named(start) {
            let mut domains: BTreeMap<Vec<DomainName>, u64> = BTreeMap::new();
            for slot in start.placement.slots.iter().filter(|slot| amount(start.needs(slot), resource) > 0) {
                let path = self.nodes.get(&slot.node).map_or(&[][..], |node| &node.path);
                domains.extend(self.limits_over(path, resource));
            }
            if domains.is_empty() {
                continue;
            }
            let mut used: BTreeMap<&NodeName, u64> = BTreeMap::new();
            for member in self.living_members() {
                let sum = used.entry(&member.slot.node).or_default();
                *sum = sum.saturating_add(amount(member.needs(), resource));
            }
            for (path, has) in domains {
                let is_inside =
                    |name: &NodeName| self.nodes.get(name).is_some_and(|n| n.path.starts_with(&path));
                let inside = used.iter().filter(|(name, _)| is_inside(name)).map(|(_, sum)| *sum);
                let wanted = inside.fold(0, u64::saturating_add);
                if wanted > has {
                    let domain = path.iter().map(DomainName::as_str).collect::<Vec<_>>().join("/");
                    found.push(Violation::OverLimit { domain, resource: resource.clone(), has, wanted });
                }
            }
        }
    }

    /// A resource that no node counts is limited by domains only.
    fn is_counted_on_nodes(&self, resource: &ResourceName) -> bool {
        let mut limits = self.levels.iter().flat_map(|levels| &levels.limits);
        self.nodes.values().any(|node| node.machine.named.contains_key(resource))
            || !limits.any(|limit| limit.resource == *resource)
    }

    /// The domains around a path that limit a resource, with their limits. A limit that names its domain takes
    /// precedence over a limit for the whole level. If there are several of a kind, the first counts.
    fn limits_over(&self, path: &[DomainName], resource: &ResourceName) -> BTreeMap<Vec<DomainName>, u64> {
        let Some(levels) = &self.levels else { return BTreeMap::new() };
        let mut all = BTreeMap::new();
        for (depth, level) in levels.above.iter().enumerate() {
            let Some(domain) = path.get(..=depth) else { continue };
            let of_level =
                levels.limits.iter().filter(|limit| limit.level == *level && limit.resource == *resource);
            let of_domain = |limit: &&DomainLimit| limit.path.as_deref() == Some(domain);
            let of_all = |limit: &&DomainLimit| limit.path.is_none();
            let limit = of_level.clone().find(of_domain).or_else(|| of_level.clone().find(of_all));
            all.extend(limit.map(|limit| (domain.to_vec(), limit.amount)));
        }
        all
    }
}

fn amount(needs: &Needs, resource: &ResourceName) -> u64 {
    needs.named.get(resource).copied().unwrap_or(0)
}

/// The named resources that members of a start need.
fn named<'a>(start: &Start<'a>) -> BTreeSet<&'a ResourceName> {
    let roles = start.gang.roles.iter().map(|role| &role.needs);
    roles.chain([&start.gang.needs]).flat_map(|needs| needs.named.keys()).collect()
}
