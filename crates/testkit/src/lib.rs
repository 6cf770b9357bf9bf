//! Builders and the conformance harness (dev only).
