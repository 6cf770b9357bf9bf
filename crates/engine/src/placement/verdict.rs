//! The verdict on one gang: whether it fits in a space, inside which level, and what is missing if it does not fit.

use phalanx_model::{Gang, Reason, Timestamp};

use super::search::{self, Ceiling, PlacementCost, Search, Sort, best_fit, place};
use super::{roles, slices};
use crate::cluster::{Hardware, LevelAt, Space, Tree};

/// Whether one gang can start now.
pub(crate) enum Verdict {
    /// It fits inside this level; the search has the places.
    Go(Ceiling, PlacementCost),
    /// It fits nowhere: see [`shortfall`].
    Full,
    /// Something else than room keeps it.
    Wait(Reason),
}

pub(crate) const fn waits_for_capacity(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Resources { .. } | Reason::Topology { .. } | Reason::Nodes { .. } | Reason::Shape { .. }
    )
}

/// The preferred level of a gang, if it is narrower than the required one.
fn preferred_level(tree: &Tree, gang: &Gang) -> Option<LevelAt> {
    let required = tree.level_of_required(gang);
    let preferred = gang.topology.preferred.as_ref().and_then(|level| tree.level_at(level));
    preferred.filter(|level| narrows(*level, required))
}

/// Whether a preference is narrower than the requirement. Levels inside the node need not nest: both then bind, see
/// [`search`].
fn narrows(preferred: LevelAt, required: LevelAt) -> bool {
    match (preferred, required) {
        (LevelAt::Group(p), LevelAt::Group(r)) => p != r,
        (preferred, required) => preferred > required,
    }
}

/// The verdict on a gang in a space. Before `preferred_until`, a gang waits for its preferred level.
pub(crate) fn verdict(
    hardware: Hardware<'_>,
    search: &mut Search,
    space: &Space,
    gang: &Gang,
    preferred_until: Option<Timestamp>,
) -> Verdict {
    let tree = hardware.tree;
    if !tree.has_levels_of(gang) {
        // The levels were changed under a job that was accepted before: it fits nowhere now.
        return Verdict::Wait(Reason::BadConstraints { asked: gang.size, largest: 0 });
    }
    let required = tree.level_of_required(gang);
    let preferred = preferred_level(tree, gang);
    if let Some(level) = preferred {
        if let Some(found) = search.place(tree, space, gang, Ceiling(level)) {
            return Verdict::Go(Ceiling(level), found.cost);
        }
        if let Some(until) = preferred_until
            && search.most(tree, space, gang, required).0 >= gang.size
            // A level that could not hold the gang even when empty is not worth a wait.
            && place(tree, hardware.empty_opened, gang, Ceiling(level)).is_some()
        {
            return Verdict::Wait(Reason::PreferredWait { level: tree.level_name(level), until });
        }
    }
    // Given up, a preference is relaxed level by level.
    let tried = usize::from(preferred.is_some());
    for ceiling in tree.levels_between(preferred.unwrap_or(required), required).skip(tried) {
        if let Some(found) = search.place(tree, space, gang, Ceiling(ceiling)) {
            return Verdict::Go(Ceiling(ceiling), found.cost);
        }
    }
    Verdict::Full
}

/// Why no place was found: the gang, the level and the counts.
pub(crate) fn shortfall(hardware: Hardware<'_>, free: &Space, gang: &Gang) -> Reason {
    let (tree, asked) = (hardware.tree, gang.size);
    let required = tree.level_of_required(gang);
    if best_fit(tree, hardware.empty, gang, required).fits < asked {
        let all = best_fit(tree, hardware.empty_opened, gang, required).fits;
        let mut nodes = tree.unknown_to(gang);
        // The capacity of a missing node is unknown.
        let might = all >= asked || !nodes.is_empty();
        nodes.append(&mut tree.closed_to(gang));
        if might && !nodes.is_empty() {
            return Reason::NodeNotAvailable { nodes };
        }
        // Too large only for what is not kept as spare nodes, it waits for room like others.
        if best_fit(tree, hardware.empty_opened, &with_spares(gang), required).fits < asked {
            return Reason::BadConstraints { asked, largest: all };
        }
    }
    let best = best_fit(tree, free, gang, required);
    if best.fits >= asked {
        let expanded = if gang.roles.is_empty() { u64::from(search::DOMAINS_MAX) } else { roles::STATES_MAX };
        return Reason::BudgetExhausted { expanded };
    }
    let nodes = tree.closed_to(gang);
    if !nodes.is_empty() && best_fit(tree, &free.opened(tree), gang, required).fits >= asked {
        return Reason::NodeNotAvailable { nodes };
    }
    if Sort::of(gang) == Sort::Slice {
        return slices::shortfall(tree, free, gang, required);
    }
    let anywhere = best_fit(tree, free, gang, LevelAt::Above(0)).fits;
    let segments = gang.topology.segments.clone();
    if anywhere >= asked {
        let level = tree.level_name(required);
        return Reason::Topology { level, asked, best: best.fits, best_domain: best.domain, segments };
    }
    // Enough may be free in all, and too little on any one node.
    let loose = Gang { members_per_node: None, ..gang.clone() };
    let in_all = best_fit(tree, free, &loose, LevelAt::Above(0)).fits;
    match gang.members_per_node {
        Some(each) if in_all >= asked => {
            let node = best_fit(tree, free, &loose, LevelAt::Node);
            let fits = anywhere / each.max(1);
            Reason::Nodes { asked: asked / each.max(1), each, fits, best: node.fits, best_node: node.domain }
        }
        _ => Reason::Resources { asked, fits: in_all, segments },
    }
}

/// The gang if spare nodes were for it.
pub(crate) fn with_spares(gang: &Gang) -> Gang {
    let mut gang = gang.clone();
    gang.all_needs_mut().for_each(|needs| needs.takes_spare = true);
    gang
}
