//! An upgrade: the daemon of one version goes down, and the next version reads its journal.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;

use phalanx_journal::Journal;
use phalanx_model::{
    Effect, Epoch, Exit, GangId, Input, JobId, MemberId, NodeName, Order, Outcome, Settings, SyncKind,
    Timestamp,
};
use phalanx_shell::{Config, Engine, Header, recover};
use phalanx_testkit::{JobBuilder, gang, job, levels, node};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// A daemon with a journal, whose members start at once and end when the daemon signals them.
struct Daemon {
    engine: Engine,
    journal: Journal,
    now: Timestamp,
}

impl Daemon {
    /// Begins a journal that a daemon of `version` writes; the nodes `a`, `b` and `c` have eight devices each.
    fn begin(dir: &Path, version: &str) -> Self {
        let now = Timestamp(1_000_000);
        let journal = Journal::create(dir, Header::new(version, Epoch(1), now)).unwrap();
        let mut daemon = Self { engine: Engine::new(Epoch(1), Config::default()), journal, now };
        let mut settings = Settings::default();
        settings.classes.iter_mut().for_each(|class| class.min_run_ms = 0);
        let mut facts = vec![
            Input::LevelsConfigured { levels: levels(&["cluster"]) },
            Input::SettingsConfigured { settings: Box::new(settings) },
        ];
        for kind in [SyncKind::Nodes, SyncKind::Jobs, SyncKind::Members] {
            facts.push(Input::SyncBegin { kind });
            if kind == SyncKind::Nodes {
                let nodes = ["a", "b", "c"].map(|name| node(name).gpus(8).nvswitch().build());
                facts.extend(nodes.map(|node| Input::NodeObserved { node: Box::new(node) }));
            }
            facts.push(Input::SyncEnd { kind });
        }
        daemon.tell(facts);
        daemon
    }

    /// Tells these facts, and what the members answer to the orders that follow, a second later each time.
    fn tell(&mut self, mut facts: Vec<Input>) {
        loop {
            let mut out = Outcome::default();
            self.journal.facts(self.now, &facts).unwrap();
            let _ = self.engine.step(self.now, &facts, &mut out);
            self.journal.decisions(&out).unwrap();
            self.journal.sync().unwrap();
            facts = out.effects.iter().flat_map(|effect| self.answers(effect)).collect();
            if facts.is_empty() {
                return;
            }
            self.now = self.now.plus(1_000);
        }
    }

    fn answers(&self, effect: &Effect) -> Vec<Input> {
        let (gang, attempt) = (effect.order.gang(), effect.order.attempt());
        let members = (0..).take(self.engine.gang(gang).unwrap().members.len());
        let answer = |rank| {
            let member = MemberId { gang, attempt, rank };
            match effect.order {
                Order::StartMembers { .. } => Input::MemberReady { member },
                Order::ReleaseMembers { .. } => Input::MemberReleased { member },
                _ => Input::MemberExited { member, exit: Exit::code(143) },
            }
        };
        std::iter::once(Input::EffectDone { effect: effect.id }).chain(members.map(answer)).collect()
    }

    fn submit(&mut self, job: JobBuilder) {
        self.tell(vec![Input::JobSubmitted { job: Box::new(job.build()) }]);
    }

    fn end(&mut self, job: u64) {
        let record = self.engine.gang(first(job)).unwrap();
        let (gang, attempt) = (record.id, record.attempt);
        let ranks = (0..).take(record.members.len()).map(|rank| MemberId { gang, attempt, rank });
        let exits = ranks.map(|member| Input::MemberExited { member, exit: Exit::succeeded() }).collect();
        self.tell(exits);
    }

    fn boundary(&mut self, job: u64) {
        self.tell(vec![Input::BoundaryReached { gang: first(job), at: self.now }]);
    }

    /// A preemption of job 1, which runs again as attempt 2.
    fn preempt(&mut self) {
        self.submit(job(1, gang(1).devices(8).on(["a"])).class("opportunistic"));
        self.submit(job(2, gang(1).devices(8).on(["a"])).class("serving"));
        self.end(2);
    }

    /// Everything that a cycle decides: besides the preemption, job 3 shrinks at its boundary for job 4 and grows again,
    /// and job 6 waits with a reservation for job 5 to end.
    fn live(&mut self) {
        self.submit(job(3, gang(8).devices(1).elastic(2, 8).on(["b"])));
        self.boundary(3);
        self.submit(job(4, gang(1).devices(4).on(["b"])));
        self.boundary(3);
        self.end(4);
        self.boundary(3);
        self.submit(job(7, gang(1).devices(4).on(["b"])));
        self.boundary(3);
        self.preempt();
        self.submit(job(5, gang(1).devices(4).on(["c"])).time_limit(HOUR));
        self.submit(job(6, gang(1).devices(8).on(["c"])));
        self.submit(job(8, gang(1).devices(4).on(["c"])).time_limit(MINUTE));
    }
}

fn first(job: u64) -> GangId {
    JobId(job).gang(0)
}

fn free(engine: &Engine, node: &str) -> u32 {
    engine.free(&NodeName::new(node).unwrap()).unwrap().devices.count()
}

/// What a daemon of this version knows that starts with a journal.
fn recovered(dir: &Path) -> Engine {
    let found = recover(dir, Config::default()).unwrap();
    let mut engine = Engine::new(Epoch(2), Config::default());
    let _ = engine.step(found.last_at, &found.facts, &mut Outcome::default());
    engine
}

#[test]
fn a_preempted_job_runs_on_through_an_upgrade() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::begin(dir.path(), "another version");
    daemon.preempt();
    let before = daemon.engine.gang(first(1)).unwrap().clone();
    assert_eq!((before.phase.word(), before.attempt), ("running", 2));

    let engine = recovered(dir.path());
    assert_eq!(engine.gang(first(1)), Some(&before));
    assert_eq!(free(&engine, "a"), 0);
}

#[test]
fn everything_that_a_cycle_decided_is_known_after_an_upgrade() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::begin(dir.path(), "another version");
    daemon.live();
    let engine = recovered(dir.path());
    let records = |engine: &Engine| engine.jobs().flat_map(|(_, gangs)| gangs.to_vec()).collect::<Vec<_>>();
    assert_eq!(records(&engine), records(&daemon.engine));
    for node in ["a", "b", "c"] {
        assert_eq!(free(&engine, node), free(&daemon.engine, node), "free on {node}");
    }
}

/// A journal in format 1, which has no plan: what [`Daemon::live`] wrote before format 2.
#[test]
fn a_journal_of_format_1_is_read_and_goes_on() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1-upgrade.journal");
    let dir = tempfile::tempdir().unwrap();
    fs::copy(&fixture, dir.path().join("000001.journal")).unwrap();
    let engine = recovered(dir.path());
    let record = |job: u64| engine.gang(first(job)).unwrap();
    let stands = |job: u64| (record(job).phase.word(), record(job).attempt, record(job).members.len());

    assert_eq!(stands(1), ("running", 2, 1), "it was preempted, and started again");
    assert_eq!(stands(3), ("running", 3, 8), "it shrank, and grew again");
    assert_eq!([2, 4].map(|job| record(job).phase.word()), ["succeeded"; 2]);
    assert_eq!([5, 8].map(stands), [("running", 1, 1); 2]);
    assert_eq!(["a", "b", "c"].map(|node| free(&engine, node)), [0; 3]);

    let shrinks = record(3).resize.as_ref().map(|resize| (resize.size, resize.by));
    assert_eq!(shrinks, Some((4, Some(first(7)))));
    let reserved = |job| record(job).reserved.as_ref().map(|reserved| (reserved.at, reserved.evicts));
    assert_eq!(reserved(6), Some((Some(Timestamp(4_647_000)), false)));
    assert_eq!(reserved(7), Some((None, true)));
}
