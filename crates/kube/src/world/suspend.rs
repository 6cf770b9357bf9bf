//! Owners of gangs are suspended for a while, and let go on. What their users want goes first: so each is read before it is
//! written, and written only as it was read.

use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::call::{CallError, Requests, read, repeat};
use crate::gang::SUSPENDED;
use crate::recognise::Suspend;

/// Suspends an owner and says on it why, so that it is let go on later. One that is suspended already stays as it is: where
/// its user did it, it stays so for good.
pub(super) async fn suspend(client: &impl Requests, owner: &Suspend, note: &str) -> Result<(), CallError> {
    write(client, owner, |there| match owner.is_set_in(&there.data) {
        true => None,
        false => Some(patch(owner, true, Some(note))),
    })
    .await
}

/// Lets an owner go on that was suspended for that, as long as it says so.
pub(super) async fn resume(client: &impl Requests, owner: &Suspend) -> Result<(), CallError> {
    write(client, owner, |there| {
        let annotations = there.metadata.annotations.as_ref();
        let says_so = annotations.is_some_and(|all| all.contains_key(SUSPENDED));
        says_so.then(|| patch(owner, false, None))
    })
    .await
}

/// Takes from an owner what it says of its suspension. As it was seen: whoever changed it since is heard first.
pub(super) async fn take_sign(
    client: &impl Requests,
    owner: &Suspend,
    version: &str,
) -> Result<(), CallError> {
    let patch = json!({ "metadata": { "resourceVersion": version, "annotations": { SUSPENDED: null } } });
    match repeat(client, "PATCH", &path_of(owner), "application/merge-patch+json", &patch).await {
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
        result => result.map(drop),
    }
}

pub(super) fn path_of(owner: &Suspend) -> String {
    let object = &owner.object;
    format!("/apis/{}/namespaces/{}/{}/{}", object.api_version, object.namespace, owner.plural, object.name)
}

fn patch(owner: &Suspend, is_suspended: bool, note: Option<&str>) -> Value {
    let mut patch =
        owner.path.iter().rev().fold(json!(is_suspended), |inner, field| json!({ *field: inner }));
    patch["metadata"] = json!({ "annotations": { SUSPENDED: note } });
    patch
}

/// Writes what follows from how the owner is now, if anything does. Another of its name is not the one that was meant.
async fn write(
    client: &impl Requests,
    owner: &Suspend,
    change: impl Fn(&DynamicObject) -> Option<Value>,
) -> Result<(), CallError> {
    /// Controllers write statuses all the time.
    const CONFLICTS_MAX: u32 = 20;
    let object = &owner.object;
    let path = path_of(owner);
    let mut conflicts = 0;
    loop {
        let there: DynamicObject = serde_json::from_str(&read(client, &path).await?)
            .map_err(|error| CallError::Transport(format!("{path} is no object: {error}")))?;
        let is_another = object.uid.is_some() && object.uid != there.metadata.uid;
        let Some(mut patch) = change(&there).filter(|_| !is_another) else { return Ok(()) };
        patch["metadata"]["resourceVersion"] = json!(there.metadata.resource_version);
        match repeat(client, "PATCH", &path, "application/merge-patch+json", &patch).await {
            Err(error) if error.code() == Some(409) && conflicts < CONFLICTS_MAX => conflicts += 1,
            result => return result.map(drop),
        }
    }
}
