//! How things were at a moment: what ran, what waited and why, and which nodes took no work.

use phalanx_engine::Engine;
use phalanx_model::{Admin, GangId, JobId, NodeName, Reason, Timestamp};
use phalanx_sentences as sentences;
use serde::Serialize;

use super::super::paper::{Paper, about};

/// Gangs of which it is asked when they would have started: each costs a search.
const EXPLAINED_MAX: usize = 64;

#[derive(Serialize)]
pub(super) struct State {
    at: Timestamp,
    runs: Vec<Runs>,
    waits: Vec<Waits>,
    closed_nodes: Vec<(NodeName, Admin)>,
    /// Replicas of services that were not wanted.
    resting: usize,
}

#[derive(Serialize)]
struct Runs {
    gang: GangId,
    name: String,
    queue: String,
    devices: u32,
    phase: &'static str,
    since: Timestamp,
    nodes: String,
    /// Why, where it is being stopped.
    detail: String,
}

#[derive(Serialize)]
struct Waits {
    gang: GangId,
    name: String,
    queue: String,
    devices: u32,
    since: Timestamp,
    reason: &'static str,
    sentence: String,
    /// Place in the order, of so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<(u32, u32)>,
    /// At the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_start: Option<Timestamp>,
}

impl State {
    pub(super) fn of(engine: &Engine, at: Timestamp, is_asked: &dyn Fn(JobId) -> bool) -> Self {
        let reasons = engine.reasons();
        let (mut runs, mut waits, mut resting) = (Vec::new(), Vec::new(), 0);
        for (job, records) in engine.jobs().filter(|(job, _)| is_asked(job.id)) {
            for (gang, record) in job.each_gang().zip(records) {
                let (name, queue) = (job.name.to_string(), job.queue.to_string());
                let (id, devices) = (record.id, gang.device_count());
                if let Some(placement) = record.placement.as_ref().filter(|_| record.holds_capacity()) {
                    let (since, detail) = match &record.phase {
                        phalanx_model::Phase::Running { since } => (*since, String::new()),
                        phalanx_model::Phase::Stopping { cause, .. } => {
                            (record.first_started_at.unwrap_or(at), sentences::stop(engine, cause))
                        }
                        _ => (record.first_started_at.unwrap_or(at), String::new()),
                    };
                    let (phase, nodes) = (record.phase.word(), sentences::nodes_of(placement));
                    runs.push(Runs { gang: id, name, queue, devices, phase, since, nodes, detail });
                } else if let Some(reason) = reasons.get(&record.id) {
                    if matches!(reason, Reason::ScaledIn { .. }) {
                        resting += 1;
                        continue;
                    }
                    let report = (waits.len() < EXPLAINED_MAX).then(|| engine.explain(id)).flatten();
                    waits.push(Waits {
                        gang: id,
                        name,
                        queue,
                        devices,
                        since: record.pending_since,
                        reason: reason.word(),
                        sentence: sentences::reason(engine, reason),
                        position: report.as_ref().filter(|r| r.position > 0).map(|r| (r.position, r.of)),
                        estimated_start: report.and_then(|r| r.estimated_start).map(|start| start.at),
                    });
                }
            }
        }
        waits.sort_by_key(|gang| (gang.position.is_none(), gang.position, gang.gang));
        let closed = engine.nodes().filter(|node| node.admin != Admin::Open);
        let closed_nodes = closed.map(|node| (node.name.clone(), node.admin)).collect();
        Self { at, runs, waits, closed_nodes, resting }
    }

    pub(super) fn text(&self, paper: &Paper) -> String {
        let count = |n: usize| if n == 1 { "1 gang".to_owned() } else { format!("{n} gangs") };
        let ago = |at: Timestamp| format!("{} ago", about(self.at.since(at)));
        let id = |gang: GangId| if gang.index == 0 { gang.job.to_string() } else { gang.to_string() };
        let mut text = format!("\nas of {}\n", paper.date(self.at));
        if !self.runs.is_empty() {
            let row = |runs: &Runs| {
                let detail =
                    if runs.detail.is_empty() { String::new() } else { format!("; {}", runs.detail) };
                let (phase, since) = (runs.phase.to_owned(), ago(runs.since));
                let place = format!("{}{detail}", runs.nodes);
                let devices = runs.devices.to_string();
                vec![id(runs.gang), runs.name.clone(), runs.queue.clone(), devices, phase, since, place]
            };
            let rows: Vec<Vec<String>> = self.runs.iter().map(row).collect();
            let headings = [">JOB", "NAME", "QUEUE", ">GPUS", "STATE", "STARTED", "WHERE"];
            text += &format!("\n{} had a place\n{}", count(rows.len()), paper.table(&headings, &rows));
        }
        if !self.waits.is_empty() {
            let row = |waits: &Waits| {
                let place = waits.position.map_or_else(String::new, |(at, of)| format!("{at} of {of}"));
                let start = match waits.estimated_start {
                    Some(start) if start <= self.at => "; it fits now".to_owned(),
                    Some(start) => format!("; starts in {} at the latest", about(start.since(self.at))),
                    None => String::new(),
                };
                let why = format!("{}: {}{start}", waits.reason, waits.sentence);
                let (devices, since) = (waits.devices.to_string(), ago(waits.since));
                vec![id(waits.gang), waits.name.clone(), waits.queue.clone(), devices, place, since, why]
            };
            let rows: Vec<Vec<String>> = self.waits.iter().map(row).collect();
            let headings = [">JOB", "NAME", "QUEUE", ">GPUS", "PLACE", "WAITS SINCE", "WHY"];
            text += &format!("\n{} waited\n{}", count(rows.len()), paper.table(&headings, &rows));
        }
        if self.resting > 0 {
            text += &format!("\n{} of services were not wanted\n", count(self.resting));
        }
        if !self.closed_nodes.is_empty() {
            let word = |admin: &Admin| match admin {
                Admin::Open => "open",
                Admin::Cordoned => "cordoned",
                Admin::Draining => "draining",
            };
            let all: Vec<String> =
                self.closed_nodes.iter().map(|(node, admin)| format!("{node} ({})", word(admin))).collect();
            text += &paper.hang("\nnodes that took no work:", &all.join(", "));
        }
        if self.runs.is_empty() && self.waits.is_empty() {
            text += "nothing ran, and nothing waited\n";
        }
        text.push('\n');
        text
    }
}
