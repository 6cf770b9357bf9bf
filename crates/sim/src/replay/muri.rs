//! Jobs as the simulator of Muri (`simulator/` of Rivendile/Muri) takes them from its traces.

use super::Job;
use crate::trace::TraceJob;

/// `jobs.py`: every time of an iteration is taken times this.
const ITERATION: f64 = 1.015;
/// `run_sim.py`, `overhead_dict`: seconds that a start takes, by model, for 1, 2, 4, 8, 16 and 32 GPUs.
const STARTS_S: [(&str, [u64; 6]); 8] = [
    ("vgg16", [7, 7, 8, 9, 9, 10]),
    ("vgg19", [7, 7, 8, 9, 10, 10]),
    ("resnet18", [4, 5, 5, 7, 7, 7]),
    ("shufflenet_v2_x1_0", [4, 4, 5, 5, 7, 8]),
    ("bert", [10; 6]),
    ("gpt2", [10; 6]),
    ("a2c", [38, 39, 39, 46, 46, 46]),
    ("dqn", [5, 5, 6, 6, 8, 8]),
];
/// The same for models that are not in the list.
const STARTS_OTHERWISE_S: u64 = 10;

/// A job of Muri's traces: its iterations times its time of one, times 1.015, in ms. Nothing where it has no iterations.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "numbers of iterations and microseconds are far below 2^53")]
pub fn job(of: &TraceJob) -> Option<Job> {
    let training = of.training.as_ref()?;
    let starts = STARTS_S.iter().find(|(model, _)| *model == training.model);
    let starts_s = starts.and_then(|(_, s)| s.get(of.gpus.checked_ilog2()? as usize).copied());
    Some(Job {
        work: training.steps? as f64 * training.step_us? as f64 / 1_000.0 * ITERATION,
        start_ms: Some(starts_s.unwrap_or(STARTS_OTHERWISE_S) * 1_000),
        ..Job::asking(of)
    })
}
