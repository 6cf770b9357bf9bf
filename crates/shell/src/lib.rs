//! The pump between the engine and a live world: its own thread, a bounded channel in, orders out.
//!
//! One turn: gather facts, write them to the journal, step, write the decisions, sync, and only then let the
//! orders leave. Nothing here decides: what has a timer, a retry or a queue is the engine's.

#![forbid(unsafe_code)]

mod ask;
mod clerk;
mod grade_gauge;
pub mod http;
pub mod log;
mod pump;
mod recover;
mod rotate;

pub use ask::{Handle, PumpError};
pub use clerk::Clerk;
pub use grade_gauge::GradeGauge;
pub use pump::{Metrics, Pump, World};
pub use recover::{Recovered, recover};

/// What a world needs of the rooms behind the shell.
pub use phalanx_cost as cost;
pub use phalanx_engine::{Config, Engine, Free, VERSION};
pub use phalanx_journal::{
    Allocate, Header, Journal, JournalError, cut_at_damage, retain, segment_state, segments, usable_segment,
};
pub use phalanx_sentences as sentences;

use std::time::{SystemTime, UNIX_EPOCH};

use phalanx_model::Timestamp;

/// Unix time in milliseconds: the epoch of live worlds.
#[must_use]
pub fn unix_now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
