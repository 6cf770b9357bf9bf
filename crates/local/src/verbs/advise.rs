//! What to ask for next time, from the history.

use std::collections::BTreeMap;

use phalanx_account::advice::{Charged, Interval, Kind, Run, advise as advise_on};
use phalanx_model::Timestamp;
use phalanx_shell::Engine;

use super::{Failure, unreadable};
use crate::account;
use crate::daemon::Daemon;
use crate::history::{Basis, Group, RUNS_MAX};
use phalanx_api::Peer;
use phalanx_api::protocol::{AdviceView, AdviseAsk, Answer, JobAdvice};

/// Advice on the jobs that a peer may see.
pub(super) fn advise(daemon: &Daemon, peer: &Peer, ask: &AdviseAsk) -> Result<Answer, Failure> {
    account::write_down_for_a_user(daemon);
    if peer.is_operator {
        daemon.used.write_down(daemon);
    } else {
        daemon.used.write_down_for_a_user(daemon);
    }
    let now = daemon.clock.now();
    let uid = (!peer.is_operator).then_some(peer.owner.uid);
    let losses = daemon.progress.losses();
    let interval = |takes_ms, nodes: u32| {
        let best = losses.advise(takes_ms, nodes.into());
        Interval { takes_ms, loss_every_ms: best.loss_every_ms, every_ms: best.every_ms }
    };
    let Basis { runs, charged, prices } = daemon.recorder.advice(uid, ask, interval).map_err(unreadable)?;
    let mut kinds = daemon.engine.look(kinds)?;
    for kind in &mut kinds {
        kind.price_micro = prices.get(&kind.model).copied().unwrap_or_default();
    }
    let is_cut = runs.len() >= RUNS_MAX as usize;
    let mut groups: BTreeMap<Group, Vec<Run>> = BTreeMap::new();
    for (group, run) in runs {
        groups.entry(group).or_default().push(run);
    }
    let jobs = groups.iter().map(|(group, runs)| {
        of_group(group, runs, charged.get(group).copied().unwrap_or_default(), now, &kinds)
    });
    let mut jobs: Vec<JobAdvice> = jobs.collect();
    jobs.sort_by_key(|job| {
        let most = job.advice.iter().map(|advice| (advice.saves.cost_micro, advice.saves.device_us)).max();
        (std::cmp::Reverse(most), job.user.clone(), job.name.clone())
    });
    Ok(Answer::Advice(AdviceView { since: ask.since.unwrap_or_default(), until: now, jobs, is_cut }))
}

fn of_group(group: &Group, runs: &[Run], charged: Charged, now: Timestamp, kinds: &[Kind]) -> JobAdvice {
    let first = runs.iter().map(|run| run.began).min().unwrap_or(now);
    let span_ms = now.since(first);
    let is_sampled = |run: &&Run| run.used.as_ref().is_some_and(|used| used.sampled_ms > 0);
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    JobAdvice {
        name: group.name.clone(),
        user: group.user.clone(),
        uid: group.uid,
        runs: number(runs.len()),
        sampled_runs: number(runs.iter().filter(is_sampled).count()),
        span_ms,
        charged,
        advice: advise_on(runs, charged, span_ms, kinds),
    }
}

/// The devices of the cluster by model, without prices.
fn kinds(engine: &Engine) -> Vec<Kind> {
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    for machine in engine.nodes().map(|node| &node.machine) {
        for device in &machine.devices {
            let kind = kinds.entry(&device.model).or_insert_with(|| Kind {
                model: device.model.clone(),
                memory_bytes: device.memory_bytes,
                ..Kind::default()
            });
            kind.count += 1;
            kind.memory_bytes = kind.memory_bytes.min(device.memory_bytes);
            kind.has_slices |= device.is_sliced;
            kind.has_shares |= !device.is_sliced && machine.replicas == 0;
        }
    }
    kinds.into_values().filter(|kind| !kind.model.is_empty()).collect()
}
