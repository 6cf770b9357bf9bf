//! Readers of machines and fabrics: pure parsers and live probes.
//!
//! Every reader ends in a [`phalanx_model::Machine`]: [`topo_m`] from the text of `nvidia-smi topo -m`,
//! [`sysfs`] from the kernel, [`kfd`] from AMD's driver, [`nvml`] from NVIDIA's library, and [`host`] from all
//! that this host has.
//! [`shape`] derives groups and the shape's name, [`check`] finds what is weak or lopsided, [`describe`]
//! writes the matrix again, and [`picture`] draws it. The probes are left out of a wasm32 build, which has no
//! host to ask.

pub mod check;
pub mod cpulist;
pub mod describe;
pub mod fabric;
mod gap;
#[cfg(not(target_family = "wasm"))]
pub mod host;
pub mod hwloc;
#[cfg(not(target_family = "wasm"))]
pub mod kfd;
pub mod map;
pub mod nccl;
pub mod nic_text;
pub mod nvidia;
#[cfg(not(target_family = "wasm"))]
pub mod nvml;
pub mod objects;
pub mod pcie;
pub mod picture;
#[cfg(not(target_family = "wasm"))]
pub mod pressure;
#[cfg(not(target_family = "wasm"))]
pub mod rdma;
pub mod rocm;

pub mod source;
#[cfg(not(target_family = "wasm"))]
pub mod sysfs;
pub mod topo_m;
pub mod tpu;
pub mod xml;

pub use check::{Finding, Severity};
pub use gap::{GAPS_MAX, Gap};
#[cfg(not(target_family = "wasm"))]
pub use host::Discovered;
pub use phalanx_model::shape;
pub use topo_m::{TopoError, TopoM};
