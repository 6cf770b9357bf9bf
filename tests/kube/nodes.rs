//! The node's side: what stands in a node, who really has which devices, and which nodes take part.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_controlplane::Options;
use phalanx_kube::crd;
use phalanx_kube::plugin::RESOURCE;
use phalanx_kube::plugin::proto::plugin as wire;
use phalanx_kube::rights::{of_device_plugin, of_node};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::kubelet::{Holdings, Kubelet, PATIENCE, allocation, serve_pods};
use crate::manifests::create;
use crate::queues;
use crate::support::audit::{Audit, Need, needs};
use crate::support::role::until_may;
use crate::support::{Cluster, JOBS, PODS, Seat, assert_disjoint, job, pod};

const NODE: &str = "node-00000";
const TOPOLOGY: &str = "/apis/phalanx.dev/v1alpha1/nodetopologies/node-00000";
const NAMESPACE: &str = "phalanx-device-plugin";
const AGENT: &str = "phalanx-node";

pub(crate) fn uuid(device: usize) -> String {
    format!("GPU-0000000{device}-1111-2222-3333-444444444444")
}

/// Where a device is, as the kernel says it.
pub(crate) fn address(device: usize) -> String {
    format!("0000:{:02x}:00.0", device + 1)
}

/// A description of a machine with these devices.
pub(crate) fn describe(path: &Path, devices: impl IntoIterator<Item = usize>) {
    let device =
        |device: usize| json!({"index": device, "uuid": uuid(device), "pci": {"bus_id": address(device)}});
    let devices: Vec<Value> = devices.into_iter().map(device).collect();
    let profile = json!({"system": {"nvml_version": "12.560.35"}, "device_defaults": {"name": "NVIDIA H100 80GB HBM3"}, "devices": devices});
    std::fs::write(path, profile.to_string()).unwrap();
}

/// The folders of a kubelet, and what a device plugin of ours left there before.
struct Machine {
    runtime: Runtime,
    kubelet: Kubelet,
    held: Holdings,
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["device-plugins", "pod-resources"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        describe(&folder.path().join("machine.json"), 0..8);
        let runtime = Runtime::new().unwrap();
        let (kubelet, held) = {
            let _inside = runtime.enter();
            let kubelet = Kubelet::start(&folder.path().join("device-plugins"), None);
            (kubelet, serve_pods(&folder.path().join("pod-resources/kubelet.sock")))
        };
        Self { runtime, kubelet, held, folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("machine.json")
    }

    /// The kubelet ends and starts anew: it removes the sockets of all plugins.
    fn restart_kubelet(&mut self) {
        self.kubelet.server.abort();
        let folder = self.folder.path().join("device-plugins");
        std::fs::remove_file(folder.join("phalanx-gpu.sock")).unwrap();
        let _inside = self.runtime.enter();
        self.kubelet = Kubelet::start(&folder, None);
    }

    /// From now on a pod has these devices, whatever was chosen for it.
    fn gives(&self, pod: &str, devices: impl IntoIterator<Item = usize>) {
        let mut held = self.held.lock().unwrap();
        let path = format!("default/{pod}");
        held.retain(|(of, ..)| *of != path);
        held.extend(
            devices
                .into_iter()
                .map(|device| (path.clone(), "main".to_owned(), RESOURCE.to_owned(), uuid(device))),
        );
    }
}

fn devices_of(cluster: &Cluster, pod: &str) -> Option<String> {
    let pod = cluster.api().get(&format!("{PODS}/{pod}")).ok()?;
    pod["metadata"]["annotations"]["phalanx.dev/devices"].as_str().map(str::to_owned)
}

fn until_has(cluster: &Cluster, pod: &str, devices: &str) {
    cluster.until(&format!("{devices} on {pod}"), |cluster| {
        (devices_of(cluster, pod)? == devices).then_some(())
    });
}

/// The service account of agents, as the kustomization of a folder makes it with its roles: who it is, and its kubeconfig.
pub(crate) fn agent_of(cluster: &Cluster, folder: &str, namespace: &str) -> (String, PathBuf) {
    let roles = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"];
    create(cluster.api(), folder, &roles);
    let user = format!("system:serviceaccount:{namespace}:{AGENT}");
    until_may(cluster.api(), &user, "", "", "nodes", "get");
    let kubeconfig = cluster.plane.kubeconfig_of_service_account(namespace, AGENT).unwrap();
    (user, kubeconfig)
}

/// Waits until an agent has used all of its rights; it has asked for nothing else.
fn until_all_are_used(cluster: &Cluster, mut needed: BTreeSet<Need>, user: &str) {
    let before = needed.len();
    // To apply an object that is not there is judged as its creation, and logged as what it was asked as.
    needed.retain(|need| (&*need.resource, &*need.verb) != ("nodetopologies", "create"));
    assert_eq!(needed.len() + 1, before);
    let log = cluster.plane.audit_log();
    cluster.until("every right in use", |_| Audit::of(&log, user).unmet(&needed).is_empty().then_some(()));
    Audit::of(&log, user).assert_nothing_was_denied();
}

/// With the roles of the base, which know nothing of pods.
#[test]
fn the_agent_without_a_device_plugin_needs_all_of_its_rights_and_no_other() {
    let mut cluster = Cluster::with(&Options::default(), 1);
    queues::define(&cluster);
    let (user, kubeconfig) = agent_of(&cluster, "base", "phalanx-system");
    let machine = cluster.plane.folder().join("machine.json");
    describe(&machine, 0..8);
    cluster.serve_node(&kubeconfig, NODE, &machine, None);
    let written = cluster.until("the topology", |cluster| cluster.api().get(TOPOLOGY).ok());
    assert_eq!(written["spec"]["devices"].as_array().map(Vec::len), Some(8), "{written:#}");
    // What changes is written, and what somebody deletes is written again.
    describe(&machine, 0..7);
    cluster.until("a device that is lost", |cluster| {
        let now = cluster.api().get(TOPOLOGY).ok()?;
        (now["spec"]["devices"][7]["unhealthy"] == true).then_some(())
    });
    cluster.api().delete(TOPOLOGY).unwrap();
    cluster.until("the topology again", |cluster| cluster.api().get(TOPOLOGY).ok());
    until_all_are_used(&cluster, needs(&of_node(), None), &user);
}

/// Pods are told of the devices that they have, and what starts later gets none of them.
#[test]
fn the_agent_says_what_stands_in_the_node_and_who_has_which_devices() {
    let mut cluster = Cluster::of(1);
    queues::define(&cluster);
    let (user, kubeconfig) = agent_of(&cluster, "device-plugin", NAMESPACE);
    let mut machine = Machine::new();

    // The node has devices already, and from a plugin of somebody else.
    let other =
        std::os::unix::net::UnixListener::bind(machine.folder.path().join("device-plugins/other.sock"))
            .unwrap();
    cluster.serve_node(&kubeconfig, NODE, &machine.file(), Some(machine.folder.path()));
    assert!(!cluster.until_ended().success());
    assert!(cluster.log().contains("another device plugin serves nvidia.com/gpu"), "{}", cluster.log());

    // It is gone: what the node still offers was said of it.
    drop(other);
    let agent = cluster.serve_node(&kubeconfig, NODE, &machine.file(), Some(machine.folder.path()));
    let written = cluster.until("the topology", |cluster| cluster.api().get(TOPOLOGY).ok());
    let node = cluster.api().get(&format!("/api/v1/nodes/{NODE}")).unwrap();
    let owner = &written["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Node"), &node["metadata"]["uid"]), "{written:#}");
    assert_eq!(written["spec"]["devices"].as_array().map(Vec::len), Some(8), "{written:#}");
    let spec: crd::NodeTopologySpec = serde_json::from_value(written["spec"].clone()).unwrap();
    assert_eq!(spec.machine().unwrap().device_count(), 8);

    cluster.schedule(0);
    for name in ["a", "b"] {
        cluster.create(PODS, &pod(name, 2));
    }
    cluster.until_runs("a", 1);
    cluster.until_runs("b", 1);
    let [a, b] = ["a", "b"].map(|name| devices_of(&cluster, name).unwrap());
    assert_eq!([&*a, &*b], ["0-1", "2-3"]);
    // The kubelet asks for them by their names.
    let mut plugin = machine.runtime.block_on(machine.kubelet.plugin());
    let answer = machine.runtime.block_on(plugin.allocate(allocation(&[&uuid(2), &uuid(3)])));
    let envs = answer.unwrap().into_inner().container_responses.remove(0).envs;
    assert_eq!(envs["NVIDIA_VISIBLE_DEVICES"], format!("{},{}", uuid(2), uuid(3)));

    machine.restart_kubelet();
    let mut plugin = machine.runtime.block_on(machine.kubelet.plugin());

    // The kubelet exchanged them, and then gave one of them others.
    machine.gives("a", [2, 3]);
    machine.gives("b", [0, 1]);
    until_has(&cluster, "a", "2-3");
    until_has(&cluster, "b", "0-1");
    machine.gives("a", [4, 5]);
    until_has(&cluster, "a", "4-5");
    cluster.create(PODS, &pod("c", 4));
    cluster.until_runs("c", 1);
    assert_eq!(devices_of(&cluster, "c").unwrap(), "2-3,6-7");
    assert_disjoint(&cluster.seats());

    // A device that does not answer any more keeps its number.
    describe(&machine.file(), (0..8).filter(|device| *device != 6));
    cluster.until("a device that is lost", |cluster| {
        let now = cluster.api().get(TOPOLOGY).ok()?;
        let devices = now["spec"]["devices"].as_array()?;
        (devices.len() == 8 && devices[6]["unhealthy"] == true).then_some(())
    });

    let unhealthy = async {
        let mut lists = plugin.list_and_watch(wire::Empty {}).await.unwrap().into_inner();
        loop {
            let now = lists.message().await.unwrap().unwrap().devices;
            let lost: Vec<String> = now
                .into_iter()
                .filter(|device| device.health == "Unhealthy")
                .map(|device| device.id)
                .collect();
            if !lost.is_empty() {
                return lost;
            }
        }
    };
    let unhealthy = async { tokio::time::timeout(PATIENCE, unhealthy).await.unwrap() };
    assert_eq!(machine.runtime.block_on(unhealthy), [uuid(6)]);

    // Who had it is told to leave, and it is given to nobody: of four devices that nobody holds three are to be had.
    cluster.until("the end of c", |cluster| devices_of(cluster, "c").is_none().then_some(()));
    cluster.create(PODS, &pod("d", 3));
    cluster.until_runs("d", 1);
    assert_eq!(devices_of(&cluster, "d").unwrap(), "2-3,7");
    cluster.create(PODS, &pod("e", 1));
    cluster.until_explained("e", "");
    assert_eq!(cluster.bound()["e"], (0, 1), "the node still offers eight");

    // Who deletes the object has it written again.
    cluster.api().delete(TOPOLOGY).unwrap();
    cluster.until("the topology again", |cluster| cluster.api().get(TOPOLOGY).ok());

    let mut needed = needs(&of_node(), None);
    needed.extend(needs(&of_device_plugin(), None));
    until_all_are_used(&cluster, needed, &user);

    // The process before it is the scheduler: the agent ends in order.
    kill(Pid::from_raw(i32::try_from(agent).unwrap()), Signal::SIGTERM).unwrap();
    cluster.until("the end of the agent", |cluster| {
        let is_it = |line: &Value| line["message"] == "told to stop" && line["node"] == "node-00000";
        cluster.lines().iter().any(is_it).then_some(())
    });
}

pub(crate) fn label(cluster: &Cluster, node: usize, labels: &Value) {
    let path = format!("/api/v1/nodes/node-{node:05}");
    cluster.api().patch(&path, &json!({"metadata": {"labels": labels}})).unwrap();
}

pub(crate) fn nodes_of(seats: &[Seat]) -> Vec<&str> {
    let mut nodes: Vec<&str> = seats.iter().filter_map(|seat| seat.node.as_deref()).collect();
    nodes.sort_unstable();
    nodes
}

/// By default every node is used but those that are given back, at any time, by either label.
#[test]
fn a_node_that_is_given_back_gets_nothing_new_and_keeps_what_runs() {
    let mut cluster = Cluster::of(2);
    label(&cluster, 0, &json!({"ack.node.gpu.schedule": "default"}));
    cluster.schedule(0);
    cluster.create(JOBS, &job("first", 1, 4, &json!({})));
    assert_eq!(nodes_of(&cluster.until_runs("first", 1)), ["node-00001"]);
    // Given the one, taken back the other: what runs there stays, and is counted when it comes again.
    label(&cluster, 0, &json!({"ack.node.gpu.schedule": "topology"}));
    label(&cluster, 1, &json!({"phalanx.dev/schedule": "default"}));
    cluster.create(JOBS, &job("second", 1, 4, &json!({})));
    assert_eq!(nodes_of(&cluster.until_runs("second", 1)), ["node-00000"]);
    assert_eq!(nodes_of(&cluster.until_runs("first", 1)), ["node-00001"]);
    cluster.create(JOBS, &job("third", 1, 4, &json!({})));
    assert_eq!(nodes_of(&cluster.until_runs("third", 1)), ["node-00000"]);
    cluster.create(JOBS, &job("fourth", 1, 4, &json!({})));
    let waits = cluster.until("a pod of fourth", |cluster| {
        cluster.seats().into_iter().find(|seat| seat.gang == "fourth").map(|seat| seat.name)
    });
    cluster.until_explained(&waits, "");
    label(&cluster, 1, &json!({"phalanx.dev/schedule": null}));
    assert_eq!(nodes_of(&cluster.until_runs("fourth", 1)), ["node-00001"]);
    assert_disjoint(&cluster.seats());
}
