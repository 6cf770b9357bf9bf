//! Mistakes that were made once, each with the promise that it broke.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use phalanx_engine::Config;
use phalanx_model::{
    Answer, Change, Confidence, DeviceMask, EffectId, EndOf, Ending, Epoch, Exit, FailureClass, GangId,
    Input, Job, JobId, MemberId, Node, NodeName, Order, Outcome, Phase, Placement, Question, Reason, Slot,
    StopCause, StopStage, SyncKind, Timestamp,
};
use phalanx_testkit::{GangBuilder, JobBuilder, Watched, gang, job, levels, node};

fn submit(job: JobBuilder) -> Input {
    Input::JobSubmitted { job: Box::new(job.build()) }
}

fn id(job: u64) -> GangId {
    JobId(job).gang(0)
}

fn member(job: u64, rank: u32) -> MemberId {
    MemberId { gang: id(job), attempt: 1, rank }
}

fn one_node(gpus: u32) -> Watched {
    Watched::with_nodes(&levels(&["cluster"]), &[node("a").gpus(gpus).nvswitch().build()])
}

fn word(watched: &Watched, job: u64) -> &'static str {
    watched.engine.reason(id(job)).map_or("none", |reason| reason.word())
}

fn cancel(job: u64) -> Input {
    Input::CancelRequested { job: JobId(job), by: "user".into() }
}

/// A timer set for the advisory stayed behind when the limit came before it, and cut the grace short.
#[test]
fn an_advisory_longer_than_the_limit_leaves_the_whole_grace() {
    let mut watched = one_node(8);
    let limited = job(1, gang(1).devices(1)).time_limit(10_000).advisory(10, 15_000).grace(30_000);
    watched.step(&[submit(limited)]);
    watched.pass_barrier(1);
    watched.advance(10_000);
    let stage = |w: &Watched| match w.record(id(1)).phase {
        Phase::Stopping { stage, .. } => stage,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(stage(&watched), StopStage::Terminated);
    watched.advance(29_999);
    assert_eq!(stage(&watched), StopStage::Terminated, "SIGKILL came before the grace was over");
    watched.advance(1);
    assert_eq!(stage(&watched), StopStage::Killed);
}

/// A pending gang that ended held nothing, so the engine did not retry the gangs that it kept back.
#[test]
fn cancelling_the_head_of_the_line_lets_the_others_go() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(1).devices(4)))]);
    watched.step(&[submit(job(2, gang(8).devices(1)))]);
    for small in 3..19 {
        watched.step(&[submit(job(small, gang(1).devices(4)))]);
        watched.step(&[Input::MemberExited { member: member(small, 0), exit: Exit::code(1) }]);
    }
    watched.step(&[submit(job(19, gang(1).devices(4)))]);
    assert_eq!(word(&watched, 19), "Priority");
    let out = watched.step(&[cancel(2)]);
    assert!(out.changes.iter().any(|c| matches!(c, Change::GangPlaced { gang, .. } if *gang == id(19))));
}

/// A gang at its bypass limit lost that protection when a job of higher priority was before it.
#[test]
fn one_that_was_passed_over_is_not_forgotten_behind_a_new_head() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(1).devices(4)))]);
    watched.step(&[submit(job(2, gang(8).devices(1)))]);
    for small in 3..19 {
        watched.step(&[submit(job(small, gang(1).devices(4)))]);
        watched.step(&[Input::MemberExited { member: member(small, 0), exit: Exit::code(1) }]);
    }
    watched.step(&[submit(job(50, gang(1).devices(7)).priority(9))]);
    watched.step(&[submit(job(51, gang(1).devices(4)))]);
    assert_eq!(watched.engine.reason(id(51)), Some(Reason::Priority { ahead: id(2), at: None }));
}

/// Each gang that ended stopped all the others, each of which ended and stopped all the others …
#[test]
fn a_job_of_ten_thousand_gangs_ends_at_once_and_by_whom_it_was_cancelled() {
    let mut watched = one_node(1);
    let mut many = job(1, gang(1).devices(1)).build();
    many.gangs = vec![many.gangs[0].clone(); 10_000];
    let mut out = Outcome::default();
    let _ = watched.engine.step(watched.now, &[Input::JobSubmitted { job: Box::new(many) }], &mut out);
    let _ = watched.engine.step(watched.now, &[cancel(1)], &mut out);
    let exit = Input::MemberExited { member: member(1, 0), exit: Exit::code(1) };
    let _ = watched.engine.step(watched.now, &[exit], &mut out);
    let by = Ending::Cancelled { by: "user".into() };
    let ended = watched
        .records()
        .into_iter()
        .filter(|r| matches!(&r.phase, Phase::Finished { ending, .. } if *ending == by));
    assert_eq!(ended.count(), 10_000);
    assert!(out.changes.contains(&Change::JobFinished { job: JobId(1), ending: by }));
}

/// The first exit of a batch caused an order that the last exit had made moot.
#[test]
fn no_order_is_given_about_what_ended_in_the_same_step() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(2).devices(1)))]);
    watched.run(1);
    let exits = [0, 1].map(|r| Input::MemberExited { member: member(1, r), exit: Exit::code(1) });
    assert_eq!(watched.step(&exits).effects, []);

    // And no member passes the start barrier when a member has just failed.
    watched.step(&[submit(job(2, gang(2).devices(1)))]);
    watched.step(&[Input::MemberReady { member: member(2, 0) }]);
    let out = watched.step(&[
        Input::MemberReady { member: member(2, 1) },
        Input::MemberExited { member: member(2, 0), exit: Exit::failed(FailureClass::StartUp, "port taken") },
    ]);
    assert!(matches!(out.effects[..], [ref e] if matches!(e.order, Order::KillMembers { .. })), "{out:?}");
}

/// A machine that claims a shape and has more devices than the shape was searched beyond the shape's table.
#[test]
fn a_machine_may_have_more_devices_than_its_shape() {
    let large = node("b").gpus(40).nvswitch().build();
    let small = node("a").gpus(8).nvswitch().build();
    let mut claimed = large;
    Arc::make_mut(&mut claimed.machine).shape = small.machine.shape.clone();
    let mut watched = Watched::with_nodes(&levels(&["cluster"]), &[small]);
    watched.step(&[Input::NodeObserved { node: Box::new(claimed) }]);
    watched.step(&[submit(job(1, gang(20).devices(1)))]);
    watched.step(&[submit(job(2, gang(5).devices(4)))]);
    assert_eq!(watched.record(id(1)).placement.as_ref().unwrap().slots.len(), 20);
    assert_eq!(watched.record(id(2)).placement.as_ref().unwrap().slots.len(), 5);
}

/// A preferred level inside the node replaced the required one.
#[test]
fn required_and_preferred_levels_inside_the_node_both_bind() {
    // Two islands of two devices inside one socket of four; only across them are three free.
    let mut machine = node("a").gpus(8).nvswitch().busy([0, 4]).build();
    let inside = Arc::make_mut(&mut machine.machine);
    inside.groups.retain(|g| g.level.as_str() != "nvlink");
    for islands in [0b11_u64, 0b1100, 0b11_0000, 0b1100_0000] {
        let level = phalanx_model::LevelName::new("nvlink").unwrap();
        inside.groups.push(phalanx_model::DeviceGroup::new(level, DeviceMask(islands)));
    }
    let mut watched = Watched::with_nodes(&levels(&["cluster"]), &[machine]);
    let both = |size: u32| gang(size).devices(1).required("nvlink").preferred("socket", 60_000);
    watched.step(&[submit(job(1, both(2)))]);
    let used = |w: &Watched| {
        let placement = w.record(id(1)).placement.clone().unwrap();
        placement.slots.iter().fold(DeviceMask::EMPTY, |all, s| all.union(s.devices))
    };
    assert!([0b1100, 0b1100_0000].contains(&used(&watched).0), "{}", used(&watched));
}

/// Of three levels inside the node only two bound: a required level was lost between a preferred level and a segment's.
#[test]
fn three_levels_inside_the_node_all_bind() {
    let mut machine = node("a").gpus(8).pcie().build();
    let level = |name: &str| phalanx_model::LevelName::new(name).unwrap();
    let group = |name, devices| phalanx_model::DeviceGroup::new(level(name), DeviceMask(devices));
    let groups = &mut Arc::make_mut(&mut machine.machine).groups;
    groups.clear();
    groups.extend([group("socket", 0xf), group("socket", 0xf0), group("nvlink", 0b1100_0000)]);
    groups.extend((0..4).map(|pair| group("pcie", 0b11 << (2 * pair))));
    let mut watched = Watched::with_nodes(&levels(&["cluster"]), &[machine]);
    let all = gang(1).devices(1).required("nvlink").preferred("socket", 60_000).segment(1, "pcie");
    watched.step(&[submit(job(1, all))]);
    let placement = watched.record(id(1)).placement.clone().unwrap();
    assert!(placement.slots[0].devices.is_subset_of(DeviceMask(0b1100_0000)), "{placement:?}");
}

/// Reasons described the free capacity before later gangs of the same step took it.
#[test]
fn reasons_are_about_what_is_free_in_the_end() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(1).devices(2)))]);
    watched.step(&[submit(job(2, gang(8).devices(1))), submit(job(3, gang(2).devices(2)))]);
    assert_eq!(
        watched.engine.reason(id(2)),
        Some(Reason::Resources { asked: 8, fits: 2, segments: Vec::new() })
    );
}

/// The estimated start of a gang in back-off was "now".
#[test]
fn nothing_is_estimated_to_start_before_its_pause_is_over() {
    let mut watched = one_node(8);
    let retried = job(1, gang(1).devices(1)).retry(3, &[FailureClass::UserCode]).backoff(60_000, 60_000);
    watched.step(&[submit(retried)]);
    watched.run(1);
    watched.step(&[Input::MemberExited { member: member(1, 0), exit: Exit::code(1) }]);
    let estimate = watched.engine.explain(id(1)).unwrap().estimated_start.unwrap();
    assert_eq!((estimate.at, estimate.confidence), (watched.now.plus(60_000), Confidence::AtLatest));

    // One node could hold both gangs, were it not for other users.
    let nodes = [node("a").gpus(2).busy([0]).build(), node("b").gpus(1).build()];
    let mut watched = Watched::with_nodes(&levels(&["cluster"]), &nodes);
    watched.step(&[submit(job(1, gang(2).devices(1).preferred("node", 5_000)))]);
    let estimate = watched.engine.explain(id(1)).unwrap().estimated_start.unwrap();
    assert_eq!(estimate.at, watched.now.plus(5_000));
}

/// Each gang of a job was evaluated alone: each would start, and only one could.
#[test]
fn what_if_counts_what_the_first_gang_takes() {
    let watched = one_node(8);
    let two = job(1, gang(1).devices(6)).and(gang(1).devices(6)).build();
    let Answer::WouldBe(reports) = watched.engine.what_if(&Question::Submitted(Box::new(two))) else {
        panic!()
    };
    assert_eq!(reports[0].estimated_start.map(|e| e.confidence), Some(Confidence::Now));
    assert_eq!(reports[1].reason.word(), "Resources");
}

/// Devices that two gangs were observed to hold were free when the first gang ended.
#[test]
fn a_device_that_is_held_twice_is_free_when_both_have_ended() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(1).devices(8)))]);
    watched.run(1);
    // Two leaders at once: another job is observed on devices that this job holds.
    let record = phalanx_model::GangRecord { id: id(2), ..watched.record(id(1)).clone() };
    let twin = job(2, gang(1).devices(8)).build();
    watched.step(&[Input::JobObserved { job: Box::new(twin), gangs: vec![record] }]);
    watched.step(&[Input::MemberExited { member: member(1, 0), exit: Exit::code(0) }]);
    watched.step(&[submit(job(3, gang(1).devices(1)))]);
    assert_eq!(word(&watched, 3), "Resources");
    watched.step(&[Input::MemberExited { member: member(2, 0), exit: Exit::code(0) }]);
    assert!(watched.record(id(3)).holds_capacity());
}

/// A world that assigns devices by itself may exchange the devices of two equal requests.
#[test]
fn devices_that_were_exchanged_are_held_as_they_are_and_not_as_they_were_meant() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(1).devices(2))), submit(job(2, gang(1).devices(2)))]);
    watched.run(1);
    watched.run(2);
    let held =
        |watched: &Watched, job: u64| watched.record(id(job)).placement.as_ref().unwrap().slots[0].devices;
    let (first, second) = (held(&watched, 1), held(&watched, 2));
    watched.step(&[Input::DevicesObserved { members: vec![(member(1, 0), second), (member(2, 0), first)] }]);
    assert_eq!((held(&watched, 1), held(&watched, 2)), (second, first));
    // A member that holds free devices: the devices that it was assigned are free instead.
    let other = DeviceMask::first(8).minus(first).minus(second).iter().take(2).collect::<DeviceMask>();
    watched.step(&[Input::DevicesObserved { members: vec![(member(1, 0), other)] }]);
    watched.step(&[Input::MemberExited { member: member(2, 0), exit: Exit::code(0) }]);
    watched.step(&[submit(job(3, gang(1).devices(6)))]);
    assert_eq!(held(&watched, 3), DeviceMask::first(8).minus(other));
    // Not as many devices, or none of this node.
    for wrong in [DeviceMask::first(3), [62, 63].into_iter().collect()] {
        let out = watched.step(&[Input::DevicesObserved { members: vec![(member(1, 0), wrong)] }]);
        assert!(out.changes.iter().any(|c| matches!(c, Change::InputRejected { .. })), "{out:?}");
        assert_eq!(held(&watched, 1), other);
    }
}

/// At the end of time every deadline had come, again and again, inside one step.
#[test]
fn a_step_at_the_end_of_time_ends() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(1).devices(1)).time_limit(5).advisory(10, 3))]);
    watched.run(1);
    watched.now = Timestamp::MAX;
    watched.step(&[cancel(1)]);
    watched.step(&[Input::MemberExited { member: member(1, 0), exit: Exit::code(1) }]);
    assert!(watched.record(id(1)).is_finished());
}

/// An observed attempt number at the end of its range overflowed at the next start.
#[test]
fn an_attempt_that_cannot_be_followed_is_refused() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(1).devices(16)))]);
    let mut other = one_node(8);
    other.step(&[submit(job(2, gang(9).devices(1)))]);
    let known = job(3, gang(1).devices(1)).build();
    let mut donor = one_node(8);
    donor.step(&[cordon("a"), Input::JobSubmitted { job: Box::new(known.clone()) }]);
    let mut record = donor.record(id(3)).clone();
    record.attempt = u32::MAX;
    record.failures = u32::MAX;
    record.bypassed = u32::MAX;
    let out = watched.step(&[Input::JobObserved { job: Box::new(known), gangs: vec![record] }]);
    assert!(out.changes.iter().any(|c| matches!(c, Change::InputRejected { .. })), "{out:?}");
    assert!(watched.engine.job(JobId(3)).is_none());
}

fn cordon(name: &str) -> Input {
    Input::NodeCordoned { node: NodeName::new(name).unwrap() }
}

/// The engine waited for a refused start when the job was being cancelled already.
#[test]
fn a_refused_start_ends_what_is_being_stopped() {
    let mut watched = one_node(8);
    let out = watched.step(&[submit(job(1, gang(4).devices(1)))]);
    let start = out.effects[0].id;
    let kill = watched.step(&[cancel(1)]).effects[0].id;
    // A failed kill says nothing of the members.
    let failed = |effect: EffectId| Input::EffectFailed {
        effect,
        class: FailureClass::Infrastructure,
        detail: "refused".into(),
    };
    watched.step(&[failed(kill)]);
    assert!(watched.record(id(1)).holds_capacity());
    watched.step(&[failed(start)]);
    assert!(watched.record(id(1)).is_finished());
}

/// A placement inside one island was reported as inside one node.
#[test]
fn the_level_of_a_placement_is_the_narrowest_that_holds_it() {
    let level = |asked: GangBuilder| {
        let mut watched = Watched::with_nodes(
            &levels(&["cluster"]),
            &[node("a").hybrid_cube_mesh().build(), node("b").build()],
        );
        watched.step(&[submit(job(1, asked))]);
        watched.record(id(1)).placement.as_ref().unwrap().level.to_string()
    };
    assert_eq!(level(gang(4).devices(1)), "nvlink");
    assert_eq!(level(gang(8).devices(1)), "node");
    assert_eq!(level(gang(4).cpu_milli(1_000)), "node");
    assert_eq!(level(gang(2).cpu_milli(64_000)), "cluster");
}

/// The remnants of an old attempt were refused at every restart.
#[test]
fn the_dead_of_an_old_attempt_are_no_news() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(1).devices(1)))]);
    watched.step(&[Input::MemberExited { member: member(1, 0), exit: Exit::code(1) }]);
    let state = phalanx_model::MemberState::Exited(Exit::code(1));
    let out = watched.step(&[
        Input::SyncBegin { kind: SyncKind::Members },
        Input::MemberObserved { member: member(1, 0), state },
        Input::SyncEnd { kind: SyncKind::Members },
    ]);
    assert_eq!(out, Outcome::default());
}

/// Largest and smallest amounts: nothing panics, and nothing fits that must not.
#[test]
fn amounts_at_their_limits() {
    let mut huge = node("huge").gpus(64).cpus(u64::MAX).memory(u64::MAX).build();
    Arc::make_mut(&mut huge.machine).cpu_milli = u64::MAX;
    let nodes: Vec<Node> = vec![huge, node("none").cpus(0).memory(0).build()];
    let mut watched = Watched::with_nodes(&levels(&["cluster"]), &nodes);
    let all = [
        gang(1).memory(u64::MAX),
        gang(2).memory(u64::MAX / 2),
        gang(1).memory(i64::MAX as u64),
        gang(2).memory(i64::MAX as u64 / 2).cpu_milli(i64::MAX as u64 / 2),
        gang(1).cpu_milli(u64::MAX),
        gang(64).devices(1),
        gang(1).devices(64).cpu_milli(1),
        gang(1).devices(65),
        gang(u32::MAX).devices(1),
        gang(1_000_000).devices(64),
        gang(0),
        gang(4).per_node(0),
        gang(1_000_000).per_node(500_000).cpu_milli(1),
    ];
    for (number, asked) in (1..).zip(all) {
        let asked = job(number, asked).submitted_at(u64::MAX).time_limit(u64::MAX).grace(u64::MAX);
        let asked = asked.start_deadline(u64::MAX).advisory(i32::MIN, u64::MAX).priority(i32::MIN);
        watched.step(&[submit(asked)]);
        watched.advance(1);
        for record in watched.records() {
            let _ = watched.engine.explain(record.id);
        }
        if watched.engine.gang(id(number)).is_some_and(phalanx_model::GangRecord::holds_capacity) {
            watched.step(&[cancel(number)]);
            watched.step(&[Input::NodeRemoved { node: NodeName::new("huge").unwrap() }]);
            watched.step(&[Input::NodeObserved { node: Box::new(nodes[0].clone()) }]);
        }
    }
    watched.now = Timestamp(u64::MAX - 1);
    watched.advance(1);
}

/// Observed work that the hardware cannot hold: free amounts become negative, and recover.
#[test]
fn the_world_may_be_worse_than_the_books() {
    let mut watched = one_node(8);
    for number in [1, 2] {
        let needs = gang(1).devices(4).cpu_milli(u64::MAX).memory(u64::MAX);
        let placement = Placement {
            slots: vec![Slot {
                rank: 0,
                node: NodeName::new("a").unwrap(),
                devices: DeviceMask(u64::MAX),
                part: None,
            }],
            level: phalanx_model::LevelName::new("node").unwrap(),
        };
        let record = phalanx_model::GangRecord {
            phase: Phase::Running { since: Timestamp(5) },
            attempt: 1,
            placement: Some(placement),
            members: vec![phalanx_model::MemberRecord { state: phalanx_model::MemberState::Running }],
            ..phalanx_model::GangRecord::pending(id(number), Timestamp(0))
        };
        let observed: Job = job(number, needs).build();
        watched.step(&[Input::JobObserved { job: Box::new(observed), gangs: vec![record] }]);
    }
    assert_eq!(watched.engine.free(&NodeName::new("a").unwrap()).unwrap().cpu_milli, i64::MIN);
    watched.step(&[submit(job(3, gang(1).cpu_milli(1)))]);
    assert_eq!(word(&watched, 3), "Resources");
    for number in [1, 2] {
        watched.step(&[Input::MemberExited { member: member(number, 0), exit: Exit::code(0) }]);
    }
    assert!(watched.record(id(3)).holds_capacity());
}

/// An answer to an order of an old leader is refused, and changes nothing.
#[test]
fn an_old_leaders_answer_is_history() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(4).devices(1)))]);
    watched.restart();
    let effect = EffectId { epoch: Epoch(1), seq: 0 };
    let out = watched.step(&[Input::EffectDone { effect }]);
    assert_eq!(out, Outcome::default());
    assert!(watched.record(id(1)).holds_capacity());
}

/// Each fact about one member cost a pass over all members: the end of a large gang took the square of its size.
#[test]
fn a_gang_of_a_hundred_thousand_comes_and_goes_member_by_member() {
    const SIZE: u32 = 100_000;
    let nodes = [node("a").cpus(SIZE.into()).build()];
    let mut engine = phalanx_engine::Engine::new(Epoch(1), phalanx_engine::Config::default());
    let mut out = Outcome::default();
    let mut step = |inputs: &[Input]| {
        let _ = engine.step(Timestamp(1), inputs, &mut out);
        (engine.gang(id(1)).map(|r| r.phase.clone()), out.effects.len())
    };
    step(&[
        Input::LevelsConfigured { levels: levels(&["cluster"]) },
        Input::NodeObserved { node: Box::new(nodes[0].clone()) },
        submit(job(1, gang(SIZE).cpu_milli(1000))),
    ]);
    let ready: Vec<Input> = (0..SIZE).map(|r| Input::MemberReady { member: member(1, r) }).collect();
    assert_eq!(step(&ready).1, 1, "one order releases all");
    let released: Vec<Input> = (0..SIZE).map(|r| Input::MemberReleased { member: member(1, r) }).collect();
    assert!(matches!(step(&released).0, Some(Phase::Running { .. })));
    let exit = Exit::succeeded();
    let exits = (0..SIZE).map(|r| Input::MemberExited { member: member(1, r), exit: exit.clone() });
    let exits: Vec<Input> = exits.collect();
    assert!(matches!(step(&exits).0, Some(Phase::Finished { ending: Ending::Succeeded, .. })));
}

/// A gang waited out its preference for a level that is always too small for it.
#[test]
fn a_preferred_level_that_could_never_hold_it_is_not_waited_for() {
    let nodes = ["a", "b"].map(|n| node(n).gpus(8).nvswitch().build());
    let mut watched = Watched::with_nodes(&levels(&["cluster"]), &nodes);
    watched.step(&[submit(job(1, gang(16).devices(1).preferred("node", 60_000)))]);
    assert!(matches!(watched.record(id(1)).phase, Phase::Starting { .. }), "{}", word(&watched, 1));
    // A gang that could fit waits.
    watched.step(&[submit(job(2, gang(8).devices(1).preferred("node", 60_000)))]);
    assert_eq!(word(&watched, 2), "Resources");
}

/// The failed gang stopped another gang with a lower number, and the job was reported as cancelled.
#[test]
fn a_job_ends_as_the_gang_that_failed_and_not_as_one_stopped_for_it() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(1).devices(1)).and(gang(1).devices(1)))]);
    let second = MemberId { gang: JobId(1).gang(1), attempt: 1, rank: 0 };
    watched.step(&[Input::MemberReady { member: member(1, 0) }, Input::MemberReady { member: second }]);
    watched.step(&[Input::MemberReleased { member: member(1, 0) }, Input::MemberReleased { member: second }]);
    watched.step(&[Input::MemberExited { member: second, exit: Exit::code(3) }]);
    let out = watched.step(&[Input::MemberExited {
        member: member(1, 0),
        exit: Exit::failed(FailureClass::UserCode, ""),
    }]);
    let ended = out.changes.iter().find_map(|c| match c {
        Change::JobFinished { ending, .. } => Some(ending.clone()),
        _ => None,
    });
    assert_eq!(ended.map(|e| e.exit_code()), Some(3));
}

/// A grace of centuries held devices against everyone, including the operator.
#[test]
fn whoever_holds_devices_can_be_stopped_within_days() {
    let mut watched = one_node(8);
    for policy in [
        job(1, gang(1)).grace(u64::MAX),
        job(1, gang(1)).advisory(10, 1 << 63),
        job(1, gang(1)).start_deadline(u64::MAX),
    ] {
        let out = watched.step(&[submit(policy)]);
        assert!(matches!(out.changes[..], [Change::JobRejected { .. }]), "{:?}", out.changes);
    }
}

/// Gangs that start together were placed jointly, and so bypassed a gang that was at its bypass limit.
#[test]
fn placing_several_together_passes_nobody_over_for_ever() {
    let mut watched = Watched::new(Config { bypass_max: 0 });
    let nodes = [
        node("a").path(["c"]).gpus(4).cpus(4).busy([0]).build(),
        node("b").path(["c"]).gpus(4).cpus(2).build(),
    ];
    watched.step(&[Input::LevelsConfigured { levels: levels(&["cluster"]) }]);
    watched.step(&nodes.map(|node| Input::NodeObserved { node: Box::new(node) }));
    watched.step(&[
        // This gang waits for the busy device, and may not be bypassed.
        submit(job(1, gang(8).devices(1))),
        // This gang takes none of its devices, and the CPUs of a or of b.
        submit(job(2, gang(1).cpu_milli(2_000))),
        // This gang fits on a if the gang before moves to b, and would take a device from the first gang.
        submit(job(3, gang(1).devices(1).cpu_milli(3_000))),
    ]);
    assert!(watched.record(id(2)).holds_capacity());
    assert!(watched.record(id(3)).is_pending());
}

/// If a list of jobs did not name the job that another job waited for, the latter waited for ever.
#[test]
fn whoever_waits_for_a_job_that_is_gone_goes_on() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(1).devices(1)))]);
    watched.run(1);
    watched.step(&[submit(job(2, gang(1).devices(1)).after(1, EndOf::Success))]);
    assert_eq!(word(&watched, 2), "Dependency");
    let mut listed = vec![Input::SyncBegin { kind: SyncKind::Jobs }];
    listed.extend(
        watched
            .engine
            .facts()
            .into_iter()
            .filter(|fact| matches!(fact, Input::JobObserved { job, .. } if job.id == JobId(2))),
    );
    listed.push(Input::SyncEnd { kind: SyncKind::Jobs });
    let out = watched.step(&listed);
    assert!(matches!(out.effects.as_slice(), [effect] if effect.order.gang() == id(2)), "{out:?}");
}

/// The same if the list says that the job has ended.
#[test]
fn whoever_waits_for_a_job_that_is_told_to_have_ended_goes_on() {
    let mut watched = one_node(8);
    watched.step(&[submit(job(1, gang(1).devices(1)))]);
    watched.run(1);
    watched.step(&[submit(job(2, gang(1).devices(1)).after(1, EndOf::Success))]);
    let ended = watched.record(id(1)).clone();
    let phase = Phase::Finished { at: watched.now, ending: Ending::Succeeded };
    let job = Box::new(watched.engine.jobs().next().unwrap().0.clone());
    watched.step(&[Input::JobObserved { job, gangs: vec![phalanx_model::GangRecord { phase, ..ended }] }]);
    assert!(watched.record(id(2)).holds_capacity(), "{}", word(&watched, 2));
}

/// A rank that left something behind was heard of last although it failed first, and the rank that failed for it was blamed.
#[test]
fn the_rank_that_ended_first_is_blamed() {
    let at = |ms: u64, exit: Exit| Exit { ended_ns: Some(ms * 1_000_000), ..exit };
    let (failed, killed, told) = (Exit::code(1), Exit::by_signal(9), Exit::by_signal(15));
    let cases = [
        (at(900, failed.clone()), at(100, failed.clone()), 2, "it ended before"),
        (at(100, failed.clone()), at(900, failed.clone()), 1, "it ended after"),
        (at(110, failed.clone()), at(100, failed.clone()), 1, "nobody can tell"),
        (at(100, failed.clone()), at(110, killed.clone()), 2, "it was killed, and the other one exited"),
        (at(110, killed), at(100, failed.clone()), 1, "it exited, and the other one was killed"),
        (at(100, failed.clone()), at(110, told), 1, "it was told to"),
        (failed.clone(), at(100, failed), 1, "nobody knows"),
    ];
    for (first, second, blamed, what) in cases {
        let mut watched = Watched::with_nodes(&levels(&["cluster"]), &[node("a").gpus(4).build()]);
        watched.submit(job(1, gang(3)).retry(1, &[FailureClass::UserCode]));
        watched.run(1);
        watched.step(&[Input::MemberExited { member: watched.member(1, 1), exit: first }]);
        watched.restart();
        watched.step(&[Input::MemberExited { member: watched.member(1, 2), exit: second }]);
        let phase = watched.record(JobId(1).gang(0)).phase.clone();
        let Phase::Stopping { cause: StopCause::Failure { rank, .. }, .. } = phase else {
            panic!("{phase:?}")
        };
        assert_eq!(rank, Some(blamed), "{what}");
    }
}
