//! What would change, for a person.

use phalanx_model::show::milli;
use phalanx_model::{GangId, NodeName, Timestamp};

use super::super::paper::{Paper, about};
use super::{Answer, QueueRow, Row, SAME_MS};
use crate::ahead::{Course, QueueCourse, Wait};

/// Gangs in one part of the answer.
const ROWS_MAX: usize = 50;
/// Nodes that are named of one place.
const NODES_MAX: usize = 4;

pub(super) fn table(answer: &Answer, is_all: bool, paper: &Paper) -> String {
    let mut text = head(answer, paper);
    text += &at_once(answer, paper);
    text += &later(answer, paper);
    text += &waits(answer, paper);
    text += &gangs(answer, is_all, paper);
    text += &queues(answer, paper);
    text
}

fn head(answer: &Answer, paper: &Paper) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let mut changes = answer.changes.iter();
    rows.push(("what if", changes.next().map_or("nothing is changed", String::as_str).to_owned()));
    rows.extend(changes.map(|change| ("", change.clone())));
    let name = answer.inputs.first().map_or("", |input| input.name.as_str());
    let (date, horizon) = (paper.date(answer.from), about(answer.horizon_ms));
    let from =
        format!("{name} as of {date}, for {horizon}; phalanx {} decides, nothing is done", answer.version);
    rows.push(("from", from));
    rows.push(("predicted", answer.assumptions.join("; ")));
    let sums = sums(answer);
    if !sums.is_empty() {
        rows.push(("in all", sums.join(", ")));
    }
    rows.into_iter().map(|(key, text)| paper.hang(&format!("{key:9}"), &text)).collect()
}

/// How many gangs fare otherwise, and by how much those that wait.
fn sums(answer: &Answer) -> Vec<String> {
    let both = || answer.gangs.iter().filter_map(|row| Some((row.as_is.as_ref()?, row.then.as_ref()?)));
    let mut said = Vec::new();
    let mut say = |count: usize, what: String| {
        if count > 0 {
            said.push(format!("{count} {what}"));
        }
    };
    let displaced = both().filter(|(as_is, then)| then.stops.len() > as_is.stops.len()).count();
    say(displaced, "preempted or moved".to_owned());
    let starts = || both().filter(|(as_is, _)| !as_is.is_running);
    let shifts = |is_sooner: bool| -> Vec<u64> {
        let shift = |(as_is, then): (&Course, &Course)| {
            let (before, after) = (as_is.starts.first()?.at, then.starts.first()?.at);
            let ms = if is_sooner { before.since(after) } else { after.since(before) };
            (ms >= SAME_MS).then_some(ms)
        };
        starts().filter_map(shift).collect()
    };
    for (word, shifts) in [("sooner", shifts(true)), ("later", shifts(false))] {
        let mean = shifts.iter().sum::<u64>().checked_div(shifts.len() as u64).unwrap_or(0);
        say(shifts.len(), format!("start {word} ({} in the mean)", about(mean)));
    }
    let within = about(answer.horizon_ms);
    let starts_only = |which: fn(&Course, &Course) -> bool| starts().filter(|(a, b)| which(a, b)).count();
    say(
        starts_only(|as_is, then| as_is.starts.is_empty() && !then.starts.is_empty()),
        format!("start within {within} that would not"),
    );
    say(
        starts_only(|as_is, then| !as_is.starts.is_empty() && then.starts.is_empty()),
        format!("do not start within {within} that would"),
    );
    said
}

/// What the engine would decide in the moment of the changes.
fn at_once(answer: &Answer, paper: &Paper) -> String {
    let now = answer.from;
    let mut rows = Vec::new();
    for (id, course) in changed_courses(answer) {
        if let Some(start) = course.starts.first().filter(|start| start.at == now && !course.is_running) {
            rows.push(row("starts", id, course, &format!("on {}", nodes(&start.nodes))));
        }
        for stop in course.stops.iter().filter(|stop| stop.at == now) {
            let word = if stop.eviction.is_some() { "preempted" } else { "moved" };
            let back = course.starts.first().map(|start| format!("; starts again {}", ahead(now, start.at)));
            rows.push(row(word, id, course, &format!("{}{}", stop.why, back.unwrap_or_default())));
        }
    }
    section("at once", &rows, paper)
}

/// Those that make way later on, and would not as it is.
fn later(answer: &Answer, paper: &Paper) -> String {
    let mut rows = Vec::new();
    for row_of in answer.gangs.iter().filter(|row| !answer.changes.is_empty() || row.then.is_some()) {
        let Some(course) = &row_of.then else { continue };
        let before = row_of.as_is.as_ref().map_or(0, |course| course.stops.len());
        if course.stops.len() <= before && !answer.changes.is_empty() {
            continue;
        }
        for stop in course.stops.iter().filter(|stop| stop.at > answer.from && stop.eviction.is_some()) {
            rows.push(row(&ahead(answer.from, stop.at), row_of.gang, course, &stop.why));
        }
    }
    section("preempted later", &rows, paper)
}

/// Who would wait then, for what, and until when.
fn waits(answer: &Answer, paper: &Paper) -> String {
    let row_of = |row_of: &Row| {
        let course = row_of.then.as_ref()?;
        let Wait { reason, sentence } = course.waits.as_ref()?;
        let until = match course.starts.first() {
            Some(start) => format!("starts {}", ahead(answer.from, start.at)),
            None => match course.ending {
                Some(ending) => ending.to_owned(),
                None => format!("not within {}", about(answer.horizon_ms)),
            },
        };
        Some(row(&until, row_of.gang, course, &format!("{reason}: {sentence}")))
    };
    let rows: Vec<Vec<String>> = answer.gangs.iter().filter_map(row_of).collect();
    section("waits", &rows, paper)
}

fn gangs(answer: &Answer, is_all: bool, paper: &Paper) -> String {
    let is_forecast = answer.changes.is_empty();
    let is_shown = |row: &&Row| is_all || is_forecast || !row.change.is_empty();
    let shown: Vec<&Row> = answer.gangs.iter().filter(is_shown).collect();
    let left = answer.gangs.len() - shown.len();
    let mut rows = Vec::new();
    for row in shown.iter().take(ROWS_MAX) {
        let Some(course) = row.then.as_ref().or(row.as_is.as_ref()) else { continue };
        let said = |course: &Option<Course>| {
            course.as_ref().map_or_else(String::new, |course| phrase(course, answer.from, answer.horizon_ms))
        };
        let mut cells = vec![
            name(row.gang),
            course.job.clone(),
            course.queue.to_string(),
            course.devices.to_string(),
            said(&row.as_is),
        ];
        if !is_forecast {
            cells.extend([said(&row.then), row.change.clone()]);
        }
        rows.push(cells);
    }
    let headings: &[&str] = if is_forecast {
        &[">JOB", "NAME", "QUEUE", ">GPUS", "TO BE EXPECTED"]
    } else {
        &[">JOB", "NAME", "QUEUE", ">GPUS", "AS IT IS", "THEN", "CHANGE"]
    };
    let mut text = String::new();
    if !rows.is_empty() {
        text = format!("\n{}", paper.table(headings, &rows));
    }
    if shown.len() > ROWS_MAX {
        text += &format!("and {} more; `-o json` has all\n", shown.len() - ROWS_MAX);
    }
    if left > 0 {
        let (verb, all) =
            if left == 1 { ("changes for 1 gang", "it") } else { ("changes for others", "them") };
        let count = if left == 1 { String::new() } else { format!(" ({left} gangs)") };
        text += &format!("nothing {verb}{count}; `--all` shows {all}\n");
    }
    text
}

fn queues(answer: &Answer, paper: &Paper) -> String {
    if answer.queues.is_empty() {
        return String::new();
    }
    let is_forecast = answer.changes.is_empty();
    let both = |row: &QueueRow, of: &dyn Fn(&QueueCourse) -> String| {
        let (before, after) = (row.as_is.as_ref().map(of), row.then.as_ref().map(of));
        match (before, after) {
            (Some(before), Some(after)) if before == after || is_forecast => after,
            (before, after) => {
                let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
                format!("{} -> {}", or_none(before), or_none(after))
            }
        }
    };
    let hours = |queue: &QueueCourse| {
        let tenths = (queue.held_device_ms + 180_000) / 360_000;
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    let share = |queue: &QueueCourse| {
        let all = u128::from(queue.capacity) * u128::from(answer.horizon_ms) / 1_000;
        let percent = u128::from(queue.held_device_ms) * 100 / all.max(1);
        format!("{percent}%")
    };
    let row = |row: &QueueRow| {
        let queue = row.then.as_ref().or(row.as_is.as_ref())?;
        let indent = "  ".repeat(usize::try_from(queue.depth).unwrap_or(0));
        Some(vec![
            format!("{indent}{}", queue.name),
            both(row, &|queue| milli(queue.weight_milli)),
            both(row, &|queue| milli(queue.guaranteed)),
            both(row, &|queue| queue.due.map_or_else(|| "-".to_owned(), milli)),
            both(row, &|queue| milli(queue.used)),
            both(row, &hours),
            both(row, &share),
        ])
    };
    let rows: Vec<Vec<String>> = answer.queues.iter().filter_map(row).collect();
    let headings = ["QUEUE", ">WEIGHT", ">GUARANTEED", ">DUE", ">USED", ">GPU HOURS", "OF ALL"];
    format!("\n{}", paper.table(&headings, &rows))
}

/// Courses after the changes, of those that go another way than they would.
fn changed_courses(answer: &Answer) -> impl Iterator<Item = (GangId, &Course)> {
    let is_forecast = answer.changes.is_empty();
    let changed = answer.gangs.iter().filter(move |row| is_forecast || !row.change.is_empty());
    changed.filter_map(|row| Some((row.gang, row.then.as_ref()?)))
}

fn row(word: &str, id: GangId, course: &Course, text: &str) -> Vec<String> {
    vec![String::new(), word.to_owned(), name(id), course.job.clone(), text.to_owned()]
}

fn section(title: &str, rows: &[Vec<String>], paper: &Paper) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let shown: Vec<Vec<String>> = rows.iter().take(ROWS_MAX).cloned().collect();
    let mut text = format!("\n{title}\n{}", paper.table(&["", "", ">", "", ""], &shown));
    if rows.len() > ROWS_MAX {
        text += &format!("  and {} more; `-o json` has all\n", rows.len() - ROWS_MAX);
    }
    text
}

/// `13`; of the further gangs of a job `13.2`.
fn name(id: GangId) -> String {
    if id.index == 0 { id.job.to_string() } else { id.to_string() }
}

fn nodes(all: &[NodeName]) -> String {
    let shown: Vec<&str> = all.iter().take(NODES_MAX).map(NodeName::as_str).collect();
    let more = all.len().saturating_sub(NODES_MAX);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", shown.join(", "))
}

/// `now`, or `in 2h10m`.
fn ahead(now: Timestamp, at: Timestamp) -> String {
    match at.since(now) {
        0 => "now".to_owned(),
        ms => format!("in {}", about(ms)),
    }
}

/// A gang's course in a few words.
fn phrase(course: &Course, now: Timestamp, horizon_ms: u64) -> String {
    let mut said = Vec::new();
    if course.is_running && course.stops.is_empty() {
        // It was told to stop before.
        let again = course.starts.first().map(|start| format!("stops, back {}", ahead(now, start.at)));
        said.push(again.unwrap_or_else(|| "runs".to_owned()));
    }
    if !course.is_running {
        said.push(match (course.starts.first(), course.ending) {
            (Some(start), _) => format!("starts {}", ahead(now, start.at)),
            (None, Some(_)) => String::new(),
            (None, None) => format!("not within {}", about(horizon_ms)),
        });
    }
    if let Some(stop) = course.stops.first() {
        let word = if stop.eviction.is_some() { "preempted" } else { "moved" };
        let times =
            if course.stops.len() > 1 { format!(" ({} times)", course.stops.len()) } else { String::new() };
        said.push(format!("{word} {}{times}", ahead(now, stop.at)));
        if let Some(start) = course.starts.iter().rev().find(|start| start.at > stop.at || course.is_running)
        {
            said.push(format!("back {}", ahead(now, start.at)));
        }
    }
    if let Some((at, ending)) = course.ends_at.zip(course.ending) {
        let word = if ending == "succeeded" || ending == "time_limit" { "ends" } else { ending };
        said.push(format!("{word} {}", ahead(now, at)));
    }
    said.retain(|words| !words.is_empty());
    said.join(", ")
}
