//! What services have to do: the replicas that run share it equally, and tell of it every so often.

use phalanx_model::later::Metric;
use phalanx_model::{GangId, GangRecord, Input, JobId, Phase, Target};

use super::{Due, World};
use crate::Failure;

/// How often a replica tells of its metric, where nobody says otherwise.
pub(super) const EVERY_MS: u64 = 30_000;

impl World {
    /// Replicas tell of their metric every so often.
    #[must_use]
    pub fn telling_every(self, ms: u64) -> Self {
        Self { tells_every_ms: ms.max(1), ..self }
    }

    /// From now on the replicas of a service have so much to do together.
    ///
    /// # Errors
    /// When the checker finds something broken.
    pub fn load(&mut self, job: JobId, of: &Target) -> Result<(), Failure> {
        if self.loads.insert(job, of.clone()).is_none() {
            self.plan(self.now, Due::Load { job });
        }
        self.settle()
    }

    /// The replicas tell, and will again.
    pub(super) fn tell_load(&mut self, job: JobId) {
        let Some(Target { metric, value_milli, .. }) = self.loads.get(&job).cloned() else { return };
        let records = self.engine.jobs().filter(|(of, _)| of.id == job).flat_map(|(_, records)| records);
        let records: Vec<&GangRecord> = records.filter(|record| !record.is_finished()).collect();
        let is_over = records.is_empty();
        let runs = records.iter().filter(|record| matches!(record.phase, Phase::Running { .. }));
        let gangs: Vec<GangId> = runs.map(|record| record.id).collect();
        let each = value_milli.checked_div(gangs.len() as u64).unwrap_or(0);
        for gang in gangs {
            let (name, value_milli) = (metric.clone(), i64::try_from(each).unwrap_or(i64::MAX));
            let metric = Metric { gang, name, value_milli, at: self.now };
            self.report(Input::MetricObserved { metric });
        }
        if is_over {
            self.loads.remove(&job);
        } else {
            self.plan(self.now.plus(self.tells_every_ms), Due::Load { job });
        }
    }
}
