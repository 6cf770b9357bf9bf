//! One policy on one cluster, from the first arrival to the last.

use std::collections::BTreeMap;

use phalanx_model::{CostTable, JobId, LevelCost, LevelName};
use serde::Serialize;

use super::work::Event;
use crate::peers::ours::Ours;
use crate::peers::{Ask, Cluster, Peer, Placed, Rng};

/// Gradients of one rank, for what the engine is told of traffic: 1 GiB.
const BYTES: u64 = 1 << 30;

/// How one policy did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) policy: String,
    pub(crate) placed: usize,
    /// Gangs that found no room on this policy's cluster.
    pub(crate) refused: usize,
    pub(crate) leaves_mean: f64,
    pub(crate) leaves_p95: usize,
    /// The fewest leaves that could have held the gang on this policy's cluster at that moment.
    pub(crate) fewest_mean: f64,
    /// Leaves beyond those.
    pub(crate) excess_mean: f64,
    pub(crate) excess_p95: usize,
    /// Gangs on as few leaves as could have held them.
    pub(crate) at_fewest_percent: f64,
    /// Of those that one PSW could have held, as few as could have inside one.
    pub(crate) at_fewest_in_psw_percent: f64,
    pub(crate) psws_mean: f64,
    pub(crate) psws_fewest_mean: f64,
}

/// One gang that was placed: leaves and PSWs used, and the fewest possible.
struct Seen {
    leaves: usize,
    fewest: usize,
    /// Inside one PSW, where one could have held it.
    fewest_in_psw: usize,
    psws: usize,
    psws_fewest: usize,
}

/// Ours first, then every peer.
pub(crate) fn all(cluster: &Cluster, events: &[Event], seed: u64) -> Result<Vec<Figures>, String> {
    let mut figures = vec![replay(cluster, events, &mut engine(cluster)?, "ours")?];
    for peer in Peer::ALL {
        let mut policy = Policy::Peer(peer, Rng(seed));
        figures.push(replay(cluster, events, &mut policy, peer.name())?);
    }
    Ok(figures)
}

enum Policy {
    Ours(Box<Ours>),
    Peer(Peer, Rng),
}

/// The file says nothing of speeds: hops alone cost something, those through a PSW more.
fn engine(cluster: &Cluster) -> Result<Policy, String> {
    let mut costs = CostTable::default();
    let latencies = [1_000, 2_000, 4_000];
    for (level, latency_ns) in cluster.levels.iter().rev().zip(latencies) {
        let cost = LevelCost { uplink_mb_per_s: 0, latency_ns, inside_mb_per_s: 0 };
        costs.levels.insert(LevelName::new(level).map_err(|e| e.to_string())?, cost);
    }
    Ok(Policy::Ours(Box::new(Ours::new(cluster, costs)?)))
}

impl Policy {
    fn place(&mut self, cluster: &Cluster, ask: &Ask) -> Result<Option<(JobId, Placed)>, String> {
        match self {
            Self::Ours(ours) => ours.place(ask, BYTES),
            Self::Peer(peer, rng) => Ok(peer.place(cluster, ask, rng).map(|placed| (JobId(0), placed))),
        }
    }

    fn release(&mut self, id: JobId, ask: &Ask) -> Result<(), String> {
        match self {
            Self::Ours(ours) => ours.release(id, ask.pods),
            Self::Peer(..) => Ok(()),
        }
    }
}

fn replay(cluster: &Cluster, events: &[Event], policy: &mut Policy, name: &str) -> Result<Figures, String> {
    let mut cluster = cluster.clone();
    let (leaf, psw) = (cluster.levels.len() - 1, cluster.levels.len() - 2);
    let mut running: BTreeMap<usize, (JobId, Placed, Ask)> = BTreeMap::new();
    let (mut seen, mut refused, mut next) = (Vec::new(), 0, 0);
    for event in events {
        match event {
            Event::Arrives(ask) => {
                next += 1;
                let fewest = cluster.fewest(leaf, ask).zip(cluster.fewest(psw, ask));
                let fewest_in_psw = cluster.fewest_nested(leaf, ask).unwrap_or(0);
                let placed = policy.place(&cluster, ask)?;
                let Some(((id, placed), (fewest, psws_fewest))) = placed.zip(fewest) else {
                    if fewest.is_some() {
                        return Err(format!("{name} found no place for {ask:?}, and there is one"));
                    }
                    refused += 1;
                    continue;
                };
                if !cluster.holds(&placed, ask) {
                    return Err(format!("{name} took what is not free for {ask:?}"));
                }
                let (leaves, psws) = (cluster.crossed(leaf, &placed), cluster.crossed(psw, &placed));
                seen.push(Seen { leaves, fewest, fewest_in_psw, psws, psws_fewest });
                cluster.take(&placed, ask.gpus);
                running.insert(next - 1, (id, placed, *ask));
            }
            Event::Ends(gang) => {
                if let Some((id, placed, ask)) = running.remove(gang) {
                    policy.release(id, &ask)?;
                    cluster.give_back(&placed, ask.gpus);
                }
            }
        }
    }
    Ok(figures(name, &seen, refused))
}

fn figures(name: &str, seen: &[Seen], refused: usize) -> Figures {
    let count = seen.len().max(1) as f64;
    let mean = |of: fn(&Seen) -> usize| seen.iter().map(of).sum::<usize>() as f64 / count;
    let p95 = |of: fn(&Seen) -> usize| {
        let mut sorted: Vec<usize> = seen.iter().map(of).collect();
        sorted.sort_unstable();
        sorted.get((sorted.len() * 95).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0)
    };
    let share = |is_so: fn(&&Seen) -> bool| seen.iter().filter(is_so).count() as f64 / count * 100.0;
    Figures {
        policy: name.to_owned(),
        placed: seen.len(),
        refused,
        leaves_mean: mean(|gang| gang.leaves),
        leaves_p95: p95(|gang| gang.leaves),
        fewest_mean: mean(|gang| gang.fewest),
        excess_mean: mean(|gang| gang.leaves - gang.fewest),
        excess_p95: p95(|gang| gang.leaves - gang.fewest),
        at_fewest_percent: share(|gang| gang.leaves == gang.fewest),
        at_fewest_in_psw_percent: share(|gang| gang.leaves <= gang.fewest_in_psw),
        psws_mean: mean(|gang| gang.psws),
        psws_fewest_mean: mean(|gang| gang.psws_fewest),
    }
}
