//! What must always hold, stated naively.
//!
//! The checker sees what a world sees: facts going in and orders coming out. It keeps its own plain books and
//! knows nothing of the engine, so that a mistake in the engine cannot hide in it.

#![forbid(unsafe_code)]

mod books;
mod violation;

pub use books::Checker;
pub use violation::Violation;
