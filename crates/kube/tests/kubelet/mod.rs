//! A small kubelet that speaks the real protocols over Unix sockets.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use phalanx_kube::plugin::RESOURCE;
use phalanx_kube::plugin::proto::{plugin as wire, pods};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tonic::{Request, Response, Status};

pub(crate) type Plugin = wire::device_plugin_client::DevicePluginClient<Channel>;

/// Far beyond what any of this takes; only what hangs gets there.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

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
pub(crate) struct Kubelet {
    folder: PathBuf,
    pub(crate) registered: mpsc::UnboundedReceiver<wire::RegisterRequest>,
    pub(crate) server: JoinHandle<()>,
}

impl Kubelet {
    pub(crate) fn start(folder: &Path, refusal: Option<&'static str>) -> Self {
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
    pub(crate) async fn plugin(&mut self) -> Plugin {
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

pub(crate) fn allocation(devices: &[&str]) -> wire::AllocateRequest {
    let devices_ids = devices.iter().map(ToString::to_string).collect();
    wire::AllocateRequest { container_requests: vec![wire::ContainerAllocateRequest { devices_ids }] }
}

/// Pod as `namespace/name`, container, resource and device, in the order in which they are listed.
pub(crate) type Holdings = Arc<Mutex<Vec<(String, String, String, String)>>>;

struct Lister(Holdings);

#[tonic::async_trait]
impl pods::pod_resources_lister_server::PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<pods::ListPodResourcesRequest>,
    ) -> Result<Response<pods::ListPodResourcesResponse>, Status> {
        let mut answer = pods::ListPodResourcesResponse::default();
        for (path, container, resource, device) in self.0.lock().unwrap().iter() {
            let (namespace, name) = path.split_once('/').unwrap();
            let listed = &mut answer.pod_resources;
            let known = listed.iter().position(|pod| pod.namespace == namespace && pod.name == name);
            let at = known.unwrap_or_else(|| {
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                listed.push(pods::PodResources { namespace, name, ..Default::default() });
                listed.len() - 1
            });
            let of_pod = &mut listed[at].containers;
            let known = of_pod.iter().position(|of| of.name == *container);
            let at = known.unwrap_or_else(|| {
                of_pod.push(pods::ContainerResources { name: container.clone(), ..Default::default() });
                of_pod.len() - 1
            });
            let (resource_name, device_ids) = (resource.clone(), vec![device.clone()]);
            of_pod[at].devices.push(pods::ContainerDevices { resource_name, device_ids, topology: None });
        }
        Ok(Response::new(answer))
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

/// Serves who has which devices at a path; what is put into the list is told.
pub(crate) fn serve_pods(path: &Path) -> Holdings {
    let held = Holdings::default();
    let listener = UnixListener::bind(path).unwrap();
    let service = pods::pod_resources_lister_server::PodResourcesListerServer::new(Lister(Arc::clone(&held)));
    tokio::spawn(async move {
        Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener)).await
    });
    held
}
