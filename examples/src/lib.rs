//! What the demos and the trainers share.

pub mod phalanx;
pub mod stage;
pub mod touch;
pub mod until;
pub mod v100;
