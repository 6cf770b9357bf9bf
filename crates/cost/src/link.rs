//! What one link carries: constants with their sources. "NCCL" is NVIDIA/nccl, `src/graph/topo.h` and
//! `src/graph/tuning.cc`.

use phalanx_model::{Device, LinkKind};

/// A NIC that is listed without a speed: 100 Gbit/s, NCCL's `NET` rounded to the line rate.
pub const NIC_MB_PER_S: u32 = 12_500;
/// No NIC is known: sockets over 10 Gbit/s. Public measurements of two nodes over TCP lie at 0.4 to 0.95 GB/s.
pub const SOCKET_MB_PER_S: u32 = 1_250;
/// Between two processes of one host: one DDR4-3200 channel (25.6 GB/s, JEDEC JESD79-4), read and written once.
pub(crate) const HOST_MEMORY_MB_PER_S: u32 = 12_800;
/// An xGMI pair of an MI300X, measured by all-reduce over two devices: 47.7 GB/s.
const XGMI_MB_PER_S: u32 = 47_700;

/// What a collective costs before the first hop: NCCL, ring, LL.
pub(crate) const BASE_LATENCY_NS: u64 = 6_600;
/// One hop over NVLink: NCCL, ring, LL.
pub(crate) const NVLINK_LATENCY_NS: u64 = 600;
/// One hop over PCIe: NCCL, ring, LL.
pub(crate) const PCIE_LATENCY_NS: u64 = 1_000;
/// One hop over a NIC: NCCL, ring, LL (2.7 us) and its network overhead on Intel hosts (1 us).
pub(crate) const NIC_LATENCY_NS: u64 = 3_700;
/// One hop over sockets: NCCL's `NET` for the Simple protocol (14 us), the best guess for a kernel path.
pub(crate) const SOCKET_LATENCY_NS: u64 = 14_000;

/// Share of the NICs' bandwidth that a ring reaches, in percent. Fits public all-reduce curves: 16 x 100G
/// RoCE gives 189.6 of 200 GB/s.
pub(crate) const NIC_PERCENT: u64 = 95;

/// What the product name of a device tells of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    /// One NVLink. NCCL: `SM60_NVLINK_BW` and its successors.
    pub(crate) nvlink_mb_per_s: u32,
    /// NVLinks of one device: more than these towards all peers means a switch between them.
    pub(crate) nvlink_ports: u32,
    pub(crate) pcie: Pcie,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pcie {
    Gen3,
    Gen4,
    Gen5,
}

impl Pcie {
    /// A x16 slot. NCCL: gen3 12 GB/s; every generation doubles.
    const fn slot(self) -> u32 {
        match self {
            Self::Gen3 => 12_000,
            Self::Gen4 => 24_000,
            Self::Gen5 => 48_000,
        }
    }

    /// Between the sockets of hosts of that time. NCCL: Broadwell 6, Skylake 10, Sapphire Rapids 22 GB/s.
    const fn between_sockets(self) -> u32 {
        match self {
            Self::Gen3 => 6_000,
            Self::Gen4 => 10_000,
            Self::Gen5 => 22_000,
        }
    }
}

const PASCAL: Generation = Generation { nvlink_mb_per_s: 18_000, nvlink_ports: 4, pcie: Pcie::Gen3 };
const VOLTA: Generation = Generation { nvlink_mb_per_s: 20_000, nvlink_ports: 6, pcie: Pcie::Gen3 };
const AMPERE: Generation = Generation { nvlink_mb_per_s: 20_000, nvlink_ports: 12, pcie: Pcie::Gen4 };
const AMPERE_GRAPHICS: Generation = Generation { nvlink_mb_per_s: 12_000, nvlink_ports: 4, pcie: Pcie::Gen4 };
const HOPPER: Generation = Generation { nvlink_mb_per_s: 20_600, nvlink_ports: 18, pcie: Pcie::Gen5 };
const BLACKWELL: Generation = Generation { nvlink_mb_per_s: 40_100, nvlink_ports: 18, pcie: Pcie::Gen5 };
/// NCCL takes an unknown device for SM80; the ports are the most of any device so far.
const UNKNOWN: Generation = Generation { nvlink_mb_per_s: 20_000, nvlink_ports: 18, pcie: Pcie::Gen4 };

/// Guesses the generation by whole words of the product name: `Tesla V100-SXM2-32GB` is a Volta.
pub(crate) fn generation(device: &Device) -> Generation {
    let model = device.model.to_ascii_lowercase();
    let known = model.split(|c: char| !c.is_ascii_alphanumeric()).find_map(|word| match word {
        "p100" | "p40" | "p4" | "k80" | "m60" | "1080" => Some(PASCAL),
        "v100" | "v100s" | "t4" | "2080" | "2080ti" => Some(VOLTA),
        "a100" | "a800" | "a30" => Some(AMPERE),
        "a10" | "a10g" | "a40" | "a5000" | "a6000" | "3090" | "4090" | "l4" | "l40" | "l40s" => {
            Some(AMPERE_GRAPHICS)
        }
        "h100" | "h200" | "h800" | "h20" | "gh200" => Some(HOPPER),
        "b100" | "b200" | "b300" | "gb200" | "gb300" | "blackwell" => Some(BLACKWELL),
        "mi300x" | "mi300a" | "mi325x" => Some(Generation { pcie: Pcie::Gen5, ..UNKNOWN }),
        _ => None,
    });
    known.unwrap_or(UNKNOWN)
}

/// One way between two devices. A pair that could not be read counts as the farthest.
pub(crate) fn pair_mb_per_s(a: &Device, b: &Device, kind: Option<LinkKind>) -> u32 {
    let (a, b) = (generation(a), generation(b));
    let pcie = a.pcie.min(b.pcie);
    match kind {
        Some(LinkKind::Nvlink(count)) => a.nvlink_mb_per_s.min(b.nvlink_mb_per_s) * u32::from(count),
        Some(LinkKind::Xgmi) => XGMI_MB_PER_S,
        Some(LinkKind::PcieSwitch | LinkKind::PcieBridges) => pcie.slot(),
        // NCCL counts peer traffic through an Intel host bridge as 6/5 of itself.
        Some(LinkKind::HostBridge) => pcie.slot() / 6 * 5,
        // Measured across switch chips: 36 to 40 of 53.5 GB/s.
        Some(LinkKind::Numa) => pcie.slot() / 3 * 2,
        Some(LinkKind::Socket) | None => pcie.between_sockets(),
    }
}

/// What a device's own slot carries at most: a bound for its way to a NIC on another socket.
pub(crate) fn far_nic_mb_per_s(device: &Device) -> u32 {
    generation(device).pcie.between_sockets()
}
