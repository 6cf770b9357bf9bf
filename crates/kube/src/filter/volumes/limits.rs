//! How many volumes of a driver a node can have attached.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::Storage;
use super::rules::{class_of, path, volume_name};
use crate::api::{Node, Pod};

/// A volume by its driver and its name there.
type Attached = (String, String);

/// Whether the claims are more than the node can attach beside what is attached already.
pub(super) fn exceed<'p>(
    storage: &Storage,
    claims: &[&PersistentVolumeClaim],
    node: &Node,
    there: impl IntoIterator<Item = &'p Pod>,
) -> bool {
    let limits = limits(storage, node);
    if limits.is_empty() {
        return false;
    }
    let mut attached: BTreeSet<Attached> =
        there.into_iter().flat_map(|pod| attached_by(storage, pod)).collect();
    let wanted: BTreeSet<Attached> = claims.iter().filter_map(|claim| attachment(storage, claim)).collect();
    let wanted: Vec<&Attached> = wanted.iter().filter(|one| !attached.contains(*one)).collect();
    let mut more: BTreeMap<&str, usize> = BTreeMap::new();
    for (driver, _) in &wanted {
        *more.entry(driver).or_default() += 1;
    }
    attached.extend(attachments(storage, node));
    more.into_iter().any(|(driver, more)| {
        let held = attached.iter().filter(|(of, _)| of == driver).count();
        limits.get(driver).is_some_and(|limit| held + more > *limit)
    })
}

fn limits(storage: &Storage, node: &Node) -> BTreeMap<String, usize> {
    let drivers = storage.nodes.get(node.name()).map(|node| node.spec.drivers.as_slice()).unwrap_or_default();
    let count = |limit: i32| usize::try_from(limit).unwrap_or(0);
    drivers
        .iter()
        .filter_map(|driver| Some((driver.name.clone(), count(driver.allocatable.as_ref()?.count?))))
        .collect()
}

/// What the pods of the node have there, as far as their claims are known.
fn attached_by(storage: &Storage, pod: &Pod) -> Vec<Attached> {
    storage.claims_of(pod).filter_map(|(_, claim)| attachment(storage, claim)).collect()
}

/// What else the cluster says is attached there.
fn attachments(storage: &Storage, node: &Node) -> Vec<Attached> {
    let here = storage.attachments.values().filter(|one| one.spec.node_name == node.name());
    let volumes =
        here.filter_map(|one| storage.volumes.get(one.spec.source.persistent_volume_name.as_ref()?));
    let sources = volumes.filter_map(|volume| volume.spec.as_ref()?.csi.as_ref());
    sources.map(|source| (source.driver.clone(), source.volume_handle.clone())).collect()
}

/// The driver's name of the volume; of one that is still to be made, a name that only this claim has.
fn attachment(storage: &Storage, claim: &PersistentVolumeClaim) -> Option<Attached> {
    let volume = volume_name(claim).and_then(|name| storage.volumes.get(name));
    if let Some(volume) = volume {
        let source = volume.spec.as_ref()?.csi.as_ref()?;
        return Some((source.driver.clone(), source.volume_handle.clone()));
    }
    let class = class_of(claim, storage)?;
    Some((class.provisioner.clone(), format!("claim {}", path(claim))))
}
