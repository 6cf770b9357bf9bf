//! Samples of this machine's devices, by the numbers that they have here, of its network ports, and of the pressure on it.

mod amdgpu;
mod dcgm;
pub mod ports;
pub mod pressure;

use std::path::Path;

use phalanx_discover::nvml::NvmlError;
use phalanx_discover::nvml::vitals::Watch;
use phalanx_model::{DeviceMask, Vitals};

use amdgpu::AmdGpus;
use dcgm::Exporter;
pub use dcgm::{ExporterError, check_url};

/// Where the devices of a machine are.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// By device, as the kernel writes PCI addresses; `None`: unknown.
    pub addresses: Vec<Option<String>>,
    /// Devices that did not answer at the start.
    pub absent: DeviceMask,
}

impl Slots {
    /// The number of the device at an address.
    #[must_use]
    pub fn device(&self, address: &str) -> Option<u32> {
        let at = self.addresses.iter().position(|known| known.as_deref() == Some(address))?;
        u32::try_from(at).ok()
    }
}

/// A value of a sample, in the unit of its metric.
pub type Value = fn(&Vitals) -> Option<f64>;

/// What is served of each sample: the name of the metric, its help and its value. A device that does not give a value
/// has no series.
pub const METRICS: [(&str, &str, Value); 7] = [
    ("device_busy_ratio", "Share of the last sampling period in which a kernel ran", |v| {
        v.busy_percent.map(|percent| f64::from(percent) / 100.0)
    }),
    ("device_memory_used_bytes", "Memory in use on the device", |v| v.memory_used_bytes.map(number)),
    ("device_temperature_celsius", "Temperature of the device", |v| v.temperature_c.map(f64::from)),
    ("device_power_watts", "Power that the device draws", |v| v.power_mw.map(|mw| f64::from(mw) / 1_000.0)),
    ("device_energy_joules", "Energy since the driver was loaded", |v| {
        v.energy_mj.map(|mj| number(mj) / 1_000.0)
    }),
    ("device_ecc_uncorrected", "Uncorrected ECC errors since the driver was loaded", |v| {
        v.ecc_uncorrected.map(number)
    }),
    ("device_pcie_replays", "Packets that PCIe sent again since the driver was loaded", |v| {
        v.pcie_replays.map(f64::from)
    }),
];

/// What is said of a library and of a driver that were there.
const LIBRARY_SILENT: &str = "NVIDIA's library does not work now";
const AMD_SILENT: &str = "AMD's driver does not work now";

/// Exact up to 2^53, beyond which no sample comes.
#[allow(clippy::cast_precision_loss, reason = "metrics are doubles")]
const fn number(value: u64) -> f64 {
    value as f64
}

/// What samples the devices: NVIDIA's library or a DCGM exporter, and the files of AMD's driver.
#[derive(Debug)]
pub struct Telemetry {
    slots: Slots,
    nvidia: Nvidia,
    amd: AmdGpus,
    /// See [`Self::trouble`].
    trouble: Option<String>,
}

#[derive(Debug)]
enum Nvidia {
    Absent,
    Library(Box<Watch>),
    Exporter(Exporter),
}

impl Telemetry {
    /// `None`: a machine without NVIDIA's library and AMD's driver has nothing to miss.
    ///
    /// # Errors
    /// When the library is there and does not answer.
    pub fn open(slots: Slots) -> Result<Option<Self>, NvmlError> {
        let amd = AmdGpus::open(Path::new("/sys"), &slots);
        let nvidia = match Watch::open(None) {
            Ok(watch) => Nvidia::Library(Box::new(watch)),
            Err(NvmlError::Absent(_)) if amd.is_empty() => return Ok(None),
            Err(NvmlError::Absent(_)) => Nvidia::Absent,
            Err(error) => return Err(error),
        };
        Ok(Some(Self { slots, nvidia, amd, trouble: None }))
    }

    /// Samples of NVIDIA's devices come from the DCGM exporter at `url`. `uuids`: by device; empty where it is unknown.
    ///
    /// # Errors
    /// When the exporter cannot be used. One that does not answer can be: it may answer later.
    pub fn scrape(slots: Slots, url: &str, uuids: Vec<String>) -> Result<Self, ExporterError> {
        let amd = AmdGpus::open(Path::new("/sys"), &slots);
        let nvidia = Nvidia::Exporter(Exporter::new(url, uuids)?);
        Ok(Self { slots, nvidia, amd, trouble: None })
    }

    /// What is read, in words.
    #[must_use]
    pub fn sources(&self) -> String {
        let nvidia = match &self.nvidia {
            Nvidia::Absent => return "amdgpu".to_owned(),
            Nvidia::Library(_) => "NVML".to_owned(),
            Nvidia::Exporter(exporter) => format!("the DCGM exporter at {}", exporter.place()),
        };
        if self.amd.is_empty() { nvidia } else { format!("{nvidia} and amdgpu") }
    }

    /// Why the last sample does not have all devices, in words.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// A sample of each device. Blocks as long as the driver takes to answer. `None`: neither library, exporter nor driver works,
    /// which tells nothing of a device.
    pub fn sample(&mut self) -> Option<Vec<(u32, Vitals)>> {
        let sampled = match &mut self.nvidia {
            Nvidia::Absent => Ok(None),
            Nvidia::Library(watch) => {
                sample_nvidia(watch, &self.slots).map(Some).ok_or_else(|| LIBRARY_SILENT.to_owned())
            }
            Nvidia::Exporter(exporter) => exporter.sample().map(Some),
        };
        let (nvidia, trouble) = match sampled {
            Ok(found) => (found, None),
            Err(why) => (None, Some(why)),
        };
        let amd = self.amd.sample();
        let has_any = nvidia.is_some() || !amd.is_empty();
        self.trouble = if has_any { trouble } else { trouble.or_else(|| Some(AMD_SILENT.to_owned())) };
        has_any.then(|| nvidia.into_iter().flatten().chain(amd).collect())
    }
}

/// A device that did not answer at the start is asked for again. `None`: the library does not work.
fn sample_nvidia(watch: &mut Watch, slots: &Slots) -> Option<Vec<(u32, Vitals)>> {
    let is_known = |device: u32, watch: &Watch| {
        watch.addresses().iter().any(|address| slots.device(address) == Some(device))
    };
    if slots.absent.iter().any(|device| !is_known(device, watch))
        && let Ok(again) = Watch::open(None)
        && again.addresses().len() > watch.addresses().len()
    {
        *watch = again;
    }
    let sampled = watch.sample()?;
    let known = watch.addresses().iter().zip(sampled);
    let mut found: Vec<(u32, Vitals)> =
        known.filter_map(|(address, vitals)| Some((slots.device(address)?, vitals))).collect();
    for device in slots.absent.iter() {
        if !found.iter().any(|(of, _)| *of == device) {
            found.push((device, Vitals { is_lost: true, ..Vitals::default() }));
        }
    }
    Some(found)
}
