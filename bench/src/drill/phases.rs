//! When a gang reached which phase after a fault, by the events of its job.

use phalanx_api::protocol::EventView;

use super::findings::Findings;
use super::record::{Phases, Sample};

/// Words of events that end a job.
const ENDS: [&str; 4] = ["succeeded", "failed", "cancelled", "time_limit"];

/// By the events of the job since the fault.
pub(super) fn phases(found: &Findings, events: &[EventView], samples: &[Sample]) -> Phases {
    if found.fault_ms.is_none() {
        return Phases::default();
    }
    let after = |at: u64| found.after(at).unwrap_or_default();
    let stop = events.iter().position(|event| event.what == "stopping" || event.what == "preempted");
    // A gang that was not stopped has no further phases.
    let later = stop.and_then(|at| events.get(at..)).unwrap_or_default();
    let first = |what: &str| later.iter().find(|event| event.what == what);
    let at = |event: Option<&EventView>| event.map(|event| after(event.at.0));
    let stopping_ms = at(later.first());
    let running = first("running");
    let attempt = samples.last().map(|sample| sample.attempt);
    let first_step = running.and_then(|_| samples.iter().find(|sample| Some(sample.attempt) == attempt));
    Phases {
        noticed_ms: found.noticed_ms.map(after).or(stopping_ms),
        stopping_ms,
        stopped_ms: at(first("requeued")),
        placed_ms: at(first("starting")),
        running_ms: at(running),
        first_step_ms: first_step.map(|sample| after(sample.at_ms)),
        ended_ms: at(events.iter().find(|event| ENDS.contains(&event.what.as_str()))),
    }
}
