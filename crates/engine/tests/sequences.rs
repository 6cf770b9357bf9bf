//! Sequences of facts, good and bad. After every step the checker has checked the state, the free capacity was counted
//! again, an equal engine decided the same, and nothing was left to decide (see `Watched`).

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use phalanx_model::{
    Answer, Change, Confidence, DeviceMask, EffectId, Epoch, Exit, FailureClass, ForeignUse, GangId,
    GangRecord, Input, Job, JobId, Levels, MemberId, MemberState, Node, NodeName, Order, Outcome, Phase,
    Question, Reason, SyncKind, Timestamp,
};
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::proptest::{self, sample::Index};
use phalanx_testkit::{Watched, any_cluster, any_gang_for, any_node, job};

/// One event. An `Index` picks one of the present objects.
#[derive(Clone, Debug)]
enum Op {
    Submit(Box<Job>),
    Ready(Index, Option<u32>),
    Release(Index),
    Exit(Index, Option<u32>, i32),
    Cancel(Index),
    /// The use by others: devices, and thousandths of CPUs.
    Use(Index, u64, u64),
    Cordon(Index),
    Uncordon(Index),
    Drain(Index),
    Remove(Index),
    /// The node returns as it was declared, or smaller.
    Return(Index),
    Replace(Box<Node>),
    Advance(u64),
    ClockBack(u64),
    StartFailed(Index),
    Restart,
    Forget(Index),
    Garbage(Index, u32),
}

fn any_job(levels: &Levels) -> impl Strategy<Value = Box<Job>> + use<> {
    let gangs = proptest::collection::vec(any_gang_for(levels), 1..=2);
    let policy = (
        proptest::option::of(1_u64..50_000),
        1_u64..20_000,
        proptest::option::of(0_u64..20_000),
        0_u64..20_000,
        0_u32..3,
        proptest::sample::subsequence(FailureClass::ALL.to_vec(), 0..=5),
    );
    let names = (0_i32..3, proptest::option::of("[ab]"));
    (gangs, policy, names).prop_map(
        |(gangs, (limit, deadline, advisory, grace, max, on), (priority, key))| {
            let mut built = job(0, gangs[0].clone()).priority(priority).grace(grace).start_deadline(deadline);
            built = built.retry(max, &on).backoff(500, 4_000);
            if let Some(lead_ms) = advisory {
                built = built.advisory(10, lead_ms);
            }
            let mut built = built.build();
            built.gangs = gangs;
            built.policy.time_limit_ms = limit;
            built.key = key;
            Box::new(built)
        },
    )
}

fn any_op(levels: &Levels) -> impl Strategy<Value = Op> + use<> {
    let depth = levels.above.len();
    let at = any::<Index>;
    let rank = || proptest::option::of(0_u32..6);
    prop_oneof![
        6 => any_job(levels).prop_map(Op::Submit),
        6 => (at(), rank()).prop_map(|(i, r)| Op::Ready(i, r)),
        4 => at().prop_map(Op::Release),
        4 => (at(), rank(), 0..3).prop_map(|(i, r, code)| Op::Exit(i, r, code)),
        1 => at().prop_map(Op::Cancel),
        2 => (at(), 0_u64..256, 0_u64..9_000).prop_map(|(at, mask, cpu)| Op::Use(at, mask, cpu)),
        1 => at().prop_map(Op::Cordon),
        2 => at().prop_map(Op::Uncordon),
        1 => at().prop_map(Op::Drain),
        1 => at().prop_map(Op::Remove),
        2 => at().prop_map(Op::Return),
        1 => (any_node("n1", depth)).prop_map(|n| Op::Replace(Box::new(n))),
        3 => (0_u64..30_000).prop_map(Op::Advance),
        1 => (0_u64..30_000).prop_map(Op::ClockBack),
        1 => at().prop_map(Op::StartFailed),
        1 => Just(Op::Restart),
        1 => at().prop_map(Op::Forget),
        2 => (at(), any::<u32>()).prop_map(|(i, n)| Op::Garbage(i, n)),
    ]
}

fn cluster_and_ops(length: usize) -> impl Strategy<Value = (Levels, Vec<Node>, Vec<Op>)> {
    any_cluster().prop_flat_map(move |(levels, nodes)| {
        let ops = proptest::collection::vec(any_op(&levels), 1..length);
        (Just(levels), Just(nodes), ops)
    })
}

/// Carries out operations, and records the orders to the world.
struct Run {
    watched: Watched,
    declared: Vec<Node>,
    next_job: u64,
    released: BTreeSet<(GangId, u32)>,
    starts: Vec<EffectId>,
    /// Every decision so far.
    decided: Vec<Outcome>,
}

impl Run {
    fn new(levels: &Levels, nodes: &[Node]) -> Self {
        Self {
            watched: Watched::with_nodes(levels, nodes),
            declared: nodes.to_vec(),
            next_job: 1,
            released: BTreeSet::new(),
            starts: Vec::new(),
            decided: Vec::new(),
        }
    }

    fn tell(&mut self, facts: &[Input]) {
        let out = self.watched.step(facts);
        self.note(out);
    }

    fn note(&mut self, out: Outcome) {
        for effect in &out.effects {
            match &effect.order {
                Order::ReleaseMembers { gang, attempt } => {
                    self.released.insert((*gang, *attempt));
                }
                Order::StartMembers { .. } => self.starts.push(effect.id),
                _ => {}
            }
        }
        self.decided.push(out);
    }

    fn pick_holding(&self, at: &Index) -> Option<GangRecord> {
        let mut holding = self.watched.records();
        holding.retain(GangRecord::holds_capacity);
        (!holding.is_empty()).then(|| at.get(&holding).clone())
    }

    fn pick_job(&self, at: &Index) -> JobId {
        JobId(1 + at.index(usize::try_from(self.next_job).unwrap()) as u64)
    }

    fn pick_node(&self, at: &Index) -> NodeName {
        at.get(&self.declared).name.clone()
    }

    /// One member of a gang, or all.
    fn members(record: &GangRecord, rank: Option<u32>) -> Vec<MemberId> {
        let size = u32::try_from(record.members.len()).unwrap();
        let member = |rank| MemberId { gang: record.id, attempt: record.attempt, rank };
        rank.map_or_else(|| (0..size).map(member).collect(), |r| vec![member(r % size)])
    }

    fn perform(&mut self, op: &Op) {
        match op {
            Op::Submit(job) => {
                let id = JobId(self.next_job);
                self.next_job += 1;
                let job = Job { id, submitted_at: self.watched.now, ..(**job).clone() };
                self.submit(&job);
            }
            Op::Ready(at, rank) => {
                let Some(record) = self.pick_holding(at) else { return };
                let ready = Self::members(&record, *rank).into_iter();
                self.tell(&ready.map(|member| Input::MemberReady { member }).collect::<Vec<_>>());
            }
            Op::Release(at) => {
                let Some(record) = self.pick_holding(at) else { return };
                if self.released.contains(&(record.id, record.attempt)) {
                    let through = Self::members(&record, None).into_iter();
                    self.tell(&through.map(|member| Input::MemberReleased { member }).collect::<Vec<_>>());
                }
            }
            Op::Exit(at, rank, code) => {
                let Some(record) = self.pick_holding(at) else { return };
                let exit = |member| Input::MemberExited { member, exit: Exit::code(*code) };
                self.tell(&Self::members(&record, *rank).into_iter().map(exit).collect::<Vec<_>>());
            }
            Op::Cancel(at) => {
                let job = self.pick_job(at);
                self.tell(&[Input::CancelRequested { job, by: "somebody".into() }]);
            }
            Op::Use(at, mask, cpu_milli) => self.tell(&[Input::NodeUseObserved {
                node: self.pick_node(at),
                foreign: DeviceMask(*mask),
                foreign_use: ForeignUse { cpu_milli: *cpu_milli, ..ForeignUse::default() },
            }]),
            Op::Cordon(at) => self.tell(&[Input::NodeCordoned { node: self.pick_node(at) }]),
            Op::Uncordon(at) => self.tell(&[Input::NodeUncordoned { node: self.pick_node(at) }]),
            Op::Drain(at) => self.tell(&[Input::DrainRequested { node: self.pick_node(at) }]),
            Op::Remove(at) => self.tell(&[Input::NodeRemoved { node: self.pick_node(at) }]),
            Op::Return(at) => {
                let node = Box::new(at.get(&self.declared).clone());
                self.tell(&[Input::NodeObserved { node }]);
            }
            Op::Replace(node) => self.tell(&[Input::NodeObserved { node: node.clone() }]),
            Op::Advance(ms) => {
                let out = self.watched.advance(*ms);
                self.note(out);
            }
            Op::ClockBack(ms) => {
                let now = self.watched.now;
                let mut out = Outcome::default();
                let earlier = Timestamp(now.0.saturating_sub(*ms));
                let _ = self.watched.engine.step(earlier, &[], &mut out);
                assert_eq!(out, Outcome::default(), "an earlier time changed something");
            }
            Op::StartFailed(at) => {
                if !self.starts.is_empty() {
                    let effect = *at.get(&self.starts);
                    let class = FailureClass::StartUp;
                    self.tell(&[Input::EffectFailed { effect, class, detail: "no".into() }]);
                }
            }
            Op::Restart => {
                self.watched.restart();
                self.starts.clear();
            }
            Op::Forget(at) => self.tell(&[Input::JobForgotten { job: self.pick_job(at) }]),
            Op::Garbage(at, n) => self.garbage(at, *n),
        }
    }

    /// Submits a job, which is decided just as `what_if` said.
    fn submit(&mut self, job: &Job) {
        let question = Question::Submitted(Box::new(job.clone()));
        let answer = self.watched.engine.what_if(&question);
        let out = self.watched.step(&[Input::JobSubmitted { job: Box::new(job.clone()) }]);
        match &answer {
            Answer::Rejected(why) => {
                assert!(
                    out.changes.contains(&Change::JobRejected { job: job.id, why: why.clone() }),
                    "{why:?}"
                );
            }
            Answer::WouldBe(reports) => {
                assert_eq!(reports.len(), job.gangs.len());
                for report in reports {
                    let record = self.watched.record(report.gang);
                    let now = report.estimated_start.is_some_and(|e| e.confidence == Confidence::Now);
                    assert_eq!(now, record.holds_capacity(), "{report:?} {record:?}\n{}", self.watched.log());
                    match now {
                        true => assert_eq!(report.nearest, record.placement),
                        false => {
                            assert_eq!(self.watched.engine.reason(report.gang), Some(report.reason.clone()))
                        }
                    }
                }
            }
            other => panic!("{other:?}"),
        }
        self.note(out);
    }

    /// Facts about objects that do not exist, or that are stale, out of range, repeated, or in the wrong order.
    fn garbage(&mut self, at: &Index, n: u32) {
        let gang = self.pick_job(at).gang(n % 3);
        let attempt = self.watched.engine.gang(gang).map_or(0, |r| r.attempt);
        let stale = MemberId { gang, attempt: attempt.wrapping_sub(1), rank: n % 8 };
        let beyond = MemberId { gang, attempt, rank: n | 1 << 20 };
        let nobody = MemberId { gang: JobId(u64::MAX).gang(u32::MAX), attempt: u32::MAX, rank: u32::MAX };
        let effect = EffectId { epoch: Epoch(u64::from(n % 3)), seq: u64::MAX - u64::from(n) };
        let mut bad_node = at.get(&self.declared).clone();
        bad_node.path.push(bad_node.path[0].clone());
        let facts: Vec<Input> = [stale, beyond, nobody]
            .into_iter()
            .flat_map(|member| {
                [
                    Input::MemberReady { member },
                    Input::MemberExited { member, exit: Exit::code(1) },
                    Input::MemberObserved { member, state: MemberState::Ready },
                ]
            })
            .chain([
                Input::EffectDone { effect },
                Input::EffectUnknown { effect },
                Input::EffectFailed { effect, class: FailureClass::Node, detail: String::new() },
                Input::NodeObserved { node: Box::new(bad_node) },
                Input::NodeRemoved { node: NodeName::new("nowhere").unwrap() },
                Input::DrainRequested { node: NodeName::new("nowhere").unwrap() },
                Input::CancelRequested { job: JobId(u64::MAX), by: String::new() },
                Input::JobForgotten { job: JobId(u64::MAX) },
                Input::SyncEnd { kind: SyncKind::Jobs },
                Input::SyncEnd { kind: SyncKind::Nodes },
                Input::GangCheckpointed { gang: nobody.gang, at: Timestamp::MAX },
            ])
            .collect();
        let before = self.watched.engine.facts();
        self.tell(&facts);
        assert!(before == self.watched.engine.facts(), "garbage changed something\n{}", self.watched.log());
    }

    /// Checks that the report of each pending gang agrees with the decisions.
    fn check_reports(&self) {
        let mut positions = BTreeSet::new();
        for record in self.watched.records().iter().filter(|r| r.is_pending()) {
            let report = self.watched.engine.explain(record.id).unwrap();
            let log = || self.watched.log();
            assert_eq!(Some(report.reason.clone()), self.watched.engine.reason(record.id), "{}", log());
            assert_ne!(report.reason, Reason::None, "it could start and did not\n{}", log());
            assert!(positions.insert(report.position) && report.position <= report.of, "{report:?}");
            if let Some(estimate) = report.estimated_start {
                assert_eq!(estimate.confidence, Confidence::AtLatest, "{report:?}\n{}", log());
                assert!(estimate.at >= self.watched.now);
                if let Phase::Pending { not_before } = record.phase {
                    assert!(estimate.at >= not_before, "{report:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_keeps_every_promise((levels, nodes, ops) in cluster_and_ops(40)) {
        let mut run = Run::new(&levels, &nodes);
        for op in &ops {
            run.perform(op);
            run.check_reports();
        }
    }

    /// The same sequence decided twice, and once with the nodes listed in another order: the same to the last byte.
    #[test]
    fn the_same_facts_give_the_same_bytes((levels, nodes, ops) in cluster_and_ops(25)) {
        let bytes = |nodes: &[Node]| {
            let mut run = Run::new(&levels, nodes);
            // An index must pick the same object.
            run.declared.sort_by(|a, b| a.name.cmp(&b.name));
            ops.iter().for_each(|op| run.perform(op));
            format!("{:?}", run.decided)
        };
        let mut reversed = nodes.clone();
        reversed.reverse();
        let first = bytes(&nodes);
        prop_assert_eq!(&first, &bytes(&nodes));
        prop_assert_eq!(&first, &bytes(&reversed));
    }

    /// An engine that dies after any step is followed by an engine that decides the same from then on.
    #[test]
    fn a_successor_decides_the_same((levels, nodes, ops) in cluster_and_ops(25), crash in any::<Index>()) {
        // Answers to orders of an old leader are no facts for its successor, so there are none here.
        let ops: Vec<Op> = ops
            .into_iter()
            .filter(|op| !matches!(op, Op::StartFailed(_) | Op::Restart | Op::Garbage(..)))
            .collect();
        let decided = |crash: usize, dies: bool| {
            let mut run = Run::new(&levels, &nodes);
            for (i, op) in ops.iter().enumerate() {
                if crash == i {
                    if dies {
                        run.watched.restart();
                    } else {
                        // As before a restart.
                        run.watched.plan_anew();
                    }
                }
                run.perform(op);
            }
            let orders = run.decided.iter().flat_map(|out| &out.effects).map(|e| e.order.clone());
            (orders.collect::<Vec<_>>(), run.watched.engine.facts())
        };
        let crash = crash.index(ops.len().max(1));
        prop_assert_eq!(decided(crash, false), decided(crash, true));
    }
}
