//! A node's agent: it finds out what stands in the machine and says so in a `NodeTopology`; with a device plugin it also
//! hands out the devices that the scheduler chose, and reads back which ones pods really have.
//!
//! | module | what lives there |
//! |---|---|
//! | `hardware` | the machine, looked at again and again: devices keep the numbers that they had first |
//! | `publish` | the `NodeTopology` of the node |
//! | `truth` | pods of the node: what is expected of them, and what they have |

mod hardware;
mod publish;
mod truth;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::connect::{SILENCE, connect};
use crate::plugin::{self, Folder, Injection, PluginError, RESOURCE};
use crate::quantity::Amount;
use crate::world::{ANSWER, Trouble, serve, told_to_end};

pub use hardware::Hardware;
use hardware::Inventory;
use publish::Publisher;
use truth::Truth;

/// How an agent is to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nothing: what the environment of a pod or of the user says.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    /// The node that this machine is.
    pub node: String,
    pub hardware: Hardware,
    /// Between two looks at the machine.
    pub every: Duration,
    /// Nothing: devices are somebody else's to hand out.
    pub plugin: Option<PluginSettings>,
    /// Where health and metrics are served; nothing: nowhere.
    pub listen: Option<SocketAddr>,
}

/// How devices are handed out.
#[derive(Clone, Debug)]
pub struct PluginSettings {
    /// The kubelet's folder, `/var/lib/kubelet` as a rule.
    pub kubelet: PathBuf,
    pub injection: Injection,
    /// Between two looks at the kubelet: whether it started anew, and who has which devices.
    pub look_every: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("no way to the cluster: {0}; give --kubeconfig, or set KUBECONFIG")]
    Config(String),
    #[error("the node {0} cannot be read: {1}")]
    Node(String, String),
    #[error("{0}")]
    Hardware(String),
    #[error(transparent)]
    Plugin(#[from] PluginError),
    #[error("cannot begin: {0}")]
    Start(String),
}

/// What is counted.
#[derive(Clone, Default)]
struct Metrics {
    devices: Gauge,
    unhealthy: Gauge,
    writes: Counter,
    corrections: Counter,
    troubles: Counter,
}

impl Metrics {
    fn registered() -> (Self, Registry) {
        let mut registry = Registry::with_prefix("phalanx_node");
        let metrics = Self::default();
        let Self { devices, unhealthy, writes, corrections, troubles } = &metrics;
        registry.register("devices", "Devices that were found at the start", devices.clone());
        registry.register("devices_unhealthy", "Devices that do not answer any more", unhealthy.clone());
        registry.register("topology_writes", "Times that the NodeTopology was written", writes.clone());
        let help = "Pods that had other devices than were chosen";
        registry.register("device_corrections", help, corrections.clone());
        registry.register("troubles", "Calls that went wrong and were said in the log", troubles.clone());
        (metrics, registry)
    }

    fn trouble(&self, trouble: &Trouble) {
        self.troubles.inc();
        trouble.say();
    }
}

/// Runs until it is told to stop (SIGTERM, SIGINT).
///
/// # Errors
/// When the node is not there, the machine cannot be read, or the device plugin has to end, see [`AgentError`].
pub fn run(settings: &Settings) -> Result<(), AgentError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| AgentError::Start(error.to_string()))?;
    let done = runtime.block_on(serve_node(settings));
    // A look at the machine that hangs in a driver keeps nobody.
    runtime.shutdown_background();
    done
}

async fn serve_node(settings: &Settings) -> Result<(), AgentError> {
    let connected = connect(settings.kubeconfig.as_deref(), settings.context.as_deref(), Some(SILENCE)).await;
    let client = connected.map_err(AgentError::Config)?.0;
    let node = node_of(&client, &settings.node).await?;
    let inventory = Inventory::new(settings.hardware.seen().await.map_err(AgentError::Hardware)?);
    for note in inventory.notes() {
        info!(node = settings.node, note, "found in the machine");
    }
    let (metrics, registry) = Metrics::registered();
    let is_ready = Arc::new(AtomicBool::new(false));
    if let Some(at) = settings.listen {
        let is_ready = Arc::clone(&is_ready);
        tokio::spawn(async move {
            if let Err(error) = serve(at, registry, is_ready).await {
                error!(address = %at, error = error.to_string(), "cannot serve");
            }
        });
    }
    let mut plugin = match &settings.plugin {
        Some(asked) => {
            let allocatable = offered(&node);
            Some(Plugin::start(&client, settings, asked, &inventory, allocatable, &metrics)?)
        }
        None => None,
    };
    let devices = plugin.as_ref().map(|plugin| plugin.devices.clone());
    let publisher = Publisher::new(client, &node, metrics.clone());
    let looks = keep_looking(settings, inventory, publisher, devices, metrics, is_ready);
    tokio::select! {
        told = told_to_end() => {
            told.map_err(|error| AgentError::Start(error.to_string()))?;
            info!(node = settings.node, "told to stop");
            match plugin {
                Some(plugin) => plugin.end().await,
                None => Ok(()),
            }
        }
        () = looks => Ok(()),
        ended = ended(&mut plugin) => ended,
    }
}

/// When the device plugin ends by itself; never where there is none.
async fn ended(plugin: &mut Option<Plugin>) -> Result<(), AgentError> {
    match plugin {
        Some(plugin) => joined((&mut plugin.task).await),
        None => std::future::pending().await,
    }
}

/// Looks at the machine again and again; what changed is written and told to the kubelet.
async fn keep_looking(
    settings: &Settings,
    mut inventory: Inventory,
    mut publisher: Publisher,
    devices: Option<watch::Sender<Vec<plugin::PluginDevice>>>,
    metrics: Metrics,
    is_ready: Arc<AtomicBool>,
) {
    loop {
        metrics.devices.set(i64::from(inventory.machine().device_count()));
        metrics.unhealthy.set(i64::from(inventory.lost().count()));
        match publisher.publish(&inventory).await {
            Ok(()) => is_ready.store(true, Ordering::Release),
            Err(why) => {
                metrics.trouble(&Trouble::new("the NodeTopology is not written", &settings.node, why));
            }
        }
        tokio::time::sleep(settings.every).await;
        match settings.hardware.seen().await {
            Ok(seen) => {
                for news in inventory.look_again(seen) {
                    warn!(node = settings.node, news, "the machine has changed");
                }
            }
            Err(why) => metrics.trouble(&Trouble::new("cannot look at the machine", &settings.node, why)),
        }
        if let Some(devices) = &devices {
            let now = inventory.plugin_devices();
            devices.send_if_modified(|known| {
                let is_new = *known != now;
                known.clone_from(&now);
                is_new
            });
        }
    }
}

async fn node_of(client: &Client, name: &str) -> Result<Node, AgentError> {
    let api: Api<Node> = Api::all(client.clone());
    let failed = |why: String| AgentError::Node(name.to_owned(), why);
    match tokio::time::timeout(ANSWER, api.get(name)).await {
        Ok(answer) => answer.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed(format!("no answer within {ANSWER:?}"))),
    }
}

/// What the node offers of the resource before the plugin starts.
fn offered(node: &Node) -> u64 {
    let all = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let amount = all.and_then(|all| Amount::of(all.get(RESOURCE)?).ok());
    amount.map_or(0, Amount::units_up)
}

/// The device plugin while it serves.
struct Plugin {
    devices: watch::Sender<Vec<plugin::PluginDevice>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), PluginError>>,
}

impl Plugin {
    fn start(
        client: &Client,
        settings: &Settings,
        asked: &PluginSettings,
        inventory: &Inventory,
        allocatable: u64,
        metrics: &Metrics,
    ) -> Result<Self, AgentError> {
        let names = inventory.uuids().map_err(AgentError::Hardware)?;
        let folder = Folder { path: asked.kubelet.join("device-plugins"), look_every: asked.look_every };
        // Said before anything is watched or served.
        folder.is_ours(allocatable)?;
        let (devices, seen) = watch::channel(inventory.plugin_devices());
        let (stop, stopped) = watch::channel(false);
        let truth = Arc::new(Truth::new(names));
        tokio::spawn(Arc::clone(&truth).watch(client.clone(), settings.node.clone(), metrics.clone()));
        let socket = asked.kubelet.join("pod-resources/kubelet.sock");
        let read = Arc::clone(&truth).keep_reading(client.clone(), socket, asked.look_every, metrics.clone());
        tokio::spawn(read);
        let task = tokio::spawn(plugin::run(folder, allocatable, seen, truth, asked.injection, stopped));
        info!(node = settings.node, resource = RESOURCE, "serves devices to the kubelet");
        Ok(Self { devices, stop, task })
    }

    async fn end(self) -> Result<(), AgentError> {
        let _ = self.stop.send(true);
        joined(self.task.await)
    }
}

fn joined(ended: Result<Result<(), PluginError>, tokio::task::JoinError>) -> Result<(), AgentError> {
    ended.map_err(|error| AgentError::Start(error.to_string()))?.map_err(AgentError::Plugin)
}
