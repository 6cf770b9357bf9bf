//! Metrics of the daemon, served at `/metrics` on a loopback address. Names and meanings are those of the scheduler on
//! Kubernetes where there is the same. Labels are few and bounded: never the name of a job or a user.
//! `docs/one-machine.md` says what each means.

mod telemetry;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use phalanx_model::{Bandwidth, Change, StopCause, Uplink};
use phalanx_shell::{Engine, http};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::daemon::{Daemon, UpError};
use crate::threads;
use phalanx_views::{self as views, Books};
use telemetry::Telemetry;

/// Queues with labels of their own; others are in none of the gauges by queue.
const QUEUES_MAX: usize = 200;
/// Values are counted at most this often, however often they are asked for.
const FRESH: Duration = Duration::from_secs(1);

/// What happened since the start; counted by the world as it happens.
#[derive(Clone)]
pub(crate) struct Counts {
    starts: Counter,
    preemptions: Counter,
    retries: Counter,
    ended: Family<OfEnding, Counter>,
    step_time: Histogram,
}

/// As many as there are words for the end of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEnding {
    ending: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    queue: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    state: &'static str,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            starts: Counter::default(),
            preemptions: Counter::default(),
            retries: Counter::default(),
            ended: Family::default(),
            // From a tenth of a millisecond, each twice as long as the one before, to 13 s.
            step_time: Histogram::new(exponential_buckets(0.000_1, 2.0, 18)),
        }
    }
}

impl Counts {
    pub(crate) fn changed(&self, change: &Change) {
        match change {
            Change::GangRunning { .. } => {
                self.starts.inc();
            }
            Change::GangStopping { cause: StopCause::Displaced { .. } | StopCause::Preempted(_), .. } => {
                self.preemptions.inc();
            }
            Change::GangRetrying { .. } => {
                self.retries.inc();
            }
            Change::JobFinished { ending, .. } => {
                self.ended.get_or_create(&OfEnding { ending: ending.word() }).inc();
            }
            _ => {}
        }
    }

    pub(crate) fn stepped(&self, took: Duration) {
        self.step_time.observe(took.as_secs_f64());
    }
}

/// What is, counted when it is asked for.
#[derive(Clone, Default)]
struct Levels {
    nodes: Family<OfState, Gauge>,
    devices: Family<OfState, Gauge>,
    pending: Family<OfQueue, Gauge>,
    running: Family<OfQueue, Gauge>,
    held: Family<OfQueue, Gauge>,
    wanted: Family<OfQueue, Gauge>,
    warnings: Gauge,
    stalled: Gauge,
    stragglers: Gauge,
    slow_networks: Gauge,
    telemetry: Telemetry,
}

impl Levels {
    /// Counts everything anew; nothing if the engine answers no more.
    fn refresh(&self, daemon: &Arc<Daemon>) -> Option<()> {
        let shared = Arc::clone(daemon);
        let look = move |engine: &Engine| {
            let is_slow = |of: &&Bandwidth| matches!(of.uplink, Uplink::Node(_));
            let slow_networks = engine.bandwidths().filter(is_slow).count();
            let books = Books::all(engine);
            let counts = views::counts(&books, &|node| shared.unknown.held(node));
            (counts, views::queues(&books), slow_networks)
        };
        let ((nodes, devices), queues, slow_networks) = daemon.engine.look(look).ok()?;
        self.slow_networks.set(i64::try_from(slow_networks).unwrap_or(i64::MAX));
        let state = |family: &Family<OfState, Gauge>, state, number: u32| {
            family.get_or_create(&OfState { state }).set(number.into());
        };
        state(&self.nodes, "open", nodes.open);
        state(&self.nodes, "cordoned", nodes.cordoned);
        state(&self.nodes, "draining", nodes.draining);
        state(&self.nodes, "broken", nodes.broken);
        state(&self.devices, "free", devices.free);
        state(&self.devices, "held", devices.held);
        state(&self.devices, "closed", devices.closed);
        state(&self.devices, "broken", devices.broken);
        state(&self.devices, "foreign", devices.foreign);
        state(&self.devices, "unknown", devices.unknown);
        let by_queue = [&self.pending, &self.running, &self.held, &self.wanted];
        by_queue.iter().for_each(|family| family.clear());
        for queue in queues.into_iter().take(QUEUES_MAX) {
            let label = OfQueue { queue: queue.name };
            let numbers = [queue.pending, queue.running, queue.devices_held, queue.devices_wanted];
            for (family, number) in by_queue.iter().zip(numbers) {
                family.get_or_create(&label).set(number.into());
            }
        }
        self.warnings.set(i64::try_from(daemon.warnings().len()).unwrap_or(i64::MAX));
        let (stalled, stragglers) = daemon.progress.counts();
        for (gauge, count) in [(&self.stalled, stalled), (&self.stragglers, stragglers)] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.telemetry.refresh(daemon);
        Some(())
    }
}

fn registry(counts: &Counts, levels: &Levels) -> Registry {
    let mut registry = Registry::with_prefix("phalanx_scheduler");
    let r = &mut registry;
    r.register("nodes", "Nodes by whether they take work", levels.nodes.clone());
    r.register("devices", "GPUs and other devices, each in one state", levels.devices.clone());
    r.register("pending_gangs", "Gangs that wait to start, queues below included", levels.pending.clone());
    r.register("running_gangs", "Gangs that hold capacity, queues below included", levels.running.clone());
    r.register("queue_devices_held", "Devices that gangs of a queue hold", levels.held.clone());
    r.register(
        "queue_devices_wanted",
        "Devices that pending gangs of a queue ask for",
        levels.wanted.clone(),
    );
    let help = "Nodes whose network was measured to have less than its bandwidth";
    r.register("slow_networks", help, levels.slow_networks.clone());
    levels.telemetry.register(r);
    r.register("warnings", "Warnings that lists of nodes show", levels.warnings.clone());
    r.register("stalled_gangs", "Gangs whose ranks report no further step", levels.stalled.clone());
    let help = "Ranks that work longer on a step than the others of their gang";
    r.register("stragglers", help, levels.stragglers.clone());
    r.register("gang_starts", "Gangs whose ranks all run", counts.starts.clone());
    r.register("gang_preemptions", "Gangs that were stopped for another", counts.preemptions.clone());
    r.register("gang_retries", "Starts that failed and are tried again", counts.retries.clone());
    r.register("jobs_ended", "Jobs that ended, by how", counts.ended.clone());
    r.register_with_unit(
        "engine_step_duration",
        "One step of the engine",
        Unit::Seconds,
        counts.step_time.clone(),
    );
    registry
}

/// What is counted, and where it is served.
pub(crate) struct Metrics {
    pub(crate) counts: Counts,
    listener: Option<TcpListener>,
}

impl Metrics {
    /// Opens the port, if there is to be one.
    pub(crate) fn open(at: Option<SocketAddr>) -> Result<Self, UpError> {
        let listener = at.map(|at| listen(at).map_err(|e| UpError::Metrics(at, e))).transpose()?;
        Ok(Self { counts: Counts::default(), listener })
    }

    /// Serves until the process ends.
    pub(crate) fn serve(self, daemon: &Arc<Daemon>) -> io::Result<()> {
        match self.listener {
            Some(listener) => serve(listener, daemon, &self.counts),
            None => Ok(()),
        }
    }
}

/// Only loopback addresses will do: who may connect may read.
fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    if !at.ip().is_loopback() {
        let why = "only a loopback address will do, such as 127.0.0.1:9464: metrics have neither TLS nor authentication; a \
                   proxy that has both can serve others";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn serve(listener: TcpListener, daemon: &Arc<Daemon>, counts: &Counts) -> io::Result<()> {
    let at = listener.local_addr()?;
    let levels = Levels::default();
    let registry = Arc::new(registry(counts, &levels));
    let daemon = Arc::clone(daemon);
    let last: Arc<Mutex<Option<Instant>>> = Arc::default();
    let metrics = move || async move {
        // The engine is asked on a thread where one may wait for it.
        let counted = tokio::task::spawn_blocking(move || {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_none_or(|at| at.elapsed() > FRESH) {
                levels.refresh(&daemon);
                *last = Some(Instant::now());
            }
        });
        let _ = counted.await;
        http::exposition(&registry)
    };
    let routes = axum::Router::new().route("/metrics", axum::routing::get(metrics));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tracing::info!(address = %at, "serves /metrics");
    threads::vital("metrics", move || {
        let served = runtime.block_on(async {
            http::serve(tokio::net::TcpListener::from_std(listener)?, routes, http::METRICS).await
        });
        if let Err(error) = served {
            tracing::warn!(%error, "metrics are no longer served");
        }
    })
    .map(drop)
}
