//! What the demos share.

pub mod stage;
