//! How full an overloaded cluster is, under the presets, where no job has a limit and nobody knows when one ends.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use phalanx_sim::Rng;
use phalanx_sim::policies::{Rules, named};
use phalanx_sim::replay::{Job, JobOutcome, Machines, Outcome, Rack, Recorded, Replay, Settings};
use phalanx_spec::Preset;

const RACK: Rack = Rack { model: "gpu", nodes: 8, gpus_per_node: 8 };
const GPUS: u32 = 64;
const MINUTE: u64 = 60_000;
/// Far more work than there are GPUs: most jobs are small and short, some take half of the cluster.
fn overload(seed: u64) -> Vec<Job> {
    let mut rng = Rng::new(seed);
    let mut of: Vec<Job> = (0..400)
        .map(|at: u32| {
            let gpus = [1, 1, 1, 1, 2, 4, 8, 8, 16, 32][usize::try_from(rng.below(10)).unwrap()];
            // Each decade of lengths from a minute to some days is as frequent as the next.
            let minutes = 10_u64.pow(u32::try_from(rng.below(3)).unwrap()) * (1 + rng.below(10));
            Job {
                name: at.to_string(),
                submit_ms: rng.below(2_000 * MINUTE),
                work: (minutes * MINUTE) as f64,
                gpus,
                gpus_min: gpus,
                gpus_max: gpus,
                ..Job::default()
            }
        })
        .collect();
    of.sort_by_key(|job| job.submit_ms);
    of
}

fn run(preset: &str, of: &[Job]) -> Outcome {
    let cluster = Machines::plain(&[RACK]).unwrap();
    let mut policy = named(preset, &cluster, &Rules::default(), &BTreeMap::new()).unwrap();
    let settings = Settings { start_ms: 1_000, restore_ms: 1_000, ..Settings::default() };
    let replay = Replay { cluster: &cluster, jobs: of, progress: &Recorded, settings, node_events: &[] };
    replay.run(policy.as_mut()).unwrap()
}

/// GPU time, in ms, in which less than 90 % of the GPUs were held while a job of one GPU had not started yet; and the
/// longest time at once.
fn idle(outcome: &Outcome) -> (f64, u64) {
    let (mut all, mut longest, mut since) = (0.0, 0, None);
    for [this, next] in outcome.samples.array_windows() {
        let waits = outcome.jobs.iter().any(|job| {
            job.gpus == 1
                && job.submit_ms <= this.at_ms
                && job.first_start_ms.is_none_or(|at| at >= next.at_ms)
        });
        if waits && this.allocated() * 10.0 < f64::from(GPUS * 9) {
            let begin = *since.get_or_insert(this.at_ms);
            all += (f64::from(GPUS) - this.allocated()) * (next.at_ms - this.at_ms) as f64;
            longest = longest.max(next.at_ms - begin);
        } else {
            since = None;
        }
    }
    (all, longest)
}

#[test]
fn no_gpus_are_idle_for_long_beside_a_job_that_fits() {
    for preset in ["phalanx", "phalanx-fair"] {
        let (_, longest) = idle(&run(preset, &overload(3)));
        assert!(longest <= 5 * MINUTE, "{preset}: {longest} ms");
    }
}

/// With `first-come`, GPUs stay idle for large jobs, and no longer than the wait of these jobs is worth.
#[test]
fn gpus_are_idle_for_the_large_only_for_a_part_of_what_they_waited() {
    let outcome = run("phalanx-first-come", &overload(3));
    let waited =
        |job: &JobOutcome| (job.first_start_ms.unwrap() - job.submit_ms) as f64 * f64::from(job.gpus);
    let large = outcome.jobs.iter().filter(|job| job.gpus > 1);
    let idle_of_wait = f64::from(Preset::FirstCome.settings().hold_idle_max_milli) / 1_000.0;
    let bound = idle_of_wait * large.map(waited).sum::<f64>();
    let (idle, _) = idle(&outcome);
    assert!(0.0 < idle && idle <= bound, "{idle} of {bound} ms");
}
