//! Jobs: what they ask for, how far they are, why they wait.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{
    Ending, GangId, GangRecord, Job, JobId, MemberState, Node, NodeName, Phase, Placement, Question, Reason,
    Report, Role, Tasks, Timestamp,
};
use phalanx_shell::sentences;

use phalanx_api::protocol::{
    DryRunView, ElasticView, Filtered, GangView, JobFilter, JobView, MemberView, RoleView, ServiceView,
    TopologyView,
};

use crate::nodes::held;
use crate::{Books, Map, array, first_fit, service, told};

/// Searches for the reasons of many jobs, in one go of the thread that decides: one takes 10 ms with 12,800 nodes.
const REASON_SEARCHES_MAX: usize = 4;

/// Why gangs wait.
pub type Reasons = BTreeMap<GangId, Reason>;

/// One job of the books. `full` adds what lists leave out.
pub fn job(books: &Books<'_>, map: &Map, id: JobId, full: bool) -> Option<JobView> {
    view(books, map, id, full, &reasons_of(books, &[id], &Reasons::new()))
}

/// Tasks of an array of the books.
pub fn tasks(books: &Books<'_>, map: &Map, id: JobId, tasks: &Tasks) -> Option<JobView> {
    let job = books.job(id).filter(|job| job.turn.array.is_some())?;
    let records = array::asked(books, job, tasks);
    let waiting: Vec<GangId> = records.iter().filter(|r| r.is_pending()).map(|r| r.id).collect();
    view_of(books, map, job, &records, true, &books.reasons_of(&waiting, REASON_SEARCHES_MAX))
}

/// A job after these of its gangs changed, for the record.
pub fn changed(books: &Books<'_>, map: &Map, id: JobId, gangs: &BTreeSet<GangId>) -> Option<JobView> {
    let job = books.job(id)?;
    let reasons = reasons_of(books, &[id], &Reasons::new());
    if job.turn.array.is_none() {
        return view(books, map, id, false, &reasons);
    }
    let records = array::changed(books, job, gangs);
    view_of(books, map, job, &records, false, &reasons)
}

/// Jobs of the books, as lists show them; `known` are reasons that need no search.
pub fn jobs(books: &Books<'_>, map: &Map, ids: &[JobId], known: &Reasons) -> Vec<JobView> {
    let reasons = reasons_of(books, ids, known);
    ids.iter().filter_map(|id| view(books, map, *id, false, &reasons)).collect()
}

/// Why each job that waits does. Of many request classes the newest are searched for; the others waited for this reason
/// when they were evaluated last.
pub fn reasons(books: &Books<'_>) -> Reasons {
    let ids: Vec<JobId> = books.jobs().map(|(job, _)| job.id).collect();
    let newest: Vec<JobId> = ids.into_iter().rev().collect();
    reasons_of(books, &newest, &Reasons::new())
}

fn reasons_of(books: &Books<'_>, ids: &[JobId], known: &Reasons) -> Reasons {
    let waiting = |id: &JobId| {
        let job = books.job(*id)?;
        match job.turn.array {
            Some(_) => array::next(books, job).map(|record| record.id),
            None => waiting_gang(books, &records(books, job)),
        }
    };
    let waiting: Vec<GangId> = ids.iter().filter_map(waiting).collect();
    let (told, unknown): (Vec<GangId>, Vec<GangId>) =
        waiting.into_iter().partition(|gang| known.contains_key(gang));
    let mut reasons = books.reasons_of(&unknown, REASON_SEARCHES_MAX);
    reasons.extend(told.into_iter().filter_map(|gang| Some((gang, known.get(&gang)?.clone()))));
    reasons
}

pub(crate) fn records<'a>(books: &'a Books<'_>, job: &Job) -> Vec<&'a GangRecord> {
    job.gang_ids().filter_map(|id| books.gang(id)).collect()
}

/// The gang for which a job waits, if it does. A service is asked for by those of its replicas that are wanted.
pub(crate) fn waiting_gang(books: &Books<'_>, records: &[&GangRecord]) -> Option<GangId> {
    let wanted = |record: &&&GangRecord| !service::rests(books, record);
    let told = |record: &&&GangRecord| matches!(record.phase, Phase::Pending { .. } | Phase::Stopping { .. });
    let first = records.iter().filter(wanted).find(told)?;
    first.is_pending().then_some(first.id)
}

fn view(books: &Books<'_>, map: &Map, id: JobId, full: bool, reasons: &Reasons) -> Option<JobView> {
    let job = books.job(id)?;
    let records = match job.turn.array {
        Some(_) => array::shown(books, job, full),
        None => records(books, job),
    };
    view_of(books, map, job, &records, full, reasons)
}

/// A job with these of its gangs: all of them, unless it is an array.
fn view_of(
    books: &Books<'_>,
    map: &Map,
    job: &Job,
    records: &[&GangRecord],
    full: bool,
    reasons: &Reasons,
) -> Option<JobView> {
    let (id, progress) = (job.id, books.progress(job.id)?);
    // Of the equal tasks of an array the first is told when it would start.
    let is_one_of_many = |at: usize| job.turn.array.is_some() && records[..at].iter().any(|r| r.is_pending());
    let each = records.iter().enumerate();
    let gangs = each.filter_map(|(at, r)| gang(books, map, job, r, full && !is_one_of_many(at))).collect();
    let ending = books.ending(id).cloned();
    let array = array::view(job, progress, records).map(Box::new);
    let service = job.turn.service.as_ref().and_then(|asked| service::service(books, id, asked, records));
    let state = settled_state(books, job).unwrap_or_else(|| state_of(records, service.as_ref()));
    let (reason, detail) = reason(books, ending.as_ref(), records, reasons);
    Some(JobView {
        id,
        name: job.name.to_string(),
        owner: job.owner.name.clone(),
        uid: job.owner.uid,
        queue: job.queue.to_string(),
        priority: job.priority,
        class: class_of(job),
        state: state.to_owned(),
        reason,
        detail,
        submitted_at: job.submitted_at,
        started_at: progress.started_at,
        finished_at: ending.as_ref().and(progress.ended_at),
        exit_code: ending.as_ref().map(Ending::exit_code),
        ending,
        gangs,
        array,
        service,
        job: full.then(|| Box::new(job.clone())),
        events: Vec::new(),
        spot: None,
    })
}

pub(crate) fn class_of(job: &Job) -> String {
    job.turn.class.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// A service runs as long as one of its replicas does.
fn state_of(records: &[&GangRecord], service: Option<&ServiceView>) -> &'static str {
    if service.is_some_and(|service| service.running > 0) { "running" } else { least_advanced(records) }
}

/// The state of a job that has not ended is that of the gang that needs most attention.
fn least_advanced(records: &[&GangRecord]) -> &'static str {
    let rank = |r: &&&GangRecord| match r.phase {
        Phase::Stopping { .. } => 0,
        Phase::Starting { .. } => 1,
        Phase::Running { .. } => 2,
        Phase::Pending { .. } => 3,
        Phase::Finished { .. } => 4,
    };
    records.iter().min_by_key(rank).map_or("pending", |r| r.phase.word())
}

fn reason(
    books: &Books<'_>,
    ending: Option<&Ending>,
    records: &[&GangRecord],
    reasons: &Reasons,
) -> (String, String) {
    match ending {
        Some(Ending::Failed { class, detail, .. }) => {
            return (class.word().to_owned(), detail.clone());
        }
        Some(Ending::Cancelled { by }) => return (String::new(), format!("by {by}")),
        Some(_) => return (String::new(), String::new()),
        None => {}
    }
    // A service is asked for by those of its replicas that are wanted.
    for record in records.iter().filter(|record| !service::rests(books, record)) {
        match &record.phase {
            Phase::Pending { .. } => {
                let reason = reasons.get(&record.id).unwrap_or(&Reason::None);
                return (reason.word().to_owned(), sentences::reason(books, reason));
            }
            Phase::Stopping { cause, .. } => return (String::new(), sentences::stop(books, cause)),
            _ => {}
        }
    }
    (String::new(), String::new())
}

fn gang(books: &Books<'_>, map: &Map, job: &Job, record: &GangRecord, full: bool) -> Option<GangView> {
    let gang = job.gang_at(record.id.index)?;
    let placement = record.placement.as_ref();
    let slots = placement.map(|p| p.slots.as_slice()).unwrap_or_default();
    let members = slots.iter().zip(&record.members).map(|(slot, member)| {
        let (state, exit_code, detail) = match &member.state {
            MemberState::Requested => ("requested", None, String::new()),
            MemberState::Ready => ("ready", None, String::new()),
            MemberState::Running => ("running", None, String::new()),
            MemberState::Exited(exit) => ("exited", exit.shell_code(), exit.detail.clone()),
        };
        let (rank, node, devices) = (slot.rank, slot.node.clone(), slot.devices);
        MemberView { rank, node, devices, state: state.to_owned(), exit_code, detail }
    });
    let estimate = if full && record.is_pending() { books.explain(record.id) } else { None };
    Some(GangView {
        id: record.id,
        task: job.task_number(record.id.index),
        size: gang.size,
        elastic: gang.is_elastic().then(|| ElasticView {
            min: gang.min,
            max: gang.max,
            boundary: record.boundary,
            resize: record.resize.clone(),
            grows_to: record.grows_to,
        }),
        devices_per_member: gang.needs.devices,
        roles: gang.roles.iter().map(role).collect(),
        phase: Some(record.phase.clone()),
        attempt: record.attempt,
        failures: record.failures,
        placement: placement.cloned(),
        usage: None,
        progress: None,
        members: members.collect(),
        estimated_start: estimate.and_then(|r| r.estimated_start).map(|e| e.at),
        reserved: record.reserved.clone(),
        evicted: record.evicted.clone(),
        evictions: record.evictions,
        checkpointed_at: record.checkpointed_at,
        leaves: record.leaves.clone(),
        predicted: placement.filter(|_| full).and_then(|p| map.predict(&nodes_of(books, p), gang, p)),
    })
}

/// The nodes of a placement, of which a cluster has many more.
pub(crate) fn nodes_of(books: &Books<'_>, placement: &Placement) -> Vec<Node> {
    let names: BTreeSet<&NodeName> = placement.slots.iter().map(|slot| &slot.node).collect();
    names.into_iter().filter_map(|name| books.node(name)).cloned().collect()
}

fn role(role: &Role) -> RoleView {
    let Role { name, size, needs, .. } = role;
    RoleView { name: name.to_string(), size: *size, devices_per_member: needs.devices }
}

/// The newest jobs of the books that are wanted, by whether they are finished, too; newest last.
pub fn newest(books: &Books<'_>, limit: usize, finished: bool, filter: &JobFilter) -> Vec<JobId> {
    let filter = filter.prepared();
    let is_wanted = |job: &Job| {
        let (name, queue) = (job.name.as_str(), job.queue.as_str());
        let of = Filtered { id: job.id, name, uid: job.owner.uid, owner: &job.owner.name, queue };
        (finished || books.ending(job.id).is_none()) && filter.admits(of, || state(books, job))
    };
    let mut ids: Vec<JobId> =
        books.jobs().map(|(job, _)| job).filter(|job| is_wanted(job)).map(|job| job.id).collect();
    ids.split_off(ids.len().saturating_sub(limit))
}

/// The word for the state of a job, as its view has it.
pub(crate) fn state(books: &Books<'_>, job: &Job) -> &'static str {
    settled_state(books, job).unwrap_or_else(|| {
        let records = records(books, job);
        let asked = job.turn.service.as_ref();
        let service = asked.and_then(|asked| service::service(books, job.id, asked, &records));
        state_of(&records, service.as_ref())
    })
}

/// The same for a job that has ended, and for an array, of which no record need be looked at.
fn settled_state(books: &Books<'_>, job: &Job) -> Option<&'static str> {
    let of_array = || job.turn.array.as_ref().and_then(|_| books.progress(job.id)).map(array::state);
    books.ending(job.id).map(Ending::word).or_else(of_array)
}

/// Gangs of one job that are explained: each costs a search, and arrays have many.
const REPORTS_MAX: usize = 64;

/// Why each gang of a job waits; those that wait come first where not all are told. Of replicas that rest, one is told
/// for all.
pub fn reports(books: &Books<'_>, id: JobId, tasks: Option<&Tasks>) -> Vec<Report> {
    let Some(job) = books.job(id) else { return Vec::new() };
    if job.turn.array.is_some() {
        let shown = array::explained(books, job, tasks);
        return shown.iter().filter_map(|record| books.explain(record.id)).collect();
    }
    let ids = job.gang_ids();
    let (waiting, others): (Vec<GangId>, Vec<GangId>) =
        ids.partition(|gang| books.gang(*gang).is_some_and(GangRecord::is_pending));
    let (resting, waiting): (Vec<GangId>, Vec<GangId>) =
        waiting.into_iter().partition(|gang| books.gang(*gang).is_some_and(|r| service::rests(books, r)));
    let told = waiting.into_iter().chain(resting.into_iter().take(1)).chain(others).take(REPORTS_MAX);
    told.filter_map(|gang| books.explain(gang)).collect()
}

pub fn dry_run(books: &Books<'_>, map: &Map, job: &Job, now: Timestamp) -> DryRunView {
    let nodes: Vec<&Node> = books.nodes().collect();
    let (rejected, reports) = match books.what_if(&Question::Submitted(Box::new(job.clone()))) {
        phalanx_model::Answer::WouldBe(reports) => (None, reports),
        phalanx_model::Answer::Rejected(why) => (Some(why), Vec::new()),
        _ => (None, Vec::new()),
    };
    let gang_of = |report: &Report| job.gang_at(report.gang.index);
    let predicted = |report: &Report| {
        let placement = report.nearest.as_ref()?;
        map.predict(&nodes_of(books, placement), gang_of(report)?, placement)
    };
    let predicted = reports.iter().map(predicted).collect();
    let first_fit = reports.iter().map(|r| first_fit::first_fit(books, map, &nodes, gang_of(r)?)).collect();
    let sentences = told::dry_run(books, now, rejected.as_ref(), &reports);
    DryRunView { rejected, reports, predicted, first_fit, levels: map.levels.clone(), sentences }
}

/// A warning where spare nodes are to be kept at a level that there is not.
pub fn unkept_spares(books: &Books<'_>) -> Option<String> {
    let (level, above) = books.spares_without_level()?;
    let known = above.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Some(format!(
        "no spare nodes are kept: `spares` names the level {level}, and the levels above the node are {known}; name one of \
         them, or none for the whole cluster"
    ))
}

pub fn topology(books: &Books<'_>, map: &Map) -> TopologyView {
    TopologyView {
        levels: map.levels.clone(),
        costs: map.costs.clone(),
        nodes: books.nodes().cloned().collect(),
        held: held(books).into_iter().collect(),
    }
}
