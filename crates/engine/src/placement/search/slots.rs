//! The placement as slots with names: the rank, the node and the devices of each member, and the domain of all.

use phalanx_model::{Gang, Placement, Slot};

use crate::cluster::fractions;
use crate::cluster::space::Pick;
use crate::cluster::tree::{LevelAt, Tree};

/// The picks as slots, by rank: first the members of the gang itself, then role by role.
pub(crate) fn placement(tree: &Tree, picks: &[Pick], order: &[u32], gang: &Gang) -> Option<Placement> {
    let mut members: Vec<Slot> = Vec::with_capacity(gang.member_count() as usize);
    for role in 0..=gang.roles.len() as u16 {
        for pick in picks.iter().filter(|pick| pick.role == role) {
            deal(tree, pick, gang, &mut members)?;
        }
    }
    let slots = if order.is_empty() {
        (0..).zip(members).map(|(rank, slot)| Slot { rank, ..slot }).collect()
    } else {
        let seat =
            |(rank, member): (u32, &u32)| Some(Slot { rank, ..members.get(*member as usize)?.clone() });
        (0..).zip(order).map(seat).collect::<Option<_>>()?
    };
    Some(Placement { slots, level: tree.level_name(level_of(tree, picks)?) })
}

/// The members of one pick: a node's devices are dealt along its ring, group by group if segments stay inside groups.
fn deal(tree: &Tree, pick: &Pick, gang: &Gang, members: &mut Vec<Slot>) -> Option<()> {
    let node = tree.nodes.get(pick.node as usize)?;
    let (kind, needs) = (tree.kind(node), gang.needs_of(pick.role()));
    let slot = |devices| Slot { rank: 0, node: node.name.clone(), devices, part: None };
    if needs.part.is_some() {
        members.push(Slot { part: fractions::part_of(tree, pick), ..slot(pick.devices) });
        return Some(());
    }
    let inside = gang.segments_of(pick.role()).iter().rev().find_map(|segment| {
        match tree.level_at(&segment.level)? {
            LevelAt::Group(group) => Some((group, segment.size.saturating_mul(needs.devices))),
            _ => None,
        }
    });
    let dealt = match inside {
        Some((group, devices)) => {
            let sets = kind.groups_of(group).map(|mask| kind.table.ring_order(pick.devices.and(mask)));
            let mut sets: Vec<Vec<u32>> = sets.collect();
            sets.sort_by_key(|set| !(set.len() as u32).is_multiple_of(devices.max(1)));
            sets.concat()
        }
        None => kind.table.ring_order(pick.devices),
    };
    let mut shares = dealt.chunks(needs.devices.max(1) as usize);
    for _ in 0..pick.members {
        let devices = if needs.devices == 0 { &[] } else { shares.next()? };
        members.push(slot(devices.iter().copied().collect()));
    }
    Some(())
}

/// The narrowest domain that holds all, by its path.
pub(crate) fn domain_of_picks(tree: &Tree, picks: &[Pick]) -> Option<String> {
    let node = picks.first()?.node as usize;
    match level_of(tree, picks)? {
        LevelAt::Above(level) => {
            let domain = tree.domains.get(level)?.get(tree.domain_of(node, level))?;
            Some(tree.domain_name(level, domain))
        }
        _ => Some(tree.nodes.get(node)?.name.to_string()),
    }
}

/// The narrowest level with a single domain that holds all picks.
pub(crate) fn level_of(tree: &Tree, picks: &[Pick]) -> Option<LevelAt> {
    let first = picks.first()?;
    if picks.iter().all(|pick| pick.node == first.node) {
        let used = picks.iter().fold(phalanx_model::DeviceMask::EMPTY, |all, pick| all.union(pick.devices));
        let groups = tree.kind(&tree.nodes[first.node as usize]).groups.iter();
        let holding = groups.filter(|(_, mask)| !used.is_empty() && used.is_subset_of(*mask));
        let narrowest = holding.min_by_key(|(group, mask)| (mask.count(), *group));
        return Some(narrowest.map_or(LevelAt::Node, |(group, _)| LevelAt::Group(*group)));
    }
    let mut of_picks: Vec<usize> = picks.iter().map(|p| tree.nodes[p.node as usize].leaf as usize).collect();
    for level in (0..tree.depth()).rev() {
        of_picks.dedup();
        if of_picks.iter().all(|domain| Some(domain) == of_picks.first()) {
            return Some(LevelAt::Above(level));
        }
        of_picks.iter_mut().for_each(|domain| *domain = tree.domains[level][*domain].parent);
    }
    Some(LevelAt::Above(0))
}
