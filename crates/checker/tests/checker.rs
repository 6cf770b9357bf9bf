//! The checker sees what is wrong, and nothing else.

#![allow(clippy::unwrap_used)]

use phalanx_checker::{Checker, Violation};
use phalanx_model::{
    DeviceMask, Effect, EffectId, Epoch, Exit, FailureClass, GangId, Input, JobId, LevelName, MemberId,
    NodeName, Order, Outcome, Placement, Slot, SyncKind, Timestamp,
};
use phalanx_testkit::{gang, job, levels, node};

fn gang_id(job: u64) -> GangId {
    JobId(job).gang(0)
}

fn slot(rank: u32, node: &str, devices: u64) -> Slot {
    Slot { rank, node: NodeName::new(node).unwrap(), devices: DeviceMask(devices), part: None }
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
    assert_eq!(observe(&mut checker, &facts, &[]), []);
    checker
}

fn observe(checker: &mut Checker, facts: &[Input], effects: &[Effect]) -> Vec<Violation> {
    let out = Outcome { effects: effects.to_vec(), ..Outcome::default() };
    checker.observe(Timestamp(1), facts, &out)
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
    assert_eq!(observe(&mut checker, &[], &[start(0, 1, 1, good())]), []);
    assert!(!checker.holds_nothing());
    let ready =
        [0, 1].map(|rank| Input::MemberReady { member: MemberId { gang: gang_id(1), attempt: 1, rank } });
    let release = effect(1, Order::ReleaseMembers { gang: gang_id(1), attempt: 1 });
    assert_eq!(observe(&mut checker, &ready, &[release]), []);
    assert_eq!(observe(&mut checker, &[exited(1, 1, 0), exited(1, 1, 1)], &[]), []);
    assert!(checker.holds_nothing());
    assert_eq!(observe(&mut checker, &[], &[start(2, 1, 2, good())]), []);
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
        let found = observe(&mut checker(), &[], &effects);
        assert!(found.iter().any(seen), "{effects:?} gave {found:?}");
    }
}

#[test]
fn a_start_that_failed_holds_nothing() {
    let mut checker = checker();
    observe(&mut checker, &[], &[start(0, 1, 1, good())]);
    let failed = Input::EffectFailed {
        effect: EffectId { epoch: Epoch(1), seq: 0 },
        class: FailureClass::StartUp,
        detail: String::new(),
    };
    assert_eq!(observe(&mut checker, &[failed], &[start(1, 1, 2, good())]), []);
}

#[test]
fn what_is_not_listed_is_gone() {
    let mut one = checker();
    observe(&mut one, &[], &[start(0, 1, 1, good())]);
    let members = [Input::SyncBegin { kind: SyncKind::Members }, Input::SyncEnd { kind: SyncKind::Members }];
    let mut other = one.clone();
    // Lost, and another takes its place; or started again as the same attempt.
    assert_eq!(observe(&mut one, &members, &[start(1, 2, 1, good())]), []);
    assert_eq!(observe(&mut other, &members, &[start(1, 1, 1, good())]), []);
    assert!(!other.holds_nothing());

    let nodes = [Input::SyncBegin { kind: SyncKind::Nodes }, Input::SyncEnd { kind: SyncKind::Nodes }];
    assert_eq!(observe(&mut other, &nodes, &[]), []);
    assert!(other.holds_nothing());
}

#[test]
fn a_cancel_of_nothing_forbids_nothing() {
    let mut checker = checker();
    let cancel = |job| Input::CancelRequested { job: JobId(job), by: "user".into() };
    assert_eq!(observe(&mut checker, &[cancel(3)], &[]), []);
    let third = Input::JobSubmitted { job: Box::new(job(3, gang(2).devices(2)).build()) };
    assert_eq!(observe(&mut checker, &[third], &[start(0, 3, 1, good())]), []);
    let found = observe(&mut checker, &[cancel(1)], &[start(1, 1, 1, good())]);
    assert!(found.iter().any(|v| matches!(v, Violation::StartedAfterCancel { .. })), "{found:?}");
}

/// A node that shrank under what runs is no fault of a start elsewhere, or of one that needs none of it.
#[test]
fn a_node_may_shrink_below_its_use() {
    let mut checker = checker();
    observe(&mut checker, &[], &[start(0, 1, 1, good())]);
    let shrunk = Input::NodeObserved { node: Box::new(node("a").gpus(8).cpus(1).build()) };
    let free = Input::JobSubmitted { job: Box::new(job(3, gang(1).devices(1)).build()) };
    assert_eq!(observe(&mut checker, &[shrunk, free], &[start(1, 3, 1, vec![slot(0, "a", 0b1_0000)])]), []);
}

/// Two nodes of eight devices in two NVLink islands each, both in one leaf, and a third in another; job 1 of four ranks.
fn start_in_segments(segments: &[(u32, &str)], slots: Vec<Slot>) -> Vec<Violation> {
    let mut checker = Checker::new();
    let at = |name: &str, leaf: &str| {
        let built = node(name).path(["cluster", leaf]).hybrid_cube_mesh().build();
        Input::NodeObserved { node: Box::new(built) }
    };
    let four = segments.iter().fold(gang(4).devices(1), |gang, (size, level)| gang.segment(*size, level));
    let facts = [
        Input::LevelsConfigured { levels: levels(&["cluster", "leaf"]) },
        at("a", "l1"),
        at("b", "l1"),
        at("c", "l2"),
        Input::JobSubmitted { job: Box::new(job(1, four.build()).build()) },
    ];
    observe(&mut checker, &facts, &[start(0, 1, 1, slots)])
}

/// One rank for each pair of a node and a device.
fn ranks(places: [(&str, u32); 4]) -> Vec<Slot> {
    (0..).zip(places).map(|(rank, (node, device))| slot(rank, node, 1 << device)).collect()
}

#[test]
fn a_segment_that_is_apart_is_seen_at_every_level() {
    let in_pairs = ranks([("a", 0), ("a", 1), ("c", 4), ("c", 5)]);
    let nested = [(4, "cluster"), (2, "leaf"), (2, "node"), (2, "nvlink")];
    assert_eq!(start_in_segments(&nested, in_pairs.clone()), []);
    // The last segment has one rank: it stands anywhere.
    assert_eq!(start_in_segments(&[(3, "leaf")], ranks([("a", 0), ("b", 1), ("a", 4), ("c", 5)])), []);

    let apart = |level: &str, first, last| {
        vec![Violation::SegmentApart { gang: gang_id(1), level: level.to_owned(), first, last }]
    };
    assert_eq!(start_in_segments(&[(4, "leaf")], in_pairs.clone()), apart("leaf", 0, 3));
    assert_eq!(start_in_segments(&[(3, "leaf")], in_pairs), apart("leaf", 0, 2));
    // The same places in another order of ranks.
    let mixed = ranks([("a", 0), ("c", 4), ("a", 1), ("c", 5)]);
    let both = [apart("node", 0, 1), apart("node", 2, 3)].concat();
    assert_eq!(start_in_segments(&[(2, "node")], mixed), both);
    // One node, two islands: 0-3 and 4-7.
    let islands = ranks([("a", 0), ("a", 1), ("a", 3), ("a", 4)]);
    assert_eq!(start_in_segments(&[(2, "node")], islands.clone()), []);
    assert_eq!(start_in_segments(&[(2, "nvlink")], islands), apart("nvlink", 2, 3));
    // Device 1 of two nodes is no one island.
    let twins = ranks([("a", 1), ("b", 1), ("b", 2), ("b", 3)]);
    assert_eq!(start_in_segments(&[(2, "nvlink")], twins), apart("nvlink", 0, 1));
    let shown = apart("leaf", 0, 3).remove(0).to_string();
    assert_eq!(shown, "ranks 0 to 3 of gang 1.0 are a segment that must be inside one leaf and is not");
}
