//! What is served of the pressure on a machine.

use phalanx_model::{Stall, Stalls};

pub use phalanx_discover::pressure::read;

/// Where the kernel has it.
pub const FOLDER: &str = "/proc/pressure";

/// A time of one resource.
pub type StallTime = fn(&Stalls) -> Option<Stall>;

/// The name of each metric, its help, and of which time it is.
pub const PRESSURE_METRICS: [(&str, &str, StallTime); 2] = [
    (
        "pressure_some_seconds",
        "Time since the boot in which at least one process waited for the resource",
        |stalls| Some(stalls.some),
    ),
    (
        "pressure_full_seconds",
        "Time since the boot in which all processes with something to do waited for the resource",
        |stalls| stalls.full,
    ),
];

/// The value of a metric.
#[must_use]
pub fn seconds(stall: Stall) -> f64 {
    super::number(stall.total_us) / 1_000_000.0
}
