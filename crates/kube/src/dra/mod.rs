//! Claims for devices (`resource.k8s.io/v1`), and which devices satisfy them.

pub mod cel;
pub mod quantity;
