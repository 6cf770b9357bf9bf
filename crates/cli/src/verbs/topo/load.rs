//! From files, the daemon or this host to a map.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use phalanx_api::protocol::TopologyView;
use phalanx_cost::Constants;
use phalanx_discover::Gap;
use phalanx_discover::map::{self, Assembled, Options, Part};
use phalanx_discover::objects::Preset;
use phalanx_discover::source::{self, Kind, MachineReading};
use phalanx_model::domains::{self, Domains};
use phalanx_model::{CostTable, Graph, LevelName, Levels, Machine, Node, NodeName};
use phalanx_spec::{ClusterFile, FILE_BYTES_MAX, MeasuredPair};

use super::super::Session;
use crate::args::Reading;
use crate::failure::Failure;
use crate::submission::{is_stdin, shown};

/// The largest file of a fabric.
const FABRIC_BYTES_MAX: usize = phalanx_discover::fabric::TEXT_BYTES_MAX;
/// Gaps that are printed of each file before the rest is only counted.
const GAPS_SHOWN: usize = 10;
/// The level that all hosts share.
const ROOT: &str = "cluster";

/// A map, and the machine that was read by itself.
pub(in crate::verbs) struct Loaded {
    /// As messages name it: the files.
    pub(in crate::verbs) name: String,
    pub(in crate::verbs) graph: Graph,
    pub(in crate::verbs) domains: Domains,
    pub(in crate::verbs) machine: Option<MachineReading>,
    /// Whether one machine is all there is.
    pub(in crate::verbs) is_machine: bool,
    pub(in crate::verbs) gaps: Vec<(String, Gap)>,
    /// Of a cluster file.
    pub(in crate::verbs) measured: Vec<MeasuredPair>,
    /// What a cluster file says, with everything that a map has no place for.
    pub(in crate::verbs) declared: Option<TopologyView>,
    /// Those that a cluster file names, or the built-in ones.
    pub(in crate::verbs) constants: Constants,
}

impl Loaded {
    /// As the daemon would show it.
    pub(in crate::verbs) fn view(&self) -> Result<TopologyView, Failure> {
        let levels = Levels { tori: self.graph.tori.clone(), ..levels(&self.domains)? };
        let nodes = map::to_nodes(&self.graph, &self.domains);
        let file = ClusterFile::of_map(None, &self.graph, &self.domains, &|_| None).file;
        let cluster = file.into_cluster()?;
        let (levels_cost, domains) = (cluster.level_costs(), cluster.domain_costs());
        let costs = CostTable { levels: levels_cost, domains, ..CostTable::default() };
        Ok(TopologyView { levels, costs, nodes, held: Vec::new() })
    }

    pub(in crate::verbs) fn say_gaps(&self, session: &Session) {
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, gap) in &self.gaps {
            let seen = count.entry(name).or_default();
            *seen += 1;
            if *seen <= GAPS_SHOWN {
                session.out.note(&format!("{name}: {gap}"));
            }
        }
        for (name, seen) in count.into_iter().filter(|(_, seen)| *seen > GAPS_SHOWN) {
            session.out.note(&format!("{name}: and {} more", seen - GAPS_SHOWN));
        }
    }
}

/// The levels of a map, that of the node included.
pub(in crate::verbs) fn levels(domains: &Domains) -> Result<Levels, Failure> {
    Ok(Levels::new(domains.levels.clone(), level(phalanx_spec::cluster::NODE_LEVEL)?))
}

/// The map of a running cluster.
pub(in crate::verbs) fn of_view(view: &TopologyView) -> (Graph, Domains) {
    map::of_nodes(&view.levels, &view.nodes, &view.costs)
}

/// Reads files: one cluster file, or others that are put together. What was decided is said as notes.
pub(in crate::verbs) fn files(
    session: &Session,
    files: &[PathBuf],
    how: &Reading,
) -> Result<Loaded, Failure> {
    let mut parts = Vec::new();
    for path in files {
        let text = read_large(path)?;
        if how.from.is_none() && is_cluster_file(&text) {
            if files.len() > 1 {
                let message = format!("{} is a cluster file, which stands for itself", shown(path));
                return Err(Failure::usage(message, "give it alone"));
            }
            return cluster_file(&text, path);
        }
        let host = host_of(path);
        let found = source::read(&text, how.from, host.as_ref().map(NodeName::as_str)).map_err(|e| {
            Failure::usage(format!("{}: {e}", shown(path)), "`phalanx topo import --help` lists what is read")
        })?;
        parts.push(Part { name: shown(path), found });
    }
    let options = Options { preset: preset(how)?, host: files.first().and_then(|path| host_of(path)) };
    let Assembled { mut reading, machine, gaps, notes } = map::assemble(parts, &options);
    if !how.hosts.is_empty() {
        let all = reading.graph.hosts.len();
        map::keep(&mut reading.graph, |host| {
            how.hosts.iter().any(|pattern| fits(pattern, host.name.as_str()))
        });
        let kept = reading.graph.hosts.len();
        if kept == 0 {
            let message = format!("--hosts: none of {all} hosts has such a name");
            return Err(Failure::usage(message, "`*` stands for any letters and `?` for one"));
        }
        session.out.note(&format!("{kept} of {all} hosts are kept"));
    }
    notes.iter().for_each(|note| session.out.note(note));
    let is_machine = machine.is_some() && reading.graph.links.is_empty() && reading.graph.hosts.len() <= 1;
    let root = level(ROOT)?;
    let rules = chosen(domains::rules(&reading.graph, &root, &reading.levels), &how.levels)?;
    let domains = domains::derive(&reading.graph, &rules);
    let name = files.iter().map(|path| shown(path)).collect::<Vec<_>>().join(", ");
    Ok(Loaded {
        name,
        graph: reading.graph,
        domains,
        machine,
        is_machine,
        gaps,
        measured: Vec::new(),
        declared: None,
        constants: Constants::DEFAULT,
    })
}

/// Whether a name fits a pattern in which `*` stands for any letters and `?` for one.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    // Where the last star stands, and what it has taken so far.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || Some(c) == name.get(n) => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, n) = (at + 1, taken + 1);
            }
        }
    }
    pattern.get(p..).is_none_or(|rest| rest.iter().all(|c| *c == b'*'))
}

/// The levels that were asked for, of those that there are.
fn chosen(rules: Vec<domains::Rule>, wanted: &[String]) -> Result<Vec<domains::Rule>, Failure> {
    if wanted.is_empty() {
        return Ok(rules);
    }
    let find = |name: &String| {
        rules.iter().find(|rule| rule.level.as_str() == name).cloned().ok_or_else(|| {
            let known: Vec<&str> = rules.iter().map(|rule| rule.level.as_str()).collect();
            Failure::usage(
                format!("--levels: no level is named {name:?}"),
                format!("there are {}", known.join(", ")),
            )
        })
    };
    wanted.iter().map(find).collect()
}

fn preset(how: &Reading) -> Result<Option<Preset>, Failure> {
    if let Some(name) = &how.preset {
        return Ok(Preset::named(name));
    }
    if how.labels.is_empty() {
        return Ok(None);
    }
    let pair = |text: &String| {
        text.split_once('=').map(|(level, key)| (level.to_owned(), key.to_owned())).ok_or_else(|| {
            Failure::usage(
                format!("--label: {text:?} has no ="),
                "expected LEVEL=KEY, such as rack=example.com/rack",
            )
        })
    };
    let pairs: Vec<(String, String)> = how.labels.iter().map(pair).collect::<Result<_, _>>()?;
    Preset::custom(pairs.iter().map(|(level, key)| (level.as_str(), key.as_str())))
        .map(Some)
        .map_err(|e| Failure::usage(format!("--label: {e}"), ""))
}

fn level(text: &str) -> Result<LevelName, Failure> {
    LevelName::new(text).map_err(|e| Failure::usage(format!("{text:?} is no level: {e}"), ""))
}

/// Changes every machine that has devices; how many there are.
pub(in crate::verbs) fn each_machine(graph: &mut Graph, mut change: impl FnMut(&mut Machine)) -> usize {
    let machines = graph.hosts.iter_mut().filter_map(|host| host.machine.as_mut());
    let mut changed = 0;
    for machine in machines.filter(|machine| !machine.devices.is_empty()) {
        change(Arc::make_mut(machine));
        changed += 1;
    }
    changed
}

/// A cluster file begins a line with a key of its own, and is not an object of Kubernetes.
fn is_cluster_file(text: &str) -> bool {
    let top = |key: &str| text.lines().any(|line| line.starts_with(key));
    top("nodes:") && !top("kind:") && !top("switches:") && (text.contains("name:") || top("levels:"))
}

fn cluster_file(text: &str, path: &Path) -> Result<Loaded, Failure> {
    let cluster = ClusterFile::from_yaml(text, &shown(path))?.into_cluster()?;
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let constants = match &cluster.constants {
        Some(said) => phalanx_local::constants(&folder.join(said))
            .map_err(|e| Failure::usage(format!("{}: {e}", shown(path)), ""))?,
        None => Constants::DEFAULT,
    };
    let mut hardware = Beside { folder, gaps: Vec::new() };
    let nodes: Vec<Node> =
        cluster.nodes(&mut hardware).map_err(|e| Failure::usage(format!("{}: {e}", shown(path)), ""))?;
    let costs = CostTable {
        levels: cluster.level_costs(),
        domains: cluster.domain_costs(),
        transports: cluster.transports(),
        ..CostTable::default()
    };
    let (graph, domains) = map::of_nodes(&cluster.levels, &nodes, &costs);
    Ok(Loaded {
        name: shown(path),
        graph,
        domains,
        machine: None,
        is_machine: false,
        gaps: hardware.gaps,
        measured: cluster.measured,
        declared: Some(TopologyView { levels: cluster.levels, costs, nodes, held: Vec::new() }),
        constants,
    })
}

/// Topology texts beside a cluster file.
struct Beside<'a> {
    folder: &'a Path,
    gaps: Vec<(String, Gap)>,
}

impl phalanx_spec::Hardware for Beside<'_> {
    type Error = String;

    fn topology(&mut self, file: &str) -> Result<Machine, String> {
        let path = self.folder.join(file);
        let text = read_large(&path).map_err(|e| e.message)?;
        let read = source::read_machine(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        self.gaps.extend(read.gaps.into_iter().map(|gap| (path.display().to_string(), gap)));
        Ok(read.machine)
    }

    /// What a file leaves out is not known here.
    fn default_amounts(&mut self) -> (u64, u64) {
        (0, 0)
    }
}

/// The name of the file up to its first dot, where that is the name of a host.
pub(in crate::verbs) fn host_of(path: &Path) -> Option<NodeName> {
    if is_stdin(path) {
        return NodeName::new("host").ok();
    }
    let name = path.file_name()?.to_string_lossy().into_owned();
    let stem = name.split('.').next().filter(|stem| !stem.is_empty())?;
    NodeName::new(stem).ok()
}

/// Fabrics are larger than what people write by hand.
pub(in crate::verbs) fn read_large(path: &Path) -> Result<String, Failure> {
    if is_stdin(path) {
        let mut text = String::new();
        let limit = FABRIC_BYTES_MAX as u64 + 1;
        io::stdin()
            .lock()
            .take(limit)
            .read_to_string(&mut text)
            .map_err(|e| Failure::file("read", path, &e))?;
        return Ok(text);
    }
    let mut bytes = Vec::new();
    let limit = FABRIC_BYTES_MAX as u64 + 1;
    File::open(path)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .map_err(|e| Failure::file("read", path, &e))?;
    if bytes.len() > FABRIC_BYTES_MAX {
        let message = format!("{} has more than {FABRIC_BYTES_MAX} bytes", shown(path));
        return Err(Failure::usage(message, "give a smaller file"));
    }
    if bytes.trim_ascii().is_empty() {
        return Err(Failure::usage(format!("{} is empty", shown(path)), ""));
    }
    Ok(text_of(&bytes))
}

/// UTF-16, as some shells write it, or UTF-8. A terminal's log may hold bytes that are no text; what is around
/// them is still read.
fn text_of(bytes: &[u8]) -> String {
    let (is_little, rest) = match bytes {
        [0xff, 0xfe, rest @ ..] => (true, rest),
        [0xfe, 0xff, rest @ ..] => (false, rest),
        _ => return String::from_utf8_lossy(bytes).into_owned(),
    };
    let unit = |pair: &[u8]| match pair {
        [a, b] if is_little => u16::from_le_bytes([*a, *b]),
        [a, b] => u16::from_be_bytes([*a, *b]),
        _ => u16::from(b'?'),
    };
    let units: Vec<u16> = rest.chunks(2).map(unit).collect();
    String::from_utf16_lossy(&units)
}

/// Whether a kind of text tells of machines.
pub(in crate::verbs) const fn is_of_machine(kind: Kind) -> bool {
    matches!(kind, Kind::TopoM | Kind::NcclTopo | Kind::Hwloc | Kind::Rocm | Kind::NvmlProfile)
}

const _: () = assert!(FILE_BYTES_MAX < FABRIC_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::{fits, text_of};

    #[test]
    fn wide_text_is_read() {
        assert_eq!(text_of(&[0xff, 0xfe, b'G', 0, b'P', 0]), "GP");
        assert_eq!(text_of(&[0xfe, 0xff, 0, b'G', 0, b'P']), "GP");
        assert_eq!(text_of(b"GP"), "GP");
    }

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("n-?", "n-1", true),
            ("n-?", "n-12", false),
            ("*dgx*", "a-dgx-1", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b", "aXc", false),
            ("gpu", "gpu1", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
