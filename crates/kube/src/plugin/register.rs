//! The sockets: ours, the kubelet's, and those of others.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tower::service_fn;
use tracing::warn;

use super::proto::plugin as wire;
use super::serve::{self, Injection, PluginDevice, Service};
use super::{Expectations, PluginError, RESOURCE};

/// Of the kubelet's protocol.
const VERSION: &str = "v1beta1";
/// Ours, in the kubelet's folder.
const SOCKET: &str = "phalanx-gpu.sock";
const KUBELET: &str = "kubelet.sock";
/// How long the kubelet may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The kubelet's folder for device plugins, `/var/lib/kubelet/device-plugins` as a rule.
#[derive(Clone, Debug)]
pub struct Folder {
    pub path: PathBuf,
    /// How often it is looked whether the kubelet started anew, which removes our socket.
    pub look_every: Duration,
}

impl Folder {
    /// Whether somebody else serves the resource.
    ///
    /// NVIDIA's plugin has a socket here whose name begins with `nvidia` and that somebody listens on. `allocatable`
    /// is what the node has of the resource: where there is some, no socket of ours stands here from before, and
    /// somebody listens on a third one, they brought it. Without such a socket it is what a kubelet that has just
    /// started still says of us.
    ///
    /// # Errors
    /// When somebody does.
    pub fn is_ours(&self, allocatable: u64) -> Result<(), PluginError> {
        let entries = fs::read_dir(&self.path).map_err(|why| socket("read", &self.path, &why))?;
        let was_here = self.ours().exists();
        for entry in entries.flatten() {
            let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
            let is_of_nvidia = name.starts_with("nvidia");
            let may_be = allocatable > 0 && !was_here && name != KUBELET;
            if (is_of_nvidia || may_be) && UnixStream::connect(&path).is_ok() {
                let sign = format!("{} answers, and the node offers {allocatable}", path.display());
                return Err(PluginError::Served { sign });
            }
        }
        Ok(())
    }

    fn ours(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    fn kubelet(&self) -> PathBuf {
        self.path.join(KUBELET)
    }

    /// Which sockets these are: both change when the kubelet starts anew.
    fn sockets(&self) -> (Option<u64>, Option<u64>) {
        let inode = |path: &Path| fs::metadata(path).ok().map(|found| found.ino());
        (inode(&self.ours()), inode(&self.kubelet()))
    }
}

/// Serves the devices until `stop` says so: registers with the kubelet, and again when the kubelet starts anew.
///
/// `allocatable` is what the node has of [`RESOURCE`] before.
///
/// # Errors
/// When another plugin serves the resource, the socket cannot be made, or the kubelet refuses the registration.
pub async fn run<E: Expectations>(
    folder: Folder,
    allocatable: u64,
    devices: watch::Receiver<Vec<PluginDevice>>,
    expectations: Arc<E>,
    injection: Injection,
    mut stop: watch::Receiver<bool>,
) -> Result<(), PluginError> {
    folder.is_ours(allocatable)?;
    let mut was_registered = false;
    let mut is_missed = false;
    while !*stop.borrow() {
        let service =
            Service { devices: devices.clone(), expectations: Arc::clone(&expectations), injection };
        match serve_once(&folder, service, &mut stop).await {
            Ok(()) => (was_registered, is_missed) = (true, false),
            // Agents and kubelets start in any order.
            Err(PluginError::NoKubelet { path, why }) => {
                if !is_missed {
                    warn!(path, why, "no kubelet listens; it is tried until one does");
                }
                is_missed = true;
                tokio::time::sleep(folder.look_every).await;
            }
            // A kubelet that was there is starting anew.
            Err(PluginError::Socket { .. }) if was_registered => tokio::time::sleep(folder.look_every).await,
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Until the sockets change, or it is to stop.
async fn serve_once<E: Expectations>(
    folder: &Folder,
    service: Service<E>,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), PluginError> {
    let ours = folder.ours();
    match fs::remove_file(&ours) {
        Err(why) if why.kind() != ErrorKind::NotFound => return Err(socket("remove", &ours, &why)),
        _ => {}
    }
    let listener = UnixListener::bind(&ours).map_err(|why| socket("listen on", &ours, &why))?;
    let (end, mut ended) = watch::channel(());
    let server = Server::builder()
        .add_service(wire::device_plugin_server::DevicePluginServer::new(service))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async move {
            // An error means that the other side is gone, which is the word as well.
            let _ = ended.changed().await;
        });
    let mut server = tokio::spawn(server);
    let registered = register(&folder.kubelet()).await;
    if registered.is_ok() {
        let sockets = folder.sockets();
        while folder.sockets() == sockets && !*stop.borrow() {
            tokio::select! {
                _ = stop.changed() => {}
                () = tokio::time::sleep(folder.look_every) => {}
            }
        }
    }
    drop(end);
    // Open lists would keep the server: the kubelet hears that they end when it is gone.
    if tokio::time::timeout(Duration::from_millis(100), &mut server).await.is_err() {
        server.abort();
    }
    registered
}

async fn register(kubelet: &Path) -> Result<(), PluginError> {
    let said = |why: String| PluginError::Kubelet { path: kubelet.display().to_string(), why };
    let channel = connect(kubelet).await?;
    let request = wire::RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: SOCKET.to_owned(),
        resource_name: RESOURCE.to_owned(),
        options: Some(serve::options()),
    };
    let mut client = wire::registration_client::RegistrationClient::new(channel);
    client.register(request).await.map_err(|why| said(why.message().to_owned()))?;
    Ok(())
}

/// A channel over a Unix socket.
pub(super) async fn connect(path: &Path) -> Result<Channel, PluginError> {
    let target = path.to_path_buf();
    let connector = service_fn(move |_: Uri| {
        let target = target.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(tokio::net::UnixStream::connect(target).await?)) }
    });
    // The address is a formality: the connector goes to the socket.
    let endpoint =
        Endpoint::from_static("http://kubelet").connect_timeout(ANSWER_WITHIN).timeout(ANSWER_WITHIN);
    endpoint
        .connect_with_connector(connector)
        .await
        .map_err(|why| PluginError::NoKubelet { path: path.display().to_string(), why: innermost(&why) })
}

fn socket(what: &'static str, path: &Path, why: &dyn std::error::Error) -> PluginError {
    PluginError::Socket { what, path: path.display().to_string(), why: innermost(why) }
}

fn innermost(why: &dyn std::error::Error) -> String {
    // The transport's own words are "transport error"; what happened stands behind them.
    let mut last = why;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
