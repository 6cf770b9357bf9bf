//! The calendar: windows that are told and called off, drains by a time, and nodes that are taken back.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::later::{Calendar, SpotNotice};
use phalanx_model::show::span;
use phalanx_model::{DomainName, Input, LevelName, NodeName, QueueName, Timestamp};
use phalanx_shell::Engine;
use phalanx_spec::pattern::NamePattern;

use super::nodes::{check_reason, jobs_on, known, named};
use super::{Failure, operator, refuse, turn};
use crate::audit::window_added;
use crate::daemon::Daemon;
use phalanx_api::Peer;
use phalanx_api::protocol::{Answer, ErrorCode, WindowAsk};
use phalanx_views::{self as views, Books};

/// Names, patterns and domains in one request.
const SAID_MAX: usize = 1_000;
const LISTED_BY: &str = "`phalanx calendar` lists them";

pub(super) fn list(daemon: &Daemon) -> Result<Answer, Failure> {
    let windows = daemon.engine.look(|engine| views::calendar(&Books::all(engine)))?;
    Ok(Answer::Calendar(daemon.closed.say_calendar(windows)))
}

pub(super) fn add(daemon: &Daemon, peer: &Peer, asked: WindowAsk) -> Result<Answer, Failure> {
    operator(peer)?;
    let WindowAsk { nodes, begins_at, ends_at, held_for, reason } = asked;
    check_reason(reason.as_deref())?;
    let (begins_at, ends_at) = (daemon.clock.of_wall(begins_at), daemon.clock.of_wall(ends_at));
    let now = daemon.clock.now();
    let bad = |what: &str, hint: &str| Err(refuse(ErrorCode::BadRequest, what, hint));
    if ends_at <= begins_at {
        return bad("the window ends before it begins", "give a later end");
    }
    if ends_at <= now {
        return bad("the window is over already", "give an end that is still to come");
    }
    if let Some(queue) = &held_for {
        known_queue(daemon, queue)?;
    }
    let nodes = resolve(daemon, &nodes)?;
    let window = |node: &NodeName| Calendar {
        node: node.clone(),
        begins_at,
        ends_at,
        held_for: held_for.clone(),
        is_declared: false,
    };
    tell(daemon, nodes.iter().map(window).collect())?;
    window_added(daemon, peer, (begins_at, Some(ends_at)), nodes.iter().cloned().collect(), reason);
    let what =
        held_for.as_ref().map_or("maintenance".to_owned(), |queue| format!("a block for queue {queue}"));
    let detail = format!("{what} on {}: {}", shown(&nodes), lasts(now, begins_at, ends_at));
    tracing::info!(by = peer.owner.name, window = detail, "a window is told");
    Ok(Answer::Done { detail })
}

/// `begins in 2h and lasts 1h`.
fn lasts(now: Timestamp, begins_at: Timestamp, ends_at: Timestamp) -> String {
    match begins_at.since(now) {
        0 => format!("from now on, for {}", span(ends_at.since(now))),
        ms => format!("begins in {} and lasts {}", span(ms), span(ends_at.since(begins_at))),
    }
}

/// Calls off windows of nodes: all, or those that begin in one second.
pub(super) fn remove(
    daemon: &Daemon,
    peer: &Peer,
    nodes: &[String],
    begins_at: Option<Timestamp>,
) -> Result<Answer, Failure> {
    operator(peer)?;
    let nodes = resolve(daemon, nodes)?;
    let is_meant = |window: &Calendar| {
        let is_then = begins_at.is_none_or(|at| at.0 / 1_000 == window.begins_at.0 / 1_000);
        is_then && nodes.contains(&window.node)
    };
    let told: Vec<Calendar> = daemon.engine.look(|e| e.windows().cloned().collect())?;
    let meant: Vec<Calendar> = told.into_iter().filter(is_meant).collect();
    if meant.is_empty() {
        let then = if begins_at.is_some() { " begins then" } else { " is told" };
        let message = format!("no window of {}{then}", shown(&nodes));
        return Err(refuse(ErrorCode::NotFound, message, LISTED_BY));
    }
    let (count, is_declared) = (meant.len(), meant.iter().any(|window| window.is_declared));
    let off = |window: Calendar| Calendar { ends_at: window.begins_at, ..window };
    tell(daemon, meant.into_iter().map(off).collect())?;
    let s = if count == 1 { " is" } else { "s are" };
    let again = if is_declared { "; what stands in the cluster file is back at the next start" } else { "" };
    let detail = format!("{count} window{s} called off on {}{again}", shown(&nodes));
    tracing::info!(by = peer.owner.name, windows = detail, "windows are called off");
    Ok(Answer::Done { detail })
}

/// A drain that has time: what ends before may still start there.
pub(super) fn drain_by(
    daemon: &Daemon,
    peer: &Peer,
    node: &NodeName,
    by: Timestamp,
    reason: Option<&str>,
) -> Result<Answer, Failure> {
    operator(peer)?;
    known(daemon, node)?;
    let by = daemon.clock.of_wall(by);
    let now = daemon.clock.now();
    if by <= now {
        let hint = format!("`phalanx drain {node}` drains it now");
        return Err(refuse(ErrorCode::BadRequest, "that time is over", hint));
    }
    let ends_at = Timestamp::MAX;
    let window = Calendar { node: node.clone(), begins_at: by, ends_at, held_for: None, is_declared: false };
    tell(daemon, vec![window])?;
    window_added(daemon, peer, (by, None), vec![node.clone()], reason.map(str::to_owned));
    // To the second: by when was said a moment ago.
    let time = span((by.since(now) / 1_000).max(1) * 1_000);
    let stopped = match jobs_on(daemon, node, Some(by))? {
        jobs if jobs.is_empty() => String::new(),
        jobs if jobs.len() == 1 => format!("; 1 job that may run longer is moved away: {}", named(&jobs)),
        jobs => format!("; {} jobs that may run longer are moved away: {}", jobs.len(), named(&jobs)),
    };
    let detail = format!(
        "{node} is empty in {time}, until it is uncordoned; jobs that end before may still start there{stopped}"
    );
    Ok(Answer::Done { detail })
}

pub(super) fn notice(
    daemon: &Daemon,
    peer: &Peer,
    node: &NodeName,
    in_ms: Option<u64>,
) -> Result<Answer, Failure> {
    operator(peer)?;
    known(daemon, node)?;
    let wanted = node.clone();
    let usual = daemon.engine.look(move |engine| engine.node(&wanted).and_then(|node| node.spot))?;
    let usual = usual.map(|spot| spot.notice_ms).filter(|ms| *ms > 0);
    let Some(ms) = in_ms.or(usual) else {
        let message = format!("the cluster file does not say how soon {node} is taken back");
        return Err(refuse(ErrorCode::BadRequest, message, "say it with `--in 2m`"));
    };
    let fact = Input::SpotNoticed {
        notice: SpotNotice { node: node.clone(), ends_at: daemon.clock.now().plus(ms) },
    };
    let noticed = node.clone();
    turn::apply(daemon, vec![fact], move |e: &Engine| e.notices().any(|notice| notice.node == noticed))?;
    let detail = format!(
        "{node} is taken back in {}: it takes no new work, and what runs there saves and moves",
        span(ms)
    );
    tracing::info!(by = peer.owner.name, notice = detail, "a node is taken back");
    Ok(Answer::Done { detail })
}

/// Hands windows in, and sees that all of them are told, or called off.
fn tell(daemon: &Daemon, windows: Vec<Calendar>) -> Result<(), Failure> {
    let facts = windows.iter().map(|w| Input::CalendarObserved { calendar: w.clone() }).collect();
    let are_told = move |engine: &Engine| {
        let told: BTreeMap<(&NodeName, Timestamp), &Calendar> =
            engine.windows().map(|w| ((&w.node, w.begins_at), w)).collect();
        windows.iter().all(|w| match told.get(&(&w.node, w.begins_at)) {
            Some(known) => *known == w,
            None => w.ends_at <= w.begins_at,
        })
    };
    turn::apply(daemon, facts, are_told)
}

fn known_queue(daemon: &Daemon, queue: &QueueName) -> Result<(), Failure> {
    let names: Vec<String> =
        daemon.engine.look(|e| e.queues().into_iter().map(|r| r.queue.name.to_string()).collect())?;
    if names.iter().any(|name| name == queue.as_str()) {
        return Ok(());
    }
    let hint = format!("queues are {}", names.join(", "));
    Err(refuse(ErrorCode::NotFound, format!("no queue {queue}"), hint))
}

fn shown(nodes: &BTreeSet<NodeName>) -> String {
    let patterns = NamePattern::compress(nodes.iter().map(NodeName::as_str));
    patterns.iter().map(NamePattern::text).collect::<Vec<_>>().join(", ")
}

/// The nodes that names, patterns and domains stand for.
fn resolve(daemon: &Daemon, said: &[String]) -> Result<BTreeSet<NodeName>, Failure> {
    if said.is_empty() || said.len() > SAID_MAX {
        let message = format!("name 1 to {SAID_MAX} nodes, patterns or domains");
        return Err(refuse(ErrorCode::BadRequest, message, "as in gpu-[1-4], or rack=r1"));
    }
    let nodes: Nodes =
        daemon.engine.look(|e| e.nodes().map(|n| (n.name.clone(), n.path.clone())).collect())?;
    let mut found = BTreeSet::new();
    for text in said {
        let these = find(&nodes, &daemon.map.levels.above, text);
        found.extend(these.map_err(|(message, hint)| refuse(ErrorCode::NotFound, message, hint))?);
    }
    Ok(found)
}

/// Nodes and the domains that they stand in.
type Nodes = BTreeMap<NodeName, Vec<DomainName>>;

/// The nodes of one word, or what is wrong and what would be right.
fn find(nodes: &Nodes, levels: &[LevelName], text: &str) -> Result<Vec<NodeName>, (String, String)> {
    let Some((level, domain)) = text.split_once('=') else { return by_name(nodes, text) };
    let Some(depth) = levels.iter().position(|known| known.as_str() == level) else {
        let known: Vec<&str> = levels.iter().map(LevelName::as_str).collect();
        return Err((format!("no level is named {level:?}"), format!("levels are {}", known.join(", "))));
    };
    // A name is enough where no other domain of the level has it; `b1/r1` says which.
    let parts: Vec<&str> = domain.split('/').collect();
    let mut domains: BTreeMap<&[DomainName], Vec<NodeName>> = BTreeMap::new();
    for (node, path) in nodes {
        let above = path.get(..=depth).unwrap_or_default();
        let tail = above.iter().rev().map(DomainName::as_str);
        if parts.len() <= above.len() && parts.iter().rev().copied().eq(tail.take(parts.len())) {
            domains.entry(above).or_default().push(node.clone());
        }
    }
    let show = |path: &[DomainName]| phalanx_model::report::show_path(path);
    match domains.len() {
        0 => Err((
            format!("no node stands in {level} {domain:?}"),
            "`phalanx nodes -o wide` shows where".to_owned(),
        )),
        1 => Ok(domains.into_values().flatten().collect()),
        n => {
            let first = domains.keys().next().map(|path| show(path)).unwrap_or_default();
            Err((
                format!("{n} domains are named {level} {domain:?}"),
                format!("say which, as in {level}={first}"),
            ))
        }
    }
}

fn by_name(nodes: &Nodes, text: &str) -> Result<Vec<NodeName>, (String, String)> {
    let hint = || {
        let names = NamePattern::compress(nodes.keys().map(NodeName::as_str));
        format!("nodes are {}", names.iter().map(NamePattern::text).collect::<Vec<_>>().join(", "))
    };
    let pattern = NamePattern::parse(text).map_err(|why| (why, hint()))?;
    let known = |name: String| {
        let found = NodeName::new(name.as_str()).ok().filter(|name| nodes.contains_key(name));
        found.ok_or_else(|| (format!("no node {name}"), hint()))
    };
    pattern.names().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_by_pattern_and_by_domain() {
        let levels = ["cluster", "block", "rack"].map(|level| LevelName::new(level).unwrap());
        let at = |node: &str, block: &str, rack: &str| {
            let path = ["c", block, rack].map(|domain| DomainName::new(domain).unwrap());
            (NodeName::new(node).unwrap(), path.to_vec())
        };
        let nodes = Nodes::from([at("n1", "b1", "r1"), at("n2", "b1", "r2"), at("n3", "b2", "r1")]);
        let find = |text: &str| {
            let found = find(&nodes, &levels, text);
            found.map(|names| names.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(find("n[1-2]").unwrap(), "n1 n2");
        assert_eq!(find("block=b1").unwrap(), "n1 n2");
        assert_eq!(find("rack=r2").unwrap(), "n2");
        assert_eq!(find("rack=b2/r1").unwrap(), "n3");
        assert_eq!(find("rack=c/b1/r1").unwrap(), "n1");
        assert_eq!(find("cluster=c").unwrap(), "n1 n2 n3");
        for (text, message, hint) in [
            ("n4", "no node n4", "nodes are n[1-3]"),
            ("n[1-9]", "no node n4", "nodes are n[1-3]"),
            ("n[", "\"n[\" opens a bracket that is not closed", "nodes are n[1-3]"),
            ("rack=r1", "2 domains are named rack \"r1\"", "say which, as in rack=c/b1/r1"),
            ("rack=r9", "no node stands in rack \"r9\"", "`phalanx nodes -o wide` shows where"),
            ("rack=x/c/b1/r1", "no node stands in rack \"x/c/b1/r1\"", "`phalanx nodes -o wide` shows where"),
            ("row=r1", "no level is named \"row\"", "levels are cluster, block, rack"),
            ("rack=", "no node stands in rack \"\"", "`phalanx nodes -o wide` shows where"),
        ] {
            assert_eq!(find(text), Err((message.to_owned(), hint.to_owned())), "{text}");
        }
    }
}
