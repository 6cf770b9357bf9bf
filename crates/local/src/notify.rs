//! Tells somebody when a job starts, ends or is displaced: a command of the owner's, or a webhook.
//!
//! Never in the way of scheduling: threads of its own, bounded queues, a time-out each. Both run with the rights of the
//! job's owner alone: a request of root to a service of this host would be trusted, and use credentials of root.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use phalanx_model::{Job, Owner};
use phalanx_node::IsolationChoice;
use phalanx_node::confined::{self, Confined, Outcome, become_user};
use serde::{Deserialize, Serialize};

use crate::Paths;
use crate::launch;
use crate::limits::Limits;
use crate::share;
use crate::threads;
use crate::user;

/// Notices of one owner that wait at most; beyond that they are dropped, and that is said.
const WAITING_MAX: usize = 256;
const TIMEOUT: Duration = Duration::from_secs(10);
/// What a command may take: a script that calls `curl` or `mail`, and no more.
const PIDS_MAX: u64 = 64;
const MEMORY_BYTES_MAX: u64 = 256 << 20;
/// Hidden verbs of the executable: [`confined::main`] and [`post`].
pub(crate) const GUARD_VERB: &str = "__confine";
const POST_VERB: &str = "__post";
/// The command's own line is in the environment, which only the owner can read: it may hold a token.
const LINE_VARIABLE: &str = "PHALANX_NOTIFY";
/// Proxies of the daemon's environment, for webhooks.
const PROXY_VARIABLES: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// One notice.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    /// A URL (`http://`, `https://`) or a command line.
    pub(crate) to: String,
    pub(crate) owner: Owner,
    pub(crate) job: u64,
    pub(crate) name: String,
    /// start, end, preemption or idle
    pub(crate) event: &'static str,
    pub(crate) detail: String,
    /// How it ended, at the end: the word and the exit code.
    pub(crate) ending: Option<(&'static str, i32)>,
}

impl Notice {
    /// `None` if the job does not say how its owner is notified.
    pub(crate) fn of(job: &Job, event: &'static str, detail: String) -> Option<Self> {
        let to = job.gangs.iter().find_map(|gang| gang.program.notify.clone())?;
        let (owner, name) = (job.owner.clone(), job.name.to_string());
        Some(Self { to, owner, job: job.id.0, name, event, detail, ending: None })
    }
}

/// How notices are delivered on this machine.
#[derive(Debug)]
struct Means {
    exe: PathBuf,
    isolation: IsolationChoice,
    mark: String,
    limits: Limits,
    /// Makes names of cgroups unique.
    count: AtomicU64,
}

/// One queue and one thread per owner: a slow command of one user holds up nobody else.
#[derive(Clone)]
pub(crate) struct Notifier {
    queues: Arc<Mutex<BTreeMap<u32, SyncSender<Notice>>>>,
    means: Arc<Means>,
    warn: fn(&str),
}

impl Notifier {
    /// `warn` gets what could not be delivered; `exe` has the hidden verbs.
    pub(crate) fn start(
        warn: fn(&str),
        paths: &Paths,
        exe: PathBuf,
        isolation: IsolationChoice,
        limits: Limits,
    ) -> Self {
        let means = Means { exe, isolation, mark: launch::mark(paths), limits, count: AtomicU64::new(0) };
        Self { queues: Arc::default(), means: Arc::new(means), warn }
    }

    /// Hands over a notice; false when too many of this owner wait.
    pub(crate) fn send(&self, notice: Notice) -> bool {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = match queues.entry(notice.owner.uid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let (sender, receiver) = sync_channel(WAITING_MAX);
                let (warn, means) = (self.warn, Arc::clone(&self.means));
                let deliver = move || deliver_all(&receiver, &means, &warn);
                if threads::single("notices", deliver).is_err() {
                    return false;
                }
                new.insert(sender)
            }
        };
        queue.try_send(notice).is_ok()
    }
}

fn deliver_all(notices: &Receiver<Notice>, means: &Means, warn: &dyn Fn(&str)) {
    for notice in notices {
        if let Err(why) = means.deliver(&notice) {
            warn(&format!("job {}: the {} notice was not delivered: {why}", notice.job, notice.event));
        }
    }
}

impl Means {
    fn deliver(&self, notice: &Notice) -> Result<(), String> {
        let is_url = notice.to.starts_with("http://") || notice.to.starts_with("https://");
        let confined = if is_url { self.webhook(notice)? } else { self.command(notice)? };
        let outcome = confined::run(&self.exe, OsStr::new(GUARD_VERB), &confined)
            .map_err(|e| format!("cannot run it: {e}"))?;
        match outcome {
            Outcome::Ended { code: Some(0), .. } => Ok(()),
            // The program is ours, and it says why.
            Outcome::Ended { said, .. } if is_url && !said.is_empty() => Err(said),
            Outcome::Ended { code: Some(code), .. } => Err(format!("it ended with exit code {code}")),
            Outcome::Ended { signal, .. } => {
                Err(format!("it ended by signal {}", signal.unwrap_or_default()))
            }
            Outcome::TimedOut => Err(format!("it did not end within {} s", TIMEOUT.as_secs())),
            Outcome::Failed { why } => Err(why),
        }
    }

    /// A command line for the shell, with the event in the environment.
    fn command(&self, notice: &Notice) -> Result<Confined, String> {
        let (confined, home) = self.confined(notice)?;
        let mut env = BTreeMap::from(
            [
                ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
                ("HOME", home),
                ("PHALANX_JOB_ID", notice.job.to_string()),
                ("PHALANX_JOB_NAME", notice.name.clone()),
                ("PHALANX_EVENT", notice.event.to_owned()),
                ("PHALANX_DETAIL", notice.detail.replace('\0', " ")),
                (LINE_VARIABLE, notice.to.clone()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        if let Some((word, code)) = notice.ending {
            env.insert("PHALANX_ENDING".to_owned(), word.to_owned());
            env.insert("PHALANX_EXIT_CODE".to_owned(), code.to_string());
        }
        let argv = ["/bin/sh".to_owned(), "-c".to_owned(), format!("eval \"${LINE_VARIABLE}\"")];
        Ok(Confined { argv: argv.to_vec(), env, ..confined })
    }

    fn webhook(&self, notice: &Notice) -> Result<Confined, String> {
        let body = serde_json::json!({
            "version": phalanx_api::protocol::VERSION,
            "job": notice.job,
            "name": notice.name,
            "owner": notice.owner.name,
            "event": notice.event,
            "detail": notice.detail,
            "state": notice.ending.map(|(word, _)| word),
            "exit_code": notice.ending.map(|(_, code)| code),
        });
        let exe = self.exe.to_str().ok_or("the path of this program is not UTF-8")?;
        let (confined, _) = self.confined(notice)?;
        let Confined { uid, gid, groups, .. } = &confined;
        let post = Post {
            uid: *uid,
            gid: *gid,
            groups: groups.clone(),
            url: notice.to.clone(),
            body: body.to_string(),
        };
        let proxy = |name: &&str| Some(((*name).to_owned(), std::env::var(name).ok()?));
        Ok(Confined {
            argv: vec![exe.to_owned(), POST_VERB.to_owned()],
            env: PROXY_VARIABLES.iter().filter_map(proxy).collect(),
            stdin: serde_json::to_string(&post).map_err(|e| e.to_string())?,
            changes_user_itself: true,
            ..confined
        })
    }

    /// Nothing yet, as the owner of the notice's job; and the owner's home.
    fn confined(&self, notice: &Notice) -> Result<(Confined, String), String> {
        let Owner { uid, gid, .. } = notice.owner;
        // With fewer groups it would do something else.
        let account = user::account(uid, gid).map_err(|e| e.to_string())?;
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let confined = Confined {
            token: format!("{}-notice-{}-{number}", self.mark, std::process::id()),
            isolation: self.isolation.clone(),
            uid,
            gid,
            groups: account.groups,
            argv: Vec::new(),
            env: BTreeMap::new(),
            stdin: String::new(),
            changes_user_itself: false,
            pids_max: PIDS_MAX,
            pids_of_user: Some(self.limits.pids_or(share::kernel_pids())),
            memory_bytes: MEMORY_BYTES_MAX,
            timeout_ms: u64::try_from(TIMEOUT.as_millis()).unwrap_or(u64::MAX),
        };
        Ok((confined, account.home))
    }
}

/// One request to a webhook, and whose it is.
#[derive(Serialize, Deserialize)]
struct Post {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// May hold a token.
    url: String,
    body: String,
}

/// The hidden verb that sends the request which stdin names, as the user whom it names. Says on stdout what went wrong.
#[must_use]
pub fn post() -> ExitCode {
    match read_post().and_then(|post| send(&post)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stdout(), "{why}");
            ExitCode::FAILURE
        }
    }
}

fn read_post() -> Result<Post, String> {
    let mut text = Vec::new();
    io::stdin()
        .take(REQUEST_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|e| format!("cannot read stdin: {e}"))?;
    serde_json::from_slice(&text).map_err(|e| format!("stdin has no request: {e}"))
}

fn send(post: &Post) -> Result<(), String> {
    // Before anything of the network is touched.
    become_user(post.uid, post.gid, &post.groups)
        .map_err(|e| format!("cannot become uid {}: {e}", post.uid))?;
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build().into();
    let sent = agent.post(&post.url).header("content-type", "application/json").send(&post.body);
    // The URL may hold a token: the error is told without it.
    sent.map(drop).map_err(|e| match e {
        ureq::Error::StatusCode(code) => format!("the webhook answered {code}"),
        _ => "the webhook could not be reached".to_owned(),
    })
}
