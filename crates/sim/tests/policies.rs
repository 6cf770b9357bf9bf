//! Small replays with ends that anyone can work out on paper, for every policy; and what the world refuses.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, QueueName, Settings as Shared};
use phalanx_sim::cluster::{Clos, Cluster};
use phalanx_sim::policies::{
    Backfill, Drf, Fifo, Gandiva, Hived, Las, NAMES, Optimus, Order, Ordered, Packing, Preemption, Promise,
    Room, Rules, Sjf, Srsf, Srtf, Themis, Tiresias, named,
};
use phalanx_sim::replay::NodeChange::{Back, Lost};
use phalanx_sim::replay::measured::{Throughputs, batch_in};
use phalanx_sim::replay::metrics::Metrics;
use phalanx_sim::replay::{
    Act, Free, Job, Machines, NodeEvent, Outcome, Part, Placed, Progress, Rack, Rate, Recorded, Replay,
    Scheduler, Settings, View,
};
use phalanx_sim::trace::{BatchMode, Training};

const S: u64 = 1_000;

fn cluster(nodes: usize, gpus_per_node: u32) -> Machines {
    Machines::plain(&[Rack { model: "gpu", nodes, gpus_per_node }]).unwrap()
}

/// Jobs as (submitted in s, GPUs, seconds of work).
fn jobs(of: &[(u64, u32, u32)]) -> Vec<Job> {
    let job = |(at, (submit_s, gpus, work_s)): (usize, &(u64, u32, u32))| Job {
        name: at.to_string(),
        submit_ms: submit_s * S,
        work: f64::from(*work_s) * 1_000.0,
        gpus: *gpus,
        gpus_min: *gpus,
        gpus_max: *gpus,
        ..Job::default()
    };
    of.iter().enumerate().map(job).collect()
}

fn replay(cluster: &Machines, jobs: &[Job], settings: Settings, policy: &mut dyn Scheduler) -> Outcome {
    Replay { cluster, jobs, progress: &Recorded, settings, node_events: &[] }.run(policy).unwrap()
}

/// When each job ends, in s.
fn ends(outcome: &Outcome) -> Vec<u64> {
    outcome.jobs.iter().map(|job| job.end_ms.unwrap() / S).collect()
}

fn ends_under(mut policy: impl Scheduler, gpus: u32, of: &[(u64, u32, u32)]) -> Vec<u64> {
    ends(&replay(&cluster(1, gpus), &jobs(of), Settings::default(), &mut policy))
}

fn ordered<O: Order>(order: O, preemption: Preemption) -> Ordered<O> {
    Ordered::new(order, preemption, Packing::Consolidated)
}

const STRICT: Preemption = Preemption::Never { is_strict: true };
const PASSING: Preemption = Preemption::Never { is_strict: false };

#[test]
fn fifo_waits_behind_the_first_that_does_not_fit() {
    let of = [(0, 2, 100), (1, 4, 50), (2, 2, 10)];
    assert_eq!(ends_under(ordered(Fifo, STRICT), 4, &of), [100, 150, 160]);
    assert_eq!(ends_under(ordered(Fifo, PASSING), 4, &of), [100, 150, 12]);
}

/// The world ends a job at its limit, whoever the policy is: whatever it did was in vain, and it has failed.
#[test]
fn time_limits_end_jobs_under_every_policy() {
    let cluster = cluster(2, 4);
    let mut of = jobs(&[(0, 4, 100), (0, 4, 100), (10, 4, 60), (20, 8, 30)]);
    of[0].limit_ms = Some(50 * S);
    of[1].limit_ms = Some(100 * S);
    of[2].limit_ms = Some(1_000 * S);
    let settings = Settings { start_ms: 2 * S, restore_ms: S, ..Settings::default() };
    let rules = Rules { starts_ms: 3 * S, ..Rules::default() };
    for (name, _) in NAMES {
        let mut policy = named(name, &cluster, &rules, &BTreeMap::from([("a".to_owned(), 8)])).unwrap();
        let outcome = replay(&cluster, &of, settings, policy.as_mut());
        let killed: Vec<bool> = outcome.jobs.iter().map(|job| job.killed_ms.is_some()).collect();
        assert_eq!(killed, [true, false, false, false], "{name}: {:?}", outcome.jobs);
        let first = &outcome.jobs[0];
        assert_eq!((first.end_ms, first.held_ms - first.starting_ms), (None, 50 * S), "{name}");
        let metrics = Metrics::of(&outcome);
        assert_eq!((metrics.jobs, metrics.ended, metrics.killed), (4, 3, 1), "{name}");
        assert!((metrics.lost_gpu_hours - 200.0 / 3_600.0).abs() < 1e-9, "{name}: {metrics:?}");
        let hours = metrics.gpu_hours;
        assert!(
            (hours.held - hours.useful - hours.starting - hours.limits).abs() < 1e-9,
            "{name}: {hours:?}"
        );
    }
}

/// Nobody is favoured by the world: where all jobs are alike in size and the engine is asked for nothing, it comes to what
/// first come first served comes to, to the byte.
#[test]
fn engine_that_has_nothing_to_choose_equals_fifo() {
    let cluster = cluster(3, 4);
    let mut of = mix();
    for (at, job) in of.iter_mut().enumerate() {
        (job.gpus, job.gpus_min, job.gpus_max, job.queue) = (4, 4, 4, None);
        // Some are ended by their limits, and some have none.
        let work_ms = 1_000 + u32::try_from(at).unwrap() * 7_919 % 400_000;
        job.work = f64::from(work_ms);
        let work_ms = u64::from(work_ms);
        job.limit_ms = [None, Some(work_ms / 2), Some(work_ms), Some(work_ms * 3)][at % 4];
    }
    let settings = Settings { start_ms: S, restore_ms: S, ..Settings::default() };
    let rules = Rules { starts_ms: 2 * S, ..Rules::default() };
    let outcome = |name: &str| {
        let mut policy = named(name, &cluster, &rules, &BTreeMap::new()).unwrap();
        let outcome = replay(&cluster, &of, settings, policy.as_mut());
        assert!(outcome.jobs.iter().any(|job| job.killed_ms.is_some()));
        format!("{:#?}\n{:#?}\n{}", outcome.jobs, outcome.samples, outcome.makespan_ms)
    };
    assert!(outcome("phalanx") == outcome("fifo"), "the outcomes differ");
}

/// Turns of a minute, and starts that take as long: they are stretched, and who forces them is told.
#[test]
fn turns_are_longer_than_starts() {
    let of = jobs(&[(0, 4, 600), (0, 4, 600)]);
    let settings = Settings { start_ms: 30 * S, restore_ms: 30 * S, ..Settings::default() };
    let rules = Rules { starts_ms: 60 * S, ..Rules::default() };
    for name in ["gandiva", "las", "themis", "gavel"] {
        let mut policy = named(name, &cluster(1, 4), &rules, &BTreeMap::new()).unwrap();
        let outcome = replay(&cluster(1, 4), &of, settings, policy.as_mut());
        assert!(outcome.jobs.iter().all(|job| job.end_ms.is_some()), "{name}");
    }
    let mut forced = ordered(Gandiva, Preemption::ByCount).every(30 * S);
    let cluster = cluster(1, 4);
    let replay = Replay { cluster: &cluster, jobs: &of, progress: &Recorded, settings, node_events: &[] };
    let error = replay.run(&mut forced).unwrap_err().to_string();
    assert!(error.contains("take turns for ever"), "{error}");
}

/// One job of no length among others had a mean finish-time fairness of thousands.
#[test]
fn jobs_of_no_length_have_no_fairness() {
    let of = jobs(&[(0, 4, 3_600), (0, 4, 0), (0, 4, 3_600)]);
    let outcome = replay(&cluster(1, 4), &of, Settings::default(), &mut ordered(Fifo, STRICT));
    let fairness = Metrics::of(&outcome).fairness;
    assert!(fairness.worst < 2.0, "{fairness:?}");
}

#[test]
fn shortest_first_by_the_whole_and_by_the_rest() {
    let of = [(0, 1, 100), (10, 1, 95), (20, 1, 30)];
    assert_eq!(ends_under(ordered(Sjf, PASSING), 1, &of), [100, 225, 130]);
    // At 10 the first has 90 left, less than 95; at 20 it has 80, more than 30.
    assert_eq!(ends_under(ordered(Srtf, Preemption::ByCount), 1, &of), [130, 225, 50]);
    assert_eq!(ends_under(ordered(Srtf, Preemption::Repack), 1, &of), [130, 225, 50]);
}

#[test]
fn shortest_service_counts_devices() {
    // 40 s on one device go before 30 s on two.
    let of = [(0, 2, 30), (0, 1, 40), (0, 1, 45)];
    assert_eq!(ends_under(ordered(Srtf, Preemption::ByCount), 2, &of), [30, 70, 75]);
    assert_eq!(ends_under(ordered(Srsf, Preemption::ByCount), 2, &of), [75, 40, 45]);
}

#[test]
fn least_attained_service_takes_turns() {
    // In rounds of 10 s: both had 20 s at 40, when 0 goes on until it ends.
    let of = [(0, 1, 30), (0, 1, 30)];
    let las = || ordered(Las, Preemption::ByCount).every(10 * S);
    assert_eq!(ends_under(las(), 1, &of), [50, 60]);
    let gandiva = || ordered(Gandiva, Preemption::ByCount).every(10 * S);
    assert_eq!(ends_under(gandiva(), 1, &of), [50, 60]);
    // Two devices count double in one, and not in the other: at 20, 0 had 20 device seconds and 1 had 10.
    let of = [(0, 2, 20), (0, 1, 20)];
    assert_eq!(ends_under(las(), 2, &of), [40, 30]);
    assert_eq!(ends_under(gandiva(), 2, &of), [30, 40]);
}

#[test]
fn tiresias_lets_a_job_fall_when_it_had_enough() {
    let tiresias = |promote_after| Tiresias::new(vec![20 * S], promote_after);
    // 0 falls at 10 (two devices), and 1 at 20, when it has 2 s left; 2 does not. Of the fallen 0 is the first.
    let of = [(0, 2, 50), (5, 2, 12), (5, 1, 15)];
    assert_eq!(ends_under(ordered(tiresias(None), Preemption::ByCount), 2, &of), [75, 77, 35]);
    // 1 runs from 10 to 20 and falls; after twice as long it is promoted, and runs from 40 to 50 before 0 ends.
    let of = [(0, 1, 40), (0, 1, 500)];
    let tiresias = Tiresias::new(vec![10 * S], Some(2));
    assert_eq!(ends_under(ordered(tiresias, Preemption::ByCount), 1, &of), [60, 540]);
}

#[test]
fn themis_helps_whoever_is_hurt_most() {
    // At 50 the long one is hurt by 5 %, the others by nothing; at 100 the short one by 200 %, at 125 the first by 75 %.
    let of = [(0, 1, 100), (0, 1, 1_000), (50, 1, 25)];
    let themis = ordered(Themis::default(), Preemption::ByCount).every(50 * S);
    assert_eq!(ends_under(themis, 1, &of), [175, 1_125, 125]);
}

#[test]
fn dominant_shares_are_evened_out() {
    let mut of = jobs(&[(0, 1, 10), (0, 1, 10), (0, 1, 10), (0, 1, 10)]);
    for (job, queue) in of.iter_mut().zip(["a", "a", "a", "b"]) {
        job.queue = Some(queue.to_owned());
    }
    let mut drf = ordered(Drf::default(), PASSING);
    let outcome = replay(&cluster(1, 2), &of, Settings::default(), &mut drf);
    assert_eq!(ends(&outcome), [10, 20, 20, 10], "b has its turn before the second of a");
}

#[test]
fn virtual_clusters_get_their_cells_back() {
    let mut of = jobs(&[(0, 4, 100), (10, 2, 20)]);
    (of[0].queue, of[1].queue) = (Some("a".to_owned()), Some("b".to_owned()));
    let cells = BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 2)]);
    let mut hived = ordered(Hived::new(cells), Preemption::ByCount);
    let outcome = replay(&cluster(1, 4), &of, Settings::default(), &mut hived);
    assert_eq!(ends(&outcome), [120, 30], "a used the cells of b, and made way");
}

#[test]
fn backfill_delays_no_promise() {
    // 1 waits for all four devices until 100. 2 ends by then, 3 would not.
    let of = [(0, 2, 100), (1, 4, 50), (2, 2, 90), (3, 2, 200), (4, 2, 100)];
    let easy = Backfill::new(Promise::First, Packing::Consolidated);
    assert_eq!(ends_under(easy, 4, &of), [100, 150, 92, 350, 250]);
    // 1 is promised 100, 2 150. 3 would end at 102: it is promised 150 beside 2, and 4 210, when 2 has ended.
    let of = [(0, 3, 100), (1, 4, 50), (2, 3, 60), (3, 1, 99), (4, 1, 500)];
    let conservative = Backfill::new(Promise::All { at_most: 100 }, Packing::Consolidated);
    assert_eq!(ends_under(conservative, 4, &of), [100, 150, 210, 249, 710]);
}

#[test]
fn a_start_costs_its_time_and_a_stop_what_was_not_saved() {
    let settings = Settings { start_ms: 5 * S, restore_ms: 2 * S, ..Settings::default() };
    let of = jobs(&[(0, 1, 100), (20, 1, 10)]);
    let outcome = replay(&cluster(1, 1), &of, settings, &mut ordered(Srtf, Preemption::ByCount));
    // 15 s are done at 20; 1 takes 5 + 10; then 5 + 2 to come back, and 85.
    assert_eq!(ends(&outcome), [127, 35]);
    assert_eq!((outcome.jobs[0].starting_ms, outcome.jobs[0].preemptions), (12 * S, 1));
    assert_eq!(outcome.jobs[0].waited_ms(), Some(15 * S));

    // A lost node takes what was done since the last checkpoint.
    let settings = Settings { checkpoint_every_ms: Some(10 * S), ..Settings::default() };
    let events = [(25, Lost), (30, Back)];
    let events = events.map(|(at_s, what)| NodeEvent { at_ms: at_s * S, node: 0, what });
    let of = jobs(&[(0, 1, 40)]);
    let cluster = cluster(1, 1);
    let replay = Replay { cluster: &cluster, jobs: &of, progress: &Recorded, settings, node_events: &events };
    let outcome = replay.run(&mut ordered(Fifo, STRICT)).unwrap();
    assert_eq!(ends(&outcome), [50]);
    assert!((outcome.jobs[0].lost - 5_000.0).abs() < 1e-6, "{outcome:?}");
}

/// Twice as fast on devices of one model, and slower with every second of work.
struct Uneven;

impl Progress for Uneven {
    fn rate(&self, _: usize, _: &Job, place: &[Part], cluster: &Machines, done: f64) -> Rate {
        let model = &cluster.models[cluster.model_of[place[0].node]];
        let speed = if model == "new" { 2.0 } else { 1.0 };
        if done < 10_000.0 { Rate { per_ms: speed, until: 10_000.0 } } else { Rate::steady(speed / 4.0) }
    }
}

#[test]
fn progress_depends_on_the_place_and_on_what_is_done() {
    let racks = [
        Rack { model: "new", nodes: 1, gpus_per_node: 1 },
        Rack { model: "old", nodes: 1, gpus_per_node: 1 },
    ];
    let cluster = Machines::plain(&racks).unwrap();
    let of = jobs(&[(0, 1, 20), (0, 1, 20)]);
    let replay = Replay {
        cluster: &cluster,
        jobs: &of,
        progress: &Uneven,
        settings: Settings::default(),
        node_events: &[],
    };
    let outcome = replay.run(&mut ordered(Fifo, STRICT)).unwrap();
    assert_eq!(ends(&outcome), [25, 50], "5 + 20 s where it is fast, 10 + 40 s where it is not");
}

#[test]
fn whoever_communicates_across_more_than_it_has_to_is_slower() {
    let clos = phalanx_sim::cluster::Clos::read("4x2x8:4").unwrap();
    let machines = Machines::from(phalanx_sim::cluster::Cluster::of_clos(&clos).unwrap());
    let mut job = jobs(&[(0, 16, 1)]).remove(0);
    job.traffic_milli = 500;
    let speed = |job: &Job, nodes: &[(usize, u32)]| -> f64 {
        let part = |(node, gpus): &(usize, u32)| Part::whole(*node, DeviceMask::first(*gpus));
        let place: Vec<Part> = nodes.iter().map(part).collect();
        Placed::default().rate(0, job, &place, &machines, 0.0).per_ms
    };
    let (inside, across) = (speed(&job, &[(0, 8), (1, 8)]), speed(&job, &[(0, 8), (2, 8)]));
    let scattered = speed(&job, &(0..8).map(|node| (node, 2)).collect::<Vec<_>>());
    assert!((inside - 1.0).abs() < 1e-9, "{inside}");
    assert!(inside > across && across > scattered && scattered > 0.0, "{inside} {across} {scattered}");
    job.traffic_milli = 0;
    assert!((speed(&job, &[(0, 8), (2, 8)]) - 1.0).abs() < 1e-9, "it sends nothing");
}

#[test]
fn measured_tables_give_speeds_and_batches_change_with_epochs() {
    let table = r#"{"v100": {"('LM (batch size 10)', 2)": {"null": 4.5, "('A3C', 2)": [1.0, 2.0]}}}"#;
    let speeds = Throughputs::read(table).unwrap();
    assert_eq!(speeds.of("v100", "LM (batch size 10)", 2), Some(4.5));
    assert_eq!(speeds.of("v100", "LM (batch size 10)", 1), None);
    let wrong = Throughputs::read(r#"{"v100": {"LM": {"null": 1.0}}}"#).unwrap_err();
    assert_eq!(wrong, "LM is no ('type', devices)");
    let training =
        |batch| Training { model: "LM".to_owned(), batch_size: Some(10), steps: None, step_us: None, batch };
    let sizes = |batch| [0, 9, 10, 11, 25, 60].map(|epoch| batch_in(&training(batch), 10, 1, epoch));
    assert_eq!(sizes(BatchMode::Static), [10; 6]);
    assert_eq!(sizes(BatchMode::Accordion), [10, 10, 80, 80, 80, 80]);
    assert_eq!(sizes(BatchMode::Gns), [10, 10, 10, 20, 40, 80]);
}

/// Orders what it was told to.
struct Wrong(Vec<Act>);

impl Scheduler for Wrong {
    fn name(&self) -> String {
        "wrong".to_owned()
    }

    fn decide(&mut self, _: &View<'_>, acts: &mut Vec<Act>) -> Option<u64> {
        acts.append(&mut self.0);
        None
    }
}

#[test]
fn the_world_refuses_what_cannot_be() {
    let part = |node, devices| Part::whole(node, DeviceMask(devices));
    let start = |job, place: &[Part]| Act::Start { job, place: place.to_vec() };
    let share = |milli| Part { node: 0, devices: DeviceMask(1), milli };
    let wrong: [(&str, Vec<Act>); 10] = [
        (
            "it starts job 3 on 1 devices; it takes 1 to 1, 600 thousandths of each",
            vec![start(3, &[share(500)])],
        ),
        (
            "it starts job 4 on devices 0 of node 0, where 1-3 are free",
            vec![start(3, &[share(600)]), start(4, &[share(600)])],
        ),
        ("it starts job 0 on 1 devices; it takes 2 to 2", vec![start(0, &[part(0, 0b1)])]),
        (
            "it starts job 0 on devices 0,4 of node 0, where 0-3 are free",
            vec![start(0, &[part(0, 0b1_0001)])],
        ),
        (
            "it starts job 1 on devices 1-2 of node 0, where 2-3 are free",
            vec![start(0, &[part(0, 0b11)]), start(1, &[part(0, 0b110)])],
        ),
        (
            "it starts job 0 on devices 0 of node 0, where 0-3 are free",
            vec![start(0, &[part(0, 1), part(0, 1)])],
        ),
        ("it starts job 0 on node 2, which is none", vec![start(0, &[part(2, 0b11)])]),
        ("it starts job 7, which does not wait", vec![start(7, &[part(0, 0b11)])]),
        ("it stops job 0, which does not run", vec![Act::Stop { job: 0, keep_progress: true }]),
        ("it starts job 2 on node 1, whose devices will not do", vec![start(2, &[part(1, 0b1)])]),
    ];
    let racks =
        [Rack { model: "a", nodes: 1, gpus_per_node: 4 }, Rack { model: "b", nodes: 1, gpus_per_node: 4 }];
    let cluster = Machines::plain(&racks).unwrap();
    let mut of = jobs(&[(0, 2, 10), (0, 2, 10), (0, 1, 10), (0, 1, 10), (0, 1, 10)]);
    of[2].models = vec!["a".to_owned()];
    of[3..].iter_mut().for_each(|job| job.share_milli = Some(600));
    for (what, acts) in wrong {
        let replay = Replay {
            cluster: &cluster,
            jobs: &of,
            progress: &Recorded,
            settings: Settings::default(),
            node_events: &[],
        };
        let failure = replay.run(&mut Wrong(acts)).unwrap_err();
        assert_eq!(failure.what, format!("policy wrong at 0 ms: {what}"));
    }
}

#[test]
fn what_no_cluster_holds_never_starts_and_stops_nothing() {
    let outcome = replay(
        &cluster(2, 4),
        &jobs(&[(0, 9, 10), (0, 8, 10)]),
        Settings::default(),
        &mut ordered(Fifo, STRICT),
    );
    assert_eq!(outcome.jobs.iter().map(|job| job.end_ms).collect::<Vec<_>>(), [None, Some(10 * S)]);
    let metrics = Metrics::of(&outcome);
    assert_eq!((metrics.jobs, metrics.ended), (2, 1));
}

#[test]
fn packings_choose_their_nodes() {
    let cluster = cluster(3, 4);
    let mut free = Free::all(&cluster);
    free.take(&Part::whole(0, DeviceMask(0b1100)));
    free.take(&Part::whole(2, DeviceMask(0b1000)));
    let job = &jobs(&[(0, 1, 1)])[0];
    let found = |packing, gpus| {
        let mut room = Room::new(packing);
        room.become_free(&cluster, &free);
        let place = room.find(&cluster, job, gpus)?;
        Some(place.iter().map(|part| (part.node, part.devices.count())).collect::<Vec<_>>())
    };
    assert_eq!(found(Packing::FirstFit, 5), Some(vec![(0, 2), (1, 3)]));
    assert_eq!(found(Packing::WholeFirst, 3), Some(vec![(1, 3)]));
    assert_eq!(found(Packing::WholeFirst, 5), Some(vec![(1, 4), (0, 1)]));
    assert_eq!(found(Packing::WholeFirst, 8), None, "only one node is whole");
    assert_eq!(found(Packing::Consolidated, 3), Some(vec![(2, 3)]));
    assert_eq!(found(Packing::Consolidated, 5), Some(vec![(1, 4), (0, 1)]));
    assert_eq!(found(Packing::Spread, 3), Some(vec![(1, 2), (2, 1)]));
    assert_eq!(found(Packing::Topology, 3).map(|place| place.len()), Some(1));
    assert_eq!(found(Packing::Topology, 10), None);
}

/// A mix that keeps 16 devices busy, and queues that share them.
fn mix() -> Vec<Job> {
    let mut rng = phalanx_sim::Rng::new(7);
    let mut of: Vec<Job> = (0..150)
        .map(|at| {
            let gpus = [1, 1, 1, 2, 4, 8][usize::try_from(rng.below(6)).unwrap()];
            let queue = Some(["a", "b", "c"][usize::try_from(rng.below(3)).unwrap()].to_owned());
            let work = f64::from(u32::try_from(rng.below(400_000)).unwrap() + 1_000);
            let submit_ms = rng.below(4_000_000);
            let name = at.to_string();
            Job { name, submit_ms, work, gpus, gpus_min: gpus, gpus_max: gpus, queue, ..Job::default() }
        })
        .collect();
    of.sort_by_key(|job| job.submit_ms);
    of
}

#[test]
fn every_policy_does_all_work_once_and_alike_each_time() {
    let cluster = cluster(4, 4);
    let of = mix();
    let cells = BTreeMap::from([("a".to_owned(), 8), ("b".to_owned(), 4), ("c".to_owned(), 4)]);
    let rules = Rules {
        queues: cells.keys().map(|name| phalanx_model::Queue::named(QueueName::new(name).unwrap())).collect(),
        settings: Shared::default(),
        ..Rules::default()
    };
    let settings =
        Settings { start_ms: S, restore_ms: S, checkpoint_every_ms: Some(60 * S), ..Settings::default() };
    let events = [(500, Lost), (900, Back)].map(|(at_s, what)| NodeEvent { at_ms: at_s * S, node: 1, what });
    for (name, _) in NAMES {
        let run = || {
            let mut policy = named(name, &cluster, &rules, &cells).unwrap();
            let progress = &Recorded;
            let replay = Replay { cluster: &cluster, jobs: &of, progress, settings, node_events: &events };
            replay.run(policy.as_mut()).unwrap()
        };
        let outcome = run();
        assert_eq!(outcome.policy, name);
        for job in &outcome.jobs {
            assert!(job.end_ms.is_some(), "{name}: {job:?}");
            // Whatever was done and not kept was done again.
            assert!((job.done - job.lost - job.work).abs() < 1e-3, "{name}: {job:?}");
            // At nominal speed a millisecond with devices is one of work or of a start, but for rounding up.
            let spent = job.done + job.starting_ms as f64;
            assert!((job.held_ms as f64 - spent).abs() <= 1.0 + f64::from(job.starts), "{name}: {job:?}");
        }
        let metrics = Metrics::of(&outcome);
        let of = metrics.gpu_hours;
        let spent =
            of.useful + of.starting + of.saving + of.lost_nodes + of.stops + of.slow_nodes + of.places;
        assert!((of.held - spent).abs() < 1e-3 * of.held, "{name}: {of:?}");
        assert!((0.0..=100.0).contains(&metrics.useful_percent), "{name}: {metrics:?}");
        assert!(metrics.leaves_over_least >= 1.0, "{name}: {metrics:?}");
        assert_eq!(outcome, run(), "{name}");
    }
}

/// Jobs of so many shares of so many thousandths, all there at once, for 10 s.
fn sharing(of: &[(u32, u32)]) -> Vec<Job> {
    let mut jobs = jobs(&of.iter().map(|(shares, _)| (0, *shares, 10)).collect::<Vec<_>>());
    jobs.iter_mut().zip(of).for_each(|(job, (_, milli))| job.share_milli = Some(*milli));
    jobs
}

#[test]
fn every_policy_lets_shares_of_a_device_run_at_once() {
    let rules = Rules { settings: Shared::default(), ..Rules::default() };
    // Four tenants of one device, and a gang of three halves on two devices beside a half.
    for (gpus, of) in [(1, vec![(1, 250); 4]), (2, vec![(3, 500), (1, 500)]), (1, vec![(1, 500), (1, 300)])] {
        let cluster = cluster(1, gpus);
        for (name, _) in NAMES {
            let mut policy = named(name, &cluster, &rules, &BTreeMap::new()).unwrap();
            let jobs = sharing(&of);
            let outcome = replay(&cluster, &jobs, Settings::default(), policy.as_mut());
            assert_eq!(ends(&outcome), vec![10; jobs.len()], "{name}: {of:?}");
            let asked: f64 = jobs.iter().map(Job::devices).sum();
            let hours = Metrics::of(&outcome).gpu_hours;
            assert!((hours.held - asked * 10.0 / 3_600.0).abs() < 1e-9, "{name}: {hours:?}");
            assert!((hours.useful - hours.held).abs() < 1e-9, "{name}: {hours:?}");
        }
    }
}

#[test]
fn every_policy_does_the_work_of_shares_once_beside_whole_devices() {
    let cluster = cluster(4, 4);
    let mut of = mix();
    for (at, job) in of.iter_mut().enumerate().filter(|(at, job)| job.gpus < 4 && at % 3 > 0) {
        job.share_milli = Some([100, 250, 300, 500, 700][at % 5]);
    }
    let settings =
        Settings { start_ms: S, restore_ms: S, checkpoint_every_ms: Some(60 * S), ..Settings::default() };
    let events = [(500, Lost), (900, Back)].map(|(at_s, what)| NodeEvent { at_ms: at_s * S, node: 1, what });
    for (name, _) in NAMES {
        let mut policy = named(name, &cluster, &Rules::default(), &BTreeMap::new()).unwrap();
        let progress = &Recorded;
        let replay = Replay { cluster: &cluster, jobs: &of, progress, settings, node_events: &events };
        let outcome = replay.run(policy.as_mut()).unwrap();
        for job in &outcome.jobs {
            assert!(job.end_ms.is_some(), "{name}: {job:?}");
            assert!((job.done - job.lost - job.work).abs() < 1e-3, "{name}: {job:?}");
        }
        let of = Metrics::of(&outcome).gpu_hours;
        let spent =
            of.useful + of.starting + of.saving + of.lost_nodes + of.stops + of.slow_nodes + of.places;
        assert!((of.held - spent).abs() < 1e-3 * of.held, "{name}: {of:?}");
        assert!(
            outcome.samples.iter().all(|sample| sample.allocated() <= f64::from(sample.gpus_up)),
            "{name}"
        );
        assert_eq!(outcome.samples.last().map(|sample| sample.milli_allocated), Some(0), "{name}");
    }
}

#[test]
fn shares_go_where_the_packing_puts_them() {
    // Node 0 has two whole devices and 400 thousandths of a third, node 1 four, node 2 three and 700 thousandths.
    let cluster = cluster(3, 4);
    let mut free = Free::all(&cluster);
    free.take(&Part::whole(0, DeviceMask(0b1000)));
    free.take(&Part { node: 0, devices: DeviceMask(0b0100), milli: 600 });
    free.take(&Part { node: 2, devices: DeviceMask(0b1000), milli: 300 });
    let found = |packing, shares, milli| {
        let mut room = Room::new(packing);
        room.become_free(&cluster, &free);
        let job = &sharing(&[(shares, milli)])[0];
        let place = room.find(&cluster, job, shares)?;
        assert!(free.has(&place), "{place:?}");
        Some(place.iter().map(|part| (part.node, part.devices.0, part.milli)).collect::<Vec<_>>())
    };
    assert_eq!(
        found(Packing::Consolidated, 1, 300),
        Some(vec![(0, 0b0100, 300)]),
        "the least that is enough"
    );
    assert_eq!(found(Packing::Consolidated, 1, 500), Some(vec![(2, 0b1000, 500)]));
    assert_eq!(found(Packing::Consolidated, 1, 800), Some(vec![(0, 0b0001, 800)]), "of the fullest node");
    assert_eq!(found(Packing::Consolidated, 3, 350), Some(vec![(0, 0b0100, 350), (2, 0b1000, 700)]));
    assert_eq!(found(Packing::FirstFit, 1, 500), Some(vec![(0, 0b0001, 500)]));
    assert_eq!(found(Packing::Spread, 2, 300), Some(vec![(1, 0b0011, 300)]));
    assert_eq!(found(Packing::Topology, 1, 300), Some(vec![(0, 0b0100, 300)]));
    assert_eq!(
        found(Packing::Consolidated, 9, 900),
        Some(vec![(0, 0b0011, 900), (2, 0b0111, 900), (1, 0b1111, 900)])
    );
    assert_eq!(found(Packing::Consolidated, 10, 900), None, "rests are too small");
}

#[test]
fn optimus_gives_devices_to_whom_they_save_most() {
    // The long job has three devices and the short one its least; what falls free waits for the next round.
    let mut jobs = jobs(&[(0, 1, 100), (0, 1, 10), (20, 1, 40)]);
    jobs.iter_mut().for_each(|job| job.gpus_max = 4);
    let mut policy = Optimus::new(60 * S, Packing::Emptiest);
    let outcome = replay(&cluster(1, 4), &jobs, Settings::default(), &mut policy);
    assert_eq!(ends(&outcome), [33, 10, 70]);
}

#[test]
fn rounds_may_leave_devices_idle_in_between() {
    let mut policy = ordered(Fifo, PASSING).only_every(60 * S);
    let outcome = replay(&cluster(1, 1), &jobs(&[(5, 1, 10), (5, 1, 10)]), Settings::default(), &mut policy);
    assert_eq!(ends(&outcome), [70, 130]);
}

#[test]
fn placements_of_other_schedulers_are_packings() {
    // Two leaves of two nodes; one node of the second is taken. Kueue takes the tightest leaf, Slurm's tree the first that
    // holds the job, and its blocks that with the fewest free nodes.
    let machines = Machines::from(Cluster::of_clos(&Clos::read("2x2x4").unwrap()).unwrap());
    let mut free = Free::all(&machines);
    free.lose_node(3);
    for (packing, node) in [(Packing::Kueue, 2), (Packing::SlurmTree, 0), (Packing::SlurmBlock, 2)] {
        let mut room = Room::new(packing);
        room.become_free(&machines, &free);
        let place = room.find(&machines, &Job::default(), 4).unwrap();
        assert_eq!(place, [Part::whole(node, DeviceMask::first(4))], "{}", packing.name());
        assert_eq!(room.find(&machines, &Job::default(), 13), None);
    }
}
