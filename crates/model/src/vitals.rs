//! What a device says of itself at one moment: a sample of telemetry. Health is graded from samples; the engine sees
//! grades only.

use serde::{Deserialize, Serialize};

/// A sample of one device. `None`: the device, its driver or the user's rights do not give the value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// NVIDIA's row remapping. `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemappedRows {
    pub correctable: Option<u32>,
    pub uncorrectable: Option<u32>,
    /// A row waits for a reset of the device until it is replaced.
    pub is_pending: Option<bool>,
    /// A row could not be replaced: the device has to be returned.
    pub has_failed: Option<bool>,
}

/// One NVLink of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkVitals {
    pub number: u32,
    pub is_up: bool,
    /// Errors since the driver was loaded: packets sent again, recoveries of the link, and CRC errors of flits.
    pub replays: Option<u64>,
    pub recoveries: Option<u64>,
    pub crc_errors: Option<u64>,
}

/// A sample of one network port of a node: of an InfiniBand or RoCE adapter, or of an Ethernet adapter. Counters begin when the
/// driver is loaded or a tool clears them. `None`: the kernel, the driver or the port does not give the value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortVitals {
    /// `mlx5_0:1`, the adapter and its port, or `ens1f0`.
    pub name: String,
    pub state: PortState,
    /// The rate that the link has now, one way. Unknown while it is down.
    pub bytes_per_s: Option<u64>,
    pub received_bytes: Option<u64>,
    pub sent_bytes: Option<u64>,
    /// How often the link went down.
    pub downed: Option<u64>,
    /// How often the link recovered by training again.
    pub recoveries: Option<u64>,
    /// Errors of the physical link.
    pub symbol_errors: Option<u64>,
    pub receive_errors: Option<u64>,
    /// Packets that the port did not send, because it was down or congested.
    pub send_discards: Option<u64>,
    /// Ticks in which the port had something to send, and the other end had no room: congestion.
    pub send_wait_ticks: Option<u64>,
    /// How often the adapter slowed down because a switch reported congestion (RoCE).
    pub congestion_notices: Option<u64>,
}

/// Whether a port carries traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PortState {
    Up,
    #[default]
    Down,
    /// Its adapter left the PCI bus.
    Gone,
}

impl PortState {
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Up)
    }

    /// The word users read.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Gone => "gone",
        }
    }
}

/// How much processes of a node wait for its resources. `None`: the kernel does not count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pressure {
    pub cpu: Option<Stalls>,
    pub memory: Option<Stalls>,
    pub io: Option<Stalls>,
}

impl Pressure {
    /// By the names of the kernel.
    #[must_use]
    pub const fn by_resource(&self) -> [(&'static str, Option<Stalls>); 3] {
        [("cpu", self.cpu), ("memory", self.memory), ("io", self.io)]
    }
}

/// How much of the time processes wait for one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stalls {
    /// At least one process waits.
    pub some: Stall,
    /// All processes that have something to do wait.
    pub full: Option<Stall>,
}

/// Shares of the last 10, 60 and 300 seconds, in hundredths of a percent, and the time since the node booted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stall {
    pub avg10_hundredths: u32,
    pub avg60_hundredths: u32,
    pub avg300_hundredths: u32,
    pub total_us: u64,
}
