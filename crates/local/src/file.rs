//! Small files of the state folder.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file whole or not at all, and durably; its owner alone can read it.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let next = path.with_extension("next");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(next, path)
}
