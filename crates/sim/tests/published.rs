//! What others published comes out of our world: the smallest of the traces that `phalanx-bench -- sim muri` replays.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use phalanx_sim::policies::{Order, Ordered, Packing, Preemption, Srsf, Srtf};
use phalanx_sim::replay::metrics::Metrics;
use phalanx_sim::replay::{Job, Machines, Rack, Recorded, Replay, Settings, StartCost, muri};
use phalanx_sim::trace::Format;

/// Mean completion time in s.
fn mean_s(jobs: &[Job], order: impl Order) -> f64 {
    let cluster = Machines::plain(&[Rack { model: "gpu", nodes: 8, gpus_per_node: 8 }]).unwrap();
    let settings = Settings { start_cost: StartCost::AtEveryEvent, ..Settings::default() };
    let replay = Replay { cluster: &cluster, jobs, progress: &Recorded, settings, node_events: &[] };
    let outcome = replay.run(&mut Ordered::new(order, Preemption::Repack, Packing::WholeFirst)).unwrap();
    let metrics = Metrics::of(&outcome);
    assert_eq!(metrics.ended, jobs.len());
    metrics.completion_s.mean
}

/// `simulator/draw_fig9-10.py` of Rivendile/Muri.
#[test]
fn muri_trace_3_as_published() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap().join("shared/data/traces");
    let Ok(text) = std::fs::read(root.join("muri/trace3.csv")) else {
        println!("skipped: ../shared/data is not there");
        return;
    };
    let trace = Format::Muri.read(&text).unwrap();
    let jobs: Vec<Job> = trace.jobs.iter().filter_map(muri::job).collect();
    for (ours, published) in [(mean_s(&jobs, Srtf), 193_082.0), (mean_s(&jobs, Srsf), 185_022.0)] {
        assert!((ours / published - 1.0).abs() < 0.01, "{ours} s, and {published} s were published");
    }
}
