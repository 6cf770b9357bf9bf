//! The output of ranks: kept in one file per rank and attempt, read through the daemon by who may.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use phalanx_model::{JobId, MemberId};
use phalanx_node::output;

use crate::Paths;

/// How often a followed log is looked at.
const FOLLOW: Duration = Duration::from_millis(100);
/// A longer line is cut: one rank cannot fill a reader's memory.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// `--tail` reads at most this much from the end of a file.
const TAIL_BYTES_MAX: u64 = 16 << 20;

/// One rank's log of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) member: MemberId,
    pub(crate) path: PathBuf,
}

/// The logs of a job: of all ranks of the newest attempt, unless told otherwise.
pub(crate) fn find(
    paths: &Paths,
    job: JobId,
    rank: Option<u32>,
    attempt: Option<u32>,
) -> io::Result<Vec<Log>> {
    let mut found = Vec::new();
    for (gang_dir, index) in numbered(&paths.job(job), "gang-")? {
        let gang = job.gang(u16::try_from(index).unwrap_or(u16::MAX));
        let attempts = numbered(&gang_dir, "attempt-")?;
        let wanted = attempt.or_else(|| attempts.iter().map(|(_, n)| *n).max());
        for (attempt_dir, number) in attempts.into_iter().filter(|(_, n)| Some(*n) == wanted) {
            for (_, r) in
                numbered(&attempt_dir, "rank-")?.into_iter().filter(|(_, r)| rank.is_none_or(|w| w == *r))
            {
                let member = MemberId { gang, attempt: number, rank: r };
                found.push(Log { member, path: paths.log(member) });
            }
        }
    }
    found.sort_by_key(|l| l.member);
    Ok(found)
}

/// The logs of all attempts of a job.
pub(crate) fn all(paths: &Paths, job: JobId) -> Vec<PathBuf> {
    let list = |dir: &Path, prefix: &str| numbered(dir, prefix).unwrap_or_default();
    let gangs = list(&paths.job(job), "gang-").into_iter();
    let attempts = gangs.flat_map(|(gang, _)| list(&gang, "attempt-"));
    let ranks = attempts.flat_map(|(attempt, _)| list(&attempt, "rank-"));
    ranks.map(|(rank, _)| rank.join(crate::paths::LOG)).collect()
}

/// Folders named `prefixN`; none where there is no such folder.
pub(crate) fn numbered(dir: &Path, prefix: &str) -> io::Result<Vec<(PathBuf, u32)>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let number = path.file_name().and_then(|n| n.to_str()?.strip_prefix(prefix)?.parse().ok());
        found.extend(number.map(|n| (path, n)));
    }
    Ok(found)
}

/// Reads a log line by line, from the end if a tail is wanted, and goes on as it grows.
pub(crate) struct Follower {
    log: Log,
    reader: Option<BufReader<File>>,
    tail: Option<u32>,
    partial: Vec<u8>,
    /// What was cut off the beginning, as far as it was told.
    cut: u64,
}

impl Follower {
    pub(crate) fn new(log: Log, tail: Option<u32>) -> Self {
        Self { log, reader: None, tail, partial: Vec::new(), cut: 0 }
    }

    pub(crate) const fn member(&self) -> MemberId {
        self.log.member
    }

    /// Whole lines that are there now; at the end (`last`) also one without an end.
    pub(crate) fn lines(
        &mut self,
        last: bool,
        mut each: impl FnMut(&str) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.reader.is_none() {
            let Ok(mut file) = File::open(&self.log.path) else { return Ok(()) };
            if let Some(tail) = self.tail {
                seek_to_tail(&mut file, tail)?;
            }
            self.reader = Some(BufReader::new(file));
        }
        let Some(reader) = &mut self.reader else { return Ok(()) };
        if Self::skip_cut(&self.log.path, reader, &mut self.cut, &mut each)? {
            self.partial.clear();
        }
        loop {
            let room = LINE_BYTES_MAX.saturating_sub(self.partial.len() as u64);
            let got = reader.by_ref().take(room.max(1)).read_until(b'\n', &mut self.partial)?;
            if self.partial.first() == Some(&0) && output::cut_bytes(&self.log.path) > self.cut {
                // It was cut under the reader's hands: what was read is a hole.
                self.partial.clear();
                Self::skip_cut(&self.log.path, reader, &mut self.cut, &mut each)?;
                continue;
            }
            let whole = self.partial.last() == Some(&b'\n') || self.partial.len() as u64 >= LINE_BYTES_MAX;
            if whole || (got == 0 && last && !self.partial.is_empty()) {
                let line = String::from_utf8_lossy(&self.partial);
                each(line.trim_end_matches(['\n', '\r']))?;
                self.partial.clear();
            } else if got == 0 {
                return Ok(());
            }
        }
    }

    /// Goes behind what was cut off the log, if the reader is not there yet, and tells that it does.
    fn skip_cut(
        log: &Path,
        reader: &mut BufReader<File>,
        told: &mut u64,
        each: &mut impl FnMut(&str) -> io::Result<()>,
    ) -> io::Result<bool> {
        let cut = output::cut_bytes(log);
        if cut <= *told {
            return Ok(false);
        }
        *told = cut;
        let at = reader.stream_position()?;
        if at >= cut {
            return Ok(false);
        }
        // The first line after a cut is most often a part of one.
        reader.seek(SeekFrom::Start(cut))?;
        reader.skip_until(b'\n')?;
        each(&format!("[phalanx: {} bytes of output were cut here]", cut - at))?;
        Ok(true)
    }

    pub(crate) fn pause() {
        sleep(FOLLOW);
    }
}

/// Moves to the beginning of the last `lines` lines.
fn seek_to_tail(file: &mut File, lines: u32) -> io::Result<()> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(TAIL_BYTES_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.by_ref().take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
    let body = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let mut left = lines;
    let mut at = if lines == 0 { bytes.len() } else { body.len() };
    while left > 0 {
        match body.get(..at).and_then(|head| head.iter().rposition(|b| *b == b'\n')) {
            Some(newline) => {
                left -= 1;
                at = newline;
                if left == 0 {
                    at = newline + 1;
                }
            }
            None => {
                at = 0;
                break;
            }
        }
    }
    file.seek(SeekFrom::Start(from + at as u64))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail_of(text: &str, lines: u32) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, text).unwrap();
        let mut file = File::open(&path).unwrap();
        seek_to_tail(&mut file, lines).unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        rest
    }

    #[test]
    fn a_tail_is_the_last_whole_lines() {
        assert_eq!(tail_of("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(tail_of("a\nb\nc", 1), "c");
        assert_eq!(tail_of("a\nb\n", 9), "a\nb\n");
        assert_eq!(tail_of("", 3), "");
        assert_eq!(tail_of("a\nb\nc\n", 0), "");
    }

    #[test]
    fn where_a_log_was_cut_a_reader_is_told_and_goes_on_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let member = MemberId { gang: JobId(1).gang(0), attempt: 1, rank: 0 };
        let line = |n: usize| format!("{n:>99}\n");
        fs::write(&path, (0..100).map(line).collect::<String>()).unwrap();
        let mut early = Follower::new(Log { member, path: path.clone() }, None);
        let read = |follower: &mut Follower| {
            let mut seen = Vec::new();
            let each = |line: &str| {
                seen.push(line.trim().to_owned());
                Ok(())
            };
            follower.lines(true, each).unwrap();
            seen
        };
        assert_eq!(read(&mut early).len(), 100);
        assert!(output::cut(&path, 1_000).unwrap() > 0);
        let mut late = Follower::new(Log { member, path: path.clone() }, None);
        let seen = read(&mut late);
        assert_eq!(seen[0], "[phalanx: 8192 bytes of output were cut here]");
        assert_eq!(seen[1..], (82..100).map(|n| n.to_string()).collect::<Vec<_>>());
        assert!(read(&mut early).is_empty(), "it has read what was cut");
        let mut tail = Follower::new(Log { member, path }, Some(2));
        assert_eq!(read(&mut tail), ["98", "99"]);
    }

    #[test]
    fn a_growing_log_gives_whole_lines_and_at_the_end_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let member = MemberId { gang: JobId(1).gang(0), attempt: 1, rank: 0 };
        let mut follower = Follower::new(Log { member, path: path.clone() }, None);
        let mut seen = Vec::new();
        let mut read = |f: &mut Follower, last| {
            f.lines(last, |line| {
                seen.push(line.to_owned());
                Ok(())
            })
            .unwrap();
            std::mem::take(&mut seen)
        };
        assert!(read(&mut follower, false).is_empty());
        fs::write(&path, "one\ntw").unwrap();
        assert_eq!(read(&mut follower, false), ["one"]);
        fs::write(&path, "one\ntwo\nthree").unwrap();
        assert_eq!(read(&mut follower, false), ["two"]);
        assert_eq!(read(&mut follower, true), ["three"]);
    }
}
