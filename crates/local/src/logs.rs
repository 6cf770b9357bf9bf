//! The output of ranks: kept in one file per rank and attempt, read through the daemon by who may.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use phalanx_model::{JobId, MemberId, Timestamp};
use phalanx_node::output;

use crate::Paths;

pub(crate) mod times;

use times::Times;

/// How often a followed log is looked at.
const FOLLOW: Duration = Duration::from_millis(100);
/// A longer line comes in parts: one rank cannot fill a reader's memory.
const LINE_BYTES_MAX: usize = 256 << 10;
/// `--tail` reads at most this much from the end of a file.
const TAIL_BYTES_MAX: u64 = 16 << 20;

/// One rank's log of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) member: MemberId,
    pub(crate) path: PathBuf,
}

/// The logs of the wanted gangs of a job: of all ranks of the newest attempt, unless told otherwise.
pub(crate) fn find(
    paths: &Paths,
    job: JobId,
    is_wanted: impl Fn(u32) -> bool,
    rank: Option<u32>,
    attempt: Option<u32>,
) -> io::Result<Vec<Log>> {
    let mut found = Vec::new();
    let gangs = numbered(&paths.job(job), "gang-")?;
    for (gang_dir, index) in gangs.into_iter().filter(|(_, index)| is_wanted(*index)) {
        let gang = job.gang(index);
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

/// Bytes of a log that are read at once. One buffer serves all logs of a connection.
pub(crate) struct Buffer(Box<[u8]>);

impl Buffer {
    pub(crate) fn new() -> Self {
        Self(vec![0; LINE_BYTES_MAX].into())
    }
}

/// Reads a log line by line, from the end if a tail is wanted, and goes on as it grows. Between two looks it holds neither
/// a file nor a byte of it: there is one for each rank and reader.
pub(crate) struct Follower {
    log: Log,
    tail: Option<u32>,
    since: Option<Timestamp>,
    /// Lines are said with their times.
    is_timed: bool,
    /// Where the next line begins.
    at: u64,
    /// How long the file was at the last look.
    length: u64,
    /// What was cut off the beginning, as far as it was told.
    cut: u64,
}

impl Follower {
    pub(crate) fn new(log: Log, tail: Option<u32>, since: Option<Timestamp>, is_timed: bool) -> Self {
        Self { log, tail, since, is_timed, at: 0, length: 0, cut: 0 }
    }

    pub(crate) const fn member(&self) -> MemberId {
        self.log.member
    }

    /// Whole lines that are there now; at the end (`last`) also one without an end.
    pub(crate) fn lines(
        &mut self,
        last: bool,
        Buffer(buffer): &mut Buffer,
        mut each: impl FnMut(Option<Timestamp>, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        let length = fs::metadata(&self.log.path).map_or(0, |meta| meta.len());
        if length == self.length && !last {
            return Ok(());
        }
        let Ok(file) = File::open(&self.log.path) else { return Ok(()) };
        self.length = length;
        if let Some(tail) = self.tail.take() {
            self.at = tail_begins(&file, length, tail, buffer)?;
        }
        let times = if self.is_timed || self.since.is_some() {
            Times::read(&self.log.path)
        } else {
            Times::default()
        };
        if let Some(since) = self.since.take() {
            let before = times.length_before(since).min(length);
            self.at = self.at.max(line_begins(&file, before, buffer)?);
        }
        let is_timed = self.is_timed;
        let mut each = |end: u64, line: &str| each(if is_timed { times.of(end) } else { None }, line);
        loop {
            self.skip_cut(&file, buffer, &mut each)?;
            self.skip_hole(&file, &mut each)?;
            let got = file.read_at(buffer, self.at)?;
            if output::cut_bytes(&self.log.path) > self.cut {
                continue; // It was cut meanwhile: what was read may be a hole.
            }
            let read = buffer.get(..got).unwrap_or_default();
            let mut taken: u64 = 0;
            for line in read.split_inclusive(|byte| *byte == b'\n') {
                let is_whole = line.last() == Some(&b'\n');
                let is_last = last && got < LINE_BYTES_MAX;
                if is_whole || is_last || line.len() == LINE_BYTES_MAX {
                    taken += line.len() as u64;
                    let end = self.at.saturating_add(taken);
                    each(end, String::from_utf8_lossy(line).trim_end_matches(['\n', '\r']))?;
                }
            }
            self.at = self.at.saturating_add(taken);
            if taken == 0 {
                return Ok(());
            }
        }
    }

    /// Goes behind what was cut off the log, if the reader is not there yet, and tells that it does.
    fn skip_cut(
        &mut self,
        file: &File,
        buffer: &mut [u8],
        each: &mut impl FnMut(u64, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        let cut = output::cut_bytes(&self.log.path);
        if cut <= self.cut {
            return Ok(());
        }
        self.cut = cut;
        if self.at >= cut {
            return Ok(());
        }
        let bytes = cut.saturating_sub(self.at);
        // The first line after a cut is most often a part of one.
        let got = file.read_at(buffer, cut)?;
        let rest = buffer.get(..got).and_then(|read| read.iter().position(|byte| *byte == b'\n'));
        self.at = cut.saturating_add(rest.map_or(0, |newline| newline as u64 + 1));
        each(self.at, &format!("[phalanx: {bytes} bytes of output were cut here]"))
    }

    /// Goes behind a part of the file that was never written: a rank can make its file as long as it likes.
    fn skip_hole(
        &mut self,
        file: &File,
        each: &mut impl FnMut(u64, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        let Ok(at) = i64::try_from(self.at) else { return Ok(()) };
        let data = match lseek(file, at, Whence::SeekData) {
            Ok(data) => u64::try_from(data).unwrap_or(self.at),
            // Nothing but a hole until the end; or a filesystem that does not tell holes, or the end itself.
            Err(Errno::ENXIO) => self.length,
            Err(_) => self.at,
        };
        if data <= self.at {
            return Ok(());
        }
        let bytes = data.saturating_sub(self.at);
        self.at = data;
        each(self.at, &format!("[phalanx: {bytes} bytes here were never written]"))
    }

    pub(crate) fn pause() {
        sleep(FOLLOW);
    }
}

/// Where the first line begins that ends behind `at`.
fn line_begins(file: &File, at: u64, buffer: &mut [u8]) -> io::Result<u64> {
    let mut end = at;
    while end > 0 {
        let from = end.saturating_sub(buffer.len() as u64);
        let size = usize::try_from(end - from).unwrap_or(buffer.len());
        let chunk = buffer.get_mut(..size).unwrap_or_default();
        file.read_exact_at(chunk, from)?;
        if let Some(newline) = chunk.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from.saturating_add(newline as u64).saturating_add(1));
        }
        // A line that is longer than is read in one go comes in parts anyway.
        if at - from >= LINE_BYTES_MAX as u64 {
            return Ok(from);
        }
        end = from;
    }
    Ok(0)
}

/// Where the last `lines` lines begin, at most so far before the end.
fn tail_begins(file: &File, length: u64, lines: u32, buffer: &mut [u8]) -> io::Result<u64> {
    let first = length.saturating_sub(TAIL_BYTES_MAX);
    let (mut at, mut left) = (length, lines);
    while at > first && left > 0 {
        let from = first.max(at.saturating_sub(buffer.len() as u64));
        let size = usize::try_from(at.saturating_sub(from)).unwrap_or(buffer.len());
        let chunk = buffer.get_mut(..size).unwrap_or_default();
        file.read_exact_at(chunk, from)?;
        for (index, _) in chunk.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let behind = from.saturating_add(index as u64).saturating_add(1);
            // The end of the last line begins no line.
            if behind == length {
                continue;
            }
            left -= 1;
            if left == 0 {
                return Ok(behind);
            }
        }
        at = from;
    }
    Ok(if lines == 0 { length } else { first })
}

#[cfg(test)]
mod tests;
