//! Records that are too long for one line.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::cell::{Cell, RefCell};
use std::fs;
use std::io;
use std::path::Path;
use std::rc::Rc;

use phalanx_journal::*;
use phalanx_model::{Change, GangRecord, Input, JobId, Outcome, Reason, SyncKind};
use support::{NOW, header, job};

const JOBS: u64 = 17;

/// A complete sync with jobs of a megabyte, as anybody may submit.
fn large_listing() -> Vec<Input> {
    let mut facts = Vec::new();
    for kind in [SyncKind::Nodes, SyncKind::Jobs, SyncKind::Members] {
        facts.push(Input::SyncBegin { kind });
        let count = if kind == SyncKind::Jobs { JOBS } else { 0 };
        facts.extend((1..=count).map(|id| {
            let mut job = job();
            job.id = JobId(id);
            job.gangs[0].program.env.insert("DATA".to_owned(), "x".repeat(1_000_000));
            let gangs = vec![GangRecord::pending(job.id.gang(0), NOW)];
            Input::JobObserved { job: Box::new(job), gangs }
        }));
        facts.push(Input::SyncEnd { kind });
    }
    facts
}

/// Many changes at once, as after a restart.
fn large_outcome() -> Outcome {
    let reason = |id| Change::ReasonChanged {
        gang: JobId(id).gang(0),
        reason: Reason::Preempting { victims: (0..1_000).map(|victim| JobId(victim).gang(0)).collect() },
    };
    Outcome { changes: (0..1_000).map(reason).collect(), ..support::outcome() }
}

fn write(dir: &Path) -> (std::path::PathBuf, Vec<Record>) {
    let (inputs, out) = (large_listing(), large_outcome());
    let mut journal = Journal::create(dir, header()).unwrap();
    journal.facts(NOW, &inputs).unwrap();
    journal.decisions(&out).unwrap();
    journal.sync().unwrap();
    assert_eq!(journal.bytes(), fs::metadata(journal.path()).unwrap().len());
    let Outcome { plan, effects, changes } = out;
    let records = vec![
        Record::Facts { seq: 1, now: NOW, inputs },
        Record::Decisions { seq: 1, plan, effects, changes },
    ];
    (journal.path().to_owned(), records)
}

/// One user could submit so much that the listing of a restart was over the limit of a line: no daemon started again.
#[test]
fn a_listing_of_any_size_is_written_in_lines_of_bounded_length() {
    let dir = tempfile::tempdir().unwrap();
    let (path, records) = write(dir.path());
    let bytes = fs::read(&path).unwrap();
    let lines: Vec<usize> = bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::len).collect();
    assert!(lines.iter().all(|length| *length <= PART_BYTES + 1_000), "{lines:?}");
    assert!(lines.len() > 5, "{lines:?}");
    assert!(read(&path).unwrap() == (header(), records, None));
    assert_eq!(usable_segment(dir.path()).unwrap().unwrap().segment.path, path);
}

/// A crash between two lines of a record leaves nothing of it.
#[test]
fn a_record_of_which_lines_are_missing_is_cut_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (path, records) = write(dir.path());
    let bytes = fs::read(&path).unwrap();
    let ends: Vec<usize> =
        bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
    // Without the last line, and in the middle of it.
    let second_to_last = ends[ends.len() - 2];
    for length in [second_to_last, second_to_last + 100] {
        fs::write(&path, &bytes[..length]).unwrap();
        let (_, read, torn) = read(&path).unwrap();
        assert!(read == records[..1], "{} records", read.len());
        let torn = torn.unwrap();
        assert_eq!(torn.offset + torn.bytes_lost, length as u64);
        assert!(repair(&path).unwrap().is_some());
        assert_eq!(repair(&path).unwrap(), None);
    }
    // Of the listing itself there must be all.
    fs::write(&path, &bytes[..ends[2]]).unwrap();
    assert_eq!(usable_segment(dir.path()).unwrap(), None);
    // A line that was taken out of the middle is damage.
    for (before, after) in [(1, 2), (3, ends.len() - 2), (ends.len() - 3, ends.len() - 2)] {
        let without = [&bytes[..ends[before]], &bytes[ends[after]..]].concat();
        fs::write(&path, without).unwrap();
        assert!(matches!(read(&path), Err(JournalError::Damaged { .. })), "lines {before} to {after}");
    }
}

/// A storage of which one append fails.
#[derive(Clone, Default)]
struct Full {
    bytes: Rc<RefCell<Vec<u8>>>,
    appends: Rc<Cell<usize>>,
    fails_at: usize,
}

impl Storage for Full {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.appends.set(self.appends.get() + 1);
        if self.appends.get() == self.fails_at {
            self.bytes.borrow_mut().extend(&bytes[..bytes.len() / 2]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.borrow_mut().extend(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.bytes.borrow_mut().truncate(usize::try_from(length).unwrap());
        Ok(())
    }
}

#[test]
fn a_record_of_which_one_line_failed_is_written_again_whole() {
    // The header is the first append.
    let storage = Full { fails_at: 3, ..Full::default() };
    let mut journal = Journal::with_storage(storage.clone(), Path::new("memory"), header()).unwrap();
    let (inputs, header_bytes) = (large_listing(), journal.bytes());
    assert!(matches!(journal.facts(NOW, &inputs), Err(JournalError::Io { .. })));
    assert_eq!((journal.bytes(), storage.bytes.borrow().len() as u64), (header_bytes, header_bytes));
    journal.facts(NOW, &inputs).unwrap();
    journal.decisions(&Outcome::default()).unwrap();
    let bytes = storage.bytes.borrow();
    let (_, records, torn) = read_from(bytes.as_slice(), Path::new("memory")).unwrap();
    assert_eq!((records.len(), torn), (2, None));
    assert!(records[0] == Record::Facts { seq: 1, now: NOW, inputs });
}
