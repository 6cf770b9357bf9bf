//! Nodes, and who closed them.

use std::sync::Arc;

use phalanx_model::{Input, NodeName, Timestamp};
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

pub(super) fn find(daemon: &Arc<Daemon>, mut filter: NodeFilter) -> Result<Answer, Failure> {
    filter.limit = filter.limit.min(LIST_MAX);
    check_text(filter.text.as_ref())?;
    let shared = Arc::clone(daemon);
    let (found, warnings) = daemon.engine.look(move |engine| {
        let found = views::find_nodes(&Books::all(engine), &|node| shared.unknown.held(node), &filter);
        (found, warnings(engine))
    })?;
    Ok(told(daemon, found, warnings))
}

/// Warnings about spare nodes and guarantees that the cluster cannot keep.
fn warnings(engine: &Engine) -> Vec<String> {
    views::unkept_spares(&Books::all(engine)).into_iter().chain(beyond_capacity(engine)).collect()
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
        Input::NodeCordoned { .. } => format!("{node} takes no new work"),
        Input::DrainRequested { .. } => {
            format!("{node} takes no new work, and what runs there is moved away")
        }
        _ => format!("{node} takes work"),
    };
    daemon.engine.request(vec![fact], |_, _| ())?;
    Ok(Answer::Done { detail })
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
