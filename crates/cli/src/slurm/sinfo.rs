//! `sinfo`: partitions, which are queues, and the state of nodes.

use std::process::ExitCode;

use phalanx_api::protocol::{
    Answer, NodeView, NodeWindowView, NodesView, QueueView, Verb as Ask, WindowKind,
};
use phalanx_model::{Admin, Timestamp};

use super::hostlist;
use super::list::{self, Column};
use super::options::{self, After, Flag, Takes, Where, ignored, refused, used};
use crate::failure::Failure;
use crate::output;
use crate::verbs::Session;

use Takes::{Nothing, Value};

const FROM: Where<'static> = Where { command: "sinfo", place: None };
const SHORT: &str = "%9P %.5a %.10l %.6D %.6t %N";
const BY_NODE: &str = "%20N %.6D %9P %.6t";
const BY_NODE_LONG: &str = "%20N %.6D %9P %.11T %.4c %.8m %G %E";
const REASONS: &str = "%20E %9u %19H %N";

pub(super) const FLAGS: &[Flag] = &[
    used("Node", 'N', Nothing),
    used("partition", 'p', Value),
    used("noheader", 'h', Nothing),
    used("format", 'o', Value),
    used("long", 'l', Nothing),
    used("states", 't', Value),
    used("nodes", 'n', Value),
    used("list-reasons", 'R', Nothing),
    used("summarize", 's', Nothing),
    ignored("exact", 'e', Nothing, ""),
    ignored("all", 'a', Nothing, ""),
    ignored("responding", 'r', Nothing, ""),
    ignored("verbose", 'v', Nothing, ""),
    refused(
        "json",
        ' ',
        Takes::Optional,
        "the document of Slurm has other fields",
        "`phalanx nodes -o json`",
    ),
    refused(
        "yaml",
        ' ',
        Takes::Optional,
        "the document of Slurm has other fields",
        "`phalanx nodes -o yaml`",
    ),
    refused("Format", 'O', Value, "columns are named by letters", "--format, such as \"%P %t %D %G\""),
    refused("iterate", 'i', Value, "the list is printed once", "`phalanx top`, or `watch sinfo`"),
    refused("sort", 'S', Value, "rows are in the order of their names", "`sinfo -N | sort`"),
    refused("dead", 'd', Nothing, "nodes of this machine answer", "--states=down"),
    refused("reservation", 'T', Nothing, "there are no named reservations", "`phalanx calendar`"),
    refused("clusters", 'M', Value, "there is one cluster", "leave the option out"),
];

/// Nodes of one partition in one state.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    partition: String,
    state: &'static str,
    nodes: Vec<&'a NodeView>,
}

pub(super) fn sinfo(session: &Session, words: &[String]) -> Result<ExitCode, Failure> {
    let given = options::read(&[FLAGS], FROM, words, After::Options)?;
    super::note(&FROM, &given);
    let view = session.nodes()?;
    let Answer::Queues(queues) = session.ask(Ask::Queues)? else { return Err(Failure::unexpected()) };
    let by_node = given.has("Node");
    let format = match given.get("format") {
        Some(format) => format,
        None if given.has("list-reasons") => REASONS,
        None if by_node && given.has("long") => BY_NODE_LONG,
        None if by_node => BY_NODE,
        None => SHORT,
    };
    let columns = list::read(format, FROM, |letter| heading(letter).map(|_| letter))?;
    let wanted: Vec<String> = given.list("partition").into_iter().map(str::to_owned).collect();
    let mut names = partitions(&queues);
    names.retain(|name| wanted.is_empty() || wanted.iter().any(|one| one == name.trim_end_matches('*')));
    let named = given.get("nodes").map(hostlist::expand).transpose().map_err(|e| FROM.refuse(&e, ""))?;
    let states = given.list("states");
    let mut lines = lines(&view, &names, by_node, session.out.page.now);
    for line in &mut lines {
        line.nodes.retain(|node| {
            named.as_ref().is_none_or(|named| named.iter().any(|name| name == node.name.as_str()))
                && (states.is_empty() || states.iter().any(|of| is_named(line.state, of)))
                && (!given.has("list-reasons") || node.closed_by.is_some() || line.state == "down")
        });
    }
    lines.retain(|line| !line.nodes.is_empty());
    output::print(&page(&columns, &lines, !given.has("noheader")))?;
    Ok(ExitCode::SUCCESS)
}

/// The names of queues without queues below them; `default` has Slurm's `*`.
pub(super) fn partitions(queues: &[QueueView]) -> Vec<String> {
    let is_parent = |name: &str| {
        let of = |queue: &QueueView| queue.report.as_ref().and_then(|report| report.queue.parent.clone());
        queues.iter().any(|queue| of(queue).is_some_and(|parent| parent.as_str() == name))
    };
    let mut names: Vec<String> =
        queues.iter().map(|q| q.name.clone()).filter(|name| !is_parent(name)).collect();
    // Without a queue file every name is a queue, and jobs that name none are in this one.
    let is_bare = queues.iter().all(|queue| queue.report.is_none());
    if is_bare && !names.iter().any(|name| name == "default") {
        names.insert(0, "default".to_owned());
    }
    names.into_iter().map(|name| if name == "default" { format!("{name}*") } else { name }).collect()
}

fn lines<'a>(view: &'a NodesView, partitions: &[String], by_node: bool, now: Timestamp) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    for partition in partitions {
        let first = lines.len();
        for node in &view.nodes {
            let state = state(node, now);
            let same = lines.iter_mut().skip(first).find(|line| !by_node && line.state == state);
            match same {
                Some(line) => line.nodes.push(node),
                None => lines.push(Line { partition: partition.clone(), state, nodes: vec![node] }),
            }
        }
    }
    if by_node {
        lines.sort_by(|a, b| a.nodes.first().map(|n| &n.name).cmp(&b.nodes.first().map(|n| &n.name)));
    }
    lines
}

/// `idle`, `mix`, `alloc`, `drain`, `drng` or `down`.
pub(super) fn state(node: &NodeView, now: Timestamp) -> &'static str {
    let all = node.devices;
    let is_used = !node.held.is_empty();
    if !node.health.is_open() && !is_used {
        return "down";
    }
    let is_on = |window: &NodeWindowView| window.is_on(now) && window.kind != WindowKind::Block;
    if node.admin != Admin::Open || !node.health.is_open() || node.window.as_ref().is_some_and(is_on) {
        return if is_used { "drng" } else { "drain" };
    }
    let has_cpus = node.cpu_free_milli > 0;
    match (is_used, node.free.count()) {
        (true, 0) if all > 0 => "alloc",
        (true, _) if !has_cpus => "alloc",
        (true, _) => "mix",
        (false, free) if all > 0 && free < all => "mix",
        (false, _) if !has_cpus => "alloc",
        (false, _) => "idle",
    }
}

/// Whether a user means the state: by its short name, or its whole name or a beginning of that.
fn is_named(state: &str, text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text == state || (text.len() > 2 && long_state(state).starts_with(text.as_str()))
}

/// The state as a whole word.
pub(super) fn long_state(state: &str) -> &'static str {
    match state {
        "idle" => "idle",
        "mix" => "mixed",
        "alloc" => "allocated",
        "drain" => "drained",
        "drng" => "draining",
        _ => "down",
    }
}

fn page(columns: &[Column<char>], lines: &[Line<'_>], has_heading: bool) -> String {
    let heading =
        has_heading.then(|| list::line(columns, |letter| heading(*letter).unwrap_or_default().to_owned()));
    let lines = lines.iter().map(|line| list::line(columns, |letter| value(*letter, line)));
    heading.into_iter().chain(lines).collect()
}

fn heading(letter: char) -> Option<&'static str> {
    Some(match letter {
        'P' | 'R' => "PARTITION",
        'a' => "AVAIL",
        'l' => "TIMELIMIT",
        'D' => "NODES",
        't' | 'T' => "STATE",
        'N' | 'n' => "NODELIST",
        'c' => "CPUS",
        'C' => "CPUS(A/I/O/T)",
        'm' => "MEMORY",
        'e' => "FREE_MEM",
        'G' => "GRES",
        'F' => "NODES(A/I/O/T)",
        'E' => "REASON",
        'u' => "USER",
        'H' => "TIMESTAMP",
        'f' => "AVAIL_FEATURES",
        'o' => "NODE_ADDR",
        'w' => "WEIGHT",
        _ => return None,
    })
}

fn value(letter: char, line: &Line<'_>) -> String {
    let of_first =
        |value: fn(&NodeView) -> String| line.nodes.first().map(|node| value(node)).unwrap_or_default();
    let count = |is: fn(&str) -> bool| if is(line.state) { line.nodes.len() } else { 0 };
    match letter {
        'P' => line.partition.clone(),
        'R' => line.partition.trim_end_matches('*').to_owned(),
        'a' => "up".to_owned(),
        'l' => "infinite".to_owned(),
        'D' => line.nodes.len().to_string(),
        't' => line.state.to_owned(),
        'T' => long_state(line.state).to_owned(),
        'N' | 'n' => {
            hostlist::compress(&line.nodes.iter().map(|node| node.name.to_string()).collect::<Vec<_>>())
        }
        'c' => of_first(|node| (node.cpu_milli / 1_000).to_string()),
        'C' => {
            let sum = |value: fn(&NodeView) -> u64| line.nodes.iter().map(|node| value(node)).sum::<u64>();
            let total = sum(|node| node.cpu_milli / 1_000);
            let free = sum(|node| u64::try_from(node.cpu_free_milli).unwrap_or(0) / 1_000);
            format!("{}/{free}/0/{total}", total.saturating_sub(free))
        }
        'm' => of_first(|node| (node.memory_bytes >> 20).to_string()),
        'e' => of_first(|node| (u64::try_from(node.memory_free_bytes).unwrap_or(0) >> 20).to_string()),
        'G' => of_first(gres),
        'F' => format!(
            "{}/{}/{}/{}",
            count(|state| matches!(state, "alloc" | "mix")),
            count(|state| state == "idle"),
            count(|state| matches!(state, "down" | "drain" | "drng")),
            line.nodes.len()
        ),
        'E' => of_first(|node| {
            node.closed_by.as_ref().and_then(|by| by.reason.clone()).unwrap_or_else(|| "none".to_owned())
        }),
        'u' => of_first(|node| {
            node.closed_by.as_ref().map_or_else(|| "Unknown".to_owned(), |by| by.user.clone())
        }),
        'H' => of_first(|node| {
            let at = node.closed_by.as_ref().map(|by| by.at);
            super::size::date(at, &jiff::tz::TimeZone::system())
        }),
        'f' => of_first(|node| if node.model.is_empty() { "(null)".to_owned() } else { node.model.clone() }),
        'o' => of_first(|node| node.address.clone()),
        'w' => "1".to_owned(),
        _ => String::new(),
    }
}

/// `gpu:8`.
pub(super) fn gres(node: &NodeView) -> String {
    if node.devices == 0 { "(null)".to_owned() } else { format!("gpu:{}", node.devices) }
}

/// The page of the usual format.
#[cfg(test)]
pub(super) fn usual(format: Option<&str>, view: &NodesView, queues: &[QueueView], now: Timestamp) -> String {
    let format = format.unwrap_or(SHORT);
    let columns = list::read(format, FROM, |letter| heading(letter).map(|_| letter)).unwrap();
    page(&columns, &lines(view, &partitions(queues), format == BY_NODE, now), true)
}
