//! Who has which devices, as the kubelet knows it.

use std::path::Path;

use super::proto::pods as wire;
use super::register::connect;
use super::{PluginError, RESOURCE};

/// The largest answer: some hundred pods with all that they have.
const ANSWER_BYTES: usize = 16 << 20;

/// What one container has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// `namespace/name`.
    pub pod: String,
    pub container: String,
    /// As the vendor names them.
    pub devices: Vec<String>,
}

/// Containers with devices of the resource, from the kubelet's socket for it
/// (`/var/lib/kubelet/pod-resources/kubelet.sock` as a rule).
///
/// # Errors
/// When the kubelet cannot be reached or does not answer.
pub async fn held(socket: &Path) -> Result<Vec<Held>, PluginError> {
    let channel = connect(socket).await?;
    let client = wire::pod_resources_lister_client::PodResourcesListerClient::new(channel);
    let mut client = client.max_decoding_message_size(ANSWER_BYTES);
    let answer = client.list(wire::ListPodResourcesRequest {}).await.map_err(|why| PluginError::Kubelet {
        path: socket.display().to_string(),
        why: why.message().to_owned(),
    })?;
    let mut held = Vec::new();
    for pod in answer.into_inner().pod_resources {
        for container in pod.containers {
            let ours = container.devices.into_iter().filter(|devices| devices.resource_name == RESOURCE);
            let devices: Vec<String> = ours.flat_map(|devices| devices.device_ids).collect();
            if !devices.is_empty() {
                let pod = format!("{}/{}", pod.namespace, pod.name);
                held.push(Held { pod, container: container.name, devices });
            }
        }
    }
    Ok(held)
}
