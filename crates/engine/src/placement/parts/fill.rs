//! Gangs that no single node holds: the narrowest domain that holds them, and few domains inside it.

use super::look::{ALL, Look};
use super::search::FractionalSearch;
use crate::cluster::tree::LevelAt;

/// A domain or a node to choose from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    at: u32,
    /// Members that it holds.
    room: u32,
    /// Those members that need no further device.
    open: u32,
    is_whole: bool,
    free_devices: u32,
}

impl Child {
    /// How much so many members open and break; less is better.
    fn worth(&self, members: u32) -> (u32, bool, u32, u32) {
        (members.saturating_sub(self.open), self.is_whole, self.free_devices, self.at)
    }
}

impl FractionalSearch {
    /// Members that every domain holds, level by level.
    pub(super) fn count_rooms(&mut self, look: Look<'_>) {
        let tree = look.tree;
        self.find_hosts(look);
        self.rooms.resize(tree.depth(), Vec::new());
        for level in (0..tree.depth()).rev() {
            let mut rooms = std::mem::take(&mut self.rooms[level]);
            rooms.clear();
            rooms.extend((0..tree.domains[level].len()).map(|domain| {
                let children = tree.domains[level][domain].children.clone();
                let inside = match self.rooms.get(level + 1) {
                    Some(below) => children.fold(0_u32, |sum, child| sum.saturating_add(below[child])),
                    None => self.room_of_nodes(look, level, domain),
                };
                let most = look.request.room(tree, look.space, level, domain);
                inside.min(most) / look.portion() * look.portion()
            }));
            self.rooms[level] = rooms;
        }
    }

    /// Counts the nodes of one innermost domain: by class if they are equal, and one by one if they host parts.
    fn room_of_nodes(&self, look: Look<'_>, level: usize, domain: usize) -> u32 {
        let Look { tree, space, request, .. } = look;
        let nodes = tree.domains[level][domain].nodes.clone();
        let one_by_one = |nodes: std::ops::Range<usize>| {
            nodes.fold(0_u32, |sum, node| sum.saturating_add(look.room_on(node, ALL)))
        };
        let rows = space.rows(level, domain);
        if look.is_particular() || rows.iter().any(|row| look.each_of(row).is_none()) {
            return one_by_one(nodes);
        }
        let mut room = 0_u64;
        for row in rows {
            let each = u64::from(look.each_of(row).unwrap_or(0));
            let offers = tree.kinds[usize::from(row.kind)].offers().iter();
            let counted = space.counts(tree, level, row).iter().zip(offers);
            let devices: u64 = counted.map(|(nodes, of)| u64::from(*nodes) * u64::from(of.devices)).sum();
            room += each * devices;
        }
        for (node, _) in self.hosts_in(nodes) {
            let kind = tree.nodes[node].kind;
            let each = look.asked.get(kind, 0).map_or(0, |(_, each)| each);
            let counted = u64::from(request.devices(tree, space, node).count()) * u64::from(each);
            // The sum that counts devices alone never exceeds the real room.
            room = room.saturating_sub(counted) + u64::from(look.room_on(node, ALL));
        }
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// The narrowest domain inside the ceiling that holds all, and inside of it as few as can be.
    pub(super) fn across_nodes(&mut self, look: Look<'_>, ceiling: LevelAt) -> bool {
        let LevelAt::Above(outermost) = ceiling else { return false };
        self.count_rooms(look);
        for level in (outermost..look.tree.depth()).rev() {
            let mut children = std::mem::take(&mut self.children);
            children.clear();
            let holds = |domain: &usize| self.rooms[level][*domain] >= look.request.size;
            let domains = (0..look.tree.domains[level].len()).filter(holds);
            children.extend(domains.map(|domain| self.domain(look, level, domain)));
            let best = children.iter().min_by_key(|child| child.worth(look.request.size)).copied();
            self.children = children;
            if let Some(best) = best {
                return self.fill(look, level, best.at as usize, look.request.size);
            }
        }
        false
    }

    fn domain(&self, look: Look<'_>, level: usize, domain: usize) -> Child {
        let found = &look.tree.domains[level][domain];
        let open = self.hosts_in(found.nodes.clone());
        let free_devices = look.space.free_devices(level, domain);
        Child {
            at: domain as u32,
            room: self.rooms[level][domain],
            open: open.fold(0_u32, |sum, (_, open)| sum.saturating_add(open)),
            is_whole: free_devices == found.devices,
            free_devices,
        }
    }

    fn node(look: Look<'_>, node: usize) -> Child {
        let free = look.space.free(node).devices;
        let total = look.tree.nodes[node].total.devices;
        Child {
            at: node as u32,
            room: look.room_on(node, ALL),
            open: look.open_on(node, ALL),
            is_whole: free == total,
            free_devices: free.count(),
        }
    }

    /// Puts members into a domain that holds them: it fills the roomiest children, and puts the rest into the child
    /// that opens least and holds it. So few children are used.
    fn fill(&mut self, look: Look<'_>, level: usize, domain: usize, members: u32) -> bool {
        let found = &look.tree.domains[level][domain];
        let first = self.children.len();
        let innermost = level + 1 == look.tree.depth();
        let mut children = std::mem::take(&mut self.children);
        if innermost {
            children.extend(found.nodes.clone().map(|node| Self::node(look, node)));
        } else {
            children.extend(found.children.clone().map(|child| self.domain(look, level + 1, child)));
        }
        self.children = children;
        let mut left = members;
        while left > 0 {
            let open = self.children[first..].iter().filter(|child| child.room > 0);
            let last = open.clone().filter(|child| child.room >= left).min_by_key(|child| child.worth(left));
            let next = last.or_else(|| open.max_by_key(|child| (child.room, std::cmp::Reverse(child.at))));
            let Some(next) = next.copied() else { break };
            let taken = next.room.min(left);
            let at = next.at as usize;
            let is_filled = if innermost {
                self.put_on(look, at, ALL, taken)
            } else {
                self.fill(look, level + 1, at, taken)
            };
            if !is_filled {
                break;
            }
            left -= taken;
            let used = self.children[first..].iter_mut().filter(|child| child.at == next.at);
            used.for_each(|child| child.room = 0);
        }
        self.children.truncate(first);
        left == 0
    }
}
