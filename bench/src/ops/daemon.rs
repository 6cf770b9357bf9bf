//! A daemon with declared nodes and a state folder of its own, for measurements on real processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use phalanx_local::Paths;
use phalanx_local::client::ask_once;
use phalanx_local::protocol::{Answer, HealthFinding, HealthReport, JobRef, JobView, Verb};
use phalanx_model::{
    FailureClass, Gang, Grade, Job, JobId, JobName, LaunchKind, Needs, NodeName, Owner, Policy, Program,
    QueueName, Retry, Stop, Timestamp, Topology, Turn,
};

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

pub(super) struct Daemon {
    dir: tempfile::TempDir,
    paths: Paths,
    child: Child,
}

impl Daemon {
    /// With a cluster file and a queue file; both are texts.
    pub(super) fn start(cluster: &str, queues: &str) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let write = |name: &str, text: &str| {
            let file = dir.path().join(name);
            fs::write(&file, text).map(|()| file).map_err(|e| e.to_string())
        };
        let (cluster, queues) = (write("cluster.yaml", cluster)?, write("queues.yaml", queues)?);
        let paths = Paths::new(dir.path().join("state"));
        let child = Command::new(beside("phalanx", "phalanx-cli")?)
            .args(["up", "--state"])
            .arg(paths.root())
            .arg("--cluster")
            .arg(&cluster)
            .arg("--queues")
            .arg(&queues)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("the daemon cannot be started: {e}"))?;
        let daemon = Self { dir, paths, child };
        daemon.until("the daemon's answer", || daemon.ask(Verb::Ping).is_ok().then_some(()))?;
        Ok(daemon)
    }

    /// A folder for the files of the job.
    pub(super) fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub(super) const fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(super) fn ask(&self, verb: Verb) -> Result<Answer, String> {
        match ask_once(&self.paths.socket(), verb).map_err(|e| e.to_string())? {
            Answer::Error(error) => Err(error.message),
            answer => Ok(answer),
        }
    }

    pub(super) fn job(&self, job: JobId) -> Option<JobView> {
        match self.ask(Verb::Get { job: JobRef::Id(job) }) {
            Ok(Answer::Job(view)) => Some(*view),
            _ => None,
        }
    }

    pub(super) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(found) = look() {
                return Ok(found);
            }
            std::thread::sleep(POLL);
        }
        Err(format!("never: {what}"))
    }

    pub(super) fn submit(&self, job: Job) -> Result<JobId, String> {
        match self.ask(Verb::Submit { job: Box::new(job), secrets: Default::default() })? {
            Answer::Submitted { job, .. } => Ok(job),
            _ => Err("the job was not submitted".to_owned()),
        }
    }

    /// The nodes of a job that runs, rank by rank, from an attempt on.
    pub(super) fn nodes(&self, job: JobId, attempt: u32) -> Option<Vec<(u32, NodeName)>> {
        let view = self.job(job).filter(|view| view.state == "running")?;
        let gang = view.gangs.into_iter().next().filter(|gang| gang.attempt >= attempt)?;
        let slots = gang.placement?.slots;
        Some(slots.into_iter().map(|slot| (slot.rank, slot.node)).collect())
    }

    pub(super) fn report(&self, node: &NodeName, grade: Grade, reason: &str) -> Result<(), String> {
        let (finding, reason) = (HealthFinding::Grade(grade), reason.to_owned());
        let report = HealthReport { node: node.clone(), device: None, finding, reason };
        self.ask(Verb::ReportHealth(report)).map(drop)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(Answer::Jobs(jobs)) =
            self.ask(Verb::List { finished: false, filter: Default::default(), limit: 10 })
        {
            for job in jobs {
                let _ = self.ask(Verb::Cancel { job: JobRef::Id(job.id) });
                let _ = self.until("the end of the job", || {
                    self.job(job.id).is_none_or(|view| view.ending.is_some()).then_some(())
                });
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job whose ranks have nodes of eight devices each, and run a shell script.
pub(super) fn job(ranks: u32, script: &str) -> Result<Job, String> {
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
pub(super) fn beside(name: &str, package: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let path = own.with_file_name(name);
    let what = || format!("{} is missing: cargo build --release -p {package}", path.display());
    path.exists().then(|| path.clone()).ok_or_else(what)
}
