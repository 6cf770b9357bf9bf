//! Every placement, one by one.

use super::problem::{Best, Problem, Toll};

/// Calls `visit` with every allowed placement: a choice for each node, and the time.
pub(super) fn each(problem: &Problem<'_>, visit: &mut dyn FnMut(&[usize], u64)) {
    let room = problem.room();
    descend(problem, &room, &mut Vec::new(), 0, Toll::FREE, visit);
}

fn descend(
    problem: &Problem<'_>,
    room: &[u32],
    chosen: &mut Vec<usize>,
    placed: u32,
    toll: Toll,
    visit: &mut dyn FnMut(&[usize], u64),
) {
    let node = chosen.len();
    let wanted = problem.rules.members - placed;
    if wanted > room[node] {
        return;
    }
    let Some(choices) = problem.choices.get(node) else {
        if let Some(ns) = whole(problem, chosen, toll) {
            visit(chosen, ns);
        }
        return;
    };
    for (index, choice) in choices.iter().enumerate().filter(|(_, choice)| choice.members <= wanted) {
        chosen.push(index);
        descend(problem, room, chosen, placed + choice.members, toll.and(choice.toll), visit);
        chosen.pop();
    }
}

/// The time of a whole placement; none when a domain or a segment forbids it.
fn whole(problem: &Problem<'_>, chosen: &[usize], nodes: Toll) -> Option<u64> {
    let rules = &problem.rules;
    let members = |node: usize| problem.choices[node][chosen[node]].members;
    let node_depth = problem.map.homes.first().map_or(1, |home| home.len() + 1);
    let mut rests = 0;
    let mut count = |depth: usize, members: u32| {
        let new = rules.rests(depth, members);
        let is_good = rules.allow(depth, members) && rests & new == 0;
        rests |= new;
        is_good
    };
    let mut toll = nodes;
    for domain in &problem.map.domains {
        let inside = domain.nodes.clone().map(members).sum();
        toll = toll.and(domain.toll(rules, inside));
        if !count(domain.depth, inside) {
            return None;
        }
    }
    (0..chosen.len()).all(|node| count(node_depth, members(node))).then(|| rules.time_ns(toll))
}

/// How many placements there are, whatever the domains forbid; stops counting at `most`.
pub(super) fn count(problem: &Problem<'_>, most: u64) -> u64 {
    let members = problem.rules.members as usize;
    let mut ways = vec![0_u64; members + 1];
    ways[0] = 1;
    for choices in &problem.choices {
        let mut next = vec![0_u64; members + 1];
        for choice in choices.iter() {
            for (before, count) in ways.iter().enumerate() {
                if let Some(sum) = next.get_mut(before + choice.members as usize) {
                    *sum = sum.saturating_add(*count).min(most);
                }
            }
        }
        ways = next;
    }
    ways[members]
}

/// The best of all.
pub(super) fn best(problem: &Problem<'_>) -> Option<Best> {
    let mut best: Option<(u64, Vec<usize>)> = None;
    each(problem, &mut |chosen, ns| {
        if best.as_ref().is_none_or(|(least, _)| ns < *least) {
            best = Some((ns, chosen.to_vec()));
        }
    });
    best.map(|(ns, chosen)| Best { ns, used: problem.used(chosen.into_iter().enumerate()) })
}
