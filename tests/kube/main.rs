//! What needs a real Kubernetes control plane.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod crds;
mod deploy;
mod differential;
mod dra;
mod fabric;
mod gangs;
#[path = "../../crates/kube/tests/kubelet/mod.rs"]
mod kubelet;
mod nodes;
mod queues;
mod restarts;
mod submit;
mod support;
