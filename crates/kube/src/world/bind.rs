//! One pod to its node: what has to be there first, then the binding.

use std::collections::BTreeMap;
use std::time::Instant;

use kube::Client;
use phalanx_model::{FailureClass, NodeName};
use serde_json::json;

use super::call::{PAUSE, may_pass, path_of, repeat, send};
use super::claims;
use crate::api::Pod;
use crate::books::{PodRef, Step, Unbound};

/// Prepares what a pod needs, then binds it and writes what was decided for it onto it, in one call.
pub(super) async fn bind(
    client: &Client,
    pod: &PodRef,
    node: &NodeName,
    before: &[Step],
    annotations: BTreeMap<String, String>,
    until: Instant,
) -> Result<(), Unbound> {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": &*pod.name, "namespace": &*pod.namespace, "uid": &*pod.uid, "annotations": annotations },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node.as_str() },
    });
    let path = format!("{}/binding", path_of(pod));
    let body = binding.to_string().into_bytes();
    let lost = |detail: String| Unbound { class: FailureClass::StartUp, detail };
    for step in before {
        prepare(client, step, until)
            .await
            .map_err(|why| lost(format!("pod {} is not bound: {why}", pod.name)))?;
    }
    loop {
        let Err(error) = send(client, "POST", &path, "application/json", body.clone()).await else {
            return Ok(());
        };
        match error.code() {
            Some(404) => return Err(lost(format!("pod {} is gone", pod.name))),
            // An earlier try may have been the one that succeeded.
            Some(409) => {
                if is_bound(client, pod, node).await {
                    return Ok(());
                }
                return Err(lost(format!("pod {} could not be bound to {node}: {error}", pod.name)));
            }
            code if may_pass(code) && Instant::now() + PAUSE < until => {
                tokio::time::sleep(error.pause()).await
            }
            code => {
                if may_pass(code) && is_bound(client, pod, node).await {
                    return Ok(());
                }
                return Err(lost(format!("pod {} could not be bound to {node}: {error}", pod.name)));
            }
        }
    }
}

async fn is_bound(client: &Client, pod: &PodRef, node: &NodeName) -> bool {
    let Ok(text) = send(client, "GET", &path_of(pod), "application/json", Vec::new()).await else {
        return false;
    };
    let there: Result<Pod, _> = serde_json::from_str(&text);
    there
        .is_ok_and(|there| there.uid() == &*pod.uid && there.spec.node_name.as_deref() == Some(node.as_str()))
}

/// Makes one thing ready for a pod; why that was not possible.
async fn prepare(client: &Client, step: &Step, until: Instant) -> Result<(), String> {
    match step {
        Step::Patch { path, patch } => repeat(client, "PATCH", path, "application/merge-patch+json", patch)
            .await
            .map(drop)
            .map_err(|error| format!("{path}: {error}")),
        Step::Claim(reservation) => claims::reserve(client, reservation, until).await,
    }
}
