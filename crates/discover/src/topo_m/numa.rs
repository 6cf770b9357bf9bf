//! Sockets from the CPUs that devices are near to, for tables that give no NUMA node of a device.

use phalanx_model::{LinkKind, Machine, Port};

use crate::cpulist::CpuSet;

/// What the row of a device says about its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Near {
    pub(super) cpus: Option<CpuSet>,
    /// More than one NUMA node: on a Grace machine, that of the CPUs and those of the GPUs' memory.
    pub(super) nodes: Option<CpuSet>,
}

/// Sets the NUMA node of each device, if no device has one and their CPUs form at least two disjoint sets. The number of
/// a node is the lowest of its list, if the lists are disjoint too; otherwise nodes are counted by their first CPU.
///
/// One set for all devices says nothing: it may be one socket or, in a virtual machine, all CPUs.
pub(super) fn from_cpus(machine: &mut Machine, near: &[Near]) {
    if machine.devices.len() != near.len() || machine.devices.iter().any(|d| d.numa.is_some()) {
        return;
    }
    let Some(cpus) = near.iter().map(|n| n.cpus.as_ref()).collect::<Option<Vec<_>>>() else { return };
    let Some(sockets) = distinct(&cpus) else { return };
    let socket_of = |device: usize| cpus.get(device).and_then(|c| sockets.iter().position(|s| s == c));
    let crosses = |a: u32, b: u32| socket_of(a as usize) != socket_of(b as usize);
    let is_contradicted = machine.links.iter().any(|l| match (l.a, l.b, l.kind) {
        (_, _, LinkKind::Nvlink(_) | LinkKind::Xgmi | LinkKind::Socket) => false,
        (Port::Device(a), Port::Device(b), _) => crosses(a, b),
        _ => false,
    });
    if is_contradicted {
        return;
    }
    let lists = near.iter().map(|n| n.nodes.as_ref()).collect::<Option<Vec<_>>>();
    let numbers = lists.and_then(|lists| {
        let apart = distinct(&lists)?;
        let number = |socket: &&CpuSet| {
            let device = cpus.iter().position(|c| c == socket)?;
            lists.get(device)?.first()
        };
        (apart.len() == sockets.len()).then(|| sockets.iter().map(number).collect::<Option<Vec<_>>>())?
    });
    for (device, at) in machine.devices.iter_mut().zip((0..near.len()).map(socket_of)) {
        let Some(at) = at else { continue };
        device.numa = match &numbers {
            Some(numbers) => numbers.get(at).copied(),
            None => u32::try_from(at).ok(),
        };
    }
}

/// The different sets by their first number, if there are at least two and no two of them share a number.
fn distinct<'a>(sets: &[&'a CpuSet]) -> Option<Vec<&'a CpuSet>> {
    let mut found: Vec<&CpuSet> = Vec::new();
    for set in sets {
        if !found.contains(set) {
            found.push(set);
        }
    }
    found.sort_by_key(|set| set.first());
    let is_apart = found.iter().enumerate().all(|(i, a)| found.iter().skip(i + 1).all(|b| !a.overlaps(b)));
    (found.len() > 1 && is_apart && found.iter().all(|set| !set.is_empty())).then_some(found)
}
