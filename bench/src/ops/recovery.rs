//! Nodes are lost under a gang of real processes, and it runs again from its checkpoint.
//!
//! The nodes are declared and share this machine. A lost node is emulated: its ranks are killed, and it is reported as
//! broken, all at one moment.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_local::Paths;
use phalanx_local::client::ask_once;
use phalanx_local::protocol::{Answer, HealthFinding, HealthReport, JobRef, JobView, Verb};
use phalanx_model::{
    FailureClass, Gang, Grade, Job, JobId, JobName, LaunchKind, Needs, NodeName, Owner, Policy, Program,
    QueueName, Retry, Stop, Timestamp, Topology, Turn,
};

/// Enough for the gang, and as many spare ones as are lost at most.
const CLUSTER: &str = "nodes:\n- {name: 'n[1-7]', devices: {count: 8, model: Bench GPU}}\n";
const RANKS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

#[derive(serde::Serialize)]
pub(super) struct Recovery {
    /// Nodes that are lost at once, of a gang of four.
    lost: usize,
    runs: usize,
    /// From the loss until all ranks run again; from the least to the most.
    seconds: Vec<f64>,
    median_s: f64,
    /// Steps that rank 0 does again, at most; it saves every 15 steps.
    steps_again: u64,
    /// Ranks on nodes that were not lost which have other nodes now, over all runs.
    moved: usize,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, runs, seconds, median_s, steps_again, moved } = self;
        let (least, most) =
            (seconds.first().copied().unwrap_or_default(), seconds.last().copied().unwrap_or_default());
        write!(
            f,
            "recovery, {lost} of {RANKS} nodes lost (emulated), {runs} runs: all ranks run again after {median_s:.2} s \
             ({least:.2} to {most:.2}); at most {steps_again} steps done again; {moved} healthy ranks moved"
        )
    }
}

pub(super) fn measure(lost: usize, runs: usize) -> Result<Recovery, String> {
    let mut seconds = Vec::new();
    let (mut steps_again, mut moved) = (0, 0);
    for _ in 0..runs {
        let bench = Bench::start()?;
        let run = bench.lose(lost)?;
        seconds.push(run.0);
        steps_again = steps_again.max(run.1);
        moved += run.2;
    }
    seconds.sort_unstable_by(f64::total_cmp);
    let median_s = seconds.get(seconds.len() / 2).copied().unwrap_or_default();
    Ok(Recovery { lost, runs, seconds, median_s, steps_again, moved })
}

/// A daemon with a state folder of its own.
struct Bench {
    dir: tempfile::TempDir,
    paths: Paths,
    daemon: Child,
}

impl Bench {
    fn start() -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let cluster = dir.path().join("cluster.yaml");
        fs::write(&cluster, CLUSTER).map_err(|e| e.to_string())?;
        let paths = Paths::new(dir.path().join("state"));
        let daemon = Command::new(phalanx()?)
            .args(["up", "--state"])
            .arg(paths.root())
            .arg("--cluster")
            .arg(&cluster)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("the daemon cannot be started: {e}"))?;
        let bench = Self { dir, paths, daemon };
        bench.until("the daemon's answer", || bench.ask(Verb::Ping).is_ok().then_some(()))?;
        Ok(bench)
    }

    fn ask(&self, verb: Verb) -> Result<Answer, String> {
        match ask_once(&self.paths.socket(), verb).map_err(|e| e.to_string())? {
            Answer::Error(error) => Err(error.message),
            answer => Ok(answer),
        }
    }

    fn job(&self, job: JobId) -> Option<JobView> {
        match self.ask(Verb::Get { job: JobRef::Id(job) }) {
            Ok(Answer::Job(view)) => Some(*view),
            _ => None,
        }
    }

    fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(found) = look() {
                return Ok(found);
            }
            std::thread::sleep(POLL);
        }
        Err(format!("never: {what}"))
    }

    fn number(&self, file: &str) -> u64 {
        let text = fs::read_to_string(self.dir.path().join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Seconds until all ranks run again, steps that are done again, healthy ranks that moved.
    fn lose(&self, count: usize) -> Result<(f64, u64, usize), String> {
        let Answer::Submitted { job, .. } =
            self.ask(Verb::Submit { job: Box::new(trainer(self.dir.path())?), secrets: Default::default() })?
        else {
            return Err("the job was not submitted".to_owned());
        };
        let nodes = |attempt: u32| {
            let view = self.job(job).filter(|view| view.state == "running")?;
            let gang = view.gangs.into_iter().next().filter(|gang| gang.attempt >= attempt)?;
            let slots = gang.placement?.slots;
            Some(slots.into_iter().map(|slot| (slot.rank, slot.node)).collect::<Vec<(u32, NodeName)>>())
        };
        let before = self.until("the gang runs", || nodes(1))?;
        self.until("a checkpoint", || (self.number("step") >= 30).then_some(()))?;
        let lost: Vec<&(u32, NodeName)> = before.iter().take(count).collect();
        let begun = Instant::now();
        for (rank, node) in &lost {
            let pid = fs::read_to_string(self.dir.path().join(format!("pid-{rank}"))).unwrap_or_default();
            let pid = pid.trim().parse().map_err(|_| format!("rank {rank} did not say its number"))?;
            self.report(node)?;
            match kill(Pid::from_raw(pid), Signal::SIGKILL) {
                // The gang is stopped since the first report.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(e) => return Err(e.to_string()),
            }
        }
        let is_lost = |node: &NodeName| lost.iter().any(|(_, lost)| lost == node);
        // A start between two reports may have another node of the lost ones, and is taken back.
        let whole = || nodes(2).filter(|slots| !slots.iter().any(|(_, node)| is_lost(node)));
        let after = self.until("the gang runs again", whole)?;
        let seconds = begun.elapsed().as_secs_f64();
        let resumed = self.until("rank 0 resumes", || {
            let text = fs::read_to_string(self.dir.path().join("resumed")).ok()?;
            text.lines().nth(1)?.parse::<u64>().ok()
        })?;
        let moved = before.iter().filter(|(_, node)| !is_lost(node) && !after.iter().any(|(_, n)| n == node));
        let again = self.number("reached-1").saturating_sub(resumed);
        Ok((seconds, again, moved.count()))
    }

    fn report(&self, node: &NodeName) -> Result<(), String> {
        let finding = HealthFinding::Grade(Grade::Broken);
        let reason = "lost in a benchmark".to_owned();
        let report = HealthReport { node: node.clone(), device: None, finding, reason };
        self.ask(Verb::ReportHealth(report)).map(drop)
    }
}

impl Drop for Bench {
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
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Ranks with whole nodes; rank 0 counts steps of 20 ms, saves every 15 of them, and goes on from what it saved.
fn trainer(folder: &Path) -> Result<Job, String> {
    let script = format!(
        "cd {}
         echo $$ > pid-$PHALANX_RANK
         trap 'exit 0' TERM
         if [ $PHALANX_RANK != 0 ]; then while :; do sleep 0.1; done; fi
         n=$(cat step 2>/dev/null || echo 0); echo $n >> resumed
         while :; do
           n=$((n+1)); echo $n > reached-$PHALANX_ATTEMPT
           if [ $((n % 15)) = 0 ]; then echo $n > step.next && mv step.next step && touch $PHALANX_CHECKPOINTED; fi
           sleep 0.02
         done",
        folder.display()
    );
    let argv = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
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
            size: RANKS,
            min: RANKS,
            max: RANKS,
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

/// The executable beside this one.
fn phalanx() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let path = own.with_file_name("phalanx");
    let what = || format!("{} is missing: cargo build --release -p phalanx-cli", path.display());
    path.exists().then(|| path.clone()).ok_or_else(what)
}
