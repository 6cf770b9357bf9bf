//! When output was written: once a second, the length of each log that grew is noted beside it, with the time of the last
//! write. A rank writes into its log itself, so nobody sees its lines come one by one; a line is as old as the first note that
//! has all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use phalanx_model::{GangId, Timestamp};

use super::numbered;
use crate::Paths;
use crate::clock::written_at;
use crate::paths::LOG;

/// A note: a time in ms since 1970 by the wall clock, and a length in bytes, little endian.
const NOTE_BYTES: usize = 16;
/// A file of more notes than this loses every second of them.
const NOTES_MAX: usize = 1 << 15;

fn file_of(log: &Path) -> PathBuf {
    log.with_extension("times")
}

/// Notes of one log, by time; both times and lengths grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    notes: Vec<(Timestamp, u64)>,
    /// When the log was written last: the time of all lines, where there are no notes.
    written_at: Option<Timestamp>,
}

impl Times {
    pub(crate) fn read(log: &Path) -> Self {
        let bytes = fs::read(file_of(log)).unwrap_or_default();
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let note = |bytes: &[u8]| {
            let (at, length) = bytes.split_at(NOTE_BYTES / 2);
            (Timestamp(number(at)), number(length))
        };
        Self { notes: bytes.chunks_exact(NOTE_BYTES).map(note).collect(), written_at: written_at(log) }
    }

    /// When the output until this offset was there: by the first note that has it, or when the log was written last.
    pub(crate) fn of(&self, end: u64) -> Option<Timestamp> {
        let at = self.notes.partition_point(|(_, length)| *length < end);
        self.notes.get(at).map(|(at, _)| *at).or(self.written_at)
    }

    /// How much of the log was there before a time.
    pub(crate) fn length_before(&self, since: Timestamp) -> u64 {
        if self.written_at.is_some_and(|at| at < since) {
            return u64::MAX;
        }
        let count = self.notes.partition_point(|(at, _)| *at < since);
        count.checked_sub(1).and_then(|last| self.notes.get(last)).map_or(0, |(_, length)| *length)
    }

    fn last(&self) -> (Timestamp, u64) {
        self.notes.last().copied().unwrap_or_default()
    }
}

/// The last notes of the logs of running attempts, by rank.
#[derive(Debug, Default)]
pub(crate) struct Sampler(BTreeMap<(GangId, u32), BTreeMap<u32, (Timestamp, u64)>>);

impl Sampler {
    /// Notes what grew. Attempts that ended since the last look are looked at once more.
    pub(crate) fn look(
        &mut self,
        paths: &Paths,
        now: Timestamp,
        running: impl IntoIterator<Item = (GangId, u32)>,
    ) {
        let running: BTreeSet<(GangId, u32)> = running.into_iter().collect();
        let ended: Vec<(GangId, u32)> = self.0.keys().filter(|of| !running.contains(of)).copied().collect();
        for attempt in running.iter().chain(&ended) {
            let noted = self.0.entry(*attempt).or_default();
            for (dir, rank) in numbered(&paths.attempt(attempt.0, attempt.1), "rank-").unwrap_or_default() {
                let log = dir.join(LOG);
                let Ok(length) = fs::symlink_metadata(&log).map(|meta| meta.len()) else { continue };
                // After a restart it goes on where the last daemon was.
                let last = noted.entry(rank).or_insert_with(|| Times::read(&log).last());
                if length <= last.1 {
                    continue;
                }
                // The file is its owner's, who can give it any time: not one to come, nor one before the last.
                let at = written_at(&log).unwrap_or(now).min(now).max(last.0);
                // On a full disk the next look tries again.
                if note(&log, at, length).is_ok() {
                    *last = (at, length);
                }
            }
        }
        ended.iter().for_each(|attempt| drop(self.0.remove(attempt)));
    }
}

fn note(log: &Path, at: Timestamp, length: u64) -> io::Result<()> {
    let path = file_of(log);
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let bytes = file.metadata()?.len();
    // A crash may have left a part of a note.
    let part = bytes % NOTE_BYTES as u64;
    if part > 0 {
        file.set_len(bytes - part)?;
    }
    let mut note = [0; NOTE_BYTES];
    note[..8].copy_from_slice(&at.0.to_le_bytes());
    note[8..].copy_from_slice(&length.to_le_bytes());
    file.write_all(&note)?;
    if bytes >= (NOTES_MAX * NOTE_BYTES) as u64 { thin(&path) } else { Ok(()) }
}

/// Removes every second note. Of each two the later stays: no line becomes older than it is.
fn thin(path: &Path) -> io::Result<()> {
    let notes = fs::read(path)?;
    let kept: Vec<u8> = notes.chunks_exact(NOTE_BYTES).skip(1).step_by(2).flatten().copied().collect();
    let next = path.with_extension("times-next");
    fs::write(&next, kept)?;
    fs::rename(next, path)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use phalanx_model::{JobId, MemberId};

    use super::*;

    /// A log that says `line 1` and so on, of which a line was noted every 10 s.
    fn noted(lines: u64) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        let member = MemberId { gang: JobId(1).gang(0), attempt: 1, rank: 0 };
        let log = paths.log(member);
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        let mut sampler = Sampler::default();
        let mut file = OpenOptions::new().create(true).append(true).open(&log).unwrap();
        for line in 1..=lines {
            writeln!(file, "line {line:>6}").unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(line * 10)).unwrap();
            sampler.look(&paths, Timestamp(line * 10_000), [(member.gang, 1)]);
        }
        writeln!(file, "the last").unwrap();
        // Its owner can say what it likes.
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1 << 40)).unwrap();
        sampler.look(&paths, Timestamp((lines + 1) * 10_000), []);
        assert!(sampler.0.is_empty());
        (dir, log)
    }

    #[test]
    fn lines_have_the_time_of_the_first_look_that_saw_them() {
        let (_dir, log) = noted(5);
        let times = Times::read(&log);
        assert_eq!([1, 12, 13, 60, 61, 69].map(|end| times.of(end).unwrap().0 / 10_000), [1, 1, 2, 5, 6, 6]);
        assert_eq!(times.length_before(Timestamp(0)), 0);
        assert_eq!(times.length_before(Timestamp(20_001)), 24);
        assert_eq!(times.length_before(Timestamp(u64::MAX)), u64::MAX);
    }

    #[test]
    fn notes_are_bounded_and_a_part_of_one_is_cut_off() {
        let lines = NOTES_MAX as u64 + 10;
        let (_dir, log) = noted(lines);
        let times = Times::read(&log);
        assert!(times.notes.len() < NOTES_MAX, "{}", times.notes.len());
        assert!(times.notes.is_sorted());
        assert_eq!(times.of(12).unwrap().0, 20_000, "the later of two is kept");
        fs::OpenOptions::new().append(true).open(file_of(&log)).unwrap().write_all(&[7; 5]).unwrap();
        assert_eq!(Times::read(&log), times);
        note(&log, Timestamp(u64::MAX), u64::MAX).unwrap();
        assert_eq!(Times::read(&log).notes.last(), Some(&(Timestamp(u64::MAX), u64::MAX)));
    }

    #[test]
    fn without_notes_output_is_as_old_as_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join(LOG);
        fs::write(&log, "x\n").unwrap();
        let times = Times::read(&log);
        assert_eq!(times.of(2), written_at(&log));
        assert_eq!(times.length_before(Timestamp(1)), 0);
    }
}
