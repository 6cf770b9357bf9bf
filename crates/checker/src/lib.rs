//! What must always hold, stated naively.
//!
//! The checker sees the same as a world: facts that go in, orders and changes that come out. It keeps its own plain
//! state and does not know the engine, so that a mistake in the engine cannot hide in it. The state is in `state`.
//! The rules of a start are in `start`: its members, their placement, their neighbours, used capacity, and the order
//! of the queue. Preemption is in `preemptions`, reserved starts are in `promises`, and the bypass limit is in
//! `waiting`.

#![forbid(unsafe_code)]

mod amounts;
mod attempt;
mod boxes;
mod levels;
mod members;
pub mod mig;
mod neighbours;
mod pools;
mod preemptions;
mod promises;
mod queues;
mod service;
mod services;
mod spares;
mod start;
mod state;
mod turns;
mod violation;
mod waiting;

pub use state::Checker;
pub use violation::Violation;
