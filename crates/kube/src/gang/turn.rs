//! Lifecycle and engine together, as tests play them.

use phalanx_model::{Change, GangRecord, Input, Outcome, Timestamp};
use phalanx_shell::Engine;

use super::Lifecycle;
use crate::messages::{Stopping, WaitsFor};

/// One step of the engine, and what the lifecycle makes of it; the facts that follow from it.
pub(in crate::gang) fn step(
    lifecycle: &mut Lifecycle,
    engine: &mut Engine,
    now: Timestamp,
    facts: &[Input],
) -> Vec<Input> {
    let mut out = Outcome::default();
    let mut more = Vec::new();
    let _ = engine.step(now, facts, &mut out);
    for effect in &out.effects {
        let stopping = engine.gang(effect.order.gang()).and_then(Stopping::of);
        lifecycle.carry_out(&effect.order, stopping.as_ref());
        more.push(Input::EffectDone { effect: effect.id });
    }
    for change in &out.changes {
        match change {
            Change::JobRejected { job, why } => {
                lifecycle.job_refused(*job, &why.to_string(), WaitsFor::of_rejection(why));
            }
            Change::JobFinished { job, .. } => lifecycle.job_ended(*job),
            // What starts again at once was ordered already.
            Change::GangRetrying { gang, .. } if engine.gang(*gang).is_some_and(GangRecord::is_pending) => {
                lifecycle.gang_waits(*gang);
            }
            Change::ReasonChanged { gang, reason } => {
                lifecycle.explain_job(gang.job, WaitsFor::of(reason), &reason.to_string());
            }
            Change::GangReserved { gang, reserved } if reserved.evicts => {
                lifecycle.nominate(*gang, &reserved.placement.slots);
            }
            Change::ReservationDropped { gang, .. } => lifecycle.end_nomination(*gang),
            Change::InputRejected { what, why } => panic!("{what}: {why}"),
            _ => {}
        }
    }
    more
}
