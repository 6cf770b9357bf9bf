//! Roles of which all members must be on one node: with each other, or with the gang's own.

use phalanx_model::Gang;

use super::{CeilingDomain, RoleProblem};
use crate::cluster::space::Pick;
use crate::cluster::tree::LevelAt;
use crate::placement::search::Ceiling;

/// The parties of each set, the gang itself being the first.
pub(super) fn sets(gang: &Gang) -> Vec<Vec<usize>> {
    let role_groups = |set: &Vec<u32>| -> Vec<usize> {
        let known = set
            .iter()
            .map(|role_group| *role_group as usize)
            .filter(|role_group| *role_group <= gang.roles.len());
        known.collect()
    };
    gang.topology.together.iter().map(role_groups).filter(|set| !set.is_empty()).collect()
}

impl RoleProblem<'_> {
    /// The set that a party is in, if it is in one.
    pub(super) fn set_of(&self, role_group: usize) -> Option<&[usize]> {
        self.together.iter().find(|set| set.contains(&role_group)).map(Vec::as_slice)
    }

    /// The ceiling of the gang's own members.
    pub(super) fn own_ceiling(&self) -> Ceiling {
        let is_one_node = self.set_of(0).is_some();
        Ceiling(if is_one_node { self.ceiling.max(LevelAt::Node) } else { self.ceiling })
    }

    /// The site of the gang's own members after these roles are placed.
    pub(super) fn own_site(&self, site: &CeilingDomain, roles: &[Pick]) -> CeilingDomain {
        let with_own = self.set_of(0).unwrap_or_default();
        match roles.iter().find(|pick| with_own.contains(&usize::from(pick.role))) {
            Some(pick) => {
                CeilingDomain { nodes: pick.node as usize..pick.node as usize + 1, devices: site.devices }
            }
            None => site.clone(),
        }
    }

    /// Whether these picks leave those together that have to be.
    pub(super) fn are_together(&self, picks: &[Pick]) -> bool {
        self.together.iter().all(|set| {
            let mut nodes =
                picks.iter().filter(|pick| set.contains(&usize::from(pick.role))).map(|pick| pick.node);
            let first = nodes.next();
            nodes.all(|node| Some(node) == first)
        })
    }

    /// The most members of a party on one node, if `most` fit beside these of the others: all members of a set, or
    /// none of them. `None` if these numbers are not possible.
    pub(super) fn whole(&self, members: &[u32], role_group: usize, most: u32) -> Option<u32> {
        let size = |role_group: usize| self.role_groups[role_group].request.size;
        let mut most = most;
        for set in &self.together {
            let mut others = set.iter().filter(|other| **other != role_group);
            let is_here = others.clone().any(|other| members[*other] > 0);
            if is_here && others.clone().any(|other| members[*other] != size(*other)) {
                return None;
            }
            if set.contains(&role_group) {
                let is_possible = most >= size(role_group);
                let may_be_alone = others.next().is_none();
                most = match (is_here || may_be_alone, is_possible) {
                    (true, true) => size(role_group),
                    (true, false) if is_here => return None,
                    _ => 0,
                };
            }
        }
        Some(most)
    }
}
