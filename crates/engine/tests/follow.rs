//! An engine that follows a recorded plan, which another version made.
#![allow(clippy::unwrap_used, reason = "a test")]

use phalanx_engine::{Config, Engine};
use phalanx_model::{
    Decision, DeviceMask, Effect, EffectId, Epoch, FailureClass, GangId, Input, JobId, LevelName, NodeName,
    Order, Outcome, Placement, Plan, Preemption, PreemptionRule, QueueName, Reason, Reserved, Resize, Slot,
    Timestamp,
};
use phalanx_testkit::{gang, job, levels, node};

fn first(job: u64) -> GangId {
    JobId(job).gang(0)
}

/// The node `a` has eight devices.
fn world() -> Vec<Input> {
    let node = node("a").gpus(8).nvswitch().build();
    vec![
        Input::LevelsConfigured { levels: levels(&["cluster"]) },
        Input::NodeObserved { node: Box::new(node) },
    ]
}

fn submitted(id: u64) -> Input {
    Input::JobSubmitted { job: Box::new(job(id, gang(1).devices(4)).build()) }
}

fn on(node: &str, devices: DeviceMask) -> Placement {
    let slot = Slot { rank: 0, node: NodeName::new(node).unwrap(), devices, part: None };
    Placement { slots: vec![slot], level: LevelName::new("node").unwrap() }
}

fn start(gang: GangId, placement: Placement) -> Decision {
    Decision::Start { gang, placement, weighed: Vec::new() }
}

fn free(engine: &Engine) -> u32 {
    engine.free(&NodeName::new("a").unwrap()).unwrap().devices.count()
}

/// An engine that knows this world and two jobs, and followed these decisions.
fn follower(decisions: Vec<Decision>, effects: &[Effect]) -> Engine {
    let mut engine = Engine::new(Epoch(1), Config::default());
    let mut facts = world();
    facts.extend([submitted(1), submitted(2)]);
    engine.follow(Timestamp(1_000), &facts, &Plan { decisions }, effects);
    engine
}

#[test]
fn recorded_decisions_are_taken_over_though_this_version_would_decide_otherwise() {
    let last_four: DeviceMask = "4-7".parse().unwrap();
    let engine = follower(vec![start(first(2), on("a", last_four))], &[]);
    let phase = |job| engine.gang(first(job)).unwrap().phase.word();
    assert_eq!((phase(1), phase(2), free(&engine)), ("pending", "starting", 4));
    assert_eq!(engine.gang(first(2)).unwrap().placement, Some(on("a", last_four)));
}

#[test]
fn a_decision_that_does_not_apply_is_refused_and_harms_no_other() {
    let all = DeviceMask::first(8);
    let rule = PreemptionRule::FairShare {
        queue: QueueName::new("one").unwrap(),
        borrower: QueueName::new("other").unwrap(),
    };
    let preemption =
        Preemption { by: first(1), rule, at: Timestamp(1_000), lost_device_ms: 0, grace_max_ms: None };
    let reserved = Reserved { placement: on("a", all), at: None, evicts: false, made_at: Timestamp(1_000) };
    let of = |gang: GangId| {
        let (preemption, reserved) = (preemption.clone(), reserved.clone());
        let resize = Resize { size: 2, keeps: on("a", all), by: None };
        vec![
            Decision::Release { gang, why: String::new() },
            Decision::Reserve { gang, reserved, reason: Reason::None },
            Decision::Preempt { gang, preemption },
            Decision::Resize { gang, resize },
            Decision::Grow { gang, size: 2 },
            start(gang, on("a", all)),
            Decision::Bypass { gang },
            Decision::Leave { gang },
        ]
    };
    let wrong = |gang| {
        let applies_to_pending = |decision: &Decision| {
            matches!(decision.word(), "release" | "reserve" | "start" | "resize" | "bypass")
        };
        of(gang).into_iter().filter(move |decision| !applies_to_pending(decision))
    };
    let mut decisions = of(JobId(9).gang(3));
    decisions.extend(of(JobId(1).gang(9)));
    decisions.extend(wrong(first(1)));
    decisions.push(start(first(1), on("a", DeviceMask::first(4))));
    // The gang is no longer pending.
    decisions.push(start(first(1), on("a", all)));
    decisions.push(start(first(2), Placement { slots: Vec::new(), ..on("a", all) }));
    let mut engine = follower(decisions, &[]);
    let phase = |engine: &Engine, job| engine.gang(first(job)).unwrap().phase.word();
    assert_eq!((phase(&engine, 1), free(&engine)), ("starting", 4));
    assert_eq!(engine.gang(first(1)).unwrap().attempt, 1);
    assert_eq!(phase(&engine, 2), "pending");

    let mut out = Outcome::default();
    let _ = engine.step(Timestamp(2_000), &[submitted(3)], &mut out);
    assert_eq!(phase(&engine, 2), "starting", "{out:?}");
}

/// Answers name the numbers of the orders that were sent, which the other version gave.
#[test]
fn answers_to_recorded_orders_are_understood() {
    let placement = on("a", DeviceMask::first(4));
    let id = EffectId { epoch: Epoch(1), seq: 7 };
    let (gang, deadline) = (first(1), Timestamp(61_000));
    let order = Order::StartMembers { gang, attempt: 1, placement: placement.clone(), deadline };
    let mut engine = follower(vec![start(gang, placement)], &[Effect { id, order }]);
    let failed =
        Input::EffectFailed { effect: id, class: FailureClass::UserCode, detail: "no such program".into() };
    let mut out = Outcome::default();
    let _ = engine.step(Timestamp(2_000), &[failed], &mut out);
    assert_eq!(engine.gang(gang).unwrap().phase.word(), "failed");
    assert!(out.effects.iter().all(|effect| effect.id.seq > 7), "{:?}", out.effects);
}
