//! Services: no more replicas than are wanted, and never the minimum of one for another's work.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Change, GangId, Input, Job, JobId, PreemptMode};

use crate::start::Start;
use crate::{Checker, Violation};

#[derive(Clone, Debug, Default)]
pub(crate) struct Services {
    wanted: BTreeMap<JobId, u32>,
    /// Replicas that ended, and are none any more.
    ended: BTreeSet<GangId>,
}

impl Services {
    pub(crate) fn fact(&mut self, input: &Input, is_refused: bool) {
        match input {
            Input::JobObserved { gangs, .. } => {
                self.ended.extend(gangs.iter().filter(|record| record.is_finished()).map(|record| record.id));
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
            }
            _ => {}
        }
    }
}

impl Checker {
    /// Whether so many replicas cannot be: facts about them are refused.
    pub(crate) fn refuses_service(&self, input: &Input) -> bool {
        let Input::ServiceObserved { service: told } = input else { return false };
        let Some(job) = self.jobs.get(&told.job) else { return true };
        let most = u32::try_from(job.gangs.len()).unwrap_or(u32::MAX);
        job.turn.service.as_ref().is_none_or(|service| !(service.min..=most).contains(&told.replicas))
    }

    /// Among the first that have not ended, as many as are wanted.
    pub(crate) fn check_wanted(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        let Some(job) = self.jobs.get(&start.id.job) else { return };
        let Some(service) = &job.turn.service else { return };
        let wanted = self.services.wanted.get(&job.id).copied().unwrap_or(service.min);
        let others = (0..start.id.index).map(|index| job.id.gang(index));
        let before = others.filter(|gang| !self.services.ended.contains(gang)).count();
        if before >= wanted as usize {
            let why = format!("{wanted} replicas are wanted, and {before} stand before it");
            found.push(Violation::OutOfTurn { gang: start.id, why });
        }
    }

    /// Why a gang never makes way, if it does not.
    pub(crate) fn kept(&self, gang: GangId, job: &Job) -> Option<String> {
        let class = self.queues.class(job).filter(|class| !class.is_preemptible);
        match &job.turn.service {
            _ if job.policy.preempt.mode == PreemptMode::Never => Some("it never makes way".to_owned()),
            Some(service) => (u32::from(gang.index) < service.min)
                .then(|| format!("it is one of the {} replicas that are always kept", service.min)),
            None => class.map(|class| format!("its class {} does not make way", class.name)),
        }
    }
}
