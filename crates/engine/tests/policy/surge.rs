//! Replicas that leave their nodes once others run in their place.

use phalanx_model::later::Calendar;
use phalanx_model::{
    Change, GangId, Input, JobId, NodeName, Phase, Queue, QueueName, Reason, Resource, Service, StopCause,
    Timestamp,
};
use phalanx_testkit::proptest::collection::vec;
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::{JobBuilder, gang, job};

use crate::world::{HOUR, MINUTE, SECOND, World};

fn web(replicas: u32, surge: u32) -> JobBuilder {
    job(1, gang(1).devices(2)).class("serving").service(replicas, replicas as usize).restarts().surge(surge)
}

fn replica(index: u32) -> GangId {
    JobId(1).gang(index)
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn drain(name: &str) -> Input {
    Input::DrainRequested { node: node(name) }
}

fn drain_by(name: &str, begins_at: Timestamp) -> Input {
    let (node, ends_at) = (node(name), Timestamp::MAX);
    Input::CalendarObserved {
        calendar: Calendar { node, begins_at, ends_at, held_for: None, is_declared: false },
    }
}

fn on(world: &World, index: u32) -> String {
    let placement = world.watched.record(replica(index)).placement.clone();
    placement.map(|placement| placement.slots[0].node.to_string()).unwrap_or_default()
}

/// Running replicas, and the fewest that ran since `fewest` was last called.
struct Count {
    seen: usize,
    runs: Vec<GangId>,
}

impl Count {
    fn of(world: &World) -> Self {
        let mut count = Self { seen: 0, runs: Vec::new() };
        count.fewest(world);
        count
    }

    fn fewest(&mut self, world: &World) -> usize {
        let mut fewest = usize::MAX;
        for (_, change) in &world.changes[self.seen..] {
            match change {
                Change::GangRunning { gang, .. } => self.runs.push(*gang),
                Change::GangStopping { gang, .. } => self.runs.retain(|runs| runs != gang),
                _ => continue,
            }
            fewest = fewest.min(self.runs.len());
        }
        self.seen = world.changes.len();
        fewest.min(self.runs.len())
    }
}

#[test]
fn a_replica_leaves_a_drained_node_once_another_runs_in_its_stead() {
    let mut world = World::without_min_run(2);
    world.submit(web(2, 1).apart("node"));
    world.advance(SECOND);
    let mut count = Count::of(&world);
    let from = on(&world, 0);
    world.tell(&[drain(&from)]);
    world.advance(MINUTE);
    assert_eq!(count.fewest(&world), 2, "never less than before");
    assert_eq!(count.runs.len(), 2, "and no more once that is over");
    assert!(count.runs.iter().all(|gang| on(&world, gang.index) != from));
    assert_eq!(world.watched.engine.reason(replica(0)), Some(Reason::ScaledIn { replicas: 2 }));
    let replaced = |(_, change): &(_, Change)| matches!(change, Change::ReplicaReplaced { .. });
    assert!(world.changes.iter().any(replaced));
    world.watched.restart();
    // The successor of the engine knows the numbers too. The same the other way round, and for two replicas.
    world.tell(&[Input::NodeUncordoned { node: node(&from) }, drain(if from == "a" { "b" } else { "a" })]);
    world.advance(MINUTE);
    assert_eq!(count.fewest(&world), 2);
    assert!(count.runs.iter().all(|gang| on(&world, gang.index) == from));
}

#[test]
fn who_took_over_from_one_that_is_always_kept_is_always_kept() {
    let mut world = World::without_min_run(2);
    let mut chat = Queue::named(QueueName::new("chat").unwrap());
    chat.guaranteed.insert(Resource::Gpus, 2_000);
    world.tell(&[Input::QueueObserved { queue: Box::new(chat) }]);
    let mut lab = Queue::named(QueueName::new("lab").unwrap());
    lab.guaranteed.insert(Resource::Gpus, 14_000);
    world.tell(&[Input::QueueObserved { queue: Box::new(lab) }]);
    world.submit(web(1, 1).queue("chat"));
    world.advance(SECOND);
    world.tell(&[drain(&on(&world, 0))]);
    world.advance(MINUTE);
    assert!(matches!(world.watched.record(replica(1)).phase, Phase::Running { .. }));
    let to = on(&world, 1);
    world.submit(job(2, gang(1).devices(8).on([to.as_str()])).queue("lab"));
    world.advance(HOUR);
    assert_eq!((world.watched.record(replica(1)).evictions, world.phase(2)), (0, "pending"));
}

#[test]
fn where_nobody_can_stand_in_a_replica_goes_at_once() {
    // No room, and room that the queue of the service may not use.
    for limit in [None, Some(2_000)] {
        let mut world = World::without_min_run(2);
        if let Some(limit) = limit {
            let mut queue = Queue::named(QueueName::new("chat").unwrap());
            queue.limit.insert(Resource::Gpus, limit);
            queue.guaranteed.insert(Resource::Gpus, limit);
            world.tell(&[Input::QueueObserved { queue: Box::new(queue) }]);
        }
        world.submit(web(1, 1).queue("chat"));
        world.advance(SECOND);
        let from = on(&world, 0);
        if limit.is_none() {
            let to = if from == "a" { "b" } else { "a" };
            world.submit(job(2, gang(1).devices(8).on([to])).class("serving"));
        }
        world.tell(&[drain(&from)]);
        assert!(
            matches!(
                &world.watched.record(replica(0)).phase,
                Phase::Stopping { cause: StopCause::Displaced { .. }, .. }
            ),
            "{limit:?}: {:?}",
            world.watched.record(replica(0)).phase
        );
        world.advance(MINUTE);
        assert_ne!(on(&world, 0), from);
    }
}

#[test]
fn of_several_that_leave_as_many_go_at_once_as_the_surge_is() {
    let mut world = World::without_min_run(2);
    world.tell(&[Input::NodeCordoned { node: node("b") }]);
    world.submit(web(4, 1));
    world.advance(SECOND);
    world.tell(&[Input::NodeUncordoned { node: node("b") }]);
    // Room for the four replicas there, and no more.
    let mut count = Count::of(&world);
    world.tell(&[drain("a")]);
    world.advance(MINUTE);
    assert_eq!(count.fewest(&world), 4);
    assert!(count.runs.iter().all(|gang| on(&world, gang.index) == "b"), "{:?}", count.runs);
}

#[test]
fn a_node_that_is_not_drained_after_all_keeps_its_replica() {
    let mut world = World::without_min_run(2);
    world.submit(web(1, 1));
    world.advance(SECOND);
    let from = on(&world, 0);
    world.watched.step(&[drain(&from)]);
    assert!(matches!(world.watched.record(replica(1)).phase, Phase::Starting { .. }));
    world.watched.restart();
    assert!(world.watched.record(replica(0)).leaves.is_some(), "a restart is told of it");
    world.watched.step(&[Input::NodeUncordoned { node: node(&from) }]);
    assert!(matches!(world.watched.record(replica(0)).phase, Phase::Running { .. }));
    assert!(world.watched.record(replica(0)).leaves.is_none());
    let stopped = &world.watched.record(replica(1)).phase;
    assert!(
        matches!(stopped, Phase::Stopping { cause: StopCause::ScaledIn { replicas: 1 }, .. }),
        "{stopped:?}"
    );
}

#[test]
fn a_drain_by_a_time_leaves_time_for_another_to_start() {
    let mut world = World::without_min_run(2);
    world.submit(web(1, 1));
    world.advance(SECOND);
    let from = on(&world, 0);
    world.tell(&[drain_by(&from, world.now().plus(HOUR))]);
    let mut count = Count::of(&world);
    world.advance(50 * MINUTE);
    assert_eq!(on(&world, 0), from, "not before it has to");
    world.advance(10 * MINUTE);
    assert_eq!(count.fewest(&world), 1);
    assert!(matches!(world.watched.record(replica(1)).phase, Phase::Running { .. }));
    assert!(world.watched.record(replica(0)).is_pending());
}

#[derive(Clone, Debug)]
enum Op {
    Drain(usize),
    /// The node is to be drained in some minutes.
    DrainBy(usize, u64),
    Open(usize),
    Scale(u32),
    /// Time passes, in seconds.
    Advance(u64),
    Restart,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0_usize..4).prop_map(Op::Drain),
        2 => (0_usize..4, 1_u64..20).prop_map(|(node, minutes)| Op::DrainBy(node, minutes)),
        4 => (0_usize..4).prop_map(Op::Open),
        2 => (1_u32..5).prop_map(Op::Scale),
        4 => (0_u64..600).prop_map(Op::Advance),
        1 => Just(Op::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// As long as half of the nodes are open, which is room for twice the service, no replica is ever missing; and in
    /// the end no replica leaves, and no more run than are wanted.
    #[test]
    fn where_there_is_room_no_replica_is_ever_missing(ops in vec(any_op(), 1..40), surge in 1_u32..3) {
        const NODES: [&str; 4] = ["a", "b", "c", "d"];
        let mut world = World::without_min_run(4);
        let service = job(1, gang(1).devices(2)).class("serving").service(1, 4).restarts().surge(surge);
        world.submit(service);
        world.advance(SECOND);
        let (mut count, mut wanted, mut closed) = (Count::of(&world), 1, [false; 4]);
        // Replicas that were wanted all the time since they could have started.
        let mut sure = 1;
        for op in ops {
            let is_long = matches!(op, Op::Advance(10..));
            match op {
                Op::Drain(at) | Op::DrainBy(at, _)
                    if !closed[at] && closed.iter().filter(|closed| **closed).count() >= 2 => {}
                Op::Drain(at) => {
                    closed[at] = true;
                    world.tell(&[drain(NODES[at])]);
                }
                Op::DrainBy(at, minutes) => {
                    closed[at] = true;
                    world.tell(&[drain_by(NODES[at], world.now().plus(minutes * MINUTE))]);
                }
                Op::Open(at) => {
                    closed[at] = false;
                    world.tell(&[Input::NodeUncordoned { node: node(NODES[at]) }]);
                }
                Op::Scale(replicas) => {
                    (wanted, sure) = (replicas, sure.min(replicas));
                    let service = Service { job: JobId(1), replicas, looks: Vec::new(), is_set: true };
                    world.tell(&[Input::ServiceObserved { service }]);
                }
                Op::Advance(seconds) => world.advance(seconds * SECOND),
                Op::Restart => {
                    world.watched.restart();
                }
            }
            let fewest = count.fewest(&world);
            prop_assert!(fewest >= sure as usize, "{fewest} of {sure}");
            if is_long {
                sure = wanted;
            }
        }
        world.advance(HOUR);
        prop_assert!(count.fewest(&world) >= sure as usize);
        prop_assert_eq!(count.runs.len(), wanted as usize);
        prop_assert!(world.watched.records().iter().all(|record| record.leaves.is_none()));
    }
}
