//! A map in the format of another tool.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use phalanx_api::protocol::{Answer, Verb as Ask};
use phalanx_discover::fabric::slurm_yaml;
use phalanx_discover::objects::{Preset, hyper_nodes, topologies};
use phalanx_discover::{map, nccl};
use phalanx_model::domains::Domains;
use phalanx_model::{CostTable, Graph, Host, Machine};
use phalanx_spec::ClusterFile;

use super::super::Session;
use super::{import, load};
use crate::args::{Export, ExportTo};
use crate::failure::Failure;
use crate::output::{self, Format};

pub(super) fn export(session: &Session, export: &Export) -> Result<ExitCode, Failure> {
    let (graph, domains) = if export.files.is_empty() {
        let Answer::Topology(view) = session.ask(Ask::Topology)? else { return Err(Failure::unexpected()) };
        load::of_view(&view)
    } else {
        let loaded = load::files(session, &export.files, &export.reading)?;
        loaded.say_gaps(session);
        (loaded.graph, loaded.domains)
    };
    // `table` stands there when nothing was given.
    if export.file.as_ref().is_some_and(|to| !matches!(to, Format::File(_) | Format::Table)) {
        return Err(Failure::usage(
            "-o is the file to write here",
            "for a file of such a name write ./ before it",
        ));
    }
    let text = write(session, export, &graph, &domains)?;
    match &export.file {
        Some(Format::File(path)) => {
            fs::write(path, text).map_err(|e| Failure::file("write", path, &e))?;
            session.out.note(&format!("written to {}", path.display()));
        }
        _ => output::print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write(session: &Session, export: &Export, graph: &Graph, domains: &Domains) -> Result<String, Failure> {
    Ok(match export.to {
        ExportTo::Dot => map::dot(graph, domains),
        ExportTo::Svg => map::svg(graph, domains),
        ExportTo::Nccl => nccl::write(machine(export, graph)?),
        ExportTo::Slurm => {
            let refuse = |e: slurm_yaml::WriteError| Failure::usage(e.to_string(), "");
            // The switches of a tree are written as they are; those of rails as the domains that follow from them.
            let own = if export.reading.levels.is_empty() && !graph.switches.is_empty() {
                slurm_yaml::write(graph, &[]).ok()
            } else {
                None
            };
            own.map_or_else(|| slurm_yaml::write(&map::as_tree(graph, domains), &[]).map_err(refuse), Ok)?
        }
        ExportTo::Volcano => {
            // Domains of switches become domains by name.
            let (levels, nodes) = (load::levels(domains)?, map::to_nodes(graph, domains));
            let (named, _) = map::of_nodes(&levels, &nodes, &CostTable::default());
            hyper_nodes::to_volcano(&named, &domains.levels)
        }
        ExportTo::Kueue => {
            let named = export.reading.preset.as_deref().and_then(Preset::named);
            let preset = match named {
                Some(preset) => preset,
                None => labelled(export)?,
            };
            topologies::to_kueue("phalanx", &preset)
        }
        ExportTo::Cluster => {
            let folder = match &export.file {
                Some(Format::File(path)) => Some(path.parent().unwrap_or(Path::new(""))),
                _ => None,
            };
            let texts = match folder {
                Some(folder) => import::texts(graph, Some(folder))?,
                None => BTreeMap::new(),
            };
            if folder.is_none() && graph.hosts.iter().any(|host| host.machine.is_some()) {
                session.out.note("devices are described in files of their own, which only -o FILE writes");
            }
            let topo_of = |host: &Host| texts.get(&host.machine.as_ref()?.shape).cloned();
            let written = ClusterFile::of_map(None, graph, domains, &topo_of);
            written.left_out.iter().for_each(|what| session.out.note(what));
            let file = written.file;
            serde_saphyr::to_string(&file).map_err(|e| Failure::internal(e.to_string()))?
        }
    })
}

fn labelled(export: &Export) -> Result<Preset, Failure> {
    let pairs: Vec<(&str, &str)> =
        export.reading.labels.iter().filter_map(|text| text.split_once('=')).collect();
    if pairs.is_empty() {
        let message = "Kueue's levels are labels of nodes, which have to be named";
        return Err(Failure::usage(message, "give --preset, or --label LEVEL=KEY for each level"));
    }
    Preset::custom(pairs).map_err(|e| Failure::usage(format!("--label: {e}"), ""))
}

fn no_machine(export: &Export, graph: &Graph) -> Failure {
    let hint = "give the output of `nvidia-smi topo -m` of the machine as well";
    match &export.node {
        Some(name) if graph.hosts.iter().any(|host| host.name.as_str() == name) => {
            Failure::usage(format!("the files do not describe the machine of {name}"), hint)
        }
        Some(name) => {
            Failure::not_found(format!("there is no node {name}"), "`phalanx topo show` lists the nodes")
        }
        None => Failure::usage("no machine is described, only hosts and switches", hint),
    }
}

/// The one machine, or that of the node that is named.
fn machine<'a>(export: &Export, graph: &'a Graph) -> Result<&'a Machine, Failure> {
    let named = |host: &&Host| export.node.as_ref().is_none_or(|name| host.name.as_str() == name);
    let mut found = graph.hosts.iter().filter(named).filter_map(|host| host.machine.as_deref());
    let first = found.next();
    let differs = found.any(|machine| Some(&machine.shape) != first.map(|machine| &machine.shape));
    match first {
        Some(_) if differs => {
            Err(Failure::usage("there are machines of several kinds", "name one with --node"))
        }
        Some(machine) => Ok(machine),
        None => Err(no_machine(export, graph)),
    }
}
