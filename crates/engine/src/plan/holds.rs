//! Capacity that is held for gangs that wait: what of it is free now is withheld from others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{DeviceMask, Gang, Timestamp};

use super::space::{Pick, Space};
use super::tree::{Free, Tree};
use crate::policy::{Bill, QueueAt};

/// What one gang has held on one node, and how much of that was free to be withheld.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OnNode {
    devices: DeviceMask,
    cpu_milli: i64,
    memory_bytes: i64,
    /// Nobody else is to be on it.
    is_exclusive: bool,
    withheld: Amount,
    /// Devices that are in use in part, and take no more parts.
    closed: DeviceMask,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    devices: DeviceMask,
    cpu_milli: i64,
    memory_bytes: i64,
    /// Nothing new comes to it.
    is_promised: bool,
}

impl OnNode {
    /// Withholds what is free of it, and says what is left.
    fn withhold(&mut self, free: Free) -> Free {
        let rest = |wanted: i64, has: i64, free: i64| wanted.saturating_sub(has).clamp(0, free.max(0));
        let more = Amount {
            devices: self.devices.minus(self.withheld.devices).and(free.devices),
            cpu_milli: rest(self.cpu_milli, self.withheld.cpu_milli, free.cpu_milli),
            memory_bytes: rest(self.memory_bytes, self.withheld.memory_bytes, free.memory_bytes),
            is_promised: self.is_exclusive && !free.is_promised,
        };
        self.withheld.devices = self.withheld.devices.union(more.devices);
        self.withheld.cpu_milli += more.cpu_milli;
        self.withheld.memory_bytes += more.memory_bytes;
        self.withheld.is_promised |= more.is_promised;
        Free {
            devices: free.devices.minus(more.devices),
            cpu_milli: free.cpu_milli - more.cpu_milli,
            memory_bytes: free.memory_bytes - more.memory_bytes,
            is_promised: free.is_promised | more.is_promised,
            ..free
        }
    }

    /// What is free once nothing is withheld of it.
    fn added_to(&self, free: Free) -> Free {
        let Amount { devices, cpu_milli, memory_bytes, is_promised } = self.withheld;
        Free {
            devices: free.devices.union(devices),
            cpu_milli: free.cpu_milli.saturating_add(cpu_milli),
            memory_bytes: free.memory_bytes.saturating_add(memory_bytes),
            is_promised: free.is_promised && !is_promised,
            ..free
        }
    }
}

/// A future place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) picks: Vec<Pick>,
    /// When all of it is free at the latest.
    pub(crate) at: Option<Timestamp>,
    /// Its class.
    pub(crate) rank: i32,
    /// Of service of whom it is held for.
    pub(crate) level: u32,
    /// When it was reserved: what was promised earlier has what two want, but no two devices are promised twice.
    pub(crate) made_at: Timestamp,
    /// Others make way for it.
    pub(crate) evicts: bool,
    /// Whom it is held for is within a guarantee.
    pub(crate) is_owed: bool,
    /// It waits in this queue, and for at least so much.
    pub(crate) waits: (QueueAt, Bill),
    nodes: BTreeMap<u32, OnNode>,
    is_lifted: bool,
}

impl Hold {
    /// Nothing is withheld yet.
    pub(crate) fn new(
        picks: Vec<Pick>,
        gang: &Gang,
        at: Option<Timestamp>,
        rank: i32,
        made_at: Timestamp,
    ) -> Self {
        let mut nodes: BTreeMap<u32, OnNode> = BTreeMap::new();
        for pick in &picks {
            let needs = gang.needs_of(pick.role());
            let of_members =
                |each: u64| i64::try_from(each.saturating_mul(u64::from(pick.members))).unwrap_or(i64::MAX);
            let node = nodes.entry(pick.node).or_default();
            node.devices = node.devices.union(pick.devices);
            node.cpu_milli = node.cpu_milli.saturating_add(of_members(needs.cpu_milli));
            node.memory_bytes = node.memory_bytes.saturating_add(of_members(needs.memory_bytes));
            node.is_exclusive = gang.needs.is_exclusive;
        }
        Self { picks, at, rank, made_at, nodes, is_lifted: true, ..Self::default() }
    }

    /// What these picks give to others when they end: without the devices that are held for somebody.
    pub(crate) fn unheld<'a, H: Iterator<Item = &'a Self> + Clone>(holds: &H, picks: &mut [Pick]) {
        for pick in picks {
            let held = holds.clone().filter_map(|hold| hold.nodes.get(&pick.node));
            pick.devices = held.fold(pick.devices, |devices, held| devices.minus(held.devices));
        }
    }

    /// Withholds what is free of some of them, of what two want for the one that was promised it first.
    pub(crate) fn lay_all<'a>(holds: impl Iterator<Item = &'a mut Self>, tree: &Tree, space: &mut Space) {
        let mut lifted: Vec<&mut Self> = holds.filter(|hold| hold.is_lifted).collect();
        lifted.sort_by_key(|hold| hold.turn());
        lifted.into_iter().for_each(|hold| hold.lay(tree, space));
    }

    /// What was promised earlier goes first.
    pub(crate) const fn turn(&self) -> (Timestamp, Reverse<i32>) {
        (self.made_at, Reverse(self.rank))
    }

    /// Withholds what is free of it; what comes free later follows with [`Self::extend`].
    pub(crate) fn lay(&mut self, tree: &Tree, space: &mut Space) {
        if std::mem::take(&mut self.is_lifted) {
            let nodes: Vec<u32> = self.nodes.keys().copied().collect();
            self.extend(tree, space, &nodes);
        }
    }

    /// Withholds what came free on nodes.
    pub(crate) fn extend(&mut self, tree: &Tree, space: &mut Space, nodes: &[u32]) {
        if self.is_lifted {
            return;
        }
        let mine = nodes.iter().copied().filter(|node| self.nodes.contains_key(node)).collect::<Vec<_>>();
        space.put(tree, mine.into_iter(), |node, free| {
            self.nodes.get_mut(&node).map_or(free, |held| held.withhold(free))
        });
        for node in nodes {
            if let Some(held) = self.nodes.get_mut(node) {
                held.closed = held.closed.union(space.close_parts(tree, *node, held.devices));
            }
        }
    }

    /// Whether somebody else goes before whom it is held for: the owner of a guarantee before who borrows, and then the
    /// higher class. What others were evicted for stays.
    pub(crate) const fn makes_way_for(&self, rank: i32, is_owed: bool) -> bool {
        !self.evicts && (is_owed && !self.is_owed || is_owed == self.is_owed && rank > self.rank)
    }

    /// Whether whom it is held for had more service than one of the same queue and class that is on this level. What others
    /// were evicted for stays.
    pub(crate) const fn had_more(&self, queue: QueueAt, (rank, level): (i32, u32), is_owed: bool) -> bool {
        let is_alike = queue == self.waits.0 && rank == self.rank && is_owed == self.is_owed;
        !self.evicts && is_alike && level < self.level
    }

    /// Whether whoever ends by then is out of its way.
    pub(crate) fn begins_after(&self, ends_at: Option<Timestamp>) -> bool {
        ends_at.zip(self.at).is_some_and(|(ends, begins)| ends <= begins)
    }

    /// Whether some of it would be these very devices, or nodes where it is to be alone.
    pub(crate) fn overlaps(&self, picks: &[Pick]) -> bool {
        picks.iter().any(|pick| {
            let held = self.nodes.get(&pick.node);
            held.is_some_and(|held| held.is_exclusive || !held.devices.and(pick.devices).is_empty())
        })
    }

    /// Whether some of it is on one of these nodes.
    pub(crate) fn is_on_any(&self, nodes: &BTreeSet<u32>) -> bool {
        self.nodes.keys().any(|node| nodes.contains(node))
    }

    pub(crate) const fn is_laid(&self) -> bool {
        !self.is_lifted
    }

    /// Gives everything back that is withheld.
    pub(crate) fn lift(&mut self, tree: &Tree, space: &mut Space) {
        if std::mem::replace(&mut self.is_lifted, true) {
            return;
        }
        let nodes: Vec<u32> = self.nodes.keys().copied().collect();
        space.put(tree, nodes.into_iter(), |node, free| {
            self.nodes.get_mut(&node).map_or(free, |held| {
                let back = held.added_to(free);
                held.withheld = Amount::default();
                back
            })
        });
        for (node, held) in &mut self.nodes {
            let closed = std::mem::take(&mut held.closed);
            if !closed.is_empty() {
                space.open_parts(tree, *node, closed);
            }
        }
    }

    /// What is withheld on a node, added to what is free there.
    pub(crate) fn add_to(&self, node: usize, free: &mut Free) {
        if let Some(held) = self.nodes.get(&(node as u32)) {
            *free = held.added_to(*free);
        }
    }

    /// CPU and memory of a node that it takes when they come free.
    pub(crate) fn still_wants(&self, node: u32) -> (i64, i64) {
        let wanting = self.nodes.get(&node).filter(|_| !self.is_lifted);
        wanting.map_or((0, 0), |held| {
            let OnNode { cpu_milli, memory_bytes, withheld, .. } = held;
            ((cpu_milli - withheld.cpu_milli).max(0), (memory_bytes - withheld.memory_bytes).max(0))
        })
    }

    /// Devices that are withheld on one node.
    pub(crate) fn withheld_on(&self, node: u32) -> DeviceMask {
        self.nodes.get(&node).map_or(DeviceMask::EMPTY, |held| held.withheld.devices)
    }

    /// The same of every node.
    pub(crate) fn withheld(&self) -> impl Iterator<Item = (u32, DeviceMask)> + '_ {
        self.nodes.iter().map(|(node, held)| (*node, held.withheld.devices))
    }

    /// Members that it is held for.
    pub(crate) fn member_count(&self) -> u32 {
        self.picks.iter().map(|pick| pick.members).sum()
    }

    /// Devices that are withheld.
    pub(crate) fn idle_devices(&self) -> u32 {
        self.nodes.values().map(|held| held.withheld.devices.count()).sum()
    }
}
