//! GPUs of idle jobs, by the rules of their queues.
//!
//! After each sample of the GPUs, jobs that run no kernel for longer than the rule of their queue allows are stopped and held,
//! or cancelled: sessions first, then whoever is idle for longest. By default that is done only if another job would start
//! then, and to the fewest jobs with which it would: the engine answers that on a copy of itself. A service is never taken:
//! its own metric scales it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::show::span;
use phalanx_model::{
    Answer, GangId, IdlePolicy, IdleThen, Input, Job, JobId, Phase, Question, QueueName, Timestamp,
};
use phalanx_shell::{Engine, PumpError};
use tracing::{info, warn};

use crate::daemon::Daemon;
use crate::usage::Idle;
use phalanx_api::protocol::EventView;

/// Idle jobs that are considered in one look: each costs two questions to the engine.
const DUE_MAX: usize = 16;

/// The rule of a queue, and the queue that has it.
pub(crate) type Rule = (QueueName, IdlePolicy);

/// A running job whose gangs are all idle.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IdleJob {
    job: JobId,
    /// The last kernel on any of its GPUs.
    busy_at: Timestamp,
    /// When its owner was notified of that and of the rule.
    told_at: Timestamp,
    devices: u32,
    /// Somebody may work in it.
    is_session: bool,
    /// A user or a budget holds it already.
    is_held: bool,
    queue: QueueName,
    rule: IdlePolicy,
}

/// Takes the GPUs of idle jobs, as the rules of their queues say. `false`: the engine has stopped.
pub(crate) fn look(daemon: &Daemon, now: Timestamp, idle: BTreeMap<GangId, Idle>) -> bool {
    let rules = daemon.access.idle_rules();
    if idle.is_empty() || rules.is_empty() {
        return true;
    }
    // No user changes a hold between the look at the jobs and the step of the engine.
    let _holds = daemon.budgets.keep_holds();
    let chosen = daemon.engine.look(move |engine| {
        let due = due(idle_jobs(engine, &idle, &rules), now);
        let opens = |jobs: &[JobId]| starts_without(engine, jobs);
        if due.is_empty() { due } else { chosen(due, is_leaving(engine), opens) }
    });
    let Ok(chosen) = chosen else { return false };
    for idle in chosen {
        let job = idle.job;
        let runs = move |engine: &Engine| {
            engine.active_of(job).any(|gang| matches!(gang.phase, Phase::Running { .. }))
        };
        match daemon.engine.request(facts(&idle), move |engine, _| runs(engine)) {
            Ok(true) => warn!(%job, "an idle job goes on: it changed meanwhile"),
            Ok(false) => report(daemon, now, &idle),
            Err(PumpError::Stopped) => return false,
            Err(error) => warn!(%job, %error, "an idle job cannot be stopped"),
        }
    }
    true
}

/// What owners of idle gangs are told of the rules of their queues. `None`: the engine has stopped.
pub(crate) fn outlooks(daemon: &Daemon, gangs: Vec<GangId>) -> Option<Vec<(GangId, String)>> {
    let rules = daemon.access.idle_rules();
    let reported_after_ms = daemon.usage.idle_after_ms();
    let of = move |engine: &Engine| {
        let outlook = |gang: GangId| {
            let rule = engine.job(gang.job).and_then(|job| takes(job, &rules));
            (gang, rule.map_or_else(String::new, |(queue, rule)| outlook(queue, rule, reported_after_ms)))
        };
        gangs.into_iter().map(outlook).collect()
    };
    daemon.engine.look(of).ok()
}

fn outlook(queue: &QueueName, rule: &IdlePolicy, reported_after_ms: u64) -> String {
    let does = if rule.then == IdleThen::End { "ends" } else { "stops and holds" };
    let when = if rule.is_on_demand { " if another job can start then" } else { "" };
    let after_ms = rule.after_ms.max(reported_after_ms.saturating_add(rule.notice_ms));
    format!("; queue {queue} {does} such a job after {}{when}", span(after_ms))
}

/// The rule that may take the GPUs of a job.
fn takes<'a>(job: &Job, rules: &'a BTreeMap<QueueName, Rule>) -> Option<&'a Rule> {
    let rule = rules.get(&job.queue).filter(|_| job.turn.service.is_none())?;
    rule.1.takes(&job.owner, job.turn.class.as_ref()).then_some(rule)
}

/// Jobs whose gangs with GPUs all run and are all idle.
fn idle_jobs(
    engine: &Engine,
    idle: &BTreeMap<GangId, Idle>,
    rules: &BTreeMap<QueueName, Rule>,
) -> Vec<IdleJob> {
    let jobs: BTreeSet<JobId> = idle.keys().map(|gang| gang.job).collect();
    let idle_job = |id: JobId| {
        let job = engine.job(id)?;
        let (queue, rule) = takes(job, rules)?;
        let (mut busy_at, mut told_at, mut devices) = (Timestamp(0), Timestamp(0), 0_u32);
        for record in engine.active_of(id).filter(|record| !record.is_pending()) {
            let held = record.held()?;
            let count = held.slots.iter().fold(0_u32, |sum, slot| sum.saturating_add(slot.devices.count()));
            if count == 0 {
                continue;
            }
            let gang = idle.get(&record.id).filter(|gang| gang.attempt == record.attempt)?;
            matches!(record.phase, Phase::Running { .. }).then_some(())?;
            (busy_at, told_at) = (busy_at.max(gang.busy_at), told_at.max(gang.told_at?));
            devices = devices.saturating_add(count);
        }
        let is_session = job.policy.idle_limit_ms.is_some();
        let is_held = job.turn.held_by.is_some();
        let (queue, rule) = (queue.clone(), rule.clone());
        (devices > 0).then_some(IdleJob {
            job: id,
            busy_at,
            told_at,
            devices,
            is_session,
            is_held,
            queue,
            rule,
        })
    };
    jobs.into_iter().filter_map(idle_job).collect()
}

/// Those of idle jobs that are idle for long enough and whose owners were notified before, in the order in which they are taken.
fn due(mut jobs: Vec<IdleJob>, now: Timestamp) -> Vec<IdleJob> {
    jobs.retain(|idle| {
        now.since(idle.busy_at) >= idle.rule.after_ms && now.since(idle.told_at) >= idle.rule.notice_ms
    });
    jobs.sort_by_key(|idle| (Reverse(idle.is_session), idle.busy_at, idle.job));
    jobs
}

/// Of these, all that are taken in any case, and the fewest of the others, in order, without which another job starts. Nobody
/// else is taken while gangs leave: what they free may be enough.
fn chosen(due: Vec<IdleJob>, is_leaving: bool, starts: impl Fn(&[JobId]) -> BTreeSet<JobId>) -> Vec<IdleJob> {
    let (others, mut taken): (Vec<_>, Vec<_>) = due.into_iter().partition(|idle| idle.rule.is_on_demand);
    if others.is_empty() || is_leaving || !taken.is_empty() {
        return taken;
    }
    let numbers = |jobs: &[IdleJob]| -> Vec<JobId> { jobs.iter().map(|idle| idle.job).collect() };
    let anyway = starts(&[]);
    for next in others.into_iter().take(DUE_MAX) {
        taken.push(next);
        let Some(opened) = starts(&numbers(&taken)).into_iter().find(|job| !anyway.contains(job)) else {
            continue;
        };
        // Those that were tried before may not be needed.
        let mut at = 0;
        while at < taken.len() {
            let mut without = taken.clone();
            without.remove(at);
            if starts(&numbers(&without)).contains(&opened) { taken = without } else { at += 1 }
        }
        return taken;
    }
    Vec::new()
}

/// Whether gangs are being stopped: their GPUs will be free.
fn is_leaving(engine: &Engine) -> bool {
    let mut records = engine.jobs().flat_map(|(_, records)| records);
    records.any(|record| matches!(record.phase, Phase::Stopping { .. }))
}

/// Jobs of which a gang would start if these jobs were not there.
fn starts_without(engine: &Engine, jobs: &[JobId]) -> BTreeSet<JobId> {
    match engine.what_if(&Question::Ended(jobs.to_vec())) {
        Answer::Moves { start, .. } => start.into_iter().collect(),
        _ => BTreeSet::new(),
    }
}

fn facts(idle: &IdleJob) -> Vec<Input> {
    let (job, by) = (idle.job, format!("the idle rule of queue {}", idle.queue));
    match idle.rule.then {
        IdleThen::Warn => Vec::new(),
        IdleThen::Hold if idle.is_held => vec![Input::JobRequeued { job, by }],
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
    const NOW: Timestamp = Timestamp(1_000 * MINUTE);

    /// Idle for so long; its owner was notified ten minutes ago.
    fn idle(job: u64, minutes: u64, rule: &IdlePolicy) -> IdleJob {
        IdleJob {
            job: JobId(job),
            busy_at: Timestamp((1_000 - minutes) * MINUTE),
            told_at: Timestamp(990 * MINUTE),
            devices: 1,
            is_session: false,
            is_held: false,
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
        let session = IdleJob { is_session: true, ..idle(1, 31, &rule) };
        let unwarned = IdleJob { told_at: Timestamp(996 * MINUTE), ..idle(5, 90, &rule) };
        let jobs = vec![idle(2, 29, &rule), idle(3, 30, &rule), idle(4, 40, &rule), session, unwarned];
        assert_eq!(numbers(&due(jobs, NOW)), [1, 4, 3]);
    }

    #[test]
    fn the_fewest_jobs_are_taken_with_which_another_starts() {
        let rule = rule(true);
        let due = || (1..=4).map(|job| idle(job, 60, &rule)).collect::<Vec<_>>();
        let starts = |needs: &'static [&'static [u64]]| {
            move |without: &[JobId]| {
                let is_enough = |jobs: &&[u64]| jobs.iter().all(|job| without.contains(&JobId(*job)));
                let mut start: BTreeSet<JobId> = [JobId(9)].into();
                start.extend(needs.iter().any(is_enough).then_some(JobId(10)));
                start
            }
        };
        assert_eq!(numbers(&chosen(due(), false, starts(&[]))), [0_u64; 0], "none of them helps");
        assert_eq!(numbers(&chosen(due(), false, starts(&[&[2, 4]]))), [2, 4]);
        assert_eq!(numbers(&chosen(due(), false, starts(&[&[1, 2], &[3]]))), [1, 2], "in order");
        assert_eq!(numbers(&chosen(due(), true, starts(&[&[1]]))), [0_u64; 0], "others leave");
        let always = self::rule(false);
        let both = vec![idle(1, 60, &rule), idle(2, 60, &always)];
        assert_eq!(numbers(&chosen(both, true, starts(&[&[1]]))), [2], "what it frees may be enough");
    }

    #[test]
    fn users_are_spared_by_name_and_number() {
        let owner = phalanx_model::Owner { uid: 17, gid: 17, name: "ada".to_owned() };
        let takes = |users: &[&str]| {
            let spared_users = users.iter().map(|user| (*user).to_owned()).collect();
            IdlePolicy { spared_users, ..rule(true) }.takes(&owner, None)
        };
        assert_eq!([takes(&[]), takes(&["bob", "18"])], [true, true]);
        assert_eq!([takes(&["ada"]), takes(&["17"]), takes(&["*"])], [false, false, false]);
    }
}
