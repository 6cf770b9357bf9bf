//! Whether any placement of a gang exists, by trying them all. For tiny clusters only.

mod free;
mod parts;
mod stands;

use std::collections::BTreeMap;

use phalanx_model::{AxisKind, DeviceMask, Gang, LevelName, Levels, Node, NodeName, Segment};

pub use free::{Amounts, Held, free};
use stands::Stands;

/// A cluster with its free capacity.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    pub levels: &'a Levels,
    pub nodes: &'a [Node],
    /// The free capacity of every node, see [`free`].
    pub free: &'a BTreeMap<NodeName, Amounts>,
}

impl Cluster<'_> {
    /// Whether the whole gang fits inside its required level.
    #[must_use]
    pub fn fits(&self, gang: &Gang) -> bool {
        match &gang.topology.required {
            Some(level) if *level != self.levels.node && !self.levels.above.contains(level) => {
                self.fits_in_group(gang, level)
            }
            _ => self.narrowest(gang).is_some(),
        }
    }

    /// The narrowest level, from the node outwards, at which the whole gang fits; levels outside of `required` are
    /// left out. Use [`Self::fits_in_group`] for levels inside the node.
    #[must_use]
    pub fn narrowest(&self, gang: &Gang) -> Option<LevelName> {
        let outwards = std::iter::once(&self.levels.node).chain(self.levels.above.iter().rev());
        for level in outwards {
            if self.fits_in(gang, level) {
                return Some(level.clone());
            }
            if gang.topology.required.as_ref() == Some(level) {
                return None;
            }
        }
        None
    }

    /// Whether the whole gang fits inside one domain of a level: the level of the node or a level above it.
    #[must_use]
    pub fn fits_in(&self, gang: &Gang, level: &LevelName) -> bool {
        let depth = self.levels.above.iter().position(|l| l == level);
        let mut domains: BTreeMap<Vec<String>, Vec<(&Node, DeviceMask)>> = BTreeMap::new();
        for node in self.nodes.iter().filter(|n| n.is_open()) {
            let mut path: Vec<String> = node.path.iter().map(ToString::to_string).collect();
            match depth {
                Some(depth) => path.truncate(depth + 1),
                None => path.push(node.name.to_string()),
            }
            domains.entry(path).or_default().push((node, node.machine.device_mask()));
        }
        let gang = with_tensor_groups(gang);
        domains.values().any(|inside| Stands::new(*self, inside, &gang).exist())
    }

    /// Whether the whole gang fits inside one group of a level inside the node.
    #[must_use]
    pub fn fits_in_group(&self, gang: &Gang, level: &LevelName) -> bool {
        let gang = with_tensor_groups(gang);
        self.nodes.iter().filter(|n| n.is_open()).any(|node| {
            let mut groups = node.machine.groups.iter().filter(|g| g.level == *level);
            groups.any(|group| Stands::new(*self, &[(node, group.devices)], &gang).exist())
        })
    }
}

/// Groups of the first axis stay on one node, if it is the tensor axis.
fn with_tensor_groups(gang: &Gang) -> Gang {
    let mut gang = gang.clone();
    if let Some(axis) = gang.grid.first().filter(|axis| axis.kind == AxisKind::Tensor && axis.degree > 1) {
        assert!(gang.topology.segments.is_empty(), "the oracle does not know grids with segments");
        let level = LevelName::new("node").unwrap();
        gang.topology.segments.push(Segment { size: axis.degree, level });
    }
    gang
}
