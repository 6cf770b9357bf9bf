//! How long it takes to replay Philly's 82,247 jobs on 2,488 GPUs under a Clos, on one core.

use std::path::Path;
use std::time::Instant;

use phalanx_sim::cluster::{Clos, Cluster};
use phalanx_sim::policies::{NAMES, Rules, named};
use phalanx_sim::replay::metrics::Metrics;
use phalanx_sim::replay::{Job, Machines, Recorded, Replay, Settings};
use phalanx_sim::trace::Format;

/// Nodes of the trace's largest virtual clusters on one fabric: leaves of 16 nodes of 8 GPUs.
const FABRIC: &str = "20x16x8";

pub(super) fn measure(folder: &Path, only: &[String], is_json: bool) -> Result<(), String> {
    let trace = super::trace(&folder.join("philly/philly_pollux.csv"), Format::Philly)?;
    let jobs = Job::all_of(&trace);
    let clos = Clos::read(FABRIC).map_err(|e| e.to_string())?;
    let machines = Machines::from(Cluster::of_clos(&clos).map_err(|e| e.to_string())?);
    let cells = std::collections::BTreeMap::new();
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    for (name, is_oracle) in NAMES.into_iter().filter(|(name, _)| is_wanted(name)) {
        let mut policy = named(name, &machines, &Rules::default(), &cells)?;
        let replay = Replay {
            cluster: &machines,
            jobs: &jobs,
            progress: &Recorded,
            settings: Settings::default(),
            node_events: &[],
        };
        let begin = Instant::now();
        let outcome = replay.run(policy.as_mut()).map_err(|e| e.to_string())?;
        let seconds = begin.elapsed().as_secs_f64();
        let metrics = Metrics::of(&outcome);
        let (mean_s, p99_s) = (metrics.completion_s.mean, metrics.completion_s.p99);
        let (ended, leaves) = (metrics.ended, metrics.leaves_over_least);
        if is_json {
            let row = serde_json::json!({
                "policy": name, "is_oracle": is_oracle, "seconds": seconds, "jobs": ended, "mean_jct_s": mean_s,
                "p99_jct_s": p99_s, "leaves_over_least": leaves,
            });
            println!("{row}");
        } else {
            println!(
                "{name:14} {seconds:6.2} s for {ended} jobs; JCT mean {mean_s:.0} s, p99 {p99_s:.0} s; leaves {leaves:.3}"
            );
        }
    }
    Ok(())
}
