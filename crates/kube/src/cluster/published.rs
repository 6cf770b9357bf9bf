//! What device drivers publish for a node, as the engine counts it.

use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, ResourceName};

use super::node_sets::Condition;

/// More pods of one ask on one node are not counted.
pub(crate) const COUNTED_MAX: u64 = 64;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// In the order of the engine.
    pub(crate) devices: Vec<Inside>,
    /// Held by claims, but for those of pods that ours were given.
    pub(crate) taken: DeviceMask,
    /// With a taint that keeps claims away, but for the same.
    pub(crate) tainted: DeviceMask,
    /// By ask, those with a taint that it may have all the same, held or not.
    pub(crate) tolerated: BTreeMap<Condition, DeviceMask>,
    /// Of each ask that is counted, how many of [`COUNTED_MAX`] are not to be had.
    pub(crate) used: BTreeMap<ResourceName, u64>,
}

/// An accelerator, without what tells it from its equals on other nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Inside {
    pub(crate) product: String,
    /// 0 where its driver does not say.
    pub(crate) memory_bytes: u64,
    pub(crate) numa: Option<u32>,
    /// The first device with the same PCIe root.
    pub(crate) root: Option<usize>,
}
