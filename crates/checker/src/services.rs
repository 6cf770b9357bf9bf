//! Services: no more replicas than desired, and no preemption of the minimum.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Change, GangId, Input, Job, JobId, PreemptMode, Replicas};

use crate::start::Start;
use crate::{Checker, Violation};

#[derive(Clone, Debug, Default)]
pub(crate) struct Services {
    wanted: BTreeMap<JobId, u32>,
    /// Replicas that have ended.
    ended: BTreeSet<GangId>,
    /// Replicas that stop when their replacements run.
    leaving: BTreeSet<GangId>,
}

impl Services {
    pub(crate) fn fact(&mut self, input: &Input, is_refused: bool) {
        match input {
            Input::JobObserved { gangs, .. } => {
                self.ended.extend(gangs.iter().filter(|record| record.is_finished()).map(|record| record.id));
                self.leaving
                    .extend(gangs.iter().filter(|record| record.leaves.is_some()).map(|record| record.id));
            }
            Input::ServiceObserved { service } if !is_refused => {
                self.wanted.insert(service.job, service.replicas);
            }
            _ => {}
        }
    }

    pub(crate) fn change(&mut self, change: &Change) {
        match change {
            Change::ServiceScaled { job, replicas, .. } => {
                self.wanted.insert(*job, *replicas);
            }
            Change::GangFinished { gang, .. } => {
                self.ended.insert(*gang);
                self.leaving.remove(gang);
            }
            Change::ReplicaLeaves { gang, .. } => {
                self.leaving.insert(*gang);
            }
            Change::ReplicaStays { gang }
            | Change::ReplicaReplaced { gang, .. }
            | Change::GangRetrying { gang, .. } => {
                self.leaving.remove(gang);
            }
            _ => {}
        }
    }
}

impl Checker {
    /// Whether a number of replicas is invalid, so that facts with it are rejected.
    pub(crate) fn refuses_service(&self, input: &Input) -> bool {
        let Input::ServiceObserved { service: observed } = input else { return false };
        let Some(job) = self.jobs.get(&observed.job) else { return true };
        let is_within = |service: &Replicas| {
            let most = job.gang_count().saturating_sub(service.surge);
            service.min <= observed.replicas && observed.replicas <= most
        };
        !job.turn.service.as_ref().is_some_and(is_within)
    }

    /// One replica took over the number of another.
    pub(crate) fn replaced(&mut self, change: &Change) {
        let Change::ReplicaReplaced { gang, by } = change else { return };
        let Some(job) = self.jobs.get_mut(&gang.job) else { return };
        let gangs = job.gang_count();
        job.turn.service.iter_mut().for_each(|service| service.replace(*gang, *by, gangs));
    }

    /// Whether a replica is among the desired replicas that have not ended, or within the surge for replicas that are
    /// replaced.
    pub(crate) fn check_wanted(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        let Some(job) = self.jobs.get(&start.id.job) else { return };
        let Some(service) = &job.turn.service else { return };
        let wanted = self.services.wanted.get(&job.id).copied().unwrap_or(service.min);
        let others = job.gang_ids();
        let comes_before = |gang: &GangId| service.number(*gang) < service.number(start.id);
        let before = others.filter(|gang| !self.services.ended.contains(gang) && comes_before(gang)).count();
        let leaving = self.services.leaving.iter().filter(|gang| gang.job == job.id).count();
        if before >= wanted as usize + leaving.min(service.surge as usize) {
            let why = format!("the service needs {wanted} replicas, and {before} come before it");
            found.push(Violation::OutOfTurn { gang: start.id, why });
        }
    }

    /// Why a gang cannot be preempted, if it cannot.
    pub(crate) fn kept(&self, gang: GangId, job: &Job) -> Option<String> {
        let class = self.queues.class(job).filter(|class| !class.is_preemptible);
        match &job.turn.service {
            _ if job.policy.preempt.mode == PreemptMode::Never => {
                Some("its policy forbids preemption".to_owned())
            }
            Some(service) => (service.number(gang) < service.min)
                .then(|| format!("it is one of the {} replicas of the minimum", service.min)),
            None => class.map(|class| format!("its class {} cannot be preempted", class.name)),
        }
    }
}
