//! What people see: the engine's books turned into the shapes of the protocol.

mod array;
mod calendar;
mod counts;
mod first_fit;
mod map;
mod nodes;
mod queues;
mod service;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{
    CostTable, Ending, Gang, GangId, GangRecord, Job, JobId, Levels, MemberState, Node, NodeName, Pattern,
    Phase, Placement, Question, Reason, Report, Role, Tasks, Timestamp, Traffic,
};
use phalanx_shell::{Engine, cost, sentences};

pub(crate) use calendar::calendar;
pub(crate) use counts::{counts, job_counts, waiting};
pub(crate) use map::map;
pub(crate) use nodes::{Found, find_nodes, held, node, nodes};
use phalanx_api::protocol::{
    DryRunView, ElasticView, GangView, JobFilter, JobView, MemberView, PredictedView, RoleView, ServiceView,
    TopologyView, Wanted,
};
pub(crate) use queues::{queue, queues};
pub(crate) use told::why as why_sentences;

/// The message that stands in where a job does not say what its ranks send: 1 GiB, all-reduced.
const STANDARD: Traffic = Traffic { pattern: Pattern::AllReduce, bytes: 1 << 30, compute_ns: 0 };

/// What does not change while the daemon runs: levels and costs, and what predictions rest on.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) levels: Levels,
    pub(crate) costs: CostTable,
    pub(crate) constants: cost::Constants,
}

impl Map {
    /// What the cost model says of a placement.
    pub(crate) fn predict(
        &self,
        nodes: &[Node],
        gang: &Gang,
        placement: &Placement,
    ) -> Option<PredictedView> {
        let traffic = gang.traffic.unwrap_or(STANDARD);
        // What members of other roles send is not said.
        let own = placement.slots.iter().take(gang.size as usize).cloned().collect();
        let placement = &Placement { slots: own, level: placement.level.clone() };
        let Self { levels, costs: table, constants } = self;
        let input = cost::Input { table, levels, nodes, placement, traffic, constants };
        let said = cost::predict(&input).ok()?;
        let rests_on = if gang.traffic.is_some() { "as the job declares" } else { "for a 1 GiB all-reduce" };
        let assumed = assumed_speed(nodes, placement);
        Some(PredictedView {
            step_us: said.step_ns / 1_000,
            communication_us: said.communication_ns / 1_000,
            bandwidth_bytes_per_s: said.bandwidth_bytes_per_s,
            sentence: format!("{said} ({rests_on}{assumed}; predicted)"),
        })
    }
}

/// `; NICs assumed to have 400 Gb/s`, if a prediction over several nodes rests on a speed that no source gives.
fn assumed_speed(nodes: &[Node], placement: &Placement) -> String {
    let names: BTreeSet<&NodeName> = placement.slots.iter().map(|slot| &slot.node).collect();
    if names.len() < 2 {
        return String::new();
    }
    let used = nodes.iter().filter(|node| names.contains(&node.name)).map(|node| &node.machine);
    let speeds = used.flat_map(|machine| {
        let nic =
            |nic: u32| machine.nics.get(nic as usize).filter(|n| n.bytes_per_s.is_none() || n.is_assumed);
        machine.collective_nics().into_iter().filter_map(move |(at, _)| nic(at)).map(|nic| nic.bytes_per_s)
    });
    let least =
        speeds.map(|bytes| bytes.map_or(u64::from(cost::NIC_MB_PER_S) / 125, |b| b / 125_000_000)).min();
    least.map_or_else(String::new, |gb| format!("; NICs assumed to have {gb} Gb/s"))
}

/// Searches for the reasons of many jobs, in one go of the thread that decides: one takes 10 ms with 12,800 nodes.
const REASON_SEARCHES_MAX: usize = 4;

/// Why gangs wait.
pub(crate) type Reasons = BTreeMap<GangId, Reason>;

/// One job of the books. `full` adds what lists leave out.
pub(crate) fn job(engine: &Engine, map: &Map, id: JobId, full: bool) -> Option<JobView> {
    view(engine, map, id, full, &reasons_of(engine, &[id], &Reasons::new()))
}

/// Tasks of an array of the books.
pub(crate) fn tasks(engine: &Engine, map: &Map, id: JobId, tasks: &Tasks) -> Option<JobView> {
    let job = engine.job(id).filter(|job| job.turn.array.is_some())?;
    let records = array::asked(engine, job, tasks);
    let waiting: Vec<GangId> = records.iter().filter(|r| r.is_pending()).map(|r| r.id).collect();
    view_of(engine, map, job, &records, true, &engine.reasons_of(&waiting, REASON_SEARCHES_MAX))
}

/// A job after these of its gangs changed, for the record.
pub(crate) fn changed(engine: &Engine, map: &Map, id: JobId, gangs: &BTreeSet<GangId>) -> Option<JobView> {
    let job = engine.job(id)?;
    let reasons = reasons_of(engine, &[id], &Reasons::new());
    if job.turn.array.is_none() {
        return view(engine, map, id, false, &reasons);
    }
    let records = array::changed(engine, job, gangs);
    view_of(engine, map, job, &records, false, &reasons)
}

/// Jobs of the books, as lists show them; `known` are reasons that need no search.
pub(crate) fn jobs(engine: &Engine, map: &Map, ids: &[JobId], known: &Reasons) -> Vec<JobView> {
    let reasons = reasons_of(engine, ids, known);
    ids.iter().filter_map(|id| view(engine, map, *id, false, &reasons)).collect()
}

/// Why each job that waits does. Of many request classes the newest are searched for; the others waited for this reason
/// when they were evaluated last.
pub(crate) fn reasons(engine: &Engine) -> Reasons {
    let ids: Vec<JobId> = engine.jobs().map(|(job, _)| job.id).collect();
    let newest: Vec<JobId> = ids.into_iter().rev().collect();
    reasons_of(engine, &newest, &Reasons::new())
}

fn reasons_of(engine: &Engine, ids: &[JobId], known: &Reasons) -> Reasons {
    let waiting = |id: &JobId| {
        let job = engine.job(*id)?;
        match job.turn.array {
            Some(_) => array::next(engine, job).map(|record| record.id),
            None => waiting_gang(engine, &records(engine, job)),
        }
    };
    let waiting: Vec<GangId> = ids.iter().filter_map(waiting).collect();
    let (told, unknown): (Vec<GangId>, Vec<GangId>) =
        waiting.into_iter().partition(|gang| known.contains_key(gang));
    let mut reasons = engine.reasons_of(&unknown, REASON_SEARCHES_MAX);
    reasons.extend(told.into_iter().filter_map(|gang| Some((gang, known.get(&gang)?.clone()))));
    reasons
}

fn records<'a>(engine: &'a Engine, job: &Job) -> Vec<&'a GangRecord> {
    job.gang_ids().filter_map(|id| engine.gang(id)).collect()
}

/// The gang for which a job waits, if it does. A service is asked for by those of its replicas that are wanted.
fn waiting_gang(engine: &Engine, records: &[&GangRecord]) -> Option<GangId> {
    let wanted = |record: &&&GangRecord| !service::rests(engine, record);
    let told = |record: &&&GangRecord| matches!(record.phase, Phase::Pending { .. } | Phase::Stopping { .. });
    let first = records.iter().filter(wanted).find(told)?;
    first.is_pending().then_some(first.id)
}

fn view(engine: &Engine, map: &Map, id: JobId, full: bool, reasons: &Reasons) -> Option<JobView> {
    let job = engine.job(id)?;
    let records = match job.turn.array {
        Some(_) => array::shown(engine, job, full),
        None => records(engine, job),
    };
    view_of(engine, map, job, &records, full, reasons)
}

/// A job with these of its gangs: all of them, unless it is an array.
fn view_of(
    engine: &Engine,
    map: &Map,
    job: &Job,
    records: &[&GangRecord],
    full: bool,
    reasons: &Reasons,
) -> Option<JobView> {
    let (id, progress) = (job.id, engine.progress(job.id)?);
    // Of the equal tasks of an array the first is told when it would start.
    let is_one_of_many = |at: usize| job.turn.array.is_some() && records[..at].iter().any(|r| r.is_pending());
    let each = records.iter().enumerate();
    let gangs = each.filter_map(|(at, r)| gang(engine, map, job, r, full && !is_one_of_many(at))).collect();
    let ending = engine.ending(id).cloned();
    let array = array::view(job, progress, records).map(Box::new);
    let service = job.turn.service.as_ref().and_then(|asked| service::service(engine, id, asked, records));
    let state = settled_state(engine, job).unwrap_or_else(|| state_of(records, service.as_ref()));
    let (reason, detail) = reason(engine, ending.as_ref(), records, reasons);
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

fn class_of(job: &Job) -> String {
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
    engine: &Engine,
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
    for record in records.iter().filter(|record| !service::rests(engine, record)) {
        match &record.phase {
            Phase::Pending { .. } => {
                let reason = reasons.get(&record.id).unwrap_or(&Reason::None);
                return (reason.word().to_owned(), sentences::reason(engine, reason));
            }
            Phase::Stopping { cause, .. } => return (String::new(), sentences::stop(engine, cause)),
            _ => {}
        }
    }
    (String::new(), String::new())
}

fn gang(engine: &Engine, map: &Map, job: &Job, record: &GangRecord, full: bool) -> Option<GangView> {
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
    let estimate = if full && record.is_pending() { engine.explain(record.id) } else { None };
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
        predicted: placement.filter(|_| full).and_then(|p| map.predict(&nodes_of(engine, p), gang, p)),
    })
}

/// The nodes of a placement, of which a cluster has many more.
fn nodes_of(engine: &Engine, placement: &Placement) -> Vec<Node> {
    let names: BTreeSet<&NodeName> = placement.slots.iter().map(|slot| &slot.node).collect();
    names.into_iter().filter_map(|name| engine.node(name)).cloned().collect()
}

fn role(role: &Role) -> RoleView {
    let Role { name, size, needs, .. } = role;
    RoleView { name: name.to_string(), size: *size, devices_per_member: needs.devices }
}

/// The newest jobs of the books that are wanted, by whether they are finished, too; newest last.
pub(crate) fn newest(engine: &Engine, limit: usize, finished: bool, filter: &JobFilter) -> Vec<JobId> {
    let text = filter.text.as_deref().map(Wanted::new);
    let has_text = |job: &Job| {
        let has = |text: &Wanted| {
            let names = [job.name.as_str(), &job.owner.name, job.queue.as_str()];
            text.is_in(names) || text.is_in([&*job.id.to_string()])
        };
        text.as_ref().is_none_or(has)
    };
    let is_wanted = |job: &Job| {
        (finished || engine.ending(job.id).is_none())
            && filter.before.is_none_or(|before| job.id < before)
            && filter.uid.is_none_or(|uid| job.owner.uid == uid)
            && filter.user.as_ref().is_none_or(|user| job.owner.name == *user)
            && filter.queue.as_ref().is_none_or(|queue| job.queue == *queue)
            && filter.has_name(job.name.as_str())
            && has_text(job)
            && (filter.states.is_empty() || filter.has_state(state(engine, job)))
    };
    let mut ids: Vec<JobId> =
        engine.jobs().map(|(job, _)| job).filter(|job| is_wanted(job)).map(|job| job.id).collect();
    ids.split_off(ids.len().saturating_sub(limit))
}

/// The word for the state of a job, as its view has it.
fn state(engine: &Engine, job: &Job) -> &'static str {
    settled_state(engine, job).unwrap_or_else(|| {
        let records = records(engine, job);
        let asked = job.turn.service.as_ref();
        let service = asked.and_then(|asked| service::service(engine, job.id, asked, &records));
        state_of(&records, service.as_ref())
    })
}

/// The same for a job that has ended, and for an array, of which no record need be looked at.
fn settled_state(engine: &Engine, job: &Job) -> Option<&'static str> {
    let of_array = || job.turn.array.as_ref().and_then(|_| engine.progress(job.id)).map(array::state);
    engine.ending(job.id).map(Ending::word).or_else(of_array)
}

/// Gangs of one job that are explained: each costs a search, and arrays have many.
const REPORTS_MAX: usize = 64;

/// Why each gang of a job waits; those that wait come first where not all are told. Of replicas that rest, one is told
/// for all.
pub(crate) fn reports(engine: &Engine, id: JobId, tasks: Option<&Tasks>) -> Vec<Report> {
    let Some(job) = engine.job(id) else { return Vec::new() };
    if job.turn.array.is_some() {
        let shown = array::explained(engine, job, tasks);
        return shown.iter().filter_map(|record| engine.explain(record.id)).collect();
    }
    let ids = job.gang_ids();
    let (waiting, others): (Vec<GangId>, Vec<GangId>) =
        ids.partition(|gang| engine.gang(*gang).is_some_and(GangRecord::is_pending));
    let (resting, waiting): (Vec<GangId>, Vec<GangId>) =
        waiting.into_iter().partition(|gang| engine.gang(*gang).is_some_and(|r| service::rests(engine, r)));
    let told = waiting.into_iter().chain(resting.into_iter().take(1)).chain(others).take(REPORTS_MAX);
    told.filter_map(|gang| engine.explain(gang)).collect()
}

pub(crate) fn dry_run(engine: &Engine, map: &Map, job: &Job, now: Timestamp) -> DryRunView {
    let nodes: Vec<&Node> = engine.nodes().collect();
    let (rejected, reports) = match engine.what_if(&Question::Submitted(Box::new(job.clone()))) {
        phalanx_model::Answer::WouldBe(reports) => (None, reports),
        phalanx_model::Answer::Rejected(why) => (Some(why), Vec::new()),
        _ => (None, Vec::new()),
    };
    let gang_of = |report: &Report| job.gang_at(report.gang.index);
    let predicted = |report: &Report| {
        let placement = report.nearest.as_ref()?;
        map.predict(&nodes_of(engine, placement), gang_of(report)?, placement)
    };
    let predicted = reports.iter().map(predicted).collect();
    let first_fit = reports.iter().map(|r| first_fit::first_fit(engine, map, &nodes, gang_of(r)?)).collect();
    let sentences = told::dry_run(engine, now, rejected.as_ref(), &reports);
    DryRunView { rejected, reports, predicted, first_fit, levels: map.levels.clone(), sentences }
}

/// A warning where spare nodes are to be kept at a level that there is not.
pub(crate) fn unkept_spares(engine: &Engine) -> Option<String> {
    let (level, above) = engine.spares_without_level()?;
    let known = above.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Some(format!(
        "no spare nodes are kept: `spares` names the level {level}, and the levels above the node are {known}; name one of \
         them, or none for the whole cluster"
    ))
}

pub(crate) fn topology(engine: &Engine, map: &Map) -> TopologyView {
    TopologyView {
        levels: map.levels.clone(),
        costs: map.costs.clone(),
        nodes: engine.nodes().cloned().collect(),
        held: held(engine).into_iter().collect(),
    }
}

/// The current placement of a gang, for orders that do not carry it.
pub(crate) fn size_of(engine: &Engine, gang: GangId) -> u32 {
    engine.gang(gang).map_or(0, |r| u32::try_from(r.members.len()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use phalanx_model::{Device, LevelName, Machine, Nic, Origin, Slot};

    use super::*;

    #[test]
    fn a_prediction_over_nodes_says_which_speed_is_assumed() {
        let node = |name: &str, model: &str, bytes_per_s: Option<u64>| {
            let mut machine = Machine::bare(Origin::Declared);
            machine.devices = vec![Device { model: model.to_owned(), ..Device::default() }];
            machine.nics = vec![Nic { bytes_per_s, ..Nic::default() }];
            machine.assume_nic_speeds();
            Node::new(NodeName::new(name).unwrap(), Vec::new(), Arc::new(machine))
        };
        let said = |nodes: &[Node]| {
            let slot = |(rank, node): (u32, &Node)| Slot {
                rank,
                node: node.name.clone(),
                devices: phalanx_model::DeviceMask::one(0),
                part: None,
            };
            let slots = (0..).zip(nodes).map(slot).collect();
            assumed_speed(nodes, &Placement { slots, level: LevelName::new("node").unwrap() })
        };
        let known = || node("a", "NVIDIA B200", Some(50_000_000_000));
        assert_eq!(said(&[known(), node("b", "NVIDIA B200", None)]), "; NICs assumed to have 400 Gb/s");
        assert_eq!(said(&[known(), node("b", "", None)]), "; NICs assumed to have 100 Gb/s");
        assert_eq!(said(&[known(), node("b", "", Some(1))]), "");
        // Inside of one node no NIC counts.
        assert_eq!(said(&[node("b", "", None)]), "");
    }
}
