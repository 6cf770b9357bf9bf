//! The scenario language: text in, golden output out, over any world.
