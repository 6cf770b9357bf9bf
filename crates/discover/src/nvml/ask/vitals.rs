//! The calls of one telemetry sample.

use std::cell::Cell;
use std::ffi::CString;

use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings as sys;
use phalanx_model::{DEVICES_PER_NODE_MAX, LinkVitals, RemappedRows, Throttle, Vitals};
use sys::{NvmlLib, field_id, nvmlDevice_t};

use super::{
    Answer, FUNCTION_NOT_FOUND, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, NVLINKS_MAX, NumberOf, Plain,
    TEXT, ask, ask_text, link_field, memory, mig_mode, null, text,
};

/// `NVML_ERROR_*` of nvml.h.
const UNINITIALIZED: u32 = 1;
const INSUFFICIENT_POWER: u32 = 8;
const DRIVER_NOT_LOADED: u32 = 9;
const IRQ_ISSUE: u32 = 11;
const GPU_IS_LOST: u32 = 15;
const RESET_REQUIRED: u32 = 16;
const LIB_RM_VERSION_MISMATCH: u32 = 18;
const GPU_NOT_FOUND: u32 = 28;
const UNKNOWN: u32 = 999;
/// `NVML_DEVICE_MIG_ENABLE` of nvml.h.
const MIG_ENABLED: u32 = 1;
/// `NVML_FEATURE_ENABLED` of nvml.h.
const ENABLED: u32 = 1;

/// What became of the attempt to sample one device.
#[derive(Debug)]
pub(in crate::nvml) enum Sampled {
    Vitals(Vitals),
    /// The driver lost the device.
    Lost,
    /// The library has to be opened again before any device can be sampled.
    LibraryGone,
}

/// The addresses of all devices that answer, as the library writes them, in its order. A device answers by the same
/// rule as for [`super::everything`]: it gives its address and its name.
pub(in crate::nvml) fn bus_ids(nvml: &Nvml) -> Answer<Vec<String>> {
    let lib = nvml.lib();
    let count = ask(&lib.nvmlDeviceGetCount_v2, 0, |f, to| unsafe { f(to) })?;
    let bus_id = |index| {
        let handle = ask(&lib.nvmlDeviceGetHandleByIndex_v2, null(), |f, to| unsafe { f(index, to) })?;
        let pci = ask(&lib.nvmlDeviceGetPciInfo_v3, sys::nvmlPciInfo_t::zeroed(), |f, to| unsafe {
            f(handle, to)
        })?;
        ask_text(&lib.nvmlDeviceGetName, |f, to| unsafe { f(handle, to, TEXT) })?;
        Ok(text(&pci.busId))
    };
    Ok((0..count.min(DEVICES_PER_NODE_MAX)).map(bus_id).filter_map(Answer::ok).collect())
}

/// Whether the driver keeps its state of these devices while no process has the library open (persistence mode).
pub(in crate::nvml) fn stays_loaded(nvml: &Nvml, bus_ids: &[String]) -> bool {
    let lib = nvml.lib();
    let is_persistent = |bus_id: &String| {
        let bus_id = CString::new(bus_id.as_str()).map_err(|_| NOT_FOUND)?;
        let handle =
            ask(&lib.nvmlDeviceGetHandleByPciBusId_v2, null(), |f, to| unsafe { f(bus_id.as_ptr(), to) })?;
        ask(&lib.nvmlDeviceGetPersistenceMode, 0, |f, to| unsafe { f(handle, to) })
    };
    // A device that does not answer says nothing of the others.
    let mut known = bus_ids.iter().filter_map(|bus_id| is_persistent(bus_id).ok()).peekable();
    known.peek().is_some() && known.all(|mode| mode == ENABLED)
}

/// Samples the device at this address.
pub(in crate::nvml) fn sample(nvml: &Nvml, bus_id: &str) -> Sampled {
    let lib = nvml.lib();
    let handle = CString::new(bus_id).map_err(|_| NOT_FOUND).and_then(|bus_id| {
        ask(&lib.nvmlDeviceGetHandleByPciBusId_v2, null(), |f, to| unsafe { f(bus_id.as_ptr(), to) })
    });
    match handle {
        Err(code) if is_library_gone(code) => Sampled::LibraryGone,
        Err(code) if is_device_lost(code) => Sampled::Lost,
        // Such as too little memory or a missing permission: these say nothing about the device.
        Err(_) => Sampled::Vitals(Vitals::default()),
        Ok(handle) => Asker { lib, handle, is_lost: Cell::default(), is_gone: Cell::default() }.sample(),
    }
}

const fn is_library_gone(code: u32) -> bool {
    matches!(code, UNINITIALIZED | DRIVER_NOT_LOADED | LIB_RM_VERSION_MISMATCH)
}

/// Errors of the search for a device that answered before.
const fn is_device_lost(code: u32) -> bool {
    matches!(
        code,
        GPU_IS_LOST
            | INVALID_ARGUMENT
            | NOT_FOUND
            | GPU_NOT_FOUND
            | INSUFFICIENT_POWER
            | IRQ_ISSUE
            | RESET_REQUIRED
            | UNKNOWN
    )
}

/// Asks one device, and remembers errors that say more than that one value is missing.
struct Asker<'a> {
    lib: &'a NvmlLib,
    handle: nvmlDevice_t,
    is_lost: Cell<bool>,
    is_gone: Cell<bool>,
}

type Number64Of = unsafe extern "C" fn(nvmlDevice_t, *mut u64) -> u32;

impl Asker<'_> {
    fn sample(&self) -> Sampled {
        let Self { lib, handle, .. } = *self;
        let is_sliced = self.value(mig_mode(lib, handle)) == Some(MIG_ENABLED);
        let utilisation =
            ask(&lib.nvmlDeviceGetUtilizationRates, sys::nvmlUtilization_t::zeroed(), |f, to| unsafe {
                f(handle, to)
            });
        let retirement =
            ask(&lib.nvmlDeviceGetRetiredPagesPendingStatus, 0, |f, to| unsafe { f(handle, to) });
        let temperature = ask(&lib.nvmlDeviceGetTemperature, 0, |f, to| unsafe {
            f(handle, sys::nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU, to)
        });
        let sm_clock = ask(&lib.nvmlDeviceGetClockInfo, 0, |f, to| unsafe {
            f(handle, sys::nvmlClockType_enum_NVML_CLOCK_SM, to)
        });
        let vitals = Vitals {
            is_lost: false,
            // The library does not know the utilisation of a device in MIG mode.
            busy_percent: self.value(utilisation).filter(|_| !is_sliced).map(|rates| rates.gpu),
            memory_used_bytes: self.value(memory(lib, handle)).map(|memory| memory.used),
            temperature_c: self.value(temperature),
            power_mw: self.number(&lib.nvmlDeviceGetPowerUsage),
            energy_mj: self.number_64(&lib.nvmlDeviceGetTotalEnergyConsumption),
            sm_clock_mhz: self.value(sm_clock),
            throttle: self.throttle(),
            ecc_corrected: self.ecc_errors(sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrected: self
                .ecc_errors(sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            rows: self.rows(),
            is_retirement_pending: self.value(retirement).map(|state| state == ENABLED),
            pcie_replays: self.number(&lib.nvmlDeviceGetPcieReplayCounter),
            // A device in MIG mode has no NVLink, whatever its links say.
            links: if is_sliced { Vec::new() } else { self.links() },
        };
        if self.is_gone.get() {
            Sampled::LibraryGone
        } else if self.is_lost.get() {
            Sampled::Lost
        } else {
            Sampled::Vitals(vitals)
        }
    }

    fn value<T>(&self, answer: Answer<T>) -> Option<T> {
        if let Err(code) = answer {
            self.is_lost.set(self.is_lost.get() || code == GPU_IS_LOST);
            self.is_gone.set(self.is_gone.get() || is_library_gone(code));
        }
        answer.ok()
    }

    fn number<E>(&self, symbol: &Result<NumberOf, E>) -> Option<u32> {
        self.value(ask(symbol, 0, |f, to| unsafe { f(self.handle, to) }))
    }

    fn number_64<E>(&self, symbol: &Result<Number64Of, E>) -> Option<u64> {
        self.value(ask(symbol, 0, |f, to| unsafe { f(self.handle, to) }))
    }

    fn throttle(&self) -> Option<Throttle> {
        // Drivers before 535 have the call by its older name alone.
        let reasons = if self.lib.nvmlDeviceGetCurrentClocksEventReasons.is_ok() {
            self.number_64(&self.lib.nvmlDeviceGetCurrentClocksEventReasons)
        } else {
            self.number_64(&self.lib.nvmlDeviceGetCurrentClocksThrottleReasons)
        };
        let reasons = reasons?;
        let has = |reason: u32| reasons & u64::from(reason) != 0;
        Some(Throttle {
            is_hardware: has(sys::nvmlClocksThrottleReasonHwSlowdown),
            is_hot: has(sys::nvmlClocksThrottleReasonHwThermalSlowdown),
            is_power_brake: has(sys::nvmlClocksThrottleReasonHwPowerBrakeSlowdown),
            is_warm: has(sys::nvmlClocksEventReasonSwThermalSlowdown),
        })
    }

    fn ecc_errors(&self, kind: u32) -> Option<u64> {
        let since_load = sys::nvmlEccCounterType_enum_NVML_VOLATILE_ECC;
        self.value(ask(&self.lib.nvmlDeviceGetTotalEccErrors, 0, |f, to| unsafe {
            f(self.handle, kind, since_load, to)
        }))
    }

    fn rows(&self) -> Option<RemappedRows> {
        let (mut uncorrectable, mut is_pending, mut has_failed) = (0, 0, 0);
        let correctable = self.value(ask(&self.lib.nvmlDeviceGetRemappedRows, 0, |f, to| unsafe {
            f(self.handle, to, &raw mut uncorrectable, &raw mut is_pending, &raw mut has_failed)
        }))?;
        Some(RemappedRows {
            correctable: Some(correctable),
            uncorrectable: Some(uncorrectable),
            is_pending: Some(is_pending != 0),
            has_failed: Some(has_failed != 0),
        })
    }

    /// Links that exist and tell whether they are up.
    fn links(&self) -> Vec<LinkVitals> {
        let Self { lib, handle, .. } = *self;
        let mut found = Vec::new();
        for number in 0..NVLINKS_MAX {
            // A driver that lost the device may take long over each further call.
            if self.is_lost.get() || self.is_gone.get() {
                break;
            }
            let is_up = ask(&lib.nvmlDeviceGetNvLinkState, 0, |f, to| unsafe { f(handle, number, to) });
            match is_up {
                Err(INVALID_ARGUMENT | FUNCTION_NOT_FOUND) => break,
                Err(NOT_SUPPORTED) => continue,
                _ => {}
            }
            let Some(is_up) = self.value(is_up) else { continue };
            found.push(LinkVitals {
                number,
                is_up: is_up == ENABLED,
                replays: self.link_errors(
                    number,
                    sys::nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_REPLAY,
                    field_id::NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY,
                ),
                recoveries: self.link_errors(
                    number,
                    sys::nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_RECOVERY,
                    field_id::NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
                ),
                crc_errors: self.link_errors(
                    number,
                    sys::nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_CRC_FLIT,
                    field_id::NVML_FI_DEV_NVLINK_ERROR_DL_CRC,
                ),
            });
        }
        found
    }

    /// By the call for error counters, or else by the field, which later devices know instead.
    fn link_errors(&self, link: u32, counter: u32, field: u32) -> Option<u64> {
        let counted = ask(&self.lib.nvmlDeviceGetNvLinkErrorCounter, 0, |f, to| unsafe {
            f(self.handle, link, counter, to)
        });
        let counted = match counted {
            Err(NOT_SUPPORTED | FUNCTION_NOT_FOUND | INVALID_ARGUMENT) => {
                link_field(self.lib, self.handle, link, field)
            }
            counted => counted,
        };
        self.value(counted)
    }
}
