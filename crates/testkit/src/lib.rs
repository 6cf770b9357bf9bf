//! Building blocks of tests: builders of nodes, gangs and jobs, random clusters, a naive oracle of feasibility, and
//! an engine that the checker watches. For tests only: it panics freely.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests only")]

mod build;
mod gang;
mod job;
mod lives;
pub mod oracle;
mod queue;
mod random;
mod watched;

pub use build::{NodeBuilder, costs, levels, limited, limited_at, node};
pub use gang::{GangBuilder, gang};
pub use job::{JobBuilder, job};
pub use queue::{QueueBuilder, queue};
pub use random::{any_cluster, any_gang, any_gang_for, any_node};
pub use watched::Watched;

/// Re-exports for tests, so that a crate under test depends on this crate only.
pub use phalanx_checker as checker;
pub use phalanx_scenario as scenario;
pub use proptest;
