//! Whether a gang with roles fits a domain: an exact recursion over the numbers of members below.
//!
//! A node holds `n` members of one role and `m` of another exactly if CPUs and memory are enough for both, and the
//! devices are enough for each and for both together (Hall's condition: devices that several roles can have are
//! counted for all of them). Numbers of two nodes or domains add up, so the table of a domain follows from those of
//! its children: for every number of members of all roles but one, the most of that one. If parts of the gang must
//! share a domain, only whole parts leave it, and the smaller last part once.

use std::collections::BTreeMap;
use std::ops::Range;

use phalanx_model::DeviceMask;

use super::table::Table;
use super::{CeilingDomain, RoleProblem};
use crate::cluster::space::Pick;
use crate::cluster::tree::LevelAt;

/// States of tables made or merged for one question: some tens of milliseconds at most.
pub(crate) const STATES_MAX: u64 = 1 << 22;
/// Roles beside the gang itself that are solved together; more are placed in turns.
pub(super) const ROLES_MAX: usize = 7;

/// The result for a domain.
pub(super) enum Solved {
    /// No placement of all exists there.
    Never,
    /// This one does.
    RolePlacement(Vec<Pick>),
    /// The budget ended, or the gang is of a kind that this recursion does not cover.
    Unknown,
}

/// The budget is spent.
struct Exhausted;

/// Members of a party that share a domain.
#[derive(Clone, Copy, Debug)]
struct RolePart {
    role_group: usize,
    level: LevelAt,
    size: u32,
    /// The size of the smaller last part, if there is one: of the gang's own members alone.
    rest: u32,
}

#[derive(Clone, Copy, Debug)]
enum Child {
    Node(u32),
    Domain(usize),
}

/// One child of a domain, added to those before it.
#[derive(Clone, Copy, Debug)]
struct Step {
    child: Child,
    table: u32,
    before: u32,
}

/// The children of one domain, merged one after the other.
#[derive(Clone, Debug)]
struct Merged {
    level: usize,
    domain: usize,
    steps: Range<usize>,
}

pub(super) struct Joint<'b, 'a> {
    board: &'b RoleProblem<'a>,
    /// The parties that tables count, and the party whose maximum they hold.
    counted: Vec<usize>,
    value: usize,
    wanted: Vec<u32>,
    parts: Vec<RolePart>,
    tables: Vec<Table>,
    nodes: BTreeMap<Vec<i64>, u32>,
    merges: BTreeMap<(u32, u32), u32>,
    steps: Vec<Step>,
    merged: Vec<Merged>,
    left: u64,
}

/// Index of the table without members.
const EMPTY: u32 = 0;

impl<'b, 'a> Joint<'b, 'a> {
    /// `None` if roles need parts of devices, own members are a box of a torus, members keep parts inside groups of
    /// the node, or there are too many roles.
    pub(super) fn new(board: &'b RoleProblem<'a>) -> Option<Self> {
        let (tree, role_groups) = (board.tree, &board.role_groups);
        let own = &role_groups.first()?.request;
        let has_parts = role_groups.iter().any(|role_group| role_group.request.needs.part.is_some());
        if has_parts || board.gang.topology.slice.is_some() || role_groups.len() > ROLES_MAX + 1 {
            return None;
        }
        let mut parts = Vec::new();
        for (role_group, of) in role_groups.iter().enumerate() {
            for segment in &of.gang.topology.segments {
                let whole = of.request.size;
                let size = segment.size.clamp(1, whole);
                match tree.level_at(&segment.level)? {
                    LevelAt::Group(_) => return None,
                    level if level > board.ceiling => {
                        parts.push(RolePart { role_group, level, size, rest: whole % size });
                    }
                    _ => {}
                }
            }
        }
        // Parties in equal numbers, or in parts of which one is smaller, are counted: fewer of them are not always
        // possible.
        let is_loose = parts.iter().all(|part| part.role_group > 0) && own.members_per_node.is_none();
        let by_size =
            |role_group: &usize| (role_groups[*role_group].request.size, std::cmp::Reverse(*role_group));
        let value = (usize::from(!is_loose)..role_groups.len()).max_by_key(by_size)?;
        let counted: Vec<usize> = (0..role_groups.len()).filter(|role_group| *role_group != value).collect();
        let mut wanted: Vec<u32> =
            counted.iter().map(|role_group| role_groups[*role_group].request.size).collect();
        if parts.iter().any(|part| part.rest > 0) {
            // Whether the smaller last part is below.
            wanted.push(1);
        }
        let tables = vec![Table::empty(wanted.len())];
        Some(Self {
            board,
            counted,
            value,
            wanted,
            parts,
            tables,
            nodes: BTreeMap::new(),
            merges: BTreeMap::new(),
            steps: Vec::new(),
            merged: Vec::new(),
            left: STATES_MAX,
        })
    }

    /// Whether all members fit into a domain, and their placement.
    pub(super) fn solve(&mut self, site: &CeilingDomain) -> Solved {
        let Ok(table) = self.of_site(site) else { return Solved::Unknown };
        let wanted = self.value_wanted();
        match self.tables[table as usize].get(&self.wanted) {
            Some(value) if value >= wanted => {
                let mut picks = Vec::new();
                let target = (self.wanted.clone(), wanted);
                let is_dealt = self.walk(site, target, &mut picks).is_some();
                if is_dealt { Solved::RolePlacement(picks) } else { Solved::Unknown }
            }
            _ => Solved::Never,
        }
    }

    /// The most members of the gang itself with all roles beside them; `None` when the budget ended before.
    pub(super) fn most(&mut self, site: &CeilingDomain) -> Option<u32> {
        let table = self.of_site(site).ok()?;
        let table = &self.tables[table as usize];
        let is_full = |counts: &[u32]| {
            let others = self.counted.iter().zip(counts).zip(&self.wanted);
            others
                .filter(|((role_group, _), _)| **role_group != 0)
                .all(|((_, count), wanted)| count == wanted)
        };
        let own = self.counted.iter().position(|role_group| *role_group == 0);
        let full = table
            .iter()
            .filter(|(counts, value)| is_full(counts) && (self.value == 0 || *value >= self.value_wanted()));
        Some(full.map(|(counts, value)| own.map_or(value, |own| counts[own])).max().unwrap_or(0))
    }

    fn value_wanted(&self) -> u32 {
        self.board.role_groups[self.value].request.size
    }

    /// The table of a whole site.
    fn of_site(&mut self, site: &CeilingDomain) -> Result<u32, Exhausted> {
        self.steps.clear();
        self.merged.clear();
        let tree = self.board.tree;
        let (mut table, outer) = match self.board.ceiling {
            LevelAt::Above(level) => {
                (self.of_domain(level, tree.domain_of(site.nodes.start, level), site)?, level)
            }
            _ => (self.of_node(site.nodes.start, site.devices)?.unwrap_or(EMPTY), tree.depth()),
        };
        for level in 0..outer {
            table = self.in_shared(level, tree.domain_of(site.nodes.start, level), table)?;
        }
        Ok(table)
    }

    fn of_domain(&mut self, level: usize, domain: usize, site: &CeilingDomain) -> Result<u32, Exhausted> {
        let tree = self.board.tree;
        let place = &tree.domains[level][domain];
        let mut children: Vec<(u32, Child)> = Vec::new();
        if self.binds_below(level) {
            for child in place.children.clone() {
                let table = self.of_domain(level + 1, child, site)?;
                children.push((table, Child::Domain(child)));
            }
        } else {
            for node in place.nodes.clone() {
                let table = self.of_node(node, site.devices)?;
                children.extend(table.map(|table| (table, Child::Node(node as u32))));
            }
        }
        // Equal children in a row, so that domains with the same ones are merged once.
        children.sort_by_key(|(table, _)| *table);
        let first = self.steps.len();
        let mut sum = EMPTY;
        for (table, child) in children.into_iter().filter(|(table, _)| *table != EMPTY) {
            self.steps.push(Step { child, table, before: sum });
            sum = self.merge(sum, table)?;
        }
        self.merged.push(Merged { level, domain, steps: first..self.steps.len() });
        let within = self.in_shared(level, domain, sum)?;
        self.in_parts(LevelAt::Above(level), within)
    }

    /// Whether domains inside those of a level do not hold all that their nodes do.
    fn binds_below(&self, level: usize) -> bool {
        let is_part = |part: &RolePart| matches!(part.level, LevelAt::Above(part) if part > level);
        self.parts.iter().any(is_part) || self.board.shared.iter().any(|shared| shared.level > level)
    }

    /// Limits a domain's table by the amounts that its members share.
    fn in_shared(&mut self, level: usize, domain: usize, table: u32) -> Result<u32, Exhausted> {
        let mut table = table;
        for shared in self.board.shared.iter().filter(|shared| shared.level == level) {
            let before = &self.tables[table as usize];
            let left = self.board.amount_in(shared, domain);
            let each = |role_group: usize| shared.each[role_group];
            let capped = Table::fill(before.largest().to_vec(), |counts| {
                let used = self
                    .counted
                    .iter()
                    .zip(counts)
                    .map(|(role_group, n)| each(*role_group).saturating_mul(u64::from(*n)));
                let used = used.fold(0, u64::saturating_add);
                let left = left.checked_sub_unsigned(used).filter(|left| *left >= 0 || used == 0)?;
                let fits = left.max(0).cast_unsigned().checked_div(each(self.value));
                let fits = fits.map_or(u32::MAX, |fits| u32::try_from(fits).unwrap_or(u32::MAX));
                let value = before.get(counts)?;
                // Parties that must be on one node have no members elsewhere.
                let is_whole = self.board.set_of(self.value).is_some();
                Some(if is_whole && fits < value { 0 } else { value.min(fits) })
            });
            self.spend(capped.states())?;
            table = self.keep(capped);
        }
        Ok(table)
    }

    fn spend(&mut self, states: u64) -> Result<(), Exhausted> {
        self.left = self.left.checked_sub(states).ok_or(Exhausted)?;
        Ok(())
    }

    fn keep(&mut self, table: Table) -> u32 {
        self.tables.push(table);
        self.tables.len() as u32 - 1
    }

    fn merge(&mut self, a: u32, b: u32) -> Result<u32, Exhausted> {
        if a == EMPTY {
            return Ok(b);
        }
        if let Some(known) = self.merges.get(&(a, b)) {
            return Ok(*known);
        }
        let (left, right) = (&self.tables[a as usize], &self.tables[b as usize]);
        let pairs = left.pairs(right);
        self.spend(pairs)?;
        let (left, right) = (&self.tables[a as usize], &self.tables[b as usize]);
        let sum = left.merge(right, &self.wanted, self.value_wanted());
        let table = if sum == *left { a } else { self.keep(sum) };
        self.merges.insert((a, b), table);
        Ok(table)
    }

    /// The table of a node; `None` if no role fits. Equal nodes have one table.
    fn of_node(&mut self, node: usize, allowed: DeviceMask) -> Result<Option<u32>, Exhausted> {
        let board = self.board;
        let rooms: Vec<(DeviceMask, u32)> = board
            .role_groups
            .iter()
            .map(|role_group| board.room(&role_group.request, node, allowed))
            .collect();
        if rooms.iter().all(|(_, room)| *room == 0) {
            return Ok(None);
        }
        let node = Node::new(board, node, &rooms);
        let key = node.key();
        if let Some(known) = self.nodes.get(&key) {
            return Ok(Some(*known));
        }
        let mut most: Vec<u32> = self.counted.iter().map(|role_group| node.rooms[*role_group]).collect();
        most.extend((self.wanted.len() > most.len()).then_some(0));
        let states = most.iter().fold(1_u64, |all, most| all.saturating_mul(u64::from(*most) + 1));
        self.spend(states.saturating_mul(1 << board.role_groups.len()))?;
        let table = Table::fill(most, |counts| self.value_beside(&node, counts));
        let table = self.keep(table);
        let table = self.in_parts(LevelAt::Node, table)?;
        self.nodes.insert(key, table);
        Ok(Some(table))
    }

    /// The most members of one party on a node beside these numbers of the others.
    fn value_beside(&self, node: &Node, counts: &[u32]) -> Option<u32> {
        let own = self.counted.iter().position(|role_group| *role_group == 0);
        let each = self.board.role_groups[0].request.members_per_node;
        if let (Some(own), Some(each)) = (own, each)
            && ![0, each].contains(&counts[own])
        {
            return None;
        }
        let mut all = vec![0; self.board.role_groups.len()];
        for (role_group, count) in self.counted.iter().zip(counts) {
            all[*role_group] = *count;
        }
        let most = node.most(self.board, &all, self.value)?;
        self.board.whole(&all, self.value, most)
    }

    /// Limits a domain's table to whole parts and the smaller last one.
    fn in_parts(&mut self, level: LevelAt, table: u32) -> Result<u32, Exhausted> {
        let table = self.in_parts_of_roles(level, table)?;
        let own = self.parts.iter().find(|part| part.role_group == 0 && part.level == level);
        let Some(RolePart { size, rest, .. }) = own.copied() else { return Ok(table) };
        // Above the level at which the last part first comes up, it is counted already.
        let is_counted = self.parts.iter().any(|part| part.level > level && part.rest > 0);
        let before = &self.tables[table as usize];
        let mut most = before.largest().to_vec();
        if let Some(odd) = most.get_mut(self.counted.len())
            && rest > 0
        {
            *odd = 1;
        }
        let states = before.states();
        let own = self.counted.iter().position(|role_group| *role_group == 0);
        let odd_at = self.counted.len();
        let filtered = Table::fill(most, |counts| {
            let members = own.map_or(0, |own| counts[own]);
            let is_odd = counts.get(odd_at).is_some_and(|odd| *odd > 0);
            let fits = if is_odd && rest > 0 { members % size == rest } else { members % size == 0 };
            if !fits {
                return None;
            }
            let mut inside = counts.to_vec();
            if let Some(odd) = inside.get_mut(odd_at)
                && is_odd
                && !is_counted
            {
                *odd = 0;
            }
            before.get(&inside)
        });
        self.spend(states)?;
        Ok(self.keep(filtered))
    }

    /// The same for the roles, whose parts are all whole.
    fn in_parts_of_roles(&mut self, level: LevelAt, table: u32) -> Result<u32, Exhausted> {
        let size_of = |role_group: usize| {
            let part = self.parts.iter().find(|part| part.role_group == role_group && part.level == level);
            part.filter(|part| part.role_group > 0).map_or(1, |part| part.size)
        };
        let counted: Vec<u32> = self.counted.iter().map(|role_group| size_of(*role_group)).collect();
        // The shared amounts of the domain may be enough for fewer parts than are whole inside it.
        let inside = self.parts.iter().filter(|part| part.role_group == self.value && part.level >= level);
        let value = inside.map(|part| part.size).max().filter(|_| self.value > 0).unwrap_or(1);
        if value == 1 && counted.iter().all(|size| *size == 1) {
            return Ok(table);
        }
        let before = &self.tables[table as usize];
        let whole = Table::fill(before.largest().to_vec(), |counts| {
            let are_whole = counts.iter().zip(&counted).all(|(count, size)| count % size == 0);
            before.get(counts).filter(|_| are_whole).map(|most| most / value * value)
        });
        self.spend(whole.states())?;
        Ok(self.keep(whole))
    }

    /// Walks from a site down to the nodes, and adds the picks of all parties there.
    fn walk(&self, site: &CeilingDomain, target: (Vec<u32>, u32), picks: &mut Vec<Pick>) -> Option<()> {
        let LevelAt::Above(level) = self.board.ceiling else {
            return self.deal(site.nodes.start, site.devices, &target, picks);
        };
        let mut open = vec![(level, self.board.tree.domain_of(site.nodes.start, level), target)];
        while let Some((level, domain, (mut counts, mut value))) = open.pop() {
            self.take_off_rest(LevelAt::Above(level), &mut counts);
            let merged =
                self.merged.iter().find(|merged| (merged.level, merged.domain) == (level, domain))?;
            for step in self.steps[merged.steps.clone()].iter().rev() {
                let (there, more) = self.split(step, &counts, value)?;
                counts.iter_mut().zip(&there).for_each(|(count, there)| *count -= there);
                value -= more;
                match step.child {
                    Child::Domain(child) => open.push((level + 1, child, (there, more))),
                    Child::Node(node) => self.deal(node as usize, site.devices, &(there, more), picks)?,
                }
            }
        }
        picks.sort_by_key(|pick| (pick.role, pick.node));
        Some(())
    }

    /// Inside the domain where the last part comes up, it is not counted.
    fn take_off_rest(&self, level: LevelAt, counts: &mut [u32]) {
        let innermost = self.parts.iter().filter(|part| part.rest > 0).map(|part| part.level).max();
        if let Some(odd) = counts.get_mut(self.counted.len())
            && innermost == Some(level)
        {
            *odd = 0;
        }
    }

    /// The numbers of the last child, given the numbers of all children together.
    fn split(&self, step: &Step, counts: &[u32], value: u32) -> Option<(Vec<u32>, u32)> {
        let (table, before) = (&self.tables[step.table as usize], &self.tables[step.before as usize]);
        let has = table.iter().find_map(|(there, most)| {
            let rest: Option<Vec<u32>> =
                counts.iter().zip(&there).map(|(all, there)| all.checked_sub(*there)).collect();
            let rest = before.get(&rest?)?;
            (rest.saturating_add(most) >= value).then_some((there, most))
        })?;
        Some((has.0, has.1.min(value)))
    }

    /// Deals the devices of one node to all parties, one by one. It takes no device that leaves another party too few.
    fn deal(
        &self,
        at: usize,
        allowed: DeviceMask,
        (counts, value): &(Vec<u32>, u32),
        picks: &mut Vec<Pick>,
    ) -> Option<()> {
        let board = self.board;
        let mut members = vec![0; board.role_groups.len()];
        for (role_group, count) in self.counted.iter().zip(counts) {
            members[*role_group] = *count;
        }
        members[self.value] = *value;
        let mut masks: Vec<DeviceMask> = board
            .role_groups
            .iter()
            .map(|role_group| board.room(&role_group.request, at, allowed).0)
            .collect();
        let mut open: Vec<u32> = board
            .role_groups
            .iter()
            .zip(&members)
            .map(|(role_group, n)| role_group.request.needs.devices * n)
            .collect();
        for role in (0..board.role_groups.len()).filter(|role| members[*role] > 0) {
            let mut taken = DeviceMask::EMPTY;
            while open[role] > 0 {
                let mut free: Vec<u32> = masks[role].iter().collect();
                free.sort_by_key(|device| {
                    (masks.iter().filter(|mask| mask.contains(*device)).count(), *device)
                });
                open[role] -= 1;
                let device = free.into_iter().find(|device| {
                    let rest: Vec<DeviceMask> =
                        masks.iter().map(|mask| mask.minus(DeviceMask::one(*device))).collect();
                    is_enough(&rest, &open)
                })?;
                taken = taken.union(DeviceMask::one(device));
                masks.iter_mut().for_each(|mask| *mask = mask.minus(taken));
            }
            picks.push(Pick { role: role as u16, ..Pick::new(at as u32, members[role], taken) });
        }
        Some(())
    }
}

/// Hall's condition: for every set of parties, the devices that they may have between them are as many as they want.
fn is_enough(masks: &[DeviceMask], wanted: &[u32]) -> bool {
    (1_u32..1 << masks.len()).all(|set| {
        let inside = |role_group: &usize| set >> role_group & 1 == 1;
        let role_groups = || (0..masks.len()).filter(inside).filter(|role_group| wanted[*role_group] > 0);
        let devices = role_groups().fold(DeviceMask::EMPTY, |all, role_group| all.union(masks[role_group]));
        role_groups().map(|role_group| wanted[role_group]).sum::<u32>() <= devices.count()
    })
}

/// The properties of a node that count: equal nodes are solved once.
struct Node {
    rooms: Vec<u32>,
    /// By set of parties, a bit each: the devices that some of them may have.
    devices: Vec<u32>,
    /// No more than all parties could use.
    amounts: Vec<i64>,
}

impl Node {
    fn new(board: &RoleProblem<'_>, node: usize, rooms: &[(DeviceMask, u32)]) -> Self {
        let devices = (0_u32..1 << rooms.len()).map(|set| {
            let inside = (0..rooms.len()).filter(|role_group| set >> role_group & 1 == 1);
            let with = inside.filter(|role_group| board.role_groups[*role_group].request.needs.devices > 0);
            with.fold(DeviceMask::EMPTY, |all, role_group| all.union(rooms[role_group].0)).count()
        });
        let amounts = (0..board.role_groups[0].amounts.len()).map(|which| {
            let used = board.role_groups.iter().zip(rooms);
            let used = used
                .map(|(role_group, (_, room))| role_group.amounts[which].saturating_mul(u64::from(*room)));
            let most = used.fold(0, u64::saturating_add);
            board.amount(node, which).min(i64::try_from(most).unwrap_or(i64::MAX))
        });
        Self {
            rooms: rooms.iter().map(|(_, room)| *room).collect(),
            devices: devices.collect(),
            amounts: amounts.collect(),
        }
    }

    fn key(&self) -> Vec<i64> {
        let counts = self.rooms.iter().chain(&self.devices).map(|count| i64::from(*count));
        counts.chain(self.amounts.iter().copied()).collect()
    }

    /// The most members of one party beside the given numbers of the others; `None` if these do not fit.
    fn most(&self, board: &RoleProblem<'_>, members: &[u32], role_group: usize) -> Option<u32> {
        let mut most = self.rooms[role_group];
        for (which, free) in self.amounts.iter().enumerate() {
            let used = board.role_groups.iter().zip(members);
            let used = used.map(|(role_group, n)| role_group.amounts[which].saturating_mul(u64::from(*n)));
            let used = used.fold(0, u64::saturating_add);
            if used > 0 && free.checked_sub_unsigned(used).is_none_or(|left| left < 0) {
                return None;
            }
            let left = free.saturating_sub_unsigned(used).max(0).cast_unsigned();
            if let Some(fits) = left.checked_div(board.role_groups[role_group].amounts[which]) {
                most = most.min(u32::try_from(fits).unwrap_or(u32::MAX));
            }
        }
        let each = |role_group: usize| board.role_groups[role_group].request.needs.devices;
        for (set, devices) in self.devices.iter().enumerate() {
            let inside = (0..members.len()).filter(|other| set >> other & 1 == 1 && *other != role_group);
            let taken: u32 = inside.map(|other| members[other] * each(other)).sum();
            let left = devices.checked_sub(taken);
            if set >> role_group & 1 == 1 {
                if let Some(fits) = left.unwrap_or(0).checked_div(each(role_group)) {
                    most = most.min(fits);
                }
            } else {
                left?;
            }
        }
        Some(most)
    }
}
