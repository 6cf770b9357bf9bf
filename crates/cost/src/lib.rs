//! How long communication takes on a placement.
//!
//! [`compile`] turns machines into the integer tables that enter the engine; [`predict`] says what one step of
//! a job costs on a placement and what holds it back; [`baseline`] is the placement of a scheduler that sees
//! devices as a count. All of it is integer arithmetic, so every platform agrees to the last digit.
//!
//! Units: bandwidths are one way, in MB/s (10^6 bytes) in tables and bytes/s in predictions; times are in ns.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

pub mod baseline;
mod link;
mod predict;
mod ring;
mod show;
mod table;

pub use link::{NIC_MB_PER_S, SOCKET_MB_PER_S};
pub use predict::{Bottleneck, CostError, Crossings, Input, Prediction, predict};
pub use ring::{Fabric, Ring, best_ring};
pub use table::{compile, shape_cost};

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod predict_tests;
