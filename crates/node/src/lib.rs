//! What runs on a GPU node: the shim that holds a rank, isolation, limits.
//!
//! Every rank has a *shim*: a small process of its own session that starts the rank, outlives the daemon,
//! and keeps the exit code until somebody asks. A daemon drives it through [`member`]; the shim itself is
//! [`shim::main`]; what the two say to each other is [`protocol`]; what holds the processes of a rank
//! together, and ends them together, is [`isolation`]. A rank that somebody sits at has a [`terminal`]. What else a
//! user may have run is [`confined`]. Faults of devices that the kernel log reports are [`kernel_log`].

pub mod confined;
pub mod file;
pub mod isolation;
pub mod kernel_log;
pub mod member;
pub mod output;
mod processes;
pub mod protocol;
mod ready;
pub mod shim;
mod sys;
pub mod telemetry;
pub mod terminal;

/// Discovery, for worlds that read machines.
pub use phalanx_discover as discover;

/// The program of a shim, by a path that leads to it for a rank of any user: wherever the program lies, and if a newer
/// version stands in its place.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

pub use isolation::{Isolation, Limits};
pub use member::{
    AdoptError, BesideError, Events, Found, Handle, HandleError, Inspected, IsolationChoice, MemberSpec,
    Orders, ReapError, Secret, SpawnError, SpecError, adopt, cpu_ms, inspect, reap, spawn, spec_of,
};
pub use processes::Process;
pub use protocol::{Command, ShimEvent};
pub use sys::set_up_background;
