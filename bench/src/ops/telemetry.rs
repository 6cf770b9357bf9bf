//! The grader takes one sample of every device of a cluster.

use std::fmt;

use nix::time::{ClockId, clock_gettime};
use phalanx_health::{Evidence, Grader, Policy};
use phalanx_model::{LinkVitals, NodeName, Throttle, Timestamp, Vitals};

const DEVICES: u32 = 8;
/// NVLinks of one H100.
const LINKS: u32 = 18;
/// The interval of the daemon.
const EVERY_MS: u64 = 15_000;
/// Rounds that are timed, after one that fills what samples are compared with.
const ROUNDS: u64 = 4;

#[derive(serde::Serialize)]
pub(super) struct Telemetry {
    nodes: u32,
    devices: u32,
    /// CPU time of all samples of one interval, and of the tick after them.
    round_s: f64,
    /// Of one core.
    share: f64,
    /// Grades that changed: the devices are healthy, so none.
    changes: usize,
}

impl fmt::Display for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, devices, round_s, share, changes } = self;
        write!(
            f,
            "telemetry: {devices} devices on {nodes} nodes, a sample each every 15 s: {round_s:.3} s of CPU time per round, \
             {:.1} % of one core; {changes} grades changed",
            share * 100.0
        )
    }
}

pub(super) fn measure(nodes: u32) -> Result<Telemetry, String> {
    let names: Result<Vec<NodeName>, _> = (0..nodes).map(|n| NodeName::new(format!("gpu-{n:05}"))).collect();
    let names = names.map_err(|e| e.to_string())?;
    let mut grader = Grader::new(Policy::default());
    let models = vec!["NVIDIA H100 80GB HBM3".to_owned(); DEVICES as usize];
    grader.set_nodes(names.iter().map(|name| (name.clone(), models.clone())));
    let mut changes = 0;
    let mut spent = 0.0;
    for round in 0..=ROUNDS {
        let now = Timestamp(1_700_000_000_000 + round * EVERY_MS);
        let vitals = healthy(round);
        let begun = cpu_s()?;
        for name in &names {
            for device in 0..DEVICES {
                let evidence = Evidence::Vitals(Box::new(vitals.clone()));
                grader.observe(now, name, Some(device), &[], evidence);
            }
        }
        grader.tick(now, &|_, _| false);
        changes += grader.take_changes().len();
        if round > 0 {
            spent += cpu_s()? - begun;
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "a small number")]
    let round_s = spent / ROUNDS as f64;
    let share = round_s * 1_000.0 / 15_000.0;
    Ok(Telemetry { nodes, devices: nodes * DEVICES, round_s, share, changes })
}

fn healthy(round: u64) -> Vitals {
    let link = |number| LinkVitals {
        number,
        is_up: true,
        replays: Some(0),
        recoveries: Some(0),
        crc_errors: Some(round),
    };
    Vitals {
        busy_percent: Some(97),
        memory_used_bytes: Some(70 << 30),
        temperature_c: Some(61),
        power_mw: Some(650_000),
        energy_mj: Some(round * 9_750_000),
        sm_clock_mhz: Some(1_980),
        throttle: Some(Throttle::default()),
        ecc_corrected: Some(round),
        ecc_uncorrected: Some(0),
        pcie_replays: Some(0),
        links: (0..LINKS).map(link).collect(),
        ..Vitals::default()
    }
}

/// CPU time of this process.
fn cpu_s() -> Result<f64, String> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_err(|e| e.to_string())?;
    Ok(std::time::Duration::from(time).as_secs_f64())
}
