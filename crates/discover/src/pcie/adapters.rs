//! Which interfaces are network adapters: virtual functions and bridges are none.

use super::{Net, Node, Part, Tree};
use crate::gap::Gap;

/// Virtual functions whose name does not always stand in a file, by the PCI ID database.
const VIRTUAL: [(u16, u16); 20] = [
    (0x15b3, 0x1004),
    (0x15b3, 0x1012),
    (0x15b3, 0x1014),
    (0x15b3, 0x1016),
    (0x15b3, 0x1018),
    (0x15b3, 0x101a),
    (0x15b3, 0x101c),
    (0x15b3, 0x101e),
    (0x8086, 0x10ca),
    (0x8086, 0x10ed),
    (0x8086, 0x1515),
    (0x8086, 0x1520),
    (0x8086, 0x154c),
    (0x8086, 0x1889),
    (0x8086, 0x37cd),
    (0x14e4, 0x1606),
    (0x14e4, 0x1609),
    (0x14e4, 0x16dc),
    (0x14e4, 0x1806),
    (0x14e4, 0x1807),
];

/// Whether a PCI function with these ids is a virtual function of an adapter (SR-IOV).
pub(crate) fn is_virtual_function(vendor: u16, device: u16) -> bool {
    VIRTUAL.contains(&(vendor, device))
}

/// Whether a name ends as systemd and the kernel name interfaces of virtual functions: `ens1f0v3`.
pub(crate) fn is_virtual_name(name: &str) -> bool {
    let Some((before, number)) = name.rsplit_once('v') else { return false };
    let is_number = !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit());
    is_number
        && before.ends_with(|c: char| c.is_ascii_digit())
        && before.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Whether an interface with this name is a bridge, a tunnel or the end of a container's link: it is made by software.
fn is_software(name: &str) -> bool {
    const PREFIXES: [&str; 16] = [
        "docker", "br-", "virbr", "veth", "cni", "cali", "cilium", "flannel", "lxc", "lxd", "vxlan",
        "podman", "kube-", "tunl", "ovs", "dummy",
    ];
    let bridge =
        name.strip_prefix("br").is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()));
    bridge || name == "lo" || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// That so many virtual functions count as no adapters.
pub(crate) fn functions_left_out(count: usize) -> String {
    match count {
        1 => "1 virtual function of a network adapter is left out; its adapter is here".to_owned(),
        many => format!("{many} virtual functions of network adapters are left out; their adapters are here"),
    }
}

impl Tree {
    /// Leaves out virtual functions if the tree has a physical function of their vendor (in a guest, a virtual function
    /// is the adapter), and interfaces that software makes. Says which.
    pub(crate) fn leave_out_virtual(&mut self) -> Vec<Gap> {
        let physical: Vec<u16> = self
            .nodes()
            .iter()
            .filter(|node| match &node.part {
                Part::Nic(nets) => !node.is_virtual && !nets.iter().any(|net| is_virtual_name(&net.name)),
                _ => false,
            })
            .map(|node| node.vendor)
            .collect();
        let mut left = Left::default();
        for cpu in &mut self.cpus {
            left.walk(&mut cpu.nodes, &physical);
        }
        let mut gaps = Vec::new();
        if let Some(at) = left.functions_at {
            gaps.push(Gap::new(at, functions_left_out(left.functions)));
        }
        if let Some(at) = left.software_at {
            let names = left.software.join(", ");
            gaps.push(Gap::new(at, format!("{names}: made by software and no network adapter; left out")));
        }
        gaps
    }
}

#[derive(Default)]
struct Left {
    functions: usize,
    functions_at: Option<(u32, u32)>,
    software: Vec<String>,
    software_at: Option<(u32, u32)>,
}

impl Left {
    fn walk(&mut self, nodes: &mut Vec<Node>, physical: &[u16]) {
        nodes.retain_mut(|node| {
            self.walk(&mut node.nodes, physical);
            let Part::Nic(nets) = &mut node.part else { return true };
            let is_named = !nets.is_empty() && nets.iter().all(|net| is_virtual_name(&net.name));
            if (node.is_virtual || is_named) && physical.contains(&node.vendor) {
                self.functions = self.functions.saturating_add(1);
                self.functions_at.get_or_insert(node.at);
                return false;
            }
            let before = nets.len();
            nets.retain(|net| !self.is_software(net, node.at));
            before == 0 || !nets.is_empty()
        });
    }

    fn is_software(&mut self, net: &Net, at: (u32, u32)) -> bool {
        let is_it = is_software(&net.name);
        if is_it {
            self.software.push(net.name.clone());
            self.software_at.get_or_insert(at);
        }
        is_it
    }
}
