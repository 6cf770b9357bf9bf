//! Whole groups dealt to innermost domains, and moved between them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Gang, Segment};

use super::search::GridSearch;
use crate::cluster::space::Pick;
use crate::cluster::tree::LevelAt;

/// Domains of each level that are dealt to: so many of the tightest, and so many of the roomiest.
const SCOPES_MAX: usize = 4;
/// The best hands, from which groups are moved.
const HANDS_MAX: usize = 8;

/// Blocks of ranks for every innermost domain that has some, in their order.
type Hand = Vec<(u32, u32)>;

/// An innermost domain that has room, in blocks.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    domain: u32,
    room: u32,
    /// The domain around it.
    parent: u32,
    /// The domain of the ceiling's level: a hand stays inside one.
    top: u32,
}

struct Dealer<'b, 'a> {
    board: &'b mut GridSearch<'a>,
    level: usize,
    /// Members of a block: a tensor group.
    block: u32,
    /// Of the gang.
    blocks: u32,
    leaves: Vec<Leaf>,
    /// Whole groups and several of them, in blocks, ascending.
    units: Vec<u32>,
    /// The gang with the members of one domain.
    part: Gang,
    /// The picks of a domain for a number of blocks.
    picks: BTreeMap<(u32, u32), Option<Vec<Pick>>>,
    seen: BTreeSet<Hand>,
    /// The best so far, the shortest step first; of equal ones the first.
    best: Vec<(u64, Hand)>,
}

/// Proposes places by the number of ranks in each innermost domain.
pub(super) fn deal(board: &mut GridSearch<'_>) {
    if let Some(mut dealer) = Dealer::new(board) {
        dealer.deal();
        dealer.improve();
    }
}

impl<'b, 'a> Dealer<'b, 'a> {
    /// `None` if domains cannot be filled one by one: a rule covers several of them together, or one part is smaller
    /// than the others.
    fn new(board: &'b mut GridSearch<'a>) -> Option<Self> {
        let (tree, gang) = (board.tree, board.gang);
        let level = tree.depth().checked_sub(1)?;
        let is_whole = |segment: &Segment| gang.size.is_multiple_of(segment.size.max(1));
        let in_group = |segment: &Segment| matches!(tree.level_at(&segment.level), Some(LevelAt::Group(_)));
        let segments = &gang.topology.segments;
        if !segments.iter().all(is_whole)
            || segments.iter().any(in_group)
            || board.search.is_capped(tree, gang)
        {
            return None;
        }
        let LevelAt::Above(ceiling) = board.ceiling.0 else { return None };
        let block = board.grid.together();
        let rooms = board.search.rooms(tree, board.space, gang, level);
        let leaf = |(domain, room): (u32, u32)| {
            let found = &tree.domains[level][domain as usize];
            let top = tree.domain_of(found.nodes.start, ceiling) as u32;
            Leaf { domain, room: room / block, parent: found.parent as u32, top }
        };
        let leaves = (0..).zip(rooms).map(leaf).filter(|leaf| leaf.room > 0).collect();
        // A segment of the user in one innermost domain is dealt whole.
        let kept =
            segments.iter().find(|segment| tree.level_at(&segment.level) == Some(LevelAt::Above(level)));
        let least = kept.map_or(1, |segment| segment.size / block).max(1);
        let units =
            board.units().into_iter().map(|ranks| ranks / block).filter(|unit| unit.is_multiple_of(least));
        let mut units: Vec<u32> = std::iter::once(least).chain(units).collect();
        units.dedup();
        Some(Self {
            level,
            block,
            blocks: gang.size / block,
            leaves,
            units,
            part: gang.clone(),
            picks: BTreeMap::new(),
            seen: BTreeSet::new(),
            best: Vec::new(),
            board,
        })
    }

    /// Deals the first hands. They take at most half of the budget.
    fn deal(&mut self) {
        let until = self.board.left / 2;
        let scopes = self.scopes();
        let ways = [Self::fewest_of_all, Self::rounds, Self::windows];
        for way in ways {
            for scope in &scopes {
                for unit in self.units.clone() {
                    for hand in way(self, scope, unit) {
                        if self.board.left <= until {
                            return;
                        }
                        self.consider(hand);
                    }
                }
            }
        }
    }

    /// The innermost domains inside of each that may hold the whole gang: of every level some.
    fn scopes(&self) -> Vec<Vec<Leaf>> {
        let LevelAt::Above(ceiling) = self.board.ceiling.0 else { return Vec::new() };
        let tree = self.board.tree;
        let mut scopes = Vec::new();
        for level in ceiling..=self.level {
            let around = |leaf: &Leaf| {
                let nodes = &tree.domains[self.level][leaf.domain as usize].nodes;
                tree.domain_of(nodes.start, level)
            };
            let of_level = self.leaves.chunk_by(|a, b| around(a) == around(b));
            let mut of_level: Vec<Vec<Leaf>> = of_level.map(<[Leaf]>::to_vec).collect();
            of_level.retain(|scope| room(scope) >= self.blocks);
            of_level.sort_by_key(|scope| room(scope));
            let middle = SCOPES_MAX..of_level.len().saturating_sub(SCOPES_MAX).max(SCOPES_MAX);
            if middle.end <= of_level.len() {
                of_level.drain(middle);
            }
            scopes.extend(of_level);
        }
        scopes
    }

    /// Few domains of the scope, and few inside the fewest domains around them.
    fn fewest_of_all(&self, scope: &[Leaf], unit: u32) -> Vec<Hand> {
        let whole = |leaves: &[Leaf]| leaves.iter().map(|leaf| leaf.room / unit * unit).sum::<u32>();
        let mut around: Vec<&[Leaf]> = scope.chunk_by(|a, b| a.parent == b.parent).collect();
        around.sort_by_key(|leaves| (Reverse(whole(leaves)), room(leaves)));
        let mut inside: Vec<Leaf> = Vec::new();
        let mut left = self.blocks;
        for (at, leaves) in around.iter().enumerate() {
            let holding = around.iter().skip(at).filter(|leaves| whole(leaves) >= left);
            let tightest = holding.min_by_key(|leaves| (whole(leaves), room(leaves)));
            inside.extend_from_slice(tightest.unwrap_or(leaves));
            left = left.saturating_sub(whole(leaves));
            if tightest.is_some() {
                break;
            }
        }
        [scope, &inside].into_iter().filter_map(|scope| self.fewest(scope, unit)).collect()
    }

    /// Few domains, each with whole units: those that hold the most, and last the tightest that holds the rest.
    fn fewest(&self, scope: &[Leaf], unit: u32) -> Option<Hand> {
        let mut order = scope.to_vec();
        order.sort_by_key(|leaf| (Reverse(leaf.room / unit), leaf.room, leaf.domain));
        let mut left = self.blocks;
        let mut hand = Hand::new();
        for (at, leaf) in order.iter().enumerate() {
            let holding = order.iter().skip(at).filter(|leaf| leaf.room >= left);
            if let Some(tightest) = holding.min_by_key(|leaf| (leaf.room, leaf.domain)) {
                hand.push((tightest.domain, left));
                hand.sort_unstable();
                return Some(hand);
            }
            let whole = leaf.room / unit * unit;
            if whole == 0 {
                return None;
            }
            hand.push((leaf.domain, whole));
            left -= whole;
        }
        None
    }

    /// Domains side by side, as many as a power of two, and of each such number those with least room.
    fn windows(&self, scope: &[Leaf], unit: u32) -> Vec<Hand> {
        let widths = std::iter::successors(Some(1_usize), |width| width.checked_mul(2));
        let widths = widths.take_while(|width| *width < scope.len());
        let hand = |width: usize| {
            let whole = |window: &&[Leaf]| {
                window.iter().map(|leaf| leaf.room / unit * unit).sum::<u32>() >= self.blocks
            };
            let tightest = scope.chunks(width).filter(whole).min_by_key(|window| room(window));
            self.fewest(tightest?, unit)
        };
        widths.filter_map(hand).collect()
    }

    /// Round after round one unit to each of the roomiest two, four, ... domains.
    fn rounds(&self, scope: &[Leaf], unit: u32) -> Vec<Hand> {
        let mut order = scope.to_vec();
        order.sort_by_key(|leaf| (Reverse(leaf.room / unit), leaf.domain));
        let widths = std::iter::successors(Some(2_usize), |width| width.checked_mul(2));
        let widths = widths.take_while(|width| *width < order.len() * 2);
        let hand = |width: usize| {
            let chosen = order.get(..width).unwrap_or(&order);
            let mut hand: Hand = chosen.iter().map(|leaf| (leaf.domain, 0)).collect();
            let mut left = self.blocks;
            while left > 0 {
                let before = left;
                for ((_, blocks), leaf) in hand.iter_mut().zip(chosen) {
                    let here = unit.min(left);
                    if *blocks + here <= leaf.room {
                        *blocks += here;
                        left -= here;
                    }
                }
                if left == before {
                    return None;
                }
            }
            hand.retain(|(_, blocks)| *blocks > 0);
            hand.sort_unstable();
            Some(hand)
        };
        widths.filter_map(hand).collect()
    }

    /// The time of a step with a hand; `None` if the hand was considered before, or fits nowhere.
    fn consider(&mut self, hand: Hand) -> Option<u64> {
        if !self.seen.insert(hand.clone()) {
            return None;
        }
        let mut picks = Vec::new();
        for of_domain in &hand {
            picks.extend_from_slice(self.picks(*of_domain)?);
        }
        let ns = self.board.consider(picks)?;
        let at = self.best.partition_point(|(least, _)| *least < ns);
        if at < HANDS_MAX && self.best.get(at).is_none_or(|(least, _)| *least > ns) {
            self.best.insert(at, (ns, hand));
            self.best.truncate(HANDS_MAX);
        }
        Some(ns)
    }

    fn picks(&mut self, (domain, blocks): (u32, u32)) -> Option<&[Pick]> {
        let Self { board, part, picks, block, level, .. } = self;
        let found = picks.entry((domain, blocks)).or_insert_with(|| {
            part.size = blocks * *block;
            let mut picks = Vec::new();
            let at = (*level, domain as usize);
            board.search.place_in(board.tree, board.space, part, at, &mut picks).then_some(picks)
        });
        found.as_deref()
    }

    /// Moves groups from one domain to another while the step gets shorter, beginning with each of the best hands.
    fn improve(&mut self) {
        for (mut ns, mut hand) in self.best.clone() {
            while let Some(better) = self.better(ns, &hand) {
                (ns, hand) = better;
            }
        }
    }

    /// The first move that makes a step shorter.
    fn better(&mut self, ns: u64, hand: &Hand) -> Option<(u64, Hand)> {
        for (from, held) in hand {
            // All that a domain has, or a part of it.
            let parts = self.units.iter().copied().filter(|unit| unit < held);
            let units: Vec<u32> = parts.chain([*held]).collect();
            for unit in units.into_iter().rev() {
                for to in self.targets(hand, *from, unit) {
                    if self.board.left == 0 {
                        return None;
                    }
                    let next = moved(hand, *from, to, unit);
                    if let Some(found) = self.consider(next.clone()).filter(|found| *found < ns) {
                        return Some((found, next));
                    }
                }
            }
        }
        None
    }

    /// The domains that so many blocks could move to: those of the hand, and of the others the tightest and the
    /// roomiest, nearby and elsewhere.
    fn targets(&self, hand: &Hand, from: u32, unit: u32) -> Vec<u32> {
        let held = |domain: u32| {
            let at = hand.binary_search_by_key(&domain, |(domain, _)| *domain).ok()?;
            hand.get(at).map(|(_, blocks)| *blocks)
        };
        let rest = self.leaves.iter().filter(|leaf| held(leaf.domain).is_some() && leaf.domain != from);
        let top = self.leaves.iter().find(|leaf| leaf.domain == from).map(|leaf| leaf.top);
        let mut around: Vec<u32> = rest.map(|leaf| leaf.parent).collect();
        around.dedup();
        let mut targets = Vec::new();
        // Of the other domains: near and far, the tightest and the roomiest.
        let mut others: [[Option<Leaf>; 2]; 2] = [[None; 2]; 2];
        for leaf in &self.leaves {
            let there = held(leaf.domain);
            let is_inside = Some(leaf.top) == top && leaf.domain != from;
            if !is_inside || leaf.room - there.unwrap_or(0) < unit {
                continue;
            }
            if there.is_some() {
                targets.push(leaf.domain);
                continue;
            }
            let [tightest, roomiest] = &mut others[usize::from(!around.contains(&leaf.parent))];
            if tightest.is_none_or(|found| leaf.room < found.room) {
                *tightest = Some(*leaf);
            }
            if roomiest.is_none_or(|found| leaf.room >= found.room) {
                *roomiest = Some(*leaf);
            }
        }
        targets.extend(others.into_iter().flatten().flatten().map(|leaf| leaf.domain));
        targets
    }
}

/// Blocks of all of them.
fn room(leaves: &[Leaf]) -> u32 {
    leaves.iter().fold(0, |sum: u32, leaf| sum.saturating_add(leaf.room))
}

fn moved(hand: &Hand, from: u32, to: u32, unit: u32) -> Hand {
    let mut next: BTreeMap<u32, u32> = hand.iter().copied().collect();
    if let Some(held) = next.get_mut(&from) {
        *held -= unit;
    }
    *next.entry(to).or_insert(0) += unit;
    next.into_iter().filter(|(_, blocks)| *blocks > 0).collect()
}
