//! One short command as a user: with limits of its own, no way to more rights, and a time-out that ends everything it
//! started. Ranks have shims; this is for what a job's owner may have run besides.
//!
//! [`run`] starts a small *guard* process, [`main`], in which this daemon's executable has one thread. The guard is the
//! subreaper of the command, so that a process which made its own session does not get away, and it ends by itself if the
//! daemon is gone. What to run goes to it by stdin: command lines can be read by every user.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{F_SETFL, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::SigSet;
use nix::unistd::{Gid, Uid, geteuid, getpid};
use serde::{Deserialize, Serialize};

use crate::isolation::{Group, Limits};
use crate::member::IsolationChoice;
use crate::processes::{self, Process};
use crate::sys::{self, ChildSetup, Wait};

/// Largest specification, in bytes.
const SPEC_BYTES_MAX: u64 = 1 << 20;
/// What a program may say at most, in bytes.
const SAID_BYTES_MAX: u64 = 256;
const PAUSE: Duration = Duration::from_millis(20);
/// How long processes may take to die of SIGKILL before they are left to the kernel.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// What to run, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confined {
    /// Names its cgroup; never used twice at a time on a machine.
    pub token: String,
    pub isolation: IsolationChoice,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// The program with its path, and its arguments. Every user can read them.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// What the program reads.
    pub stdin: String,
    /// The program is this executable: it becomes the user by [`become_user`], and its output is heard. (Users may not be
    /// able to reach the file.) Or it runs as the daemon does.
    pub changes_user_itself: bool,
    pub pids_max: u64,
    /// Processes and threads of its user on the whole machine.
    pub pids_of_user: Option<u64>,
    pub memory_bytes: u64,
    pub timeout_ms: u64,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Its first process ended, and the others did in time or were ended.
    Ended { code: Option<i32>, signal: Option<i32>, said: String },
    /// Its first process did not end in time.
    TimedOut,
    /// It never ran.
    Failed { why: String },
}

/// Ends a command before its time, with everything that it started.
#[derive(Debug, Default)]
pub struct Leash(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// The guard ends the command once this is closed, as it is when this process is gone.
    pipe: Option<ChildStdin>,
    is_let_go: bool,
}

impl Leash {
    fn held(&self) -> MutexGuard<'_, Held> {
        // Both fields are set at once: what a panicking thread left is valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, pipe: Option<ChildStdin>) {
        let mut held = self.held();
        held.pipe = pipe.filter(|_| !held.is_let_go);
    }

    /// Ends the command, also one that has not begun.
    pub fn let_go(&self) {
        *self.held() = Held { pipe: None, is_let_go: true };
    }

    #[must_use]
    pub fn is_let_go(&self) -> bool {
        self.held().is_let_go
    }
}

/// Runs a command and waits for its end. `guard` is this executable with the hidden verb that ends in [`main`].
///
/// # Errors
/// When the guard cannot be started, or ends without a word.
pub fn run(guard: &Path, verb: &OsStr, spec: &Confined) -> io::Result<Outcome> {
    run_on(guard, verb, spec, &Leash::default())
}

/// As [`run`], until the leash is let go.
///
/// # Errors
/// When the guard cannot be started, or ends without a word.
pub fn run_on(guard: &Path, verb: &OsStr, spec: &Confined, leash: &Leash) -> io::Result<Outcome> {
    let mut guard = Command::new(guard);
    guard.arg(verb).env_clear().current_dir("/").process_group(0);
    guard.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut guard = guard.spawn()?;
    let told = talk(&mut guard, spec, leash);
    leash.hold(None);
    guard.wait()?;
    serde_json::from_slice(&told?)
        .map_err(|e| io::Error::other(format!("its guard ended without a word: {e}")))
}

fn talk(guard: &mut Child, spec: &Confined, leash: &Leash) -> io::Result<Vec<u8>> {
    // One line. The pipe stays open as long as the command is to run.
    let mut spec = serde_json::to_vec(spec)?;
    spec.push(b'\n');
    if let Some(mut stdin) = guard.stdin.take() {
        stdin.write_all(&spec)?;
        leash.hold(Some(stdin));
    }
    let mut told = Vec::new();
    if let Some(stdout) = guard.stdout.take() {
        stdout.take(SPEC_BYTES_MAX).read_to_end(&mut told)?;
    }
    Ok(told)
}

/// The guard: runs the command that stdin names, and prints what became of it.
#[must_use]
pub fn main() -> ExitCode {
    sys::close_inherited();
    let outcome = guard().unwrap_or_else(|why| Outcome::Failed { why });
    let told = serde_json::to_vec(&outcome).unwrap_or_default();
    match io::stdout().write_all(&told).and_then(|()| io::stdout().flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn guard() -> Result<Outcome, String> {
    let cannot = |what: &'static str| move |e: io::Error| format!("cannot {what}: {e}");
    detach().map_err(cannot("leave the daemon's session"))?;
    let mut spec = Vec::new();
    let line = io::stdin().lock().take(SPEC_BYTES_MAX).read_until(b'\n', &mut spec);
    line.map_err(cannot("read what to run"))?;
    let spec: Confined =
        serde_json::from_slice(&spec).map_err(|e| format!("cannot read what to run: {e}"))?;
    let own = geteuid();
    if !own.is_root() && own.as_raw() != spec.uid {
        return Err(format!("a process of uid {own} cannot become uid {}", spec.uid));
    }
    limit_processes(spec.pids_of_user).map_err(cannot("limit the user's processes"))?;
    let mut group = spec.isolation.detect().group(&spec.token);
    let limits =
        Limits { pids: Some(spec.pids_max), memory_bytes: Some(spec.memory_bytes), ..Limits::default() };
    // A limit that cannot be had is no reason against the command, as with ranks.
    group.create(&limits);
    let outcome = start(&spec, &group).map_err(cannot("start it")).map(|child| {
        let until = Instant::now() + Duration::from_millis(spec.timeout_ms);
        watch(child, &group, until)
    });
    let _ = group.remove();
    outcome
}

/// Becomes a session leader that no terminal ends, and the parent of what the command orphans.
fn detach() -> io::Result<()> {
    sys::reset_signals();
    SigSet::all().thread_block()?;
    // Leads a group already, and the group is its own.
    let _ = nix::unistd::setsid();
    nix::sys::prctl::set_child_subreaper(true)?;
    Ok(())
}

/// The kernel lets root have any number: what binds is inherited by the user's processes.
fn limit_processes(of_user: Option<u64>) -> io::Result<()> {
    let Some(pids) = of_user else { return Ok(()) };
    let (_, hard) = getrlimit(Resource::RLIMIT_NPROC)?;
    let pids = pids.min(hard);
    Ok(setrlimit(Resource::RLIMIT_NPROC, pids, pids)?)
}

fn start(spec: &Confined, group: &Group) -> io::Result<Child> {
    let (program, args) = spec.argv.split_first().ok_or_else(|| io::Error::other("there is no command"))?;
    let doors = group.doors()?;
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(&spec.env).process_group(0);
    let output = || if spec.changes_user_itself { Stdio::piped() } else { Stdio::null() };
    command.stdin(Stdio::piped()).stdout(output()).stderr(Stdio::null());
    let groups = || spec.groups.iter().copied().map(Gid::from_raw).collect();
    let drops = geteuid().is_root() && !spec.changes_user_itself;
    sys::set_up_child(
        &mut command,
        ChildSetup {
            must_join: doors.must,
            may_join: doors.may,
            user: drops.then(|| (Uid::from_raw(spec.uid), Gid::from_raw(spec.gid), groups())),
            no_new_privs: spec.uid != 0 && !spec.changes_user_itself,
            workdir: c"/".to_owned(),
            umask: None,
            keep: Vec::new(),
            shim: getpid(),
        },
    );
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        let text = spec.stdin.clone();
        // A program that does not read must not hold up its guard. Nothing is forked any more.
        std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    }
    Ok(child)
}

/// Waits until all have ended or it is time, and ends what is left.
fn watch(mut child: Child, group: &Group, until: Instant) -> Outcome {
    let own = getpid().as_raw();
    let left = || {
        let mut left: BTreeSet<Process> = group.processes();
        left.extend(processes::descendants(own));
        left
    };
    let mut ended: Option<ExitStatus> = None;
    loop {
        let childless = collect(child.id(), &mut ended);
        let is_over = Instant::now() >= until || is_let_go();
        if is_over || (childless && group.processes().is_empty()) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let give_up = Instant::now() + END_TIMEOUT;
    let mut killed: Option<ExitStatus> = None;
    while !(collect(child.id(), &mut killed) && group.processes().is_empty()) && Instant::now() < give_up {
        group.kill();
        processes::kill_round(left);
        std::thread::sleep(PAUSE);
    }
    ended.map_or(Outcome::TimedOut, |status| Outcome::Ended {
        code: status.code(),
        signal: status.signal(),
        said: child.stdout.take().map_or_else(String::new, said),
    })
}

/// Whether the daemon let go of the command, or is gone.
fn is_let_go() -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
    let is_closed = |fd: &PollFd<'_>| fd.revents().is_some_and(|is| is.contains(PollFlags::POLLHUP));
    poll(&mut fds, PollTimeout::ZERO).is_ok() && fds.iter().any(is_closed)
}

/// Collects every ended child; whether none is left. As this is a subreaper, that means no descendant.
fn collect(first: u32, ended: &mut Option<ExitStatus>) -> bool {
    loop {
        match sys::wait_any() {
            Wait::Ended(pid, status) if u32::try_from(pid) == Ok(first) => *ended = Some(status),
            Wait::Ended(..) => {}
            Wait::Nothing => return false,
            Wait::Childless => return true,
        }
    }
}

/// What the program said, without waiting for a process that the kernel holds.
fn said(output: impl Read + AsFd) -> String {
    let mut text = Vec::new();
    if fcntl(&output, F_SETFL(OFlag::O_NONBLOCK)).is_ok() {
        let _ = output.take(SAID_BYTES_MAX).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// Gives up every right but those of a user, for good. Does nothing in a process that is not root's. Before this no thread
/// may have been started.
///
/// # Errors
/// When the kernel refuses; the process must not go on then.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    if geteuid().is_root() {
        let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        nix::unistd::setgroups(&groups)?;
        nix::unistd::setresgid(gid, gid, gid)?;
        nix::unistd::setresuid(uid, uid, uid)?;
    }
    if geteuid().as_raw() != uid {
        return Err(io::Error::other(format!("this process is of uid {} and not of uid {uid}", geteuid())));
    }
    nix::sys::prctl::set_no_new_privs()?;
    // The change of user cleared it. A guard that is gone ends nobody.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    Ok(())
}
