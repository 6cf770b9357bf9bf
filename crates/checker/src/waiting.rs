//! Bounded waiting: the first gang of the queue is bypassed only so often by gangs that take capacity it could use.
//!
//! A gang is checked only if free capacity is all that it lacks: it is first among all pending gangs that fit the
//! empty, open cluster, no queue has a limit or a guarantee, and its needs are plain enough to be counted naively. A
//! start of a later gang is a bypass if the first gang would fit at some time without the gangs that bypassed it, and
//! does not fit with the later gang. A gang with a time limit is no bypass while the first gang has a reserved start
//! time, because `promises` checks that time. Once the first gang has a reservation, only a gang that takes some of
//! the reserved capacity is a bypass.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{
    Caps, Change, DeviceMask, DomainName, Gang, GangId, Input, Job, Node, NodeName, Topology,
};

use crate::start::Member;
use crate::{Checker, Violation};

#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    first: Option<GangId>,
    /// Started behind it since it is first.
    behind: BTreeSet<(GangId, u32)>,
    /// Those of them that took what it could use.
    bypasses: BTreeSet<(GangId, u32)>,
    /// Boosts, windows and notices move gangs and nodes in ways that are not followed here.
    is_off: bool,
}

impl Waiting {
    pub(crate) fn fact(&mut self, input: &Input) {
        match input {
            Input::JobBoosted { .. } | Input::CalendarObserved { .. } | Input::SpotNoticed { .. } => {
                self.is_off = true;
                self.restart(None);
            }
            // Another cluster, or other rules: what was harmless may do harm now.
            Input::LevelsConfigured { .. }
            | Input::JobUpdated { .. }
            | Input::NodeObserved { .. }
            | Input::NodeRemoved { .. }
            | Input::NodeCordoned { .. }
            | Input::NodeUncordoned { .. }
            | Input::DrainRequested { .. }
            | Input::DefragmentationRequested { .. }
            | Input::HealthGraded { .. }
            | Input::BandwidthMeasured { .. }
            | Input::DevicesObserved { .. }
            | Input::SettingsConfigured { .. }
            | Input::QueueObserved { .. }
            | Input::QueueRemoved { .. } => self.restart(None),
            _ => {}
        }
    }

    /// When a reservation is given up, the bypasses of its gang are counted from zero again.
    pub(crate) fn change(&mut self, change: &Change) {
        match change {
            Change::ReservationDropped { gang, .. } if self.first == Some(*gang) => self.restart(self.first),
            _ => {}
        }
    }

    fn restart(&mut self, first: Option<GangId>) {
        self.first = first;
        self.behind.clear();
        self.bypasses.clear();
    }
}

impl Checker {
    /// Checks the bypasses of a step that ordered these gangs to start.
    pub(crate) fn check_waiting(&mut self, started: &BTreeSet<GangId>, found: &mut Vec<Violation>) {
        // Only a start can bypass a gang, and the gangs that started before show who is first.
        let is_on = !self.waiting.is_off && !started.is_empty() && !self.is_bounded();
        let Some(bypass_max) = self.bypass_max.filter(|_| is_on) else { return };
        let pending = self.pending_gangs();
        let mut new = Vec::new();
        if let Some(first) = self.waiting.first.filter(|first| pending.contains_key(first)) {
            let ends = |id: &GangId| self.jobs.get(&id.job).is_some_and(|j| j.policy.time_limit_ms.is_some());
            // If the head has a reservation, only gangs that take some of its capacity are in its way.
            let avoids_reservation = |id: &GangId| {
                let slots = self.attempts.get(id).map(|(_, attempt)| attempt.placement.slots.as_slice());
                self.promises.avoids_reservation(first, slots.unwrap_or_default())
            };
            let is_harmless =
                |id: &GangId| avoids_reservation(id) || ends(id) && self.promises.is_promised(first);
            let behind = started.iter().filter(|id| self.is_behind(**id, first) && !is_harmless(id));
            new.extend(behind.filter_map(|id| Some((*id, self.attempts.get(id)?.0))));
        }
        let first = self.first_of(&pending);
        self.waiting.behind.extend(new);
        if first.is_none() || first != self.waiting.first {
            self.waiting.restart(first);
            return;
        }
        let Some((id, gang)) = first.and_then(|id| Some((id, self.gang(id)?))) else { return };
        let is_alive = |(id, attempt): &&(GangId, u32)| {
            self.attempts.get(id).is_some_and(|(number, of)| number == attempt && !of.is_over())
        };
        let living: BTreeSet<(GangId, u32)> = self.waiting.behind.iter().filter(is_alive).copied().collect();
        let mut gone: BTreeSet<GangId> = living.iter().map(|(id, _)| *id).collect();
        let new: Vec<(GangId, u32)> = living.difference(&self.waiting.bypasses).copied().collect();
        if new.is_empty() || !self.fits(gang, Some(&gone)) {
            return;
        }
        let mut harmful = Vec::new();
        for one in new {
            gone.remove(&one.0);
            if !self.fits(gang, Some(&gone)) {
                harmful.push(one);
            }
            gone.insert(one.0);
        }
        self.waiting.bypasses.extend(harmful);
        let times = self.waiting.bypasses.len();
        if times > bypass_max as usize {
            found.push(Violation::Bypassed { gang: id, times, most: bypass_max });
            self.waiting.restart(None);
        }
    }

    /// The gangs without capacity of all jobs that may still start gangs.
    fn pending_gangs(&self) -> BTreeMap<GangId, &Job> {
        let jobs =
            self.jobs.values().filter(|job| !self.turns.has_ended(job.id) && !self.is_cancelled(job.id));
        let gangs = jobs.flat_map(|job| job.gang_ids().map(move |id| (id, job)));
        let is_idle = |id: &GangId| self.attempts.get(id).is_none_or(|(_, attempt)| attempt.is_over());
        gangs.filter(|(id, _)| is_idle(id)).collect()
    }

    /// The first gang: it goes before all other gangs that could ever go before it, and free capacity is all that it
    /// lacks.
    fn first_of(&self, pending: &BTreeMap<GangId, &Job>) -> Option<GangId> {
        let mut ahead = pending
            .iter()
            .filter(|(id, _)| self.gang(**id).is_none_or(|gang| !is_plain(gang) || self.fits(gang, None)));
        let (first, job) = ahead.clone().max_by_key(|(id, job)| {
            let class = self.queues.class(job).map(|class| class.rank);
            (class, job.priority, std::cmp::Reverse((job.submitted_at, **id)))
        })?;
        let is_free = is_plain(self.gang(*first)?)
            && !self.attempts.contains_key(first)
            && job.gang_count() == 1
            && !self.turns.is_held(job.id)
            && job.turn.begins_at.is_none()
            && job.turn.deadline.is_none()
            && job.turn.after.is_empty()
            && job.turn.array.is_none()
            && job.turn.service.is_none()
            && job.turn.boost.is_none()
            && !self.queues.is_gone(&job.queue);
        (is_free && ahead.all(|(id, _)| id == first || self.is_behind(*id, *first))).then_some(*first)
    }

    /// Whether queues may prevent a start, or no capacity is reserved for any gang.
    fn is_bounded(&self) -> bool {
        let mut queues = self.queues.all();
        self.queues.settings.reservation_depth == 0
            || queues.any(|queue| {
                !queue.guaranteed.is_empty()
                    || !queue.limit.is_empty()
                    || !queue.lend_max.is_empty()
                    || !queue.shapes.is_empty()
                    || !queue.nodes.are_none()
                    || queue.caps != Caps::default()
                    || queue.order.as_ref().is_some_and(|order| !order.is_priority())
            })
            || !self.queues.settings.order.is_priority()
            || !self.queues.settings.wait.is_none()
            // Which nodes are spare is the choice of the engine.
            || self.queues.settings.spares.is_some()
    }

    /// Whether a gang goes after another gang by every term of the order.
    fn is_behind(&self, id: GangId, other: GangId) -> bool {
        let (Some(job), Some(before)) = (self.jobs.get(&id.job), self.jobs.get(&other.job)) else {
            return false;
        };
        let rank = |job| self.queues.class(job).map(|class| class.rank);
        job.queue == before.queue
            && rank(job) == rank(before)
            && job.turn.boost.is_none()
            && job.priority <= before.priority
            && (job.submitted_at, id) > (before.submitted_at, other)
    }

    /// Whether a plain gang fits: the empty, open cluster, or the free capacity without some gangs.
    fn fits(&self, gang: &Gang, without: Option<&BTreeSet<GangId>>) -> bool {
        let mut there: BTreeMap<&NodeName, Vec<Member<'_>>> = BTreeMap::new();
        if let Some(without) = without {
            for member in self.living_members().filter(|member| !without.contains(&member.of.id)) {
                there.entry(&member.slot.node).or_default().push(member);
            }
        }
        let Some(levels) = &self.levels else { return false };
        let depth = match &gang.topology.required {
            None => 0,
            Some(level) if *level == levels.node => levels.above.len() + 1,
            Some(level) => match levels.above.iter().position(|above| above == level) {
                Some(at) => at + 1,
                None => return false,
            },
        };
        let mut domains: BTreeMap<(&[DomainName], Option<&NodeName>), u64> = BTreeMap::new();
        for node in self.nodes.values() {
            let path = node.path.get(..depth).unwrap_or(&node.path);
            let alone = (depth > levels.above.len()).then_some(&node.name);
            let count = members_on(gang, node, there.get(&node.name).map_or(&[], Vec::as_slice));
            let sum = domains.entry((path, alone)).or_default();
            *sum = sum.saturating_add(count);
        }
        domains.into_values().any(|count| count >= u64::from(gang.size))
    }
}

/// Equal members of whole devices of one model, CPUs and memory; together at most inside one domain above the devices.
fn is_plain(gang: &Gang) -> bool {
    let Gang { needs, topology, .. } = gang;
    let plain = Topology { required: topology.required.clone(), ..Topology::default() };
    let is_above =
        topology.required.as_ref().is_none_or(|l| !["nvlink", "pcie", "socket"].contains(&l.as_str()));
    *topology == plain
        && is_above
        && gang.min == gang.max
        && gang.members_per_node.is_none()
        && gang.roles.is_empty()
        && gang.grid.is_empty()
        && needs.devices > 0
        && needs.part.is_none()
        && needs.models.len() <= 1
        && needs.named.is_empty()
        && !needs.is_exclusive
        && !needs.takes_spot
}

/// How many members of a plain gang fit on a node with these gangs.
fn members_on(gang: &Gang, node: &Node, members: &[Member<'_>]) -> u64 {
    let needs = &gang.needs;
    let is_right = node.is_open()
        && node.spot.is_none()
        && node.kept.is_nothing()
        && (needs.nodes.is_empty() || needs.nodes.contains(&node.name))
        && !needs.avoid.contains(&node.name)
        && needs.within.as_ref().is_none_or(|set| node.sets.contains(set))
        && !members.iter().any(|member| member.needs().is_exclusive);
    if !is_right {
        return 0;
    }
    let model = needs.models.first().map_or_else(String::new, |of| of.model.to_lowercase());
    let used = members.iter().fold(node.barred_devices(), |all, member| all.union(member.slot.devices));
    let suits = |(at, device): (u32, &phalanx_model::Device)| {
        (device.model.to_lowercase().contains(&model) && !used.contains(at)).then_some(DeviceMask::one(at))
    };
    let free = (0..).zip(&node.machine.devices).filter_map(suits).count() as u64;
    let left = |has: u64, others: u64, need: &dyn Fn(&Member<'_>) -> u64| {
        members.iter().map(need).fold(has.saturating_sub(others), u64::saturating_sub)
    };
    let cpu = left(node.machine.cpu_milli, node.foreign_use.cpu_milli, &|m| m.needs().cpu_milli);
    let memory = left(node.machine.memory_bytes, node.foreign_use.memory_bytes, &|m| m.needs().memory_bytes);
    let by = |has: u64, each: u64| has.checked_div(each).unwrap_or(u64::MAX);
    by(free, needs.devices.into()).min(by(cpu, needs.cpu_milli)).min(by(memory, needs.memory_bytes))
}
