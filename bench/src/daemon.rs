//! A daemon with a state folder of its own, for measurements and drills on real processes.

use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use phalanx_api::client::ask_once;
use phalanx_api::protocol::{Answer, HealthFinding, HealthReport, JobRef, JobView, Verb};
use phalanx_local::Paths;
use phalanx_model::{
    FailureClass, Gang, Grade, Job, JobId, JobName, LaunchKind, Needs, NodeName, Owner, Policy, Program,
    QueueName, Retry, Stop, Timestamp, Topology, Turn,
};

const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(5);
/// Lines of its log that an error of a daemon quotes.
const LAST_LINES: usize = 3;
/// Files of a daemon, beside its state folder.
const LOG: &str = "daemon.log";
const KERNEL_LOG: &str = "kernel.log";

/// The nodes of a daemon.
pub(crate) enum Nodes {
    /// The text of a cluster file.
    Declared(String),
    /// This machine as found, with the NVIDIA library of a folder. The kernel log is [`Daemon::kernel_log`].
    Found { library: PathBuf },
}

/// How a daemon is started.
pub(crate) struct Setup {
    pub(crate) phalanx: PathBuf,
    pub(crate) nodes: Nodes,
    /// The text of the queue file.
    pub(crate) queues: String,
    /// The state folder; without it one beside the files of the job.
    pub(crate) state: Option<PathBuf>,
}

pub(crate) struct Daemon {
    dir: tempfile::TempDir,
    paths: Paths,
    setup: Setup,
    /// `None` after [`Daemon::kill`].
    child: Option<Child>,
    /// Without an answer so far, no job was submitted.
    has_answered: bool,
}

/// Why jobs of daemons that were dropped may still run.
static LEFT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Why jobs may still run: a daemon that was dropped did not confirm their end.
pub(crate) fn left() -> Vec<String> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Daemon {
    /// With a cluster file and a queue file; both are texts.
    pub(crate) fn start(cluster: &str, queues: &str) -> Result<Self, String> {
        Self::start_with(Setup {
            phalanx: beside("phalanx", "phalanx-cli")?,
            nodes: Nodes::Declared(cluster.to_owned()),
            queues: queues.to_owned(),
            state: None,
        })
    }

    pub(crate) fn start_with(setup: Setup) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let paths = Paths::new(setup.state.clone().unwrap_or_else(|| dir.path().join("state")));
        let mut daemon = Self { dir, paths, setup, child: None, has_answered: false };
        let text = if let Nodes::Declared(text) = &daemon.setup.nodes { text } else { "" };
        daemon.write("cluster.yaml", text)?;
        daemon.write("queues.yaml", &daemon.setup.queues)?;
        daemon.write(KERNEL_LOG, "")?;
        daemon.up()?;
        Ok(daemon)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        fs::write(self.dir.path().join(name), text).map_err(|e| format!("{name}: {e}"))
    }

    /// Starts the daemon and waits for its answer. Its state is what an earlier one left.
    pub(crate) fn up(&mut self) -> Result<(), String> {
        let file = |name: &str| self.dir.path().join(name);
        let log = OpenOptions::new().append(true).create(true).open(file(LOG)).map_err(|e| e.to_string())?;
        let mut command = Command::new(&self.setup.phalanx);
        command.args(["up", "--state"]).arg(self.paths.root()).arg("--queues").arg(file("queues.yaml"));
        match &self.setup.nodes {
            Nodes::Declared(_) => command.arg("--cluster").arg(file("cluster.yaml")),
            Nodes::Found { library } => command
                .args(["--found", "--sample-every", "1s", "--kernel-log"])
                .arg(self.kernel_log())
                .env("LD_LIBRARY_PATH", library),
        };
        // Ctrl-C on a terminal reaches this program alone, which then ends the daemon in order.
        command.process_group(0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let mut child = child.map_err(|e| format!("the daemon cannot be started: {e}"))?;
        let answer = self.until("the daemon's answer", || {
            if self.ask(Verb::Ping).is_ok() {
                return Some(Ok(()));
            }
            let ended = child.try_wait().ok().flatten()?;
            Some(Err(format!("the daemon ended before it answered: {ended}")))
        });
        self.child = Some(child);
        match answer.and_then(|answer| answer) {
            Ok(()) => {
                self.has_answered = true;
                Ok(())
            }
            Err(why) => {
                let _ = self.kill();
                Err(format!("{why}; the daemon logged last: {}", self.last_lines()))
            }
        }
    }

    /// SIGKILL. Ranks go on.
    pub(crate) fn kill(&mut self) -> Result<(), String> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill().and_then(|()| child.wait()).map(drop).map_err(|e| e.to_string())
    }

    /// What the daemon reads as the kernel's messages if its nodes are found.
    pub(crate) fn kernel_log(&self) -> PathBuf {
        self.dir.path().join(KERNEL_LOG)
    }

    /// The end of what the daemon logged, in one line.
    pub(crate) fn last_lines(&self) -> String {
        let log = fs::read_to_string(self.dir.path().join(LOG)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ")
    }

    /// A folder for the files of the job.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) const fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(crate) fn ask(&self, verb: Verb) -> Result<Answer, String> {
        match ask_once(&self.paths.socket(), verb).map_err(|e| e.to_string())? {
            Answer::Error(error) => Err(error.message),
            answer => Ok(answer),
        }
    }

    pub(crate) fn job(&self, job: JobId) -> Option<JobView> {
        match self.ask(Verb::Get { job: JobRef::Id(job) }) {
            Ok(Answer::Job(view)) => Some(*view),
            _ => None,
        }
    }

    pub(crate) fn until<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> Result<T, String> {
        self.until_polled(what, POLL, look)
    }

    /// As [`Self::until`], with a pause between two looks.
    pub(crate) fn until_polled<T>(
        &self,
        what: &str,
        pause: Duration,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, String> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(found) = look() {
                return Ok(found);
            }
            std::thread::sleep(pause);
        }
        Err(format!("never: {what}"))
    }

    pub(crate) fn submit(&self, job: Job) -> Result<JobId, String> {
        match self.ask(Verb::Submit { job: Box::new(job), secrets: Default::default() })? {
            Answer::Submitted { job, .. } => Ok(job),
            _ => Err("the job was not submitted".to_owned()),
        }
    }

    /// The nodes of a job that runs, rank by rank, from an attempt on.
    pub(crate) fn nodes(&self, job: JobId, attempt: u32) -> Option<Vec<(u32, NodeName)>> {
        let view = self.job(job).filter(|view| view.state == "running")?;
        let gang = view.gangs.into_iter().next().filter(|gang| gang.attempt >= attempt)?;
        let slots = gang.placement?.slots;
        Some(slots.into_iter().map(|slot| (slot.rank, slot.node)).collect())
    }

    pub(crate) fn report(&self, node: &NodeName, grade: Grade, reason: &str) -> Result<(), String> {
        let (finding, reason) = (HealthFinding::Grade(grade), reason.to_owned());
        let report = HealthReport { node: node.clone(), device: None, finding, reason };
        self.ask(Verb::ReportHealth(report)).map(drop)
    }

    /// Cancels all jobs, waits for their ends, and ends the daemon.
    fn end(&mut self) -> Result<(), String> {
        if !self.has_answered {
            return self.kill();
        }
        // Ranks outlive a daemon that was killed.
        if self.ask(Verb::Ping).is_err() {
            self.kill()?;
            self.up()?;
        }
        loop {
            let list = Verb::List { finished: false, filter: Default::default(), limit: u32::MAX };
            let Answer::Jobs(jobs) = self.ask(list)? else {
                return Err("the daemon did not answer with its jobs".to_owned());
            };
            // A list has not all jobs if they are many.
            if jobs.is_empty() {
                return self.kill();
            }
            for job in &jobs {
                // A job that ended meanwhile is refused.
                let _ = self.ask(Verb::Cancel { job: JobRef::Id(job.id) });
            }
            for job in jobs {
                // No answer is no end.
                self.until(&format!("the end of job {}", job.id), || {
                    self.job(job.id).filter(|view| view.ending.is_some()).map(drop)
                })?;
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let Err(why) = self.end() else { return };
        let _ = self.kill();
        // Its jobs can be cancelled by another daemon on the folder.
        self.dir.disable_cleanup(true);
        let left = format!("jobs of {} may still run: {why}", self.paths.root().display());
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(left);
    }
}

/// A path as a word of a shell script.
pub(crate) fn word(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// A job whose ranks have nodes of eight devices each, and run a shell script.
pub(crate) fn job(ranks: u32, script: &str) -> Result<Job, String> {
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let program = Program { argv, workdir: "/".to_owned(), launch: LaunchKind::Ranks, ..Program::default() };
    let on = vec![FailureClass::Node, FailureClass::UserCode];
    Ok(Job {
        id: JobId(0),
        name: JobName::new("train").map_err(|e| e.to_string())?,
        key: None,
        owner: Owner { uid: 0, gid: 0, name: "bench".to_owned() },
        queue: QueueName::new("default").map_err(|e| e.to_string())?,
        priority: 0,
        submitted_at: Timestamp(0),
        gangs: vec![Gang {
            size: ranks,
            min: ranks,
            max: ranks,
            needs: Needs { devices: 8, ..Needs::default() },
            members_per_node: None,
            topology: Topology::default(),
            traffic: None,
            program,
            roles: Vec::new(),
            grid: Vec::new(),
        }],
        policy: Policy {
            start_deadline_ms: 60_000,
            stop: Stop { advisory: None, grace_ms: 1_000 },
            retry: Retry { max: 3, on, backoff_ms: 0, backoff_max_ms: 0 },
            ..Policy::default()
        },
        turn: Turn::default(),
    })
}

/// An executable beside this one.
pub(crate) fn beside(name: &str, package: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let path = own.with_file_name(name);
    let what = || format!("{} is missing: cargo build --release -p {package}", path.display());
    path.exists().then(|| path.clone()).ok_or_else(what)
}
