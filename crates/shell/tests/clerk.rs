//! The account of an engine: random work and trouble, and two oracles that know nothing of the book: the devices that
//! there were, and the service that the engine itself counts.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use phalanx_account::{Entry, State};
use phalanx_model::{
    DeviceMask, Ending, Epoch, Exit, FailureClass, Grade, Health, Input, JobId, MemberId, NodeName, Order,
    Outcome, Phase, Signal, SyncKind, Timestamp,
};
use phalanx_shell::{Clerk, Config, Engine};
use phalanx_testkit::{gang, job, levels, node};

const NODES: [&str; 3] = ["a", "b", "c"];
const DEVICES: u64 = 24;
const SEEDS: u64 = 30;

/// xorshift64*: Vigna 2016, "An experimental exploration of Marsaglia's xorshift generators, scrambled".
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// An engine in a world that obeys, and its clerk.
struct Play {
    engine: Engine,
    out: Outcome,
    clerk: Clerk,
    now: Timestamp,
    /// Members that live.
    living: Vec<MemberId>,
    entries: Vec<Entry>,
    jobs: u64,
}

impl Play {
    fn begin() -> Self {
        let nodes: Vec<_> =
            NODES.iter().map(|name| node(name).path(["c"]).gpus(8).nvswitch().build()).collect();
        let mut facts = vec![
            Input::LevelsConfigured { levels: levels(&["cluster"]) },
            Input::CostsCompiled { table: phalanx_testkit::costs(&nodes) },
        ];
        for kind in [SyncKind::Nodes, SyncKind::Jobs, SyncKind::Members] {
            facts.push(Input::SyncBegin { kind });
            if kind == SyncKind::Nodes {
                facts.extend(nodes.iter().map(|node| Input::NodeObserved { node: Box::new(node.clone()) }));
            }
            facts.push(Input::SyncEnd { kind });
        }
        let mut play = Self {
            engine: Engine::new(Epoch(1), Config::default()),
            out: Outcome::default(),
            clerk: Clerk::new(BTreeMap::new(), None),
            now: Timestamp(3_600_000 * 5 - 2_000),
            living: Vec::new(),
            entries: Vec::new(),
            jobs: 0,
        };
        play.tell(&facts);
        play
    }

    /// One step of the engine, and what the world does about it.
    fn tell(&mut self, facts: &[Input]) {
        let _ = self.engine.step(self.now, facts, &mut self.out);
        self.clerk.stepped(self.now, facts, &self.out.changes, &self.engine);
        let mut answers = Vec::new();
        for effect in std::mem::take(&mut self.out.effects) {
            let (gang, attempt) = (effect.order.gang(), effect.order.attempt());
            let mine = |member: &MemberId| member.gang == gang && member.attempt == attempt;
            match effect.order {
                Order::StartMembers { placement, .. } => {
                    let members =
                        placement.slots.iter().map(|slot| MemberId { gang, attempt, rank: slot.rank });
                    self.living.extend(members.clone());
                    answers.extend(members.map(|member| Input::MemberReady { member }));
                }
                Order::ReleaseMembers { .. } => {
                    let members = self.living.iter().copied().filter(mine);
                    answers.extend(members.map(|member| Input::MemberReleased { member }));
                }
                Order::SignalMembers { signal: Signal::Advisory(_), .. } => {}
                Order::SignalMembers { .. } | Order::KillMembers { .. } => {
                    let exit = Exit::by_signal(15);
                    let members = self.living.extract_if(.., |member| mine(member));
                    answers.extend(members.map(|member| Input::MemberExited { member, exit: exit.clone() }));
                }
            }
        }
        if !answers.is_empty() {
            // Some take a while.
            self.now = self.now.plus(answers.len() as u64 % 7);
            self.tell(&answers);
        }
    }

    fn act(&mut self, random: &mut Random) {
        self.now = self.now.plus(random.below(200));
        let node = NodeName::new(NODES[usize::try_from(random.below(3)).unwrap()]).unwrap();
        let pick = |random: &mut Random, living: &[MemberId]| {
            living.get(usize::try_from(random.below(living.len().max(1) as u64)).unwrap()).copied()
        };
        if random.below(4) == 0 {
            let idle = self.living.iter().map(|member| member.gang).filter(|_| random.below(2) == 0);
            self.clerk.set_idle(self.now, idle.collect(), &self.engine);
        }
        let fact = match random.below(13) {
            0..=3 => {
                self.jobs += 1;
                let wanted = gang(u32::try_from(1 + random.below(4)).unwrap())
                    .devices(u32::try_from(1 + random.below(6)).unwrap());
                let submitted = job(self.jobs, wanted)
                    .priority(i32::try_from(random.below(3)).unwrap())
                    .grace(random.below(2) * 50)
                    .retry(2, &FailureClass::ALL)
                    .backoff(random.below(2) * 30, 60);
                let submitted = if random.below(2) == 0 { submitted.restarts() } else { submitted };
                Input::JobSubmitted { job: Box::new(submitted.build()) }
            }
            4..=6 => {
                let Some(member) = pick(random, &self.living) else { return };
                self.living.retain(|other| *other != member);
                let code = i32::try_from(random.below(2)).unwrap();
                let exit = Exit::code(code);
                Input::MemberExited { member, exit }
            }
            7 => {
                let Some(member) = pick(random, &self.living) else { return };
                Input::GangCheckpointed { gang: member.gang, at: self.now }
            }
            8 => Input::NodeCordoned { node },
            9 => Input::NodeUncordoned { node },
            10 => Input::DrainRequested { node },
            11 => {
                let devices = DeviceMask(random.below(64));
                let grade = Grade::ALL[usize::try_from(random.below(5)).unwrap()];
                Input::HealthGraded { health: Health { node, devices, grade, detail: String::new() } }
            }
            _ => {
                let job = JobId(1 + random.below(self.jobs.max(1)));
                Input::CancelRequested { job, by: "ada".to_owned() }
            }
        };
        self.tell(&[fact]);
        if random.below(4) == 0 {
            self.entries.extend(self.clerk.take_entries(self.now));
        }
    }

    /// Device time by job and state, in microseconds.
    fn charged(&self, job: JobId, counts: impl Fn(State) -> bool) -> i64 {
        let of_job = |entry: &&Entry| entry.key.payer.as_ref().is_some_and(|payer| payer.job == job);
        let entries = self.entries.iter().filter(of_job).filter(|entry| counts(entry.key.state));
        entries.map(|entry| entry.device_us).sum()
    }
}

#[test]
fn every_device_is_charged_once_and_work_as_the_engine_counts_it() {
    let (mut lost, mut saved, mut idle) = (0, 0, 0);
    for seed in 1..=SEEDS {
        let (mut play, mut random) = (Play::begin(), Random(seed * 0x9E37_79B9));
        let begun = play.now;
        for _ in 0..60 {
            play.act(&mut random);
        }
        play.now = play.now.plus(77);
        play.tell(&[]);
        play.entries.extend(play.clerk.take_entries(play.now));
        let all: i64 = play.entries.iter().map(|entry| entry.device_us).sum();
        let existed = DEVICES * 1_000 * play.now.since(begun);
        assert_eq!(all, i64::try_from(existed).unwrap(), "seed {seed}");
        for (job, records) in play.engine.jobs() {
            let served: u64 = records
                .iter()
                .map(|record| match (&record.phase, &record.placement) {
                    (Phase::Running { since }, Some(placement)) => {
                        let milli = job.gang_at(record.id.index).unwrap().held_milli(placement);
                        record.served.with(milli, *since, play.now).device_us
                    }
                    _ => record.served.device_us,
                })
                .sum();
            let is_work = |state| {
                matches!(
                    state,
                    State::Running | State::HeldIdle | State::LostToFailure | State::LostToPreemption
                )
            };
            let charged = play.charged(job.id, is_work);
            assert_eq!(charged, i64::try_from(served).unwrap(), "seed {seed}, job {}", job.id);
            assert!(State::ALL.iter().all(|state| play.charged(job.id, |s| s == *state) >= 0), "seed {seed}");
            lost +=
                play.charged(job.id, |state| matches!(state, State::LostToFailure | State::LostToPreemption));
            saved += play.charged(job.id, |state| state == State::Running);
            idle += play.charged(job.id, |state| state == State::HeldIdle);
        }
    }
    assert!(lost > 0 && saved > 0 && idle > 0, "{lost} {saved} {idle}");
}

/// The second try began in the step in which the first one failed, and the work of the first was lost with it.
#[test]
fn work_of_a_try_is_lost_also_where_the_next_one_starts_at_once() {
    let mut play = Play::begin();
    let submitted = job(1, gang(1).devices(2)).retry(1, &FailureClass::ALL).backoff(0, 0);
    play.tell(&[Input::JobSubmitted { job: Box::new(submitted.build()) }]);
    for code in [1, 0] {
        let member = play.living.pop().unwrap();
        play.now = play.now.plus(100);
        let exit = Exit::code(code);
        play.tell(&[Input::MemberExited { member, exit }]);
    }
    assert_eq!(play.engine.ending(JobId(1)), Some(&Ending::Succeeded));
    play.entries.extend(play.clerk.take_entries(play.now));
    let charged = |state| play.charged(JobId(1), |other| other == state) / 1_000;
    assert_eq!((charged(State::LostToFailure), charged(State::Running)), (200, 200));
}
