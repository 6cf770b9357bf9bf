//! Format 1, which recorded no plan. The plan of a step is derived from its changes: each decision of a cycle but a bypass
//! led to one.

use phalanx_model::{Change, Decision, Effect, Input, Plan, StopCause, Timestamp};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Record {
    Facts { seq: u64, now: Timestamp, inputs: Vec<Input> },
    Decisions { seq: u64, effects: Vec<Effect>, changes: Vec<Change> },
}

impl From<Record> for crate::Record {
    fn from(record: Record) -> Self {
        match record {
            Record::Facts { seq, now, inputs } => Self::Facts { seq, now, inputs },
            Record::Decisions { seq, effects, changes } => {
                Self::Decisions { seq, plan: plan_of(&changes), effects, changes }
            }
        }
    }
}

/// The decisions behind these changes, in their order. Some changes may come from facts or timers of the step as well; a
/// ledger that follows has made these itself by then, and committing them again changes nothing.
fn plan_of(changes: &[Change]) -> Plan {
    let after = |at: usize| changes.get(at + 1);
    let decision = |(at, change): (usize, &Change)| decision_of(change, after(at));
    Plan { decisions: changes.iter().enumerate().filter_map(decision).collect() }
}

fn decision_of(change: &Change, next: Option<&Change>) -> Option<Decision> {
    let decision = match change.clone() {
        Change::ReservationDropped { gang, why } => Decision::Release { gang, why },
        // The ledger itself reserves the placement of an elastic gang that stops to start again with another size.
        Change::GangReserved { gang, .. } if matches!(next, Some(Change::GangRetrying { gang: of, .. }) if *of == gang) =>
        {
            return None;
        }
        // The reason is not part of what outlasts a daemon.
        Change::GangReserved { gang, reserved } => {
            Decision::Reserve { gang, reserved, reason: phalanx_model::Reason::None }
        }
        Change::GangStopping { gang, cause: StopCause::Preempted(preemption), .. } => {
            Decision::Preempt { gang, preemption }
        }
        Change::GangStopping { gang, cause: StopCause::Displaced { .. }, .. } => Decision::Leave { gang },
        Change::ResizeAsked { gang, resize } if resize.by.is_some() => Decision::Resize { gang, resize },
        // A gang that grows stops at once, and keeps its whole placement; a user's wish waits for the next boundary.
        Change::ResizeAsked { gang, resize } => {
            let stops = matches!(
                next,
                Some(Change::GangStopping { gang: of, cause: StopCause::Resized { .. }, .. }) if *of == gang
            );
            let grows = resize.size as usize > resize.keeps.slots.len();
            return (stops && grows).then_some(Decision::Grow { gang, size: resize.size });
        }
        Change::GangPlaced { gang, placement, .. } => {
            Decision::Start { gang, placement, weighed: Vec::new() }
        }
        _ => return None,
    };
    Some(decision)
}

#[cfg(test)]
mod tests {
    use phalanx_model::{
        FailureClass, GangId, JobId, LevelName, NodeName, Placement, Preemption, PreemptionRule, Reason,
        Reserved, Resize, Slot,
    };

    use super::*;

    const GANG: GangId = JobId(1).gang(0);
    const OTHER: GangId = JobId(2).gang(0);

    fn placement(members: u32) -> Placement {
        let node = NodeName::new("a").unwrap();
        let slot = |rank| Slot {
            rank,
            node: node.clone(),
            devices: phalanx_model::DeviceMask::one(rank),
            part: None,
        };
        Placement { slots: (0..members).map(slot).collect(), level: LevelName::new("node").unwrap() }
    }

    fn reserved() -> Reserved {
        Reserved { placement: placement(1), at: None, evicts: true, made_at: Timestamp(7) }
    }

    fn stopping(gang: GangId, cause: StopCause) -> Change {
        Change::GangStopping { gang, attempt: 1, cause }
    }

    fn derived(changes: &[Change]) -> Vec<Decision> {
        plan_of(changes).decisions
    }

    #[test]
    fn each_change_that_a_cycle_decided_is_a_decision() {
        let rule = PreemptionRule::LessServed {
            queue: phalanx_model::QueueName::new("q").unwrap(),
            level: 0,
            over: 1,
        };
        let preemption =
            Preemption { by: GANG, rule, at: Timestamp(7), lost_device_ms: 3, grace_max_ms: None };
        let shrinks = Resize { size: 2, keeps: placement(2), by: Some(GANG) };
        let why = "late".to_owned();
        let leaves = StopCause::Displaced { class: FailureClass::Node, detail: String::new(), until: None };
        let changes = [
            Change::JobAccepted { job: JobId(1) },
            Change::ReservationDropped { gang: GANG, why: why.clone() },
            Change::ReasonChanged { gang: GANG, reason: Reason::None },
            Change::GangReserved { gang: GANG, reserved: reserved() },
            stopping(OTHER, StopCause::Preempted(preemption.clone())),
            Change::ResizeAsked { gang: OTHER, resize: shrinks.clone() },
            Change::GangPlaced { gang: GANG, attempt: 4, placement: placement(1) },
            stopping(OTHER, leaves),
        ];
        let expected = [
            Decision::Release { gang: GANG, why },
            Decision::Reserve { gang: GANG, reserved: reserved(), reason: Reason::None },
            Decision::Preempt { gang: OTHER, preemption },
            Decision::Resize { gang: OTHER, resize: shrinks },
            Decision::Start { gang: GANG, placement: placement(1), weighed: Vec::new() },
            Decision::Leave { gang: OTHER },
        ];
        assert_eq!(derived(&changes), expected);
    }

    #[test]
    fn a_gang_that_stops_at_once_for_more_members_grows() {
        let asked = |size, kept| Change::ResizeAsked {
            gang: GANG,
            resize: Resize { size, keeps: placement(kept), by: None },
        };
        let stops = |gang, size| stopping(gang, StopCause::Resized { size });
        assert_eq!(derived(&[asked(8, 4), stops(GANG, 8)]), [Decision::Grow { gang: GANG, size: 8 }]);
        assert_eq!(
            derived(&[asked(8, 4), stops(OTHER, 8)]),
            [],
            "a user's wish, and another gang's boundary"
        );
        assert_eq!(derived(&[asked(2, 2), stops(GANG, 2)]), [], "a user's wish for fewer members");
        assert_eq!(derived(&[stops(GANG, 2)]), [], "a boundary");
    }

    #[test]
    fn the_placement_that_an_elastic_gang_keeps_is_no_decision() {
        let keeps = Change::GangReserved { gang: GANG, reserved: reserved() };
        let waits = |gang| Change::GangRetrying { gang, failures: 0, not_before: Timestamp(7) };
        assert_eq!(derived(&[keeps.clone(), waits(GANG)]), []);
        assert_eq!(derived(&[keeps, waits(OTHER)]).len(), 1);
    }

    #[test]
    fn other_changes_are_no_decisions() {
        let changes = [
            Change::GangRunning { gang: GANG, attempt: 1 },
            stopping(GANG, StopCause::TimeLimit),
            stopping(GANG, StopCause::Cancelled { by: "user".to_owned() }),
            Change::JobFinished { job: JobId(1), ending: phalanx_model::Ending::Succeeded },
        ];
        assert_eq!(derived(&changes), []);
    }
}
