//! The links of a device by its product name: the one table of products.
//!
//! Sources: NVIDIA's data sheets and architecture papers of each product, whose NVLink totals are of both directions
//! (P100 160, V100 300, A100 600, A800 and H800 400, A30 200, A40 and RTX A6000 112.5, H100, H200 and H20 900,
//! B200 and B300 1800 GB/s); divided by 40, 50, 28.1, 50 and 100 GB/s of one link of their generation they are the
//! numbers of ports. AMD's data sheets for Instinct.

/// The factory hardware of a product. Data from a source about a single machine takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    pub generation: Generation,
    /// NVLinks of one device. 0 if the product has none.
    pub nvlink_ports: u8,
    /// Whether its usual machine joins the NVLinks by a switch.
    pub has_nvlink_switch: bool,
    /// The slot of the product.
    pub pcie: Pcie,
    /// One NIC for collectives of the usual machine, one way. None if machines of the product differ.
    pub usual_nic_mb_per_s: Option<u32>,
}

/// A NIC whose speed neither a source nor its product gives: 100 Gbit/s, NCCL's `NET` (NVIDIA/nccl, `src/graph/topo.h`)
/// rounded to the line rate.
pub const NIC_MB_PER_S: u32 = 12_500;

/// The vendor and the generation of the chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// Pascal and older.
    Pascal,
    /// Volta and Turing.
    Volta,
    Ampere,
    /// Ampere and Ada for graphics and inference: slower NVLinks, or none.
    AmpereGraphics,
    Hopper,
    Blackwell,
    /// AMD's MI300 series, joined by xGMI.
    Instinct,
}

/// A PCIe slot of 16 lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pcie {
    Gen3,
    Gen4,
    Gen5,
    Gen6,
}

impl Pcie {
    /// What the line carries one way, in MB/s: 16 lanes at 8, 16, 32 and 64 GT/s, of 130 bits 128 are data up to the
    /// fifth generation, and of 256 bytes 242 in the sixth (PCI-SIG base specifications).
    #[must_use]
    pub const fn line_mb_per_s(self) -> u32 {
        match self {
            Self::Gen3 => 15_754,
            Self::Gen4 => 31_508,
            Self::Gen5 => 63_015,
            Self::Gen6 => 121_000,
        }
    }
}

use Generation::{Ampere, AmpereGraphics, Blackwell, Hopper, Instinct, Pascal, Volta};
use Pcie::{Gen3, Gen4, Gen5, Gen6};

/// By a word of the name, in lower case.
#[rustfmt::skip]
const PRODUCTS: &[(&[&str], Generation, u8, Pcie)] = &[
    (&["p100"],                                                    Pascal,         4,  Gen3),
    (&["p40", "p4", "k80", "m60", "1080"],                         Pascal,         0,  Gen3),
    (&["v100"],                                                    Volta,          6,  Gen3),
    // Two links of 25 GB/s each way over a bridge, or one.
    (&["2080ti"],                                                  Volta,          2,  Gen3),
    (&["2080"],                                                    Volta,          1,  Gen3),
    // The V100S is made for slots only.
    (&["t4", "v100s"],                                             Volta,          0,  Gen3),
    (&["a100", "a100x"],                                           Ampere,         12, Gen4),
    (&["a800"],                                                    Ampere,         8,  Gen4),
    (&["a30", "a30x"],                                             Ampere,         4,  Gen4),
    (&["a40", "a4500", "a5000", "a5500", "a6000", "3090"],         AmpereGraphics, 4,  Gen4),
    (&["a2", "a10", "a10g", "a16", "4090", "l4", "l40", "l40s", "ada"], AmpereGraphics, 0,  Gen4),
    (&["h100", "h200", "h20", "gh200"],                            Hopper,         18, Gen5),
    (&["h800"],                                                    Hopper,         8,  Gen5),
    (&["b100", "b200", "gb200", "blackwell"],                      Blackwell,      18, Gen5),
    (&["b300", "gb300"],                                           Blackwell,      18, Gen6),
    (&["5090"],                                                    Blackwell,      0,  Gen5),
    (&["mi300x", "mi300a", "mi325x"],                              Instinct,       0,  Gen5),
];

impl Product {
    /// By whole words of the name: `Tesla V100-SXM2-32GB` is a V100. None for a name that the table does not know.
    #[must_use]
    pub fn of(model: &str) -> Option<Self> {
        let model = model.to_ascii_lowercase();
        let words = || model.split(|c: char| !c.is_ascii_alphanumeric());
        let has = |wanted: &str| words().any(|word| word == wanted);
        let row = |word: &str| PRODUCTS.iter().find(|(names, ..)| names.contains(&word));
        let (_, generation, ports, pcie) = words().find_map(row)?;
        let is_card = has("pcie") || has("nvl");
        let nvlink_ports = match generation {
            // Cards of these have no bridge.
            Pascal | Volta if is_card => 0,
            // Workstation cards: RTX PRO 6000 Blackwell.
            Blackwell if has("rtx") => 0,
            // Three bridges of four links join two H100 cards; H200 NVL has all of its links.
            Hopper if is_card && has("h100") => 12,
            Volta if has("2080") && has("ti") => 2,
            _ => *ports,
        };
        let joins = matches!(generation, Ampere | Hopper | Blackwell) && nvlink_ports >= 8;
        Some(Self {
            generation: *generation,
            nvlink_ports,
            has_nvlink_switch: joins && !is_card,
            pcie: *pcie,
            usual_nic_mb_per_s: usual_nic_mb_per_s(*generation, *pcie, nvlink_ports, is_card),
        })
    }
}

/// One NIC of NVIDIA's DGX and HGX machines and of AMD's platforms: 100 Gb/s beside P100 and V100, 200 beside A100, 400
/// beside H100, H200 and B200, 800 beside B300, 400 beside MI300X (`NVIDIA`'s user guides of DGX-1, DGX-2, DGX A100, DGX
/// H100, DGX B200 and DGX B300; AMD's platform data sheet). Cards are in machines of every kind.
const fn usual_nic_mb_per_s(
    generation: Generation,
    pcie: Pcie,
    nvlink_ports: u8,
    is_card: bool,
) -> Option<u32> {
    match (generation, pcie) {
        (Instinct, _) => Some(50_000),
        _ if is_card || nvlink_ports < 4 => None,
        (Pascal | Volta, _) => Some(12_500),
        (Ampere, _) if nvlink_ports >= 8 => Some(25_000),
        (Blackwell, Gen6) => Some(100_000),
        (Hopper | Blackwell, _) => Some(50_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_those_of_the_data_sheets() {
        for (model, ports) in [
            ("Tesla P100-SXM2-16GB", 4),
            ("Tesla P100-PCIE-16GB", 0),
            ("Tesla V100-SXM2-32GB", 6),
            ("Tesla V100-PCIE-16GB", 0),
            ("Tesla T4", 0),
            ("NVIDIA GeForce RTX 2080 Ti", 2),
            ("NVIDIA A100-SXM4-80GB", 12),
            ("NVIDIA A100 80GB PCIe", 12),
            ("NVIDIA A800-SXM4-80GB", 8),
            ("NVIDIA A30", 4),
            ("NVIDIA A40", 4),
            ("NVIDIA RTX A6000", 4),
            ("NVIDIA RTX 6000 Ada Generation", 0),
            ("NVIDIA L40S", 0),
            ("NVIDIA H100 80GB HBM3", 18),
            ("NVIDIA H100 PCIe", 12),
            ("NVIDIA H100 NVL", 12),
            ("NVIDIA H200 NVL", 18),
            ("NVIDIA H800", 8),
            ("NVIDIA H20", 18),
            ("NVIDIA B200", 18),
            ("NVIDIA GB300", 18),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 0),
            ("AMD Instinct MI300X", 0),
        ] {
            assert_eq!(Product::of(model).map(|product| product.nvlink_ports), Some(ports), "{model}");
        }
        for unknown in ["", "NVIDIA", "A1000", "RTX", "Gaudi 3"] {
            assert_eq!(Product::of(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn only_what_sits_on_a_board_has_a_switch() {
        let has = |model| Product::of(model).is_some_and(|product| product.has_nvlink_switch);
        assert!(["A100", "A800", "H100", "H800", "GB200"].iter().all(|model| has(model)));
        assert!(!["A30", "A40", "V100", "H100 PCIe", "H200 NVL", "MI300X"].iter().any(|model| has(model)));
    }

    #[test]
    fn no_word_stands_in_two_rows() {
        let mut words: Vec<&str> = PRODUCTS.iter().flat_map(|(names, ..)| *names).copied().collect();
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all);
    }
}
