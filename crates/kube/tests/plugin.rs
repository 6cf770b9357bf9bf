//! The device plugin, before a small kubelet that speaks the real protocol over Unix sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod kubelet;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_kube::plugin::proto::plugin as wire;
use phalanx_kube::plugin::{
    Expectations, Expected, Folder, Held, Injection, PluginDevice, PluginError, RESOURCE, held, run,
};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Code;

use kubelet::{Kubelet, PATIENCE, allocation, serve_pods};

#[derive(Default)]
struct Pods {
    now: Mutex<Vec<Expected>>,
    /// Comes after so many looks.
    late: Mutex<Option<(u32, Expected)>>,
}

impl Pods {
    fn late(&self, looks: u32, pod: Expected) {
        *self.late.lock().unwrap() = Some((looks, pod));
    }
}

impl Expectations for Pods {
    fn expected(&self) -> Vec<Expected> {
        let mut late = self.late.lock().unwrap();
        *late = match late.take() {
            Some((0, pod)) => {
                self.now.lock().unwrap().push(pod);
                None
            }
            Some((looks, pod)) => Some((looks - 1, pod)),
            None => None,
        };
        self.now.lock().unwrap().clone()
    }
}

fn device(name: &str) -> PluginDevice {
    PluginDevice { uuid: name.to_owned(), is_healthy: true, numa: Some(1) }
}

/// A plugin with the devices `a` to `d` that runs.
struct Running {
    devices: watch::Sender<Vec<PluginDevice>>,
    pods: Arc<Pods>,
    stop: watch::Sender<bool>,
    end: JoinHandle<Result<(), PluginError>>,
}

impl Running {
    fn start(folder: &Path, injection: Injection) -> Self {
        let (devices, seen) = watch::channel(["a", "b", "c", "d"].map(device).to_vec());
        let (stop, stopped) = watch::channel(false);
        let pods = Arc::new(Pods::default());
        let folder = Folder { path: folder.to_owned(), look_every: Duration::from_millis(10) };
        let end = tokio::spawn(run(folder, 0, seen, Arc::clone(&pods), injection, stopped));
        Self { devices, pods, stop, end }
    }

    async fn stop(self) {
        self.stop.send(true).unwrap();
        tokio::time::timeout(PATIENCE, self.end).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn the_kubelet_is_told_of_devices_and_of_their_health() {
    let folder = tempfile::tempdir().unwrap();
    let mut kubelet = Kubelet::start(folder.path(), None);
    let running = Running::start(folder.path(), Injection::Environment);
    let mut plugin = kubelet.plugin().await;
    let mut lists = plugin.list_and_watch(wire::Empty {}).await.unwrap().into_inner();
    let first = lists.message().await.unwrap().unwrap();
    let told: Vec<(&str, &str)> =
        first.devices.iter().map(|one| (one.id.as_str(), one.health.as_str())).collect();
    assert_eq!(told, ["a", "b", "c", "d"].map(|id| (id, "Healthy")));
    assert_eq!(first.devices[0].topology.as_ref().unwrap().nodes[0].id, 1);

    running.devices.send_modify(|devices| devices[2].is_healthy = false);
    let second = lists.message().await.unwrap().unwrap();
    assert_eq!(second.devices[2].health, "Unhealthy");
    let refused = plugin.allocate(allocation(&["c"])).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::FailedPrecondition, "the device c is not healthy")
    );
    let refused = plugin.allocate(allocation(&["x"])).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, "there is no device x on this node"));
    running.stop().await;
}

#[tokio::test]
async fn the_choice_of_the_scheduler_is_preferred_and_handed_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut kubelet = Kubelet::start(folder.path(), None);
    let running = Running::start(folder.path(), Injection::Environment);
    let mut plugin = kubelet.plugin().await;
    let devices = ["d", "b"].map(str::to_owned).to_vec();
    running.pods.now.lock().unwrap().push(Expected { pod: "default/p".to_owned(), devices });
    let asked = wire::ContainerPreferredAllocationRequest {
        available_device_i_ds: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
        must_include_device_i_ds: Vec::new(),
        allocation_size: 2,
    };
    // A second container of the same size is left what nobody expects.
    let request = wire::PreferredAllocationRequest { container_requests: vec![asked.clone(), asked] };
    let answer = plugin.get_preferred_allocation(request).await.unwrap().into_inner();
    let preferred: Vec<Vec<String>> =
        answer.container_responses.into_iter().map(|one| one.device_i_ds).collect();
    assert_eq!(preferred, [["d", "b"], ["a", "c"]]);

    let answer = plugin.allocate(allocation(&["d", "b"])).await.unwrap().into_inner();
    assert_eq!(answer.container_responses[0].envs["NVIDIA_VISIBLE_DEVICES"], "d,b");
    assert!(answer.container_responses[0].cdi_devices.is_empty());
    running.stop().await;
}

fn two_of_four() -> wire::PreferredAllocationRequest {
    let asked = wire::ContainerPreferredAllocationRequest {
        available_device_i_ds: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
        must_include_device_i_ds: Vec::new(),
        allocation_size: 2,
    };
    wire::PreferredAllocationRequest { container_requests: vec![asked] }
}

/// It was given any devices, and the choice of the scheduler was lost.
#[tokio::test]
async fn a_pod_that_the_kubelet_knows_before_the_agent_gets_the_devices_that_were_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let mut kubelet = Kubelet::start(folder.path(), None);
    let running = Running::start(folder.path(), Injection::Environment);
    let mut plugin = kubelet.plugin().await;
    let devices = ["d", "b"].map(str::to_owned).to_vec();
    running.pods.late(2, Expected { pod: "default/p".to_owned(), devices });
    let answer = plugin.get_preferred_allocation(two_of_four()).await.unwrap().into_inner();
    assert_eq!(answer.container_responses[0].device_i_ds, ["d", "b"]);
    // A pod of another scheduler is not kept waiting.
    running.pods.now.lock().unwrap().clear();
    let answer = plugin.get_preferred_allocation(two_of_four()).await.unwrap().into_inner();
    assert_eq!(answer.container_responses[0].device_i_ds, ["a", "b"]);
    running.stop().await;
}

#[tokio::test]
async fn devices_go_by_their_names_of_the_container_device_interface() {
    let folder = tempfile::tempdir().unwrap();
    let mut kubelet = Kubelet::start(folder.path(), None);
    let running = Running::start(folder.path(), Injection::Cdi);
    let answer = kubelet.plugin().await.allocate(allocation(&["a", "c"])).await.unwrap().into_inner();
    let names: Vec<&str> =
        answer.container_responses[0].cdi_devices.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["nvidia.com/gpu=a", "nvidia.com/gpu=c"]);
    assert!(answer.container_responses[0].envs.is_empty());
    running.stop().await;
}

#[tokio::test]
async fn a_kubelet_that_starts_anew_is_registered_with_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut kubelet = Kubelet::start(folder.path(), None);
    let running = Running::start(folder.path(), Injection::Environment);
    kubelet.plugin().await;
    kubelet.server.abort();
    // A kubelet that starts removes the sockets of all plugins.
    std::fs::remove_file(folder.path().join("phalanx-gpu.sock")).unwrap();
    let mut kubelet = Kubelet::start(folder.path(), None);
    let mut plugin = kubelet.plugin().await;
    assert!(plugin.get_device_plugin_options(wire::Empty {}).await.is_ok());
    running.stop().await;
}

async fn outcome(folder: &Path, allocatable: u64) -> String {
    let (_devices, seen) = watch::channel(vec![device("a")]);
    let (_stop, stopped) = watch::channel(false);
    let folder = Folder { path: folder.to_owned(), look_every: Duration::from_millis(10) };
    let running = run(folder, allocatable, seen, Arc::new(Pods::default()), Injection::Cdi, stopped);
    tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap_err().to_string()
}

#[tokio::test]
async fn it_does_not_start_beside_another_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let mut kubelet = Kubelet::start(folder.path(), None);
    let other = UnixListener::bind(folder.path().join("other.sock")).unwrap();
    let why = outcome(folder.path(), 8).await;
    assert!(
        why.contains("another device plugin serves nvidia.com/gpu") && why.contains("the node offers 8"),
        "{why}"
    );
    // What a kubelet that has just started still offers, with nobody there to hand it out.
    drop(other);
    let started = Folder { path: folder.path().to_owned(), look_every: Duration::from_millis(10) };
    assert!(started.is_ours(8).is_ok());
    let theirs = folder.path().join("nvidia-gpu.sock");
    let listener = UnixListener::bind(&theirs).unwrap();
    let why = outcome(folder.path(), 0).await;
    assert!(why.contains("nvidia-gpu.sock answers"), "{why}");
    assert!(kubelet.registered.try_recv().is_err());

    // A socket that was left behind is nobody; what is allocatable can be from our own run before.
    drop(listener);
    let running = Running::start(folder.path(), Injection::Cdi);
    kubelet.plugin().await;
    running.stop().await;
    let again = Folder { path: folder.path().to_owned(), look_every: Duration::from_millis(10) };
    assert!(again.is_ours(8).is_ok());
}

#[tokio::test]
async fn a_kubelet_that_starts_later_is_waited_for_and_one_that_refuses_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Injection::Cdi);
    // Left by one that was killed.
    drop(UnixListener::bind(folder.path().join("kubelet.sock")).unwrap());
    let mut kubelet = Kubelet::start(folder.path(), None);
    kubelet.plugin().await;
    running.stop().await;
    let folder = tempfile::tempdir().unwrap();
    let _kubelet = Kubelet::start(folder.path(), Some("the version is not supported"));
    let why = outcome(folder.path(), 0).await;
    assert!(why.contains("answered: the version is not supported"), "{why}");
}

#[tokio::test]
async fn who_has_what_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubelet.sock");
    // The kubelet lists devices of different NUMA nodes apart, and other resources beside them.
    let of_pod = [
        ("main", RESOURCE, "a"),
        ("main", "rdma/hca", "x"),
        ("main", RESOURCE, "b"),
        ("side", "rdma/hca", "y"),
    ];
    let held_by = serve_pods(&path);
    for (container, resource, device) in of_pod {
        held_by.lock().unwrap().push((
            "n/p".to_owned(),
            container.to_owned(),
            resource.to_owned(),
            device.to_owned(),
        ));
    }
    let expected = Held {
        pod: "n/p".to_owned(),
        container: "main".to_owned(),
        devices: vec!["a".to_owned(), "b".to_owned()],
    };
    assert_eq!(held(&path).await.unwrap(), [expected]);
    assert!(held(&folder.path().join("none")).await.is_err());
}
