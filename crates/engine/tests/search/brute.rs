//! Every placement of a gang in a tiny cluster.

use phalanx_model::{DeviceMask, Gang, LevelName, Segment};

use crate::judge::Books;

/// The least time of all placements; `None` if there is none.
pub(crate) fn best_ns(books: &Books, gang: &Gang) -> Option<u64> {
    let options: Vec<Vec<(u32, DeviceMask)>> =
        (0..books.free.len()).map(|node| options(books, gang, node)).collect();
    let most = |options: &Vec<(u32, DeviceMask)>| options.iter().map(|(members, _)| *members).max();
    let mut after: Vec<u32> = options.iter().map(|of| most(of).unwrap_or(0)).collect();
    for at in (1..after.len()).rev() {
        after[at - 1] += after[at];
    }
    after.push(0);
    let mut all = Every { books, gang, options, after, used: Vec::new(), best: None };
    all.from(0, gang.size);
    all.best
}

struct Every<'a> {
    books: &'a Books,
    gang: &'a Gang,
    options: Vec<Vec<(u32, DeviceMask)>>,
    /// The most members that the nodes from one node on hold.
    after: Vec<u32>,
    used: Vec<(usize, u32, DeviceMask)>,
    best: Option<u64>,
}

impl Every<'_> {
    fn from(&mut self, node: usize, left: u32) {
        if left == 0 {
            if self.is_allowed() {
                let ns = self.books.time_ns(self.gang, &self.used);
                self.best = Some(self.best.map_or(ns, |best| best.min(ns)));
            }
            return;
        }
        if self.after[node] < left {
            return;
        }
        self.from(node + 1, left);
        for at in 0..self.options[node].len() {
            let (members, devices) = self.options[node][at];
            if members <= left {
                self.used.push((node, members, devices));
                self.from(node + 1, left - members);
                self.used.pop();
            }
        }
    }

    fn is_allowed(&self) -> bool {
        let outermost = &self.books.cluster.levels.above[0];
        let required = self.gang.topology.required.as_ref().unwrap_or(outermost);
        let whole = |level: &LevelName| Segment { size: self.gang.size, level: level.clone() };
        let parts = self.gang.topology.segments.iter().cloned().chain([whole(required), whole(outermost)]);
        self.books.keeps_rules(self.gang, &self.used) && parts.into_iter().all(|part| self.is_in_parts(&part))
    }

    /// Whether every domain of a level has whole parts, except one domain that has the smaller last part beside them.
    fn is_in_parts(&self, part: &Segment) -> bool {
        let rest = self.gang.size % part.size;
        let level = self.books.cluster.levels.above.iter().position(|above| *above == part.level);
        let domain = |node: usize| level.map_or(node, |level| self.books.of_node[level][node]);
        let mut odd = 0;
        for (at, (node, ..)) in self.used.iter().enumerate() {
            let is_here = |other: &&(usize, u32, DeviceMask)| domain(other.0) == domain(*node);
            if self.used[..at].iter().any(|other| is_here(&other)) {
                continue;
            }
            let members: u32 = self.used.iter().filter(is_here).map(|(_, members, _)| *members).sum();
            match members % part.size {
                0 => {}
                left if left == rest => odd += 1,
                _ => return false,
            }
        }
        odd < 2
    }
}

/// The options of a node: members and devices. A set is dropped if another set of as many members is no worse in both
/// ways.
fn options(books: &Books, gang: &Gang, node: usize) -> Vec<(u32, DeviceMask)> {
    let room = books.room(gang, node);
    let each = gang.needs.devices;
    let suits = |members: u32| {
        members > 0 && members <= room && gang.members_per_node.is_none_or(|exactly| exactly == members)
    };
    let mut kept: Vec<(u32, DeviceMask)> = Vec::new();
    if each == 0 {
        let inside = [&gang.topology.required];
        let is_group = |level: &&LevelName| group_level(books, level);
        let group = inside.into_iter().flatten().find(is_group);
        let has =
            |level: &LevelName| books.cluster.nodes[node].machine.groups.iter().any(|g| g.level == *level);
        let fits = group.is_none_or(has);
        return (1..=room).filter(|n| fits && suits(*n)).map(|n| (n, DeviceMask::EMPTY)).collect();
    }
    let free = books.eligible(gang, node);
    let mut set = free.0;
    while set > 0 {
        let devices = DeviceMask(set);
        set = (set - 1) & free.0;
        let members = devices.count() / each;
        if members * each != devices.count() || !suits(members) || !is_dealt(books, gang, node, devices) {
            continue;
        }
        let worth = |set: DeviceMask| (books.ring(node, set), books.beyond(node, set));
        let covers = |a: DeviceMask, b: DeviceMask| {
            let (a, b) = (worth(a), worth(b));
            a.0 >= b.0 && a.1 >= b.1
        };
        if kept.iter().any(|(of, known)| *of == members && covers(*known, devices)) {
            continue;
        }
        kept.retain(|(of, known)| *of != members || !covers(devices, *known));
        kept.push((members, devices));
    }
    kept
}

fn group_level(books: &Books, level: &LevelName) -> bool {
    *level != books.cluster.levels.node && !books.cluster.levels.above.contains(level)
}

/// Whether members can be dealt so that every part inside a group has its devices there.
fn is_dealt(books: &Books, gang: &Gang, node: usize, devices: DeviceMask) -> bool {
    let required = gang.topology.required.as_ref();
    let whole = required.map(|level| Segment { size: gang.size, level: level.clone() });
    let mut parts =
        gang.topology.segments.iter().chain(&whole).filter(|part| group_level(books, &part.level));
    parts.all(|part| {
        let groups = books.cluster.nodes[node].machine.groups.iter().filter(|g| g.level == part.level);
        let (mut dealt, mut odd) = (0, 0);
        for group in groups {
            let here = devices.and(group.devices).count();
            let members = here / gang.needs.devices;
            if members * gang.needs.devices != here {
                return false;
            }
            match members % part.size {
                0 => {}
                left if left == gang.size % part.size => odd += 1,
                _ => return false,
            }
            dealt += here;
        }
        dealt == devices.count() && odd < 2
    })
}
