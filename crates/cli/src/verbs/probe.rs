//! `topo probe`: what the links carry, measured and not only labelled.

mod judge;
mod merge;
mod pairs;
mod run;
mod task;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use phalanx_api::protocol::{Answer, NodesView, TopologyView, Verb as Ask};
use phalanx_model::{Admin, Node, Origin};
use serde_json::json;

pub(crate) use judge::Row;
pub(crate) use pairs::Pairs;

use super::Session;
use crate::args::{Probe, Transport};
use crate::failure::Failure;
use crate::measure::{Way, nccl};
use crate::show;
use crate::submission::{read_file, shown};
use merge::{Entry, MergeError};
use run::Runner;
use task::{Task, What, ours};

/// What shells report for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

pub(super) fn probe(session: &Session, probe: &Probe) -> Result<ExitCode, Failure> {
    let Answer::Topology(view) = session.ask(Ask::Topology)? else { return Err(Failure::unexpected()) };
    let nodes = session.nodes()?;
    let chosen = choose(session, &view, &nodes, &probe.nodes)?;
    let tasks = plan(session, &chosen, probe)?;
    if let Some(path) = &probe.to {
        // Before minutes are spent: whether the file can take what will be measured.
        let rows = tasks.iter().flat_map(|task| task.rows(&view, &[])).filter(|row| row.a != row.b);
        let sample =
            |row: Row| Entry { a: row.a, b: row.b, bytes_per_s: 1, latency_ns: 0, by: String::new() };
        merged(path, &rows.map(sample).collect::<Vec<_>>())?;
    }
    let mut runner = Runner::start(session, probe, &view)?;
    let mut rows: Vec<Row> = Vec::new();
    for (done, task) in tasks.iter().enumerate() {
        session.out.note(&format!("{} of {}: {}", done + 1, tasks.len(), task.name));
        let measured = runner.measure(task);
        if runner.is_interrupted {
            session.out.note("interrupted; the pairs that are left were not measured");
            break;
        }
        rows.append(&mut measured?);
    }
    judge::judge(&mut rows);
    if let Some(path) = &probe.to {
        write(session, path, &rows)?;
    }
    if rows.iter().any(|row| row.is_loopback) {
        session
            .out
            .note("nodes that share this host were reached over its loopback interface, which is no fabric");
    }
    let names = || rows.iter().map(|row| format!("{} {}", row.a, row.b)).collect();
    let body = json!({ "items": rows, "bytes": probe.bytes, "repeat": probe.repeat });
    session.out.show(
        "ProbeList",
        body,
        |page| show::probe::list(page, &rows, probe.bytes, probe.repeat),
        names,
    )?;
    Ok(match rows.iter().any(|row| row.error.is_some()) {
        _ if runner.is_interrupted => ExitCode::from(INTERRUPTED),
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// The nodes that were named, or all; in the order of their places. What takes no work is left out, and what
/// is busy is waited for: both are said.
fn choose<'a>(
    session: &Session,
    view: &'a TopologyView,
    nodes: &NodesView,
    named: &[String],
) -> Result<Vec<&'a Node>, Failure> {
    let known = |name: &String| view.nodes.iter().any(|node| node.name.as_str() == name);
    if let Some(unknown) = named.iter().find(|name| !known(name)) {
        return Err(Failure::not_found(format!("no node {unknown}"), "`phalanx nodes` lists the nodes"));
    }
    let is_named = |node: &&Node| named.is_empty() || named.iter().any(|name| node.name.as_str() == name);
    let mut chosen: Vec<&Node> = view.nodes.iter().filter(is_named).collect();
    chosen.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.name.cmp(&b.name)));
    chosen.retain(|node| {
        let Some(now) = nodes.nodes.iter().find(|now| now.name == node.name) else { return false };
        if now.admin != Admin::Open {
            session
                .out
                .note(&format!("{} takes no work (it is cordoned or draining) and is left out", node.name));
            return false;
        }
        if let Some(held) = now.held.first() {
            let more = if now.held.len() > 1 { " and others" } else { "" };
            let job = format!("job {} ({}){more}", held.job, held.name);
            session.out.note(&format!("{} is busy with {job}; its pairs wait for that", node.name));
        }
        true
    });
    if chosen.is_empty() {
        return Err(Failure::unavailable("no node takes work", "`phalanx nodes` says why"));
    }
    Ok(chosen)
}

/// What is measured, in order: between nodes, then inside each.
fn plan<'a>(session: &Session, nodes: &[&'a Node], probe: &Probe) -> Result<Vec<Task<'a>>, Failure> {
    let mut tasks = Vec::new();
    let way = match probe.transport {
        Transport::Auto | Transport::Socket => Some(Way::Socket),
        Transport::Shm => Some(Way::Shm),
        Transport::Nccl => None,
    };
    let (pairs, is_cut) = probe.pairs.among(nodes.len());
    if is_cut {
        session.out.note(&format!("only the {} nearest pairs are measured", pairs.len()));
    }
    if let Some(way) = way {
        let between = pairs.iter().filter_map(|(a, b)| Some((*nodes.get(*a)?, *nodes.get(*b)?)));
        tasks.extend(between.map(|(a, b)| Task::new(What::Between { a, b, way })));
    }
    let has_devices = |node: &&&Node| {
        let sliced = node.machine.devices.iter().any(|device| device.is_sliced);
        node.machine.origin == Origin::Found && ours(node).count() > 1 && !sliced
    };
    let with_devices: Vec<&&Node> = nodes.iter().filter(has_devices).collect();
    let program = nccl::PROGRAMS.iter().find_map(|name| in_path(name));
    match (probe.transport, program) {
        (Transport::Auto | Transport::Nccl, Some(program)) => {
            for node in &with_devices {
                let (pairs, _) = probe.pairs.among(usize::try_from(ours(node).count()).unwrap_or(0));
                let small = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
                let pairs = pairs.into_iter().map(|(a, b)| (small(a), small(b))).collect();
                tasks.push(Task::new(What::Devices { node, pairs, program: program.clone() }));
            }
        }
        (Transport::Auto | Transport::Nccl, None) if !with_devices.is_empty() => {
            session.out.note("nccl-tests is not installed (no sendrecv_perf or all_reduce_perf in PATH): devices are not measured");
        }
        _ => {}
    }
    if probe.transport == Transport::Nccl && tasks.is_empty() {
        let hint =
            "NCCL measures between found devices of one node, with sendrecv_perf of nccl-tests in PATH";
        return Err(Failure::unavailable("there is nothing that NCCL could measure here", hint));
    }
    if let ([node], [], true) = (nodes, tasks.as_slice(), probe.transport != Transport::Socket) {
        session.out.note("one node has no pair; two of its processes are measured");
        tasks.push(Task::new(What::Inside { node }));
    }
    if tasks.is_empty() {
        return Err(Failure::usage("sockets need two nodes", "name another, or leave out --transport"));
    }
    Ok(tasks)
}

/// The program of this name that would be started from here.
fn in_path(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::var_os("PATH")?;
    let is_program = |file: &PathBuf| {
        std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(is_program)
}

/// Puts what was measured into the cluster file.
fn write(session: &Session, path: &Path, rows: &[Row]) -> Result<(), Failure> {
    let entry = |row: &Row| {
        let by = format!("phalanx topo probe, {}", row.over);
        let (bytes_per_s, latency_ns) = (row.bytes_per_s?, row.latency_ns.unwrap_or(0));
        Some(Entry { a: row.a.clone(), b: row.b.clone(), bytes_per_s, latency_ns, by })
    };
    // Two processes of one node are no two ends.
    let entries: Vec<Entry> = rows.iter().filter(|row| row.a != row.b).filter_map(entry).collect();
    if entries.is_empty() {
        session.out.note(&format!("nothing was measured that {} could hold", path.display()));
        return Ok(());
    }
    let text = merged(path, &entries)?;
    merge::replace(path, &text).map_err(|e| Failure::file("write", path, &e))?;
    session.out.note(&format!("{} measurements are in {}", entries.len(), path.display()));
    Ok(())
}

/// The cluster file with these entries.
fn merged(path: &Path, entries: &[Entry]) -> Result<String, Failure> {
    let (text, name) = (read_file(path)?, shown(path));
    merge::merge(&text, &name, entries).map_err(|error| match error {
        MergeError::Spec(error) => (*error).into(),
        MergeError::Unknown { .. } => Failure::usage(
            error.to_string(),
            "give the file that the daemon runs: `phalanx up --cluster FILE`",
        ),
        MergeError::Style { ref entries, .. } => {
            let hint = "put this into it by hand, or write its fields one below the other";
            let excerpt = format!("{entries}{hint}");
            Failure { excerpt, ..Failure::usage(error.to_string(), hint) }
        }
    })
}
