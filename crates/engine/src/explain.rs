//! Why a gang is pending, in full: computed on demand, by the predicates that decide.

use std::borrow::Cow;
use std::collections::BTreeMap;

use phalanx_model::{
    Confidence, Estimate, Gang, GangId, LevelCount, LevelName, LikelyStart, Phase, Placement, Reason, Report,
    Timestamp, Topology, Unblock,
};

mod ways;

use crate::cluster::{LevelAt, Space};
use crate::ledger::{Ledger, known_end};
use crate::placement::{Ceiling, Search, Verdict, best_fit, place, placement, shortfall, verdict};
use crate::queueing::{QueueAt, RequestClassId, longest_ms};

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

/// A running gang, and its end as far as it is known.
struct Running<'a> {
    id: GangId,
    gang: &'a Gang,
    placement: Cow<'a, Placement>,
    ends_at: Option<Timestamp>,
    /// When past runs of such jobs ended, and the number of these runs.
    likely_end: Option<(Timestamp, u32)>,
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
            reason,
        };
        if let Some(placement) = now {
            report.estimated_start = Some(Estimate { at: self.ledger.now(), confidence: Confidence::Now });
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
            Reason::BeginTime { at } | Reason::Priority { at: Some(at), .. } => {
                report.unblock.push(Unblock::At { at: *at });
            }
            Reason::Topology { .. } => {
                let required = self.ledger.tree().level_of_required(gang);
                report.unblock.extend(ways::relaxed(self.ledger, gang, required));
                report.unblock.extend(ways::without(self.ledger, gang));
                report.unblock.extend(self.ends_needed(gang));
            }
            Reason::Resources { .. }
            | Reason::Nodes { .. }
            | Reason::Shape { .. }
            | Reason::BudgetExhausted { .. } => {
                report.unblock.extend(ways::without(self.ledger, gang));
                report.unblock.extend(self.ends_needed(gang));
            }
            Reason::NodeNotAvailable { nodes } => {
                let tree = self.ledger.tree();
                let known = nodes.iter().filter(|n| tree.index_of(n).is_some()).cloned().collect::<Vec<_>>();
                if !known.is_empty() {
                    report.unblock.push(Unblock::Uncordon { nodes: known });
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
            Reason::Window { ends_at, .. } if *ends_at < Timestamp::MAX => {
                report.unblock.push(Unblock::At { at: *ends_at });
            }
            Reason::BackOff { until } => report.unblock.push(Unblock::At { at: *until }),
            _ => {}
        }
    }

    /// Running gangs, those with a known end first, in the order in which they end.
    fn running(&self) -> Vec<Running<'_>> {
        let mut running: Vec<Running<'_>> = self
            .ledger
            .active()
            .filter_map(|(job, gang, record)| {
                let placement = record.held()?;
                let (ends_at, likely_end) = (known_end(job, record), self.ledger.likely_end(job, record));
                Some(Running { id: record.id, gang, placement, ends_at, likely_end })
            })
            .collect();
        running.sort_by_key(|r| (r.ends_at.is_none(), r.ends_at, r.id));
        running
    }

    /// The fewest running gangs, in the order in which they end, after which this gang fits.
    fn ends_needed(&self, gang: &Gang) -> Option<Unblock> {
        let tree = self.ledger.tree();
        let ceiling = Ceiling(tree.level_of_required(gang));
        let running = self.running();
        let mut free = self.space.clone();
        let fits = |free: &Space| place(tree, free, gang, ceiling).is_some();
        let needed = running.iter().position(|r| {
            free.give_back(tree, &tree.picks_of(&r.placement, r.gang), r.gang);
            fits(&free)
        })?;
        let mut chosen: Vec<&Running<'_>> = running.iter().take(needed + 1).collect();
        // Reverse delete: gangs whose end does not matter are not named.
        let mut at = chosen.len().saturating_sub(1);
        while at > 0 {
            at -= 1;
            let Some(candidate) = chosen.get(at) else { continue };
            let picks = tree.picks_of(&candidate.placement, candidate.gang);
            free.take(tree, &picks, candidate.gang);
            if fits(&free) {
                chosen.remove(at);
            } else {
                free.give_back(tree, &picks, candidate.gang);
            }
        }
        let at = chosen.iter().map(|r| r.ends_at).max_by_key(|e| e.unwrap_or(Timestamp::MAX)).flatten();
        Some(Unblock::GangsEnd { gangs: chosen.iter().map(|r| r.id).collect(), at })
    }

    /// The latest start if all gangs ahead start in order and none bypasses them. Known only if every end on the way is
    /// known. If past runs say more of those ends, also the likely start.
    fn estimate(&self, gang: &Gang, report: &mut Report) {
        let longest = |id: &GangId| longest_ms(&self.ledger.job(id.job)?.policy);
        let Some((at, placement)) = self.starts(gang, |running| running.ends_at, longest) else { return };
        report.estimated_start = Some(Estimate { at, confidence: Confidence::AtLatest });
        report.nearest = Some(placement);
        let mut runs = u32::MAX;
        let mut by_past = |known: Option<(u64, u32)>| {
            let (what, of) = known?;
            runs = runs.min(of);
            Some(what)
        };
        let ends: BTreeMap<GangId, Timestamp> = self
            .running()
            .iter()
            .filter_map(|r| by_past(r.likely_end.map(|(at, of)| (at.0, of))).map(|at| (r.id, Timestamp(at))))
            .collect();
        let spans: BTreeMap<GangId, u64> = self
            .ahead_ids
            .iter()
            .filter_map(|id| Some((*id, by_past(self.ledger.likely_ms(self.ledger.job(id.job)?))?)))
            .collect();
        if ends.is_empty() && spans.is_empty() {
            return;
        }
        let end = |running: &Running<'_>| ends.get(&running.id).copied().or(running.ends_at);
        let span = |id: &GangId| spans.get(id).copied().or_else(|| longest(id));
        let likely = self.starts(gang, end, span).map(|(at, _)| at);
        report.likely_start = likely.filter(|likely| *likely < at).map(|at| LikelyStart { at, runs });
    }

    /// When and where the gang starts, by the ends of running gangs and the run times of the gangs ahead.
    fn starts(
        &self,
        gang: &Gang,
        end: impl Fn(&Running<'_>) -> Option<Timestamp>,
        span: impl Fn(&GangId) -> Option<u64>,
    ) -> Option<(Timestamp, Placement)> {
        let tree = self.ledger.tree();
        let running = self.running();
        let mut ends: Vec<(Timestamp, Placement, &Gang)> = running
            .iter()
            .filter_map(|r| Some((end(r)?, r.placement.clone().into_owned(), r.gang)))
            .collect();
        let mut free = self.space.clone();
        let mut now = self.ledger.now();
        let spans = self.ahead_ids.iter().map(span);
        let queue = self.ahead.iter().map(AsRef::as_ref).zip(spans).chain([(gang, None)]);
        for (next, span_ms) in queue {
            let ceiling = Ceiling(tree.level_of_required(next));
            let placement = loop {
                if let Some(found) = place(tree, &free, next, ceiling) {
                    break found;
                }
                ends.sort_by_key(|(at, _, _)| *at);
                if ends.is_empty() {
                    // The start of a gang ahead is not known, so neither is the start of this gang.
                    return None;
                }
                let (at, placement, gang) = ends.remove(0);
                now = now.max(at);
                free.give_back(tree, &tree.picks_of(&placement, gang), gang);
            };
            if std::ptr::eq(next, gang) {
                return Some((now.max(self.earliest), placement));
            }
            free.take(tree, &tree.picks_of(&placement, next), next);
            if let Some(span_ms) = span_ms {
                ends.push((now.plus(span_ms), placement, next));
            }
        }
        None
    }
}
