//! A log file that another program writes.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::{Xid, line, open};

/// Bytes that one call reads.
const BYTES_MAX: usize = 1 << 20;
/// Bytes that one read takes.
const CHUNK: usize = 64 << 10;
/// A longer line is read up to here.
const LINE_MAX: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    file: File,
    /// Up to where the file was read.
    position: u64,
    /// The last line, as long as it has no end.
    begun: Vec<u8>,
}

impl Follower {
    pub(super) fn at_end(path: &Path, file: File) -> io::Result<Self> {
        let position = file.metadata()?.len();
        Ok(Self { path: path.to_path_buf(), file, position, begun: Vec::new() })
    }

    /// Xid errors of at most [`BYTES_MAX`] bytes.
    pub(super) fn read(&mut self) -> io::Result<Vec<Xid>> {
        let mut found = Vec::new();
        let mut left = BYTES_MAX;
        match self.advance(&mut left, &mut found) {
            Err(e) if found.is_empty() => Err(e),
            // The next call meets the error again, if it lasts.
            _ => Ok(found),
        }
    }

    fn advance(&mut self, left: &mut usize, found: &mut Vec<Xid>) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length < self.position {
            self.position = 0;
            self.begun.clear();
        }
        self.read_to_end(left, found)?;
        // The replaced file is read to its end first.
        if *left > 0
            && let Some(next) = self.replacement()?
        {
            self.end_line(found);
            self.file = next;
            self.position = 0;
            self.read_to_end(left, found)?;
        }
        Ok(())
    }

    /// The file at the path, if it is another file than the open one. `None` also while the path leads nowhere, as in
    /// the middle of a rotation.
    fn replacement(&self) -> io::Result<Option<File>> {
        let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        let absent = |e: io::Error| if e.kind() == ErrorKind::NotFound { Ok(None) } else { Err(e) };
        let file = match open(&self.path) {
            Ok(file) => file,
            Err(e) => return absent(e),
        };
        let metadata = file.metadata()?;
        let is_other = identity(&metadata) != identity(&self.file.metadata()?);
        Ok((is_other && metadata.is_file()).then_some(file))
    }

    fn read_to_end(&mut self, left: &mut usize, found: &mut Vec<Xid>) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK.min(*left)];
        while *left > 0 {
            let room = chunk.len().min(*left);
            let count = match self.file.read_at(chunk.get_mut(..room).unwrap_or_default(), self.position) {
                Ok(0) => break,
                Ok(count) => count,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            self.position = self.position.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
            *left = left.saturating_sub(count);
            self.take(chunk.get(..count).unwrap_or_default(), found);
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], found: &mut Vec<Xid>) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_end) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let room = LINE_MAX.saturating_sub(self.begun.len()).min(text.len());
            self.begun.extend_from_slice(text.get(..room).unwrap_or_default());
            if is_end {
                self.end_line(found);
            }
        }
    }

    fn end_line(&mut self, found: &mut Vec<Xid>) {
        found.extend(line::parse(&String::from_utf8_lossy(&self.begun)));
        self.begun.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::super::KernelLog;
    use super::*;

    const BEFORE: &str = "Nov 20 12:03:04 gpu7 kernel: NVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception\n";

    struct Log {
        _folder: tempfile::TempDir,
        path: PathBuf,
        log: KernelLog,
    }

    impl Log {
        /// Opened with [`BEFORE`] in it, which is not read.
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("kern.log");
            fs::write(&path, BEFORE).unwrap();
            let log = KernelLog::open(&path).unwrap();
            Self { _folder: folder, path, log }
        }

        fn append(&self, text: impl AsRef<[u8]>) {
            let mut file = fs::OpenOptions::new().append(true).create(true).open(&self.path).unwrap();
            file.write_all(text.as_ref()).unwrap();
        }

        fn rotate(&self) {
            fs::rename(&self.path, self.path.with_extension("log.1")).unwrap();
        }

        fn numbers(&mut self) -> Vec<u32> {
            self.log.read().unwrap().into_iter().map(|xid| xid.number).collect()
        }
    }

    fn xid(number: u32) -> String {
        format!(
            "Nov 20 12:03:05 gpu7 kernel: [  888.328147] NVRM: Xid (PCI:0000:3b:00): {number}, pid=1, name=a\n"
        )
    }

    #[test]
    fn a_file_is_followed_from_its_end() {
        let mut log = Log::new();
        assert_eq!(log.numbers(), [0; 0]);
        log.append(xid(31) + "Nov 20 12:03:05 gpu7 kernel: usb 1-1: new device\n" + &xid(79));
        assert_eq!(log.numbers(), [31, 79]);
        assert_eq!(log.numbers(), [0; 0]);
        // A line that is not yet complete.
        let line = xid(48);
        let (head, tail) = line.split_at(60);
        log.append(head);
        assert_eq!(log.numbers(), [0; 0]);
        log.append(tail);
        assert_eq!(log.numbers(), [48]);
        // What is no text stays a line.
        log.append([b"\xff\xfe\x00\n".as_slice(), xid(94).as_bytes()].concat());
        assert_eq!(log.numbers(), [94]);
        assert_eq!(log.log.lost(), 0);
    }

    #[test]
    fn a_truncated_file_is_read_from_its_start() {
        let mut log = Log::new();
        log.append("a line without an end");
        assert_eq!(log.numbers(), [0; 0]);
        fs::write(&log.path, "").unwrap();
        assert_eq!(log.numbers(), [0; 0]);
        log.append(xid(79));
        assert_eq!(log.numbers(), [79]);
        log.append(xid(31).repeat(3));
        assert_eq!(log.numbers(), [31; 3]);
        fs::write(&log.path, xid(48)).unwrap();
        assert_eq!(log.numbers(), [48]);
    }

    #[test]
    fn a_replaced_file_is_read_to_its_end_and_then_the_new_one() {
        let mut log = Log::new();
        log.append(xid(31));
        log.append(xid(13).trim_end());
        log.rotate();
        // In the middle of the rotation, there is no file.
        assert_eq!(log.numbers(), [31]);
        assert_eq!(log.numbers(), [0; 0]);
        log.append(xid(79));
        assert_eq!(log.numbers(), [13, 79], "the last line of a replaced file needs no end");
        log.append(xid(94));
        log.rotate();
        log.append(xid(95));
        assert_eq!(log.numbers(), [94, 95]);
    }

    #[test]
    fn a_call_reads_a_bounded_number_of_bytes() {
        let mut log = Log::new();
        let count = 3 * BYTES_MAX / 2 / xid(31).len();
        log.append(xid(31).repeat(count));
        log.rotate();
        log.append(xid(79));
        let first = log.numbers();
        assert!((1..count).contains(&first.len()), "{}", first.len());
        let second = log.numbers();
        assert_eq!(first.len() + second.len(), count + 1);
        assert_eq!(second.last(), Some(&79));
    }

    #[test]
    fn a_line_without_an_end_takes_bounded_memory() {
        let mut log = Log::new();
        log.append(xid(31).trim_end().to_owned() + &"x".repeat(3 * BYTES_MAX));
        for _ in 0..4 {
            assert_eq!(log.numbers(), [0; 0]);
        }
        log.append("\n".to_owned() + &xid(79));
        assert_eq!(log.numbers(), [31, 79]);
    }
}
