//! One scheduling cycle: the order in which pending gangs are considered, the gangs that start, the gangs that have a
//! placement reserved, and the running gangs that are preempted for them.

#![allow(
    clippy::cast_possible_truncation,
    reason = "nodes, domains, levels and classes: far fewer than 2^32"
)]

mod apart;
mod calendar;
mod candidates;
mod defragment;
mod draft;
mod earliest_start;
mod elastic;
mod facts;
mod far;
mod heads;
mod joint_placement;
mod no_room;
mod preempt;
mod reservation;
mod reserve;
mod retry;
mod run;
mod windows;

pub(crate) use calendar::{Closed, Stay, Windows};
pub(crate) use defragment::{Rules, defragment};
pub(crate) use draft::{Draft, Freed};
pub(crate) use facts::{Facts, request_key};
pub(crate) use preempt::Spent;
pub(crate) use reservation::{Reservation, Reservations, add_reserved};
pub(crate) use retry::COUNTED_MAX;
pub(crate) use run::{Hints, Planned, plan};

/// How often a kill is repeated while processes still linger (uninterruptible sleep), and how long a gang that lost
/// hardware keeps the places of its healthy members after the kill. A reservation waits for killed processes so long, too.
pub(crate) const KILL_AGAIN_MS: u64 = 10_000;

/// The settings of a cycle that an operator may tune.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How often later gangs may take capacity that an earlier pending gang could use, before that gang has to start
    /// first.
    pub bypass_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { bypass_max: 16 }
    }
}
