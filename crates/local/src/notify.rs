//! Tells somebody when a job starts, ends or is displaced: a command of the owner's, or a webhook.
//!
//! Never in the way of scheduling: threads of its own, bounded queues, a time-out each.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use phalanx_model::Owner;

/// Notices of one owner that wait at most; beyond that they are dropped, and that is said.
const WAITING_MAX: usize = 256;
const TIMEOUT: Duration = Duration::from_secs(10);

/// One notice.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    /// A URL (`http://`, `https://`) or a command line.
    pub(crate) to: String,
    pub(crate) owner: Owner,
    pub(crate) job: u64,
    pub(crate) name: String,
    /// start, end or preemption
    pub(crate) event: &'static str,
    pub(crate) detail: String,
    /// How it ended, at the end: the word and the exit code.
    pub(crate) ending: Option<(&'static str, i32)>,
}

/// One queue and one thread per owner: a slow command of one user holds up nobody else.
#[derive(Clone)]
pub(crate) struct Notifier {
    queues: Arc<Mutex<BTreeMap<u32, SyncSender<Notice>>>>,
    warn: fn(&str),
}

impl Notifier {
    /// `warn` gets what could not be delivered.
    pub(crate) fn start(warn: fn(&str)) -> Self {
        Self { queues: Arc::default(), warn }
    }

    /// Hands over a notice; false when too many of this owner wait.
    pub(crate) fn send(&self, notice: Notice) -> bool {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = match queues.entry(notice.owner.uid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let (sender, receiver) = sync_channel(WAITING_MAX);
                let warn = self.warn;
                let deliver = move || deliver_all(&receiver, &warn);
                if std::thread::Builder::new().name("notices".to_owned()).spawn(deliver).is_err() {
                    return false;
                }
                new.insert(sender)
            }
        };
        queue.try_send(notice).is_ok()
    }
}

fn deliver_all(notices: &Receiver<Notice>, warn: &dyn Fn(&str)) {
    for notice in notices {
        let done = if notice.to.starts_with("http://") || notice.to.starts_with("https://") {
            post(&notice)
        } else {
            run(&notice)
        };
        if let Err(why) = done {
            warn(&format!("job {}: the {} notice was not delivered: {why}", notice.job, notice.event));
        }
    }
}

fn post(notice: &Notice) -> Result<(), String> {
    let body = serde_json::json!({
        "version": crate::protocol::VERSION,
        "job": notice.job,
        "name": notice.name,
        "owner": notice.owner.name,
        "event": notice.event,
        "detail": notice.detail,
        "state": notice.ending.map(|(word, _)| word),
        "exit_code": notice.ending.map(|(_, code)| code),
    });
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build().into();
    let sent = agent.post(&notice.to).header("content-type", "application/json").send(body.to_string());
    // The URL may hold a token: the error is told without it.
    sent.map(drop).map_err(|e| match e {
        ureq::Error::StatusCode(code) => format!("the webhook answered {code}"),
        _ => "the webhook could not be reached".to_owned(),
    })
}

/// As the job's owner, with the event in the environment.
fn run(notice: &Notice) -> Result<(), String> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &notice.to]).env_clear().current_dir("/");
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", crate::user::home(notice.owner.uid));
    command.env("PHALANX_JOB_ID", notice.job.to_string()).env("PHALANX_JOB_NAME", &notice.name);
    command.env("PHALANX_EVENT", notice.event).env("PHALANX_DETAIL", &notice.detail);
    if let Some((word, code)) = notice.ending {
        command.env("PHALANX_ENDING", word).env("PHALANX_EXIT_CODE", code.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    if nix::unistd::geteuid().is_root() {
        command.uid(notice.owner.uid).gid(notice.owner.gid);
    }
    let mut child = command.spawn().map_err(|e| format!("cannot run it: {e}"))?;
    let until = Instant::now() + TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("it ended with {status}")),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
                let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
                let _ = child.wait();
                return Err(format!("it did not end within {} s", TIMEOUT.as_secs()));
            }
            Err(e) => return Err(e.to_string()),
        }
    }
}
