//! The cluster of a drill: a real control plane, real nodes, and the scheduler and the agents as processes of their own.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use phalanx_controlplane::{ControlPlane, GPU, Image, Options};
use phalanx_kube::crd;
use serde_json::{Value, json};

use super::seen::{Pod, Recorder, Told};
use crate::drill::interrupt::is_over;
use crate::drill::settings::Tools;

pub(super) const NODES: usize = 3;
/// Of each node.
pub(super) const GPUS: usize = 8;
/// The image of the gang.
pub(super) const IMAGE: &str = "docker.io/phalanx/ring-allreduce:1";

pub(super) const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/api/v1/events";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const TOPOLOGIES: &str = "/apis/phalanx.dev/v1alpha1/nodetopologies";
/// What the C library and the program are linked with.
const LIBRARIES: [&str; 2] = ["libc6", "libgcc-s1"];

/// Far beyond what any phase of a fault takes.
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(50);

pub(super) struct Cluster {
    scheduler: Option<Child>,
    agents: Vec<Option<Child>>,
    pub(super) pods: Recorder<Pod>,
    pub(super) events: Recorder<Told>,
    pub(super) plane: ControlPlane,
    phalanx: PathBuf,
}

impl Cluster {
    pub(super) fn start(tools: &Tools) -> Result<Self, String> {
        let options =
            Options { controller_manager: true, cluster_dns: true, real_nodes: NODES, ..Options::default() };
        let plane = ControlPlane::start(&options).map_err(|e| e.to_string())?;
        let image =
            Image::of_packages(IMAGE, &LIBRARIES).with_file(&tools.ring, "usr/local/bin/ring-allreduce");
        plane.import(&image).map_err(|e| e.to_string())?;
        let pods = Recorder::start(plane.api(), "/api/v1/pods", Pod::of_event)?;
        let events = Recorder::start(plane.api(), EVENTS, Told::of_event)?;
        let agents = (0..NODES).map(|_| None).collect();
        let mut cluster =
            Self { scheduler: None, agents, pods, events, plane, phalanx: tools.phalanx.clone() };
        cluster.define()?;
        for at in 0..NODES {
            fs::write(cluster.kernel_log(at), "").map_err(|e| e.to_string())?;
            cluster.describe(at, None)?;
            cluster.serve(at)?;
        }
        cluster.schedule()?;
        (0..NODES).try_for_each(|at| cluster.until_offers(at, GPUS))?;
        Ok(cluster)
    }

    /// Creates the resource definitions of Phalanx, and waits until they are served.
    fn define(&self) -> Result<(), String> {
        for (_, document) in crd::documents().map_err(|e| e.to_string())? {
            self.plane.api().post_yaml(DEFINITIONS, &document).map_err(|e| e.to_string())?;
        }
        self.wait("the definitions to be served", || self.get(TOPOLOGIES).ok().map(drop))
    }

    pub(super) fn name(&self, at: usize) -> &str {
        self.plane.nodes()[at].name()
    }

    /// The number of a node.
    pub(super) fn number(&self, node: &str) -> Result<usize, String> {
        let found = self.plane.nodes().iter().position(|one| one.name() == node);
        found.ok_or_else(|| format!("no node is called {node:?}"))
    }

    /// What the agent of a node takes for its machine: eight GPUs, without one that is lost.
    pub(super) fn describe(&self, at: usize, lost: Option<u32>) -> Result<(), String> {
        let device = |gpu: usize| {
            json!({"index": gpu, "uuid": uuid(at, gpu),
                "pci": {"bus_id": format!("{}.0", address(gpu))}})
        };
        let there = (0..GPUS).filter(|gpu| lost.is_none_or(|lost| lost as usize != *gpu));
        let machine = json!({"system": {"nvml_version": "12.560.35"},
            "device_defaults": {"name": "NVIDIA H100 80GB HBM3"}, "devices": there.map(device).collect::<Vec<_>>()});
        // The agent never reads half of it.
        let (file, next) = (self.machine(at), self.machine(at).with_extension("next"));
        fs::write(&next, machine.to_string())
            .and_then(|()| fs::rename(&next, &file))
            .map_err(|e| e.to_string())
    }

    fn machine(&self, at: usize) -> PathBuf {
        self.plane.folder().join(format!("machine-{at}.json"))
    }

    fn kernel_log(&self, at: usize) -> PathBuf {
        self.plane.folder().join(format!("machine-{at}.kmsg"))
    }

    /// The kernel log of a node reports an Xid of a GPU.
    pub(super) fn log_xid(&self, at: usize, gpu: u32, xid: u32) -> Result<(), String> {
        let log = File::options().append(true).open(self.kernel_log(at));
        let address = address(gpu as usize);
        let line = format!("[  100.000001] NVRM: Xid (PCI:{address}): {xid}, pid=1, name=ring, the GPU\n");
        log.and_then(|mut log| log.write_all(line.as_bytes())).map_err(|e| e.to_string())
    }

    /// Starts the scheduler, unless it runs.
    pub(super) fn schedule(&mut self) -> Result<(), String> {
        if self.scheduler.is_none() {
            let words = ["scheduler", "--lease-duration", "5"].map(str::to_owned);
            self.scheduler = Some(self.spawn("scheduler", &words)?);
        }
        Ok(())
    }

    /// SIGKILL.
    pub(super) fn kill_scheduler(&mut self) -> Result<(), String> {
        kill(&mut self.scheduler)
    }

    /// Starts the agent of a node, which hands out its GPUs, unless it runs.
    pub(super) fn serve(&mut self, at: usize) -> Result<(), String> {
        if self.agents[at].is_some() {
            return Ok(());
        }
        let path = |path: PathBuf| path.display().to_string();
        let node = &self.plane.nodes()[at];
        let (machine, log, kubelet) =
            (path(self.machine(at)), path(self.kernel_log(at)), path(node.kubelet_folder()));
        let words = ["node", "--node-name", node.name(), "--machine", &machine, "--kernel-log", &log];
        let more = ["--device-plugin", "--kubelet", &kubelet, "--every", "1", "--sample-every", "1"];
        let words: Vec<String> = words.iter().chain(&more).map(|word| (*word).to_owned()).collect();
        self.agents[at] = Some(self.spawn(&format!("agent-{at}"), &words)?);
        Ok(())
    }

    /// SIGKILL.
    pub(super) fn kill_agent(&mut self, at: usize) -> Result<(), String> {
        kill(&mut self.agents[at])
    }

    fn spawn(&mut self, name: &str, words: &[String]) -> Result<Child, String> {
        let file = self.plane.folder().join(format!("{name}.log"));
        let log = || File::options().create(true).append(true).open(&file).map_err(|e| e.to_string());
        let mut command = Command::new(&self.phalanx);
        command.args(words).args(["--log-format", "json", "--kubeconfig"]).arg(self.plane.kubeconfig());
        // Ctrl-C on a terminal reaches the drill alone, which then ends all in order.
        command.process_group(0).stdin(Stdio::null()).stdout(log()?).stderr(log()?);
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", self.phalanx.display()))?;
        if let Err(e) = self.plane.keep(child.id(), &self.phalanx) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(e.to_string());
        }
        Ok(child)
    }

    /// What a command of `phalanx` prints about this cluster.
    pub(super) fn phalanx(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.phalanx);
        command.args(words).env("KUBECONFIG", self.plane.kubeconfig()).env("PHALANX_TO", "kubernetes");
        let output = command.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(format!("`phalanx {}` ended with {}: {}", words.join(" "), output.status, text(&output.stderr)))
    }

    /// The end of what the scheduler logged, in one line.
    pub(super) fn last_lines(&self) -> String {
        let log = fs::read_to_string(self.plane.folder().join("scheduler.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(3)..].join(" | ")
    }

    pub(super) fn get(&self, path: &str) -> Result<Value, String> {
        self.plane.api().get(path).map_err(|e| e.to_string())
    }

    pub(super) fn post(&self, path: &str, object: &Value) -> Result<Value, String> {
        self.plane.api().post(path, object).map_err(|e| e.to_string())
    }

    pub(super) fn patch(&self, path: &str, patch: &Value) -> Result<(), String> {
        self.plane.api().patch(path, patch).map(drop).map_err(|e| e.to_string())
    }

    pub(super) fn delete(&self, path: &str) -> Result<(), String> {
        self.plane.api().delete(path).map(drop).map_err(|e| e.to_string())
    }

    pub(super) fn node(&self, at: usize) -> Result<Value, String> {
        self.get(&node_path(self.name(at)))
    }

    pub(super) fn topology(&self, at: usize) -> Result<Value, String> {
        self.get(&format!("{TOPOLOGIES}/{}", self.name(at)))
    }

    /// Waits for something. Fails after minutes, and at once on Ctrl-C.
    pub(super) fn wait<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> Result<T, String> {
        self.wait_polled(what, POLL, look)
    }

    /// As [`Self::wait`], with a pause between two looks.
    pub(super) fn wait_polled<T>(
        &self,
        what: &str,
        pause: Duration,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, String> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if is_over() {
                return Err("interrupted".to_owned());
            }
            if let Some(found) = look() {
                return Ok(found);
            }
            std::thread::sleep(pause);
        }
        Err(format!("never: {what}"))
    }

    /// How many GPUs the kubelet of a node offers.
    pub(super) fn offers(&self, at: usize) -> Option<usize> {
        self.node(at).ok()?["status"]["allocatable"][GPU].as_str()?.parse().ok()
    }

    /// Waits until the kubelet of a node offers so many GPUs.
    pub(super) fn until_offers(&self, at: usize, gpus: usize) -> Result<(), String> {
        let what = format!("{gpus} GPUs of {}", self.name(at));
        self.wait(&what, || (self.offers(at) == Some(gpus)).then_some(()))
    }

    /// Undoes whatever a fault has left, so that the next one begins with empty, healthy nodes.
    pub(super) fn repair(&mut self) -> Result<(), String> {
        self.schedule()?;
        for at in 0..NODES {
            self.describe(at, None)?;
            self.serve(at)?;
            let free = json!({ "spec": { "unschedulable": null, "taints": null } });
            self.patch(&node_path(self.name(at)), &free)?;
            if !is_ready(&self.node(at)?) {
                self.plane.start_kubelet(at).map_err(|e| e.to_string())?;
            }
            self.open(at)?;
        }
        self.delete(&format!("{JOBS}?propagationPolicy=Background"))?;
        self.wait("the end of all pods", || {
            self.get(PODS).ok()?["items"].as_array().is_some_and(Vec::is_empty).then_some(())
        })?;
        (0..NODES).try_for_each(|at| self.until_offers(at, GPUS))
    }

    /// Has the agent open the GPUs that it closed.
    fn open(&self, at: usize) -> Result<(), String> {
        let topology = self.topology(at)?;
        let devices = topology["spec"]["devices"].as_array().map_or(&[][..], Vec::as_slice);
        for (gpu, _) in devices.iter().enumerate().filter(|(_, device)| is_closed(device)) {
            self.phalanx(&["health", "clear", &format!("{}:{gpu}", self.name(at))])?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // They fail only where it has ended already.
        let _ = kill(&mut self.scheduler);
        self.agents.iter_mut().for_each(|agent| drop(kill(agent)));
    }
}

fn kill(child: &mut Option<Child>) -> Result<(), String> {
    let Some(mut child) = child.take() else { return Ok(()) };
    child.kill().and_then(|()| child.wait()).map(drop).map_err(|e| e.to_string())
}

/// Where a GPU is, as the kernel writes it.
fn address(gpu: usize) -> String {
    format!("0000:{:02x}:00", gpu + 1)
}

/// The vendor's name of a GPU of a node.
fn uuid(at: usize, gpu: usize) -> String {
    format!("GPU-{at}000000{gpu}-1111-2222-3333-444444444444")
}

/// The number of the GPU with such a name.
pub(super) fn gpu_of(uuid: &str) -> Option<u32> {
    uuid.strip_prefix("GPU-")?.get(7..8)?.parse().ok()
}

pub(super) fn node_path(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

pub(super) fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Whether no new gang may start on a device of a `NodeTopology`.
pub(super) fn is_closed(device: &Value) -> bool {
    matches!(device["health"]["grade"].as_str(), Some("DrainAfterJob" | "DrainNow" | "Broken"))
}

/// What the machine lacks for a cluster.
pub(super) fn missing() -> Vec<String> {
    let mut missing = phalanx_controlplane::missing_for_nodes();
    let has = |program: &str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|folder| folder.join(program).exists())
    };
    if !["dpkg-query", "apt-cache"].into_iter().all(has) {
        missing.push("the image of the gang is made of Debian packages: run on Debian or Ubuntu".to_owned());
    }
    missing
}
