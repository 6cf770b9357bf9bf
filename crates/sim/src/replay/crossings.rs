//! Who sends across which uplink: jobs on both sides of it.

use std::collections::BTreeSet;

use super::{Machines, Part, gpus_of};

/// Shares of uplinks are rounded up to such parts: places look alike more often, and small changes are none.
const PARTS: u32 = 16;

/// By level above the nodes, outermost first, and domain: the jobs that have devices inside and outside of it, with how many
/// they have inside.
#[derive(Clone, Debug, Default)]
pub struct Crossings(Vec<Vec<Vec<(usize, u32)>>>);

impl Crossings {
    pub(super) fn new(cluster: &Machines) -> Self {
        let levels = cluster.levels.above.len();
        Self(cluster.spans.iter().take(levels).map(|spans| vec![Vec::new(); spans.len()]).collect())
    }

    /// A job is there, or goes. Those whose part of an uplink that changes.
    pub(super) fn change(
        &mut self,
        cluster: &Machines,
        job: usize,
        place: &[Part],
        is_there: bool,
    ) -> BTreeSet<usize> {
        let mut others = BTreeSet::new();
        for (depth, at, gpus) in crossed(cluster, place) {
            let Some(users) = self.0.get_mut(depth).and_then(|domains| domains.get_mut(at)) else { continue };
            let all: u32 = users.iter().map(|(_, gpus)| gpus).sum();
            users.retain(|(user, _)| *user != job);
            let now = if is_there { all + gpus } else { all.saturating_sub(gpus) };
            let changes = users.iter().filter(|(_, ours)| parts(*ours, all) != parts(*ours, now));
            others.extend(changes.map(|(user, _)| *user));
            if is_there {
                users.push((job, gpus));
            }
        }
        others
    }

    /// Among how many devices a job with `ours` of them inside the domain of a node shares its uplink.
    #[must_use]
    pub fn sharing(&self, cluster: &Machines, depth: usize, node: usize, ours: u32) -> u32 {
        let users = self.0.get(depth).and_then(|domains| domains.get(cluster.domain_of(depth, node)));
        let all: u32 = users.into_iter().flatten().map(|(_, gpus)| gpus).sum();
        (ours * PARTS).div_ceil(parts(ours, all.max(ours)))
    }
}

/// The part that a job has, of [`PARTS`].
fn parts(ours: u32, all: u32) -> u32 {
    (ours * PARTS).div_ceil(all.max(1)).max(1)
}

/// Domains whose uplinks a place uses: level, number there, devices inside.
fn crossed(cluster: &Machines, place: &[Part]) -> Vec<(usize, usize, u32)> {
    let all = gpus_of(place);
    let mut crossed: Vec<(usize, usize, u32)> = Vec::new();
    for depth in 0..cluster.levels.above.len() {
        let first = crossed.len();
        for part in place {
            let at = cluster.domain_of(depth, part.node);
            match crossed[first..].iter_mut().find(|(_, known, _)| *known == at) {
                Some(known) => known.2 += part.devices.count(),
                None => crossed.push((depth, at, part.devices.count())),
            }
        }
    }
    crossed.retain(|(.., inside)| *inside < all);
    crossed
}
