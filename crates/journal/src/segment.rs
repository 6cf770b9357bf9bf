//! The segments of a folder: which there are, which one to start from, which may go.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::format::missing_sync;
use crate::storage::sync_dir;
use crate::{JournalError, Next, Record, open};

/// A file `000001.journal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub number: u64,
    pub path: PathBuf,
}

/// The segment to start from, and those after it that are of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usable {
    pub segment: Segment,
    /// Newest first.
    pub skipped: Vec<Skipped>,
}

/// A segment that holds no complete step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub segment: Segment,
    pub why: String,
}

pub(crate) fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.journal"))
}

/// All segments of a folder, oldest first; none when there is no folder. Other files are ignored.
///
/// # Errors
/// When the folder cannot be read.
pub fn segments(dir: &Path) -> Result<Vec<Segment>, JournalError> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(JournalError::io("list", dir))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(JournalError::io("list", dir))?.path();
        let number = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".journal"));
        // Only the one spelling that `path_of` has: never two files with one number.
        let number = number.and_then(|n| n.parse().ok()).filter(|n| path_of(dir, *n) == path);
        found.extend(number.map(|number| Segment { number, path }));
    }
    found.sort_by_key(|s| s.number);
    Ok(found)
}

/// The newest segment whose first step is whole: a start that crashed early leaves one without.
///
/// # Errors
/// When a segment newer than it cannot be read, is damaged before good records, or was written by a later
/// version. Its effects may have left: to skip it would be to go back in time.
pub fn usable_segment(dir: &Path) -> Result<Option<Usable>, JournalError> {
    let mut skipped = Vec::new();
    for segment in segments(dir)?.into_iter().rev() {
        match flaw(&segment.path)? {
            None => return Ok(Some(Usable { segment, skipped })),
            Some(why) => skipped.push(Skipped { segment, why }),
        }
    }
    Ok(None)
}

/// Why a segment cannot be started from.
fn flaw(path: &Path) -> Result<Option<String>, JournalError> {
    let first_two = || {
        let mut reader = open(path)?;
        Ok((reader.next_record()?, reader.next_record()?))
    };
    match first_two() {
        Ok((Next::Record(Record::Facts { inputs, .. }), Next::Record(_))) => {
            Ok(missing_sync(&inputs).map(|kind| format!("its first facts do not list {kind:?}")))
        }
        Ok((Next::Torn(torn), _) | (_, Next::Torn(torn))) => Ok(Some(torn.to_string())),
        Ok(_) => Ok(Some("its first step is not complete".to_owned())),
        Err(JournalError::BadHeader { why, .. }) => Ok(Some(why)),
        Err(e) => Err(e),
    }
}

/// Removes the oldest segments, and what repairs cut from them, until `keep` are left. The usable segment
/// and all after it always stay. Returns what was removed, oldest first.
///
/// # Errors
/// When the folder cannot be read or a file cannot be removed.
pub fn retain(dir: &Path, keep: usize) -> Result<Vec<Segment>, JournalError> {
    let mut all = segments(dir)?;
    let usable = usable_segment(dir)?.map_or(0, |u| u.segment.number);
    let kept_from = all.len().saturating_sub(keep);
    all.truncate(kept_from);
    all.retain(|s| s.number < usable);
    for segment in &all {
        fs::remove_file(&segment.path).map_err(JournalError::io("remove", &segment.path))?;
        let torn = segment.path.with_extension("torn");
        match fs::remove_file(&torn) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(JournalError::io("remove", &torn)(e));
            }
            _ => {}
        }
    }
    sync_dir(dir).map_err(JournalError::io("sync the journal folder", dir))?;
    Ok(all)
}
