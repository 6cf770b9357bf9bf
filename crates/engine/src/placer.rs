//! The placement search without the ledger: for benchmarks, and for programs that keep their own state.

use std::collections::BTreeMap;

use phalanx_model::{Bandwidths, CostTable, DeviceMask, Gang, Levels, Node, NodeName, Placement};

use crate::cluster::{LevelAt, Pick, Piece, Shapes, Space, Tree};
use crate::grid::Gain;
use crate::placement::{Ceiling, Search, grid_gain, placement};

/// A cluster, its free capacity, and the memory of searches.
#[derive(Clone, Debug)]
pub struct Placer {
    tree: Tree,
    space: Space,
    search: Search,
}

/// Members of one gang on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Index of the node, in the order of the tree.
    pub node: u32,
    pub members: u32,
    /// The devices of all of them.
    pub devices: DeviceMask,
    /// How much of the devices they have.
    pub piece: Piece,
    /// 0 for members of the gang itself, else one more than the index of their role.
    pub role: u16,
}

impl Share {
    fn pick(&self) -> Pick {
        let Self { node, members, devices, piece, role } = *self;
        Pick { piece, role, ..Pick::new(node, members, devices) }
    }
}

/// The result of a search for a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Predicted time of one collective: crossings, and bytes over the slowest part.
    pub time_ns: u64,
    /// The bandwidth of the slowest part, `u32::MAX` if nothing limits it.
    pub bottleneck_mb_per_s: u32,
    /// Proved: no placement of this gang takes less time than this.
    pub least_ns: u64,
}

impl Placer {
    /// Everything is free except the devices that others hold on the nodes.
    #[must_use]
    pub fn new(levels: &Levels, nodes: impl IntoIterator<Item = Node>, costs: &CostTable) -> Self {
        Self::with_measured(levels, nodes, costs, &Bandwidths::default())
    }

    /// The same with links that were measured.
    #[must_use]
    pub fn with_measured(
        levels: &Levels,
        nodes: impl IntoIterator<Item = Node>,
        costs: &CostTable,
        measured: &Bandwidths,
    ) -> Self {
        let nodes: BTreeMap<NodeName, Node> = nodes.into_iter().map(|n| (n.name.clone(), n)).collect();
        let tree = Tree::build(levels, &nodes, costs, measured, None, &Shapes::default());
        let space = Space::free_of(&tree);
        Self { tree, space, search: Search::default() }
    }

    /// The best placement of the whole gang inside its required level, or `None`. It is not taken yet;
    /// [`Self::shares`] returns it.
    pub fn place(&mut self, gang: &Gang) -> Option<Found> {
        let ceiling = Ceiling(self.tree.level_of_required(gang));
        let found = self.search.place(&self.tree, &self.space, gang, ceiling)?;
        Some(Found {
            time_ns: found.cost.time_ns,
            bottleneck_mb_per_s: found.bottleneck_mb_per_s,
            least_ns: found.least_ns,
        })
    }

    /// The placement that was found last, in the order of its ranks.
    pub fn shares(&self) -> impl Iterator<Item = Share> + '_ {
        let share = |pick: &Pick| {
            let Pick { node, members, devices, piece, role } = *pick;
            Share { node, members, devices, piece, role }
        };
        self.search.picks().iter().map(share)
    }

    /// The place that was found last, by names.
    #[must_use]
    pub fn placement(&self, gang: &Gang) -> Option<Placement> {
        placement(&self.tree, self.search.picks(), self.search.order(), gang)
    }

    /// The gain of the rank order of a placement, given the present load of every uplink; `None` for a gang without a
    /// grid, or if a node no longer exists.
    #[must_use]
    pub fn gain(&self, gang: &Gang, placement: &Placement) -> Option<Gain> {
        grid_gain(&self.tree, &self.space, gang, placement)
    }

    /// Takes the place that was found last.
    pub fn take(&mut self, gang: &Gang) {
        self.space.take(&self.tree, self.search.picks(), gang);
        self.space.load(&self.tree, self.search.picks(), gang, true);
    }

    /// Takes a place that was found before.
    pub fn take_shares(&mut self, gang: &Gang, shares: &[Share]) {
        let picks: Vec<Pick> = shares.iter().map(Share::pick).collect();
        self.space.take(&self.tree, &picks, gang);
        self.space.load(&self.tree, &picks, gang, true);
    }

    /// Gives back the shares of a gang.
    pub fn give_back(&mut self, gang: &Gang, shares: &[Share]) {
        let picks: Vec<Pick> = shares.iter().map(Share::pick).collect();
        self.space.give_back(&self.tree, &picks, gang);
        self.space.load(&self.tree, &picks, gang, false);
    }

    /// Free devices in all.
    #[must_use]
    pub fn free_devices(&self) -> u32 {
        self.tree.roots().map(|domain| self.space.free_devices(0, domain)).sum()
    }

    /// Nodes in the order of the tree.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.tree.nodes.iter().map(|node| &node.name)
    }

    /// How many members of the gang the best domain of a level above the node holds, at most the whole gang.
    #[must_use]
    pub fn most_that_fits(&mut self, gang: &Gang, level: usize) -> u32 {
        self.search.most(&self.tree, &self.space, gang, LevelAt::Above(level)).0
    }
}
