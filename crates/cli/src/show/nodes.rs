//! `nodes`.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_api::protocol::{ClosedBy, NodeView, NodeWindowView, NodesView, WindowKind};
use phalanx_model::bandwidth::percent;
use phalanx_model::{Admin, Origin};
use phalanx_spec::pattern::NamePattern;

use super::table::{self, Grid, cell, dim};
use super::{Page, clean, count, nothing};

/// Closed nodes of which a list says who closed them.
const CLOSED_SHOWN: usize = 10;

/// One line for each node, and how much is free in all.
pub(crate) fn list(page: &Page, view: &NodesView) -> String {
    let mut text = rows(page, &view.nodes);
    if page.quiet {
        return text;
    }
    let total: u64 = view.nodes.iter().map(|n| u64::from(n.devices)).sum();
    let free: u64 = view.nodes.iter().map(|n| u64::from(n.free.count())).sum();
    let share = (free * 100).checked_div(total).unwrap_or(0);
    let free = if total == 0 {
        "no GPUs".to_owned()
    } else {
        format!("{free} of {} free ({share} %)", count(total, "GPU"))
    };
    let declared = view.nodes.iter().filter(|n| n.origin == Origin::Declared).count();
    let declared = if declared > 0 { format!(", {declared} declared") } else { String::new() };
    let nodes = count(view.nodes.len() as u64, "node");
    let _ =
        writeln!(text, "\n{}", format!("{nodes}{declared}: {free}; isolation: {}", view.isolation).dimmed());
    let closed: Vec<String> = view.nodes.iter().filter_map(|node| closed(page, node)).collect();
    for line in closed.iter().take(CLOSED_SHOWN) {
        let _ = writeln!(text, "{line}");
    }
    if closed.len() > CLOSED_SHOWN {
        let more = count((closed.len() - CLOSED_SHOWN) as u64, "more closed node");
        let _ = writeln!(text, "and {more}: `phalanx audit` lists who closed them");
    }
    windows(page, &view.nodes, &mut text);
    for warning in &view.warnings {
        let _ = writeln!(text, "{} {}", "warning:".yellow(), clean(warning));
    }
    for note in &view.notes {
        let _ = writeln!(text, "{} {}", "note:".cyan(), clean(note));
    }
    text
}

/// `gpu-3 was cordoned by alice 2h ago: broken fan`, or `gpu-3 is drained at 18:00:00 (in 6h), as alice said 2h ago: broken fan`,
/// if a user closed it.
fn closed(page: &Page, node: &NodeView) -> Option<String> {
    let by = node.closed_by.as_ref()?;
    let (name, user, ago) = (&node.name, clean(&by.user), page.ago(by.at));
    let reason = reason(by);
    let is_to_come = |window: &&NodeWindowView| window.kind == WindowKind::Drain && !window.is_on(page.now);
    Some(match (node.admin, node.window.as_ref().filter(is_to_come)) {
        (Admin::Open, Some(window)) => {
            let (at, ahead) = (page.clock(window.begins_at), page.ahead(window.begins_at));
            format!("{name} is drained at {at} ({ahead}), as {user} said {ago}{reason}")
        }
        (Admin::Cordoned, _) => format!("{name} was cordoned by {user} {ago}{reason}"),
        _ => format!("{name} was drained by {user} {ago}{reason}"),
    })
}

fn reason(by: &ClosedBy) -> String {
    by.reason.as_ref().map_or_else(String::new, |reason| format!(": {}", clean(reason)))
}

/// `gpu-[1-2]: maintenance from 14:00:00 until 16:00:00, as bob said 2h ago: new NICs`, for windows that users added.
fn windows(page: &Page, nodes: &[NodeView], text: &mut String) {
    let mut added: Vec<(&NodeWindowView, &ClosedBy, Vec<&str>)> = Vec::new();
    for node in nodes {
        let Some(window) = node.window.as_ref().filter(|of| of.kind != WindowKind::Drain) else { continue };
        let Some(by) = &window.added_by else { continue };
        match added.iter_mut().find(|(of, ..)| *of == window) {
            Some((.., names)) => names.push(node.name.as_str()),
            None => added.push((window, by, vec![node.name.as_str()])),
        }
    }
    for (window, by, names) in added.iter().take(CLOSED_SHOWN) {
        let patterns = NamePattern::compress(names.iter().copied());
        let names: Vec<&str> = patterns.iter().map(NamePattern::text).collect();
        let what = match &window.held_for {
            Some(queue) => format!("kept for queue {queue}"),
            None => window.kind.word().to_owned(),
        };
        let from = if window.is_on(page.now) {
            String::new()
        } else {
            format!(" from {}", page.clock(window.begins_at))
        };
        let until = window.ends_at.map_or_else(String::new, |at| format!(" until {}", page.clock(at)));
        let (names, user, ago, reason) = (names.join(","), clean(&by.user), page.ago(by.at), reason(by));
        let _ = writeln!(text, "{names}: {what}{from}{until}, as {user} said {ago}{reason}");
    }
    if added.len() > CLOSED_SHOWN {
        let more = count((added.len() - CLOSED_SHOWN) as u64, "more window");
        let _ = writeln!(text, "and {more}: `phalanx calendar` lists them");
    }
}

fn rows(page: &Page, nodes: &[NodeView]) -> String {
    if nodes.is_empty() {
        return nothing(page, "no nodes");
    }
    let headings: &[&str] = if page.wide {
        &["NODE", "STATE", "FREE", ">GPUS", "HARDWARE", ">CPUS", ">MEMORY", "ADDRESS", "PATH", "JOBS"]
    } else {
        &["NODE", "STATE", ">GPUS", "HARDWARE", ">CPUS", ">MEMORY", "JOBS"]
    };
    let mut grid = Grid::new(page, headings);
    for node in nodes {
        let mut cells = vec![cell(&node.name), table::state(state(page, node))];
        if page.wide {
            cells.push(cell(node.free));
        }
        cells.extend([
            cell(format!("{}/{}", node.free.count(), node.devices)),
            cell(hardware(node)),
            cell(cpus(node)),
            cell(memory(node)),
        ]);
        if page.wide {
            cells.extend([cell(clean(&node.address)), cell(clean(&node.path.join("/")))]);
        }
        cells.push(dim(holders(page, node)));
        grid.row(cells);
    }
    grid.render()
}

/// `8 × NVIDIA H100 (declared, spot, spare)`.
fn hardware(node: &NodeView) -> String {
    let model = if node.model.is_empty() { "no GPUs".to_owned() } else { clean(&node.model) };
    let words = [
        (node.origin == Origin::Declared, "declared"),
        (node.spot.is_some(), "spot"),
        (node.is_spare, "spare"),
    ];
    let words: Vec<&str> = words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
    if words.is_empty() { model } else { format!("{model} ({})", words.join(", ")) }
}

fn state(page: &Page, node: &NodeView) -> &'static str {
    match (node.admin, node.window.as_ref().filter(|window| window.is_on(page.now))) {
        (Admin::Open, _) if !node.health.is_open() => "unhealthy",
        (Admin::Open, Some(window)) => window.kind.word(),
        (Admin::Open, None) => "open",
        (Admin::Cordoned, _) => "cordoned",
        (Admin::Draining, _) => "draining",
    }
}

/// Free of all, in whole CPUs; free may be below zero where others took too much.
fn cpus(node: &NodeView) -> String {
    format!("{}/{}", node.cpu_free_milli.div_euclid(1000), node.cpu_milli / 1000)
}

/// Free of all in GiB.
fn memory(node: &NodeView) -> String {
    const GIB: i64 = 1 << 30;
    format!("{}/{} GiB", node.memory_free_bytes.div_euclid(GIB), node.memory_bytes >> 30)
}

/// `7 train:0-3, 8 eval:4-7`.
fn holders(page: &Page, node: &NodeView) -> String {
    const SHOWN: usize = 4;
    let limit = if page.wide { usize::MAX } else { SHOWN };
    let mut parts: Vec<String> = Vec::new();
    for held in node.held.iter().take(limit) {
        let devices = if held.devices.is_empty() { String::new() } else { format!(":{}", held.devices) };
        parts.push(format!("{} {}{devices}", held.job, clean(&held.name)));
    }
    if node.held.len() > limit {
        parts.push(format!("and {} more", node.held.len() - limit));
    }
    let closed = node.health.closed_devices();
    if !closed.is_empty() {
        parts.push(format!("unhealthy:{closed}"));
    }
    if let Some(of) = &node.bandwidth {
        parts.push(format!("network:{}", percent(of.permille)));
    }
    let others = node.foreign.minus(node.unknown);
    if !others.is_empty() {
        parts.push(format!("others:{others}"));
    }
    if !node.unknown.is_empty() {
        parts.push(format!("unknown use:{}", node.unknown));
    }
    parts.join(", ")
}
