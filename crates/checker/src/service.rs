//! The attained service of gangs, and their levels in their queues, counted independently.

use std::collections::BTreeMap;

use phalanx_model::{
    Change, Gang, GangId, GangRecord, Phase, Placement, QueueName, QueueOrder, Served, Timestamp,
};

use crate::{Checker, Violation};

#[derive(Clone, Debug, Default)]
pub(crate) struct Service(BTreeMap<GangId, Had>);

/// In millionths of a second of one device.
#[derive(Clone, Copy, Debug, Default)]
struct Had {
    device_us: u64,
    /// The time since which the gang attains more, and the thousandths of devices that it holds.
    runs: Option<(Timestamp, u64)>,
    level: u32,
    /// A leader whose clock went back counts differently.
    is_unsure: bool,
}

impl Had {
    fn by(&self, at: Timestamp) -> u64 {
        let more = self.runs.map_or(0, |(from, milli)| at.since(from).saturating_mul(milli));
        self.device_us.saturating_add(more)
    }

    fn ends(&mut self, at: Timestamp) {
        self.device_us = self.by(at);
        self.runs = None;
    }
}

impl Service {
    fn begins(&mut self, gang: GangId, at: Timestamp, milli: u64, is_unsure: bool) {
        let had = self.0.entry(gang).or_default();
        had.runs = Some((at, milli));
        had.is_unsure |= is_unsure;
    }

    /// The clock of a new leader is behind, so running gangs are counted differently from now on.
    pub(crate) fn clock_went_back(&mut self) {
        self.0.values_mut().filter(|had| had.runs.is_some()).for_each(|had| had.is_unsure = true);
    }

    pub(crate) fn forget(&mut self, is_forgotten: impl Fn(&GangId) -> bool) {
        self.0.retain(|gang, _| !is_forgotten(gang));
    }
}

fn held_milli(gang: Option<&Gang>, placement: Option<&Placement>) -> u64 {
    gang.zip(placement).map_or(0, |(gang, placement)| gang.held_milli(placement))
}

impl Checker {
    /// A leader reports to its successor the service that the checker saw.
    pub(crate) fn check_service(&mut self, record: &GangRecord, found: &mut Vec<Violation>) {
        let gang = record.id;
        let milli = held_milli(self.gang(gang), record.placement.as_ref());
        let reported = record.served;
        if let Some(had) = self.service.0.get(&gang).filter(|had| !had.is_unsure) {
            let seen = if had.runs.is_some() { had.by(reported.until) } else { had.device_us };
            if seen != reported.device_us {
                found.push(Violation::ServiceForgotten { gang, seen, recorded: reported.device_us });
            }
        }
        let had = self.service.0.entry(gang).or_default();
        had.device_us = reported.device_us;
        had.runs = match record.phase {
            Phase::Running { since } => Some((since.max(reported.until), milli)),
            _ => None,
        };
        had.is_unsure &= had.runs.is_some();
    }

    /// `is_behind`: the clock of the leader is behind that of one before it.
    pub(crate) fn serve(&mut self, changes: &[Change], is_behind: bool) {
        for change in changes {
            match change {
                Change::GangRunning { gang, .. } => {
                    let placement = self.attempts.get(gang).map(|(_, attempt)| &attempt.placement);
                    let milli = held_milli(self.gang(*gang), placement);
                    self.service.begins(*gang, self.now, milli, is_behind);
                }
                Change::GangStopping { gang, .. }
                | Change::GangRetrying { gang, .. }
                | Change::GangFinished { gang, .. } => {
                    if let Some(had) = self.service.0.get_mut(gang) {
                        had.ends(self.now);
                    }
                }
                _ => {}
            }
        }
        // A gang that has attained more service may be preempted by gangs that could not preempt it before.
        let levels: Vec<(GangId, u32)> =
            self.service.0.iter().filter_map(|(gang, had)| Some((*gang, self.level(*gang, had)?))).collect();
        for (gang, level) in levels {
            let had = self.service.0.entry(gang).or_default();
            if std::mem::replace(&mut had.level, level) != level {
                self.preemptions.outside_changed();
            }
        }
    }

    fn level(&self, gang: GangId, had: &Had) -> Option<u32> {
        let order = self.queues.order(self.jobs.get(&gang.job)?)?;
        Some(order.level_of(Served { device_us: had.by(self.now), until: self.now }))
    }

    /// Whether a gang has attained more service than gangs of its queue that have an earlier reserved start may have.
    pub(crate) fn may_be_served_before(&self, gang: GangId) -> bool {
        let had = self.service.0.get(&gang).copied().unwrap_or_default();
        had.is_unsure || self.level(gang, &had).is_some_and(|level| level > 0)
    }

    /// Checks that `level`, the level of the pending gang `by`, is below `over`, the level of the preempted gang.
    /// Both must be in this queue, and the queue must order by attained service.
    pub(crate) fn is_served_less(
        &self,
        gang: GangId,
        by: GangId,
        queue: &QueueName,
        (level, over): (u32, u32),
    ) -> Option<String> {
        let is_of = |id: GangId| self.jobs.get(&id.job).is_some_and(|job| job.queue == *queue);
        let order = self.jobs.get(&gang.job).and_then(|job| self.queues.order(job));
        let is_by_service = order.is_some_and(|order| matches!(order, QueueOrder::LeastServed { .. }));
        if !is_by_service || !is_of(gang) || !is_of(by) {
            return Some(format!(
                "both must belong to queue {queue}, and the queue must order by attained service"
            ));
        }
        if level >= over {
            return Some(format!("level {level} is not below level {over}"));
        }
        let is_other = |id: GangId, said: u32| {
            let had = self.service.0.get(&id).copied().unwrap_or_default();
            let seen = self.level(id, &had).unwrap_or(0);
            (!had.is_unsure && seen != said)
                .then(|| format!("gang {id} is on level {seen}, and the rule says {said}"))
        };
        is_other(by, level).or_else(|| is_other(gang, over))
    }
}
