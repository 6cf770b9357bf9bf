//! How long communication takes on a placement.
//!
//! [`compile`] turns machines into the integer tables that enter the engine; [`predict`] says what one step of
//! a job costs on a placement and what holds it back; [`baseline`] is the placement of a scheduler that sees
//! devices as a count. Beneath stands a model of collectives that is calibrated on measurements:
//! [`Compiled`] holds a topology, [`Span`] what lies between some ranks of it, [`collective`] the equations,
//! [`step`] what a training step makes of them, [`calibrate`] the fit. `docs/cost-model.md` tells its errors.
//!
//! Arithmetic is + - x / and square root on integers and `f64`, so every platform agrees to the last digit.
//!
//! Units: bandwidths are one way, in MB/s (10^6 bytes) in tables and bytes/s in predictions; times are in ns.

#![forbid(unsafe_code)]

pub mod baseline;
pub mod calibrate;
pub mod collective;
pub mod compiled;
mod constants;
mod kinds;
mod link;
pub mod measurements;
pub mod path;
mod predict;
mod ring;
mod shape;
mod show;
mod span;
pub mod step;
mod sweep;
mod table;
pub mod torus;

pub use calibrate::calibrate;
pub use collective::{Algorithm, Collective, Limit, Protocol, Time};
pub use compiled::{Compiled, Estimate, Rank, Scratch};
pub use constants::{Constants, Network, NetworkClass, Networks, PerProtocol};
pub use kinds::{Kinds, MachineKind, OfKind};
pub use link::{NIC_MB_PER_S, SOCKET_MB_PER_S};
pub use path::{Path, PathClass, path};
pub use predict::{Bottleneck, CostError, Crossings, Input, Prediction, predict};
pub use ring::{Fabric, Ring, best_ring};
pub use span::{Era, Inner, Span};
pub use sweep::{Ground, Point, sweep};
pub use table::{compile, shape_cost};

#[cfg(test)]
mod collective_tests;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod islands_tests;
#[cfg(test)]
mod measurements_tests;
#[cfg(test)]
mod predict_tests;
#[cfg(test)]
mod sharing_tests;
#[cfg(test)]
mod step_tests;
