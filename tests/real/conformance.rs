//! One story, told twice: by a daemon with real processes, and by the simulator. What the engine decides is the same, word by
//! word, but for the times.

use std::collections::BTreeMap;
use std::fs;

use phalanx_api::protocol::Verb;
use phalanx_journal::{Record, read, segments};
use phalanx_model::{Change, Input, Job, JobId, JobName, NodeName, Placement, QueueName, StopCause};

use crate::story::{self, Do, STORY};
use crate::support::{Bench, TWO_NODES_OF_8, gang, shell, until};

fn job(name: &str, queue: &str, ranks: u32, script: &str) -> Job {
    let mut job = shell(ranks, script);
    gang(&mut job).needs.devices = 1;
    Job { name: JobName::new(name).unwrap(), queue: QueueName::new(queue).unwrap(), ..job }
}

/// Decisions in words, without times: jobs are numbered alike in both worlds. Why somebody waits is said again whenever a
/// number in it changes; here each reason counts once.
fn in_words(changes: &[Change]) -> Vec<String> {
    let mut reasons = BTreeMap::new();
    changes.iter().filter_map(|change| word(change, &mut reasons)).collect()
}

fn word(change: &Change, reasons: &mut BTreeMap<JobId, &'static str>) -> Option<String> {
    let on = |placement: &Placement| {
        let slots = placement.slots.iter().map(|slot| format!("{}:{}", slot.node, slot.devices));
        slots.collect::<Vec<_>>().join(" ")
    };
    Some(match change {
        Change::GangPlaced { gang, attempt, placement } => format!("{gang} #{attempt} on {}", on(placement)),
        Change::GangStopping { gang, cause: StopCause::Preempted(eviction), .. } => {
            format!("{gang} makes way for {}: {:?}", eviction.by, eviction.rule)
        }
        // By whom differs: here somebody has a name.
        Change::GangStopping { gang, cause: StopCause::Cancelled { .. }, .. } => {
            format!("{gang} is cancelled")
        }
        Change::GangStopping { gang, cause, .. } => format!("{gang} stops: {cause:?}"),
        Change::GangReserved { gang, reserved } => {
            format!("{gang} is to have {}, others go: {}", on(&reserved.placement), reserved.evicts)
        }
        Change::GangFinished { gang, ending } => format!("{gang} ended: {}", ending.word()),
        Change::ReasonChanged { gang, reason } => {
            let is_new = reasons.insert(gang.job, reason.word()) != Some(reason.word());
            return is_new.then(|| format!("{gang} waits: {}", reason.word()));
        }
        _ => return None,
    })
}

/// The decisions that a daemon's journal holds, and the facts of its cluster.
fn journal(bench: &Bench) -> (Vec<Change>, Vec<Input>) {
    let (mut changes, mut facts) = (Vec::new(), Vec::new());
    for segment in segments(&bench.paths.journal()).unwrap() {
        let (_, records, _) = read(&segment.path).unwrap();
        for record in records {
            match record {
                Record::Decisions { changes: of_step, .. } => changes.extend(of_step),
                Record::Facts { inputs, .. } => facts.extend(inputs),
            }
        }
    }
    (changes, facts)
}

/// As the cluster file numbers them.
fn node(at: usize) -> NodeName {
    NodeName::new(format!("n{}", at + 1)).unwrap()
}

fn on_real_processes() -> (Vec<Change>, Vec<Input>) {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let queues = story::queues().to_vec();
    bench.done(Verb::ApplyQueues { settings: Box::new(story::settings()), queues });
    let mut ids = BTreeMap::new();
    for act in &STORY {
        match act {
            Do::Submit(name, queue, ranks) => {
                let until_told = format!("until [ -e {} ]; do sleep 0.05; done", bench.path(name).display());
                ids.insert(*name, bench.submit(job(name, queue, *ranks, &until_told)));
            }
            Do::End(name) => fs::write(bench.path(name), "").unwrap(),
            Do::Cancel(name) => {
                bench.cancel(ids[name]);
            }
            Do::Cordon(at) => drop(bench.done(Verb::Cordon { node: node(*at), reason: None })),
            Do::Uncordon(at) => drop(bench.done(Verb::Uncordon { node: node(*at) })),
        }
        let mut before = usize::MAX;
        until("nothing more happens", || {
            let is_passing = |id: &JobId| ["starting", "stopping"].contains(&bench.get(*id).state.as_str());
            let all = journal(&bench).0.len();
            let is_ended = |name: &&str| bench.get(ids[*name]).state == "succeeded";
            let was_told = if let Do::End(name) = act { is_ended(name) } else { true };
            std::mem::replace(&mut before, all) == all && was_told && !ids.values().any(is_passing)
        });
    }
    journal(&bench)
}

fn simulated(cluster: &[Input]) -> Vec<Change> {
    story::simulated(cluster, node).into_iter().flat_map(|(changes, _)| changes).collect()
}

#[test]
fn one_story_is_decided_alike_by_the_simulator_and_on_real_processes() {
    let (real, facts) = on_real_processes();
    let (real, simulated) = (in_words(&real), in_words(&simulated(&facts)));
    assert!(real.iter().any(|line| line.contains("makes way")), "{real:#?}");
    let first = real.iter().zip(&simulated).position(|(one, other)| one != other);
    assert!(
        first.is_none() && real.len() == simulated.len(),
        "differs at {first:?}: {real:#?}\nsimulated {simulated:#?}"
    );
}
