//! When a gang reached which phase after a fault, by the events of its job.

use phalanx_local::protocol::EventView;

use super::record::Phases;
use super::scene::Seen;

/// Words of events that end a job.
const ENDS: [&str; 4] = ["succeeded", "failed", "cancelled", "time_limit"];

pub(super) fn phases(seen: &Seen) -> Phases {
    let Some(fault) = seen.fault_ms else { return Phases::default() };
    let after = |at: u64| i64::try_from(at).unwrap_or(i64::MAX) - i64::try_from(fault).unwrap_or(i64::MAX);
    let stop = seen.events.iter().position(|event| event.what == "stopping" || event.what == "preempted");
    // A gang that was not stopped has no further phases.
    let later = stop.and_then(|at| seen.events.get(at..)).unwrap_or_default();
    let first = |what: &str| later.iter().find(|event| event.what == what);
    let at = |event: Option<&EventView>| event.map(|event| after(event.at.0));
    let stopping_ms = at(later.first());
    let running = first("running");
    let attempt = seen.samples.last().map(|sample| sample.attempt);
    let first_step = running.and_then(|_| seen.samples.iter().find(|sample| Some(sample.attempt) == attempt));
    Phases {
        noticed_ms: seen.noticed_ms.map(after).or(stopping_ms),
        stopping_ms,
        stopped_ms: at(first("requeued")),
        placed_ms: at(first("starting")),
        running_ms: at(running),
        first_step_ms: first_step.map(|sample| after(sample.at_ms)),
        ended_ms: at(seen.events.iter().find(|event| ENDS.contains(&event.what.as_str()))),
    }
}
