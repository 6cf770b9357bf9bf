//! `whatif`: a snapshot of a live system goes on twice, as it is and with changes, and what differs is told.

mod changes;
mod table;

use std::collections::BTreeMap;

use clap::{Args, ValueHint};
use phalanx_engine::VERSION;
use phalanx_model::{GangId, Snapshot, Timestamp};
use serde::Serialize;

use super::paper::about;
use super::values::ms;
use super::{CommandError, Document, Format, Host};
use crate::ahead::{Ahead, Basis, Course, QueueCourse, ahead};
use crate::report::Input;
use changes::{Changes, Wishes};

/// Of snapshots: 10,000 nodes take a twentieth of it.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;
/// The farthest that it looks ahead.
const HORIZON_MAX_MS: u64 = 365 * 24 * 3_600_000;
/// What differs by less is the same.
const SAME_MS: u64 = 60_000;

#[derive(Debug, Args)]
pub struct WhatIf {
    /// File that `phalanx snapshot` or `replay --snapshot` wrote; `-` reads standard input
    #[arg(required_unless_present = "live", conflicts_with = "live", value_hint = ValueHint::FilePath)]
    snapshot: Option<String>,
    /// Ask the system that runs here, now
    #[arg(long)]
    live: bool,
    /// How far to look ahead, from 1m to 365d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = horizon_ms)]
    horizon: u64,
    /// List also the gangs for which nothing changes
    #[arg(long)]
    all: bool,
    // Last, because its heading is that of all options after it.
    #[command(flatten)]
    wishes: Wishes,
}

fn horizon_ms(text: &str) -> Result<u64, String> {
    let horizon = ms(text)?;
    let is_in_range = (SAME_MS..=HORIZON_MAX_MS).contains(&horizon);
    is_in_range.then_some(horizon).ok_or_else(|| "expected a duration from 1m to 365d".to_owned())
}

impl WhatIf {
    /// Whether the system is asked that runs here.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.live
    }

    pub(super) fn run(&self, format: Format, host: &mut dyn Host) -> Result<(), CommandError> {
        let (name, bytes) = match &self.snapshot {
            Some(file) => (file.as_str(), host.read(file, SNAPSHOT_BYTES_MAX)),
            None => ("the system that runs here", host.snapshot()),
        };
        let bytes = bytes.map_err(CommandError::Input)?;
        let mut inputs = vec![Input::of(name, &bytes)];
        let snapshot = read(name, &bytes)?;
        if snapshot.engine != VERSION {
            host.note(&format!(
                "{name} was taken from version {}, and {VERSION} decides here",
                snapshot.engine
            ));
        }
        let changes = Changes::read(&snapshot, &self.wishes, &mut inputs, host)?;
        let broken = |failure: crate::Failure| CommandError::Crash(failure.to_string());
        let then = ahead(&snapshot, changes.facts, self.horizon).map_err(broken)?;
        let as_is = ahead(&snapshot, Vec::new(), self.horizon).map_err(broken)?;
        // What it refuses of the snapshot itself is no fault of the changes.
        if let Some(why) = then.refused.iter().find(|why| !as_is.refused.contains(why)) {
            let error = format!("the engine does not take this: {why}");
            return Err(CommandError::Input(error));
        }
        let answer = Answer::of(&snapshot, (as_is, then), changes.told, inputs, self.horizon);
        let text = match format {
            Format::Json => answer.document().pretty(),
            Format::Yaml => answer.document().yaml(),
            Format::Table => table::table(&answer, self.all, &host.paper()),
        };
        host.print(text.as_bytes()).map_err(CommandError::Input)
    }
}

fn read(name: &str, bytes: &[u8]) -> Result<Snapshot, CommandError> {
    let wrong = |why: String| {
        CommandError::Input(format!("{name} is no snapshot, as `phalanx snapshot > FILE` writes it: {why}"))
    };
    let snapshot: Snapshot = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
    if snapshot.format != Snapshot::FORMAT {
        let Snapshot { format, engine, .. } = &snapshot;
        return Err(wrong(format!("it has format {format} of version {engine}; use that version")));
    }
    Ok(snapshot)
}

/// Both ways on, side by side.
#[derive(Serialize)]
struct Answer {
    /// Of all that is said here.
    is_predicted: bool,
    version: &'static str,
    inputs: Vec<Input>,
    from: Timestamp,
    horizon_ms: u64,
    changes: Vec<String>,
    assumptions: Vec<String>,
    gangs: Vec<Row>,
    queues: Vec<QueueRow>,
}

#[derive(Serialize)]
struct Row {
    gang: GangId,
    /// In one sentence; empty where nothing does.
    change: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    as_is: Option<Course>,
    #[serde(skip_serializing_if = "Option::is_none")]
    then: Option<Course>,
}

#[derive(Serialize)]
struct QueueRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    as_is: Option<QueueCourse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    then: Option<QueueCourse>,
}

impl Answer {
    fn of(
        snapshot: &Snapshot,
        (as_is, then): (Ahead, Ahead),
        changes: Vec<String>,
        inputs: Vec<Input>,
        horizon_ms: u64,
    ) -> Self {
        let assumptions = assumptions(&then);
        let mut gangs: BTreeMap<GangId, (Option<Course>, Option<Course>)> = BTreeMap::new();
        as_is.gangs.into_iter().for_each(|(id, course)| gangs.entry(id).or_default().0 = Some(course));
        then.gangs.into_iter().for_each(|(id, course)| gangs.entry(id).or_default().1 = Some(course));
        let gangs = gangs
            .into_iter()
            .map(|(gang, (as_is, then))| {
                let change = change(as_is.as_ref(), then.as_ref(), horizon_ms);
                Row { gang, change, as_is, then }
            })
            .collect();
        let mut before: BTreeMap<_, QueueCourse> =
            as_is.queues.into_iter().map(|queue| (queue.name.clone(), queue)).collect();
        let mut queues: Vec<QueueRow> = Vec::new();
        for queue in then.queues {
            queues.push(QueueRow { as_is: before.remove(&queue.name), then: Some(queue) });
        }
        queues.extend(before.into_values().map(|queue| QueueRow { as_is: Some(queue), then: None }));
        Self {
            is_predicted: true,
            version: VERSION,
            inputs,
            from: snapshot.taken_at,
            horizon_ms,
            changes,
            assumptions,
            gangs,
            queues,
        }
    }

    const fn document(&self) -> Document<'_, Self> {
        Document::new("WhatIf", self)
    }
}

/// What the prediction rests on.
fn assumptions(ahead: &Ahead) -> Vec<String> {
    let count = |basis| ahead.gangs.values().filter(|course| course.basis == basis).count();
    let sentence = |basis, one: &str, more: &str| match count(basis) {
        0 => None,
        1 => Some(format!("1 gang {one}")),
        n => Some(format!("{n} gangs {more}")),
    };
    let past = "as long as such jobs of the same owner did last";
    let ends = [
        sentence(Basis::PastRuns, &format!("runs {past}"), &format!("run {past}")),
        sentence(Basis::Limit, "runs to its time limit", "run to their time limits"),
        sentence(
            Basis::Nothing,
            "has neither past runs nor a limit, and goes on",
            "have neither past runs nor a limit, and go on",
        ),
    ];
    let rest =
        "nothing fails, nothing else is submitted, services keep their replicas, and sessions are not used";
    ends.into_iter().flatten().chain([rest.to_owned()]).collect()
}

/// What becomes otherwise for a gang.
fn change(as_is: Option<&Course>, then: Option<&Course>, horizon_ms: u64) -> String {
    let (as_is, then) = match (as_is, then) {
        (Some(as_is), Some(then)) => (as_is, then),
        (None, Some(_)) => return "new".to_owned(),
        (Some(_), None) => return "is no longer wanted".to_owned(),
        (None, None) => return String::new(),
    };
    let within = about(horizon_ms);
    let mut said = Vec::new();
    if then.stops.len() > as_is.stops.len() {
        let is_preempted = then.stops.iter().any(|stop| stop.eviction.is_some());
        said.push(if is_preempted { "preempted".to_owned() } else { "moved".to_owned() });
    } else if then.stops.len() < as_is.stops.len() {
        said.push("not preempted".to_owned());
    }
    let first = |course: &Course| course.starts.first().map(|start| start.at);
    match (first(as_is), first(then)) {
        _ if as_is.is_running => {}
        (None, Some(_)) => said.push(format!("starts within {within}")),
        (Some(_), None) => said.push(format!("does not start within {within}")),
        (Some(before), Some(after)) => said.extend(shift(before, after).map(|by| format!("starts {by}"))),
        (None, None) => {}
    }
    if said.iter().all(|word| !word.starts_with("starts")) {
        match (as_is.ends_at, then.ends_at) {
            (Some(before), Some(after)) => said.extend(shift(before, after).map(|by| format!("ends {by}"))),
            (Some(_), None) => said.push(format!("does not end within {within}")),
            (None, Some(_)) => said.push(format!("ends within {within}")),
            (None, None) => {}
        }
    }
    said.join(", ")
}

fn shift(before: Timestamp, after: Timestamp) -> Option<String> {
    let (ms, word) =
        if after < before { (before.since(after), "sooner") } else { (after.since(before), "later") };
    (ms >= SAME_MS).then(|| format!("{} {word}", about(ms)))
}
