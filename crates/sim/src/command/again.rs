//! `replay`: every recorded step of a journal is decided again.

use std::fmt::Write;
use std::path::Path;

use phalanx_engine::{Config, Engine, VERSION};
use phalanx_journal::{Record, read_from};
use phalanx_model::Outcome;

use super::words::Words;
use super::{CommandError, Host};

/// Over all segments: steps with recorded decisions, and those that are decided otherwise now.
#[derive(Default)]
struct Again {
    steps: u64,
    differing: u64,
    told: String,
}

pub(super) fn replay(words: &[&str], host: &mut dyn Host) -> Result<(), CommandError> {
    let mut words = Words::read(words, &[])?;
    let [dir] = *std::mem::take(&mut words.bare).as_slice() else {
        return Err(CommandError::Usage("replay needs the folder of a journal".to_owned()));
    };
    words.done()?;
    let mut again = Again::default();
    for segment in host.segments(dir).map_err(CommandError::Input)? {
        let bytes = host.read(&segment, u64::MAX).map_err(CommandError::Input)?;
        again.segment(&segment, &bytes)?;
        host.print(again.told.as_bytes()).map_err(CommandError::Input)?;
        again.told.clear();
    }
    match again {
        Again { steps: 0, .. } => {
            Err(CommandError::Input(format!("{dir} holds no step of version {VERSION}")))
        }
        Again { steps, differing: 0, .. } => {
            let text = format!("{dir}: all {steps} steps are decided as they were\n");
            host.print(text.as_bytes()).map_err(CommandError::Input)
        }
        Again { steps, differing, .. } => Err(CommandError::Correctness(format!(
            "{dir}: {differing} of {steps} steps are decided otherwise"
        ))),
    }
}

impl Again {
    // Writing to a string does not fail.
    fn segment(&mut self, path: &str, bytes: &[u8]) -> Result<(), CommandError> {
        let wrong = |error: phalanx_journal::JournalError| CommandError::Input(error.to_string());
        let (header, records, torn) = read_from(bytes, Path::new(path)).map_err(wrong)?;
        if let Some(torn) = torn {
            let _ = writeln!(self.told, "{path}: ends in an incomplete step: {torn:?}");
        }
        if header.engine != VERSION {
            let _ = writeln!(self.told, "{path}: written by version {}, skipped by {VERSION}", header.engine);
            return Ok(());
        }
        let mut engine = Engine::new(header.epoch, Config::default());
        let mut out = Outcome::default();
        for record in records {
            match record {
                Record::Facts { now, inputs, .. } => {
                    let _ = engine.step(now, &inputs, &mut out);
                }
                Record::Decisions { seq, effects, changes } => {
                    self.steps += 1;
                    if out.effects != effects || out.changes != changes {
                        let _ = writeln!(self.told, "{path}: step {seq} is decided otherwise");
                        let _ = writeln!(self.told, "  then {effects:?} {changes:?}");
                        let _ = writeln!(self.told, "  now  {:?} {:?}", out.effects, out.changes);
                        self.differing += 1;
                    }
                }
            }
        }
        Ok(())
    }
}
