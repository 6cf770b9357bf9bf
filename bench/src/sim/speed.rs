//! How much the simulator does in a second of one core, under the production engine: jobs that are decided, and a million of
//! them on 102,400 GPUs.
//!
//! Jobs are drawn: 70 % want one GPU, 10 % each two, four and eight; they run 1, 5, 20, 60 or 240 minutes, one as often as the
//! other; they come evenly, so that they ask for nine tenths of the cluster.

use nix::time::{ClockId, clock_gettime};
use phalanx_sim::Rng;
use phalanx_sim::cluster::{Clos, Cluster};
use phalanx_sim::policies::{Phalanx, Rules};
use phalanx_sim::replay::metrics::Metrics;
use phalanx_sim::replay::{Job, Machines, Recorded, Replay, Settings};

/// A fabric, and how many jobs.
const TRIALS: [(&str, &str, u64); 2] = [("decided", "8x16x8", 200_000), ("million", "100x128x8", 1_000_000)];
const MINUTES: [u64; 5] = [1, 5, 20, 60, 240];
const LOAD_PERCENT: u64 = 90;
const MINUTE_MS: u64 = 60_000;

pub(super) fn measure(only: &[String], is_json: bool) -> Result<(), String> {
    let mut told = serde_json::Map::new();
    for (name, fabric, count) in TRIALS {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        let clos = Clos::read(fabric).map_err(|e| e.to_string())?;
        let machines = Machines::from(Cluster::of_clos(&clos).map_err(|e| e.to_string())?);
        let jobs = drawn(count, u64::from(machines.gpus()));
        let begin = cpu_ms();
        let mut policy = Phalanx::new(&machines, &Rules::default())?;
        let replay = Replay {
            cluster: &machines,
            jobs: &jobs,
            progress: &Recorded,
            settings: Settings::default(),
            node_events: &[],
        };
        let outcome = replay.run(&mut policy).map_err(|e| e.to_string())?;
        let spent_ms = cpu_ms().saturating_sub(begin).max(1);
        let ended = Metrics::of(&outcome).ended as u64;
        let per_s = ended.saturating_mul(1_000) / spent_ms;
        let rss_mb = peak_mb();
        if !is_json {
            let gpus = machines.gpus();
            println!(
                "{ended} jobs on {gpus} GPUs: {}.{:03} s of one core, {per_s} jobs/s, {} steps; at most {rss_mb} MB so far",
                spent_ms / 1_000,
                spent_ms % 1_000,
                policy.steps()
            );
        }
        told.insert(format!("{name}_jobs"), ended.into());
        told.insert(format!("{name}_cpu_ms"), spent_ms.into());
        told.insert(format!("{name}_jobs_per_s"), per_s.into());
        told.insert(format!("{name}_peak_mb"), rss_mb.into());
    }
    if told.is_empty() {
        let known = TRIALS.map(|(name, ..)| name).join(", ");
        return Err(format!("{} cannot be measured; there are {known}", only.join(", ")));
    }
    if is_json {
        println!("{}", serde_json::Value::Object(told));
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "minutes in milliseconds")]
fn drawn(count: u64, gpus: u64) -> Vec<Job> {
    let mut rng = Rng::new(1);
    let mut asked_ms = 0_u64;
    let jobs: Vec<(u32, u64)> = (0..count)
        .map(|_| {
            let wants = match rng.below(10) {
                0 => 2,
                1 => 4,
                2 => 8,
                _ => 1,
            };
            let runs_ms = rng.pick(&MINUTES).copied().unwrap_or(1) * MINUTE_MS;
            asked_ms += u64::from(wants) * runs_ms;
            (wants, runs_ms)
        })
        .collect();
    let span_ms = asked_ms * 100 / (gpus * LOAD_PERCENT).max(1);
    let at = |index: u64| u128::from(span_ms) * u128::from(index) / u128::from(count.max(1));
    let job = |(index, (wants, runs_ms)): (u64, (u32, u64))| Job {
        submit_ms: u64::try_from(at(index)).unwrap_or(u64::MAX),
        work: runs_ms as f64,
        gpus: wants,
        gpus_min: wants,
        gpus_max: wants,
        limit_ms: Some(runs_ms * 2),
        ..Job::default()
    };
    (0..).zip(jobs).map(job).collect()
}

/// What this thread has computed for so far.
fn cpu_ms() -> u64 {
    let spent = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(std::time::Duration::from);
    spent.map_or(0, |spent| u64::try_from(spent.as_millis()).unwrap_or(u64::MAX))
}

/// The most memory that this process has had, as Linux tells it; 0 where nobody does.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|rest| rest.split_whitespace().next()).and_then(|kb| kb.parse::<u64>().ok());
    kb.unwrap_or(0) / 1_024
}
