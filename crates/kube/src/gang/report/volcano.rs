//! The status of Volcano's `PodGroup`, as Volcano's own scheduler writes it: its job controller makes pods only once the
//! phase is not `Pending` any more.

use kube::api::DynamicObject;

use crate::gang::Lifecycle;
use crate::gang::pods::State;
use crate::messages::VolcanoStatus;
use crate::messages::{Call, WaitsFor};
use crate::recognise::{GangKey, ObjectRef, Source, volcano_job};

/// A group without pods, and the Volcano Job that waits for its phase to make them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gang) struct Unadmitted {
    group: ObjectRef,
    job: ObjectRef,
}

impl Unadmitted {
    /// Nothing for groups that are past that, and for those of others than Volcano Jobs.
    pub(in crate::gang) fn of(object: &DynamicObject) -> Option<Self> {
        let phase = object.data.pointer("/status/phase").and_then(|phase| phase.as_str());
        let job = volcano_job(object).filter(|_| matches!(phase, None | Some("" | "Pending")))?;
        Some(Self { group: ObjectRef::of(object), job })
    }
}

impl Lifecycle {
    /// Lets a Volcano Job make its pods, where they are to be ours.
    pub(in crate::gang) fn admit(&mut self, key: &GangKey) {
        let Some(waiting) = self.objects.get(key).and_then(|told| told.unadmitted.clone()) else { return };
        if self.has_begun && !self.gangs.contains_key(key) {
            let Unadmitted { group, job } = waiting;
            let scheduler = self.options.scheduler_name.clone();
            self.calls.push(Call::Admit { group, job, scheduler });
        }
    }

    /// The same of all that are there.
    pub(in crate::gang) fn admit_all(&mut self) {
        let of_jobs = self.objects.iter().filter(|(_, told)| told.unadmitted.is_some());
        let keys: Vec<GangKey> = of_jobs.map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.admit(key));
    }

    /// Says on Volcano's group of a gang how it stands.
    pub(in crate::gang) fn tell_volcano(&mut self, key: &GangKey) {
        if key.source != Source::VolcanoPodGroup {
            return;
        }
        let Ok(Some(spec)) = self.spec(key) else { return };
        let (Some(about), Some(gang)) = (spec.object, self.gangs.get(key)) else { return };
        let (mut bound, mut running, mut succeeded, mut failed) = (0, 0, 0, 0);
        for pod in gang.pods.values().map(|pod| &pod.known) {
            bound += u32::from(pod.node.is_some());
            match &pod.state {
                State::Running => running += 1,
                State::Over(exit) if exit.is_success() => succeeded += 1,
                State::Over(_) => failed += 1,
                State::Waiting => {}
            }
        }
        let is_whole = bound >= spec.min && bound > 0;
        let phase = match &gang.waits {
            Some(_) if running > 0 => "Unknown",
            None if is_whole && succeeded + failed == bound => "Completed",
            None if is_whole => "Running",
            // Its pods are to be made, and made again.
            _ => "Inqueue",
        };
        let condition = match &gang.waits {
            Some(waits) => {
                let reason = match waits.what {
                    WaitsFor::Nodes => "NotEnoughResources",
                    WaitsFor::PODS => "NotEnoughTasks",
                    other @ WaitsFor::Other(_) => other.reason(),
                };
                Some(("Unschedulable", reason, std::sync::Arc::clone(&waits.why)))
            }
            None if is_whole => Some(("Scheduled", "tasks in gang are ready to be scheduled", "".into())),
            None => None,
        };
        let status = VolcanoStatus { phase, running, succeeded, failed, condition };
        self.calls.push(Call::VolcanoStatus { about, status });
    }
}
