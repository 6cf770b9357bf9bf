//! What leaves is on the disk first, and a disk that fails loses nothing.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_journal::{Journal, Storage};
use phalanx_model::{Change, Effect, Epoch, Exit, Input, MemberId, Order, Phase, SyncKind, Timestamp};
use phalanx_shell::{Config, Engine, Handle, Header, Pump, PumpError, VERSION, World, recover};
use phalanx_testkit::{gang, job, levels, node};

/// A disk that can be full, and remembers what was synced.
#[derive(Clone, Default)]
struct Disk {
    full: Arc<AtomicBool>,
    unsyncable: Arc<AtomicBool>,
    /// Nothing is left beyond the reserve.
    low: Arc<AtomicBool>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Storage for Disk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(28)); // ENOSPC
        }
        self.bytes.lock().unwrap().extend(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.unsyncable.load(Ordering::SeqCst) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    fn reserve(&mut self, _: u64) -> io::Result<()> {
        if self.low.load(Ordering::SeqCst) { Err(io::Error::from_raw_os_error(28)) } else { Ok(()) }
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().truncate(usize::try_from(length).unwrap());
        Ok(())
    }
}

struct Told {
    effects: Sender<Effect>,
    warnings: Arc<AtomicU64>,
}

impl World for Told {
    fn carry_out(&mut self, effects: &[Effect], _: &Engine) {
        effects.iter().for_each(|e| self.effects.send(e.clone()).unwrap());
    }
    fn changed(&mut self, _: Timestamp, _: &[Input], _: &[Change], _: &Engine) {}
    fn warn(&mut self, _: &str) {
        self.warnings.fetch_add(1, Ordering::SeqCst);
    }
}

static NOW: AtomicU64 = AtomicU64::new(1_000);

fn clock() -> Timestamp {
    Timestamp(NOW.fetch_add(1, Ordering::SeqCst))
}

fn listing() -> Vec<Input> {
    let node = node("a").path(["c"]).gpus(8).nvswitch().build();
    let mut facts = vec![Input::LevelsConfigured { levels: levels(&["cluster"]) }];
    for kind in [SyncKind::Nodes, SyncKind::Jobs, SyncKind::Members] {
        facts.push(Input::SyncBegin { kind });
        if kind == SyncKind::Nodes {
            facts.push(Input::NodeObserved { node: Box::new(node.clone()) });
        }
        facts.push(Input::SyncEnd { kind });
    }
    facts
}

struct Running {
    disk: Disk,
    handle: Handle,
    effects: Receiver<Effect>,
    warnings: Arc<AtomicU64>,
}

fn start() -> Running {
    let disk = Disk::default();
    let header = Header::new(VERSION, Epoch(1), Timestamp(0));
    let journal = Journal::with_storage(disk.clone(), Path::new("memory"), header).unwrap();
    let (sender, effects) = channel();
    let warnings = Arc::new(AtomicU64::new(0));
    let told = Told { effects: sender, warnings: Arc::clone(&warnings) };
    let engine = Engine::new(Epoch(1), Config::default());
    let (mut pump, handle) = Pump::new(engine, journal, clock, |_| told);
    pump.begin(&listing()).unwrap();
    std::thread::spawn(move || pump.run());
    Running { disk, handle, effects, warnings }
}

fn submission(id: u64) -> Vec<Input> {
    vec![Input::JobSubmitted { job: Box::new(job(id, gang(2).devices(1)).build()) }]
}

fn accepted(running: &Running, id: u64) -> Result<bool, PumpError> {
    running
        .handle
        .request(submission(id), |_, changes| changes.iter().any(|c| matches!(c, Change::JobAccepted { .. })))
}

fn next_start(running: &Running) -> Option<Effect> {
    running.effects.recv_timeout(Duration::from_secs(20)).ok()
}

#[test]
fn without_room_for_more_than_the_reserve_submissions_are_refused_and_cancels_go_through() {
    let running = start();
    assert!(accepted(&running, 1).unwrap());
    assert!(next_start(&running).is_some());
    running.disk.low.store(true, Ordering::SeqCst);
    let error = accepted(&running, 2).unwrap_err().to_string();
    assert!(error.contains("cannot keep room") && error.contains("free space"), "{error}");
    let cancel = vec![Input::CancelRequested { job: phalanx_model::JobId(1), by: "ada".to_owned() }];
    running.handle.request(cancel, |_, _| ()).unwrap();
    running.disk.low.store(false, Ordering::SeqCst);
    assert!(accepted(&running, 3).unwrap());
}

#[test]
fn a_full_disk_refuses_new_work_and_keeps_what_the_world_did() {
    let running = start();
    assert!(accepted(&running, 1).unwrap());
    let Some(Effect { order: Order::StartMembers { gang, attempt, .. }, .. }) = next_start(&running) else {
        panic!("the first job starts")
    };

    running.disk.full.store(true, Ordering::SeqCst);
    let refused = accepted(&running, 2);
    assert!(matches!(&refused, Err(PumpError::NotDurable(why)) if why.contains("free space")), "{refused:?}");
    assert!(running.warnings.load(Ordering::SeqCst) > 0);
    // What the world did meanwhile is kept; questions are answered.
    let exits = (0..2).map(|rank| Input::MemberExited {
        member: MemberId { gang, attempt, rank },
        exit: Exit::succeeded(),
    });
    running.handle.report(exits.collect()).unwrap();
    let phase = running.handle.look(move |e| e.gang(gang).map(|r| r.phase.clone())).unwrap();
    assert!(matches!(phase, Some(Phase::Starting { .. })), "{phase:?}");

    running.disk.full.store(false, Ordering::SeqCst);
    assert!(accepted(&running, 3).unwrap());
    let phase = running.handle.look(move |e| e.gang(gang).map(|r| r.phase.clone())).unwrap();
    assert!(matches!(phase, Some(Phase::Finished { .. })), "the exits were not lost: {phase:?}");
    assert!(running.handle.look(|e| e.job(phalanx_model::JobId(2)).is_none()).unwrap(), "job 2 never was");
    running.handle.stop();
}

/// The pump slept on facts that a full disk had kept back, until somebody asked something.
#[test]
fn what_a_full_disk_kept_back_is_written_without_being_asked() {
    let running = start();
    running.handle.report(submission(1)).unwrap();
    assert!(next_start(&running).is_some());
    running.disk.full.store(true, Ordering::SeqCst);
    running.handle.report(submission(2)).unwrap();
    while running.warnings.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    running.disk.full.store(false, Ordering::SeqCst);
    let Some(Effect { order, .. }) = next_start(&running) else { panic!("the second job starts") };
    assert_eq!(order.gang().job, phalanx_model::JobId(2));
    running.handle.stop();
}

/// A stop that came while a step waited for the disk was forgotten.
#[test]
fn a_stop_while_the_disk_fails_is_obeyed_once_it_is_well() {
    let running = start();
    running.disk.unsyncable.store(true, Ordering::SeqCst);
    running.handle.report(submission(1)).unwrap();
    while running.warnings.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    running.handle.stop();
    // Answered only after the stop before it was taken.
    let _ = running.handle.look(|_| ());
    running.disk.unsyncable.store(false, Ordering::SeqCst);
    assert!(matches!(next_start(&running), Some(Effect { order: Order::StartMembers { .. }, .. })));
    // The world, and with it the sender, ends with the pump.
    let end = running.effects.recv_timeout(Duration::from_secs(20));
    assert_eq!(end, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn no_order_leaves_before_its_decision_is_synced() {
    let running = start();
    running.disk.unsyncable.store(true, Ordering::SeqCst);
    running.handle.report(submission(1)).unwrap();
    // The pump tries and warns; nothing leaves meanwhile.
    while running.warnings.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(running.effects.try_recv().is_err(), "an order left that is not on the disk");
    running.disk.unsyncable.store(false, Ordering::SeqCst);
    assert!(matches!(next_start(&running), Some(Effect { order: Order::StartMembers { .. }, .. })));
    let written = String::from_utf8(running.disk.bytes.lock().unwrap().clone()).unwrap();
    assert!(written.contains("start_members"));
    running.handle.stop();
}

/// Writes the steps of a small life into a folder and gives back the engine that lived it.
fn live(dir: &Path, version: &str, decisions_of_last: bool) -> Engine {
    let mut journal = Journal::create(dir, Header::new(version, Epoch(3), Timestamp(0))).unwrap();
    let mut engine = Engine::new(Epoch(3), Config::default());
    let mut out = phalanx_model::Outcome::default();
    let member = |rank| MemberId { gang: phalanx_model::JobId(1).gang(0), attempt: 1, rank };
    let mut steps = vec![listing(), submission(1), submission(2)];
    steps.push((0..2).map(|r| Input::MemberReady { member: member(r) }).collect());
    steps.push((0..2).map(|r| Input::MemberReleased { member: member(r) }).collect());
    steps.push(vec![Input::MemberExited { member: member(1), exit: Exit::code(3) }]);
    steps.push(vec![Input::MemberExited { member: member(0), exit: Exit::succeeded() }]);
    steps.push(submission(7));
    let last = steps.len() - 1;
    for (i, inputs) in steps.iter().enumerate() {
        let now = Timestamp(10 * i as u64);
        journal.facts(now, inputs).unwrap();
        let _ = engine.step(now, inputs, &mut out);
        if i < last || decisions_of_last {
            journal.decisions(&out).unwrap();
        }
    }
    journal.sync().unwrap();
    engine
}

#[test]
fn what_is_recovered_is_what_was() {
    for (version, decisions_of_last) in [(VERSION, true), (VERSION, false), ("0.0.1-another", true)] {
        let dir = tempfile::tempdir().unwrap();
        let lived = live(dir.path(), version, decisions_of_last);
        let recovered = recover(dir.path(), Config::default()).unwrap();
        assert_eq!(recovered.facts, lived.facts(), "version {version}");
        assert_eq!((recovered.epoch, recovered.steps), (Epoch(3), 8));
        assert!(recovered.messages.is_empty(), "{:?}", recovered.messages);
        // And an engine that is told these facts is the same again.
        let mut again = Engine::new(Epoch(4), Config::default());
        let _ = again.step(recovered.last_at, &recovered.facts, &mut phalanx_model::Outcome::default());
        assert_eq!(again.facts(), lived.facts());
    }
}

#[test]
fn an_empty_folder_is_a_fresh_start() {
    let dir = tempfile::tempdir().unwrap();
    let recovered = recover(dir.path(), Config::default()).unwrap();
    assert_eq!((recovered.epoch, recovered.facts.len()), (Epoch(0), 0));
}

#[test]
fn a_torn_tail_is_cut_with_a_message() {
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), VERSION, true);
    let segment = dir.path().join("000001.journal");
    let bytes = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &bytes[..bytes.len() - 7]).unwrap();
    let recovered = recover(dir.path(), Config::default()).unwrap();
    assert_eq!(recovered.losses.len(), 1, "{:?}", recovered.losses);
    assert!(recovered.losses[0].contains("damaged"), "{:?}", recovered.losses);
    assert_eq!(recovered.steps, 8, "the facts of the last step are whole");
    // The second time there is nothing left to cut.
    assert!(recover(dir.path(), Config::default()).unwrap().messages.is_empty());
}

/// A world in which members are ready, run and end as soon as they are told to.
struct Obliging {
    engine: Handle,
}

impl World for Obliging {
    fn carry_out(&mut self, effects: &[Effect], engine: &Engine) {
        for effect in effects {
            let (gang, attempt) = (effect.order.gang(), effect.order.attempt());
            let size = engine.gang(gang).map_or(0, |r| u32::try_from(r.members.len()).unwrap());
            let members = (0..size).map(|rank| MemberId { gang, attempt, rank });
            let facts: Vec<Input> = match effect.order {
                Order::StartMembers { .. } => members.map(|member| Input::MemberReady { member }).collect(),
                Order::ReleaseMembers { .. } => members
                    .flat_map(|member| {
                        [
                            Input::MemberReleased { member },
                            Input::MemberExited { member, exit: Exit::succeeded() },
                        ]
                    })
                    .collect(),
                _ => Vec::new(),
            };
            // From another thread: the channel is bounded and this is the one that drains it.
            let engine = self.engine.clone();
            std::thread::spawn(move || engine.report(facts));
        }
    }
    fn changed(&mut self, _: Timestamp, _: &[Input], _: &[Change], _: &Engine) {}
    fn warn(&mut self, message: &str) {
        panic!("{message}");
    }
}

#[test]
fn a_large_journal_is_begun_anew_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::create(dir.path(), Header::new(VERSION, Epoch(1), Timestamp(0))).unwrap();
    let engine = Engine::new(Epoch(1), Config::default());
    let (mut pump, handle) = Pump::new(engine, journal, clock, |engine| Obliging { engine });
    pump.begin(&listing()).unwrap();
    let pump = pump.rotating(dir.path(), Epoch(1), Config::default(), 20_000, 3, None);
    let pumping = std::thread::spawn(move || pump.run());
    for id in 1..=40 {
        let ok =
            handle.request(submission(id), |_, c| c.iter().any(|c| matches!(c, Change::JobAccepted { .. })));
        assert!(ok.unwrap(), "job {id}");
    }
    let finished = |e: &Engine| e.jobs().filter(|(_, g)| g.iter().all(|r| r.is_finished())).count();
    while handle.look(finished).unwrap() < 40 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let facts = handle.look(Engine::facts).unwrap();
    handle.stop();
    pumping.join().unwrap();
    let recovered = recover(dir.path(), Config::default()).unwrap();
    assert!(recovered.epoch > Epoch(2), "it was begun anew more than once: {:?}", recovered.epoch);
    assert_eq!(recovered.facts, facts);
    assert!(std::fs::read_dir(dir.path()).unwrap().count() <= 4);
}

#[test]
fn a_question_that_panics_is_answered_and_the_scheduler_goes_on() {
    let running = start();
    let asked: Result<(), PumpError> = running.handle.look(|_| panic!("on purpose"));
    assert!(matches!(asked, Err(PumpError::Panicked)), "{asked:?}");
    let asked: Result<(), PumpError> = running.handle.request(submission(1), |_, _| panic!("on purpose"));
    assert!(matches!(asked, Err(PumpError::Panicked)), "{asked:?}");
    assert_eq!(running.handle.look(|engine| engine.jobs().count()).unwrap(), 1);
    assert!(accepted(&running, 2).unwrap());
}
