//! The free devices of a cluster: whole ones, and the rest of those that jobs share.

use std::collections::BTreeMap;

use phalanx_model::DeviceMask;

use super::{Machines, Part, WHOLE_MILLI};

/// Free devices by node. A device that jobs have shares of is free in part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// By node: devices of which no job has any.
    whole: Vec<DeviceMask>,
    /// By node and device: thousandths that are left of devices of which jobs have some, but not all.
    rests: BTreeMap<(usize, u32), u32>,
}

impl Free {
    /// All devices of a cluster.
    #[must_use]
    pub fn all(cluster: &Machines) -> Self {
        Self { whole: cluster.all_free(), rests: BTreeMap::new() }
    }

    /// By node: devices of which no job has any.
    #[must_use]
    pub fn whole(&self) -> &[DeviceMask] {
        &self.whole
    }

    /// Node, device, and the thousandths that are left, of devices of which jobs have some, in that order.
    pub fn rests(&self) -> impl Iterator<Item = (usize, u32, u32)> {
        self.rests.iter().map(|((node, device), left)| (*node, *device, *left))
    }

    /// Thousandths of devices, in all.
    #[must_use]
    pub fn milli(&self) -> u64 {
        let whole: u64 = self.whole.iter().map(|free| u64::from(free.count())).sum();
        whole * u64::from(WHOLE_MILLI) + self.rests.values().map(|left| u64::from(*left)).sum::<u64>()
    }

    /// Whether all of a place is free.
    #[must_use]
    pub fn has(&self, place: &[Part]) -> bool {
        place.iter().all(|part| self.has_part(part))
    }

    /// Whether a part of a place is free.
    #[must_use]
    pub fn has_part(&self, part: &Part) -> bool {
        let Some(whole) = self.whole.get(part.node) else { return false };
        part.devices
            .minus(*whole)
            .iter()
            .all(|device| self.rests.get(&(part.node, device)).is_some_and(|left| *left >= part.milli))
    }

    /// How many devices are whole no longer.
    pub fn take(&mut self, part: &Part) -> u32 {
        let whole = &mut self.whole[part.node];
        let were = whole.count();
        for device in part.devices.iter() {
            let key = (part.node, device);
            let left =
                if whole.contains(device) { WHOLE_MILLI } else { self.rests.get(&key).copied().unwrap_or(0) };
            match left.saturating_sub(part.milli) {
                0 => self.rests.remove(&key),
                left => self.rests.insert(key, left),
            };
        }
        *whole = whole.minus(part.devices);
        were - whole.count()
    }

    /// How many devices are whole again.
    pub fn give_back(&mut self, part: &Part) -> u32 {
        let were = self.whole[part.node].count();
        for device in part.devices.iter() {
            let key = (part.node, device);
            let left = self.rests.get(&key).copied().unwrap_or(0) + part.milli;
            if left < WHOLE_MILLI {
                self.rests.insert(key, left);
            } else {
                self.rests.remove(&key);
                self.whole[part.node] = self.whole[part.node].union(DeviceMask::one(device));
            }
        }
        self.whole[part.node].count() - were
    }

    /// A node is gone, and with it the devices of which no job has any.
    pub fn lose_node(&mut self, node: usize) -> DeviceMask {
        std::mem::take(&mut self.whole[node])
    }

    /// A node is back.
    pub fn bring_back(&mut self, node: usize, whole: DeviceMask) {
        self.whole[node] = whole;
    }
}
