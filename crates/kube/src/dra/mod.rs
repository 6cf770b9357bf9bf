//! Claims for devices (`resource.k8s.io/v1`), and which devices satisfy them.
//!
//! Pure: objects go in, allocations come out. [`Inventory`] is told of ResourceSlices, DeviceClasses, claims,
//! DeviceTaintRules and namespaces, and answers. What it decides follows kube-scheduler 1.36; where it does not,
//! the module says so.
//!
//! | module | what lives there |
//! |---|---|
//! | `inventory` | the books: pools of each driver, classes, taint rules, what allocated claims hold |
//! | `pools` | what one node reaches: complete pools of the newest generation, their counters |
//! | `request` | claims as they are asked, checked, with their selectors compiled |
//! | `search` | which devices for which request: backtracking with a counted bound |
//! | `capacity` | how much of a shared device a request takes |
//! | `constraint` | attributes that must match or differ |
//! | `result` | the allocation as the API stores it |
//! | `binding` | whether an allocated claim's devices are ready to be bound |
//! | `view` | a node's devices for the engine, in a stable order, and which of them a claim may have |
//! | `extended` | pods that ask for `nvidia.com/gpu` and are served by claims |
//! | `cel`, `nodes` | what these rest on: selectors of devices and of nodes |

mod binding;
mod capacity;
pub mod cel;
mod constraint;
mod error;
mod extended;
mod inventory;
mod nodes;
mod pools;
mod request;
mod result;
mod search;
mod view;

pub use binding::{Binding, binding};
pub use error::{Shortage, Unallocatable};
pub use extended::{ExtendedAsk, ExtendedClaim, extended_prefix, is_extended, is_offered};
pub use inventory::{DeviceId, Inventory, Nodes, PoolId};
pub use result::is_reached_by;
pub use search::TRIED_MAX;
pub use view::{Demand, DraDevice, Eligible, NoView, Wanted, is_one_shape};

#[cfg(test)]
mod tests;
