//! Where the bytes of one segment go.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// A file that only grows, except when a failed write is taken back.
pub trait Storage {
    /// Puts bytes behind the last ones.
    ///
    /// # Errors
    /// Any; some of the bytes may have been written then.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when every byte appended so far would survive a loss of power.
    ///
    /// # Errors
    /// Any; bytes since the last success may then be lost, even where a repetition succeeds (Linux marks
    /// pages clean after a failed write-back).
    fn sync(&mut self) -> io::Result<()>;

    /// Forgets everything behind the first `length` bytes.
    ///
    /// # Errors
    /// Any; nothing changed then.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

/// A file, opened for appending.
#[derive(Debug)]
pub struct FileStorage(File);

impl FileStorage {
    /// Creates the file, readable by its owner alone: jobs carry their environment.
    ///
    /// # Errors
    /// When it exists already, or cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path).map(Self)
    }
}

impl Storage for FileStorage {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
}

/// Makes a created, renamed or removed entry of a folder durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}
