//! The pump between the engine and a live world.
