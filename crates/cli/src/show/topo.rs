//! `topo show` and `topo check`: the tree of domains, and a picture of each machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_api::protocol::{HeldView, TopologyView};
use phalanx_discover::map::MapFinding;
use phalanx_discover::picture::{self, Style};
use phalanx_discover::{Finding, Severity, describe};
use phalanx_model::{
    Admin, DeviceMask, DomainName, JobId, LevelName, Machine, Node, NodeName, Origin, ShapeName,
};

use super::dry_run::bandwidth;
use super::table::{self, Grid, cell};
use super::{Page, clean, count, declared, nothing};

/// Machines that are drawn, and nodes that are listed in the tree, before the rest is only counted.
const PICTURES: usize = 12;
const TREE_NODES: usize = 64;

/// The mark of each job in the pictures: letters in the order of the jobs' numbers.
struct Marks(BTreeMap<JobId, (char, String)>);

impl Marks {
    fn of(held: &BTreeMap<&NodeName, &[HeldView]>) -> Self {
        let names: BTreeMap<JobId, String> =
            held.values().flat_map(|jobs| jobs.iter()).map(|h| (h.job, h.name.clone())).collect();
        // Jobs after the last letter show the dot of a device in use.
        let letters = ('A'..='Z').chain('a'..='z');
        Self(names.into_iter().zip(letters).map(|((id, name), letter)| (id, (letter, name))).collect())
    }

    fn letter(&self, job: JobId) -> Option<char> {
        self.0.get(&job).map(|(letter, _)| *letter)
    }
}

/// The tree above the machines, and the machines; with `only`, that machine alone.
pub(crate) fn cluster(page: &Page, view: &TopologyView, only: Option<&NodeName>) -> String {
    let held: BTreeMap<&NodeName, &[HeldView]> = view.held.iter().map(|(n, h)| (n, h.as_slice())).collect();
    let marks = Marks::of(&held);
    let mut nodes: Vec<&Node> =
        view.nodes.iter().filter(|n| only.is_none_or(|name| *name == n.name)).collect();
    nodes.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.name.cmp(&b.name)));
    let mut text = String::new();
    if only.is_none() {
        text += &tree(page, view, &nodes, &held);
    }
    // A map of many hosts without devices has nothing to draw.
    if nodes.len() > 1 {
        nodes.retain(|node| node.machine.device_count() > 0);
    }
    // Where nothing runs, equal machines look equal.
    let alike =
        if view.held.is_empty() && only.is_none() { keep_first_of_each(&mut nodes) } else { BTreeMap::new() };
    let shown = if page.wide { nodes.len() } else { nodes.len().min(PICTURES) };
    for node in nodes.iter().take(shown) {
        let jobs = held.get(&node.name).copied().unwrap_or_default();
        let _ = write!(
            text,
            "{}{}",
            if text.is_empty() { "" } else { "\n" },
            node_text(page, node, jobs, &marks)
        );
        if let Some(more) = alike.get(&node.machine.shape).filter(|more| **more > 0) {
            let _ = writeln!(text, "{}", format!("and {} like it", count(*more, "more machine")).dimmed());
        }
    }
    if shown < nodes.len() {
        let more = format!("and {} more machines; `phalanx topo show NODE` draws one", nodes.len() - shown);
        let _ = writeln!(text, "\n{}", more.dimmed());
    }
    text
}

/// Keeps the first node of each shape that nobody holds a part of; how many more there are.
fn keep_first_of_each(nodes: &mut Vec<&Node>) -> BTreeMap<ShapeName, u64> {
    let mut seen: BTreeMap<ShapeName, u64> = BTreeMap::new();
    nodes.retain(|node| {
        if !node.foreign.is_empty() || node.admin != Admin::Open {
            return true;
        }
        let is_first = !seen.contains_key(&node.machine.shape);
        let more = seen.entry(node.machine.shape.clone()).or_default();
        *more += u64::from(!is_first);
        is_first
    });
    seen
}

/// `node-a (declared)`: what stands above a picture.
pub(crate) fn title(name: &str, machine: &Machine) -> String {
    format!("{}{}\n", clean(name).bold(), declared(machine.origin == Origin::Declared))
}

/// `node-a (declared)  cordoned`, its picture, and who holds what.
fn node_text(page: &Page, node: &Node, jobs: &[HeldView], marks: &Marks) -> String {
    let state = match node.admin {
        Admin::Open => String::new(),
        Admin::Cordoned => format!("  {}", "cordoned".yellow()),
        Admin::Draining => format!("  {}", "draining".magenta()),
    };
    let title = title(node.name.as_str(), &node.machine);
    let mut text = format!("{}{state}\n", title.trim_end());
    let owner = |device: u32| {
        let of_job = jobs.iter().find(|h| h.devices.contains(device)).and_then(|h| marks.letter(h.job));
        of_job.or_else(|| node.foreign.contains(device).then_some('*'))
    };
    let busy = jobs.iter().fold(node.foreign, |mask, h| mask.union(h.devices));
    text += &machine(page, &node.machine, busy, &owner);
    for held in jobs {
        let letter = marks.letter(held.job).map_or_else(|| " ".to_owned(), |c| c.to_string());
        let devices =
            if held.devices.is_empty() { String::new() } else { format!("  GPUs {}", held.devices) };
        let _ = writeln!(text, "{} job {} {}{devices}", letter.bold(), held.job, clean(&held.name));
    }
    if !node.foreign.is_empty() {
        let _ = writeln!(text, "{} held by others  GPUs {}", "*".bold(), node.foreign);
    }
    text
}

/// The picture, or where the terminal is too narrow for it, a strip of marks.
pub(crate) fn machine(
    page: &Page,
    machine: &Machine,
    busy: DeviceMask,
    owner: &dyn Fn(u32) -> Option<char>,
) -> String {
    let style = if page.ascii { Style::Ascii } else { Style::Unicode };
    let mut picture = picture::draw(machine, busy, owner, style);
    // The first line is the product, which a terminal may wrap.
    let widest = picture.lines().skip(1).map(|line| line.chars().count()).max().unwrap_or(0);
    if page.width.is_none_or(|width| widest <= usize::from(width)) {
        if let Some(assumed) = describe::assumed_nics(machine) {
            let _ = writeln!(picture, "{}", assumed.dimmed());
        }
        return picture;
    }
    let (free, used) = if page.ascii { ('.', '#') } else { ('○', '●') };
    let mark = |device| if busy.contains(device) { owner(device).unwrap_or(used) } else { free };
    let cells: Vec<String> = (0..machine.device_count()).map(|d| format!("{d}{}", mark(d))).collect();
    let width = usize::from(page.width.unwrap_or(80));
    let lines = super::wrap(&cells.join(" "), width).join("\n");
    format!("{lines}\n{}\n", format!("{widest} columns show the picture").dimmed())
}

/// Levels as a tree, with what the uplink of each domain carries.
fn tree(
    page: &Page,
    view: &TopologyView,
    nodes: &[&Node],
    held: &BTreeMap<&NodeName, &[HeldView]>,
) -> String {
    if nodes.is_empty() {
        return nothing(page, "no nodes");
    }
    let painter = Tree { page, view, held, counts_only: nodes.len() > TREE_NODES && !page.wide };
    let mut lines = Vec::new();
    painter.domains(nodes, 0, "", &mut lines);
    let width = lines.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
    lines
        .into_iter()
        .map(|(left, right)| format!("{left:width$}  {right}").trim_end().to_owned() + "\n")
        .collect()
}

struct Tree<'a> {
    page: &'a Page,
    view: &'a TopologyView,
    held: &'a BTreeMap<&'a NodeName, &'a [HeldView]>,
    counts_only: bool,
}

impl Tree<'_> {
    /// The domains of one depth below one parent: `nodes` share the path above and are sorted by it.
    fn domains(&self, nodes: &[&Node], depth: usize, lead: &str, lines: &mut Vec<(String, String)>) {
        let Some(level) = self.view.levels.above.get(depth) else {
            if !self.counts_only {
                self.leaves(nodes, lead, lines);
            }
            return;
        };
        let groups: Vec<&[&Node]> = nodes.chunk_by(|a, b| a.path.get(depth) == b.path.get(depth)).collect();
        let last = groups.len().saturating_sub(1);
        for (i, group) in groups.into_iter().enumerate() {
            let name = group.first().and_then(|n| n.path.get(depth)).map_or("?", |d| d.as_str());
            let (branch, below) = if depth == 0 { ("", "") } else { self.strokes(i == last) };
            let path = group.first().and_then(|n| n.path.get(..=depth)).unwrap_or_default();
            let uplink = if depth == 0 { String::new() } else { self.uplink(level, path) };
            let summary = if self.counts_only { format!("{}  ", self.summary(group)) } else { String::new() };
            lines.push((format!("{lead}{branch}{level} {name}"), format!("{summary}{uplink}")));
            self.domains(group, depth + 1, &format!("{lead}{below}"), lines);
        }
    }

    fn leaves(&self, nodes: &[&Node], lead: &str, lines: &mut Vec<(String, String)>) {
        for (i, node) in nodes.iter().enumerate() {
            let (branch, _) = self.strokes(i + 1 == nodes.len());
            let machine = &node.machine;
            let mark = declared(machine.origin == Origin::Declared);
            let devices = match machine.device_count() {
                0 => "no GPUs".to_owned(),
                all => format!("{} of {} free", self.free(node), count(u64::from(all), "GPU")),
            };
            let own = DomainName::new(node.name.as_str());
            let path: Vec<DomainName> = node.path.iter().cloned().chain(own.ok()).collect();
            let uplink = self.uplink(&self.view.levels.node, &path);
            let gap = if uplink.is_empty() { "" } else { "  " };
            lines.push((format!("{lead}{branch}{}", node.name), format!("{devices}{mark}{gap}{uplink}")));
        }
    }

    fn free(&self, node: &Node) -> u32 {
        let held = self.held.get(&node.name).copied().unwrap_or_default();
        let busy = held.iter().fold(node.foreign, |mask, h| mask.union(h.devices));
        node.machine.device_mask().minus(busy).count()
    }

    fn summary(&self, nodes: &[&Node]) -> String {
        let devices: u64 = nodes.iter().map(|n| u64::from(n.machine.device_count())).sum();
        let free: u64 = nodes.iter().map(|n| u64::from(self.free(n))).sum();
        let declared = nodes.iter().filter(|n| n.machine.origin == Origin::Declared).count();
        let mark = match declared {
            0 => String::new(),
            all if all == nodes.len() => " (declared)".to_owned(),
            some => format!(" ({some} declared)"),
        };
        let nodes = count(nodes.len() as u64, "node");
        if devices == 0 {
            return format!("{nodes}{mark}");
        }
        format!("{nodes}{mark}, {free} of {} free", count(devices, "GPU"))
    }

    /// `uplink 50.0 GB/s, 2 us`; with what is usual on the level where this one differs; empty when unknown.
    fn uplink(&self, level: &LevelName, path: &[DomainName]) -> String {
        let Some(cost) = self.view.costs.uplink(level, path).filter(|c| c.uplink_mb_per_s > 0) else {
            return String::new();
        };
        let usual = self.view.costs.levels.get(level).map_or(0, |usual| usual.uplink_mb_per_s);
        let beside = match usual {
            0 => String::new(),
            usual if usual == cost.uplink_mb_per_s => String::new(),
            usual if usual < cost.uplink_mb_per_s => String::new(),
            usual => format!(" of {}", bandwidth(u64::from(usual) * 1_000_000)).yellow().to_string(),
        };
        let latency = match cost.latency_ns {
            0 => String::new(),
            ns if ns % 1000 == 0 => format!(", {} us", ns / 1000),
            ns => format!(", {ns} ns"),
        };
        format!("uplink {}{beside}{latency}", bandwidth(u64::from(cost.uplink_mb_per_s) * 1_000_000))
    }

    const fn strokes(&self, is_last: bool) -> (&'static str, &'static str) {
        match (self.page.ascii, is_last) {
            (false, false) => ("├─ ", "│  "),
            (false, true) => ("└─ ", "   "),
            (true, false) => ("|- ", "|  "),
            (true, true) => ("`- ", "   "),
        }
    }
}

fn severity(severity: Severity) -> comfy_table::Cell {
    match severity {
        Severity::Severe => table::state("severe"),
        Severity::Warning => cell("warning").fg(table::Color::Yellow),
        Severity::Note => table::dim("note"),
    }
}

/// Findings of some machines; `name` is the node or the file.
pub(crate) fn findings(page: &Page, found: &[(String, Vec<Finding>)]) -> String {
    if found.iter().all(|(_, list)| list.is_empty()) {
        let what = count(found.len() as u64, "machine");
        return nothing(page, &format!("nothing to report on {what}"));
    }
    let mut grid = Grid::new(page, &["MACHINE", "", "GPUS", "FINDING"]);
    for (name, list) in found {
        for finding in list {
            let word = format!("{}: ", finding.severity.word());
            let sentence = finding.to_string();
            let sentence = sentence.strip_prefix(&word).unwrap_or(&sentence);
            grid.row(vec![
                cell(clean(name)),
                severity(finding.severity),
                cell(finding.devices),
                cell(clean(sentence)),
            ]);
        }
    }
    grid.render()
}

/// Findings of a map; `name` is what was looked at.
pub(crate) fn map_findings(page: &Page, name: &str, found: &[MapFinding]) -> String {
    if found.is_empty() {
        return nothing(page, &format!("nothing to report on {name}"));
    }
    let mut grid = Grid::new(page, &["", "WHERE", "FINDING", "LEFT"]);
    for finding in found {
        let cost = finding.cost.map(|cost| cost.to_string()).unwrap_or_default();
        let subject = clean(&finding.subject.to_string());
        grid.row(vec![severity(finding.severity), cell(subject), cell(clean(&finding.what)), cell(cost)]);
    }
    grid.render()
}

/// Lines that begin with `+`, `-` or `~`.
pub(crate) fn changes(page: &Page, lines: &[String]) -> String {
    if lines.is_empty() {
        return nothing(page, "no difference");
    }
    let paint = |line: &String| match line.chars().next() {
        Some('+') => format!("{}\n", line.green()),
        Some('-') => format!("{}\n", line.red()),
        _ => format!("{line}\n"),
    };
    lines.iter().map(paint).collect()
}
