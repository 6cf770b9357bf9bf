//! Resources that are counted by name: on nodes, and in whole domains that share them, such as the power of a rack.

use phalanx_model::{Levels, Needs, Node, ResourceName};

use super::space::Pick;
use super::tree::{Domain, Tree};

/// Nothing limits.
const FREE_OF_LIMIT: i64 = i64::MAX;

/// The named resources that exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resources {
    /// Those that some node has, in order.
    of_nodes: Vec<ResourceName>,
    /// The amount of each resource, node by node.
    totals: Vec<i64>,
    /// The same without the amounts that others use.
    usable: Vec<i64>,
    limits: Vec<Limit>,
}

/// The limits of the domains of one level for one resource.
#[derive(Clone, Debug)]
struct Limit {
    resource: ResourceName,
    level: usize,
    totals: Vec<i64>,
}

/// The free amounts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left {
    /// As [`Resources::totals`].
    of_nodes: Vec<i64>,
    /// By limit, then by domain.
    of_domains: Vec<Vec<i64>>,
}

/// The amounts that a member needs, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    of_nodes: Vec<(u32, u64)>,
    of_domains: Vec<(u32, u64)>,
    /// A requested resource does not exist.
    is_unknown: bool,
}

fn amount(units: u64) -> i64 {
    // Short of what stands for no limit, so that sums of it stay sums.
    i64::try_from(units).unwrap_or(FREE_OF_LIMIT / 2).min(FREE_OF_LIMIT / 2)
}

fn total_of(node: &Node, name: &ResourceName) -> i64 {
    amount(node.machine.named.get(name).copied().unwrap_or(0))
}

/// The amount of a resource without the part that others use.
fn usable_of(node: &Node, name: &ResourceName) -> i64 {
    let foreign = node.foreign_use.named.get(name).copied().unwrap_or(0);
    total_of(node, name).saturating_sub_unsigned(foreign)
}

/// How many times `need`, which is above 0, fits into the free amount.
fn times(left: i64, need: u64) -> u32 {
    if left == FREE_OF_LIMIT {
        return u32::MAX;
    }
    u64::try_from(left).map_or(0, |left| u32::try_from(left / need.max(1)).unwrap_or(u32::MAX))
}

impl Resources {
    /// Nodes in the order of the tree.
    pub(crate) fn build(levels: &Levels, domains: &[Vec<Domain>], nodes: &[&Node]) -> Self {
        let mut of_nodes: Vec<ResourceName> =
            nodes.iter().flat_map(|node| node.machine.named.keys().cloned()).collect();
        of_nodes.sort();
        of_nodes.dedup();
        let of_all = |of: fn(&Node, &ResourceName) -> i64| -> Vec<i64> {
            nodes.iter().flat_map(|node| of_nodes.iter().map(move |name| of(node, name))).collect()
        };
        let (totals, usable) = (of_all(total_of), of_all(usable_of));
        let mut keys: Vec<(&ResourceName, usize)> = levels
            .limits
            .iter()
            .filter_map(|limit| {
                let level = levels.above.iter().position(|level| *level == limit.level)?;
                Some((&limit.resource, level))
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let limit = |(resource, level): (&ResourceName, usize)| Limit {
            resource: resource.clone(),
            level,
            totals: domains[level].iter().map(|domain| limit_of(levels, resource, level, domain)).collect(),
        };
        let limits = keys.into_iter().map(limit).collect();
        Self { of_nodes, totals, usable, limits }
    }

    /// The names of all.
    pub(crate) fn names(&self) -> Vec<&ResourceName> {
        let mut names: Vec<&ResourceName> =
            self.of_nodes.iter().chain(self.limits.iter().map(|limit| &limit.resource)).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The total amount of each resource of a node, including the part that others use.
    pub(crate) fn of_node(&self, node: usize) -> impl Iterator<Item = (&ResourceName, u64)> {
        let totals = self.totals.iter().skip(node * self.of_nodes.len());
        self.of_nodes.iter().zip(totals).map(|(name, total)| (name, u64::try_from(*total).unwrap_or(0)))
    }

    /// How much there is in all by limits of domains of those that no node has.
    pub(crate) fn of_domains_alone(&self) -> impl Iterator<Item = (&ResourceName, u64)> {
        let mut seen: Vec<&ResourceName> = self.of_nodes.iter().collect();
        self.limits.iter().filter_map(move |limit| {
            let is_new = !seen.contains(&&limit.resource);
            seen.push(&limit.resource);
            let limited = limit.totals.iter().filter(|left| **left < FREE_OF_LIMIT);
            let sum = |sum: u64, left: &i64| sum.saturating_add(u64::try_from(*left).unwrap_or(0));
            is_new.then(|| (&limit.resource, limited.fold(0, sum)))
        })
    }

    /// Applies new amounts of a node, or a new use by others. Returns by how much the total and the usable amount of
    /// each resource grew.
    pub(super) fn amend(&mut self, at: usize, node: &Node) -> (Vec<i64>, Vec<i64>) {
        let width = self.of_nodes.len();
        let own = at * width..(at + 1) * width;
        let (mut more, mut more_usable) = (Vec::with_capacity(width), Vec::with_capacity(width));
        let Some((totals, usable)) = self.totals.get_mut(own.clone()).zip(self.usable.get_mut(own)) else {
            return (more, more_usable);
        };
        for ((name, total), usable) in self.of_nodes.iter().zip(totals).zip(usable) {
            let (now, now_usable) = (total_of(node, name), usable_of(node, name));
            more.push(now - std::mem::replace(total, now));
            more_usable.push(now_usable.saturating_sub(std::mem::replace(usable, now_usable)));
        }
        (more, more_usable)
    }

    /// The level of the domains that a limit applies to.
    pub(crate) fn level_of(&self, limit: u32) -> usize {
        self.limits.get(limit as usize).map_or(0, |limit| limit.level)
    }

    pub(crate) fn all_left(&self) -> Left {
        let of_domains = self.limits.iter().map(|limit| limit.totals.clone()).collect();
        Left { of_nodes: self.totals.clone(), of_domains }
    }

    /// The same without the amounts of nodes that others use.
    pub(crate) fn usable(&self) -> Left {
        Left { of_nodes: self.usable.clone(), ..self.all_left() }
    }

    /// Looks the names up. `asked` is memory for the result.
    pub(crate) fn look_up(&self, needs: &Needs, asked: &mut Asked) {
        asked.of_nodes.clear();
        asked.of_domains.clear();
        asked.is_unknown = false;
        for (name, need) in needs.named.iter().filter(|(_, need)| **need > 0) {
            let at = self.of_nodes.binary_search(name).ok();
            asked.of_nodes.extend(at.map(|at| (at as u32, *need)));
            let limits = (0..).zip(&self.limits).filter(|(_, limit)| limit.resource == *name);
            let before = asked.of_domains.len();
            asked.of_domains.extend(limits.map(|(at, _)| (at, *need)));
            asked.is_unknown |= at.is_none() && asked.of_domains.len() == before;
        }
    }
}

fn limit_of(levels: &Levels, resource: &ResourceName, level: usize, domain: &Domain) -> i64 {
    let mut of_level = levels
        .limits
        .iter()
        .filter(|limit| limit.resource == *resource && levels.above.get(level) == Some(&limit.level));
    let named = of_level.clone().find(|limit| limit.path.as_ref() == Some(&domain.path));
    named
        .or_else(|| of_level.find(|limit| limit.path.is_none()))
        .map_or(FREE_OF_LIMIT, |limit| amount(limit.amount))
}

impl Asked {
    pub(crate) fn is_nothing(&self) -> bool {
        self.of_nodes.is_empty() && self.of_domains.is_empty() && !self.is_unknown
    }

    /// Of which resource of nodes each member needs how much.
    pub(crate) fn of_nodes(&self) -> &[(u32, u64)] {
        &self.of_nodes
    }

    /// Of which limit of domains each member needs how much.
    pub(crate) fn of_domains(&self) -> &[(u32, u64)] {
        &self.of_domains
    }

    /// Whether the search must read nodes one by one.
    pub(crate) fn is_of_nodes(&self) -> bool {
        !self.of_nodes.is_empty() || self.is_unknown
    }

    pub(crate) fn is_of_domains(&self) -> bool {
        !self.of_domains.is_empty()
    }
}

impl Left {
    /// A node has so much more of each resource of nodes.
    pub(super) fn amend(&mut self, tree: &Tree, node: usize, more: &[i64]) {
        let first = node * tree.resources.of_nodes.len();
        for (left, more) in self.of_nodes.iter_mut().skip(first).zip(more) {
            *left = left.saturating_add(*more);
        }
    }

    /// The free amount of a resource on a node.
    pub(crate) fn of_node(&self, tree: &Tree, node: usize, resource: u32) -> i64 {
        let at = node * tree.resources.of_nodes.len() + resource as usize;
        self.of_nodes.get(at).copied().unwrap_or(0)
    }

    /// The free amount of a domain below a limit of its level.
    pub(crate) fn of_domain(&self, limit: u32, domain: usize) -> i64 {
        let of_limit = self.of_domains.get(limit as usize).and_then(|left| left.get(domain));
        of_limit.copied().unwrap_or(FREE_OF_LIMIT)
    }

    /// Members that a node has enough for.
    pub(crate) fn on_node(&self, tree: &Tree, node: usize, asked: &Asked) -> u32 {
        if asked.is_unknown {
            return 0;
        }
        let first = node * tree.resources.of_nodes.len();
        let of_node = asked.of_nodes.iter();
        let left = |at: u32| self.of_nodes.get(first + at as usize).copied().unwrap_or(0);
        of_node.map(|(at, need)| times(left(*at), *need)).min().unwrap_or(u32::MAX)
    }

    /// Members that a domain has enough for by its own limits, and not by those around it.
    pub(crate) fn in_domain(&self, tree: &Tree, level: usize, domain: usize, asked: &Asked) -> u32 {
        let of_level =
            asked.of_domains.iter().filter(|(at, _)| tree.resources.limits[*at as usize].level == level);
        let left = |at: u32| self.of_domains[at as usize].get(domain).copied().unwrap_or(FREE_OF_LIMIT);
        of_level.map(|(at, need)| times(left(*at), *need)).min().unwrap_or(u32::MAX)
    }

    /// Books the amounts of members on a node, or gives them back.
    pub(crate) fn book(&mut self, tree: &Tree, pick: &Pick, needs: &Needs, is_taken: bool) {
        if needs.named.is_empty() {
            return;
        }
        let resources = &tree.resources;
        let first = pick.node as usize * resources.of_nodes.len();
        let change = |left: &mut i64, need: u64| {
            if *left != FREE_OF_LIMIT {
                let all = amount(need.saturating_mul(u64::from(pick.members)));
                *left = if is_taken { left.saturating_sub(all) } else { left.saturating_add(all) };
            }
        };
        for (name, need) in &needs.named {
            if let Ok(at) = resources.of_nodes.binary_search(name)
                && let Some(left) = self.of_nodes.get_mut(first + at)
            {
                change(left, *need);
            }
            for (limit, left) in resources.limits.iter().zip(&mut self.of_domains) {
                let domain = tree.domain_of(pick.node as usize, limit.level);
                if limit.resource == *name
                    && let Some(left) = left.get_mut(domain)
                {
                    change(left, *need);
                }
            }
        }
    }
}
