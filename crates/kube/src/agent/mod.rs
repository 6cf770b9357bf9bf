//! A node's agent: it finds out what stands in the machine and says so in a `NodeTopology`; with a device plugin it also
//! hands out the devices that the scheduler chose, and reads back which ones pods really have.
//!
//! | module | what lives there |
//! |---|---|
//! | `hardware` | the machine, looked at again and again: devices keep the numbers that they had first |
//! | `health` | how far the node and its devices can be trusted |
//! | `watch` | telemetry and the kernel log: the evidence for it |
//! | `publish` | the `NodeTopology` of the node |
//! | `metrics` | what is counted |
//! | `truth` | pods of the node: what is expected of them, and what they have |

mod hardware;
mod health;
mod metrics;
mod publish;
mod truth;
mod watch;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use phalanx_model::NodeName;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::connect::{SILENCE, connect};
use crate::crd::NodeTopology;
use crate::plugin::{self, Folder, Injection, PluginError, RESOURCE};
use crate::quantity::Amount;
use crate::world::{ANSWER, Trouble, serve, told_to_end};

pub use hardware::Hardware;
use hardware::{Inventory, Seen};
use health::Health;
use metrics::Metrics;
use publish::{Occasion, Publisher};
use truth::Truth;

/// Before what could not be written is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

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
    /// Between two samples of its devices.
    pub sample_every: Duration,
    /// The DCGM exporter of this node, which samples come from in place of NVIDIA's library.
    pub dcgm: Option<String>,
    /// Where Xids are read: `/dev/kmsg`, or a file of the kernel's messages. Nothing: nowhere.
    pub kernel_log: Option<PathBuf>,
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
    let (metrics, registry) = Metrics::registered();
    let publisher = Publisher::new(client.clone(), &node, metrics.clone());
    let seen = settings.hardware.seen().await.map_err(AgentError::Hardware)?;
    let before = publisher.found().await.map_err(|why| AgentError::Node(settings.node.clone(), why))?;
    let inventory = Inventory::resume(seen, before.as_ref().map(|before| &before.spec));
    for note in inventory.notes() {
        info!(node = settings.node, note, "found in the machine");
    }
    let health = Arc::new(health(settings, &inventory, before.as_ref())?);
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
            let devices = inventory.plugin_devices(health.closed());
            Some(Plugin::start(&client, settings, asked, &inventory, devices, allocatable, &metrics)?)
        }
        None => None,
    };
    let truth = plugin.as_ref().map(|plugin| Arc::clone(&plugin.truth));
    let slots = inventory.slots();
    // A description tells of a machine whose drivers do not.
    let is_host = settings.hardware == Hardware::Host;
    metrics.sees(watch::TELEMETRY, false);
    let telemetry =
        if is_host { watch::opened(slots.clone(), settings.dcgm.as_deref(), &inventory) } else { None };
    let is_sampled = telemetry.is_some_and(|telemetry| {
        watch::telemetry(&health, telemetry, settings.sample_every, truth.clone(), metrics.clone())
    });
    metrics.sees(watch::KERNEL_LOG, false);
    metrics.sees(watch::PORTS, false);
    if is_host {
        watch::ports(&health, Path::new("/sys"), settings.sample_every, metrics.clone());
    }
    if let Some(path) = &settings.kernel_log {
        watch::kernel_log(&health, path, slots, metrics.clone());
    }
    let asked = watcher(
        Api::all(client),
        watcher::Config::default().fields(&format!("metadata.name={}", settings.node)),
    );
    let machine = Watched {
        settings,
        inventory,
        publisher,
        devices: plugin.as_ref().map(|plugin| plugin.devices.clone()),
        truth,
        health,
        // An exporter does not tell of devices that are lost.
        finds_losses: is_sampled && settings.dcgm.is_none(),
        metrics,
        is_ready,
    };
    let looks = machine.keep_looking(asked.default_backoff().boxed());
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

/// What a look saw; never while there is none.
async fn ended_look(looking: &mut Option<JoinHandle<Result<Seen, String>>>) -> Result<Seen, String> {
    match looking {
        Some(look) => look.await.unwrap_or_else(|error| Err(error.to_string())),
        None => std::future::pending().await,
    }
}

/// How the hardware is graded, from what an earlier agent knew on.
fn health(
    settings: &Settings,
    inventory: &Inventory,
    before: Option<&NodeTopology>,
) -> Result<Health, AgentError> {
    let node = NodeName::new(settings.node.as_str());
    let node = node.map_err(|error| AgentError::Node(settings.node.clone(), error.to_string()))?;
    let state = |before: &NodeTopology| before.annotations().get(health::STATE).cloned();
    let state = before.and_then(state);
    let before = before.map(|before| (&before.spec, state.as_deref()));
    Ok(Health::start(node, inventory, before))
}

/// The machine while it is watched; what changes is written and told to the kubelet.
struct Watched<'a> {
    settings: &'a Settings,
    inventory: Inventory,
    publisher: Publisher,
    devices: Option<tokio::sync::watch::Sender<Vec<plugin::PluginDevice>>>,
    truth: Option<Arc<Truth>>,
    health: Arc<Health>,
    /// Samples say which devices are lost.
    finds_losses: bool,
    metrics: Metrics,
    is_ready: Arc<AtomicBool>,
}

impl Watched<'_> {
    async fn keep_looking(mut self, mut asked: BoxStream<'_, watcher::Result<watcher::Event<NodeTopology>>>) {
        let mut changes = self.health.changes();
        let mut next = Instant::now() + self.settings.every;
        let mut occasion = Occasion::Look;
        let mut pause = RETRY_AFTER;
        // A driver that hangs holds up one look, and nothing else.
        let mut looking = None;
        loop {
            let is_written = self.tell(occasion).await;
            occasion = Occasion::Change;
            pause = if is_written { RETRY_AFTER } else { (pause * 2).min(self.settings.every) };
            let retry = if is_written { Duration::MAX } else { pause };
            tokio::select! {
                () = tokio::time::sleep_until(next), if looking.is_none() => {
                    let hardware = self.settings.hardware.clone();
                    looking = Some(tokio::spawn(async move { hardware.seen().await }));
                }
                seen = ended_look(&mut looking) => {
                    self.looked(seen);
                    looking = None;
                    next = Instant::now() + self.settings.every;
                    occasion = Occasion::Look;
                }
                Ok(()) = changes.changed() => {}
                Some(event) = asked.next() => self.asked(event).await,
                () = tokio::time::sleep(retry) => {}
            }
        }
    }

    /// Writes and tells what changed. Whether that is done.
    async fn tell(&mut self, occasion: Occasion) -> bool {
        if let Some(devices) = &self.devices {
            let now = self.inventory.plugin_devices(self.health.closed());
            devices.send_if_modified(|known| {
                let is_new = *known != now;
                known.clone_from(&now);
                is_new
            });
        }
        self.metrics.show(&self.inventory, &self.health);
        let about = &self.settings.node;
        if let Err(why) = self.publisher.publish(&self.inventory, &self.health, occasion).await {
            self.metrics.trouble(&Trouble::new("the NodeTopology is not written", about, why));
            return false;
        }
        self.is_ready.store(true, Ordering::Release);
        if let Err(why) = self.publisher.remove_again(&self.inventory, &self.health).await {
            self.metrics.trouble(&Trouble::new("a request that was followed is not removed", about, why));
            return false;
        }
        true
    }

    fn looked(&mut self, seen: Result<Seen, String>) {
        match seen {
            Ok(seen) => {
                for news in self.inventory.look_again(seen) {
                    warn!(node = self.settings.node, news, "the machine has changed");
                }
            }
            Err(why) => {
                let about = &self.settings.node;
                return self.metrics.trouble(&Trouble::new("cannot look at the machine", about, why));
            }
        }
        if !self.finds_losses {
            self.health.looked(&self.inventory, self.truth.as_ref().map(|truth| truth.held()));
        }
    }

    /// The object was changed or deleted.
    async fn asked(&mut self, event: watcher::Result<watcher::Event<NodeTopology>>) {
        use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
        let done = match event {
            Ok(Apply(found) | InitApply(found)) => {
                self.publisher.obey(&found, &self.inventory, &self.health).await
            }
            Ok(Delete(_)) => {
                self.publisher.forget();
                Ok(())
            }
            Ok(Init | InitDone) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = done {
            let trouble = Trouble::new("what operators ask is not heard", &self.settings.node, why);
            self.metrics.trouble(&trouble);
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
    devices: tokio::sync::watch::Sender<Vec<plugin::PluginDevice>>,
    truth: Arc<Truth>,
    stop: tokio::sync::watch::Sender<bool>,
    task: JoinHandle<Result<(), PluginError>>,
}

impl Plugin {
    fn start(
        client: &Client,
        settings: &Settings,
        asked: &PluginSettings,
        inventory: &Inventory,
        devices: Vec<plugin::PluginDevice>,
        allocatable: u64,
        metrics: &Metrics,
    ) -> Result<Self, AgentError> {
        let names = inventory.uuids().map_err(AgentError::Hardware)?;
        let folder = Folder { path: asked.kubelet.join("device-plugins"), look_every: asked.look_every };
        // Said before anything is watched or served.
        folder.is_ours(allocatable)?;
        let (devices, seen) = tokio::sync::watch::channel(devices);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let truth = Arc::new(Truth::new(names));
        tokio::spawn(Arc::clone(&truth).watch(client.clone(), settings.node.clone(), metrics.clone()));
        let socket = asked.kubelet.join("pod-resources/kubelet.sock");
        let read = Arc::clone(&truth).keep_reading(client.clone(), socket, asked.look_every, metrics.clone());
        tokio::spawn(read);
        let task = tokio::spawn(plugin::run(
            folder,
            allocatable,
            seen,
            Arc::clone(&truth),
            asked.injection,
            stopped,
        ));
        info!(node = settings.node, resource = RESOURCE, "serves devices to the kubelet");
        Ok(Self { devices, truth, stop, task })
    }

    async fn end(self) -> Result<(), AgentError> {
        let _ = self.stop.send(true);
        joined(self.task.await)
    }
}

fn joined(ended: Result<Result<(), PluginError>, tokio::task::JoinError>) -> Result<(), AgentError> {
    ended.map_err(|error| AgentError::Start(error.to_string()))?.map_err(AgentError::Plugin)
}
