//! What one node reaches.
//!
//! Only the newest generation of a pool counts, and only where all of its slices are there. Upstream looks for the
//! newest generation among the slices that reach the node, and falls back to an older one while a driver replaces
//! its slices; here such a pool waits, since what the older slices say is about to be wrong.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{Device, DeviceTaint, ResourceSliceSpec};

use super::inventory::{DeviceId, Inventory, PoolId, Shares};
use super::nodes::reaches;
use crate::api::Node;
use crate::quantity::Amount;

/// A device that a node reaches.
pub(super) struct Slot<'a> {
    pub(super) id: DeviceId,
    pub(super) device: &'a Device,
    pub(super) slice: &'a ResourceSliceSpec,
    /// Index into [`Reach::counters`].
    pub(super) pool: usize,
    /// Of the device and of taint rules.
    pub(super) taints: Vec<Taint<'a>>,
    /// A claim holds it alone.
    pub(super) is_taken: bool,
    /// What claims hold of it together.
    pub(super) shares: Option<&'a Shares>,
}

impl<'a> Slot<'a> {
    /// Those that keep claims away. Effects that are not known keep nobody away.
    pub(super) fn hard_taints(&self) -> impl Iterator<Item = &Taint<'a>> {
        self.taints.iter().filter(|taint| matches!(taint.effect, "NoSchedule" | "NoExecute"))
    }
}

/// Which claims of others count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// All that are allocated.
    AsItIs,
    /// None: what would be there if nobody held anything.
    AsIfFree,
}

/// A taint, from whichever version of the API it comes.
#[derive(Clone, Copy)]
pub(super) struct Taint<'a> {
    pub(super) key: &'a str,
    pub(super) value: &'a str,
    pub(super) effect: &'a str,
}

/// What is left of each counter of a pool, by counter set and name. Below zero where others gave too much away.
pub(super) type Counters<'a> = BTreeMap<(&'a str, &'a str), Amount>;

/// The devices of a node, and pools that have some for it and cannot be used.
#[derive(Default)]
pub(super) struct Reach<'a> {
    /// By pool, slice, and place in the slice; pools with binding conditions stand last.
    pub(super) slots: Vec<Slot<'a>>,
    pub(super) counters: Vec<Counters<'a>>,
    pub(super) broken: Vec<(&'a PoolId, String)>,
}

type Specs<'a> = Vec<&'a ResourceSliceSpec>;

impl Inventory {
    pub(super) fn reach(&self, node: &Node, view: View) -> Reach<'_> {
        let mut reach = Reach::default();
        let mut usable = Vec::new();
        for id in self.pools_of(node.name()) {
            let newest = self.newest(id);
            let of_node: Specs<'_> =
                newest.iter().copied().filter(|slice| slice_reaches(slice, node)).collect();
            if of_node.is_empty() {
                continue;
            }
            match self.whole(&newest, &of_node) {
                Ok(counters) => usable.push((has_conditions(&of_node), id, of_node, counters, newest)),
                Err(why) => reach.broken.push((id, why)),
            }
        }
        usable.sort_by_key(|(has_conditions, ..)| *has_conditions);
        for (_, id, of_node, counters, newest) in usable {
            let pool = reach.counters.len();
            reach.counters.push(match view {
                View::AsItIs => self.left(id, counters, &newest),
                View::AsIfFree => counters,
            });
            for slice in of_node {
                let is_each = slice.per_device_node_selection.unwrap_or(false);
                for device in slice.devices.iter().flatten() {
                    if !is_each || device_reaches(device, node) {
                        let id = DeviceId {
                            driver: id.driver.clone(),
                            pool: id.pool.clone(),
                            device: device.name.clone(),
                        };
                        let taints = self.taints(&id, device);
                        let is_taken = view == View::AsItIs && self.is_taken(&id);
                        let shares = self.shares(&id).filter(|_| view == View::AsItIs);
                        reach.slots.push(Slot { id, device, slice, pool, taints, is_taken, shares });
                    }
                }
            }
        }
        reach
    }

    /// Slices of the newest generation of a pool, by name.
    fn newest(&self, id: &PoolId) -> Specs<'_> {
        let slices = || self.pools.get(id).into_iter().flat_map(BTreeMap::values).map(|slice| &slice.spec);
        let newest = slices().map(|slice| slice.pool.generation).max();
        slices().filter(|slice| Some(slice.pool.generation) == newest).collect()
    }

    /// The counters of a pool that is complete and sound.
    fn whole<'a>(&self, newest: &Specs<'a>, of_node: &Specs<'a>) -> Result<Counters<'a>, String> {
        let expected = newest.first().map_or(0, |slice| slice.pool.resource_slice_count);
        if i64::try_from(newest.len()) != Ok(expected) {
            return Err(format!(
                "it has {} of {expected} slices: its driver is replacing them",
                newest.len()
            ));
        }
        let mut names = BTreeSet::new();
        let devices = || newest.iter().flat_map(|slice| slice.devices.iter().flatten());
        if let Some(twice) = of_node
            .iter()
            .flat_map(|slice| slice.devices.iter().flatten())
            .find(|device| !names.insert(&device.name))
        {
            return Err(format!("it names the device {} twice", twice.name));
        }
        let mut counters = Counters::new();
        let mut sets = BTreeSet::new();
        for set in newest.iter().flat_map(|slice| slice.shared_counters.iter().flatten()) {
            if !sets.insert(set.name.as_str()) {
                return Err(format!("it names the counter set {} twice", set.name));
            }
            for (name, counter) in &set.counters {
                let amount = Amount::of(&counter.value);
                let amount =
                    amount.map_err(|why| format!("counter {name} of the set {}: {why}", set.name))?;
                counters.insert((set.name.as_str(), name.as_str()), amount);
            }
        }
        for device in devices() {
            for (set, name, _) in consumption(device)? {
                if !counters.contains_key(&(set, name)) {
                    return Err(format!(
                        "the device {} consumes {set}/{name}, which is no counter",
                        device.name
                    ));
                }
            }
        }
        Ok(counters)
    }

    /// Less what devices consume that claims hold, on whichever node.
    fn left<'a>(&self, id: &PoolId, mut counters: Counters<'a>, newest: &Specs<'a>) -> Counters<'a> {
        if counters.is_empty() {
            return counters;
        }
        for device in newest.iter().flat_map(|slice| slice.devices.iter().flatten()) {
            let held =
                DeviceId { driver: id.driver.clone(), pool: id.pool.clone(), device: device.name.clone() };
            if self.is_taken(&held) || self.shares(&held).is_some() {
                take(&mut counters, device, Amount::minus);
            }
        }
        counters
    }

    fn taints<'a>(&'a self, id: &DeviceId, device: &'a Device) -> Vec<Taint<'a>> {
        let own = device.taints.iter().flatten().map(|taint: &DeviceTaint| Taint {
            key: &taint.key,
            value: taint.value.as_deref().unwrap_or_default(),
            effect: &taint.effect,
        });
        // A rule without a selector means no device; one with an empty selector means all.
        let means = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        let rules = self.rules.values().filter(|rule| {
            rule.spec.device_selector.as_ref().is_some_and(|selector| {
                means(&selector.driver, &id.driver)
                    && means(&selector.pool, &id.pool)
                    && means(&selector.device, &id.device)
            })
        });
        own.chain(rules.map(|rule| Taint {
            key: &rule.spec.taint.key,
            value: rule.spec.taint.value.as_deref().unwrap_or_default(),
            effect: &rule.spec.taint.effect,
        }))
        .collect()
    }
}

/// Adds or subtracts what a device consumes of its pool's counters.
pub(super) fn take<'a>(
    counters: &mut Counters<'a>,
    device: &'a Device,
    change: fn(Amount, Amount) -> Amount,
) {
    for (set, name, amount) in consumption(device).unwrap_or_default() {
        if let Some(left) = counters.get_mut(&(set, name)) {
            *left = change(*left, amount);
        }
    }
}

/// Whether what a device consumes is left; what holds it has consumed its own.
pub(super) fn has_counters(reach: &Reach<'_>, slot: &Slot<'_>) -> bool {
    let left = &reach.counters[slot.pool];
    let consumed = consumption(slot.device).unwrap_or_default();
    slot.is_taken
        || consumed
            .iter()
            .all(|(set, name, amount)| left.get(&(*set, *name)).is_none_or(|left| left >= amount))
}

/// Counter set, counter and amount.
fn consumption(device: &Device) -> Result<Vec<(&str, &str, Amount)>, String> {
    let sets = device.consumes_counters.iter().flatten();
    let each = sets
        .flat_map(|set| set.counters.iter().map(|(name, counter)| (set.counter_set.as_str(), name, counter)));
    each.map(|(set, name, counter)| {
        let amount = Amount::of(&counter.value);
        Ok((
            set,
            name.as_str(),
            amount.map_err(|why| format!("the device {} consumes {set}/{name}: {why}", device.name))?,
        ))
    })
    .collect()
}

fn slice_reaches(slice: &ResourceSliceSpec, node: &Node) -> bool {
    if slice.per_device_node_selection.unwrap_or(false) {
        return slice.devices.iter().flatten().any(|device| device_reaches(device, node));
    }
    reaches(node, slice.node_name.as_deref(), slice.all_nodes, slice.node_selector.as_ref())
}

fn device_reaches(device: &Device, node: &Node) -> bool {
    reaches(node, device.node_name.as_deref(), device.all_nodes, device.node_selector.as_ref())
}

fn has_conditions(slices: &Specs<'_>) -> bool {
    let mut devices = slices.iter().flat_map(|slice| slice.devices.iter().flatten());
    devices.any(|device| device.binding_conditions.as_ref().is_some_and(|conditions| !conditions.is_empty()))
}
