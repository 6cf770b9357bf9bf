//! The reader.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::format::{Misread, Part, header_of, record_of};
use crate::line::{Lines, decode};
use crate::{Header, JournalError, Record, Torn};

/// A whole segment: its header, its records, and what a crash cut off its end.
pub type Contents = (Header, Vec<Record>, Option<Torn>);

/// Reads a segment.
///
/// # Errors
/// When it cannot be read, has no whole header, is of an unknown format, or is damaged in the middle. To get
/// at the records before such damage, use [`open`].
pub fn read(path: &Path) -> Result<Contents, JournalError> {
    rest(open(path)?)
}

/// [`read`] from any source; `path` names it in errors.
///
/// # Errors
/// As [`read`].
pub fn read_from(source: impl BufRead, path: &Path) -> Result<Contents, JournalError> {
    rest(Reader::new(source, path)?)
}

/// Opens a segment to read it record by record.
///
/// # Errors
/// When it cannot be read, has no whole header, or is of an unknown format.
pub fn open(path: &Path) -> Result<Reader<BufReader<File>>, JournalError> {
    let file = File::open(path).map_err(JournalError::io("open", path))?;
    Reader::new(BufReader::with_capacity(1 << 16, file), path)
}

/// Reads a segment to its end: the steps that it holds, and what a crash cut off.
///
/// # Errors
/// As [`read`].
pub fn segment_state(path: &Path) -> Result<(u64, Option<Torn>), JournalError> {
    let (mut reader, mut steps) = (open(path)?, 0);
    loop {
        match reader.next_record()? {
            Next::Record(record) => steps += u64::from(matches!(record, Record::Facts { .. })),
            Next::End => return Ok((steps, None)),
            Next::Torn(torn) => return Ok((steps, Some(torn))),
        }
    }
}

fn rest(mut reader: Reader<impl BufRead>) -> Result<Contents, JournalError> {
    let mut records = Vec::new();
    loop {
        match reader.next_record()? {
            Next::Record(record) => records.push(record),
            Next::End => return Ok((reader.header, records, None)),
            Next::Torn(torn) => return Ok((reader.header, records, Some(torn))),
        }
    }
}

/// Reads a segment record by record, up to the first damage.
pub struct Reader<R> {
    header: Header,
    lines: Lines<R>,
    path: PathBuf,
    /// The step that was last begun, and whether its decisions are still to come.
    seq: u64,
    step_open: bool,
}

/// What comes next in a segment.
#[derive(Debug)]
pub enum Next {
    Record(Record),
    /// A write that was cut short: nothing good comes after it.
    Torn(Torn),
    End,
}

impl<R: BufRead> Reader<R> {
    /// # Errors
    /// When the source has no whole header, or is of an unknown format.
    pub fn new(source: R, path: &Path) -> Result<Self, JournalError> {
        let mut lines = Lines::new(source);
        let bad = |why: String| JournalError::BadHeader { path: path.to_owned(), why };
        let line = lines.next().map_err(JournalError::io("read", path))?;
        let json = match line.map(decode) {
            None => return Err(bad("it is empty".to_owned())),
            Some(Ok(json)) => json,
            Some(Err(why)) => {
                let why = format!("its first line is no header, {why}");
                let from = (lines.line, lines.offset);
                return Err(bad(damage(&mut lines, path, Bad { why, good: 0 }, from)?.why));
            }
        };
        let header = header_of(json).map_err(|misread| match misread {
            Misread::Format(format) => JournalError::UnknownFormat { path: path.to_owned(), format },
            Misread::Json(why) => bad(format!("its first line is no header, {why}")),
        })?;
        Ok(Self { header, lines, path: path.to_owned(), seq: 0, step_open: false })
    }

    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The next record.
    ///
    /// # Errors
    /// When the source cannot be read, when a whole record says something unknown, or when good records
    /// stand after a bad one. Nothing more can be read then.
    pub fn next_record(&mut self) -> Result<Next, JournalError> {
        let mut begun: Option<Begun> = None;
        loop {
            let line = self.lines.next().map_err(JournalError::io("read", &self.path))?;
            let Some(line) = line else {
                return Ok(begun.map_or(Next::End, |begun| Next::Torn(begun.torn(self.lines.end))));
            };
            let bad = match decode(line) {
                Ok(json) => match record_of(self.header.format, json) {
                    Ok((record, part)) => match self.join(&mut begun, record, part) {
                        Ok(()) if part.0 < part.1 => continue,
                        Ok(()) => {
                            let whole = begun.take().map(|begun| begun.record);
                            return Ok(whole.map_or(Next::End, Next::Record));
                        }
                        Err(why) => Bad { why, good: 1 },
                    },
                    Err(misread) => return Err(self.unknown(misread)),
                },
                Err(why) => Bad { why: why.to_owned(), good: 0 },
            };
            // A record is kept whole or not at all.
            let from = begun.map_or((self.lines.line, self.lines.offset), |begun| begun.from);
            return damage(&mut self.lines, &self.path, bad, from).map(Next::Torn);
        }
    }

    /// The first line of a record, or the next one of it.
    fn join(&mut self, begun: &mut Option<Begun>, record: Record, part: Part) -> Result<(), String> {
        let missing = |_| "a line of a record is missing before it".to_owned();
        let Some(begun) = begun else {
            self.follow(&record)?;
            *begun = Some(Begun { record, part, from: (self.lines.line, self.lines.offset) });
            return if part.0 == 1 { Ok(()) } else { Err(missing(())) };
        };
        let is_next = part.1 == begun.part.1 && part.0 == begun.part.0.saturating_add(1);
        let joined = if is_next { begun.record.join(record) } else { Err(record) };
        begun.part = part;
        joined.map_err(|_| missing(()))
    }

    /// Facts 1, decisions 1, facts 2, …: a line that was taken out of the middle is noticed.
    fn follow(&mut self, record: &Record) -> Result<(), String> {
        let (open, seq) = (self.step_open, if self.step_open { self.seq } else { self.seq + 1 });
        let (found, facts) = match record {
            Record::Facts { seq, .. } => (*seq, true),
            Record::Decisions { seq, .. } => (*seq, false),
        };
        if found != seq || facts == open {
            let word = |facts| if facts { "facts" } else { "decisions" };
            return Err(format!("{} {seq} should stand here, not {} {found}", word(!open), word(facts)));
        }
        (self.seq, self.step_open) = (seq, !open);
        Ok(())
    }

    fn unknown(&self, misread: Misread) -> JournalError {
        let path = self.path.clone();
        match misread {
            Misread::Format(format) => JournalError::UnknownFormat { path, format },
            Misread::Json(why) => {
                let engine = self.header.engine.clone();
                JournalError::UnknownRecord { path, line: self.lines.line, engine, why }
            }
        }
    }
}

/// Looks at all that is left, to tell a torn end from damage in the middle. What is lost begins at this line and offset.
fn damage(
    lines: &mut Lines<impl BufRead>,
    path: &Path,
    bad: Bad,
    (line, offset): (u64, u64),
) -> Result<Torn, JournalError> {
    let mut good_after = bad.good;
    while let Some(line) = lines.next().map_err(JournalError::io("read", path))? {
        good_after += u64::from(decode(line).is_ok());
    }
    let torn = Torn { line, offset, why: bad.why, bytes_lost: lines.end - offset };
    if good_after > 0 {
        return Err(JournalError::Damaged { path: path.to_owned(), torn, good_after });
    }
    Ok(torn)
}

/// A line that cannot be used; `good` is 1 when the line itself is whole.
struct Bad {
    why: String,
    good: u64,
}

/// A record of which lines are still to come.
struct Begun {
    record: Record,
    /// The last line of it that was read.
    part: Part,
    /// Line and offset of its first line.
    from: (u64, u64),
}

impl Begun {
    fn torn(self, end: u64) -> Torn {
        let (line, offset) = self.from;
        Torn { line, offset, why: "the record has no end".to_owned(), bytes_lost: end - offset }
    }
}
