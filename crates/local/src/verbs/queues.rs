//! Queues, and what happened to the jobs in them.

use std::collections::BTreeSet;

use phalanx_model::{Queue, QueueName, Settings};
use phalanx_shell::Engine;

use super::{Failure, get, operator, refuse, turn, unreadable};
use crate::budgets;
use crate::daemon::Daemon;
use crate::queues::{beyond_capacity, facts};
use phalanx_api::Peer;
use phalanx_api::protocol::{Answer, ErrorCode, HistoryView, JobRef, QueueDetailView, QueueView};
use phalanx_views::{self as views, Books};

/// Events in one list.
const HISTORY_MAX: u32 = 100_000;

pub(super) fn all(daemon: &Daemon) -> Result<Vec<QueueView>, Failure> {
    let mut queues = daemon.engine.look(|engine| views::queues(&Books::all(engine)))?;
    daemon.budgets.say(&mut queues);
    Ok(queues)
}

pub(super) fn one(daemon: &Daemon, name: &QueueName) -> Result<Answer, Failure> {
    let wanted = name.clone();
    let found = daemon.engine.look(move |e| {
        let books = Books::all(e);
        views::queue(&books, &wanted)
            .ok_or_else(|| views::queues(&books).into_iter().map(|q| q.name).collect())
    })?;
    let said = |mut view: QueueDetailView| {
        daemon.budgets.say(std::slice::from_mut(&mut view.queue));
        Answer::Queue(Box::new(view))
    };
    found.map(said).map_err(|known: Vec<String>| {
        let hint = format!("queues are {}", known.join(", "));
        refuse(ErrorCode::NotFound, format!("no queue {name}"), hint)
    })
}

pub(super) fn apply(
    daemon: &Daemon,
    peer: &Peer,
    settings: Settings,
    queues: Vec<Queue>,
) -> Result<Answer, Failure> {
    operator(peer)?;
    let count = queues.len();
    let names: BTreeSet<QueueName> = queues.iter().map(|queue| queue.name.clone()).collect();
    let are_there = move |e: &Engine| {
        let known: BTreeSet<QueueName> = e.queues().into_iter().map(|report| report.queue.name).collect();
        names.is_subset(&known)
    };
    let facts = facts(settings, queues);
    turn::apply(daemon, facts.clone(), are_there)?;
    daemon.access.replace(&facts);
    budgets::look(daemon);
    let s = if count == 1 { "" } else { "s" };
    let by = &peer.owner.name;
    tracing::info!(by, queues = count, "queues are set");
    let warning = daemon.engine.look(beyond_capacity)?.map(|what| format!("; warning: {what}"));
    let warning = warning.unwrap_or_default();
    Ok(Answer::Done { detail: format!("{count} queue{s} and the settings are in force{warning}") })
}

pub(super) fn history(
    daemon: &Daemon,
    peer: &Peer,
    wanted: Option<&JobRef>,
    limit: u32,
) -> Result<Answer, Failure> {
    let limit = limit.min(HISTORY_MAX);
    let Some(wanted) = wanted else {
        return Ok(Answer::History(daemon.recorder.newest(limit).map_err(unreadable)?));
    };
    let job = get(daemon, peer, wanted)?;
    let skipped = job.events.len().saturating_sub(limit as usize);
    let event = |event| HistoryView { job: job.id, name: job.name.clone(), event };
    Ok(Answer::History(job.events.into_iter().skip(skipped).map(event).collect()))
}
