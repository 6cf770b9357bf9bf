//! What happened, for people: handed to a thread of its own, so that a slow disk never holds up a decision.
//!
//! Events of jobs in the engine's books are kept in memory as well: who follows a job sees them at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use phalanx_account::advice::Interval;
use phalanx_model::{Job, JobId, Phase, QueueName, Timestamp};
use tracing::warn;

use crate::Paths;
use crate::budgets::{Level, OfQueue};
use crate::clock::Clock;
use crate::history::{
    AccountRows, AttemptRow, AuditRow, Basis, BudgetRow, EventRow, Filter, History, HistoryError, JobRow,
    MemberRow, Retention, Row, UsedRow, WindowRow,
};
use crate::losses;
use crate::threads;
use phalanx_api::protocol::{
    AdviseAsk, AuditFilter, AuditView, BillAsk, BillView, EventView, GangView, HistoryView, JobFilter,
    JobRef, JobView,
};

/// Rows written in one transaction at most.
const BATCH_MAX: usize = 4_096;

/// Minutes of the account that wait for a disk that is full.
const CHARGED_MAX: usize = 10_000;

/// Events of one job; one that waits for months changes its reason often.
const EVENTS_MAX: usize = 2_000;

/// What the loss of the history means.
const AFTER_A_LOSS: &str = "a new one was begun: jobs that ended are no longer listed, and their folders are kept \
                            as long as --keep-days and --keep-bytes say; jobs that have not ended are not affected";

enum Entry {
    Rows(Vec<Row>),
    Prune { retention: Retention, done: Sender<Result<Vec<JobId>, String>> },
    Finish { done: Sender<()> },
}

/// Cheap to clone; all clones write through one thread.
#[derive(Clone)]
pub(crate) struct Recorder {
    entries: Sender<Entry>,
    reader: Arc<Mutex<History>>,
    live: Arc<Mutex<BTreeMap<JobId, Vec<EventView>>>>,
    clock: Clock,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panicking thread left is still a list of rows.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_job_folders(paths: &Paths) -> bool {
    fs::read_dir(paths.jobs()).is_ok_and(|mut folders| folders.next().is_some())
}

impl Recorder {
    /// Opens the history. If it is damaged, it is set aside and a new one begins; this, and a history that is gone, is
    /// recorded as a loss.
    pub(crate) fn open(paths: &Paths, clock: Clock) -> Result<Self, HistoryError> {
        let path = &paths.history();
        let is_gone = !path.exists() && has_job_folders(paths);
        let (writer, damage) = History::open_or_begin_anew(path)?;
        let loss = damage.or_else(|| is_gone.then(|| format!("the history {} is gone", path.display())));
        if let Some(loss) = loss {
            losses::add(paths, &format!("{loss}; {AFTER_A_LOSS}"));
        }
        let reader = History::open(path)?;
        let (entries, todo) = channel();
        let of_writer = clock.clone();
        threads::vital("history", move || write_all(writer, &todo, &of_writer)).map_err(|source| {
            HistoryError::Io { doing: "start a thread for", path: path.to_owned(), source }
        })?;
        Ok(Self { entries, reader: Arc::new(Mutex::new(reader)), live: Arc::default(), clock })
    }

    pub(crate) fn newest_id(&self) -> Result<u64, HistoryError> {
        Ok(held(&self.reader).newest_id()?.map_or(0, |id| id.0))
    }

    /// Records where a job stands; `view` without the submission, which comes as `job`.
    pub(crate) fn job(&self, view: JobView, job: Option<&Job>) {
        let _ = self.entries.send(Entry::Rows(rows(view, job, self.clock.now())));
    }

    pub(crate) fn event(&self, job: JobId, view: EventView) {
        // What is kept whole is told longer than what was only said.
        let most = if view.record.is_some() { 2 * EVENTS_MAX } else { EVENTS_MAX };
        self.event_within(job, view, most);
    }

    /// Records how a job ended, however much has happened to it.
    pub(crate) fn last_event(&self, job: JobId, view: EventView) {
        self.event_within(job, view, usize::MAX);
    }

    fn event_within(&self, job: JobId, view: EventView, most: usize) {
        let mut live = held(&self.live);
        let events = live.entry(job).or_default();
        // After a restart the same reason is given anew.
        let is_again = events.last().is_some_and(|e| (&e.what, &e.detail) == (&view.what, &view.detail));
        if is_again || events.len() >= most {
            return;
        }
        events.push(view.clone());
        drop(live);
        let EventView { at, what, detail, record } = view;
        let record = record.map(|record| record.to_string());
        let _ = self.entries.send(Entry::Rows(vec![Row::Event(EventRow { job, at, what, detail, record })]));
    }

    /// After a restart: what happened before to a job that is still in the books.
    pub(crate) fn recall(&self, job: JobId) -> Result<(), HistoryError> {
        let known = held(&self.reader).events(job)?;
        let mut live = held(&self.live);
        let since = live.remove(&job).unwrap_or_default();
        let events = known.into_iter().map(event_view).chain(since).collect();
        live.insert(job, events);
        Ok(())
    }

    /// The job left the books; the file has its events.
    pub(crate) fn let_go(&self, job: JobId) {
        held(&self.live).remove(&job);
    }

    pub(crate) fn events(&self, job: JobId) -> Result<Vec<EventView>, String> {
        if let Some(events) = held(&self.live).get(&job) {
            return Ok(events.clone());
        }
        let rows = held(&self.reader).events(job).map_err(|e| e.to_string())?;
        Ok(rows.into_iter().map(event_view).collect())
    }

    pub(crate) fn audit(&self, row: AuditRow) {
        let _ = self.entries.send(Entry::Rows(vec![Row::Audit(row)]));
    }

    /// Acts of users, of one user if `uid` says so: the newest of them, in order.
    pub(crate) fn audits(
        &self,
        uid: Option<u32>,
        filter: &AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditView>, String> {
        self.finish();
        let rows = held(&self.reader).audit(uid, filter, limit).map_err(|e| e.to_string())?;
        Ok(rows.into_iter().rev().map(|row| row.view).collect())
    }

    /// Records what was charged.
    pub(crate) fn account(&self, rows: AccountRows) {
        let _ = self.entries.send(Entry::Rows(vec![Row::Account(rows)]));
    }

    /// The account of a time; only what jobs of one user held if `uid` says so.
    pub(crate) fn bill(&self, uid: Option<u32>, ask: &BillAsk) -> Result<BillView, String> {
        self.finish();
        held(&self.reader).bill(uid, ask).map_err(|e| e.to_string())
    }

    /// Records the use of attempts.
    pub(crate) fn used(&self, rows: Vec<UsedRow>) {
        let _ = self.entries.send(Entry::Rows(rows.into_iter().map(Row::Used).collect()));
    }

    /// The basis of advice; only jobs of one user if `uid` says so.
    pub(crate) fn advice(
        &self,
        uid: Option<u32>,
        ask: &AdviseAsk,
        interval: impl Fn(u64, u32) -> Interval,
    ) -> Result<Basis, HistoryError> {
        self.finish();
        let reader = held(&self.reader);
        let runs = reader.runs(uid, ask, self.clock.now(), interval)?;
        let jobs = runs.iter().map(|(job, group, _)| (*job, group)).collect();
        let (charged, prices) = (reader.charged(uid, ask, &jobs)?, reader.prices()?);
        let runs = runs.into_iter().map(|(_, group, run)| (group, run)).collect();
        Ok(Basis { runs, charged, prices })
    }

    /// What is spent of each of these budgets.
    pub(crate) fn spent(&self, budgets: &[OfQueue], now: Timestamp) -> Result<Vec<u64>, HistoryError> {
        self.finish();
        held(&self.reader).spent(budgets, now)
    }

    /// The notices about budgets.
    pub(crate) fn budgets_told(&self) -> Result<BTreeSet<(String, Timestamp, Level)>, HistoryError> {
        held(&self.reader).budgets_told()
    }

    /// Records a notice about a budget.
    pub(crate) fn budget_told(&self, queue: &QueueName, begins_at: Timestamp, level: Level) {
        let row = BudgetRow { queue: queue.to_string(), begins_at, level: level.word() };
        let _ = self.entries.send(Entry::Rows(vec![Row::Budget(row)]));
    }

    pub(crate) fn charged_until(&self) -> Result<Option<Timestamp>, HistoryError> {
        held(&self.reader).charged_until()
    }

    /// Losses of nodes and devices, and the time of one device that gangs had, see [`History::losses`].
    pub(crate) fn losses(&self, since: Timestamp) -> Result<(u64, u64), HistoryError> {
        held(&self.reader).losses(since)
    }

    /// The last act that closed or opened each node.
    pub(crate) fn closings(&self) -> Result<Vec<AuditRow>, HistoryError> {
        held(&self.reader).closings()
    }

    /// Who added windows that are not over.
    pub(crate) fn windows(&self, now: Timestamp) -> Result<Vec<WindowRow>, HistoryError> {
        held(&self.reader).windows(now)
    }

    pub(crate) fn window(&self, row: WindowRow) {
        let _ = self.entries.send(Entry::Rows(vec![Row::Window(row)]));
    }

    /// What happened to all jobs: the newest of it, in order.
    pub(crate) fn newest(&self, limit: u32) -> Result<Vec<HistoryView>, String> {
        self.finish();
        let rows = held(&self.reader).newest_events(limit).map_err(|e| e.to_string())?;
        let view = |(row, name): (EventRow, Option<String>)| HistoryView {
            job: row.job,
            name: name.unwrap_or_default(),
            event: event_view(row),
        };
        Ok(rows.into_iter().rev().map(view).collect())
    }

    /// Finished jobs, newest first.
    pub(crate) fn finished(&self, filter: &JobFilter, limit: u32) -> Result<Vec<JobView>, String> {
        let JobFilter { uid, user, queue, name, text, states, before } = filter.clone();
        let filter = Filter {
            owner_uid: uid,
            owner: user,
            queue: queue.map(|queue| queue.to_string()),
            like: name,
            text,
            states,
            finished: true,
            below: before,
            limit,
            ..Filter::default()
        };
        let rows = held(&self.reader).jobs(&filter).map_err(|e| e.to_string())?;
        Ok(rows.iter().filter_map(view).map(|v| JobView { job: None, ..v }).collect())
    }

    /// Jobs that have not ended, with their submissions.
    pub(crate) fn unfinished(&self) -> Result<Vec<JobView>, String> {
        let mut jobs = Vec::new();
        for state in Phase::LIVING {
            let filter = Filter { states: vec![state.to_owned()], ..Filter::default() };
            let rows = held(&self.reader).jobs(&filter).map_err(|e| e.to_string())?;
            jobs.extend(rows.iter().filter_map(view));
        }
        Ok(jobs)
    }

    pub(crate) fn find(&self, wanted: &JobRef) -> Result<Option<JobView>, String> {
        let reader = held(&self.reader);
        let row = match wanted {
            JobRef::Id(id) | JobRef::Tasks(id, _) => reader.job(*id).map_err(|e| e.to_string())?,
            JobRef::Name(name) => {
                let filter = Filter { name: Some(name.clone()), limit: 1, ..Filter::default() };
                reader.jobs(&filter).map_err(|e| e.to_string())?.into_iter().next()
            }
        };
        Ok(row.as_ref().and_then(view))
    }

    pub(crate) fn by_key(&self, uid: u32, key: &str) -> Option<JobId> {
        // An unreadable history is no reason to refuse work: the engine knows the keys of its books.
        held(&self.reader).job_by_key(uid, key).ok().flatten().map(|row| row.id)
    }

    /// The numbers of all jobs that the history knows.
    pub(crate) fn ids(&self) -> Result<BTreeSet<JobId>, String> {
        self.finish();
        held(&self.reader).ids().map_err(|e| e.to_string())
    }

    pub(crate) fn prune(&self, keep_ms: u64, keep_jobs: u32) -> Result<Vec<JobId>, String> {
        let (done, answered) = channel();
        let retention = Retention { keep_ms, keep_jobs };
        self.entries.send(Entry::Prune { retention, done }).map_err(|e| e.to_string())?;
        answered.recv().map_err(|e| e.to_string())?
    }

    /// Waits until everything handed over is written.
    pub(crate) fn finish(&self) {
        let (done, answered) = channel();
        if self.entries.send(Entry::Finish { done }).is_ok() {
            let _ = answered.recv();
        }
    }
}

fn event_view(row: EventRow) -> EventView {
    let record = row.record.and_then(|text| serde_json::from_str(&text).ok());
    EventView { at: row.at, what: row.what, detail: row.detail, record }
}

/// The view as it was recorded with the submission.
fn view(row: &JobRow) -> Option<JobView> {
    serde_json::from_str(&row.spec_json).ok()
}

fn write_all(mut history: History, entries: &Receiver<Entry>, clock: &Clock) {
    // What was charged is never told again: it waits until it can be written.
    let mut charged: Vec<Row> = Vec::new();
    for first in entries {
        let mut rows = std::mem::take(&mut charged);
        let mut after = Vec::new();
        for entry in std::iter::once(first).chain(entries.try_iter().take(BATCH_MAX)) {
            match entry {
                Entry::Rows(more) => rows.extend(more),
                other => after.push(other),
            }
        }
        if let Err(e) = history.record(&rows) {
            // A projection: the next start brings jobs that are still in the books up to date.
            charged.extend(rows.extract_if(.., |row| matches!(row, Row::Account(_))).take(CHARGED_MAX));
            let (lost, waiting) = (rows.len(), charged.len());
            warn!(lost, waiting, error = %e, "rows of the history cannot be written");
        }
        for entry in after {
            match entry {
                Entry::Rows(_) => {}
                Entry::Prune { retention, done } => {
                    let _ = done.send(history.prune(retention, clock.now()).map_err(|e| e.to_string()));
                }
                Entry::Finish { done } => {
                    let _ = done.send(());
                }
            }
        }
    }
}

/// A job's view as rows.
fn rows(mut view: JobView, job: Option<&Job>, now: Timestamp) -> Vec<Row> {
    view.job = job.map(|j| Box::new(j.clone()));
    view.events.clear();
    let mut rows: Vec<Row> = view.gangs.iter().flat_map(|gang| gang_rows(&view, gang, now)).collect();
    let slots = || view.gangs.iter().filter_map(|g| g.placement.as_ref()).flat_map(|p| &p.slots);
    let mut nodes: Vec<&str> = slots().map(|s| s.node.as_str()).collect();
    nodes.dedup();
    let attempts = view.gangs.iter().map(|g| g.attempt).max().unwrap_or(0);
    rows.push(Row::Job(JobRow {
        id: view.id,
        name: view.name.clone(),
        key: job.and_then(|j| j.key.clone()),
        owner_uid: view.uid,
        owner: view.owner.clone(),
        queue: view.queue.clone(),
        priority: view.priority,
        submitted_at: view.submitted_at,
        started_at: view.started_at,
        finished_at: view.finished_at,
        state: view.state.clone(),
        ending: view.ending.as_ref().map(|e| e.word().to_owned()),
        exit_code: view.exit_code,
        detail: view.detail.clone(),
        nodes: nodes.join(","),
        devices: view.gangs.iter().map(GangView::device_count).sum(),
        attempts,
        restarts: attempts.saturating_sub(1),
        spec_json: serde_json::to_string(&view).unwrap_or_default(),
    }));
    rows
}

fn gang_rows(view: &JobView, gang: &GangView, now: Timestamp) -> Vec<Row> {
    if gang.placement.is_none() {
        return Vec::new();
    }
    let at = gang.members.iter().any(|m| m.state == "exited").then_some(now);
    let (job, index, attempt) = (view.id, gang.id.index, gang.attempt);
    // Of this attempt. Rows that are written after it keep it.
    let started_at = match &gang.phase {
        Some(Phase::Running { since }) => Some(*since),
        _ => None,
    };
    let mut rows = vec![Row::Attempt(AttemptRow {
        job,
        gang: index,
        attempt,
        started_at,
        ended_at: at,
        class: Some(view.reason.clone()).filter(|r| at.is_some() && !r.is_empty()),
        detail: view.detail.clone(),
    })];
    rows.extend(gang.members.iter().map(|m| {
        let over = m.state == "exited";
        Row::Member(MemberRow {
            job,
            gang: index,
            attempt,
            rank: m.rank,
            node: m.node.to_string(),
            devices: m.devices.to_string(),
            started_at,
            ended_at: at.filter(|_| over),
            code: m.exit_code.filter(|c| *c < 128),
            signal: m.exit_code.filter(|c| *c > 128).map(|c| c - 128),
            class: None,
            detail: m.detail.clone(),
        })
    }));
    rows
}
