//! What NVIDIA's management library tells. It is opened at run time; a host without it is no trouble.
//!
//! [`read`] asks everything first and concludes afterwards; [`dump`] writes down the answers themselves, in a
//! form that a test can answer from again. [`vitals`] samples what changes while devices work.

mod answers;
mod ask;
mod links;
pub mod vitals;

use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError as Trouble;
use phalanx_model::{DEVICES_PER_NODE_MAX, Device, DeviceMask, Link};

use crate::check::{Finding, Severity};
use answers::{Answers, Fabric, Gpu, Pcie};
use links::Told;

/// The name that every driver package has; only development packages have `libnvidia-ml.so`.
pub const LIBRARY: &str = "libnvidia-ml.so.1";
/// MIG mode of nvml.h, `NVML_DEVICE_MIG_ENABLE`.
const MIG_ENABLED: u32 = 1;
/// `NVML_GPU_FABRIC_STATE_COMPLETED` of nvml.h; before it come "not started" and "in progress".
const FABRIC_COMPLETED: u32 = 3;
const FABRIC_NOT_SUPPORTED: u32 = 0;
/// The slowest of `nvmlPstates_t` at which a device is at work, and not resting.
const POWER_AT_WORK: u32 = 2;

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum NvmlError {
    /// Not an error for a host without NVIDIA devices.
    #[error("NVIDIA's library is not there: {0}")]
    Absent(String),
    #[error("NVIDIA's driver is not loaded; load it, or remove its library")]
    NoDriver,
    #[error("NVIDIA's library refuses: {0}")]
    Refused(String),
}

/// What the library told. `devices` and `uuids` have one entry per device, in the library's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// NUMA nodes as far as the library knows them; the kernel knows better.
    pub devices: Vec<Device>,
    /// Empty texts for devices that do not tell theirs.
    pub uuids: Vec<String>,
    /// Sorted, at most one per pair of devices, with what the link carries where the library tells.
    pub links: Vec<Link>,
    /// MIG devices, by device and placement.
    pub slices: Vec<Slice>,
    /// `<ClusterUUID>.<CliqueID>` of the NVLink domain that all devices belong to, where it reaches beyond this
    /// host.
    pub nvlink_domain: Option<String>,
    /// What is weak, and cannot be seen in the links.
    pub findings: Vec<Finding>,
    /// What could not be read, and why; sentences without a full stop.
    pub notes: Vec<String>,
}

/// One MIG device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Index of the device that it is a part of.
    pub device: u32,
    pub uuid: String,
    /// `1g.10gb`; empty when unknown.
    pub profile: String,
    /// Its first memory slice and how many it has; `None` without the privilege to ask.
    pub placement: Option<(u32, u32)>,
    /// 0 when unknown.
    pub memory_bytes: u64,
}

/// Reads all devices of this host. `library` is a path or name to open instead of [`LIBRARY`].
///
/// # Errors
/// [`NvmlError::Absent`] when there is no such library, the others when it does not work. A single device that
/// does not answer is a note.
pub fn read(library: Option<&Path>) -> Result<Found, NvmlError> {
    Ok(conclude(&answers(library)?))
}

/// What the library answers, as text: a description of this machine for tests and reports of faults. It holds
/// the UUIDs of devices and nothing else that tells one machine from its equals.
///
/// # Errors
/// As for [`read`].
pub fn dump(library: Option<&Path>) -> Result<String, NvmlError> {
    Ok(answers(library)?.to_string())
}

fn answers(library: Option<&Path>) -> Result<Answers, NvmlError> {
    let nvml = open(library.unwrap_or(Path::new(LIBRARY)))?;
    ask::everything(&nvml).map_err(|code| NvmlError::Refused(why(code)))
}

/// Starts the library.
fn open(library: &Path) -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path(library.as_os_str()).init().map_err(|error| match error {
        Trouble::LibloadingError(e) => NvmlError::Absent(e.to_string()),
        Trouble::LibraryNotFound => NvmlError::Absent(library.display().to_string()),
        Trouble::DriverNotLoaded => NvmlError::NoDriver,
        other => NvmlError::Refused(other.to_string()),
    })
}

fn conclude(answers: &Answers) -> Found {
    let mut found = Found::default();
    let mut told = Vec::new();
    for (index, answer) in (0..).zip(&answers.gpus) {
        match answer.as_ref().map_err(|code| *code).and_then(|gpu| Ok((gpu, describe(index, gpu)?))) {
            Ok((gpu, device)) => {
                found.uuids.push(gpu.uuid.clone().unwrap_or_default());
                found.devices.push(device);
                told.push((index, gpu));
            }
            Err(code) => {
                found.notes.push(format!("GPU{index} does not answer and is left out: {}", why(code)));
            }
        }
    }
    if answers.count > DEVICES_PER_NODE_MAX {
        let count = answers.count;
        found.notes.push(format!("{count} devices, of which the first {DEVICES_PER_NODE_MAX} are read"));
    }
    let told: Vec<Told<'_>> = told
        .into_iter()
        .zip(&found.devices)
        .map(|((index, gpu), device)| Told { index, name: &device.name, is_sliced: device.is_sliced, gpu })
        .collect();
    found.links = links::links(&told, &answers.pairs, &mut found.notes);
    found.slices = slices(&told);
    found.nvlink_domain = nvlink_domain(&told, &mut found.findings, &mut found.notes);
    weak_slots(&told, &mut found.findings, &mut found.notes);
    found
}

fn describe(index: u32, gpu: &Gpu) -> Result<Device, u32> {
    Ok(Device {
        name: format!("GPU{index}"),
        model: gpu.name.clone()?,
        pci_address: pci_address(&gpu.address),
        numa: gpu.numa_nodes.ok().filter(|nodes| nodes.is_power_of_two()).map(u64::trailing_zeros),
        // Devices that share the host's memory have none of their own to tell.
        memory_bytes: gpu.memory_bytes.unwrap_or(0),
        is_sliced: gpu.mig == Ok(MIG_ENABLED),
    })
}

/// `00000000:3B:00.0` of the library as the kernel writes it, `0000:3b:00.0`.
fn pci_address(text: &str) -> Option<String> {
    let (domain, rest) = text.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    Some(format!("{domain:04x}:{}", rest.to_ascii_lowercase()))
}

fn slices(told: &[Told<'_>]) -> Vec<Slice> {
    let mut found = Vec::new();
    for (device, told) in (0..).zip(told).filter(|(_, told)| told.is_sliced) {
        found.extend(told.gpu.slices.iter().map(|(_, slice)| {
            Slice {
                device,
                uuid: slice.uuid.clone().unwrap_or_default(),
                // The library names it `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
                profile: slice
                    .name
                    .as_deref()
                    .ok()
                    .and_then(|name| name.rsplit_once("MIG "))
                    .map_or_else(String::new, |(_, profile)| profile.trim().to_owned()),
                placement: slice.place.ok().map(|(_, start, size)| (start, size)),
                memory_bytes: slice.memory_mib.ok().and_then(|mib| mib.checked_mul(1 << 20)).unwrap_or(0),
            }
        }));
    }
    found.sort_by(|a, b| (a.device, a.placement, &a.uuid).cmp(&(b.device, b.placement, &b.uuid)));
    found
}

/// The domain of which all devices are, if they are of one. Boxes whose NVLink ends at their own switches
/// complete with a UUID of zeros.
fn nvlink_domain(told: &[Told<'_>], findings: &mut Vec<Finding>, notes: &mut Vec<String>) -> Option<String> {
    let mut domains: Vec<(String, &str)> = Vec::new();
    let mut outside = Vec::new();
    for (device, told) in (0..).zip(told) {
        let Ok(fabric) = &told.gpu.fabric else { continue };
        if let Some(what) = fabric_trouble(fabric) {
            findings.push(finding(Severity::Severe, device, format!("{} {what}", told.name)));
        }
        match domain_of(fabric) {
            Some(domain) => domains.push((domain, told.name)),
            None => outside.push(told.name),
        }
    }
    let (first, first_name) = domains.first()?;
    if let Some((other, name)) = domains.iter().find(|(domain, _)| domain != first) {
        notes.push(format!(
            "{first_name} is in the NVLink domain {first} and {name} in {other}: this host is taken for a part of neither"
        ));
        return None;
    }
    if let Some(name) = outside.first() {
        notes.push(format!("{name} is not in the NVLink domain {first} of the others"));
    }
    Some(first.clone())
}

fn domain_of(fabric: &Fabric) -> Option<String> {
    let is_in = fabric.state == FABRIC_COMPLETED && fabric.status == 0 && fabric.uuid != [0; 16];
    is_in.then(|| format!("{}.{}", fabric.cluster(), fabric.clique))
}

/// What keeps a device from its NVLink fabric, or makes it slow there.
fn fabric_trouble(fabric: &Fabric) -> Option<String> {
    // Two bits for each condition of `NVML_GPU_FABRIC_HEALTH_MASK_*`; 1 is "true".
    let is_so = |shift: u32| fabric.health >> shift & 0b11 == 1;
    match fabric.state {
        FABRIC_NOT_SUPPORTED => None,
        FABRIC_COMPLETED if fabric.status != 0 => {
            Some(format!("was refused by the NVLink fabric: {}", why(fabric.status)))
        }
        FABRIC_COMPLETED if is_so(0) => Some("has degraded bandwidth on the NVLink fabric".into()),
        FABRIC_COMPLETED if is_so(4) => Some("has an unhealthy route on the NVLink fabric".into()),
        FABRIC_COMPLETED if is_so(2) || is_so(6) => {
            Some("is on an NVLink fabric that recovers from a fault; jobs on it fail until it has".into())
        }
        FABRIC_COMPLETED if fabric.summary == 2 => Some("is unhealthy on the NVLink fabric".into()),
        FABRIC_COMPLETED => None,
        _ => Some("has not joined its NVLink fabric; is the fabric manager running".into()),
    }
}

/// Slots that give less than the device could take.
fn weak_slots(told: &[Told<'_>], findings: &mut Vec<Finding>, notes: &mut Vec<String>) {
    let mut resting = Vec::new();
    for (device, Told { name, gpu, .. }) in (0..).zip(told) {
        let Pcie { generation, generation_max, lanes, lanes_max } = &gpu.pcie;
        if let (Ok(lanes @ 1..), Ok(most)) = (lanes, lanes_max)
            && lanes < most
        {
            let what =
                format!("{name} has {lanes} of {most} PCIe lanes; seat it again, or look at its riser");
            findings.push(finding(Severity::Warning, device, what));
        }
        if let (Ok(generation @ 1..), Ok(most)) = (generation, generation_max)
            && generation < most
        {
            if gpu.power_state.is_ok_and(|state| state <= POWER_AT_WORK) {
                let what = format!("{name} runs PCIe generation {generation} of {most} though it is at work");
                findings.push(finding(Severity::Warning, device, what));
            } else {
                resting.push(*name);
            }
        }
    }
    if let Some(first) = resting.first() {
        let more = if resting.len() > 1 { format!(" and {} more", resting.len() - 1) } else { String::new() };
        notes.push(format!("{first}{more} run PCIe below its best generation, as resting devices do"));
    }
}

fn finding(severity: Severity, device: u32, what: String) -> Finding {
    Finding { severity, devices: DeviceMask::one(device), what, cost: None }
}

/// Errors of nvml.h that one may meet, in words.
fn why(code: u32) -> String {
    let what = match code {
        1 => "the library was not started",
        2 => "an argument is invalid",
        3 => "it is not supported",
        4 => "permission is denied",
        6 => "it is not found",
        8 => "a power cable is not connected",
        9 => "the driver is not loaded",
        10 => "it timed out",
        13 => "the library does not have the function",
        15 => "the GPU has fallen off the bus; reset it or restart the host",
        16 => "the GPU needs a reset",
        18 => "the driver and its library are of different versions; restart the host",
        23 => "the GPU has no memory left",
        _ => return format!("error {code} of nvml.h"),
    };
    what.to_owned()
}
