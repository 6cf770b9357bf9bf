//! This host, from everything that it has to tell.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;

use phalanx_model::{DEVICES_PER_NODE_MAX, Device, Link, Machine, Port};

use crate::check::Finding;
use crate::kfd::{self, Kfd};
use crate::nvml::{self, NvmlError, Slice};
use crate::shape;
use crate::sysfs::{self, NicState, Sysfs, Vendor};

/// A machine, and what was left out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    pub machine: Machine,
    /// One for each device, or none at all; an empty text where a device does not tell.
    pub uuids: Vec<String>,
    /// MIG devices, by device and placement.
    pub slices: Vec<Slice>,
    /// `<ClusterUUID>.<CliqueID>` of the NVLink domain that this host is a part of, where it has a fabric that
    /// reaches beyond the host.
    pub nvlink_domain: Option<String>,
    /// One for each NIC of the machine.
    pub nics: Vec<NicState>,
    /// From each NUMA node to all of them in their order: 10 is the node itself.
    pub numa_distances: BTreeMap<u32, Vec<u32>>,
    /// What is weak and cannot be seen in the machine; [`crate::check`] finds the rest.
    pub findings: Vec<Finding>,
    /// Sentences without a full stop, for a person to read.
    pub notes: Vec<String>,
}

/// Reads this host. Never fails: without accelerators it is CPUs and memory and no devices. CPUs and memory are
/// what this process may use, which in a container is less than the machine has.
#[must_use]
pub fn discover() -> Discovered {
    let root = Path::new("/sys");
    let found = sysfs::read(root, Path::new("/proc/meminfo"));
    let mut discovered = merge(found, &kfd::read(root), nvml::read(None));
    let machine = &mut discovered.machine;
    let usable = std::thread::available_parallelism().map_or(1, NonZero::get) as u64 * 1000;
    if machine.cpu_milli == 0 || usable < machine.cpu_milli {
        if machine.cpu_milli > 0 {
            let (all, usable) = (machine.cpu_milli / 1000, usable / 1000);
            discovered.notes.push(format!("{usable} of {all} CPUs may be used here"));
        }
        machine.cpu_milli = usable;
    }
    // cgroup v2, as a container sees its own; `max` is no number.
    let limit = sysfs::text(&root.join("fs/cgroup/memory.max")).and_then(|t| t.parse::<u64>().ok());
    if let Some(limit) = limit.filter(|limit| *limit < machine.memory_bytes) {
        discovered
            .notes
            .push(format!("{limit} of {} bytes of memory may be used here", machine.memory_bytes));
        machine.memory_bytes = limit;
    }
    discovered
}

/// One machine from what the kernel, AMD's driver and NVIDIA's library told. NVIDIA's devices are those of the
/// library, in its order, because programs know them by it; the kernel adds their NUMA nodes and the way to the
/// NICs. AMD's devices are the kernel's, and those that its driver alone tells of.
#[must_use]
pub fn merge(found: Sysfs, amd: &Kfd, nvidia: Result<nvml::Found, NvmlError>) -> Discovered {
    let Sysfs { machine: kernel, vendors, drivers, nics, pci, numa_distances, mut notes } = found;
    let absent = matches!(nvidia, Err(NvmlError::Absent(_)));
    let nvidia = match nvidia {
        Ok(found) => found,
        Err(NvmlError::Absent(_)) => nvml::Found::default(),
        Err(error) => {
            notes.push(error.to_string());
            nvml::Found::default()
        }
    };
    notes.extend(nvidia.notes);
    notes.extend(amd.notes.iter().cloned());
    let mut devices = nvidia.devices;
    // Where each of the kernel's devices went.
    let mut new_index: Vec<Option<u32>> = Vec::with_capacity(kernel.devices.len());
    for ((device, vendor), driver) in kernel.devices.iter().zip(&vendors).zip(&drivers) {
        let known = position(&devices, device.pci_address.as_ref());
        if let Some(known) = known.and_then(|at| devices.get_mut(at)) {
            known.numa = device.numa.or(known.numa);
        }
        let at = known.or_else(|| {
            let why =
                why_left_out(*vendor, driver.as_deref(), absent).or_else(|| hidden(*vendor, device, amd));
            let address = device.pci_address.as_deref().unwrap_or_default();
            match why {
                Some(why) => notes.push(format!("{} at {address} is left out: {why}", device.model)),
                None => devices.push(Device { name: format!("GPU{}", devices.len()), ..device.clone() }),
            }
            why.is_none().then(|| devices.len() - 1)
        });
        new_index.push(at.and_then(|at| u32::try_from(at).ok()));
    }
    let amd_index = add_amd(&mut devices, amd);
    devices.truncate(DEVICES_PER_NODE_MAX as usize);
    // Groups of the kernel's devices are by their old numbers.
    let mut machine = Machine { devices, groups: Vec::new(), ..kernel };
    let port = |port: Port| match port {
        Port::Device(i) => new_index.get(i as usize).copied().flatten().map(Port::Device),
        nic @ Port::Nic(_) => Some(nic),
    };
    let of_kernel: Vec<Link> = machine
        .links
        .iter()
        .filter_map(|l| {
            let (a, b) = (port(l.a)?, port(l.b)?);
            Some(Link { a: a.min(b), b: a.max(b), ..*l })
        })
        .collect();
    machine.links = join(of_kernel, &nvidia.links, &links_of_amd(amd, &amd_index));
    shape::finish(&mut machine);
    pci.rate(&mut machine);
    Discovered {
        uuids: uuids(nvidia.uuids, amd, &amd_index, machine.devices.len()),
        slices: nvidia.slices,
        nvlink_domain: nvidia.nvlink_domain,
        nics,
        numa_distances,
        findings: nvidia.findings,
        notes,
        machine,
    }
}

/// The vendors know their fabrics, and NVIDIA's library what `nvidia-smi` shows; the kernel knows best what PCIe
/// carries.
fn join(of_kernel: Vec<Link>, of_nvidia: &[Link], of_amd: &[Link]) -> Vec<Link> {
    let ends = |l: &Link| (l.a, l.b);
    let mut all: BTreeMap<(Port, Port), Link> = BTreeMap::new();
    for link in of_kernel {
        all.insert(ends(&link), link);
    }
    for link in of_nvidia {
        let mut link = *link;
        if let Some(known) =
            all.get(&ends(&link)).filter(|k| k.nominal_mb_per_s > 0 && !shape::is_fabric(link.kind))
        {
            link.nominal_mb_per_s = known.nominal_mb_per_s;
        }
        all.insert(ends(&link), link);
    }
    for link in of_amd {
        if shape::is_fabric(link.kind) || !all.contains_key(&ends(link)) {
            all.insert(ends(link), *link);
        }
    }
    all.into_values().collect()
}

fn position(devices: &[Device], address: Option<&String>) -> Option<usize> {
    devices.iter().position(|d| d.pci_address.is_some() && d.pci_address.as_ref() == address)
}

/// Lays what AMD's driver tells over the devices, and adds those that the kernel's PCI tree does not have, as in
/// a container with a part of it. Gives where each went.
fn add_amd(devices: &mut Vec<Device>, amd: &Kfd) -> Vec<Option<u32>> {
    let mut places = Vec::with_capacity(amd.gpus.len());
    for gpu in &amd.gpus {
        let at = position(devices, Some(&gpu.pci_address));
        let at = at.unwrap_or_else(|| {
            devices.push(Device {
                name: format!("GPU{}", devices.len()),
                model: format!("AMD {}", gpu.target).trim().to_owned(),
                pci_address: Some(gpu.pci_address.clone()),
                ..Device::default()
            });
            devices.len() - 1
        });
        if let Some(device) = devices.get_mut(at) {
            device.numa = device.numa.or(gpu.numa);
            if device.memory_bytes == 0 {
                device.memory_bytes = gpu.memory_bytes;
            }
        }
        places.push(u32::try_from(at).ok());
    }
    places
}

fn links_of_amd(amd: &Kfd, places: &[Option<u32>]) -> Vec<Link> {
    let place = |gpu: usize| places.get(gpu).copied().flatten();
    let links = amd.links.iter().filter_map(|link| {
        let (a, b) = (place(link.a)?, place(link.b)?);
        let (a, b) = (Port::Device(a.min(b)), Port::Device(a.max(b)));
        Some(Link { nominal_mb_per_s: link.mb_per_s, ..Link::new(a, b, link.kind) })
    });
    links.collect()
}

/// As the vendors' tools name devices: `GPU-` and a UUID, or `GPU-` and 16 hex digits.
fn uuids(mut uuids: Vec<String>, amd: &Kfd, places: &[Option<u32>], devices: usize) -> Vec<String> {
    let told = amd.gpus.iter().zip(places).filter(|(gpu, _)| !gpu.unique_id.is_empty());
    let told: Vec<(usize, String)> = told
        .filter_map(|(gpu, place)| Some(((*place)? as usize, format!("GPU-{}", gpu.unique_id))))
        .collect();
    if !uuids.is_empty() || !told.is_empty() {
        uuids.resize(devices, String::new());
    }
    for (at, id) in told {
        if let Some(slot) = uuids.get_mut(at) {
            *slot = id;
        }
    }
    uuids
}

/// A device of the kernel that AMD's driver does not show here, though it shows others or hides some.
fn hidden(vendor: Vendor, device: &Device, amd: &Kfd) -> Option<&'static str> {
    let answers = !amd.gpus.is_empty() || amd.hidden > 0;
    let is_shown = amd.gpus.iter().any(|gpu| Some(&gpu.pci_address) == device.pci_address.as_ref());
    (vendor == Vendor::Amd && answers && !is_shown).then_some("AMD's driver does not show it to this process")
}

/// Devices that no job could use.
fn why_left_out(vendor: Vendor, driver: Option<&str>, library_is_absent: bool) -> Option<&'static str> {
    match (vendor, driver) {
        (_, Some("vfio-pci")) => Some("it is passed through to a virtual machine"),
        (Vendor::Nvidia, Some("nouveau")) => Some("the nouveau driver runs no CUDA"),
        (Vendor::Nvidia, Some(_)) if cfg!(target_feature = "crt-static") => Some(
            "this program is linked statically and cannot load NVIDIA's library; install the Debian package",
        ),
        (Vendor::Nvidia, Some(_)) if library_is_absent => {
            Some("libnvidia-ml.so.1 is not there; install it with the driver")
        }
        (Vendor::Nvidia, _) => Some("NVIDIA's driver does not answer for it"),
        (Vendor::Amd, Some("amdgpu")) => None,
        (Vendor::Amd, _) => Some("the amdgpu driver is not loaded for it"),
    }
}
