//! A small live system: an engine whose orders are answered at once, with a journal of all of it.

#![allow(clippy::unwrap_used, dead_code, reason = "tests, of which each uses a part")]

use std::path::Path;

use phalanx_engine::{Config, Engine, VERSION};
use phalanx_journal::{Header, Journal};
use phalanx_model::{
    Effect, Epoch, Exit, FailureClass, GangId, Input, JobId, MemberId, NodeName, Order, Outcome, Owner,
    Snapshot, SyncKind, Timestamp,
};
use phalanx_sim::cluster::Cluster;
use phalanx_spec::{JobFile, QueueFile, SubmitContext};

/// 2026-11-20T12:00Z.
pub(crate) const BEGIN: Timestamp = Timestamp(1_795_176_000_000);
pub(crate) const MINUTE: u64 = 60_000;

const CLUSTER: &str = "\
name: lab
levels: [cluster, leaf]
nodes:
  - {name: \"a[1-2]\", devices: {count: 4, link: nvlink, model: NVIDIA H100}, path: {leaf: leaf-1}}
  - {name: \"b[1-2]\", devices: {count: 4, link: nvlink, model: NVIDIA H100}, path: {leaf: leaf-2}}
";
/// Each team is guaranteed half, and may take it back at once.
const QUEUES: &str = "\
queues:
  - {name: vision, guaranteed: {gpus: 8}}
  - {name: speech, guaranteed: {gpus: 8}}
classes: [{name: training, rank: 200, min_run: 0s}]
default_class: training
";

pub(crate) struct Live {
    pub(crate) engine: Engine,
    journal: Journal,
    now: Timestamp,
    out: Outcome,
    next_job: u64,
    /// Whether orders are carried out.
    pub(crate) is_answered: bool,
}

impl Live {
    pub(crate) fn begin(dir: &Path) -> Self {
        let mut live = Self {
            engine: Engine::new(Epoch(1), Config::default()),
            journal: Journal::create(dir, Header::new(VERSION, Epoch(1), BEGIN)).unwrap(),
            now: BEGIN,
            out: Outcome::default(),
            next_job: 1,
            is_answered: true,
        };
        let Cluster { levels, nodes, costs, .. } =
            Cluster::of_file(CLUSTER, "c.yaml", |file| Err(format!("no {file}"))).unwrap();
        let policy = QueueFile::from_yaml(QUEUES, "q.yaml").unwrap().into_policy().unwrap();
        let mut facts = vec![
            Input::LevelsConfigured { levels },
            Input::CostsCompiled { table: costs },
            Input::SettingsConfigured { settings: Box::new(policy.settings) },
        ];
        let list = |kind, all: Vec<Input>| {
            [Input::SyncBegin { kind }].into_iter().chain(all).chain([Input::SyncEnd { kind }])
        };
        let queues = policy.queues.into_iter().map(|queue| Input::QueueObserved { queue: Box::new(queue) });
        let nodes = nodes.into_iter().map(|node| Input::NodeObserved { node: Box::new(node) });
        facts.extend(list(SyncKind::Queues, queues.collect()));
        facts.extend(list(SyncKind::Nodes, nodes.collect()));
        facts.extend(list(SyncKind::Jobs, Vec::new()));
        facts.extend(list(SyncKind::Members, Vec::new()));
        live.tell(facts);
        live
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
    }

    /// Facts, and answers to what is ordered, until nothing more is.
    pub(crate) fn tell(&mut self, mut facts: Vec<Input>) {
        while !facts.is_empty() {
            self.journal.facts(self.now, &facts).unwrap();
            let _ = self.engine.step(self.now, &facts, &mut self.out);
            self.journal.decisions(&self.out).unwrap();
            let effects = self.out.effects.iter().filter(|_| self.is_answered);
            facts = effects.flat_map(|effect| answers(&self.engine, effect)).collect();
        }
        self.journal.sync().unwrap();
    }

    /// A job file; its number.
    pub(crate) fn submit(&mut self, yaml: &str) -> JobId {
        let id = JobId(self.next_job);
        self.next_job += 1;
        let owner = Owner { uid: 1_000, gid: 1_000, name: "ann".to_owned() };
        let context = SubmitContext { id, owner, submitted_at: self.now, default_workdir: "/".to_owned() };
        let job = JobFile::from_yaml(yaml, "job.yaml").unwrap().into_job(context).unwrap();
        self.tell(vec![Input::JobSubmitted { job: Box::new(job) }]);
        id
    }

    /// All ranks of a job end well.
    pub(crate) fn end(&mut self, job: JobId) {
        let record = self.engine.gang(job.gang(0)).unwrap();
        let exits = members(job.gang(0), record.attempt, record.members.len())
            .map(|member| Input::MemberExited { member, exit: Exit::succeeded() });
        self.tell(exits.collect());
    }

    pub(crate) fn drain(&mut self, node: &str) {
        self.tell(vec![Input::DrainRequested { node: NodeName::new(node).unwrap() }]);
    }

    pub(crate) fn uncordon(&mut self, node: &str) {
        self.tell(vec![Input::NodeUncordoned { node: NodeName::new(node).unwrap() }]);
    }

    /// As `phalanx snapshot` takes it.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { taken_at: self.now, ..self.engine.snapshot() }
    }
}

/// A job file in one line.
pub(crate) fn job(name: &str, queue: &str, nodes: u32, limit: &str) -> String {
    let limit = if limit.is_empty() { String::new() } else { format!(", time_limit: {limit}") };
    format!("{{name: {name}, queue: {queue}, nodes: {nodes}, resources: {{gpus: 4}}, run: train{limit}}}\n")
}

fn members(gang: GangId, attempt: u32, count: usize) -> impl Iterator<Item = MemberId> {
    (0..count).map(move |rank| MemberId { gang, attempt, rank: u32::try_from(rank).unwrap() })
}

fn answers(engine: &Engine, effect: &Effect) -> Vec<Input> {
    let (gang, attempt) = (effect.order.gang(), effect.order.attempt());
    let all = || members(gang, attempt, engine.gang(gang).unwrap().members.len());
    let facts: Vec<Input> = match &effect.order {
        Order::StartMembers { .. } => all().map(|member| Input::MemberReady { member }).collect(),
        Order::ReleaseMembers { .. } => all().map(|member| Input::MemberReleased { member }).collect(),
        Order::SignalMembers { .. } | Order::KillMembers { .. } => {
            let exit = Exit::failed(FailureClass::Preemption, "told to stop");
            all().map(|member| Input::MemberExited { member, exit: exit.clone() }).collect()
        }
    };
    [Input::EffectDone { effect: effect.id }].into_iter().chain(facts).collect()
}

/// Two teams: vision borrows what speech does not use, and speech comes for it an hour later; then a node is drained
/// for a minute.
pub(crate) fn two_teams(dir: &Path) -> Live {
    let mut live = Live::begin(dir);
    let old = live.submit(&job("prepare", "vision", 1, "2h"));
    live.wait(30 * MINUTE);
    live.end(old);
    live.submit(&job("train", "vision", 2, "5h"));
    live.submit(&job("sweep-1", "vision", 1, "2h"));
    live.submit(&job("sweep-2", "vision", 1, "2h"));
    live.wait(60 * MINUTE);
    live.submit(&job("listen", "speech", 1, "3h"));
    live.submit(&job("tune", "vision", 1, "30m"));
    live.wait(10 * MINUTE);
    live.drain("b2");
    live.wait(MINUTE);
    live.uncordon("b2");
    live.wait(MINUTE);
    live
}
