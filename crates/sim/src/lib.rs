//! A world made of events.
//!
//! [`World`] takes orders and answers with facts after delays drawn from a seed, loses and repeats them as its
//! [`Faults`] say, and has the checker look at every step. [`run_scenario`] runs a scenario in it where nothing
//! goes wrong; [`swarm`] runs random work on a random cluster through random faults, then heals everything and
//! waits for all work to end. There is no clock or thread here, and no file but those that a [`command`] names: a seed is
//! the whole input.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

pub mod ahead;
pub mod cluster;
#[allow(clippy::float_arithmetic, reason = "work of a replay is a real number")]
pub mod command;
mod failure;
mod faults;
#[allow(
    clippy::float_arithmetic,
    reason = "requests are a real number; + - x / alone, so that every platform agrees"
)]
pub mod fleet;
mod members;
#[allow(
    clippy::float_arithmetic,
    reason = "work is a real number; + - x / alone, so that every platform agrees"
)]
pub mod policies;
#[allow(
    clippy::float_arithmetic,
    reason = "work is a real number; + - x / alone, so that every platform agrees"
)]
pub mod replay;
#[allow(
    clippy::float_arithmetic,
    reason = "figures for people; + - x / alone, so that every platform agrees"
)]
pub mod report;
mod rng;
mod scene;
#[allow(
    clippy::float_arithmetic,
    clippy::cast_precision_loss,
    reason = "figures for people; + - x / alone, so that every platform agrees"
)]
pub mod studies;
mod swarm;
pub mod trace;
mod world;

pub use failure::{Failure, FailureKind};
pub use faults::Faults;
pub use rng::Rng;
pub use scene::run_scenario;
pub use swarm::{
    CASE_BYTES_MAX, Case, CaseError, Conditions, Operation, Parameters, SwarmReport, crowded_swarm,
    plain_swarm, recorded_swarm, shrink, swarm,
};
pub use world::World;
