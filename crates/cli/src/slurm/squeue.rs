//! `squeue`: jobs that wait and run.

use std::process::ExitCode;

use jiff::tz::TimeZone;
use phalanx_model::Timestamp;

use super::list::{self, Column};
use super::options::{self, After, Flag, Takes, Where, ignored, refused, used};
use super::rows::{self, Meant, Row};
use super::size;
use crate::failure::Failure;
use crate::output;
use crate::verbs::Session;

use Takes::{Nothing, Value};

const FROM: Where<'static> = Where { command: "squeue", place: None };
const SHORT: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const LONG: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
const STARTS: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";
/// The letters of columns that need more than a list of jobs says.
const IN_FULL: &str = "lLCbmoZckh";

pub(super) const FLAGS: &[Flag] = &[
    used("jobs", 'j', Value),
    used("user", 'u', Value),
    used("me", ' ', Nothing),
    used("partition", 'p', Value),
    used("name", 'n', Value),
    used("states", 't', Value),
    used("noheader", 'h', Nothing),
    used("format", 'o', Value),
    used("long", 'l', Nothing),
    used("start", ' ', Nothing),
    used("array", 'r', Nothing),
    used("sort", 'S', Value),
    ignored("all", 'a', Nothing, ""),
    ignored("account", 'A', Value, "jobs have queues and no accounts"),
    ignored("array-unique", ' ', Nothing, ""),
    ignored("verbose", 'v', Nothing, ""),
    refused("json", ' ', Takes::Optional, "the document of Slurm has other fields", "`phalanx ps -o json`"),
    refused("yaml", ' ', Takes::Optional, "the document of Slurm has other fields", "`phalanx ps -o yaml`"),
    refused("Format", 'O', Value, "columns are named by letters", "--format, such as \"%i %j %T %M %R\""),
    refused("iterate", 'i', Value, "the list is printed once", "`phalanx top`, or `watch squeue`"),
    refused("steps", 's', Takes::Optional, "steps are not listed", "leave the option out"),
    refused(
        "nodelist",
        'w',
        Value,
        "jobs are not listed by node",
        "`phalanx nodes -o wide` says which jobs a node runs",
    ),
    refused(
        "qos",
        'q',
        Value,
        "jobs are not listed by class",
        "`phalanx ps -o json` has the class of each job",
    ),
    refused("reservation", 'R', Value, "there are no named reservations", "leave the option out"),
    refused("licenses", 'L', Value, "licenses are not counted", "leave the option out"),
    refused("clusters", 'M', Value, "there is one cluster", "leave the option out"),
];

pub(super) fn squeue(session: &Session, words: &[String]) -> Result<ExitCode, Failure> {
    let given = options::read(&[FLAGS], FROM, words, After::Options)?;
    super::note(&FROM, &given);
    if let Some(word) = given.words.first() {
        return Err(FROM.refuse(&format!("{word:?} is no option"), "--jobs names jobs"));
    }
    let format = match given.get("format") {
        Some(format) => format,
        None if given.has("start") => STARTS,
        None if given.has("long") => LONG,
        None => SHORT,
    };
    let columns = columns(format)?;
    let meant = Meant::read(&given, FROM)?;
    let finished = given.has("states");
    let in_full = columns.iter().any(|column| IN_FULL.contains(column.of));
    let views = meant.ask(session, finished, in_full)?;
    let mut rows: Vec<Row> = views.iter().flat_map(rows::of).filter(|row| meant.is_in_state(row)).collect();
    if !finished {
        // Of arrays also those tasks are known that have ended.
        rows.retain(|row| row.ended_at.is_none());
    }
    if given.has("start") {
        rows.retain(|row| row.state.code == "PD");
    }
    if given.has("array") {
        rows.sort_by_key(|row| (row.view.id, row.task));
    } else {
        // As Slurm: first those that wait.
        rows.sort_by_key(|row| (row.state.code != "PD", row.view.id, row.task));
    }
    sort(&mut rows, given.get("sort"))?;
    output::print(&page(
        &columns,
        &rows,
        !given.has("noheader"),
        session.out.page.now,
        &session.out.page.tz,
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn columns(format: &str) -> Result<Vec<Column<char>>, Failure> {
    list::read(format, FROM, |letter| heading(letter).map(|_| letter))
}

/// By the letters of columns, a `-` before one turns it round. The last letter is the weakest.
fn sort(rows: &mut [Row], by: Option<&str>) -> Result<(), Failure> {
    for key in by.into_iter().flat_map(|by| by.rsplit(',')) {
        let (is_down, letter) =
            key.strip_prefix('-').map_or((false, key.trim_start_matches('+')), |rest| (true, rest));
        match letter {
            "i" => rows.sort_by_key(|row| (row.view.id, row.task)),
            "j" => rows.sort_by(|a, b| a.view.name.cmp(&b.view.name)),
            "u" => rows.sort_by(|a, b| a.view.owner.cmp(&b.view.owner)),
            "P" => rows.sort_by(|a, b| a.view.queue.cmp(&b.view.queue)),
            "t" | "T" => rows.sort_by_key(|row| row.state.code),
            "p" | "Q" => rows.sort_by_key(|row| row.view.priority),
            "S" => rows.sort_by_key(|row| row.started_at.or(row.estimated_start)),
            "V" => rows.sort_by_key(|row| row.view.submitted_at),
            "D" => rows.sort_by_key(|row| row.node_count),
            other => {
                return Err(FROM
                    .refuse(&format!("--sort={other} is not supported"), "by i, j, u, P, t, p, S, V or D"));
            }
        }
        if is_down {
            rows.reverse();
        }
    }
    Ok(())
}

pub(super) fn page(
    columns: &[Column<char>],
    rows: &[Row],
    has_heading: bool,
    now: Timestamp,
    tz: &TimeZone,
) -> String {
    let heading =
        has_heading.then(|| list::line(columns, |letter| heading(*letter).unwrap_or_default().to_owned()));
    let lines = rows.iter().map(|row| list::line(columns, |letter| value(*letter, row, now, tz)));
    heading.into_iter().chain(lines).collect()
}

fn heading(letter: char) -> Option<&'static str> {
    Some(match letter {
        'i' | 'A' => "JOBID",
        'F' => "ARRAY_JOB_ID",
        'K' => "ARRAY_TASK_ID",
        'j' => "NAME",
        'u' => "USER",
        'U' => "UID",
        'P' => "PARTITION",
        'a' => "ACCOUNT",
        'q' => "QOS",
        't' => "ST",
        'T' => "STATE",
        'M' => "TIME",
        'l' => "TIME_LIMIT",
        'L' => "TIME_LEFT",
        'D' => "NODES",
        'C' => "CPUS",
        'b' => "TRES_PER_NODE",
        'm' => "MIN_MEMORY",
        'R' => "NODELIST(REASON)",
        'N' => "NODELIST",
        'r' => "REASON",
        'S' => "START_TIME",
        'e' => "END_TIME",
        'V' => "SUBMIT_TIME",
        'Q' | 'p' => "PRIORITY",
        'y' => "NICE",
        'Y' => "SCHEDNODES",
        'o' => "COMMAND",
        'Z' => "WORK_DIR",
        'c' => "MIN_CPUS",
        'k' => "COMMENT",
        'h' => "OVER_SUBSCRIBE",
        _ => return None,
    })
}

fn value(letter: char, row: &Row, now: Timestamp, tz: &TimeZone) -> String {
    let view = &row.view;
    let elapsed = row.elapsed_ms(now) / 1_000;
    let gang = row.job().and_then(|job| job.gangs.first());
    let unknown = || "N/A".to_owned();
    let date = |at: Option<Timestamp>| at.map_or_else(unknown, |at| size::date(Some(at), tz));
    match letter {
        'i' => row.id.clone(),
        'A' | 'F' => view.id.to_string(),
        'K' => row.task.map_or_else(unknown, |task| task.to_string()),
        'j' => view.name.clone(),
        'u' => view.owner.clone(),
        'U' => view.uid.to_string(),
        'P' | 'a' => view.queue.clone(),
        'q' => {
            if view.class.is_empty() {
                "normal".to_owned()
            } else {
                view.class.clone()
            }
        }
        't' => row.state.code.to_owned(),
        'T' => row.state.word.to_owned(),
        'M' => size::elapsed(elapsed),
        'l' => row.limit(),
        'L' => {
            row.limit_s().map_or_else(|| row.limit(), |limit| size::elapsed(limit.saturating_sub(elapsed)))
        }
        'D' => row.node_count.to_string(),
        'C' | 'c' => row.cpus(),
        'b' => row.tres(),
        'm' => gang.map_or_else(unknown, |gang| format!("{}M", gang.needs.memory_bytes >> 20)),
        'R' => row.place_or_reason(),
        'N' => row.node_list(),
        'r' => row.reason.clone(),
        'S' => date(row.started_at.or(row.estimated_start)),
        'e' => {
            let ends =
                row.started_at.zip(row.limit_s()).map(|(at, limit)| at.plus(limit.saturating_mul(1_000)));
            date(row.ended_at.or(ends))
        }
        'V' => date(Some(view.submitted_at)),
        'Q' | 'p' => view.priority.to_string(),
        'y' => view.priority.saturating_neg().to_string(),
        'Y' => "(null)".to_owned(),
        'o' => row.job().map_or_else(unknown, super::scontrol::command),
        'Z' => gang.map_or_else(unknown, |gang| gang.program.workdir.clone()),
        'k' => "(null)".to_owned(),
        'h' => gang.map_or_else(unknown, |gang| if gang.needs.is_exclusive { "NO" } else { "OK" }.to_owned()),
        _ => String::new(),
    }
}

/// The page of the usual format.
#[cfg(test)]
pub(super) fn usual(format: Option<&str>, rows: &[Row], now: Timestamp) -> String {
    page(&columns(format.unwrap_or(SHORT)).unwrap(), rows, true, now, &TimeZone::UTC)
}
