//! Which nodes may have a pod because of its volumes.
//!
//! [`Storage`] is what the caller has watched. [`VolumeRules::of`] says what the claims of a pod ask for, or what
//! they wait for whatever the node; [`VolumeRules::admits`] judges a node, and says what has to be written before a
//! pod is bound there.

mod limits;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};

use crate::api::Pod;

pub use rules::{VolumePlan, VolumeRules};

/// Everything that is known of storage: each kind by name, claims by `namespace/name`.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    pub claims: BTreeMap<String, PersistentVolumeClaim>,
    pub volumes: BTreeMap<String, PersistentVolume>,
    pub classes: BTreeMap<String, StorageClass>,
    pub drivers: BTreeMap<String, CSIDriver>,
    /// By the name of their node.
    pub nodes: BTreeMap<String, CSINode>,
    pub capacities: BTreeMap<String, CSIStorageCapacity>,
    pub attachments: BTreeMap<String, VolumeAttachment>,
    /// How many pods that have a node use each claim.
    used: BTreeMap<String, usize>,
}

/// What a pod waits for, whatever the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeWait {
    NoClaim {
        claim: String,
    },
    /// The claim of an ephemeral volume, which the controller makes.
    NotMadeYet {
        claim: String,
    },
    /// There is a claim of that name, and it belongs to somebody else.
    NotOfThisPod {
        claim: String,
        pod: String,
    },
    Deleting {
        claim: String,
    },
    Lost {
        claim: String,
        volume: String,
    },
    /// Bound by the volume controller alone, which has not done it.
    Unbound,
    NoVolume {
        volume: String,
    },
    /// The volume is of a sort that upstream translates for its driver first.
    InTree {
        volume: String,
        sort: &'static str,
    },
    /// A selector or an amount that nobody can read.
    Unreadable {
        claim: String,
        field: &'static str,
    },
    /// One claim, one pod, and another has it.
    InUse,
}

impl Storage {
    /// A pod got a node.
    pub fn occupy(&mut self, pod: &Pod) {
        for claim in named_claims(pod) {
            *self.used.entry(claim).or_default() += 1;
        }
    }

    /// A pod that occupied its claims is gone.
    pub fn release(&mut self, pod: &Pod) {
        for claim in named_claims(pod) {
            let Some(count) = self.used.get_mut(&claim) else { continue };
            *count -= 1;
            if *count == 0 {
                self.used.remove(&claim);
            }
        }
    }
}

impl Storage {
    /// The claims of a pod that are there, as `namespace/name`, in the order of its volumes.
    pub fn claims_of<'a>(
        &'a self,
        pod: &'a Pod,
    ) -> impl Iterator<Item = (String, &'a PersistentVolumeClaim)> {
        claim_paths(pod).filter_map(|path| Some((path.clone(), self.claims.get(&path)?)))
    }

    /// Whether all claims of a pod are there and have their volumes.
    #[must_use]
    pub fn are_bound(&self, pod: &Pod) -> bool {
        claim_paths(pod).all(|path| self.claims.get(&path).is_some_and(rules::is_bound))
    }

    /// What the claims of a pod ask of a node, whatever they are called: pods of one shape are for the same nodes, but for
    /// how much a node can attach.
    #[must_use]
    pub fn shape(&self, pod: &Pod) -> String {
        let shapes = claim_paths(pod).map(|path| match self.claims.get(&path) {
            Some(claim) => rules::shape(claim, self),
            None => path,
        });
        shapes.collect::<Vec<_>>().join("; ")
    }
}

/// The claims of a pod as `namespace/name`; those of ephemeral volumes are called after the pod.
fn claim_paths(pod: &Pod) -> impl Iterator<Item = String> {
    let name = |volume: &k8s_openapi::api::core::v1::Volume| match &volume.persistent_volume_claim {
        Some(source) => Some(source.claim_name.clone()),
        None => volume.ephemeral.is_some().then(|| format!("{}-{}", pod.name(), volume.name)),
    };
    let names = pod.spec.volumes.iter().filter_map(name);
    names.map(|name| format!("{}/{name}", pod.namespace()))
}

/// The class of a claim or volume: an old annotation goes before the field.
fn class<'a>(annotations: Option<&'a BTreeMap<String, String>>, field: Option<&'a String>) -> &'a str {
    let old = annotations.and_then(|all| all.get("volume.beta.kubernetes.io/storage-class"));
    old.or(field).map_or("", String::as_str)
}

/// The claims that a pod names itself, as `namespace/name`.
fn named_claims(pod: &Pod) -> impl Iterator<Item = String> {
    let volumes = pod.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
    volumes.map(|source| format!("{}/{}", pod.namespace(), source.claim_name))
}

impl fmt::Display for VolumeWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClaim { claim } => write!(f, "persistentvolumeclaim \"{claim}\" not found"),
            Self::NotMadeYet { claim } => {
                write!(f, "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{claim}\"")
            }
            Self::NotOfThisPod { claim, pod } => {
                write!(f, "PVC {claim} was not created for pod {pod} (pod is not owner)")
            }
            Self::Deleting { claim } => write!(f, "persistentvolumeclaim \"{claim}\" is being deleted"),
            Self::Lost { claim, volume } => {
                write!(f, "persistentvolumeclaim \"{claim}\" bound to non-existent persistentvolume \"{volume}\"")
            }
            Self::Unbound => f.write_str("pod has unbound immediate PersistentVolumeClaims"),
            Self::NoVolume { volume } => write!(f, "persistentvolume \"{volume}\" not found"),
            Self::InTree { volume, sort } => {
                write!(f, "persistentvolume \"{volume}\" is a {sort}, which is not judged; use its CSI driver")
            }
            Self::Unreadable { claim, field } => write!(f, "persistentvolumeclaim \"{claim}\": {field} cannot be read"),
            Self::InUse => f.write_str(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                 another pod",
            ),
        }
    }
}
