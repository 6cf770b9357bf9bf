//! Parts of devices: MIG slices, time-sliced and MPS shares, and how they are packed.
//!
//! [`mig`] knows NVIDIA's placement rules, [`Device`] who may stand beside whom on one device, [`NodeState`] what a
//! node has left, and [`Packing`] where a request costs the others least.
//!
//! # What a place costs
//! A request takes from every kind of request that could have used the same capacity. With `n_m` the number of
//! requests of kind `m` that still fit in the whole cluster at the same time, `s_m` their size in devices and `p_m`
//! how often they were asked for so far, a place costs
//!
//! ```text
//! sum over m of  p_m * (n_m before - n_m after) / (n_m * s_m)^2
//! ```
//!
//! FGD (ATC'23) has the same sum with the GPUs that `m` cannot use and without the divisor: a GPU lost to a kind that
//! can go anywhere weighs as much there as one lost to a kind that has few left. The divisor is the price of what is
//! scarce, be it a model, a whole node or the CPUs beside the GPUs. Counting requests that fit, instead of GPUs on
//! nodes where one fits, sees the leftovers that a device will have when it is full.
//!
//! Places within a quarter of the best are held to be equal, and of these the node with the most CPU per free GPU is
//! taken: where CPUs run out first, GPUs are stranded. The last tie ends on the node's place in the order.

mod device;
pub mod mig;
mod mix;
mod node;
mod pack;
mod states;

pub use device::{Device, Kind, Share, Trust, WHOLE_MILLI};
pub use mig::{Geometry, Profile, Reshape, SliceAsk, Slices};
pub use node::{Ask, DEVICES_MAX, NodeState, Part, Reshapes, ShareError, Want};
pub use pack::{Packing, Spot};

#[cfg(test)]
mod tests;
