//! Who, where, when: the planner. It reads the books and finds places; only the ledger changes them.

#![allow(
    clippy::cast_possible_truncation,
    reason = "nodes, domains, levels and classes: far fewer than 2^32"
)]

mod grids;
mod kind;
mod named;
mod pack;
mod parts;
mod request;
mod roles;
mod search;
mod shape;
mod slices;
mod space;
mod together;
mod traffic;
mod tree;

use phalanx_model::{Gang, GangId, GangRecord, Outcome, Phase, Reason, Timestamp};

pub(crate) use grids::{check as check_grid, gain as grid_gain};
pub(crate) use search::{
    Ceiling, Cost, LEVELS_MAX, Search, Sort, best_fit, domain_of_picks, place, placement,
};
pub(crate) use slices::refused as refused_slice;
pub(crate) use space::{Pick, Space};
use together::Choice;
pub(crate) use tree::{LevelAt, Tree};

pub use parts::{Instance, Reshape};
pub(crate) use parts::{refused as refused_part, reshapes};
pub use space::Piece;
pub use tree::Free;

use crate::Config;
use crate::ledger::Ledger;

/// Places the pending gangs, first come first, each whole or not at all.
///
/// A gang that does not fit does not stop the ones behind it, so that nothing idles; but each time one of
/// those takes capacity that it could have used, that is counted, and after `bypass_max` times it goes
/// first and the others wait.
pub(crate) fn compute(ledger: &mut Ledger, order: &[GangId], config: Config, out: &mut Outcome) {
    if order.is_empty() {
        return;
    }
    let mut search = ledger.lend_search();
    // Until nothing more starts, so that every reason is about what is free in the end.
    let reasons = loop {
        let mut pass = Pass::new(ledger, &mut search, config);
        order.iter().for_each(|gang| pass.look_at(*gang));
        if pass.chosen.is_empty() {
            break pass.reasons;
        }
        pass.improve();
        let Pass { chosen, passed_over, .. } = pass;
        for choice in chosen {
            if let Some(placement) = choice.placement(ledger) {
                ledger.start(choice.gang, placement, out);
            }
        }
        passed_over.into_iter().for_each(|ahead| ledger.count_bypass(ahead));
    };
    ledger.return_search(search);
    for (gang, reason) in reasons {
        ledger.set_reason(gang, reason, out);
    }
}

/// One look at every pending gang. What it chooses is taken in a space of its own until the end.
struct Pass<'a> {
    ledger: &'a Ledger,
    search: &'a mut Search,
    config: Config,
    space: Space,
    chosen: Vec<Choice>,
    /// Those that wait for capacity. The first is the head of the line; others may have been it before.
    waiting: Vec<GangId>,
    /// Heads of the line, each as often as something went ahead that it could have used.
    passed_over: Vec<GangId>,
    reasons: Vec<(GangId, Reason)>,
}

impl<'a> Pass<'a> {
    fn new(ledger: &'a Ledger, search: &'a mut Search, config: Config) -> Self {
        let space = ledger.space().clone();
        let (chosen, waiting, passed_over, reasons) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { ledger, search, config, space, chosen, waiting, passed_over, reasons }
    }

    fn look_at(&mut self, id: GangId) {
        let (Some(gang), Some(record)) = (self.ledger.gang(id), self.ledger.record(id)) else { return };
        if !record.is_pending() {
            return;
        }
        match try_place(self.ledger, self.search, &self.space, id) {
            Verdict::Wait(reason) => {
                if waits_for_capacity(&reason) {
                    self.waiting.push(id);
                }
                self.reasons.push((id, reason));
            }
            Verdict::Go(ceiling, cost) => {
                let (picks, order) = (self.search.picks().to_vec(), self.search.order().to_vec());
                let held_back: Vec<GangId> = self.held_back().collect();
                if let Some(ahead) = held_back.into_iter().find(|ahead| self.harms(*ahead, gang, &picks)) {
                    self.reasons.push((id, Reason::Priority { ahead, at: None }));
                    return;
                }
                let head = self.waiting.first().copied().filter(|head| self.harms(*head, gang, &picks));
                self.passed_over.extend(head);
                let tree = self.ledger.tree();
                self.space.take(tree, &picks, gang);
                self.space.load(tree, &picks, gang, true);
                self.chosen.push(Choice { gang: id, ceiling, picks, order, time_ns: cost.time_ns });
            }
        }
    }

    /// Those that wait and were passed over as often as is fair.
    fn held_back(&self) -> impl Iterator<Item = GangId> + '_ {
        let times = |ahead: &GangId| {
            let now = self.passed_over.iter().filter(|head| *head == ahead).count();
            bypassed(self.ledger, *ahead).saturating_add(u32::try_from(now).unwrap_or(u32::MAX))
        };
        self.waiting.iter().copied().filter(move |ahead| times(ahead) >= self.config.bypass_max)
    }

    /// Whether taking these places takes something that the head of the line could use.
    fn harms(&mut self, head: GangId, gang: &Gang, picks: &[Pick]) -> bool {
        let Some(waiting) = self.ledger.gang(head) else { return false };
        let tree = self.ledger.tree();
        let required = tree.level_of_required(waiting);
        let before = self.search.most(tree, &self.space, waiting, required).0;
        self.space.take(tree, picks, gang);
        let after = self.search.most(tree, &self.space, waiting, required).0;
        self.space.give_back(tree, picks, gang);
        after < before
    }

    /// Several gangs that start at once are placed for all of them; not while one must not be passed over, for what
    /// moves could take its place.
    fn improve(&mut self) {
        if self.held_back().next().is_some() {
            return;
        }
        let Self { ledger, search, space, chosen, waiting, reasons, passed_over, .. } = self;
        let tree = ledger.tree();
        let ceiling = |id: &GangId| {
            let gang = ledger.gang(*id)?;
            Some((*id, Ceiling(tree.level_of_required(gang))))
        };
        let mut still: Vec<(GangId, Ceiling)> = waiting.iter().filter_map(ceiling).collect();
        together::improve(ledger, search, space, chosen, &mut still);
        let is_waiting = |id: &GangId| still.iter().any(|(waits, _)| waits == id);
        let started = |id: &GangId| waiting.contains(id) && !is_waiting(id);
        reasons.retain(|(id, _)| !started(id));
        passed_over.retain(|id| !started(id));
        // Whoever is let in past the head of the line went ahead of it.
        let head = waiting.first().filter(|head| is_waiting(head)).copied();
        let let_in = waiting.iter().filter(|id| started(id)).count();
        passed_over.extend(head.into_iter().cycle().take(if head.is_some() { let_in } else { 0 }));
    }
}

/// What the planner says of one gang now.
pub(crate) enum Verdict {
    /// It fits inside this level; the search has the places.
    Go(Ceiling, Cost),
    Wait(Reason),
}

const fn waits_for_capacity(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Resources { .. } | Reason::Topology { .. } | Reason::Nodes { .. } | Reason::Shape { .. }
    )
}

fn bypassed(ledger: &Ledger, gang: GangId) -> u32 {
    ledger.record(gang).map_or(0, |r| r.bypassed)
}

/// The planner's verdict on one gang, given what is free now. Also what `explain` and `what_if` ask.
pub(crate) fn try_place(ledger: &Ledger, search: &mut Search, space: &Space, id: GangId) -> Verdict {
    let (Some(gang), Some(record)) = (ledger.gang(id), ledger.record(id)) else {
        return Verdict::Wait(Reason::None);
    };
    if let Some(until) = backing_off(record, ledger.now()) {
        return Verdict::Wait(Reason::BackOff { until });
    }
    verdict(ledger, search, space, gang, ledger.preferred_until(id))
}

/// The level that a gang would rather be inside of, where that is more than what it requires.
fn preferred_level(tree: &Tree, gang: &Gang) -> Option<LevelAt> {
    let required = tree.level_of_required(gang);
    let preferred = gang.topology.preferred.as_ref().and_then(|level| tree.level_at(level));
    preferred.filter(|level| narrows(*level, required))
}

/// Whether a preference asks for more than the requirement. Levels inside the node need not nest: both then
/// bind, see [`search`].
fn narrows(preferred: LevelAt, required: LevelAt) -> bool {
    match (preferred, required) {
        (LevelAt::Group(p), LevelAt::Group(r)) => p != r,
        (preferred, required) => preferred > required,
    }
}

fn backing_off(record: &GangRecord, now: Timestamp) -> Option<Timestamp> {
    match record.phase {
        Phase::Pending { not_before } if not_before > now => Some(not_before),
        _ => None,
    }
}

/// The verdict on a gang with what is free in a space.
fn verdict(
    ledger: &Ledger,
    search: &mut Search,
    space: &Space,
    gang: &Gang,
    preferred_until: Option<Timestamp>,
) -> Verdict {
    let tree = ledger.tree();
    let segments = gang.topology.segments.iter().map(|segment| &segment.level);
    let spread = gang.topology.spread.iter().map(|rule| &rule.level);
    if gang.topology.required.iter().chain(segments).chain(spread).any(|level| tree.level_at(level).is_none())
    {
        // The levels were changed under a job that was accepted before: it fits nowhere now.
        return Verdict::Wait(Reason::BadConstraints { asked: gang.size, largest: 0 });
    }
    let required = tree.level_of_required(gang);
    let preferred = preferred_level(tree, gang);
    if let Some(level) = preferred {
        if let Some(found) = search.place(tree, space, gang, Ceiling(level)) {
            return Verdict::Go(Ceiling(level), found.cost);
        }
        if let Some(until) = preferred_until.filter(|until| ledger.now() < *until)
            && search.most(tree, space, gang, required).0 >= gang.size
            // A level that could not hold the gang even when empty is not worth a wait.
            && place(tree, ledger.empty_opened(), gang, Ceiling(level)).is_some()
        {
            return Verdict::Wait(Reason::PreferredWait { level: tree.level_name(level), until });
        }
    }
    // Given up, a preference is relaxed level by level.
    let tried = usize::from(preferred.is_some());
    for ceiling in tree.levels_between(preferred.unwrap_or(required), required).skip(tried) {
        if let Some(found) = search.place(tree, space, gang, Ceiling(ceiling)) {
            return Verdict::Go(Ceiling(ceiling), found.cost);
        }
    }
    Verdict::Wait(shortfall(ledger, space, gang, required))
}

/// Why no place was found: the gang, the level and the counts.
fn shortfall(ledger: &Ledger, free: &Space, gang: &Gang, required: LevelAt) -> Reason {
    let (tree, asked) = (ledger.tree(), gang.size);
    if best_fit(tree, ledger.empty(), gang, required).fits < asked {
        let all = best_fit(tree, ledger.empty_opened(), gang, required).fits;
        let mut nodes = tree.unknown_to(gang);
        // What a node that is not there could hold is not known.
        let might = all >= asked || !nodes.is_empty();
        nodes.append(&mut tree.closed_to(gang));
        if might && !nodes.is_empty() {
            return Reason::NodeNotAvailable { nodes };
        }
        return Reason::BadConstraints { asked, largest: all };
    }
    let best = best_fit(tree, free, gang, required);
    if best.fits >= asked {
        let expanded = if gang.roles.is_empty() { u64::from(search::DOMAINS_MAX) } else { roles::STATES_MAX };
        return Reason::BudgetExhausted { expanded };
    }
    let nodes = tree.closed_to(gang);
    if !nodes.is_empty() && best_fit(tree, &free.opened(tree), gang, required).fits >= asked {
        return Reason::NodeNotAvailable { nodes };
    }
    if Sort::of(gang) == Sort::Slice {
        return slices::shortfall(tree, free, gang, required);
    }
    let anywhere = best_fit(tree, free, gang, LevelAt::Above(0)).fits;
    let segments = gang.topology.segments.clone();
    if anywhere >= asked {
        let level = tree.level_name(required);
        return Reason::Topology { level, asked, best: best.fits, best_domain: best.domain, segments };
    }
    // Enough may be free in all, and too little on any one node.
    let loose = Gang { members_per_node: None, ..gang.clone() };
    let in_all = best_fit(tree, free, &loose, LevelAt::Above(0)).fits;
    match gang.members_per_node {
        Some(each) if in_all >= asked => {
            let node = best_fit(tree, free, &loose, LevelAt::Node);
            let fits = anywhere / each.max(1);
            Reason::Nodes { asked: asked / each.max(1), each, fits, best: node.fits, best_node: node.domain }
        }
        _ => Reason::Resources { asked, fits: in_all, segments },
    }
}
