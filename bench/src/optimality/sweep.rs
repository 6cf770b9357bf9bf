//! The exact best place by a sweep: nodes are taken one by one in order of their paths, and of all ways to use the
//! nodes so far only those are kept that another one with the same future does not beat.
//!
//! The future knows how many members stand in all, how many in each domain that is still open, and which segments
//! have had their smaller part. For an all-reduce a domain's count matters less: none, all, or some, and the
//! remainder of its segments.

use std::collections::BTreeMap;

use phalanx_model::Pattern;

use super::problem::{Best, Problem, Rules, Toll};

/// Levels between root and node at most.
const OPEN_MAX: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    members: u32,
    /// Members in the open domains, outermost first.
    open: [u32; OPEN_MAX],
    /// Segments whose smaller part is placed, as bits.
    rests: u8,
}

/// One way to get to a state.
#[derive(Clone, Copy)]
struct Way {
    toll: Toll,
    /// Index into [`Sweep::steps`], where the way came from.
    last: Option<usize>,
}

struct Sweep<'a> {
    problem: &'a Problem<'a>,
    room: Vec<u32>,
    /// Node, choice, and the step before.
    steps: Vec<(usize, usize, Option<usize>)>,
}

type Ways = BTreeMap<State, Vec<Way>>;

/// The best place, or none when there is no place at all.
pub(super) fn best(problem: &Problem<'_>) -> Option<Best> {
    let mut sweep = Sweep { problem, room: problem.room(), steps: Vec::new() };
    let start = State { members: 0, open: [0; OPEN_MAX], rests: 0 };
    let mut ways = Ways::from([(start, vec![Way { toll: Toll::FREE, last: None }])]);
    for node in 0..problem.choices.len() {
        ways = sweep.take(node, &ways);
        ways = sweep.close(node, &ways);
    }
    let ends = ways.into_iter().filter(|(state, _)| state.members == problem.rules.members);
    let best = ends.flat_map(|(_, ways)| ways).min_by_key(|way| problem.rules.time_ns(way.toll))?;
    let mut chosen = Vec::new();
    let mut last = best.last;
    while let Some(step) = last {
        let (node, choice, before) = sweep.steps[step];
        chosen.push((node, choice));
        last = before;
    }
    chosen.reverse();
    Some(Best { ns: problem.rules.time_ns(best.toll), used: problem.used(chosen) })
}

impl Sweep<'_> {
    /// All ways on, with every choice of one node.
    fn take(&mut self, node: usize, ways: &Ways) -> Ways {
        let rules = &self.problem.rules;
        let levels = self.problem.map.homes[node].len();
        let mut next = Ways::new();
        for (state, ways) in ways {
            for (index, choice) in self.problem.choices[node].iter().enumerate() {
                let members = state.members + choice.members;
                let rest = rules.rests(levels + 1, choice.members);
                let is_short = members + self.room[node + 1] < rules.members;
                if members > rules.members || is_short || state.rests & rest != 0 {
                    continue;
                }
                let mut to = State { members, rests: state.rests | rest, ..*state };
                for open in &mut to.open[..levels] {
                    *open += choice.members;
                }
                simplify(rules, &mut to, levels);
                let known = next.entry(to).or_default();
                for way in ways {
                    let toll = way.toll.and(choice.toll);
                    if !is_new(known, toll) {
                        continue;
                    }
                    let mut last = way.last;
                    if choice.members > 0 {
                        self.steps.push((node, index, last));
                        last = Some(self.steps.len() - 1);
                    }
                    known.push(Way { toll, last });
                }
            }
        }
        next
    }

    /// Settles the domains whose last node this is.
    fn close(&self, node: usize, ways: &Ways) -> Ways {
        let (rules, map) = (&self.problem.rules, self.problem.map);
        let ends: Vec<usize> =
            map.homes[node].iter().copied().filter(|d| map.domains[*d].nodes.end == node + 1).collect();
        let mut next = Ways::new();
        'states: for (state, ways) in ways {
            let mut to = *state;
            let mut toll = Toll::FREE;
            for domain in &ends {
                let domain = &map.domains[*domain];
                let members = std::mem::take(&mut to.open[domain.depth - 1]);
                let rest = rules.rests(domain.depth, members);
                if !rules.allow(domain.depth, members) || to.rests & rest != 0 {
                    continue 'states;
                }
                to.rests |= rest;
                toll = toll.and(domain.toll(rules, members));
            }
            let known = next.entry(to).or_default();
            for way in ways {
                let toll = way.toll.and(toll);
                if is_new(known, toll) {
                    known.push(Way { toll, ..*way });
                }
            }
        }
        next
    }
}

/// Drops what the new way beats; whether none beats it.
fn is_new(known: &mut Vec<Way>, toll: Toll) -> bool {
    if known.iter().any(|way| way.toll.covers(toll)) {
        return false;
    }
    known.retain(|way| !toll.covers(way.toll));
    true
}

/// States with one future become one: the time of an all-reduce knows none, some and all of a domain.
fn simplify(rules: &Rules, state: &mut State, levels: usize) {
    if rules.pattern != Pattern::AllReduce {
        return;
    }
    for (depth, open) in (1..).zip(&mut state.open[..levels]) {
        if *open > 0 && *open < state.members {
            *open = (*open - 1) % rules.step(depth) + 1;
        }
    }
}
