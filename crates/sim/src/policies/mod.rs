//! Policies to compare with, each small and from its paper or documentation, and Phalanx itself, on one world.

mod gangs;
mod ordered;
mod orders;
mod phalanx;
mod places;

pub use ordered::{Order, Ordered, Preemption};
pub use orders::{Fifo, Sjf, Srsf, Srtf};
pub use phalanx::{Phalanx, Rules};
pub use places::{Packing, Room};
