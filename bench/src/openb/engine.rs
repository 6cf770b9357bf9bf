//! The engine's own search on the trace: what a user of Phalanx gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_engine::Placer;
use phalanx_model::{
    CostTable, Device, DomainName, Gang, LevelName, Levels, Machine, ModelNeed, NameError, Needs,
    Node as Host, NodeName, Origin, PartNeed, Program, ShapeName, Topology, Traffic,
};

use super::trace::{Node, Pod, Trace};

/// A model by its bit, such that no name is part of another.
fn model(bit: u32) -> String {
    format!("<{bit}>")
}

fn amount(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// All nodes, free, in the order given.
pub(super) fn placer(nodes: &[Node]) -> Result<Placer, NameError> {
    let cluster = DomainName::new("openb")?;
    let mut machines: BTreeMap<(u32, usize, i64, i64), Arc<Machine>> = BTreeMap::new();
    let mut hosts = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let key = (node.model, node.gpus.len(), node.cpu, node.memory);
        let device = Device { model: model(node.model), ..Device::default() };
        let machine = Machine {
            shape: ShapeName::new(format!("model-{}-{}", node.model, node.gpus.len()))?,
            devices: vec![device; node.gpus.len()],
            cpu_milli: amount(node.cpu),
            memory_bytes: amount(node.memory) << 20,
            ..Machine::bare(Origin::Declared)
        };
        let machine = machines.entry(key).or_insert_with(|| Arc::new(machine)).clone();
        hosts.push(Host::new(NodeName::new(format!("node-{at}"))?, vec![cluster.clone()], machine));
    }
    let levels = Levels::new(vec![LevelName::new("cluster")?], LevelName::new("node")?);
    Ok(Placer::new(&levels, hosts, &CostTable::default()))
}

/// The trace knows no GPU memory, so shares ask for none.
pub(super) fn gang(trace: &Trace, pod: &Pod) -> Gang {
    let wanted = (0..32).map(|bit| 1_u32 << bit).filter(|bit| pod.models & trace.models & bit != 0);
    let need = |bit| ModelNeed { model: model(bit), speed_milli: ModelNeed::AS_SAID };
    let is_any = pod.devices == 0 || pod.models & trace.models == trace.models;
    let share = PartNeed::Share {
        compute_milli: u32::try_from(pod.milli).unwrap_or(0),
        memory_bytes: 0,
        trust: String::new(),
    };
    let needs = Needs {
        devices: if pod.is_share() { 0 } else { u32::try_from(pod.devices).unwrap_or(0) },
        part: pod.is_share().then_some(share),
        models: if is_any { Vec::new() } else { wanted.map(need).collect() },
        cpu_milli: amount(pod.cpu),
        memory_bytes: amount(pod.memory) << 20,
        ..Needs::default()
    };
    let traffic = None::<Traffic>;
    let (topology, program) = (Topology::default(), Program::default());
    Gang {
        size: 1,
        min: 1,
        max: 1,
        needs,
        roles: Vec::new(),
        members_per_node: None,
        topology,
        traffic,
        grid: Vec::new(),
        program,
    }
}
