//! Policy: properties of queues, the order, reservations and preemptions that always hold, and bugs of other
//! schedulers.

#![expect(unsafe_code, reason = "an allocator is unsafe by its nature; the one of `news` only counts")]
#![allow(clippy::unwrap_used)]

mod array;
mod bugs;
mod disputed;
mod elastic;
mod fairness;
mod least_served;
mod limits;
mod news;
mod places;
mod pools;
mod random;
mod rights;
mod service;
mod surge;
mod update;
mod victims;
mod waiting;
mod world;
