//! Real nodes: a kubelet with containerd and runc, in namespaces of their own, so that several stand on one machine.
//!
//! | module | what lives there |
//! |---|---|
//! | `needs` | what of the machine they need, and what of that is missing |
//! | `namespaces` | the process whose mounts, network and process numbers are the node's |
//! | `cgroups` | the node's group in every hierarchy of cgroups |
//! | `network` | a switch between the nodes |
//! | `relay` | the API server inside a node, at its port and at its Service |
//! | `dns` | names of services and of their pods, where they are asked for |
//! | `files` | what containerd and the kubelet are told |
//!
//! The kubelet's folder for device plugins cannot be chosen: each node mounts a folder of its own at
//! `/var/lib/kubelet`. The kernel ends all that runs in a node with its first process.

mod cgroups;
mod dns;
mod files;
mod namespaces;
mod needs;
mod network;
mod relay;

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::api::Api;
use crate::error::Error;
use crate::image::Image;
use crate::process::{Keeper, Process};
use crate::program::Program;

use cgroups::Cgroup;
pub(crate) use cgroups::PREFIX;
use dns::Dns;
use files::Files;
use namespaces::Namespaces;
pub(crate) use needs::BUSYBOX;
pub use needs::{missing_for_nodes, missing_for_open_mpi};
use network::Switch;
use relay::Relay;

/// A node comes up in seconds.
const READY_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Of the Service `kubernetes`: the first address of `--service-cluster-ip-range`.
const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The nodes of a control plane and what joins them.
#[derive(Debug)]
pub(crate) struct Nodes {
    // Ended before the switch that they are joined to.
    pub(crate) all: Vec<Node>,
    _dns: Option<Dns>,
    switch: Switch,
}

/// What a node takes from its control plane.
pub(crate) struct Surroundings<'a> {
    /// The state of the control plane.
    pub(crate) folder: &'a Path,
    pub(crate) api: &'a Api,
    pub(crate) api_server: u16,
    pub(crate) kubelet: &'a Path,
    /// `CoreDNS` and the kubeconfig that it reads names with, where the cluster has a DNS.
    pub(crate) dns: Option<(&'a Path, &'a Path)>,
}

impl Nodes {
    /// So many nodes that are ready.
    pub(crate) fn start(
        count: usize,
        around: &Surroundings<'_>,
        kubeconfig: impl Fn(&str) -> PathBuf,
        keeper: &mut Keeper,
    ) -> Result<Self, Error> {
        let missing = missing_for_nodes();
        if !missing.is_empty() {
            return Err(Error::NoNodes { missing: missing.join("; ") });
        }
        cgroups::remove_abandoned();
        let folder = around.folder.join("nodes");
        let switch = Switch::start(&folder, keeper)?;
        let dns = around.dns.map(|(program, kubeconfig)| {
            Dns::start(&folder, &switch, program, kubeconfig, around.api_server, keeper)
        });
        let dns = dns.transpose()?;
        let mut all = Vec::new();
        for at in 0..count {
            let kubeconfig = kubeconfig(&Node::name_of(at));
            all.push(Node::start(at, &folder, around, &kubeconfig, &switch, keeper)?);
        }
        for node in &mut all {
            node.wait(around.api, &Value::Null)?;
        }
        Ok(Self { all, _dns: dns, switch })
    }

    /// Bounds what a node sends to the others and takes from them, in bytes/s of frames; nothing: as fast as memory is.
    pub(crate) fn shape(&self, at: usize, bytes_per_s: Option<u64>) -> Result<(), Error> {
        let node = self.all.get(at).ok_or(Error::NotThere { program: Program::Kubelet })?;
        self.switch.shape(&node.namespaces, at, bytes_per_s)
    }
}

/// One real node.
#[derive(Debug)]
pub struct Node {
    name: String,
    files: Files,
    kubelet: PathBuf,
    // In the order in which they end: the first process of the namespaces ends the others.
    namespaces: Namespaces,
    running_kubelet: Option<Process>,
    _containerd: Process,
    _relays: [Relay; 2],
    _cgroup: Cgroup,
}

impl Node {
    /// The name of the node at a place, from 0.
    #[must_use]
    pub fn name_of(at: usize) -> String {
        format!("real-{at}")
    }

    fn start(
        at: usize,
        folder: &Path,
        around: &Surroundings<'_>,
        kubeconfig: &Path,
        switch: &Switch,
        keeper: &mut Keeper,
    ) -> Result<Self, Error> {
        let name = Self::name_of(at);
        let cgroup = Cgroup::create(around.folder, &name)?;
        let has_dns = around.dns.is_some();
        let files = Files::write(&folder.join(&name), at, cgroup.path(), kubeconfig, has_dns)?;
        let namespaces = Namespaces::start(&files.folder, keeper)?;
        switch.join(&namespaces, at)?;
        let own = SocketAddrV4::new(Ipv4Addr::LOCALHOST, around.api_server);
        let service = SocketAddrV4::new(API_SERVICE, 443);
        namespaces.network_tool("ip", &["address", "add", &format!("{API_SERVICE}/32"), "dev", "lo"])?;
        let at = |inside| Relay::start(&namespaces, inside, around.api_server);
        let relays = [at(own)?, at(service)?];
        let mut containerd = Command::new("containerd");
        containerd.arg("--config").arg(files.containerd());
        let containerd = namespaces.run("containerd", &containerd, files.log("containerd"), keeper)?;
        let mut node = Self {
            name,
            kubelet: around.kubelet.to_path_buf(),
            namespaces,
            running_kubelet: None,
            _containerd: containerd,
            _relays: relays,
            _cgroup: cgroup,
            files,
        };
        for image in [Image::pause(), Image::busybox()] {
            node.import(&image)?;
        }
        node.start_kubelet(keeper)?;
        Ok(node)
    }

    /// As the API calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kubelet's folder, as processes outside the node see it: `device-plugins` and `pod-resources` are in it.
    #[must_use]
    pub fn kubelet_folder(&self) -> PathBuf {
        self.files.folder.join("kubelet")
    }

    /// What the containers of a pod printed, all attempts of all containers, without times.
    #[must_use]
    pub fn printed(&self, namespace: &str, pod: &str) -> String {
        let begins = format!("{namespace}_{pod}_");
        let mut files = Vec::new();
        gather(&self.files.pods(), &begins, &mut files);
        files.sort();
        let mut text = String::new();
        for file in files {
            for line in fs::read_to_string(file).unwrap_or_default().lines() {
                // TIME STREAM TAG TEXT
                text.push_str(line.splitn(4, ' ').nth(3).unwrap_or_default());
                text.push('\n');
            }
        }
        text
    }

    /// Makes an image known to containerd.
    pub(crate) fn import(&self, image: &Image) -> Result<(), Error> {
        let archive = self.files.folder.join("image.tar");
        image.write(&archive)?;
        self.import_archive(&archive)
    }

    /// The same of an archive.
    pub(crate) fn import_archive(&self, archive: &Path) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            let mut ctr = Command::new("ctr");
            ctr.arg("--address").arg(self.files.socket()).args(["--namespace", "k8s.io", "images", "import"]);
            let done = ctr.arg(archive).output().map_err(Error::io("run", Path::new("ctr")))?;
            if done.status.success() {
                return Ok(());
            }
            // containerd listens a moment after its start.
            if began.elapsed() > READY_WITHIN {
                let why = String::from_utf8_lossy(&done.stderr).into_owned();
                return Err(Error::Node { node: self.name.clone(), why });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn start_kubelet(&mut self, keeper: &mut Keeper) -> Result<(), Error> {
        let mut kubelet = Command::new(&self.kubelet);
        kubelet.args(self.files.kubelet_arguments(&self.name));
        let log = self.files.log("kubelet");
        self.running_kubelet = Some(self.namespaces.run("kubelet", &kubelet, log, keeper)?);
        Ok(())
    }

    /// Kills the kubelet; containers go on, as on a node that is cut off.
    pub fn stop_kubelet(&mut self) {
        if let Some(kubelet) = self.running_kubelet.take() {
            namespaces::end_inside(&kubelet);
        }
    }

    /// Starts the kubelet, and waits until it has said itself that the node is ready.
    pub(crate) fn restart_kubelet(&mut self, api: &Api, keeper: &mut Keeper) -> Result<(), Error> {
        self.stop_kubelet();
        let node = api.get(&format!("/api/v1/nodes/{}", self.name))?;
        let before = ready_of(&node).map_or(Value::Null, |ready| ready["lastHeartbeatTime"].clone());
        self.start_kubelet(keeper)?;
        self.wait(api, &before)
    }

    /// Until the API says that the node is ready, and heard so later than `before`.
    fn wait(&mut self, api: &Api, before: &Value) -> Result<(), Error> {
        let began = Instant::now();
        let path = format!("/api/v1/nodes/{}", self.name);
        loop {
            let node = api.get(&path).unwrap_or_default();
            let is_ready = |ready: &Value| ready["status"] == "True" && ready["lastHeartbeatTime"] != *before;
            let is_tainted = node["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty());
            if ready_of(&node).is_some_and(is_ready) && !is_tainted {
                return Ok(());
            }
            if let Some(kubelet) = &mut self.running_kubelet {
                kubelet.check()?;
            }
            if began.elapsed() > READY_WITHIN {
                let why = format!("it is not ready; the end of its log:\n{}", self.log_end());
                return Err(Error::Node { node: self.name.clone(), why });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn log_end(&self) -> String {
        let log = fs::read_to_string(self.files.log("kubelet")).unwrap_or_default();
        crate::build::last_lines(&log, 20)
    }
}

/// The condition that says whether a node is ready.
fn ready_of(node: &Value) -> Option<&Value> {
    node["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")
}

/// The files below the folders of pods whose name begins so.
fn gather(folder: &Path, begins: &str, into: &mut Vec<PathBuf>) {
    for pod in fs::read_dir(folder).into_iter().flatten().flatten() {
        if pod.file_name().to_string_lossy().starts_with(begins) {
            for container in fs::read_dir(pod.path()).into_iter().flatten().flatten() {
                let files = fs::read_dir(container.path()).into_iter().flatten().flatten();
                into.extend(files.map(|file| file.path()));
            }
        }
    }
}

/// The users that kubelets are, for [`crate::Options::real_nodes`].
pub(crate) fn user_of(node: &str) -> crate::plane::User {
    crate::plane::User { name: format!("system:node:{node}"), groups: vec!["system:nodes".to_owned()] }
}
