//! The room for members. Members of one gang are equal, so room is a sum over nodes.

use phalanx_model::{DeviceMask, PartNeed};

use crate::cluster::fractions::hardware::Wanted;
use crate::cluster::fractions::hardware_at;
use crate::cluster::space::{Row, Space};
use crate::cluster::tree::Tree;
use crate::placement::request::Request;
use crate::share::Device;

/// The requested part on each hardware of the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// By kind of node, the index of its first hardware.
    first: Vec<u32>,
    /// By kind and hardware: the part, and how many an empty device holds.
    wanted: Vec<Option<(Wanted, u32)>>,
}

/// Everything that a search reads.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) tree: &'a Tree,
    pub(super) space: &'a Space,
    pub(super) request: &'a Request<'a>,
    pub(super) asked: &'a Asked,
}

/// Every device of a node.
pub(super) const ALL: DeviceMask = DeviceMask(u64::MAX);

impl Asked {
    /// Uses the memory of an earlier one.
    pub(super) fn of(mut self, tree: &Tree, space: &Space, need: Option<&PartNeed>) -> Self {
        self.first.clear();
        self.wanted.clear();
        let trust = need.map_or_else(Default::default, |need| space.parts().trust_of(need));
        for kind in &tree.kinds {
            self.first.push(self.wanted.len() as u32);
            self.wanted.extend(kind.hardware.iter().map(|(hardware, _)| {
                let wanted = Wanted::of(need?, hardware, trust)?;
                Some((wanted, wanted.room(hardware, &Device::Empty)))
            }));
        }
        self
    }

    /// The part on one hardware of a kind, and how many an empty device holds.
    pub(super) fn get(&self, kind: u16, number: u8) -> Option<(Wanted, u32)> {
        let first = *self.first.get(usize::from(kind))? as usize;
        self.wanted.get(first + usize::from(number)).copied().flatten()
    }

    /// The most that any empty device holds.
    pub(super) fn most(&self) -> u32 {
        self.wanted.iter().flatten().map(|(_, each)| *each).max().unwrap_or(0)
    }
}

impl<'a> Look<'a> {
    /// Members that fit on these devices of a node at the same time.
    pub(super) fn room_on(self, node: usize, mask: DeviceMask) -> u32 {
        let Self { tree, space, request, .. } = self;
        let limit = request.limit(tree, space, node, DeviceMask::EMPTY);
        if limit == 0 {
            return 0;
        }
        let kind = tree.nodes[node].kind;
        let fresh = request.devices(tree, space, node).and(mask);
        let mut room = self.open_on(node, mask);
        for (number, (_, of_hardware)) in (0_u8..).zip(&tree.kinds[usize::from(kind)].hardware) {
            let each = self.asked.get(kind, number).map_or(0, |(_, each)| each);
            room = room.saturating_add(fresh.and(*of_hardware).count().saturating_mul(each));
        }
        self.in_portions(room.min(limit).min(request.size))
    }

    /// Members that fit on devices that are shared or cut already, as far as devices go.
    pub(super) fn open_on(self, node: usize, mask: DeviceMask) -> u32 {
        let parts = self.space.parts();
        if parts.on(node).is_empty() {
            return 0;
        }
        let kind = self.tree.nodes[node].kind;
        let mask = mask.and(self.request.eligible[usize::from(kind)]);
        let open = parts.open_on(node).filter(|open| mask.contains(u32::from(open.index)));
        open.fold(0_u32, |room, open| {
            let of = hardware_at(self.tree, node, open.index);
            let wanted = of.and_then(|(number, hardware)| Some((self.asked.get(kind, number)?.0, hardware)));
            room.saturating_add(wanted.map_or(0, |(wanted, hardware)| wanted.room(hardware, &open.device)))
        })
    }

    /// If every used node must have equally many members: the size of a portion; otherwise 1.
    pub(super) fn portion(self) -> u32 {
        self.request.members_per_node.unwrap_or(1).max(1)
    }

    fn in_portions(self, room: u32) -> u32 {
        match self.request.members_per_node {
            Some(exactly) if room >= exactly => exactly,
            Some(_) => 0,
            None => room,
        }
    }

    /// How many members the limits of the domains around a node allow.
    pub(super) fn room_around(self, node: usize) -> u32 {
        let Some(innermost) = self.tree.depth().checked_sub(1) else { return u32::MAX };
        let leaf = self.tree.nodes[node].leaf as usize;
        self.request.room(self.tree, self.space, innermost, leaf)
    }

    /// The sets of devices inside a node of which one must hold all.
    pub(super) fn sites(self, node: usize, group: usize) -> Vec<DeviceMask> {
        self.request.sites(self.tree.kind(&self.tree.nodes[node]), Some(group))
    }

    /// Members that a free device of such nodes holds, if the nodes are equal and none runs out of CPUs or memory
    /// before devices; `None` if nodes must be read one by one.
    pub(super) fn each_of(self, row: &Row) -> Option<u32> {
        let each = match self.tree.kinds[usize::from(row.kind)].hardware.len() {
            0 => 0,
            // Nodes that the gang may not use at all: of a pool that is not its own, or of spot capacity.
            _ if self.request.eligible[usize::from(row.kind)].is_empty() => 0,
            1 => self.asked.get(row.kind, 0).map_or(0, |(_, each)| each),
            _ => return None,
        };
        row.has_for_each_device(self.request.needs, each).then_some(each)
    }

    /// Whether nodes must be read one by one, whatever is free on them.
    pub(super) fn is_particular(self) -> bool {
        let request = self.request;
        request.is_particular() || request.members_per_node.is_some() || request.node_max < request.size
    }
}
