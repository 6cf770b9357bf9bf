//! A real Kubernetes control plane, built from Go modules: for tests, benchmarks and people who want to try.
//!
//! [`ControlPlane::start`] builds what is missing (once: the programs are kept by version in the user's cache),
//! starts etcd and kube-apiserver and what else [`Options`] ask for, and returns when the API answers. All of it
//! binds to loopback, takes free ports, keeps its state in a temporary folder, and is gone with the value or with
//! the process that holds it, however that ends.

mod api;
mod build;
mod command_lines;
mod error;
mod fleet;
mod image;
mod kubernetes;
mod node;
mod plane;
mod ports;
mod process;
mod program;
mod render;
mod wait;

pub use api::{Api, Follow, Watch};
pub use build::binary;
pub use error::Error;
pub use fleet::{Fleet, GPU, in_parallel};
pub use image::{IMAGE, Image, OPEN_MPI, OPEN_MPI_SETTINGS, RELEASE};
pub use kubernetes::KubernetesVersion;
pub use node::{Node, missing_for_nodes, missing_for_open_mpi};
pub use plane::{ControlPlane, Options, User};
pub use program::{Kubectl, Program, Source};
pub use render::{Renderer, chart, kustomization};
pub use wait::until;
