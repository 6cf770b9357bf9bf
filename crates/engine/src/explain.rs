//! Why a gang is pending, in full: computed on demand, by the predicates that decide.

use std::borrow::Cow;
use std::collections::BTreeMap;

use phalanx_model::{
    Confidence, DeviceMask, Estimate, Gang, GangId, LevelCount, LevelName, NodeName, Phase, Placement,
    Reason, Report, Timestamp, Topology, Unblock,
};

mod ends;
mod ways;

use crate::cluster::{LevelAt, Space};
use crate::ledger::Ledger;
use crate::placement::{Search, Verdict, best_fit, placement, shortfall, verdict, weighed_links};
use crate::queueing::{QueueAt, RequestClassId};

pub(crate) fn explain(ledger: &Ledger, id: GangId) -> Option<Report> {
    let record = ledger.record(id)?;
    if !record.is_pending() {
        return Some(Report {
            gang: id,
            reason: Reason::None,
            levels: Vec::new(),
            position: 0,
            of: 0,
            unblock: Vec::new(),
            estimated_start: None,
            nearest: record.placement.clone(),
            likely_start: None,
            less_served: 0,
            weighed: record.weighed.clone(),
        });
    }
    let wanted = ledger.wanted(id)?;
    let gang = &*wanted;
    let order = ledger.in_order();
    let position = order.iter().position(|g| *g == id)?;
    let (reason, now) = now_of(ledger, id);
    let ahead: Vec<Cow<'_, Gang>> = order.iter().take(position).filter_map(|g| ledger.wanted(*g)).collect();
    let earliest = match record.phase {
        Phase::Pending { not_before } => {
            let asked = ledger.job(id.job).and_then(|job| job.turn.begins_at);
            not_before.max(ledger.preferred_until(id).unwrap_or_default()).max(asked.unwrap_or_default())
        }
        _ => ledger.now(),
    };
    let ahead_ids = order.get(..position).unwrap_or_default();
    let outlook = Outlook { ledger, space: ledger.space_for(id), ahead, ahead_ids, earliest };
    let mut report = outlook.report(id, gang, reason, now);
    report.position = to_u32(position + 1);
    report.of = to_u32(order.len());
    report.less_served = to_u32(ledger.line().before_by_service(id));
    Some(report)
}

/// The present reason of a pending gang.
pub(crate) fn reason(ledger: &Ledger, id: GangId) -> Option<Reason> {
    ledger.record(id).filter(|record| record.is_pending())?;
    Some(now_of(ledger, id).0)
}

/// The reasons of all pending gangs.
pub(crate) fn reasons(ledger: &Ledger) -> BTreeMap<GangId, Reason> {
    let mut reasons = Reasons::new(ledger, usize::MAX);
    let pending = ledger.active().filter(|(_, _, record)| record.is_pending());
    pending.map(|(_, _, record)| (record.id, reasons.of(record.id))).collect()
}

/// The reasons of many gangs. Those of one request class in one queue have the same one, which is searched for once.
pub(crate) struct Reasons<'a> {
    ledger: &'a Ledger,
    known: BTreeMap<(RequestClassId, QueueAt), Reason>,
    searches_left: usize,
}

impl<'a> Reasons<'a> {
    pub(crate) const fn new(ledger: &'a Ledger, searches_max: usize) -> Self {
        Self { ledger, known: BTreeMap::new(), searches_left: searches_max }
    }

    /// The present reason of a pending gang; once there were as many searches as may be, that of its last evaluation.
    pub(crate) fn of(&mut self, id: GangId) -> Reason {
        let place = self.ledger.line().place_of(id).map(|place| (place.request, place.queue));
        let known = place.and_then(|place| self.known.get(&place).cloned());
        let reason = known.unwrap_or_else(|| {
            let reason = self.search(id);
            if let Some(place) = place {
                self.known.insert(place, reason.clone());
            }
            reason
        });
        match reason {
            Reason::PreferredWait { level, .. } => {
                Reason::PreferredWait { level, until: self.ledger.preferred_until(id).unwrap_or_default() }
            }
            reason => reason,
        }
    }

    fn search(&mut self, id: GangId) -> Reason {
        match self.searches_left.checked_sub(1) {
            Some(left) => {
                self.searches_left = left;
                now_of(self.ledger, id).0
            }
            None => self.ledger.reason_of(id).unwrap_or(Reason::None),
        }
    }
}

/// The reason why a gang does not start now, or the placement in which it would.
fn now_of(ledger: &Ledger, id: GangId) -> (Reason, Option<Placement>) {
    let told = ledger.reason_of(id);
    if let Some(reason) = ledger.kept_back(id) {
        return (reason, None);
    }
    if let Some(reason @ (Reason::QueueLimit(_) | Reason::Preempting { .. })) = told {
        return (reason, None);
    }
    let Some(wanted) = ledger.wanted(id) else { return (Reason::None, None) };
    let mut search = Search::default();
    let patience = ledger.preferred_until(id).filter(|until| ledger.now() < *until);
    let space = ledger.space_for(id);
    match (verdict(ledger.hardware(), &mut search, &space, &wanted, patience), told) {
        // The gang fits, and the last cycle kept it back for another gang.
        (Verdict::Go(..), Some(reason @ (Reason::Priority { .. } | Reason::NearerWait { .. }))) => {
            (reason, None)
        }
        (Verdict::Go(..), _) if ledger.is_held_from(id, &wanted) => {
            let ahead = ledger.holds_before(id);
            (ahead.map_or(Reason::None, |(ahead, at)| Reason::Priority { ahead, at }), None)
        }
        (Verdict::Go(..), _) => {
            let here = placement(ledger.tree(), search.picks(), search.order(), &wanted);
            (Reason::None, here)
        }
        (Verdict::Full, _) => {
            let window = ledger.window_of(id).filter(|_| {
                let open = verdict(ledger.hardware(), &mut search, &ledger.open_space(), &wanted, None);
                matches!(open, Verdict::Go(..))
            });
            (window.unwrap_or_else(|| shortfall(ledger.hardware(), &space, &wanted)), None)
        }
        (Verdict::Wait(reason), _) => (reason, None),
    }
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

struct Outlook<'a> {
    ledger: &'a Ledger,
    /// The free capacity, including what is reserved for pending gangs.
    space: Space,
    /// Pending gangs that go first.
    ahead: Vec<Cow<'a, Gang>>,
    ahead_ids: &'a [GangId],
    /// When the waits of the gang itself are over: its back-off, and the wait for a closer placement.
    earliest: Timestamp,
}

impl Outlook<'_> {
    fn report(&self, id: GangId, gang: &Gang, reason: Reason, now: Option<Placement>) -> Report {
        let mut report = Report {
            gang: id,
            levels: self.levels(gang),
            position: 0,
            of: 0,
            unblock: Vec::new(),
            estimated_start: None,
            nearest: None,
            likely_start: None,
            less_served: 0,
            weighed: Vec::new(),
            reason,
        };
        if let Some(placement) = now {
            report.estimated_start = Some(Estimate { at: self.ledger.now(), confidence: Confidence::Now });
            report.weighed = weighed_links(self.ledger.tree(), &self.space, gang, &placement);
            report.nearest = Some(placement);
            return report;
        }
        self.unblock(id, gang, &mut report);
        if let Reason::NearerWait { level, until, .. } = report.reason.clone() {
            self.estimate_nearer(gang, &level, until, &mut report);
            return report;
        }
        // It is not known when a user's hold or other jobs let the gang go.
        if !matches!(
            report.reason,
            Reason::Held { .. }
                | Reason::Dependency { .. }
                | Reason::ArrayLimit { .. }
                | Reason::ScaledIn { .. }
                | Reason::QueueLimit(_)
        ) {
            self.estimate(gang, &mut report);
        }
        // The gang waits for no gang's end: the reservation knows when the windows are over.
        if report.estimated_start.is_none() && matches!(report.reason, Reason::Window { .. }) {
            let reserved = self.ledger.record(id).and_then(|record| record.reserved.as_ref());
            let at = reserved.and_then(|reserved| reserved.at);
            report.estimated_start = at.map(|at| Estimate { at, confidence: Confidence::AtLatest });
        }
        report
    }

    /// When a gang that waits for a nearer place starts: there, or in a farther one once it has waited so long.
    fn estimate_nearer(&self, gang: &Gang, level: &LevelName, until: Timestamp, report: &mut Report) {
        let topology = Topology { required: Some(level.clone()), ..gang.topology.clone() };
        self.estimate(&Gang { topology, ..gang.clone() }, report);
        let is_sooner = report.estimated_start.is_some_and(|start| start.at <= until);
        if !is_sooner && until < Timestamp::MAX {
            report.nearest = None;
            report.estimated_start = Some(Estimate { at: until, confidence: Confidence::AtLatest });
        }
    }

    /// The capacity of the best domain of each level now, outermost first, down to the required level.
    fn levels(&self, gang: &Gang) -> Vec<LevelCount> {
        let tree = self.ledger.tree();
        let asked = [&gang.topology.required, &gang.topology.preferred];
        let groups =
            asked.into_iter().flatten().filter_map(|l| tree.level_at(l)).filter(|l| *l > LevelAt::Node);
        let mut levels: Vec<LevelAt> =
            (0..tree.domains.len()).map(LevelAt::Above).chain([LevelAt::Node]).chain(groups).collect();
        levels.dedup();
        // Counted without equal parts and segments: "6 of 8 fit there" helps more than "none do".
        let mut loose = Gang { members_per_node: None, ..gang.clone() };
        loose.topology.segments.clear();
        loose.roles.iter_mut().for_each(|role| role.segments.clear());
        levels
            .into_iter()
            .map(|level| {
                let best = best_fit(tree, &self.space, &loose, level);
                LevelCount {
                    level: tree.level_name(level),
                    domain: best.domain,
                    fits: best.fits,
                    asked: gang.size,
                    free_devices: best.free_devices,
                    devices: best.devices,
                }
            })
            .collect()
    }

    fn unblock(&self, id: GangId, gang: &Gang, report: &mut Report) {
        match &report.reason {
            Reason::Preempting { victims } => {
                let reserved = self.ledger.record(id).and_then(|record| record.reserved.as_ref());
                let at = reserved.and_then(|reserved| reserved.at);
                report.unblock.push(Unblock::GangsEnd { gangs: victims.clone(), at });
            }
            Reason::BeginTime { at } => report.unblock.push(Unblock::At { at: *at }),
            Reason::Priority { at, .. } => {
                report.unblock.extend(at.map(|at| Unblock::At { at }));
                report.unblock.extend(ways::shorter(self.ledger, id, gang));
            }
            Reason::Topology { .. } => {
                let required = self.ledger.tree().level_of_required(gang);
                report.unblock.extend(ways::preemptible(self.ledger, id));
                report.unblock.extend(ways::relaxed(self.ledger, gang, required));
                report.unblock.extend(ways::without(self.ledger, gang));
                report.unblock.extend(self.ends_needed(gang));
            }
            Reason::Resources { .. }
            | Reason::Nodes { .. }
            | Reason::Shape { .. }
            | Reason::BudgetExhausted { .. } => {
                report.unblock.extend(ways::preemptible(self.ledger, id));
                report.unblock.extend(ways::without(self.ledger, gang));
                report.unblock.extend(ways::repaired(self.ledger, gang));
                report.unblock.extend(self.ends_needed(gang));
            }
            Reason::NodeNotAvailable { nodes } => {
                let tree = self.ledger.tree();
                let known = nodes.iter().filter(|n| tree.index_of(n).is_some()).cloned();
                let is_sick = |node: &NodeName| self.ledger.node(node).is_some_and(|n| !n.health.is_open());
                let (sick, closed): (Vec<NodeName>, Vec<NodeName>) = known.partition(is_sick);
                if !closed.is_empty() {
                    report.unblock.push(Unblock::Uncordon { nodes: closed });
                }
                if !sick.is_empty() {
                    let closed = sick.into_iter().map(|node| (node, DeviceMask::EMPTY)).collect();
                    report.unblock.push(Unblock::Repair { closed });
                }
            }
            Reason::NearerWait { until, nodes, .. } => {
                report.unblock.push(Unblock::StartFarther { nodes: *nodes });
                if *until < Timestamp::MAX {
                    report.unblock.push(Unblock::At { at: *until });
                }
            }
            Reason::PreferredWait { until, level } => {
                let preferred = self.ledger.tree().level_at(level);
                report.unblock.extend(preferred.and_then(|level| ways::relaxed(self.ledger, gang, level)));
                report.unblock.push(Unblock::At { at: *until });
            }
            // A window without an end is over when an operator ends it.
            Reason::Window { ends_at, .. } => {
                if *ends_at < Timestamp::MAX {
                    report.unblock.push(Unblock::At { at: *ends_at });
                }
                report.unblock.extend(ways::around_windows(self.ledger, id, gang));
            }
            Reason::BackOff { until } => report.unblock.push(Unblock::At { at: *until }),
            _ => {}
        }
    }
}
