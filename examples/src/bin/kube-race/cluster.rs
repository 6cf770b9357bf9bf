//! The cluster that the race is run on: a control plane, two real nodes on a network that can be shaped, agents, and both
//! schedulers.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use phalanx_controlplane::{
    ControlPlane, GPU, Image, OPEN_MPI, OPEN_MPI_SETTINGS, Options, missing_for_nodes, missing_for_open_mpi,
};
use phalanx_examples::phalanx::{define, program};
use phalanx_examples::stage::Stage;
use phalanx_examples::until::{until, within};
use phalanx_examples::v100::{Seat, Site};
use phalanx_kube::submit::{self, Launch, Trainer, Work, indexed};
use serde_json::{Value, json};

pub(crate) const NODES: [&str; 2] = ["real-0", "real-1"];
pub(crate) const WORKERS: usize = 4;

const NAMESPACE: &str = "/api/v1/namespaces/default";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const WORKER: &str = include_str!("worker.c");
/// The ring that the cost model predicts.
const RING: [(&str, &str); 2] =
    [("OMPI_MCA_coll_tuned_use_dynamic_rules", "1"), ("OMPI_MCA_coll_tuned_allreduce_algorithm", "4")];

/// Of a job that trains.
const TRAINS_WITHIN: Duration = Duration::from_secs(1_800);

/// Who places a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    KubeScheduler,
    Phalanx,
}

impl By {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::KubeScheduler => "kube-scheduler",
            Self::Phalanx => "phalanx",
        }
    }
}

/// What became of a job.
pub(crate) struct Run {
    /// Its pods in the order of their names.
    pub(crate) seats: Vec<Seat>,
    /// What rank 0 printed, JSON.
    pub(crate) printed: Vec<Value>,
}

pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    children: Vec<Child>,
}

impl Cluster {
    pub(crate) fn start(stage: &Stage, site: &Site) -> Result<Self, String> {
        let missing = missing();
        if !missing.is_empty() {
            return Err(missing.join("; "));
        }
        let phalanx = program("kube-race")?;
        let wait = stage.wait("the control plane and two nodes start", None);
        let plane = ControlPlane::start(&Options {
            controller_manager: true,
            kube_scheduler: true,
            real_nodes: NODES.len(),
            cluster_dns: true,
            ..Options::default()
        })
        .map_err(|e| e.to_string())?;
        drop(wait);
        let mut cluster = Self { plane, children: Vec::new() };
        cluster.import(stage)?;
        cluster.serve(&phalanx, site)?;
        Ok(cluster)
    }

    fn import(&self, stage: &Stage) -> Result<(), String> {
        let _wait = stage.wait("an image with Open MPI, sshd and the worker is put together", None);
        let worker = compiled(self.plane.folder())?;
        let image = Image::open_mpi().with_file(&worker, "usr/local/bin/worker");
        self.plane.import(&image).map_err(|e| e.to_string())
    }

    /// Our definitions, the scheduler, and an agent for each node that hands out its devices.
    fn serve(&mut self, phalanx: &Path, site: &Site) -> Result<(), String> {
        define(self.plane.api())?;
        let kubeconfig = self.plane.kubeconfig().display().to_string();
        let mut commands = vec![("phalanx".to_owned(), vec!["scheduler".to_owned()])];
        for node in self.plane.nodes() {
            let machine = self.plane.folder().join(format!("{}.json", node.name()));
            std::fs::write(&machine, site.profile(node.name()).to_string()).map_err(|e| e.to_string())?;
            let (machine, kubelet) =
                (machine.display().to_string(), node.kubelet_folder().display().to_string());
            let words = [
                "node",
                "--node-name",
                node.name(),
                "--machine",
                &machine,
                "--device-plugin",
                "--kubelet",
                &kubelet,
            ];
            commands.push((node.name().to_owned(), words.map(str::to_owned).to_vec()));
        }
        for (name, words) in commands {
            let log = || {
                File::create(self.plane.folder().join(format!("agent-{name}.log"))).map_err(|e| e.to_string())
            };
            let mut command = Command::new(phalanx);
            command.args(words).args(["--kubeconfig", &kubeconfig]).stdin(Stdio::null());
            let child = command.stdout(log()?).stderr(log()?).spawn();
            self.children.push(child.map_err(|e| format!("{}: {e}", phalanx.display()))?);
        }
        for node in NODES {
            until(&format!("the GPUs of {node}"), || {
                let node =
                    self.plane.api().get(&format!("/api/v1/nodes/{node}")).map_err(|e| e.to_string())?;
                Ok((node["status"]["allocatable"][GPU] == "8").then_some(()))
            })?;
        }
        Ok(())
    }

    /// One job from its creation to its end. Whoever places it, its objects are the same, but for the scheduler's name.
    pub(crate) fn run(&self, stage: &Stage, name: &str, by: By, arguments: &[String]) -> Result<Run, String> {
        let words = ["mpirun", "worker"].map(str::to_owned);
        let settings = OPEN_MPI_SETTINGS.into_iter().chain(RING);
        let work = Work {
            name: name.to_owned(),
            trainer: Trainer::Mpi,
            workers: u32::try_from(WORKERS).unwrap_or(u32::MAX),
            gpus: 1,
            image: OPEN_MPI.to_owned(),
            pull_policy: Some("Never".to_owned()),
            argv: words.into_iter().chain(arguments.iter().cloned()).collect(),
            env: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            launch: Launch::Mpi { per_pod: 0 },
            // The pods that wait for a launcher end with it.
            grace_s: Some(1),
            ..Work::default()
        };
        let wait = stage.wait(&format!("{name} is placed by {} and runs", by.name()), None);
        let mut owner = Value::Null;
        for mut manifest in indexed(&work).map_err(|e| e.to_string())? {
            if by == By::KubeScheduler && manifest.plural == "jobs" {
                let object = &mut manifest.object;
                object["spec"]["suspend"] = json!(false);
                object["spec"]["template"]["spec"]["schedulerName"] = json!("default-scheduler");
                object["metadata"]["annotations"] = json!({});
            }
            if !owner.is_null() {
                manifest.object["metadata"]["ownerReferences"] = json!([owner]);
            }
            let path = if manifest.plural == "jobs" {
                JOBS.to_owned()
            } else {
                format!("{NAMESPACE}/{}", manifest.plural)
            };
            let made = self.plane.api().post(&path, &manifest.object).map_err(|e| e.to_string())?;
            if manifest.plural == "jobs" {
                owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"] });
            }
        }
        let seats = self.until_placed(name)?;
        let done = self.until_ended(name, &seats);
        drop(wait);
        let printed = self.printed(&seats);
        done.map_err(|why| format!("{why}\n{printed}"))?;
        self.delete(name)?;
        let printed = printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Run { seats, printed })
    }

    fn until_placed(&self, name: &str) -> Result<Vec<Seat>, String> {
        until(&format!("a place for each pod of {name}"), || {
            let mut seats: Vec<Seat> = self.pods(name)?.iter().filter_map(seat).collect();
            seats.sort();
            Ok((seats.len() == WORKERS).then_some(seats))
        })
    }

    fn until_ended(&self, name: &str, seats: &[Seat]) -> Result<(), String> {
        within(TRAINS_WITHIN, &format!("the end of {name}"), || {
            let job = self.plane.api().get(&format!("{JOBS}/{name}")).map_err(|e| e.to_string())?;
            let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is = |kind: &str| conditions.iter().any(|it| it["type"] == kind && it["status"] == "True");
            if is("Failed")
                || job["status"]["failed"].as_u64().is_some_and(|failed| failed > 0)
                    && !is("SuccessCriteriaMet")
            {
                return Err(format!("{name} failed on {}", spoken(seats)));
            }
            Ok(is("Complete").then_some(()))
        })
    }

    /// What the pods printed, one after the other.
    fn printed(&self, seats: &[Seat]) -> String {
        let of = |(pod, node, _): &Seat| {
            let node = self.plane.nodes().iter().find(|at| at.name() == node);
            node.map(|node| node.printed("default", pod)).unwrap_or_default()
        };
        seats.iter().map(of).collect()
    }

    fn delete(&self, name: &str) -> Result<(), String> {
        let path = format!("{JOBS}/{name}?propagationPolicy=Foreground");
        self.plane.api().delete(&path).map_err(|e| e.to_string())?;
        until(&format!("the last of {name}"), || Ok(self.pods(name)?.is_empty().then_some(())))
    }

    fn pods(&self, name: &str) -> Result<Vec<Value>, String> {
        let path = format!("{NAMESPACE}/pods?labelSelector={}%3D{name}", submit::JOB);
        let pods = self.plane.api().get(&path).map_err(|e| e.to_string())?;
        Ok(pods["items"].as_array().cloned().unwrap_or_default())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Both fail only where it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Pods of a node, `real-0: 2  real-1: 2`.
pub(crate) fn spoken(seats: &[Seat]) -> String {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, node, _) in seats {
        *count.entry(node).or_default() += 1;
    }
    count.iter().map(|(node, pods)| format!("{node}: {pods}")).collect::<Vec<_>>().join("  ")
}

fn seat(pod: &Value) -> Option<Seat> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let devices = &pod["metadata"]["annotations"]["phalanx.dev/devices"];
    Some((text(&pod["metadata"]["name"])?, text(&pod["spec"]["nodeName"])?, text(devices)))
}

/// What has to be installed, each with how.
fn missing() -> Vec<String> {
    let mut missing = missing_for_nodes();
    missing.extend(missing_for_open_mpi());
    if Command::new("mpicc").arg("--version").output().is_err() {
        missing.push("install with: apt-get install libopenmpi-dev".to_owned());
    }
    missing
}

/// The worker as a program of this machine.
fn compiled(folder: &Path) -> Result<PathBuf, String> {
    let (source, program) = (folder.join("worker.c"), folder.join("worker"));
    std::fs::write(&source, WORKER).map_err(|e| e.to_string())?;
    let compiler = Command::new("mpicc").args(["-O2", "-o"]).arg(&program).arg(&source).output();
    let compiler = compiler.map_err(|e| format!("mpicc: {e}"))?;
    if compiler.status.success() {
        return Ok(program);
    }
    Err(format!("mpicc could not compile the worker:\n{}", String::from_utf8_lossy(&compiler.stderr)))
}
