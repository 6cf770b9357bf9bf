//! Devices with more than one holder: gangs that over-commit a node, or a running gang and a reservation. Such a
//! device becomes free when its last holder gives it back, in any order.

use std::collections::BTreeMap;

use phalanx_model::DeviceMask;

/// By node, in layers: the first layer is the devices with at least two holders, the next those with at least three,
/// and so on. Most nodes have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disputed(BTreeMap<u32, Vec<DeviceMask>>);

impl Disputed {
    /// Devices that are in use already are taken once more.
    pub(crate) fn add(&mut self, node: u32, in_use: DeviceMask) {
        if in_use.is_empty() {
            return;
        }
        let layers = self.0.entry(node).or_default();
        let mut more = in_use;
        for layer in layers.iter_mut() {
            let had = layer.and(more);
            *layer = layer.union(more);
            more = had;
        }
        if !more.is_empty() {
            layers.push(more);
        }
    }

    /// Removes one holder of these devices. Returns the devices that have no other holder.
    pub(crate) fn remove(&mut self, node: u32, given_back: DeviceMask) -> DeviceMask {
        let Some(layers) = self.0.get_mut(&node) else { return given_back };
        let mut freed = given_back;
        for layer in layers.iter_mut().rev() {
            let had = layer.and(freed);
            *layer = layer.minus(had);
            freed = freed.minus(had);
        }
        while layers.last().is_some_and(|layer| layer.is_empty()) {
            layers.pop();
        }
        if layers.is_empty() {
            self.0.remove(&node);
        }
        freed
    }

    /// How many hold a device beside the first.
    pub(crate) fn more(&self, node: u32, device: u32) -> usize {
        self.0.get(&node).map_or(0, |layers| layers.iter().filter(|layer| layer.contains(device)).count())
    }

    /// The devices of a node with more than one holder.
    pub(crate) fn on(&self, node: u32) -> DeviceMask {
        self.0.get(&node).and_then(|layers| layers.first()).copied().unwrap_or(DeviceMask::EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_free_when_its_last_holder_has_given_it_back_in_any_order() {
        let holders = [0b0011, 0b0110, 0b0111, 0b0010].map(DeviceMask);
        for first in 0..24_usize {
            let mut left: Vec<DeviceMask> = holders.to_vec();
            let mut order = Vec::new();
            let mut code = first;
            while !left.is_empty() {
                order.push(left.remove(code % left.len()));
                code /= order.len().max(1) + 1;
            }
            let mut disputed = Disputed::default();
            let mut used = DeviceMask::EMPTY;
            for mask in holders {
                disputed.add(7, mask.and(used));
                used = used.union(mask);
            }
            let mut free = DeviceMask::EMPTY;
            for (at, mask) in order.iter().enumerate() {
                free = free.union(disputed.remove(7, *mask));
                let still = order[at + 1..].iter().fold(DeviceMask::EMPTY, |all, more| all.union(*more));
                assert_eq!(free, used.minus(still));
            }
            assert_eq!(disputed, Disputed::default());
        }
    }
}
