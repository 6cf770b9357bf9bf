//! Switches that name their children: Slurm's trees and the models of topograph.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::End;

use super::FabricError;
use super::build::Builder;

/// One switch as its line or mapping has it.
pub(super) struct SwitchLine {
    pub(super) name: String,
    pub(super) children: Vec<String>,
    pub(super) nodes: Vec<String>,
    pub(super) place: (u32, u32),
}

/// Adds the switches, their links and their hosts. `prefix` stands before the identity of every switch, so that
/// trees of one file are kept apart.
pub(super) fn add(builder: &mut Builder, lines: &[SwitchLine], prefix: &str) -> Result<(), FabricError> {
    let key = |name: &str| format!("{prefix}\n{name}");
    let mut children: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut parents: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut place_of: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for line in lines {
        let index = builder.switch(&key(&line.name), &line.name)?;
        if place_of.insert(index, line.place).is_some() {
            let what = format!("switch {} is described a second time; both are taken together", line.name);
            builder.gap(line.place, what);
        }
    }
    // `scontrol show topology` lists the nodes below a switch at each switch above them too.
    let of_leaves: BTreeSet<&str> = lines
        .iter()
        .filter(|line| line.children.is_empty())
        .flat_map(|line| &line.nodes)
        .map(String::as_str)
        .collect();
    let mut leaf_of: BTreeMap<u32, u32> = BTreeMap::new();
    for line in lines {
        let index = builder.switch(&key(&line.name), &line.name)?;
        for name in &line.nodes {
            if !line.children.is_empty() && of_leaves.contains(name.as_str()) {
                continue;
            }
            let host = builder.host(name, name)?;
            builder.join(End::Host(host), End::Switch(index))?;
            if *leaf_of.entry(host).or_insert(index) != index {
                builder.gap(line.place, format!("{name} hangs on {} and on another switch", line.name));
            }
        }
        for name in &line.children {
            let child = builder.switch(&key(name), name)?;
            if let std::collections::btree_map::Entry::Vacant(unknown) = place_of.entry(child) {
                unknown.insert(line.place);
                builder.gap(line.place, format!("switch {name} is a child here and described nowhere"));
            }
            if !children.entry(index).or_default().insert(child) {
                continue;
            }
            let above = parents.entry(child).or_default();
            above.push(index);
            if above.len() == 2 {
                builder.gap(line.place, format!("switch {name} has a second parent, {}", line.name));
            }
        }
    }
    let tiers = rank(&place_of.keys().copied().collect::<Vec<u32>>(), &children, &parents);
    for (parent, below) in &children {
        for child in below {
            if tiers.contains_key(parent) || tiers.contains_key(child) {
                builder.join(End::Switch(*parent), End::Switch(*child))?;
            } else {
                let what = "this switch is above itself; the links of the circle are left out";
                builder.gap(place_of.get(parent).copied().unwrap_or_default(), what);
            }
        }
    }
    for (switch, tier) in tiers {
        builder.set_tier(switch, Some(tier));
    }
    Ok(())
}

/// 1 for a switch without children, otherwise one more than the highest child. Those on or above a circle are
/// left out.
fn rank(
    all: &[u32],
    children: &BTreeMap<u32, BTreeSet<u32>>,
    parents: &BTreeMap<u32, Vec<u32>>,
) -> BTreeMap<u32, u8> {
    let mut open: BTreeMap<u32, usize> =
        all.iter().map(|s| (*s, children.get(s).map_or(0, BTreeSet::len))).collect();
    let mut ready: Vec<u32> = all.iter().copied().filter(|s| open.get(s) == Some(&0)).collect();
    let mut tiers: BTreeMap<u32, u8> = ready.iter().map(|s| (*s, 1)).collect();
    while let Some(switch) = ready.pop() {
        let above = tiers.get(&switch).copied().unwrap_or(1).saturating_add(1);
        for parent in parents.get(&switch).map_or(&[][..], Vec::as_slice) {
            let Some(left) = open.get_mut(parent) else { continue };
            *left = left.saturating_sub(1);
            let highest = tiers.get(parent).copied().unwrap_or(1).max(above);
            tiers.insert(*parent, highest);
            if *left == 0 {
                ready.push(*parent);
            }
        }
    }
    tiers.retain(|switch, _| open.get(switch) == Some(&0));
    tiers
}
