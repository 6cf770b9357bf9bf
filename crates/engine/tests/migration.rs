//! A gang leaves degraded hardware after a checkpoint, if that costs less than staying, and its new nodes are kept for it until
//! it starts there.

#![allow(clippy::unwrap_used)]

use phalanx_model::{
    Change, DeviceMask, Effect, Exit, FailureClass, GangId, Grade, Health, Input, JobId, Migration, NodeName,
    Order, Outcome, PreemptMode, Rule, Settings, Signal, Spare, Spares, StopCause, Unblock,
};
use phalanx_testkit::{JobBuilder, Watched, gang, job, levels, node};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

fn id(job: u64) -> GangId {
    JobId(job).gang(0)
}

fn grade(name: &str, devices: DeviceMask, grade: Grade) -> Input {
    let (node, detail) = (NodeName::new(name).unwrap(), "an NVLink is down".into());
    Input::HealthGraded { health: Health { node, devices, grade, detail } }
}

fn degraded(name: &str) -> Input {
    grade(name, DeviceMask::one(2), Grade::DrainAfterJob)
}

fn settings(migration: Option<Migration>) -> Input {
    Input::SettingsConfigured { settings: Box::new(Settings { migration, ..Settings::default() }) }
}

fn always() -> Option<Migration> {
    Some(Migration { is_unconditional: true, ..Migration::default() })
}

/// One rack with so many nodes of four devices each.
fn rack(nodes: usize) -> Watched {
    let nodes: Vec<_> = (0..nodes)
        .map(|at| node(&format!("n-{at}")).path(["cluster", "r"]).gpus(4).nvswitch().build())
        .collect();
    Watched::with_nodes(&levels(&["cluster", "rack"]), &nodes)
}

fn train(id: u64, ranks: u32) -> JobBuilder {
    job(id, gang(ranks).devices(4).required("rack")).retry(9, &[FailureClass::Node]).time_limit(100 * HOUR_MS)
}

fn saves(watched: &mut Watched, job: u64) -> Outcome {
    let at = watched.now;
    watched.step(&[Input::GangCheckpointed { gang: id(job), at }])
}

/// Lets a gang save its work after so much time.
fn saves_after(watched: &mut Watched, job: u64, ms: u64) -> Outcome {
    watched.advance(ms);
    saves(watched, job)
}

/// Why a gang is being stopped in a step.
fn stop_of(out: &Outcome, job: u64) -> Option<String> {
    out.changes.iter().find_map(|change| match change {
        Change::GangStopping { gang, cause: StopCause::Displaced { detail, .. }, .. } if *gang == id(job) => {
            Some(detail.clone())
        }
        _ => None,
    })
}

fn nodes(watched: &Watched, job: u64) -> Vec<String> {
    let placement = watched.record(id(job)).placement.clone().unwrap();
    placement.slots.iter().map(|slot| slot.node.to_string()).collect()
}

fn spares(watched: &Watched) -> Vec<String> {
    let spare = watched.engine.nodes().filter(|node| node.spare != Spare::No);
    spare.map(|node| node.name.to_string()).collect()
}

#[test]
fn a_gang_moves_off_degraded_hardware_right_after_a_checkpoint() {
    let mut watched = rack(4);
    watched.submit(train(1, 2).grace(2 * MINUTE_MS));
    watched.run(1);
    saves_after(&mut watched, 1, 15 * MINUTE_MS);
    watched.step(&[degraded("n-1")]);
    watched.advance(14 * MINUTE_MS);
    assert_eq!(watched.phase(1), "running", "its work since the last checkpoint is not saved");
    watched.advance(MINUTE_MS);
    let out = saves(&mut watched, 1);
    let why = "device 2 of node n-1 is graded drain_after_job: an NVLink is down; moves after a checkpoint: a restart costs 2m, \
               and staying 7m39s on average";
    assert_eq!(stop_of(&out, 1).as_deref(), Some(why));
    // What it is to have is free, and nobody else gets it: neither who waits, nor who comes.
    assert_eq!(spares(&watched), ["n-2"]);
    watched.restart();
    watched.submit(train(2, 2).priority(1_000));
    assert_eq!((watched.phase(1), watched.phase(2)), ("stopping", "pending"));
    watched.exit(1, [0]);
    watched.exit(1, [1]);
    assert_eq!((watched.phase(1), nodes(&watched, 1)), ("starting", vec!["n-0".into(), "n-2".into()]));
    assert_eq!((spares(&watched), watched.record(id(1)).failures), (vec![], 0));
}

#[test]
fn a_gang_stays_if_moving_costs_more() {
    for (every_min, limit, expected) in [(1, 24, "running"), (15, 3, "running"), (15, 100, "stopping")] {
        let mut watched = rack(4);
        watched.submit(train(1, 2).time_limit(limit * HOUR_MS));
        watched.run(1);
        watched.step(&[degraded("n-1")]);
        saves_after(&mut watched, 1, every_min * MINUTE_MS);
        assert_eq!(watched.phase(1), expected, "a checkpoint every {every_min} min, {limit} h");
    }
}

/// A checkpoint that is reported late has work after it that would be lost.
#[test]
fn what_a_gang_did_since_its_checkpoint_counts_as_cost() {
    let mut watched = rack(4);
    watched.submit(train(1, 2));
    watched.run(1);
    watched.step(&[degraded("n-1")]);
    watched.advance(15 * MINUTE_MS);
    let at = watched.now;
    watched.advance(10 * MINUTE_MS);
    watched.step(&[Input::GangCheckpointed { gang: id(1), at }]);
    assert_eq!(watched.phase(1), "running");
}

#[test]
fn settings_decide_whether_gangs_migrate() {
    for (migration, expected) in [(always(), "stopping"), (None, "running")] {
        let mut watched = rack(4);
        watched.step(&[settings(migration)]);
        watched.submit(train(1, 2));
        watched.run(1);
        watched.step(&[degraded("n-1")]);
        saves_after(&mut watched, 1, MINUTE_MS);
        assert_eq!(watched.phase(1), expected);
    }
}

/// Without a place that is made ready, a gang would only wait elsewhere.
#[test]
fn a_gang_stays_if_no_equal_node_is_free() {
    let mut watched = rack(3);
    watched.step(&[settings(always())]);
    watched.submit(train(1, 2));
    watched.run(1);
    watched.submit(train(2, 1));
    watched.run(2);
    watched.step(&[degraded("n-0")]);
    saves_after(&mut watched, 1, MINUTE_MS);
    assert_eq!(watched.phase(1), "running");
    watched.end(2, &Exit::succeeded());
    saves_after(&mut watched, 1, MINUTE_MS);
    assert_eq!((watched.phase(1), spares(&watched)), ("stopping", vec!["n-2".into()]));
}

/// A program may go on after the signal; what it does then is lost, and others need the time.
#[test]
fn a_gang_that_saved_its_work_after_the_signal_is_told_to_end_at_once() {
    let mut watched = rack(3);
    watched.submit(train(1, 1).advisory(10, HOUR_MS).grace(MINUTE_MS));
    watched.run(1);
    watched.advance(MINUTE_MS);
    let before = watched.now;
    watched.advance(1_000);
    watched.step(&[grade("n-0", DeviceMask::EMPTY, Grade::DrainNow)]);
    let signals = |out: &Outcome| {
        let is_signal =
            |effect: &Effect| matches!(effect.order, Order::SignalMembers { signal: Signal::Terminate, .. });
        out.effects.iter().any(is_signal)
    };
    let out = watched.step(&[Input::GangCheckpointed { gang: id(1), at: before }]);
    assert!(!signals(&out), "that was before the signal");
    watched.advance(1_000);
    assert!(signals(&saves(&mut watched, 1)));
}

/// Two gangs save their work in one step, and one node is free.
#[test]
fn a_node_is_kept_for_one_gang() {
    let mut watched = rack(3);
    watched.step(&[settings(always())]);
    for job in [1, 2] {
        watched.submit(train(job, 1));
        watched.run(job);
    }
    watched.step(&[degraded("n-0"), degraded("n-1")]);
    watched.advance(MINUTE_MS);
    let at = watched.now;
    watched.step(&[1, 2].map(|job| Input::GangCheckpointed { gang: id(job), at }));
    assert_eq!([1, 2].map(|job| watched.phase(job)), ["stopping", "running"]);
    watched.exit(1, [0]);
    assert_eq!(nodes(&watched, 1), ["n-2"]);
}

#[test]
fn who_cannot_resume_elsewhere_or_never_makes_way_stays() {
    let pinned = train(1, 1).pinned();
    let jobs = [pinned, train(1, 1).preempt(PreemptMode::Never), train(1, 1).preempt(PreemptMode::Cancel)];
    for job in jobs {
        let mut watched = rack(3);
        watched.step(&[settings(always())]);
        watched.submit(job);
        watched.run(1);
        watched.step(&[degraded("n-0")]);
        saves_after(&mut watched, 1, MINUTE_MS);
        assert_eq!(watched.phase(1), "running");
    }
}

/// From the moment of its stop, and not only from its end: with a grace of an hour another job would have taken the node.
#[test]
fn nodes_are_kept_for_every_gang_that_is_stopped_for_its_hardware() {
    let mut watched = rack(3);
    watched.submit(train(1, 2).grace(HOUR_MS));
    watched.run(1);
    watched.step(&[grade("n-0", DeviceMask::EMPTY, Grade::Broken)]);
    assert_eq!(spares(&watched), ["n-2"]);
    watched.submit(train(2, 1));
    watched.restart();
    assert_eq!((watched.phase(1), watched.phase(2)), ("stopping", "pending"));
    watched.exit(1, 0..2);
    assert_eq!(nodes(&watched, 1), ["n-2", "n-1"]);
}

#[test]
fn a_kept_node_is_free_again_if_the_gang_does_not_come() {
    let ends: [fn(&mut Watched); 3] = [
        |watched| {
            watched.step(&[Input::CancelRequested { job: JobId(1), by: "user".into() }]);
            watched.exit(1, 0..2);
        },
        // It is held, and nobody knows for how long.
        |watched| {
            watched.step(&[Input::JobHeld { job: JobId(1), by: "user".into() }]);
            watched.exit(1, 0..2);
        },
        // One of its processes hangs.
        |watched| {
            watched.exit(1, [0]);
            watched.advance(MINUTE_MS);
            watched.advance(MINUTE_MS);
        },
    ];
    for end in ends {
        let mut watched = rack(3);
        watched.submit(train(1, 2).grace(MINUTE_MS));
        watched.run(1);
        watched.step(&[grade("n-0", DeviceMask::EMPTY, Grade::DrainNow)]);
        watched.submit(train(2, 1));
        assert_eq!((watched.phase(2), spares(&watched)), ("pending", vec!["n-2".into()]));
        end(&mut watched);
        assert_eq!((watched.phase(2), spares(&watched)), ("starting", vec![]));
    }
}

/// The gang starts again at once, so what it leaves for a moment is promised to nobody; and a job that needs all nodes is not
/// refused for good.
#[test]
fn who_waits_is_promised_no_place_of_a_gang_that_moves() {
    let mut watched = rack(3);
    watched.submit(train(1, 2));
    watched.run(1);
    watched.step(&[grade("n-0", DeviceMask::EMPTY, Grade::DrainNow)]);
    watched.submit(job(2, gang(1).devices(4)));
    let report = watched.engine.explain(id(2)).unwrap();
    assert!(report.unblock.contains(&Unblock::Without { rule: Rule::Spares }), "{report:?}");
    let reserved = watched.record(id(2)).reserved.as_ref().and_then(|reserved| reserved.at).unwrap();
    assert!(reserved > watched.now.plus(100 * HOUR_MS), "{reserved:?}");
    watched.step(&[grade("n-0", DeviceMask::EMPTY, Grade::Ok)]);
    watched.submit(train(3, 3));
    assert_eq!(watched.phase(3), "pending");
}

/// The spare nodes of the policy stay as many as they were.
#[test]
fn kept_nodes_are_beyond_the_spare_nodes() {
    let mut watched = rack(5);
    let spares_of = Some(Spares { level: None, nodes: 1, is_filled: false });
    let settings = Settings { spares: spares_of, migration: always(), ..Settings::default() };
    watched.step(&[Input::SettingsConfigured { settings: Box::new(settings) }]);
    watched.submit(train(1, 2));
    watched.run(1);
    watched.step(&[degraded("n-0")]);
    saves_after(&mut watched, 1, MINUTE_MS);
    assert_eq!((watched.phase(1), spares(&watched)), ("stopping", vec!["n-2".into(), "n-4".into()]));
    watched.exit(1, 0..2);
    assert_eq!(
        (nodes(&watched, 1), spares(&watched)),
        (vec!["n-2".into(), "n-1".into()], vec!["n-4".into()])
    );
}

/// Each of them would keep a whole node, and they fit on one together.
#[test]
fn small_gangs_that_lose_all_they_have_keep_no_nodes() {
    let mut watched = rack(6);
    for id in 1..=4 {
        watched.submit(job(id, gang(1).devices(1)));
        watched.run(id);
    }
    assert_eq!(nodes(&watched, 4), ["n-0"]);
    watched.step(&[Input::DrainRequested { node: NodeName::new("n-0").unwrap() }]);
    assert_eq!(spares(&watched), [""; 0]);
    let gone: Vec<Input> = (1..=4).flat_map(|job| watched.exits(job, [0])).collect();
    watched.step(&gone);
    assert_eq!([1, 2, 3, 4].map(|job| nodes(&watched, job)).concat(), ["n-1"; 4]);
}

#[test]
fn a_gang_that_does_not_start_again_keeps_no_nodes() {
    for (retries, kept) in [(0, vec![]), (1, vec!["n-2".to_owned()])] {
        let mut watched = rack(3);
        watched.submit(train(1, 2).retry(retries, &[FailureClass::Node]).grace(HOUR_MS));
        watched.run(1);
        watched.step(&[Input::NodeRemoved { node: NodeName::new("n-0").unwrap() }]);
        assert_eq!((watched.phase(1), spares(&watched)), ("stopping", kept));
    }
}

/// The job is cancelled, or held, while its processes still save their work.
#[test]
fn a_kept_node_is_free_as_soon_as_the_gang_does_not_come() {
    let by = || "user".to_owned();
    for (fact, back) in [
        (Input::CancelRequested { job: JobId(1), by: by() }, None),
        (Input::JobHeld { job: JobId(1), by: by() }, Some(Input::JobReleased { job: JobId(1), by: by() })),
    ] {
        let mut watched = rack(3);
        watched.submit(train(1, 2).grace(HOUR_MS));
        watched.run(1);
        watched.step(&[grade("n-0", DeviceMask::EMPTY, Grade::DrainNow)]);
        assert_eq!(spares(&watched), ["n-2"]);
        watched.step(&[fact]);
        assert_eq!((watched.phase(1), spares(&watched)), ("stopping", vec![]));
        if let Some(back) = back {
            watched.step(&[back]);
            assert_eq!(spares(&watched), ["n-2"]);
        }
    }
}

#[test]
fn a_kept_node_that_fails_is_followed_by_another() {
    let mut watched = rack(4);
    watched.submit(train(1, 2).grace(HOUR_MS));
    watched.run(1);
    watched.step(&[grade("n-0", DeviceMask::EMPTY, Grade::DrainNow)]);
    assert_eq!(spares(&watched), ["n-2"]);
    watched.step(&[grade("n-2", DeviceMask::one(0), Grade::Broken)]);
    assert_eq!(spares(&watched), ["n-3"]);
    watched.step(&[Input::NodeRemoved { node: NodeName::new("n-3").unwrap() }]);
    assert_eq!(spares(&watched), [""; 0]);
    watched.restart();
}

/// The last checkpoint of a job that is about to end.
#[test]
fn a_gang_of_which_a_member_has_ended_stays() {
    let mut watched = rack(4);
    watched.step(&[settings(always())]);
    watched.submit(train(1, 2));
    watched.run(1);
    watched.step(&[degraded("n-1")]);
    let member = watched.member(1, 0);
    watched.step(&[Input::MemberExited { member, exit: Exit::succeeded() }]);
    saves_after(&mut watched, 1, MINUTE_MS);
    assert_eq!(watched.phase(1), "running");
}

/// A replica ends by itself never, and loses nothing if another runs first.
#[test]
fn a_replica_leaves_degraded_hardware_once_another_runs_elsewhere() {
    let mut watched = rack(3);
    let web = job(1, gang(1).devices(4)).class("serving").service(1, 1).restarts().surge(1);
    watched.submit(web);
    watched.run(1);
    watched.step(&[grade("n-0", DeviceMask::EMPTY, Grade::DrainAfterJob)]);
    assert!(watched.record(id(1)).leaves.is_some());
    assert_eq!((watched.phase(1), watched.record(JobId(1).gang(1)).attempt), ("running", 1));
    watched.step(&[grade("n-0", DeviceMask::EMPTY, Grade::Ok)]);
    assert!(watched.record(id(1)).leaves.is_none(), "it need not leave any more");
}

/// The hardware has not failed: a service that is down would be worse.
#[test]
fn a_replica_stays_on_degraded_hardware_while_no_other_can_replace_it() {
    let mut watched = rack(2);
    watched.submit(job(1, gang(1).devices(4)).class("serving").service(1, 1).restarts().surge(1));
    watched.run(1);
    watched.submit(job(2, gang(1).devices(4)).class("serving").preempt(PreemptMode::Never));
    watched.run(2);
    watched.step(&[degraded("n-0")]);
    watched.advance(HOUR_MS);
    assert_eq!(watched.phase(1), "running");
    // A cordon keeps new gangs away, and makes none leave.
    watched.step(&[Input::NodeCordoned { node: NodeName::new("n-0").unwrap() }]);
    watched.advance(HOUR_MS);
    assert_eq!(watched.phase(1), "running");
    // What drains does not let it stay.
    watched.step(&[grade("n-0", DeviceMask::one(2), Grade::DrainNow)]);
    assert_eq!(watched.phase(1), "stopping");
}

/// In a large cluster a change of one node alone is no reason for a cycle.
#[test]
fn a_replica_that_stayed_leaves_a_node_of_a_large_cluster_once_it_is_drained() {
    let named = |name: String| node(&name).path(["cluster", "r"]).gpus(4).nvswitch().build();
    let mut all: Vec<_> = (0..300).map(|at| named(format!("n-{at:03}"))).collect();
    for other in &mut all[1..] {
        other.foreign = other.machine.device_mask();
    }
    let mut watched = Watched::with_nodes(&levels(&["cluster", "rack"]), &all);
    watched.submit(job(1, gang(1).devices(4)).class("serving").service(1, 1).restarts().surge(1));
    watched.run(1);
    watched.step(&[degraded("n-000")]);
    watched.advance(HOUR_MS);
    assert_eq!(watched.phase(1), "running");
    watched.step(&[grade("n-000", DeviceMask::one(2), Grade::DrainNow)]);
    assert_eq!(watched.phase(1), "stopping");
}
