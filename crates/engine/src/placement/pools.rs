//! Pools of nodes in order of preference: a gang is placed inside one of them.

use phalanx_model::{Gang, NodeSet};

/// The gang restricted to each pool that it prefers, in order, and at the end to none of them if it may be placed outside.
/// Empty if it prefers none, or is to be near to nodes: then it follows them.
pub(crate) fn choices(gang: &Gang) -> Vec<Gang> {
    if gang.needs.prefer_pools.is_empty() || !gang.topology.near.is_empty() {
        return Vec::new();
    }
    let outside = (!gang.needs.in_one_pool).then(|| restricted(gang, None));
    gang.needs.prefer_pools.iter().map(|pool| restricted(gang, Some(pool))).chain(outside).collect()
}

fn restricted(gang: &Gang, pool: Option<&Vec<NodeSet>>) -> Gang {
    let mut only = gang.clone();
    for needs in only.all_needs_mut() {
        needs.pools.extend(pool.into_iter().flatten().cloned());
        needs.prefer_pools.clear();
        needs.in_one_pool = false;
    }
    only
}
