//! Slurm's accounting: `sacct --parsable2 --allocations --allusers --format=...` with its header. Rows of steps are parts
//! of jobs and left out.

use super::helios::ended;
use super::number::{date, milli, seconds, whole, wrong};
use super::table::{self, BadCell, Columns, Layout, Row, Zero};
use super::{Format, Trace, TraceError, TraceJob};

pub(super) const COLUMNS: &[&str] =
    &["JobID|JobIDRaw", "Submit", "Start", "Elapsed|ElapsedRaw", "State", "AllocTRES|ReqTRES"];
const LAYOUT: Layout = Layout { format: Format::Sacct, separator: b'|', columns: Columns::Named(COLUMNS) };

pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    table::read(text, &LAYOUT, Zero::Dates, |row| {
        let id = either(row, ["JobID", "JobIDRaw"])?.ok_or_else(|| BadCell::row("the job has no id"))?;
        if id.contains('.') {
            return Ok(None);
        }
        let submit_ms = row.need("Submit", date)?;
        let start = row.get("Start", moment)?.flatten();
        let ended = row.need("State", |text| Ok(ended(text)))?;
        let elapsed = match row.get("ElapsedRaw", seconds)? {
            None => row.get("Elapsed", span)?.flatten(),
            elapsed => elapsed,
        };
        let limit_ms = match row.get("TimelimitRaw", minutes)? {
            None => row.get("Timelimit", span)?,
            limit => limit,
        };
        let given = tres(row, "AllocTRES")?;
        let tres = if given == Tres::default() { tres(row, "ReqTRES")? } else { given };
        Ok(Some(TraceJob {
            user: row.string("User")?,
            queue: row.string("Partition")?,
            // What has not ended has not run as long as it will.
            run_ms: start.and(ended).and(elapsed),
            waited_ms: start.map(|start| start.saturating_sub(submit_ms)),
            limit_ms: limit_ms.flatten(),
            gpu_models: tres.models,
            nodes: tres.nodes.or(count(row, ["NNodes", "AllocNodes"])?),
            cpu_milli: tres.cpu_milli.or(count(row, ["NCPUS", "AllocCPUS"])?.map(|cpus: u64| cpus * 1_000)),
            memory_bytes: tres.memory_bytes,
            ended,
            ..TraceJob::new(id.to_owned(), submit_ms, tres.gpus)
        }))
    })
}

/// The first of two columns that says something.
fn either<'a>(row: &Row<'a>, columns: [&'static str; 2]) -> Result<Option<&'a str>, BadCell> {
    let [first, second] = columns;
    Ok(row.text(first)?.or(row.text(second)?))
}

fn count<T: TryFrom<u64>>(row: &Row<'_>, columns: [&'static str; 2]) -> Result<Option<T>, BadCell> {
    let [first, second] = columns;
    Ok(row.get(first, whole)?.or(row.get(second, whole)?))
}

/// A date, and none of what did not happen yet.
fn moment(text: &str) -> Result<Option<u64>, String> {
    if matches!(text, "Unknown" | "None") { Ok(None) } else { date(text).map(Some) }
}

fn minutes(text: &str) -> Result<Option<u64>, String> {
    if is_open(text) { Ok(None) } else { Ok(Some(seconds(text)?.saturating_mul(60))) }
}

fn is_open(text: &str) -> bool {
    matches!(text, "UNLIMITED" | "Partition_Limit" | "INVALID")
}

/// `[days-][hours:]minutes:seconds`; none where there is no bound.
fn span(text: &str) -> Result<Option<u64>, String> {
    if is_open(text) {
        return Ok(None);
    }
    let bad = || wrong(text, "is no time such as 1-02:03:04");
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let parts: Vec<&str> = clock.split(':').collect();
    let (hours, minutes, rest) = match parts.as_slice() {
        [hours, minutes, rest] => (*hours, *minutes, *rest),
        [minutes, rest] => ("0", *minutes, *rest),
        _ => return Err(bad()),
    };
    let number = |text: &str| whole::<u32>(text).map(u64::from).map_err(|_| bad());
    let minutes = (number(days)? * 24 + number(hours)?) * 60 + number(minutes)?;
    Ok(Some(minutes * 60_000 + seconds(rest).map_err(|_| bad())?))
}

/// Trackable resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tres {
    gpus: u32,
    models: Vec<String>,
    nodes: Option<u32>,
    cpu_milli: Option<u64>,
    memory_bytes: Option<u64>,
}

/// `cpu=16,gres/gpu=4,gres/gpu:a100=4,mem=64G,node=2`. `gres/gpu` counts all, those with a model among them; some sites
/// have the latter alone.
fn tres(row: &Row<'_>, column: &'static str) -> Result<Tres, BadCell> {
    let read = |text: &str| {
        let mut tres = Tres::default();
        let (mut all, mut named) = (None, 0_u32);
        for (name, amount) in text.split(',').filter_map(|part| part.split_once('=')) {
            match name.split_once("gres/gpu:") {
                Some(("", model)) => {
                    named = named.saturating_add(table::gpus(amount)?);
                    tres.models.push(model.to_owned());
                }
                _ if name == "gres/gpu" => all = Some(table::gpus(amount)?),
                _ if name == "cpu" => tres.cpu_milli = Some(milli(amount)?),
                _ if name == "node" => tres.nodes = Some(whole(amount)?),
                _ if name == "mem" => tres.memory_bytes = Some(memory(amount)?),
                _ => {}
            }
        }
        tres.gpus = all.unwrap_or(named);
        Ok(tres)
    };
    Ok(row.get(column, read)?.unwrap_or_default())
}

/// Slurm's units are powers of 1,024, and megabytes where it names none.
fn memory(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, unit)) if unit.is_ascii_alphabetic() => (text.get(..at).unwrap_or_default(), unit),
        _ => (text, 'M'),
    };
    let shift = match unit {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        'P' => 50,
        _ => return Err(wrong(text, "is no amount of memory such as 64G")),
    };
    super::binary(number, shift).map_err(|_| wrong(text, "is no amount of memory such as 64G"))
}
