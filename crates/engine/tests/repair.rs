//! A gang that loses hardware starts again where it was, with other nodes for those it lost; and spare nodes are kept for it.

#![allow(clippy::unwrap_used)]

use phalanx_model::{
    Change, DeviceMask, Exit, FailureClass, GangId, Grade, Health, Input, JobId, NodeName, Rule, Settings,
    Spare, Spares, StopCause, Unblock,
};
use phalanx_testkit::{GangBuilder, JobBuilder, Watched, gang, job, levels, node};

fn id(job: u64) -> GangId {
    JobId(job).gang(0)
}

fn named(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn submit(job: JobBuilder) -> Input {
    Input::JobSubmitted { job: Box::new(job.build()) }
}

fn lost(name: &str) -> Input {
    Input::NodeRemoved { node: named(name) }
}

fn broken(name: &str, devices: DeviceMask) -> Input {
    let grade = Grade::Broken;
    Input::HealthGraded { health: Health { node: named(name), devices, grade, detail: "Xid 79".into() } }
}

fn keep(level: Option<&str>, nodes: u32, is_filled: bool) -> Input {
    let level = level.map(|level| phalanx_model::LevelName::new(level).unwrap());
    let spares = Some(Spares { level, nodes, is_filled });
    Input::SettingsConfigured { settings: Box::new(Settings { spares, ..Settings::default() }) }
}

/// The nodes of a gang, rank by rank.
fn nodes(watched: &Watched, job: u64) -> Vec<String> {
    let placement = watched.record(id(job)).placement.clone().unwrap();
    placement.slots.iter().map(|slot| slot.node.to_string()).collect()
}

/// Two racks of so many nodes with four devices each: `a-0`, `a-1`, …, and `b-0`, `b-1`, ….
fn racks(each: usize) -> Watched {
    let rack = |name: &'static str| {
        (0..each)
            .map(move |at| node(&format!("{name}-{at}")).path(["cluster", name]).gpus(4).nvswitch().build())
    };
    let nodes: Vec<_> = rack("a").chain(rack("b")).collect();
    Watched::with_nodes(&levels(&["cluster", "rack"]), &nodes)
}

/// Ranks of four devices, all inside one rack, that start again if a node fails.
fn train(id: u64, ranks: u32) -> JobBuilder {
    in_rack(id, gang(ranks).devices(4))
}

fn in_rack(id: u64, gang: GangBuilder) -> JobBuilder {
    job(id, gang.required("rack")).retry(9, &[FailureClass::Node]).backoff(60_000, 600_000)
}

fn spares(watched: &Watched) -> Vec<String> {
    let spare = watched.engine.nodes().filter(|node| node.spare != Spare::No);
    spare.map(|node| node.name.to_string()).collect()
}

#[test]
fn healthy_members_keep_their_nodes_and_ranks() {
    let mut watched = racks(6);
    watched.step(&[submit(train(1, 4))]);
    watched.run(1);
    assert_eq!(nodes(&watched, 1), ["a-0", "a-1", "a-2", "a-3"]);
    watched.step(&[broken("a-1", DeviceMask::EMPTY)]);
    assert_eq!(watched.phase(1), "stopping");
    watched.exit(1, 0..4);
    assert_eq!(nodes(&watched, 1), ["a-0", "a-4", "a-2", "a-3"]);
}

/// The others of a gang end one by one; a small job that waits does not take what they leave.
#[test]
fn nobody_takes_the_places_of_a_gang_that_is_stopped_for_its_hardware() {
    let mut watched = racks(3);
    watched.step(&[submit(train(1, 2)), submit(train(2, 3))]);
    watched.run(1);
    assert_eq!(
        (nodes(&watched, 1), nodes(&watched, 2)),
        (vec!["a-0".into(), "a-1".into()], vec!["b-0".into(), "b-1".into(), "b-2".into()])
    );
    watched.step(&[submit(job(3, gang(2).devices(4)).priority(1_000))]);
    watched.step(&[broken("a-1", DeviceMask::EMPTY)]);
    for rank in 0..2 {
        assert_eq!(watched.phase(3), "pending");
        watched.exit(1, [rank]);
    }
    assert_eq!(nodes(&watched, 1), ["a-0", "a-2"]);
    assert_eq!(watched.phase(3), "pending");
}

/// A process on broken hardware may hang for hours, and a pod until its finalizer goes. The other nodes were kept as long.
#[test]
fn a_gang_with_a_member_that_hangs_keeps_no_places_once_it_is_killed_again() {
    let mut watched = racks(3);
    watched.step(&[submit(train(1, 2).grace(30_000)), submit(train(2, 3)), submit(train(3, 1))]);
    watched.run(1);
    watched.step(&[broken("a-1", DeviceMask::EMPTY), submit(train(4, 1)), submit(train(5, 1))]);
    watched.exit(1, [0]);
    watched.advance(30_000);
    assert_eq!(["pending"; 2], [4, 5].map(|job| watched.phase(job)), "it has just been killed");
    watched.restart();
    watched.advance(9_999);
    assert_eq!(watched.phase(4), "pending");
    watched.advance(1);
    assert_eq!((watched.phase(1), watched.phase(4)), ("stopping", "starting"));
    watched.restart();
    // When it is over at last, its node is somebody else's, and the other rack is full.
    watched.exit(1, [1]);
    assert_eq!((watched.phase(1), watched.phase(5)), ("pending", "pending"));
}

#[test]
fn the_loss_of_a_node_may_be_told_after_the_end_of_the_gang() {
    for told_first in [true, false] {
        let mut watched = racks(4);
        watched.step(&[submit(train(1, 3))]);
        watched.run(1);
        let mut facts = watched.exits(1, 0..3);
        for fact in &mut facts {
            if let Input::MemberExited { exit, .. } = fact {
                *exit = Exit::failed(FailureClass::Node, "the node was lost");
            }
        }
        facts.insert(if told_first { 0 } else { 3 }, lost("a-0"));
        let out = watched.step(&facts);
        assert!(out.changes.iter().any(|change| matches!(
            change,
            Change::GangStopping { cause: StopCause::Failure { class: FailureClass::Node, .. }, .. }
        )));
        assert_eq!(nodes(&watched, 1), ["a-3", "a-1", "a-2"], "at once, without the pause between tries");
    }
}

#[test]
fn a_gang_moves_off_a_node_as_a_whole() {
    let mut watched = racks(4);
    watched.step(&[submit(in_rack(1, gang(8).devices(1).per_node(4)))]);
    watched.run(1);
    watched.step(&[broken("a-0", DeviceMask::one(2))]);
    watched.exit(1, 0..8);
    let on: Vec<String> = nodes(&watched, 1);
    assert_eq!(on, ["a-2", "a-2", "a-2", "a-2", "a-1", "a-1", "a-1", "a-1"]);
}

/// Without an equal node in its rack, a gang that has to be in one rack starts in the other one.
#[test]
fn a_gang_without_an_equal_node_near_by_is_placed_anew() {
    let mut watched = racks(3);
    watched.step(&[submit(train(1, 3))]);
    watched.run(1);
    watched.step(&[broken("a-1", DeviceMask::EMPTY)]);
    watched.exit(1, 0..3);
    assert_eq!(nodes(&watched, 1), ["b-0", "b-1", "b-2"]);
}

#[test]
fn nodes_with_other_devices_are_no_replacement() {
    let mut all: Vec<_> = (0..2).map(|at| node(&format!("n-{at}")).gpus(4).nvswitch().build()).collect();
    all.push(node("n-2").gpus(4).build());
    all.push(node("n-3").gpus(8).nvswitch().build());
    let mut watched = Watched::with_nodes(&levels(&["cluster"]), &all);
    watched.step(&[submit(job(1, gang(2).devices(4)).retry(9, &[FailureClass::Node]))]);
    watched.run(1);
    let before = nodes(&watched, 1);
    watched.step(&[broken(&before[1], DeviceMask::EMPTY)]);
    let out = watched.exit(1, 0..2);
    assert!(!out.changes.iter().any(|change| matches!(change, Change::GangReserved { .. })));
    assert_eq!(watched.phase(1), "starting", "it is placed like any other");
}

/// On Kubernetes a gang is held until all of its pods are back.
#[test]
fn a_gang_that_is_held_meanwhile_finds_its_places_afterwards() {
    let mut watched = racks(5);
    watched.step(&[keep(Some("rack"), 1, false), submit(train(1, 3))]);
    watched.run(1);
    watched.step(&[broken("a-1", DeviceMask::EMPTY)]);
    let mut facts = watched.exits(1, 0..3);
    facts.push(Input::JobHeld { job: JobId(1), by: "pods are missing".into() });
    watched.step(&facts);
    assert_eq!(watched.phase(1), "pending");
    watched.step(&[Input::JobReleased { job: JobId(1), by: "pods are missing".into() }]);
    assert_eq!(nodes(&watched, 1), ["a-0", "a-3", "a-2"]);
}

#[test]
fn so_many_whole_nodes_of_each_rack_stay_free() {
    let mut watched = racks(4);
    watched.step(&[keep(Some("rack"), 1, false)]);
    assert_eq!(spares(&watched), ["a-3", "b-3"]);
    let small = |id| submit(job(id, gang(1).devices(1)));
    watched.step(&(1..=24).map(small).collect::<Vec<_>>());
    watched.step(&[small(25)]);
    assert_eq!((watched.phase(24), watched.phase(25)), ("starting", "pending"));
    // A spare node that fails is followed by the next one that is free.
    watched.step(&[lost("a-3")]);
    assert_eq!(spares(&watched), ["b-3"]);
    for job in 1..=24 {
        watched.step(&[Input::CancelRequested { job: JobId(job), by: "user".into() }]);
        watched.exit(job, [0]);
    }
    assert_eq!(spares(&watched), ["a-2", "b-3"]);
    watched.step(&[keep(None, 3, false)]);
    assert_eq!(spares(&watched), ["b-1", "b-2", "b-3"]);
    // No such level: nothing is kept.
    assert_eq!(watched.engine.spares_without_level(), None);
    watched.step(&[keep(Some("row"), 1, false)]);
    assert_eq!(spares(&watched), [""; 0]);
    let (level, known) = watched.engine.spares_without_level().unwrap();
    assert_eq!((level.as_str(), known.len()), ("row", 2));
}

/// Which nodes are spare changes, and so may the setting: the job is not refused for good.
#[test]
fn a_job_that_would_need_spare_nodes_waits_and_hears_why() {
    let mut watched = racks(4);
    watched.step(&[keep(Some("rack"), 1, false), submit(train(1, 4)), submit(train(2, 5))]);
    assert_eq!(watched.phase(1), "pending");
    assert!(watched.engine.gang(id(2)).is_none(), "no rack has five nodes");
    let report = watched.engine.explain(id(1)).unwrap();
    assert!(report.unblock.contains(&Unblock::Without { rule: Rule::Spares }), "{report:?}");
    watched.step(&[Input::SettingsConfigured { settings: Box::default() }]);
    assert_eq!(watched.phase(1), "starting");
}

#[test]
fn what_fills_a_spare_node_leaves_it_for_a_gang_that_needs_it() {
    let mut watched = racks(4);
    watched.step(&[keep(Some("rack"), 1, true), submit(train(1, 3)), submit(train(2, 3))]);
    watched.run(1);
    let mut sweep = |id: u64| {
        let mut job = job(id, gang(1).devices(2)).class("serving").build();
        job.turn.takes_spot = true;
        watched.step(&[Input::JobSubmitted { job: Box::new(job) }]);
        watched.run(id);
        nodes(&watched, id)
    };
    assert_eq!([sweep(3), sweep(4)].concat(), ["a-3", "a-3"]);
    assert_eq!(sweep(5), ["b-3"]);
    watched.step(&[broken("a-1", DeviceMask::EMPTY)]);
    watched.exit(1, 0..3);
    assert_eq!([1, 3, 4, 5].map(|job| watched.phase(job)), ["pending", "stopping", "stopping", "running"]);
    let gone: Vec<Input> = [3, 4].iter().flat_map(|job| watched.exits(*job, [0])).collect();
    watched.step(&gone);
    assert_eq!(nodes(&watched, 1), ["a-0", "a-3", "a-2"]);
}
