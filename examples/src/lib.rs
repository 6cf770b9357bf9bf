//! What the demos share.

pub mod phalanx;
pub mod stage;
pub mod until;
pub mod v100;
