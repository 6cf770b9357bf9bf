//! Cuts a damaged end off a segment. Nothing is thrown away: the cut bytes are kept beside it.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::storage::sync_dir;
use crate::{JournalError, Next, Torn, open};

/// Cuts off what a crash left half-written, and keeps it in `NNNNNN.torn`. Returns the message to show, or
/// nothing when the segment is whole.
///
/// # Errors
/// As [`crate::read`], and when a file cannot be written. Damage in the middle is left as it is.
pub fn repair(path: &Path) -> Result<Option<String>, JournalError> {
    torn_end(path)?.map(|torn| cut(path, &torn)).transpose()
}

/// [`repair`] that also gives up good records behind damage in the middle. Only on a person's word.
///
/// # Errors
/// As [`repair`], but for damage in the middle.
pub fn cut_at_damage(path: &Path) -> Result<Option<String>, JournalError> {
    match torn_end(path) {
        Err(JournalError::Damaged { torn, .. }) => cut(path, &torn).map(Some),
        found => found?.map(|torn| cut(path, &torn)).transpose(),
    }
}

fn torn_end(path: &Path) -> Result<Option<Torn>, JournalError> {
    let mut reader = open(path)?;
    loop {
        match reader.next_record()? {
            Next::Record(_) => {}
            Next::End => return Ok(None),
            Next::Torn(torn) => return Ok(Some(torn)),
        }
    }
}

fn cut(path: &Path, torn: &Torn) -> Result<String, JournalError> {
    let kept = path.with_extension("torn");
    keep(path, torn.offset, &kept).map_err(JournalError::io("keep the damaged end in", &kept))?;
    let file = OpenOptions::new().write(true).open(path).map_err(JournalError::io("open", path))?;
    file.set_len(torn.offset).and_then(|()| file.sync_all()).map_err(JournalError::io("cut", path))?;
    Ok(format!(
        "{} was damaged ({torn}); everything before is kept, the cut bytes are in {}",
        path.display(),
        kept.display()
    ))
}

/// Copies the end of a segment behind whatever an earlier repair kept, and makes it durable.
fn keep(path: &Path, offset: u64, kept: &PathBuf) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut target = options.open(kept)?;
    let mut source = File::open(path)?;
    source.seek(SeekFrom::Start(offset))?;
    io::copy(&mut source, &mut target)?;
    target.sync_all()?;
    path.parent().map_or(Ok(()), sync_dir)
}
