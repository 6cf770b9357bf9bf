//! Nodes, and who closed them.

use std::sync::Arc;

use phalanx_model::later::Calendar;
use phalanx_model::show::span;
use phalanx_model::{GangRecord, Input, Job, NodeName, Phase, Placement, Timestamp};
use phalanx_shell::Engine;

use super::list::check_text;
use super::{Failure, calendar, operator, refuse, unreadable};
use crate::daemon::Daemon;
use crate::queues::beyond_capacity;
use phalanx_api::Peer;
use phalanx_api::protocol::{Answer, AuditFilter, ErrorCode, NodeFilter, NodesView, REASON_CHARS_MAX};
use phalanx_views::{self as views, Books, Found};

/// Lines of the audit log in one list.
const AUDIT_MAX: u32 = 10_000;
/// Nodes in one list.
const LIST_MAX: u32 = 10_000;
/// Nodes that are named to a client who named one that does not exist.
const NAMED_MAX: usize = 20;

/// Jobs that are named in one answer.
const JOBS_NAMED: usize = 5;

pub(super) fn find(daemon: &Arc<Daemon>, mut filter: NodeFilter) -> Result<Answer, Failure> {
    filter.limit = filter.limit.min(LIST_MAX);
    check_text(filter.text.as_ref())?;
    let shared = Arc::clone(daemon);
    let (found, warnings) = daemon.engine.look(move |engine| {
        let found = views::find_nodes(&Books::all(engine), &|node| shared.unknown.held(node), &filter);
        (found, warnings(&shared, engine))
    })?;
    Ok(told(daemon, found, warnings))
}

/// Warnings about gangs that run on nodes of another cluster, and about spare nodes and guarantees that this one cannot keep.
fn warnings(daemon: &Daemon, engine: &Engine) -> Vec<String> {
    let off_cluster = daemon.off_cluster.warning(engine);
    let unkept = views::unkept_spares(&Books::all(engine)).into_iter().chain(beyond_capacity(engine));
    off_cluster.into_iter().chain(unkept).collect()
}

/// Nodes with what is not in the books.
fn told(daemon: &Daemon, found: Found, warnings: Vec<String>) -> Answer {
    let Found { mut nodes, matching, last } = found;
    daemon.closed.say(&mut nodes);
    Answer::Nodes(NodesView {
        nodes,
        matching,
        next: last,
        isolation: daemon.isolation.clone(),
        notes: daemon.notes.clone(),
        warnings: daemon.warnings().into_iter().chain(warnings).collect(),
    })
}

pub(super) fn cordon(
    daemon: &Daemon,
    peer: &Peer,
    node: &NodeName,
    reason: Option<&str>,
) -> Result<Answer, Failure> {
    check_reason(reason)?;
    change(daemon, peer, node, |node| Input::NodeCordoned { node })
}

/// Now, or by a time.
pub(super) fn drain(
    daemon: &Daemon,
    peer: &Peer,
    node: &NodeName,
    by: Option<Timestamp>,
    reason: Option<&str>,
) -> Result<Answer, Failure> {
    check_reason(reason)?;
    match by {
        None => change(daemon, peer, node, |node| Input::DrainRequested { node }),
        Some(by) => calendar::drain_by(daemon, peer, node, by, reason),
    }
}

pub(super) fn change(
    daemon: &Daemon,
    peer: &Peer,
    node: &NodeName,
    fact: impl FnOnce(NodeName) -> Input,
) -> Result<Answer, Failure> {
    operator(peer)?;
    known(daemon, node)?;
    let fact = fact(node.clone());
    let detail = match &fact {
        Input::NodeCordoned { .. } => Some(format!("{node} takes no new work")),
        Input::DrainRequested { .. } => {
            let moved = match jobs_on(daemon, node, None)? {
                jobs if jobs.is_empty() => "; no job runs there".to_owned(),
                jobs if jobs.len() == 1 => {
                    format!(", and 1 job that runs there is moved away: {}", named(&jobs))
                }
                jobs => format!(", and {} jobs that run there are moved away: {}", jobs.len(), named(&jobs)),
            };
            Some(format!("{node} takes no new work{moved}"))
        }
        _ => None,
    };
    daemon.engine.request(vec![fact], |_, _| ())?;
    let detail = detail.map_or_else(|| uncordoned(daemon, node), Ok)?;
    Ok(Answer::Done { detail })
}

/// Whether a node takes work now that it is not cordoned, or what still closes it.
fn uncordoned(daemon: &Daemon, node: &NodeName) -> Result<String, Failure> {
    let (wanted, now) = (node.clone(), daemon.clock.now());
    let (is_healthy, window) = daemon.engine.look(move |engine| {
        let is_on = |w: &&Calendar| w.node == wanted && w.begins_at <= now && now < w.ends_at;
        let is_healthy = engine.node(&wanted).is_none_or(|node| node.health.is_open());
        (is_healthy, engine.windows().filter(is_on).max_by_key(|w| w.ends_at).cloned())
    })?;
    let Some(window) = window else {
        let closed = format!(
            "{node} is no longer cordoned, but its health closes it: `phalanx health {node}` shows why"
        );
        return Ok(if is_healthy { format!("{node} takes work") } else { closed });
    };
    let more = span((window.ends_at.since(now) / 1_000).max(1) * 1_000);
    let what = match &window.held_for {
        None => format!("maintenance closes it for {more} more"),
        Some(queue) => format!("it is kept for queue {queue} for {more} more"),
    };
    Ok(format!(
        "{node} is no longer cordoned, but {what}: `phalanx calendar remove {node}` removes that window"
    ))
}

/// Jobs that run on a node and do not stop already, such as `7 (train)`; with a time only those that may run longer.
pub(super) fn jobs_on(
    daemon: &Daemon,
    node: &NodeName,
    by: Option<Timestamp>,
) -> Result<Vec<String>, Failure> {
    let wanted = node.clone();
    let jobs = daemon.engine.look(move |engine| {
        let is_meant = |job: &Job, gang: &GangRecord| {
            let ends_at = match (&gang.phase, job.policy.time_limit_ms) {
                (Phase::Stopping { .. }, _) => return false,
                (Phase::Running { since }, Some(limit)) => Some(since.plus(limit)),
                _ => None,
            };
            let is_early = by.is_some_and(|by| ends_at.is_some_and(|at| at <= by));
            let is_there = |held: &Placement| held.slots.iter().any(|slot| slot.node == wanted);
            !is_early && gang.held().is_some_and(|held| is_there(&held))
        };
        let meant = engine.jobs().filter(|(job, gangs)| gangs.iter().any(|gang| is_meant(job, gang)));
        meant.map(|(job, _)| format!("{} ({})", job.id, job.name)).collect()
    })?;
    Ok(jobs)
}

/// `7 (train), 8 (eval)`, and how many more there are.
pub(super) fn named(jobs: &[String]) -> String {
    let first = jobs.get(..JOBS_NAMED).unwrap_or(jobs).join(", ");
    match jobs.len().saturating_sub(JOBS_NAMED) {
        0 => first,
        more => format!("{first}, and {more} more"),
    }
}

pub(super) fn known(daemon: &Daemon, node: &NodeName) -> Result<(), Failure> {
    let wanted = node.clone();
    let others = daemon.engine.look(move |engine| {
        let names = || engine.nodes().take(NAMED_MAX + 1).map(|node| node.name.to_string()).collect();
        engine.node(&wanted).is_none().then(names)
    })?;
    let Some(mut names): Option<Vec<String>> = others else { return Ok(()) };
    let more = if names.len() > NAMED_MAX { " and more: `phalanx nodes` lists them" } else { "" };
    names.truncate(NAMED_MAX);
    let hint = format!("nodes are {}{more}", names.join(", "));
    Err(refuse(ErrorCode::NotFound, format!("no node {node}"), hint))
}

pub(super) fn check_reason(reason: Option<&str>) -> Result<(), Failure> {
    let length = reason.map_or(0, |reason| reason.chars().count());
    if length <= REASON_CHARS_MAX {
        return Ok(());
    }
    let message = format!("the reason has {length} characters, at most {REASON_CHARS_MAX} are kept");
    Err(refuse(ErrorCode::BadRequest, message, "shorten it, or name a ticket"))
}

/// What a peer may see of the audit log, oldest first.
pub(super) fn audit(
    daemon: &Daemon,
    peer: &Peer,
    filter: &AuditFilter,
    limit: u32,
) -> Result<Answer, Failure> {
    let uid = (!peer.is_operator).then_some(peer.owner.uid);
    Ok(Answer::Audit(daemon.recorder.audits(uid, filter, limit.min(AUDIT_MAX)).map_err(unreadable)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_few_jobs_and_counts_the_others() {
        let jobs = |count: u64| (1..=count).map(|id| format!("{id} (a)")).collect::<Vec<_>>();
        assert_eq!(named(&jobs(1)), "1 (a)");
        assert_eq!(named(&jobs(5)), "1 (a), 2 (a), 3 (a), 4 (a), 5 (a)");
        assert_eq!(named(&jobs(7)), "1 (a), 2 (a), 3 (a), 4 (a), 5 (a), and 2 more");
    }
}
