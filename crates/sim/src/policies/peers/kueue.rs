//! Kueue's topology-aware scheduling, profile `BestFit` (`tas_flavor_snapshot.go`): pods or slices are
//! counted for every domain from below; domains are sorted by slices, most first, then by what is left over,
//! least first; the gang goes to the lowest level that fits, and downwards into as few domains as can be.
//! Ranks follow the order of domains.

use std::cmp::Reverse;

use super::{Ask, Ground, Placed, Room};

/// A domain with what was counted for it.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// Its place on its level.
    at: usize,
    /// Units that fit: slices down to the level of slices, pods below.
    units: u32,
    pods: u32,
}

/// A place for a gang, of which nothing is taken.
#[must_use]
pub fn kueue(ground: &Ground<'_>, ask: &Ask) -> Option<Placed> {
    let room = &Room::new(ground, ask);
    let (slice_pods, slice_level) = room.ask.slice.map_or((1, room.node_level()), |s| (s.pods, s.level));
    if !room.ask.pods.is_multiple_of(slice_pods) {
        return None;
    }
    let slices = room.ask.pods / slice_pods;
    let (mut level, mut chosen) = find(room, slice_pods, slice_level, slices)?;
    while level < room.node_level() {
        let below = |at: usize| {
            let span = &room.ground.spans[level][at];
            let first = room.around(level + 1, span.start);
            let last = room.around(level + 1, span.end - 1);
            first..last + 1
        };
        chosen = if level < slice_level {
            // Slices may go to any of the children of all chosen domains.
            let children = chosen.iter().flat_map(|(at, _)| below(*at));
            fewest(&sorted(room, level + 1, children, slice_pods, slice_level), slices)?
        } else {
            let each = chosen.iter().map(|(at, units)| {
                let pods = if level == slice_level { units * slice_pods } else { *units };
                fewest(&sorted(room, level + 1, below(*at), slice_pods, slice_level), pods)
            });
            each.collect::<Option<Vec<_>>>()?.concat()
        };
        level += 1;
    }
    // On the level of slices, nodes are counted in slices.
    let unit = if slice_level == room.node_level() { slice_pods } else { 1 };
    chosen.sort_unstable();
    Some(chosen.into_iter().map(|(node, units)| (node, units * unit)).collect())
}

/// The lowest level from the one asked for upwards with one domain for all; at the top, as few domains as can
/// be.
fn find(
    room: &Room<'_>,
    slice_pods: u32,
    slice_level: usize,
    slices: u32,
) -> Option<(usize, Vec<(usize, u32)>)> {
    let asked = room.ask.required.or(room.ask.preferred).unwrap_or(0).min(slice_level);
    for level in (0..=asked).rev() {
        let domains = sorted(room, level, 0..room.ground.spans[level].len(), slice_pods, slice_level);
        let holds_all = domains.first().is_some_and(|first| first.units >= slices);
        if holds_all || (level == 0 && room.ask.required.is_none()) {
            return Some((level, fewest(&domains, slices)?));
        }
        if room.ask.required.is_some() {
            return None;
        }
    }
    None
}

/// Most units first, then the tightest, then by name.
fn sorted(
    room: &Room<'_>,
    level: usize,
    domains: impl Iterator<Item = usize>,
    slice_pods: u32,
    slice_level: usize,
) -> Vec<Counted> {
    let counted = domains.map(|at| {
        let span = &room.ground.spans[level][at];
        let pods = room.within(span);
        let units = if level > slice_level {
            pods
        } else {
            let first = room.around(slice_level, span.start);
            let last = room.around(slice_level, span.end - 1);
            let inside = &room.ground.spans[slice_level][first..=last];
            inside.iter().map(|span| room.within(span) / slice_pods).sum()
        };
        Counted { at, units, pods }
    });
    let mut counted: Vec<Counted> = counted.collect();
    counted.sort_by_key(|domain| (Reverse(domain.units), domain.pods, domain.at));
    counted
}

/// Domain after domain, until one holds all that is left: then the one of those that holds it tightest.
fn fewest(domains: &[Counted], units: u32) -> Option<Vec<(usize, u32)>> {
    let mut left = units;
    let mut chosen = Vec::new();
    for (index, domain) in domains.iter().enumerate() {
        if domain.units >= left {
            let holding = domains[index..].iter().filter(|domain| domain.units >= left);
            let best = holding.min_by_key(|domain| (domain.units, domain.pods, domain.at))?;
            chosen.push((best.at, left));
            return Some(chosen);
        }
        if domain.units > 0 {
            chosen.push((domain.at, domain.units));
            left -= domain.units;
        }
    }
    None
}
