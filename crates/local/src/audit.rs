//! The audit log: every request that would change something, with who asked and what came of it. The history keeps it, so
//! a decision never waits for it; who closed which node is kept in memory too, since every list of nodes says it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use phalanx_model::show::span;
use phalanx_model::{JobUpdate, NodeName, Timestamp};

use crate::daemon::Daemon;
use crate::history::{AuditRow, WINDOWS_KEPT, WindowRow};
use phalanx_api::Peer;
use phalanx_api::protocol::{
    AuditView, ClosedBy, HealthFinding, HealthReport, JobRef, NodeView, TokenAsk, Verb, WindowKind,
    WindowView, hardware,
};

/// Characters of a target or a detail that are kept: job names and commands are the client's.
const KEPT_CHARS: usize = 200;

/// The verb that opens a node again.
const UNCORDON: &str = "uncordon";

/// What a request would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Act {
    verb: &'static str,
    target: String,
    node: Option<NodeName>,
    detail: String,
}

impl Act {
    /// What a verb would change; nothing for one that only reads, for a submission, which is in the history as a job, and
    /// for what ranks tell of their own job.
    pub(crate) fn of(verb: &Verb) -> Option<Self> {
        let of_job = |verb: &'static str, job: &JobRef, detail: String| {
            Some(Self {
                verb,
                target: format!("job {}", cut(&name_of(job))),
                node: None,
                detail: cut(&detail),
            })
        };
        let of_node = |verb: &'static str, node: &NodeName, detail: &str| {
            let target = format!("node {node}");
            Some(Self { verb, target, node: Some(node.clone()), detail: cut(detail) })
        };
        let other = |verb: &'static str, target: &str, detail: String| {
            Some(Self { verb, target: cut(target), node: None, detail: cut(&detail) })
        };
        let plain = String::new;
        match verb {
            Verb::Ping
            | Verb::Whoami
            | Verb::Overview
            | Verb::Map
            | Verb::Node { .. }
            | Verb::Watch { .. }
            | Verb::Tokens
            | Verb::SubmitFile { .. }
            | Verb::Submit { .. }
            | Verb::DryRun { .. }
            | Verb::List { .. }
            | Verb::Get { .. }
            | Verb::Endpoints { .. }
            | Verb::Why { .. }
            | Verb::Logs { .. }
            | Verb::Follow { .. }
            | Verb::Wait { .. }
            | Verb::FindNodes(_)
            | Verb::Topology
            | Verb::Queues
            | Verb::Queue { .. }
            | Verb::Tell { .. }
            | Verb::History { .. }
            | Verb::Audit { .. }
            | Verb::Bill(_)
            | Verb::Advise(_)
            | Verb::Health { .. }
            | Verb::Calendar
            | Verb::Snapshot
            | Verb::WhatIf(_) => None,
            Verb::NewToken(ask) => other("token create", &format!("token {}", ask.name), life(ask)),
            Verb::RevokeToken { name, uid } => {
                let whose = uid.map_or_else(plain, |uid| format!("of user {uid}"));
                other("token revoke", &format!("token {name}"), whose)
            }
            Verb::Terminal { job } => of_job("attach", job, plain()),
            Verb::Exec { job, ask } => of_job("exec", job, ask.argv.join(" ")),
            Verb::Cancel { job } => of_job("cancel", job, plain()),
            Verb::Hold { job } => of_job("hold", job, plain()),
            Verb::Release { job } => of_job("release", job, plain()),
            Verb::Boost { job, boost } => {
                let said =
                    boost.map(|boost| format!("priority {} for {}", boost.priority, span(boost.for_ms)));
                of_job("boost", job, said.unwrap_or_else(|| "no longer".to_owned()))
            }
            Verb::Update { job, update } => of_job("update", job, updates(update)),
            Verb::Requeue { job, hold } => {
                of_job("requeue", job, if *hold { "and hold".to_owned() } else { plain() })
            }
            Verb::Defrag { apply: false, .. } => None,
            Verb::Defrag { job: Some(job), .. } => of_job("defrag", job, plain()),
            Verb::Defrag { job: None, .. } => other("defrag", "jobs", plain()),
            Verb::Scale { job, replicas } => of_job("scale", job, number_or_auto(*replicas)),
            Verb::Resize { job, size } => of_job("resize", job, number_or_auto(*size)),
            Verb::ApplyQueues { queues, .. } => {
                other("queues apply", "queues", format!("{} queues", queues.len()))
            }
            Verb::Cordon { node, reason } => of_node("cordon", node, reason.as_deref().unwrap_or_default()),
            Verb::Drain { node, reason, .. } => of_node("drain", node, reason.as_deref().unwrap_or_default()),
            Verb::Uncordon { node } => of_node(UNCORDON, node, ""),
            Verb::ReportHealth(HealthReport { node, device, finding, reason }) => {
                let what = match finding {
                    HealthFinding::Grade(grade) => grade.to_string(),
                    HealthFinding::Xid(number) => format!("Xid {number}"),
                    HealthFinding::Bandwidth(permille) => format!("bandwidth {permille} ‰"),
                };
                let reason = if reason.is_empty() { plain() } else { format!(": {reason}") };
                other("health report", &hardware(node, *device), what + &reason)
            }
            Verb::ClearHealth { node, device } => other("health clear", &hardware(node, *device), plain()),
            Verb::AddWindow(asked) => {
                let queue = asked.held_for.as_ref().map(|queue| format!("for queue {queue}"));
                let said: Vec<String> = queue.into_iter().chain(asked.reason.clone()).collect();
                other("calendar add", &format!("nodes {}", asked.nodes.join(", ")), said.join(": "))
            }
            Verb::RemoveWindow { nodes, .. } => {
                other("calendar remove", &format!("nodes {}", nodes.join(", ")), plain())
            }
            Verb::NoticeSpot { node, .. } => of_node("notice", node, ""),
            Verb::Stop => other("down", "daemon", plain()),
        }
    }
}

/// Writes down what a peer did, or why it was refused.
pub(crate) fn record(daemon: &Daemon, peer: &Peer, act: Act, refused: Option<&str>) {
    let Act { verb, target, node, detail } = act;
    let view = AuditView {
        at: daemon.clock.now(),
        uid: peer.owner.uid,
        user: peer.owner.name.clone(),
        login: peer.login.as_deref().map(cut),
        verb: verb.to_owned(),
        target,
        detail,
        refused: refused.map(cut),
    };
    if let (Some(node), None) = (&node, refused) {
        daemon.closed.change(node, &view);
        // The change itself is out already, and who made it was not known then.
        daemon.feed.node(view.at, node, "acted on");
    }
    tracing::info!(
        by = view.user,
        login = view.login,
        verb = view.verb,
        target = view.target,
        detail = view.detail,
        refused = view.refused,
        "a user acted"
    );
    daemon.recorder.audit(AuditRow { view, node: node.map(|node| node.to_string()) });
}

/// Who closed which nodes, and who added which windows of the calendar.
#[derive(Debug, Default)]
pub(crate) struct Closed(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    nodes: BTreeMap<NodeName, ClosedBy>,
    /// The oldest request first.
    windows: Vec<WindowRow>,
}

impl Closed {
    /// As the history says it, the oldest act first.
    pub(crate) fn of(acts: Vec<AuditRow>, windows: Vec<WindowRow>) -> Self {
        let closed = Self::default();
        closed.known().windows = windows;
        for AuditRow { view, node } in acts {
            let Some(node) = node.and_then(|name| NodeName::new(name).ok()) else { continue };
            closed.change(&node, &view);
        }
        closed
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A user did something to a node: every such verb but one closes it.
    fn change(&self, node: &NodeName, act: &AuditView) {
        let nodes = &mut self.known().nodes;
        if act.verb == UNCORDON {
            nodes.remove(node);
            return;
        }
        let reason = Some(act.detail.clone()).filter(|reason| !reason.is_empty());
        nodes.insert(node.clone(), ClosedBy { user: act.user.clone(), at: act.at, reason });
    }

    /// A user added windows. Those that are over are forgotten.
    fn add(&self, row: WindowRow) {
        let windows = &mut self.known().windows;
        windows.retain(|known| known.ends_at.is_none_or(|at| at > row.by.at));
        windows.push(row);
        let excess = windows.len().saturating_sub(WINDOWS_KEPT as usize);
        windows.drain(..excess);
    }

    /// Says of each of these nodes that takes no work, or is to be drained by a time, who closed it. One that the cluster
    /// file closes has nobody. Says also who added its window.
    pub(crate) fn say(&self, views: &mut [NodeView]) {
        let known = self.known();
        for view in views {
            let window = view.window.as_ref();
            let is_drained = window.is_some_and(|of| of.kind == WindowKind::Drain);
            if view.admin != phalanx_model::Admin::Open || is_drained {
                view.closed_by = known.nodes.get(&view.name).cloned();
            }
            if let Some(window) = &mut view.window {
                window.added_by = known.window(window.kind, &view.name, window.begins_at).cloned();
            }
        }
    }

    /// Says of each window who added it; nodes of different requests are windows of their own.
    pub(crate) fn say_calendar(&self, windows: Vec<WindowView>) -> Vec<WindowView> {
        let known = self.known();
        let mut said = Vec::new();
        for window in windows {
            let first = said.len();
            for node in &window.nodes {
                let by = known.window(window.kind, node, window.begins_at).filter(|_| !window.is_declared);
                let these = said.iter_mut().skip(first).find(|w: &&mut WindowView| w.added_by.as_ref() == by);
                match these {
                    Some(these) => these.nodes.push(node.clone()),
                    None => said.push(WindowView {
                        nodes: vec![node.clone()],
                        added_by: by.cloned(),
                        ..window.clone()
                    }),
                }
            }
        }
        said
    }
}

impl Known {
    /// The latest request for a window of this node that begins then. A drain by a time is an act on its node, too.
    fn window(&self, kind: WindowKind, node: &NodeName, begins_at: Timestamp) -> Option<&ClosedBy> {
        let is_it = |row: &&WindowRow| row.begins_at == begins_at && row.nodes.binary_search(node).is_ok();
        match kind {
            WindowKind::SpotNotice => None,
            WindowKind::Maintenance | WindowKind::Block | WindowKind::Drain => {
                let row = self.windows.iter().rev().find(is_it).map(|row| &row.by);
                row.or_else(|| self.nodes.get(node).filter(|_| kind == WindowKind::Drain))
            }
        }
    }
}

/// Remembers who added windows, and why.
pub(crate) fn window_added(
    daemon: &Daemon,
    peer: &Peer,
    (begins_at, ends_at): (Timestamp, Option<Timestamp>),
    nodes: Vec<NodeName>,
    reason: Option<String>,
) {
    let reason = reason.filter(|reason| !reason.is_empty());
    let by = ClosedBy { user: peer.owner.name.clone(), at: daemon.clock.now(), reason };
    let row = WindowRow { begins_at, ends_at, nodes, by };
    daemon.closed.add(row.clone());
    daemon.recorder.window(row);
}

fn name_of(job: &JobRef) -> String {
    match job {
        JobRef::Id(id) => id.to_string(),
        JobRef::Tasks(id, tasks) => format!("{id}.{tasks}"),
        JobRef::Name(name) => name.clone(),
    }
}

fn updates(update: &JobUpdate) -> String {
    let limit = update.time_limit_ms.map(|ms| format!("time limit {}", span(ms)));
    let priority = update.priority.map(|priority| format!("priority {priority}"));
    let queue = update.queue.as_ref().map(|queue| format!("queue {queue}"));
    [limit, priority, queue].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn life(ask: &TokenAsk) -> String {
    let reads = if ask.read_only { ", read only" } else { "" };
    format!("for {}{reads}", span(ask.for_ms))
}

fn number_or_auto(number: Option<u32>) -> String {
    number.map_or_else(|| "auto".to_owned(), |number| number.to_string())
}

fn cut(text: &str) -> String {
    text.chars().take(KEPT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use phalanx_api::protocol::WindowAsk;
    use phalanx_model::{JobId, QueueName};

    use super::*;

    #[test]
    fn nodes_of_different_requests_are_windows_of_their_own() {
        let node = |name: &str| NodeName::new(name).unwrap();
        let by = |user: &str, at: u64| ClosedBy {
            user: user.to_owned(),
            at: Timestamp(at),
            reason: Some("new NICs".to_owned()),
        };
        let row = |nodes: &[&str], by: ClosedBy| WindowRow {
            begins_at: Timestamp(100),
            ends_at: Some(Timestamp(200)),
            nodes: nodes.iter().map(|name| node(name)).collect(),
            by,
        };
        let closed = Closed::of(Vec::new(), vec![row(&["n1", "n2", "n3"], by("ada", 1))]);
        closed.add(row(&["n2"], by("bob", 2)));
        let window = WindowView {
            kind: WindowKind::Maintenance,
            nodes: ["n1", "n2", "n3", "n4"].map(node).to_vec(),
            begins_at: Timestamp(100),
            ends_at: Some(Timestamp(200)),
            held_for: None,
            is_declared: false,
            added_by: None,
        };
        let shown = |window: &WindowView| -> Vec<(Vec<String>, Option<String>)> {
            let views = closed.say_calendar(vec![window.clone()]);
            let names = |w: &WindowView| w.nodes.iter().map(ToString::to_string).collect();
            views.iter().map(|w| (names(w), w.added_by.as_ref().map(|by| by.user.clone()))).collect()
        };
        let of = |nodes: &[&str], user: Option<&str>| -> (Vec<String>, Option<String>) {
            (nodes.iter().map(ToString::to_string).collect(), user.map(str::to_owned))
        };
        assert_eq!(
            shown(&window),
            [of(&["n1", "n3"], Some("ada")), of(&["n2"], Some("bob")), of(&["n4"], None)]
        );
        let declared = WindowView { is_declared: true, ..window.clone() };
        assert_eq!(shown(&declared), [of(&["n1", "n2", "n3", "n4"], None)]);
        let later = WindowView { begins_at: Timestamp(101), ..window.clone() };
        assert_eq!(shown(&later), [of(&["n1", "n2", "n3", "n4"], None)]);
        // The next request finds that the others are over.
        closed.add(WindowRow { ends_at: None, ..row(&["n4"], by("cyd", 200)) });
        assert_eq!(shown(&window), [of(&["n1", "n2", "n3"], None), of(&["n4"], Some("cyd"))]);
    }

    #[test]
    fn acts_name_what_they_change_and_reads_are_none() {
        let job = || JobRef::Id(JobId(7));
        let acts = [
            (Verb::Cancel { job: JobRef::parse("7.3-9") }, "cancel job 7.3-9: "),
            (Verb::Scale { job: job(), replicas: None }, "scale job 7: auto"),
            (
                Verb::Update {
                    job: job(),
                    update: JobUpdate { time_limit_ms: Some(7_200_000), priority: Some(-3), queue: None },
                },
                "update job 7: time limit 2h, priority -3",
            ),
            (
                Verb::Drain {
                    node: NodeName::new("n1").unwrap(),
                    by: Some(Timestamp(1)),
                    reason: Some("broken fan".to_owned()),
                },
                "drain node n1: broken fan",
            ),
            (
                Verb::AddWindow(WindowAsk {
                    nodes: vec!["rack=r1".to_owned()],
                    begins_at: Timestamp(1),
                    ends_at: Timestamp(2),
                    held_for: QueueName::new("vision").ok(),
                    reason: Some("course".to_owned()),
                }),
                "calendar add nodes rack=r1: for queue vision: course",
            ),
            (Verb::Stop, "down daemon: "),
        ];
        for (verb, said) in acts {
            let Act { verb, target, detail, .. } = Act::of(&verb).unwrap();
            assert_eq!(format!("{verb} {target}: {detail}"), said);
        }
        assert_eq!(Act::of(&Verb::Get { job: job() }), None);
        let long = Verb::Cancel { job: JobRef::Name("x".repeat(10_000)) };
        assert_eq!(Act::of(&long).unwrap().target.len(), "job ".len() + KEPT_CHARS);
    }
}
