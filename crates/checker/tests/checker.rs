//! The checker sees what is wrong, and nothing else.

#![allow(clippy::unwrap_used)]

use phalanx_checker::{Checker, Violation};
use phalanx_model::{
    DeviceMask, Effect, EffectId, Epoch, Exit, FailureClass, GangId, Input, JobId, LevelName, MemberId,
    NodeName, Order, Placement, Slot, SyncKind, Timestamp,
};
use phalanx_testkit::{gang, job, levels, node};

fn gang_id(job: u64) -> GangId {
    JobId(job).gang(0)
}

fn slot(rank: u32, node: &str, devices: u64) -> Slot {
    Slot { rank, node: NodeName::new(node).unwrap(), devices: DeviceMask(devices) }
}

fn effect(seq: u64, order: Order) -> Effect {
    Effect { id: EffectId { epoch: Epoch(1), seq }, order }
}

fn start(seq: u64, job: u64, attempt: u32, slots: Vec<Slot>) -> Effect {
    let placement = Placement { slots, level: LevelName::new("node").unwrap() };
    effect(seq, Order::StartMembers { gang: gang_id(job), attempt, placement, deadline: Timestamp(9) })
}

/// A node of eight devices, and jobs 1 and 2 of two ranks with two devices each.
fn checker() -> Checker {
    let mut checker = Checker::new();
    let two = gang(2).devices(2).cpu_milli(30_000).build();
    let facts = [
        Input::LevelsConfigured { levels: levels(&["cluster"]) },
        Input::NodeObserved { node: Box::new(node("a").gpus(8).busy([7]).build()) },
        Input::JobSubmitted { job: Box::new(job(1, two.clone()).build()) },
        Input::JobSubmitted { job: Box::new(job(2, two).build()) },
    ];
    assert_eq!(checker.observe(&facts, &[]), []);
    checker
}

fn good() -> Vec<Slot> {
    vec![slot(0, "a", 0b11), slot(1, "a", 0b1100)]
}

fn exited(job: u64, attempt: u32, rank: u32) -> Input {
    let member = MemberId { gang: gang_id(job), attempt, rank };
    Input::MemberExited { member, exit: Exit::code(1) }
}

#[test]
fn a_good_life_is_no_violation() {
    let mut checker = checker();
    assert_eq!(checker.observe(&[], &[start(0, 1, 1, good())]), []);
    assert!(!checker.holds_nothing());
    let ready =
        [0, 1].map(|rank| Input::MemberReady { member: MemberId { gang: gang_id(1), attempt: 1, rank } });
    let release = effect(1, Order::ReleaseMembers { gang: gang_id(1), attempt: 1 });
    assert_eq!(checker.observe(&ready, &[release]), []);
    assert_eq!(checker.observe(&[exited(1, 1, 0), exited(1, 1, 1)], &[]), []);
    assert!(checker.holds_nothing());
    assert_eq!(checker.observe(&[], &[start(2, 1, 2, good())]), []);
}

#[test]
fn each_broken_promise_is_seen() {
    type Seen = fn(&Violation) -> bool;
    let cases: Vec<(Vec<Effect>, Seen)> = vec![
        (vec![start(0, 9, 1, good())], |v| matches!(v, Violation::UnknownGang { .. })),
        (vec![start(0, 1, 2, good())], |v| matches!(v, Violation::AttemptOutOfOrder { .. })),
        (vec![start(0, 1, 1, vec![slot(0, "a", 3)])], |v| matches!(v, Violation::NotWhole { .. })),
        (vec![start(0, 1, 1, vec![slot(1, "a", 3), slot(0, "a", 12)])], |v| {
            matches!(v, Violation::RankOutOfOrder { .. })
        }),
        (vec![start(0, 1, 1, vec![slot(0, "a", 3), slot(1, "b", 3)])], |v| {
            matches!(v, Violation::NodeNotOpen { .. })
        }),
        (vec![start(0, 1, 1, vec![slot(0, "a", 3), slot(1, "a", 4)])], |v| {
            matches!(v, Violation::WrongDeviceCount { .. })
        }),
        (vec![start(0, 1, 1, vec![slot(0, "a", 3), slot(1, "a", 0xc0)])], |v| {
            matches!(v, Violation::NotItsDevices { .. })
        }),
        (vec![start(0, 1, 1, vec![slot(0, "a", 3), slot(1, "a", 6)])], |v| {
            matches!(v, Violation::DeviceTwice { .. })
        }),
        (vec![start(0, 1, 1, good()), start(1, 2, 1, good())], |v| {
            matches!(v, Violation::DeviceTwice { .. })
        }),
        (vec![start(0, 1, 1, good()), start(1, 2, 1, vec![slot(0, "a", 0x30), slot(1, "a", 0x60)])], |v| {
            matches!(v, Violation::OverCapacity { .. })
        }),
        (vec![start(0, 1, 1, good()), start(1, 1, 2, good())], |v| {
            matches!(v, Violation::StartedTwice { .. })
        }),
        (vec![start(5, 1, 1, good()), start(5, 2, 1, good())], |v| {
            matches!(v, Violation::EffectOrder { .. })
        }),
        (
            vec![start(0, 1, 1, good()), effect(1, Order::ReleaseMembers { gang: gang_id(1), attempt: 1 })],
            |v| matches!(v, Violation::ReleasedInPart { .. }),
        ),
        (vec![effect(0, Order::KillMembers { gang: gang_id(1), attempt: 1 })], |v| {
            matches!(v, Violation::OrderAfterEnd { .. })
        }),
    ];
    for (effects, seen) in cases {
        let found = checker().observe(&[], &effects);
        assert!(found.iter().any(seen), "{effects:?} gave {found:?}");
    }
}

#[test]
fn a_start_that_failed_holds_nothing() {
    let mut checker = checker();
    checker.observe(&[], &[start(0, 1, 1, good())]);
    let failed = Input::EffectFailed {
        effect: EffectId { epoch: Epoch(1), seq: 0 },
        class: FailureClass::StartUp,
        detail: String::new(),
    };
    assert_eq!(checker.observe(&[failed], &[start(1, 1, 2, good())]), []);
}

#[test]
fn what_is_not_listed_is_gone() {
    let mut one = checker();
    one.observe(&[], &[start(0, 1, 1, good())]);
    let members = [Input::SyncBegin { kind: SyncKind::Members }, Input::SyncEnd { kind: SyncKind::Members }];
    let mut other = one.clone();
    // Lost, and another takes its place; or started again as the same attempt.
    assert_eq!(one.observe(&members, &[start(1, 2, 1, good())]), []);
    assert_eq!(other.observe(&members, &[start(1, 1, 1, good())]), []);
    assert!(!other.holds_nothing());

    let nodes = [Input::SyncBegin { kind: SyncKind::Nodes }, Input::SyncEnd { kind: SyncKind::Nodes }];
    assert_eq!(other.observe(&nodes, &[]), []);
    assert!(other.holds_nothing());
}

#[test]
fn a_cancel_of_nothing_forbids_nothing() {
    let mut checker = checker();
    let cancel = |job| Input::CancelRequested { job: JobId(job), by: "user".into() };
    assert_eq!(checker.observe(&[cancel(3)], &[]), []);
    let third = Input::JobSubmitted { job: Box::new(job(3, gang(2).devices(2)).build()) };
    assert_eq!(checker.observe(&[third], &[start(0, 3, 1, good())]), []);
    let found = checker.observe(&[cancel(1)], &[start(1, 1, 1, good())]);
    assert!(found.iter().any(|v| matches!(v, Violation::StartedAfterCancel { .. })), "{found:?}");
}

/// A node that shrank under what runs is no fault of a start elsewhere, or of one that needs none of it.
#[test]
fn a_node_may_shrink_below_its_use() {
    let mut checker = checker();
    checker.observe(&[], &[start(0, 1, 1, good())]);
    let shrunk = Input::NodeObserved { node: Box::new(node("a").gpus(8).cpus(1).build()) };
    let free = Input::JobSubmitted { job: Box::new(job(3, gang(1).devices(1)).build()) };
    assert_eq!(checker.observe(&[shrunk, free], &[start(1, 3, 1, vec![slot(0, "a", 0b1_0000)])]), []);
}
