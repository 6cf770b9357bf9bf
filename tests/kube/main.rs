//! What needs a real Kubernetes control plane.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod autoscalers;
mod between;
mod bindings;
mod budgets;
mod conformance;
mod crds;
mod deadlines;
mod deploy;
mod differential;
mod discovery;
mod domains;
mod dra;
mod dra_extended;
mod dra_gangs;
mod dra_pods;
mod dra_taints;
mod ends;
mod events;
mod fabric;
mod faults;
mod gangs;
mod groups;
mod health;
mod helm;
#[path = "../../crates/kube/tests/kubelet/mod.rs"]
mod kubelet;
mod leases;
mod manifests;
mod nodes;
mod operators;
#[path = "../page/mod.rs"]
mod page;
mod promises;
mod queues;
mod real_nodes;
mod repair;
mod replicas;
mod restarts;
mod server;
mod sign_in;
mod sources;
#[path = "../story/mod.rs"]
mod story;
mod submit;
mod support;
mod traces;
mod tutorial;
mod upgrades;
mod volcano;
mod volumes;
