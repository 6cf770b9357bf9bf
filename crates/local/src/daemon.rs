//! `phalanx up`: control plane and agent in one process.

mod known;
mod options;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use phalanx_api::protocol::{MapView, OverviewView};
use phalanx_model::{Epoch, Job, JobId, Node};
use phalanx_shell::{
    Config, Engine, Handle, Header, Journal, JournalError, Pump, Recovered, VERSION, recover, retain,
};
use tracing::{info, warn};

use crate::Paths;
use crate::access::Policy;
use crate::account::{self, Accounting};
use crate::api::{self, Api};
use crate::audit::Closed;
use crate::budgets::{self, Budgets};
use crate::checkpoints;
use crate::clock::Clock;
use crate::cluster::{self, Cluster};
use crate::dcgm;
use crate::feed::Feed;
use crate::hands::Hands;
use crate::health::{self, Health};
use crate::history::HistoryError;
use crate::launch::{self, make_dir};
use crate::limits::{Limits, PendingBytes};
use crate::losses;
use crate::metrics::Metrics;
use crate::notify::{Notice, Notifier};
use crate::off_cluster::OffCluster;
use crate::orphans::{self, UnknownUse};
use crate::preflight::Preflight;
use crate::progress::Progress;
use crate::queues;
use crate::record::Recorder;
use crate::server;
use crate::sessions;
use crate::simulator::Simulator;
use crate::single_flight::SingleFlight;
use crate::spot::Meter;
use crate::threads;
use crate::upkeep;
use crate::usage::Usage;
use crate::used::Used;
use crate::verbs::tell::MetricNames;
use crate::world::LocalWorld;
use known::{
    admins, compose, launched, newest_folder, nodes, observe_members, pending_bytes, recovered_ids,
    unfinished,
};
use phalanx_views::{self as views, Books, Map, Reasons};

pub(crate) use known::{bandwidths, records};
pub use options::{ApiAt, ApiTls, UpError, UpOptions};

/// Journal segments kept for replay, the current one included.
const SEGMENTS_KEPT: usize = 8;
/// A daemon that was killed just when it started a process leaves the lock with that child until its exec.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// A segment that has grown beyond this is followed by a new one.
const SEGMENT_BYTES: u64 = 64 << 20;

fn at(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> UpError {
    let path = path.into();
    move |source| UpError::Io { doing, path, source }
}

/// What every part of the daemon shares.
pub(crate) struct Daemon {
    pub(crate) paths: Paths,
    pub(crate) map: Arc<Map>,
    pub(crate) engine: Handle,
    pub(crate) clock: Clock,
    pub(crate) epoch: u64,
    pub(crate) isolation: String,
    pub(crate) notes: Vec<String>,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: MetricNames,
    pub(crate) account: Accounting,
    pub(crate) shared: SharedLooks,
    pub(crate) limits: Limits,
    pub(crate) pending: Arc<PendingBytes>,
    pub(crate) unknown: UnknownUse,
    pub(crate) off_cluster: OffCluster,
    pub(crate) access: Policy,
    pub(crate) closed: Closed,
    pub(crate) health: Health,
    pub(crate) usage: Usage,
    pub(crate) progress: Progress,
    pub(crate) used: Used,
    pub(crate) budgets: Budgets,
    pub(crate) preflight: Arc<Preflight>,
    pub(crate) notifier: Notifier,
    pub(crate) feed: Feed,
    pub(crate) api: Api,
    pub(crate) simulator: Simulator,
    pub(crate) is_root: bool,
    next_job: AtomicU64,
}

/// What many ask for at the same time, and is looked up once for all of them.
#[derive(Default)]
pub(crate) struct SharedLooks {
    /// Why jobs wait.
    pub(crate) reasons: SingleFlight<Reasons>,
    pub(crate) overviews: SingleFlight<OverviewView>,
    pub(crate) maps: SingleFlight<MapView>,
}

impl Daemon {
    pub(crate) fn next_job(&self) -> u64 {
        self.next_job.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn next_job_peek(&self) -> u64 {
        self.next_job.load(Ordering::SeqCst)
    }

    /// What an operator should know, wherever nodes are shown.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let losses = losses::unseen(&self.paths).into_iter().map(|loss| loss.what);
        losses
            .chain(self.unknown.warnings())
            .chain(self.clock.warning())
            .chain(self.budgets.warnings())
            .collect()
    }

    /// Notifies the owner of a job, if the job says how.
    pub(crate) fn warn_owner(&self, job: JobId, event: &'static str, detail: String) {
        let asked = self.engine.look(move |engine| Notice::of(engine.job(job)?, event, detail));
        if let Ok(Some(notice)) = asked
            && !self.notifier.send(notice)
        {
            tracing::warn!(%job, event, "too many notices wait, one is dropped");
        }
    }

    /// A job of the history that this owner submitted with this key. (The engine knows those of its books.)
    pub(crate) fn known_key(&self, job: &Job) -> Option<JobId> {
        self.recorder.by_key(job.owner.uid, job.key.as_deref()?)
    }

    /// Looks again and again, on a thread of its own, until a look says that the engine answers no more.
    pub(crate) fn watch(
        daemon: &Arc<Self>,
        name: &'static str,
        every: Duration,
        mut look: impl FnMut(&Self) -> bool + Send + 'static,
    ) -> io::Result<()> {
        let daemon = Arc::clone(daemon);
        let watching = move || {
            while look(&daemon) {
                std::thread::sleep(every);
            }
        };
        threads::vital(name, watching).map(drop)
    }

    pub(crate) fn stop(&self) {
        self.engine.stop();
    }
}

/// Runs a daemon until it is told to stop. Jobs outlive it; the next one adopts them.
///
/// # Errors
/// When it cannot start: another runs, the cluster file is wrong, the state cannot be read or written.
pub fn up(options: &UpOptions) -> Result<(), UpError> {
    let paths = &options.paths;
    let (_lock, stop_signals) = prepare(options)?;
    let metrics = Metrics::open(options.metrics)?;
    let api = Api::open(options)?;
    let mut cluster = load_cluster(options)?;
    let given = options.queues.as_deref().map(queues::read).transpose()?;
    let limits = Limits::settle(paths, &options.limits)?;
    let config = Config::default();
    let mut recovered = read_journal(paths, config)?;
    let known_nodes = keep_known(options, &mut cluster, &recovered);

    let clock = begin_clock(paths, &recovered);
    let recorder = Recorder::open(paths, clock.clone())?;
    let epoch = Epoch(recovered.epoch.max(losses::last_epoch(paths).unwrap_or_default()).0 + 1);
    let unknown = look_beyond_the_journal(paths, &mut recovered, &recorder, &mut cluster, &clock);
    let (tasks, todo) = channel();
    let launched = launched(&recovered);
    let members = observe_members(paths, &recovered, &launched, &tasks);
    launch::forget_secrets_but(paths, &unfinished(&recovered));
    let health = Health::open(paths, &cluster, known_nodes.iter(), &recovered.facts, clock.now())?;
    let facts = compose(&cluster, given, &recovered, members, health.facts(clock.now()));

    let journal = begin_journal(paths, epoch, &clock)?;
    let pending = pending_bytes(&recovered);
    let account = accounting(&mut cluster, &recorder)?;
    let exe = shim_exe(options)?;
    let notifier = notifier(options, exe.clone(), limits);
    let feed = Feed::new(epoch.0);
    let world = |_: Handle| LocalWorld {
        paths: paths.clone(),
        map: cluster.map.clone(),
        hands: tasks.clone(),
        recorder: recorder.clone(),
        notifier: notifier.clone(),
        meter: Meter::new(cluster.prices.clone(), records(&recovered)),
        pending: Arc::clone(&pending),
        epoch,
        clock: clock.clone(),
        counts: metrics.counts.clone(),
        account: account.clone(),
        feed: feed.clone(),
    };
    let time = clock.clone();
    let (mut pump, engine) = Pump::new(Engine::new(epoch, config), journal, move || time.now(), world);
    pump.begin(&facts)?;
    losses::remember_epoch(paths, epoch);
    let pump = pump.rotating(&paths.journal(), epoch, config, SEGMENT_BYTES, SEGMENTS_KEPT, Some(allocate));
    retain(&paths.journal(), SEGMENTS_KEPT)?;

    let preflight = Arc::new(Preflight::of(options, exe.clone()));
    let hands = Hands {
        paths: paths.clone(),
        shim_exe: exe,
        isolation: options.isolation.clone(),
        limits,
        engine: engine.clone(),
        clock: clock.clone(),
        tasks,
        living: BTreeMap::new(),
        launched,
        killed: BTreeSet::new(),
        preflight: Arc::clone(&preflight),
        checking: BTreeMap::new(),
        waiting: BTreeSet::new(),
    };
    threads::vital("hands", move || hands.run(&todo)).map_err(no_thread)?;
    let daemon = Arc::new(Daemon {
        next_job: AtomicU64::new(next_job(paths, &recovered, &recorder)?),
        paths: paths.clone(),
        map: Arc::new(cluster.map),
        engine: engine.clone(),
        clock: clock.clone(),
        epoch: epoch.0,
        isolation: options.isolation.detect().to_string(),
        notes: cluster.notes,
        closed: Closed::of(recorder.closings()?, recorder.windows(clock.now())?),
        recorder,
        metrics: MetricNames::default(),
        account,
        shared: SharedLooks::default(),
        limits,
        pending,
        unknown,
        off_cluster: OffCluster::of(&cluster.nodes, &recovered),
        access: Policy::of(&facts),
        health,
        usage: Usage::new(millis(options.idle_after), millis(options.sample_every)),
        progress: Progress::default(),
        used: Used::default(),
        budgets: Budgets::default(),
        preflight: Arc::clone(&preflight),
        notifier,
        feed,
        api,
        simulator: Simulator::of(options),
        is_root: nix::unistd::geteuid().is_root(),
    });
    preflight.serve(Arc::downgrade(&daemon));
    let pumping = threads::vital("pump", move || pump.run()).map_err(no_thread)?;
    stop_on(stop_signals, engine).map_err(no_thread)?;
    open(&daemon, options, metrics)?;
    close(&daemon, pumping);
    Ok(())
}

fn read_journal(paths: &Paths, config: Config) -> Result<Recovered, UpError> {
    let recovered = recover(&paths.journal(), config)?;
    recovered.messages.iter().for_each(|note| warn!(note, "the journal is read"));
    Ok(recovered)
}

fn accounting(cluster: &mut Cluster, recorder: &Recorder) -> Result<Accounting, HistoryError> {
    let (prices, tariff) = (std::mem::take(&mut cluster.list_prices), std::mem::take(&mut cluster.tariff));
    Ok(Accounting::new(prices, tariff, recorder.charged_until()?))
}

/// Writes down the rest, once the engine is gone.
fn close(daemon: &Daemon, pumping: JoinHandle<phalanx_shell::Metrics>) {
    let pumped = pumping.join().unwrap_or_default(); // It takes the process along if it panics.
    let _ = fs::remove_file(daemon.paths.socket());
    account::close(daemon);
    daemon.used.write_down(daemon);
    daemon.recorder.finish();
    daemon.clock.keep(&daemon.paths);
    info!(steps = pumped.steps, "stopped; jobs go on");
}

/// A number that no job ever had.
fn next_job(paths: &Paths, recovered: &Recovered, recorder: &Recorder) -> Result<u64, HistoryError> {
    let newest = [recovered_ids(recovered), recorder.newest_id()?, newest_folder(paths)];
    Ok(newest.into_iter().max().unwrap_or(0) + 1)
}

/// Looks at its world, and takes requests.
fn open(daemon: &Arc<Daemon>, options: &UpOptions, metrics: Metrics) -> Result<(), UpError> {
    dcgm::start(daemon, options)?;
    watch(daemon, options, metrics).map_err(UpError::Thread)?;
    reconcile(daemon);
    // Jobs that are submitted at once are held too.
    budgets::look(daemon);
    serve(daemon)
}

/// Everything that looks at the daemon's world from a thread of its own.
fn watch(daemon: &Arc<Daemon>, options: &UpOptions, metrics: Metrics) -> io::Result<()> {
    for start in [upkeep::start, checkpoints::start, sessions::start, UnknownUse::watch] {
        start(daemon)?;
    }
    health::start(daemon, options)?;
    metrics.serve(daemon)?;
    api::start(daemon)
}

/// What the journal knows of nodes and their configuration does not say. Returns these nodes.
fn keep_known(options: &UpOptions, cluster: &mut Cluster, recovered: &Recovered) -> Vec<Node> {
    cluster::keep_admin(cluster, &admins(&recovered.facts));
    let known = nodes(&recovered.facts);
    if !options.found {
        cluster::keep_absent(cluster, &known);
    }
    known
}

fn notifier(options: &UpOptions, exe: PathBuf, limits: Limits) -> Notifier {
    let failed = |notice: &str| warn!(notice, "a notice was not delivered");
    Notifier::start(failed, &options.paths, exe, options.isolation.clone(), limits)
}

/// From here on it answers.
fn serve(daemon: &Arc<Daemon>) -> Result<(), UpError> {
    let listener = listen(&daemon.paths)?;
    let socket = daemon.paths.socket();
    info!(socket = %socket.display(), epoch = daemon.epoch, isolation = daemon.isolation, "ready");
    server::serve(listener, daemon).map_err(UpError::Thread)?;
    // Nobody listens where no service manager started the daemon.
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
    Ok(())
}

/// The time goes on as the last daemon kept it where ranks may run: their deadlines are in it.
fn begin_clock(paths: &Paths, recovered: &Recovered) -> Clock {
    let is_whole = recovered.epoch > Epoch(0) && recovered.losses.is_empty();
    let may_run = !is_whole || records(recovered).any(|(_, record)| record.holds_capacity());
    Clock::begin(paths, recovered.last_at, may_run)
}

/// What the journal does not say: losses are told, living ranks are taken over, or what they hold is unknown use.
fn look_beyond_the_journal(
    paths: &Paths,
    recovered: &mut Recovered,
    recorder: &Recorder,
    cluster: &mut Cluster,
    clock: &Clock,
) -> UnknownUse {
    recovered.losses.iter().for_each(|loss| losses::add(paths, loss));
    let loss = loss_of(paths, recovered, recorder);
    let is_lost = loss.is_some() || !recovered.losses.is_empty();
    let found = orphans::take_over(paths, recovered, recorder, cluster, clock, is_lost);
    match loss {
        Some(loss) => losses::add(paths, &format!("{loss}; {}", found.summary())),
        None => found.surprise().iter().for_each(|surprise| losses::add(paths, surprise)),
    }
    let unknown = UnknownUse::new(cluster, found.unknown);
    unknown.warnings().iter().for_each(|warning| warn!(warning, "devices are in unknown use"));
    for (name, foreign, foreign_use) in unknown.of_nodes() {
        if let Some(node) = cluster.nodes.iter_mut().find(|node| node.name == name) {
            (node.foreign, node.foreign_use) = (foreign, foreign_use);
        }
    }
    unknown
}

/// Whether the journal is older than what was durable before.
fn loss_of(paths: &Paths, recovered: &Recovered, recorder: &Recorder) -> Option<String> {
    let dir = paths.journal();
    match losses::last_epoch(paths) {
        Some(last) if recovered.epoch == Epoch(0) => Some(format!(
            "the journal in {} is lost: nothing of it can be read, and it was at epoch {}",
            dir.display(),
            last.0
        )),
        Some(last) if recovered.epoch < last => Some(format!(
            "the journal in {} went back: it is of epoch {}, and epoch {} was durable",
            dir.display(),
            recovered.epoch.0,
            last.0
        )),
        // An earlier version did not write the epoch down.
        None if recovered.epoch == Epoch(0)
            && (newest_folder(paths) > 0 || recorder.newest_id().is_ok_and(|id| id > 0)) =>
        {
            Some(format!(
                "the journal in {} is lost: nothing of it can be read, and jobs ran here",
                dir.display()
            ))
        }
        _ => None,
    }
}

fn begin_journal(paths: &Paths, epoch: Epoch, clock: &Clock) -> Result<Journal, JournalError> {
    let header = Header::new(VERSION, epoch, clock.now());
    Journal::create_allocating(&paths.journal(), header, Some(allocate))
}

/// Before there is any thread.
fn prepare(options: &UpOptions) -> Result<(File, SigSet), UpError> {
    let lock = take_state(&options.paths)?;
    raise_file_limit();
    let stop_signals = block_stop_signals();
    options.isolation.make_room().map_err(UpError::Cgroup)?;
    Ok((lock, stop_signals))
}

/// Makes the state folder and takes it for this daemon.
fn take_state(paths: &Paths) -> Result<File, UpError> {
    // What the owners of jobs must reach is given away by mode, whatever the mask we were started with.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    make_dir(paths.root(), 0o755).map_err(at("make", paths.root()))?;
    make_dir(&paths.jobs(), 0o711).map_err(at("make", paths.jobs()))?;
    lock(paths)
}

/// One daemon per state folder: the lock goes with the process.
pub(crate) fn lock(paths: &Paths) -> Result<File, UpError> {
    let path = paths.lock();
    let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = opened.map_err(at("open", &path))?;
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(TryLockError::WouldBlock) => return Err(UpError::AlreadyRunning(paths.root().to_owned())),
            Err(TryLockError::Error(e)) => return Err(at("lock", path)(e)),
        }
    }
}

/// Room behind the end of the journal, which nobody else can take. Some filesystems cannot keep any.
fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    use nix::fcntl::{FallocateFlags, fallocate};
    let number = |n: u64| i64::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge));
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, number(offset)?, number(bytes)?) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
        done => Ok(done?),
    }
}

/// A member costs two descriptors; the usual soft limit of 1,024 is reached at 500 of them.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// SIGTERM and SIGINT end the daemon in order. Blocked here, before any thread exists; taken in `stop_on`.
fn block_stop_signals() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    let _ = signals.thread_block();
    signals
}

fn stop_on(signals: SigSet, engine: Handle) -> io::Result<()> {
    let waiting = move || {
        let _ = signals.wait();
        engine.stop();
    };
    threads::vital("signals", waiting).map(drop)
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn no_thread(source: io::Error) -> UpError {
    UpError::Thread(source)
}

fn shim_exe(options: &UpOptions) -> Result<PathBuf, UpError> {
    match &options.shim_exe {
        Some(given) => Ok(given.clone()),
        None => std::env::current_exe().map_err(at("find", "this program")),
    }
}

/// The cluster file is remembered, so that `phalanx up` after a crash finds the same nodes.
fn load_cluster(options: &UpOptions) -> Result<Cluster, UpError> {
    let memory = options.paths.root().join("cluster");
    let remembered = || fs::read_to_string(&memory).ok().map(|t| PathBuf::from(t.trim()));
    let given = options.cluster.clone().or_else(remembered).filter(|_| !options.found);
    let Some(path) = given else {
        let _ = fs::remove_file(&memory);
        return Ok(cluster::found()?);
    };
    let path = fs::canonicalize(&path).map_err(at("find the cluster file", &path))?;
    let cluster = cluster::declared(&path)?;
    fs::write(&memory, path.as_os_str().as_encoded_bytes()).map_err(at("write", memory))?;
    info!(file = %path.display(), nodes = cluster.nodes.len(), "nodes are declared");
    Ok(cluster)
}

/// The history is a projection: after a restart it is brought up to what the books say.
fn reconcile(daemon: &Arc<Daemon>) {
    let (map, recorder) = (daemon.map.clone(), daemon.recorder.clone());
    let _ = daemon.engine.look(move |engine| {
        let ids: Vec<JobId> = engine.jobs().map(|(job, _)| job.id).collect();
        for id in &ids {
            if let Err(e) = recorder.recall(*id) {
                warn!(job = %id, error = %e, "the events of a job cannot be read");
            }
        }
        for view in views::jobs(&Books::all(engine), &map, &ids, &Reasons::new()) {
            let job = engine.job(view.id);
            recorder.job(view, job);
        }
    });
}

fn listen(paths: &Paths) -> Result<UnixListener, UpError> {
    let path = paths.socket();
    let _ = fs::remove_file(&path); // The lock says that no daemon uses it.
    let listener = UnixListener::bind(&path).map_err(at("listen on", &path))?;
    // Anyone may ask; who they are decides what they get.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).map_err(at("open to others", &path))?;
    Ok(listener)
}
