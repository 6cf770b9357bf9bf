//! Measured links: the one place in which a measured share scales a bandwidth of the cost table. Everything above reads the
//! result, so a search is as exact with measurements as without.

use std::borrow::Cow;
use std::collections::BTreeMap;

use phalanx_model::{Bandwidth, Bandwidths, Node, NodeName, ShapeCost, Uplink};

use super::shape::NO_LIMIT;
use super::space::Space;
use super::tree::{Domain, Tree, TreeNode};

/// The nominal bandwidth of a node's network of which nothing is known, in MB/s: 400 Gbit/s. A measured share of it is
/// slower than a nominal network of which nothing is known, and that is all that it has to be.
const ASSUMED_MB_PER_S: u32 = 50_000;

/// A measured link, by its place in the tree.
#[derive(Clone, Debug)]
pub(crate) struct MeasuredLink {
    pub(crate) at: At,
    pub(crate) bandwidth: Bandwidth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Node(usize),
    Domain { level: usize, domain: usize },
}

/// The cluster as if no link were measured: it decides whether a gang waits for a nearer place, so that slow links keep no
/// gang waiting. Its nodes and domains are those of the tree with the measured links, in the same order.
#[derive(Clone, Debug)]
pub(crate) struct Nominal {
    pub(crate) tree: Tree,
    /// All capacity that others do not use.
    pub(crate) usable: Space,
}

impl Nominal {
    pub(crate) fn new(tree: Tree) -> Self {
        Self { usable: Space::free_of(&tree), tree }
    }

    /// Changes a node in place, as the tree with the measured links.
    pub(crate) fn amend(&mut self, at: usize, node: &Node) {
        let change = self.tree.amend(at, node);
        self.usable.amend(&self.tree, at, &change, false);
    }
}

/// A share of a bandwidth, which is 0 or [`NO_LIMIT`] if it is unknown.
pub(super) fn share_of(mb_per_s: u32, permille: u16) -> u32 {
    if mb_per_s == 0 || mb_per_s == NO_LIMIT || permille >= Bandwidth::NOMINAL {
        return mb_per_s;
    }
    let share = u64::from(mb_per_s) * u64::from(permille) / u64::from(Bandwidth::NOMINAL);
    u32::try_from(share).unwrap_or(NO_LIMIT).max(1)
}

/// The cost of a machine whose NICs have a share of their bandwidth. NICs of unknown bandwidth are nominally as fast as the
/// slowest path inside the machine, as everywhere.
pub(super) fn share_of_nics(cost: &ShapeCost, permille: u16) -> Cow<'_, ShapeCost> {
    if permille >= Bandwidth::NOMINAL {
        return Cow::Borrowed(cost);
    }
    let mut cost = cost.clone();
    if !cost.knows_nics() {
        cost.nics.clear();
        cost.nic_mb_per_s = cost.pair_mb_per_s.iter().copied().filter(|pair| *pair > 0).min().unwrap_or(0);
    }
    cost.nic_mb_per_s = share_of(cost.nic_mb_per_s, permille);
    cost.far_mb_per_s = share_of(cost.far_mb_per_s, permille);
    for nic in &mut cost.nics {
        nic.mb_per_s = share_of(nic.mb_per_s, permille);
    }
    Cow::Owned(cost)
}

/// What the cables of a node carry, given their nominal bandwidth. `knows_nics`: whether its NICs limit it anyway.
pub(super) fn share_of_cables(mb_per_s: u32, permille: u16, knows_nics: bool) -> u32 {
    let is_unknown = mb_per_s == NO_LIMIT && !knows_nics && permille < Bandwidth::NOMINAL;
    share_of(if is_unknown { ASSUMED_MB_PER_S } else { mb_per_s }, permille)
}

/// The share of a node's network.
pub(super) fn share_of_node(measured: &Bandwidths, node: &NodeName) -> u16 {
    // Most clusters have no measured link, and need no key.
    let of_node = || measured.get(&Uplink::Node(node.clone()));
    let bandwidth = if measured.is_empty() { None } else { of_node() };
    bandwidth.map_or(Bandwidth::NOMINAL, Bandwidth::share)
}

/// The measured links that are in the tree. The uplinks of measured domains get their share; `nics`: the nominal bandwidth of a
/// node's network, of which an unknown uplink carries all.
pub(super) fn find(
    measured: &Bandwidths,
    domains: &mut [Vec<Domain>],
    nodes: &[TreeNode],
    index: &BTreeMap<NodeName, usize>,
    nics: impl Fn(&TreeNode) -> u32,
) -> Vec<MeasuredLink> {
    let mut links = Vec::new();
    for (uplink, bandwidth) in measured {
        let at = match uplink {
            Uplink::Node(name) => index.get(name).copied().map(At::Node),
            Uplink::Domain(path) => path.len().checked_sub(1).and_then(|level| {
                let of_level = domains.get(level)?;
                let domain = of_level.binary_search_by(|domain| domain.path.as_slice().cmp(path)).ok()?;
                Some(At::Domain { level, domain })
            }),
        };
        let Some(at) = at else { continue };
        if let At::Domain { level, domain } = at {
            let domain = &mut domains[level][domain];
            let all = |sum: u32, node: &TreeNode| {
                sum.saturating_add(match nics(node) {
                    NO_LIMIT => ASSUMED_MB_PER_S,
                    nics => nics,
                })
            };
            if domain.uplink_mb_per_s == NO_LIMIT {
                domain.uplink_mb_per_s = nodes[domain.nodes.clone()].iter().fold(0, all);
            }
            domain.uplink_mb_per_s = share_of(domain.uplink_mb_per_s, bandwidth.share());
        }
        links.push(MeasuredLink { at, bandwidth: bandwidth.clone() });
    }
    links
}
