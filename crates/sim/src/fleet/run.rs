//! A fleet from its first day to its last.
#![allow(clippy::cast_precision_loss, reason = "milliseconds and requests are exact below 2^53")]

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::later::SpotNotice;
use phalanx_model::{
    Advisory, Change, ClassName, FailureClass, Gang, GangId, GangRecord, Input, Job, JobId, JobName, Needs,
    NodeName, Owner, Phase, Policy, Program, Replicas, Retry, Stop, Target, Timestamp, Topology, Turn,
};
use phalanx_scenario::{Event, Script};

use super::{Elastic, Fleet, FleetReport, Served, Service, Training};
use crate::trace::draw::Draw;
use crate::{Failure, FailureKind, Faults, World};

/// How often the load changes, and is looked at.
const EVERY_MS: u64 = 60_000;
const METRIC: &str = "requests";
/// From the advice to save until it is told to end, and from there until it is killed.
const LEAD_MS: u64 = 30_000;

/// What happens to a node that may be taken back.
enum Reclaim {
    Notice { until_ms: u64 },
    Gone,
    Back,
}

/// A training job as it went so far.
#[derive(Default)]
struct Attempts {
    runs_since: Option<u64>,
    /// How fast the present attempt works, in thousandths.
    speed_milli: u64,
    /// Work of all attempts, in ms on as many devices as it asks for.
    done_ms: u64,
    count: u32,
    ended_ms: Option<u64>,
}

struct Run<'a> {
    fleet: &'a Fleet,
    world: World,
    services: Vec<JobId>,
    training: BTreeMap<JobId, usize>,
    attempts: Vec<Attempts>,
    held_gpu_ms: f64,
    open_gpu_ms: f64,
    open_most: usize,
    serving: Vec<Served>,
}

impl Fleet {
    /// Runs it to its end.
    ///
    /// # Errors
    /// When the engine refuses a job, or breaks a rule that always holds.
    pub fn run(&self) -> Result<FleetReport, Failure> {
        let mut run = Run::new(self)?;
        let mut reclaims = self.reclaims().into_iter().peekable();
        let mut jobs = self.training.iter().enumerate().peekable();
        let mut now_ms = 0;
        while now_ms < self.end_ms {
            run.set_loads(now_ms)?;
            let next_ms = (now_ms + EVERY_MS).min(self.end_ms);
            loop {
                let reclaim_ms = reclaims.peek().map(|(at_ms, ..)| *at_ms).filter(|at_ms| *at_ms < next_ms);
                let submit_ms = jobs.peek().map(|(_, job)| job.submit_ms).filter(|at_ms| *at_ms < next_ms);
                let Some(at_ms) = [reclaim_ms, submit_ms].into_iter().flatten().min() else { break };
                run.world.advance_to(Timestamp(at_ms))?;
                if reclaim_ms == Some(at_ms) {
                    if let Some((_, node, what)) = reclaims.next() {
                        run.reclaim(&node, &what)?;
                    }
                } else if let Some((index, job)) = jobs.next() {
                    run.submit(index, job)?;
                }
            }
            run.world.advance_to(Timestamp(next_ms))?;
            run.note_events()?;
            run.look(next_ms, next_ms - now_ms);
            now_ms = next_ms;
        }
        Ok(run.report())
    }

    /// Sorted by time.
    fn reclaims(&self) -> Vec<(u64, NodeName, Reclaim)> {
        let Some(of) = self.reclaims else { return Vec::new() };
        let mut draw = Draw::new(self.seed);
        let mut all = Vec::new();
        for node in self.nodes.iter().filter(|node| node.spot.is_some()) {
            let mut at_ms = draw.exponential(of.every_ms);
            while at_ms < self.end_ms {
                let until_ms = at_ms + of.notice_ms;
                let back_ms = until_ms + draw.exponential(of.back_ms).max(1);
                all.push((at_ms, node.name.clone(), Reclaim::Notice { until_ms }));
                all.push((until_ms, node.name.clone(), Reclaim::Gone));
                all.push((back_ms, node.name.clone(), Reclaim::Back));
                at_ms = back_ms + draw.exponential(of.every_ms).max(1);
            }
        }
        all.sort_by_key(|(at_ms, ..)| *at_ms);
        all
    }
}

impl<'a> Run<'a> {
    fn new(fleet: &'a Fleet) -> Result<Self, Failure> {
        let mut world = World::new(phalanx_engine::Config::default(), Faults::none(), fleet.seed)
            .keeping_events()
            .telling_every(EVERY_MS);
        world.configure(fleet.levels.clone())?;
        world.tell([Input::SettingsConfigured { settings: Box::new(fleet.settings.clone()) }])?;
        let queue = |queue: &phalanx_model::Queue| Input::QueueObserved { queue: Box::new(queue.clone()) };
        world.tell(fleet.queues.iter().map(queue))?;
        for node in &fleet.nodes {
            world.add_node(node.clone())?;
        }
        let mut services = Vec::new();
        for service in &fleet.services {
            let script = Script { starts_ms: Some(service.starts_ms), ..Script::default() };
            services.push(world.submit(&service.job(), &script)?);
        }
        let attempts = fleet.training.iter().map(|_| Attempts::default()).collect();
        let serving = vec![Served::default(); services.len()];
        let training = BTreeMap::new();
        let (held_gpu_ms, open_gpu_ms, open_most) = (0.0, 0.0, 0);
        Ok(Self { fleet, world, services, training, attempts, held_gpu_ms, open_gpu_ms, open_most, serving })
    }

    fn submit(&mut self, index: usize, job: &Training) -> Result<(), Failure> {
        let id = self.world.submit(&job.job(), &job.script())?;
        self.training.insert(id, index);
        Ok(())
    }

    fn reclaim(&mut self, node: &NodeName, what: &Reclaim) -> Result<(), Failure> {
        match what {
            Reclaim::Notice { until_ms } => {
                let notice = SpotNotice { node: node.clone(), ends_at: Timestamp(*until_ms) };
                self.world.tell([Input::SpotNoticed { notice }])
            }
            Reclaim::Gone => self.world.lose_node(node),
            Reclaim::Back => self.world.return_node(node),
        }
    }

    fn set_loads(&mut self, now_ms: u64) -> Result<(), Failure> {
        for (service, job) in self.fleet.services.iter().zip(&self.services) {
            self.world.load(*job, &Target::new(METRIC, service.load.at(now_ms)))?;
        }
        Ok(())
    }

    /// What the engine did since the last look.
    fn note_events(&mut self) -> Result<(), Failure> {
        for (at, event) in self.world.take_events() {
            let Event::Changed(change) = event else { continue };
            match change {
                Change::JobRejected { job, why } => return Err(self.refused(&format!("job {job}: {why}"))),
                Change::InputRejected { what, why } => return Err(self.refused(&format!("{what}: {why}"))),
                Change::GangPlaced { gang, placement, .. } => self.placed(gang, placement.slots.len()),
                Change::GangRunning { gang, .. } => self.began(gang, at.0),
                Change::GangStopping { gang, .. } => self.stopped(gang, at.0),
                Change::GangFinished { gang, .. } => {
                    self.stopped(gang, at.0);
                    if let Some(index) = self.training.get(&gang.job) {
                        self.attempts[*index].ended_ms = Some(at.0);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn refused(&self, what: &str) -> Failure {
        self.world.failure(FailureKind::Correctness, format!("the engine refused {what}"))
    }

    fn placed(&mut self, gang: GangId, gpus: usize) {
        let Some(index) = self.training.get(&gang.job) else { return };
        self.attempts[*index].speed_milli = self.fleet.training[*index].script().speed_milli(gpus);
    }

    fn began(&mut self, gang: GangId, at_ms: u64) {
        if let Some(index) = self.training.get(&gang.job) {
            let of = &mut self.attempts[*index];
            of.runs_since = Some(at_ms);
            of.count += 1;
        } else if let Some(index) = self.services.iter().position(|job| *job == gang.job) {
            self.serving[index].replica_starts += 1;
        }
    }

    fn stopped(&mut self, gang: GangId, at_ms: u64) {
        if let Some(index) = self.training.get(&gang.job) {
            let of = &mut self.attempts[*index];
            of.stop(at_ms);
        }
    }

    /// What holds now is taken to have held since the last look.
    fn look(&mut self, now_ms: u64, span_ms: u64) {
        let span_ms = span_ms as f64;
        let mut running = vec![0_u32; self.services.len()];
        let mut open: BTreeSet<(&NodeName, u32)> = BTreeSet::new();
        for (job, records) in self.world.engine().jobs() {
            let holds = |record: &&GangRecord| record.placement.is_some() && !record.is_finished();
            let placed = records.iter().filter(holds).filter_map(|record| record.placement.as_ref());
            for slot in placed.flat_map(|placement| &placement.slots) {
                open.extend(slot.devices.iter().map(|device| (&slot.node, device)));
            }
            if let Some(index) = self.services.iter().position(|id| *id == job.id) {
                let of = &self.fleet.services[index];
                let runs = records.iter().filter(|r| matches!(r.phase, Phase::Running { .. })).count();
                running[index] = u32::try_from(runs).unwrap_or(u32::MAX);
                let held = records.iter().filter(holds).count() as f64;
                let each = f64::from(of.workers * of.gpu_milli) / 1_000.0;
                self.serving[index].held_gpu_ms += held * each * span_ms;
            } else if let Some(record) = records.iter().find(holds) {
                let gpus = record.placement.as_ref().map_or(0, |placement| placement.slots.len());
                self.held_gpu_ms += gpus as f64 * span_ms;
            }
        }
        self.open_gpu_ms += open.len() as f64 * span_ms;
        self.open_most = self.open_most.max(open.len());
        for ((of, served), running) in self.fleet.services.iter().zip(&mut self.serving).zip(running) {
            let per_s = of.load.at(now_ms - 1 - (now_ms - 1) % EVERY_MS) as f64 / 1_000.0;
            let (workers, rate) = (running * of.workers, of.rate_milli as f64 / 1_000.0);
            served.count(span_ms, per_s, workers, rate);
            let busy = (per_s / rate).min(f64::from(workers));
            served.busy_gpu_ms += busy * f64::from(of.gpu_milli) / 1_000.0 * span_ms;
        }
    }

    fn report(mut self) -> FleetReport {
        let fleet = self.fleet;
        let gpus: u32 = fleet.nodes.iter().map(|node| node.machine.device_count()).sum();
        let mut report = FleetReport {
            gpu_ms: f64::from(gpus) * fleet.end_ms as f64,
            held_gpu_ms: self.held_gpu_ms,
            open_gpu_ms: self.open_gpu_ms,
            open_most: self.open_most,
            completions_ms: vec![None; fleet.training.len()],
            ..FleetReport::default()
        };
        for (id, index) in &self.training {
            let (job, of) = (&fleet.training[*index], &mut self.attempts[*index]);
            of.stop(fleet.end_ms);
            report.completions_ms[*index] = of.ended_ms.map(|ms| ms - job.submit_ms);
            report.restarts += of.count.saturating_sub(1);
            let saved_ms = self.world.saved_ms(id.gang(0)).unwrap_or(0);
            let kept_ms = if of.ended_ms.is_some() { job.run_ms } else { saved_ms.min(of.done_ms) };
            report.trained_gpu_ms += kept_ms as f64 * f64::from(job.gpus);
            // Of a job that still runs, what it did since it saved is neither.
            if of.ended_ms.is_some() {
                report.lost_gpu_ms += of.done_ms.saturating_sub(kept_ms) as f64 * f64::from(job.gpus);
            }
        }
        report.serving = self.serving;
        report
    }
}

impl Service {
    fn job(&self) -> Job {
        let per_replica = u64::from(self.workers) * self.rate_milli * u64::from(self.target_milli) / 1_000;
        let gang = gang(1, self.needs.clone());
        let turn = Turn {
            class: ClassName::new("serving").ok(),
            service: Some(Replicas {
                min: self.min,
                target: Some(Target::new(METRIC, per_replica.max(1))),
                ..Replicas::default()
            }),
            ..Turn::default()
        };
        let gangs = vec![gang; self.max as usize];
        Job { gangs, turn, ..job("service", &self.queue, FailureClass::ALL.to_vec()) }
    }
}

impl Training {
    fn job(&self) -> Job {
        let needs = Needs { devices: 1, takes_spot: self.takes_spot, ..Needs::default() };
        let turn =
            Turn { class: ClassName::new("training").ok(), takes_spot: self.takes_spot, ..Turn::default() };
        let retry = vec![FailureClass::Node, FailureClass::Preemption];
        let Elastic { min, max, .. } = self.sizes();
        let gang = Gang { min, max, ..gang(self.gpus, needs) };
        Job { gangs: vec![gang], turn, ..job("training", &self.queue, retry) }
    }

    fn sizes(&self) -> Elastic {
        self.elastic.unwrap_or(Elastic { min: self.gpus, max: self.gpus, efficiency_milli: 1_000 })
    }

    fn script(&self) -> Script {
        Script {
            starts_ms: Some(self.starts_ms),
            runs_ms: Some(self.run_ms),
            saves_ms: Some(self.checkpoint_ms),
            save_takes_ms: self.save_ms,
            speeds_milli: self.elastic.map_or_else(Vec::new, |elastic| elastic.speeds_milli(self.gpus)),
            ..Script::default()
        }
    }
}

impl Elastic {
    /// How fast a job that asks for so many devices works on 1, 2, … of them, in thousandths.
    fn speeds_milli(&self, gpus: u32) -> Vec<u32> {
        let (mut from, mut speed) = (gpus.max(1), 1_000_u64);
        let mut speeds: Vec<u32> = (1..=from).map(|n| n.saturating_mul(1_000) / from).collect();
        // Between two doublings in proportion.
        while from < self.max {
            let doubled = speed * 2 * u64::from(self.efficiency_milli) / 1_000;
            let part =
                |n: u32| speed + (doubled.saturating_sub(speed)) * u64::from(n - from) / u64::from(from);
            let to = from.saturating_mul(2);
            speeds.extend((from + 1..=to.min(self.max)).map(|n| u32::try_from(part(n)).unwrap_or(u32::MAX)));
            (from, speed) = (to, doubled);
        }
        speeds
    }
}

impl Attempts {
    fn stop(&mut self, at_ms: u64) {
        let ran_ms = self.runs_since.take().map_or(0, |since_ms| at_ms - since_ms);
        self.done_ms += ran_ms * self.speed_milli / 1_000;
    }
}

fn gang(size: u32, needs: Needs) -> Gang {
    Gang {
        size,
        min: size,
        max: size,
        needs,
        roles: Vec::new(),
        members_per_node: None,
        topology: Topology::default(),
        traffic: None,
        grid: Vec::new(),
        program: Program::default(),
    }
}

/// The world numbers it.
fn job(name: &str, queue: &phalanx_model::QueueName, retry_on: Vec<FailureClass>) -> Job {
    Job {
        id: JobId(0),
        name: JobName::new(name).unwrap_or_else(|_| unreachable!("letters are a name")),
        key: None,
        owner: Owner { uid: 1_000, gid: 1_000, name: "user".to_owned() },
        queue: queue.clone(),
        priority: 0,
        submitted_at: Timestamp(0),
        gangs: Vec::new(),
        policy: Policy {
            start_deadline_ms: 600_000,
            stop: Stop { advisory: Some(Advisory { signal: 10, lead_ms: LEAD_MS }), grace_ms: LEAD_MS },
            retry: Retry { max: 10_000, on: retry_on, backoff_ms: 1_000, backoff_max_ms: 1_000 },
            ..Policy::default()
        },
        turn: Turn::default(),
    }
}
