//! Claims for devices at the API server: given with the devices that were chosen, and given back.
//!
//! Every write carries the version that it is based on. Where somebody else was faster the claim is read again: what is
//! written already is not written twice, and what somebody else decided is an error, never overwritten.

use std::time::{Duration, Instant};

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference};
use serde_json::{Value, json};

use super::call::{self, CallError, Limited, PAUSE, Requests, repeat};
use super::lanes::Turn;
use super::trouble::Trouble;
use crate::dra::{Binding, binding};
use crate::messages::{DeviceEvent, Event, PodRef, Reservation};

/// Keeps a claim with devices from being deleted; whoever takes the devices away takes it away.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// How often somebody else may be faster.
const CONFLICTS_MAX: u32 = 20;

const MERGE: &str = "application/merge-patch+json";

/// Between two looks at whether devices are ready, at most.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Makes a claim if it is not there, allocates it if it is not, reserves it for the pod, and waits until its devices are
/// ready. While it waits others have the turn.
pub(super) async fn reserve(client: &Limited, wanted: &Reservation, turn: &mut Turn) -> Result<(), String> {
    let path = path_of(&wanted.pod.namespace, &name_of(&wanted.claim));
    let failed = |why: String| format!("claim {}: {why}", name_of(&wanted.claim));
    let mut claim = match wanted.claim.metadata.uid {
        Some(_) => ResourceClaim::clone(&wanted.claim),
        None => make(client, &wanted.claim).await.map_err(|error| failed(error.to_string()))?,
    };
    let mut conflicts = 0;
    while let Some(patch) = next(&claim, wanted).map_err(failed)? {
        claim = match write(client, &path, &patch).await {
            Ok(written) => written,
            Err(error) if error.code() == Some(409) && conflicts < CONFLICTS_MAX => {
                conflicts += 1;
                read(client, &path).await.map_err(|error| failed(error.to_string()))?
            }
            Err(error) => return Err(failed(error.to_string())),
        };
    }
    let mut pause = PAUSE;
    loop {
        match binding(&claim) {
            Binding::Ready => return turn.resume().await.map_err(|why| failed(why.to_owned())),
            Binding::Failed(conditions) => {
                return Err(failed(format!("its devices failed: {}", conditions.join(", "))));
            }
            Binding::Waiting(conditions) if Instant::now() + pause >= turn.ready_until() => {
                return Err(failed(format!("its devices are not ready in time: {}", conditions.join(", "))));
            }
            Binding::Waiting(_) => turn.rest(pause).await.map_err(|why| failed(why.to_owned()))?,
        }
        pause = (pause * 2).min(LOOK_MAX);
        claim = turn.poll(read(client, &path)).await.map_err(|error| failed(error.to_string()))?;
    }
}

/// Makes a claim. Where the answer to an earlier try was lost it is there already.
async fn make(client: &Limited, claim: &ResourceClaim) -> Result<ResourceClaim, CallError> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    match repeat(client, "POST", &path_of_all(namespace), "application/json", &json!(claim)).await {
        Ok(text) => parsed(&text),
        Err(error) if error.code() == Some(409) => read(client, &path_of(namespace, &name_of(claim))).await,
        Err(error) => Err(error),
    }
}

/// Gives back what a pod was reserved of a claim, and deletes the claim where it is to go; the claim as it is then, if it is
/// there.
pub(super) async fn release(
    client: &impl Requests,
    claim: &PodRef,
    pod: &PodRef,
    is_deleted: bool,
) -> Result<Option<ResourceClaim>, CallError> {
    let path = path_of(&claim.namespace, &claim.name);
    let mut conflicts = 0;
    loop {
        let there = match read(client, &path).await {
            Ok(there) => there,
            Err(error) if error.code() == Some(404) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !claim.uid.is_empty() && there.metadata.uid.as_deref() != Some(&*claim.uid) {
            return Ok(Some(there));
        }
        let Some(patch) = back(&there, pod) else {
            return if is_deleted { delete(client, &path, &there).await } else { Ok(Some(there)) };
        };
        match write(client, &path, &patch).await {
            Ok(_) => {}
            Err(error) if error.code() == Some(404) => return Ok(None),
            Err(error) if error.code() == Some(409) && conflicts < CONFLICTS_MAX => conflicts += 1,
            Err(error) => return Err(error),
        }
    }
}

async fn delete(
    client: &impl Requests,
    path: &str,
    claim: &ResourceClaim,
) -> Result<Option<ResourceClaim>, CallError> {
    let options = json!({ "preconditions": { "uid": claim.metadata.uid } });
    match repeat(client, "DELETE", path, "application/json", &options).await {
        Err(error) if !matches!(error.code(), Some(404 | 409)) => Err(error),
        _ => Ok(None),
    }
}

/// What the lifecycle are told of a claim that was to go back, and what an operator should read.
pub(super) fn answer(
    claim: &PodRef,
    result: Result<Option<ResourceClaim>, CallError>,
) -> (Event, Option<Trouble>) {
    let (namespace, name) = (claim.namespace.to_string(), claim.name.to_string());
    let about = || format!("ResourceClaim {namespace}/{name}");
    let trouble =
        result.as_ref().err().map(|error| Trouble::new("a claim is not given back", about(), error));
    let is_gone = matches!(result, Ok(None));
    let claim = result.ok().flatten().map(Box::new);
    (Event::Device(DeviceEvent::Released { namespace, name, claim, is_gone }), trouble)
}

/// A write to a claim or to its status.
#[derive(Debug, PartialEq)]
struct Patch {
    is_of_status: bool,
    content: Value,
}

/// What is to be written next so that a pod has its claim; nothing where it has.
fn next(claim: &ResourceClaim, wanted: &Reservation) -> Result<Option<Patch>, String> {
    let is_it = match &wanted.claim.metadata.uid {
        Some(uid) => claim.metadata.uid.as_ref() == Some(uid),
        None => claim.metadata.owner_references == wanted.claim.metadata.owner_references,
    };
    if !is_it {
        return Err("another claim has its name by now".to_owned());
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err("it is being deleted".to_owned());
    }
    let users = users(claim);
    let is_reserved = users.iter().any(|user| user.uid == wanted.user.uid);
    match claim.status.as_ref().and_then(|status| status.allocation.as_ref()) {
        Some(there) if !is_same(there, &wanted.allocation) => {
            Err("somebody else has allocated it in the meantime".to_owned())
        }
        Some(_) if is_reserved => Ok(None),
        Some(_) => {
            let users: Vec<_> = users.iter().cloned().chain([wanted.user.clone()]).collect();
            Ok(Some(of_status(claim, &json!({ "reservedFor": users }))))
        }
        None if !has_finalizer(claim) => {
            let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
            finalizers.push(FINALIZER.to_owned());
            Ok(Some(of_finalizers(claim, &finalizers)))
        }
        None => {
            let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let mut allocation = json!(wanted.allocation);
            allocation["allocationTimestamp"] = json!(time);
            Ok(Some(of_status(claim, &json!({ "allocation": allocation, "reservedFor": [wanted.user] }))))
        }
    }
}

/// What is to be written next so that a pod has nothing of a claim any more; nothing where it has not. The last user takes
/// the devices with it, as Kubernetes does it where a pod is gone.
fn back(claim: &ResourceClaim, pod: &PodRef) -> Option<Patch> {
    let users = users(claim);
    let is_allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
    if users.iter().any(|user| user.uid == *pod.uid) {
        let others: Vec<_> = users.iter().filter(|user| user.uid != *pod.uid).cloned().collect();
        let content = match others.is_empty() {
            true => json!({ "allocation": null, "reservedFor": null }),
            false => json!({ "reservedFor": others }),
        };
        return Some(of_status(claim, &content));
    }
    if is_allocated || !has_finalizer(claim) {
        return None;
    }
    let finalizers = claim.metadata.finalizers.iter().flatten().filter(|one| *one != FINALIZER);
    Some(of_finalizers(claim, &finalizers.cloned().collect::<Vec<_>>()))
}

fn of_status(claim: &ResourceClaim, status: &Value) -> Patch {
    let version = &claim.metadata.resource_version;
    Patch {
        is_of_status: true,
        content: json!({ "metadata": { "resourceVersion": version }, "status": status }),
    }
}

fn of_finalizers(claim: &ResourceClaim, finalizers: &[String]) -> Patch {
    let metadata = json!({ "resourceVersion": claim.metadata.resource_version, "finalizers": finalizers });
    Patch { is_of_status: false, content: json!({ "metadata": metadata }) }
}

fn users(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
}

fn has_finalizer(claim: &ResourceClaim) -> bool {
    claim.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER)
}

/// The same devices for the same nodes: the time is of who wrote it, and so are defaults.
fn is_same(there: &AllocationResult, wanted: &AllocationResult) -> bool {
    let devices = |of: &AllocationResult| {
        let results = of.devices.iter().flat_map(|devices| devices.results.iter().flatten());
        let key = results.map(|one| {
            (
                one.request.clone(),
                one.driver.clone(),
                one.pool.clone(),
                one.device.clone(),
                one.share_id.clone(),
            )
        });
        key.collect::<Vec<_>>()
    };
    devices(there) == devices(wanted) && there.node_selector == wanted.node_selector
}

async fn read(client: &impl Requests, path: &str) -> Result<ResourceClaim, CallError> {
    parsed(&call::read(client, path).await?)
}

async fn write(client: &impl Requests, path: &str, patch: &Patch) -> Result<ResourceClaim, CallError> {
    let path = if patch.is_of_status { format!("{path}/status") } else { path.to_owned() };
    parsed(&repeat(client, "PATCH", &path, MERGE, &patch.content).await?)
}

fn parsed(text: &str) -> Result<ResourceClaim, CallError> {
    serde_json::from_str(text)
        .map_err(|error| CallError::Transport(format!("the answer is no claim: {error}")))
}

fn name_of(claim: &ResourceClaim) -> String {
    claim.metadata.name.clone().unwrap_or_default()
}

fn path_of_all(namespace: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")
}

fn path_of(namespace: &str, name: &str) -> String {
    format!("{}/{name}", path_of_all(namespace))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn pod(name: &str) -> PodRef {
        PodRef { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}").into() }
    }

    fn claim(value: &Value) -> ResourceClaim {
        let mut whole = json!({"metadata": {"name": "c", "namespace": "default", "uid": "1", "resourceVersion": "7"}, "spec": {}});
        for (key, more) in value.as_object().unwrap() {
            match whole[key].as_object_mut() {
                Some(object) => object.extend(more.as_object().unwrap().clone()),
                None => whole[key] = more.clone(),
            }
        }
        serde_json::from_value(whole).unwrap()
    }

    fn allocation(device: &str) -> Value {
        json!({"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": device}]}})
    }

    fn wanted(pod_name: &str) -> Reservation {
        Reservation {
            claim: Arc::new(claim(&json!({}))),
            allocation: serde_json::from_value(allocation("gpu-0")).unwrap(),
            pod: pod(pod_name),
            user: consumer(&pod(pod_name)),
        }
    }

    fn consumer(pod: &PodRef) -> ResourceClaimConsumerReference {
        let (name, uid) = (pod.name.to_string(), pod.uid.to_string());
        ResourceClaimConsumerReference { api_group: None, name, resource: "pods".to_owned(), uid }
    }

    /// What the API server makes of a patch.
    fn apply(claim: &ResourceClaim, patch: &Patch) -> ResourceClaim {
        let mut value = serde_json::to_value(claim).unwrap();
        assert_eq!(patch.content["metadata"]["resourceVersion"], value["metadata"]["resourceVersion"]);
        let part = if patch.is_of_status { "status" } else { "metadata" };
        for (key, more) in patch.content[part].as_object().unwrap() {
            value[part][key] = more.clone();
        }
        value["metadata"]["resourceVersion"] = json!("8");
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_claim_is_protected_then_allocated_and_what_is_done_is_not_done_again() {
        let wanted = wanted("a");
        let first = next(&wanted.claim, &wanted).unwrap().unwrap();
        assert_eq!(
            (first.is_of_status, &first.content["metadata"]["finalizers"]),
            (false, &json!([FINALIZER]))
        );
        let protected = apply(&wanted.claim, &first);
        let second = next(&protected, &wanted).unwrap().unwrap();
        assert!(
            second.is_of_status && second.content["status"]["allocation"]["allocationTimestamp"].is_string()
        );
        let allocated = apply(&protected, &second);
        assert_eq!(next(&allocated, &wanted), Ok(None));
        // Another pod of the same claim is added to the first.
        let joins = Reservation { pod: pod("b"), user: consumer(&pod("b")), ..wanted };
        let third = next(&allocated, &joins).unwrap().unwrap();
        assert_eq!(third.content["status"]["reservedFor"].as_array().unwrap().len(), 2);
        assert_eq!(next(&apply(&allocated, &third), &joins), Ok(None));
    }

    #[test]
    fn what_somebody_else_decided_is_never_overwritten() {
        let wanted = wanted("a");
        let others = claim(&json!({"status": {"allocation": allocation("gpu-7")}}));
        assert!(next(&others, &wanted).unwrap_err().contains("somebody else"));
        let another = claim(&json!({"metadata": {"uid": "2"}}));
        assert!(next(&another, &wanted).unwrap_err().contains("another claim"));
        let going = claim(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        assert!(next(&going, &wanted).unwrap_err().contains("deleted"));
    }

    /// Its number is not known before it is made, and may never be told where the answer was lost.
    #[test]
    fn a_claim_that_was_made_is_known_by_its_owner() {
        let owner = |uid: &str| json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid, "controller": true}]);
        let made = |uid: &str| claim(&json!({"metadata": {"ownerReferences": owner(uid)}}));
        let mut asked = made("uid-a");
        asked.metadata.uid = None;
        let wanted = Reservation { claim: Arc::new(asked), ..wanted("a") };
        assert!(next(&made("uid-a"), &wanted).unwrap().is_some());
        assert!(next(&made("uid-b"), &wanted).unwrap_err().contains("another claim"));
    }

    #[test]
    fn the_last_user_gives_the_devices_back_and_the_protection_with_them() {
        let users = json!([consumer(&pod("a")), consumer(&pod("b"))]);
        let both = claim(&json!({
            "metadata": {"finalizers": [FINALIZER, "mine"]},
            "status": {"allocation": allocation("gpu-0"), "reservedFor": users},
        }));
        let first = back(&both, &pod("a")).unwrap();
        assert_eq!(first.content["status"], json!({"reservedFor": [consumer(&pod("b"))]}));
        let one = apply(&both, &first);
        assert_eq!(back(&one, &pod("a")), None);
        let second = back(&one, &pod("b")).unwrap();
        assert_eq!(second.content["status"], json!({"allocation": null, "reservedFor": null}));
        let none = apply(&one, &second);
        let third = back(&none, &pod("b")).unwrap();
        assert_eq!(third.content["metadata"]["finalizers"], json!(["mine"]));
        assert_eq!(back(&apply(&none, &third), &pod("b")), None);
    }
}
