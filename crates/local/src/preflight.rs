//! A command of the operator's that checks the GPUs of a gang before its ranks start.
//!
//! GPUs that do not pass are closed by their health, as after a bad Xid, and the engine places the gang elsewhere without counting
//! a retry. A command that cannot be run closes nothing, and the gang starts.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use phalanx_model::{DeviceMask, Grade, JobId, Node, NodeName, Timestamp};
use phalanx_node::IsolationChoice;
use phalanx_node::confined::{self, Confined, Leash, Outcome};
use tracing::{info, warn};

use crate::daemon::{Daemon, UpOptions, millis};
use crate::env;
use crate::launch::{self, Start};
use crate::notify::GUARD_VERB;

/// The command's own line is in the environment.
const LINE_VARIABLE: &str = "PHALANX_PREFLIGHT";
/// Runs it, and says the last line of its output: nobody waits for a reader of more.
const SCRIPT: &str =
    r#"said=$(eval "$PHALANX_PREFLIGHT" 2>&1); code=$?; printf '%s' "$said" | tail -n 1; exit $code"#;
/// What a shell says of a command that it cannot run.
const NOT_RUN: [i32; 2] = [126, 127];
/// What ranks need of the time before their deadline once the check has ended, and what the gate has beyond it.
const START_MS: u64 = 15_000;
/// What a test of GPUs may take of the machine.
const PIDS_MAX: u64 = 4_096;
const MEMORY_BYTES_MAX: u64 = 32 << 30;

/// The check of GPUs before ranks start.
#[derive(Clone, Debug)]
pub struct PreflightOptions {
    /// A command line for the shell.
    pub command: String,
    /// GPUs that passed are not checked again for so long.
    pub every: Duration,
    /// A check that takes longer has failed.
    pub timeout: Duration,
}

/// The check, and which GPUs passed it.
pub(crate) struct Preflight {
    /// Nothing where no GPU is checked.
    options: Option<PreflightOptions>,
    exe: PathBuf,
    isolation: IsolationChoice,
    mark: String,
    /// By node and number of the device.
    passed: Mutex<BTreeMap<(NodeName, u32), Timestamp>>,
    pub(crate) verdicts: Verdicts,
    /// Makes names of cgroups unique.
    count: AtomicU64,
    daemon: OnceLock<Weak<Daemon>>,
}

/// The GPUs of a gang on one node.
#[derive(Debug)]
pub(crate) struct Check {
    job: JobId,
    /// The start is given up so soon.
    time_left_ms: u64,
    node: NodeName,
    devices: DeviceMask,
    /// As the gang's ranks will see them.
    visible: env::Env,
}

/// What became of a check.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed(String),
    NotRun(String),
}

/// Checks by their verdict since the daemon started.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    pub(crate) passed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) not_run: AtomicU64,
}

impl Preflight {
    /// The check of a daemon with these options; `exe` has the hidden verb.
    pub(crate) fn of(options: &UpOptions, exe: PathBuf) -> Self {
        Self {
            options: options.preflight.clone(),
            exe,
            isolation: options.isolation.clone(),
            mark: launch::mark(&options.paths),
            passed: Mutex::default(),
            verdicts: Verdicts::default(),
            count: AtomicU64::new(0),
            daemon: OnceLock::new(),
        }
    }

    /// Whose health changes if GPUs do not pass.
    pub(crate) fn serve(&self, daemon: Weak<Daemon>) {
        let _ = self.daemon.set(daemon);
    }

    fn passed(&self) -> MutexGuard<'_, BTreeMap<(NodeName, u32), Timestamp>> {
        // What a panicking thread left are still times.
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The checks that a start needs now. GPUs that gangs share are not checked: others work on them.
    pub(crate) fn due(&self, now: Timestamp, start: &Start, nodes: &BTreeMap<NodeName, Node>) -> Vec<Check> {
        let Some(options) = &self.options else { return Vec::new() };
        let mut by_node: BTreeMap<&NodeName, DeviceMask> = BTreeMap::new();
        for slot in start.placement.slots.iter().filter(|slot| slot.part.is_none()) {
            let devices = by_node.entry(&slot.node).or_insert(DeviceMask::EMPTY);
            *devices = devices.union(slot.devices);
        }
        let every_ms = millis(options.every);
        let passed = self.passed();
        let has_passed = |node: &NodeName, device: u32| {
            let at = passed.get(&(node.clone(), device));
            at.is_some_and(|at| every_ms > 0 && now.since(*at) < every_ms)
        };
        let check = |(name, devices): (&NodeName, DeviceMask)| {
            let node = nodes.get(name)?;
            let is_due = devices.iter().any(|device| !has_passed(name, device));
            is_due.then(|| Check {
                job: start.job.id,
                time_left_ms: start.gate_deadline_ms,
                node: name.clone(),
                devices,
                visible: env::visible_devices(node, devices),
            })
        };
        by_node.into_iter().filter_map(check).collect()
    }

    /// Runs the checks, those of all nodes at once. Whether the gang is to start: none of its GPUs was closed. `None`: the
    /// daemon ends.
    pub(crate) fn run(&self, checks: &[Check], leash: &Leash) -> Option<bool> {
        let daemon = self.daemon.wait().upgrade()?;
        let verdicts: Vec<(&Check, Verdict)> = std::thread::scope(|scope| {
            let begin = |check| (check, scope.spawn(move || self.verdict(check, leash)));
            let running: Vec<_> = checks.iter().map(begin).collect();
            let panicked = || Verdict::NotRun("its thread panicked".to_owned());
            running
                .into_iter()
                .map(|(check, run)| (check, run.join().unwrap_or_else(|_| panicked())))
                .collect()
        });
        // The attempt is over, and what ended with it says nothing of its GPUs.
        if leash.is_let_go() {
            return Some(false);
        }
        let mut is_fit = true;
        for (check, verdict) in verdicts {
            is_fit &= self.judge(&daemon, check, verdict);
        }
        Some(is_fit)
    }

    /// Whether GPUs may be used.
    fn judge(&self, daemon: &Daemon, check: &Check, verdict: Verdict) -> bool {
        let Check { job, node, devices, .. } = check;
        let verdicts = &self.verdicts;
        match verdict {
            Verdict::Passed => {
                verdicts.passed.fetch_add(1, Ordering::Relaxed);
                let now = daemon.clock.now();
                self.passed().extend(devices.iter().map(|device| ((node.clone(), device), now)));
                daemon.health.passed_preflight(daemon, node, *devices);
                true
            }
            Verdict::NotRun(why) => {
                verdicts.not_run.fetch_add(1, Ordering::Relaxed);
                warn!(%node, %devices, why, "the preflight was not run, and the gang starts");
                true
            }
            Verdict::Failed(why) => {
                verdicts.failed.fetch_add(1, Ordering::Relaxed);
                info!(%job, %node, %devices, why, "GPUs did not pass the preflight");
                self.passed().retain(|(of, device), _| of != node || !devices.contains(*device));
                !close(daemon, check, &why)
            }
        }
    }

    fn verdict(&self, check: &Check, leash: &Leash) -> Verdict {
        let Some(options) = &self.options else { return Verdict::Passed };
        let timeout_ms = millis(options.timeout);
        if check.time_left_ms < timeout_ms.saturating_add(START_MS) {
            let why = "the start deadline of the job leaves no time for it";
            return Verdict::NotRun(why.to_owned());
        }
        let env = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("PHALANX_NODE", check.node.to_string()),
            ("PHALANX_DEVICES", check.devices.to_string()),
            ("PHALANX_JOB_ID", check.job.0.to_string()),
            (LINE_VARIABLE, options.command.clone()),
        ];
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value));
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let confined = Confined {
            token: format!("{}-preflight-{}-{number}", self.mark, std::process::id()),
            isolation: self.isolation.clone(),
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            groups: Vec::new(),
            argv: ["/bin/sh", "-c", SCRIPT].map(str::to_owned).to_vec(),
            env: env.chain(check.visible.clone()).collect(),
            stdin: String::new(),
            // It runs as the daemon does.
            changes_user_itself: true,
            pids_max: PIDS_MAX,
            pids_of_user: None,
            memory_bytes: MEMORY_BYTES_MAX,
            timeout_ms,
        };
        match confined::run_on(&self.exe, OsStr::new(GUARD_VERB), &confined, leash) {
            Ok(outcome) => verdict(outcome, options.timeout),
            Err(error) => Verdict::NotRun(error.to_string()),
        }
    }
}

fn verdict(outcome: Outcome, timeout: Duration) -> Verdict {
    let with = |what: String, said: &str| {
        let said = said.trim();
        if said.is_empty() { what } else { format!("{what}: {said}") }
    };
    match outcome {
        Outcome::Ended { code: Some(0), .. } => Verdict::Passed,
        Outcome::Ended { code: Some(code), said, .. } if NOT_RUN.contains(&code) => {
            Verdict::NotRun(with(format!("exit code {code}"), &said))
        }
        Outcome::Ended { code: Some(code), said, .. } => {
            Verdict::Failed(with(format!("exit code {code}"), &said))
        }
        Outcome::Ended { signal, said, .. } => {
            Verdict::Failed(with(format!("signal {}", signal.unwrap_or_default()), &said))
        }
        Outcome::TimedOut => Verdict::Failed(format!("no end within {} s", timeout.as_secs())),
        Outcome::Failed { why } => Verdict::NotRun(why),
    }
}

/// Closes GPUs that did not pass. Whether one is closed by that: the circuit breaker may keep them open.
fn close(daemon: &Daemon, check: &Check, why: &str) -> bool {
    let Check { node, devices, .. } = check;
    if daemon.health.failed_preflight(daemon, node, *devices, why).is_err() {
        return true;
    }
    let is_closed = |line: &phalanx_health::Line| {
        line.node == *node
            && line.device.is_some_and(|device| devices.contains(device))
            && line.grade >= Grade::DrainNow
    };
    daemon.health.view(|grader| grader.report().iter().any(is_closed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_cannot_be_run_is_no_failure() {
        let ended = |code, signal, said: &str| Outcome::Ended { code, signal, said: said.to_owned() };
        let of = |outcome| verdict(outcome, Duration::from_secs(20));
        let failed = |why: &str| Verdict::Failed(why.to_owned());
        assert_eq!(of(ended(Some(0), None, "fine")), Verdict::Passed);
        assert_eq!(of(ended(Some(3), None, "GPU 2: 40 GB/s\n")), failed("exit code 3: GPU 2: 40 GB/s"));
        assert_eq!(of(ended(None, Some(9), "")), failed("signal 9"));
        assert_eq!(of(Outcome::TimedOut), failed("no end within 20 s"));
        for code in NOT_RUN {
            assert!(matches!(of(ended(Some(code), None, "not found")), Verdict::NotRun(_)));
        }
        assert!(matches!(of(Outcome::Failed { why: "no cgroup".to_owned() }), Verdict::NotRun(_)));
    }
}
