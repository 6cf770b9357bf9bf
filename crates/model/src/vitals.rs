//! What a device says of itself at one moment: a sample of telemetry. Health is graded from samples; the engine sees
//! grades only.

use serde::{Deserialize, Serialize};

/// A sample of one device. `None`: the device, its driver or the user's rights do not give the value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vitals {
    /// The driver lost the device, or it is not there any more. Nothing else is known then.
    pub is_lost: bool,
    /// The share of the last sampling period in which a kernel ran.
    pub busy_percent: Option<u32>,
    pub memory_used_bytes: Option<u64>,
    pub temperature_c: Option<u32>,
    pub power_mw: Option<u32>,
    /// Since the driver was loaded.
    pub energy_mj: Option<u64>,
    pub sm_clock_mhz: Option<u32>,
    /// Why the clocks are not higher.
    pub throttle: Option<Throttle>,
    /// ECC errors since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    pub ecc_uncorrected: Option<u64>,
    /// Rows of memory that spare rows replace (Ampere and later).
    pub rows: Option<RemappedRows>,
    /// Pages wait for a reset until they are retired (before Ampere).
    pub is_retirement_pending: Option<bool>,
    /// Packets that PCIe sent again since the driver was loaded.
    pub pcie_replays: Option<u32>,
    /// The NVLinks of the device.
    pub links: Vec<LinkVitals>,
}

/// Reasons for lower clocks that hint at a fault. An idle device and a power limit are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    /// `HwSlowdown`: too hot, or the power supply asks for it; the clocks are half or less.
    pub is_hardware: bool,
    /// `HwThermalSlowdown`.
    pub is_hot: bool,
    /// `HwPowerBrakeSlowdown`: the power supply asks for it.
    pub is_power_brake: bool,
    /// `SwThermalSlowdown`: the driver keeps the device below its highest temperature.
    pub is_warm: bool,
}

/// NVIDIA's row remapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemappedRows {
    pub correctable: u32,
    pub uncorrectable: u32,
    /// A row waits for a reset of the device until it is replaced.
    pub is_pending: bool,
    /// A row could not be replaced: the device has to be returned.
    pub has_failed: bool,
}

/// One NVLink of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkVitals {
    pub number: u32,
    pub is_up: bool,
    /// Errors since the driver was loaded: packets sent again, recoveries of the link, and CRC errors of flits.
    pub replays: Option<u64>,
    pub recoveries: Option<u64>,
    pub crc_errors: Option<u64>,
}
