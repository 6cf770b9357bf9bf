//! Policy: what must always hold of queues, turns, reservations and evictions, and the bugs that others had.

#![expect(unsafe_code, reason = "an allocator is unsafe by its nature; the one of `news` only counts")]
#![allow(clippy::unwrap_used)]

mod bugs;
mod disputed;
mod elastic;
mod fairness;
mod least_served;
mod limits;
mod news;
mod places;
mod random;
mod rights;
mod service;
mod surge;
mod victims;
mod waiting;
mod world;
