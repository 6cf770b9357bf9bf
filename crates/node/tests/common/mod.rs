//! What the tests of real processes share.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use phalanx_model::{Exit, JobId, MemberId};
use phalanx_node::protocol::TOKEN_VARIABLE;
use phalanx_node::{Handle, IsolationChoice, MemberSpec, ShimEvent, adopt, reap, spawn};

/// Far longer than anything here takes; only a failing test waits for it.
pub const LONG: Duration = Duration::from_secs(30);
pub const NOBODY: u32 = 65_534;

/// A folder for one member, and its spec. What the member leaves is ended when the test is over.
pub struct Bench {
    pub root: tempfile::TempDir,
    pub spec: MemberSpec,
}

impl Bench {
    /// A member that runs a shell script, held by the best isolation of the machine.
    pub fn new(script: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let root = tempfile::tempdir().unwrap();
        let user = nix::unistd::geteuid().as_raw();
        let token = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let spec = MemberSpec {
            member: MemberId { gang: JobId(7).gang(0), attempt: 1, rank: 0 },
            token,
            argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            workdir: "/".into(),
            uid: user,
            gid: nix::unistd::getegid().as_raw(),
            groups: Vec::new(),
            log_path: root.path().join("rank.log"),
            gate_deadline_ms: 60_000,
            ports: Vec::new(),
            secrets: Vec::new(),
            rdma: false,
            cpus: Vec::new(),
            cpu_milli: None,
            memory_bytes: None,
            cpu_weight: None,
            pids_max: None,
            pids_of_user: None,
            pids_of_all: None,
            term_grace_ms: 200,
            umask: None,
            isolation: IsolationChoice::Best,
            log_bytes_max: None,
            slot: None,
        };
        Self { root, spec }
    }

    pub fn dir(&self) -> PathBuf {
        self.root.path().join("member")
    }

    pub fn spawn(&self) -> Handle {
        spawn(&self.dir(), &self.spec, exe(), &[OsStr::new("__shim")]).unwrap()
    }

    /// Spawned, ready and let through the gate; with the rank's pid.
    pub fn run(&self) -> (Handle, i32) {
        let mut handle = self.spawn();
        until(&mut handle, |e| matches!(e, ShimEvent::Ready { .. }));
        handle.release().unwrap();
        match until(&mut handle, |e| matches!(e, ShimEvent::Running { .. })) {
            ShimEvent::Running { pid } => (handle, pid),
            other => panic!("{other:?}"),
        }
    }

    pub fn run_to_exit(&self) -> Exit {
        exit_of(&mut self.run().0)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.spec.log_path).unwrap_or_default()
    }

    /// Until the rank wrote this.
    pub fn await_log(&self, text: &str) {
        eventually(|| self.log().contains(text), || format!("{text:?} in the log {:?}", self.log()));
    }

    pub fn shim_pid(&self) -> i32 {
        let record: phalanx_node::protocol::Record =
            serde_json::from_slice(&fs::read(self.dir().join("shim.json")).unwrap()).unwrap();
        record.pid
    }

    /// Pids, besides zombies, that carry the member's token.
    pub fn alive(&self) -> Vec<i32> {
        let entry = format!("{TOKEN_VARIABLE}={}", self.spec.token);
        let mut pids = Vec::new();
        for entry_dir in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry_dir.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
            let environ = fs::read(entry_dir.path().join("environ")).unwrap_or_default();
            if environ.split(|b| *b == 0).any(|text| text == entry.as_bytes()) {
                pids.push(pid);
            }
        }
        pids
    }

    /// Folders of this member's cgroups that are still there.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        look_for(Path::new("/sys/fs/cgroup"), &self.spec.token, 0, &mut found);
        found
    }
}

fn look_for(dir: &Path, name: &str, depth: u32, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if depth < 8 && entry.file_type().is_ok_and(|t| t.is_dir()) {
            if entry.file_name() == name {
                found.push(entry.path());
            }
            look_for(&entry.path(), name, depth + 1, found);
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = reap(&self.dir());
    }
}

pub fn exe() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_phalanx-shim-test"))
}

/// The first event of the kind; fails when the member ends before, or nothing comes.
pub fn until(handle: &mut Handle, wanted: impl Fn(&ShimEvent) -> bool) -> ShimEvent {
    loop {
        let event = handle.next_event(LONG).unwrap().expect("no event came");
        if wanted(&event) {
            return event;
        }
        assert!(!event.is_last(), "ended early: {event:?}");
    }
}

pub fn exit_of(handle: &mut Handle) -> Exit {
    match until(handle, ShimEvent::is_last) {
        ShimEvent::Exited { exit } => timeless(exit),
        other => panic!("{other:?}"),
    }
}

/// The exit without the time of its end.
pub fn timeless(exit: Exit) -> Exit {
    Exit { ended_ns: None, ..exit }
}

pub fn failure_of(handle: &mut Handle) -> (phalanx_model::FailureClass, String) {
    match until(handle, ShimEvent::is_last) {
        ShimEvent::Failed { class, detail } => (class, detail),
        other => panic!("{other:?}"),
    }
}

pub fn eventually(mut done: impl FnMut() -> bool, what: impl Fn() -> String) {
    let end = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < end, "never: {}", what());
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn kill(pid: i32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
}

pub fn found(bench: &Bench) -> phalanx_node::Found {
    adopt(&bench.dir()).unwrap()
}
