//! The whole way: texts are recognised, read, put together, become a tree of domains and a cluster file, and that
//! file is read again.

use phalanx_discover::map::{self, Options, Part};
use phalanx_discover::source::{self, Found, Kind, Overlay};
use phalanx_model::{Host, NodeName};
use phalanx_spec::ClusterFile;

use crate::holds;

/// Between two texts of one input: a form feed stands in none of the formats.
const BETWEEN: char = '\u{c}';
/// Texts of one input.
const PARTS_MAX: usize = 4;
/// Hosts of a map that is written as a file: few bytes name many.
const HOSTS_MAX: usize = 1000;

/// From one input of one or several texts.
pub(crate) fn way(text: &str) {
    let mut parts = Vec::new();
    for (at, text) in text.split(BETWEEN).take(PARTS_MAX).enumerate() {
        assert_eq!(Kind::detect(text), Kind::detect(text));
        match source::read(text, None, Some("node-1")) {
            Ok(found) => {
                look(&found);
                parts.push(Part { name: format!("part-{at}"), found });
            }
            Err(error) => holds::error(&error),
        }
    }
    if parts.is_empty() {
        return;
    }
    let options = Options { host: NodeName::new("node-1").ok(), ..Options::default() };
    let assembled = map::assemble(parts, &options);
    let graph = &assembled.reading.graph;
    holds::graph(graph);
    if let Some(machine) = &assembled.machine {
        holds::machine(&machine.machine);
    }
    if graph.hosts.len() > HOSTS_MAX {
        return;
    }
    let domains = holds::tree(graph, &assembled.reading.levels);
    let nodes = map::to_nodes(graph, &domains);
    assert_eq!(nodes.len(), graph.hosts.len());
    holds::graph(&map::as_tree(graph, &domains));
    for with_topology in [false, true] {
        let topology =
            |host: &Host| (with_topology && host.machine.is_some()).then(|| "topology.txt".to_owned());
        let written = ClusterFile::of_map(None, graph, &domains, &topology);
        let again = write_again(&written.file);
        if again.nodes.is_empty() {
            continue;
        }
        let cluster = again.into_cluster().unwrap_or_else(|e| panic!("a map's own file is refused: {e}"));
        let left_out = |what: &str| written.left_out.iter().filter(|told| told.contains(what)).count();
        assert_eq!(cluster.nodes.len() + left_out("a host has no place"), graph.hosts.len());
        assert!(domains.levels.starts_with(&cluster.levels.above));
        assert!(cluster.levels.above.len() == domains.levels.len() || left_out("the level ") == 1);
    }
}

fn look(found: &Found) {
    match found {
        Found::Machine(reading) => {
            holds::gaps(&reading.gaps);
            holds::machine(&reading.machine);
        }
        Found::Overlay(overlay) => holds::gaps(match &**overlay {
            Overlay::Nvlink(status) => &status.gaps,
            Overlay::Query(query) => &query.gaps,
            Overlay::PeerAccess(p2p) => &p2p.gaps,
            Overlay::Mig(mig) => &mig.gaps,
            Overlay::Nics(found) => &found.gaps,
        }),
        Found::Graphs(graphs) => holds::gaps(&graphs.gaps),
        Found::Fabric(reading) => holds::reading(reading),
        Found::Nodes(nodes) => holds::gaps(&nodes.hosts().1),
        Found::Topologies(topologies) => holds::gaps(&topologies.gaps),
    }
}

/// Written as YAML and read again, a cluster file says the same.
pub(crate) fn write_again(file: &ClusterFile) -> ClusterFile {
    let text = serde_saphyr::to_string(file).expect("a cluster file can be written");
    let again = ClusterFile::from_yaml(&text, "written.yaml");
    let again = again.unwrap_or_else(|e| panic!("a written cluster file is refused: {e}\n{text}"));
    assert_eq!(serde_saphyr::to_string(&again).ok(), Some(text), "what is written twice is the same");
    again
}
