//! What an agent counts, and serves at `/metrics`.

use std::sync::atomic::AtomicU64;

use phalanx_model::{PortState, PortVitals, Pressure, Vitals};
use phalanx_node::telemetry::METRICS;
use phalanx_node::telemetry::ports::PORT_METRICS;
use phalanx_node::telemetry::pressure::{self, PRESSURE_METRICS};
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPort {
    port: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResource {
    resource: &'static str,
}

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Metrics {
    devices: Gauge,
    unhealthy: Gauge,
    graded: GradeGauge,
    sources: Family<OfSource, Gauge>,
    samples: [Family<OfDevice, Gauge<f64, AtomicU64>>; METRICS.len()],
    ports: Family<OfState, Gauge>,
    port_values: [Family<OfPort, Gauge<f64, AtomicU64>>; PORT_METRICS.len()],
    pressure: [Family<OfResource, Gauge<f64, AtomicU64>>; PRESSURE_METRICS.len()],
    pub(super) writes: Counter,
    pub(super) corrections: Counter,
    troubles: Counter,
}

impl Metrics {
    pub(super) fn registered() -> (Self, Registry) {
        let mut registry = Registry::with_prefix("phalanx_node");
        let metrics = Self::default();
        let Self { devices, unhealthy, graded, sources, samples, writes, corrections, troubles, .. } =
            &metrics;
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
        registry.register("ports", "Network ports of the node, by state", metrics.ports.clone());
        for (family, (name, help, _)) in metrics.port_values.iter().zip(PORT_METRICS) {
            registry.register(name, help, family.clone());
        }
        for (family, (name, help, _)) in metrics.pressure.iter().zip(PRESSURE_METRICS) {
            registry.register(name, help, family.clone());
        }
        metrics.sampled_ports(&[]);
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

    /// Each state has its series from the start.
    pub(super) fn sampled_ports(&self, ports: &[PortVitals]) {
        for state in [PortState::Up, PortState::Down, PortState::Gone] {
            let count = ports.iter().filter(|port| port.state == state).count();
            let of = OfState { state: state.word() };
            self.ports.get_or_create(&of).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.port_values.iter().for_each(Family::clear);
        for port in ports {
            let of = OfPort { port: port.name.clone() };
            for (family, (_, _, value)) in self.port_values.iter().zip(PORT_METRICS) {
                if let Some(value) = value(port) {
                    family.get_or_create(&of).set(value);
                }
            }
        }
    }

    pub(super) fn sampled_pressure(&self, pressure: &Pressure) {
        for (resource, stalls) in pressure.by_resource() {
            for (family, (_, _, time)) in self.pressure.iter().zip(PRESSURE_METRICS) {
                if let Some(stall) = stalls.as_ref().and_then(time) {
                    family.get_or_create(&OfResource { resource }).set(pressure::seconds(stall));
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use phalanx_model::{Stall, Stalls};

    use super::*;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    /// Of the page, where `…_name` stands for the prefix of the name before it.
    fn documented() -> BTreeSet<String> {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kubernetes/monitoring.md");
        let page = std::fs::read_to_string(page).unwrap();
        let mut names = BTreeSet::new();
        for row in page.lines().filter(|line| line.starts_with("| `phalanx_node_")) {
            let first = row.split('`').nth(1).unwrap();
            let prefix =
                ["device", "port"].into_iter().find(|of| first.starts_with(&format!("phalanx_node_{of}_")));
            for name in row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2) {
                let whole =
                    name.strip_prefix('…').map(|end| format!("phalanx_node_{}{end}", prefix.unwrap()));
                names.insert(whole.unwrap_or_else(|| name.to_owned()).trim_end_matches("_total").to_owned());
            }
        }
        names.retain(|name| name.starts_with("phalanx_node_"));
        names
    }

    #[test]
    fn every_metric_is_documented_and_a_port_has_its_series() {
        let (metrics, registry) = Metrics::registered();
        let before = text(&registry);
        for state in ["up", "down", "gone"] {
            let line = format!("phalanx_node_ports{{state=\"{state}\"}} 0");
            assert!(before.lines().any(|of| of == line), "from the start: {before}");
        }
        let port = PortVitals {
            name: "mlx5_0:1".to_owned(),
            state: PortState::Up,
            bytes_per_s: Some(50_000_000_000),
            received_bytes: Some(1),
            sent_bytes: Some(2),
            downed: Some(3),
            recoveries: Some(4),
            symbol_errors: Some(5),
            receive_errors: Some(6),
            send_discards: Some(7),
            send_wait_ticks: Some(8),
            congestion_notices: Some(9),
        };
        metrics.sampled_ports(&[port]);
        metrics.sees("ports", true);
        let stall = |total_us| Stall { total_us, ..Stall::default() };
        let io = Stalls { some: stall(2_500_000), full: Some(stall(500_000)) };
        metrics.sampled_pressure(&Pressure { io: Some(io), ..Pressure::default() });
        let after = text(&registry);
        for line in [
            "phalanx_node_ports{state=\"up\"} 1",
            "phalanx_node_pressure_some_seconds{resource=\"io\"} 2.5",
            "phalanx_node_pressure_full_seconds{resource=\"io\"} 0.5",
            "phalanx_node_port_up{port=\"mlx5_0:1\"} 1.0",
            "phalanx_node_port_rate_bytes_per_second{port=\"mlx5_0:1\"} 50000000000.0",
            "phalanx_node_port_congestion_notices{port=\"mlx5_0:1\"} 9.0",
        ] {
            assert!(after.lines().any(|of| of == line), "{line}: {after}");
        }
        let vitals = Vitals {
            busy_percent: Some(1),
            memory_used_bytes: Some(1),
            temperature_c: Some(1),
            power_mw: Some(1),
            energy_mj: Some(1),
            ecc_uncorrected: Some(1),
            pcie_replays: Some(1),
            ..Vitals::default()
        };
        metrics.sampled(&[(0, vitals)]);
        let served: BTreeSet<String> = text(&registry)
            .lines()
            .filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split_once(' ')?.0.to_owned()))
            .collect();
        assert_eq!(documented(), served);
        // A port that is not there any more has none.
        metrics.sampled_ports(&[]);
        assert!(!text(&registry).contains("mlx5_0"));
    }
}
