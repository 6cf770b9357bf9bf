//! Threads that look at the hardware. Each can be held up by a driver in trouble, so that one looks at the kernel log
//! and another at the devices. They end with the process.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use phalanx_health::Evidence;
use phalanx_node::kernel_log::{DeviceLog, Xid};
use phalanx_node::telemetry::{Slots, Telemetry};
use tracing::{info, warn};

use super::health::Health;
use super::metrics::Metrics;
use super::truth::Truth;

/// Sources of evidence, as the metric names them.
pub(super) const TELEMETRY: &str = "telemetry";
pub(super) const KERNEL_LOG: &str = "kernel_log";

/// How often the kernel log is read.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Takes Xids from the kernel log from now on, if it can be opened.
pub(super) fn kernel_log(health: &Arc<Health>, path: &Path, slots: Slots, metrics: Metrics) {
    let mut log = match DeviceLog::open(path, slots) {
        Ok(log) => log,
        Err(error) => {
            warn!(path = %path.display(), error = %error, "no Xid is seen: the kernel log cannot be opened");
            return;
        }
    };
    let health = Arc::clone(health);
    let read = move || {
        loop {
            let read = log.read(|unusable| warn!("{unusable}"));
            metrics.sees(KERNEL_LOG, read.is_some());
            for (device, Xid { number, text, .. }) in read.into_iter().flatten() {
                health.observe(Some(device), Evidence::Xid { number, text });
            }
            thread::sleep(READ_EVERY);
        }
    };
    if let Err(error) = thread::Builder::new().name("kernel-log".to_owned()).spawn(read) {
        warn!(error = %error, "no Xid is seen: no thread can be started");
    }
}

/// Samples the devices from now on. Whether they can be sampled.
pub(super) fn telemetry(
    health: &Arc<Health>,
    slots: Slots,
    every: Duration,
    truth: Option<Arc<Truth>>,
    metrics: Metrics,
) -> bool {
    let mut telemetry = match Telemetry::open(slots) {
        Ok(Some(telemetry)) => telemetry,
        Ok(None) => {
            info!("devices are not sampled: neither NVIDIA's library nor AMD's driver is there");
            return false;
        }
        Err(error) => {
            warn!(error = %error, "devices are not sampled");
            return false;
        }
    };
    let health = Arc::clone(health);
    let mut works = true;
    let sample = move || {
        loop {
            let samples = telemetry.sample();
            if samples.is_some() != works {
                works = samples.is_some();
                warn!(works, sources = telemetry.sources(), "samples of devices");
            }
            metrics.sees(TELEMETRY, works);
            let samples = samples.unwrap_or_default();
            metrics.sampled(&samples);
            let held = truth.as_ref().map(|truth| truth.held());
            health.sampled(samples, held);
            thread::sleep(every);
        }
    };
    thread::Builder::new().name("telemetry".to_owned()).spawn(sample).is_ok()
}
