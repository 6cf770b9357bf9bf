//! Training on nodes that are cheaper and may be taken back.

use std::fmt::Write;

use phalanx_model::{Queue, QueueName, Settings, Spot};
use phalanx_sim::Rng;
use phalanx_sim::cluster::{Clos, Cluster};
use phalanx_sim::fleet::{Fleet, FleetReport, Reclaims, Training};

use super::draw::{exponential_ms, weighted};
use super::percent;

const HOUR_MS: u64 = 3_600_000;
const NODES: u32 = 16;
const DAYS: u64 = 10;
const SIZES: [(u32, u64); 4] = [(4, 25), (8, 40), (16, 25), (32, 10)];
const MEAN_RUN_MS: u64 = 6 * HOUR_MS;
const LOAD: f64 = 0.6;
const BACK_MS: u64 = HOUR_MS / 2;
/// What a node costs less than one that stays, in percent.
const DISCOUNTS: [f64; 2] = [60.0, 90.0];
/// Mean hours until a node is taken back, and the notice in s.
const RECLAIMS: [(u64, u64); 5] = [(72, 120), (24, 120), (6, 120), (24, 0), (6, 0)];

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ms of days")]
fn training(queue: &QueueName) -> Vec<Training> {
    let mut rng = Rng::new(1);
    let mean: f64 = SIZES.iter().map(|(gpus, of_100)| f64::from(*gpus) * *of_100 as f64 / 100.0).sum();
    let every_ms = mean * MEAN_RUN_MS as f64 / (LOAD * f64::from(NODES * 8));
    let mut all = Vec::new();
    let mut submit_ms = exponential_ms(&mut rng, every_ms as u64);
    // Three days are left for the last to end.
    while submit_ms < (DAYS - 3) * 24 * HOUR_MS {
        all.push(Training {
            queue: queue.clone(),
            submit_ms,
            gpus: weighted(&mut rng, &SIZES),
            run_ms: exponential_ms(&mut rng, MEAN_RUN_MS).clamp(10 * 60_000, 24 * HOUR_MS),
            starts_ms: 60_000,
            checkpoint_ms: 15 * 60_000,
            save_ms: 20_000,
            takes_spot: true,
        });
        submit_ms += exponential_ms(&mut rng, every_ms as u64);
    }
    all
}

pub(super) fn measure() -> Result<String, String> {
    let clos = Clos::read(&format!("1x{NODES}x8")).map_err(|e| e.to_string())?;
    let cluster = Cluster::of_clos(&clos).map_err(|e| e.to_string())?;
    let queue = QueueName::new("training").map_err(|e| e.to_string())?;
    let mut fleet = Fleet {
        levels: cluster.levels,
        nodes: cluster.nodes,
        settings: Settings::default(),
        queues: vec![Queue::named(queue.clone())],
        services: Vec::new(),
        training: training(&queue),
        reclaims: None,
        end_ms: DAYS * 24 * HOUR_MS,
        seed: 1,
    };
    let stays = fleet.run().map_err(|e| e.to_string())?;
    fleet.nodes.iter_mut().for_each(|node| node.spot = Some(Spot::default()));
    let mut out = format!(
        "### Spot capacity (modelled)\n\nClaimed: 60 to 90 % saved. Declared: {} jobs of 4 to 32 GPUs, {} h on the average, \
         checkpoints every 15 min, a minute to start, 20 s to save, on {} GPUs; every node is taken back after an exponential \
         time, with a notice or without one, and another stands in its stead {} min later; what jobs hold is paid, at 60 or 90 % \
         below the price of nodes that stay.\n\n\
         | a node is taken back | notice | restarts | lost, GPU-h | of the work | held over that on nodes that stay | completion over that | saved at −60 % | at −90 % |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        fleet.training.len(),
        MEAN_RUN_MS / HOUR_MS,
        NODES * 8,
        BACK_MS / 60_000,
    );
    for (every_h, notice_s) in RECLAIMS {
        let reclaims =
            Reclaims { every_ms: every_h * HOUR_MS, notice_ms: notice_s * 1_000, back_ms: BACK_MS };
        let report = Fleet { reclaims: Some(reclaims), ..fleet.clone() }.run().map_err(|e| e.to_string())?;
        let held = report.held_gpu_ms / stays.held_gpu_ms;
        let [low, high] = DISCOUNTS.map(|discount| 100.0 - (100.0 - discount) * held);
        let notice = if notice_s > 0 { format!("{notice_s} s") } else { "none".to_owned() };
        let _ = writeln!(
            out,
            "| every {every_h} h | {notice} | {} | {:.1} | {:.2} % | {held:.3} | {:.2} | {low:.1} % | {high:.1} % |",
            report.restarts,
            report.lost_gpu_ms / 3.6e6,
            percent(report.lost_gpu_ms, report.trained_gpu_ms),
            completion(&report) / completion(&stays),
        );
    }
    Ok(out)
}

/// Mean of the jobs that ended, in ms.
fn completion(report: &FleetReport) -> f64 {
    let ended: Vec<u64> = report.completions_ms.iter().flatten().copied().collect();
    ended.iter().sum::<u64>() as f64 / ended.len().max(1) as f64
}
