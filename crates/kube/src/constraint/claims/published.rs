//! What a node has for the engine: its accelerators, which of them are not to be had, or not by everybody, and how many pods
//! of each ask that is counted by itself fit.

use std::collections::BTreeMap;

use phalanx_model::{DEVICES_PER_NODE_MAX, DeviceMask, NodeName};

use super::ask::is_allocated;
use super::shapes::devices_of;
use super::{ClaimState, Condition, Given, Path};
use crate::api;
use crate::cluster::published::{COUNTED_MAX, Inside, Published};
use crate::dra::{DeviceId, DraDevice, TRIED_MAX};

impl ClaimState {
    /// The accelerators of a node in the engine's order: device `i` of the engine is the `i`th.
    pub(super) fn accelerators(&self, node: &api::Node) -> Vec<DraDevice> {
        let mut devices = self.inventory.accelerators(node);
        devices.truncate(DEVICES_PER_NODE_MAX as usize);
        devices
    }

    /// Nothing where no devices are published for it and none are counted.
    pub(super) fn published(&mut self, name: &NodeName, node: &api::Node) -> Option<Published> {
        let devices = self.accelerators(node);
        let mut used = BTreeMap::new();
        let counted = self.shapes.iter().filter(|(_, shape)| shape.counted.is_some());
        let counted: Vec<_> =
            counted.map(|(condition, shape)| (condition.clone(), shape.counted.clone())).collect();
        for (condition, resource) in counted {
            let here = self.given_on(name).filter(|given| given.condition == condition);
            let ours =
                here.filter(|given| given.claims.iter().any(|path| self.is_allocated(path))).count() as u64;
            let more = self.room(&condition, node, COUNTED_MAX.saturating_sub(ours));
            used.extend(resource.map(|resource| (resource, COUNTED_MAX.saturating_sub(ours + more))));
        }
        if devices.is_empty() && used.is_empty() {
            return None;
        }
        let mine = self.mine_on(name);
        let of_others = |is: fn(&DraDevice) -> bool| -> DeviceMask {
            let others = (0..).zip(&devices).filter(|(_, device)| is(device) && !mine.contains(&device.id));
            others.map(|(at, _)| at).collect()
        };
        let root = |at: usize| {
            let root = devices[at].pcie_root.as_ref()?;
            devices.iter().position(|other| other.pcie_root.as_ref() == Some(root))
        };
        let inside = devices.iter().enumerate().map(|(at, device)| Inside {
            product: device.product.clone(),
            memory_bytes: device.memory_bytes,
            numa: device.numa.and_then(|numa| u32::try_from(numa).ok()),
            root: root(at),
        });
        Some(Published {
            taken: of_others(|device| device.is_taken),
            tainted: of_others(|device| device.is_tainted),
            tolerated: self.tolerated(node, &devices),
            devices: inside.collect(),
            used,
        })
    }

    /// Whoever cannot be understood on this node tolerates nothing there: its shape says so.
    fn tolerated(&self, node: &api::Node, devices: &[DraDevice]) -> BTreeMap<Condition, DeviceMask> {
        let tolerant = self.shapes.iter().filter(|(_, shape)| shape.asked.is_tolerant());
        let of_shape = tolerant.filter_map(|(condition, shape)| {
            let asks = shape.asked.on(&self.inventory, node).ok()?;
            let asks: Vec<_> = asks.iter().collect();
            let tolerated = self.inventory.tolerated(&asks, node, devices).ok()?;
            Some((condition.clone(), tolerated))
        });
        of_shape.filter(|(_, tolerated)| !tolerated.is_empty()).collect()
    }

    fn given_on(&self, name: &NodeName) -> impl Iterator<Item = &Given> {
        let here = self.given_on.get(name).into_iter().flatten();
        here.filter_map(|(gang, uid)| self.given.get(gang)?.get(uid))
    }

    pub(super) fn is_allocated(&self, path: &Path) -> bool {
        self.claims.get(path).is_some_and(|claim| is_allocated(claim.now()))
    }

    /// The devices that pods of ours were given on a node.
    fn mine_on(&self, name: &NodeName) -> Vec<DeviceId> {
        let claims =
            self.given_on(name).flat_map(|given| &given.claims).filter_map(|path| self.claims.get(path));
        let allocations = claims.filter_map(|claim| claim.now().status.as_ref()?.allocation.as_ref());
        allocations.flat_map(devices_of).collect()
    }

    /// How many more pods of an ask a node can serve now, up to `most`.
    fn room(&mut self, condition: &Condition, node: &api::Node, most: u64) -> u64 {
        let Some(shape) = self.shapes.get(condition) else { return 0 };
        let Ok(asks) = shape.asked.on(&self.inventory, node) else { return 0 };
        if asks.is_empty() {
            return most;
        }
        let claims: Vec<_> = asks.iter().collect();
        let mut held = Vec::new();
        let mut count = 0;
        while count < most {
            let mut share = 0_u32;
            let mut share_id = || {
                share += 1;
                format!("{count}-{share}")
            };
            let given = self.inventory.allocate(&claims, node, &|_| false, &mut share_id, TRIED_MAX / 10);
            let Ok(given) = given else { break };
            for (claim, allocation) in asks.iter().zip(given) {
                // Held for a moment, under a name that no object can have.
                let name = format!("{count}/{}", claim.metadata.name.as_deref().unwrap_or_default());
                let mut there = claim.clone();
                there.metadata.name = Some(name.clone());
                there.status.get_or_insert_default().allocation = Some(allocation);
                self.inventory.claim_applied(&there);
                held.push((there.metadata.namespace.unwrap_or_default(), name));
            }
            count += 1;
        }
        for (namespace, name) in held {
            self.inventory.claim_deleted(&namespace, &name);
        }
        count
    }
}
