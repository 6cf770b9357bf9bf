//! Whether the devices of an allocated claim are ready.
//!
//! A device that must be prepared before pods can be bound to its node, a fabric-attached GPU for example, names
//! conditions. Its driver sets them on the claim after it is allocated. Such claims are not refused: the pod is
//! bound when all of them hold, and the allocation is taken back when one says that it failed.

use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};

use super::inventory::DeviceId;

/// What a pod with the claim waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    Ready,
    /// `device: condition`, for each that does not hold yet.
    Waiting(Vec<String>),
    /// `device: condition`, for each that tells a failure: the claim has to be allocated anew.
    Failed(Vec<String>),
}

/// Reads the conditions of a claim's devices.
#[must_use]
pub fn binding(claim: &ResourceClaim) -> Binding {
    let status = claim.status.as_ref();
    let allocation = status.and_then(|status| status.allocation.as_ref());
    let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
    let (mut waiting, mut failed) = (Vec::new(), Vec::new());
    for result in results.into_iter().flatten() {
        let name = |condition: &String| {
            let id = DeviceId {
                driver: result.driver.clone(),
                pool: result.pool.clone(),
                device: result.device.clone(),
            };
            format!("{id}: {condition}")
        };
        let holds = |condition: &&String| is_true(claim, result, condition);
        failed.extend(result.binding_failure_conditions.iter().flatten().filter(holds).map(name));
        waiting.extend(
            result.binding_conditions.iter().flatten().filter(|condition| !holds(condition)).map(name),
        );
    }
    match (failed.is_empty(), waiting.is_empty()) {
        (false, _) => Binding::Failed(failed),
        (true, false) => Binding::Waiting(waiting),
        (true, true) => Binding::Ready,
    }
}

fn is_true(claim: &ResourceClaim, result: &DeviceRequestAllocationResult, condition: &str) -> bool {
    let devices = claim.status.as_ref().and_then(|status| status.devices.as_deref()).unwrap_or_default();
    let device = devices.iter().find(|device| {
        device.driver == result.driver
            && device.pool == result.pool
            && device.device == result.device
            && device.share_id == result.share_id
    });
    let mut conditions = device.and_then(|device| device.conditions.as_deref()).unwrap_or_default().iter();
    conditions.any(|one| one.type_ == condition && one.status == "True")
}
