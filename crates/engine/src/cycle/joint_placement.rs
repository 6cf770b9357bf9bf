//! Gangs that start in one step are placed jointly: the gain of one gang by another placement must not cost the others
//! more.

use phalanx_model::{GangId, Placement};

use super::facts::Facts;

use crate::cluster::space::{Pick, Space};
use crate::cluster::tree::Tree;
use crate::placement::{Ceiling, Search, placement};

/// Searches for better placements in one step: some milliseconds in a large cluster.
const SEARCHES_MAX: u32 = 1_000;
/// The number of searches that the search for a grid counts for: it chooses among hundreds of placements.
const GRID_SEARCHES: u32 = 100;
/// If more gangs start at once, they are not compared with each other.
const GANGS_MAX: usize = 32;

/// A gang that starts, and its placement.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) gang: GangId,
    /// The number of members, without those of roles.
    pub(super) size: u32,
    pub(super) ceiling: Ceiling,
    pub(super) picks: Vec<Pick>,
    /// See [`Search::order`].
    pub(super) order: Vec<u32>,
    pub(super) time_ns: u64,
}

impl Choice {
    /// Whether all members of the gang are in the placement that other gangs were preempted for.
    pub(super) fn is_in(&self, place: &Placement) -> bool {
        place.slots.len() == self.picks.iter().map(|pick| pick.members as usize).sum::<usize>()
    }

    pub(super) fn placement(&self, ledger: &dyn Facts) -> Option<Placement> {
        let gang = ledger.gang(self.gang)?;
        let sized = (gang.size != self.size).then(|| gang.of_size(self.size));
        placement(ledger.hardware().tree, &self.picks, &self.order, sized.as_ref().unwrap_or(gang))
    }
}

/// Takes two or three gangs out at a time and puts them back in another order, as long as that lowers the sum of their
/// times; on the way it tries whether a pending gang fits. Gangs of different priority are not weighed against each
/// other. `space` holds all of `chosen`; those of `waiting` that start are moved there.
pub(super) fn improve(
    ledger: &dyn Facts,
    search: &mut Search,
    space: &mut Space,
    chosen: &mut Vec<Choice>,
    waiting: &mut Vec<(GangId, Ceiling)>,
) {
    if chosen.len() > GANGS_MAX {
        return;
    }
    let mut board = JointSearch { tree: ledger.hardware().tree, ledger, search, space, left: SEARCHES_MAX };
    let mut is_better = true;
    while is_better && board.left > 0 {
        is_better = board.largest_first(chosen);
        for size in [2, 3] {
            let mut group = Group::first(size);
            while let Some(members) = group.within(chosen.len()).filter(|_| board.left > 0) {
                is_better |= board.exchange(chosen, &members);
                group.advance(chosen.len());
            }
        }
        waiting.retain(|waits| {
            let is_placed = board.let_in(chosen, *waits);
            is_better |= is_placed;
            !is_placed
        });
    }
}

/// Restores an earlier choice.
pub(super) fn put_back(ledger: &dyn Facts, space: &mut Space, chosen: &[Choice], before: &[Choice]) {
    book_all(ledger, space, chosen, false);
    book_all(ledger, space, before, true);
}

fn book_all(ledger: &dyn Facts, space: &mut Space, choices: &[Choice], is_taken: bool) {
    let tree = ledger.hardware().tree;
    for (Choice { picks, .. }, gang) in
        choices.iter().filter_map(|choice| Some((choice, ledger.gang(choice.gang)?)))
    {
        if is_taken {
            space.take(tree, picks, gang);
        } else {
            space.give_back(tree, picks, gang);
        }
        space.load(tree, picks, gang, is_taken);
    }
}

/// Up to three gangs of a list, every combination once.
#[derive(Clone, Debug)]
struct Group {
    members: Vec<usize>,
}

impl Group {
    fn first(size: usize) -> Self {
        Self { members: (0..size).collect() }
    }

    fn within(&self, len: usize) -> Option<Vec<usize>> {
        self.members.last().is_some_and(|last| *last < len).then(|| self.members.clone())
    }

    fn advance(&mut self, len: usize) {
        let size = self.members.len();
        let at = (0..size).rev().find(|at| self.members[*at] + size - at < len).unwrap_or(0);
        let start = self.members[at] + 1;
        for (offset, member) in self.members[at..].iter_mut().enumerate() {
            *member = start + offset;
        }
    }
}

struct JointSearch<'a> {
    tree: &'a Tree,
    ledger: &'a dyn Facts,
    search: &'a mut Search,
    space: &'a mut Space,
    left: u32,
}

impl JointSearch<'_> {
    fn book_all(&mut self, choices: &[Choice], is_taken: bool) {
        book_all(self.ledger, self.space, choices, is_taken);
    }

    fn is_one_priority(&self, choices: &[Choice]) -> bool {
        let priority = |choice: &Choice| self.ledger.job(choice.gang.job).map(|job| job.priority);
        choices.windows(2).all(|pair| priority(&pair[0]) == priority(&pair[1]))
    }

    /// Places all gangs again, those with the most devices first: they have the fewest placements to choose from.
    fn largest_first(&mut self, chosen: &mut [Choice]) -> bool {
        let mut order: Vec<usize> = (0..chosen.len()).collect();
        let devices = |at: &usize| chosen[*at].picks.iter().map(|pick| pick.devices.count()).sum::<u32>();
        order.sort_by_key(|at| (std::cmp::Reverse(devices(at)), *at));
        self.in_order(chosen, &order)
    }

    /// Whether another order of some gangs lowers the sum of their times.
    fn exchange(&mut self, chosen: &mut [Choice], members: &[usize]) -> bool {
        let orders: &[&[usize]] = match members {
            [a, b] => &[&[*b, *a], &[*a, *b]],
            [a, b, c] => &[&[*c, *b, *a], &[*b, *c, *a], &[*c, *a, *b]],
            _ => &[],
        };
        orders.iter().any(|order| self.in_order(chosen, order))
    }

    /// Takes these gangs out and puts them back in this order; undone if the sum of their times is not less.
    fn in_order(&mut self, chosen: &mut [Choice], order: &[usize]) -> bool {
        let old: Vec<Choice> = order.iter().map(|at| chosen[*at].clone()).collect();
        if old.len() < 2 || !self.is_one_priority(&old) {
            return false;
        }
        self.book_all(&old, false);
        let before = old.iter().fold(0_u64, |sum, choice| sum.saturating_add(choice.time_ns));
        let mut new = Vec::with_capacity(old.len());
        let mut sum = 0_u64;
        for choice in &old {
            let Some(found) = self.find(choice.gang, choice.ceiling) else { break };
            sum = sum.saturating_add(found.time_ns);
            if sum >= before {
                break;
            }
            self.book_all(std::slice::from_ref(&found), true);
            new.push(found);
        }
        if new.len() == old.len() {
            for (at, choice) in order.iter().zip(new) {
                chosen[*at] = choice;
            }
            return true;
        }
        self.book_all(&new, false);
        self.book_all(&old, true);
        false
    }

    /// Whether a pending gang fits if a starting gang moves elsewhere.
    fn let_in(&mut self, chosen: &mut Vec<Choice>, (gang, ceiling): (GangId, Ceiling)) -> bool {
        for at in 0..chosen.len() {
            let old = chosen[at].clone();
            if self.left == 0 {
                return false;
            }
            self.book_all(std::slice::from_ref(&old), false);
            if let Some(new) = self.find(gang, ceiling) {
                let pair = [new.clone(), old.clone()];
                self.book_all(std::slice::from_ref(&new), true);
                if let Some(moved) = self.find(old.gang, old.ceiling).filter(|_| self.is_one_priority(&pair))
                {
                    self.book_all(std::slice::from_ref(&moved), true);
                    chosen[at] = moved;
                    chosen.push(new);
                    return true;
                }
                self.book_all(std::slice::from_ref(&new), false);
            }
            self.book_all(std::slice::from_ref(&old), true);
        }
        false
    }

    fn find(&mut self, gang: GangId, ceiling: Ceiling) -> Option<Choice> {
        let wanted = self.ledger.wanted(gang)?;
        self.left = self.left.saturating_sub(if wanted.grid.is_empty() { 1 } else { GRID_SEARCHES });
        let found = self.search.place(self.tree, self.space, &wanted, ceiling)?;
        let picks = self.search.picks().to_vec();
        Some(Choice {
            gang,
            size: wanted.size,
            ceiling,
            picks,
            order: self.search.order().to_vec(),
            time_ns: found.cost.time_ns,
        })
    }
}
