//! A segment cut or changed at every byte, and a storage that fails at every call.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;

use phalanx_journal::*;
use phalanx_model::{Input, JobId, Outcome};
use proptest::prelude::*;
use support::{NOW, header, sync_of_nothing};

const STEPS: u64 = 4;

fn inputs_of(step: u64) -> Vec<Input> {
    if step == 1 {
        return sync_of_nothing();
    }
    vec![Input::CancelRequested { job: JobId(step), by: "ada".repeat(usize::try_from(step).unwrap()) }]
}

/// Fails at the call of this number, after writing this many bytes where it is an append.
type Fault = (usize, usize);

#[derive(Default, Debug)]
struct Disk {
    /// What a reader would see now.
    bytes: Vec<u8>,
    /// What would be there after a loss of power; grows by a successful sync alone.
    durable: Vec<u8>,
    /// Bytes from here on are dirty in the page cache: what the next sync writes.
    dirty_from: usize,
    calls: usize,
    faults: Vec<Fault>,
}

impl Disk {
    fn fault(&mut self) -> Option<usize> {
        let call = self.calls;
        self.calls += 1;
        self.faults.iter().find(|(at, _)| *at == call).map(|(_, written)| *written)
    }
}

#[derive(Clone, Default, Debug)]
struct FaultyStorage(Rc<RefCell<Disk>>);

impl Storage for FaultyStorage {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        let fault = disk.fault();
        let written = fault.unwrap_or(bytes.len()).min(bytes.len());
        disk.bytes.extend_from_slice(&bytes[..written]);
        fault.map_or(Ok(()), |_| Err(io::ErrorKind::StorageFull.into()))
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        if disk.fault().is_some() {
            // The pages are marked clean all the same: a plain repetition would succeed without them.
            disk.dirty_from = disk.bytes.len();
            return Err(io::ErrorKind::Other.into());
        }
        let from = disk.dirty_from;
        disk.durable.resize(from, 0);
        let dirty = disk.bytes[from..].to_vec();
        disk.durable.extend(dirty);
        disk.dirty_from = disk.bytes.len();
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        if disk.fault().is_some() {
            return Err(io::ErrorKind::Other.into());
        }
        let length = usize::try_from(length).unwrap();
        disk.bytes.truncate(length);
        disk.dirty_from = disk.dirty_from.min(length);
        Ok(())
    }
}

/// Calls until it works, and says how often it failed.
fn insist(mut call: impl FnMut() -> Result<(), JournalError>) -> usize {
    (0..20).find(|_| call().is_ok()).expect("the faults are over")
}

/// Writes all steps through the faults. After every call, whatever a reader sees are the records written so
/// far, in order, with at most a torn end.
fn write_through(faults: &[Fault]) -> (Vec<u8>, usize) {
    let storage = FaultyStorage::default();
    let disk = storage.0.clone();
    let mut failed = 0;
    let mut journal = Journal::with_storage(storage, Path::new("test"), header()).unwrap();
    disk.borrow_mut().calls = 0;
    disk.borrow_mut().faults = faults.to_vec();
    let expected = expected();
    let check = |written: usize, durable: usize| {
        let disk = disk.borrow();
        let (_, records, _) = read_from(&disk.bytes[..], Path::new("test")).unwrap();
        assert!(records.len() <= written && records[..] == expected[..records.len()], "{faults:?}");
        let (_, records, torn) = read_from(&disk.durable[..], Path::new("test")).unwrap();
        assert!(records.len() >= durable && torn.is_none(), "{faults:?}: {torn:?}");
    };
    for step in 1..=STEPS {
        let (written, now) = (usize::try_from(step).unwrap() * 2, NOW.plus(step));
        failed += insist(|| {
            let result = journal.facts(now, &inputs_of(step));
            check(written - 1, written - 2);
            result
        });
        failed += insist(|| {
            let result = journal.decisions(&Outcome::default());
            check(written, written - 2);
            result
        });
        failed += insist(|| {
            let result = journal.sync();
            check(written, written - 2);
            result
        });
        check(written, written);
        assert_eq!(disk.borrow().bytes.len() as u64, journal.bytes());
    }
    let disk = disk.borrow();
    assert_eq!(disk.bytes, disk.durable, "{faults:?}");
    (disk.bytes.clone(), failed)
}

fn expected() -> Vec<Record> {
    let step = |seq| {
        let Outcome { plan, effects, changes } = Outcome::default();
        let facts = Record::Facts { seq, now: NOW.plus(seq), inputs: inputs_of(seq) };
        [facts, Record::Decisions { seq, plan, effects, changes }]
    };
    (1..=STEPS).flat_map(step).collect()
}

#[test]
fn every_fault_at_every_call_is_survived() {
    let (whole, failed) = write_through(&[]);
    assert_eq!(failed, 0);
    let calls = usize::try_from(STEPS).unwrap() * 3;
    for at in 0..calls {
        for written in [0, 1, 30, 1 << 20] {
            let (bytes, failed) = write_through(&[(at, written)]);
            assert_eq!((bytes == whole, failed), (true, 1), "call {at}, {written} bytes");
            // The mending fails too: two, three and four calls in a row.
            for more in 1..4 {
                let faults: Vec<_> = (at..=at + more).map(|at| (at, written)).collect();
                let (bytes, failed) = write_through(&faults);
                assert!(bytes == whole && failed >= 1, "{faults:?}");
            }
        }
    }
}

#[test]
fn a_header_that_cannot_be_written_is_an_error() {
    for at in [0, 1] {
        let storage = FaultyStorage::default();
        storage.0.borrow_mut().faults = vec![(at, 10)];
        assert!(Journal::with_storage(storage, Path::new("test"), header()).is_err());
    }
}

/// Everything that the reader gives before the first damage, and whether it came to the end in peace.
fn salvage(bytes: &[u8]) -> (Vec<Record>, bool) {
    let mut records = Vec::new();
    let Ok(mut reader) = Reader::new(bytes, Path::new("test")) else { return (records, false) };
    loop {
        match reader.next_record() {
            Ok(Next::Record(record)) => records.push(record),
            Ok(Next::End) => return (records, true),
            Ok(Next::Torn(_)) | Err(_) => return (records, false),
        }
    }
}

/// Records that end before this byte.
fn before(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().filter(|c| **c == b'\n').count().saturating_sub(1)
}

#[test]
fn cut_at_every_byte() {
    let (bytes, expected) = (write_through(&[]).0, expected());
    for at in 0..bytes.len() {
        let (records, peace) = salvage(&bytes[..at]);
        assert_eq!(records, expected[..before(&bytes, at)], "cut at {at}");
        assert_eq!(peace, at > 0 && bytes[at - 1] == b'\n', "cut at {at}");
    }
}

#[test]
fn changed_at_every_byte() {
    let (bytes, expected) = (write_through(&[]).0, expected());
    for at in 0..bytes.len() {
        for flip in [1, 2, 0x20, 0x80, bytes[at], bytes[at] ^ b'\n'] {
            if flip == 0 {
                continue;
            }
            let mut bad = bytes.clone();
            bad[at] ^= flip;
            let (records, peace) = salvage(&bad);
            assert_eq!((records.len(), peace), (before(&bytes, at), false), "{flip:#x} at {at}");
            assert_eq!(records, expected[..records.len()]);
        }
    }
}

proptest! {
    #[test]
    fn any_damage_leaves_a_prefix(
        at in 0_usize..5_000, length in 0_usize..300, with in proptest::collection::vec(any::<u8>(), 0..300)
    ) {
        let (bytes, expected) = (write_through(&[]).0, expected());
        let at = at % bytes.len();
        let end = (at + length).min(bytes.len());
        let bad = [&bytes[..at], &with, &bytes[end..]].concat();
        let (records, _) = salvage(&bad);
        prop_assert!(records.len() >= before(&bytes, at));
        prop_assert_eq!(&records[..], &expected[..records.len()]);
        drop(read_from(&bad[..], Path::new("test")));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
        prop_assert!(read_from(&bytes[..], Path::new("test")).is_err());
    }

    #[test]
    fn any_faults_are_survived(
        faults in proptest::collection::vec((0_usize..40, (0_usize..200)), 0..12)
    ) {
        prop_assert_eq!(write_through(&faults).0, write_through(&[]).0);
    }
}
