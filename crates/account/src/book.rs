//! The book: charges each part of each device to one state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_model::{DeviceMask, GangId, NodeName, Timestamp};

use crate::{Entry, Gone, Held, Holding, Host, Key, Loss, State};

pub const HOUR_MS: u64 = 3_600_000;
/// A whole device in thousandths.
const WHOLE_MILLI: u64 = 1_000;

/// Amounts by hour.
type Charges = BTreeMap<(u64, Key), i64>;

/// What is charged, and what was charged since the entries were last taken.
#[derive(Debug, Default)]
pub struct Book {
    nodes: BTreeMap<NodeName, OnNode>,
    gangs: BTreeMap<GangId, Tenant>,
    charged: Charges,
}

#[derive(Debug)]
struct OnNode {
    host: Host,
    /// What gangs hold or have reserved here.
    gangs: BTreeMap<GangId, Vec<OnDevices>>,
    /// What every thousandth of the devices is for, since a time.
    parts: Vec<Part>,
    since: Timestamp,
}

/// What a member has of each of some devices, in thousandths.
#[derive(Clone, Copy, Debug)]
struct OnDevices {
    devices: DeviceMask,
    each_milli: u64,
}

impl OnDevices {
    const fn of(slot: &Held) -> Self {
        Self { devices: slot.devices, each_milli: slot.each_milli }
    }
}

#[derive(Clone, Debug)]
struct Part {
    gang: Option<GangId>,
    key: Key,
    milli: u64,
}

#[derive(Debug)]
struct Tenant {
    holding: Holding,
    saved_at: Option<Timestamp>,
    /// Running time since the last checkpoint.
    unsaved: Charges,
}

impl Book {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on, a node is as told.
    pub fn observe_node(&mut self, now: Timestamp, name: &NodeName, host: Host) {
        match self.nodes.get_mut(name) {
            Some(node) if node.host == host => {}
            Some(_) => {
                self.settle(now, name);
                if let Some(node) = self.nodes.get_mut(name) {
                    node.host = host;
                }
                self.divide(name);
            }
            None => {
                let on_node = |tenant: &Tenant| -> Vec<OnDevices> {
                    let slots = tenant.holding.slots.iter().filter(|slot| slot.node == *name);
                    slots.map(OnDevices::of).collect()
                };
                let gangs = self.gangs.iter().map(|(id, tenant)| (*id, on_node(tenant)));
                let gangs = gangs.filter(|(_, slots)| !slots.is_empty());
                let node = OnNode { host, gangs: gangs.collect(), parts: Vec::new(), since: now };
                self.nodes.insert(name.clone(), node);
                self.divide(name);
            }
        }
    }

    /// The node is gone; nothing of it is charged from now on.
    pub fn remove_node(&mut self, now: Timestamp, name: &NodeName) {
        self.settle(now, name);
        self.nodes.remove(name);
    }

    /// The nodes that are charged.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.keys()
    }

    /// The gangs that hold something or have something reserved.
    pub fn gangs(&self) -> impl Iterator<Item = GangId> + '_ {
        self.gangs.keys().copied()
    }

    /// From now on, a gang holds what is told. What it was charged as running before `saved_at`, its last checkpoint, is
    /// not lost any more.
    pub fn observe_gang(
        &mut self,
        now: Timestamp,
        id: GangId,
        holding: Holding,
        saved_at: Option<Timestamp>,
    ) {
        let known = self.gangs.get(&id);
        let is_saved = known.is_some_and(|tenant| tenant.saved_at < saved_at);
        if known.is_some_and(|tenant| tenant.holding == holding) && !is_saved {
            return;
        }
        let mut nodes = known.map(|tenant| nodes_of(&tenant.holding)).unwrap_or_default();
        nodes.extend(nodes_of(&holding));
        for name in &nodes {
            self.settle(now, name);
        }
        let tenant = self.gangs.entry(id).or_insert_with(|| Tenant {
            holding: holding.clone(),
            saved_at,
            unsaved: Charges::new(),
        });
        if is_saved {
            tenant.unsaved.clear();
        }
        (tenant.holding, tenant.saved_at) = (holding, saved_at);
        self.place(id, &nodes);
    }

    /// A gang is being stopped: why its work since the last checkpoint is lost, if it is and the gang waits again.
    pub fn note_stop(&mut self, id: GangId, loss: Option<Loss>) {
        if let Some(tenant) = self.gangs.get_mut(&id) {
            tenant.holding.loss = loss;
        }
    }

    /// From now on, a gang holds nothing and has nothing reserved.
    pub fn remove_gang(&mut self, now: Timestamp, id: GangId, gone: Gone) {
        let Some(tenant) = self.gangs.get(&id) else { return };
        let nodes = nodes_of(&tenant.holding);
        for name in &nodes {
            self.settle(now, name);
        }
        let Some(tenant) = self.gangs.remove(&id) else { return };
        let loss = match gone {
            Gone::Waits => tenant.holding.loss,
            Gone::Ended => None,
            Gone::Lost(loss) => Some(loss),
        };
        if let Some(loss) = loss {
            self.lose(tenant.unsaved, loss);
        }
        self.place(id, &nodes);
    }

    /// Notes that a gang has run since a time in what it holds now, and that this was charged: after a restart the book
    /// does not know it.
    pub fn recall(&mut self, now: Timestamp, id: GangId, since: Timestamp) {
        let Some(tenant) = self.gangs.get_mut(&id) else { return };
        for name in nodes_of(&tenant.holding) {
            let parts = self.nodes.get(&name).map(|node| node.parts.as_slice()).unwrap_or_default();
            for part in parts.iter().filter(|part| part.gang == Some(id)) {
                charge(&mut tenant.unsaved, part, since, now);
            }
        }
    }

    /// Charges everything up to now, and takes the entries since the last time.
    pub fn take_entries(&mut self, now: Timestamp) -> Vec<Entry> {
        for node in self.nodes.values_mut() {
            node.settle(now, &mut self.gangs, &mut self.charged);
        }
        let charged = std::mem::take(&mut self.charged);
        let entry = |((hour, key), device_us)| Entry { hour, key, device_us };
        charged.into_iter().map(entry).filter(|entry| entry.device_us != 0).collect()
    }

    /// Charges the parts of a node up to now.
    fn settle(&mut self, now: Timestamp, name: &NodeName) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.settle(now, &mut self.gangs, &mut self.charged);
        }
    }

    /// Moves what a gang was charged as running to what is lost, in the hours in which it ran.
    fn lose(&mut self, unsaved: Charges, loss: Loss) {
        for ((hour, key), device_us) in unsaved {
            let lost = Key { state: loss.state(), ..key.clone() };
            *self.charged.entry((hour, key)).or_default() -= device_us;
            *self.charged.entry((hour, lost)).or_default() += device_us;
        }
    }

    /// Divides nodes again whose gangs changed; they were settled.
    fn place(&mut self, id: GangId, nodes: &BTreeSet<NodeName>) {
        let mut held = self.gangs.get(&id).map(|tenant| slots_by_node(&tenant.holding)).unwrap_or_default();
        for name in nodes {
            if let Some(node) = self.nodes.get_mut(name) {
                match held.remove(name) {
                    Some(slots) => node.gangs.insert(id, slots),
                    None => node.gangs.remove(&id),
                };
            }
            self.divide(name);
        }
    }

    /// Says what each thousandth of the devices of a node is for.
    fn divide(&mut self, name: &NodeName) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let tenants = node.gangs.iter().filter_map(|(id, slots)| Some((*id, self.gangs.get(id)?, slots)));
        let slots: Vec<(GangId, &Holding, &OnDevices)> = tenants
            .flat_map(|(id, tenant, slots)| slots.iter().map(move |slot| (id, &tenant.holding, slot)))
            .collect();
        let mut parts: BTreeMap<(Option<GangId>, Key), u64> = BTreeMap::new();
        for (index, class) in (0_u32..).zip(&node.host.devices) {
            let on_device = |is_held: bool| {
                slots.iter().filter(move |(_, holding, slot)| {
                    slot.devices.contains(index) && holding.state.is_held() == is_held
                })
            };
            let mut add = |gang: Option<GangId>, holding: Option<&Holding>, state: State, milli: u64| {
                if milli > 0 {
                    let payer = holding.map(|holding| Arc::clone(&holding.payer));
                    let key = Key { state, payer, class: Arc::clone(class) };
                    *parts.entry((gang, key)).or_default() += milli;
                }
            };
            let asked: u64 = on_device(true).map(|(_, _, slot)| slot.each_milli).sum();
            let mut rest = WHOLE_MILLI;
            for (id, holding, slot) in on_device(true) {
                // Where more is promised than there is, each has its part of the device.
                let milli = match asked {
                    0..=WHOLE_MILLI => slot.each_milli,
                    _ => slot.each_milli.saturating_mul(WHOLE_MILLI) / asked,
                };
                rest = rest.saturating_sub(milli);
                add(Some(*id), Some(holding), holding.state, milli);
            }
            if asked > WHOLE_MILLI
                && let Some((id, holding, _)) = on_device(true).next()
            {
                add(Some(*id), Some(holding), holding.state, std::mem::take(&mut rest));
            }
            if node.host.foreign.contains(index) {
                add(None, None, State::Foreign, std::mem::take(&mut rest));
            }
            if node.host.broken.contains(index) {
                add(None, None, State::Broken, std::mem::take(&mut rest));
            }
            for (id, holding, slot) in on_device(false) {
                let milli = slot.each_milli.min(rest);
                rest -= milli;
                add(Some(*id), Some(holding), holding.state, milli);
            }
            add(None, None, node.host.unused, rest);
        }
        node.parts = parts.into_iter().map(|((gang, key), milli)| Part { gang, key, milli }).collect();
    }
}

impl OnNode {
    fn settle(&mut self, now: Timestamp, gangs: &mut BTreeMap<GangId, Tenant>, charged: &mut Charges) {
        // A clock that went back charges nothing twice.
        if now <= self.since {
            return;
        }
        for part in &self.parts {
            charge(charged, part, self.since, now);
            let tenant = part.gang.filter(|_| part.key.state == State::Running);
            if let Some(tenant) = tenant.and_then(|gang| gangs.get_mut(&gang)) {
                charge(&mut tenant.unsaved, part, self.since, now);
            }
        }
        self.since = now;
    }
}

fn nodes_of(holding: &Holding) -> BTreeSet<NodeName> {
    holding.slots.iter().map(|slot| slot.node.clone()).collect()
}

fn slots_by_node(holding: &Holding) -> BTreeMap<NodeName, Vec<OnDevices>> {
    let mut by_node: BTreeMap<NodeName, Vec<OnDevices>> = BTreeMap::new();
    for slot in &holding.slots {
        by_node.entry(slot.node.clone()).or_default().push(OnDevices::of(slot));
    }
    by_node
}

/// Adds what a part of a device is charged between two times, hour by hour.
fn charge(charges: &mut Charges, part: &Part, from: Timestamp, until: Timestamp) {
    let mut at = from.0;
    while at < until.0 {
        let hour = at / HOUR_MS;
        let end = hour.saturating_add(1).saturating_mul(HOUR_MS).min(until.0);
        let device_us = i64::try_from(part.milli.saturating_mul(end - at)).unwrap_or(i64::MAX);
        let sum = charges.entry((hour, part.key.clone())).or_default();
        *sum = sum.saturating_add(device_us);
        at = end;
    }
}

#[cfg(test)]
mod tests;
