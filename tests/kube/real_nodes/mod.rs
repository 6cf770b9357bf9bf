//! Real nodes: the kubelet, containerd and runc run pods in real containers; agents hand out eight declared GPUs.
//!
//! | module | what it tells |
//! |---|---|
//! | `devices` | who gets which devices, over restarts of kubelet and agent and the loss of a device |
//! | `losses` | nodes that fall silent, are drained and are tainted under a gang |
//! | `refusals` | a node whose device plugin turns every pod away |
//! | `plugin` | such a plugin |
//! | `image` | scheduler and agent in containers, from the image that is shipped |
//! | `mpi` | `mpirun` over SSH between containers |

mod devices;
mod health;
mod image;
mod losses;
mod mpi;
mod plugin;
mod refusals;

use std::path::PathBuf;

use phalanx_controlplane::{Fleet, GPU, IMAGE, Node, Options, missing_for_nodes};
use serde_json::{Value, json};

use crate::nodes::{agent_of, describe};
use crate::queues;
use crate::support::{Cluster, Seat, job, pod};

/// A cluster of real nodes.
struct Site {
    cluster: Cluster,
    /// The rights of agents.
    agent: PathBuf,
}

impl Site {
    /// Nothing where no node can run, which is said; in CI it has to.
    fn of(nodes: usize) -> Option<Self> {
        Self::of_options(nodes, Options::default())
    }

    /// The same, beside what `options` ask for.
    fn of_options(nodes: usize, options: Options) -> Option<Self> {
        if !can_run() {
            return None;
        }
        let options = Options { controller_manager: true, real_nodes: nodes, ..options };
        let cluster = Cluster::of_fleet(&options, &Fleet::new(0));
        queues::define(&cluster);
        let (_, agent) = agent_of(&cluster, "device-plugin", "phalanx-device-plugin");
        Some(Self { cluster, agent })
    }

    fn node(&self, at: usize) -> &Node {
        &self.cluster.plane.nodes()[at]
    }

    /// What the agent of a node takes for its machine.
    fn machine(&self, at: usize) -> PathBuf {
        self.cluster.plane.folder().join(format!("machine-{at}.json"))
    }

    /// Starts the agent of a node, which declares eight GPUs and hands them out.
    fn serve(&mut self, at: usize) -> u32 {
        describe(&self.machine(at), 0..8);
        let (machine, agent) = (self.machine(at), self.agent.clone());
        let (name, folder) = (self.node(at).name().to_owned(), self.node(at).kubelet_folder());
        self.cluster.serve_node(&agent, &name, &machine, Some(&folder))
    }

    /// Starts the agents of all nodes, and waits for their GPUs.
    fn serve_all(&mut self) {
        for at in 0..self.cluster.plane.nodes().len() {
            self.serve(at);
        }
        for at in 0..self.cluster.plane.nodes().len() {
            self.until_offers(at, 8);
        }
    }

    /// Waits until the kubelet of a node offers so many GPUs.
    fn until_offers(&self, at: usize, gpus: u32) {
        let (path, wanted) = (format!("/api/v1/nodes/{}", self.node(at).name()), gpus.to_string());
        self.cluster.until(&format!("{gpus} GPUs of node {at}"), |cluster| {
            let node = cluster.api().get(&path).unwrap();
            (node["status"]["allocatable"][GPU] == *wanted).then_some(())
        });
    }

    /// The number of a node.
    fn place(&self, name: &str) -> usize {
        self.cluster.plane.nodes().iter().position(|node| node.name() == name).unwrap()
    }

    /// Waits until a pod has printed a line that begins so, and says how it goes on.
    fn until_printed(&self, seat: &Seat, begin: &str) -> String {
        let node = self.node(self.place(seat.node.as_deref().unwrap()));
        self.cluster.until(&format!("{begin} of {}", seat.name), |_| {
            let printed = node.printed("default", &seat.name);
            printed.lines().find_map(|line| line.strip_prefix(begin)).map(str::to_owned)
        })
    }
}

/// Whether real nodes can run here, which is said if they cannot; in CI they have to.
fn can_run() -> bool {
    let missing = missing_for_nodes();
    if !missing.is_empty() {
        assert!(std::env::var_os("CI").is_none(), "real nodes cannot run: {}", missing.join("; "));
        eprintln!("skipped, for real nodes cannot run: {}", missing.join("; "));
    }
    missing.is_empty()
}

/// What a pod of a test runs, in a real container.
fn running(mut spec: Value, script: &str) -> Value {
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["tolerations"] = json!([
        { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1 },
    ]);
    let container = &mut spec["containers"][0];
    container["image"] = json!(IMAGE);
    container["imagePullPolicy"] = json!("Never");
    container["command"] = json!(["/bin/sh", "-c", script]);
    // The machine is small, and GPUs are what is short.
    container["resources"]["limits"]["cpu"] = json!("50m");
    container["resources"]["limits"]["memory"] = json!("32Mi");
    spec
}

fn real_pod(name: &str, gpus: u32, script: &str) -> Value {
    let mut one = pod(name, gpus);
    one["spec"] = running(one["spec"].take(), script);
    one
}

fn real_job(name: &str, pods: u32, gpus: u32, script: &str) -> Value {
    let mut gang = job(name, pods, gpus, &json!({}));
    let spec = &mut gang["spec"]["template"]["spec"];
    *spec = running(spec.take(), script);
    gang
}
