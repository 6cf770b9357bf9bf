//! A journal that has grown is begun anew, by the path that a restart takes: the engine lists its facts, and an
//! engine of the next epoch is built from them. Nothing runs differently for it; orders that may be open are
//! given again, and worlds carry them out once.

use std::path::{Path, PathBuf};

use phalanx_engine::{Config, Engine, VERSION};
use phalanx_journal::{Allocate, FileStorage, Header, Journal, JournalError, retain};
use phalanx_model::{Epoch, Input, MemberId, MemberState, Outcome, SyncKind, Timestamp};

use crate::pump::{Pump, World};

type Create<S> = Box<dyn FnMut(Epoch, Timestamp) -> Result<Journal<S>, JournalError> + Send>;

/// When and how to begin the next segment.
pub(crate) struct Rotation<S> {
    /// Grows with what a fresh listing takes: else a large world would be begun anew at every step.
    segment_bytes: u64,
    epoch: Epoch,
    config: Config,
    create: Create<S>,
    dir: PathBuf,
    segments_kept: usize,
}

impl<W: World> Pump<W, FileStorage> {
    /// Begins a new segment in `dir` whenever the current one is larger than `segment_bytes`, and keeps the
    /// newest `segments_kept`.
    #[must_use]
    pub fn rotating(
        mut self,
        dir: &Path,
        epoch: Epoch,
        config: Config,
        segment_bytes: u64,
        segments_kept: usize,
        allocate: Option<Allocate>,
    ) -> Self {
        let folder = dir.to_owned();
        let create =
            move |epoch, now| Journal::create_allocating(&folder, Header::new(VERSION, epoch, now), allocate);
        self.rotation = Some(Rotation {
            segment_bytes,
            epoch,
            config,
            create: Box::new(create),
            dir: dir.to_owned(),
            segments_kept,
        });
        self
    }
}

impl<W: World, S: phalanx_journal::Storage> Pump<W, S> {
    pub(crate) fn rotate_if_large(&mut self) {
        let bytes = self.journal.as_ref().map_or(0, Journal::bytes);
        let Some(rotation) = self.rotation.as_mut().filter(|r| bytes > r.segment_bytes) else {
            return;
        };
        let now = (self.clock)();
        let epoch = Epoch(rotation.epoch.0 + 1);
        let facts = listing(&self.engine);
        let mut engine = Engine::new(epoch, rotation.config);
        let mut out = Outcome::default();
        let mut wake = self.wake;
        let begun = (rotation.create)(epoch, now).map(|mut journal| {
            let written = journal.facts(now, &facts).and_then(|()| {
                wake = engine.step(now, &facts, &mut out);
                journal.decisions(&out)?;
                journal.sync()
            });
            (journal, written)
        });
        match begun {
            Ok((journal, Ok(()))) => {
                rotation.epoch = epoch;
                rotation.segment_bytes = rotation.segment_bytes.max(journal.bytes().saturating_mul(2));
                if let Err(e) = retain(&rotation.dir, rotation.segments_kept) {
                    self.world.warn(&format!("old journal segments stay: {e}"));
                }
                (self.journal, self.engine, self.out, self.wake) = (Some(journal), engine, out, wake);
                self.dispatch(now, &facts);
            }
            Ok((journal, Err(e))) => {
                // Half a segment must not be taken for the newest at the next start.
                std::fs::remove_file(journal.path()).expect("a segment that was not begun can be removed");
                self.put_off(&e);
            }
            Err(e) => self.put_off(&e),
        }
    }

    fn put_off(&mut self, error: &JournalError) {
        if let Some(rotation) = &mut self.rotation {
            rotation.segment_bytes = rotation.segment_bytes.saturating_mul(2);
        }
        self.world.warn(&format!("the journal goes on in its old segment: {error}"));
    }
}

/// Everything that a new engine has to be told: the engine's facts, and its members as they are known.
fn listing(engine: &Engine) -> Vec<Input> {
    let mut facts = engine.facts();
    facts.push(Input::SyncBegin { kind: SyncKind::Members });
    for record in engine.jobs().flat_map(|(_, gangs)| gangs).filter(|r| r.holds_capacity()) {
        for (rank, member) in (0..).zip(&record.members) {
            let id = MemberId { gang: record.id, attempt: record.attempt, rank };
            if member.state != MemberState::Requested {
                facts.push(Input::MemberObserved { member: id, state: member.state.clone() });
            }
        }
    }
    facts.push(Input::SyncEnd { kind: SyncKind::Members });
    facts
}
