//! What is timed: single steps of an engine whose cluster is full, each for one kind of fact.

use std::collections::BTreeSet;

use phalanx_model::{
    EffectId, Epoch, GangId, Input, Job, JobId, Node, QueueName, Resource, Settings, Timestamp,
};

use super::BURST_PART;
use super::figures::{Figures, Unit};
use super::fill;
use super::load::{Load, Team, below, gpus_of, guaranteed_gpus, job};
use super::world::{Stepped, World};
use crate::placement::mix::Random;
use phalanx_model::later::Metric;

/// World time between two samples: in so large a cluster something ends about as often.
const BETWEEN_MS: u64 = 100;

/// Facts of a mix for each gang that ends.
const MIX: u64 = 1_000;

/// Between two jobs that others make way for: whoever has just been started is left alone for ten minutes.
const BETWEEN_EVICTIONS_MS: u64 = 10_000;

/// A cluster, and what it is measured with.
pub(super) struct Trial<'a> {
    pub(super) world: World,
    pub(super) load: Load,
    pub(super) random: Random,
    pub(super) figures: &'a mut Figures,
}

impl Trial<'_> {
    fn some_running(&mut self) -> Result<GangId, String> {
        let at = below(&mut self.random, self.world.running.len());
        self.world.running.get(at).copied().ok_or_else(|| "nothing runs".to_owned())
    }

    /// Samples of a trial in which each sample ends a gang: at most a part of the pending gangs, so that a small cluster
    /// stays full.
    fn endings(&self, repeat: usize) -> usize {
        repeat.min(self.world.books().1 / BURST_PART)
    }

    /// One gang in fifty ends before anything is timed: what starts in its place is the engine's own doing.
    pub(super) fn warm_up(&mut self) -> Result<(), String> {
        for _ in 0..self.world.running.len() / 50 {
            self.world.pass(BETWEEN_MS)?;
            let gang = self.some_running()?;
            let exits = self.world.exits(gang);
            self.world.step(&exits);
            self.world.settle(|_| ())?;
        }
        Ok(())
    }

    /// A gang that runs ends: the step with all of its members' exits, and those that answer for what was started.
    pub(super) fn completion(&mut self, repeat: usize) -> Result<(), String> {
        let (mut times, mut quiet, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        let mut sum = Stepped::default();
        for _ in 0..self.endings(repeat) {
            self.world.pass(BETWEEN_MS)?;
            let gang = self.some_running()?;
            let exits = self.world.exits(gang);
            let did = self.world.step(&exits);
            add(&mut sum, &did);
            times.push(did.ns);
            if did.started == 0 {
                quiet.push(did.ns);
            }
            self.world.settle(|did| answers.push(did.ns))?;
        }
        self.figures.times("completion", Unit::Us, &mut times);
        self.figures.times("completion_quiet", Unit::Us, &mut quiet);
        self.figures.times("answer", Unit::Us, &mut answers);
        self.figures.count("completion_ended", u64::from(sum.ended));
        self.figures.count("completion_started", u64::from(sum.started));
        self.figures.count("completion_evicted", u64::from(sum.evicted));
        Ok(())
    }

    /// A team's guarantee is halved, restored, its limit lowered below what it uses, and restored.
    pub(super) fn quota(&mut self, repeat: usize) -> Result<(), String> {
        let (mut times, mut sum) = (Vec::new(), Stepped::default());
        while times.len() < repeat {
            let at = below(&mut self.random, self.load.teams.len());
            let Some(Team { queue, due }) = self.load.teams.get(at) else { break };
            let mut poorer = queue.clone();
            poorer.guaranteed.insert(Resource::Gpus, guaranteed_gpus(queue) * 500);
            let mut bounded = queue.clone();
            bounded.limit.insert(Resource::Gpus, due * 500);
            for changed in [poorer, queue.clone(), bounded, queue.clone()] {
                self.world.pass(BETWEEN_MS)?;
                let did = self.world.step(&[Input::QueueObserved { queue: Box::new(changed) }]);
                times.push(did.ns);
                add(&mut sum, &did);
                self.world.settle(|did| add(&mut sum, did))?;
            }
        }
        self.figures.times("quota", Unit::Ms, &mut times);
        self.figures.alias("quota_ms", "quota_p99_ms");
        self.figures.count("quota_started", u64::from(sum.started));
        self.figures.count("quota_evicted", u64::from(sum.evicted));
        Ok(())
    }

    /// A job that others have to make way for: of a class above theirs, and of a queue that is owed what they borrowed.
    pub(super) fn preempt(&mut self, repeat: usize) -> Result<(), String> {
        let mut all = Vec::new();
        self.world.pass(BETWEEN_EVICTIONS_MS)?;
        self.figures.count("preempt_candidates_first", candidates(&self.world, &self.load));
        for (name, class) in [("preempt_class", "serving"), ("preempt_owed", "training")] {
            let (mut times, mut sum, mut least) = (Vec::new(), Stepped::default(), u64::MAX);
            // Whoever started in the last minutes is left alone for as long as its class says.
            let min_run_ms = Settings::default().class(None).map_or(0, |class| class.min_run_ms);
            self.world.pass(min_run_ms)?;
            self.world.pass(min_run_ms)?;
            for round in 0..repeat.div_ceil(2) {
                self.world.pass(BETWEEN_EVICTIONS_MS)?;
                let job = self.urgent(class, round)?;
                least = least.min(candidates(&self.world, &self.load));
                let id = job.id;
                let did = self.world.step(&[Input::JobSubmitted { job: Box::new(job) }]);
                times.push(did.ns);
                add(&mut sum, &did);
                self.world.settle(|_| ())?;
                // Whatever became of it, it leaves, and others come back.
                self.world.cancel(&[id])?;
            }
            all.extend_from_slice(&times);
            self.figures.times(name, Unit::Ms, &mut times);
            self.figures.count(&format!("{name}_candidates_min"), least);
            self.figures.count(&format!("{name}_evicted"), u64::from(sum.evicted));
        }
        self.figures.times("preempt", Unit::Ms, &mut all);
        self.figures.alias("preempt_ms", "preempt_p99_ms");
        Ok(())
    }

    /// A job of the reserve, of each size in turn from one node to a quarter of what the reserve is guaranteed.
    fn urgent(&mut self, class: &str, round: usize) -> Result<Job, String> {
        let fits = |gpus: u32| gpus >= 8 && u64::from(gpus) <= (self.load.reserved / 4).max(8);
        let requests = self.load.requests.iter().map(|request| &request.gang);
        let fitting: Vec<_> = requests.filter(|gang| fits(gpus_of(gang))).collect();
        let gang =
            fitting.get(round % fitting.len().max(1)).copied().ok_or("no request fits the reserve")?.clone();
        let (id, at) = (self.world.next_job(), self.world.now);
        job(id, gang, &self.load.reserve, class, at, &mut self.random)
    }

    /// Many jobs in one step, `times` over; each time they leave again.
    pub(super) fn burst(&mut self, name: &str, jobs: usize, times: usize) -> Result<(), String> {
        let (mut ns, mut sum) = (Vec::new(), Stepped::default());
        for _ in 0..times {
            self.world.pass(BETWEEN_MS)?;
            let at = self.world.now;
            let mut inputs = Vec::with_capacity(jobs);
            let mut ids = Vec::with_capacity(jobs);
            for _ in 0..jobs {
                let job = fill::waiting(&mut self.world, &self.load, at, &mut self.random)?;
                ids.push(job.id);
                inputs.push(Input::JobSubmitted { job: Box::new(job) });
            }
            let did = self.world.step(&inputs);
            ns.push(did.ns);
            add(&mut sum, &did);
            self.world.settle(|_| ())?;
            let left: Vec<JobId> =
                ids.into_iter().filter(|id| self.world.engine.job(*id).is_some()).collect();
            self.world.cancel(&left)?;
        }
        self.figures.times(name, Unit::Ms, &mut ns);
        self.figures.alias(&format!("{name}_ms"), &format!("{name}_max_ms"));
        self.figures.count(&format!("{name}_accepted"), u64::from(sum.accepted));
        self.figures.count(&format!("{name}_started"), u64::from(sum.started));
        Ok(())
    }

    /// Many facts a step, as nodes and jobs report them: of each [`MIX`], one is the end of a gang and the others change
    /// nothing.
    pub(super) fn mix(&mut self, repeat: usize) -> Result<(), String> {
        let nodes: Vec<Node> = self.world.engine.nodes().cloned().collect();
        let (mut inputs, mut ns) = (0_u64, 0_u64);
        for seq in 0..self.endings(repeat) as u64 {
            self.world.pass(BETWEEN_MS)?;
            let (ends, at) = (self.some_running()?, self.world.now);
            let mut facts = self.world.exits(ends);
            for n in 0..MIX {
                let gang = self.some_running()?;
                if gang == ends {
                    continue;
                }
                let node = nodes.get(below(&mut self.random, nodes.len())).ok_or("there are no nodes")?;
                facts.push(match n % 4 {
                    0 => Input::EffectDone { effect: EffectId { epoch: Epoch(0), seq } },
                    1 => Input::MetricObserved { metric: metric(gang, seq, at) },
                    2 => Input::NodeObserved { node: Box::new(node.clone()) },
                    _ => Input::GangCheckpointed { gang, at },
                });
            }
            let did = self.world.step(&facts);
            inputs += facts.len() as u64;
            ns += did.ns;
            self.world.settle(|did| {
                ns += did.ns;
            })?;
        }
        self.figures.count("inputs", inputs);
        self.figures.count("inputs_per_s", inputs.saturating_mul(1_000_000_000) / ns.max(1));
        Ok(())
    }

    /// Facts that change no decision, one in each step.
    pub(super) fn heartbeat(&mut self, repeat: usize) -> Result<(), String> {
        let nodes: Vec<Node> = self.world.engine.nodes().cloned().collect();
        let (mut all, mut said) = (Vec::new(), 0);
        for name in ["heartbeat_answer", "heartbeat_metric", "heartbeat_node", "heartbeat_saved"] {
            let mut times = Vec::new();
            for seq in 0..repeat as u64 {
                self.world.pass(1)?;
                let (gang, at) = (self.some_running()?, self.world.now);
                let node = nodes.get(below(&mut self.random, nodes.len())).ok_or("there are no nodes")?;
                let input = match name {
                    "heartbeat_answer" => Input::EffectDone { effect: EffectId { epoch: Epoch(0), seq } },
                    "heartbeat_metric" => Input::MetricObserved { metric: metric(gang, seq, at) },
                    "heartbeat_node" => Input::NodeObserved { node: Box::new(node.clone()) },
                    _ => Input::GangCheckpointed { gang, at },
                };
                let did = self.world.step(&[input]);
                times.push(did.ns);
                said += u64::from(did.said);
            }
            all.extend_from_slice(&times);
            self.figures.times(name, Unit::Us, &mut times);
        }
        self.figures.times("heartbeat", Unit::Us, &mut all);
        self.figures.count("heartbeat_said", said);
        Ok(())
    }
}

pub(super) fn add(sum: &mut Stepped, did: &Stepped) {
    sum.started += did.started;
    sum.evicted += did.evicted;
    sum.ended += did.ended;
    sum.accepted += did.accepted;
}

fn metric(gang: GangId, seq: u64, at: Timestamp) -> Metric {
    let value_milli = i64::try_from(seq % 1_000).unwrap_or(0);
    Metric { gang, name: "tokens_per_s".to_owned(), value_milli, at }
}

/// Gangs that run long enough, in queues that are guaranteed nothing: the rules let nobody else be evicted more easily.
fn candidates(world: &World, load: &Load) -> u64 {
    let min_run_ms = Settings::default().class(None).map_or(0, |class| class.min_run_ms);
    let open: BTreeSet<&QueueName> = load
        .teams
        .iter()
        .filter(|team| guaranteed_gpus(&team.queue) == 0)
        .map(|team| &team.queue.name)
        .collect();
    let may = |gang: &&GangId| {
        let is_open = world.engine.job(gang.job).is_some_and(|job| open.contains(&job.queue));
        is_open && world.running_ms(**gang).is_some_and(|ms| ms >= min_run_ms)
    };
    world.running.iter().filter(may).count() as u64
}
