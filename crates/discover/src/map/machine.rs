//! One machine as its pictures show it: sockets, PCIe switches in them, GPUs and NICs, and the links between GPUs.

use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, Graph, LinkKind, Machine, Port};

use super::view::gb_per_s;
use crate::shape;

/// The parts of a machine by where they are.
pub(super) struct Inside<'a> {
    pub(super) machine: &'a Machine,
    pub(super) sockets: Vec<Socket>,
    pub(super) islands: Vec<Island>,
    /// Links between GPUs that are no island: the devices, and how many.
    pub(super) pairs: Vec<(u32, u32, LinkKind)>,
}

pub(super) struct Socket {
    pub(super) title: String,
    pub(super) units: Vec<Unit>,
}

/// Ports below one PCIe switch, or one port that is below none.
#[derive(Default)]
pub(super) struct Unit {
    pub(super) devices: Vec<u32>,
    pub(super) nics: Vec<u32>,
}

/// Devices of which every two have the same link.
pub(super) struct Island {
    pub(super) devices: DeviceMask,
    pub(super) kind: LinkKind,
}

/// The machine of a map that is one machine with devices and nothing else.
pub(super) fn only_machine(graph: &Graph) -> Option<&Machine> {
    let [host] = graph.hosts.as_slice() else { return None };
    let is_alone = graph.switches.is_empty() && graph.links.is_empty();
    host.machine.as_deref().filter(|machine| is_alone && !machine.devices.is_empty())
}

impl<'a> Inside<'a> {
    pub(super) fn of(machine: &'a Machine) -> Self {
        let mut sockets: BTreeMap<(Option<u32>, u32), Vec<Unit>> = BTreeMap::new();
        let mut left: Vec<u32> = (0..).take(machine.nics.len()).collect();
        let mut rest = machine.device_mask();
        for first in machine.device_mask().iter() {
            if !rest.contains(first) {
                continue;
            }
            let shared = shape::groups(machine, shape::PCIE).find(|group| group.contains(first));
            let set = shared.map_or(DeviceMask::one(first), |group| group.and(rest));
            rest = rest.minus(set);
            let (near, far) =
                left.into_iter().partition(|nic| set.iter().any(|device| is_near(machine, device, *nic)));
            left = far;
            let key = socket_of(machine, first);
            sockets.entry(key).or_default().push(Unit { devices: set.iter().collect(), nics: near });
        }
        for nic in left {
            let numa = machine.nics.get(nic as usize).and_then(|nic| nic.numa);
            let key = numa.map_or((None, u32::MAX), |numa| (Some(numa), 0));
            sockets.entry(key).or_default().push(Unit { nics: vec![nic], ..Unit::default() });
        }
        let title = |key: &(Option<u32>, u32)| match key {
            (Some(numa), _) => format!("NUMA {numa}"),
            (None, u32::MAX) => "elsewhere".to_owned(),
            (None, _) => "socket".to_owned(),
        };
        let sockets = sockets.into_iter().map(|(key, units)| Socket { title: title(&key), units }).collect();
        let islands: Vec<Island> =
            shape::groups(machine, shape::NVLINK).filter_map(|set| island(machine, set)).collect();
        let is_inside =
            |a: u32, b: u32| islands.iter().any(|i| i.devices.contains(a) && i.devices.contains(b));
        let pairs = shape::fabric_links(machine).filter(|(a, b, _)| !is_inside(*a, *b)).collect();
        Self { machine, sockets, islands, pairs }
    }

    pub(super) fn device_name(&self, device: u32) -> &str {
        self.machine.devices.get(device as usize).map_or("", |device| device.name.as_str())
    }

    /// The NIC's name and speed.
    pub(super) fn nic_text(&self, nic: u32) -> (String, String) {
        let Some(nic) = self.machine.nics.get(nic as usize) else { return Default::default() };
        let speed = match nic.bytes_per_s {
            Some(bytes) if nic.is_assumed => format!("{} Gb/s assumed", bytes / 125_000_000),
            Some(bytes) => format!("{} Gb/s", bytes / 125_000_000),
            None => "speed unknown".to_owned(),
        };
        (nic.alias.clone().unwrap_or_else(|| nic.name.clone()), speed)
    }

    /// `8 × NVIDIA B200`.
    pub(super) fn title(&self) -> String {
        let model = self.machine.devices.first().map_or("", |device| device.model.as_str());
        let model = if model.is_empty() { "GPUs" } else { model };
        format!("{} × {model}", self.machine.devices.len())
    }

    /// What the PCIe link between the switch of a unit and a device carries, if the source says so.
    pub(super) fn pcie_text(&self, unit: &Unit) -> String {
        let ports = || {
            let devices = unit.devices.iter().map(|d| Port::Device(*d));
            devices.chain(unit.nics.iter().map(|n| Port::Nic(*n)))
        };
        let is_of = |port: Port| ports().any(|own| own == port);
        let links =
            self.machine.links.iter().filter(|l| is_of(l.a) && is_of(l.b) && !shape::is_fabric(l.kind));
        let least = links.map(|l| l.nominal_mb_per_s).filter(|mb| *mb > 0).min();
        least.map_or_else(|| "PCIe".to_owned(), |mb| format!("PCIe {} GB/s", gb_per_s(mb.into())))
    }
}

fn is_near(machine: &Machine, device: u32, nic: u32) -> bool {
    let kind = machine.link(Port::Device(device), Port::Nic(nic));
    matches!(kind, Some(LinkKind::PcieSwitch | LinkKind::PcieBridges))
}

/// The NUMA node, or the group of devices on one socket.
fn socket_of(machine: &Machine, device: u32) -> (Option<u32>, u32) {
    let numa = machine.devices.get(device as usize).and_then(|device| device.numa);
    let group = shape::groups(machine, shape::SOCKET).find(|group| group.contains(device));
    match numa {
        Some(_) => (numa, 0),
        None => (None, group.map_or(0, |group| group.0.trailing_zeros())),
    }
}

fn island(machine: &Machine, devices: DeviceMask) -> Option<Island> {
    let pairs =
        || shape::fabric_links(machine).filter(|(a, b, _)| devices.contains(*a) && devices.contains(*b));
    let kind = pairs().next()?.2;
    (devices.count() > 2 && pairs().all(|(.., k)| k == kind)).then_some(Island { devices, kind })
}

/// `NVLink × 18`.
pub(super) fn link_text(kind: LinkKind) -> String {
    match kind {
        LinkKind::Nvlink(count) => format!("NVLink × {count}"),
        LinkKind::Xgmi => "xGMI".to_owned(),
        other => other.to_string(),
    }
}
