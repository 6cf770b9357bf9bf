//! What the kernel tells: CPUs, memory, NUMA nodes, PCI accelerators and NICs, and how they hang on PCIe.
//!
//! Reads a tree of the form of `/sys`; tests give it a recorded one. Nothing is an error: what is not there or
//! cannot be read is left out, and told where it matters. Containers see parts of the tree alone.

mod nic;
mod pci;
pub mod ports;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use phalanx_model::{DEVICES_PER_NODE_MAX, Device, Machine, Origin, Port};

use crate::cpulist::CpuSet;
use crate::pcie::product;
use crate::shape;
pub use nic::NicState;
pub use pci::Pci;
use pci::{Hop, class_is, is_virtual, path_of, weakness};

/// Attributes of sysfs are at most one page; `/proc/meminfo` is shorter too.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The most entries of one folder that are looked at.
const ENTRIES_MAX: usize = 16_384;
/// An AMD display controller with less memory of its own is part of a CPU, and no accelerator.
const AMD_MEMORY_BYTES_MIN: u64 = 4 << 30;

/// PCI vendors whose accelerators are read, by their ids in the PCI ID database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// `10de`
    Nvidia,
    /// `1002`
    Amd,
}

/// What a tree told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysfs {
    /// Devices ascending by PCI address, NICs in natural order.
    pub machine: Machine,
    /// One for each device.
    pub vendors: Vec<Vendor>,
    /// The kernel driver of each device, e.g. `nvidia`, `amdgpu`, `vfio-pci`.
    pub drivers: Vec<Option<String>>,
    /// One for each NIC.
    pub nics: Vec<NicState>,
    /// The way to each device and NIC.
    pub pci: Pci,
    /// From each NUMA node to all of them in their order, as the firmware says: 10 is the node itself.
    pub numa_distances: BTreeMap<u32, Vec<u32>>,
    /// What was left out, and why; sentences without a full stop.
    pub notes: Vec<String>,
}

/// Reads the tree at `root` (`/sys`) and the file `meminfo` (`/proc/meminfo`).
#[must_use]
pub fn read(root: &Path, meminfo: &Path) -> Sysfs {
    let mut notes = Vec::new();
    let (cpus, _) = CpuSet::read(&text(&root.join("devices/system/cpu/online")).unwrap_or_default());
    if cpus.is_empty() {
        notes.push("the kernel does not tell which CPUs are online".into());
    }
    let nodes = NumaNodes::read(root);
    let mut places = Vec::new();
    let mut found = Sysfs {
        machine: Machine {
            cpu_milli: cpus.count() * 1000,
            memory_bytes: memory_bytes(meminfo).unwrap_or(0),
            ..Machine::bare(Origin::Found)
        },
        vendors: Vec::new(),
        drivers: Vec::new(),
        nics: Vec::new(),
        pci: Pci::default(),
        numa_distances: nodes.distances,
        notes,
    };
    read_devices(root, nodes.only, &mut found, &mut places);
    nic::read(root, nodes.only, &mut found, &mut places);
    found.machine.links = pci::links(&places, nodes.only.is_some());
    shape::finish(&mut found.machine);
    found.pci.rate(&mut found.machine);
    found
}

/// Where a port hangs: PCI host bridge and the bridges below it, the function itself last.
struct Place {
    port: Port,
    path: Vec<Hop>,
    numa: Option<u32>,
}

fn read_devices(root: &Path, only_node: Option<u32>, found: &mut Sysfs, places: &mut Vec<Place>) {
    for folder in entries(&root.join("bus/pci/devices")) {
        let Some(vendor) = accelerator(&folder) else { continue };
        let address = name_of(&folder).to_ascii_lowercase();
        if is_virtual(&folder) {
            continue;
        }
        let memory_bytes =
            text(&folder.join("mem_info_vram_total")).and_then(|t| t.parse().ok()).unwrap_or(0);
        let is_display = class_is(&folder, &["0x0300"]);
        if vendor == Vendor::Amd && is_display && memory_bytes < AMD_MEMORY_BYTES_MIN {
            found
                .notes
                .push(format!("{address} is a display controller without much memory of its own: left out"));
            continue;
        }
        let index = found.machine.device_count();
        if index == DEVICES_PER_NODE_MAX {
            found.notes.push(format!(
                "more than {DEVICES_PER_NODE_MAX} devices: {address} and later ones are left out"
            ));
            return;
        }
        // NVIDIA's library tells its devices' own.
        if let Some(weakness) = weakness(&folder, true).filter(|_| vendor == Vendor::Amd) {
            found.notes.push(format!("{address} {weakness}"));
        }
        let numa = numa(&folder, only_node);
        let path = path_of(&folder);
        found.pci.add(address.clone(), path.clone());
        places.push(Place { port: Port::Device(index), path, numa });
        found.machine.devices.push(Device {
            name: format!("GPU{index}"),
            model: model(&folder, vendor),
            pci_address: Some(address),
            numa,
            memory_bytes,
            is_sliced: false,
        });
        found.vendors.push(vendor);
        found.drivers.push(driver(&folder));
    }
}

/// Display, 3D and processing accelerators of the vendors (PCI classes 03 and 12 00).
fn accelerator(folder: &Path) -> Option<Vendor> {
    let vendor = match text(&folder.join("vendor"))?.as_str() {
        "0x10de" => Vendor::Nvidia,
        "0x1002" => Vendor::Amd,
        _ => return None,
    };
    class_is(folder, &["0x03", "0x1200"]).then_some(vendor)
}

fn model(folder: &Path, vendor: Vendor) -> String {
    if let Some(name) = text(&folder.join("product_name")).filter(|n| !n.is_empty()) {
        return name;
    }
    let id = text(&folder.join("device")).unwrap_or_else(|| "unknown".into());
    let number = id.strip_prefix("0x").and_then(|hex| u16::from_str_radix(hex, 16).ok());
    let (word, number_of_vendor) = match vendor {
        Vendor::Nvidia => ("NVIDIA", 0x10de),
        Vendor::Amd => ("AMD", 0x1002),
    };
    let known = number.and_then(|number| product(number_of_vendor, number));
    known.map_or_else(|| format!("{word} {id}"), |product| product.name.to_owned())
}

fn driver(folder: &Path) -> Option<String> {
    std::fs::read_link(folder.join("driver")).ok().map(|target| name_of(&target))
}

/// `-1` is unknown, except where there is one node alone.
fn numa(folder: &Path, only_node: Option<u32>) -> Option<u32> {
    text(&folder.join("numa_node")).and_then(|t| t.parse::<u32>().ok()).or(only_node)
}

struct NumaNodes {
    /// The node that all CPUs are in, if there is one.
    only: Option<u32>,
    distances: BTreeMap<u32, Vec<u32>>,
}

impl NumaNodes {
    fn read(root: &Path) -> Self {
        let mut with_cpus = Vec::new();
        let mut distances = BTreeMap::new();
        for folder in entries(&root.join("devices/system/node")) {
            let name = name_of(&folder);
            let digits = name.strip_prefix("node").filter(|n| n.bytes().all(|c| c.is_ascii_digit()));
            let Some(number) = digits.and_then(|n| n.parse::<u32>().ok()) else { continue };
            // Nodes without CPUs are memory: of GPUs, or beyond a CXL link.
            if text(&folder.join("cpulist")).is_none_or(|cpus| !cpus.is_empty()) {
                with_cpus.push(number);
            }
            let row = text(&folder.join("distance")).unwrap_or_default();
            let row: Option<Vec<u32>> = row.split_whitespace().map(|n| n.parse().ok()).collect();
            if let Some(row) = row.filter(|row| !row.is_empty()) {
                distances.insert(number, row);
            }
        }
        let only = if let [only] = with_cpus.as_slice() { Some(*only) } else { None };
        Self { only, distances }
    }
}

/// `MemTotal:  263856328 kB`, in units of 1024 bytes.
fn memory_bytes(meminfo: &Path) -> Option<u64> {
    let text = text(meminfo)?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Paths in a folder, ascending by name; none when it cannot be read.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(found) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = found.take(ENTRIES_MAX).filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort_by_key(|path| name_of(path));
    paths
}

pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A file's text, trimmed; `None` when it cannot be read. Some attributes refuse while hardware is down.
pub(crate) fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}
