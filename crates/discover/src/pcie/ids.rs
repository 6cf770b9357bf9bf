//! GPUs by their PCI ids, with the names that the vendors' tools print.
//!
//! The table in this file comes first: it has NVIDIA's own names and the speed of an NVLink. `products.txt` has what else
//! the PCI ID database names.

use std::sync::LazyLock;

/// What is known of a GPU by its PCI ids alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Product {
    pub(crate) vendor: u16,
    pub(crate) device: u16,
    pub(crate) name: &'static str,
    /// Compute capability; 0 for AMD.
    pub(crate) sm: u32,
    /// One NVLink as NVIDIA's data sheets and NVML have it, one way, MB/s; 0 without NVLink.
    pub(crate) wire_mb_per_s: u32,
}

/// The product of these ids, where it is one of the known.
pub(crate) fn product(vendor: u16, device: u16) -> Option<&'static Product> {
    all().find(|p| (p.vendor, p.device) == (vendor, device))
}

/// The product of this name.
pub(crate) fn named(name: &str) -> Option<&'static Product> {
    all().find(|p| p.name == name)
}

fn all() -> impl Iterator<Item = &'static Product> {
    PRODUCTS.iter().chain(DATABASE.iter())
}

/// The lines of `products.txt`. A line that is none is left out; a test reads every line.
static DATABASE: LazyLock<Vec<Product>> =
    LazyLock::new(|| include_str!("products.txt").lines().filter_map(line).collect());

fn line(line: &'static str) -> Option<Product> {
    let mut words = line.splitn(4, ' ');
    let hex = |word: &str| u16::from_str_radix(word, 16).ok();
    let (vendor, device) = (hex(words.next()?)?, hex(words.next()?)?);
    let sm = words.next()?.parse().ok()?;
    Some(Product { vendor, device, name: words.next()?, sm, wire_mb_per_s: 0 })
}

const fn nvidia(device: u16, name: &'static str, sm: u32, wire_mb_per_s: u32) -> Product {
    Product { vendor: 0x10de, device, name, sm, wire_mb_per_s }
}

const fn amd(device: u16, name: &'static str) -> Product {
    Product { vendor: 0x1002, device, name, sm: 0, wire_mb_per_s: 0 }
}

const PRODUCTS: &[Product] = &[
    nvidia(0x1023, "Tesla K40m", 35, 0),
    nvidia(0x102d, "Tesla K80", 37, 0),
    nvidia(0x15f8, "Tesla P100-PCIE-16GB", 60, 0),
    nvidia(0x15f9, "Tesla P100-SXM2-16GB", 60, 20_000),
    nvidia(0x1b38, "Tesla P40", 61, 0),
    nvidia(0x1db1, "Tesla V100-SXM2-16GB", 70, 25_000),
    nvidia(0x1db3, "Tesla V100-SXM2-16GB-LS", 70, 25_000),
    nvidia(0x1db4, "Tesla V100-PCIE-16GB", 70, 0),
    nvidia(0x1db5, "Tesla V100-SXM2-32GB", 70, 25_000),
    nvidia(0x1db6, "Tesla V100-PCIE-32GB", 70, 0),
    nvidia(0x1db8, "Tesla V100-SXM3-32GB", 70, 25_000),
    nvidia(0x1eb8, "Tesla T4", 75, 0),
    nvidia(0x20b0, "NVIDIA A100-SXM4-40GB", 80, 25_000),
    nvidia(0x20b2, "NVIDIA A100-SXM4-80GB", 80, 25_000),
    nvidia(0x20b5, "NVIDIA A100 80GB PCIe", 80, 25_000),
    nvidia(0x20b7, "NVIDIA A30", 80, 25_000),
    nvidia(0x20f1, "NVIDIA A100-PCIE-40GB", 80, 25_000),
    nvidia(0x20f3, "NVIDIA A800-SXM4-80GB", 80, 25_000),
    nvidia(0x2230, "NVIDIA RTX A6000", 86, 14_062),
    nvidia(0x2235, "NVIDIA A40", 86, 14_062),
    nvidia(0x2236, "NVIDIA A10", 86, 0),
    nvidia(0x2237, "NVIDIA A10G", 86, 0),
    nvidia(0x2321, "NVIDIA H100 NVL", 90, 25_000),
    nvidia(0x2322, "NVIDIA H800 PCIe", 90, 25_000),
    nvidia(0x2324, "NVIDIA H800", 90, 25_000),
    nvidia(0x2329, "NVIDIA H20", 90, 25_000),
    nvidia(0x2330, "NVIDIA H100 80GB HBM3", 90, 25_000),
    nvidia(0x2331, "NVIDIA H100 PCIe", 90, 25_000),
    nvidia(0x2335, "NVIDIA H200", 90, 25_000),
    nvidia(0x233b, "NVIDIA H200 NVL", 90, 25_000),
    nvidia(0x2342, "NVIDIA GH200 480GB", 90, 25_000),
    nvidia(0x26b5, "NVIDIA L40", 89, 0),
    nvidia(0x26b9, "NVIDIA L40S", 89, 0),
    nvidia(0x27b8, "NVIDIA L4", 89, 0),
    nvidia(0x2901, "NVIDIA B200", 100, 50_000),
    nvidia(0x2941, "NVIDIA GB200", 100, 50_000),
    nvidia(0x3182, "NVIDIA B300 SXM6 AC", 103, 50_000),
    nvidia(0x31c2, "NVIDIA GB300", 103, 50_000),
    nvidia(0x2e12, "NVIDIA GB10", 121, 0),
    amd(0x66a0, "AMD Instinct MI60 / MI50"),
    amd(0x66a1, "AMD Instinct MI60 / MI50"),
    amd(0x738c, "AMD Instinct MI100"),
    amd(0x7408, "AMD Instinct MI250X"),
    amd(0x740c, "AMD Instinct MI250X / MI250"),
    amd(0x740f, "AMD Instinct MI210"),
    amd(0x74a0, "AMD Instinct MI300A"),
    amd(0x74a1, "AMD Instinct MI300X"),
    amd(0x74a2, "AMD Instinct MI308X"),
    amd(0x74a5, "AMD Instinct MI325X"),
    amd(0x74a9, "AMD Instinct MI300X HF"),
    amd(0x75a0, "AMD Instinct MI350X"),
    amd(0x75a3, "AMD Instinct MI355X"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_database_is_a_product() {
        let lines = include_str!("products.txt").lines().filter(|l| !l.starts_with('#'));
        assert_eq!(lines.count(), DATABASE.len());
        assert!(DATABASE.len() > 250);
        for (vendor, device, name) in [
            (0x1002, 0x74b5, "AMD Instinct MI300X VF"),
            (0x10de, 0x2684, "NVIDIA GeForce RTX 4090"),
            (0x10de, 0x26ba, "NVIDIA L20"),
            (0x10de, 0x2bb5, "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
            // NVIDIA's own name, and not the database's.
            (0x10de, 0x2330, "NVIDIA H100 80GB HBM3"),
        ] {
            assert_eq!(product(vendor, device).map(|p| p.name), Some(name));
        }
        assert_eq!(product(0x10de, 0xffff), None);
    }
}
