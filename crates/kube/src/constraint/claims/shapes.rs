//! Which nodes can serve an ask, and what the engine has to count for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use phalanx_model::{NodeName, ResourceName, Timestamp};

use super::ask::Asked;
use super::extended::by_plugin;
use crate::api;
use crate::cluster::hardware;
use crate::digest::hex;
use crate::dra::{DeviceId, Inventory, is_reached_by};

/// Devices that are tried on one node before it counts as none that can serve: every node is asked.
const TRIED_MAX: u32 = 10_000;

/// How long nobody is sent to a node that did not serve as expected, where nothing changes there.
const SPOILED_MS: u64 = 5_000;

/// Different reasons that are said of an ask that no node can serve.
const REASONS_MAX: usize = 3;

/// An ask that pods have, on all nodes.
pub(crate) struct Shape {
    pub(crate) asked: Asked,
    /// Whole accelerators of a node that one pod takes, by claims or from device plugins.
    pub(crate) devices: u32,
    /// Where counting accelerators is not enough: how many more pods fit is counted under this name.
    pub(crate) counted: Option<ResourceName>,
    fits: BTreeMap<NodeName, Result<Fit, Arc<str>>>,
    /// Nodes that should have served and did not, until then; nothing where that is not known yet.
    spoiled: BTreeMap<NodeName, Option<Timestamp>>,
}

/// What a node would give were it free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fit {
    devices: u32,
    /// Any of its free accelerators will do, and nothing else is needed.
    is_exact: bool,
}

impl Shape {
    /// Asks every node.
    ///
    /// # Errors
    /// Why no node can serve it, free or not.
    pub(crate) fn new<'n>(
        asked: Asked,
        inventory: &Inventory,
        nodes: impl Iterator<Item = (&'n NodeName, &'n api::Node)>,
    ) -> Self {
        let fits = nodes.map(|(name, node)| (name.clone(), fit(&asked, inventory, node))).collect();
        let mut shape = Self { asked, devices: 0, counted: None, fits, spoiled: BTreeMap::new() };
        shape.settle();
        shape
    }

    /// How many accelerators most nodes would give, and whether they have to be counted in another way.
    fn settle(&mut self) {
        let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
        for fit in self.fits.values().flatten() {
            *votes.entry(fit.devices).or_default() += 1;
        }
        let most = votes.iter().max_by(|(a, x), (b, y)| x.cmp(y).then_with(|| b.cmp(a)));
        self.devices = most.map_or(0, |(devices, _)| *devices);
        if self.fits.values().flatten().any(|fit| !fit.is_exact) {
            self.counted =
                ResourceName::new(format!("claims/{}", hex(self.asked.condition.as_bytes(), 4))).ok();
        }
    }

    /// Looks at a node again; whether that changed anything.
    pub(crate) fn look(&mut self, inventory: &Inventory, name: &NodeName, node: Option<&api::Node>) -> bool {
        let fit = node.map(|node| fit(&self.asked, inventory, node));
        let is_news = self.fits.get(name) != fit.as_ref() || self.unspoil(name);
        match fit {
            Some(fit) => drop(self.fits.insert(name.clone(), fit)),
            None => drop(self.fits.remove(name)),
        }
        // Nobody counts on it yet: nothing could serve it until now.
        if is_news && self.devices == 0 && self.counted.is_none() {
            self.settle();
        }
        is_news
    }

    /// A node did not serve it, against what was to be expected.
    pub(crate) fn spoil(&mut self, name: &NodeName) {
        self.spoiled.insert(name.clone(), None);
    }

    /// Something that claims hold changed there; whether that makes it one that may serve again.
    pub(crate) fn unspoil(&mut self, name: &NodeName) -> bool {
        self.spoiled.remove(name).is_some()
    }

    /// Lets nodes serve again that did not a while ago; whether there were such.
    pub(crate) fn forgive(&mut self, now: Timestamp) -> bool {
        let before = self.spoiled.len();
        self.spoiled.retain(|_, until| *until.get_or_insert(now.plus(SPOILED_MS)) > now);
        self.spoiled.len() < before
    }

    /// When the first of them may serve again.
    pub(crate) fn forgives_at(&self) -> Option<Timestamp> {
        self.spoiled.values().flatten().min().copied()
    }

    /// The nodes that can serve it, all in the same way.
    pub(crate) fn nodes(&self) -> BTreeSet<NodeName> {
        let can = |(name, fit): &(&NodeName, &Result<Fit, Arc<str>>)| {
            fit.as_ref().is_ok_and(|fit| fit.devices == self.devices) && !self.spoiled.contains_key(*name)
        };
        self.fits.iter().filter(can).map(|(name, _)| name.clone()).collect()
    }

    /// Why no node can serve it; nothing where one can.
    pub(crate) fn refusal(&self) -> Option<String> {
        if self.fits.values().any(Result::is_ok) {
            return None;
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for why in self.fits.values().filter_map(|fit| fit.as_ref().err()) {
            *reasons.entry(why).or_default() += 1;
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
        let said = reasons.iter().take(REASONS_MAX);
        let said: Vec<String> = said.map(|(why, count)| format!("{why} ({count} nodes)")).collect();
        let none = if said.is_empty() { "no node is known".to_owned() } else { said.join("; ") };
        Some(format!("none of {} nodes can serve its claims: {none}", self.fits.len()))
    }
}

fn fit(asked: &Asked, inventory: &Inventory, node: &api::Node) -> Result<Fit, Arc<str>> {
    if let Some(pin) = asked.pins.iter().find(|pin| !is_reached_by(pin, node)) {
        let name = pin.metadata.name.as_deref().unwrap_or_default();
        return Err(format!("claim {name} is allocated, and its devices are not reached from here").into());
    }
    let offered = asked.extended.as_ref().map_or(0, |ask| by_plugin(ask, node, hardware::is_device));
    let claims = asked.on(inventory, node)?;
    if claims.is_empty() {
        return Ok(Fit { devices: offered, is_exact: true });
    }
    let claims: Vec<&ResourceClaim> = claims.iter().collect();
    let given =
        inventory.could_allocate(&claims, node, TRIED_MAX).map_err(|why| Arc::from(why.to_string()))?;
    let accelerators = inventory.accelerators(node);
    let given: Vec<DeviceId> = given.iter().flat_map(devices_of).collect();
    let taken = given.iter().filter(|id| accelerators.iter().any(|device| device.id == **id)).count();
    let is_exact = asked.is_plain()
        && taken == given.len()
        && inventory.selects_all(&claims, node, &accelerators).unwrap_or(false);
    let devices = u32::try_from(taken).unwrap_or(u32::MAX).saturating_add(offered);
    Ok(Fit { devices, is_exact })
}

/// The devices of an allocation; without those that are only looked at by an administrator.
pub(super) fn devices_of(allocation: &AllocationResult) -> impl Iterator<Item = DeviceId> {
    let results =
        allocation.devices.as_ref().and_then(|devices| devices.results.as_deref()).unwrap_or_default();
    results.iter().filter(|result| !result.admin_access.unwrap_or(false)).map(DeviceId::of)
}
