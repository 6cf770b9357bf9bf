//! Progress of gangs. Each rank writes its progress to the file that `PHALANX_PROGRESS` names, and the daemon reads changed
//! files once a second. It shows stragglers and stalled gangs, and never acts on them. For a gang that reports how long its
//! checkpoints take, it writes the checkpoint interval to the file that `PHALANX_CHECKPOINT_EVERY` names.
//!
//! | module | what lives there |
//! |---|---|
//! | `line` | the line that a rank writes |
//! | `pace` | speed, stragglers and stalls of a gang |
//! | `interval` | the checkpoint interval |

mod interval;
mod line;
mod pace;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use phalanx_model::show::span;
use phalanx_model::{GangId, GangRecord, Job, JobId, NodeName, Phase, Timestamp};
use phalanx_node::file;
use phalanx_shell::Engine;

use crate::clock::written_at;
use crate::daemon::Daemon;
use crate::history::Had;
use crate::rank_file::tail;
use crate::used::Reported;
use phalanx_api::protocol::{CheckpointView, EventView, JobView, ProgressView};

pub(crate) use interval::NodeLosses;
use line::Line;
use pace::{Change, Pace};

/// The progress file of a rank, in the folder of the attempt.
pub(crate) fn file_of(rank: u32) -> String {
    format!("progress.{rank}")
}

/// The file with the checkpoint interval in seconds, in the folder of the attempt.
pub(crate) const CHECKPOINT_EVERY: &str = "checkpoint_every";

/// Over which time losses of nodes are counted, and how often.
const LOSSES_OF_MS: u64 = 90 * 24 * 3_600_000;
const LOSSES_EVERY_MS: u64 = 3_600_000;
/// The interval is written again if it differs by this many thousandths.
const OTHER_ADVICE_MILLI: u64 = 100;
/// Events of one job while it runs: of stragglers, and as many of stalls.
const EVENTS_MAX: u32 = 64;

/// The progress of running gangs, for views.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    shown: Mutex<BTreeMap<GangId, Shown>>,
    losses: Mutex<NodeLosses>,
}

#[derive(Debug)]
struct Shown {
    attempt: u32,
    /// `None` if no rank has written anything.
    view: Option<ProgressView>,
}

impl Progress {
    fn shown(&self) -> MutexGuard<'_, BTreeMap<GangId, Shown>> {
        // The map is replaced as a whole, so a panic leaves it valid.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Losses of nodes under gangs, as they were last counted.
    pub(crate) fn losses(&self) -> NodeLosses {
        *self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the progress of gangs to views of jobs.
    pub(crate) fn say(&self, jobs: &mut [JobView]) {
        let shown = self.shown();
        for gang in jobs.iter_mut().flat_map(|job| &mut job.gangs) {
            let runs = matches!(gang.phase, Some(Phase::Running { .. }));
            let of = shown.get(&gang.id).filter(|of| runs && of.attempt == gang.attempt);
            gang.progress = of.and_then(|of| of.view.clone());
        }
    }

    /// The numbers of stalled gangs and of stragglers.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let shown = self.shown();
        let views = || shown.values().filter_map(|of| of.view.as_ref());
        let stalled = views().filter(|view| view.stalled_since.is_some()).count();
        (stalled, views().map(|view| view.stragglers.len()).sum())
    }
}

/// State of the thread that reads progress files.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    gangs: BTreeMap<(GangId, u32), OfGang>,
    events: BTreeMap<JobId, Events>,
    losses: NodeLosses,
    losses_at: Option<Timestamp>,
}

/// One attempt of a gang.
#[derive(Debug, Default)]
struct OfGang {
    pace: Pace,
    /// Modification time of each file when it was last read, by the wall clock.
    read: BTreeMap<u32, Timestamp>,
    /// Why the last line of a rank cannot be parsed.
    unread: BTreeMap<u32, String>,
    /// Modification times of files that had no whole line when they were last read.
    unfinished: BTreeMap<u32, Timestamp>,
    advice: Option<CheckpointView>,
    /// Whether the file contains the advice.
    is_written: bool,
    /// Whether the last write of the file failed.
    has_failed: bool,
}

/// Numbers of events of a job.
#[derive(Clone, Copy, Debug, Default)]
struct Events {
    stragglers: u32,
    stalls: u32,
}

impl Events {
    /// Counts a change. Whether it still gets an event.
    fn admits(&mut self, change: &Change) -> bool {
        let count = match change {
            Change::Straggles(_) | Change::StragglesNoMore(_) => &mut self.stragglers,
            Change::Stalled { .. } | Change::GoesOn { .. } => &mut self.stalls,
        };
        *count = count.saturating_add(1);
        *count <= EVENTS_MAX
    }
}

/// A running attempt.
struct Running {
    attempt: (GangId, u32),
    /// Ranks of the gang without additional roles, which do other work and count other steps.
    ranks: u32,
    /// The node of each rank, those of roles included.
    nodes: Vec<NodeName>,
    had: Had,
    saves_every_ms: Option<u64>,
}

impl Reader {
    /// Reads changed files. `false`: the engine has stopped.
    pub(crate) fn look(&mut self, daemon: &Daemon) -> bool {
        let Ok(running) = daemon.engine.look(running) else { return false };
        let now = daemon.clock.now();
        self.count_losses(daemon, now);
        let mut before = std::mem::take(&mut self.gangs);
        let mut events_before = std::mem::take(&mut self.events);
        let mut shown = BTreeMap::new();
        for Running { attempt, ranks, nodes, had, saves_every_ms } in running {
            let mut gang = before.remove(&attempt).unwrap_or_default();
            let (id, number) = attempt;
            let dir = daemon.paths.attempt(id, number);
            gang.read(&dir, ranks, |at| daemon.clock.of_wall(at).min(now));
            gang.advise(self.losses, &nodes, &dir);
            let events = self
                .events
                .entry(id.job)
                .or_insert_with(|| events_before.remove(&id.job).unwrap_or_default());
            for change in gang.pace.judge(now).iter().filter(|change| events.admits(change)) {
                publish(daemon, now, id, change, &nodes);
            }
            let view = gang.view();
            let takes_ms = gang.pace.saved_ms();
            daemon.used.ran(attempt, had, &Reported { view: view.as_ref(), takes_ms, saves_every_ms });
            shown.insert(id, Shown { attempt: number, view });
            self.gangs.insert(attempt, gang);
        }
        daemon.used.ended(daemon, now, |attempt| self.gangs.contains_key(attempt));
        *daemon.progress.shown() = shown;
        true
    }

    fn count_losses(&mut self, daemon: &Daemon, now: Timestamp) {
        if self.losses_at.is_some_and(|at| now.since(at) < LOSSES_EVERY_MS) {
            return;
        }
        self.losses_at = Some(now);
        let Ok(per_node) = daemon.engine.look(devices_per_node) else { return };
        match daemon.recorder.losses(Timestamp(now.0.saturating_sub(LOSSES_OF_MS))) {
            Ok((losses, device_ms)) => self.losses = NodeLosses { losses, node_ms: device_ms / per_node },
            Err(error) => tracing::warn!(%error, "the losses of nodes cannot be counted"),
        }
        *daemon.progress.losses.lock().unwrap_or_else(PoisonError::into_inner) = self.losses;
    }
}

impl OfGang {
    /// `None` if no rank has written anything.
    fn view(&self) -> Option<ProgressView> {
        let unread = self.unread.first_key_value().map(|(rank, why)| format!("rank {rank}: {why}"));
        let view = ProgressView { checkpoint: self.advice, unread, ..self.pace.view() };
        (view != ProgressView::default()).then_some(view)
    }

    /// Reads changed files. `time` converts a modification time to the daemon's clock, and never returns a time after now.
    fn read(&mut self, dir: &Path, ranks: u32, time: impl Fn(Timestamp) -> Timestamp) {
        for rank in 0..ranks {
            let path = dir.join(file_of(rank));
            let last = self.read.get(&rank).copied().unwrap_or_default();
            // Files are created with modification time 0. The wall clock may be set back, so any other time is new.
            let is_new = |at: &Timestamp| *at != last && *at > Timestamp(0);
            let Some(at) = written_at(&path).filter(is_new) else { continue };
            let read = tail(&path).map_err(|error| error.to_string());
            let line = read.and_then(|text| Ok((Line::last(&text)?, text.trim().is_empty())));
            match line {
                Ok((Some(line), _)) => {
                    self.unread.remove(&rank);
                    self.pace.report(rank, time(at), line);
                }
                Ok((None, true)) => continue,
                // The rank is writing it, unless it is unchanged at the next read.
                Ok((None, false)) => {
                    if self.unfinished.insert(rank, at) == Some(at) {
                        self.unread.insert(rank, "its line does not end".to_owned());
                    }
                    continue;
                }
                Err(why) => drop(self.unread.insert(rank, why)),
            }
            self.unfinished.remove(&rank);
            self.read.insert(rank, at);
        }
    }

    fn advise(&mut self, losses: NodeLosses, nodes: &[NodeName], dir: &Path) {
        let Some(takes_ms) = self.pace.saved_ms() else { return };
        let count = nodes.iter().collect::<BTreeSet<_>>().len();
        let advice = losses.advise(takes_ms, count as u64);
        let is_near = |before: &CheckpointView| {
            let apart = before.every_ms.abs_diff(advice.every_ms);
            apart.saturating_mul(1_000) < before.every_ms.saturating_mul(OTHER_ADVICE_MILLI)
        };
        if !self.advice.as_ref().is_some_and(is_near) {
            (self.advice, self.is_written) = (Some(advice), false);
        }
        let Some(advice) = self.advice.filter(|_| !self.is_written) else { return };
        let path = dir.join(CHECKPOINT_EVERY);
        let seconds = advice.every_ms.div_ceil(1_000).max(1);
        match file::write(&path, format!("{seconds}\n").as_bytes(), 0o644, None) {
            Ok(()) => (self.is_written, self.has_failed) = (true, false),
            // The next read tries again, and does not log it again.
            Err(error) if !std::mem::replace(&mut self.has_failed, true) => {
                tracing::warn!(path = %path.display(), %error, "the checkpoint interval cannot be written");
            }
            Err(_) => {}
        }
    }
}

fn running(engine: &Engine) -> Vec<Running> {
    let of_record = |job: &Job, record: &GangRecord| {
        if !matches!(record.phase, Phase::Running { .. }) {
            return None;
        }
        let (gang, placement) = (job.gang_at(record.id.index)?, record.placement.as_ref()?);
        let nodes = placement.slots.iter().map(|slot| slot.node.clone()).collect();
        let attempt = (record.id, record.attempt);
        let (had, saves_every_ms) = (Had::of(engine, placement), record.saves_every_ms);
        Some(Running { attempt, ranks: gang.size, nodes, had, saves_every_ms })
    };
    let jobs = engine.jobs();
    jobs.flat_map(|(job, records)| records.iter().filter_map(move |record| of_record(job, record))).collect()
}

/// The mean, at least 1.
fn devices_per_node(engine: &Engine) -> u64 {
    let (nodes, devices) = engine.nodes().fold((0_u64, 0), |(nodes, devices), node| {
        (nodes + 1, devices + u64::from(node.machine.device_count()))
    });
    (devices / nodes.max(1)).max(1)
}

const STALLED: &str = "stalled";

/// Writes a change to the log and to the history of the job, and notifies the owner of a stall.
fn publish(daemon: &Daemon, now: Timestamp, gang: GangId, change: &Change, nodes: &[NodeName]) {
    let (what, detail) = event(change, nodes);
    tracing::info!(%gang, detail, "a gang: {what}");
    let view = EventView { at: now, what: what.to_owned(), detail: detail.clone(), record: None };
    daemon.recorder.event(gang.job, view);
    if what == STALLED {
        daemon.warn_owner(gang.job, STALLED, detail);
    }
}

/// The name and the detail of an event.
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

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::time::{Duration, SystemTime};

    use super::*;

    /// A file as a rank leaves it at a second of the wall clock.
    fn write(dir: &Path, rank: u32, second: u64, text: &str) {
        let path = dir.join(file_of(rank));
        fs::write(&path, text).unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        OpenOptions::new().write(true).open(path).unwrap().set_modified(at).unwrap();
    }

    #[test]
    fn what_changed_is_read_also_after_the_clock_was_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut gang = OfGang::default();
        let mut look = |second: u64, text: &str| {
            write(dir.path(), 0, second, text);
            gang.read(dir.path(), 2, |at| at);
            gang.view().and_then(|view| view.step)
        };
        assert_eq!(look(0, ""), None, "as it is made");
        assert_eq!(look(5_000, "step=1\n"), Some(1));
        assert_eq!(look(5_000, "step=2\n"), Some(1), "it did not change");
        assert_eq!(look(1_400, "step=3\n"), Some(3));
    }

    #[test]
    fn a_line_without_an_end_is_said_once_it_stays_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut gang = OfGang::default();
        let mut look = |second: u64, text: &str| {
            write(dir.path(), 1, second, text);
            gang.read(dir.path(), 2, |at| at);
            gang.view().and_then(|view| view.unread)
        };
        assert_eq!(look(10, "step=1"), None, "it is being written");
        assert_eq!(look(10, "step=1").as_deref(), Some("rank 1: its line does not end"));
        assert_eq!(look(11, "step=1\n"), None);
        assert_eq!(look(12, "\n"), None);
        // A rank that has the rights to put something else there is not waited for.
        let path = dir.path().join(file_of(1));
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        gang.read(dir.path(), 2, |at| at);
        assert!(gang.view().is_some());
    }

    #[test]
    fn the_advice_is_written_when_it_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let nodes = ["a", "a", "b"].map(|name| NodeName::new(name).unwrap());
        let mut gang = OfGang::default();
        let read = || fs::read_to_string(dir.path().join(CHECKPOINT_EVERY)).ok();
        let mut tell = |second: u64, saved: &str| {
            write(dir.path(), 0, second, &format!("step={second} saved={saved}\n"));
            gang.read(dir.path(), 1, |at| at);
            gang.advise(NodeLosses::default(), &nodes, dir.path());
            read()
        };
        let first = tell(1, "5s").unwrap();
        // √(2 · 5 s · 132 days), as the job is on two nodes.
        assert_eq!(first, "10680\n");
        assert_eq!(tell(2, "5.5s"), Some(first));
        assert_eq!(tell(3, "20s").unwrap(), "21359\n");
    }

    #[test]
    fn an_interval_that_cannot_be_written_is_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let mut gang = OfGang::default();
        write(dir.path(), 0, 1, "step=1 saved=5s\n");
        gang.read(dir.path(), 1, |at| at);
        let mut advise = |to: &Path| {
            gang.advise(NodeLosses::default(), &[NodeName::new("a").unwrap()], to);
            (gang.advice.is_some(), gang.is_written, gang.has_failed)
        };
        assert_eq!(advise(&gone), (true, false, true));
        fs::create_dir(&gone).unwrap();
        assert_eq!(advise(&gone), (true, true, false));
        assert!(fs::read_to_string(gone.join(CHECKPOINT_EVERY)).is_ok());
    }

    #[test]
    fn stragglers_use_up_no_word_of_a_gang_that_stands_still() {
        let mut events = Events::default();
        let told = (0..200).filter(|_| events.admits(&Change::StragglesNoMore(1))).count();
        assert_eq!(told, 64);
        assert!(events.admits(&Change::GoesOn { after_ms: 1 }));
    }
}
