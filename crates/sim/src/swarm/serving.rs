//! Services and sessions of simulation testing, the wanted replicas, and the metrics that replicas measure.

use phalanx_engine::Engine;
use phalanx_model::later::Metric;
use phalanx_model::{
    GangId, Input, Job, LevelName, NodeName, Phase, Replicas, Service, Session, Target, Timestamp,
};

use super::named;
use crate::Rng;

const METRIC: &str = "tokens";
const LEVELS: [&str; 3] = ["cluster", "node", "nvlink"];

/// Services have random numbers of their own.
pub(super) struct Serving(Rng);

impl Serving {
    pub(super) const fn new(rng: Rng) -> Self {
        Self(rng)
    }

    /// Makes some jobs services and some sessions. Replicas end as other gangs do, and are not restarted for ever; so
    /// services end too.
    pub(super) fn vary(&mut self, job: &mut Job) {
        let rng = &mut self.0;
        if rng.chance(6) {
            job.policy.idle_limit_ms = Some(rng.between(1_000, 120_000));
            return;
        }
        let is_plain = job.gangs.len() == 1 && job.turn.deadline.is_none() && job.turn.array.is_none();
        if !is_plain || !rng.chance(25) {
            return;
        }
        let count = |rng: &mut Rng, from, to| u32::try_from(rng.between(from, to)).unwrap_or(1);
        let min = count(rng, 1, 3);
        let max = min + count(rng, 0, 3);
        let target = rng
            .chance(70)
            .then(|| Target { settle_ms: rng.below(60_000), ..Target::new(METRIC, rng.between(1, 2_000)) });
        let spread = rng.pick(&LEVELS).map(|level| named::<LevelName>(level)).filter(|_| rng.chance(50));
        let surge = if rng.chance(50) { count(rng, 1, 2) } else { 0 };
        job.turn.service = Some(Replicas { min, target, spread, surge, numbers: Vec::new() });
        job.gangs = vec![job.gangs[0].clone(); (max + surge) as usize];
    }

    /// A user scales a service, a replica reports a metric, or a session is used; outdated reports too.
    pub(super) fn act(&mut self, engine: &Engine, now: Timestamp) -> Option<Input> {
        let rng = &mut self.0;
        let lives = |job: &&Job| engine.gang(job.id.gang(0)).is_some_and(|record| !record.is_finished());
        let all: Vec<&Job> = engine.jobs().map(|(job, _)| job).filter(lives).collect();
        let serving: Vec<&&Job> = all
            .iter()
            .filter(|job| job.turn.service.is_some() || job.policy.idle_limit_ms.is_some())
            .collect();
        let job = **rng.pick(&serving)?;
        let at = Timestamp(now.0.saturating_sub(rng.below(180_000) * rng.below(2)));
        let Some(service) = &job.turn.service else {
            return Some(Input::SessionObserved { session: Session { job: job.id, used_at: at } });
        };
        if service.surge > 0 && rng.chance(30) {
            return node_of_one(engine, job, rng).map(|node| Input::DrainRequested { node });
        }
        let max = u64::from(service.most(job.gang_count()));
        if rng.chance(30) {
            let replicas = u32::try_from(rng.between(service.min.into(), max)).unwrap_or(1);
            let service =
                Service { job: job.id, replicas, looks: Vec::new(), is_set: replicas.is_multiple_of(2) };
            return Some(Input::ServiceObserved { service });
        }
        let gang: GangId = job.id.gang(u32::try_from(rng.below(max)).unwrap_or(0));
        let value_milli = i64::try_from(rng.below(6_000)).unwrap_or(0) - 500;
        let metric = Metric { gang, name: METRIC.to_owned(), value_milli, at };
        Some(Input::MetricObserved { metric })
    }
}

/// A node of a running replica, if the node exists.
fn node_of_one(engine: &Engine, job: &Job, rng: &mut Rng) -> Option<NodeName> {
    let (_, records) = engine.jobs().find(|(other, _)| other.id == job.id)?;
    let running = records.iter().filter(|record| matches!(record.phase, Phase::Running { .. }));
    let slots = running.filter_map(|record| record.placement.as_ref()?.slots.first());
    let nodes: Vec<&NodeName> = slots.map(|slot| &slot.node).collect();
    let node = *rng.pick(&nodes)?;
    engine.nodes().any(|there| there.name == *node).then(|| node.clone())
}
