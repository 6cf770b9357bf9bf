//! Topologies: drawn, checked, compared, imported and exported.

pub(crate) mod calibrate;
mod export;
mod import;
pub(super) mod load;

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use phalanx_api::protocol::{Answer, TopologyView, Verb as Ask};
use phalanx_discover::map::{self, MapChange, MapFinding, MapUnit};
use phalanx_discover::{Discovered, Finding, Severity, check, host};
use phalanx_model::{DeviceMask, Machine, NodeName};
use phalanx_spec::MeasuredEnd;
use serde_json::{Value, json};

use super::{Session, cluster};
use crate::args::{Reading, Topo};
use crate::failure::Failure;
use crate::show;
use crate::submission::is_stdin;

pub(super) fn topo(session: &Session, topo: Topo) -> Result<ExitCode, Failure> {
    match topo {
        Topo::Show { what, reading } => draw(session, &what, &reading),
        Topo::Check { files, reading } => inspect(session, &files, &reading),
        Topo::Import(import) => import::import(session, &import),
        Topo::Export(export) => export::export(session, &export),
        Topo::Diff { before, after, exit_code, reading } => diff(session, before, after, exit_code, &reading),
        Topo::Calibrate(calibrate) => calibrate::run(session, &calibrate),
        Topo::Probe(probe) => super::probe::probe(session, &probe),
    }
}

/// The machines of the daemon; without a daemon, this host.
enum Seen {
    Cluster(TopologyView),
    Host(Discovered),
}

fn look(session: &Session) -> Result<Seen, Failure> {
    match session.ask(Ask::Topology) {
        Ok(Answer::Topology(view)) => Ok(Seen::Cluster(view)),
        Ok(_) => Err(Failure::unexpected()),
        Err(failure) if failure.code == "no_daemon" => {
            session.out.note("no daemon answers; this is the machine as found");
            Ok(Seen::Host(host::discover()))
        }
        Err(failure) => Err(failure),
    }
}

fn draw(session: &Session, what: &[String], reading: &Reading) -> Result<ExitCode, Failure> {
    let is_file = |text: &String| is_stdin(Path::new(text)) || Path::new(text).is_file();
    if what.iter().any(is_file) {
        let files: Vec<PathBuf> = what.iter().map(PathBuf::from).collect();
        let loaded = load::files(session, &files, reading)?;
        match &loaded.machine {
            Some(found) if loaded.is_machine => {
                let gaps: Vec<String> = found.gaps.iter().map(ToString::to_string).collect();
                draw_machine(session, &loaded.name, &found.machine, ("gaps", &gaps))?;
            }
            _ => {
                loaded.say_gaps(session);
                show_cluster(session, &loaded.view()?, None)?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    if what.len() > 1 {
        let missing = what.iter().find(|text| !is_file(text)).map_or("", String::as_str);
        let message = format!("there is no file {missing}, and of nodes one is drawn at a time");
        return Err(Failure::usage(message, "give one node, or files"));
    }
    let Some(node) = what.first() else {
        match look(session)? {
            Seen::Host(Discovered { machine, notes, .. }) => {
                draw_machine(session, "this host", &machine, ("notes", &notes))?
            }
            Seen::Cluster(view) => show_cluster(session, &view, None)?,
        }
        return Ok(ExitCode::SUCCESS);
    };
    let node = node_or_file(node)?;
    let Answer::Topology(view) = session.ask(Ask::Topology)? else { return Err(Failure::unexpected()) };
    if !view.nodes.iter().any(|n| n.name == node) {
        return Err(Failure::not_found(
            format!("no node and no file {node}"),
            "`phalanx nodes` lists the nodes",
        ));
    }
    let held = view.held.iter().filter(|(n, _)| *n == node).cloned().collect();
    let nodes = view.nodes.iter().filter(|n| n.name == node).cloned().collect();
    show_cluster(session, &TopologyView { nodes, held, ..view }, Some(&node))?;
    Ok(ExitCode::SUCCESS)
}

/// What is no file must be a node; something with a slash was meant as a file.
fn node_or_file(text: &str) -> Result<NodeName, Failure> {
    let path = Path::new(text);
    if text.contains('/') || path.extension().is_some() && !text.contains(':') {
        return Err(Failure::not_found(
            format!("there is no file {text}"),
            "`phalanx topo import --help` lists what is read",
        ));
    }
    cluster::node_name(text)
}

fn show_cluster(session: &Session, view: &TopologyView, only: Option<&NodeName>) -> Result<(), Failure> {
    let names = || view.nodes.iter().map(|node| node.name.to_string()).collect();
    session.out.show("Topology", view, |page| show::topo::cluster(page, view, only), names)
}

/// A machine outside of any cluster, and what could not be read of it.
fn draw_machine(
    session: &Session,
    name: &str,
    machine: &Machine,
    (what, remarks): (&str, &[String]),
) -> Result<(), Failure> {
    let body = json!({ "machine": machine, what: remarks });
    let free = |_| None;
    let picture = |page: &show::Page| {
        show::topo::title(name, machine) + &show::topo::machine(page, machine, DeviceMask::EMPTY, &free)
    };
    session.out.show("Machine", body, picture, || vec![machine.shape.to_string()])?;
    remarks.iter().for_each(|remark| session.out.note(remark));
    Ok(())
}

/// Findings of a machine by itself name its devices; those of a map name hosts, switches and domains.
fn inspect(session: &Session, files: &[PathBuf], reading: &Reading) -> Result<ExitCode, Failure> {
    if !files.is_empty() {
        let loaded = load::files(session, files, reading)?;
        loaded.say_gaps(session);
        return match &loaded.machine {
            Some(found) if loaded.is_machine => {
                let mut all = check::check(&found.machine);
                all.extend(found.findings.iter().cloned());
                say_machine(session, &loaded.name, &all)
            }
            _ => {
                let mut all = map::check(&loaded.graph, &loaded.domains);
                all.extend(measured(&loaded));
                all.sort_by_key(|finding| Reverse(finding.severity));
                say_map(session, &loaded.name, &all)
            }
        };
    }
    match look(session)? {
        Seen::Host(Discovered { machine, findings, .. }) => {
            let mut found = check::check(&machine);
            found.extend(findings);
            say_machine(session, "this host", &found)
        }
        Seen::Cluster(view) => {
            let (graph, domains) = load::of_view(&view);
            say_map(session, "the cluster", &map::check(&graph, &domains))
        }
    }
}

/// What the list `measured` of a cluster file shows.
fn measured(loaded: &load::Loaded) -> Vec<MapFinding> {
    fn end(end: &MeasuredEnd) -> (&str, Option<u32>) {
        (end.node.as_str(), end.device)
    }
    let pairs = loaded.measured.iter().map(|pair| map::MeasuredPair {
        a: end(&pair.a),
        b: end(&pair.b),
        mb_per_s: pair.bytes_per_s / 1_000_000,
    });
    map::check_measured(&loaded.graph, &loaded.domains, &pairs.collect::<Vec<_>>())
}

fn say_machine(session: &Session, name: &str, found: &[Finding]) -> Result<ExitCode, Failure> {
    let items: Vec<Value> = found.iter().map(|finding| item(name, finding)).collect();
    let worst = found.iter().map(|finding| finding.severity).max();
    let names = || if found.is_empty() { Vec::new() } else { vec![name.to_owned()] };
    let list = [(name.to_owned(), found.to_vec())];
    session.out.show(
        "FindingList",
        json!({ "items": items }),
        |page| show::topo::findings(page, &list),
        names,
    )?;
    Ok(verdict(worst))
}

fn say_map(session: &Session, name: &str, found: &[MapFinding]) -> Result<ExitCode, Failure> {
    let items: Vec<Value> = found.iter().map(map_item).collect();
    let worst = found.iter().map(|finding| finding.severity).max();
    let names = || found.iter().flat_map(|finding| finding.subject.names.clone()).collect();
    let page = |page: &show::Page| show::topo::map_findings(page, name, found);
    session.out.show("FindingList", json!({ "items": items }), page, names)?;
    Ok(verdict(worst))
}

fn verdict(worst: Option<Severity>) -> ExitCode {
    if worst == Some(Severity::Severe) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn item(name: &str, finding: &Finding) -> Value {
    let share = finding.cost.map(|cost| json!({ "have": cost.have, "of": cost.of }));
    json!({
        "machine": name,
        "severity": finding.severity.word(),
        "devices": finding.devices.iter().collect::<Vec<_>>(),
        "what": finding.what,
        "links": share,
    })
}

fn map_item(finding: &MapFinding) -> Value {
    let cost = finding.cost.map(|cost| json!({ "have": cost.have, "of": cost.of, "unit": unit(cost.unit) }));
    json!({
        "subjects": finding.subject.names,
        "severity": finding.severity.word(),
        "what": finding.what,
        "cost": cost,
    })
}

const fn unit(unit: MapUnit) -> &'static str {
    match unit {
        MapUnit::MbPerS => "mb_per_s",
        MapUnit::Cables => "cables",
        MapUnit::NvLinks => "nvlinks",
        MapUnit::Lanes => "lanes",
        MapUnit::Hosts => "hosts",
    }
}

/// What changed between two files, or from a file to the running cluster.
fn diff(
    session: &Session,
    before: PathBuf,
    after: Option<PathBuf>,
    exit_code: bool,
    reading: &Reading,
) -> Result<ExitCode, Failure> {
    let first = load::files(session, &[before], reading)?;
    let (mut graph, mut domains) = (first.graph, first.domains);
    let (mut new_graph, mut new_domains) = match after {
        Some(after) => {
            let second = load::files(session, &[after], reading)?;
            // Two readings of one machine, whatever the files are called.
            if first.is_machine
                && second.is_machine
                && let (Some(old), Some(new)) = (graph.hosts.first_mut(), second.graph.hosts.first())
            {
                old.name = new.name.clone();
            }
            (second.graph, second.domains)
        }
        None => {
            let Answer::Topology(view) = session.ask(Ask::Topology)? else {
                return Err(Failure::unexpected());
            };
            load::of_view(&view)
        }
    };
    // The whole is called what each file calls it.
    map::plain_root(&mut graph, &mut domains);
    map::plain_root(&mut new_graph, &mut new_domains);
    map::not_compared(&graph, &new_graph).iter().for_each(|note| session.out.note(note));
    let changes = map::diff((&graph, &domains), (&new_graph, &new_domains));
    let item = |change: &MapChange| {
        json!({
            "sign": change.sign.symbol().to_string(),
            "kind": change.subject.kind.word(),
            "subjects": change.subject.names,
            "what": change.what,
        })
    };
    let items: Vec<Value> = changes.iter().map(item).collect();
    let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let page = |page: &show::Page| show::topo::changes(page, &lines);
    let names = || changes.iter().flat_map(|change| change.subject.names.clone()).collect();
    session.out.show("ChangeList", json!({ "items": items }), page, names)?;
    Ok(if exit_code && !changes.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
