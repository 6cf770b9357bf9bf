//! What each verb does, and who may.

mod advise;
mod again;
mod bill;
mod calendar;
mod defrag;
mod file;
mod health;
mod list;
mod nodes;
mod overview;
mod queues;
mod tasks;
pub(crate) mod tell;
mod terminal;
mod turn;
mod wait;
mod watch;
mod what_if;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use phalanx_model::{Change, Gang, Input, Job, JobId, SecretSource, Snapshot, Turn};
use phalanx_shell::{Engine, PumpError};

use crate::api;
use crate::audit::{self, Act};
use crate::daemon::Daemon;
use crate::endpoints::endpoints;
use crate::launch;
use crate::logs::{self, Buffer, Follower};
use crate::server::is_of_daemon;
use crate::spot;
use crate::unfit::unfit;
use phalanx_api::protocol::{
    Answer, ErrorCode, ErrorView, EventView, JobRef, JobView, LogAsk, UserView, Verb, WhyView,
};
use phalanx_api::{Peer, Reply};
use phalanx_views::{self as views, Books};

/// One secret's value.
const SECRET_BYTES_MAX: usize = 1 << 20;
/// A job as JSON: it stands in the journal, and in memory while it lives.
const JOB_BYTES_MAX: u64 = 1 << 20;
/// A key of a submission.
const KEY_BYTES_MAX: usize = 256;
/// Ranks of one job: each is a process with a shim.
const RANKS_MAX: u32 = 1_024;
/// How often a followed job is looked at.
const FOLLOW: Duration = Duration::from_millis(100);

pub(crate) enum Failure {
    /// To be told to the client.
    Told(ErrorView),
    /// The client is gone, and nobody is left to tell.
    Gone,
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl From<PumpError> for Failure {
    fn from(e: PumpError) -> Self {
        let hint = "what runs goes on; try again";
        Self::Told(ErrorView::new(ErrorCode::Unavailable, e.to_string(), hint))
    }
}

pub(crate) fn refuse(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> Failure {
    Failure::Told(ErrorView::new(code, message, hint))
}

/// Answers a request, and writes down who changed what by it.
pub(crate) fn answer(
    daemon: &Arc<Daemon>,
    peer: &Peer,
    verb: Verb,
    reply: &mut dyn Reply,
) -> Result<(), Failure> {
    let act = Act::of(&verb);
    let ended = carry_out(daemon, peer, verb, reply);
    if let Some(act) = act {
        let refused = match &ended {
            Err(Failure::Told(error)) => Some(error.message.as_str()),
            Ok(()) | Err(Failure::Gone) => None,
        };
        audit::record(daemon, peer, act, refused);
    }
    ended
}

fn carry_out(daemon: &Arc<Daemon>, peer: &Peer, verb: Verb, reply: &mut dyn Reply) -> Result<(), Failure> {
    let one = match verb {
        Verb::Ping => Answer::Pong {
            version: phalanx_shell::VERSION.to_owned(),
            pid: std::process::id(),
            epoch: daemon.epoch,
        },
        Verb::Whoami => Answer::User(UserView {
            user: peer.owner.name.clone(),
            uid: peer.owner.uid,
            role: peer.role(),
            now: daemon.clock.now(),
        }),
        Verb::Overview => overview::overview(daemon)?,
        Verb::Map => overview::map(daemon)?,
        Verb::Node { node } => overview::node(daemon, &node)?,
        Verb::Watch { after } => return watch::watch(daemon, after, reply),
        Verb::NewToken(ask) => api::new_token(daemon, peer, &ask)?,
        Verb::Tokens => api::tokens(daemon, peer),
        Verb::RevokeToken { name, uid } => api::revoke(daemon, peer, &name, uid)?,
        Verb::SubmitFile { text, key, dry_run } => file::submit(daemon, peer, &text, key, dry_run)?,
        Verb::Submit { job, secrets } => submit(daemon, peer, *job, &secrets)?,
        Verb::DryRun { job } => dry_run(daemon, peer, *job)?,
        Verb::List { finished, filter, limit } => Answer::Jobs(list::list(daemon, finished, &filter, limit)?),
        Verb::Get { job } => Answer::Job(Box::new(get(daemon, peer, &job)?)),
        Verb::Why { job } => why(daemon, peer, &job)?,
        Verb::Logs { job, ask } => return stream_logs(daemon, peer, &job, &ask, reply),
        Verb::Follow { job } => return follow_job(daemon, peer, &job, reply),
        Verb::Wait { jobs } => return wait::wait(daemon, peer, jobs, reply),
        Verb::Terminal { job } => terminal::of_job(daemon, peer, &job)?,
        Verb::Exec { job, ask } => terminal::exec(daemon, peer, &job, &ask)?,
        Verb::Cancel { job } => cancel(daemon, peer, &job)?,
        Verb::FindNodes(filter) => nodes::find(daemon, filter)?,
        Verb::Topology => {
            let map = daemon.map.clone();
            Answer::Topology(daemon.engine.look(move |e| views::topology(&Books::all(e), &map))?)
        }
        Verb::Queues => Answer::Queues(queues::all(daemon)?),
        Verb::Queue { queue } => queues::one(daemon, &queue)?,
        Verb::ApplyQueues { settings, queues } => queues::apply(daemon, peer, *settings, queues)?,
        Verb::History { job, limit } => queues::history(daemon, peer, job.as_ref(), limit)?,
        Verb::Hold { job } => turn::hold(daemon, peer, &job)?,
        Verb::Release { job } => turn::release(daemon, peer, &job)?,
        Verb::Boost { job, boost } => turn::boost(daemon, peer, &job, boost)?,
        Verb::Update { job, update } => turn::update(daemon, peer, &job, update)?,
        Verb::Requeue { job, hold } => turn::requeue(daemon, peer, &job, hold)?,
        Verb::Scale { job, replicas } => turn::scale(daemon, peer, &job, replicas)?,
        Verb::Endpoints { job, from } => endpoints(daemon, peer, &job, from)?,
        Verb::Defrag { job, apply } => defrag::defrag(daemon, peer, job.as_ref(), apply)?,
        Verb::Resize { job, size } => turn::resize(daemon, peer, &job, size)?,
        Verb::Tell { job, gang, news } => tell::tell(daemon, peer, &job, gang, news)?,
        Verb::Audit { filter, limit } => nodes::audit(daemon, peer, &filter, limit)?,
        Verb::Bill(ask) => bill::bill(daemon, peer, &ask)?,
        Verb::Advise(ask) => advise::advise(daemon, peer, &ask)?,
        Verb::Cordon { node, reason } => nodes::cordon(daemon, peer, &node, reason.as_deref())?,
        Verb::Drain { node, by, reason } => nodes::drain(daemon, peer, &node, by, reason.as_deref())?,
        Verb::Uncordon { node } => nodes::change(daemon, peer, &node, |node| Input::NodeUncordoned { node })?,
        Verb::Health { node } => health::show(daemon, node.as_ref())?,
        Verb::ReportHealth(report) => health::report(daemon, peer, report)?,
        Verb::ClearHealth { node, device } => health::clear(daemon, peer, &node, device)?,
        Verb::Calendar => calendar::list(daemon)?,
        Verb::AddWindow(asked) => calendar::add(daemon, peer, asked)?,
        Verb::RemoveWindow { nodes, begins_at } => calendar::remove(daemon, peer, &nodes, begins_at)?,
        Verb::NoticeSpot { node, in_ms } => calendar::notice(daemon, peer, &node, in_ms)?,
        Verb::Snapshot => Answer::Snapshot(Box::new(snapshot(daemon)?)),
        Verb::WhatIf(ask) => what_if::what_if(daemon, peer, &ask, reply)?,
        Verb::Stop => {
            operator(peer)?;
            let is_left = |e: &Engine| e.jobs().any(|(job, _)| e.ending(job.id).is_none());
            // An engine that does not answer keeps no daemon from its end.
            let detail = match daemon.engine.look(is_left) {
                Ok(false) => "the daemon stops",
                Ok(true) | Err(_) => "jobs go on and wait for the next daemon",
            };
            reply.send(&Answer::Done { detail: detail.to_owned() })?;
            reply.flush()?;
            daemon.stop();
            return Ok(());
        }
    };
    reply.send(&one)?;
    Ok(())
}

/// The scheduler as it is now.
fn snapshot(daemon: &Daemon) -> Result<Snapshot, Failure> {
    let snapshot = daemon.engine.look(Engine::snapshot)?;
    // What was decided last stands since then, and it goes on from now.
    let taken_at = daemon.clock.now().max(snapshot.taken_at);
    Ok(Snapshot { taken_at, ..snapshot })
}

pub(crate) fn operator(peer: &Peer) -> Result<(), Failure> {
    if peer.is_operator {
        return Ok(());
    }
    let message = format!("user {} may not do this", peer.owner.name);
    Err(refuse(ErrorCode::Forbidden, message, "ask an operator: root, or the user that runs the daemon"))
}

/// What a job may do, and with which groups it runs, depends on who its owner is.
pub(crate) fn known(peer: &Peer) -> Result<(), Failure> {
    if peer.is_known { Ok(()) } else { Err(unknown(peer)) }
}

fn unknown(peer: &Peer) -> Failure {
    let message = format!("the account of user {} cannot be looked up", peer.owner.uid);
    let hint = "the name service of this machine does not answer, and a job is not started with fewer groups than its \
                user has; try again later";
    refuse(ErrorCode::Unavailable, message, hint)
}

/// The submission as the daemon knows it: number, owner and time are not the client's to say.
fn owned(daemon: &Daemon, peer: &Peer, job: Job, id: u64) -> Job {
    let id = if id == 0 { JobId(daemon.next_job_peek()) } else { JobId(id) };
    // Who holds it is who asks, and a boost is an operator's to give.
    let held_by = job.turn.held_by.as_ref().map(|_| peer.owner.name.clone());
    let turn = Turn { held_by, boost: None, ..job.turn };
    Job { id, owner: peer.owner.clone(), submitted_at: daemon.clock.now(), turn, ..job }
}

fn dry_run(daemon: &Daemon, peer: &Peer, job: Job) -> Result<Answer, Failure> {
    known(peer)?;
    let mut job = owned(daemon, peer, job, 0);
    check_job(&job)?;
    check_access(daemon, peer, &mut job)?;
    let (map, now) = (daemon.map.clone(), daemon.clock.now());
    Ok(Answer::DryRun(daemon.engine.look(move |e| views::dry_run(&Books::all(e), &map, &job, now))?))
}

fn submit(
    daemon: &Daemon,
    peer: &Peer,
    job: Job,
    secrets: &BTreeMap<String, String>,
) -> Result<Answer, Failure> {
    // An operator by the word of an issuer has another account all the same.
    if !daemon.is_root && !is_of_daemon(peer.owner.uid) {
        let message = "this daemon runs without root rights and starts jobs of its own user only";
        return Err(refuse(ErrorCode::Forbidden, message, "run `phalanx up` as root to serve several users"));
    }
    known(peer)?;
    let mut job = owned(daemon, peer, job, daemon.next_job());
    check_job(&job)?;
    check_access(daemon, peer, &mut job)?;
    check_secrets(&job, secrets)?;
    if let Some(existing) = daemon.known_key(&job) {
        return again::answer(daemon, peer, &job, existing);
    }
    admit(daemon, &job)?;
    if let Err(e) = launch::keep_secrets(&daemon.paths, &job, secrets) {
        daemon.pending.forget(job.id);
        let message = format!("the secrets cannot be kept: {e}");
        return Err(refuse(ErrorCode::Unavailable, message, "free space on that disk"));
    }
    job.turn.held_by = job.turn.held_by.or_else(|| daemon.budgets.held_by(&job.queue));
    let (id, name) = (job.id, job.name.to_string());
    let facts = vec![Input::JobSubmitted { job: Box::new(job.clone()) }];
    let verdict = daemon.engine.request(facts, move |_, changes| {
        changes.iter().find_map(|c| match c {
            Change::JobRejected { job, why } if *job == id => Some(why.clone()),
            _ => None,
        })
    });
    if !matches!(verdict, Ok(None)) {
        daemon.pending.forget(id);
        launch::forget_secrets(&daemon.paths, id);
    }
    match verdict? {
        None => Ok(Answer::Submitted { job: id, name, existing: false }),
        Some(why) => match why.existing() {
            Some(existing) => again::answer(daemon, peer, &job, existing),
            None => {
                let devices = daemon.engine.look(|e| e.nodes().map(|n| n.machine.device_count()).sum())?;
                let (message, hint) = unfit(&job, &why, devices);
                Err(refuse(ErrorCode::Rejected, message, hint))
            }
        },
    }
}

/// Whether the peer may use the queue, the class and the priority of a job. Operators may, and so may the owner of a
/// daemon that serves nobody else.
fn check_access(daemon: &Daemon, peer: &Peer, job: &mut Job) -> Result<(), Failure> {
    if peer.is_operator || !daemon.is_root {
        return Ok(());
    }
    daemon.access.check(job).map_err(|refusal| refuse(refusal.code, refusal.message, refusal.hint))
}

/// Counts a job among those of its owner, which have a limit: the journal lists them all at every start.
fn admit(daemon: &Daemon, job: &Job) -> Result<(), Failure> {
    let (bytes, max) = (job_bytes(job), daemon.limits.pending_bytes_per_user);
    daemon.pending.admit(job.id, job.owner.uid, bytes, max).map_err(|used| {
        let message = format!(
            "the jobs of {} that have not ended take {used} bytes, this job {bytes}, and one user may have {max}",
            job.owner.name
        );
        let hint = "wait for jobs to end, cancel some, or put large values into files; \
                    an operator sets the limit with `phalanx up --pending-per-user`";
        refuse(ErrorCode::Rejected, message, hint)
    })
}

/// What a job takes in the journal.
pub(crate) fn job_bytes(job: &Job) -> u64 {
    serde_json::to_vec(job).map_or(u64::MAX, |json| json.len() as u64)
}

/// What this world cannot take, whatever the engine says.
fn check_job(job: &Job) -> Result<(), Failure> {
    let bytes = job_bytes(job);
    if bytes > JOB_BYTES_MAX {
        let message = format!("the job takes {bytes} bytes, at most {JOB_BYTES_MAX} are taken");
        return Err(refuse(ErrorCode::BadRequest, message, "put large values into files"));
    }
    if job.key.as_ref().is_some_and(|key| key.is_empty() || key.len() > KEY_BYTES_MAX) {
        let message = format!("the key is empty, or has more than {KEY_BYTES_MAX} bytes");
        return Err(refuse(ErrorCode::BadRequest, message, "give a shorter key, or none"));
    }
    let name = job.name.as_str();
    if name.starts_with('-') || !matches!(JobRef::parse(name), JobRef::Name(_)) {
        let message = format!("a job cannot be named {name:?}: it would be read as a number or a flag");
        return Err(refuse(ErrorCode::BadRequest, message, "begin the name with a letter"));
    }
    // Tasks of an array are started one by one.
    let each = job.gangs.iter().map(Gang::member_count);
    let ranks =
        if job.turn.array.is_some() { each.max().unwrap_or(0) } else { each.fold(0, u32::saturating_add) };
    if ranks > RANKS_MAX {
        let message =
            format!("the job has {ranks} ranks, and one machine runs at most {RANKS_MAX} of one job");
        return Err(refuse(
            ErrorCode::Rejected,
            message,
            "each rank is a process of this host, also on declared nodes",
        ));
    }
    Ok(())
}

fn check_secrets(job: &Job, secrets: &BTreeMap<String, String>) -> Result<(), Failure> {
    let named = |name: &str| {
        job.gangs.iter().any(|g| matches!(g.program.secrets.get(name), Some(SecretSource::Submitted)))
    };
    for (name, value) in secrets {
        let word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !word || !named(name) || value.len() > SECRET_BYTES_MAX {
            let message = format!("secret {name:?} is not named in the job, or is no word, or is too long");
            return Err(refuse(ErrorCode::BadRequest, message, "name it under `secrets:`; at most 1 MiB"));
        }
    }
    let wanted = job.gangs.iter().flat_map(|g| &g.program.secrets);
    let missing =
        wanted.filter(|(_, s)| **s == SecretSource::Submitted).find(|(n, _)| !secrets.contains_key(*n));
    match missing {
        Some((name, _)) => {
            let message = format!("secret {name} has no value");
            Err(refuse(
                ErrorCode::BadRequest,
                message,
                format!("set {name} in the environment of the submission"),
            ))
        }
        None => Ok(()),
    }
}

fn unreadable(why: impl std::fmt::Display) -> Failure {
    refuse(
        ErrorCode::Unavailable,
        format!("the history cannot be read: {why}"),
        "jobs are not affected; see the daemon's log",
    )
}

/// Finds a job by number or name, in the books or in the history.
pub(crate) fn get(daemon: &Daemon, peer: &Peer, wanted: &JobRef) -> Result<JobView, Failure> {
    let (map, reference, uid) = (daemon.map.clone(), wanted.clone(), peer.owner.uid);
    let live = daemon.engine.look(move |e| {
        let id = resolve(e, &reference, uid)?;
        let books = Books::all(e);
        let of_tasks = reference.tasks().and_then(|tasks| views::tasks(&books, &map, id, tasks));
        of_tasks.or_else(|| views::job(&books, &map, id, true))
    })?;
    let view = match live {
        Some(view) => Some(view),
        None => daemon.recorder.find(&wanted.whole()).map_err(unreadable)?,
    };
    let Some(mut view) = view else {
        let name = match wanted {
            JobRef::Id(id) | JobRef::Tasks(id, _) => id.to_string(),
            JobRef::Name(name) => name.clone(),
        };
        return Err(refuse(ErrorCode::NotFound, format!("no job {name}"), "`phalanx ps -a` lists all jobs"));
    };
    if let Some(asked) = wanted.tasks() {
        tasks::keep(&mut view, asked)?;
    }
    daemon.usage.say(std::slice::from_mut(&mut view));
    daemon.progress.say(std::slice::from_mut(&mut view));
    view.events = daemon.recorder.events(view.id).map_err(unreadable)?;
    view.spot = spot::sum(&view.events);
    if !may_read(peer, &view) {
        view.job = None;
    }
    Ok(view)
}

/// The newest unfinished job of a name, else the newest; the asker's own before anybody else's.
fn resolve(engine: &Engine, wanted: &JobRef, uid: u32) -> Option<JobId> {
    match wanted {
        JobRef::Id(id) | JobRef::Tasks(id, _) => Some(*id),
        JobRef::Name(name) => engine
            .jobs()
            .filter(|(job, _)| job.name.as_str() == name)
            .max_by_key(|(job, _)| (job.owner.uid == uid, engine.ending(job.id).is_none(), job.id))
            .map(|(job, _)| job.id),
    }
}

pub(crate) fn may_read(peer: &Peer, job: &JobView) -> bool {
    peer.is_operator || peer.owner.uid == job.uid
}

/// A job that the peer may read in full or change.
fn own(daemon: &Daemon, peer: &Peer, wanted: &JobRef) -> Result<JobView, Failure> {
    let view = get(daemon, peer, wanted)?;
    if may_read(peer, &view) {
        return Ok(view);
    }
    let message = format!("job {} belongs to {}", view.id, view.owner);
    Err(refuse(ErrorCode::Forbidden, message, "only its owner and operators may do this"))
}

fn why(daemon: &Daemon, peer: &Peer, wanted: &JobRef) -> Result<Answer, Failure> {
    let job = get(daemon, peer, wanted)?;
    let (id, tasks) = (job.id, wanted.tasks().cloned());
    let now = daemon.clock.now();
    let (reports, sentences) = daemon.engine.look(move |e| {
        let books = Books::all(e);
        let reports = views::reports(&books, id, tasks.as_ref());
        let sentences = views::why_sentences(&books, now, &reports);
        (reports, sentences)
    })?;
    Ok(Answer::Why(WhyView { job, reports, now, sentences }))
}

fn cancel(daemon: &Daemon, peer: &Peer, wanted: &JobRef) -> Result<Answer, Failure> {
    let view = own(daemon, peer, wanted)?;
    if let JobRef::Name(name) = wanted {
        clear_name(daemon, peer, name, &view)?;
    }
    if view.ending.is_some() {
        return Ok(Answer::Done { detail: format!("job {} has ended already: {}", view.id, view.state) });
    }
    let (job, by) = (view.id, peer.owner.name.clone());
    if let Some(tasks) = wanted.tasks().cloned() {
        let one_or_many = if tasks.count() == 1 { ("task", "is") } else { ("tasks", "are") };
        let detail = format!("{} {tasks} of job {job} {} being cancelled", one_or_many.0, one_or_many.1);
        daemon.engine.request(vec![Input::TasksCancelRequested { job, tasks, by }], |_, _| ())?;
        return Ok(Answer::Done { detail });
    }
    daemon.engine.request(vec![Input::CancelRequested { job, by }], |_, _| ())?;
    Ok(Answer::Done { detail: format!("job {} is being cancelled", view.id) })
}

/// A name that could mean another job, or somebody else's, is not enough to end one.
fn clear_name(daemon: &Daemon, peer: &Peer, name: &str, view: &JobView) -> Result<(), Failure> {
    if view.uid != peer.owner.uid {
        let message = format!("job {} named {name} belongs to {}", view.id, view.owner);
        return Err(refuse(
            ErrorCode::BadRequest,
            message,
            format!("to cancel it, say `cancel {}`", view.id),
        ));
    }
    let (wanted, uid) = (name.to_owned(), peer.owner.uid);
    let living = daemon.engine.look(move |e| {
        let of_name = e.jobs().filter(|(j, _)| j.name.as_str() == wanted && j.owner.uid == uid);
        let living = of_name.filter(|(job, _)| e.ending(job.id).is_none());
        living.map(|(j, _)| j.id.to_string()).collect::<Vec<_>>()
    })?;
    if living.len() > 1 {
        let message = format!("several jobs are named {name}: {}", living.join(", "));
        return Err(refuse(ErrorCode::BadRequest, message, "give the number of the one that is meant"));
    }
    Ok(())
}

/// Lines of the newest attempt, and when that is followed by another, of that one.
fn stream_logs(
    daemon: &Arc<Daemon>,
    peer: &Peer,
    wanted: &JobRef,
    what: &LogAsk,
    reply: &mut dyn Reply,
) -> Result<(), Failure> {
    let view = own(daemon, peer, wanted)?;
    let (id, numbers) = (view.id, view.array.map(|array| array.numbers));
    let number = |index: u32| numbers.as_ref().and_then(|numbers| numbers.number(index));
    let is_wanted = |index: u32| tasks::is_named(wanted.tasks(), number(index));
    let mut followers: Vec<Follower> = Vec::new();
    let mut buffer = Buffer::new();
    let (mut tail, mut since) = (what.tail, what.since);
    loop {
        // Looked at before the logs, so that nothing written before the end is missed.
        let over = !what.follow || ended(daemon, id)?;
        let found = logs::find(&daemon.paths, id, is_wanted, what.rank, what.attempt).map_err(unreadable)?;
        if over && found.is_empty() && followers.is_empty() && (what.rank.is_some() || what.attempt.is_some())
        {
            let message = format!("job {id} has no such rank or attempt");
            return Err(refuse(
                ErrorCode::NotFound,
                message,
                format!("`phalanx get {id}` shows its ranks and attempts"),
            ));
        }
        for log in found {
            if !followers.iter().any(|f| f.member() == log.member) {
                followers.push(Follower::new(log, tail, since, what.timestamps));
            }
        }
        for follower in &mut followers {
            let member = follower.member();
            follower.lines(over, &mut buffer, |at, line| {
                let (rank, attempt, line) = (member.rank, member.attempt, line.to_owned());
                reply.send(&Answer::Log { task: number(member.gang.index), rank, attempt, at, line })
            })?;
        }
        reply.flush()?;
        if over {
            reply.send(&Answer::End)?;
            return Ok(());
        }
        if reply.is_gone() {
            return Ok(());
        }
        // What appears from now on is wanted from its beginning.
        (tail, since) = (None, None);
        Follower::pause();
    }
}

fn ended(daemon: &Daemon, id: JobId) -> Result<bool, Failure> {
    Ok(daemon.engine.look(move |engine| has_ended(engine, id))?)
}

/// Also of a job that the engine does not know: it knows each one that has not ended.
fn has_ended(engine: &Engine, id: JobId) -> bool {
    engine.job(id).is_none() || engine.ending(id).is_some()
}

/// Events as they come, then the job as it ended.
fn follow_job(
    daemon: &Arc<Daemon>,
    peer: &Peer,
    wanted: &JobRef,
    reply: &mut dyn Reply,
) -> Result<(), Failure> {
    let id = get(daemon, peer, wanted)?.id;
    let mut told = 0;
    loop {
        let over = ended(daemon, id)?;
        let events = daemon.recorder.events(id).map_err(unreadable)?;
        for EventView { at, what, detail, .. } in events.iter().skip(told).cloned() {
            reply.send(&Answer::Event { at, what, detail })?;
        }
        told = told.max(events.len());
        reply.flush()?;
        if over {
            let view = get(daemon, peer, &JobRef::Id(id))?;
            reply.send(&Answer::Job(Box::new(view)))?;
            reply.send(&Answer::End)?;
            return Ok(());
        }
        if reply.is_gone() {
            return Ok(());
        }
        std::thread::sleep(FOLLOW);
    }
}
