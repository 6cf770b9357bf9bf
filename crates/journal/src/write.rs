//! The writer.

use std::fs;
use std::path::{Path, PathBuf};

use phalanx_model::{Input, Outcome, Timestamp};

use crate::format::{Part, RecordRef, missing_sync};
use crate::storage::{Allocate, give_back, sync_dir};
use crate::{FORMAT, FileStorage, Header, JournalError, PART_BYTES, Storage, line, segment};

/// Buffers keep this much between steps.
const KEPT_BYTES: usize = 1 << 20;

/// Writes one segment. Every failed call may be repeated.
#[derive(Debug)]
pub struct Journal<S = FileStorage> {
    storage: S,
    path: PathBuf,
    /// The step that was last begun, from 1 in each segment.
    seq: u64,
    /// Its facts stand, its decisions do not.
    step_open: bool,
    /// Bytes of whole lines that are durable.
    synced: u64,
    /// Whole lines behind those, kept to write them again when a sync failed.
    unsynced: Vec<u8>,
    tail: Tail,
    buffer: Vec<u8>,
}

/// What stands at the end of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    /// The last whole line.
    Good,
    /// Perhaps part of a line that failed: cut it off.
    Partial,
    /// Lines that a failed sync may have dropped from the page cache: write them again.
    Doubtful,
}

impl Journal {
    /// Begins the next segment of the folder, which is created if need be. On return the header is durable.
    ///
    /// # Errors
    /// When the folder or file cannot be written; no segment is left behind then.
    pub fn create(dir: &Path, header: Header) -> Result<Self, JournalError> {
        Self::create_allocating(dir, header, None)
    }

    /// As [`Self::create`], with room that is kept for what must be recorded on a full disk.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_allocating(
        dir: &Path,
        header: Header,
        allocate: Option<Allocate>,
    ) -> Result<Self, JournalError> {
        fs::create_dir_all(dir).map_err(JournalError::io("create the journal folder", dir))?;
        let before = segment::segments(dir)?;
        before.iter().for_each(|segment| give_back(&segment.path));
        let number = before.last().map_or(1, |s| s.number.saturating_add(1));
        let path = segment::path_of(dir, number);
        let storage = FileStorage::create(&path).map_err(JournalError::io("create", &path))?;
        let mut storage = storage.allocating(allocate);
        // If there is no room now, new work is refused until there is.
        drop(storage.reserve(0));
        let created = Self::with_storage(storage, &path, header).and_then(|journal| {
            sync_dir(dir).map_err(JournalError::io("sync the journal folder", dir))?;
            Ok(journal)
        });
        if created.is_err() {
            // Best effort: a segment without a whole header is skipped by readers.
            drop(fs::remove_file(&path));
        }
        created
    }
}

impl<S: Storage> Journal<S> {
    /// Begins a segment in a storage that is empty; `path` names it in errors.
    ///
    /// # Errors
    /// When the header cannot be written and synced.
    pub fn with_storage(storage: S, path: &Path, header: Header) -> Result<Self, JournalError> {
        let mut journal = Self {
            storage,
            path: path.to_owned(),
            seq: 0,
            step_open: false,
            synced: 0,
            unsynced: Vec::new(),
            tail: Tail::Good,
            buffer: Vec::new(),
        };
        line::encode(&Header { format: FORMAT, ..header }, &mut journal.buffer)?;
        journal.append()?;
        journal.sync()?;
        Ok(journal)
    }

    /// Records what the engine is about to be told. In the page cache on return: it survives a crash of the
    /// process, and, after [`Self::sync`], of the machine.
    ///
    /// # Errors
    /// When it could not be written (repeat the call), when the decisions before it are missing, or when
    /// these first facts of the segment are no complete sync.
    pub fn facts(&mut self, now: Timestamp, inputs: &[Input]) -> Result<(), JournalError> {
        let seq = self.seq + 1;
        if self.step_open {
            return Err(JournalError::OutOfTurn { called: "facts", seq });
        }
        if let (1, Some(missing)) = (seq, missing_sync(inputs)) {
            return Err(JournalError::IncompleteSync { missing });
        }
        self.append_record(RecordRef::Facts { seq, now, inputs, part: Part::default() })?;
        (self.seq, self.step_open) = (seq, true);
        Ok(())
    }

    /// Records what the step decided.
    ///
    /// # Errors
    /// When it could not be written (repeat the call), or when the facts before it are missing.
    pub fn decisions(&mut self, outcome: &Outcome) -> Result<(), JournalError> {
        let seq = self.seq;
        if !self.step_open {
            return Err(JournalError::OutOfTurn { called: "decisions", seq });
        }
        let Outcome { plan, effects, changes } = outcome;
        let plan = plan.decisions.as_slice();
        self.append_record(RecordRef::Decisions { seq, plan, effects, changes, part: Part::default() })?;
        self.step_open = false;
        Ok(())
    }

    /// Makes everything recorded so far durable. Effects leave only after this.
    ///
    /// # Errors
    /// When the storage cannot promise it. A repetition writes everything again that is in doubt.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.mend()?;
        if let Err(source) = self.storage.sync() {
            self.tail = Tail::Doubtful;
            return Err(JournalError::io("sync", &self.path)(source));
        }
        self.synced += self.unsynced.len() as u64;
        self.unsynced.clear();
        // The sync of a whole world should not stay in memory for good.
        self.unsynced.shrink_to(KEPT_BYTES);
        self.buffer.shrink_to(KEPT_BYTES);
        Ok(())
    }

    /// Keeps room for what must be recorded even if the disk is full, besides room for these facts.
    ///
    /// # Errors
    /// If there is no room: such new work should wait then.
    pub fn reserve(&mut self, inputs: &[Input]) -> Result<(), JournalError> {
        let more = line::length(&inputs)? as u64;
        self.storage.reserve(more).map_err(JournalError::io("keep room behind", &self.path))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the segment: tells when to begin the next.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.synced + self.unsynced.len() as u64
    }

    /// The step that was last begun, counted from 1 in each segment.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// Appends a record, in several lines if it is long, whole or not at all.
    fn append_record(&mut self, record: RecordRef<'_>) -> Result<(), JournalError> {
        if line::encode_within(PART_BYTES, &record, &mut self.buffer)? {
            return self.append();
        }
        let before = self.unsynced.len();
        for part in record.lines(PART_BYTES)? {
            let appended = line::encode(&part, &mut self.buffer).and_then(|()| self.append());
            if appended.is_err() && self.unsynced.len() > before {
                self.unsynced.truncate(before);
                self.tail = Tail::Partial;
                // If this fails too, the next call begins with it.
                drop(self.mend());
            }
            appended?;
        }
        Ok(())
    }

    /// Appends the line in the buffer, whole or not at all.
    fn append(&mut self) -> Result<(), JournalError> {
        self.mend()?;
        if let Err(source) = self.storage.append(&self.buffer) {
            self.tail = Tail::Partial;
            // If this fails too, the next call begins with it.
            drop(self.mend());
            return Err(JournalError::io("append to", &self.path)(source));
        }
        self.unsynced.extend_from_slice(&self.buffer);
        Ok(())
    }

    /// Brings the storage back to the last whole line.
    fn mend(&mut self) -> Result<(), JournalError> {
        match self.tail {
            Tail::Good => {}
            Tail::Partial => {
                let whole = self.bytes();
                self.storage.truncate(whole).map_err(JournalError::io("cut back", &self.path))?;
            }
            Tail::Doubtful => {
                self.storage.truncate(self.synced).map_err(JournalError::io("cut back", &self.path))?;
                self.storage
                    .append(&self.unsynced)
                    .map_err(JournalError::io("write again to", &self.path))?;
            }
        }
        self.tail = Tail::Good;
        Ok(())
    }
}
