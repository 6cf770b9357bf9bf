//! What a node's machine is: as its agent found it, or as its labels and resources tell.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{
    DeviceMask, LinkKind, Machine, Node, NodeName, Origin, Port, Product, ResourceName, ShapeName, shape,
};
use phalanx_spec::cluster::{DeclaredDevices, DeclaredLinkKind, uniform};

use super::published::{Inside, Published};
use crate::api;
use crate::filter::{Amounts, Capacity, DividedGpus, Held, SHARED_GPU};
use crate::messages::Found;
use crate::quantity::Amount;

/// Resources that count whole accelerators. The first that a node offers is what its devices are.
pub(crate) const DEVICES: [&str; 4] =
    ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915"];

/// Labels of GPU feature discovery and of its AMD counterpart.
const PRODUCTS: [&str; 2] = ["nvidia.com/gpu.product", "amd.com/gpu.product-name"];

/// Memory of one device in MiB.
const MEMORY: &str = "nvidia.com/gpu.memory";

/// How many devices a node's kubelet counts.
#[derive(Clone, Copy)]
struct Devices {
    /// Those that do not work among them.
    there: u64,
    offered: u64,
}

impl Devices {
    fn of(node: &api::Node, capacity: &Capacity) -> Self {
        let amounts = &capacity.amounts.extended;
        let name = DEVICES
            .into_iter()
            .find(|name| amounts.contains_key(*name) || node.status.capacity.contains_key(*name));
        let offered = name.and_then(|name| amounts.get(name)).copied().unwrap_or(0);
        let there = name.and_then(|name| Some(Amount::of(node.status.capacity.get(name)?).ok()?.units_up()));
        Self { there: there.unwrap_or(0).max(offered), offered }
    }
}

/// What is said of a node's devices.
pub(crate) struct Offers<'a> {
    pub(crate) node: &'a api::Node,
    pub(crate) capacity: &'a Capacity,
    /// What drivers publish.
    pub(crate) published: Option<&'a Published>,
    pub(crate) divided: Option<&'a DividedGpus>,
}

/// Devices of a node that do not work, as its kubelet says without saying which.
pub(crate) fn broken(node: &api::Node, capacity: &Capacity) -> u32 {
    let Devices { there, offered } = Devices::of(node, capacity);
    u32::try_from(there - offered).unwrap_or(u32::MAX)
}

/// Machines, each once for all nodes that have the like.
#[derive(Default)]
pub(crate) struct Machines {
    built: BTreeMap<Make, Arc<Machine>>,
    found: BTreeMap<NodeName, Found>,
    /// One node of each shape.
    samples: BTreeMap<ShapeName, Node>,
    listed: Vec<Node>,
}

/// What makes machines equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Make {
    count: u32,
    model: String,
    memory_bytes: u64,
    cpu_milli: u64,
    host_bytes: u64,
    named: BTreeMap<ResourceName, u64>,
    /// Devices as their driver describes them; none where it does not.
    inside: Vec<Inside>,
    /// The machine that was found, by its address: it outlives its makes.
    found: Option<usize>,
    /// Of each device; 0 if devices are whole.
    replicas: u32,
    /// Whether replicas are slices that MIG made.
    is_sliced: bool,
}

impl Machines {
    pub(crate) fn found(&mut self, node: NodeName, found: Option<Found>) {
        match found {
            Some(found) => drop(self.found.insert(node, found)),
            None => drop(self.found.remove(&node)),
        }
        self.built.retain(|make, _| make.found.is_none());
    }

    pub(crate) fn of<'c>(
        &mut self,
        name: &NodeName,
        offers: &Offers<'_>,
        counts: impl Iterator<Item = (&'c ResourceName, u64)>,
    ) -> Arc<Machine> {
        let Offers { node, capacity, published, divided } = *offers;
        let offered = &capacity.amounts.extended;
        // Devices that do not work are not offered, and the others keep their numbers.
        let there = divided.map_or_else(|| Devices::of(node, capacity).there, |of| of.gpus.into());
        // A node that offers devices in both ways has them once.
        let inside = published.map(|node| node.devices.clone()).unwrap_or_default();
        let count = there.max(inside.len() as u64);
        let model = PRODUCTS.iter().find_map(|key| node.label(key)).unwrap_or_default();
        let mib = node.label(MEMORY).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let mut named: BTreeMap<ResourceName, u64> = offered
            .iter()
            .filter(|(name, _)| !is_device(name))
            .filter_map(|(name, amount)| Some((resource(name)?, *amount)))
            .collect();
        named.extend(pods().map(|pods| (pods, capacity.pods)));
        named.extend(storage().map(|disk| (disk, capacity.amounts.ephemeral_bytes)));
        named.extend(counts.map(|(name, count)| (name.clone(), count)));
        let count = u32::try_from(count).unwrap_or(u32::MAX).min(phalanx_model::DEVICES_PER_NODE_MAX);
        let found = self.found.get(name).filter(|found| found.offers(count)).map(|found| &found.machine);
        let is_sliced = divided.is_some_and(DividedGpus::is_mig);
        let replicas = divided.map_or(0, |divided| divided.replicas);
        // The label says it of a slice.
        let mib = if is_sliced { mib.saturating_mul(replicas.into()) } else { mib };
        let make = Make {
            count,
            model: model.to_owned(),
            memory_bytes: mib.saturating_mul(1 << 20),
            cpu_milli: capacity.amounts.cpu_milli,
            host_bytes: capacity.amounts.memory_bytes,
            named,
            inside,
            found: found.map(|machine| Arc::as_ptr(machine).addr()),
            replicas,
            is_sliced,
        };
        if let Some(known) = self.built.get(&make) {
            return Arc::clone(known);
        }
        let machine = Arc::new(make.build(found));
        self.built.insert(make, Arc::clone(&machine));
        machine
    }

    /// Devices of a node that do not answer any more, if this is the machine that was found there.
    pub(crate) fn lost(&self, name: &NodeName, machine: &Machine) -> DeviceMask {
        let found =
            self.found.get(name).filter(|found| found.machine.device_count() == machine.device_count());
        found.map_or(DeviceMask::EMPTY, |found| found.lost.and(machine.device_mask()))
    }

    /// Remembers the shapes of these; whether one was new.
    pub(crate) fn learn<'a>(&mut self, nodes: impl Iterator<Item = &'a Node>) -> bool {
        let before = self.samples.len();
        for node in nodes {
            self.samples.entry(node.machine.shape.clone()).or_insert_with(|| node.clone());
        }
        let is_new = self.samples.len() > before;
        if is_new {
            self.listed = self.samples.values().cloned().collect();
        }
        is_new
    }

    /// One node of each shape that ever was there.
    pub(crate) fn samples(&self) -> &[Node] {
        &self.listed
    }
}

impl Found {
    /// Whether a node that offers so many devices can be this machine. What the kubelet says of lost devices may be older.
    fn offers(&self, count: u32) -> bool {
        let all = self.machine.device_count();
        count == all || count == all.saturating_sub(self.lost.count())
    }
}

impl Make {
    /// What was found inside, or else so many equal devices, joined by a switch where the product always is.
    fn build(&self, found: Option<&Arc<Machine>>) -> Machine {
        let mut machine = match found {
            Some(machine) => Machine::clone(machine),
            None => self.declared(),
        };
        machine.cpu_milli = self.cpu_milli;
        machine.memory_bytes = self.host_bytes;
        machine.named.clone_from(&self.named);
        machine.replicas = self.replicas;
        if self.is_sliced && machine.devices.iter().any(|device| !device.is_sliced) {
            machine.devices.iter_mut().for_each(|device| device.is_sliced = true);
            shape::finish(&mut machine);
        }
        machine
    }

    fn declared(&self) -> Machine {
        let said =
            self.inside.first().map(|first| first.product.clone()).filter(|product| !product.is_empty());
        let model = said.unwrap_or_else(|| self.model.clone());
        let is_one_product =
            self.inside.iter().all(|device| device.product.is_empty() || device.product == model);
        let product = Product::of(&model).filter(|_| is_one_product);
        let is_switched = product.is_some_and(|product| product.has_nvlink_switch);
        let link = if is_switched { DeclaredLinkKind::Nvlink } else { DeclaredLinkKind::Pcie };
        let (count, memory_bytes) = (self.count, self.memory_bytes);
        let mut machine = uniform(&DeclaredDevices { count, model, memory_bytes, link });
        machine.origin = Origin::Declared;
        self.describe(&mut machine, is_switched);
        shape::finish(&mut machine);
        machine
    }
}

impl Make {
    /// What the driver says of each device, and how they are joined where nothing better does it.
    fn describe(&self, machine: &mut Machine, is_switched: bool) {
        for (device, said) in machine.devices.iter_mut().zip(&self.inside) {
            if !said.product.is_empty() {
                device.model.clone_from(&said.product);
            }
            if said.memory_bytes > 0 {
                device.memory_bytes = said.memory_bytes;
            }
            device.numa = said.numa;
        }
        if is_switched {
            return;
        }
        for link in &mut machine.links {
            let (Port::Device(a), Port::Device(b)) = (link.a, link.b) else { continue };
            let (Some(a), Some(b)) = (self.inside.get(a as usize), self.inside.get(b as usize)) else {
                continue;
            };
            link.kind = match (a.root == b.root, a.numa == b.numa) {
                (true, _) => LinkKind::HostBridge,
                (false, true) => LinkKind::Numa,
                (false, false) => LinkKind::Socket,
            };
        }
    }
}

/// Whether a resource counts whole devices.
pub(crate) fn is_device(name: &str) -> bool {
    DEVICES.contains(&name)
}

/// Whole devices that these pods hold.
pub(crate) fn devices_held(held: &Held) -> u32 {
    let sum = DEVICES.iter().filter_map(|name| held.amounts.extended.get(*name)).sum::<u64>();
    u32::try_from(sum).unwrap_or(u32::MAX)
}

/// Whether a pod requests devices, or replicas of them.
pub(crate) fn are_devices_asked(amounts: &Amounts) -> bool {
    amounts.extended.keys().any(|name| is_device(name) || **name == *SHARED_GPU)
}

/// A resource of Kubernetes among those that the engine counts by name.
pub(crate) fn resource(name: &str) -> Option<ResourceName> {
    ResourceName::new(name).ok()
}

/// Places for pods.
pub(crate) fn pods() -> Option<ResourceName> {
    resource("pods")
}

pub(crate) fn storage() -> Option<ResourceName> {
    resource("ephemeral-storage")
}

/// So many devices, from the last: which ones others hold is not known, and ours go to the first.
pub(crate) fn highest(of: DeviceMask, count: u32) -> DeviceMask {
    let skipped = of.count().saturating_sub(count) as usize;
    of.iter().skip(skipped).collect()
}
