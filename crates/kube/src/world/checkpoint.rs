//! Pods that have to make way are told so before they are told to end.

use serde_json::json;

use super::call::{Requests, patch_status};
use super::trouble::Trouble;
use crate::gang::pods::CHECKPOINT_BY;
use crate::messages::PodRef;

pub(super) const UNTOLD: &str = "a pod was not told to save its work";

/// Writes onto all pods of a gang when SIGTERM comes.
///
/// # Errors
/// The first pod that could not be told, once the others are; one that is gone need not be.
pub(super) async fn advise(client: &impl Requests, pods: &[PodRef], within_ms: u64) -> Result<(), Trouble> {
    let within = jiff::SignedDuration::from_millis(i64::try_from(within_ms).unwrap_or(i64::MAX));
    let now = jiff::Timestamp::now();
    let by = now.checked_add(within).map_err(|error| Trouble::new(UNTOLD, "pods of a gang", error))?;
    let by = by.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut trouble = Ok(());
    for pod in pods {
        let patch = json!({ "metadata": { "annotations": { CHECKPOINT_BY: by } } });
        let told = patch_status(client, pod, patch).await;
        trouble = trouble.and(told.map_err(|error| Trouble::new(UNTOLD, pod.to_string(), error)));
    }
    trouble
}
