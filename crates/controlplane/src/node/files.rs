//! What containerd and the kubelet of a node are told, and where they keep what they have.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::error::Error;
use crate::image::PAUSE;

use super::dns;
use super::needs::NETWORK_PLUGINS;
use super::network;

/// The files of a node.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) folder: PathBuf,
    kubeconfig: PathBuf,
    address: String,
}

impl Files {
    pub(super) fn write(
        folder: &Path,
        at: usize,
        cgroup: &str,
        kubeconfig: &Path,
        has_dns: bool,
    ) -> Result<Self, Error> {
        let files = Self {
            folder: folder.to_path_buf(),
            kubeconfig: kubeconfig.to_path_buf(),
            address: network::address(at),
        };
        for part in ["kubelet", "pods", "network"] {
            let part = folder.join(part);
            fs::create_dir_all(&part).map_err(Error::io("create", &part))?;
        }
        let texts = [
            (files.containerd(), files.containerd_configuration()),
            (folder.join("network/10-pods.conflist"), files.network(at)),
            (files.kubelet(), files.kubelet_configuration(cgroup, has_dns)),
        ];
        for (path, text) in texts {
            fs::write(&path, text).map_err(Error::io("write", &path))?;
        }
        Ok(files)
    }

    pub(super) fn containerd(&self) -> PathBuf {
        self.folder.join("containerd.toml")
    }

    fn kubelet(&self) -> PathBuf {
        self.folder.join("kubelet.json")
    }

    /// Where containerd listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("containerd.sock")
    }

    /// What containers print.
    pub(super) fn pods(&self) -> PathBuf {
        self.folder.join("pods")
    }

    pub(super) fn log(&self, program: &str) -> PathBuf {
        self.folder.join(format!("{program}.log"))
    }

    fn containerd_configuration(&self) -> String {
        let folder = self.folder.display();
        let socket = self.socket();
        let socket = socket.display();
        // Without the right to raise the protection of a process against the end of memory.
        format!(
            r#"version = 2
root = "{folder}/images"
state = "{folder}/containers"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{NETWORK_PLUGINS}"
    conf_dir = "{folder}/network"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
"#
        )
    }

    fn network(&self, at: usize) -> String {
        let addresses = json!({
            "type": "host-local", "dataDir": self.folder.join("addresses"),
            "ranges": [[{"subnet": network::pods(at)}]], "routes": [{"dst": "0.0.0.0/0"}],
        });
        json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": addresses}]})
            .to_string()
    }

    fn kubelet_configuration(&self, cgroup: &str, has_dns: bool) -> String {
        let configuration = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": cgroup,
            "failCgroupV1": false,
            "enforceNodeAllocatable": [],
            "containerRuntimeEndpoint": format!("unix://{}", self.socket().display()),
            "podLogsDir": self.pods(),
            // A test shares its disk and memory with what else the machine does.
            "evictionHard": {
                "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%",
                "nodefs.inodesFree": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "failSwapOn": false,
            "healthzPort": 0,
            "makeIPTablesUtilChains": false,
            "resolvConf": "",
            "clusterDNS": has_dns.then_some(network::SWITCH).as_slice(),
            "clusterDomain": dns::DOMAIN,
            // A stopped kubelet is noticed within seconds.
            "nodeStatusUpdateFrequency": "1s",
            "nodeLeaseDurationSeconds": 4,
            "syncFrequency": "5s",
        });
        format!("{configuration:#}\n")
    }

    pub(super) fn kubelet_arguments(&self, node: &str) -> Vec<String> {
        vec![
            format!("--config={}", self.kubelet().display()),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--hostname-override={node}"),
            format!("--node-ip={}", self.address),
            "--root-dir=/var/lib/kubelet".to_owned(),
            "--cert-dir=/var/lib/kubelet/pki".to_owned(),
        ]
    }
}
