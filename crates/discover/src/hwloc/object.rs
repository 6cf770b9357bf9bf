//! Single objects: what they are, what PCI says of them, how fast their link is.

use crate::pcie::{Address, Product, is_virtual_function, pci_mb_per_s, product};
use crate::xml::Element;

/// What matters about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Numa,
    Pu,
    HostBridge,
    Bridge,
    Pci,
    /// OS devices.
    Gpu,
    Network,
    OpenFabrics,
    OtherOs,
    /// Packages, groups, caches, cores.
    Other,
}

pub(super) fn kind_of(object: &Element, version: u32) -> Kind {
    match object.get("type").unwrap_or_default() {
        "NUMANode" | "Node" => Kind::Numa,
        "PU" => Kind::Pu,
        "Bridge" if object.get("bridge_type").is_some_and(|t| t.starts_with('0')) => Kind::HostBridge,
        "HostBridge" => Kind::HostBridge,
        "Bridge" | "PCIBridge" => Kind::Bridge,
        "PCIDev" => Kind::Pci,
        "OSDev" => os_kind(object.get("osdev_type").unwrap_or_default(), version),
        _ => Kind::Other,
    }
}

/// Versions 1 and 2 number the kinds (`hwloc_obj_osdev_type_e`: 0 block, 1 GPU, 2 network, 3 OpenFabrics, 4 DMA,
/// 5 co-processor, 6 memory); version 3 has a bit for each (1 storage, 2 memory, 4 GPU, 8 co-processor,
/// 16 network, 32 OpenFabrics, 64 DMA).
fn os_kind(text: &str, version: u32) -> Kind {
    match (text.trim().parse::<u32>(), version) {
        (Ok(bits), 3..) if bits & 32 != 0 => Kind::OpenFabrics,
        (Ok(bits), 3..) if bits & 16 != 0 => Kind::Network,
        (Ok(bits), 3..) if bits & 12 != 0 => Kind::Gpu,
        (Ok(1 | 5), ..3) => Kind::Gpu,
        (Ok(2), ..3) => Kind::Network,
        (Ok(3), ..3) => Kind::OpenFabrics,
        (Err(_), _) => match text.trim() {
            "GPU" | "Co-Processor" | "CoProc" => Kind::Gpu,
            "Network" | "Net" => Kind::Network,
            "OpenFabrics" => Kind::OpenFabrics,
            _ => Kind::OtherOs,
        },
        _ => Kind::OtherOs,
    }
}

/// The number in `nvml3`, if the name begins with one of these words.
pub(super) fn os_index_in(object: &Element, words: &[&str]) -> Option<u32> {
    let name = object.get("name")?;
    let digits = words.iter().find_map(|word| name.strip_prefix(word))?;
    digits.bytes().all(|c| c.is_ascii_digit()).then(|| digits.parse().ok())?
}

pub(super) fn info<'a>(object: &'a Element, name: &str) -> Option<&'a str> {
    object.named("info").find(|info| info.get("name") == Some(name))?.get("value")
}

/// As the libraries of the vendors tell it, in KiB.
pub(super) fn memory_bytes(object: &Element) -> Option<u64> {
    const NAMES: [&str; 4] =
        ["CUDAGlobalMemorySize", "RSMIVRAMSize", "OpenCLGlobalMemorySize", "LevelZeroHBMSize"];
    let text = NAMES.iter().find_map(|name| info(object, name))?;
    text.trim().trim_end_matches("KiB").trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What PCI says of a device.
pub(super) struct PciDevice {
    pub(super) address: Option<Address>,
    /// Class and subclass: `0302`.
    class: u16,
    pub(super) vendor: u16,
    device: u16,
    pub(super) is_nvswitch: bool,
    pub(super) is_virtual_function: bool,
}

impl PciDevice {
    /// `pci_type` is `0302 [10de:1db8] [10de:131d] a1 00`.
    pub(super) fn read(object: &Element) -> Self {
        let hex = |text: &str| u16::from_str_radix(text, 16).unwrap_or(0);
        let mut words = object.get("pci_type").unwrap_or_default().split_whitespace();
        let class = hex(words.next().unwrap_or_default());
        let ids = words.next().unwrap_or_default().trim_matches(['[', ']']);
        let (vendor, device) = ids.split_once(':').unwrap_or_default();
        let (vendor, device) = (hex(vendor), hex(device));
        let name = info(object, "PCIDevice").or_else(|| object.get("name")).unwrap_or_default();
        Self {
            address: object.get("pci_busid").and_then(Address::read),
            class,
            vendor,
            device,
            is_nvswitch: object.get("subtype") == Some("NVSwitch") || (class, vendor) == (0x0680, 0x10de),
            is_virtual_function: name.contains("Virtual Function") || is_virtual_function(vendor, device),
        }
    }

    pub(super) fn product(&self) -> Option<&'static Product> {
        product(self.vendor, self.device)
    }

    /// Ethernet, InfiniBand and other fabrics (PCI classes 02 00, 02 07, 02 08, and 0c 06 of older InfiniBand adapters).
    pub(super) const fn is_nic(&self) -> bool {
        matches!(self.class, 0x0200 | 0x0207 | 0x0208 | 0x0c06)
    }

    /// A network controller of another kind (02 80): radio, and fabrics that have no class of their own.
    pub(super) const fn is_other_network(&self) -> bool {
        self.class == 0x0280
    }
}

/// NVIDIA's and AMD's display controllers and accelerators (PCI classes 03 and 12). A VGA controller of AMD is
/// one only if a compute library sees it: many are built into boards and CPUs.
pub(super) fn is_gpu_of(pci: &PciDevice, object: &Element) -> bool {
    let is_class = matches!(pci.class >> 8, 0x03 | 0x12);
    let is_seen = || {
        object
            .named("object")
            .chain([object])
            .any(|o| os_index_in(o, &["rsmi"]).is_some() || info(o, "GPUModel").is_some())
    };
    match pci.vendor {
        0x10de => is_class,
        0x1002 => is_class && (pci.class != 0x0300 || is_seen()),
        _ => false,
    }
}

/// What the wire of one lane carries in kB/s, as hwloc computes it, and NCCL's count for it.
const LANES: [(u64, u32); 7] = [
    (250_000, 15),
    (500_000, 30),
    (984_615, 60),
    (1_969_231, 120),
    (3_938_462, 240),
    (7_562_500, 480),
    (7_876_923, 480),
];

/// What software gets of a link, as the other readers count it. hwloc writes what the wire carries in GB/s;
/// 15.753846 is 16 lanes of the third generation. 0 is unknown.
pub(super) fn link_mb_per_s(text: &str) -> u32 {
    let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let part: String = part.chars().chain("000000".chars()).take(6).collect();
    let read = || whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(part.parse().ok()?);
    let kb_per_s: u64 = read().unwrap_or(0);
    for width in [16, 8, 4, 2, 1, 32, 12] {
        for (lane, kv) in LANES {
            let wire = lane * u64::from(width);
            if kb_per_s.abs_diff(wire) <= wire / 1000 {
                return pci_mb_per_s(width, kv);
            }
        }
    }
    // A link of no known shape: the share that is left of the others.
    u32::try_from(kb_per_s.saturating_mul(3) / 4 / 1000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wires_become_what_nccl_counts() {
        for (text, mb) in [
            ("15.753846", 12_000),
            ("31.507692", 24_000),
            ("63.015385", 48_000),
            ("3.938462", 3_000),
            ("1.000000", 750),
            ("4.000000", 3_000),
            ("121", 96_000),
            ("0.000000", 0),
            ("", 0),
            ("nan", 0),
            ("5.5", 4_125),
        ] {
            assert_eq!(link_mb_per_s(text), mb, "{text}");
        }
    }
}
