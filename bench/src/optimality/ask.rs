//! The engine, asked as a world asks it: facts in, orders out.

use std::collections::BTreeMap;

use phalanx_engine::{Config, Engine};
use phalanx_model::{
    Change, Epoch, Gang, Input, Job, JobId, JobName, Order, Outcome, Owner, Placement, Policy, QueueName,
    Rejection, Timestamp,
};

use super::draw::Cluster;

/// The placement of each gang, or none where it starts none. All gangs are submitted in one step.
///
/// # Errors
/// When the engine refuses a fact, or a gang for another reason than its size.
pub(super) fn engine(cluster: &Cluster, gangs: &[Gang]) -> Result<Vec<Option<Placement>>, String> {
    let mut inputs = vec![
        Input::LevelsConfigured { levels: cluster.levels.clone() },
        Input::CostsCompiled { table: cluster.table.clone() },
    ];
    inputs.extend(cluster.nodes.iter().map(|node| Input::NodeObserved { node: Box::new(node.clone()) }));
    for (number, gang) in (1..).zip(gangs) {
        inputs.push(Input::JobSubmitted { job: Box::new(job(number, gang)?) });
    }
    let mut out = Outcome::default();
    let _ = Engine::new(Epoch(1), Config::default()).step(Timestamp(1_000), &inputs, &mut out);
    for change in &out.changes {
        match change {
            Change::InputRejected { what, why } => return Err(format!("{what} is refused: {why}")),
            Change::JobRejected { why: Rejection::LargerThanCluster { .. }, .. } => {}
            Change::JobRejected { job, why } => return Err(format!("job {job} is refused: {why}")),
            _ => {}
        }
    }
    let mut placed = BTreeMap::new();
    for effect in out.effects {
        if let Order::StartMembers { gang, placement, .. } = effect.order {
            placed.insert(gang.job, placement);
        }
    }
    Ok((1..).zip(gangs).map(|(number, _)| placed.remove(&JobId(number))).collect())
}

fn job(number: u64, gang: &Gang) -> Result<Job, String> {
    let name = JobName::new(format!("job{number}")).map_err(|error| error.to_string())?;
    let queue = QueueName::new("default").map_err(|error| error.to_string())?;
    Ok(Job {
        id: JobId(number),
        name,
        key: None,
        owner: Owner { uid: 1_000, gid: 1_000, name: "user".to_owned() },
        queue,
        priority: 0,
        submitted_at: Timestamp(number),
        gangs: vec![gang.clone()],
        policy: Policy::default(),
        turn: phalanx_model::Turn::default(),
    })
}
