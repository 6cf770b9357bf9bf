//! The way back: what the journal knows, as facts for a new engine.

use std::path::Path;

use phalanx_engine::{Config, Engine};
use phalanx_journal::{JournalError, Next, Record, open, repair, usable_segment};
use phalanx_model::{Effect, Epoch, Input, Outcome, Plan, Timestamp};

/// What a journal folder yields.
#[derive(Debug)]
pub struct Recovered {
    /// Everything persistent, as [`Engine::facts`] gives it; empty for a new folder.
    pub facts: Vec<Input>,
    /// Of the leader that wrote it.
    pub epoch: Epoch,
    /// When the last step was.
    pub last_at: Timestamp,
    pub steps: u64,
    /// What an operator should read: what was cut, skipped, or decided otherwise.
    pub messages: Vec<String>,
    /// What the journal no longer says: ends that were cut off.
    pub losses: Vec<String>,
}

/// Reads the newest usable segment, cutting a torn end with a message, and replays it.
///
/// The version that wrote the segment decides each step again, and must give the same orders; another version commits the
/// recorded plans.
///
/// # Errors
/// When a segment cannot be read, or is damaged in the middle: a person decides then.
pub fn recover(dir: &Path, config: Config) -> Result<Recovered, JournalError> {
    let nothing = Recovered {
        facts: Vec::new(),
        epoch: Epoch(0),
        last_at: Timestamp(0),
        steps: 0,
        messages: Vec::new(),
        losses: Vec::new(),
    };
    let Some(usable) = usable_segment(dir)? else { return Ok(nothing) };
    let mut messages: Vec<String> = usable
        .skipped
        .iter()
        .map(|s| {
            format!("{} holds no complete step ({}); the one before is used", s.segment.path.display(), s.why)
        })
        .collect();
    let losses = repair(&usable.segment.path)?.into_iter().collect();

    let path = &usable.segment.path;
    let replay = match Replay::of(path, config, Mode::Decide)? {
        Ok(replay) => replay,
        Err(Diverged { step }) => {
            messages.push(format!(
                "step {step} of {} would be decided otherwise by this version; the recorded decisions are followed",
                path.display()
            ));
            Replay::of(path, config, Mode::Follow)?
                .unwrap_or_else(|_| unreachable!("following never diverges"))
        }
    };
    Ok(Recovered {
        facts: replay.engine.facts(),
        epoch: replay.epoch,
        last_at: replay.last_at,
        steps: replay.steps,
        messages,
        losses,
    })
}

/// Whether recorded steps are decided again, or their recorded decisions taken over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Decide,
    Follow,
}

/// A step that this version decides otherwise.
struct Diverged {
    step: u64,
}

struct Replay {
    engine: Engine,
    mode: Mode,
    epoch: Epoch,
    /// Facts whose decisions have not been read yet.
    open: Option<(Timestamp, Vec<Input>)>,
    out: Outcome,
    last_at: Timestamp,
    steps: u64,
}

impl Replay {
    fn of(path: &Path, config: Config, mode: Mode) -> Result<Result<Self, Diverged>, JournalError> {
        let mut reader = open(path)?;
        let header = reader.header().clone();
        let mut replay = Self {
            engine: Engine::new(header.epoch, config),
            mode: if header.engine == phalanx_engine::VERSION { mode } else { Mode::Follow },
            epoch: header.epoch,
            open: None,
            out: Outcome::default(),
            last_at: Timestamp(0),
            steps: 0,
        };
        while let Next::Record(record) = reader.next_record()? {
            let taken = match record {
                Record::Facts { now, inputs, .. } => {
                    let taken = replay.take(None);
                    replay.open = Some((now, inputs));
                    taken
                }
                Record::Decisions { plan, effects, .. } => replay.take(Some((&plan, &effects))),
            };
            if let Err(diverged) = taken {
                return Ok(Err(diverged));
            }
        }
        let last = replay.take(None);
        Ok(last.map(|()| replay))
    }

    /// Takes the open step. One without decisions is the last, and its orders never left: stepping it
    /// decides anew, which is as good.
    fn take(&mut self, recorded: Option<(&Plan, &[Effect])>) -> Result<(), Diverged> {
        let Some((now, inputs)) = self.open.take() else { return Ok(()) };
        self.last_at = now;
        self.steps += 1;
        if let (Mode::Follow, Some((plan, effects))) = (self.mode, recorded) {
            self.engine.follow(now, &inputs, plan, effects);
            return Ok(());
        }
        let _ = self.engine.step(now, &inputs, &mut self.out);
        match recorded {
            Some((_, effects)) if self.out.effects != effects => Err(Diverged { step: self.steps }),
            _ => Ok(()),
        }
    }
}
