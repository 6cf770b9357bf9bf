//! The API server's own limit: a client that binds every pod to the node that stands on it, without a thought.

use std::io::Read;
use std::path::Path;

use phalanx_controlplane::{Api, in_parallel};
use serde_json::{Value, json};

use super::cluster::{NODE, PODS};

/// What starts it, behind `phalanx-bench kube`: it is a process of its own, so that what it uses can be told apart.
pub(super) const VERB: &str = "bind-all";

/// Binds all pods that have a node to be bound to, over several connections, then waits for the end of its input, so
/// that what it used can be read.
pub(super) fn bind(kubeconfig: &Path) -> Result<(), String> {
    let api = Api::of_kubeconfig(kubeconfig).map_err(|e| e.to_string())?;
    let pods = api.get(PODS).map_err(|e| e.to_string())?;
    let none = Vec::new();
    let bindings: Vec<(String, Value)> =
        pods["items"].as_array().unwrap_or(&none).iter().filter_map(binding).collect();
    in_parallel(bindings.len(), |at| {
        let (path, binding) = &bindings[at];
        api.post(path, binding).map(|_| ())
    })
    .map_err(|e| e.to_string())?;
    // Ends with the process that started this one.
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).map(|_| ()).map_err(|e| format!("stdin: {e}"))
}

fn binding(pod: &Value) -> Option<(String, Value)> {
    let metadata = &pod["metadata"];
    let (name, node) = (metadata["name"].as_str()?, metadata["annotations"][NODE].as_str()?);
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "uid": metadata["uid"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    pod["spec"]["nodeName"].is_null().then(|| (format!("{PODS}/{name}/binding"), binding))
}
