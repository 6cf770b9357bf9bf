//! The cluster under show: a real control plane, two fake nodes, Phalanx beside kube-scheduler, and the `phalanx` command
//! as a user would type it.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use phalanx_controlplane::{Api, ControlPlane, Fleet, GPU, Options};
use phalanx_examples::phalanx::{TOPOLOGIES, define, program};
use phalanx_examples::stage::Stage;
use phalanx_examples::until::until;
use phalanx_examples::v100::{PRODUCT, Seat, Site};
use serde_json::{Value, json};

/// As the fleet names its first two.
pub(crate) const NODES: [&str; 2] = ["node-00000", "node-00001"];
/// The job that kube-scheduler places.
pub(crate) const REGULAR: &str = "tensorflow-4-vgg16";

/// Of each worker: images are decoded on them. kube-scheduler spreads what asks for CPUs.
pub(crate) const CPUS: &str = "8";

const MPI_JOBS: &str = "/apis/kubeflow.org/v1/namespaces/default/mpijobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

pub(crate) struct Cluster {
    plane: ControlPlane,
    phalanx: PathBuf,
    scheduler: Child,
}

impl Cluster {
    pub(crate) fn start(stage: &Stage, site: &Site) -> Result<Self, String> {
        let phalanx = program("kube-demo")?;
        let wait = stage.wait("the control plane starts", None);
        let plane = ControlPlane::start(&Options {
            controller_manager: true,
            kube_scheduler: true,
            kwok: true,
            training_operator: true,
            ..Options::default()
        })
        .map_err(|e| e.to_string())?;
        drop(wait);
        let labels = vec![("nvidia.com/gpu.product".to_owned(), PRODUCT.to_owned())];
        Fleet { labels, ..Fleet::new(NODES.len()) }.create(plane.api()).map_err(|e| e.to_string())?;
        describe(plane.api(), site)?;
        let log = || File::options().create(true).append(true).open(plane.folder().join("phalanx.log"));
        let scheduler = Command::new(&phalanx)
            .arg("scheduler")
            .arg("--kubeconfig")
            .arg(plane.kubeconfig())
            .stdin(Stdio::null())
            .stdout(log().map_err(|e| e.to_string())?)
            .stderr(log().map_err(|e| e.to_string())?)
            .spawn()
            .map_err(|e| format!("{}: {e}", phalanx.display()))?;
        Ok(Self { plane, phalanx, scheduler })
    }

    /// An `MPIJob` as people write it who know of no scheduler but the one that is there.
    pub(crate) fn create_regular(&self, workers: usize) -> Result<(), String> {
        let role = |replicas: usize, gpus: usize| {
            let limits = match gpus {
                0 => json!({}),
                _ => json!({ GPU: gpus.to_string(), "cpu": CPUS }),
            };
            json!({ "replicas": replicas, "template": { "spec": { "containers": [{
                "name": "mpi", "image": "registry.example/horovod:1",
                "command": ["mpirun", "python", "train.py"], "resources": { "limits": limits },
            }] } } })
        };
        let job = json!({
            "apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": { "name": REGULAR },
            "spec": {
                "slotsPerWorker": 1,
                "mpiReplicaSpecs": { "Launcher": role(1, 0), "Worker": role(workers, 1) },
            },
        });
        self.plane.api().post(MPI_JOBS, &job).map(drop).map_err(|e| e.to_string())
    }

    /// It is gone when none of its pods holds anything any more.
    pub(crate) fn delete_regular(&self) -> Result<(), String> {
        self.plane.api().delete(&format!("{MPI_JOBS}/{REGULAR}")).map_err(|e| e.to_string())?;
        until(&format!("the end of {REGULAR}"), || Ok(self.workers(REGULAR)?.is_empty().then_some(())))
    }

    /// The workers of a job as soon as all of them have a node, in the order of their names.
    pub(crate) fn until_placed(&self, stage: &Stage, job: &str, count: usize) -> Result<Vec<Seat>, String> {
        let _wait = stage.wait(&format!("{job} gets its places"), None);
        until(&format!("a place for each worker of {job}"), || {
            let placed = |pod: &Value| {
                let text = |value: &Value| value.as_str().map(str::to_owned);
                let devices = &pod["metadata"]["annotations"]["phalanx.dev/devices"];
                Some((text(&pod["metadata"]["name"])?, text(&pod["spec"]["nodeName"])?, text(devices)))
            };
            let mut seats: Vec<Seat> = self.workers(job)?.iter().filter_map(placed).collect();
            seats.sort();
            Ok((seats.len() == count).then_some(seats))
        })
    }

    fn workers(&self, job: &str) -> Result<Vec<Value>, String> {
        let selector =
            format!("training.kubeflow.org/job-name%3D{job},training.kubeflow.org/replica-type%3Dworker");
        let pods =
            self.plane.api().get(&format!("{PODS}?labelSelector={selector}")).map_err(|e| e.to_string())?;
        Ok(pods["items"].as_array().cloned().unwrap_or_default())
    }

    /// Shows a command and what it prints.
    pub(crate) fn phalanx(&self, stage: &Stage, words: &[&str]) -> Result<(), String> {
        let quoted =
            |word: &&str| if word.contains(' ') { format!("\"{word}\"") } else { (*word).to_owned() };
        stage.command(&format!("phalanx {}", words.iter().map(quoted).collect::<Vec<_>>().join(" ")));
        let status = Command::new(&self.phalanx)
            .args(words)
            .env("KUBECONFIG", self.plane.kubeconfig())
            .env("PHALANX_TO", "kubernetes")
            .stdin(Stdio::null())
            .status()
            .map_err(|e| e.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("`phalanx {}` ended with {status}", words.join(" ")))
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.scheduler.kill();
        let _ = self.scheduler.wait();
    }
}

/// Our definitions, and of each node what an agent would have found there.
fn describe(api: &Api, site: &Site) -> Result<(), String> {
    define(api)?;
    for node in NODES {
        let object = json!({
            "apiVersion": "phalanx.dev/v1alpha1", "kind": "NodeTopology", "metadata": { "name": node },
            "spec": site.topology(),
        });
        api.post(TOPOLOGIES, &object).map_err(|e| e.to_string())?;
    }
    Ok(())
}
