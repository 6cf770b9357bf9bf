//! A place as the mapping of ranks reads it.

use crate::cluster::shape::NO_LIMIT;
use crate::cluster::space::{Pick, Space};
use crate::cluster::tree::Tree;
use crate::grid::{Domain, GridError, Site, Sites};

/// The picks, in the order of the domains, as sites with the free bandwidth of every uplink, and the site of each
/// pick. The ranks of a site are members in the order of the picks.
pub(super) fn sites(tree: &Tree, space: &Space, picks: &[Pick]) -> Result<(Sites, Vec<u32>), GridError> {
    // The devices inside one domain of this level are joined without NICs, and are one site.
    let joined = (0..tree.depth()).find(|level| tree.inside_mb_per_s[*level] > 0);
    let mut domains: Vec<Domain> = Vec::new();
    let mut sites: Vec<Site> = Vec::with_capacity(picks.len());
    let mut of_picks = Vec::with_capacity(picks.len());
    // Of each level the domain that was last, and its number here.
    let mut last: Vec<Option<(usize, u32)>> = vec![None; tree.depth()];
    let mut last_joined = None;
    for pick in picks {
        let node = pick.node as usize;
        let kind = tree.kind(&tree.nodes[node]);
        let nics = if pick.devices.is_empty() { kind.nics(kind.all()) } else { kind.nics(pick.devices) };
        let inside = joined.map(|level| (level, tree.domain_of(node, level)));
        if let Some((level, _)) = inside.filter(|_| inside == last_joined)
            && let Some(site) = sites.last_mut()
        {
            site.ranks += pick.members;
            site.nic_mb_per_s = match (site.nic_mb_per_s, known(nics)) {
                (0, _) | (_, 0) => 0,
                (before, nics) => before.saturating_add(nics),
            };
            site.inside_mb_per_s = tree.inside_mb_per_s[level];
        } else {
            let mut parent = None;
            for (level, last) in last.iter_mut().enumerate().take(joined.unwrap_or(tree.depth())) {
                let at = tree.domain_of(node, level);
                let number = last.filter(|(domain, _)| *domain == at).map(|(_, number)| number);
                parent = Some(number.unwrap_or_else(|| {
                    domains.push(Domain {
                        parent,
                        uplink_mb_per_s: known(space.uplink(level, at)),
                        latency_ns: half(tree.domains[level][at].crossing_ns),
                    });
                    domains.len() as u32 - 1
                }));
                *last = parent.map(|number| (at, number));
            }
            sites.push(Site {
                parent,
                ranks: pick.members,
                nic_mb_per_s: known(nics),
                latency_ns: half(kind.crossing_ns),
                inside_mb_per_s: known(kind.ring(pick.devices)),
            });
            last_joined = inside;
        }
        of_picks.push(sites.len() as u32 - 1);
    }
    Ok((Sites::new(&domains, &sites)?.with_collectives(tree.collectives), of_picks))
}

const fn known(mb_per_s: u32) -> u32 {
    if mb_per_s == NO_LIMIT { 0 } else { mb_per_s }
}

/// A crossing counts the way out and the way back.
fn half(crossing_ns: u64) -> u32 {
    u32::try_from(crossing_ns / 2).unwrap_or(u32::MAX)
}
