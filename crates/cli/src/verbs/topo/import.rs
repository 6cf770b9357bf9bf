//! Descriptions of machines and fabrics as a cluster file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use phalanx_discover::nccl;
use phalanx_discover::source::Kind;
use phalanx_model::{DomainName, Graph, Host, Machine, ShapeName, shape};
use phalanx_spec::ClusterFile;
use phalanx_spec::quantity::parse_memory;
use serde::Serialize;
use serde_json::json;

use super::super::Session;
use super::load::{self, Loaded, is_of_machine, read_large};
use crate::args::Import;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::submission::{is_stdin, read_file, shown};

pub(super) fn import(session: &Session, import: &Import) -> Result<ExitCode, Failure> {
    // `table` stands there when nothing was given.
    if import.to.as_ref().is_some_and(|to| !matches!(to, Format::File(_) | Format::Table)) {
        return Err(Failure::usage(
            "-o is the cluster file here",
            "for a file of such a name write ./ before it",
        ));
    }
    let to = match &import.to {
        Some(Format::File(path)) => Some(path.clone()),
        _ => None,
    };
    let is_piped = import.files.iter().any(|path| is_stdin(path));
    if is_piped && to.is_none() && import.files.len() == 1 {
        // What is read is kept beside the cluster file, which names it.
        let hint = "`nvidia-smi topo -m | phalanx topo import - --name node-a -o cluster.yaml`";
        let text = read_large(Path::new("-"))?;
        if Kind::detect(&text).is_none_or(is_of_machine) {
            let message =
                "a machine from standard input needs --name and -o FILE, to be kept beside that file";
            return Err(Failure::usage(message, hint));
        }
        return Err(Failure::usage(
            "a fabric from standard input needs -o FILE",
            "give the file's name instead of -",
        ));
    }
    if is_piped && import.name.is_none() && import.files.len() == 1 {
        let message = "a text from standard input needs --name and -o FILE, to be kept beside that file";
        return Err(Failure::usage(
            message,
            "`nvidia-smi topo -m | phalanx topo import - --name node-a -o cluster.yaml`",
        ));
    }
    let mut loaded = load::files(session, &import.files, &import.reading)?;
    loaded.say_gaps(session);
    if loaded.is_machine {
        return add_node(session, import, &loaded, to.as_deref());
    }
    declare(import, &mut loaded)?;
    write_map(session, import, &loaded, to.as_deref())
}

/// Sets on the machines of a map what the flags say. Without a machine there is nothing that they could mean.
fn declare(import: &Import, loaded: &mut Loaded) -> Result<(), Failure> {
    let Import { model, gpu_memory, memory, cpus, .. } = import;
    let given = [
        ("--model", model.is_some()),
        ("--gpu-memory", gpu_memory.is_some()),
        ("--memory", memory.is_some()),
        ("--cpus", cpus.is_some()),
    ];
    let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    let bytes = |flag: &str, text: &Option<String>| {
        let read = text.as_deref().map(parse_memory).transpose();
        read.map_err(|e| Failure::usage(format!("{flag}: {e}"), ""))
    };
    let (gpu_memory, memory) = (bytes("--gpu-memory", gpu_memory)?, bytes("--memory", memory)?);
    let cpus = cpus_of(import)?;
    let changed = load::each_machine(&mut loaded.graph, |machine| {
        for device in &mut machine.devices {
            if let Some(model) = model {
                device.model.clone_from(model);
            }
            device.memory_bytes = gpu_memory.unwrap_or(device.memory_bytes);
        }
        machine.memory_bytes = memory.unwrap_or(machine.memory_bytes);
        machine.cpu_milli = cpus.map_or(machine.cpu_milli, |cpus| cpus.saturating_mul(1000));
        machine.assume_nic_speeds();
        shape::rename(machine);
    });
    if changed == 0 {
        let message = format!("{flag} describes a machine, and the files name none with devices");
        return Err(Failure::usage(message, "give the output of `nvidia-smi topo -m` of a host as well"));
    }
    Ok(())
}

fn write_map(
    session: &Session,
    import: &Import,
    loaded: &Loaded,
    to: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let name = import.name.as_ref().map(|name| DomainName::new(name.as_str())).transpose();
    let name = name.map_err(|e| Failure::usage(format!("--name: {e}"), ""))?;
    let folder = to.and_then(Path::parent).unwrap_or(Path::new(""));
    let texts = texts(&loaded.graph, to.is_some().then_some(folder))?;
    let topo_of = |host: &Host| texts.get(&host.machine.as_ref()?.shape).cloned();
    let written = ClusterFile::of_map(name, &loaded.graph, &loaded.domains, &topo_of);
    written.left_out.iter().for_each(|what| session.out.note(what));
    let bare = loaded.graph.hosts.iter().filter(|host| host.machine.is_none()).count();
    if bare > 0 {
        let hint = "give the output of `nvidia-smi topo -m` of one of them as well";
        session.out.note(&format!("{bare} hosts have no devices yet; {hint}"));
    }
    for (index, level) in loaded.domains.unplaced.iter().take(10) {
        if let Some(host) = loaded.graph.hosts.get(*index as usize) {
            session
                .out
                .note(&format!("{} has no place on the level {level}; it stands there alone", host.name));
        }
    }
    let text = serde_saphyr::to_string(&written.file).map_err(|e| Failure::internal(e.to_string()))?;
    let count = checked(&text, &loaded.name)?;
    let Some(to) = to else {
        output::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    if to.exists() && read_file(to)? != text {
        let message = format!("{} is there and differs", to.display());
        return Err(Failure::usage(
            message,
            "`phalanx topo diff` says in what; move it away to write it anew",
        ));
    }
    fs::write(to, &text).map_err(|e| Failure::file("write", to, &e))?;
    let body = json!({ "file": to.display().to_string(), "nodes": count, "levels": loaded.domains.levels });
    let levels: Vec<String> = loaded.domains.levels.iter().map(ToString::to_string).collect();
    let said = format!("{count} nodes, levels {}, are in {}\n", levels.join(", "), to.display());
    session.out.show(
        "Imported",
        body,
        |page| if page.quiet { String::new() } else { said },
        || vec![to.display().to_string()],
    )?;
    Ok(ExitCode::SUCCESS)
}

/// NCCL's XML beside the cluster file for every machine; the name of each.
pub(super) fn texts(graph: &Graph, folder: Option<&Path>) -> Result<BTreeMap<ShapeName, String>, Failure> {
    let mut texts = BTreeMap::new();
    let machines = graph.hosts.iter().filter_map(|host| host.machine.as_deref());
    for machine in machines.filter(|machine| !machine.devices.is_empty()) {
        if texts.contains_key(&machine.shape) {
            continue;
        }
        let Some(folder) = folder else {
            let message =
                "the machines of these hosts are written beside the cluster file, which needs a place";
            return Err(Failure::usage(message, "give -o FILE"));
        };
        let name = format!("{}.topo.xml", machine.shape);
        write_new(&folder.join(&name), &nccl::write(machine))?;
        texts.insert(machine.shape.clone(), name);
    }
    Ok(texts)
}

/// One node of a cluster file, in the file's own words.
#[derive(Serialize)]
struct Stanza<'a> {
    name: &'a str,
    topo: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_memory: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<&'a str>,
}

/// Adds one machine to a cluster file, or prints it as a file of its own.
fn add_node(
    session: &Session,
    import: &Import,
    loaded: &Loaded,
    to: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let Some(reading) = &loaded.machine else { return Err(Failure::internal("no machine was read")) };
    if reading.machine.devices.is_empty() {
        let message = format!("{} names no devices", loaded.name);
        return Err(Failure::usage(
            message,
            "give the output of `nvidia-smi topo -m` of the machine as well",
        ));
    }
    let first = import.files.first().map_or(Path::new("-"), PathBuf::as_path);
    let name = import.name.clone().or_else(|| load::host_of(first).map(|host| host.to_string()));
    let name = name.unwrap_or_default();
    let folder = to.and_then(Path::parent).unwrap_or(Path::new(""));
    let kept = kept(import, &name, &reading.machine, to.is_some().then_some(folder))?;
    let stanza = stanza(import, &name, &kept.name, &reading.machine)?;
    let Some(to) = to else {
        let text = format!("nodes:\n{stanza}");
        checked(&text, "the new node")?;
        output::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let known = if to.exists() { read_file(to)? } else { "nodes:\n".to_owned() };
    let combined = append(&known, &stanza);
    let before = if to.exists() { checked(&known, &shown(to))? } else { 0 };
    if checked(&combined, &shown(to))? <= before {
        let message = format!("{} does not end with its nodes, so none can be added", to.display());
        return Err(Failure::usage(message, "leave out -o and put the text where the nodes stand"));
    }
    if let Some(text) = &kept.text {
        write_new(&folder.join(&kept.name), text)?;
    }
    fs::write(to, combined).map_err(|e| Failure::file("write", to, &e))?;
    let body = json!({ "file": to.display().to_string(), "node": name, "topo": kept.name });
    let said = format!("{name} is in {}; `phalanx up --cluster {}` runs it\n", to.display(), to.display());
    session.out.show(
        "Imported",
        body,
        |page| if page.quiet { String::new() } else { said },
        || vec![name.clone()],
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The text that a cluster file names, and what to write for it.
struct Kept {
    /// Relative to the cluster file.
    name: String,
    text: Option<String>,
}

/// One file stays as it is, and is copied beside the cluster file when it is elsewhere. What was put together
/// from several is written as NCCL's XML.
fn kept(import: &Import, name: &str, machine: &Machine, folder: Option<&Path>) -> Result<Kept, Failure> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let stem: String = name.chars().map(plain).collect();
    let [file] = import.files.as_slice() else {
        if folder.is_none() {
            let message =
                "a machine that is put together from several files is written beside the cluster file";
            return Err(Failure::usage(message, "give -o FILE"));
        }
        return Ok(Kept { name: format!("{stem}.topo.xml"), text: Some(nccl::write(machine)) });
    };
    let Some(folder) = folder else { return Ok(Kept { name: file.display().to_string(), text: None }) };
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let base = if folder.as_os_str().is_empty() { absolute(Path::new(".")) } else { absolute(folder) };
    match absolute(file).strip_prefix(&base) {
        Ok(relative) if !is_stdin(file) => Ok(Kept { name: relative.display().to_string(), text: None }),
        // Standard input is read once: what was understood of it is kept.
        _ if is_stdin(file) => {
            Ok(Kept { name: format!("{stem}.topo.xml"), text: Some(nccl::write(machine)) })
        }
        _ => Ok(Kept { name: format!("{stem}.topo.txt"), text: Some(read_large(file)?) }),
    }
}

/// A text that is there already stays, when it is the same.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    match fs::read_to_string(path) {
        Ok(known) if known == text => Ok(()),
        Ok(_) => {
            Err(Failure::usage(format!("{} is there and differs", path.display()), "give another --name"))
        }
        Err(_) => fs::write(path, text).map_err(|e| Failure::file("write", path, &e)),
    }
}

fn cpus_of(import: &Import) -> Result<Option<u64>, Failure> {
    let said = import.cpus.as_ref().map(|text| text.parse::<u64>().map_err(|_| text));
    said.transpose().map_err(|text| {
        Failure::usage(format!("--cpus: {text:?} is no number"), "a whole number, such as 64")
    })
}

/// The node as an item of the list `nodes`.
fn stanza(import: &Import, name: &str, topo: &str, machine: &Machine) -> Result<String, Failure> {
    for (flag, memory) in [("--memory", &import.memory), ("--gpu-memory", &import.gpu_memory)] {
        if let Some(text) = memory {
            parse_memory(text).map_err(|e| Failure::usage(format!("{flag}: {e}"), ""))?;
        }
    }
    let cpus = cpus_of(import)?.or(Some(machine.cpu_milli / 1000).filter(|cpus| *cpus > 0));
    let (model, gpu_memory, memory) =
        (import.model.as_deref(), import.gpu_memory.as_deref(), import.memory.as_deref());
    let stanza = Stanza { name, topo, model, gpu_memory, cpus, memory };
    let yaml = serde_saphyr::to_string(&stanza).map_err(|e| Failure::internal(e.to_string()))?;
    let lines =
        yaml.lines().enumerate().map(|(i, line)| format!("  {} {line}\n", if i == 0 { "-" } else { " " }));
    Ok(lines.collect())
}

fn append(known: &str, stanza: &str) -> String {
    let newline = if known.is_empty() || known.ends_with('\n') { "" } else { "\n" };
    format!("{known}{newline}{stanza}")
}

/// Number of nodes in a cluster file that has no errors.
fn checked(text: &str, name: &str) -> Result<usize, Failure> {
    Ok(ClusterFile::from_yaml(text, name)?.into_cluster()?.nodes.len())
}
