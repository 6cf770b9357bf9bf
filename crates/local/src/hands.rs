//! The hands of the one-machine world: one thread that carries out orders in turn, and one that listens to
//! each living member. What they learn goes back to the engine as facts.

mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use phalanx_model::{
    EffectId, Exit, FailureClass, Gang, GangId, Input, MemberId, MemberState, Node, NodeName, Signal,
    Timestamp,
};
use phalanx_node::confined::Leash;
use phalanx_node::{Events, Found, HandleError, IsolationChoice, Orders, ShimEvent, adopt, reap, spawn};
use phalanx_shell::Handle;
use tracing::warn;

use crate::Paths;
use crate::clock::Clock;
use crate::env::launcher;
use crate::launch::{self, Means, Start};
use crate::limits::Limits;
use crate::preflight::Preflight;
use crate::threads;
use crate::user::{Account, Unanswered};

/// How soon a shim that was adopted says the next thing it has to say.
const SAYS_ON: Duration = Duration::from_millis(100);
/// How often a member that could not be looked at is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a listener waits before it looks up; members may run for months.
const LISTEN: Duration = Duration::from_secs(3600);

/// What the hands are told to do.
pub(crate) enum Task {
    Start {
        id: EffectId,
        start: Box<Start>,
        nodes: BTreeMap<NodeName, Node>,
    },
    /// The account of a start's owner was looked up, or could not be.
    Known {
        id: EffectId,
        start: Box<Start>,
        nodes: BTreeMap<NodeName, Node>,
        account: Result<Account, Unanswered>,
    },
    /// The GPUs of a start were checked.
    Checked {
        id: EffectId,
        start: Box<Start>,
        nodes: BTreeMap<NodeName, Node>,
        /// None of them was closed by that.
        is_fit: bool,
    },
    Release {
        id: EffectId,
        gang: GangId,
        attempt: u32,
    },
    Signal {
        id: EffectId,
        gang: GangId,
        attempt: u32,
        signal: Signal,
        /// When SIGTERM comes.
        term_at: Timestamp,
    },
    Kill {
        id: EffectId,
        gang: GangId,
        attempt: u32,
        size: u32,
    },
    /// A member found alive at start-up.
    Adopted {
        member: MemberId,
        orders: Orders,
        events: Events,
    },
    /// A member that could not be looked at when the daemon started.
    Watch {
        member: MemberId,
    },
    /// Its listener heard the last word. `launcher_of`: the launcher of an MPI job, whose placeholders end
    /// with it.
    Gone {
        member: MemberId,
    },
}

/// A check of GPUs before a start.
#[derive(Default)]
pub(crate) struct Checking {
    leash: Arc<Leash>,
    /// The attempt is over, and of this size: its ranks are reported as never started once the check has ended. Until then it
    /// holds its GPUs.
    killed: Option<u32>,
}

pub(crate) struct Hands {
    pub(crate) paths: Paths,
    pub(crate) shim_exe: PathBuf,
    pub(crate) isolation: IsolationChoice,
    pub(crate) limits: Limits,
    pub(crate) engine: Handle,
    pub(crate) clock: Clock,
    pub(crate) tasks: Sender<Task>,
    pub(crate) living: BTreeMap<MemberId, Orders>,
    /// Gangs of which one rank launches for all.
    pub(crate) launched: BTreeMap<GangId, Launched>,
    /// Attempts with living members that were told to end every process.
    pub(crate) killed: BTreeSet<(GangId, u32)>,
    pub(crate) preflight: Arc<Preflight>,
    /// Attempts whose GPUs are being checked.
    pub(crate) checking: BTreeMap<(GangId, u32), Checking>,
    /// Attempts whose owner's account is being looked up.
    pub(crate) waiting: BTreeSet<(GangId, u32)>,
}

impl Hands {
    pub(crate) fn run(mut self, todo: &Receiver<Task>) {
        for task in todo {
            self.carry_out(task);
        }
    }

    fn carry_out(&mut self, task: Task) {
        match task {
            Task::Start { id, start, nodes } => self.start_if_known(id, start, nodes),
            Task::Known { id, start, nodes, account } => self.start_known(id, start, nodes, account),
            Task::Checked { id, start, nodes, is_fit } => self.checked(id, &start, &nodes, is_fit),
            Task::Release { id, gang, attempt } => {
                self.each(gang, attempt, Orders::release);
                self.report(vec![Input::EffectDone { effect: id }]);
            }
            Task::Signal { id, gang, attempt, signal, term_at } => {
                self.announce_stop(gang, attempt, term_at);
                match signal {
                    Signal::Advisory(number) => self.each(gang, attempt, |o| o.signal(number)),
                    Signal::Terminate => self.each(gang, attempt, Orders::terminate),
                }
                self.report(vec![Input::EffectDone { effect: id }]);
            }
            Task::Kill { id, gang, attempt, size } => {
                self.waiting.remove(&(gang, attempt));
                if self.end_check(gang, attempt, size) {
                    return self.report(vec![Input::EffectDone { effect: id }]);
                }
                self.each(gang, attempt, Orders::kill);
                self.settle(gang, attempt, size);
                // Told again: whoever still lives did not obey.
                if !self.killed.insert((gang, attempt)) {
                    self.end_the_silent(gang, attempt);
                }
                self.report(vec![Input::EffectDone { effect: id }]);
            }
            Task::Adopted { member, orders, events } => {
                self.living.insert(member, orders);
                self.listen(member, events);
            }
            Task::Watch { member } => self.watch(member),
            Task::Gone { member } => self.gone(member),
        }
    }

    /// Brings every member to the gate that is not there yet: carrying it out twice is the same as once.
    fn start(&mut self, start: &Start, nodes: &BTreeMap<NodeName, Node>) {
        let master_port = match launch::prepare(&self.paths, start, nodes) {
            Ok(port) => port,
            Err(e) => {
                let dir = self.paths.attempt(start.gang, start.attempt);
                return self.fail_all(start, &format!("cannot prepare {}: {e}", dir.display()));
            }
        };
        let gang = start.job.gang_at(start.gang.index);
        if let Some(launched) = gang.and_then(|gang| Launched::of(gang, start.attempt)) {
            self.launched.insert(start.gang, launched);
        }
        for slot in &start.placement.slots {
            let member = MemberId { gang: start.gang, attempt: start.attempt, rank: slot.rank };
            if !self.living.contains_key(&member) {
                self.start_member(member, start, nodes, master_port);
            }
        }
    }

    fn start_member(
        &mut self,
        member: MemberId,
        start: &Start,
        nodes: &BTreeMap<NodeName, Node>,
        master_port: u16,
    ) {
        let by = Means { isolation: &self.isolation, shim_exe: &self.shim_exe, limits: &self.limits };
        let spec = launch::member_spec(&self.paths, start, nodes, master_port, member.rank, &by);
        let Some(mut spec) = spec else { return };
        let ranks = start.placement.slots.len().max(1) as u64;
        spec.log_bytes_max = Some(self.limits.log_bytes_per_rank.min(self.limits.log_bytes_per_user / ranks));
        let dir = self.paths.member(member);
        // A start that a crash cut short left a folder and no process: it is begun again.
        if matches!(adopt(&dir), Ok(Found::NeverStarted)) {
            let _ = reap(&dir);
            let _ = std::fs::remove_dir_all(&dir);
        }
        match spawn(&dir, &spec, &self.shim_exe, &[OsStr::new("__shim")]) {
            Ok(handle) => {
                let (orders, events) = handle.split();
                self.living.insert(member, orders);
                self.listen(member, events);
            }
            Err(e) => {
                let exit = Exit::failed(FailureClass::StartUp, e.to_string());
                self.report(vec![Input::MemberExited { member, exit }]);
            }
        }
    }

    fn fail_all(&self, start: &Start, detail: &str) {
        let exit = Exit::failed(FailureClass::Infrastructure, detail);
        let exits = start.placement.slots.iter().map(|slot| Input::MemberExited {
            member: MemberId { gang: start.gang, attempt: start.attempt, rank: slot.rank },
            exit: exit.clone(),
        });
        self.report(exits.collect());
    }

    fn each(
        &mut self,
        gang: GangId,
        attempt: u32,
        mut order: impl FnMut(&mut Orders) -> Result<(), HandleError>,
    ) {
        let from = MemberId { gang, attempt, rank: 0 };
        let to = MemberId { gang, attempt, rank: u32::MAX };
        for (_, orders) in self.living.range_mut(from..=to) {
            // A shim that is gone is heard of by its listener.
            let _ = order(orders);
        }
    }

    /// A shim that hangs obeys no order: it is ended from outside, with all it holds. Its listener hears that.
    fn end_the_silent(&self, gang: GangId, attempt: u32) {
        for member in self.living.keys().filter(|m| m.gang == gang && m.attempt == attempt) {
            let dir = self.paths.member(*member);
            // Both may take seconds. One that cannot be started is made up for by the next order.
            let _ = threads::single(format!("end-{member}"), move || {
                if matches!(adopt(&dir), Err(phalanx_node::AdoptError::Silent { .. })) {
                    let _ = reap(&dir);
                }
            });
        }
    }

    /// For ranks that poll instead of handling signals: the Unix time in seconds at which SIGTERM comes.
    fn announce_stop(&self, gang: GangId, attempt: u32, term_at: Timestamp) {
        let dir = self.paths.attempt(gang, attempt);
        let term_at = self.clock.to_wall(term_at);
        // Replaced whole: whoever sees the file sees the time.
        let (next, file) = (dir.join("preempt_at.next"), dir.join("preempt_at"));
        let _ =
            std::fs::write(&next, (term_at.0 / 1_000).to_string()).and_then(|()| std::fs::rename(next, file));
    }

    /// After a kill every member of the attempt owes an exit, also those that never lived.
    fn settle(&self, gang: GangId, attempt: u32, size: u32) {
        for rank in 0..size {
            let member = MemberId { gang, attempt, rank };
            if !self.living.contains_key(&member) {
                let exit = match last_word(&self.paths, member) {
                    Word::Ended(exit) => exit,
                    Word::NeverStarted => Exit::failed(FailureClass::StartUp, "was never started"),
                    // The kill is ordered again until it is known.
                    Word::Unknown => continue,
                };
                self.report(vec![Input::MemberExited { member, exit }]);
            }
        }
    }

    /// One thread per living member waits for what its shim says.
    fn listen(&mut self, member: MemberId, mut events: Events) {
        let (engine, tasks, paths) = (self.engine.clone(), self.tasks.clone(), self.paths.clone());
        let holds_slots = holds_slots(&self.launched, member);
        let listening = move || {
            loop {
                let fact = match events.next_event(LISTEN) {
                    Ok(
                        None
                        | Some(
                            ShimEvent::Starting { .. }
                            | ShimEvent::Signalled { .. }
                            | ShimEvent::Beside { .. },
                        ),
                    ) => continue,
                    Ok(Some(ShimEvent::Ready { .. })) => Input::MemberReady { member },
                    Ok(Some(ShimEvent::Running { .. })) => Input::MemberReleased { member },
                    Ok(Some(ShimEvent::Failed { class, detail })) => {
                        Input::MemberExited { member, exit: Exit::failed(class, detail) }
                    }
                    Ok(Some(ShimEvent::Exited { exit })) => {
                        Input::MemberExited { member, exit: exit_of(exit, holds_slots) }
                    }
                    Err(e) => {
                        let exit = wait_for_last_word(&paths, member, &e.to_string());
                        Input::MemberExited { member, exit }
                    }
                };
                let last = matches!(fact, Input::MemberExited { .. });
                if last {
                    let _ = tasks.send(Task::Gone { member });
                }
                if engine.report(vec![fact]).is_err() || last {
                    return;
                }
            }
        };
        let name = format!("member-{member}");
        if let Err(e) = threads::listener(name, listening) {
            // Nobody would hear of its end: it is ended now, and reported only when it is gone.
            warn!(%member, error = %e, "a rank is ended, for there is no thread to listen to it");
            self.living.remove(&member);
            let exit = match reap(&self.paths.member(member)) {
                Ok(_) => Exit::failed(FailureClass::Infrastructure, "no thread to listen to it"),
                Err(_) => return, // A kill will be ordered, and looks again.
            };
            self.report(vec![Input::MemberExited { member, exit }]);
        }
    }

    /// Looks again and again at a member of which nothing is known, until something is.
    fn watch(&self, member: MemberId) {
        let (engine, tasks, paths) = (self.engine.clone(), self.tasks.clone(), self.paths.clone());
        let watching = move || {
            loop {
                std::thread::sleep(LOOK_AGAIN);
                match observe(&paths, member) {
                    Observed::Unknown => {}
                    Observed::Alive { orders, events, .. } => {
                        let _ = tasks.send(Task::Adopted { member, orders, events });
                        return;
                    }
                    Observed::Ended(exit) => {
                        let _ = engine.report(vec![Input::MemberExited { member, exit }]);
                        return;
                    }
                    Observed::Absent => {
                        let exit = Exit::failed(FailureClass::Infrastructure, "was not found again");
                        let _ = engine.report(vec![Input::MemberExited { member, exit }]);
                        return;
                    }
                }
            }
        };
        if threads::listener(format!("watch-{member}"), watching).is_err() {
            std::thread::sleep(LOOK_AGAIN);
            let _ = self.tasks.send(Task::Watch { member });
        }
    }

    /// The launcher of an MPI job ended: the ranks that held its slots end with it.
    fn gone(&mut self, member: MemberId) {
        self.living.remove(&member);
        if !self.living.keys().any(|m| m.gang == member.gang && m.attempt == member.attempt) {
            self.killed.remove(&(member.gang, member.attempt));
        }
        let is_launcher =
            |launched: &&Launched| launched.attempt == member.attempt && launched.launcher == member.rank;
        if let Some(launched) = self.launched.get(&member.gang).filter(is_launcher).copied() {
            self.launched.remove(&member.gang);
            let ranks = MemberId { rank: 0, ..member }..MemberId { rank: launched.size, ..member };
            for (_, orders) in self.living.range_mut(ranks).filter(|(other, _)| launched.holds_slots(**other))
            {
                let _ = orders.terminate();
            }
        }
    }

    fn report(&self, facts: Vec<Input>) {
        // The pump has stopped only when the daemon ends; the next one looks for itself.
        let _ = self.engine.report(facts);
    }
}

/// An attempt of an MPI job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launched {
    attempt: u32,
    launcher: u32,
    /// Ranks below this hold slots, but for the launcher.
    size: u32,
}

impl Launched {
    /// `None` where no rank launches for the others.
    pub(crate) fn of(gang: &Gang, attempt: u32) -> Option<Self> {
        Some(Self { attempt, launcher: launcher(gang)?, size: gang.size })
    }

    const fn holds_slots(self, member: MemberId) -> bool {
        member.attempt == self.attempt && member.rank < self.size && member.rank != self.launcher
    }
}

/// Whether a rank of an MPI job runs nothing and only holds its slots for the launcher.
pub(crate) fn holds_slots(launched: &BTreeMap<GangId, Launched>, member: MemberId) -> bool {
    launched.get(&member.gang).is_some_and(|launched| launched.holds_slots(member))
}

/// A rank that only held slots has done its part when it is told to end, however soon that comes.
pub(crate) fn exit_of(exit: Exit, held_slots: bool) -> Exit {
    let told = exit.signal == Some(nix::sys::signal::Signal::SIGTERM as i32);
    if held_slots && told { Exit::succeeded() } else { exit }
}

/// What can be said of a member whose shim does not answer.
enum Word {
    Ended(Exit),
    /// Nothing of the user's ran.
    NeverStarted,
    /// Something of it may live and could not be looked at or ended: it holds what it holds.
    Unknown,
}

/// How a member whose shim does not answer ended; whatever it left is ended too.
fn last_word(paths: &Paths, member: MemberId) -> Word {
    let dir = paths.member(member);
    let why = match adopt(&dir) {
        Ok(Found::Ended(exit)) => return Word::Ended(exit),
        Err(phalanx_node::AdoptError::NoMember { .. }) => return Word::NeverStarted,
        Ok(Found::NeverStarted) => {
            // Its cgroups go too.
            let _ = reap(&dir);
            return Word::NeverStarted;
        }
        Ok(Found::Rebooted) => {
            return Word::Ended(Exit::failed(FailureClass::Node, "the machine was restarted"));
        }
        // Out of descriptors, say: no reason to end a healthy member.
        Err(phalanx_node::AdoptError::Io(e)) => {
            warn!(%member, error = %e, "a rank cannot be looked at, and is left alone");
            return Word::Unknown;
        }
        Ok(Found::Lost(why)) => why,
        Ok(Found::Alive(_)) => "its shim let go of it".to_owned(),
        Err(e) => e.to_string(),
    };
    match reap(&dir) {
        Ok(0) => Word::Ended(Exit::failed(FailureClass::Infrastructure, why)),
        Ok(n) => {
            let detail = format!("{why}; {n} of its processes were ended");
            Word::Ended(Exit::failed(FailureClass::Infrastructure, detail))
        }
        Err(e) => {
            warn!(%member, why, error = %e, "a rank is not known to be gone");
            Word::Unknown
        }
    }
}

/// Waits until it is known how a member ended, however long its processes linger.
fn wait_for_last_word(paths: &Paths, member: MemberId, otherwise: &str) -> Exit {
    loop {
        match last_word(paths, member) {
            Word::Ended(exit) => return exit,
            Word::NeverStarted => return Exit::failed(FailureClass::Infrastructure, otherwise),
            Word::Unknown => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

/// What a restarted daemon finds of a member.
pub(crate) enum Observed {
    Alive {
        state: MemberState,
        orders: Orders,
        events: Events,
    },
    Ended(Exit),
    /// Nothing of it exists, and nothing of the user's ran.
    Absent,
    /// It may live: it keeps its devices until that is known.
    Unknown,
}

/// Looks for one member of a gang that the journal says holds devices.
pub(crate) fn observe(paths: &Paths, member: MemberId) -> Observed {
    let Ok(Found::Alive(mut handle)) = adopt(&paths.member(member)) else {
        return word_of(paths, member);
    };
    match handle.next_event(Duration::from_secs(5)) {
        // A shim tells its stages in order: one that is further on says so at once.
        Ok(Some(ShimEvent::Ready { .. })) => match handle.next_event(SAYS_ON) {
            Ok(Some(ShimEvent::Running { .. })) => alive(handle, MemberState::Running),
            Ok(Some(ShimEvent::Failed { class, detail })) => Observed::Ended(Exit::failed(class, detail)),
            Ok(Some(ShimEvent::Exited { exit })) => Observed::Ended(exit),
            _ => alive(handle, MemberState::Ready),
        },
        Ok(Some(ShimEvent::Running { .. })) => alive(handle, MemberState::Running),
        Ok(Some(ShimEvent::Failed { class, detail })) => Observed::Ended(Exit::failed(class, detail)),
        Ok(Some(ShimEvent::Exited { exit })) => Observed::Ended(exit),
        // On its way to the gate.
        Ok(_) => alive(handle, MemberState::Requested),
        Err(_) => word_of(paths, member),
    }
}

fn word_of(paths: &Paths, member: MemberId) -> Observed {
    match last_word(paths, member) {
        Word::Ended(exit) => Observed::Ended(exit),
        Word::NeverStarted => Observed::Absent,
        Word::Unknown => Observed::Unknown,
    }
}

fn alive(handle: phalanx_node::Handle, state: MemberState) -> Observed {
    let (orders, events) = handle.split();
    Observed::Alive { state, orders, events }
}
