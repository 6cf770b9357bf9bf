//! A device plugin of somebody else, which may turn every pod away.

use std::path::Path;
use std::pin::Pin;

use hyper_util::rt::TokioIo;
use phalanx_controlplane::GPU;
use phalanx_kube::plugin::proto::plugin as wire;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Endpoint, Server, Uri};
use tonic::{Request, Response, Status};

const SOCKET: &str = "somebody.sock";

/// Eight devices, and whether they are given out.
struct Plugin {
    refuses: bool,
}

type Answer<T> = Result<Response<T>, Status>;
type Lists = Pin<Box<dyn Stream<Item = Result<wire::ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl wire::device_plugin_server::DevicePlugin for Plugin {
    type ListAndWatchStream = Lists;

    async fn get_device_plugin_options(&self, _: Request<wire::Empty>) -> Answer<wire::DevicePluginOptions> {
        Ok(Response::new(wire::DevicePluginOptions::default()))
    }

    async fn list_and_watch(&self, _: Request<wire::Empty>) -> Answer<Lists> {
        let devices = (0..8).map(|device| wire::Device {
            id: format!("device-{device}"),
            health: "Healthy".to_owned(),
            topology: None,
        });
        let list = Ok(wire::ListAndWatchResponse { devices: devices.collect() });
        // Said once, and the stream stays open.
        let stream = tokio_stream::once(list).chain(tokio_stream::pending());
        Ok(Response::new(Box::pin(stream)))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<wire::PreferredAllocationRequest>,
    ) -> Answer<wire::PreferredAllocationResponse> {
        Err(Status::unimplemented("it prefers none"))
    }

    /// As NVIDIA's after Xid 79.
    async fn allocate(&self, request: Request<wire::AllocateRequest>) -> Answer<wire::AllocateResponse> {
        if self.refuses {
            return Err(Status::unknown("no healthy devices present"));
        }
        let containers = request.into_inner().container_requests.into_iter();
        let answers = containers.map(|_| wire::ContainerAllocateResponse::default());
        Ok(Response::new(wire::AllocateResponse { container_responses: answers.collect() }))
    }

    async fn pre_start_container(
        &self,
        _: Request<wire::PreStartContainerRequest>,
    ) -> Answer<wire::PreStartContainerResponse> {
        Ok(Response::new(wire::PreStartContainerResponse {}))
    }
}

/// Serves the GPUs of a node, whose kubelet has this folder.
pub(super) async fn serve(kubelet: &Path, refuses: bool) {
    let folder = kubelet.join("device-plugins");
    let listener = UnixListener::bind(folder.join(SOCKET)).unwrap();
    let service = wire::device_plugin_server::DevicePluginServer::new(Plugin { refuses });
    tokio::spawn(async move {
        let incoming = UnixListenerStream::new(listener);
        Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
    });
    let socket = folder.join("kubelet.sock");
    let connect = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(socket).await?)) }
    });
    let channel = Endpoint::from_static("http://kubelet").connect_with_connector(connect).await.unwrap();
    let request = wire::RegisterRequest {
        version: "v1beta1".to_owned(),
        endpoint: SOCKET.to_owned(),
        resource_name: GPU.to_owned(),
        options: None,
    };
    wire::registration_client::RegistrationClient::new(channel).register(request).await.unwrap();
}
