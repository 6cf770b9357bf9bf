//! Parts of devices: MIG slices, time-sliced and MPS shares, and how they are packed.
//!
//! [`mig`] has NVIDIA's placement rules, [`Device`] the rules of sharing one device, [`NodeState`] the free capacity
//! of a node. [`crate::placement`] decides where a part goes.

mod device;
pub(crate) mod mig;
mod node;

pub(crate) use device::{Device, Kind, Share, Trust, WHOLE_MILLI};
pub(crate) use mig::{GEOMETRIES, Geometry, Profile, Reshape, SliceRequest};
pub(crate) use node::{DEVICES_MAX, NodeState, Part, ShareRequest, Want};

#[cfg(test)]
mod tests;
