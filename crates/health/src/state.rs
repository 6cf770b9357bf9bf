//! What a grader remembers, as it is kept over restarts.

use std::collections::BTreeMap;

use phalanx_model::product::{Generation, Product};
use phalanx_model::{DeviceMask, JobId, NodeName};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::lemon::Place;
use crate::subject::Subject;

/// A device mask names 64.
pub(crate) const DEVICES_MAX: usize = 64;
const VERSION: u32 = 1;

/// The state of a [`crate::Grader`]. It is written with a version; another version is an error that says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    version: Version,
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    /// Jobs with errors, lately.
    #[serde(default)]
    pub(crate) failed: BTreeMap<JobId, Place>,
}

impl State {
    /// How many devices a node has; 0 if it is unknown.
    #[must_use]
    pub fn devices(&self, node: &NodeName) -> u32 {
        let devices = self.nodes.get(node).map_or(0, |of| of.devices.len());
        u32::try_from(devices).unwrap_or(u32::MAX)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    /// Of the devices.
    pub(crate) products: Vec<String>,
    pub(crate) node: Subject,
    pub(crate) devices: Vec<Subject>,
    /// Devices that were not ok as far as the engine knows, and are not there any more.
    #[serde(default)]
    pub(crate) gone: DeviceMask,
}

impl Node {
    pub(crate) fn subject(&self, device: Option<u32>) -> Option<&Subject> {
        match device {
            None => Some(&self.node),
            Some(index) => self.devices.get(usize::try_from(index).ok()?),
        }
    }

    pub(crate) fn subject_mut(&mut self, device: Option<u32>) -> Option<&mut Subject> {
        match device {
            None => Some(&mut self.node),
            Some(index) => self.devices.get_mut(usize::try_from(index).ok()?),
        }
    }

    /// The node itself, and its devices.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = (Option<u32>, &Subject)> {
        let devices = (0_u32..).map(Some).zip(&self.devices);
        std::iter::once((None, &self.node)).chain(devices)
    }

    pub(crate) fn subjects_mut(&mut self) -> impl Iterator<Item = (Option<u32>, &mut Subject)> {
        let devices = (0_u32..).map(Some).zip(&mut self.devices);
        std::iter::once((None, &mut self.node)).chain(devices)
    }

    /// By the product of a device. The products of the devices of one node are of one generation, as a rule.
    pub(crate) fn generation(&self, device: Option<u32>) -> Option<Generation> {
        let index = usize::try_from(device.unwrap_or(0)).ok()?;
        Product::of(self.products.get(index)?).map(|product| product.generation)
    }

    pub(crate) fn weight(&self) -> u64 {
        (self.devices.len() as u64).max(1)
    }

    pub(crate) fn set_products(&mut self, mut products: Vec<String>) {
        products.truncate(DEVICES_MAX);
        let surplus = (0_u32..).zip(&self.devices).skip(products.len());
        let known = surplus.filter(|(_, of)| of.told.is_some()).map(|(index, _)| index);
        self.gone = self.gone.union(known.collect());
        self.devices.resize_with(products.len(), Subject::default);
        self.products = products;
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(VERSION)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            VERSION => Ok(Self),
            other => Err(serde::de::Error::custom(format!(
                "the health state has version {other}, and this program reads version {VERSION}"
            ))),
        }
    }
}
