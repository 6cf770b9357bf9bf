//! The scheduler as a process: it lists, waits for the lease, decides, and stops when the lease is lost.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use kube::Client;
use kube::api::ApiResource;
use kube::discovery::{Discovery, verbs};
use phalanx_model::Epoch;
use phalanx_shell::{Config as EngineConfig, Engine, Pump, unix_now};

use super::call::{self, Caller};
use super::desk::{Desk, KubeWorld, Message};
use super::lease::LeaseSettings;
use super::{lease, watch};
use crate::books::{Books, Options};
use crate::gang::Source;
use crate::user::connect;

/// How a scheduler is to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nothing: what the environment of a pod or of the user says.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    pub books: Options,
    /// How long a binding is tried.
    pub binding: Duration,
    /// Nothing: it leads without asking.
    pub lease: Option<LeaseSettings>,
}

#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    #[error("no way to the cluster: {0}; give --kubeconfig, or set KUBECONFIG")]
    Config(String),
    #[error("the API server does not answer: {0}")]
    Api(String),
    #[error("cannot begin: {0}")]
    Start(String),
    /// Another leads, or nothing can be watched. Whoever started the process starts it again.
    #[error("stopped: {0}")]
    Stopped(String),
}

/// Runs until leadership is lost, or something has to be begun anew.
///
/// # Errors
/// Always ends with one, see [`SchedulerError`].
pub fn run(settings: &Settings) -> Result<(), SchedulerError> {
    let start = |error: std::io::Error| SchedulerError::Start(error.to_string());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(start)?;
    let client = runtime
        .block_on(connect(settings.kubeconfig.as_deref(), settings.context.as_deref()))
        .map_err(SchedulerError::Config)?
        .0;
    let (sender, messages) = mpsc::channel();
    let kinds = runtime.block_on(kinds(&client)).map_err(|error| SchedulerError::Api(error.to_string()))?;
    let mut unlisted = vec!["nodes", "pods"];
    {
        let _inside = runtime.enter();
        let (api, convert) = watch::nodes(&client);
        tokio::spawn(watch::watch(api, "nodes", sender.clone(), convert));
        let (api, convert) = watch::pods(&client);
        tokio::spawn(watch::watch(api, "pods", sender.clone(), convert));
        for kind in kinds {
            let list: &'static str = format!("{}.{}", kind.plural, kind.group).leak();
            let (api, convert) = watch::objects(&client, &kind);
            unlisted.push(list);
            tokio::spawn(watch::watch(api, list, sender.clone(), convert));
        }
    }
    let (calls, receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut desk = Desk { books: Books::new(settings.books.clone()), messages, calls, unlisted };
    // 0 until this process leads.
    let epoch = Arc::new(AtomicU64::new(0));
    runtime.spawn(lead(
        client.clone(),
        settings.lease.clone(),
        call::ANSWER,
        Arc::clone(&epoch),
        sender.clone(),
    ));
    let facts = desk.gather(|| epoch.load(Ordering::Acquire) > 0).map_err(SchedulerError::Stopped)?;
    let (nodes, gangs) = desk.books.counts();
    say(&format!("leads, with {nodes} nodes and {gangs} gangs"));
    {
        let _inside = runtime.enter();
        tokio::spawn(Caller::new(client, sender.clone(), settings.binding).run(receiver));
    }
    let engine = Engine::new(Epoch(epoch.load(Ordering::Acquire)), EngineConfig::default());
    let (mut pump, handle) = Pump::<_>::new(engine, None, unix_now, |_| KubeWorld { desk: sender });
    pump.begin(&facts).map_err(|error| SchedulerError::Start(error.to_string()))?;
    drop(facts);
    let pump =
        std::thread::Builder::new().name("engine".to_owned()).spawn(move || pump.run()).map_err(start)?;
    let why = desk.run(&handle);
    handle.stop();
    let _ = pump.join();
    Err(SchedulerError::Stopped(why))
}

/// Gets the lease, keeps it, and stops everything when it is lost.
async fn lead(
    client: Client,
    settings: Option<LeaseSettings>,
    calls: Duration,
    epoch: Arc<AtomicU64>,
    desk: mpsc::Sender<Message>,
) {
    let Some(settings) = settings else { return epoch.store(1, Ordering::Release) };
    let held = lease::acquire(&client, &settings, calls, say).await;
    epoch.store(held.transitions, Ordering::Release);
    let why = held.keep(client, settings).await;
    let _ = desk.send(Message::Stop(why));
}

/// The kinds that say which pods are gangs, as far as this cluster serves them, each in the version that it prefers.
async fn kinds(client: &Client) -> Result<Vec<ApiResource>, kube::Error> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut found = Vec::new();
    for group in discovery.groups() {
        for (kind, can) in group.resources_by_stability() {
            if Source::of_kind(&kind.group, &kind.kind).is_some() && can.supports_operation(verbs::WATCH) {
                found.push(kind);
            }
        }
    }
    found.sort_by(|a, b| (&a.group, &a.plural).cmp(&(&b.group, &b.plural)));
    Ok(found)
}

/// For whoever reads the log.
pub(super) fn say(what: &str) {
    eprintln!("{} {what}", jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ"));
}
