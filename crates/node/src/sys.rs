//! The system calls that have no safe wrapper. The only file of this crate with `unsafe` in it.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::Mode;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Gid, Pid, Uid};

use crate::terminal::Size;

/// Highest signal number of Linux (`_NSIG`), realtime signals included.
pub(crate) const SIGNAL_MAX: i32 = 64;

/// Gives every signal its default action: what a daemon ignores, a rank must not inherit as ignored.
pub(crate) fn reset_signals() {
    for number in 1..=SIGNAL_MAX {
        // SAFETY: setting a default action installs no handler. The calls for KILL and STOP and for the two
        // that libc keeps to itself fail without effect.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// Closes every file descriptor from 3 up: whatever a daemon leaked. To be called before any is opened.
/// A kernel without the call (before 5.9) keeps them open.
pub(crate) fn close_inherited() {
    // SAFETY: called first thing in the shim, when no object of this process owns a descriptor above 2.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// What one `waitpid` for any child found.
pub(crate) enum Wait {
    Ended(i32, ExitStatus),
    /// Children live, and none has ended.
    Nothing,
    /// No child at all, alive or dead. For a subreaper this means: no descendant at all.
    Childless,
}

/// Collects one ended child. (`nix` would refuse a child that ended by a realtime signal.)
pub(crate) fn wait_any() -> Wait {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
        0 => Wait::Nothing,
        pid if pid > 0 => Wait::Ended(pid, ExitStatus::from_raw(status)),
        _ if io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) => Wait::Childless,
        _ => Wait::Nothing,
    }
}

/// Nanoseconds of the boot clock.
pub(crate) fn boot_ns() -> Option<u64> {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).map(std::time::Duration::from).ok()?;
    u64::try_from(time.as_nanos()).ok()
}

/// A handle on a process that its pid's next owner can never answer for.
pub(crate) fn open_process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes integers alone.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match RawFd::try_from(fd) {
        // SAFETY: the call has just made this descriptor, and nobody else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Signals a process by its handle.
pub(crate) fn signal_process(process: &OwnedFd, number: i32) -> io::Result<()> {
    // SAFETY: a null siginfo is allowed and means what `kill` would send.
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            number,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Signals whoever has this pid.
pub(crate) fn signal_pid(pid: i32, number: i32) -> io::Result<()> {
    // SAFETY: takes integers alone.
    if unsafe { libc::kill(pid, number) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a child does to itself between fork and exec.
pub(crate) struct ChildSetup {
    /// `cgroup.procs` files that must take the child.
    pub(crate) must_join: Vec<File>,
    /// `cgroup.procs` files of limits: best effort.
    pub(crate) may_join: Vec<File>,
    /// User to become; `None` keeps the shim's.
    pub(crate) user: Option<(Uid, Gid, Vec<Gid>)>,
    pub(crate) no_new_privs: bool,
    pub(crate) workdir: CString,
    /// File mode mask; `None` keeps the shim's.
    pub(crate) umask: Option<Mode>,
    /// Descriptors that stay open over the exec.
    pub(crate) keep: Vec<OwnedFd>,
    pub(crate) shim: Pid,
}

impl ChildSetup {
    /// Only system calls: no allocation, no lock.
    fn apply(&self) -> io::Result<()> {
        for mut group in &self.must_join {
            group.write_all(b"0")?;
        }
        for mut group in &self.may_join {
            let _ = group.write_all(b"0");
        }
        if let Some((uid, gid, groups)) = &self.user {
            nix::unistd::setgroups(groups)?;
            nix::unistd::setresgid(*gid, *gid, *gid)?;
            nix::unistd::setresuid(*uid, *uid, *uid)?;
        }
        if self.no_new_privs {
            nix::sys::prctl::set_no_new_privs()?;
        }
        // After the change of user, which clears it. Should the shim have died before, nobody would be told.
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
        if nix::unistd::getppid() != self.shim {
            return Err(nix::errno::Errno::ESRCH.into());
        }
        nix::sys::signal::SigSet::empty().thread_set_mask()?;
        nix::unistd::chdir(self.workdir.as_c_str())?;
        if let Some(mask) = self.umask {
            nix::sys::stat::umask(mask);
        }
        for fd in &self.keep {
            nix::fcntl::fcntl(fd, nix::fcntl::F_SETFD(nix::fcntl::FdFlag::empty()))?;
        }
        Ok(())
    }
}

/// Lets the command's child set itself up before it becomes the program.
pub(crate) fn set_up_child(command: &mut Command, setup: ChildSetup) {
    // SAFETY: `apply` makes system calls alone, which are safe between fork and exec; the shim has one thread.
    unsafe { command.pre_exec(move || setup.apply()) };
}

/// Readies a command whose work can wait: its process gets the CPU time and the memory that others leave, no more than so many
/// seconds of CPU time, and ends with the thread that starts it.
pub fn set_up_background(command: &mut Command, cpu_s: u64) {
    let parent = nix::unistd::getpid();
    let set_up = move || {
        // SAFETY: takes integers alone. A machine that refuses runs it with the priority of its parent.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
        setrlimit(Resource::RLIMIT_CPU, cpu_s, cpu_s)?;
        setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
        // If memory runs out, the kernel ends this process first.
        if let Ok(file) = open(c"/proc/self/oom_score_adj", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())
        {
            let _ = nix::unistd::write(file, b"1000");
        }
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
        if nix::unistd::getppid() != parent {
            return Err(nix::errno::Errno::ESRCH.into());
        }
        nix::sys::signal::SigSet::empty().thread_set_mask()?;
        Ok(())
    };
    // SAFETY: system calls alone, without allocation or lock, which are safe between fork and exec.
    unsafe { command.pre_exec(set_up) };
}

/// Readies a command of a keeper: a session of its own with the terminal that is its standard input, or else a
/// process group of its own; with no signal blocked.
pub(crate) fn set_up_command(command: &mut Command, has_terminal: bool) {
    let set_up = move || {
        if has_terminal {
            nix::unistd::setsid()?;
            // SAFETY: takes integers alone; standard input is the terminal.
            if unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        } else {
            nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
        }
        nix::sys::signal::SigSet::empty().thread_set_mask()?;
        Ok(())
    };
    // SAFETY: system calls alone, without allocation or lock, which are safe between fork and exec.
    unsafe { command.pre_exec(set_up) };
}

/// Sets the size of a terminal's window; its programs hear SIGWINCH where it changes.
pub(crate) fn set_window_size(terminal: &impl AsRawFd, size: Size) -> io::Result<()> {
    let window = libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `window` is what this request reads.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const window) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The size of a terminal's window; `None` of what is no terminal, and of one that does not know.
pub(crate) fn window_size(terminal: &impl AsRawFd) -> Option<Size> {
    let mut window = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `window` is a valid place for the result.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut window) };
    let size = Size { rows: window.ws_row, columns: window.ws_col };
    (done == 0 && size.rows > 0 && size.columns > 0).then_some(size)
}

/// Ends this process by a signal, as another ended. Returns where the signal ends nothing.
pub(crate) fn end_by(signal: i32) {
    reset_signals();
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    let _ = signal_pid(std::process::id().try_into().unwrap_or(0), signal);
}
