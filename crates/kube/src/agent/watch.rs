//! Threads that look at the hardware. Each can be held up by a driver in trouble, so that one looks at the kernel log
//! and another at the devices. They end with the process.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use phalanx_health::Evidence;
use phalanx_node::kernel_log::{DeviceLog, Xid};
use phalanx_node::telemetry::ports::{Noted, Ports};
use phalanx_node::telemetry::pressure;
use phalanx_node::telemetry::{Slots, Telemetry};
use tracing::{info, warn};

use super::hardware::Inventory;
use super::health::Health;
use super::metrics::Metrics;
use super::truth::Truth;

/// Sources of evidence, as the metric names them.
pub(super) const TELEMETRY: &str = "telemetry";
pub(super) const KERNEL_LOG: &str = "kernel_log";
pub(super) const PORTS: &str = "ports";

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

/// Samples the network ports, and the pressure on the node, from now on. `sysfs` has the form of `/sys`.
pub(super) fn ports(health: &Arc<Health>, sysfs: &Path, every: Duration, metrics: Metrics) {
    let (health, mut ports, mut noted) = (Arc::clone(health), Ports::new(sysfs), Noted::default());
    let sample = move || {
        loop {
            let mut sample = ports.sample();
            let (pressure, mut notes) = pressure::read(Path::new(pressure::FOLDER));
            sample.notes.append(&mut notes);
            metrics.sampled_pressure(&pressure);
            for note in noted.fresh(&sample.notes) {
                warn!(note, "the node is not sampled as a whole");
            }
            metrics.sees(PORTS, !sample.ports.is_empty());
            metrics.sampled_ports(&sample.ports);
            health.observe(None, Evidence::Ports(sample.ports));
            thread::sleep(every);
        }
    };
    if let Err(error) = thread::Builder::new().name("ports".to_owned()).spawn(sample) {
        warn!(error = %error, "network ports are not sampled: no thread can be started");
    }
}

/// What samples the devices: the library and drivers of this host, or a DCGM exporter.
pub(super) fn opened(slots: Slots, dcgm: Option<&str>, inventory: &Inventory) -> Option<Telemetry> {
    let opened = match dcgm {
        Some(url) => {
            let uuids =
                (0..inventory.machine().device_count()).map(|device| inventory.uuid(device)).collect();
            Telemetry::scrape(slots, url, uuids).map(Some).map_err(|error| error.to_string())
        }
        None => Telemetry::open(slots).map_err(|error| error.to_string()),
    };
    match opened {
        Ok(None) => info!("devices are not sampled: neither NVIDIA's library nor AMD's driver is there"),
        Ok(telemetry) => return telemetry,
        Err(error) => warn!(error, "devices are not sampled"),
    }
    None
}

/// Samples the devices from now on. Whether a thread does so.
pub(super) fn telemetry(
    health: &Arc<Health>,
    mut telemetry: Telemetry,
    every: Duration,
    truth: Option<Arc<Truth>>,
    metrics: Metrics,
) -> bool {
    let health = Arc::clone(health);
    let mut works = true;
    let sample = move || {
        loop {
            let samples = telemetry.sample();
            let trouble = telemetry.trouble();
            let is_sampled = samples.is_some() && trouble.is_none();
            if is_sampled != works {
                works = is_sampled;
                warn!(
                    works,
                    sources = telemetry.sources(),
                    why = trouble.unwrap_or_default(),
                    "samples of devices"
                );
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
