//! Training and serving on one cluster, by the production engine.
#![allow(clippy::unwrap_used, reason = "tests")]

use phalanx_model::{Amounts, Needs, PartNeed, Queue, QueueName, Resource, Settings, Spot};
use phalanx_sim::cluster::{Clos, Cluster};
use phalanx_sim::fleet::{Elastic, Fleet, Load, Reclaims, Service, Training};

const HOUR_MS: u64 = 3_600_000;

fn queue(name: &str, gpus: u64) -> Queue {
    let guaranteed = Amounts::from([(Resource::Gpus, gpus * 1_000)]);
    Queue { guaranteed, ..Queue::named(QueueName::new(name).unwrap()) }
}

fn fleet(clos: &str) -> Fleet {
    let cluster = Cluster::of_clos(&Clos::read(clos).unwrap()).unwrap();
    Fleet {
        levels: cluster.levels,
        nodes: cluster.nodes,
        settings: Settings::default(),
        queues: vec![queue("chat", 2), queue("lab", 0)],
        services: Vec::new(),
        training: Vec::new(),
        reclaims: None,
        end_ms: 24 * HOUR_MS,
        seed: 1,
    }
}

fn training(submit_ms: u64, gpus: u32, run_ms: u64) -> Training {
    let (starts_ms, checkpoint_ms, save_ms) = (60_000, 900_000, 20_000);
    let queue = QueueName::new("lab").unwrap();
    Training {
        queue,
        submit_ms,
        gpus,
        elastic: None,
        run_ms,
        starts_ms,
        checkpoint_ms,
        save_ms,
        takes_spot: false,
    }
}

/// One that needs 7 slices of an H100 at its peak, and two at night.
fn slices() -> Service {
    Service {
        queue: QueueName::new("chat").unwrap(),
        needs: Needs { part: Some(PartNeed::Profile("1g.10gb".to_owned())), ..Needs::default() },
        min: 2,
        max: 20,
        workers: 1,
        rate_milli: 5_000,
        gpu_milli: 143,
        target_milli: 700,
        starts_ms: 30_000,
        load: Load { peak_milli: 24_000, later_ms: 0, noise_milli: 20, seed: 1 },
    }
}

#[test]
fn a_service_follows_its_load_on_slices_and_training_has_the_rest() {
    let fleet = Fleet {
        services: vec![slices()],
        training: vec![training(0, 1, 2 * HOUR_MS), training(HOUR_MS, 2, HOUR_MS)],
        ..fleet("1x1x4:1")
    };
    let report = fleet.run().unwrap();
    assert_eq!(report, fleet.run().unwrap(), "the same for the same seed");
    assert_eq!(report.completions_ms, [Some(2 * HOUR_MS + 60_000), Some(HOUR_MS + 60_000)]);
    assert!((report.trained_gpu_ms / 3.6e6 - 4.0).abs() < 1e-9 && report.lost_gpu_ms == 0.0, "{report:?}");
    let served = report.served();
    // As many as it needs: 70 % of what replicas have is used, less where two are the fewest and while it shrinks.
    let used = served.busy_gpu_ms / served.held_gpu_ms;
    assert!((0.5..0.75).contains(&used) && served.replica_starts >= 7, "{used} {served:?}");
    assert!(served.mean_ms() > 200.0 && served.mean_ms() < 400.0, "{served:?}");
}

#[test]
fn serving_takes_its_guarantee_back_and_training_resumes_from_what_it_saved() {
    // Three of four devices train at night. By day serving needs a second one, and those three have to wait for it.
    let load = Load { peak_milli: 40_000, ..slices().load };
    let fleet = Fleet {
        services: vec![Service { load, ..slices() }],
        training: vec![training(0, 3, 12 * HOUR_MS)],
        end_ms: 48 * HOUR_MS,
        ..fleet("1x1x4:1")
    };
    let report = fleet.run().unwrap();
    let ended_ms = report.completions_ms[0].unwrap();
    assert!(report.restarts > 0 && ended_ms > 20 * HOUR_MS, "{report:?}");
    // Told half a minute before, it saves; what was not saved would be 15 minutes of three devices at most.
    assert!(report.lost_gpu_ms <= f64::from(report.restarts) * 60_000.0 * 3.0, "{report:?}");
    assert!(report.served().late_percent() < 8.0, "{:?}", report.served());
}

#[test]
fn a_node_that_is_taken_back_costs_no_more_than_its_notice_leaves() {
    let mut fleet = Fleet {
        training: (0..8).map(|at| Training { takes_spot: true, ..training(at, 8, 20 * HOUR_MS) }).collect(),
        reclaims: Some(Reclaims { every_ms: 12 * HOUR_MS, notice_ms: 120_000, back_ms: HOUR_MS }),
        end_ms: 240 * HOUR_MS,
        ..fleet("1x2x8:1")
    };
    fleet.nodes.iter_mut().for_each(|node| node.spot = Some(Spot::default()));
    let report = fleet.run().unwrap();
    assert!(report.completions_ms.iter().all(Option::is_some), "{report:?}");
    assert!(report.restarts >= 8, "{report:?}");
    assert!((report.trained_gpu_ms / 3.6e6 - 1_280.0).abs() < 1e-6, "{report:?}");
    // Told two minutes before, it saves what it did.
    assert!(report.lost_gpu_ms < 0.001 * report.trained_gpu_ms, "{report:?}");
    // Without notice, what was done since the last checkpoint is lost: 7.5 minutes each time, in the mean.
    let sudden = Reclaims { notice_ms: 0, ..fleet.reclaims.unwrap() };
    let report = Fleet { reclaims: Some(sudden), ..fleet }.run().unwrap();
    let each_min = report.lost_gpu_ms / 8.0 / 60_000.0 / f64::from(report.restarts);
    assert!((4.0..=11.0).contains(&each_min), "{each_min} {report:?}");
}

#[test]
fn an_elastic_job_shrinks_for_others_and_grows_at_a_checkpoint() {
    let elastic = Some(Elastic { min: 1, max: 4, efficiency_milli: 900 });
    let alone =
        Fleet { training: vec![Training { elastic, ..training(0, 2, 9 * HOUR_MS) }], ..fleet("1x1x4:1") };
    // It grows to four devices at its first checkpoint, and does 1.8 times as much there.
    let report = alone.run().unwrap();
    let ended_ms = report.completions_ms[0].unwrap();
    let fast_ms = (9 * HOUR_MS - 900_000) * 10 / 18;
    assert!(ended_ms.abs_diff(900_000 + fast_ms + 120_000) < 60_000, "{ended_ms}");
    assert!((report.trained_gpu_ms / 3.6e6 - 18.0).abs() < 1e-9 && report.lost_gpu_ms < 3.6e5, "{report:?}");
    // Another that asks for two has them before the first ends.
    let both = Fleet {
        training: vec![alone.training[0].clone(), training(2 * HOUR_MS, 2, HOUR_MS)],
        ..alone.clone()
    };
    let report = both.run().unwrap();
    assert!(report.completions_ms[1].unwrap() < 2 * HOUR_MS, "{report:?}");
    assert!(report.completions_ms[0].unwrap() > ended_ms && report.restarts >= 2, "{report:?}");
}
