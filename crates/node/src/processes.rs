//! What `/proc` says about processes, and signals that cannot hit a pid's next owner.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use crate::sys;

/// Longest environment that is read of a process; the kernel allows a quarter of the stack limit, 2 MiB by
/// default.
const ENVIRON_BYTES_MAX: u64 = 8 << 20;
/// How often processes that appear while others are being stopped are looked for. A tree that still grows
/// after that is met again in the next round.
const STOP_ROUNDS: u32 = 16;

/// A process, beyond doubt: pids are used again, a pid with its start time is not (within one boot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`: clock ticks from boot.
    pub start_time: u64,
}

/// The fields of `/proc/PID/stat` that are used here (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: char,
    pub(crate) parent: i32,
    /// Threads that still run; a leader that ended before them reads as a zombie.
    pub(crate) threads: u32,
    pub(crate) start_time: u64,
    /// CPU time of the process and of its children that ended and were waited for, in ticks of [`TICK_MS`].
    pub(crate) cpu_ticks: u64,
}

/// A tick in which `/proc` counts CPU time: `USER_HZ` is 100 wherever there are GPUs (proc_pid_stat(5), time(7)).
const TICK_MS: u64 = 10;

impl Stat {
    /// The name in parentheses may hold anything, so fields count from the last parenthesis: the state is
    /// field 3.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let first = fields.nth(14 - 5)?.parse().ok()?;
        let cpu_ticks = fields.by_ref().take(17 - 14).try_fold(first, |sum: u64, field| {
            field.parse().ok().map(|ticks: u64| sum.saturating_add(ticks))
        })?;
        let threads = fields.nth(20 - 18)?.parse().ok()?;
        let start_time = fields.nth(22 - 21)?.parse().ok()?;
        Some(Self { state, parent, threads, start_time, cpu_ticks })
    }

    /// A zombie runs nothing any more, unless only its first thread has ended.
    pub(crate) const fn is_alive(self) -> bool {
        match self.state {
            'X' => false,
            'Z' => self.threads > 1,
            _ => true,
        }
    }
}

pub(crate) fn stat(pid: i32) -> Option<Stat> {
    Stat::parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// Tells one boot from another.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

impl Process {
    /// The process that has this pid now; none when it is gone or a zombie.
    #[must_use]
    pub fn find(pid: i32) -> Option<Self> {
        let stat = stat(pid).filter(|s| s.is_alive())?;
        Some(Self { pid, start_time: stat.start_time })
    }

    #[must_use]
    pub fn is_alive(self) -> bool {
        Self::find(self.pid) == Some(self)
    }

    /// Sends a signal to this process and to no other. False when it is gone.
    pub(crate) fn signal(self, number: i32) -> io::Result<bool> {
        let gone = |e: &io::Error| e.raw_os_error() == Some(nix::libc::ESRCH);
        let handle = match sys::open_process(self.pid) {
            Ok(handle) => handle,
            Err(e) if gone(&e) => return Ok(false),
            // Sandboxed kernels may not have handles; what is left then is to look first.
            Err(e) if e.raw_os_error() == Some(nix::libc::ENOSYS) => {
                return if self.is_alive() {
                    sys::signal_pid(self.pid, number).map(|()| true)
                } else {
                    Ok(false)
                };
            }
            Err(e) => return Err(e),
        };
        // The handle holds whoever had the pid when it was opened: so look only now whether that was this one.
        if !self.is_alive() {
            return Ok(false);
        }
        match sys::signal_process(&handle, number) {
            Ok(()) => Ok(true),
            Err(e) if gone(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether it has a handler for the signal (`SigCgt` in `/proc/PID/status`).
    pub(crate) fn handles(self, number: i32) -> bool {
        let Ok(status) = fs::read_to_string(format!("/proc/{}/status", self.pid)) else { return false };
        self.is_alive() && catches(&status, number)
    }
}

/// Bit `number - 1` of the hexadecimal mask `SigCgt`.
fn catches(status: &str, number: i32) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    (1..=64).contains(&number) && mask >> (number - 1) & 1 == 1
}

/// Every process there is, zombies included.
fn all() -> BTreeMap<i32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect()
}

/// The living among the roots' children, their children and so on; without the roots. A process whose parent
/// ends during the look may be missed by this look; it is seen by the next.
fn descendants_in(all: &BTreeMap<i32, Stat>, roots: &BTreeSet<i32>) -> BTreeSet<Process> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (pid, stat) in all {
        children.entry(stat.parent).or_default().push(*pid);
    }
    let (mut seen, mut todo) = (roots.clone(), roots.iter().copied().collect::<Vec<_>>());
    while let Some(parent) = todo.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if seen.insert(*child) {
                todo.push(*child);
            }
        }
    }
    seen.difference(roots).filter_map(|pid| living(*pid, all.get(pid)?)).collect()
}

fn living(pid: i32, stat: &Stat) -> Option<Process> {
    stat.is_alive().then_some(Process { pid, start_time: stat.start_time })
}

/// The living below one process.
pub(crate) fn descendants(root: i32) -> BTreeSet<Process> {
    descendants_in(&all(), &BTreeSet::from([root]))
}

/// CPU time of a process and of all below it, those that ended included: it only grows while the process lives.
pub(crate) fn cpu_ms(root: Process) -> Option<u64> {
    let all = all();
    let own = all.get(&root.pid).filter(|stat| stat.start_time == root.start_time)?;
    let below = descendants_in(&all, &BTreeSet::from([root.pid]));
    let ticks = below.iter().filter_map(|process| all.get(&process.pid)).map(|stat| stat.cpu_ticks);
    Some(ticks.fold(own.cpu_ticks, u64::saturating_add).saturating_mul(TICK_MS))
}

/// The living whose environment holds `variable=value`, and their descendants. Never this process itself.
pub(crate) fn with_environment(variable: &str, value: &str) -> BTreeSet<Process> {
    let entry = format!("{variable}={value}");
    let own = std::process::id();
    let all = all();
    let holds = |pid: i32| {
        let mut environ = Vec::new();
        fs::File::open(format!("/proc/{pid}/environ"))
            .and_then(|file| file.take(ENVIRON_BYTES_MAX).read_to_end(&mut environ))
            .is_ok_and(|_| environ.split(|byte| *byte == 0).any(|text| text == entry.as_bytes()))
    };
    let is_self = |pid: i32| u32::try_from(pid) == Ok(own);
    let roots: BTreeSet<i32> = all.keys().copied().filter(|pid| !is_self(*pid) && holds(*pid)).collect();
    let mut found = descendants_in(&all, &roots);
    found.extend(roots.iter().filter_map(|pid| living(*pid, all.get(pid)?)));
    found.retain(|process| !is_self(process.pid));
    found
}

/// One round of ending what `list` names. All are stopped first, until nobody new appears, so that none can
/// fork ahead of the kill.
pub(crate) fn kill_round(list: impl Fn() -> BTreeSet<Process>) {
    let mut stopped = BTreeSet::new();
    for _ in 0..STOP_ROUNDS {
        let new: Vec<Process> = list().difference(&stopped).copied().collect();
        if new.is_empty() {
            break;
        }
        for process in new {
            let _ = process.signal(nix::libc::SIGSTOP);
            stopped.insert(process);
        }
    }
    for process in stopped {
        let _ = process.signal(nix::libc::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let text = "12 (a) b (c) S 7 12 12 0 -1 4194560 1 0 0 0 5 6 7 8 20 0 1 0 98765 1 1 1";
        let stat = Stat { state: 'S', parent: 7, threads: 1, start_time: 98765, cpu_ticks: 26 };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("12 (a S 7"), None);
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_alive() {
        let zombie = Stat { state: 'Z', parent: 1, threads: 1, start_time: 1, cpu_ticks: 0 };
        assert!(!zombie.is_alive());
        assert!(Stat { threads: 2, ..zombie }.is_alive());
    }

    #[test]
    fn the_mask_of_caught_signals_counts_from_one() {
        let status = "Name:\tx\nSigIgn:\tffffffffffffffff\nSigCgt:\t0000000000000200\n";
        assert!(catches(status, 10));
        assert!(![9, 11, 0, 65, i32::MIN, i32::MAX].iter().any(|n| catches(status, *n)));
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let own = Process::find(i32::try_from(std::process::id()).unwrap()).unwrap();
        let before = cpu_ms(own).unwrap();
        while cpu_ms(own).unwrap() < before + 3 * TICK_MS {}
        assert_eq!(cpu_ms(Process { start_time: own.start_time + 1, ..own }), None);
    }

    #[test]
    fn another_start_time_is_another_process() {
        let own = Process::find(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.is_alive());
        let former = Process { start_time: own.start_time + 1, ..own };
        assert!(!former.is_alive());
        // Would end this very test.
        assert!(!former.signal(nix::libc::SIGKILL).unwrap());
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,200}", number: i32) {
            let _ = Stat::parse(&text);
            let _ = catches(&format!("SigCgt:{text}"), number);
        }

        /// Even a snapshot with cycles, as reads at different times can show, is walked once.
        #[test]
        fn a_tree_is_walked_once(parents in proptest::collection::vec(0..20i32, 20)) {
            let all: BTreeMap<i32, Stat> = (0..20).zip(parents)
                .map(|(pid, parent)| (pid, Stat { state: 'S', parent, threads: 1, start_time: 1, cpu_ticks: 0 })).collect();
            let found = descendants_in(&all, &BTreeSet::from([3]));
            for process in &found {
                let parent = all[&process.pid].parent;
                prop_assert!(parent == 3 || found.iter().any(|p| p.pid == parent));
            }
        }
    }
}
