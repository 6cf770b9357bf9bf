//! Terminals of ranks. A *keeper* runs a command in a terminal (or between pipes) and lets clients attach to it.
//!
//! The keeper is a process of the job: it has the rank's user, limits and devices, and nobody else's rights. The bytes
//! go between it and the client over a Unix socket in a folder of the user; neither daemon nor shim sees them, and a
//! daemon that is restarted interrupts nothing. [`keeper::main`] is the keeper, [`client::attach`] the other end, and
//! [`frame`] what they say to each other.

pub mod client;
pub mod frame;
pub mod keeper;

pub use client::{AttachError, Outcome, Surroundings, attach};
pub use frame::{Frame, Size};
pub use keeper::{Ask, KeeperError, Life, Surface};
