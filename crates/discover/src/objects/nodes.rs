//! `kubectl get nodes -o yaml` or `-o json`: hosts, what is in them, and the domains that their labels name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_model::{
    Admin, DEVICES_PER_NODE_MAX, Device, DomainName, Host, LevelName, Machine, Membership, NodeName, Origin,
    TorusPlace,
};

use super::preset::{CLIQUE, GKE_POOL, Preset, REGION, SLICE, Sort, TPU_TOPOLOGY, TPU_TYPE, ZONE};
use super::tree::{self, Tree};
use super::{NODES_MAX, ObjectError, Reading, counted, listed, printable, units};
use crate::gap::{self, Gap};
use crate::{shape, tpu};

/// The labels of old clusters, which mean what the new ones do.
const OLD_LABELS: [(&str, &str); 3] = [
    (REGION, "failure-domain.beta.kubernetes.io/region"),
    (ZONE, "failure-domain.beta.kubernetes.io/zone"),
    ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
];

/// Extended resources that count whole devices, and what their devices are called.
const RESOURCES: [(&str, &str); 7] = [
    ("nvidia.com/gpu", "GPU"),
    ("amd.com/gpu", "GPU"),
    ("gpu.intel.com/xe", "GPU"),
    ("gpu.intel.com/i915", "GPU"),
    ("google.com/tpu", "TPU"),
    ("habana.ai/gaudi", "HL"),
    ("aws.amazon.com/neuron", "NEURON"),
];

/// Labels that name the product, best first.
const PRODUCTS: [&str; 6] = [
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    TPU_TYPE,
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
];

/// One Node object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeObject {
    pub name: NodeName,
    pub labels: BTreeMap<String, String>,
    /// `status.capacity` as it was written.
    pub capacity: BTreeMap<String, String>,
    /// Its internal IP address, or else another one that it has.
    pub address: Option<String>,
    pub facts: NodeFacts,
    place: (u32, u32),
}

/// What a Node object says beside its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub instance_type: Option<String>,
    /// Cordoned where `spec.unschedulable` is true.
    pub admin: Admin,
    /// `key=value:effect`, sorted.
    pub taints: Vec<String>,
}

/// The Node objects of a text, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeObjects {
    nodes: BTreeMap<NodeName, NodeObject>,
    gaps: Vec<Gap>,
}

/// Nodes read by the labels of a preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Hosts by name.
    pub reading: Reading,
    /// In the order of the hosts.
    pub facts: Vec<NodeFacts>,
    /// The name of the preset.
    pub preset: String,
}

/// Reads nodes by the labels of a preset.
///
/// # Errors
/// When the text is neither YAML nor JSON, holds no node, or is beyond the limits.
pub fn parse(text: &str, preset: &Preset) -> Result<Nodes, ObjectError> {
    Ok(read(text)?.by(preset))
}

/// Reads nodes by the labels of the preset that fits them best.
///
/// # Errors
/// As [`parse`].
pub fn parse_detected(text: &str) -> Result<Nodes, ObjectError> {
    let objects = read(text)?;
    Ok(objects.by(&Preset::detect(&objects)))
}

/// Reads the Node objects of a text; other kinds are passed over.
///
/// # Errors
/// As [`parse`].
pub fn read(text: &str) -> Result<NodeObjects, ObjectError> {
    let found = tree::read(text)?;
    let mut objects = NodeObjects { nodes: BTreeMap::new(), gaps: found.gaps };
    for tree in found.objects.iter().filter(|tree| tree.kind() == "Node" || is_bare_node(tree)) {
        if objects.nodes.len() >= NODES_MAX {
            return Err(ObjectError::TooManyNodes);
        }
        match node(tree) {
            Ok(node) if objects.nodes.contains_key(&node.name) => {
                let what = format!("the node {} is here a second time; the first is kept", node.name);
                objects.gaps.push(Gap::new(tree.place(), what));
            }
            Ok(node) => {
                objects.nodes.insert(node.name.clone(), node);
            }
            Err(what) => objects.gaps.push(Gap::new(tree.place(), what)),
        }
    }
    if objects.nodes.is_empty() {
        let found = match objects.gaps.first() {
            Some(gap) => gap.to_string(),
            None => tree::kinds(&found.objects),
        };
        return Err(ObjectError::Missing { wanted: "Node", found, command: "kubectl get nodes -o yaml" });
    }
    Ok(objects)
}

/// Items of a typed list may leave out their kind.
fn is_bare_node(tree: &Tree) -> bool {
    tree.kind().is_empty()
        && tree.at(&["metadata", "name"]).is_some()
        && tree.at(&["status", "capacity"]).is_some()
}

fn node(tree: &Tree) -> Result<NodeObject, String> {
    let name = tree.name().ok_or("a node has no name and is left out")?;
    let name = NodeName::new(name)
        .map_err(|error| format!("{:?} is no name of a node: {error}", printable(name)))?;
    let texts = |path: &[&str]| -> BTreeMap<String, String> {
        let entries = tree.at(path).map_or(&[][..], Tree::entries);
        entries.iter().filter_map(|(key, value)| Some((key.clone(), value.text()?.to_owned()))).collect()
    };
    let labels = texts(&["metadata", "labels"]);
    let addresses = tree.items_at(&["status", "addresses"]);
    let address = ["InternalIP", "InternalDNS", "Hostname", "ExternalIP"].iter().find_map(|kind| {
        let of_kind = addresses.iter().find(|a| a.text_at(&["type"]) == Some(kind))?;
        of_kind.text_at(&["address"]).filter(|address| !address.is_empty() && address.len() <= 253)
    });
    let mut taints: Vec<String> = tree.items_at(&["spec", "taints"]).iter().filter_map(taint).collect();
    taints.sort_unstable();
    let is_cordoned = tree.at(&["spec", "unschedulable"]).is_some_and(Tree::is_true);
    let mut node = NodeObject {
        name,
        labels,
        capacity: texts(&["status", "capacity"]),
        address: address.map(printable),
        facts: NodeFacts {
            instance_type: None,
            admin: if is_cordoned { Admin::Cordoned } else { Admin::Open },
            taints,
        },
        place: tree.place(),
    };
    node.facts.instance_type = node.label("node.kubernetes.io/instance-type").map(str::to_owned);
    Ok(node)
}

fn taint(tree: &Tree) -> Option<String> {
    let key = tree.text_at(&["key"])?;
    let value = tree.text_at(&["value"]).map_or_else(String::new, |value| format!("={value}"));
    let effect = tree.text_at(&["effect"]).map_or_else(String::new, |effect| format!(":{effect}"));
    Some(printable(&format!("{key}{value}{effect}")))
}

impl NodeObject {
    /// A node as a world knows it that has no text of it: its labels and its capacity as they are written.
    #[must_use]
    pub fn new(name: NodeName, labels: BTreeMap<String, String>, capacity: BTreeMap<String, String>) -> Self {
        Self { name, labels, capacity, address: None, facts: NodeFacts::default(), place: (0, 0) }
    }

    /// The value of a label, of an old label where the node has no new one; empty is none.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        let old =
            || OLD_LABELS.iter().find(|(new, _)| *new == key).and_then(|(_, old)| self.labels.get(*old));
        self.labels.get(key).or_else(old).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn count(&self, resource: &str) -> u64 {
        self.capacity.get(resource).and_then(|text| units::whole(text)).unwrap_or(0)
    }

    /// The domain that a label names; `Err` says why its value names none.
    fn domain(&self, key: &str) -> Option<Result<DomainName, String>> {
        let value = self.label(key)?;
        if key == CLIQUE {
            return Some(clique(value));
        }
        // Where a region has no zones, Azure puts the number of the fault domain here.
        if key == ZONE && value.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        Some(DomainName::new(value).map_err(|error| format!("{:?} is no name: {error}", printable(value))))
    }
}

/// `<ClusterUUID>.<CliqueID>`; all zeros say that the fabric is not initialised.
fn clique(value: &str) -> Result<DomainName, String> {
    let Some((uuid, id)) = value.rsplit_once('.') else {
        return Err(format!("{:?} is not <ClusterUUID>.<CliqueID>", printable(value)));
    };
    if uuid.bytes().all(|b| matches!(b, b'0' | b'-')) {
        return Err("its cluster UUID is zero: the NVLink fabric is not initialised".to_owned());
    }
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("{:?} is not <ClusterUUID>.<CliqueID>", printable(value)));
    }
    DomainName::new(value).map_err(|error| format!("{:?} is no name: {error}", printable(value)))
}

impl FromIterator<NodeObject> for NodeObjects {
    /// Of two nodes of one name, the first is kept.
    fn from_iter<I: IntoIterator<Item = NodeObject>>(nodes: I) -> Self {
        let mut objects = Self::default();
        for node in nodes {
            objects.nodes.entry(node.name.clone()).or_insert(node);
        }
        objects
    }
}

impl NodeObjects {
    /// By name.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeObject> {
        self.nodes.values()
    }

    #[must_use]
    pub fn get(&self, name: &NodeName) -> Option<&NodeObject> {
        self.nodes.get(name)
    }

    /// Hosts with their machines and addresses, without any domain; by name.
    #[must_use]
    pub fn hosts(&self) -> (Vec<Host>, Vec<Gap>) {
        let mut machines: BTreeMap<Inside<'_>, Arc<Machine>> = BTreeMap::new();
        let mut gaps = self.gaps.clone();
        let hosts = self.nodes().map(|node| Host {
            machine: Inside::of(node, &mut gaps).map(|inside| {
                let new = || Arc::new(inside.machine());
                let machine = machines.get(&inside).map_or_else(new, Arc::clone);
                Arc::clone(machines.entry(inside).or_insert(machine))
            }),
            address: node.address.clone(),
            ..Host::new(node.name.clone())
        });
        (hosts.collect(), gaps)
    }

    /// Places the nodes by the labels of a preset. Levels that no node has are left out.
    #[must_use]
    pub fn by(&self, preset: &Preset) -> Nodes {
        let (hosts, gaps) = self.hosts();
        let mut reading = Reading { levels: Vec::new(), gaps, ..Reading::default() };
        reading.graph.hosts = hosts;
        let columns = self.columns(preset, &mut reading.gaps);
        for column in &columns {
            reading.levels.push(column.level.clone());
            for (host, domain) in reading.graph.hosts.iter_mut().zip(&column.domains) {
                let membership =
                    domain.clone().map(|domain| Membership { level: column.level.clone(), domain });
                host.domains.extend(membership);
            }
        }
        self.add_tori(&mut reading);
        reading.gaps = gap::listed(reading.gaps);
        let facts = self.nodes().map(|node| node.facts.clone()).collect();
        Nodes { reading, facts, preset: preset.name.clone() }
    }

    /// One column for each level that any node has.
    fn columns(&self, preset: &Preset, gaps: &mut Vec<Gap>) -> Vec<Column> {
        let of_fabric = |level: &&super::PresetLevel| {
            level.sort != Sort::Group && !level.keys.iter().any(|key| key == REGION || key == ZONE)
        };
        let carried = self.carried();
        let has_fabric =
            preset.levels.iter().filter(of_fabric).any(|level| self.best_key(level, &carried).is_some());
        let mut columns: Vec<Column> = Vec::new();
        for level in preset.levels.iter().filter(|level| level.sort != Sort::Group || !has_fabric) {
            let Some(key) = self.best_key(level, &carried) else { continue };
            let mut missing = Vec::new();
            let mut domains: Vec<Option<DomainName>> = Vec::with_capacity(self.nodes.len());
            for node in self.nodes() {
                let is_meant = level.only_with.as_ref().is_none_or(|with| node.label(with).is_some());
                let found = if is_meant { node.domain(key) } else { None };
                if let Some(Err(what)) = &found {
                    let what = format!("the label {key} of the node {} is not used: {what}", node.name);
                    gaps.push(Gap::new(node.place, what));
                } else if found.is_none() && is_meant {
                    missing.push(node.name.as_str());
                }
                domains.push(found.and_then(Result::ok));
            }
            if !missing.is_empty() {
                let (count, names) = (counted(missing.len(), "node"), listed(missing.into_iter()));
                let what = format!("{count} without a {}, having no label {key}: {names}", level.level);
                gaps.push(Gap::new((0, 0), what));
            }
            let mut column = Column { level: level.level.clone(), domains };
            match level.sort {
                Sort::Name => column.set_apart(&columns, gaps),
                Sort::Id | Sort::Group => column.check(&columns, gaps),
            }
            columns.push(column);
        }
        columns
    }

    /// The keys of labels that any node has, and those that old ones stand for.
    pub(super) fn carried(&self) -> BTreeSet<&str> {
        let mut keys: BTreeSet<&str> =
            self.nodes().flat_map(|node| node.labels.keys()).map(String::as_str).collect();
        keys.extend(
            OLD_LABELS.iter().filter(|(_, old)| keys.contains(old)).map(|(new, _)| *new).collect::<Vec<_>>(),
        );
        keys
    }

    /// The key of a level that most nodes have; between equals, the first.
    fn best_key<'a>(&self, level: &'a super::PresetLevel, carried: &BTreeSet<&str>) -> Option<&'a str> {
        let mut best = (0, None);
        for key in level.keys.iter().filter(|key| carried.contains(key.as_str())) {
            let count = self.nodes().filter(|node| matches!(node.domain(key), Some(Ok(_)))).count();
            if count > best.0 {
                best = (count, Some(key.as_str()));
            }
        }
        best.1
    }

    /// TPU slices as tori: a pool of several hosts is one, in any other every host is its own.
    fn add_tori(&self, reading: &mut Reading) {
        let nodes: Vec<&NodeObject> = self.nodes().collect();
        let mut slices: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.label(TPU_TOPOLOGY).is_some()) {
            slices.entry(node.label(GKE_POOL).unwrap_or(node.name.as_str()).to_owned()).or_default().push(at);
        }
        for (pool, members) in slices {
            let Some(first) = members.first().and_then(|at| nodes.get(*at)) else { continue };
            let (Some(kind), Some(shape)) = (first.label(TPU_TYPE), first.label(TPU_TOPOLOGY)) else {
                continue;
            };
            let slice = tpu::Generation::parse(kind).and_then(|g| tpu::Slice::parse(g, shape));
            let slice = match slice {
                Ok(slice) => slice,
                Err(error) => {
                    reading.gaps.push(Gap::new(
                        first.place,
                        format!("the slice {} is left out: {error}", printable(&pool)),
                    ));
                    continue;
                }
            };
            let each = u32::try_from(first.count("google.com/tpu")).ok().filter(|n| *n > 0);
            let wanted = each.map_or(slice.hosts().0, |each| slice.chip_count().div_ceil(each));
            if wanted <= 1 {
                for at in members {
                    add_single(reading, at, slice, each);
                }
                continue;
            }
            let have = u32::try_from(members.len()).unwrap_or(u32::MAX);
            if have != wanted {
                let what = format!("the slice {} of {slice} has {have} of {wanted} hosts", printable(&pool));
                reading.gaps.push(Gap::new(first.place, what));
            }
            let what = format!(
                "labels do not say where the hosts of the slice {} stand in its torus",
                printable(&pool)
            );
            reading.gaps.push(Gap::new(first.place, what));
            if let Ok(name) = DomainName::new(pool) {
                reading.graph.tori.push(slice.torus(name, each));
            }
        }
    }
}

/// A slice of one host: its place is certain.
fn add_single(reading: &mut Reading, at: usize, slice: tpu::Slice, each: Option<u32>) {
    let torus = u32::try_from(reading.graph.tori.len()).unwrap_or(u32::MAX);
    let Some(host) = reading.graph.hosts.get_mut(at) else { return };
    let Ok(name) = DomainName::new(host.name.as_str()) else { return };
    for membership in host.domains.iter_mut().filter(|m| m.level.as_str() == SLICE) {
        membership.domain = name.clone();
    }
    host.torus = Some(TorusPlace { torus, at: [0; 3] });
    reading.graph.tori.push(slice.torus(name, each));
}

/// A level, and the domain of each node on it.
struct Column {
    level: LevelName,
    domains: Vec<Option<DomainName>>,
}

impl Column {
    /// For every domain, the domains of the next outer level that its nodes have.
    fn parents(&self, outer: &[Self]) -> BTreeMap<DomainName, BTreeSet<DomainName>> {
        let mut parents: BTreeMap<DomainName, BTreeSet<DomainName>> = BTreeMap::new();
        for (at, domain) in self.domains.iter().enumerate() {
            let Some(domain) = domain else { continue };
            let parent = parent(outer, at);
            match parents.get_mut(domain) {
                Some(known) if parent.is_none_or(|parent| known.contains(parent)) => {}
                Some(known) => known.extend(parent.cloned()),
                None => drop(parents.insert(domain.clone(), parent.cloned().into_iter().collect())),
            }
        }
        parents
    }

    /// Names that are used again under another parent become paths.
    fn set_apart(&mut self, outer: &[Self], gaps: &mut Vec<Gap>) {
        let again: BTreeSet<DomainName> = self
            .parents(outer)
            .into_iter()
            .filter(|(_, parents)| parents.len() > 1)
            .map(|(name, _)| name)
            .collect();
        for (at, domain) in self.domains.iter_mut().enumerate() {
            let Some(name) = domain.as_ref().filter(|name| again.contains(*name)) else { continue };
            let Some(parent) = parent(outer, at) else { continue };
            match DomainName::new(format!("{parent}/{name}")) {
                Ok(path) => *domain = Some(path),
                Err(error) => {
                    gaps.push(Gap::new(
                        (0, 0),
                        format!("{} {name} stays as it is: below {parent}, {error}", self.level),
                    ));
                }
            }
        }
    }

    /// A domain should be inside one domain of the level around it.
    fn check(&self, outer: &[Self], gaps: &mut Vec<Gap>) {
        for (name, parents) in self.parents(outer).iter().filter(|(_, parents)| parents.len() > 1) {
            let parents = listed(parents.iter().map(DomainName::as_str));
            gaps.push(Gap::new(
                (0, 0),
                format!("the {} {name} is not inside one domain: {parents}", self.level),
            ));
        }
    }
}

fn parent(outer: &[Column], at: usize) -> Option<&DomainName> {
    outer.iter().rev().find_map(|column| column.domains.get(at)?.as_ref())
}

/// What a node has, as far as its capacity and labels tell: equal nodes have equal ones.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Inside<'a> {
    prefix: &'static str,
    count: u64,
    model: &'a str,
    device_bytes: u64,
    is_sliced: bool,
    cpu_milli: u64,
    memory_bytes: u64,
}

impl<'a> Inside<'a> {
    /// `None` where nothing is told.
    fn of(node: &'a NodeObject, gaps: &mut Vec<Gap>) -> Option<Self> {
        if node.capacity.is_empty() && node.label("nvidia.com/gpu.count").is_none() {
            return None;
        }
        let (prefix, count) = devices(node, gaps);
        let model = PRODUCTS.iter().find_map(|key| node.label(key)).unwrap_or_default();
        Some(Self {
            prefix,
            count,
            // GFD joins the words with dashes, and says behind them how the device is shared.
            model: model.split("-MIG-").next().unwrap_or_default().trim_end_matches("-SHARED"),
            device_bytes: device_memory(node),
            is_sliced: has_mig(node) && node.count("nvidia.com/gpu") == 0,
            cpu_milli: node.capacity.get("cpu").and_then(|text| units::milli(text)).unwrap_or(0),
            memory_bytes: node.count("memory"),
        })
    }

    fn machine(&self) -> Machine {
        let device = |at: u64| Device {
            name: format!("{}{at}", self.prefix),
            model: printable(self.model),
            memory_bytes: self.device_bytes,
            is_sliced: self.is_sliced,
            ..Device::default()
        };
        let mut machine = Machine {
            devices: (0..self.count).map(device).collect(),
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            ..Machine::bare(Origin::Declared)
        };
        shape::finish(&mut machine);
        machine
    }
}

/// What the devices are called, and how many there are. Sharing multiplies the resource, so that the label of
/// feature discovery, which counts devices, says more.
fn devices(node: &NodeObject, gaps: &mut Vec<Gap>) -> (&'static str, u64) {
    let mut found =
        RESOURCES.iter().map(|(key, name)| (*name, node.count(key))).filter(|(_, count)| *count > 0);
    let (prefix, mut count) = found.next().unwrap_or(("GPU", 0));
    let mut note = |what: String| gaps.push(Gap::new(node.place, format!("the node {}: {what}", node.name)));
    let product = node.label("nvidia.com/gpu.product").unwrap_or_default();
    let labelled = node.label("nvidia.com/gpu.count").and_then(|text| text.parse::<u64>().ok());
    if product.contains("-MIG-") {
        note(format!(
            "{count} MIG slices are counted as GPUs; labels do not say how many GPUs they are cut from"
        ));
        count = 0;
    } else if let Some(labelled) = labelled.filter(|labelled| *labelled != count) {
        let is_shared =
            node.label("nvidia.com/gpu.replicas").is_some_and(|replicas| replicas != "1" && replicas != "0");
        if !is_shared && !has_mig(node) && count > 0 {
            note(format!("it offers {count} GPUs, and its label nvidia.com/gpu.count says {labelled}"));
        }
        count = labelled;
    }
    let most = u64::from(DEVICES_PER_NODE_MAX);
    if count > most {
        note(format!("{count} devices are there, and {most} are kept"));
        count = most;
    }
    (prefix, count)
}

fn has_mig(node: &NodeObject) -> bool {
    let is_mig = |key: &str| key.starts_with("nvidia.com/mig-");
    let in_capacity =
        node.capacity.iter().any(|(key, count)| is_mig(key) && units::whole(count).unwrap_or(0) > 0);
    in_capacity || node.label("nvidia.com/gpu.product").is_some_and(|product| product.contains("-MIG-"))
}

/// Of one device.
fn device_memory(node: &NodeObject) -> u64 {
    // In MiB, by GFD.
    let nvidia = node.label("nvidia.com/gpu.memory").and_then(|mib| mib.parse::<u64>().ok());
    if let Some(mib) = nvidia {
        return mib.saturating_mul(1 << 20);
    }
    // `192G` means GiB, by AMD's node labeller.
    let amd = node.label("amd.com/gpu.vram").and_then(|vram| vram.trim_end_matches('G').parse::<u64>().ok());
    if let Some(gib) = amd {
        return gib.saturating_mul(1 << 30);
    }
    node.label(TPU_TYPE)
        .and_then(|kind| tpu::Generation::parse(kind).ok())
        .map_or(0, tpu::Generation::memory_bytes)
}

impl From<Nodes> for Reading {
    fn from(nodes: Nodes) -> Self {
        nodes.reading
    }
}
