//! What befalls nodes: lost ones, slow ones, and the time that saving takes; where device time goes because of it.
#![allow(clippy::unwrap_used, reason = "tests")]

use phalanx_sim::policies::{Fifo, Ordered, Packing, Preemption, Srtf};
use phalanx_sim::replay::NodeChange::{Back, Lost, Slowed};
use phalanx_sim::replay::metrics::{GpuHours, Metrics};
use phalanx_sim::replay::{
    Job, Machines, NodeChange, NodeEvent, NodeFaults, Outcome, Rack, Recorded, Replay, Scheduler, Settings,
};

const S: u64 = 1_000;
const HOUR_MS: u64 = 3_600_000;

fn cluster(nodes: usize, gpus_per_node: u32) -> Machines {
    Machines::plain(&[Rack { model: "gpu", nodes, gpus_per_node }]).unwrap()
}

fn job(gpus: u32, work_ms: u64) -> Job {
    let work = f64::from(u32::try_from(work_ms / S).unwrap()) * 1_000.0;
    Job { work, gpus, gpus_min: gpus, gpus_max: gpus, ..Job::default() }
}

fn fifo() -> impl Scheduler {
    Ordered::new(Fifo, Preemption::Never { is_strict: true }, Packing::Consolidated)
}

fn run(cluster: &Machines, job: Job, settings: Settings, events: &[(u64, usize, NodeChange)]) -> Outcome {
    let events =
        events.iter().map(|(at_s, node, what)| NodeEvent { at_ms: at_s * S, node: *node, what: *what });
    let events: Vec<NodeEvent> = events.collect();
    let jobs = [job];
    Replay { cluster, jobs: &jobs, progress: &Recorded, settings, node_events: &events }
        .run(&mut fifo())
        .unwrap()
}

/// In GPU-seconds.
fn seconds(of: GpuHours) -> [f64; 7] {
    [of.held, of.useful, of.starting, of.saving, of.lost_nodes, of.slow_nodes, of.places]
        .map(|h| (h * 3_600.0).round())
}

#[test]
fn a_gang_is_as_slow_as_its_slowest_node_and_all_time_has_a_cause() {
    // Slow from 100 to 220: 120 s for 40 s of work.
    let slowed = |times_milli| Slowed { times_milli };
    let events = [(100, 1, slowed(3_000)), (220, 1, slowed(1_000))];
    let outcome = run(&cluster(2, 1), job(2, 200 * S), Settings::default(), &events);
    assert_eq!(outcome.jobs[0].end_ms, Some(280 * S));
    assert_eq!(seconds(Metrics::of(&outcome).gpu_hours), [560.0, 400.0, 0.0, 0.0, 0.0, 160.0, 0.0]);

    // 10 s of every 100 to save; 30 s to start; the node is lost 150 s after that, for 20 s.
    let settings = Settings {
        start_ms: 30 * S,
        checkpoint_every_ms: Some(100 * S),
        checkpoint_ms: 10 * S,
        ..Settings::default()
    };
    let outcome = run(&cluster(1, 1), job(1, 180 * S), settings, &[(180, 0, Lost), (200, 0, Back)]);
    // 90 are kept of 135; 90 more take 100.
    assert_eq!(outcome.jobs[0].end_ms, Some(330 * S));
    let metrics = Metrics::of(&outcome);
    assert_eq!(seconds(metrics.gpu_hours), [310.0, 180.0, 60.0, 20.0, 50.0, 0.0, 0.0]);
    // 20 s of the 330 without a node are no work either.
    assert!((metrics.ettr_percent - 180.0 / 330.0 * 100.0).abs() < 1e-6, "{metrics:?}");
}

#[test]
fn faults_are_the_same_whatever_else_is_drawn() {
    let lost = NodeFaults { mtbf_ms: Some(HOUR_MS), repair_ms: 60 * S, ..NodeFaults::default() };
    let both = NodeFaults { slow_every_ms: Some(HOUR_MS), slow_ms: 60 * S, slow_times_milli: 2_000, ..lost };
    let all = |of: NodeFaults, seed| of.events(4, 100 * HOUR_MS, seed).unwrap();
    let is_slow = |event: &NodeEvent| matches!(event.what, Slowed { .. });
    let without: Vec<NodeEvent> = all(both, 7).into_iter().filter(|event| !is_slow(event)).collect();
    assert_eq!(all(lost, 7), without);
    assert_ne!(all(lost, 7), all(lost, 8));
    // As often as the mean says, within three standard deviations of a Poisson number.
    let losses = without.iter().filter(|event| event.what == Lost).count();
    assert!((334..=454).contains(&losses), "{losses} of 394 = 400 h / (1 h + 1 min)");
    let often = NodeFaults { mtbf_ms: Some(1), ..NodeFaults::default() };
    assert!(often.events(4, 100 * HOUR_MS, 1).unwrap_err().contains("rarer"));
}

/// One job on all nodes but the spare ones. At the failure rate of Llama 3, Young and Daly predict for 10,000 GPUs (mean
/// time to failure M = 5.1 h) an effective training time ratio of `1 - sqrt(2 d / M) - R / M`, with d for a checkpoint
/// and R for a recovery, when a checkpoint is made every `sqrt(2 d M)`.
#[test]
fn training_time_comes_to_what_young_and_daly_predict() {
    let nodes: u32 = 50;
    let mtbf_ms: u64 = 51 * HOUR_MS / 10;
    for (save_ms, recover_ms, predicted) in [(5 * S, 120 * S, 97.0), (60 * S, 600 * S, 88.6)] {
        let faults = NodeFaults {
            mtbf_ms: Some(mtbf_ms * u64::from(nodes)),
            repair_ms: HOUR_MS / 2,
            ..NodeFaults::default()
        };
        let cluster = cluster(56, 1);
        let settings = Settings {
            start_ms: recover_ms,
            checkpoint_every_ms: Some((2 * save_ms * mtbf_ms).isqrt()),
            checkpoint_ms: save_ms,
            ..Settings::default()
        };
        let jobs = [job(nodes, 2_000 * HOUR_MS)];
        let events = faults.events(cluster.nodes.len(), 4_000 * HOUR_MS, 1).unwrap();
        let replay =
            Replay { cluster: &cluster, jobs: &jobs, progress: &Recorded, settings, node_events: &events };
        let metrics = Metrics::of(&replay.run(&mut fifo()).unwrap());
        assert!((metrics.ettr_percent - predicted).abs() < 1.0, "{predicted}: {metrics:?}");
    }
}

#[test]
fn what_a_policy_stops_without_saving_is_not_laid_to_nodes() {
    struct Rude(Ordered<Srtf>);
    impl Scheduler for Rude {
        fn name(&self) -> String {
            "rude".to_owned()
        }
        fn decide(
            &mut self,
            view: &phalanx_sim::replay::View<'_>,
            acts: &mut Vec<phalanx_sim::replay::Act>,
        ) -> Option<u64> {
            let wake = self.0.decide(view, acts);
            for act in acts {
                if let phalanx_sim::replay::Act::Stop { keep_progress, .. } = act {
                    *keep_progress = false;
                }
            }
            wake
        }
    }
    let cluster = cluster(1, 1);
    let jobs = [job(1, 100 * S), Job { submit_ms: 30 * S, ..job(1, 10 * S) }];
    let settings = Settings::default();
    let replay = Replay { cluster: &cluster, jobs: &jobs, progress: &Recorded, settings, node_events: &[] };
    let outcome =
        replay.run(&mut Rude(Ordered::new(Srtf, Preemption::ByCount, Packing::Consolidated))).unwrap();
    let of = Metrics::of(&outcome).gpu_hours;
    assert_eq!((seconds(of)[4], (of.stops * 3_600.0).round()), (0.0, 30.0));
}
