//! A real control plane with fake nodes, and the scheduler as a process of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use phalanx_controlplane::{Api, ControlPlane, Fleet, GPU, Options};
use serde_json::{Value, json};

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
pub(crate) const POD_GROUPS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";

/// Far beyond what any of this takes; only what hangs gets there.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster whose pods run and end as their annotations say.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    schedulers: Vec<Child>,
    log: PathBuf,
}

/// Where a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) name: String,
    pub(crate) node: Option<String>,
    pub(crate) devices: Option<String>,
    pub(crate) rank: Option<u32>,
    pub(crate) gang: String,
    pub(crate) phase: String,
}

impl Cluster {
    /// So many nodes of 8 GPUs.
    pub(crate) fn of(nodes: usize) -> Self {
        Self::with(&Options { controller_manager: true, kwok: true, ..Options::default() }, nodes)
    }

    /// The same of a control plane of one's choice.
    pub(crate) fn with(options: &Options, nodes: usize) -> Self {
        let plane = ControlPlane::start(options).unwrap();
        Fleet::new(nodes).create(plane.api()).unwrap();
        let log = plane.folder().join("phalanx.log");
        Self { plane, schedulers: Vec::new(), log }
    }

    pub(crate) fn api(&self) -> &Api {
        self.plane.api()
    }

    /// Starts a scheduler; a lease of 0 seconds is none.
    pub(crate) fn schedule(&mut self, lease_s: u64) -> usize {
        let kubeconfig = self.plane.kubeconfig();
        self.schedule_as(&kubeconfig, lease_s, "kube-system")
    }

    /// The same as somebody, with the lease in a namespace.
    pub(crate) fn schedule_as(&mut self, kubeconfig: &Path, lease_s: u64, namespace: &str) -> usize {
        let log = || Stdio::from(File::options().create(true).append(true).open(&self.log).unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_phalanx-test-daemon"))
            .arg("scheduler")
            .arg(kubeconfig)
            .args([&lease_s.to_string(), namespace])
            .stdin(Stdio::null())
            .stdout(log())
            .stderr(log())
            .spawn()
            .unwrap();
        self.schedulers.push(child);
        self.schedulers.len() - 1
    }

    /// Starts the agent of a node, as somebody, with a description of its machine and the folder of its kubelet.
    pub(crate) fn serve_node(
        &mut self,
        kubeconfig: &Path,
        node: &str,
        machine: &Path,
        kubelet: &Path,
    ) -> u32 {
        let log = || Stdio::from(File::options().create(true).append(true).open(&self.log).unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_phalanx-test-daemon"))
            .arg("node")
            .arg(kubeconfig)
            .arg(node)
            .args([machine, kubelet])
            .stdin(Stdio::null())
            .stdout(log())
            .stderr(log())
            .spawn()
            .unwrap();
        let pid = child.id();
        self.schedulers.push(child);
        pid
    }

    /// Waits for the process that was started last to end by itself.
    pub(crate) fn until_ended(&mut self) -> std::process::ExitStatus {
        let mut child = self.schedulers.pop().unwrap();
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if began.elapsed() > PATIENCE {
                let _ = child.kill();
                child.wait().unwrap();
                panic!("it did not end:\n{}", self.said());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the processes wrote so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends a scheduler at once, as a lost machine would.
    pub(crate) fn kill(&mut self, scheduler: usize) {
        let child = &mut self.schedulers[scheduler];
        let _ = child.kill();
        child.wait().unwrap();
    }

    pub(crate) fn create(&self, path: &str, object: &Value) -> Value {
        self.api().post(path, object).unwrap()
    }

    pub(crate) fn seats(&self) -> Vec<Seat> {
        let pods = self.api().get("/api/v1/pods").unwrap();
        pods["items"].as_array().unwrap().iter().map(seat).collect()
    }

    /// Pods by gang that have a node, and those that have none.
    pub(crate) fn bound(&self) -> BTreeMap<String, (usize, usize)> {
        let mut gangs: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for seat in self.seats().into_iter().filter(|seat| seat.phase != "Succeeded") {
            let of = gangs.entry(seat.gang).or_default();
            if seat.node.is_some() {
                of.0 += 1;
            } else {
                of.1 += 1;
            }
        }
        gangs
    }

    /// What `look` gives as soon as it gives something.
    pub(crate) fn until<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            if began.elapsed() > PATIENCE {
                let log = self.said();
                let seats: Vec<String> = self.seats().iter().map(|seat| format!("{seat:?}")).collect();
                panic!(
                    "{what} did not happen; the scheduler said:\n{log}\nand pods are\n{}",
                    seats.join("\n")
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until all pods of a gang run.
    pub(crate) fn until_runs(&self, gang: &str, pods: usize) -> Vec<Seat> {
        self.until(&format!("{gang} with {pods} pods"), |cluster| {
            let of_it: Vec<Seat> = cluster.seats().into_iter().filter(|seat| seat.gang == gang).collect();
            let run =
                of_it.iter().filter(|seat| seat.phase == "Running" || seat.phase == "Succeeded").count();
            (run == pods).then_some(of_it)
        })
    }

    /// Why a pod waits, as its condition says.
    pub(crate) fn until_explained(&self, pod: &str, words: &str) -> String {
        self.until(&format!("{words:?} on {pod}"), |cluster| {
            let pod = cluster.api().get(&format!("{PODS}/{pod}")).ok()?;
            let conditions = pod["status"]["conditions"].as_array()?;
            let waits = conditions.iter().find(|condition| condition["type"] == "PodScheduled")?;
            let message = waits["message"].as_str()?.to_owned();
            message.contains(words).then_some(message)
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.schedulers {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn seat(pod: &Value) -> Seat {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let annotations = &pod["metadata"]["annotations"];
    let labels = &pod["metadata"]["labels"];
    let named = text(&labels["gang"]).or_else(|| text(&labels["batch.kubernetes.io/job-name"]));
    let name = text(&pod["metadata"]["name"]).unwrap();
    Seat {
        node: text(&pod["spec"]["nodeName"]),
        devices: text(&annotations["phalanx.dev/devices"]),
        rank: text(&annotations["phalanx.dev/rank"]).and_then(|rank| rank.parse().ok()),
        gang: named.unwrap_or_else(|| name.clone()),
        phase: text(&pod["status"]["phase"]).unwrap_or_default(),
        name,
    }
}

/// A pod of this scheduler with so many GPUs.
pub(crate) fn pod(name: &str, gpus: u32) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "schedulerName": "phalanx",
            "restartPolicy": "Never",
            "containers": [{
                "name": "main",
                "image": "none",
                "resources": { "limits": { GPU: gpus.to_string(), "cpu": "4", "memory": "8Gi" } },
            }],
        },
    })
}

/// An indexed Job of so many pods, each with so many GPUs. `annotations` are those of its pods.
pub(crate) fn job(name: &str, pods: u32, gpus: u32, annotations: &Value) -> Value {
    let template = pod("", gpus)["spec"].clone();
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name },
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "completionMode": "Indexed",
            "template": { "metadata": { "annotations": annotations }, "spec": template },
        },
    })
}

/// No two pods that live have a device in common, and no node more than it has.
pub(crate) fn assert_disjoint(seats: &[Seat]) {
    let mut taken: BTreeMap<(String, u32), String> = BTreeMap::new();
    for seat in seats.iter().filter(|seat| !matches!(&*seat.phase, "Succeeded" | "Failed")) {
        let (Some(node), Some(devices)) = (&seat.node, &seat.devices) else { continue };
        let devices: phalanx_model::DeviceMask = devices.parse().unwrap();
        for device in devices.iter() {
            assert!(device < 8, "{seat:?}");
            if let Some(other) = taken.insert((node.clone(), device), seat.name.clone()) {
                panic!("{} and {other} both have device {device} of {node}", seat.name);
            }
        }
    }
}
