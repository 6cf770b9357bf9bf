//! Whole folders, through the public functions and real files.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use phalanx_journal::*;
use phalanx_model::{CollectiveCost, CostTable, Decision, Outcome, SyncKind};
use support::{NOW, facts, header, outcome, sync, sync_of_nothing};

/// A segment of three steps, and the records that it holds.
fn write_three(dir: &Path) -> (PathBuf, Vec<Record>) {
    let mut journal = Journal::create(dir, header()).unwrap();
    let mut records = Vec::new();
    for (seq, inputs) in (1..).zip([sync(), facts(), vec![]]) {
        let now = NOW.plus(seq);
        let out = if seq == 2 { outcome() } else { Outcome::default() };
        journal.facts(now, &inputs).unwrap();
        journal.decisions(&out).unwrap();
        journal.sync().unwrap();
        records.push(Record::Facts { seq, now, inputs });
        let Outcome { plan, effects, changes } = out;
        records.push(Record::Decisions { seq, plan, effects, changes });
    }
    assert_eq!(journal.bytes(), fs::metadata(journal.path()).unwrap().len());
    (journal.path().to_owned(), records)
}

fn offset_of_line(bytes: &[u8], line: usize) -> usize {
    bytes.split_inclusive(|c| *c == b'\n').take(line - 1).map(<[u8]>::len).sum()
}

#[test]
fn what_was_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (path, records) = write_three(dir.path());
    assert_eq!(path.file_name().unwrap(), "000001.journal");
    assert_eq!(read(&path).unwrap(), (header(), records, None));
    assert_eq!(repair(&path).unwrap(), None);
    let (second, _) = write_three(dir.path());
    assert_eq!(second.file_name().unwrap(), "000002.journal");
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Fails when the words of the model read or write differently than when format 3 was made. A field with a
/// default may be added, and one that every reader takes as absent may go; anything else is format 4, which still reads
/// this file. UPDATE=1 writes the file anew.
#[test]
fn format_3_is_still_written_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let (path, records) = write_three(dir.path());
    let now = fixture("format-3.journal");
    if std::env::var_os("UPDATE").is_some() {
        fs::copy(&path, &now).unwrap();
    }
    assert_eq!(read(&now).unwrap(), (header(), records, None));
    assert!(fs::read(&path).unwrap() == fs::read(&now).unwrap(), "the bytes of format 3 changed");
}

/// Format 2 had each record in one line.
#[test]
fn format_2_is_still_read() {
    let dir = tempfile::tempdir().unwrap();
    let (_, records) = write_three(dir.path());
    let header = Header { format: 2, ..header() };
    assert_eq!(read(&fixture("format-2.journal")).unwrap(), (header, records, None));
}

/// Format 1 had no plan: of the decisions only those are known that led to a change. One file is of the time when a device
/// had a `uuid`.
#[test]
fn format_1_is_still_read() {
    let dir = tempfile::tempdir().unwrap();
    let (_, mut records) = write_three(dir.path());
    let Record::Decisions { plan, .. } = &mut records[3] else { panic!("the second step has decisions") };
    plan.decisions.retain(|decision| matches!(decision, Decision::Start { .. }));
    for name in ["format-1-with-uuid.journal", "format-1.journal"] {
        let header = Header { format: 1, ..header() };
        assert_eq!(read(&fixture(name)).unwrap(), (header, records.clone(), None));
    }
}

/// Of one device model the name alone was written.
#[test]
fn the_one_model_of_earlier_journals_is_read() {
    use phalanx_model::Needs;
    let text = r#"{"devices":8,"device_model":"H100","cpu_milli":0,"memory_bytes":0}"#;
    let needs: Needs = serde_json::from_str(text).unwrap();
    assert_eq!(needs, Needs { devices: 8, models: Needs::of_model("H100"), ..Needs::default() });
    assert_eq!(serde_json::from_str::<Needs>(&serde_json::to_string(&needs).unwrap()).unwrap(), needs);
}

/// Nodes that keep no devices for anybody are written as they always were.
#[test]
fn devices_that_are_kept_for_some_sets_are_written_by_their_names() {
    use phalanx_model::{Kept, NodeSet};
    let kept = Kept([(NodeSet::new("any node; tolerant"), "2-3".parse().unwrap())].into());
    let text = serde_json::to_string(&kept).unwrap();
    assert_eq!(text, r#"{"any node; tolerant":12}"#);
    assert_eq!(serde_json::from_str::<Kept>(&text).unwrap(), kept);
}

#[cfg(unix)]
/// `format-2.journal` has a cost table without them.
#[test]
fn constants_of_a_calibrated_site_are_written_and_others_are_not() {
    let text = |table: &CostTable| serde_json::to_string(table).unwrap();
    assert!(!text(&CostTable::default()).contains("collectives"));
    let collectives = CollectiveCost { ring_share_ppm: 900_000, ..CollectiveCost::default() };
    let calibrated = CostTable { collectives, ..CostTable::default() };
    assert_eq!(serde_json::from_str::<CostTable>(&text(&calibrated)).unwrap(), calibrated);
    let some = r#"{"shapes": {}, "levels": {}, "collectives": {"ring_share_ppm": 900000}}"#;
    assert_eq!(serde_json::from_str::<CostTable>(some).unwrap(), calibrated);
}

#[test]
fn only_the_owner_can_read_a_segment() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = write_three(dir.path());
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn facts_and_decisions_alternate_and_begin_with_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(dir.path(), header()).unwrap();
    let out = Outcome::default();
    assert!(matches!(journal.decisions(&out), Err(JournalError::OutOfTurn { called: "decisions", .. })));
    let partial = &sync()[..6];
    let error = journal.facts(NOW, partial).unwrap_err();
    assert!(matches!(error, JournalError::IncompleteSync { missing: SyncKind::Jobs }), "{error}");
    journal.facts(NOW, &sync_of_nothing()).unwrap();
    let error = journal.facts(NOW, &[]).unwrap_err();
    assert!(matches!(error, JournalError::OutOfTurn { called: "facts", seq: 2 }), "{error}");
    journal.decisions(&out).unwrap();
    assert!(matches!(journal.decisions(&out), Err(JournalError::OutOfTurn { .. })));
    assert_eq!(read(journal.path()).unwrap().1.len(), 2);
}

#[test]
fn a_torn_end_is_cut_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (path, records) = write_three(dir.path());
    let whole = fs::read(&path).unwrap();
    let last = offset_of_line(&whole, 7);
    fs::write(&path, &whole[..last + 20]).unwrap();

    let (_, kept, torn) = read(&path).unwrap();
    assert_eq!(kept, records[..5]);
    let (line, offset) = (7, last as u64);
    let why = "the line has no end".to_owned();
    assert_eq!(torn, Some(Torn { line, offset, why, bytes_lost: 20 }));

    let message = repair(&path).unwrap().unwrap();
    assert!(message.contains("line 7") && message.contains("000001.torn"), "{message}");
    assert_eq!(read(&path).unwrap(), (header(), records[..5].to_vec(), None));
    assert_eq!(fs::read(path.with_extension("torn")).unwrap(), whole[last..last + 20]);
    assert_eq!(repair(&path).unwrap(), None);
}

#[test]
fn damage_in_the_middle_is_not_mistaken_for_a_torn_end() {
    let dir = tempfile::tempdir().unwrap();
    let (path, records) = write_three(dir.path());
    let whole = fs::read(&path).unwrap();
    let third = offset_of_line(&whole, 3);
    let mut bytes = whole;
    bytes[third + 40] ^= 1;
    fs::write(&path, &bytes).unwrap();

    for error in [read(&path).unwrap_err(), repair(&path).unwrap_err()] {
        let JournalError::Damaged { torn, good_after, .. } = error else { panic!("{error}") };
        assert_eq!((torn.line, torn.offset, good_after), (3, third as u64, 4));
    }
    assert_eq!(fs::read(&path).unwrap(), bytes, "nothing is cut without a word");

    assert!(cut_at_damage(&path).unwrap().is_some());
    assert_eq!(read(&path).unwrap(), (header(), records[..1].to_vec(), None));
    assert_eq!(fs::read(path.with_extension("torn")).unwrap(), bytes[third..]);
}

#[test]
fn a_missing_line_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = write_three(dir.path());
    let whole = fs::read(&path).unwrap();
    let (from, to) = (offset_of_line(&whole, 4), offset_of_line(&whole, 6));
    fs::write(&path, [&whole[..from], &whole[to..]].concat()).unwrap();
    let error = read(&path).unwrap_err();
    assert!(error.to_string().contains("facts 2 should stand here, not facts 3"), "{error}");
}

/// A line with a good checksum.
fn line(json: &str) -> String {
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))
}

#[test]
fn what_a_later_version_wrote_is_refused_and_never_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.journal");
    fs::write(&path, line(r#"{"format":4,"something":"new"}"#)).unwrap();
    let error = read(&path).unwrap_err();
    assert!(matches!(error, JournalError::UnknownFormat { format: 4, .. }), "{error}");
    assert!(matches!(usable_segment(dir.path()), Err(JournalError::UnknownFormat { .. })));

    let (path, _) = write_three(dir.path());
    let mut text = fs::read_to_string(&path).unwrap();
    text += &line(r#"{"facts":{"seq":4,"now":0,"inputs":[{"gang_teleported":{}}]}}"#);
    fs::write(&path, &text).unwrap();
    let error = repair(&path).unwrap_err();
    assert!(matches!(error, JournalError::UnknownRecord { line: 8, .. }), "{error}");
    assert!(error.to_string().contains("gang_teleported"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn the_newest_segment_with_a_whole_first_step_is_used() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(usable_segment(dir.path()).unwrap(), None);
    assert_eq!(usable_segment(&dir.path().join("nowhere")).unwrap(), None);
    let (first, _) = write_three(dir.path());
    let whole = fs::read(&first).unwrap();
    let step_ends = [offset_of_line(&whole, 4), whole.len()];
    fs::write(dir.path().join("000002.journal.old"), "not a segment").unwrap();
    fs::write(dir.path().join("2.journal"), "not a segment").unwrap();

    let second = dir.path().join("000002.journal");
    for length in (0..=whole.len()).filter(|l| l % 31 == 0 || l.abs_diff(step_ends[0]) < 3) {
        fs::write(&second, &whole[..length]).unwrap();
        let usable = usable_segment(dir.path()).unwrap().unwrap();
        if length < step_ends[0] {
            assert_eq!((usable.segment.number, usable.skipped.len()), (1, 1), "{length}");
        } else {
            assert_eq!((usable.segment.number, usable.skipped.len()), (2, 0), "{length}");
        }
    }
    // Good records stand behind the damage, so its effects may have left: that is a person's business.
    for at in [3, offset_of_line(&whole, 2) + 50] {
        let mut bytes = whole.clone();
        bytes[at] ^= 2;
        fs::write(&second, bytes).unwrap();
        assert!(matches!(usable_segment(dir.path()), Err(JournalError::Damaged { .. })));
    }
}

#[test]
fn old_segments_go_and_the_usable_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        write_three(dir.path());
    }
    let numbers = || segments(dir.path()).unwrap().iter().map(|s| s.number).collect::<Vec<_>>();
    fs::write(dir.path().join("000001.torn"), "x").unwrap();
    assert_eq!(retain(dir.path(), 4).unwrap().len(), 1);
    assert_eq!(numbers(), [2, 3, 4, 5]);
    assert!(!dir.path().join("000001.torn").exists());

    // A start that crashed leaves segments without a step; the last good one may not go.
    for _ in 0..2 {
        Journal::create(dir.path(), header()).unwrap();
    }
    retain(dir.path(), 1).unwrap();
    assert_eq!(numbers(), [5, 6, 7]);
    retain(dir.path(), 100).unwrap();
    assert_eq!(numbers(), [5, 6, 7]);
}

#[test]
fn a_folder_that_cannot_be_written_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Journal::create(&file, header()).unwrap_err();
    assert!(error.to_string().starts_with("cannot create the journal folder"), "{error}");
}
