//! The Standard Workload Format, version 2.2 (<https://www.cs.huji.ac.il/labs/parallel/workload/swf.html>): 18 fields
//! between blanks, −1 for what is not known, comments behind `;`. It counts processors and knows no devices.

use super::number::{milli, seconds, whole};
use super::table::{BadCell, Collector, Zero};
use super::{Ended, Format, LINE_BYTES_MAX, Trace, TraceError, TraceJob};

/// As the format numbers them, from 1.
const FIELDS: [&str; 18] = [
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
];

/// Whether a line has as many numbers.
pub(super) fn is_row(line: &str) -> bool {
    let is_number = |text: &str| text == "-1" || milli(text).is_ok();
    line.split_whitespace().count() == FIELDS.len() && line.split_whitespace().all(is_number)
}

pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    let mut jobs = Collector::new(Format::Swf);
    let mut start_unix_ms = None;
    for (line, text) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let text = text.trim_ascii();
        if let Some(comment) = text.strip_prefix(b";") {
            start_unix_ms = start_unix_ms.or_else(|| start_time(comment));
        } else if !text.is_empty() {
            jobs.add(line, row(text).map(|job| job.map(|job| TraceJob { row: line, ..job })))?;
        }
    }
    Ok(Trace { start_unix_ms, ..jobs.finish(Zero::Kept)? })
}

/// The header `UnixStartTime`; 0 where the log does not know it.
fn start_time(comment: &[u8]) -> Option<u64> {
    let (name, value) = std::str::from_utf8(comment).ok()?.split_once(':')?;
    let is_start = name.trim().eq_ignore_ascii_case("UnixStartTime");
    is_start.then(|| seconds(value.split_whitespace().next()?).ok()).flatten().filter(|start| *start > 0)
}

fn row(text: &[u8]) -> Result<Option<TraceJob>, BadCell> {
    if text.len() as u64 > LINE_BYTES_MAX {
        return Err(BadCell::row(format!("the row has more than {LINE_BYTES_MAX} bytes")));
    }
    let text = std::str::from_utf8(text).map_err(|_| BadCell::row("the row is not UTF-8"))?;
    let cells: Vec<&str> = text.split_whitespace().collect();
    let cells: &[&str; FIELDS.len()] = cells.as_slice().try_into().map_err(|_| {
        BadCell::row(format!("the row has {} fields, and {} are expected", cells.len(), FIELDS.len()))
    })?;
    let [
        id,
        submit,
        wait,
        run,
        given,
        _,
        used_memory,
        asked,
        limit,
        asked_memory,
        status,
        user,
        _,
        _,
        queue,
        ..,
    ] = cells;
    // Status 2 to 4 are parts of a job whose sum stands in a row of its own.
    if matches!(*status, "2" | "3" | "4") {
        return Ok(None);
    }
    let field = |number: usize| FIELDS.get(number - 1).copied();
    let time =
        |number, text| known(text, seconds).map_err(|problem| BadCell { field: field(number), problem });
    let count =
        |number, text| known(text, whole::<u64>).map_err(|problem| BadCell { field: field(number), problem });
    let processors = count(5, given)?.filter(|given| *given > 0).or(count(8, asked)?);
    let kilobytes = count(10, asked_memory)?.or(count(7, used_memory)?);
    let submit_ms =
        time(2, submit)?.ok_or_else(|| BadCell { field: field(2), problem: "is not known".to_owned() })?;
    let name = |text: &str| (text != "-1").then(|| text.to_owned());
    Ok(Some(TraceJob {
        user: name(user),
        queue: name(queue),
        run_ms: time(4, run)?,
        waited_ms: time(3, wait)?,
        limit_ms: time(9, limit)?,
        cpu_milli: processors.map(|processors| processors.saturating_mul(1_000)),
        memory_bytes: processors
            .zip(kilobytes)
            .map(|(count, each)| count.saturating_mul(each).saturating_mul(1_024)),
        ended: ended(status),
        ..TraceJob::new((*id).to_owned(), submit_ms, 0)
    }))
}

fn known<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == "-1" { Ok(None) } else { read(text).map(Some) }
}

fn ended(status: &str) -> Option<Ended> {
    match status {
        "0" => Some(Ended::Failed),
        "1" => Some(Ended::Completed),
        "5" => Some(Ended::Cancelled),
        _ => None,
    }
}
