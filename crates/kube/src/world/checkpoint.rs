//! Pods that have to make way are told so before they are told to end.

use serde_json::json;

use super::call::{Requests, path_of, repeat};
use super::trouble::Trouble;
use crate::gang::pods::CHECKPOINT_BY;
use crate::messages::PodRef;

pub(super) const UNTOLD: &str = "a pod was not told to save its work";

/// Writes onto all pods of a gang when SIGTERM comes. Whoever writes a status may write annotations, and not what a pod runs.
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
        let patch = json!({ "metadata": { "uid": &*pod.uid, "annotations": { CHECKPOINT_BY: by } } });
        let path = format!("{}/status", path_of(pod));
        match repeat(client, "PATCH", &path, "application/merge-patch+json", &patch).await {
            Err(error) if !matches!(error.code(), Some(404 | 409)) && trouble.is_ok() => {
                trouble = Err(Trouble::new(UNTOLD, pod.to_string(), error));
            }
            _ => {}
        }
    }
    trouble
}
