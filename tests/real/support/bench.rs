//! A daemon with a state folder of its own; whatever it leaves is ended when the test is over.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use phalanx_api::client::{ClientError, ask, ask_once};
use phalanx_api::protocol::{Answer, JobRef, JobView, LogAsk, NodeFilter, Verb};
use phalanx_local::Paths;
use phalanx_model::{Job, JobId};

use super::processes::{member_dirs, signal, spawned_pids, tokens};
use super::{eventually, until};

/// One node with eight devices.
pub(crate) const NODE_OF_8: &str = "nodes:\n- {name: n1, devices: {count: 8, model: Test GPU}}\n";
/// Two nodes with eight devices each.
pub(crate) const TWO_NODES_OF_8: &str = "nodes:\n- {name: 'n[1-2]', devices: {count: 8, model: Test GPU}}\n";

/// Gives a process another wall clock, which a file sets.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
const WALL_CLOCK: &str = "wall-clock";

pub(crate) fn exe() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_phalanx-test-daemon"))
}

/// A state folder, its cluster, and the daemon while one runs.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    pub(crate) paths: Paths,
    cluster: PathBuf,
    queues: Option<PathBuf>,
    daemon: Option<Child>,
}

impl Bench {
    /// A daemon that runs a declared cluster.
    pub(crate) fn up_with(cluster: &str) -> Self {
        let mut bench = Self::new(cluster);
        bench.up();
        bench
    }

    /// No daemon yet.
    pub(crate) fn new(cluster: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        Self::in_state(dir, &state, cluster)
    }

    /// With its state somewhere in `dir`.
    pub(crate) fn in_state(dir: tempfile::TempDir, state: &Path, cluster: &str) -> Self {
        // Other users' ranks and clients come through here.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let file = dir.path().join("cluster.yaml");
        fs::write(&file, cluster).unwrap();
        Self { paths: Paths::new(state), cluster: file, queues: None, daemon: None, dir }
    }

    /// A file in the test's own folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Lines of a file in the test's own folder, sorted: ranks write in any order.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let mut lines: Vec<String> = self.read(name).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    pub(crate) fn await_file(&self, name: &str) {
        until(&format!("the file {name}"), || self.path(name).exists());
    }

    pub(crate) fn daemon_log(&self) -> String {
        self.read("daemon.log")
    }

    /// `script` is a shell script that becomes the daemon by `exec "$0" "$@"`.
    fn spawn(&self, script: Option<&str>) -> Child {
        let log = OpenOptions::new().append(true).create(true).open(self.path("daemon.log")).unwrap();
        let mut command = Command::new(exe());
        if let Some(script) = script {
            command = Command::new("/bin/sh");
            command.args(["-c", script]).arg(exe());
        }
        let wall_clock = self.path(WALL_CLOCK);
        if wall_clock.exists() {
            command.env("LD_PRELOAD", FAKETIME).env("FAKETIME_TIMESTAMP_FILE", wall_clock);
            command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command.arg("up").arg(self.paths.root()).arg(&self.cluster).args(&self.queues);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// Sets the wall clock of daemons that are started from the first call on; false where that cannot be done.
    pub(crate) fn set_wall_clock(&self, offset: &str) -> bool {
        // Replaced whole: the daemon reads it each time.
        let next = self.path("wall-clock.next");
        fs::write(&next, format!("{offset}\n")).unwrap();
        fs::rename(next, self.path(WALL_CLOCK)).unwrap();
        let is_there = Path::new(FAKETIME).exists();
        assert!(
            is_there || std::env::var_os("CI").is_none(),
            "{FAKETIME} is missing: apt-get install libfaketime"
        );
        is_there
    }

    /// Starts the daemon and waits until it answers.
    pub(crate) fn up(&mut self) {
        self.up_by(None);
    }

    /// As [`Self::up`], with a queue file; later starts have none.
    pub(crate) fn up_with_queues(&mut self, file: &Path) {
        self.queues = Some(file.to_owned());
        self.up();
        self.queues = None;
    }

    /// As [`Self::up`], by a shell script that becomes the daemon by `exec "$0" "$@"`.
    pub(crate) fn up_by(&mut self, script: Option<&str>) {
        let mut child = self.spawn(script);
        let pid = child.id();
        let answers = eventually("the daemon's answer", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the daemon ended with {status}:\n{}", self.daemon_log());
            }
            match ask_once(&self.paths.socket(), Verb::Ping) {
                Ok(Answer::Pong { pid: answering, .. }) => Some(answering),
                _ => None,
            }
        });
        assert_eq!(answers, pid, "another daemon answers");
        self.daemon = Some(child);
    }

    /// A daemon that cannot start: what it says.
    pub(crate) fn refuses_to_start(&self) -> String {
        self.refuses_to_start_by(None)
    }

    /// The same by a shell script, as in [`Self::up_by`].
    pub(crate) fn refuses_to_start_by(&self, script: Option<&str>) -> String {
        let before = self.daemon_log().len();
        let mut child = self.spawn(script);
        let status = eventually("the daemon's end", || child.try_wait().unwrap());
        assert!(!status.success(), "{status}");
        self.daemon_log().split_off(before)
    }

    pub(crate) fn daemon_pid(&self) -> i32 {
        i32::try_from(self.daemon.as_ref().unwrap().id()).unwrap()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut child = self.daemon.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn down(&mut self) -> ExitStatus {
        signal(self.daemon_pid(), Signal::SIGTERM);
        self.await_daemon_end()
    }

    pub(crate) fn await_daemon_end(&mut self) -> ExitStatus {
        let mut child = self.daemon.take().unwrap();
        eventually("the daemon's end", || child.try_wait().unwrap())
    }

    pub(crate) fn ask(&self, verb: Verb) -> Result<Answer, ClientError> {
        ask_once(&self.paths.socket(), verb)
    }

    pub(crate) fn done(&self, verb: Verb) -> String {
        match self.ask(verb) {
            Ok(Answer::Done { detail }) => detail,
            other => panic!("{other:?}"),
        }
    }

    /// What a client with another uid is told; its group has the same number.
    pub(crate) fn ask_as(&self, uid: u32, verb: &Verb) -> Vec<Answer> {
        use std::io::Write;
        use std::os::unix::process::CommandExt;
        // Where the build lies may be closed to others.
        let client = self.path("client");
        if !client.exists() {
            fs::copy(exe(), &client).unwrap();
        }
        let mut command = Command::new(&client);
        command.arg("ask").arg(self.paths.socket()).uid(uid).gid(uid);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Another test may have forked while the copy was open for writing, and not have let go of it yet.
        let mut child = loop {
            match command.spawn() {
                Err(busy) if busy.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                spawned => break spawned.unwrap(),
            }
        };
        child.stdin.take().unwrap().write_all(&serde_json::to_vec(verb).unwrap()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn submit(&self, job: Job) -> JobId {
        self.submit_with(job, &[])
    }

    pub(crate) fn submit_with(&self, job: Job, secrets: &[(&str, &str)]) -> JobId {
        let secrets = super::jobs::env(secrets);
        match self.ask(Verb::Submit { job: Box::new(job), secrets }) {
            Ok(Answer::Submitted { job, .. }) => job,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn get(&self, id: JobId) -> JobView {
        match self.ask(Verb::Get { job: JobRef::Id(id) }) {
            Ok(Answer::Job(view)) => *view,
            other => panic!("{other:?}"),
        }
    }

    /// The first node of a job's place.
    pub(crate) fn node_of(&self, id: JobId) -> String {
        let view = self.get(id);
        let placement = view.gangs[0].placement.clone().unwrap_or_else(|| panic!("{view:#?}"));
        placement.slots[0].node.to_string()
    }

    /// What `nodes` warns of.
    pub(crate) fn warnings(&self) -> Vec<String> {
        match self.ask(Verb::FindNodes(NodeFilter::default())) {
            Ok(Answer::Nodes(view)) => view.warnings,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn cancel(&self, id: JobId) -> String {
        self.done(Verb::Cancel { job: JobRef::Id(id) })
    }

    pub(crate) fn await_state(&self, id: JobId, state: &str) -> JobView {
        let mut last = String::new();
        eventually(&format!("job {id} {state}"), || {
            let view = self.get(id);
            let ended_otherwise = view.ending.is_some() && view.state != state;
            assert!(!ended_otherwise, "{view:#?}\n{}", self.daemon_log());
            last.clone_from(&view.state);
            (view.state == state).then_some(view)
        })
    }

    /// The job as it ended.
    pub(crate) fn ended(&self, id: JobId) -> JobView {
        eventually(&format!("the end of job {id}"), || {
            Some(self.get(id)).filter(|view| view.ending.is_some())
        })
    }

    /// All output of a job's newest attempt, rank by rank.
    pub(crate) fn logs(&self, id: JobId) -> Vec<(u32, String)> {
        let verb = Verb::Logs { job: JobRef::Id(id), ask: LogAsk::default() };
        let line = |answer| match answer {
            Ok(Answer::Log { rank, line, .. }) => (rank, line),
            other => panic!("{other:?}"),
        };
        ask(&self.paths.socket(), verb).unwrap().map(line).collect()
    }

    /// The first rank's word after `name=` in its log.
    pub(crate) fn said(&self, id: JobId) -> BTreeMap<String, String> {
        let logs = self.logs(id);
        let first = logs.iter().filter(|(rank, _)| *rank == 0);
        first.filter_map(|(_, l)| l.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
    }

    /// Living processes of every member that this state folder ever had, by token.
    pub(crate) fn alive(&self) -> Vec<(String, i32)> {
        spawned_pids(&tokens(&self.paths.jobs()))
    }

    /// No process of any member lives. (The shim itself ends a moment after its last word.)
    pub(crate) fn await_nobody(&self) {
        until("the end of every process", || self.alive().is_empty());
    }

    /// The folder of a rank.
    pub(crate) fn member(&self, id: JobId, attempt: u32, rank: u32) -> PathBuf {
        self.paths.member(phalanx_model::MemberId { gang: id.gang(0), attempt, rank })
    }

    /// The rank's own process is gone, whether or not that could be written down.
    pub(crate) fn shim_ended_its_rank(&self, id: JobId, rank: u32) -> bool {
        let pid = self.shim(id, 1, rank).rank_pid;
        pid.is_none_or(|pid| phalanx_node::Process::find(pid).is_none())
    }

    /// Shims of this rank of this attempt will not say a word.
    pub(crate) fn hold_shim(&self, attempt: u32, rank: u32) {
        let dir = self.path("held");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("attempt-{attempt}-rank-{rank}")), "").unwrap();
    }

    /// Who the shim of a rank is, as soon as it has said so.
    pub(crate) fn shim(&self, id: JobId, attempt: u32, rank: u32) -> phalanx_node::protocol::Record {
        let path = self.member(id, attempt, rank).join("shim.json");
        eventually(&path.display().to_string(), || serde_json::from_slice(&fs::read(&path).ok()?).ok())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("daemon.log:\n{}", self.daemon_log());
        }
        if let Some(mut child) = self.daemon.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for dir in member_dirs(&self.paths.jobs()) {
            let _ = phalanx_node::reap(&dir);
        }
    }
}
