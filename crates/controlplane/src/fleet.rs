//! Fake nodes with GPUs, which only the API knows.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::api::Api;
use crate::error::Error;
use crate::kubernetes::KubernetesVersion;

/// The resource of GPUs.
pub const GPU: &str = "nvidia.com/gpu";

/// Threads that wait for an answer at the same time.
const THREADS: usize = 32;

/// Equal nodes in racks in blocks. A block's name is the same in every rack of it.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub nodes: usize,
    pub gpus: u32,
    pub cpus: u32,
    pub memory_gib: u32,
    pub nodes_per_rack: usize,
    pub nodes_per_block: usize,
    /// Labels of every node beside those of place and name.
    pub labels: Vec<(String, String)>,
    /// Where the API server asks for the logs of containers, on loopback. 0: nowhere.
    pub kubelet_port: u16,
}

impl Fleet {
    /// The label of the rack, as `rack-3`.
    pub const RACK: &str = "fabric.topograph.run/tier-0";
    /// The label of the block, as `block-0`.
    pub const BLOCK: &str = "fabric.topograph.run/tier-1";

    /// Nodes of 8 GPUs, 96 CPUs and 1,024 GiB, 32 in a rack and 256 in a block.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        let (nodes_per_rack, nodes_per_block) = (32, 256);
        Self {
            nodes,
            gpus: 8,
            cpus: 96,
            memory_gib: 1_024,
            nodes_per_rack,
            nodes_per_block,
            labels: Vec::new(),
            kubelet_port: 0,
        }
    }

    /// The name of the node at a place, from 0.
    #[must_use]
    pub fn name(at: usize) -> String {
        format!("node-{at:05}")
    }

    /// The rack of the node at a place.
    #[must_use]
    pub fn rack(&self, at: usize) -> usize {
        at / self.nodes_per_rack
    }

    /// The node at a place as the API takes it: ready, without taints, and managed by kwok where that runs.
    #[must_use]
    pub fn node(&self, at: usize) -> Value {
        let name = Self::name(at);
        let mut labels = json!({
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": "zone-a",
            "topology.kubernetes.io/region": "region-a",
            "node.kubernetes.io/instance-type": format!("gpu-{}", self.gpus),
            Self::RACK: format!("rack-{}", self.rack(at)),
            Self::BLOCK: format!("block-{}", at / self.nodes_per_block),
        });
        for (key, value) in &self.labels {
            labels[key] = json!(value);
        }
        let resources = json!({
            "cpu": self.cpus.to_string(),
            "memory": format!("{}Gi", self.memory_gib),
            "ephemeral-storage": "1Ti",
            "pods": "110",
            GPU: self.gpus.to_string(),
        });
        // No control plane starts while the variable names another version.
        let kubelets = KubernetesVersion::chosen().unwrap_or_default();
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({"type": kind, "status": status, "reason": reason,
                "lastHeartbeatTime": null, "lastTransitionTime": null})
        };
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "status": {
                "allocatable": resources,
                "capacity": resources,
                "conditions": [
                    condition("Ready", "True", "KubeletReady"),
                    condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                    condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                    condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                ],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self.kubelet_port}},
                "addresses": [
                    {"type": "InternalIP", "address": "127.0.0.1"},
                    {"type": "Hostname", "address": name},
                ],
                "nodeInfo": {
                    "architecture": "amd64", "operatingSystem": "linux", "bootID": "", "machineID": "",
                    "systemUUID": "", "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "",
                    "kubeletVersion": kubelets.release(), "kubeProxyVersion": "",
                },
            },
        })
    }

    /// Creates all nodes, over several connections at once.
    ///
    /// # Errors
    /// The first refusal; nodes that were created stay.
    pub fn create(&self, api: &Api) -> Result<(), Error> {
        in_parallel(self.nodes, |at| api.post("/api/v1/nodes", &self.node(at)).map(|_| ()))
    }
}

/// `work` for each of `0..count`, on several threads, until the first error.
///
/// # Errors
/// The first of `work`; what was begun elsewhere is still finished.
pub fn in_parallel(count: usize, work: impl Fn(usize) -> Result<(), Error> + Sync) -> Result<(), Error> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(count) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    if let Err(e) = work(at) {
                        next.fetch_add(count, Ordering::Relaxed);
                        if let Ok(mut failed) = failed.lock() {
                            failed.get_or_insert(e);
                        }
                        return;
                    }
                }
            });
        }
    });
    match failed.into_inner() {
        Ok(Some(e)) => Err(e),
        _ => Ok(()),
    }
}
