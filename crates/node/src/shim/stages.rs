//! The stages of a member: gate, running, draining, over.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command as Exec, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::libc::{SIGCONT, SIGKILL, SIGTERM};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Pid, geteuid, getpid};
use phalanx_model::Exit;

use super::beside::Beside;
use super::check::{self, Failure, Prepared};
use super::complain;
use crate::isolation::Doors;
use crate::member::MemberSpec;
use crate::output;
use crate::processes::{self, Process};
use crate::protocol::{self, Command, EXIT_FILE, Record, SHIM_FILE, ShimEvent, TOKEN_VARIABLE};
use crate::sys::{self, ChildSetup, Wait};

/// Between two looks at what a rank left behind; doubles up to the second.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(500);
/// Between two looks at how much output there is.
const MEASURE_PAUSE: Duration = Duration::from_millis(500);
/// Until an exit that could not be written (a full disk) is tried again.
const SAVE_PAUSE: Duration = Duration::from_secs(1);
/// How long a daemon may take to hear the last event.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// A shim at work.
pub(super) struct Shim {
    dir: PathBuf,
    spec: MemberSpec,
    record: Record,
    stage: Stage,
    notes: Vec<String>,
    /// Not yet told to the connections.
    events: Vec<ShimEvent>,
    kill_asked: bool,
    /// When its output is measured next.
    measure_at: Instant,
    pub(super) beside: Beside,
}

/// What a process of the member begins with.
pub(super) struct Begin<'a> {
    pub(super) program: &'a Path,
    pub(super) argv: &'a [String],
    pub(super) workdir: CString,
    pub(super) doors: Doors,
    /// Descriptors that it has open.
    pub(super) keep: Vec<OwnedFd>,
}

enum Stage {
    /// Within `prepare` or `release`.
    Starting,
    Gate {
        prepared: Box<Prepared>,
        until: Instant,
    },
    Running {
        rank: Process,
    },
    /// The rank's own process ended so; what it left behind is being ended.
    Draining {
        exit: Exit,
        kill_at: Instant,
        look_at: Instant,
        pause: Duration,
        termed: bool,
    },
    Over {
        last: ShimEvent,
        unsaved: Option<Exit>,
        save_at: Instant,
        flush_until: Instant,
    },
}

impl Shim {
    pub(super) fn prepare(dir: &Path, spec: MemberSpec, mut record: Record) -> Self {
        let start = Instant::now();
        let prepared = check::prepare(&spec, &mut record.group);
        let mut shim = Self {
            dir: dir.to_owned(),
            spec,
            record,
            stage: Stage::Starting,
            notes: Vec::new(),
            events: Vec::new(),
            kill_asked: false,
            measure_at: start,
            beside: Beside::default(),
        };
        match prepared {
            Ok(prepared) => {
                shim.notes.clone_from(&prepared.notes);
                let until = start + Duration::from_millis(shim.spec.gate_deadline_ms.min(DEADLINE_MS_MAX));
                shim.stage = Stage::Gate { prepared: Box::new(prepared), until };
            }
            Err(Failure { class, detail }) => shim.finish(Exit::failed(class, detail), true),
        }
        // There is no connection yet; each is told the present state when it comes.
        shim.events.clear();
        shim
    }

    /// The present state, for a new connection.
    pub(super) fn present(&self) -> Vec<ShimEvent> {
        let Record { pid, start_time, ref boot_id, rank_pid, .. } = self.record;
        let mut events = vec![ShimEvent::Starting { pid, start_time, boot_id: boot_id.clone() }];
        let ready = ShimEvent::Ready { pid, start_time, notes: self.notes.clone() };
        match &self.stage {
            Stage::Starting => {}
            Stage::Gate { .. } => events.push(ready),
            Stage::Running { rank } => events.extend([ready, ShimEvent::Running { pid: rank.pid }]),
            Stage::Draining { .. } => {
                events.extend([ready].into_iter().chain(rank_pid.map(|pid| ShimEvent::Running { pid })));
            }
            Stage::Over { last, .. } => events.push(last.clone()),
        }
        events
    }

    /// What the connections are to be told.
    pub(super) fn take_events(&mut self) -> Vec<ShimEvent> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Gate { until, .. } => Some(*until),
            Stage::Starting => None,
            Stage::Running { .. } => self.spec.log_bytes_max.map(|_| self.measure_at),
            Stage::Draining { look_at, .. } => Some(*look_at),
            Stage::Over { unsaved: Some(_), save_at, .. } => Some(*save_at),
            Stage::Over { flush_until, .. } => Some(*flush_until),
        }
    }

    /// Nothing is left to do. An exit that cannot be written keeps the shim alive to tell it.
    pub(super) fn is_over(&self, all_flushed: bool) -> bool {
        match &self.stage {
            Stage::Over { unsaved, flush_until, .. } => {
                unsaved.is_none() && (all_flushed || Instant::now() >= *flush_until)
            }
            _ => false,
        }
    }

    pub(super) fn obey(&mut self, command: &Command) {
        match (command, &self.stage) {
            (Command::Release, Stage::Gate { .. }) => self.release(),
            (Command::Signal { number }, _) => self.advise(*number),
            (Command::RunBeside { name, argv }, _) => self.run_beside(name, argv),
            (Command::Terminate, Stage::Gate { .. }) => self.end_at_gate(SIGTERM),
            (Command::Kill, Stage::Gate { .. }) => self.end_at_gate(SIGKILL),
            (Command::Terminate, Stage::Running { .. }) => self.signal_all(SIGTERM),
            (Command::Kill, Stage::Running { .. } | Stage::Draining { .. }) => {
                self.kill_asked = true;
                self.kill_all();
            }
            // Done already: an order twice is the same as once.
            (Command::Release | Command::Terminate | Command::Kill, _) => {}
        }
    }

    /// What time and the end of children bring.
    pub(super) fn advance(&mut self) {
        let (childless, rank_exit) = self.collect_children();
        let now = Instant::now();
        self.bound_output(now);
        match &mut self.stage {
            Stage::Gate { until, .. } if now >= *until => {
                let why = format!("no release came within {} ms", self.spec.gate_deadline_ms);
                // Nobody asked for this end, so nothing is kept of it: the folder tells of a member that never
                // started.
                self.finish(Exit::failed(phalanx_model::FailureClass::StartUp, why), false);
            }
            Stage::Running { .. } => {
                if let Some(exit) = rank_exit {
                    let kill_at = now + Duration::from_millis(self.spec.term_grace_ms.min(DEADLINE_MS_MAX));
                    self.stage =
                        Stage::Draining { exit, kill_at, look_at: now, pause: LOOK_PAUSE, termed: false };
                    self.drain(childless);
                }
            }
            Stage::Draining { look_at, .. } if childless || now >= *look_at => self.drain(childless),
            Stage::Over { unsaved: Some(_), save_at, .. } if now >= *save_at => self.save(),
            _ => {}
        }
    }

    /// Cuts output that is more than is kept: half of that stays, so that not every look cuts.
    fn bound_output(&mut self, now: Instant) {
        let Some(max) = self.spec.log_bytes_max.filter(|_| now >= self.measure_at) else { return };
        if !matches!(self.stage, Stage::Running { .. } | Stage::Draining { .. }) {
            return;
        }
        self.measure_at = now + MEASURE_PAUSE;
        let log = &self.spec.log_path;
        let is_over = std::fs::metadata(log).is_ok_and(|meta| output::bytes_on_disk(&meta) > max);
        if is_over && let Err(e) = output::cut(log, max / 2) {
            complain(&format!("cannot cut the output: {e}"));
        }
    }

    /// Collects every ended child: the rank, and orphans that came to this subreaper. Says whether none is
    /// left, and how the rank ended if it did.
    fn collect_children(&mut self) -> (bool, Option<Exit>) {
        let mut rank_exit = None;
        loop {
            match sys::wait_any() {
                Wait::Ended(pid, status) if Some(pid) == self.record.rank_pid => {
                    rank_exit = Some(self.exit_of(status));
                }
                Wait::Ended(pid, _) => self.beside.ended(pid),
                Wait::Nothing => return (false, rank_exit),
                Wait::Childless => return (true, rank_exit),
            }
        }
    }

    fn exit_of(&self, status: ExitStatus) -> Exit {
        let mut exit = Exit {
            code: status.code(),
            signal: status.signal(),
            ended_ns: sys::boot_ns(),
            ..Exit::succeeded()
        };
        if !status.success() && !self.kill_asked && self.record.group.oom_kills() > 0 {
            exit.detail = self.spec.memory_bytes.map_or_else(
                || "the kernel ended a process of it: out of memory".to_owned(),
                |bytes| {
                    format!(
                        "the kernel ended a process of it: out of memory, with a limit of {bytes} bytes; ask for more \
                         with `memory` under `resources`"
                    )
                },
            );
        }
        exit
    }

    /// One look at what the rank left behind: first asked to end, then ended.
    fn drain(&mut self, childless: bool) {
        let left = self.others();
        let Stage::Draining { exit, kill_at, look_at, pause, termed } = &mut self.stage else { return };
        // A subreaper without children has no descendants; only a cgroup can still hold somebody.
        if childless && left.is_empty() {
            let exit = exit.clone();
            self.finish(exit, true);
            return;
        }
        let now = Instant::now();
        let kill = self.kill_asked || now >= *kill_at;
        *look_at = now + *pause;
        if !kill {
            *look_at = (*look_at).min(*kill_at);
        }
        *pause = (*pause * 2).min(LOOK_PAUSE_MAX);
        let first = !std::mem::replace(termed, true);
        if kill {
            self.kill_all();
        } else if first {
            self.signal_all(SIGTERM);
        }
    }

    /// The living of this member, without the shim.
    fn others(&self) -> BTreeSet<Process> {
        let own = self.record.pid;
        let mut found = self.record.group.processes();
        found.extend(processes::descendants(own));
        found.retain(|process| process.pid != own);
        found
    }

    fn signal_all(&self, number: i32) {
        for process in self.others() {
            let _ = process.signal(number);
            // One that is stopped would not hear it.
            let _ = process.signal(SIGCONT);
        }
    }

    fn kill_all(&self) {
        self.record.group.kill();
        processes::kill_round(|| self.others());
    }

    /// Only a rank that handles the signal gets it: by default most signals end a process.
    fn advise(&mut self, number: i32) {
        let (delivered, detail) = match &self.stage {
            Stage::Running { rank } if rank.handles(number) => match rank.signal(number) {
                Ok(true) => (true, String::new()),
                Ok(false) => (false, "the rank has ended".to_owned()),
                Err(e) => (false, e.to_string()),
            },
            Stage::Running { .. } => (false, format!("the rank has no handler for signal {number}")),
            _ => (false, "the rank is not running".to_owned()),
        };
        self.events.push(ShimEvent::Signalled { number, delivered, detail });
    }

    fn end_at_gate(&mut self, signal: i32) {
        let detail = "stopped at the gate; nothing of it ran".to_owned();
        self.finish(Exit { detail, ..Exit::by_signal(signal) }, true);
    }

    fn release(&mut self) {
        // On disk first: once it is set, a shim that is gone may have left processes.
        self.record.released = true;
        if let Err(e) = protocol::write_json(&self.dir, SHIM_FILE, &self.record) {
            let failure = Failure::infrastructure(format!("cannot write {SHIM_FILE}: {e}"));
            self.finish(Exit::failed(failure.class, failure.detail), true);
            return;
        }
        let Stage::Gate { prepared, .. } = std::mem::replace(&mut self.stage, Stage::Starting) else {
            return;
        };
        match self.launch(*prepared) {
            Ok(rank) => {
                self.record.rank_pid = Some(rank.pid);
                self.stage = Stage::Running { rank };
                if let Err(e) = protocol::write_json(&self.dir, SHIM_FILE, &self.record) {
                    complain(&format!("cannot write {SHIM_FILE}: {e}"));
                }
                self.events.push(ShimEvent::Running { pid: rank.pid });
            }
            Err(Failure { class, detail }) => self.finish(Exit::failed(class, detail), true),
        }
    }

    /// A process of the member: as its user, in its groups, with its environment.
    pub(super) fn command(&self, begin: Begin<'_>) -> Exec {
        let mut exec = Exec::new(begin.program);
        exec.args(begin.argv.iter().skip(1))
            .env_clear()
            .envs(&self.spec.env)
            .env(TOKEN_VARIABLE, &self.spec.token)
            .process_group(0);
        if let Some(name) = begin.argv.first() {
            exec.arg0(name);
        }
        let (uid, groups) = check::owner(&self.spec);
        let user = geteuid().is_root().then(|| (uid, Gid::from_raw(self.spec.gid), groups));
        sys::set_up_child(
            &mut exec,
            ChildSetup {
                must_join: begin.doors.must,
                may_join: begin.doors.may,
                user,
                no_new_privs: !uid.is_root(),
                workdir: begin.workdir,
                umask: self.spec.umask.map(Mode::from_bits_truncate),
                keep: begin.keep,
                shim: getpid(),
            },
        );
        exec
    }

    pub(super) const fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running { .. })
    }

    pub(super) const fn parts(&self) -> (&MemberSpec, &Record) {
        (&self.spec, &self.record)
    }

    /// To every connection, soon.
    pub(super) fn tell(&mut self, event: ShimEvent) {
        self.events.push(event);
    }

    /// Starts the rank's own process.
    fn launch(&self, prepared: Prepared) -> Result<Process, Failure> {
        let error = |e: io::Error| Failure::start_up(format!("cannot share the log: {e}"));
        let stderr = prepared.log.try_clone().map_err(error)?;
        let secrets: Vec<(String, String)> = self
            .spec
            .secrets
            .iter()
            .zip(&prepared.secrets)
            .map(|(secret, file)| {
                (format!("PHALANX_SECRET_{}_FD", secret.name), file.as_raw_fd().to_string())
            })
            .collect();
        let mut exec = self.command(Begin {
            program: &prepared.program,
            argv: &self.spec.argv,
            workdir: prepared.workdir,
            doors: prepared.doors,
            keep: prepared.secrets.into_iter().map(OwnedFd::from).collect(),
        });
        exec.envs(secrets).stdin(Stdio::null()).stdout(Stdio::from(prepared.log)).stderr(Stdio::from(stderr));
        let child = exec
            .spawn()
            .map_err(|e| Failure::start_up(format!("cannot start {}: {e}", prepared.program.display())))?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)).as_raw();
        // A child that nobody has collected yet keeps its pid, alive or not.
        let start_time = processes::stat(pid).map_or(0, |stat| stat.start_time);
        Ok(Process { pid, start_time })
    }

    /// The last process is gone, or there never was one.
    fn finish(&mut self, exit: Exit, keep: bool) {
        if let Err(e) = self.record.group.remove() {
            complain(&format!("a cgroup stays behind: {e}"));
        }
        let last = ShimEvent::of_exit(exit.clone());
        self.events.push(last.clone());
        let now = Instant::now();
        self.stage = Stage::Over {
            last,
            unsaved: keep.then_some(exit),
            save_at: now,
            flush_until: now + FLUSH_TIMEOUT,
        };
        self.save();
    }

    fn save(&mut self) {
        let Stage::Over { unsaved, save_at, .. } = &mut self.stage else { return };
        let Some(exit) = unsaved.take() else { return };
        if let Err(e) = protocol::write_json(&self.dir, EXIT_FILE, &exit) {
            complain(&format!("cannot write {EXIT_FILE}: {e}"));
            *unsaved = Some(exit);
            *save_at = Instant::now() + SAVE_PAUSE;
        }
    }
}

/// Ten years: a span that can be added to any instant.
const DEADLINE_MS_MAX: u64 = 10 * 365 * 24 * 3_600_000;
