//! Telemetry of NVIDIA's devices, sampled again and again.

use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use phalanx_model::Vitals;

use super::ask::vitals::{Sampled, bus_ids, sample, stays_loaded};
use super::{LIBRARY, NvmlError, open, pci_address, why};

/// Samples of all devices.
///
/// While the library is open, the driver counts this process as a client: the driver cannot be unloaded, nor a
/// device be reset. So the library is closed between samples where the driver stays loaded without it (persistence
/// mode, which `nvidia-persistenced` sets). Elsewhere the last client that leaves unloads the driver's state of a device,
/// and to open it again takes seconds: there the library stays open, and [`Watch::close`] closes it until the next sample.
#[derive(Debug)]
pub struct Watch {
    library: PathBuf,
    /// `None` after the library failed as a whole, and after [`Watch::close`].
    nvml: Option<Nvml>,
    /// Addresses as the library writes them. A device keeps its address when the library numbers devices differently,
    /// because one is lost or the driver was loaded again.
    bus_ids: Vec<String>,
    /// The same addresses as the kernel writes them.
    addresses: Vec<String>,
}

impl Watch {
    /// Opens the library, and remembers the devices that answer now. `library` is a path or name to open instead of
    /// [`LIBRARY`].
    ///
    /// # Errors
    /// As for [`super::read`].
    pub fn open(library: Option<&Path>) -> Result<Self, NvmlError> {
        let library = library.unwrap_or(Path::new(LIBRARY)).to_path_buf();
        let nvml = open(&library)?;
        let bus_ids = bus_ids(&nvml).map_err(|code| NvmlError::Refused(why(code)))?;
        let addresses = bus_ids
            .iter()
            .map(|bus_id| pci_address(bus_id).unwrap_or_else(|| bus_id.to_ascii_lowercase()))
            .collect();
        Ok(Self { library, nvml: Some(nvml), bus_ids, addresses })
    }

    /// PCI addresses as the kernel writes them, in the order of the samples. They do not change after
    /// [`Watch::open`].
    #[must_use]
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// One sample of every device, in the order that [`super::read`] had when this was opened. `None` if
    /// the library does not work as a whole, because the driver was unloaded or replaced, or a container may not use it: that
    /// tells nothing of a device. The next sample opens the library again.
    ///
    /// Blocks as long as the driver takes to answer, which a driver in trouble can stretch to seconds.
    pub fn sample(&mut self) -> Option<Vec<Vitals>> {
        let sampled = self.sample_all();
        if sampled.is_none() || self.nvml.as_ref().is_some_and(|nvml| stays_loaded(nvml, &self.bus_ids)) {
            self.close();
        }
        sampled
    }

    /// Closes the library until the next sample, so that an operator can reset a device or unload the driver.
    pub fn close(&mut self) {
        self.nvml = None;
    }

    /// `None` if the library does not work.
    fn sample_all(&mut self) -> Option<Vec<Vitals>> {
        if self.nvml.is_none() {
            self.nvml = open(&self.library).ok();
        }
        let nvml = self.nvml.as_ref()?;
        self.bus_ids
            .iter()
            .map(|bus_id| match sample(nvml, bus_id) {
                Sampled::Vitals(vitals) => Some(vitals),
                Sampled::Lost => Some(lost()),
                Sampled::LibraryGone => None,
            })
            .collect()
    }
}

fn lost() -> Vitals {
    Vitals { is_lost: true, ..Vitals::default() }
}
