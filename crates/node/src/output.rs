//! The output of a rank, which is a file that the rank appends to: what is too much of it is cut off its beginning while
//! the rank writes on. The file keeps its length and loses its blocks, so no byte that is written meanwhile is lost.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};

/// Blocks are freed whole.
const BLOCK: u64 = 4096;

/// Bytes on the disk, in blocks of 512.
#[must_use]
pub fn bytes_on_disk(meta: &fs::Metadata) -> u64 {
    meta.blocks().saturating_mul(512)
}

/// Where the number of bytes is kept that were cut off the beginning of a log.
fn mark_of(log: &Path) -> PathBuf {
    log.with_extension("cut")
}

/// Bytes of output that were cut off the beginning of a log, and are no longer there.
#[must_use]
pub fn cut_bytes(log: &Path) -> u64 {
    fs::read_to_string(mark_of(log)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Cuts output off the beginning of a log until about `keep` bytes are left, and marks how much is gone. Returns the bytes
/// that were freed.
///
/// # Errors
/// If the file cannot be opened or cut, or the mark cannot be written.
pub fn cut(log: &Path, keep: u64) -> io::Result<u64> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().write(true).custom_flags(flags.bits()).open(log)?;
    let meta = file.metadata()?;
    let until = meta.len().saturating_sub(keep) / BLOCK * BLOCK;
    if until <= cut_bytes(log) {
        return Ok(0);
    }
    // First the mark: a reader never takes a hole for output. On a full disk the cut makes room for it.
    let marked = mark(log, until);
    punch(&file, until)?;
    marked.or_else(|_| mark(log, until))?;
    // The age of output is that of its last byte.
    file.set_modified(meta.modified()?)?;
    Ok(bytes_on_disk(&meta).saturating_sub(bytes_on_disk(&file.metadata()?)))
}

fn mark(log: &Path, until: u64) -> io::Result<()> {
    let (mark, next) = (mark_of(log), log.with_extension("next"));
    fs::write(&next, until.to_string())?;
    fs::rename(next, mark)
}

/// Frees the blocks before `until`. A filesystem that cannot do that loses the whole content.
fn punch(file: &File, until: u64) -> io::Result<()> {
    let length = i64::try_from(until).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    match fallocate(file.as_fd(), flags, 0, length) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {
            let size = file.metadata()?.len();
            file.set_len(0)?;
            file.set_len(size)
        }
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_log_is_cut_and_what_is_written_meanwhile_is_kept() {
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("output.log");
        let mut rank = OpenOptions::new().append(true).create(true).open(&log).unwrap();
        rank.write_all(&vec![b'a'; 1 << 20]).unwrap();
        assert_eq!(cut(&log, 2 << 20).unwrap(), 0);
        assert_eq!(cut_bytes(&log), 0);
        rank.write_all(&vec![b'b'; 1 << 20]).unwrap();
        assert!(cut(&log, 1 << 19).unwrap() > 1 << 20);
        rank.write_all(b"end\n").unwrap();
        let (at, text) = (usize::try_from(cut_bytes(&log)).unwrap(), fs::read(&log).unwrap());
        assert_eq!(at, (2 << 20) - (1 << 19));
        assert!(text[..at].iter().all(|b| *b == 0), "a hole");
        assert!(text[at..].starts_with(b"bbb") && text.ends_with(b"end\n"));
        assert!(bytes_on_disk(&fs::metadata(&log).unwrap()) < 1 << 20);
    }
}
