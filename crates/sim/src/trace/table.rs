//! Tables of separated cells, row by row: what all readers of such files share.

use std::collections::BTreeMap;

use super::number::{self, shown, wrong};
use super::{BadRow, Format, GPUS_MAX, LINE_BYTES_MAX, ROWS_MAX, Trace, TraceError, TraceJob};

/// How a format writes its rows.
pub(super) struct Layout {
    pub(super) format: Format,
    pub(super) separator: u8,
    pub(super) columns: Columns,
}

/// Where a format's cells stand.
pub(super) enum Columns {
    /// The first line names them. These have to be there, in any order; `a|b` is either.
    Named(&'static [&'static str]),
    /// No line names them: these, in this order.
    Fixed(&'static [&'static str]),
}

/// Where time 0 of a trace lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zero {
    /// Where the file has it.
    Kept,
    /// At the first submission.
    First,
    /// At the first submission; times of the file count from 1970.
    Dates,
}

/// What is wrong with one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadCell {
    pub(super) field: Option<&'static str>,
    pub(super) problem: String,
}

impl BadCell {
    pub(super) fn row(problem: impl Into<String>) -> Self {
        Self { field: None, problem: problem.into() }
    }
}

/// One row. Cells are trimmed, and an empty one is absent.
pub(super) struct Row<'a> {
    /// Of the file, from 1.
    pub(super) line: u64,
    columns: &'a BTreeMap<String, usize>,
    cells: &'a csv::ByteRecord,
}

impl<'a> Row<'a> {
    /// The text of a cell, where the file has the column and the row says something there.
    pub(super) fn text(&self, column: &'static str) -> Result<Option<&'a str>, BadCell> {
        let Some(cell) = self.columns.get(column).and_then(|at| self.cells.get(*at)) else { return Ok(None) };
        let text = std::str::from_utf8(cell)
            .map_err(|_| BadCell { field: Some(column), problem: "is not UTF-8".to_owned() })?;
        Ok(Some(text.trim()).filter(|text| !text.is_empty()))
    }

    /// A cell as `read` reads it.
    pub(super) fn get<T>(
        &self,
        column: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, BadCell> {
        let read = |text| read(text).map_err(|problem| BadCell { field: Some(column), problem });
        self.text(column)?.map(read).transpose()
    }

    /// A cell that has to be there.
    pub(super) fn need<T>(
        &self,
        column: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, BadCell> {
        let missing = || BadCell { field: Some(column), problem: "is empty".to_owned() };
        self.get(column, read)?.ok_or_else(missing)
    }

    pub(super) fn string(&self, column: &'static str) -> Result<Option<String>, BadCell> {
        Ok(self.text(column)?.map(str::to_owned))
    }

    /// The name of the job.
    pub(super) fn id(&self, column: &'static str) -> Result<String, BadCell> {
        self.need(column, |text| Ok(text.to_owned()))
    }

    /// A number of devices.
    pub(super) fn gpus(&self, column: &'static str) -> Result<u32, BadCell> {
        self.need(column, gpus)
    }
}

/// A number of devices.
pub(super) fn gpus(text: &str) -> Result<u32, String> {
    let gpus = number::whole(text)?;
    if gpus <= GPUS_MAX { Ok(gpus) } else { Err(wrong(text, &format!("is more than {GPUS_MAX} devices"))) }
}

/// Reads a trace of one job in each row. A row that is no job, such as a step of one, is `None`, and not counted.
pub(super) fn read(
    text: &[u8],
    layout: &Layout,
    zero: Zero,
    job: impl Fn(&Row<'_>) -> Result<Option<TraceJob>, BadCell>,
) -> Result<Trace, TraceError> {
    let mut jobs = Collector::new(layout.format);
    rows(text, layout, |line, row| {
        let row = row.and_then(|row| job(&row)).map(|job| job.map(|job| TraceJob { row: line, ..job }));
        jobs.add(line, row)
    })?;
    jobs.finish(zero)
}

/// Hands each row that holds something to `take`, with its line.
pub(super) fn rows(
    text: &[u8],
    layout: &Layout,
    mut take: impl FnMut(u64, Result<Row<'_>, BadCell>) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    // Tabs separate what programs wrote, commands with quotes among it; nothing is quoted there, nor by Slurm.
    let quoting = layout.separator == b',';
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(layout.separator)
        .quoting(quoting)
        .from_reader(text);
    let (mut record, mut lines) = (csv::ByteRecord::new(), Lines { text, at: 0, line: 1 });
    let mut columns: Option<BTreeMap<String, usize>> = match layout.columns {
        Columns::Fixed(names) => Some(names.iter().map(|name| (*name).to_owned()).zip(0..).collect()),
        Columns::Named(_) => None,
    };
    let mut width = columns.as_ref().map_or(0, BTreeMap::len);
    loop {
        let begin = reader.position().byte();
        // Reading from memory and being flexible, nothing is left that could fail.
        if !reader.read_byte_record(&mut record).unwrap_or(false) {
            break;
        }
        let line = lines.line_of(begin);
        if record.iter().all(|cell| cell.trim_ascii().is_empty()) {
            continue;
        }
        let Some(columns) = &columns else {
            columns = Some(header(&record, layout)?);
            width = record.len();
            continue;
        };
        let bytes = reader.position().byte() - begin;
        let row = if bytes > LINE_BYTES_MAX {
            Err(BadCell::row(format!(
                "the row has {bytes} bytes, and at most {LINE_BYTES_MAX} are read; is a quote not closed?"
            )))
        } else if record.len() == width {
            Ok(Row { line, columns, cells: &record })
        } else {
            let cells = String::from_utf8_lossy(record.get(0).unwrap_or_default()).into_owned();
            let count = record.len();
            Err(BadCell::row(format!(
                "the row that begins with {:?} has {count} cells, and {width} are expected",
                shown(&cells)
            )))
        };
        take(line, row)?;
    }
    if columns.is_none() { Err(TraceError::Empty) } else { Ok(()) }
}

/// Where the columns stand that the first row names; the first of equal names.
fn header(record: &csv::ByteRecord, layout: &Layout) -> Result<BTreeMap<String, usize>, TraceError> {
    let mut columns = BTreeMap::new();
    for (cell, at) in record.iter().zip(0..) {
        columns.entry(String::from_utf8_lossy(cell).trim().to_owned()).or_insert(at);
    }
    let Columns::Named(needed) = layout.columns else { return Ok(columns) };
    let missing: Vec<&str> = needed
        .iter()
        .copied()
        .filter(|name| !name.split('|').any(|name| columns.contains_key(name)))
        .collect();
    if missing.is_empty() {
        return Ok(columns);
    }
    let found: Vec<String> = record.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect();
    Err(TraceError::Header {
        format: layout.format,
        missing: missing.join(", "),
        found: shown(&found.join(",")),
    })
}

/// Lines of the file by the byte where they begin, asked in rising order.
struct Lines<'a> {
    text: &'a [u8],
    at: usize,
    line: u64,
}

impl Lines<'_> {
    /// The line of the first byte from `byte` on that ends no line.
    fn line_of(&mut self, byte: u64) -> u64 {
        let byte = usize::try_from(byte).unwrap_or(usize::MAX);
        while let Some(next) = self.text.get(self.at)
            && (self.at < byte || matches!(next, b'\n' | b'\r'))
        {
            self.line += u64::from(*next == b'\n');
            self.at += 1;
        }
        self.line
    }
}

/// Jobs and bad rows as they come.
pub(super) struct Collector {
    format: Format,
    jobs: Vec<TraceJob>,
    bad: Vec<BadRow>,
    rows: u64,
}

impl Collector {
    pub(super) const fn new(format: Format) -> Self {
        Self { format, jobs: Vec::new(), bad: Vec::new(), rows: 0 }
    }

    pub(super) fn add(
        &mut self,
        line: u64,
        job: Result<Option<TraceJob>, BadCell>,
    ) -> Result<(), TraceError> {
        match job {
            Ok(Some(job)) => self.jobs.push(job),
            Ok(None) => return Ok(()),
            Err(BadCell { field, problem }) => {
                let field = field.map(str::to_owned);
                self.bad.push(BadRow { row: line, field, problem });
            }
        }
        self.rows += 1;
        if self.rows > ROWS_MAX { Err(TraceError::TooManyRows) } else { Ok(()) }
    }

    /// Rows that became part of another job: counted, and no job.
    pub(super) const fn count(&mut self, rows: u64) {
        self.rows += rows;
    }

    /// Puts the jobs in order, and time 0 where it belongs.
    pub(super) fn finish(mut self, zero: Zero) -> Result<Trace, TraceError> {
        self.refuse_repeated();
        if self.jobs.is_empty() {
            let first = self.bad.into_iter().next().ok_or(TraceError::Empty)?;
            return Err(TraceError::NothingGood { format: self.format, rows: self.rows, first });
        }
        self.jobs.sort_by_key(|job| job.submit_ms);
        let first = self.jobs.first().map_or(0, |job| job.submit_ms);
        if zero != Zero::Kept {
            for job in &mut self.jobs {
                job.submit_ms -= first;
                job.deadline_ms = job.deadline_ms.map(|at| at.saturating_sub(first));
            }
        }
        self.bad.sort_by_key(|bad| bad.row);
        let start_unix_ms = (zero == Zero::Dates).then_some(first);
        Ok(Trace { jobs: self.jobs, bad: self.bad, rows: self.rows, start_unix_ms, generated: &[] })
    }

    /// A job's name stands for one job: later ones of the same name are bad rows.
    fn refuse_repeated(&mut self) {
        let mut by_id: Vec<usize> = (0..self.jobs.len()).collect();
        let key = |at: &usize| self.jobs.get(*at).map(|job| (job.id.as_str(), job.row));
        by_id.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        let mut repeated = vec![false; self.jobs.len()];
        let mut first: Option<&TraceJob> = None;
        for at in by_id {
            let Some(job) = self.jobs.get(at) else { continue };
            match first {
                Some(known) if known.id == job.id => {
                    let problem =
                        format!("a job with the id {:?} stands in row {}", shown(&job.id), known.row);
                    self.bad.push(BadRow { row: job.row, field: None, problem });
                    if let Some(repeated) = repeated.get_mut(at) {
                        *repeated = true;
                    }
                }
                _ => first = Some(job),
            }
        }
        let mut at = repeated.into_iter();
        self.jobs.retain(|_| !at.next().unwrap_or(false));
    }
}
