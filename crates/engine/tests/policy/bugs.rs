//! Bugs that other schedulers had, by the number of their class in the list that this project keeps. Each test fails on
//! an engine that has the bug: `crates/engine/tests/mutants.toml` says how the engine is given it.

use phalanx_engine::Engine;
use phalanx_model::later::Metric;
use phalanx_model::{
    Change, DeviceMask, EffectId, EndOf, Ending, Epoch, Exit, FailureClass, Input, JobId, MemberId, NodeName,
    Outcome, Phase, Reason, Timestamp,
};
use phalanx_testkit::{JobBuilder, gang, job, node, queue};

use crate::news;
use crate::world::{HOUR, MINUTE, SECOND, TERM_MS, World, octets, set_min_run, settings};

/// Training may be preempted at any time.
fn no_min_run() -> Input {
    settings(|settings| set_min_run(settings, 0))
}

fn submitted(job: JobBuilder) -> Input {
    Input::JobSubmitted { job: Box::new(job.build()) }
}

fn member(job: u64, attempt: u32, rank: u32) -> MemberId {
    MemberId { gang: World::gang(job), attempt, rank }
}

/// volcano #2462: eight of twenty members run. A gang passes the start barrier whole: with all members that it starts
/// with, and an elastic gang with at least its fewest members, after a change of its size too.
#[test]
fn bug_01_gang_starts_in_part() {
    let mut world = World::new(&octets(1));
    world.tell(&[no_min_run()]);
    world.submit(job(1, gang(1).devices(4)));
    world.watched.step(&[submitted(job(2, gang(8).devices(1).elastic(3, 8)))]);
    assert_eq!((world.phase(2), world.size(2)), ("starting", 4));
    for rank in 0..3 {
        let out = world.watched.step(&[Input::MemberReady { member: member(2, 1, rank) }]);
        assert_eq!(out.effects, [], "one is not at the gate");
    }
    world.tell(&[Input::MemberReady { member: member(2, 1, 3) }]);
    assert_eq!((world.phase(2), world.size(2)), ("running", 4));
    world.cancel(1);
    world.advance(MINUTE);
    world.boundary(2);
    world.advance(MINUTE);
    assert_eq!((world.phase(2), world.size(2)), ("running", 8));
    // Two members of the gang would be left.
    world.submit(job(3, gang(1).devices(6)).class("serving"));
    world.advance(MINUTE);
    assert_eq!((world.phase(2), world.phase(3)), ("pending", "running"));
}

/// volcano #4383: binding fails after the decision, and the group is shown as running.
#[test]
fn bug_02_order_to_start_fails() {
    let nodes = octets(2);
    let mut world = World::new(&nodes);
    let jobs = [
        job(1, gang(2).devices(8)).retry(1, &[FailureClass::StartUp]).backoff(10 * SECOND, 10 * SECOND),
        job(2, gang(2).devices(8)).retry(1, &[FailureClass::Node]),
    ];
    for (id, of_two) in (1..).zip(jobs) {
        let out = world.watched.step(&[submitted(of_two)]);
        let (effect, class) = (out.effects[0].id, FailureClass::StartUp);
        // One member is up; the other member never will be.
        world.watched.step(&[
            Input::MemberReady { member: member(id, 1, 0) },
            Input::EffectFailed { effect, class, detail: "no such image".into() },
        ]);
        let free = world.watched.engine.free(&nodes[0].name).unwrap();
        assert_eq!((world.phase(id), free.devices.count()), ("stopping", 0));
        let exit = Exit::failed(FailureClass::Infrastructure, "was killed");
        world.tell(&[Input::MemberExited { member: member(id, 1, 0), exit }]);
        for node in &nodes {
            let free = world.watched.engine.free(&node.name).unwrap();
            assert_eq!((free.devices.count(), free.cpu_milli), (8, 64_000), "on {}", node.name);
        }
        if id == 1 {
            // The engine retries the gang.
            assert!(matches!(world.reason(1), Some(Reason::BackOff { .. })), "{:?}", world.reason(1));
            world.advance(MINUTE);
            assert_eq!((world.phase(1), world.watched.record(World::gang(1)).attempt), ("running", 2));
            world.cancel(1);
            world.advance(MINUTE);
        }
    }
    let phase = &world.watched.record(World::gang(2)).phase;
    assert!(matches!(phase, Phase::Finished { ending: Ending::Failed { .. }, .. }), "{phase:?}");
}

/// koordinator #872: two gangs each hold half of what they need, and wait for the other half.
#[test]
fn bug_03_reservations_that_block_each_other() {
    let mut world = World::new(&octets(4));
    world.tell(&[settings(|s| s.reservation_depth = u32::MAX)]);
    let ends = [(1, HOUR), (2, HOUR + 5 * MINUTE), (3, 2 * HOUR), (4, 4 * HOUR)];
    for ((id, ends), limit) in ends.into_iter().zip([1, 3, 2, 4]) {
        world.submit_for(job(id, gang(1).devices(8)).time_limit(limit * HOUR), ends);
    }
    // One gang waits for a and c, the other for b and d; b becomes free long before its time.
    world.submit(job(5, gang(2).devices(8)).time_limit(HOUR));
    world.submit(job(6, gang(2).devices(8)).time_limit(HOUR));
    world.advance(HOUR + 6 * MINUTE);
    assert_eq!((world.on(5), world.on(6)), (vec!["a".to_owned(), "b".to_owned()], vec![]));
}

/// volcano #5805: a gang that lost a node is below its minimum for ever. Here it is requeued at its old position: the
/// order depends on when the job was submitted.
#[test]
fn bug_04_gang_that_lost_a_node_heals() {
    let mut world = World::new(&octets(3));
    let of_two = |id| job(id, gang(2).devices(8)).retry(3, &[FailureClass::Node]).backoff(SECOND, SECOND);
    world.submit(of_two(1));
    world.submit_for(job(2, gang(1).devices(8)), HOUR);
    world.submit(of_two(3));
    world.tell(&[Input::NodeRemoved { node: NodeName::new("a").unwrap() }]);
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.on(1)), ("pending", vec![]));
    world.advance(HOUR);
    // The gang goes before the gang that came later and waited for longer.
    assert_eq!((world.on(1), world.phase(3)), (vec!["b".to_owned(), "c".to_owned()], "pending"));
    assert!(world.is_running(1));
}

/// kueue #14646: two gangs take the same devices in one cycle.
#[test]
fn bug_05_double_booking_in_one_step() {
    let mut world = World::new(&octets(1));
    let submit = |id| Input::JobSubmitted { job: Box::new(job(id, gang(1).devices(8)).build()) };
    world.tell(&[submit(1), submit(2)]);
    assert_eq!((world.phase(1), world.phase(2)), ("running", "pending"));
}

/// KAI #1454, #306: the use by others is not counted, and less than nothing is free. Here all free capacity is computed
/// from the node as it was observed.
#[test]
fn bug_06_use_by_others_is_not_counted() {
    let others = |devices: std::ops::Range<u32>, cpus| {
        let node = node("a").gpus(8).nvswitch().cpus(cpus).busy(devices).build();
        Input::NodeObserved { node: Box::new(node) }
    };
    let mut world = World::new(&octets(1));
    world.tell(&[others(0..2, 64)]);
    world.submit(job(1, gang(1).devices(8)));
    assert_eq!(world.phase(1), "pending", "two are used by others");
    world.submit_for(job(2, gang(1).devices(6).cpu_milli(60_000)), HOUR);
    assert!(world.is_running(2));
    // Others take a device that the gang holds, and CPUs.
    world.tell(&[others(0..3, 32)]);
    let free = world.watched.engine.free(&NodeName::new("a").unwrap()).unwrap();
    assert_eq!((free.devices.count(), free.cpu_milli), (0, -28_000));
    world.submit(job(3, gang(1).devices(0).cpu_milli(1)));
    assert_eq!(world.phase(3), "pending");
    world.submit(job(4, gang(1).devices(6)));
    world.submit(job(5, gang(1).devices(5)));
    world.advance(HOUR + SECOND);
    assert_eq!([1, 3, 4, 5].map(|id| world.phase(id)), ["pending", "running", "pending", "running"]);
}

/// nomad #10440: a preempted gang counts as gone before it is.
#[test]
fn bug_07_devices_are_free_when_the_last_process_is_gone() {
    let mut world = World::new(&octets(1));
    world.submit(job(1, gang(1).devices(8)));
    world.advance(HOUR);
    world.submit(job(2, gang(1).devices(8)).class("serving"));
    world.advance(TERM_MS / 2);
    assert_eq!((world.phase(1), world.phase(2)), ("stopping", "pending"));
    world.advance(TERM_MS);
    assert_eq!((world.phase(1), world.phase(2)), ("pending", "running"));
}

/// kueue #12656: quota is never released, because its holder was deleted at the wrong time.
#[test]
fn bug_08_quota_leak_on_teardown() {
    let mut world = World::new(&octets(1));
    world.tell(&[queue("web").observed(), queue("lab").observed()]);
    world.submit(job(1, gang(1).devices(8)).queue("lab"));
    world.advance(HOUR);
    world.submit(job(2, gang(1).devices(8)).queue("web").class("serving"));
    assert_eq!((world.used("lab"), world.used("web")), (8_000, 8_000), "what others make way for counts");
    // The gang is cancelled while the other gang is being preempted.
    world.cancel(2);
    assert_eq!(world.used("web"), 0);
    world.advance(MINUTE);
    world.cancel(1);
    world.advance(MINUTE);
    assert_eq!((world.used("lab"), world.used("web")), (0, 0));
}

/// kueue #5937: running gangs are forgotten when the queues change.
#[test]
fn bug_09_more_admitted_after_a_change_of_queues() {
    let mut world = World::new(&octets(2));
    world.tell(&[queue("lab").limit("gpus", 8).observed(), queue("other").observed()]);
    world.submit(job(1, gang(1).devices(8)).queue("lab"));
    world.tell(&[queue("lab").limit("gpus", 9).observed()]);
    world.submit(job(2, gang(1).devices(8)).queue("lab"));
    assert!(matches!(world.reason(2), Some(Reason::QueueLimit(_))), "{:?}", world.reason(2));
    assert_eq!(world.used("lab"), 8_000);
    // The queue is removed and comes back: the same holds.
    world.tell(&[Input::QueueRemoved { queue: phalanx_model::QueueName::new("lab").unwrap() }]);
    world.tell(&[queue("lab").limit("gpus", 9).observed()]);
    assert_eq!((world.used("lab"), world.phase(2)), (8_000, "pending"));
}

/// KAI #1369: a request is counted by a shape that is smaller than the one it gets.
#[test]
fn bug_10_quota_is_bypassed_by_shape() {
    let fast = node("a").gpus(8).model("H100").nvswitch().build();
    let slow = node("b").gpus(2).model("A100").nvswitch().build();
    let mut world = World::new(&[fast, slow]);
    world.tell(&[settings(|s| {
        s.worth.insert("A100".into(), 500);
    })]);
    world.tell(&[queue("lab").limit("gpus", 1).observed(), queue("other").observed()]);
    world.submit(job(1, gang(1).devices(2).model("A100")).queue("other"));
    // As A100s the devices would be within the limit; only H100s are free.
    world.submit(job(2, gang(1).devices(2).models([("H100", 1_000), ("A100", 400)])).queue("lab"));
    assert!(world.used("lab") <= 1_000, "a limit of one, and {} are used", world.used("lab"));
    assert!(matches!(world.reason(2), Some(Reason::QueueLimit(_))), "{:?}", world.reason(2));
}

/// KAI #1969: small jobs bypass the large job for ever.
#[test]
fn bug_11_hero_starves() {
    let mut world = World::new(&octets(2));
    world.submit_for(job(1, gang(1).devices(8)).time_limit(HOUR), HOUR);
    world.submit_for(job(2, gang(2).devices(8)).time_limit(HOUR), HOUR);
    for id in 3..40 {
        world.submit_for(job(id, gang(1).devices(4)).time_limit(2 * HOUR), 2 * HOUR);
        world.advance(5 * MINUTE);
    }
    assert_ne!(world.phase(2), "pending", "it could have started after an hour");
}

/// kueue #13772: capacity becomes free, and the pending gang is not retried.
#[test]
fn bug_12_lost_wake_up() {
    let mut world = World::new(&octets(2));
    world.tell(&[queue("lab").limit("gpus", 8).observed()]);
    world.submit_for(job(1, gang(1).devices(8)).queue("lab"), HOUR);
    world.submit(job(2, gang(1).devices(8)).queue("lab"));
    assert!(matches!(world.reason(2), Some(Reason::QueueLimit(_))));
    world.advance(HOUR + SECOND);
    assert!(world.is_running(2), "{:?}", world.reason(2));
}

/// kueue #6570: every heartbeat of a node causes work for all pending gangs.
#[test]
fn bug_13_requeue_storm() {
    let nodes = octets(2);
    let mut world = World::new(&nodes);
    world.submit(job(1, gang(2).devices(8)));
    (2..50).for_each(|id| world.submit(job(id, gang(1).devices(1).cpu_milli(id))));
    let now = world.now();
    let heartbeat = [Input::NodeObserved { node: Box::new(nodes[0].clone()) }];
    let mut out = phalanx_model::Outcome::default();
    let engine = &mut world.watched.engine;
    let spent = news::allocations(|| {
        let _ = engine.step(now, &heartbeat, &mut out);
    });
    assert_eq!(out, phalanx_model::Outcome::default());
    assert!(spent < 8, "news that say nothing new cost {spent} allocations");
}

/// kueue #3779: two gangs preempt each other in turn.
#[test]
fn bug_14_eviction_in_turn() {
    let mut world = World::new(&octets(2));
    world.tell(&[no_min_run()]);
    // The cheapest gang could be preempted, but that does not help a gang that needs a whole node.
    world.submit(job(1, gang(1).devices(7)).class("serving"));
    world.submit(job(2, gang(1).devices(1)).class("opportunistic"));
    world.submit(job(3, gang(1).devices(8)));
    world.submit(job(4, gang(1).devices(8)));
    world.submit(job(5, gang(1).devices(8)).priority(9));
    world.advance(30 * MINUTE);
    assert_eq!([2, 3, 4, 5].map(|id| world.evictions(id)), [0; 4], "nobody stands better than another");
    assert!(world.is_running(3));
}

/// volcano #3877: the request is forgotten when a gang is placed again.
#[test]
fn bug_17_constraint_forgotten_on_resume() {
    let mut world = World::new(&octets(2));
    world.submit_for(job(1, gang(1).devices(8)).class("serving"), 90 * MINUTE);
    world.submit(job(2, gang(1).devices(8)).pinned());
    world.advance(HOUR);
    let (gang_of_2, at) = (World::gang(2), world.now());
    world.tell(&[Input::GangCheckpointed { gang: gang_of_2, at }]);
    assert_eq!(world.on(2), ["b"]);
    world.submit(job(3, gang(1).devices(8)).class("serving"));
    world.advance(HOUR);
    // The checkpoint of the gang can be read on b only, and a is free.
    assert_eq!((world.phase(1), world.on(3)), ("succeeded", vec!["b".to_owned()]));
    assert_eq!((world.phase(2), world.on(2)), ("pending", vec![]));
    world.cancel(3);
    world.advance(MINUTE);
    assert_eq!(world.on(2), ["b"]);
}

/// Job 2, whose checkpoints only its own nodes can read, runs on b and saved nothing; job 3 preempts it there.
fn pinned_gang_makes_way() -> World {
    let mut world = World::new(&octets(2));
    world.submit_for(job(1, gang(1).devices(8)).class("serving"), 90 * MINUTE);
    world.submit(job(2, gang(1).devices(8)).pinned());
    world.advance(HOUR);
    assert_eq!(world.on(2), ["b"]);
    world.submit(job(3, gang(1).devices(8)).class("serving"));
    world
}

/// The report of a checkpoint comes after the last process ended: the gang resumes where the checkpoint can be read.
#[test]
fn bug_17_checkpoint_reported_after_the_last_exit() {
    let mut world = pinned_gang_makes_way();
    world.advance(10 * MINUTE);
    assert_eq!((world.phase(2), world.on(3)), ("pending", vec!["b".to_owned()]));
    let (gang_of_2, at) = (World::gang(2), world.now());
    world.tell(&[Input::GangCheckpointed { gang: gang_of_2, at }]);
    world.advance(HOUR);
    assert_eq!(
        (world.phase(1), world.phase(2)),
        ("succeeded", "pending"),
        "a is free, and cannot read the checkpoint"
    );
    world.cancel(3);
    world.advance(MINUTE);
    assert_eq!(world.on(2), ["b"]);
}

/// A checkpoint is of the attempt that is under way when it is reported, although the attempt before ended elsewhere.
#[test]
fn bug_17_checkpoint_reported_after_the_next_start() {
    let mut world = pinned_gang_makes_way();
    world.advance(HOUR);
    assert_eq!((world.on(3), world.on(2)), (vec!["b".to_owned()], vec!["a".to_owned()]));
    let (gang_of_2, at) = (World::gang(2), world.now());
    world.tell(&[Input::GangCheckpointed { gang: gang_of_2, at }]);
    let record = world.successor().gang(gang_of_2).cloned().unwrap();
    assert!(record.pinned.is_empty(), "its checkpoint is not on b");
}

/// kueue #14451: two different requests have one key.
#[test]
fn bug_18_different_requests_taken_for_the_same() {
    let mut world = World::new(&octets(2));
    world.submit_for(job(1, gang(1).devices(8)).time_limit(2 * HOUR), 2 * HOUR);
    world.submit(job(2, gang(2).devices(8)).time_limit(HOUR));
    // The gangs request the same devices, and only one of them ends in time.
    world.submit(job(3, gang(1).devices(8)));
    world.submit(job(4, gang(1).devices(8)).time_limit(HOUR));
    assert_eq!((world.phase(2), world.phase(3), world.phase(4)), ("pending", "pending", "running"));
}

/// volcano #5778: a node is gone in the middle of a decision.
#[test]
fn bug_19_node_goes_while_others_make_way() {
    let mut world = World::new(&octets(3));
    world.submit_for(job(1, gang(1).devices(8)).class("serving"), 2 * HOUR);
    world.submit(job(2, gang(2).devices(8)));
    world.advance(HOUR);
    world.submit(job(3, gang(2).devices(8)).class("serving"));
    assert_eq!(world.phase(2), "stopping");
    world.tell(&[Input::NodeRemoved { node: NodeName::new("c").unwrap() }]);
    world.advance(MINUTE);
    // The placement that gangs were preempted for is gone; the gang starts in another placement.
    assert_eq!(world.phase(3), "pending");
    world.advance(HOUR);
    assert_eq!((world.on(3), world.phase(2)), (vec!["a".to_owned(), "b".to_owned()], "pending"));
}

/// kueue #12891: usage is counted differently after a restart.
#[test]
fn bug_20_restart_counts_otherwise() {
    let mut world = World::new(&octets(2));
    world.tell(&[queue("web").limit("gpus", 8).observed(), queue("lab").observed()]);
    world.submit(job(1, gang(2).devices(8)).queue("lab"));
    world.advance(HOUR);
    world.submit(job(2, gang(1).devices(8)).queue("web").class("serving"));
    let mut successor = world.successor();
    assert_eq!(successor.queues(), world.watched.engine.queues());
    // The placement that gangs are preempted for takes all that its queue may use.
    let third = job(3, gang(1).devices(8)).queue("web").class("serving").build();
    let _ =
        successor.step(world.now(), &[Input::JobSubmitted { job: Box::new(third) }], &mut Default::default());
    assert!(matches!(successor.reason(World::gang(3)), Some(Reason::QueueLimit(_))));
}

/// volcano #2825: two leaders at once. An order names its leader, and an answer to an order of an older leader does not
/// answer an order of the same number.
#[test]
fn bug_21_answer_to_an_older_leader() {
    let mut world = World::new(&octets(2));
    world.submit(job(1, gang(1).devices(8)));
    let (mut successor, now, mut out) = (world.successor(), world.now(), Outcome::default());
    let _ = successor.step(now, &[submitted(job(2, gang(1).devices(8)))], &mut out);
    let given: Vec<EffectId> = out.effects.iter().map(|effect| effect.id).collect();
    assert_eq!(given, [EffectId { epoch: Epoch(9), seq: 0 }]);
    let phase = |engine: &Engine| engine.gang(World::gang(2)).unwrap().phase.word();
    let failed = |epoch| {
        let effect = EffectId { epoch: Epoch(epoch), seq: 0 };
        Input::EffectFailed { effect, class: FailureClass::StartUp, detail: "no such image".into() }
    };
    let _ = successor.step(now, &[failed(1)], &mut out);
    assert!(matches!(out.changes[..], [Change::InputRejected { .. }]), "{out:?}");
    assert_eq!((phase(&successor), out.effects), ("starting", vec![]));
    // So is a fact about a member of an older attempt.
    let mut out = Outcome::default();
    let late = Input::MemberExited { member: member(2, 0, 0), exit: Exit::succeeded() };
    let _ = successor.step(now, &[late], &mut out);
    assert!(matches!(out.changes[..], [Change::InputRejected { .. }]), "{out:?}");
    let _ = successor.step(now, &[failed(9)], &mut out);
    assert_eq!(phase(&successor), "failed");
}

/// KAI #1634: memory grows with everything that ever was. The engine keeps many kinds of things, and forgets each in
/// its own code; metrics are the largest of them.
#[test]
fn bug_22_memory_of_what_is_gone() {
    const STAYS: u64 = 9_999;
    let mut world = World::new(&octets(2));
    world.tell(&[queue("lab").observed()]);
    world.submit(job(STAYS, gang(1).devices(0)).queue("lab"));
    let mut kept = Vec::new();
    for round in 0..20_u64 {
        let ids = round * 100 + 1..round * 100 + 101;
        let one = |id: u64| {
            let job = job(id, gang(2).devices(2).elastic(1, 4)).queue("lab").key(&format!("key-{id}"));
            let job = job.time_limit(HOUR + id % 7 * MINUTE);
            match id % 5 {
                0 => job.after(id - 1, EndOf::Any),
                1 => job.after(STAYS, EndOf::Any),
                _ => job,
            }
        };
        world.tell(&ids.clone().map(|id| submitted(one(id))).collect::<Vec<_>>());
        let says = |id| {
            let metric =
                Metric { gang: World::gang(id), name: "loss".into(), value_milli: 1, at: Timestamp(0) };
            Input::MetricObserved { metric }
        };
        world.tell(&ids.clone().map(says).collect::<Vec<_>>());
        world.advance(MINUTE);
        // Running gangs end well, and the others are cancelled.
        let running: Vec<u64> = ids.clone().filter(|id| world.is_running(*id)).collect();
        for id in running {
            let exit = |rank| Input::MemberExited { member: member(id, 1, rank), exit: Exit::succeeded() };
            let ranks = u32::try_from(world.size(id)).unwrap();
            world.watched.step(&(0..ranks).map(exit).collect::<Vec<_>>());
        }
        world.tell(
            &ids.clone()
                .map(|id| Input::CancelRequested { job: JobId(id), by: "user".into() })
                .collect::<Vec<_>>(),
        );
        world.advance(MINUTE);
        world.tell(&ids.clone().map(|id| Input::JobForgotten { job: JobId(id) }).collect::<Vec<_>>());
        // A metric that is reported too late is not kept either.
        world.watched.step(&ids.map(says).collect::<Vec<_>>());
        let engine = &world.watched.engine;
        kept.push((engine.facts().len(), format!("{engine:?}").len()));
    }
    // The number of facts, and the bytes of all facts: a number may have a digit more.
    let ((facts, bytes), (facts_now, bytes_now)) = (kept[0], kept[kept.len() - 1]);
    assert_eq!(facts_now, facts);
    assert!(bytes_now < bytes + 200, "{bytes} bytes are {bytes_now} after 2,000 jobs: {kept:?}");
}

/// kueue #13148: a cycle takes 40 s. Here the cost of a step depends on what changed, not on all pending gangs.
#[test]
fn bug_23_step_costs_what_waits() {
    let spent = |waiting: u64| {
        let mut world = World::new(&octets(1));
        world.submit(job(1, gang(1).devices(7)));
        world.submit(job(2, gang(1).devices(1)));
        // Each of these gangs is a different request, and the freed capacity helps none.
        let of = |id| submitted(job(id, gang(1).devices(8).cpu_milli(id)));
        world.tell(&(3..3 + waiting).map(of).collect::<Vec<_>>());
        let ended = [Input::MemberExited { member: member(2, 1, 0), exit: Exit::succeeded() }];
        let (now, mut out) = (world.now(), Outcome::default());
        let engine = &mut world.watched.engine;
        news::allocations(|| {
            let _ = engine.step(now, &ended, &mut out);
        })
    };
    let (few, many) = (spent(200), spent(2_000));
    assert!(many <= few, "the end of one costs {few} allocations, and {many} where ten times as many wait");
}

/// device-plugin #1014, kubernetes #125579: a device that was broken is never used again, or is given to two gangs.
#[test]
fn bug_24_device_that_broke_and_healed() {
    let mut world = World::new(&octets(1));
    let broken = |devices: &[u32]| {
        let node = node("a").gpus(8).nvswitch().busy(devices.iter().copied()).build();
        Input::NodeObserved { node: Box::new(node) }
    };
    world.submit(job(1, gang(1).devices(4)));
    let devices = |world: &World, id| {
        let record = world.watched.record(World::gang(id));
        record.placement.as_ref().map_or(DeviceMask::EMPTY, |placement| placement.slots[0].devices)
    };
    let idle = (0..8).filter(|device| !devices(&world, 1).contains(*device)).collect::<Vec<u32>>();
    world.tell(&[broken(&idle[..1])]);
    world.submit(job(2, gang(1).devices(4)));
    assert_eq!(world.phase(2), "pending", "three are left");
    world.tell(&[broken(&[])]);
    assert!(world.is_running(2));
    assert_eq!(devices(&world, 1).and(devices(&world, 2)), DeviceMask::EMPTY);
    // The same for a device that a gang holds.
    world.tell(&[broken(&idle[..1])]);
    world.tell(&[broken(&[])]);
    world.submit(job(3, gang(1).devices(1)));
    assert_eq!(world.phase(3), "pending");
}

/// kueue #12541: a tree without a root is walked for ever.
#[test]
fn bug_25_circle_of_queues() {
    let mut world = World::new(&octets(1));
    world.tell(&[queue("a").observed(), queue("b").parent("a").observed()]);
    world.tell(&[queue("a").parent("b").observed(), queue("c").parent("c").observed()]);
    let refused = world.changes.iter().filter(|(_, change)| matches!(change, Change::InputRejected { .. }));
    assert_eq!(refused.count(), 2);
    world.submit(job(1, gang(1).devices(8)).queue("b"));
    assert!(world.is_running(1));
}

/// The depth limit of queues depended on the order in which queues were configured: children first, there was no limit.
#[test]
fn queues_stand_as_deep_whether_parents_or_children_are_told_first() {
    let chain = |depth: usize| -> Vec<Input> {
        let at = |level: usize| {
            let queue = queue(&format!("q{level}"));
            if level == 0 { queue } else { queue.parent(&format!("q{}", level - 1)) }.observed()
        };
        (0..depth).map(at).collect()
    };
    let refused = |facts: Vec<Input>| {
        let mut world = World::new(&octets(1));
        facts.iter().for_each(|fact| world.tell(std::slice::from_ref(fact)));
        let is_refused =
            |change: &Change| matches!(change, Change::InputRejected { why, .. } if why.contains("8 levels"));
        world.changes.iter().filter(|(_, change)| is_refused(change)).count()
    };
    for (depth, expected) in [(8, 0), (9, 1)] {
        let (first, mut last) = (chain(depth), chain(depth));
        last.reverse();
        let mut middle = chain(depth);
        middle.rotate_left(depth / 2);
        assert_eq!([first, last, middle].map(refused), [expected; 3], "{depth} queues above each other");
    }
}

/// KAI #146: disruption budgets do not hold. Here a gang that may not be disrupted is not a victim, another gang is; if
/// there is no other, no gang is stopped, and the preempting gang starts as soon as the budget allows it.
#[test]
fn bug_26_eviction_against_a_budget() {
    let mut world = World::new(&octets(2));
    world.tell(&[no_min_run()]);
    let protected = |job, is_protected| Input::GangProtected { gang: World::gang(job), is_protected };
    for id in [1, 2] {
        world.submit(job(id, gang(1).devices(8)).class("opportunistic"));
    }
    // The protected gang would be the cheaper victim.
    world.tell(&[Input::GangCheckpointed { gang: World::gang(1), at: world.now() }, protected(1, true)]);
    world.submit(job(3, gang(1).devices(8)).class("serving"));
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.phase(2), world.phase(3)), ("running", "pending", "running"));
    world.submit(job(4, gang(1).devices(8)).class("serving"));
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.phase(4)), ("running", "pending"));
    world.tell(&[protected(1, false)]);
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.phase(4)), ("pending", "running"));
    assert_eq!((world.evictions(1), world.evictions(2)), (1, 1));
}

/// A gang for which others make way waits for the last of their members on its nodes. Until then it was found a place that
/// reservations before it may count on.
#[test]
fn a_gang_starts_when_those_that_made_way_for_it_have_left_its_nodes() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(2).devices(4)));
    world.advance(MINUTE);
    world.submit(job(2, gang(1).devices(4)).class("serving"));
    assert_eq!((world.phase(1), world.phase(2)), ("stopping", "pending"));
    for rank in 0..2 {
        assert_eq!(world.phase(2), "pending", "rank {rank} is still there");
        world.tell(&[Input::MemberExited { member: member(1, 1, rank), exit: Exit::code(0) }]);
    }
    world.advance(TERM_MS);
    assert_eq!(world.phase(2), "running");
}
