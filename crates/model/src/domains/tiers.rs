//! The tier of each switch above the hosts.

use crate::{End, Graph};

/// The tier of each switch: the tier that the source gives, or else 1 for switches that are cabled to hosts, and one
/// more for every step away from them. 0 for a switch that no host reaches.
///
/// A spine may have a few management hosts. A switch with hosts is above its neighbours if they have four times as
/// many hosts.
pub(super) fn of_switches(graph: &Graph) -> Vec<u8> {
    let count = graph.switches.len();
    let mut hosts = vec![0_u32; count];
    let mut peers: Vec<Vec<u32>> = vec![Vec::new(); count];
    for link in &graph.links {
        match (link.a, link.b) {
            (End::Host(_), End::Switch(s)) | (End::Switch(s), End::Host(_)) => {
                if let Some(hosts) = hosts.get_mut(s as usize) {
                    *hosts += u32::from(link.cables);
                }
            }
            (End::Switch(a), End::Switch(b)) => {
                for (from, to) in [(a, b), (b, a)] {
                    if let Some(peers) = peers.get_mut(from as usize)
                        && (to as usize) < count
                    {
                        peers.push(to);
                    }
                }
            }
            (End::Host(_), End::Host(_)) => {}
        }
    }
    let hosts_of = |s: u32| hosts.get(s as usize).copied().unwrap_or(0);
    let is_above = |s: usize| {
        let own = hosts.get(s).copied().unwrap_or(0);
        let mut theirs: Vec<u32> = peers.get(s).into_iter().flatten().map(|p| hosts_of(*p)).collect();
        theirs.sort_unstable();
        theirs.get(theirs.len() / 2).is_some_and(|middle| u64::from(*middle) >= 4 * u64::from(own))
    };
    let mut tiers: Vec<u8> = Vec::with_capacity(count);
    for (index, switch) in graph.switches.iter().enumerate() {
        let is_first = hosts.get(index).is_some_and(|hosts| *hosts > 0) && !is_above(index);
        tiers.push(switch.tier.unwrap_or(u8::from(is_first)));
    }
    let mut edge: Vec<usize> = (0..count).filter(|s| tiers.get(*s).is_some_and(|t| *t > 0)).collect();
    // Lower tiers first, so that a step away is a step up.
    edge.sort_by_key(|s| tiers.get(*s).copied());
    let mut at = 0;
    while let Some(switch) = edge.get(at).copied() {
        at += 1;
        let next = tiers.get(switch).copied().unwrap_or(0).saturating_add(1);
        for peer in peers.get(switch).into_iter().flatten() {
            if let Some(tier) = tiers.get_mut(*peer as usize).filter(|tier| **tier == 0) {
                *tier = next;
                edge.push(*peer as usize);
            }
        }
    }
    tiers
}
