//! `sacct`: jobs that run, wait, or have ended.

use std::process::ExitCode;

use jiff::Zoned;
use jiff::tz::TimeZone;
use phalanx_model::{Ending, Timestamp};

use super::options::{self, After, Flag, Takes, Where, alias, ignored, refused, used};
use super::rows::{self, Meant, Row};
use super::size;
use crate::failure::Failure;
use crate::output;
use crate::verbs::Session;

use Takes::{Nothing, Value};

const FROM: Where<'static> = Where { command: "sacct", place: None };
const FORMAT: &str = "jobid,jobname,partition,account,alloccpus,state,exitcode";
const BRIEF: &str = "jobid,state,exitcode";

pub(super) const FLAGS: &[Flag] = &[
    used("jobs", 'j', Value),
    used("user", 'u', Value),
    used("allusers", 'a', Nothing),
    used("partition", 'r', Value),
    used("name", ' ', Value),
    alias("state", 's', Value, "states"),
    used("starttime", 'S', Value),
    used("endtime", 'E', Value),
    used("format", 'o', Value),
    used("brief", 'b', Nothing),
    used("noheader", 'n', Nothing),
    used("parsable", 'p', Nothing),
    used("parsable2", 'P', Nothing),
    used("delimiter", ' ', Value),
    used("helpformat", 'e', Nothing),
    ignored("allocations", 'X', Nothing, ""),
    ignored("array", ' ', Nothing, ""),
    ignored("duplicates", 'D', Nothing, ""),
    ignored("truncate", 'T', Nothing, ""),
    ignored("units", ' ', Value, ""),
    ignored("accounts", 'A', Value, "jobs have queues and no accounts"),
    ignored("verbose", 'v', Nothing, ""),
    refused(
        "json",
        ' ',
        Takes::Optional,
        "the document of Slurm has other fields",
        "`phalanx ps -a -o json`",
    ),
    refused(
        "yaml",
        ' ',
        Takes::Optional,
        "the document of Slurm has other fields",
        "`phalanx ps -a -o yaml`",
    ),
    refused(
        "long",
        'l',
        Nothing,
        "most of its fields are of steps, which are not measured",
        "--format with the fields that you need; --helpformat lists them",
    ),
    refused(
        "nodelist",
        'N',
        Value,
        "jobs are not chosen by node",
        "--format=JobID,NodeList shows the nodes of each",
    ),
    refused(
        "batch-script",
        'B',
        Nothing,
        "scripts are kept for the job alone",
        "the submitted file, whose name `scontrol show job` has",
    ),
    refused("qos", 'q', Value, "jobs are not chosen by class", "--format=JobID,QOS shows the class of each"),
    refused("timelimit-min", 'k', Value, "jobs are not chosen by limit", "--format=JobID,Timelimit"),
    refused("clusters", 'M', Value, "there is one cluster", "leave the option out"),
];

/// Fields by name, and the width of their columns; below zero for text at the left.
const FIELDS: &[(&str, i32)] = &[
    ("JobID", -12),
    ("JobIDRaw", -12),
    ("JobName", 10),
    ("Partition", 10),
    ("Account", 10),
    ("AllocCPUS", 10),
    ("NCPUS", 10),
    ("ReqCPUS", 8),
    ("State", 10),
    ("ExitCode", 8),
    ("Elapsed", 10),
    ("ElapsedRaw", 10),
    ("Start", 19),
    ("End", 19),
    ("Submit", 19),
    ("Eligible", 19),
    ("User", 9),
    ("UID", 6),
    ("NodeList", 15),
    ("NNodes", 8),
    ("AllocNodes", 10),
    ("ReqNodes", 8),
    ("AllocTRES", 10),
    ("ReqTRES", 10),
    ("ReqMem", 10),
    ("Timelimit", 10),
    ("TimelimitRaw", 12),
    ("Priority", 10),
    ("QOS", 10),
    ("WorkDir", 20),
    ("Reason", 22),
    ("DerivedExitCode", 15),
    ("Cluster", 10),
    ("SubmitLine", 20),
    ("Comment", 14),
];

#[derive(Clone, Debug)]
pub(super) struct Column {
    name: &'static str,
    width: usize,
    is_left: bool,
}

pub(super) fn sacct(session: &Session, words: &[String]) -> Result<ExitCode, Failure> {
    let given = options::read(&[FLAGS], FROM, words, After::Options)?;
    super::note(&FROM, &given);
    if given.has("helpformat") {
        output::print(&FIELDS.iter().map(|(name, _)| format!("{name}\n")).collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(word) = given.words.first() {
        return Err(FROM.refuse(&format!("{word:?} is no option"), "--jobs names jobs"));
    }
    let default = if given.has("brief") { BRIEF } else { FORMAT };
    let columns = columns(given.get("format").unwrap_or(default))?;
    let now = Zoned::now();
    let time = |flag: &str| {
        let text = given.get(flag);
        let at = text.map(|text| {
            size::moment(text, &now, size::Day::Today).map_err(|e| FROM.refuse(&format!("--{flag}: {e}"), ""))
        });
        at.transpose()
    };
    let mut meant = Meant::read(&given, FROM)?;
    // As Slurm: since midnight, unless jobs or a time are named.
    let midnight = now.start_of_day().ok().filter(|_| meant.jobs.is_empty());
    let (since, until) = (time("starttime")?.or(midnight), time("endtime")?);
    if !given.has("allusers") && !nix::unistd::getuid().is_root() {
        meant.of_user(rows::me());
    }
    let views = meant.ask(session, true, true)?;
    let within = |row: &Row| {
        let ms = |at: &Zoned| Timestamp(u64::try_from(at.timestamp().as_millisecond()).unwrap_or(0));
        let is_begun = until.as_ref().is_none_or(|until| row.view.submitted_at <= ms(until));
        is_begun && since.as_ref().is_none_or(|since| row.ended_at.is_none_or(|ended| ended >= ms(since)))
    };
    let rows: Vec<Row> =
        views.iter().flat_map(rows::of).filter(|row| meant.is_in_state(row) && within(row)).collect();
    let style = Style {
        delimiter: (given.has("parsable") || given.has("parsable2"))
            .then(|| given.get("delimiter").unwrap_or("|").to_owned()),
        ends: given.has("parsable"),
        heading: !given.has("noheader"),
    };
    output::print(&page(&columns, &rows, &style, session.out.page.now, &session.out.page.tz))?;
    Ok(ExitCode::SUCCESS)
}

/// `JobID%12,State`; a width below zero stands at the left.
fn columns(format: &str) -> Result<Vec<Column>, Failure> {
    let one = |text: &str| {
        let (name, width) = text.split_once('%').map_or((text, None), |(name, width)| (name, Some(width)));
        let Some((name, own)) = FIELDS.iter().find(|(field, _)| field.eq_ignore_ascii_case(name.trim()))
        else {
            let hint = "`sacct --helpformat` lists the fields; `phalanx bill` and `phalanx advise` say what jobs used";
            return Err(FROM.refuse(&format!("the field {name} is not supported"), hint));
        };
        let width = match width {
            Some(text) => text.parse::<i32>().map_err(|_| {
                FROM.refuse(&format!("{text:?} is no width of a column"), "such as JobName%30")
            })?,
            None => *own,
        };
        let is_left = width < 0;
        Ok(Column { name, width: usize::try_from(width.unsigned_abs()).unwrap_or(0).min(1_000), is_left })
    };
    format.split(',').filter(|text| !text.is_empty()).map(one).collect()
}

/// How lines are written.
#[derive(Clone, Debug)]
pub(super) struct Style {
    /// None: in columns.
    delimiter: Option<String>,
    /// The delimiter also ends lines.
    ends: bool,
    heading: bool,
}

fn page(columns: &[Column], rows: &[Row], style: &Style, now: Timestamp, tz: &TimeZone) -> String {
    let mut text = String::new();
    if style.heading {
        text += &line(columns, style, |column| column.name.to_owned());
        if style.delimiter.is_none() {
            text += &line(columns, style, |column| "-".repeat(column.width));
        }
    }
    for row in rows {
        text += &line(columns, style, |column| value(column.name, row, now, tz));
    }
    text
}

fn line(columns: &[Column], style: &Style, value: impl Fn(&Column) -> String) -> String {
    if let Some(delimiter) = &style.delimiter {
        let text = columns.iter().map(value).collect::<Vec<_>>().join(delimiter);
        return if style.ends { text + delimiter + "\n" } else { text + "\n" };
    }
    let cells = columns.iter().map(|column| {
        let (text, width) = (value(column), column.width);
        // A `+` says that text was cut.
        let text = match text.chars().count() {
            long if long > width && width > 0 => text.chars().take(width - 1).chain(['+']).collect(),
            _ => text,
        };
        if column.is_left { format!("{text:<width$} ") } else { format!("{text:>width$} ") }
    });
    cells.collect::<String>().trim_end().to_owned() + "\n"
}

fn value(name: &str, row: &Row, now: Timestamp, tz: &TimeZone) -> String {
    let view = &row.view;
    let gang = row.job().and_then(|job| job.gangs.first());
    let seconds = row.elapsed_ms(now) / 1_000;
    match name {
        "JobID" => row.id.clone(),
        "JobIDRaw" => view.id.to_string(),
        "JobName" => view.name.clone(),
        "Partition" | "Account" => view.queue.clone(),
        "AllocCPUS" if row.state.code == "PD" => "0".to_owned(),
        "AllocCPUS" | "NCPUS" | "ReqCPUS" => row.cpus(),
        "State" => match &row.ending {
            Some(Ending::Cancelled { by }) => format!("{} by {by}", row.state.word),
            _ => row.state.word.to_owned(),
        },
        "ExitCode" | "DerivedExitCode" => exit_code(row.ending.as_ref()),
        "Elapsed" => size::long(seconds),
        "ElapsedRaw" => seconds.to_string(),
        "Start" => size::date(row.started_at, tz),
        "End" => size::date(row.ended_at, tz),
        "Submit" | "Eligible" => size::date(Some(view.submitted_at), tz),
        "User" => view.owner.clone(),
        "UID" => view.uid.to_string(),
        "NodeList" if row.nodes.is_empty() => "None assigned".to_owned(),
        "NodeList" => row.node_list(),
        "AllocNodes" if row.nodes.is_empty() => "0".to_owned(),
        "NNodes" | "AllocNodes" | "ReqNodes" => row.node_count.to_string(),
        "AllocTRES" if row.nodes.is_empty() => String::new(),
        "AllocTRES" | "ReqTRES" => tres(row),
        "ReqMem" => gang.map_or_else(String::new, |gang| format!("{}M", gang.needs.memory_bytes >> 20)),
        "Timelimit" => row.limit_s().map_or_else(|| row.limit(), size::long),
        "TimelimitRaw" => row.limit_s().map_or_else(String::new, |seconds| (seconds / 60).to_string()),
        "Priority" => view.priority.to_string(),
        "QOS" => {
            if view.class.is_empty() {
                "normal".to_owned()
            } else {
                view.class.clone()
            }
        }
        "WorkDir" => gang.map_or_else(String::new, |gang| gang.program.workdir.clone()),
        "Reason" => row.reason.clone(),
        "Cluster" => "phalanx".to_owned(),
        "SubmitLine" => row.job().map_or_else(String::new, super::scontrol::command),
        _ => String::new(),
    }
}

/// `0:0`: the exit code, and the signal.
pub(super) fn exit_code(ending: Option<&Ending>) -> String {
    match ending {
        Some(Ending::Failed { code: Some(code), .. }) if *code > 128 && *code < 160 => {
            format!("0:{}", code - 128)
        }
        Some(Ending::Failed { code: Some(code), .. }) => format!("{code}:0"),
        Some(Ending::Failed { .. } | Ending::DependencyFailed { .. }) => "1:0".to_owned(),
        Some(Ending::Cancelled { .. } | Ending::TimeLimit | Ending::Preempted { .. }) => "0:15".to_owned(),
        _ => "0:0".to_owned(),
    }
}

/// `billing=…` is left out: `phalanx bill` has it.
pub(super) fn tres(row: &Row) -> String {
    let mut parts = vec![format!("cpu={}", row.cpus())];
    let memory = row.job().and_then(|job| job.gangs.first()).map_or(0, |gang| gang.needs.memory_bytes);
    if memory > 0 {
        parts.push(format!("mem={}M", (memory >> 20).saturating_mul(u64::from(row.node_count))));
    }
    parts.push(format!("node={}", row.node_count));
    if row.gpus() > 0 {
        parts.push(format!("gres/gpu={}", row.gpus()));
    }
    parts.join(",")
}

/// The page of the usual format.
#[cfg(test)]
pub(super) fn usual(format: Option<&str>, is_parsable: bool, rows: &[Row], now: Timestamp) -> String {
    let style = Style { delimiter: is_parsable.then(|| "|".to_owned()), ends: false, heading: true };
    page(&columns(format.unwrap_or(FORMAT)).unwrap(), rows, &style, now, &TimeZone::UTC)
}
