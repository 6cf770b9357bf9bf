//! The device plugin, before a small kubelet that speaks the real protocol over Unix sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use phalanx_kube::plugin::proto::{plugin as wire, pods};
use phalanx_kube::plugin::{
    Expectations, Expected, Folder, Held, Injection, PluginDevice, PluginError, RESOURCE, held, run,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tonic::{Code, Request, Response, Status};

type Plugin = wire::device_plugin_client::DevicePluginClient<Channel>;

/// Far beyond what any of this takes; only what hangs gets there.
const PATIENCE: Duration = Duration::from_secs(60);

struct Registry {
    requests: mpsc::UnboundedSender<wire::RegisterRequest>,
    refusal: Option<&'static str>,
}

#[tonic::async_trait]
impl wire::registration_server::Registration for Registry {
    async fn register(
        &self,
        request: Request<wire::RegisterRequest>,
    ) -> Result<Response<wire::Empty>, Status> {
        if let Some(why) = self.refusal {
            return Err(Status::unknown(why));
        }
        self.requests.send(request.into_inner()).unwrap();
        Ok(Response::new(wire::Empty {}))
    }
}

/// The kubelet's side: a folder, and who registered.
struct Kubelet {
    folder: PathBuf,
    registered: mpsc::UnboundedReceiver<wire::RegisterRequest>,
    server: JoinHandle<()>,
}

impl Kubelet {
    fn start(folder: &Path, refusal: Option<&'static str>) -> Self {
        let (requests, registered) = mpsc::unbounded_channel();
        let path = folder.join("kubelet.sock");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(path).unwrap();
        let service = wire::registration_server::RegistrationServer::new(Registry { requests, refusal });
        let server = tokio::spawn(async move {
            let incoming = UnixListenerStream::new(listener);
            Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
        });
        Self { folder: folder.to_owned(), registered, server }
    }

    /// Waits for a registration and connects to who registered.
    async fn plugin(&mut self) -> Plugin {
        let request = tokio::time::timeout(PATIENCE, self.registered.recv()).await.unwrap().unwrap();
        assert_eq!((request.version.as_str(), request.resource_name.as_str()), ("v1beta1", RESOURCE));
        assert!(request.options.unwrap().get_preferred_allocation_available);
        Plugin::new(connect(self.folder.join(request.endpoint)).await)
    }
}

async fn connect(path: PathBuf) -> Channel {
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
    });
    Endpoint::from_static("http://plugin").connect_with_connector(connector).await.unwrap()
}

#[derive(Default)]
struct Pods(Mutex<Vec<Expected>>);

impl Expectations for Pods {
    fn expected(&self) -> Vec<Expected> {
        self.0.lock().unwrap().clone()
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

fn allocation(devices: &[&str]) -> wire::AllocateRequest {
    let devices_ids = devices.iter().map(ToString::to_string).collect();
    wire::AllocateRequest { container_requests: vec![wire::ContainerAllocateRequest { devices_ids }] }
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
    running.pods.0.lock().unwrap().push(Expected { pod: "default/p".to_owned(), devices });
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
    let why = outcome(folder.path(), 8).await;
    assert!(
        why.contains("another device plugin serves nvidia.com/gpu") && why.contains("8 allocatable"),
        "{why}"
    );
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
async fn a_kubelet_that_is_not_there_or_refuses_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let why = outcome(folder.path(), 0).await;
    assert!(why.contains("cannot connect to") && why.contains("kubelet.sock"), "{why}");
    let folder = tempfile::tempdir().unwrap();
    let _kubelet = Kubelet::start(folder.path(), Some("the version is not supported"));
    let why = outcome(folder.path(), 0).await;
    assert!(why.contains("answered: the version is not supported"), "{why}");
}

struct Lister;

#[tonic::async_trait]
impl pods::pod_resources_lister_server::PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<pods::ListPodResourcesRequest>,
    ) -> Result<Response<pods::ListPodResourcesResponse>, Status> {
        let devices = |resource: &str, ids: &[&str]| pods::ContainerDevices {
            resource_name: resource.to_owned(),
            device_ids: ids.iter().map(ToString::to_string).collect(),
            topology: None,
        };
        let container = |name: &str, devices| pods::ContainerResources {
            name: name.to_owned(),
            devices,
            ..Default::default()
        };
        let containers = vec![
            // The kubelet lists devices of different NUMA nodes apart.
            container(
                "main",
                vec![devices(RESOURCE, &["a"]), devices("rdma/hca", &["x"]), devices(RESOURCE, &["b"])],
            ),
            container("side", vec![devices("rdma/hca", &["y"])]),
        ];
        let pod = pods::PodResources { name: "p".to_owned(), namespace: "n".to_owned(), containers };
        Ok(Response::new(pods::ListPodResourcesResponse { pod_resources: vec![pod] }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<pods::AllocatableResourcesRequest>,
    ) -> Result<Response<pods::AllocatableResourcesResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn get(
        &self,
        _: Request<pods::GetPodResourcesRequest>,
    ) -> Result<Response<pods::GetPodResourcesResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }
}

#[tokio::test]
async fn who_has_what_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubelet.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let service = pods::pod_resources_lister_server::PodResourcesListerServer::new(Lister);
    tokio::spawn(async move {
        Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener)).await
    });
    let expected = Held {
        pod: "n/p".to_owned(),
        container: "main".to_owned(),
        devices: vec!["a".to_owned(), "b".to_owned()],
    };
    assert_eq!(held(&path).await.unwrap(), [expected]);
    assert!(held(&folder.path().join("none")).await.is_err());
}
