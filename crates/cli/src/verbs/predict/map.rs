//! The machines that a prediction is made for.

use std::path::Path;
use std::sync::Arc;

use phalanx_api::protocol::TopologyView;
use phalanx_cost::Constants;
use phalanx_discover::host;
use phalanx_model::{CostTable, DomainName, LevelName, Levels, Node, NodeName, shape};
use phalanx_sim::cluster::{Clos, Cluster, ClusterError};

use super::super::Session;
use super::super::topo::load;
use super::is_shape;
use crate::args::Predict;
use crate::failure::Failure;

/// What a map that gives none of them has: nothing here is short of CPUs or memory.
const CPU_MILLI: u64 = 1_000_000_000;
const MEMORY_BYTES: u64 = 1 << 50;

/// Nodes, what lies between them, and the constants of the site.
pub(super) struct Map {
    pub(super) name: String,
    pub(super) nodes: Vec<Node>,
    pub(super) levels: Levels,
    pub(super) costs: CostTable,
    pub(super) constants: Constants,
}

impl Map {
    /// Whether an uplink is declared for the node, which stands for NICs that nobody lists.
    pub(super) fn declares_nics(&self, node: &Node) -> bool {
        let own = DomainName::new(node.name.as_str()).ok();
        let path: Vec<DomainName> = node.path.iter().cloned().chain(own).collect();
        self.costs.uplink(&self.levels.node, &path).is_some_and(|cost| cost.uplink_mb_per_s > 0)
    }
}

pub(super) fn read(session: &Session, asked: &Predict) -> Result<Map, Failure> {
    let mut map = match asked.cluster.as_slice() {
        [] => here()?,
        [shape] if is_shape(shape) => of_shape(shape)?,
        files => {
            let mut loaded = load::files(session, files, &asked.reading)?;
            loaded.say_gaps(session);
            if let Some(model) = &asked.model {
                set_model(&mut loaded, model)?;
            }
            let view = loaded.declared.take().map_or_else(|| loaded.view(), Ok)?;
            let TopologyView { levels, costs, nodes, .. } = view;
            Map { name: loaded.name, nodes, levels, costs, constants: loaded.constants }
        }
    };
    if asked.model.is_some() && asked.cluster.first().is_none_or(|first| is_shape(first)) {
        let hint = "it names the GPUs of a topology text such as that of `nvidia-smi topo -m`";
        return Err(Failure::usage("--model goes with files of --cluster", hint));
    }
    if map.nodes.iter().all(|node| node.machine.devices.is_empty()) {
        let hint = match asked.cluster.is_empty() {
            true => "give a map: `--cluster FILE`, or `--cluster 2x4x8` for one drawn up",
            false => "give the output of `nvidia-smi topo -m` of one of its hosts as well",
        };
        return Err(Failure::usage(format!("no GPUs are known of {}", map.name), hint));
    }
    for node in &mut map.nodes {
        let machine = &node.machine;
        if machine.cpu_milli == 0 || machine.memory_bytes == 0 {
            let machine = Arc::make_mut(&mut node.machine);
            machine.cpu_milli = if machine.cpu_milli == 0 { CPU_MILLI } else { machine.cpu_milli };
            machine.memory_bytes =
                if machine.memory_bytes == 0 { MEMORY_BYTES } else { machine.memory_bytes };
        }
    }
    Ok(map)
}

/// This machine, as it is found.
fn here() -> Result<Map, Failure> {
    let named = |e: phalanx_model::NameError| Failure::internal(e.to_string());
    let host_name = nix::unistd::gethostname().ok().map(|name| name.to_string_lossy().into_owned());
    let name = host_name.and_then(|name| NodeName::new(name).ok());
    let name = name.map_or_else(|| NodeName::new("host").map_err(named), Ok)?;
    let root = DomainName::new("local").map_err(named)?;
    let node = Node::new(name, vec![root], Arc::new(host::discover().machine));
    let level = |text: &str| LevelName::new(text).map_err(named);
    let levels = Levels::new(vec![level("cluster")?], level(phalanx_spec::cluster::NODE_LEVEL)?);
    Ok(Map {
        name: "this machine".to_owned(),
        nodes: vec![node],
        levels,
        costs: CostTable::default(),
        constants: Constants::DEFAULT,
    })
}

/// A fabric that is drawn up: `2x4x8`.
fn of_shape(shape: &Path) -> Result<Map, Failure> {
    let name = shape.to_string_lossy().into_owned();
    let drawn = Clos::read(&name).and_then(|clos| Cluster::of_clos(&clos));
    let wrong = |e: ClusterError| {
        let text = e.to_string();
        // The lines behind the first show a file that nobody wrote.
        let what = text.lines().next().unwrap_or_default();
        let what = what.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ':' | ' '));
        Failure::usage(format!("--cluster {name}: {what}"), "there is no file of this name either")
    };
    let Cluster { levels, nodes, costs } = drawn.map_err(wrong)?;
    Ok(Map { name, nodes, levels, costs, constants: Constants::DEFAULT })
}

/// Names the product of all GPUs that have none.
fn set_model(loaded: &mut load::Loaded, model: &str) -> Result<(), Failure> {
    if loaded.declared.is_some() {
        let message = format!("--model: {} is a cluster file", loaded.name);
        return Err(Failure::usage(message, "write `model` behind `devices` of its nodes"));
    }
    let changed = load::each_machine(&mut loaded.graph, |machine| {
        for device in machine.devices.iter_mut().filter(|device| device.model.is_empty()) {
            model.clone_into(&mut device.model);
        }
        machine.assume_nic_speeds();
        shape::rename(machine);
    });
    if changed == 0 {
        let message = "--model describes a machine, and the files name none with GPUs";
        return Err(Failure::usage(message, "give the output of `nvidia-smi topo -m` of a host as well"));
    }
    Ok(())
}
