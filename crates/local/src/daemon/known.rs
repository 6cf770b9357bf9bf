//! What is known when a daemon starts: what the journal yields, and members as they are found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use phalanx_model::{
    Admin, Bandwidth, GangId, GangRecord, Input, Job, JobId, MemberId, MemberState, Node, NodeName, SyncKind,
    Uplink,
};
use phalanx_shell::Recovered;
use phalanx_spec::{Preset, SharePolicy};
use tracing::info;

use crate::Paths;
use crate::cluster::Cluster;
use crate::hands::{self, Launched, Observed, Task};
use crate::limits::PendingBytes;
use crate::queues;
use crate::verbs;

pub(super) fn admins(facts: &[Input]) -> BTreeMap<NodeName, Admin> {
    let node = |fact: &Input| match fact {
        Input::NodeObserved { node } => Some((node.name.clone(), node.admin)),
        _ => None,
    };
    facts.iter().filter_map(node).collect()
}

/// The nodes that the journal knows.
pub(super) fn nodes(facts: &[Input]) -> Vec<Node> {
    let node = |fact: &Input| match fact {
        Input::NodeObserved { node } => Some((**node).clone()),
        _ => None,
    };
    facts.iter().filter_map(node).collect()
}

pub(crate) fn records(recovered: &Recovered) -> impl Iterator<Item = (&Job, &GangRecord)> {
    recovered.facts.iter().flat_map(|fact| match fact {
        Input::JobObserved { job, gangs } => gangs.iter().map(|g| (&**job, g)).collect(),
        _ => Vec::new(),
    })
}

pub(super) fn recovered_ids(recovered: &Recovered) -> u64 {
    records(recovered).map(|(job, _)| job.id.0).max().unwrap_or(0)
}

pub(super) fn unfinished(recovered: &Recovered) -> BTreeSet<JobId> {
    records(recovered).filter(|(_, r)| !r.is_finished()).map(|(job, _)| job.id).collect()
}

/// What the jobs of each user take that have not ended.
pub(super) fn pending_bytes(recovered: &Recovered) -> Arc<PendingBytes> {
    let pending = PendingBytes::default();
    for fact in &recovered.facts {
        if let Input::JobObserved { job, gangs } = fact
            && !gangs.iter().all(GangRecord::is_finished)
        {
            pending.count(job.id, job.owner.uid, verbs::job_bytes(job));
        }
    }
    Arc::new(pending)
}

/// The highest number among the folders of jobs: a journal that was lost must not let a number be used again.
pub(super) fn newest_folder(paths: &Paths) -> u64 {
    let folders = fs::read_dir(paths.jobs()).into_iter().flatten().flatten();
    folders.filter_map(|f| f.file_name().to_str()?.parse().ok()).max().unwrap_or(0)
}

/// MPI launchers among what runs.
pub(super) fn launched(recovered: &Recovered) -> BTreeMap<GangId, Launched> {
    records(recovered)
        .filter(|(_, r)| r.holds_capacity())
        .filter_map(|(job, r)| {
            let gang = job.gang_at(r.id.index)?;
            Some((r.id, Launched::of(gang, r.attempt)?))
        })
        .collect()
}

/// Looks for every member that the journal says may live, and takes over those that do.
pub(super) fn observe_members(
    paths: &Paths,
    recovered: &Recovered,
    launched: &BTreeMap<GangId, Launched>,
    tasks: &Sender<Task>,
) -> Vec<Input> {
    let mut facts = Vec::new();
    let mut adopted = 0;
    for (_, record) in records(recovered).filter(|(_, r)| r.holds_capacity()) {
        let first = MemberId { gang: record.id, attempt: record.attempt, rank: 0 };
        let mut first_ended = false;
        for (rank, known) in (0..).zip(&record.members) {
            let member = MemberId { rank, ..first };
            if matches!(known.state, MemberState::Exited(_)) {
                first_ended |= member == first;
                continue;
            }
            match hands::observe(paths, member) {
                Observed::Absent => {}
                Observed::Unknown => {
                    // It holds what it held; the orders that stop it look again.
                    let state = if known.state == MemberState::Requested {
                        MemberState::Ready
                    } else {
                        known.state.clone()
                    };
                    facts.push(Input::MemberObserved { member, state });
                    let _ = tasks.send(Task::Watch { member });
                }
                Observed::Ended(exit) => {
                    first_ended |= member == first;
                    let exit = hands::exit_of(exit, hands::holds_slots(launched, member));
                    facts.push(Input::MemberObserved { member, state: MemberState::Exited(exit) });
                }
                Observed::Alive { state, orders, events } => {
                    adopted += 1;
                    facts.push(Input::MemberObserved { member, state });
                    let _ = tasks.send(Task::Adopted { member, orders, events });
                }
            }
        }
        if first_ended {
            // A launcher that ended while nobody looked: the ranks that hold its slots are told now.
            let _ = tasks.send(Task::Gone { member: first });
        }
    }
    if adopted > 0 {
        info!(ranks = adopted, "running ranks are taken over");
    }
    facts
}

/// The world as it is: nodes from the cluster, queues as given or else with the jobs from the journal, members from the
/// host.
pub(super) fn compose(
    cluster: &Cluster,
    given: Option<SharePolicy>,
    recovered: &Recovered,
    members: Vec<Input>,
    health: Vec<Input>,
) -> Vec<Input> {
    let of_kind = |kind: Kind| recovered.facts.iter().filter(move |fact| kind_of(fact) == kind).cloned();
    let begin = |kind| Input::SyncBegin { kind };
    let end = |kind| Input::SyncEnd { kind };
    let mut facts = vec![
        Input::LevelsConfigured { levels: cluster.map.levels.clone() },
        Input::CostsCompiled { table: cluster.map.costs.clone() },
        begin(SyncKind::Nodes),
    ];
    facts.extend(cluster.nodes.iter().map(|n| Input::NodeObserved { node: Box::new(n.clone()) }));
    facts.push(end(SyncKind::Nodes));
    facts.extend(health);
    match given {
        Some(SharePolicy { settings, queues }) => facts.extend(queues::facts(settings, queues)),
        None => {
            if of_kind(Kind::Settings).next().is_none() {
                facts.push(Input::SettingsConfigured { settings: Box::new(Preset::default().settings()) });
            }
            facts.extend(of_kind(Kind::Settings));
            facts.push(begin(SyncKind::Queues));
            facts.extend(of_kind(Kind::Queue));
            facts.push(end(SyncKind::Queues));
        }
    }
    facts.push(begin(SyncKind::Jobs));
    facts.extend(of_kind(Kind::Job));
    facts.push(end(SyncKind::Jobs));
    facts.extend(cluster.windows.iter().map(|w| Input::CalendarObserved { calendar: w.clone() }));
    facts.extend(of_kind(Kind::Other));
    facts.push(begin(SyncKind::Members));
    facts.extend(members);
    facts.push(end(SyncKind::Members));
    facts
}

/// The links that were measured when the journal ended.
pub(crate) fn bandwidths(facts: &[Input]) -> impl Iterator<Item = &Bandwidth> {
    facts.iter().filter_map(|fact| match fact {
        Input::BandwidthMeasured { bandwidth } => Some(bandwidth),
        _ => None,
    })
}

/// What a recovered fact is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Read anew from the cluster, or listed in an order of our own.
    Anew,
    Settings,
    Queue,
    Job,
    Other,
}

pub(super) const fn kind_of(fact: &Input) -> Kind {
    match fact {
        Input::LevelsConfigured { .. }
        | Input::CostsCompiled { .. }
        | Input::NodeObserved { .. }
        | Input::BandwidthMeasured { bandwidth: Bandwidth { uplink: Uplink::Node(_), .. } }
        | Input::SyncBegin { .. }
        | Input::SyncEnd { .. } => Kind::Anew,
        Input::CalendarObserved { calendar } if calendar.is_declared => Kind::Anew,
        Input::SettingsConfigured { .. } => Kind::Settings,
        Input::QueueObserved { .. } => Kind::Queue,
        Input::JobObserved { .. } => Kind::Job,
        _ => Kind::Other,
    }
}
