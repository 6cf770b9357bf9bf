//! What can be wrong with a journal, and what to do then.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use phalanx_model::SyncKind;

use crate::{FORMAT, FORMAT_OLDEST};

/// A damaged place in a segment, and what is lost from there on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// Line number, from 1; the header is line 1.
    pub line: u64,
    /// Bytes of the segment before the damaged line.
    pub offset: u64,
    pub why: String,
    /// Bytes from `offset` to the end of the segment.
    pub bytes_lost: u64,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, offset, why, bytes_lost } = self;
        write!(f, "line {line}, byte {offset}: {why}; {bytes_lost} bytes from there to the end")
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },

    #[error(
        "{} is not a journal segment: {why}; move it away to go on without it", path.display()
    )]
    BadHeader { path: PathBuf, why: String },

    #[error(
        "{} has journal format {format}, and this version reads {FORMAT_OLDEST} to {FORMAT}; \
         use the version of phalanx that wrote it, or a later one", path.display()
    )]
    UnknownFormat { path: PathBuf, format: u64 },

    /// A whole line that says something unknown: not damage, and never cut away.
    #[error(
        "{}, line {line}: the record is whole, but this version cannot read it: {why}; \
         it was written by phalanx {engine}, use that version or a later one", path.display()
    )]
    UnknownRecord { path: PathBuf, line: u64, engine: String, why: String },

    /// Good records stand after a bad one, so this is no write that a crash cut short.
    #[error(
        "{} is damaged in the middle ({torn}, with {good_after} good records after it); \
         restore the file from a copy, or give up everything from that line on by cutting it there",
        path.display()
    )]
    Damaged { path: PathBuf, torn: Torn, good_after: u64 },

    #[error("the first facts of a segment are a complete sync of the world, and {missing:?} is missing")]
    IncompleteSync { missing: SyncKind },

    #[error("{called} of step {seq} were given to the journal out of turn; facts and decisions alternate")]
    OutOfTurn { called: &'static str, seq: u64 },

    #[error("a record of {bytes} bytes is over the limit of {max}")]
    TooLarge { bytes: usize, max: usize },

    #[error("a record cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl JournalError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}
