//! Declared machines of well-known shapes.

use phalanx_model::{
    Device, DeviceGroup, DeviceMask, LevelName, Link, LinkKind, Machine, NameError, Origin, Port, ShapeName,
};

/// The interconnect of a machine's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// PCIe only: two switches, one per socket.
    #[default]
    Pcie,
    /// Every device reaches every other through NVSwitch.
    NvSwitch,
    /// Eight V100 as in a DGX-1: two fully linked quads, joined pair by pair (NVIDIA DGX-1 system
    /// architecture white paper, figure 4).
    HybridCubeMesh,
}

/// NVLinks between the devices of a hybrid cube mesh.
const HYBRID_CUBE_MESH: [[u8; 8]; 8] = [
    [0, 1, 1, 2, 0, 0, 2, 0],
    [1, 0, 2, 1, 0, 0, 0, 2],
    [1, 2, 0, 2, 1, 0, 0, 0],
    [2, 1, 2, 0, 0, 1, 0, 0],
    [0, 0, 1, 0, 0, 2, 1, 2],
    [0, 0, 0, 1, 2, 0, 2, 1],
    [2, 0, 0, 0, 1, 2, 0, 1],
    [0, 2, 0, 0, 2, 1, 1, 0],
];

impl Shape {
    pub const ALL: [Self; 3] = [Self::Pcie, Self::NvSwitch, Self::HybridCubeMesh];

    /// The word in a scenario.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pcie => "pcie",
            Self::NvSwitch => "nvswitch",
            Self::HybridCubeMesh => "hybrid_cube_mesh",
        }
    }

    /// A machine of this shape, with its links and its groups `nvlink`, `pcie` and `socket`, and without CPUs and
    /// memory. The two halves of its devices are on two sockets.
    ///
    /// # Errors
    /// If the name of the model cannot be part of a shape's name.
    pub fn machine(self, devices: u32, model: &str) -> Result<Machine, NameError> {
        let sockets = halves(devices);
        let nvlink = match self {
            Self::Pcie => Vec::new(),
            Self::NvSwitch => vec![DeviceMask::first(devices)],
            Self::HybridCubeMesh => sockets.clone(),
        };
        let mut groups = Vec::new();
        for (level, masks) in [("nvlink", nvlink), ("pcie", sockets.clone()), ("socket", sockets.clone())] {
            for mask in masks.into_iter().filter(|m| m.count() >= 2) {
                groups.push(DeviceGroup::new(LevelName::new(level)?, mask));
            }
        }
        let links = (0..devices).flat_map(|a| (a + 1..devices).map(move |b| (a, b)));
        let links =
            links.map(|(a, b)| Link::new(Port::Device(a), Port::Device(b), self.link(a, b, &sockets)));
        let model_word = if model.is_empty() { "gpu" } else { model };
        Ok(Machine {
            shape: ShapeName::new(format!("{}-{devices}-{}", self.word(), model_word.replace(' ', "-")))?,
            origin: Origin::Declared,
            devices: (0..devices).map(|i| device(i, model)).collect(),
            nics: Vec::new(),
            links: links.collect(),
            groups,
            cpu_milli: 0,
            memory_bytes: 0,
            named: std::collections::BTreeMap::new(),
            share_limit_milli: 0,
            replicas: 0,
        })
    }

    fn link(self, a: u32, b: u32, sockets: &[DeviceMask]) -> LinkKind {
        let one_socket = sockets.iter().any(|s| s.contains(a) && s.contains(b));
        let pcie = if one_socket { LinkKind::PcieSwitch } else { LinkKind::Socket };
        match self {
            Self::Pcie => pcie,
            Self::NvSwitch => LinkKind::Nvlink(18),
            Self::HybridCubeMesh => {
                let row = HYBRID_CUBE_MESH.get(a as usize);
                match row.and_then(|r| r.get(b as usize)).copied().unwrap_or(0) {
                    0 => pcie,
                    links => LinkKind::Nvlink(links),
                }
            }
        }
    }
}

fn halves(devices: u32) -> Vec<DeviceMask> {
    let lower = DeviceMask::first(devices.div_ceil(2));
    let upper = DeviceMask::first(devices).minus(lower);
    [lower, upper].into_iter().filter(|m| !m.is_empty()).collect()
}

fn device(index: u32, model: &str) -> Device {
    Device { name: format!("GPU{index}"), model: model.to_owned(), ..Device::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cube_mesh_is_symmetric_and_has_six_links_per_device() {
        for (a, row) in HYBRID_CUBE_MESH.iter().enumerate() {
            assert_eq!(row.iter().sum::<u8>(), 6);
            for (b, links) in row.iter().enumerate() {
                assert_eq!(*links, HYBRID_CUBE_MESH[b][a]);
            }
        }
    }

    #[test]
    fn links_are_sorted_and_groups_disjoint() {
        for shape in Shape::ALL {
            let machine = shape.machine(8, "V100").unwrap();
            assert!(machine.links.is_sorted_by_key(|l| (l.a, l.b)));
            for (a, b) in [(0, 7), (7, 0), (2, 3)] {
                assert!(machine.device_link(a, b).is_some(), "{shape:?} {a} {b}");
            }
            for g in &machine.groups {
                let others = machine.groups.iter().filter(|o| o.level == g.level && *o != g);
                assert!(others.into_iter().all(|o| o.devices.and(g.devices).is_empty()));
            }
        }
    }
}
