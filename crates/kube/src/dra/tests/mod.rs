//! Objects are written as the API shows them.

#![allow(clippy::needless_pass_by_value, reason = "`json!` at the place of an argument reads well")]

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Inventory, TRIED_MAX, Unallocatable};
use crate::api::Node;

mod allocate;
mod extended;
mod inventory;
mod oracle;
mod shared;
mod view;

pub(super) const DRIVER: &str = "gpu.example.com";

pub(super) fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(super) fn node(name: &str) -> Node {
    object(json!({"metadata": {"name": name, "labels": {"zone": "a"}}}))
}

/// A slice of the node `n0` that is its whole pool.
pub(super) fn slice(name: &str, devices: Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER, "nodeName": "n0", "devices": devices,
            "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
        },
    })
}

/// A GPU with a PCIe root.
pub(super) fn gpu(name: &str, root: &str) -> Value {
    json!({
        "name": name,
        "attributes": {
            "type": {"string": "gpu"}, "productName": {"string": "A100"}, "uuid": {"string": format!("GPU-{name}")},
            "resource.kubernetes.io/pcieRoot": {"string": root},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    })
}

pub(super) fn gpus(count: usize) -> Value {
    (0..count).map(|at| gpu(&format!("gpu-{at}"), &format!("pci{}", at / 4))).collect()
}

/// An inventory with the class `gpu` and one slice of these devices.
pub(super) fn inventory(devices: Value) -> Inventory {
    let mut inventory = Inventory::default();
    let class = json!({
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{DRIVER}'")}}]},
    });
    inventory.class_applied(Arc::new(object(class)));
    inventory.slice_applied(Arc::new(object(slice("s0", devices))));
    inventory
}

pub(super) fn claim(name: &str, devices: Value) -> ResourceClaim {
    object(json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}))
}

/// A claim with one request for so many devices of the class `gpu`.
pub(super) fn claim_of(name: &str, count: usize) -> ResourceClaim {
    claim(name, json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}]}))
}

pub(super) fn allocate(
    inventory: &Inventory,
    claims: &[&ResourceClaim],
) -> Result<Vec<AllocationResult>, Unallocatable> {
    allocate_on(inventory, claims, &node("n0"))
}

pub(super) fn allocate_on(
    inventory: &Inventory,
    claims: &[&ResourceClaim],
    node: &Node,
) -> Result<Vec<AllocationResult>, Unallocatable> {
    let mut ids = 0;
    let mut share_id = || {
        ids += 1;
        format!("00000000-0000-4000-8000-{ids:012}")
    };
    inventory.allocate(claims, node, &|_| false, &mut share_id, TRIED_MAX)
}

/// The claim as it is once the allocation is written.
pub(super) fn allocated(claim: &ResourceClaim, result: &AllocationResult) -> ResourceClaim {
    let mut claim = claim.clone();
    claim.status.get_or_insert_default().allocation = Some(result.clone());
    claim
}

/// Allocates and keeps in the books.
pub(super) fn hold(inventory: &mut Inventory, claim: &ResourceClaim) -> ResourceClaim {
    let results = allocate(inventory, &[claim]).unwrap();
    let claim = allocated(claim, &results[0]);
    inventory.claim_applied(&claim);
    claim
}

/// Devices by request.
pub(super) fn devices(result: &AllocationResult) -> BTreeMap<String, Vec<String>> {
    let mut devices: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in result.devices.iter().flat_map(|devices| devices.results.iter().flatten()) {
        devices.entry(one.request.clone()).or_default().push(one.device.clone());
    }
    devices
}

/// Names of all devices, in order of the result.
pub(super) fn names(result: &AllocationResult) -> Vec<String> {
    result
        .devices
        .iter()
        .flat_map(|devices| devices.results.iter().flatten())
        .map(|one| one.device.clone())
        .collect()
}

pub(super) fn refusal(result: Result<Vec<AllocationResult>, Unallocatable>) -> String {
    result.expect_err("not allocatable").to_string()
}
