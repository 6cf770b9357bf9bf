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
    /// What an operator should read: what was cut or skipped.
    pub messages: Vec<String>,
    /// What the journal no longer says: ends that were cut off.
    pub losses: Vec<String>,
}

/// Reads the newest usable segment, cutting a torn end with a message, and replays it: the recorded plans are committed,
/// whichever version made them. To decide each step again takes as long as it took then, and `phalanx replay --check`
/// does that.
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
    let messages: Vec<String> = usable
        .skipped
        .iter()
        .map(|s| {
            format!("{} holds no complete step ({}); the one before is used", s.segment.path.display(), s.why)
        })
        .collect();
    let losses = repair(&usable.segment.path)?.into_iter().collect();

    let replay = Replay::of(&usable.segment.path, config)?;
    Ok(Recovered {
        facts: replay.engine.facts(),
        epoch: replay.epoch,
        last_at: replay.last_at,
        steps: replay.steps,
        messages,
        losses,
    })
}

struct Replay {
    engine: Engine,
    epoch: Epoch,
    /// Facts whose decisions have not been read yet.
    open: Option<(Timestamp, Vec<Input>)>,
    last_at: Timestamp,
    steps: u64,
}

impl Replay {
    fn of(path: &Path, config: Config) -> Result<Self, JournalError> {
        let mut reader = open(path)?;
        let header = reader.header().clone();
        let mut replay = Self {
            engine: Engine::new(header.epoch, config),
            epoch: header.epoch,
            open: None,
            last_at: Timestamp(0),
            steps: 0,
        };
        while let Next::Record(record) = reader.next_record()? {
            match record {
                Record::Facts { now, inputs, .. } => {
                    replay.take(None);
                    replay.open = Some((now, inputs));
                }
                Record::Decisions { plan, effects, .. } => replay.take(Some((&plan, &effects))),
            }
        }
        replay.take(None);
        Ok(replay)
    }

    /// Takes the open step. One without decisions is the last, and its orders never left: stepping it
    /// decides anew, which is as good.
    fn take(&mut self, recorded: Option<(&Plan, &[Effect])>) {
        let Some((now, inputs)) = self.open.take() else { return };
        self.last_at = now;
        self.steps += 1;
        match recorded {
            Some((plan, effects)) => self.engine.follow(now, &inputs, plan, effects),
            None => {
                let _ = self.engine.step(now, &inputs, &mut Outcome::default());
            }
        }
    }
}
