//! The requirements that a pending gang could give up to start now.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::later::Calendar;
use phalanx_model::{DeviceMask, Gang, GangId, Needs, Node, NodeName, Rule, Timestamp, Unblock};

use crate::cluster::{Free, LevelAt};
use crate::ledger::Ledger;
use crate::placement::{Ceiling, Search, domain_of_picks, with_spares};

/// The nearest level outwards of `from` at which the gang starts now, the domain, and how much longer its collective
/// takes there than at the requested level.
pub(super) fn relaxed(ledger: &Ledger, gang: &Gang, from: LevelAt) -> Option<Unblock> {
    let tree = ledger.tree();
    let mut search = Search::default();
    let outward = (0..tree.domains.len()).rev().map(LevelAt::Above);
    let wider = [LevelAt::Node].into_iter().chain(outward).filter(|level| *level < from);
    let mut found = wider.filter_map(|level| {
        let found = search.place(tree, ledger.space(), gang, Ceiling(level))?;
        Some((level, found.cost.time_ns, domain_of_picks(tree, search.picks())?))
    });
    let (level, time_ns, domain) = found.next()?;
    drop(found);
    let asked = search.place(tree, ledger.hardware().empty_opened, gang, Ceiling(from));
    let times_milli = asked.and_then(|asked| {
        let milli = u128::from(time_ns) * 1_000;
        u64::try_from(milli.checked_div(u128::from(asked.cost.time_ns))?).ok()
    });
    Some(Unblock::RelaxTo { level: tree.level_name(level), domain, times_milli })
}

/// The constraints of which any one, given up, lets the gang start now.
pub(super) fn without(ledger: &Ledger, gang: &Gang) -> Vec<Unblock> {
    let tree = ledger.tree();
    let ceiling = Ceiling(tree.level_of_required(gang));
    let mut search = Search::default();
    let fits = |easier: &Gang| search.place(tree, ledger.space(), easier, ceiling).is_some();
    let mut easier = easier(gang);
    if ledger.keeps_nodes_free() {
        easier.push((Rule::Spares, with_spares(gang)));
    }
    let mut fits = fits;
    easier.retain(|(_, gang)| fits(gang));
    easier.into_iter().map(|(rule, _)| Unblock::Without { rule }).collect()
}

/// The devices that the health of their nodes closes and that would let the gang start now.
pub(super) fn repaired(ledger: &Ledger, gang: &Gang) -> Option<Unblock> {
    let tree = ledger.tree();
    let closed_of = |node: &Node| node.health.closed_devices().minus(node.foreign);
    let closed: BTreeMap<u32, DeviceMask> = ledger
        .nodes()
        .filter(|node| !closed_of(node).is_empty())
        .filter_map(|node| Some((u32::try_from(tree.index_of(&node.name)?).ok()?, closed_of(node))))
        .collect();
    if closed.is_empty() {
        return None;
    }
    let mut space = ledger.space().clone();
    let of = |node: u32| closed.get(&node).copied().unwrap_or_default();
    space.put(tree, closed.keys().copied(), |node, free| Free {
        devices: free.devices.union(of(node)),
        ..free
    });
    let mut search = Search::default();
    search.place(tree, &space, gang, Ceiling(tree.level_of_required(gang)))?;
    let mut used: BTreeMap<NodeName, DeviceMask> = BTreeMap::new();
    for pick in search.picks() {
        let devices = pick.devices.and(of(pick.node));
        if let Some(node) = tree.nodes.get(pick.node as usize).filter(|_| !devices.is_empty()) {
            let of_node = used.entry(node.name.clone()).or_default();
            *of_node = of_node.union(devices);
        }
    }
    (!used.is_empty()).then(|| Unblock::Repair { closed: used.into_iter().collect() })
}

/// When the first gang that may be preempted for it has run for its least time, if it has not yet.
pub(super) fn preemptible(ledger: &Ledger, id: GangId) -> Option<Unblock> {
    let (job, amounts) = (ledger.job(id.job)?, ledger.least_of(id)?);
    let queues = ledger.queues();
    let (queue, rank, level) = (queues.find(&job.queue)?, queues.rank_of(job), queues.level_of(id));
    if !queues.class_of(job)?.may_preempt
        || queues.is_unrivalled(queue, rank) && !queues.has_served_more(queue, rank, level)
    {
        return None;
    }
    let at = queues.up_to_date().first_below(queue, (rank, level), &amounts, ledger.now())?;
    (ledger.now() < at && at < Timestamp::MAX).then_some(Unblock::Preempt { at })
}

/// Time limits are said in whole minutes.
const MINUTE_MS: u64 = 60_000;

/// The longest time limit with which the gang starts now: it ends before what it then uses is reserved for others.
pub(super) fn shorter(ledger: &Ledger, id: GangId, gang: &Gang) -> Option<Unblock> {
    let (tree, share_milli) = (ledger.tree(), ledger.queues().hold_idle_milli());
    let mut search = Search::default();
    let mut space = ledger.space().clone();
    let mut holds = ledger.reserved_for_others(id);
    // The later others begin, the longer it may run.
    holds.sort_by_key(|hold| Reverse(hold.begins(share_milli)));
    let ceiling = Ceiling(tree.level_of_required(gang));
    let enough = holds.iter_mut().find_map(|hold| {
        hold.unbook(tree, &mut space);
        search.place(tree, &space, gang, ceiling).map(|_| hold.begins(share_milli))
    });
    limit_until(ledger, id, enough?)
}

/// The longest time limit with which a gang that starts now has ended by a time, if that is a shorter one.
fn limit_until(ledger: &Ledger, id: GangId, end: Timestamp) -> Option<Unblock> {
    let policy = &ledger.job(id.job)?.policy;
    let around_ms = policy.start_deadline_ms.saturating_add(policy.stop.grace_ms);
    let limit_ms = end.since(ledger.now()).checked_sub(around_ms)? / MINUTE_MS * MINUTE_MS;
    let is_shorter = policy.time_limit_ms.is_none_or(|now_ms| limit_ms < now_ms);
    (limit_ms > 0 && is_shorter).then_some(Unblock::ShorterLimit { limit_ms })
}

/// What would let a gang start now that windows of the calendar keep from nodes: that those which have no end are called off,
/// and a time limit that ends before the first of them begins.
pub(super) fn around_windows(ledger: &Ledger, id: GangId, gang: &Gang) -> Vec<Unblock> {
    let (tree, windows, now) = (ledger.tree(), ledger.windows(), ledger.now());
    let mut search = Search::default();
    // Between cycles no window closes a node.
    let space = ledger.space_beside_others(id);
    if search.place(tree, &space, gang, Ceiling(tree.level_of_required(gang))).is_none() {
        return Vec::new();
    }
    let names = search.picks().iter().filter_map(|pick| Some(&tree.nodes.get(pick.node as usize)?.name));
    let nodes: BTreeSet<&NodeName> = names.collect();
    let closing = || {
        let of_nodes = nodes.iter().flat_map(|node| windows.of(node));
        of_nodes.filter(|window| window.ends_at > now)
    };
    let mut ways = Vec::new();
    if closing().all(Calendar::is_open_ended) {
        let nodes: BTreeSet<NodeName> = closing().map(|window| window.node.clone()).collect();
        ways.extend((!nodes.is_empty()).then(|| Unblock::Uncordon { nodes: nodes.into_iter().collect() }));
    }
    let begins_at = closing().map(|window| window.begins_at).min();
    ways.extend(begins_at.and_then(|begins_at| limit_until(ledger, id, begins_at)));
    ways
}

/// The gang without each of its constraints.
fn easier(gang: &Gang) -> Vec<(Rule, Gang)> {
    let mut all = Vec::new();
    let mut give_up = |rule: Rule, change: &dyn Fn(&mut Gang)| {
        let mut easier = gang.clone();
        change(&mut easier);
        all.push((rule, easier));
    };
    for (at, segment) in gang.topology.segments.iter().enumerate() {
        give_up(Rule::Segment(segment.clone()), &|g| drop(g.topology.segments.remove(at)));
    }
    for (at, spread) in gang.topology.spread.iter().enumerate() {
        give_up(Rule::Spread(spread.clone()), &|g| drop(g.topology.spread.remove(at)));
    }
    for (at, role) in gang.roles.iter().enumerate() {
        give_up(Rule::Role(role.name.clone()), &|g| g.drop_role(at));
    }
    if let Some(each) = gang.members_per_node {
        give_up(Rule::MembersPerNode(each), &|g| g.members_per_node = None);
    }
    let needs = &gang.needs;
    if needs.is_exclusive {
        give_up(Rule::Exclusive, &|g| g.needs.is_exclusive = false);
    }
    if !needs.models.is_empty() {
        let models = needs.models.iter().map(|need| need.model.clone()).collect();
        give_up(Rule::Models(models), &|g| g.needs.models.clear());
    }
    for name in needs.named.keys() {
        give_up(Rule::Named(name.clone()), &|g| {
            g.needs.named.remove(name);
        });
    }
    if !needs.nodes.is_empty() {
        give_up(Rule::Nodes, &|g| g.needs.nodes.clear());
    }
    if !needs.avoid.is_empty() {
        give_up(Rule::Avoid, &|g| g.needs.avoid.clear());
    }
    if needs.is_pooled() {
        give_up(Rule::Pools, &|g| g.all_needs_mut().for_each(Needs::forget_pools));
    }
    if let Some(set) = &needs.within {
        give_up(Rule::Within(set.clone()), &|g| g.needs.within = None);
    }
    all
}
