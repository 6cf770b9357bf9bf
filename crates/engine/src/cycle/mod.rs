//! One scheduling cycle: in which order pending gangs are looked at, which of them start, for which a place is reserved,
//! and which running gangs are preempted for them.

#![allow(
    clippy::cast_possible_truncation,
    reason = "nodes, domains, levels and classes: far fewer than 2^32"
)]

mod apart;
mod calendar;
mod candidates;
mod draft;
mod elastic;
mod heads;
mod pass;
mod preempt;
mod reopen;
mod reservation;
mod reserve;
mod soonest;
mod together;
mod windows;

pub(crate) use calendar::{Closed, Stay, Windows};
pub(crate) use draft::{Draft, Freed};
pub(crate) use pass::{compute, reason_of};
pub(crate) use reopen::COUNTED_MAX;
pub(crate) use reservation::{Reservation, Reservations};
