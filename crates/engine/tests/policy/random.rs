//! Random queues, jobs and changes of both: properties that hold after every step, counted naively from the facts.

use std::collections::BTreeMap;

use phalanx_model::{
    Boost, Change, GangId, Input, JobId, PreemptMode, PreemptionRule, Queue, QueueName, Reclaim, Resource,
    Settings, Timestamp,
};
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::proptest::{self, collection::vec};
use phalanx_testkit::{gang, job, queue};

use crate::world::{MINUTE, SECOND, World, octets, set_min_run};

const NODES: usize = 3;
/// The classes by their default names.
const CLASSES: [&str; 4] = ["serving", "training", "research", "opportunistic"];

#[derive(Clone, Debug)]
enum Op {
    Submit {
        leaf: usize,
        size: u32,
        devices: u32,
        class: usize,
        limit: Option<u64>,
        runs: u64,
        priority: i32,
        mode: u8,
        elastic: (u32, u32),
    },
    Boundary(usize),
    Advance(u64),
    Cancel(usize),
    Hold(usize, bool),
    Boost(usize, i32),
    Queue(usize, Bounds),
    Cordon(usize, bool),
    Restart,
}

/// Amounts of devices.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    guaranteed: u64,
    limit: Option<u64>,
    lend: Option<u64>,
    weight: u64,
    running: Option<u32>,
}

fn any_bounds() -> impl Strategy<Value = Bounds> {
    let some = |most: u64| proptest::option::of(0..=most);
    (0_u64..9, some(24), some(8), 0_u64..3_000, proptest::option::weighted(0.2, 1_u32..6)).prop_map(
        |(guaranteed, limit, lend, weight, running)| Bounds { guaranteed, limit, lend, weight, running },
    )
}

fn any_op() -> impl Strategy<Value = Op> {
    let submit = (
        0_usize..8,
        1_u32..4,
        1_u32..9,
        0_usize..4,
        proptest::option::of(1_u64..90),
        1_u64..60,
        0_i32..3,
        0_u8..4,
        proptest::option::weighted(0.4, (0_u32..3, 0_u32..4)),
    );
    prop_oneof![
        10 => submit.prop_map(|(leaf, size, devices, class, limit, runs, priority, mode, elastic)| {
            let elastic = elastic.unwrap_or((0, 0));
            Op::Submit { leaf, size, devices, class, limit, runs, priority, mode, elastic }
        }),
        6 => (0_usize..40).prop_map(Op::Boundary),
        6 => (1_u64..40).prop_map(Op::Advance),
        2 => (0_usize..40).prop_map(Op::Cancel),
        1 => (0_usize..40, any::<bool>()).prop_map(|(job, held)| Op::Hold(job, held)),
        1 => (0_usize..40, -5_i32..50).prop_map(|(job, more)| Op::Boost(job, more)),
        1 => (0_usize..6, any_bounds()).prop_map(|(queue, bounds)| Op::Queue(queue, bounds)),
        1 => (0_usize..NODES, any::<bool>()).prop_map(|(node, closed)| Op::Cordon(node, closed)),
        1 => Just(Op::Restart),
    ]
}

/// Queues by number; each may be below a queue with a lower number.
fn any_tree() -> impl Strategy<Value = Vec<(Option<usize>, Bounds)>> {
    vec((proptest::option::of(any::<proptest::sample::Index>()), any_bounds()), 2..6).prop_map(|queues| {
        let parent =
            |at: usize, of: Option<proptest::sample::Index>| of.filter(|_| at > 0).map(|of| of.index(at));
        queues.into_iter().enumerate().map(|(at, (of, bounds))| (parent(at, of), bounds)).collect()
    })
}

struct Run {
    world: World,
    tree: Vec<Option<usize>>,
    told: BTreeMap<QueueName, Queue>,
    settings: Settings,
    next: u64,
    /// The number of changes that were checked.
    seen: usize,
    /// Pairs of victim and preempting gang since something last changed from outside or a gang ended by itself.
    turns: Vec<(GangId, GangId)>,
}

impl Run {
    fn new(tree: &[(Option<usize>, Bounds)], min_run: u64) -> Self {
        // Fair shares shift with the requests of others; gangs that may preempt by them are evaluated again only from
        // time to time, and not in the step that shifts the shares.
        let mut settings = Settings { reclaim: Reclaim::Guarantee, ..Settings::default() };
        set_min_run(&mut settings, min_run * MINUTE);
        let mut run = Self {
            world: World::new(&octets(NODES)),
            tree: tree.iter().map(|(parent, _)| *parent).collect(),
            told: BTreeMap::new(),
            settings: settings.clone(),
            next: 1,
            seen: 0,
            turns: Vec::new(),
        };
        run.world.tell(&[Input::SettingsConfigured { settings: Box::new(settings) }]);
        tree.iter().enumerate().for_each(|(at, (_, bounds))| run.queue(at, *bounds));
        run
    }

    fn queue(&mut self, at: usize, bounds: Bounds) {
        let mut built =
            queue(&format!("q{at}")).guaranteed("gpus", bounds.guaranteed).weight_milli(bounds.weight);
        if let Some(limit) = bounds.limit {
            built = built.limit("gpus", limit);
        }
        if let Some(lend) = bounds.lend {
            built = built.lend("gpus", lend);
        }
        if let Some(running) = bounds.running {
            built = built.running_max(running);
        }
        if let Some(parent) = self.tree[at] {
            built = built.parent(&format!("q{parent}"));
        }
        let built = built.build();
        self.told.insert(built.name.clone(), built.clone());
        self.world.tell(&[Input::QueueObserved { queue: Box::new(built) }]);
    }

    fn leaves(&self) -> Vec<usize> {
        (0..self.tree.len()).filter(|at| !self.tree.contains(&Some(*at))).collect()
    }

    fn perform(&mut self, op: &Op) {
        let any_job = |at: usize, next: u64| JobId(1 + at as u64 % (next - 1).max(1));
        if self.next == 1 && matches!(op, Op::Hold(..) | Op::Boost(..) | Op::Boundary(..)) {
            return;
        }
        match op {
            Op::Submit { leaf, size, devices, class, limit, runs, priority, mode, elastic } => {
                let leaves = self.leaves();
                let (least, most) = (size.saturating_sub(elastic.0).max(1), size + elastic.1);
                let built = gang(*size).devices(*devices).elastic(least, most);
                let mut built = job(self.next, built).priority(*priority);
                built = built.queue(&format!("q{}", leaves[leaf % leaves.len()])).class(CLASSES[*class]);
                if let Some(limit) = limit {
                    built = built.time_limit(limit * MINUTE);
                }
                built = built.preempt(match mode {
                    0 => PreemptMode::Never,
                    1 => PreemptMode::Cancel,
                    _ => PreemptMode::Requeue,
                });
                self.next += 1;
                self.world.submit_for(built, runs * MINUTE);
            }
            Op::Advance(minutes) => self.world.advance(minutes * MINUTE),
            Op::Cancel(at) => self.world.cancel(any_job(*at, self.next).0),
            Op::Boundary(at) => {
                let job = any_job(*at, self.next);
                if self.world.watched.engine.job(job).is_some() {
                    self.world.boundary(job.0);
                }
            }
            Op::Hold(at, true) => {
                self.world.tell(&[Input::JobHeld { job: any_job(*at, self.next), by: "user".into() }]);
            }
            Op::Hold(at, false) => {
                self.world.tell(&[Input::JobReleased { job: any_job(*at, self.next), by: "user".into() }]);
            }
            Op::Boost(at, priority) => {
                let until = self.world.now().plus(30 * MINUTE);
                let boost = Some(Boost { priority: *priority, until, by: "user".into() });
                self.world.tell(&[Input::JobBoosted { job: any_job(*at, self.next), boost }]);
            }
            Op::Queue(at, bounds) if *at < self.tree.len() => self.queue(*at, *bounds),
            Op::Queue(..) => {}
            Op::Cordon(at, closed) => {
                let node = octets(NODES)[*at].name.clone();
                let fact =
                    if *closed { Input::NodeCordoned { node } } else { Input::NodeUncordoned { node } };
                self.world.tell(&[fact]);
            }
            Op::Restart => {
                self.world.watched.restart();
            }
        }
        self.check();
    }

    /// A queue and those above it.
    fn path(&self, leaf: &QueueName) -> Vec<&Queue> {
        let first = self.told.get(leaf);
        std::iter::successors(first, |queue| self.told.get(queue.parent.as_ref()?)).collect()
    }

    /// Devices of placements below a queue, in thousandths, and the number of gangs; by the records.
    fn used(&self, queue: &QueueName) -> (u64, u32) {
        let mut used = (0, 0);
        for (job, records) in self.world.watched.engine.jobs() {
            if !self.path(&job.queue).iter().any(|above| above.name == *queue) {
                continue;
            }
            for record in records.iter().filter(|record| record.holds_capacity()) {
                let slots = record.placement.iter().flat_map(|placement| &placement.slots);
                used.0 += slots.map(|slot| u64::from(slot.devices.count()) * 1_000).sum::<u64>();
                used.1 += 1;
            }
        }
        used
    }

    fn check(&mut self) {
        let fresh: Vec<(Timestamp, Change)> = self.world.changes[self.seen..].to_vec();
        self.seen = self.world.changes.len();
        let now = self.world.now();
        for (at, change) in &fresh {
            match change {
                Change::GangPlaced { gang, .. } if *at == now => self.check_limits(*gang),
                Change::GangStopping {
                    gang, cause: phalanx_model::StopCause::Preempted(eviction), ..
                } => {
                    self.check_upward(*gang, eviction.by, &eviction.rule);
                    let pair = (eviction.by, *gang);
                    assert!(!self.turns.contains(&pair), "{pair:?} again, in {:?}", self.turns);
                    assert!(!self.turns.contains(&(pair.1, pair.0)), "{pair:?} in turn, in {:?}", self.turns);
                    self.turns.push(pair);
                }
                Change::GangFinished { .. } => self.turns.clear(),
                _ => {}
            }
        }
    }

    /// No start exceeds a limit of any queue on its path.
    fn check_limits(&self, gang: GangId) {
        let Some(job) = self.world.watched.engine.job(gang.job) else { return };
        for queue in self.path(&job.queue) {
            let (used, running) = self.used(&queue.name);
            let limit = queue.limit.get(&Resource::Gpus).copied().unwrap_or(u64::MAX);
            assert!(used <= limit, "{gang} started, and {} uses {used} of {limit}", queue.name);
            assert!(
                queue.caps.running_max.is_none_or(|most| running <= most),
                "{gang}: {running} run in {}",
                queue.name
            );
        }
    }

    /// Checks that a victim can be preempted, and that the preempting gang has a greater entitlement.
    fn check_upward(&self, victim: GangId, by: GangId, rule: &PreemptionRule) {
        let engine = &self.world.watched.engine;
        let (Some(loser), Some(winner)) = (engine.job(victim.job), engine.job(by.job)) else { return };
        let class = |job: &phalanx_model::Job| self.settings.class(job.turn.class.as_ref()).unwrap().clone();
        assert!(
            class(loser).is_preemptible && loser.policy.preempt.mode != PreemptMode::Never,
            "{victim} does not make way"
        );
        assert!(class(winner).may_preempt, "{by} evicts nobody");
        match rule {
            PreemptionRule::Class { .. } => {
                assert!(class(winner).rank > class(loser).rank, "{by} over {victim}")
            }
            PreemptionRule::Guarantee { queue, borrower } | PreemptionRule::FairShare { queue, borrower } => {
                assert!(self.path(&winner.queue).iter().any(|above| above.name == *queue));
                assert!(self.path(&loser.queue).iter().any(|above| above.name == *borrower));
                let between = self.path(&winner.queue).iter().any(|above| above.name == *borrower);
                assert!(!between, "{queue} takes from {borrower}, which is its own");
            }
            PreemptionRule::LessServed { queue, level, over } => {
                assert!(
                    winner.queue == *queue && loser.queue == *queue && level < over,
                    "{by} over {victim}"
                );
                assert_eq!(class(winner).rank, class(loser).rank, "{by} over {victim}");
            }
            PreemptionRule::Spare => unreachable!("no spare nodes are kept here"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// `Watched` also checks every step: usage is zero if no gang holds anything, an equal engine decides the same, and
    /// nothing is left to decide.
    #[test]
    fn limits_hold_and_evictions_go_upward(tree in any_tree(), min_run in 0_u64..15, ops in vec(any_op(), 1..40)) {
        let mut run = Run::new(&tree, min_run);
        for op in &ops {
            if !matches!(op, Op::Advance(_) | Op::Restart) {
                run.turns.clear();
            }
            run.perform(op);
        }
        run.turns.clear();
        run.perform(&Op::Advance(24 * 60));
        // All running gangs end by themselves, and all capacity is released.
        (1..run.next).for_each(|id| run.world.cancel(id));
        run.world.advance(MINUTE + SECOND);
        for report in run.world.watched.engine.queues() {
            prop_assert!(report.resources.iter().all(|good| good.used == 0 && good.wanted == 0), "{report:?}");
            prop_assert_eq!((report.running, report.pending), (0, 0));
        }
    }

    /// Two engines with equal inputs give equal outputs, byte by byte.
    #[test]
    fn the_same_inputs_give_the_same_bytes(tree in any_tree(), ops in vec(any_op(), 1..24)) {
        let both = [(); 2].map(|()| {
            let mut run = Run::new(&tree, 1);
            ops.iter().for_each(|op| match op {
                Op::Restart => {}
                op => {
                    run.turns.clear();
                    run.perform(op);
                }
            });
            let reports = run.world.watched.engine.queues();
            format!("{:?} {reports:?} {:?}", run.world.changes, run.world.watched.engine.facts())
        });
        prop_assert_eq!(&both[0], &both[1]);
    }
}

/// Found by the property above: once gangs are preempted for a guarantee, the kept capacity is in use, so nothing is
/// kept any more and there is room for gangs that had found none.
#[test]
fn room_that_a_claim_leaves_is_used_at_once() {
    let bounds = |guaranteed, lend| Bounds { guaranteed, limit: None, lend, weight: 1_000, running: None };
    let tree = [(None, bounds(0, None)), (None, bounds(0, None)), (Some(0), bounds(4, Some(0)))];
    let mut run = Run::new(&tree, 0);
    for (leaf, size, devices, class, mode) in [(0, 3, 5, 1, 1), (0, 2, 3, 1, 0), (1, 1, 4, 0, 0)] {
        let (limit, runs, priority, elastic) = (None, 1, 0, (0, 0));
        run.perform(&Op::Submit { leaf, size, devices, class, limit, runs, priority, mode, elastic });
    }
    assert_eq!(run.world.phase(2), "running");
}
