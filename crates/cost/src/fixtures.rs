//! Machines for tests.

use phalanx_model::{
    Device, DomainName, Link, LinkKind, Machine, Nic, Node, NodeName, Origin, Port, ShapeName,
};

pub(crate) fn device(model: &str) -> Device {
    Device { model: model.to_owned(), ..Device::default() }
}

/// Every pair of devices alike.
pub(crate) fn mesh(model: &str, devices: u32, kind: LinkKind) -> Machine {
    machine(model, devices, |_, _| kind)
}

/// Devices behind NVSwitch, with a NIC of 50 GB/s for each of the first `nics`.
pub(crate) fn switched(model: &str, devices: u32, links: u8, nics: u32) -> Machine {
    let mut machine = mesh(model, devices, LinkKind::Nvlink(links));
    for rail in 0..nics {
        let near = |d| if d == rail { LinkKind::PcieBridges } else { LinkKind::Numa };
        add_nic(&mut machine, &(0..devices).map(|d| (d, near(d))).collect::<Vec<_>>());
    }
    machine
}

pub(crate) fn add_nic(machine: &mut Machine, links: &[(u32, LinkKind)]) {
    let nic = u32::try_from(machine.nics.len()).unwrap();
    machine.nics.push(Nic { name: format!("nic{nic}"), bytes_per_s: Some(50_000_000_000), ..Nic::default() });
    for &(device, kind) in links {
        machine.links.push(Link::new(Port::Device(device), Port::Nic(nic), kind));
    }
    machine.links.sort_by_key(|link| (link.a, link.b));
}

/// PCIe only: half of the devices on each socket.
pub(crate) fn two_sockets(model: &str, devices: u32) -> Machine {
    let half = devices / 2;
    machine(model, devices, |a, b| if (a < half) == (b < half) { LinkKind::Numa } else { LinkKind::Socket })
}

/// Eight V100 as in a DGX-1: two cliques of four, and four pairs across, six links each.
pub(crate) fn hybrid_cube_mesh() -> Machine {
    let links = [
        (0, 1, 1),
        (0, 2, 1),
        (0, 3, 2),
        (1, 2, 2),
        (1, 3, 1),
        (2, 3, 2),
        (4, 5, 2),
        (4, 6, 1),
        (4, 7, 2),
        (5, 6, 2),
        (5, 7, 1),
        (6, 7, 1),
        (0, 6, 2),
        (1, 7, 2),
        (2, 4, 1),
        (3, 5, 1),
    ];
    machine("Tesla V100-SXM2-32GB", 8, |a, b| {
        let direct = links.iter().find(|link| (link.0, link.1) == (a, b));
        direct.map_or(LinkKind::Socket, |link| LinkKind::Nvlink(link.2))
    })
}

pub(crate) fn machine(model: &str, devices: u32, kind: impl Fn(u32, u32) -> LinkKind) -> Machine {
    let mut links = Vec::new();
    for a in 0..devices {
        for b in a + 1..devices {
            links.push(Link::new(Port::Device(a), Port::Device(b), kind(a, b)));
        }
    }
    Machine {
        shape: ShapeName::new(format!("shape-{}-{devices}", links.len())).unwrap(),
        origin: Origin::Declared,
        devices: vec![device(model); devices as usize],
        nics: Vec::new(),
        links,
        groups: Vec::new(),
        cpu_milli: 0,
        memory_bytes: 0,
        named: std::collections::BTreeMap::new(),
        share_limit_milli: 0,
        replicas: 0,
    }
}

/// A node at `path` under the levels `cluster, leaf` or any others of equal number.
pub(crate) fn node(name: &str, path: &[&str], machine: Machine) -> Node {
    Node {
        address: String::new(),
        ..Node::new(
            NodeName::new(name).unwrap(),
            path.iter().map(|domain| DomainName::new(*domain).unwrap()).collect(),
            std::sync::Arc::new(machine),
        )
    }
}
