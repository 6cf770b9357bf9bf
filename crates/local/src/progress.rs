//! How gangs get on: each rank writes to the file that `PHALANX_PROGRESS` names how far it is, and the files that changed are
//! read once a second. Stragglers and gangs that stand still are shown, never acted on. A gang that says how long its
//! checkpoints take is told how often to save, in the file that `PHALANX_CHECKPOINT_EVERY` names.
//!
//! | module | what lives there |
//! |---|---|
//! | `line` | what a rank writes |
//! | `pace` | what follows from it for a gang |
//! | `interval` | how often to save work |

mod interval;
mod line;
mod pace;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::OFlag;
use phalanx_model::show::span;
use phalanx_model::{GangId, GangRecord, NodeName, Phase, Timestamp};
use phalanx_shell::Engine;

use crate::clock::written_at;
use crate::daemon::Daemon;
use crate::protocol::{CheckpointView, EventView, JobView, ProgressView};

pub(crate) use interval::NodeLosses;
use line::{Line, TAIL_BYTES};
use pace::{Change, Pace};

/// The file in the attempt's folder to which a rank writes how far it is.
pub(crate) fn file_of(rank: u32) -> String {
    format!("progress.{rank}")
}

/// The file in the attempt's folder that says how often to save, in seconds.
pub(crate) const CHECKPOINT_EVERY: &str = "checkpoint_every";

/// The losses of nodes are counted so far back, and so often.
const LOSSES_OF_MS: u64 = 90 * 24 * 3_600_000;
const LOSSES_EVERY_MS: u64 = 3_600_000;
/// An advice that differs less from the one before is not given, in thousandths.
const OTHER_ADVICE_MILLI: u64 = 100;
/// Events of one attempt.
const EVENTS_MAX: u32 = 64;

/// How the gangs that run get on, as it is shown.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<BTreeMap<GangId, Shown>>);

#[derive(Debug)]
struct Shown {
    attempt: u32,
    /// Nothing if no rank wrote anything.
    view: Option<ProgressView>,
}

impl Progress {
    fn shown(&self) -> MutexGuard<'_, BTreeMap<GangId, Shown>> {
        // What a panicking thread left is still what ranks told.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to views of jobs how their gangs get on.
    pub(crate) fn say(&self, jobs: &mut [JobView]) {
        let shown = self.shown();
        for gang in jobs.iter_mut().flat_map(|job| &mut job.gangs) {
            let runs = matches!(gang.phase, Some(Phase::Running { .. }));
            let of = shown.get(&gang.id).filter(|of| runs && of.attempt == gang.attempt);
            gang.progress = of.and_then(|of| of.view.clone());
        }
    }

    /// How many gangs stand still, and how many ranks straggle.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let shown = self.shown();
        let views = || shown.values().filter_map(|of| of.view.as_ref());
        let stalled = views().filter(|view| view.stalled_since.is_some()).count();
        (stalled, views().map(|view| view.stragglers.len()).sum())
    }
}

/// What the thread that reads the files knows.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    gangs: BTreeMap<(GangId, u32), OfGang>,
    losses: NodeLosses,
    losses_at: Option<Timestamp>,
}

/// One attempt of a gang.
#[derive(Debug, Default)]
struct OfGang {
    pace: Pace,
    /// When the file of each rank was written that was read last, by the wall clock.
    read: BTreeMap<u32, Timestamp>,
    /// What ranks wrote last that cannot be read, and why.
    unread: BTreeMap<u32, String>,
    advice: Option<CheckpointView>,
    events: u32,
}

/// An attempt that runs, and the node of each rank.
struct Running {
    attempt: (GangId, u32),
    nodes: Vec<NodeName>,
}

impl Reader {
    /// Reads what ranks wrote since the last look. `false`: the engine answers no more.
    pub(crate) fn look(&mut self, daemon: &Daemon) -> bool {
        let Ok(running) = daemon.engine.look(running) else { return false };
        let now = daemon.clock.now();
        self.count_losses(daemon, now);
        let mut before = std::mem::take(&mut self.gangs);
        let mut shown = BTreeMap::new();
        for Running { attempt, nodes } in running {
            let mut gang = before.remove(&attempt).unwrap_or_default();
            let (id, number) = attempt;
            let dir = daemon.paths.attempt(id, number);
            gang.read(daemon, &dir, nodes.len(), now);
            gang.advise(self.losses, &nodes, &dir);
            for change in gang.judge(now) {
                tell(daemon, now, id, &change, &nodes);
            }
            shown.insert(id, Shown { attempt: number, view: gang.view() });
            self.gangs.insert(attempt, gang);
        }
        *daemon.progress.shown() = shown;
        true
    }

    fn count_losses(&mut self, daemon: &Daemon, now: Timestamp) {
        if self.losses_at.is_some_and(|at| now.since(at) < LOSSES_EVERY_MS) {
            return;
        }
        self.losses_at = Some(now);
        match daemon.recorder.node_losses(Timestamp(now.0.saturating_sub(LOSSES_OF_MS)), now) {
            Ok(losses) => self.losses = losses,
            Err(error) => tracing::warn!(%error, "the losses of nodes cannot be counted"),
        }
    }
}

impl OfGang {
    /// Nothing if no rank wrote anything.
    fn view(&self) -> Option<ProgressView> {
        let unread = self.unread.first_key_value().map(|(rank, why)| format!("rank {rank}: {why}"));
        let view = ProgressView { checkpoint: self.advice, unread, ..self.pace.view() };
        (view != ProgressView::default()).then_some(view)
    }

    /// What changed, as long as not too much was told of it already.
    fn judge(&mut self, now: Timestamp) -> Vec<Change> {
        let mut changes = self.pace.judge(now);
        changes.truncate(EVENTS_MAX.saturating_sub(self.events) as usize);
        self.events = self.events.saturating_add(u32::try_from(changes.len()).unwrap_or(u32::MAX));
        changes
    }

    fn read(&mut self, daemon: &Daemon, dir: &Path, ranks: usize, now: Timestamp) {
        for rank in (0..).take(ranks) {
            let path = dir.join(file_of(rank));
            let last = self.read.get(&rank).copied().unwrap_or_default();
            // It is made with the beginning of the clock, which may be set back later.
            let is_new = |at: &Timestamp| *at != last && *at > Timestamp(0);
            let Some(at) = written_at(&path).filter(is_new) else { continue };
            let line = tail(&path).map_err(|error| error.to_string()).and_then(|text| Line::last(&text));
            match line {
                Ok(Some(line)) => {
                    self.unread.remove(&rank);
                    // Never in the future, whatever the file says.
                    self.pace.tell(rank, daemon.clock.of_wall(at).min(now), line);
                }
                // It is being written.
                Ok(None) => continue,
                Err(why) => drop(self.unread.insert(rank, why)),
            }
            self.read.insert(rank, at);
        }
    }

    fn advise(&mut self, losses: NodeLosses, nodes: &[NodeName], dir: &Path) {
        let Some(takes_ms) = self.pace.saved_ms() else { return };
        let count = nodes.iter().collect::<std::collections::BTreeSet<_>>().len();
        let advice = losses.advise(takes_ms, count as u64);
        let is_near = |before: &CheckpointView| {
            let apart = before.every_ms.abs_diff(advice.every_ms);
            apart.saturating_mul(1_000) < before.every_ms.saturating_mul(OTHER_ADVICE_MILLI)
        };
        if self.advice.as_ref().is_some_and(is_near) {
            return;
        }
        let path = dir.join(CHECKPOINT_EVERY);
        let next = path.with_extension("next");
        let seconds = advice.every_ms.div_ceil(1_000).max(1);
        if let Err(error) = fs::write(&next, format!("{seconds}\n")).and_then(|()| fs::rename(&next, &path)) {
            tracing::warn!(path = %path.display(), %error, "an advice cannot be written");
        }
        self.advice = Some(advice);
    }
}

fn running(engine: &Engine) -> Vec<Running> {
    let of_record = |record: &GangRecord| {
        let placement = record.placement.as_ref()?;
        let nodes = placement.slots.iter().map(|slot| slot.node.clone()).collect();
        let runs = matches!(record.phase, Phase::Running { .. });
        runs.then_some(Running { attempt: (record.id, record.attempt), nodes })
    };
    engine.jobs().flat_map(|(_, records)| records.iter().filter_map(of_record)).collect()
}

/// The end of a file. Where the daemon is no other user than the rank, the rank may have put something else there: nothing
/// that is no file is waited for.
fn tail(path: &Path) -> io::Result<String> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let mut file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

const STALLED: &str = "stalled";

/// Says what happened: in the log, in the history of the job, and of a gang that stands still to its owner.
fn tell(daemon: &Daemon, now: Timestamp, gang: GangId, change: &Change, nodes: &[NodeName]) {
    let (what, detail) = event(change, nodes);
    tracing::info!(%gang, detail, "a gang: {what}");
    let view = EventView { at: now, what: what.to_owned(), detail: detail.clone(), record: None };
    daemon.recorder.event(gang.job, view);
    if what == STALLED {
        daemon.warn_owner(gang.job, STALLED, detail);
    }
}

/// What happened in one word, and in a sentence.
fn event(change: &Change, nodes: &[NodeName]) -> (&'static str, String) {
    let on = |rank: u32| nodes.get(rank as usize).map(|node| format!(" on {node}")).unwrap_or_default();
    match change {
        Change::Straggles(straggler) => {
            let (work, median) = (straggler.work_us / 1_000, straggler.median_us / 1_000);
            let rank = straggler.rank;
            let what = format!(
                "rank {rank}{} works {work} ms on a step, the median of its gang is {median} ms",
                on(rank)
            );
            ("straggler", what)
        }
        Change::StragglesNoMore(rank) => ("straggler no more", format!("rank {rank}{}", on(*rank))),
        Change::Stalled { step, behind, .. } => {
            let behind: Vec<String> = behind.iter().map(|rank| format!("{rank}{}", on(*rank))).collect();
            let of = if behind.is_empty() {
                String::new()
            } else {
                format!("; behind the others: rank {}", behind.join(", "))
            };
            (STALLED, format!("no step after step {step}{of}"))
        }
        Change::GoesOn { after_ms } => ("stalled no more", format!("after {}", span(*after_ms))),
    }
}
