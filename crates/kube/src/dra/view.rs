//! A node's devices for the engine: in an order that stays, so that device `i` of the engine is one device here.

use k8s_openapi::api::resource::v1::{DeviceAttribute, ResourceClaim};
use phalanx_model::{DeviceMask, ids::natural_cmp};
use thiserror::Error;

use super::capacity;
use super::error::Unallocatable;
use super::inventory::{DeviceId, Inventory};
use super::pools::{self, Slot, View};
use super::request;
use crate::api::Node;
use crate::quantity::Amount;

/// A device as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraDevice {
    pub id: DeviceId,
    /// What kind of device the driver says it is: `gpu`, `mig`, `vfio`; empty where it does not say.
    pub kind: String,
    pub product: String,
    pub uuid: String,
    /// Of the device that a partition is cut from.
    pub parent_uuid: Option<String>,
    /// `domain:bus:device.function`, lower case.
    pub pci_address: Option<String>,
    pub pcie_root: Option<String>,
    pub numa: Option<i64>,
    /// 0 where the driver does not say.
    pub memory_bytes: u64,
    /// Whether a claim holds it, alone or a share of it.
    pub is_taken: bool,
    /// Whether a taint keeps claims away that do not tolerate it.
    pub is_tainted: bool,
}

/// Why the devices of a class cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("device class {class}: {why}")]
pub struct NoView {
    pub class: String,
    pub why: String,
}

/// What the claims of a pod ask for, before a node is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// One for each request, or for each of its alternatives.
    pub wanted: Vec<Wanted>,
    /// Equal for claims that ask for the same.
    pub shape: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Index of the claim.
    pub claim: usize,
    /// `request`, or `request/subrequest`.
    pub request: String,
    pub class: String,
    /// Devices; `None` for all that a node has.
    pub count: Option<usize>,
    /// Access beside others, which takes no device.
    pub is_admin: bool,
}

/// Which of a node's devices a request could have, were they all free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eligible {
    /// Index of the claim.
    pub claim: usize,
    /// `request`, or `request/subrequest`.
    pub request: String,
    /// Bits are places in the list that was given; what stands behind the 64th is in none.
    pub devices: DeviceMask,
    /// Access beside others, which takes no device.
    pub is_admin: bool,
}

impl Demand {
    /// Devices that the pod takes, by the first alternatives; `None` where it wants all of a node.
    #[must_use]
    pub fn devices(&self) -> Option<usize> {
        let mut sum = Some(0);
        let mut last = None;
        for wanted in &self.wanted {
            let request =
                wanted.request.split_once('/').map_or(wanted.request.as_str(), |(request, _)| request);
            if wanted.is_admin || last.replace((wanted.claim, request)) == Some((wanted.claim, request)) {
                continue;
            }
            sum = sum.zip(wanted.count).map(|(sum, count)| sum + count);
        }
        sum
    }
}

impl Inventory {
    /// The devices that a class selects on a node, by PCI address, parent first, then by name in natural order.
    ///
    /// # Errors
    /// When there is no such class, or a selector of it does not compile or fails for a device.
    pub fn devices_of(&self, node: &Node, class: &str) -> Result<Vec<DraDevice>, NoView> {
        let no_view = |why: String| NoView { class: class.to_owned(), why };
        let spec = &self.classes.get(class).ok_or_else(|| no_view("there is no such class".to_owned()))?.spec;
        let mut selectors = Vec::new();
        for (at, selector) in spec.selectors.iter().flatten().enumerate() {
            let field = format!("spec.selectors[{at}].cel.expression");
            let cel = selector.cel.as_ref().ok_or_else(|| no_view(format!("{field} is missing")))?;
            let compiled = self.selectors.of(&cel.expression);
            selectors.push((compiled.map_err(|why| no_view(format!("{field}: {why}")))?, field));
        }
        let mut devices = Vec::new();
        for slot in self.reach(node, View::AsItIs).slots {
            let mut is_selected = true;
            for (selector, field) in &selectors {
                let selected = selector.selects(&slot.id.driver, slot.device);
                is_selected &= selected
                    .map_err(|why| no_view(format!("{field}: {why} (for the device {})", slot.id)))?;
            }
            if is_selected {
                let is_taken = slot.is_taken || slot.shares.is_some();
                devices.push(DraDevice { is_taken, ..describe(&slot) });
            }
        }
        devices.sort_by(in_order);
        Ok(devices)
    }

    /// The whole accelerators of a node, in the order of [`Inventory::devices_of`]: devices of this node alone, of a
    /// driver for GPUs or TPUs, that are no part of another and are not shared. Taken is here also one whose counters a
    /// part of it uses.
    #[must_use]
    pub fn accelerators(&self, node: &Node) -> Vec<DraDevice> {
        let reach = self.reach(node, View::AsItIs);
        let mut devices = Vec::new();
        for slot in &reach.slots {
            let is_of_it = match slot.slice.per_device_node_selection {
                Some(true) => &slot.device.node_name,
                _ => &slot.slice.node_name,
            };
            if is_of_it.as_deref() != Some(node.name())
                || slot.device.allow_multiple_allocations == Some(true)
            {
                continue;
            }
            let device = describe(slot);
            if is_accelerator(&device) {
                let is_taken = slot.is_taken || !pools::has_counters(&reach, slot);
                devices.push(DraDevice { is_taken, ..device });
            }
        }
        devices.sort_by(in_order);
        devices
    }

    /// What claims ask for: how many devices of which class.
    ///
    /// # Errors
    /// When a claim cannot be understood or is not allowed.
    pub fn demand(&self, claims: &[&ResourceClaim]) -> Result<Demand, Unallocatable> {
        let mut wanted = Vec::new();
        for (claim, ask) in self.asks(claims)?.iter().enumerate() {
            for choice in ask.requests.iter().flat_map(|request| &request.choices) {
                let (request, class) = (choice.name.clone(), choice.class_name.to_owned());
                wanted.push(Wanted { claim, request, class, count: choice.count, is_admin: choice.is_admin });
            }
        }
        let specs: Vec<_> = claims.iter().map(|claim| &claim.spec).collect();
        let shape = serde_json::to_string(&specs).map_err(|why| Unallocatable::Refused {
            claim: claims.first().map(|claim| request::name(claim)).unwrap_or_default(),
            field: "spec".to_owned(),
            why: why.to_string(),
        })?;
        Ok(Demand { wanted, shape })
    }

    /// Whether every request would be content with each of these devices of a node, by class and selectors.
    ///
    /// # Errors
    /// As [`Inventory::eligible`].
    pub fn selects_all(
        &self,
        claims: &[&ResourceClaim],
        node: &Node,
        devices: &[DraDevice],
    ) -> Result<bool, Unallocatable> {
        let reach = self.reach(node, View::AsItIs);
        for ask in &self.asks(claims)? {
            for choice in ask.requests.iter().flat_map(|request| &request.choices) {
                for device in devices {
                    let slot = reach.slots.iter().find(|slot| slot.id == device.id);
                    let is_selected = match slot {
                        Some(slot) => choice.selects(&ask.name, slot)?,
                        None => false,
                    };
                    if !is_selected {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Which of a node's devices each request could have, were they free: selectors, tolerations and capacity.
    /// A selector that pins a product leaves the devices of that product.
    ///
    /// # Errors
    /// When a claim cannot be understood, or a selector fails for a device.
    pub fn eligible(
        &self,
        claims: &[&ResourceClaim],
        node: &Node,
        devices: &[DraDevice],
    ) -> Result<Vec<Eligible>, Unallocatable> {
        let reach = self.reach(node, View::AsItIs);
        let mut eligible = Vec::new();
        for (claim, ask) in self.asks(claims)?.iter().enumerate() {
            for choice in ask.requests.iter().flat_map(|request| &request.choices) {
                let mut mask = DeviceMask::EMPTY;
                for (index, device) in (0..64).zip(devices) {
                    let Some(slot) = reach.slots.iter().find(|slot| slot.id == device.id) else { continue };
                    let is_enough = capacity::share(slot.device, &choice.capacity)
                        .is_some_and(|share| capacity::fits(slot.device, std::iter::once(&share)));
                    if is_enough && choice.tolerates(slot) && choice.selects(&ask.name, slot)? {
                        mask = mask.union(DeviceMask::one(index));
                    }
                }
                let (request, is_admin) = (choice.name.clone(), choice.is_admin);
                eligible.push(Eligible { claim, request, devices: mask, is_admin });
            }
        }
        Ok(eligible)
    }

    /// Which of a node's devices with a taint some request could have all the same, as it tolerates that.
    ///
    /// # Errors
    /// As [`Inventory::eligible`].
    pub fn tolerated(
        &self,
        claims: &[&ResourceClaim],
        node: &Node,
        devices: &[DraDevice],
    ) -> Result<DeviceMask, Unallocatable> {
        let tainted: DeviceMask =
            (0..64).zip(devices).filter(|(_, device)| device.is_tainted).map(|(at, _)| at).collect();
        if tainted.is_empty() {
            return Ok(tainted);
        }
        let eligible = self.eligible(claims, node, devices)?;
        let had = eligible.iter().filter(|request| !request.is_admin);
        Ok(had.fold(DeviceMask::EMPTY, |all, request| all.union(request.devices)).and(tainted))
    }
}

/// By PCI address, parent first, then by name.
fn in_order(a: &DraDevice, b: &DraDevice) -> std::cmp::Ordering {
    let place = |device: &DraDevice| (device.pci_address.clone(), device.parent_uuid.is_some());
    let by_name = || natural_cmp(&a.id.device, &b.id.device).then_with(|| a.id.cmp(&b.id));
    place(a).cmp(&place(b)).then_with(by_name)
}

/// There is no word for it in the API: drivers are named `gpu.<vendor>`, and say of parts that they are parts.
fn is_accelerator(device: &DraDevice) -> bool {
    let is_driver = device.id.driver.split('.').next().is_some_and(|first| matches!(first, "gpu" | "tpu"));
    let kind = device.kind.to_ascii_lowercase();
    let is_whole = device.parent_uuid.is_none() && !kind.ends_with("partition");
    is_whole && (is_driver && !matches!(&*kind, "mig" | "vfio") || kind == "gpu")
}

/// Whether two nodes have the same devices, each at the same place in its list: products, memory, and which of them
/// share a PCIe root, a NUMA node and a parent. Names, addresses and UUIDs may differ.
#[must_use]
pub fn is_one_shape(a: &[DraDevice], b: &[DraDevice]) -> bool {
    fn same_first<'d>(
        list: &'d [DraDevice],
        at: usize,
        of: impl Fn(&'d DraDevice) -> Option<&'d str>,
    ) -> Option<usize> {
        let value = of(&list[at])?;
        list.iter().position(|other| of(other) == Some(value))
    }
    let parent = |device: &'_ DraDevice| device.parent_uuid.clone();
    let what = |list: &[DraDevice], at: usize| {
        let device = &list[at];
        let root = same_first(list, at, |device| device.pcie_root.as_deref());
        let first_of_parent = parent(device).and_then(|uuid| {
            list.iter().position(|other| other.uuid == uuid || parent(other).as_ref() == Some(&uuid))
        });
        (device.kind.clone(), device.product.clone(), device.memory_bytes, device.numa, root, first_of_parent)
    };
    a.len() == b.len() && (0..a.len()).all(|at| what(a, at) == what(b, at))
}

fn describe(slot: &Slot<'_>) -> DraDevice {
    let (id, device) = (slot.id.clone(), slot.device);
    let attribute = |name: &str| -> Option<&DeviceAttribute> {
        let attributes = device.attributes.as_ref()?;
        attributes.get(name).or_else(|| attributes.get(&format!("{}/{name}", id.driver)))
    };
    let standard =
        |name: &str| attribute(&format!("resource.kubernetes.io/{name}")).or_else(|| attribute(name));
    let text = |found: Option<&DeviceAttribute>| found.and_then(|found| found.string.clone());
    let numa = standard("numaNode").or_else(|| attribute("numa")).and_then(|numa| numa.int);
    let memory = ["memory", "addressableMemory"].iter().find_map(|name| {
        let amount = Amount::of(&device.capacity.as_ref()?.get(*name)?.value).ok()?;
        u64::try_from(amount.rounded_up()).ok()
    });
    DraDevice {
        kind: text(attribute("type")).unwrap_or_default(),
        product: text(attribute("productName")).unwrap_or_default(),
        uuid: text(attribute("uuid")).unwrap_or_default(),
        parent_uuid: text(attribute("parentUUID")),
        pci_address: text(standard("pciBusID")).map(|address| address.to_ascii_lowercase()),
        pcie_root: text(standard("pcieRoot")),
        numa,
        memory_bytes: memory.unwrap_or(0),
        is_taken: false,
        is_tainted: slot.hard_taints().next().is_some(),
        id,
    }
}
