//! One pod to its node: what has to be there first, then the binding.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::Client;
use phalanx_model::{FailureClass, NodeName};
use serde_json::json;

use super::call::{ANSWER, CallError, JSON, Limited, PAUSE, Request, may_pass, path_of, repeat, send};
use super::claims;
use super::lanes::Turn;
use super::lease::Term;
use crate::api::Pod;
use crate::messages::{PodRef, Step, Unbound};

/// Nobody asks with less time for an answer.
const ANSWER_MIN: Duration = Duration::from_secs(1);

/// Prepares what a pod needs, then binds it and writes what was decided for it onto it, in one call. Its end is known: a
/// binding that may have happened is looked at, and tried again where it has not.
pub(super) async fn bind(
    client: &Client,
    term: &Term,
    pod: &PodRef,
    node: &NodeName,
    before: &[Step],
    annotations: BTreeMap<String, String>,
    turn: &mut Turn,
) -> Result<(), Unbound> {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": &*pod.name, "namespace": &*pod.namespace, "uid": &*pod.uid, "annotations": annotations },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node.as_str() },
    });
    let path = format!("{}/binding", path_of(pod));
    let body = binding.to_string().into_bytes();
    let lost = |detail: String, may_come| Unbound { class: FailureClass::StartUp, detail, may_come };
    let unmade = |why: &str| format!("pod {} is not bound: {why}", pod.name);
    let requests = Limited::by_term(client.clone(), term.clone());
    prepare(&requests, before, turn).await.map_err(|why| lost(unmade(&why), false))?;
    let until = turn.until();
    // Whether the API server may still be at one of the tries.
    let mut may_come = false;
    loop {
        if !term.may_begin().await {
            return Err(lost(unmade("another leads"), may_come));
        }
        turn.check().map_err(|why| lost(unmade(why), may_come))?;
        let patience = until.saturating_duration_since(Instant::now()).clamp(ANSWER_MIN, ANSWER);
        let request = Request { method: "POST", path: &path, content: JSON, body: &body };
        let sent = send(client, request, patience).await;
        let Err(error) = sent else { return Ok(()) };
        may_come |= may_be_done(error.code());
        let is_unclear = may_pass(error.code()) || error.code() == Some(409);
        // An earlier try may have been the one that succeeded.
        let there =
            if is_unclear { whereabouts(client, pod, node, until).await } else { Whereabouts::Unknown };
        let pause = error.pause();
        match there {
            Whereabouts::Bound => return Ok(()),
            Whereabouts::Free | Whereabouts::Unknown if is_unclear && Instant::now() + pause < until => {
                tokio::time::sleep(pause).await;
            }
            _ => {
                may_come &= !matches!(there, Whereabouts::Gone | Whereabouts::Elsewhere(_));
                return Err(lost(unbound(pod, node, &there, &error), may_come));
            }
        }
    }
}

/// Whether what was asked for may still be done: there was no answer, or that of a server that gave up waiting for itself.
const fn may_be_done(code: Option<u16>) -> bool {
    matches!(code, None | Some(500..=599))
}

fn unbound(pod: &PodRef, node: &NodeName, there: &Whereabouts, error: &CallError) -> String {
    match there {
        Whereabouts::Gone => format!("pod {} is gone", pod.name),
        Whereabouts::Elsewhere(other) => format!("pod {} is on {other}, and not on {node}", pod.name),
        _ => format!("pod {} could not be bound to {node}: {error}", pod.name),
    }
}

/// Where a pod is, as the API server says.
enum Whereabouts {
    Bound,
    Elsewhere(String),
    /// It has no node yet.
    Free,
    Gone,
    Unknown,
}

async fn whereabouts(client: &Client, pod: &PodRef, node: &NodeName, until: Instant) -> Whereabouts {
    loop {
        let asked = send(client, Request::get(&path_of(pod)), ANSWER).await;
        let text = match asked {
            Ok(text) => text,
            Err(error) if error.code() == Some(404) => return Whereabouts::Gone,
            Err(_) if Instant::now() + PAUSE >= until => return Whereabouts::Unknown,
            Err(error) => {
                tokio::time::sleep(error.pause()).await;
                continue;
            }
        };
        let Ok(there) = serde_json::from_str::<Pod>(&text) else { return Whereabouts::Unknown };
        return match there.spec.node_name.as_deref() {
            _ if there.uid() != &*pod.uid || there.metadata.deletion_timestamp.is_some() => Whereabouts::Gone,
            Some(at) if at == node.as_str() => Whereabouts::Bound,
            Some(other) => Whereabouts::Elsewhere(other.to_owned()),
            None => Whereabouts::Free,
        };
    }
}

/// Gets things ready for a pod or a gang, in this order; why that was not possible.
pub(super) async fn prepare(requests: &Limited, steps: &[Step], turn: &mut Turn) -> Result<(), String> {
    for step in steps {
        match step {
            Step::Patch { path, patch } => {
                repeat(requests, "PATCH", path, "application/merge-patch+json", patch)
                    .await
                    .map(drop)
                    .map_err(|error| format!("{path}: {error}"))?
            }
            Step::Claim(reservation) => claims::reserve(requests, reservation, turn).await?,
        }
    }
    Ok(())
}
