//! What the claims of one pod ask of a node.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec,
    TopologySelectorTerm, Volume,
};
use k8s_openapi::api::storage::v1::StorageClass;

use super::super::Refusal;
use super::super::labels::{Expression, Selector};
use super::super::terms::Term;
use super::{Storage, VolumeWait, class, limits};
use crate::api::{Node, Pod};
use crate::quantity::Amount;

/// The claims of a pod, sorted by what they ask for.
#[derive(Clone, Debug)]
pub struct VolumeRules<'a> {
    storage: &'a Storage,
    bound: Vec<&'a PersistentVolume>,
    delayed: Vec<Delayed<'a>>,
    /// All of them, for what a node can attach.
    claims: Vec<&'a PersistentVolumeClaim>,
}

/// A claim that is bound only once its pod has a node.
#[derive(Clone, Debug)]
struct Delayed<'a> {
    claim: &'a PersistentVolumeClaim,
    class: &'a StorageClass,
    size: Amount,
    selector: Option<Selector>,
    /// Where a node was chosen for it before.
    chosen: Option<&'a str>,
}

/// What has to be written before the pod is bound to the node. Two pods that are placed together must not be given the
/// same volume: write the first into the [`Storage`] before the second is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumePlan {
    /// Claims as `namespace/name` and the volume of each: the volume gets the claim as its `claimRef`.
    pub bind: Vec<(String, String)>,
    /// Claims as `namespace/name`: they get the annotation [`VolumePlan::SELECTED_NODE`].
    pub provision: Vec<String>,
}

impl VolumePlan {
    /// Tells the provisioner for which node to make a volume.
    pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
}

impl<'a> VolumeRules<'a> {
    /// # Errors
    /// What the pod waits for, whatever the node.
    pub fn of(pod: &Pod, storage: &'a Storage) -> Result<Self, VolumeWait> {
        let mut rules = Self { storage, bound: Vec::new(), delayed: Vec::new(), claims: Vec::new() };
        for volume in &pod.spec.volumes {
            if let Some(claim) = claim_of(volume, pod, storage)? {
                rules.claims.push(claim);
            }
        }
        let has_delayed_class =
            |claim: &PersistentVolumeClaim| class_of(claim, storage).is_some_and(is_delayed);
        let is_waiting = |claim: &&PersistentVolumeClaim| {
            !is_bound(claim) && (volume_name(claim).is_some() || !has_delayed_class(claim))
        };
        if rules.claims.iter().any(is_waiting) {
            return Err(VolumeWait::Unbound);
        }
        for claim in rules.claims.clone() {
            match volume_name(claim) {
                Some(name) => rules.bound.push(volume(name, storage)?),
                None => rules.delayed.extend(Delayed::of(claim, storage)?),
            }
        }
        // The smallest first, so that each finds the smallest that fits.
        rules.delayed.sort_by_key(|delayed| delayed.size);
        let is_single =
            |claim: &&PersistentVolumeClaim| has_mode(spec(claim).access_modes.as_ref(), "ReadWriteOncePod");
        let is_used = |claim: &&PersistentVolumeClaim| storage.used.contains_key(&path(claim));
        if rules.claims.iter().any(|claim| is_single(claim) && is_used(claim)) {
            return Err(VolumeWait::InUse);
        }
        Ok(rules)
    }

    /// Whether it has no claims.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Whether the pod's volumes can be on the node, beside those of the pods that are there.
    ///
    /// # Errors
    /// The first thing that speaks against it, in the order in which kube-scheduler asks.
    pub fn admits<'p>(
        &self,
        node: &Node,
        there: impl IntoIterator<Item = &'p Pod>,
    ) -> Result<VolumePlan, Refusal> {
        if limits::exceed(self.storage, &self.claims, node, there) {
            return Err(Refusal::VolumeLimit);
        }
        if !self.bound.iter().all(|volume| reaches(volume, node)) {
            return Err(Refusal::VolumeAffinity);
        }
        let plan = self.plan(node)?;
        if !self.bound.iter().all(|volume| is_in_zone(volume, node)) {
            return Err(Refusal::VolumeZone);
        }
        Ok(plan)
    }

    fn plan(&self, node: &Node) -> Result<VolumePlan, Refusal> {
        if self.delayed.iter().any(|delayed| delayed.chosen.is_some_and(|chosen| chosen != node.name())) {
            return Err(Refusal::VolumeBinding);
        }
        let mut plan = VolumePlan::default();
        let mut taken = BTreeSet::new();
        let mut provisioned: Vec<&Delayed<'_>> =
            self.delayed.iter().filter(|one| one.chosen.is_some()).collect();
        for delayed in self.delayed.iter().filter(|one| one.chosen.is_none()) {
            match delayed.find(self.storage, node, &taken) {
                Some(name) => {
                    taken.insert(name);
                    plan.bind.push((path(delayed.claim), name.to_owned()));
                }
                None => provisioned.push(delayed),
            }
        }
        for delayed in provisioned {
            delayed.admits_provision(self.storage, node)?;
            plan.provision.push(path(delayed.claim));
        }
        Ok(plan)
    }
}

impl<'a> Delayed<'a> {
    /// None where there is no such class.
    fn of(claim: &'a PersistentVolumeClaim, storage: &'a Storage) -> Result<Option<Self>, VolumeWait> {
        let Some(class) = class_of(claim, storage) else { return Ok(None) };
        let unreadable = |field| VolumeWait::Unreadable { claim: name(claim).to_owned(), field };
        let size = spec(claim).resources.as_ref().and_then(|all| all.requests.as_ref()?.get("storage"));
        let size = size.map_or(Ok(Amount::default()), Amount::of);
        let size = size.map_err(|_| unreadable("spec.resources.requests[storage]"))?;
        let selector = spec(claim).selector.as_ref().map(|selector| Selector::read(Some(selector)));
        let selector = match selector {
            Some(None) => return Err(unreadable("spec.selector")),
            Some(selector) => selector,
            None => None,
        };
        let annotations = claim.metadata.annotations.as_ref();
        let chosen = annotations.and_then(|all| all.get(VolumePlan::SELECTED_NODE)).map(String::as_str);
        Ok(Some(Self { claim, class, size, selector, chosen }))
    }

    /// The volume that is meant for the claim, or the smallest that will do.
    fn find(&self, storage: &'a Storage, node: &Node, taken: &BTreeSet<&str>) -> Option<&'a str> {
        let same_class = |volume: &&PersistentVolume| {
            let field = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
            class(volume.metadata.annotations.as_ref(), field)
                == self.class.metadata.name.as_deref().unwrap_or_default()
        };
        let usable = storage.volumes.values().filter(same_class).filter_map(|volume| {
            let name = volume.metadata.name.as_deref().filter(|name| !taken.contains(name))?;
            Some((self.fits(volume)?, name, volume))
        });
        let mut smallest: Option<(Amount, &str)> = None;
        for (size, name, volume) in usable {
            if is_for(volume, self.claim) {
                return reaches(volume, node).then_some(name);
            }
            if self.may_take(volume)
                && reaches(volume, node)
                && smallest.is_none_or(|(least, _)| size < least)
            {
                smallest = Some((size, name));
            }
        }
        smallest.map(|(_, name)| name)
    }

    /// The volume's size, where it is large enough, of the same mode, and nobody else's.
    fn fits(&self, volume: &PersistentVolume) -> Option<Amount> {
        let its = volume.spec.as_ref()?;
        let size = its.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
        let size = size.and_then(|size| Amount::of(size).ok()).unwrap_or_default();
        let is_free = its.claim_ref.is_none() || is_for(volume, self.claim);
        let wants = spec(self.claim);
        let some = |text: &Option<String>| text.clone().unwrap_or_default();
        let is_alike = mode(wants.volume_mode.as_ref()) == mode(its.volume_mode.as_ref())
            && some(&wants.volume_attributes_class_name) == some(&its.volume_attributes_class_name);
        (is_free && is_alike && size >= self.size && volume.metadata.deletion_timestamp.is_none())
            .then_some(size)
    }

    fn may_take(&self, volume: &PersistentVolume) -> bool {
        let its = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Available")
            && self.selector.as_ref().is_none_or(|selector| selector.matches(volume.metadata.labels.as_ref()))
            && spec(self.claim).access_modes.iter().flatten().all(|mode| has_mode(its, mode))
    }

    fn admits_provision(&self, storage: &Storage, node: &Node) -> Result<(), Refusal> {
        let provisioner = self.class.provisioner.as_str();
        if matches!(provisioner, "" | "kubernetes.io/no-provisioner") || !self.is_allowed_on(node) {
            return Err(Refusal::VolumeBinding);
        }
        let driver = storage.drivers.get(provisioner).and_then(|driver| driver.spec.storage_capacity);
        if driver != Some(true) || self.size == Amount::default() {
            return Ok(());
        }
        let has_room = storage.capacities.values().any(|capacity| {
            let room = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
            let room = room.and_then(|room| Amount::of(room).ok());
            Some(&capacity.storage_class_name) == self.class.metadata.name.as_ref()
                && room.is_some_and(|room| room.units_up() >= self.size.units_up())
                && Selector::read(capacity.node_topology.as_ref())
                    .is_some_and(|nodes| nodes.matches(node.metadata.labels.as_ref()))
        });
        if has_room { Ok(()) } else { Err(Refusal::VolumeSpace) }
    }

    fn is_allowed_on(&self, node: &Node) -> bool {
        let terms = self.class.allowed_topologies.as_deref().unwrap_or_default();
        let allows = |term: &TopologySelectorTerm| {
            let all = term.match_label_expressions.as_deref().unwrap_or_default();
            let holds = |one: Expression| one.matches(node.metadata.labels.as_ref());
            !all.is_empty()
                && all
                    .iter()
                    .all(|one| Expression::read(&one.key, "In", Some(&one.values)).is_some_and(holds))
        };
        terms.is_empty() || terms.iter().any(allows)
    }
}

/// The claim behind a volume of the pod, where there is one.
fn claim_of<'a>(
    volume: &Volume,
    pod: &Pod,
    storage: &'a Storage,
) -> Result<Option<&'a PersistentVolumeClaim>, VolumeWait> {
    let is_ephemeral = volume.ephemeral.is_some();
    let name = match &volume.persistent_volume_claim {
        Some(source) => source.claim_name.clone(),
        None if is_ephemeral => format!("{}-{}", pod.name(), volume.name),
        None => return Ok(None),
    };
    let Some(claim) = storage.claims.get(&format!("{}/{name}", pod.namespace())) else {
        return Err(if is_ephemeral {
            VolumeWait::NotMadeYet { claim: name }
        } else {
            VolumeWait::NoClaim { claim: name }
        });
    };
    if claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Lost")) {
        let volume = volume_name(claim).unwrap_or_default().to_owned();
        return Err(VolumeWait::Lost { claim: name, volume });
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(VolumeWait::Deleting { claim: name });
    }
    let owners = claim.metadata.owner_references.iter().flatten();
    let is_owned = owners.into_iter().any(|owner| owner.controller == Some(true) && owner.uid == pod.uid());
    if is_ephemeral && !is_owned {
        return Err(VolumeWait::NotOfThisPod { claim: path(claim), pod: pod.path() });
    }
    Ok(Some(claim))
}

/// A volume that a claim is bound to.
fn volume<'a>(name: &str, storage: &'a Storage) -> Result<&'a PersistentVolume, VolumeWait> {
    let Some(volume) = storage.volumes.get(name) else {
        return Err(VolumeWait::NoVolume { volume: name.to_owned() });
    };
    let in_tree = volume.spec.as_ref().and_then(in_tree);
    in_tree.map_or(Ok(volume), |sort| Err(VolumeWait::InTree { volume: name.to_owned(), sort }))
}

/// Sorts that upstream treats as their CSI driver would.
fn in_tree(spec: &PersistentVolumeSpec) -> Option<&'static str> {
    let sorts = [
        ("awsElasticBlockStore", spec.aws_elastic_block_store.is_some()),
        ("azureDisk", spec.azure_disk.is_some()),
        ("azureFile", spec.azure_file.is_some()),
        ("cinder", spec.cinder.is_some()),
        ("gcePersistentDisk", spec.gce_persistent_disk.is_some()),
        ("portworxVolume", spec.portworx_volume.is_some()),
        ("vsphereVolume", spec.vsphere_volume.is_some()),
    ];
    sorts.into_iter().find(|(_, is_used)| *is_used).map(|(sort, _)| sort)
}

/// Whether the volume's node affinity lets the node use it.
fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    affinity.is_none_or(|required| {
        let mut terms = required.node_selector_terms.iter().filter_map(Term::read);
        terms.any(|term| term.matches_labels(node.metadata.labels.as_ref()))
    })
}

const ZONES: [[&str; 2]; 2] = [
    ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"],
    ["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"],
];

/// Whether the labels of the volume that say its zone and region are those of the node. One that says nothing of
/// itself is anywhere, for volumes and nodes alike.
fn is_in_zone(volume: &PersistentVolume, node: &Node) -> bool {
    if ZONES.as_flattened().iter().all(|key| node.label(key).is_none()) {
        return true;
    }
    let says = |key: &str| volume.metadata.labels.as_ref()?.get(key);
    ZONES.iter().all(|[old, new]| {
        [(*old, node.label(old).or_else(|| node.label(new))), (*new, node.label(new))].into_iter().all(
            |(key, here)| {
                let Some(zones) = says(key) else { return true };
                // Several zones are joined so; one that is empty is no zone, and the label is passed over.
                let mut zones = zones.split("__").map(str::trim);
                zones.clone().any(str::is_empty) || here.is_some_and(|here| zones.any(|zone| zone == here))
            },
        )
    })
}

/// See [`Storage::shape`].
pub(super) fn shape(claim: &PersistentVolumeClaim, storage: &Storage) -> String {
    // Whether it is in use is about this very claim.
    let single = has_mode(spec(claim).access_modes.as_ref(), "ReadWriteOncePod").then(|| path(claim));
    let single = single.unwrap_or_default();
    let own = || storage.volumes.values().find(|volume| is_for(volume, claim));
    let volume = match volume_name(claim) {
        Some(name) => storage.volumes.get(name),
        None => own(),
    };
    let Some(volume) = volume else {
        let chosen = claim.metadata.annotations.as_ref().and_then(|all| all.get(VolumePlan::SELECTED_NODE));
        let class = class_of(claim, storage).and_then(|class| class.metadata.name.as_deref());
        return format!("{single} {class:?} {chosen:?} {:?}", spec(claim));
    };
    let zones = ZONES.as_flattened().iter().map(|key| volume.metadata.labels.as_ref()?.get(*key));
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    format!("{single} {} {affinity:?} {:?}", is_bound(claim), zones.collect::<Vec<_>>())
}

/// Whether the volume is set aside for the claim.
fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(owner) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return false };
    owner.name == claim.metadata.name
        && owner.namespace == claim.metadata.namespace
        && owner.uid.as_ref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_ref())
}

pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    volume_name(claim).is_some()
        && annotations.is_some_and(|all| all.contains_key("pv.kubernetes.io/bind-completed"))
}

pub(super) fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

pub(super) fn class_of<'a>(claim: &PersistentVolumeClaim, storage: &'a Storage) -> Option<&'a StorageClass> {
    let field = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    storage.classes.get(class(claim.metadata.annotations.as_ref(), field))
}

fn is_delayed(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// An empty one where there is none.
fn spec(claim: &PersistentVolumeClaim) -> &PersistentVolumeClaimSpec {
    static NONE: std::sync::OnceLock<PersistentVolumeClaimSpec> = std::sync::OnceLock::new();
    claim.spec.as_ref().unwrap_or_else(|| NONE.get_or_init(PersistentVolumeClaimSpec::default))
}

fn has_mode(modes: Option<&Vec<String>>, wanted: &str) -> bool {
    modes.is_some_and(|modes| modes.iter().any(|mode| mode == wanted))
}

fn mode(mode: Option<&String>) -> &str {
    mode.map_or("Filesystem", String::as_str)
}

fn name(claim: &PersistentVolumeClaim) -> &str {
    claim.metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn path(claim: &PersistentVolumeClaim) -> String {
    format!("{}/{}", claim.metadata.namespace.as_deref().unwrap_or_default(), name(claim))
}
