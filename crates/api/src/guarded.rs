//! Files that give rights: their modes are checked before they are read.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Why a file is not read.
#[derive(Debug)]
pub(crate) enum Unread {
    Failed(io::Error),
    /// It has one of the bits that it must not have.
    Open {
        mode: u32,
    },
    Long,
}

/// The bytes of a file of at most so many, whose mode has none of these bits.
pub(crate) fn read(path: &Path, bytes_max: u64, forbidden: u32) -> Result<Vec<u8>, Unread> {
    let file = File::open(path).map_err(Unread::Failed)?;
    let mode = file.metadata().map_err(Unread::Failed)?.permissions().mode() & 0o777;
    if mode & forbidden != 0 {
        return Err(Unread::Open { mode });
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(Unread::Failed)?;
    if bytes.len() as u64 > bytes_max { Err(Unread::Long) } else { Ok(bytes) }
}
