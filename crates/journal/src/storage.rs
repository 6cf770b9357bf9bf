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

    /// Keeps room for bytes to come, which nobody else can take: what must be recorded on a full disk goes there. `more`
    /// bytes are to be written before that.
    ///
    /// # Errors
    /// If there is no room; what was kept before stays.
    fn reserve(&mut self, _more: u64) -> io::Result<()> {
        Ok(())
    }

    /// Forgets everything behind the first `length` bytes.
    ///
    /// # Errors
    /// Any; nothing changed then.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

/// Allocates bytes of a file from an offset on, without changing its length.
pub type Allocate = fn(&File, u64, u64) -> io::Result<()>;

/// Room that [`Storage::reserve`] keeps behind the end of a file: thousands of cancels and exits.
pub const RESERVE_BYTES: u64 = 4 << 20;

/// A file, opened for appending.
#[derive(Debug)]
pub struct FileStorage {
    file: File,
    length: u64,
    /// Bytes up to here are allocated.
    reserved: u64,
    allocate: Option<Allocate>,
}

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
        options.open(path).map(|file| Self { file, length: 0, reserved: 0, allocate: None })
    }

    /// With room that is kept by this function.
    #[must_use]
    pub const fn allocating(mut self, allocate: Option<Allocate>) -> Self {
        self.allocate = allocate;
        self
    }
}

impl Storage for FileStorage {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn reserve(&mut self, more: u64) -> io::Result<()> {
        let needed = self.length + RESERVE_BYTES + more;
        let Some(allocate) = self.allocate.filter(|_| self.reserved < needed) else { return Ok(()) };
        let from = self.reserved.max(self.length);
        allocate(&self.file, from, needed - from)?;
        self.reserved = needed;
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        // What is allocated behind the end goes with it.
        (self.length, self.reserved) = (length, length);
        Ok(())
    }
}

impl Drop for FileStorage {
    fn drop(&mut self) {
        if self.reserved > self.length {
            // What is kept behind the end is for this writer. After a crash, `give_back` does this.
            drop(self.file.set_len(self.length));
        }
    }
}

/// Frees what a writer that crashed kept behind the end of a segment. Best effort.
pub(crate) fn give_back(path: &Path) {
    let file = OpenOptions::new().write(true).open(path);
    drop(file.and_then(|file| file.metadata().and_then(|meta| file.set_len(meta.len()))));
}

/// Makes a created, renamed or removed entry of a folder durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}
