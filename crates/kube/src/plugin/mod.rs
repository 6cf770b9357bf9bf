//! The node's GPUs for a kubelet without DRA: a device plugin (v1beta1) that serves `nvidia.com/gpu` and hands out
//! the devices that the scheduler chose.
//!
//! The kubelet's protocol names no pod. What is asked is which of the free devices are preferred for so many; the
//! answer is the choice of a pod that is expected on this node and wants that many. Pods that ask for the same
//! number at the same time may so get each other's devices: [`held`] reads back from the kubelet who has what.
//!
//! | module | what lives there |
//! |---|---|
//! | `prefer` | which devices are preferred, given what pods are expected |
//! | `serve` | the plugin's side of the protocol |
//! | `register` | its socket, the kubelet's, and whether somebody else serves the resource |
//! | `pods` | who has which devices, as the kubelet knows it |

mod pods;
mod prefer;
mod register;
mod serve;

use thiserror::Error;

pub use pods::{Held, held};
pub use prefer::{Expected, expected_of};
pub use register::{Folder, run};
pub use serve::{Injection, PluginDevice};

/// The resource that manifests ask for.
pub const RESOURCE: &str = "nvidia.com/gpu";

/// Which pods are expected on this node with which devices.
pub trait Expectations: Send + Sync + 'static {
    /// Pods that are bound to this node and whose containers have not all started.
    fn expected(&self) -> Vec<Expected>;
}

/// Why the plugin does not serve.
#[derive(Debug, Error)]
pub enum PluginError {
    #[error(
        "another device plugin serves {RESOURCE} on this node: {sign}; remove it, or run without the plugin of phalanx"
    )]
    Served { sign: String },
    #[error("cannot {what} {path}: {why}")]
    Socket { what: &'static str, path: String, why: String },
    #[error("no kubelet listens at {path}: {why}")]
    NoKubelet { path: String, why: String },
    #[error("the kubelet at {path} answered: {why}")]
    Kubelet { path: String, why: String },
}

/// The messages and services of the kubelet.
#[allow(clippy::all, clippy::pedantic, clippy::nursery, unreachable_pub, reason = "generated")]
pub mod proto {
    /// Device plugins.
    pub mod plugin {
        tonic::include_proto!("v1beta1");
    }
    /// What pods have.
    pub mod pods {
        tonic::include_proto!("v1");
    }
}
