//! The shapes of objects: only the fields that are used. What a newer API server adds is left aside in silence, what
//! a field means is upstream's documentation.

mod meta;
mod node;
mod pod;

pub(crate) use node::closing;
pub use node::{Node, NodeSpec, NodeStatus};
pub use pod::{Container, Pod, PodClaim, PodSpec, PodStatus, SchedulingGroup, WorkloadRef};
