//! One scheduling cycle: in which order pending gangs are looked at, which of them start, for which a place is reserved,
//! and which running gangs are preempted for them.

#![allow(
    clippy::cast_possible_truncation,
    reason = "nodes, domains, levels and classes: far fewer than 2^32"
)]

mod apart;
mod elastic;
mod holds;
mod pass;
mod reopen;
mod reserve;
mod together;
mod victims;
mod windows;

pub(crate) use holds::Hold;
pub(crate) use pass::{compute, reason_of};
