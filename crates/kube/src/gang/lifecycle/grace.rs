//! How much time gangs have that make way: to save their work, and to end.
//!
//! Before SIGTERM there is time only for gangs that ask for it, and an annotation tells their pods how much. From SIGTERM on
//! pods have what they say themselves. The class of whoever goes first may cap both together.

use phalanx_model::{GangId, Stop, StopCause};

use crate::gang::Lifecycle;
use crate::gang::state::Gang;
use crate::messages::{Call, PodRef, Stopping};

impl Gang {
    /// How long the slowest of its pods has from SIGTERM on, in milliseconds.
    pub(in crate::gang) fn grace_ms(&self) -> u64 {
        let longest = self.pods.values().map(|pod| pod.known.grace_s).max().unwrap_or(0);
        u64::try_from(longest).unwrap_or(0).saturating_mul(1_000)
    }
}

impl Lifecycle {
    /// Tells the pods of a gang by when to have saved their work.
    pub(in crate::gang) fn advise(&mut self, id: GangId, attempt: u32, stopping: Option<&Stopping>) {
        let Some(key) = self.jobs.get(&id.job).cloned() else { return };
        let run = self.gangs.get_mut(&key).and_then(|gang| gang.job.as_mut()?.run.as_mut());
        let Some(run) = run.filter(|run| run.attempt == attempt) else { return };
        run.is_leaving = stopping.is_none_or(|stopping| stopping.frees_exited);
        self.free_exited(&key);
        let gang = self.gangs.get(&key);
        let Some((gang, submitted)) = gang.and_then(|gang| Some((gang, gang.job.as_ref()?))) else { return };
        let lead_ms = lead_ms(submitted.stop);
        let cause = stopping.map(|stopping| &stopping.cause);
        let within_ms = lead_ms.min(grace_max_ms(cause).unwrap_or(u64::MAX));
        let names = submitted.seats.iter().filter_map(|seat| seat.pod.as_ref());
        let pods: Vec<PodRef> = names.filter_map(|name| gang.pod_ref(name)).collect();
        if !pods.is_empty() {
            self.calls.push(Call::Advise { pods, within_ms });
        }
    }
}

/// What the pods of a gang have from SIGTERM on, in seconds, where that is less than they say themselves. Of pods that say
/// different times the shorter ones may then have longer, and none has longer than this.
pub(in crate::gang) fn grace_s(gang: &Gang, stop: Stop, cause: Option<&StopCause>) -> Option<i64> {
    let left_ms = grace_max_ms(cause)?.saturating_sub(lead_ms(stop));
    // None at all would be to kill at once, and give the name away of one that still runs.
    let seconds = i64::try_from(left_ms.div_ceil(1_000).max(1)).unwrap_or(i64::MAX);
    (left_ms < gang.grace_ms()).then_some(seconds)
}

fn lead_ms(stop: Stop) -> u64 {
    stop.advisory.map_or(0, |advisory| advisory.lead_ms)
}

/// How long all of it may take, where somebody says so.
const fn grace_max_ms(cause: Option<&StopCause>) -> Option<u64> {
    match cause {
        Some(StopCause::Preempted(eviction)) => eviction.grace_max_ms,
        _ => None,
    }
}
