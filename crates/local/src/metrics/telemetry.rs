//! The last samples of devices, and how many devices have which grade of health.

use std::sync::atomic::{AtomicU64, Ordering};

use phalanx_model::PortState;
use phalanx_node::telemetry::METRICS;
use phalanx_node::telemetry::ports::PORT_METRICS;
use phalanx_node::telemetry::pressure::{self, PRESSURE_METRICS};
use phalanx_shell::GradeGauge;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::daemon::Daemon;
use crate::preflight::Verdicts;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfDevice {
    node: String,
    device: u32,
}

/// What the idle rule of a queue did with jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Taken {
    then: &'static str,
}

/// What became of a check of GPUs before a start.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Checked {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPort {
    node: String,
    port: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResource {
    node: String,
    resource: &'static str,
}

type OfDevices = Family<OfDevice, Gauge<f64, AtomicU64>>;

#[derive(Clone, Default)]
pub(super) struct Telemetry {
    values: [OfDevices; METRICS.len()],
    ports: Family<OfState, Gauge>,
    port_values: [Family<OfPort, Gauge<f64, AtomicU64>>; PORT_METRICS.len()],
    pressure: [Family<OfResource, Gauge<f64, AtomicU64>>; PRESSURE_METRICS.len()],
    graded: GradeGauge,
    idle: Gauge,
    taken: Family<Taken, Counter>,
    preflights: Family<Checked, Counter>,
}

impl Telemetry {
    pub(super) fn refresh(&self, daemon: &Daemon) {
        let health = &daemon.health;
        self.idle.set(daemon.usage.idle_devices().into());
        for (then, count) in ["hold", "end"].into_iter().zip(daemon.usage.taken_counts()) {
            let counter = self.taken.get_or_create(&Taken { then });
            counter.inner().store(count, Ordering::Relaxed);
        }
        let Verdicts { passed, failed, not_run } = &daemon.preflight.verdicts;
        for (result, count) in [("passed", passed), ("failed", failed), ("not_run", not_run)] {
            let counter = self.preflights.get_or_create(&Checked { result });
            counter.inner().store(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.values.iter().for_each(Family::clear);
        for sample in health.samples() {
            let of = OfDevice { node: sample.node.to_string(), device: sample.device };
            for (family, (_, _, value)) in self.values.iter().zip(METRICS) {
                if let Some(value) = value(&sample.vitals) {
                    family.get_or_create(&of).set(value);
                }
            }
        }
        self.refresh_ports(daemon);
        self.refresh_pressure(daemon);
        self.graded.set(&health.view(phalanx_health::Grader::counts));
    }

    /// Each state has its series from the start.
    fn refresh_ports(&self, daemon: &Daemon) {
        let ports = daemon.health.ports();
        for state in [PortState::Up, PortState::Down, PortState::Gone] {
            let count = ports.iter().filter(|view| view.port.state == state).count();
            let of = OfState { state: state.word() };
            self.ports.get_or_create(&of).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.port_values.iter().for_each(Family::clear);
        for view in ports {
            let of = OfPort { node: view.node.to_string(), port: view.port.name.clone() };
            for (family, (_, _, value)) in self.port_values.iter().zip(PORT_METRICS) {
                if let Some(value) = value(&view.port) {
                    family.get_or_create(&of).set(value);
                }
            }
        }
    }

    fn refresh_pressure(&self, daemon: &Daemon) {
        let Some(view) = daemon.health.pressure() else { return };
        for (resource, stalls) in view.pressure.by_resource() {
            let of = OfResource { node: view.node.to_string(), resource };
            for (family, (_, _, time)) in self.pressure.iter().zip(PRESSURE_METRICS) {
                if let Some(stall) = stalls.as_ref().and_then(time) {
                    family.get_or_create(&of).set(pressure::seconds(stall));
                }
            }
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        for (family, (name, help, _)) in self.values.iter().zip(METRICS) {
            registry.register(name, help, family.clone());
        }
        registry.register("ports", "Network ports of this machine, by state", self.ports.clone());
        for (family, (name, help, _)) in self.port_values.iter().zip(PORT_METRICS) {
            registry.register(name, help, family.clone());
        }
        for (family, (name, help, _)) in self.pressure.iter().zip(PRESSURE_METRICS) {
            registry.register(name, help, family.clone());
        }
        let help = "GPUs that jobs hold and on which no kernel ran for a while";
        registry.register("devices_held_idle", help, self.idle.clone());
        let help = "Jobs that the idle rules of queues stopped and held, or cancelled";
        registry.register("idle_jobs_taken", help, self.taken.clone());
        let help = "Checks of GPUs before ranks started";
        registry.register("preflights", help, self.preflights.clone());
        let help = "Devices and nodes whose health is not ok, by grade";
        self.graded.register(registry, "unhealthy", help);
    }
}
