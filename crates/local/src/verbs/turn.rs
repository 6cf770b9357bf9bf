//! When a job goes: held back, released, boosted. What an operator or an owner says is kept in its history.

use phalanx_model::show::span;
use phalanx_model::{Boost, Change, Gang, GangId, Input, Job, JobId, JobUpdate, Phase, Service};
use phalanx_shell::Engine;

use super::{Failure, check_access, operator, own, refuse, tasks};
use crate::budgets;
use crate::daemon::Daemon;
use phalanx_api::Peer;
use phalanx_api::protocol::{Answer, BoostAsk, ErrorCode, EventView, JobRef, JobView};
use phalanx_views::Books;

pub(super) fn hold(daemon: &Daemon, peer: &Peer, wanted: &JobRef) -> Result<Answer, Failure> {
    let job = whole(daemon, peer, wanted)?;
    let by = peer.owner.name.clone();
    let id = job.id;
    let _holds = daemon.budgets.keep_holds();
    let is_held = move |e: &Engine| e.job(id).is_some_and(|job| job.turn.held_by.is_some());
    apply(daemon, vec![Input::JobHeld { job: id, by: by.clone() }], is_held)?;
    said(daemon, job.id, "held", format!("by {by}"), None);
    Ok(Answer::Done { detail: format!("job {} waits until it is released; what runs goes on", job.id) })
}

pub(super) fn release(daemon: &Daemon, peer: &Peer, wanted: &JobRef) -> Result<Answer, Failure> {
    let job = whole(daemon, peer, wanted)?;
    let (id, by) = (job.id, peer.owner.name.clone());
    let _holds = daemon.budgets.keep_holds();
    let known =
        daemon.engine.look(move |e| e.job(id).map(|job| (job.queue.clone(), job.turn.held_by.clone())))?;
    let Some((queue, held_by)) = known else { return Err(no_longer(id)) };
    let Some(budget) = daemon.budgets.held_by(&queue) else {
        let is_free = move |e: &Engine| e.job(id).is_some_and(|job| job.turn.held_by.is_none());
        apply(daemon, vec![Input::JobReleased { job: id, by: by.clone() }], is_free)?;
        said(daemon, id, "released", format!("by {by}"), None);
        return Ok(Answer::Done { detail: format!("job {id} is no longer held") });
    };
    if budgets::is_holder(held_by.as_deref()) {
        let message = format!("job {id} is held by {budget}");
        let hint = "wait until the budget renews; an operator may raise it with `phalanx queues apply`";
        return Err(refuse(ErrorCode::Rejected, message, hint));
    }
    let wanted = Some(budget.clone());
    let is_so = move |e: &Engine| e.job(id).is_some_and(|job| job.turn.held_by == wanted);
    apply(daemon, vec![Input::JobHeld { job: id, by: budget.clone() }], is_so)?;
    said(daemon, id, "released", format!("by {by}"), None);
    said(daemon, id, "held", format!("by {budget}"), None);
    Ok(Answer::Done { detail: format!("job {id} is no longer held by a user, and now waits for {budget}") })
}

pub(super) fn boost(
    daemon: &Daemon,
    peer: &Peer,
    wanted: &JobRef,
    asked: Option<BoostAsk>,
) -> Result<Answer, Failure> {
    operator(peer)?;
    let job = whole(daemon, peer, wanted)?;
    let (id, by) = (job.id, peer.owner.name.clone());
    let now = daemon.clock.now();
    let boost = asked.map(|BoostAsk { priority, for_ms }| Boost {
        priority,
        until: now.plus(for_ms),
        by: by.clone(),
    });
    let wanted = boost.clone();
    let is_boosted = move |e: &Engine| e.job(id).is_some_and(|job| job.turn.boost == wanted);
    apply(daemon, vec![Input::JobBoosted { job: id, boost: boost.clone() }], is_boosted)?;
    let record = serde_json::to_value(&boost).ok();
    let Some(BoostAsk { priority, for_ms }) = asked else {
        said(daemon, id, "boost ended", format!("by {by}"), record);
        return Ok(Answer::Done { detail: format!("job {id} has no boost") });
    };
    let detail = format!("priority {priority:+} for {} by {by}", span(for_ms));
    said(daemon, id, "boosted", detail, record);
    Ok(Answer::Done { detail: format!("job {id} has {priority:+} of priority for {}", span(for_ms)) })
}

/// The owner may do what the submission could have said, but for a longer time limit of a job that runs: who waits for
/// its end counts on it. Operators may do all of it.
pub(super) fn update(
    daemon: &Daemon,
    peer: &Peer,
    wanted: &JobRef,
    update: JobUpdate,
) -> Result<Answer, Failure> {
    let view = whole(daemon, peer, wanted)?;
    let id = view.id;
    if update == JobUpdate::default() {
        return Err(refuse(
            ErrorCode::BadRequest,
            "nothing to change",
            "say a time limit, a priority or a queue",
        ));
    }
    let known = daemon.engine.look(move |e| e.job(id).cloned())?;
    let Some(job) = known else { return Err(no_longer(id)) };
    let limit_ms = job.policy.time_limit_ms.unwrap_or(u64::MAX);
    if !peer.is_operator && view.state != "pending" && update.time_limit_ms.is_some_and(|ms| ms > limit_ms) {
        let message =
            format!("job {id} runs, and others wait for its end: its time limit may only become shorter");
        return Err(refuse(ErrorCode::Forbidden, message, "an operator may make it longer"));
    }
    let mut next = job.clone();
    update.apply(&mut next);
    if (next.priority, &next.queue) != (job.priority, &job.queue) {
        check_access(daemon, peer, &mut next)?;
    }
    let terms = |job: &Job| (job.policy.time_limit_ms, job.priority, job.queue.clone());
    let wanted = terms(&next);
    let is_so = move |e: &Engine| e.job(id).map(terms) == Some(wanted);
    let changes = changes(&update);
    let holds = daemon.budgets.keep_holds();
    let held_by = daemon.engine.look(move |e| e.job(id).and_then(|job| job.turn.held_by.clone()))?;
    // Held first, so that nothing starts in a queue whose budget is spent.
    let held = daemon.budgets.held_by(&next.queue).filter(|_| held_by.is_none());
    let facts = held.iter().map(|by| Input::JobHeld { job: id, by: by.clone() });
    let facts = facts.chain([Input::JobUpdated { job: id, update }]).collect();
    let updated = apply(daemon, facts, is_so);
    drop(holds);
    if updated.is_ok()
        && let Some(by) = &held
    {
        said(daemon, id, "held", format!("by {by}"), None);
    }
    if next.queue != job.queue && (held.is_some() || budgets::is_holder(held_by.as_deref())) {
        budgets::settle(daemon);
    }
    updated?;
    said(daemon, id, "changed", format!("{changes} by {}", peer.owner.name), None);
    Ok(Answer::Done { detail: format!("job {id} has {changes}") })
}

/// `time limit 2h, priority 5`.
fn changes(update: &JobUpdate) -> String {
    let limit = update.time_limit_ms.map(|ms| format!("time limit {}", span(ms)));
    let priority = update.priority.map(|priority| format!("priority {priority}"));
    let queue = update.queue.as_ref().map(|queue| format!("queue {queue}"));
    [limit, priority, queue].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn no_longer(job: JobId) -> Failure {
    refuse(ErrorCode::NotFound, format!("there is no job {job} any more"), "`phalanx ps -a` lists what ended")
}

/// Stops what runs of a job, so that it starts again, or waits for a release.
pub(super) fn requeue(daemon: &Daemon, peer: &Peer, wanted: &JobRef, hold: bool) -> Result<Answer, Failure> {
    let job = whole(daemon, peer, wanted)?;
    let (id, by) = (job.id, peer.owner.name.clone());
    let runs = move |e: &Engine| {
        e.active_of(id).any(|gang| matches!(gang.phase, Phase::Starting { .. } | Phase::Running { .. }))
    };
    if !daemon.engine.look(runs)? {
        let message = format!("nothing of job {id} runs: it is {}", job.state);
        return Err(refuse(
            ErrorCode::BadRequest,
            message,
            "this is for jobs that run; `phalanx why` says what keeps it",
        ));
    }
    let _holds = hold.then(|| daemon.budgets.keep_holds());
    let held = hold.then(|| Input::JobHeld { job: id, by: by.clone() });
    let facts = held.into_iter().chain([Input::JobRequeued { job: id, by: by.clone() }]).collect();
    apply(daemon, facts, move |e| !runs(e))?;
    said(daemon, id, "requeued", format!("by {by}"), None);
    let then = if hold { "waits until it is released" } else { "starts again when it is its turn" };
    Ok(Answer::Done { detail: format!("job {id} is stopped, and {then}") })
}

/// Sets the replicas of a service, or gives their number back to its metric.
pub(super) fn scale(
    daemon: &Daemon,
    peer: &Peer,
    wanted: &JobRef,
    replicas: Option<u32>,
) -> Result<Answer, Failure> {
    let job = whole(daemon, peer, wanted)?;
    let id = job.id;
    let Some(service) = job.service else {
        let message = format!("job {id} is no service");
        return Err(refuse(ErrorCode::BadRequest, message, "`service: {replicas: 2}` makes it one"));
    };
    if replicas.is_none() && !service.has_target {
        let message = format!("job {id} has no metric that could decide how many replicas it needs");
        return Err(refuse(ErrorCode::BadRequest, message, "say a number, or submit it with `target:`"));
    }
    let (is_set, has_target) = (replicas.is_some(), service.has_target);
    let replicas = replicas.unwrap_or(service.wanted);
    if !(service.min..=service.max).contains(&replicas) {
        let message = format!("job {id} has {} to {} replicas", service.min, service.max);
        return Err(refuse(
            ErrorCode::BadRequest,
            message,
            "`replicas: {min, max}` says how many it may have",
        ));
    }
    let is_wanted = move |e: &Engine| e.replicas(id) == Some(replicas);
    let service = Service { job: id, replicas, looks: Vec::new(), is_set };
    apply(daemon, vec![Input::ServiceObserved { service }], is_wanted)?;
    let by = &peer.owner.name;
    if !is_set {
        said(daemon, id, "asked to scale", format!("by its metric again, by {by}"), None);
        return Ok(Answer::Done { detail: format!("job {id} has as many replicas as its metric needs") });
    }
    said(daemon, id, "asked to scale", format!("to {replicas} replicas by {by}"), None);
    let until = if has_target {
        format!("; its metric changes nothing until `phalanx scale {id} auto`")
    } else {
        String::new()
    };
    Ok(Answer::Done { detail: format!("job {id} has {replicas} replicas from now on{until}") })
}

/// Sets the size of an elastic job, of an array that of each task that has not ended; or lets it grow by itself.
pub(super) fn resize(
    daemon: &Daemon,
    peer: &Peer,
    wanted: &JobRef,
    size: Option<u32>,
) -> Result<Answer, Failure> {
    let job = unfinished(own(daemon, peer, wanted)?)?;
    let (id, by) = (job.id, &peer.owner.name);
    let named = wanted.tasks().cloned();
    let gangs: Vec<GangId> = daemon.engine.look(move |e| {
        let Some(job) = e.job(id) else { return Vec::new() };
        let is_meant = |gang: &GangId| {
            tasks::is_named(named.as_ref(), job.task_number(gang.index))
                && job.gang_at(gang.index).is_some_and(Gang::is_elastic)
        };
        e.active_of(id).map(|record| record.id).filter(is_meant).collect()
    })?;
    if gangs.is_empty() {
        let message = format!("job {id} has one size only");
        return Err(refuse(ErrorCode::BadRequest, message, "`elastic: {min: 2, max: 8}` lets it change"));
    }
    let facts = gangs.iter().map(|gang| Input::GangResized { gang: *gang, size }).collect();
    let is_to_have = move |e: &Engine, gang: GangId| e.gang(gang).is_some_and(|r| r.grows_to == size);
    apply(daemon, facts, move |e| gangs.iter().all(|gang| is_to_have(e, *gang)))?;
    let Some(size) = size else {
        said(daemon, id, "asked to resize", format!("by itself again, by {by}"), None);
        return Ok(Answer::Done { detail: format!("job {id} grows by itself where nobody waits") });
    };
    said(daemon, id, "asked to resize", format!("to {size} members by {by}"), None);
    let when = if job.state == "pending" { "when it starts" } else { "from its next boundary on" };
    let until = format!("it grows no further until `phalanx resize {id} auto`");
    Ok(Answer::Done { detail: format!("job {id} is to have {size} members {when}; {until}") })
}

/// A job that has not ended, for what is done to all of it.
fn whole(daemon: &Daemon, peer: &Peer, wanted: &JobRef) -> Result<JobView, Failure> {
    if let JobRef::Tasks(id, tasks) = wanted {
        let message = format!("this is for whole jobs, and {id}.{tasks} is a part of job {id}");
        let hint = format!("name job {id}; tasks by themselves can be cancelled and resized");
        return Err(refuse(ErrorCode::BadRequest, message, hint));
    }
    unfinished(own(daemon, peer, wanted)?)
}

fn unfinished(view: JobView) -> Result<JobView, Failure> {
    if view.ending.is_none() {
        return Ok(view);
    }
    let message = format!("job {} has ended: {}", view.id, view.state);
    Err(refuse(ErrorCode::BadRequest, message, "this is for jobs that wait or run"))
}

/// Hands in facts. When it is not so afterwards, what the step refused is the error; it may also have refused facts of
/// others, which are nobody's business here.
pub(super) fn apply(
    daemon: &Daemon,
    facts: Vec<Input>,
    is_so: impl FnOnce(&Engine) -> bool + Send + 'static,
) -> Result<(), Failure> {
    let refused = daemon.engine.request(facts, |engine, changes| {
        let why = |change: &Change| match change {
            Change::InputRejected { what, why } => Some(format!("{what}: {why}")),
            _ => None,
        };
        (!is_so(engine)).then(|| changes.iter().filter_map(why).collect::<Vec<_>>())
    })?;
    match refused {
        None => Ok(()),
        Some(whys) => {
            Err(refuse(ErrorCode::Rejected, whys.join("; "), "nothing of what is named here was done"))
        }
    }
}

/// A word of a person about a job, for its history.
fn said(daemon: &Daemon, job: JobId, what: &str, detail: String, record: Option<serde_json::Value>) {
    let at = daemon.clock.now();
    daemon.recorder.event(job, EventView { at, what: what.to_owned(), detail, record });
    refresh(daemon, job);
}

/// The job as it now stands, for who asks the history.
fn refresh(daemon: &Daemon, id: JobId) {
    let (map, recorder) = (daemon.map.clone(), daemon.recorder.clone());
    let _ = daemon.engine.look(move |engine| {
        if let Some(view) = phalanx_views::job(&Books::all(engine), &map, id, false) {
            recorder.job(view, engine.job(id));
        }
    });
}
