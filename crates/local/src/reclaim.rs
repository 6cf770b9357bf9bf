//! GPUs of idle jobs, by the rules of their queues.
//!
//! After each sample of the GPUs, jobs that run no kernel for longer than the rule of their queue allows are stopped and held,
//! or cancelled: sessions first, then whoever is idle for longest. By default that is done only while gangs wait for GPUs,
//! and to no more jobs than these gangs need. A service is never taken: its own metric scales it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use phalanx_model::show::span;
use phalanx_model::{
    GangId, GangRecord, IdlePolicy, IdleThen, Input, Job, JobId, Phase, QueueName, Reason, Timestamp,
};
use phalanx_shell::{Engine, PumpError};
use tracing::{info, warn};

use crate::daemon::Daemon;
use crate::protocol::EventView;

/// Pending gangs that are asked for their reasons, and searches for these, in one look.
const PENDING_MAX: usize = 1_000;
const SEARCHES_MAX: usize = 64;

/// The rule of a queue, and the queue that has it.
pub(crate) type Rule = (QueueName, IdlePolicy);

/// A running job whose gangs are all idle.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IdleJob {
    job: JobId,
    /// The last kernel on any of its GPUs.
    busy_at: Timestamp,
    devices: u32,
    /// Somebody may work in it.
    is_session: bool,
    queue: QueueName,
    rule: IdlePolicy,
}

/// Takes the GPUs of idle jobs, as the rules of their queues say. `false`: the engine has stopped.
pub(crate) fn look(daemon: &Daemon, now: Timestamp, idle: BTreeMap<GangId, (u32, Timestamp)>) -> bool {
    if idle.is_empty() {
        return true;
    }
    let rules = daemon.access.idle_rules();
    if rules.is_empty() {
        return true;
    }
    let reported_after_ms = daemon.usage.idle_after_ms();
    // No user changes a hold between the look at the jobs and the step of the engine.
    let _holds = daemon.budgets.keep_holds();
    let chosen = daemon.engine.look(move |engine| {
        let due = due(&idle_jobs(engine, &idle, &rules), now, reported_after_ms);
        let wanted = if due.is_empty() { 0 } else { wanted_devices(engine) };
        chosen(due, wanted)
    });
    let Ok(chosen) = chosen else { return false };
    for idle in chosen {
        match daemon.engine.request(facts(&idle), |_, _| ()) {
            Ok(()) => report(daemon, now, &idle),
            Err(PumpError::Stopped) => return false,
            Err(error) => warn!(job = %idle.job, %error, "an idle job cannot be stopped"),
        }
    }
    true
}

/// What the owner of an idle job is told of the rule of its queue.
pub(crate) fn outlook(daemon: &Daemon, job: JobId) -> String {
    let rules = daemon.access.idle_rules();
    let rule = daemon.engine.look(move |engine| {
        let job = engine.job(job)?;
        takes(job, &rules).map(|(queue, rule)| (queue.clone(), rule.clone()))
    });
    let Ok(Some((queue, rule))) = rule else { return String::new() };
    let does = if rule.then == IdleThen::End { "ends" } else { "stops and holds" };
    let when = if rule.is_on_demand { " if other jobs wait for GPUs" } else { "" };
    let after_ms = rule.after_ms.max(daemon.usage.idle_after_ms().saturating_add(rule.notice_ms));
    format!("; queue {queue} {does} such a job after {}{when}", span(after_ms))
}

/// The rule that may take the GPUs of a job.
fn takes<'a>(job: &Job, rules: &'a BTreeMap<QueueName, Rule>) -> Option<&'a Rule> {
    let rule = rules.get(&job.queue).filter(|_| job.turn.service.is_none())?;
    rule.1.takes(&job.owner.name, job.turn.class.as_ref()).then_some(rule)
}

/// Jobs whose active gangs all run and are all idle.
fn idle_jobs(
    engine: &Engine,
    idle: &BTreeMap<GangId, (u32, Timestamp)>,
    rules: &BTreeMap<QueueName, Rule>,
) -> Vec<IdleJob> {
    let mut jobs: Vec<JobId> = idle.keys().map(|gang| gang.job).collect();
    jobs.dedup();
    let is_active = |record: &&GangRecord| !record.is_pending() && !record.is_finished();
    let idle_job = |id: JobId| {
        let job = engine.job(id)?;
        let (queue, rule) = takes(job, rules)?;
        let mut busy_at = Timestamp(0);
        let mut devices = 0_u32;
        for record in engine.active_of(id).filter(is_active) {
            let (attempt, at) = idle.get(&record.id)?;
            let is_it = matches!(record.phase, Phase::Running { .. }) && record.attempt == *attempt;
            busy_at = busy_at.max(Some(*at).filter(|_| is_it)?);
            let held = record.held()?;
            devices = held.slots.iter().fold(devices, |sum, slot| sum.saturating_add(slot.devices.count()));
        }
        let is_session = job.policy.idle_limit_ms.is_some();
        Some(IdleJob { job: id, busy_at, devices, is_session, queue: queue.clone(), rule: rule.clone() })
    };
    jobs.into_iter().filter_map(idle_job).collect()
}

/// Those of idle jobs that are idle for long enough, in the order in which they are taken. Each owner was notified before.
fn due(jobs: &[IdleJob], now: Timestamp, reported_after_ms: u64) -> Vec<IdleJob> {
    let is_due = |idle: &&IdleJob| {
        let reported_ms = reported_after_ms.saturating_add(idle.rule.notice_ms);
        now.since(idle.busy_at) >= idle.rule.after_ms.max(reported_ms)
    };
    let mut due: Vec<IdleJob> = jobs.iter().filter(is_due).cloned().collect();
    due.sort_by_key(|idle| (Reverse(idle.is_session), idle.busy_at, idle.job));
    due
}

/// Of these, in order, all that are taken in any case, and as many others as free the GPUs that are wanted.
fn chosen(due: Vec<IdleJob>, wanted: u32) -> Vec<IdleJob> {
    let always = due.iter().filter(|idle| !idle.rule.is_on_demand);
    let mut wanted = always.fold(wanted, |wanted, idle| wanted.saturating_sub(idle.devices));
    let mut is_taken = |idle: &IdleJob| {
        if !idle.rule.is_on_demand {
            return true;
        }
        let is_wanted = wanted > 0;
        wanted = wanted.saturating_sub(idle.devices);
        is_wanted
    };
    due.into_iter().filter(|idle| is_taken(idle)).collect()
}

/// GPUs of gangs that wait for room, without those that are about to be free.
fn wanted_devices(engine: &Engine) -> u32 {
    let mut wanted = BTreeMap::new();
    let mut leaving = 0_u32;
    for (job, records) in engine.jobs() {
        for (gang, record) in job.each_gang().zip(records) {
            if record.is_pending() && wanted.len() < PENDING_MAX {
                wanted.insert(record.id, gang.device_count());
            } else if matches!(record.phase, Phase::Stopping { .. }) {
                leaving = leaving.saturating_add(gang.device_count());
            }
        }
    }
    let pending: Vec<GangId> = wanted.keys().copied().collect();
    let reasons = engine.reasons_of(&pending, SEARCHES_MAX);
    let waits = reasons.iter().filter(|(_, reason)| waits_for_room(reason));
    let wanted = waits.filter_map(|(gang, _)| wanted.get(gang));
    wanted.fold(0_u32, |sum, devices| sum.saturating_add(*devices)).saturating_sub(leaving)
}

/// Whether a gang would start with more free GPUs.
const fn waits_for_room(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Resources { .. }
            | Reason::Topology { .. }
            | Reason::Nodes { .. }
            | Reason::Shape { .. }
            | Reason::PreferredWait { .. }
            | Reason::NearerWait { .. }
            | Reason::Priority { .. }
            | Reason::BudgetExhausted { .. }
    )
}

fn facts(idle: &IdleJob) -> Vec<Input> {
    let (job, by) = (idle.job, format!("the idle rule of queue {}", idle.queue));
    match idle.rule.then {
        IdleThen::Warn => Vec::new(),
        IdleThen::Hold => vec![Input::JobHeld { job, by: by.clone() }, Input::JobRequeued { job, by }],
        IdleThen::End => vec![Input::CancelRequested { job, by }],
    }
}

/// Logs it, records it in the history of the job, and notifies the owner.
fn report(daemon: &Daemon, now: Timestamp, idle: &IdleJob) {
    let (what, hint) = match idle.rule.then {
        IdleThen::End => ("cancelled", String::new()),
        _ => ("stopped and held", format!("; `phalanx release {}` queues it again", idle.job)),
    };
    let since = span(now.since(idle.busy_at));
    let detail =
        format!("no kernel ran on its GPUs for {since}, by the idle rule of queue {}{hint}", idle.queue);
    info!(job = %idle.job, devices = idle.devices, detail, "an idle job is {what}");
    daemon.usage.taken(idle.rule.then);
    let view = EventView { at: now, what: what.to_owned(), detail: detail.clone(), record: None };
    daemon.recorder.event(idle.job, view);
    daemon.warn_owner(idle.job, "idle_taken", detail);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn idle(job: u64, minutes: u64, devices: u32, rule: &IdlePolicy) -> IdleJob {
        IdleJob {
            job: JobId(job),
            busy_at: Timestamp((1_000 - minutes) * MINUTE),
            devices,
            is_session: false,
            queue: QueueName::new("research").unwrap(),
            rule: rule.clone(),
        }
    }

    fn numbers(jobs: &[IdleJob]) -> Vec<u64> {
        jobs.iter().map(|idle| idle.job.0).collect()
    }

    fn rule(is_on_demand: bool) -> IdlePolicy {
        IdlePolicy { then: IdleThen::Hold, is_on_demand, ..IdlePolicy::default() }
    }

    #[test]
    fn sessions_go_first_then_whoever_is_idle_for_longest_and_nobody_without_notice() {
        let rule = rule(true);
        let session = IdleJob { is_session: true, ..idle(1, 31, 1, &rule) };
        let jobs = [idle(2, 29, 1, &rule), idle(3, 30, 1, &rule), idle(4, 40, 1, &rule), session];
        let now = Timestamp(1_000 * MINUTE);
        assert_eq!(numbers(&due(&jobs, now, 15 * MINUTE)), [1, 4, 3]);
        // Idle jobs are reported after 30 minutes here, so that the notice of 5 minutes ends after 35.
        assert_eq!(numbers(&due(&jobs, now, 30 * MINUTE)), [4]);
    }

    #[test]
    fn no_more_jobs_are_taken_than_free_what_others_wait_for() {
        let (asked, always) = (rule(true), rule(false));
        let due = || vec![idle(1, 60, 4, &asked), idle(2, 50, 2, &always), idle(3, 40, 4, &asked)];
        assert_eq!(numbers(&chosen(due(), 0)), [2], "nobody waits");
        assert_eq!(numbers(&chosen(due(), 2)), [2], "the one that goes anyway is enough");
        assert_eq!(numbers(&chosen(due(), 6)), [1, 2]);
        assert_eq!(numbers(&chosen(due(), 7)), [1, 2, 3]);
    }
}
