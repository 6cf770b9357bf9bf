//! The scheduler as a process: it lists, waits for the lease, decides, and stops when the lease is lost.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kube::Client;
use phalanx_shell::{Config as EngineConfig, Engine, Pump, unix_now};
use tokio::signal::unix::{SignalKind, signal};

use super::desk::{Desk, KubeWorld, Message};
use super::kinds::{Watches, kinds, read_core};
use super::lanes::{Deadlines, Lanes};
use super::lease;
use super::lease::{Leader, LeaseSettings, Term};
use super::metrics::Metrics;
use super::pulse::Pulse;
use super::serve;
use super::traces::Traces;
use super::waits::StartWaits;
use crate::connect::{SILENCE, connect_observed};
use crate::gang::{Lifecycle, Options};

/// How a scheduler is to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nothing: what the environment of a pod or of the user says.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    pub options: Options,
    /// How long a binding is tried.
    pub binding: Duration,
    /// Nothing: it leads without asking.
    pub lease: Option<LeaseSettings>,
    /// Where health and metrics are served; nothing: nowhere.
    pub listen: Option<SocketAddr>,
    /// The class of the `ProvisioningRequest`s with which autoscalers are asked for the nodes of whole gangs; nothing: they
    /// are not asked.
    pub provisioning_class: Option<String>,
    /// The base URL of the collector that traces are sent to by OTLP; nothing: what OpenTelemetry's environment variables say.
    pub otlp_endpoint: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    #[error("no way to the cluster: {0}; give --kubeconfig, or set KUBECONFIG")]
    Config(String),
    #[error("the API server does not answer: {0}")]
    Api(String),
    #[error("cannot begin: {0}")]
    Start(String),
    /// Flag or environment say what cannot be followed.
    #[error("no traces: {0}")]
    Traces(String),
    /// Another leads, or nothing can be watched. Whoever started the process starts it again.
    #[error("stopped: {0}")]
    Stopped(String),
}

/// Runs until it is told to stop (SIGTERM, SIGINT); the lease is given back then.
///
/// # Errors
/// When leadership is lost, or something has to be begun anew, see [`SchedulerError`].
pub fn run(settings: &Settings) -> Result<(), SchedulerError> {
    let start = |error: std::io::Error| SchedulerError::Start(error.to_string());
    // One worker does thousands of calls a second; a second one mostly wakes the first.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(start)?;
    let (metrics, registry) = Metrics::registered();
    let traces = Traces::begin(settings.otlp_endpoint.as_deref(), metrics.traces.clone())
        .map_err(SchedulerError::Traces)?;
    let client = runtime.block_on(client(settings, &metrics))?;
    let (sender, messages) = mpsc::channel();
    // What every cluster has is listed while it says what else it serves.
    let mut watches = Watches::new(sender.clone());
    {
        let _inside = runtime.enter();
        read_core(&client, &mut watches);
    }
    let found = runtime.block_on(kinds(&client)).map_err(|error| SchedulerError::Api(error.to_string()))?;
    {
        let _inside = runtime.enter();
        watches.take(&client, found);
    }
    let unlisted = watches.names();
    runtime.spawn(watches.keep(client.clone()));
    let (is_ready, pulse) = (Arc::new(AtomicBool::new(false)), Pulse::default());
    runtime.spawn(pulse.clone().beat(sender.clone(), metrics.loop_lag.clone()));
    if let Some(at) = settings.listen {
        let (is_ready, desk, pulse) = (Arc::clone(&is_ready), sender.clone(), pulse.clone());
        runtime.spawn(async move {
            if let Err(error) = serve::serve_pulse(at, registry, is_ready, pulse).await {
                let _ = desk.send(Message::Stop(format!("cannot serve on {at}: {error}")));
            }
        });
    }
    let (calls, receiver) = tokio::sync::mpsc::unbounded_channel();
    let lifecycle = Lifecycle::new(settings.options.clone());
    let lifecycle = if settings.provisioning_class.is_some() { lifecycle.provisioning() } else { lifecycle };
    let mut desk = Desk {
        lifecycle,
        messages,
        calls,
        unlisted,
        metrics: metrics.clone(),
        is_ready,
        has_queues: false,
        leader: None,
        begins_at: None,
        is_new: false,
        reported: Instant::now(),
        counted: Instant::now(),
        held: None,
        start_waits: StartWaits::default(),
        spans: traces.as_ref().map(Traces::gangs),
        engine: None,
    };
    let term = Term::endless();
    runtime.spawn(lead(client.clone(), settings.lease.clone(), term.clone(), sender.clone(), pulse));
    runtime.spawn(end_in_order(sender.clone()));
    let (epoch, facts) = match desk.gather() {
        Ok(begun) => begun,
        Err(why) if why == TOLD => return Ok(()),
        Err(why) => return Err(SchedulerError::Stopped(why)),
    };
    let (nodes, gangs) = desk.lifecycle.counts();
    metrics.is_leader.set(1);
    let of_engine = metrics.clone();
    tracing::info!(nodes, gangs, "leads");
    let in_flight;
    {
        let _inside = runtime.enter();
        let class = settings.provisioning_class.clone();
        let ready = Duration::from_millis(settings.options.ready_ms);
        let deadlines = Deadlines { binding: settings.binding, ready };
        let lanes = Lanes::new(client.clone(), term.clone(), sender.clone(), deadlines, metrics, class);
        in_flight = lanes.in_flight();
        tokio::spawn(lanes.run(receiver));
    }
    let spans = traces.as_ref().map(Traces::turns);
    let engine = Engine::new(epoch, EngineConfig::default());
    let (mut pump, handle) =
        Pump::<_>::new(engine, None, unix_now, |_| KubeWorld { desk: sender, metrics: of_engine, spans });
    pump.begin(&facts).map_err(|error| SchedulerError::Start(error.to_string()))?;
    drop(facts);
    let pump =
        std::thread::Builder::new().name("engine".to_owned()).spawn(move || pump.run()).map_err(start)?;
    let why = desk.run(&handle);
    handle.stop();
    let _ = pump.join();
    if why != TOLD {
        return Err(SchedulerError::Stopped(why));
    }
    tracing::info!("{TOLD}");
    if let Some(lease) = &settings.lease {
        term.end();
        runtime.block_on(async {
            // Where calls take longer the successor waits for them.
            let are_settled = in_flight.have_ended(LAST_CALLS).await;
            lease::release(&client, lease, are_settled).await;
        });
    }
    Ok(())
}

/// The way to the API server, with every request counted.
async fn client(settings: &Settings, metrics: &Metrics) -> Result<Client, SchedulerError> {
    let (file, context) = (settings.kubeconfig.as_deref(), settings.context.as_deref());
    let connected = connect_observed(file, context, Some(SILENCE), metrics.requests.observer()).await;
    connected.map(|(client, _)| client).map_err(SchedulerError::Config)
}

/// For so long one that was told to stop waits for the answers to its calls.
const LAST_CALLS: Duration = Duration::from_secs(2);

/// Why it stopped, where somebody asked it to.
const TOLD: &str = "told to stop";

/// SIGTERM and SIGINT end the process in order.
async fn end_in_order(desk: mpsc::Sender<Message>) {
    if told_to_end().await.is_ok() {
        let _ = desk.send(Message::Stop(TOLD.to_owned()));
    }
}

/// Until SIGTERM or SIGINT comes.
pub(crate) async fn told_to_end() -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Gets the lease, keeps it, and stops everything when it is lost.
///
/// A process that does not do its work any more keeps no lease, either: it may never hear that it has to stop, and begins no
/// call once its term is over.
async fn lead(
    client: Client,
    settings: Option<LeaseSettings>,
    term: Term,
    desk: mpsc::Sender<Message>,
    pulse: Pulse,
) {
    let Some(settings) = settings else { return drop(desk.send(Message::Leads(Leader::alone()))) };
    let held = lease::acquire(&client, &settings).await;
    let (leader, patience) = (held.leader(&settings), held.patience);
    // It is kept while the calls of an old leader run out.
    let decides = async {
        tokio::time::sleep(patience).await;
        let _ = desk.send(Message::Leads(leader));
        std::future::pending::<String>().await
    };
    let why = tokio::select! {
        why = held.keep(client, settings, term) => why,
        why = decides => why,
        why = pulse.hangs() => why,
    };
    let _ = desk.send(Message::Stop(why));
}
