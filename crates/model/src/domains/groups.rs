//! Groups of hosts that reach the same switches.
//!
//! With rails, the hosts of one unit are cabled to eight leaves and not to one. Two switches of a tier belong to the
//! same domain if more than half of the hosts or groups below the larger switch are also below the other. So a
//! misplaced cable joins no domains, and neither does a second fabric, such as a storage fabric, whose switches reach
//! the hosts of many leaves.

use std::collections::BTreeMap;

use super::name::name_switches;
use crate::{DomainName, End, Graph};

/// The groups of every tier up to the highest that is asked for.
pub(super) struct Groups {
    tiers: Vec<Tier>,
}

#[derive(Default)]
struct Tier {
    /// Group of each switch of this tier.
    of_switch: BTreeMap<u32, u32>,
    /// Group of each host.
    of_host: Vec<Option<u32>>,
    names: Vec<DomainName>,
}

impl Groups {
    pub(super) fn of(graph: &Graph, tiers: &[u8], top: u8) -> Self {
        // What hangs on the switches of a tier: hosts at first, then the groups of the tier below.
        let mut below: Vec<Option<u32>> = (0..).take(graph.hosts.len()).map(Some).collect();
        let mut found: Vec<Tier> = Vec::new();
        for tier in 1..=top {
            let ties = ties(graph, tiers, tier, found.last());
            let mut of_switch = join(&ties);
            let mut of_item = most(&ties, &of_switch);
            let mut names = name_switches(graph, &of_switch);
            if let Some(last) = found.last() {
                for (item, switches) in skipping(graph, tiers, tier, last, &of_item) {
                    let name = last.names.get(item as usize).and_then(super::of_finer);
                    let (Some(name), Ok(group)) = (name, u32::try_from(names.len())) else { continue };
                    names.push(name);
                    of_item.insert(item, group);
                    of_switch.extend(switches.into_iter().map(|switch| (switch, group)));
                }
            }
            let of_host: Vec<Option<u32>> =
                below.iter().map(|item| of_item.get(&(*item)?).copied()).collect();
            below.clone_from(&of_host);
            found.push(Tier { of_switch, of_host, names });
        }
        Self { tiers: found }
    }

    fn tier(&self, tier: u8) -> Option<&Tier> {
        self.tiers.get(usize::from(tier).checked_sub(1)?)
    }

    pub(super) fn name_of_host(&self, tier: u8, host: u32) -> Option<DomainName> {
        let tier = self.tier(tier)?;
        let group = (*tier.of_host.get(host as usize)?)?;
        tier.names.get(group as usize).cloned()
    }

    pub(super) fn of_host(&self, tier: u8, host: u32) -> Option<u32> {
        self.tier(tier)?.of_host.get(host as usize).copied().flatten()
    }

    pub(super) fn of_switch(&self, tier: u8, switch: u32) -> Option<u32> {
        self.tier(tier)?.of_switch.get(&switch).copied()
    }

    /// The first host of each group of a tier.
    pub(super) fn first_hosts(&self) -> impl Fn(u8, u32) -> Option<u32> + use<> {
        let mut first: BTreeMap<(u8, u32), u32> = BTreeMap::new();
        for (number, tier) in (1_u8..=u8::MAX).zip(&self.tiers) {
            for (host, group) in (0_u32..).zip(&tier.of_host) {
                if let Some(group) = group {
                    first.entry((number, *group)).or_insert(host);
                }
            }
        }
        move |tier, group| first.get(&(tier, group)).copied()
    }
}

/// The groups of the tier below that reach no switch of this tier and do reach a higher one, with their switches: in a
/// tree of unequal depth, a leaf may hang on the core. On this tier such a group is a group by itself.
fn skipping(
    graph: &Graph,
    tiers: &[u8],
    tier: u8,
    below: &Tier,
    of_item: &BTreeMap<u32, u32>,
) -> BTreeMap<u32, Vec<u32>> {
    let tier_of = |s: u32| tiers.get(s as usize).copied().unwrap_or(0);
    let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for link in &graph.links {
        let (End::Switch(a), End::Switch(b)) = (link.a, link.b) else { continue };
        for (low, high) in [(a, b), (b, a)] {
            if let Some(item) = below.of_switch.get(&low).filter(|item| !of_item.contains_key(item))
                && tier_of(high) > tier
            {
                found.entry(*item).or_default().push(low);
            }
        }
    }
    found
}

/// Cables between each switch of a tier and what hangs on it.
fn ties(graph: &Graph, tiers: &[u8], tier: u8, below: Option<&Tier>) -> BTreeMap<u32, BTreeMap<u32, u32>> {
    let tier_of = |s: u32| tiers.get(s as usize).copied().unwrap_or(0);
    let mut ties: BTreeMap<u32, BTreeMap<u32, u32>> = BTreeMap::new();
    for link in &graph.links {
        for (low, high) in [(link.a, link.b), (link.b, link.a)] {
            let End::Switch(switch) = high else { continue };
            if tier_of(switch) != tier {
                continue;
            }
            let item = match (low, below) {
                (End::Host(host), None) => Some(host),
                (End::Switch(s), Some(below)) => below.of_switch.get(&s).copied(),
                _ => None,
            };
            if let Some(item) = item {
                *ties.entry(switch).or_default().entry(item).or_default() += u32::from(link.cables);
            }
        }
    }
    ties
}

/// Joins switches that share more than half of what hangs on the larger; groups count from 0 in the order of
/// their first switch. Each switch is compared with the first of a group and not with all: groups do not chain,
/// and a fabric in which every switch misses another cable costs no more than a whole one.
fn join(ties: &BTreeMap<u32, BTreeMap<u32, u32>>) -> BTreeMap<u32, u32> {
    let mut groups: BTreeMap<u32, u32> = BTreeMap::new();
    let mut firsts: Vec<&BTreeMap<u32, u32>> = Vec::new();
    // The groups whose first switch an item hangs on.
    let mut by_item: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (switch, items) in ties {
        let mut shared: BTreeMap<u32, usize> = BTreeMap::new();
        for group in items.keys().filter_map(|item| by_item.get(item)).flatten() {
            *shared.entry(*group).or_default() += 1;
        }
        let is_same = |(group, both): &(u32, usize)| {
            let first = firsts.get(*group as usize).map_or(0, |first| first.len());
            both * 2 > items.len().max(first)
        };
        let known =
            shared.into_iter().filter(is_same).max_by_key(|(group, both)| (*both, std::cmp::Reverse(*group)));
        let group = known.map_or_else(
            || {
                let next = u32::try_from(firsts.len()).unwrap_or(u32::MAX);
                firsts.push(items);
                items.keys().for_each(|item| by_item.entry(*item).or_default().push(next));
                next
            },
            |(group, _)| group,
        );
        groups.insert(*switch, group);
    }
    groups
}

/// The group that holds most of an item's cables; of equals the one with fewer items, then the first.
fn most(ties: &BTreeMap<u32, BTreeMap<u32, u32>>, of_switch: &BTreeMap<u32, u32>) -> BTreeMap<u32, u32> {
    let mut cables: BTreeMap<u32, BTreeMap<u32, u32>> = BTreeMap::new();
    for (switch, items) in ties {
        let Some(group) = of_switch.get(switch) else { continue };
        for (item, count) in items {
            *cables.entry(*item).or_default().entry(*group).or_default() += count;
        }
    }
    let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
    cables.values().flat_map(BTreeMap::keys).for_each(|group| *sizes.entry(*group).or_default() += 1);
    let best = |groups: &BTreeMap<u32, u32>| {
        let size = |group: &u32| std::cmp::Reverse((sizes.get(group).copied().unwrap_or(0), *group));
        groups.iter().max_by_key(|(group, count)| (**count, size(group))).map(|(group, _)| *group)
    };
    cables.iter().filter_map(|(item, groups)| Some((*item, best(groups)?))).collect()
}
