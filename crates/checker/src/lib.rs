//! What must always hold, stated naively.
//!
//! The checker sees what a world sees: facts going in, orders and changes coming out. It keeps its own plain books and
//! knows nothing of the engine, so that a mistake in the engine cannot hide in it. Books are in `books`; what a
//! start must keep is in `start`: its members, where they stand, whom they stand beside, what is used up, and whose
//! turn it is. Who makes way for whom is in `evictions`, starts that were promised in `promises`, and how often a gang
//! is bypassed in `waiting`.

#![forbid(unsafe_code)]

mod amounts;
mod attempt;
mod books;
mod boxes;
mod evictions;
mod levels;
mod members;
pub mod mig;
mod neighbours;
mod promises;
mod queues;
mod service;
mod services;
mod start;
mod turns;
mod violation;
mod waiting;

pub use books::Checker;
pub use violation::Violation;
