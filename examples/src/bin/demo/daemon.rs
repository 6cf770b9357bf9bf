//! The daemon under show: the `phalanx` command as a user would type it, and its socket for the checks.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use phalanx_api::client;
use phalanx_api::client::ask;
use phalanx_api::protocol::{Answer, DryRunView, JobRef, JobView, LogAsk, NodeFilter, NodeView, Verb};
use phalanx_local::Paths;
use phalanx_model::{JobId, MemberId, Owner, Timestamp};
use phalanx_spec::{JobFile, SubmitContext};

use phalanx_examples::stage::Stage;

/// How long anything may take before the demo gives up. Nothing here depends on speed.
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct Daemon {
    phalanx: PathBuf,
    pub(crate) ring: PathBuf,
    pub(crate) paths: Paths,
}

/// What rank 0 of the ring prints at the end.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
pub(crate) struct RingResult {
    pub(crate) world_size: u32,
    pub(crate) resumed_from: u64,
    pub(crate) busbw_gb_s: f64,
    pub(crate) wrong: u64,
    pub(crate) stopped: bool,
}

impl Daemon {
    /// Finds the programs beside this one.
    pub(crate) fn new(folder: &Path) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let beside = |name: &str| {
            let path = own.with_file_name(name);
            let missing = format!("{} is not built; `make demo` builds all that it needs", path.display());
            if path.exists() { Ok(path) } else { Err(missing) }
        };
        Ok(Self {
            phalanx: beside("phalanx")?,
            ring: beside("ring-allreduce")?,
            paths: Paths::new(folder.join("state")),
        })
    }

    /// Shows a command and what it prints.
    pub(crate) fn show(&self, stage: &Stage, args: &[&str]) -> Result<(), String> {
        stage.command(&format!("phalanx {}", self.shorten(args)));
        let status = self.command(args).status().map_err(|e| e.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("`phalanx {}` ended with {status}", args.join(" ")))
        }
    }

    /// Runs a command for its effect; its output is shown only if it fails.
    fn quietly(&self, args: &[&str]) -> Result<(), String> {
        let output = self.command(args).stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("`phalanx {}`: {}", args.join(" "), String::from_utf8_lossy(&output.stderr)))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.phalanx);
        command.env("PHALANX_STATE", self.paths.root()).args(args);
        command
    }

    /// Paths of the demo's own folder are not worth reading.
    fn shorten(&self, args: &[&str]) -> String {
        let folder = self.paths.root().parent().unwrap_or_else(|| Path::new("/"));
        let ring = self.ring.display().to_string();
        let line = args.join(" ").replace(&ring, "ring-allreduce");
        line.replace(&format!("{}/", folder.display()), "")
    }

    pub(crate) fn up(&self, stage: &Stage, cluster: &Path) -> Result<(), String> {
        self.down();
        self.show(stage, &["up", "--detach", "--cluster", &cluster.display().to_string()])
    }

    pub(crate) fn down(&self) {
        // Not running is as good.
        let _ = self.quietly(&["down"]);
    }

    fn one(&self, verb: Verb) -> Result<Answer, String> {
        client::ask_once(&self.paths.socket(), verb).map_err(|e| e.to_string())
    }

    pub(crate) fn job(&self, name: &str) -> Result<JobView, String> {
        match self.one(Verb::Get { job: JobRef::Name(name.to_owned()) })? {
            Answer::Job(view) => Ok(*view),
            other => Err(format!("asked for job {name}, got {other:?}")),
        }
    }

    pub(crate) fn nodes(&self) -> Result<Vec<NodeView>, String> {
        match self.one(Verb::FindNodes(NodeFilter::default()))? {
            Answer::Nodes(view) => Ok(view.nodes),
            other => Err(format!("asked for nodes, got {other:?}")),
        }
    }

    pub(crate) fn cancel(&self, name: &str) -> Result<(), String> {
        self.one(Verb::Cancel { job: JobRef::Name(name.to_owned()) }).map(drop)
    }

    /// Devices that a job holds, over all nodes.
    pub(crate) fn devices_held(&self, job: JobId) -> Result<u32, String> {
        let nodes = self.nodes()?;
        Ok(nodes.iter().flat_map(|n| &n.held).filter(|h| h.job == job).map(|h| h.devices.count()).sum())
    }

    /// Waits until a job is as wanted.
    pub(crate) fn wait_until(
        &self,
        name: &str,
        what: &str,
        mut wanted: impl FnMut(&JobView) -> bool,
    ) -> Result<JobView, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let job = self.job(name)?;
            if wanted(&job) {
                return Ok(job);
            }
            if Instant::now() > until {
                return Err(format!("job {name} is {} ({}) and not {what}", job.state, job.detail));
            }
            std::thread::sleep(Duration::from_millis(40));
        }
    }

    pub(crate) fn wait_finished(&self, name: &str) -> Result<JobView, String> {
        let job = self.wait_until(name, "finished", |j| j.ending.is_some())?;
        if job.exit_code == Some(0) {
            return Ok(job);
        }
        let logs = self.log_lines(name, None)?;
        let tail = logs.iter().rev().take(5).rev().cloned().collect::<Vec<_>>().join("\n    ");
        Err(format!("job {name} {}: {}\n    {tail}", job.state, job.detail))
    }

    /// Everything that rank 0 (or all ranks) of the newest attempt wrote.
    pub(crate) fn log_lines(&self, name: &str, rank: Option<u32>) -> Result<Vec<String>, String> {
        let job = JobRef::Name(name.to_owned());
        let verb = Verb::Logs { job, ask: LogAsk { rank, ..LogAsk::default() } };
        let answers = ask(&self.paths.socket(), verb).map_err(|e| e.to_string())?;
        let lines = answers.filter_map(|a| match a {
            Ok(Answer::Log { line, .. }) => Some(line),
            _ => None,
        });
        Ok(lines.collect())
    }

    /// What the daemon says of a job file, without submitting it.
    pub(crate) fn dry_run(&self, text: &str) -> Result<DryRunView, String> {
        let owner = Owner { uid: 0, gid: 0, name: String::new() };
        let (id, submitted_at) = (JobId(0), Timestamp(0));
        let context = SubmitContext { id, owner, submitted_at, default_workdir: "/".to_owned() };
        let file = JobFile::from_yaml(text, "job").and_then(|f| f.into_job(context));
        match self.one(Verb::DryRun { job: Box::new(file.map_err(|e| e.to_string())?) })? {
            Answer::DryRun(view) => Ok(view),
            other => Err(format!("asked for a dry run, got {other:?}")),
        }
    }

    /// Steps that rank 0 has reported so far.
    pub(crate) fn steps_done(&self, name: &str) -> u64 {
        let lines = self.log_lines(name, Some(0)).unwrap_or_default();
        lines.iter().rev().find_map(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// The process of one rank, as its shim wrote it down.
    pub(crate) fn rank_pid(&self, job: JobId, attempt: u32, rank: u32) -> Result<i32, String> {
        let member = MemberId { gang: job.gang(0), attempt, rank };
        let file = self.paths.member(member).join("shim.json");
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let record: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let pid = record.get("rank_pid").and_then(serde_json::Value::as_i64);
        pid.and_then(|p| i32::try_from(p).ok()).ok_or_else(|| format!("{} names no process", file.display()))
    }

    pub(crate) fn ring_result(&self, name: &str) -> Result<RingResult, String> {
        let lines = self.log_lines(name, Some(0))?;
        let json = lines.iter().rev().find_map(|l| l.strip_prefix("RESULT "));
        let json = json.ok_or_else(|| format!("rank 0 of {name} printed no result"))?;
        serde_json::from_str(json).map_err(|e| format!("the result of {name}: {e}"))
    }
}
