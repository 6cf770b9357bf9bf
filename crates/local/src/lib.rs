//! The one-machine world: real processes, logs, history, and adoption after a restart.
//!
//! `phalanx up` is control plane and agent in one process. The journal is the truth; SQLite is what people
//! query; a small shim per rank outlives the daemon.

#![forbid(unsafe_code)]

mod access;
mod account;
mod api;
mod audit;
mod budgets;
mod checkpoints;
mod clock;
mod cluster;
pub mod daemon;
pub mod daemon_log;
mod dcgm;
pub mod doctor;
mod endpoints;
mod env;
mod feed;
mod hands;
mod health;
pub mod history;
mod launch;
pub mod limits;
mod logs;
pub mod losses;
mod metrics;
mod notify;
mod off_cluster;
mod orphans;
mod outsiders;
mod paths;
pub mod preflight;
mod preview;
mod progress;
pub mod queues;
mod rank_file;
mod reclaim;
mod record;
mod server;
mod sessions;
mod share;
mod simulator;
mod single_flight;
mod spot;
mod terminal;
mod threads;
mod unfit;
mod upkeep;
mod usage;
mod used;
mod user;
mod verbs;
mod world;

pub use cluster::{ClusterError, constants};
pub use notify::post;
pub use paths::Paths;
pub use preview::preview;
pub use terminal::RANK as RANK_TERMINAL;
pub use unfit::unfit;
