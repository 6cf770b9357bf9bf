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
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// What is known of the gangs that run.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    gangs: BTreeMap<GangId, OfGang>,
    losses: NodeLosses,
    losses_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct OfGang {
    attempt: u32,
    pace: Pace,
    /// When the file of each rank was written that was read last, by the wall clock.
    read: BTreeMap<u32, Timestamp>,
    /// What ranks wrote last that cannot be read, and why.
    unread: BTreeMap<u32, String>,
    advice: Option<CheckpointView>,
    events: u32,
}

/// A gang that runs, and the node of each rank.
struct Running {
    gang: GangId,
    attempt: u32,
    nodes: Vec<NodeName>,
}

impl Progress {
    fn known(&self) -> MutexGuard<'_, Known> {
        // What a panicking thread left is still what ranks told.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what ranks wrote since the last look. `false`: the engine answers no more.
    pub(crate) fn look(&self, daemon: &Daemon) -> bool {
        let Ok(running) = daemon.engine.look(running) else { return false };
        let now = daemon.clock.now();
        let mut known = self.known();
        known.gangs.retain(|gang, of| {
            running.iter().any(|running| (running.gang, running.attempt) == (*gang, of.attempt))
        });
        known.count_losses(daemon, now);
        let losses = known.losses;
        let mut changes = Vec::new();
        for of in running {
            let fresh = || OfGang { attempt: of.attempt, ..OfGang::default() };
            let gang = known.gangs.entry(of.gang).or_insert_with(fresh);
            let dir = daemon.paths.attempt(of.gang, of.attempt);
            gang.read(daemon, &dir, of.nodes.len(), now);
            gang.advise(losses, &of.nodes, &dir);
            let found = gang.pace.judge(now);
            let told = usize::try_from(EVENTS_MAX.saturating_sub(gang.events)).unwrap_or(0);
            gang.events = gang.events.saturating_add(u32::try_from(found.len()).unwrap_or(u32::MAX));
            changes.extend(found.into_iter().take(told).map(|change| (of.gang, event(&change, &of.nodes))));
        }
        drop(known);
        for (gang, (what, detail)) in changes {
            tracing::info!(%gang, detail, "a gang: {what}");
            let view = EventView { at: now, what: what.to_owned(), detail: detail.clone(), record: None };
            daemon.recorder.event(gang.job, view);
            if what == STALLED {
                daemon.warn_owner(gang.job, STALLED, detail);
            }
        }
        true
    }

    /// Adds to views of jobs how their gangs get on.
    pub(crate) fn say(&self, jobs: &mut [JobView]) {
        let known = self.known();
        for gang in jobs.iter_mut().flat_map(|job| &mut job.gangs) {
            let runs = matches!(gang.phase, Some(Phase::Running { .. }));
            let of = known.gangs.get(&gang.id).filter(|of| runs && of.attempt == gang.attempt);
            gang.progress = of.and_then(OfGang::view);
        }
    }

    /// How many gangs stand still, and how many ranks straggle.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let known = self.known();
        let stalled = known.gangs.values().filter(|of| of.pace.is_stalled()).count();
        (stalled, known.gangs.values().map(|of| of.pace.straggler_count()).sum())
    }
}

impl Known {
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

    fn read(&mut self, daemon: &Daemon, dir: &Path, ranks: usize, now: Timestamp) {
        for rank in (0..).take(ranks) {
            let path = dir.join(file_of(rank));
            let last = self.read.get(&rank).copied().unwrap_or_default();
            let Some(at) = written_at(&path).filter(|at| *at > last) else { continue };
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
        match fs::write(&next, format!("{seconds}\n")).and_then(|()| fs::rename(&next, &path)) {
            Ok(()) => self.advice = Some(advice),
            Err(error) => tracing::warn!(path = %path.display(), %error, "an advice cannot be written"),
        }
    }
}

fn running(engine: &Engine) -> Vec<Running> {
    let of_record = |record: &GangRecord| {
        let placement = record.placement.as_ref()?;
        let nodes = placement.slots.iter().map(|slot| slot.node.clone()).collect();
        let runs = matches!(record.phase, Phase::Running { .. });
        runs.then_some(Running { gang: record.id, attempt: record.attempt, nodes })
    };
    engine.jobs().flat_map(|(_, records)| records.iter().filter_map(of_record)).collect()
}

/// The end of a file.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

const STALLED: &str = "stalled";

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
