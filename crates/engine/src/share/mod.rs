//! Parts of devices: MIG slices, time-sliced and MPS shares, and how they are packed.
//!
//! [`mig`] knows NVIDIA's placement rules, [`Device`] who may stand beside whom on one device, [`NodeState`] what a
//! node has left. Where a part goes is for [`crate::placement`] to say.

mod device;
pub(crate) mod mig;
mod node;

pub(crate) use device::{Device, Kind, Share, Trust, WHOLE_MILLI};
pub(crate) use mig::{GEOMETRIES, Geometry, Profile, Reshape, SliceRequest};
pub(crate) use node::{DEVICES_MAX, NodeState, Part, ShareRequest, Want};

#[cfg(test)]
mod tests;
