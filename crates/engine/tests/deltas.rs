//! Changes of nodes that are applied in place: after each of them the engine knows and decides the same as an engine
//! that was given everything from the beginning.

#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

use phalanx_engine::{Config, Engine};
use phalanx_model::{
    Admin, Change, DeviceMask, Epoch, ForeignUse, GangId, Grade, Health, Input, Node, NodeName, Order,
    Outcome, Placement, Timestamp,
};
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::proptest::{self, sample::Index};
use phalanx_testkit::{costs, gang, job, levels, node};

/// One step: an event of some nodes.
#[derive(Clone, Debug)]
enum Op {
    Use(Index, u64, u64),
    Observe(Index, u64, u64),
    Cordon(Index),
    Uncordon(Index),
    /// The health of devices, or of the node itself.
    Grade(Index, u64, usize),
    Remove(Index),
    /// The node moves to another place of the tree.
    Move(Index, u8),
    Submit(u32, u32),
    Cancel(Index),
}

fn any_op() -> impl Strategy<Value = Op> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), 0_u64..16, 0_u64..10).prop_map(|(at, mask, cpus)| Op::Use(at, mask, cpus)),
        2 => (at(), 0_u64..16, 0_u64..10).prop_map(|(at, mask, cpus)| Op::Observe(at, mask, cpus)),
        2 => at().prop_map(Op::Cordon),
        2 => at().prop_map(Op::Uncordon),
        2 => (at(), 0_u64..16, 0_usize..5).prop_map(|(at, mask, grade)| Op::Grade(at, mask, grade)),
        1 => at().prop_map(Op::Remove),
        1 => (at(), 0_u8..3).prop_map(|(at, leaf)| Op::Move(at, leaf)),
        3 => (1_u32..4, 1_u32..5).prop_map(|(size, devices)| Op::Submit(size, devices)),
        2 => at().prop_map(Op::Cancel),
    ]
}

fn built(at: usize, leaf: &str) -> Node {
    node(&format!("n{at:03}")).path(["cluster", leaf]).gpus(4).nvswitch().cpus(16).has("licenses", 3).build()
}

struct Run {
    engine: Engine,
    now: Timestamp,
    nodes: Vec<Node>,
    jobs: u64,
}

impl Run {
    fn new(count: usize) -> Self {
        let nodes: Vec<Node> = (0..count).map(|at| built(at, &format!("l{}", at % 3))).collect();
        let mut facts = vec![
            Input::LevelsConfigured { levels: levels(&["cluster", "leaf"]) },
            Input::CostsCompiled { table: costs(&nodes) },
        ];
        facts.extend(nodes.iter().map(|n| Input::NodeObserved { node: Box::new(n.clone()) }));
        let mut run =
            Self { engine: Engine::new(Epoch(1), Config::default()), now: Timestamp(1_000), nodes, jobs: 0 };
        run.step(&facts);
        assert_eq!(run.engine.nodes().count(), count, "no node is refused");
        run
    }

    fn step(&mut self, facts: &[Input]) {
        self.now = self.now.plus(1);
        let _ = self.engine.step(self.now, facts, &mut Outcome::default());
    }

    fn facts(&mut self, op: Op) -> Vec<Input> {
        let name = |at: Index, nodes: &[Node]| at.get(nodes).name.clone();
        let foreign_use = |cpus: u64| ForeignUse {
            cpu_milli: cpus * 2_000,
            named: [(phalanx_model::ResourceName::new("licenses").unwrap(), cpus % 4)].into(),
            ..ForeignUse::default()
        };
        match op {
            Op::Use(at, mask, cpus) => vec![Input::NodeUseObserved {
                node: name(at, &self.nodes),
                foreign: DeviceMask(mask),
                foreign_use: foreign_use(cpus),
            }],
            Op::Observe(at, mask, cpus) => {
                let admin = if cpus.is_multiple_of(3) { Admin::Cordoned } else { Admin::Open };
                let (foreign, foreign_use) = (DeviceMask(mask), foreign_use(cpus));
                let node = Node { foreign, foreign_use, admin, ..at.get(&self.nodes).clone() };
                vec![Input::NodeObserved { node: Box::new(node) }]
            }
            Op::Cordon(at) => vec![Input::NodeCordoned { node: name(at, &self.nodes) }],
            Op::Uncordon(at) => vec![Input::NodeUncordoned { node: name(at, &self.nodes) }],
            Op::Grade(at, mask, grade) => {
                let (node, devices, grade) = (name(at, &self.nodes), DeviceMask(mask), Grade::ALL[grade]);
                let health = Health { node, devices, grade, detail: "Xid 48".to_owned() };
                vec![Input::HealthGraded { health }]
            }
            Op::Remove(at) => vec![Input::NodeRemoved { node: name(at, &self.nodes) }],
            Op::Move(at, leaf) => {
                let at = at.index(self.nodes.len());
                vec![Input::NodeObserved { node: Box::new(built(at, &format!("l{leaf}"))) }]
            }
            Op::Submit(size, devices) => {
                self.jobs += 1;
                vec![submitted(self.jobs, size, devices)]
            }
            Op::Cancel(at) if self.jobs > 0 => {
                let job = phalanx_model::JobId(1 + at.index(self.jobs as usize) as u64);
                vec![
                    Input::CancelRequested { job, by: "user".into() },
                    Input::NodeCordoned { node: name(at, &self.nodes) },
                ]
            }
            Op::Cancel(_) => Vec::new(),
        }
    }
}

fn submitted(id: u64, size: u32, devices: u32) -> Input {
    let gang = gang(size).devices(devices).uses("licenses", 1);
    Input::JobSubmitted { job: Box::new(job(id, gang).grace(1_000).build()) }
}

/// The gangs that an engine starts if some more jobs are submitted.
fn probed(engine: &Engine, now: Timestamp) -> (Vec<(GangId, Placement)>, Vec<Change>) {
    let mut engine = engine.clone();
    let mut out = Outcome::default();
    let facts: Vec<Input> =
        (1..=4).map(|devices| submitted(1_000 + u64::from(devices), 2, devices)).collect();
    let _ = engine.step(now.plus(1), &facts, &mut out);
    let start = |order: &Order| match order {
        Order::StartMembers { gang, placement, .. } => Some((*gang, placement.clone())),
        _ => None,
    };
    (out.effects.iter().filter_map(|effect| start(&effect.order)).collect(), out.changes)
}

fn check(run: &Run) -> Result<(), TestCaseError> {
    let mut fresh = Engine::new(Epoch(1), Config::default());
    let mut out = Outcome::default();
    let _ = fresh.step(run.now, &run.engine.facts(), &mut out);
    prop_assert!(out.effects.is_empty(), "what is told from the beginning decides {:?}", out.effects);
    let names: Vec<NodeName> = run.engine.nodes().map(|node| node.name.clone()).collect();
    for name in names {
        prop_assert_eq!(run.engine.free(&name), fresh.free(&name), "{}", name);
    }
    // A queue that is not configured is known for as long as its engine lives.
    let in_use = |engine: &Engine| {
        let mut queues = engine.queues();
        queues.retain(|queue| queue.running > 0 || queue.pending > 0);
        queues
    };
    prop_assert_eq!(in_use(&run.engine), in_use(&fresh));
    let (starts, changes) = probed(&run.engine, run.now);
    let (fresh_starts, fresh_changes) = probed(&fresh, run.now);
    prop_assert_eq!(starts, fresh_starts);
    if run.nodes.len() < 200 {
        prop_assert_eq!(changes, fresh_changes);
    }
    Ok(())
}

fn runs_alike(count: usize, steps: Vec<Vec<Op>>) -> Result<(), TestCaseError> {
    let mut run = Run::new(count);
    for ops in steps {
        let facts: Vec<Input> = ops.into_iter().flat_map(|op| run.facts(op)).collect();
        run.step(&facts);
        check(&run)?;
    }
    Ok(())
}

fn steps() -> impl Strategy<Value = Vec<Vec<Op>>> {
    proptest::collection::vec(proptest::collection::vec(any_op(), 1..4), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_node_is_as_if_it_had_always_been_so(steps in steps()) {
        runs_alike(4, steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    /// The same for more nodes than the engine evaluates at every change.
    #[test]
    fn so_is_one_of_many(steps in steps()) {
        runs_alike(260, steps)?;
    }
}

/// A world that lists its nodes again knows nothing of their health, and a node that is gone and comes back is well.
#[test]
fn health_outlasts_a_listing_of_the_nodes() {
    let mut run = Run::new(2);
    let sick = run.nodes[0].clone();
    let devices = DeviceMask::one(1);
    let health = Health { node: sick.name.clone(), devices, grade: Grade::Broken, detail: String::new() };
    let observed = Input::NodeObserved { node: Box::new(sick.clone()) };
    run.step(&[Input::HealthGraded { health }]);
    let closed = |run: &Run| run.engine.node(&sick.name).map(|node| node.health.closed_devices());
    run.step(&[
        Input::SyncBegin { kind: phalanx_model::SyncKind::Nodes },
        observed.clone(),
        Input::SyncEnd { kind: phalanx_model::SyncKind::Nodes },
    ]);
    assert_eq!(closed(&run), Some(devices));
    assert!(!run.engine.free(&sick.name).unwrap().devices.contains(1));
    run.step(&[Input::NodeRemoved { node: sick.name.clone() }, observed]);
    assert_eq!(closed(&run), Some(DeviceMask::EMPTY));
}
