//! What an agent counts, and serves at `/metrics`.

use std::sync::atomic::AtomicU64;

use phalanx_model::Vitals;
use phalanx_node::telemetry::METRICS;
use phalanx_shell::GradeGauge;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::hardware::Inventory;
use super::health::Health;
use crate::world::Trouble;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfDevice {
    device: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfSource {
    source: &'static str,
}

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Metrics {
    devices: Gauge,
    unhealthy: Gauge,
    graded: GradeGauge,
    sources: Family<OfSource, Gauge>,
    samples: [Family<OfDevice, Gauge<f64, AtomicU64>>; METRICS.len()],
    pub(super) writes: Counter,
    pub(super) corrections: Counter,
    troubles: Counter,
}

impl Metrics {
    pub(super) fn registered() -> (Self, Registry) {
        let mut registry = Registry::with_prefix("phalanx_node");
        let metrics = Self::default();
        let Self { devices, unhealthy, graded, sources, samples, writes, corrections, troubles } = &metrics;
        registry.register("devices", "Devices that were found at the start", devices.clone());
        registry.register("devices_unhealthy", "Devices that do not answer any more", unhealthy.clone());
        graded.register(&mut registry, "graded", "Devices, and the node itself, that are not ok, by grade");
        registry.register(
            "evidence",
            "1 where evidence of faults is read, 0 where it cannot be",
            sources.clone(),
        );
        for (family, (name, help, _)) in samples.iter().zip(METRICS) {
            registry.register(name, help, family.clone());
        }
        registry.register("topology_writes", "Times that the NodeTopology was written", writes.clone());
        let help = "Pods that had other devices than were chosen";
        registry.register("device_corrections", help, corrections.clone());
        registry.register("troubles", "Calls that went wrong and were said in the log", troubles.clone());
        (metrics, registry)
    }

    pub(super) fn trouble(&self, trouble: &Trouble) {
        self.troubles.inc();
        trouble.say();
    }

    /// Whether a source of evidence is read.
    pub(super) fn sees(&self, source: &'static str, is_read: bool) {
        self.sources.get_or_create(&OfSource { source }).set(is_read.into());
    }

    pub(super) fn show(&self, inventory: &Inventory, health: &Health) {
        self.devices.set(i64::from(inventory.machine().device_count()));
        self.unhealthy.set(i64::from(inventory.lost().count()));
        self.graded.set(&health.counts());
    }

    pub(super) fn sampled(&self, samples: &[(u32, Vitals)]) {
        self.samples.iter().for_each(Family::clear);
        for (device, vitals) in samples {
            let device = *device;
            for (family, (_, _, value)) in self.samples.iter().zip(METRICS) {
                if let Some(value) = value(vitals) {
                    family.get_or_create(&OfDevice { device }).set(value);
                }
            }
        }
    }
}
