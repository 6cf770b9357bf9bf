//! What the demos share.

pub mod stage;
pub mod until;
pub mod v100;
