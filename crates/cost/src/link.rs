//! What one link carries: constants with their sources. "NCCL" is NVIDIA/nccl, `src/graph/topo.h` and
//! `src/graph/tuning.cc`.

pub use phalanx_model::product::NIC_MB_PER_S;
use phalanx_model::product::{self, Pcie};
use phalanx_model::{Device, Link, LinkKind, Machine, Port, Product};

/// No NIC is known: sockets over 10 Gbit/s. Public measurements of two nodes over TCP lie at 0.4 to 0.95 GB/s.
pub const SOCKET_MB_PER_S: u32 = 1_250;
/// Between two processes of one host: one DDR4-3200 channel (25.6 GB/s, JEDEC JESD79-4), read and written once.
pub(crate) const HOST_MEMORY_MB_PER_S: u32 = 12_800;
/// Of the line rate of NVLinks that join nodes, what the library counts on. NCCL takes 40.1 of 50 GB/s per link
/// on SM100, 20.6 of 25 on SM90 and 20 of 25 on SM80.
pub(crate) const INSIDE_SHARE: f64 = 0.802;
/// An xGMI pair of an MI300X. ROCm/rccl, `src/graph/topo.h`: 48 GB/s; measured by all-reduce over two: 47.7.
const XGMI_MB_PER_S: u32 = 47_700;

/// What the product of a device tells of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    /// None where the name is not known.
    pub(crate) of: Option<product::Generation>,
    /// One NVLink. NCCL: `SM60_NVLINK_BW` and its successors.
    pub(crate) nvlink_mb_per_s: u32,
    /// NVLinks of one device: more than these towards all peers means a switch between them.
    pub(crate) nvlink_ports: u32,
    /// Whether its usual machine has `NVSwitch`.
    pub(crate) has_nvlink_switch: bool,
    /// One xGMI pair; 0 where there is none.
    pub(crate) xgmi_mb_per_s: u32,
    pub(crate) pcie: Pcie,
}

/// What a slot of 16 lanes reaches. NCCL: gen3 12 GB/s; every generation doubles.
pub(crate) const fn slot(pcie: Pcie) -> u32 {
    match pcie {
        Pcie::Gen3 => 12_000,
        Pcie::Gen4 => 24_000,
        Pcie::Gen5 => 48_000,
        Pcie::Gen6 => 96_000,
    }
}

/// Between the sockets of hosts of that time. NCCL: Broadwell 6, Skylake 10, Sapphire Rapids 22 GB/s.
const fn between_sockets(pcie: Pcie) -> u32 {
    match pcie {
        Pcie::Gen3 => 6_000,
        Pcie::Gen4 => 10_000,
        Pcie::Gen5 | Pcie::Gen6 => 22_000,
    }
}

/// NCCL takes an unknown device for SM80; the ports are the most of any device so far.
const UNKNOWN: Generation = Generation {
    of: None,
    nvlink_mb_per_s: 20_000,
    nvlink_ports: 18,
    has_nvlink_switch: true,
    xgmi_mb_per_s: 0,
    pcie: Pcie::Gen4,
};

pub(crate) fn generation(device: &Device) -> Generation {
    generation_of(&device.model)
}

pub(crate) fn generation_of(model: &str) -> Generation {
    use product::Generation::{Ampere, AmpereGraphics, Blackwell, Hopper, Instinct, Pascal, Volta};
    let Some(product) = Product::of(model) else { return UNKNOWN };
    let nvlink_mb_per_s = match product.generation {
        Pascal => 18_000,
        Volta | Ampere | Instinct => 20_000,
        AmpereGraphics => 12_000,
        Hopper => 20_600,
        Blackwell => 40_100,
    };
    Generation {
        of: Some(product.generation),
        nvlink_mb_per_s,
        nvlink_ports: u32::from(product.nvlink_ports),
        has_nvlink_switch: product.has_nvlink_switch,
        xgmi_mb_per_s: if product.generation == Instinct { XGMI_MB_PER_S } else { 0 },
        pcie: product.pcie,
    }
}

/// The link between two devices, if the reader could tell. A device that is cut into slices has no NVLink.
pub(crate) fn between(machine: &Machine, a: u32, b: u32) -> Option<Link> {
    let ports = (Port::Device(a.min(b)), Port::Device(a.max(b)));
    let at = machine.links.binary_search_by(|link| (link.a, link.b).cmp(&ports)).ok()?;
    let link = machine.links.get(at).copied()?;
    let is_sliced = |device: u32| machine.devices.get(device as usize).is_some_and(|device| device.is_sliced);
    let has_none = matches!(link.kind, LinkKind::Nvlink(_)) && (is_sliced(a) || is_sliced(b));
    (!has_none).then_some(link)
}

/// Its kind alone.
pub(crate) fn kind(machine: &Machine, a: u32, b: u32) -> Option<LinkKind> {
    between(machine, a, b).map(|link| link.kind)
}

/// One way between two devices. A pair that could not be read counts as the farthest. What a source says of a
/// NVLink is its line rate, of which the library reaches what stands here.
pub(crate) fn pair_mb_per_s(a: &Device, b: &Device, link: Option<Link>) -> u32 {
    let (a, b) = (generation(a), generation(b));
    let pcie = a.pcie.min(b.pcie);
    let said = link.map_or(0, |link| link.nominal_mb_per_s);
    let usual = match link.map(|link| link.kind) {
        Some(LinkKind::Nvlink(count)) => {
            let usual = a.nvlink_mb_per_s.min(b.nvlink_mb_per_s) * u32::from(count);
            return if said > 0 { usual.min(said) } else { usual };
        }
        Some(LinkKind::Xgmi) => XGMI_MB_PER_S,
        Some(LinkKind::PcieSwitch | LinkKind::PcieBridges) => slot(pcie),
        // NCCL counts peer traffic through an Intel host bridge as 6/5 of itself.
        Some(LinkKind::HostBridge) => slot(pcie) / 6 * 5,
        // Measured across switch chips: 36 to 40 of 53.5 GB/s.
        Some(LinkKind::Numa) => slot(pcie) / 3 * 2,
        Some(LinkKind::Socket) | None => between_sockets(pcie),
    };
    if said > 0 { said } else { usual }
}

/// What a device's own slot carries at most: a bound for its way to a NIC on another socket.
pub(crate) fn far_nic_mb_per_s(device: &Device) -> u32 {
    between_sockets(generation(device).pcie)
}

/// The line of a device's slot, which bounds what it has of NICs; of an unknown device that of the fastest slot.
pub(crate) fn slot_line_mb_per_s(device: &Device) -> u32 {
    let generation = generation(device);
    generation.of.map_or(Pcie::Gen6, |_| generation.pcie).line_mb_per_s()
}
