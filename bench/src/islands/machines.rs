//! Machines as people's dumps tell of them, with the predicted time of every set of their devices.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use phalanx_cost::{Collective, Compiled, Constants, Rank, Scratch, compile};
use phalanx_discover::source::read_machine;
use phalanx_model::{
    CostTable, DeviceMask, DomainName, LevelName, Levels, Machine, Node, NodeName, ShapeName,
};

/// Folders of dumps: our own, and real ones.
const OWN: [&str; 4] = ["topo_m", "nccl", "rocm", "hwloc"];
const REAL: [&str; 5] = ["topo_m", "nccl_topo_xml", "rccl_topo_xml", "rocm_topo", "hwloc"];
const DEVICES: std::ops::RangeInclusive<u32> = 4..=16;
/// The message of every job.
const BYTES: u64 = 1_000_000_000;

/// A machine, ready to be played on.
pub(super) struct Bench {
    pub(super) name: String,
    pub(super) devices: u32,
    pub(super) levels: Levels,
    pub(super) node: Node,
    pub(super) costs: CostTable,
    /// By mask: the predicted time of an all-reduce among these devices, in nanoseconds; 0 for fewer than two.
    pub(super) time_ns: Vec<u64>,
}

/// All machines of 4 to 16 GPUs whose links are known, each once.
pub(super) fn read_all(data: Option<&Path>) -> Result<Vec<Bench>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let real = data.map_or_else(|| root.join("../shared/data/topology"), Path::to_path_buf);
    let own = OWN.map(|folder| root.join("fixtures").join(folder));
    let mut machines: Vec<Bench> = Vec::new();
    for folder in own.into_iter().chain(REAL.map(|folder| real.join(folder))) {
        for path in files(&folder) {
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let Ok(reading) = read_machine(&text) else { continue };
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let is_known = |machine: &Bench| machine.node.machine.links == reading.machine.links;
            if is_playable(&reading.machine) && !machines.iter().any(is_known) {
                machines.push(Bench::new(name, reading.machine)?);
            }
        }
    }
    Ok(machines)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    files
}

fn is_playable(machine: &Machine) -> bool {
    let pairs = machine.device_count() * (machine.device_count().saturating_sub(1)) / 2;
    let known = (0..machine.device_count())
        .flat_map(|a| (0..a).map(move |b| (a, b)))
        .filter(|(a, b)| machine.device_link(*a, *b).is_some());
    DEVICES.contains(&machine.device_count())
        && machine.devices.iter().all(|device| !device.is_sliced)
        && u32::try_from(known.count()) == Ok(pairs)
}

impl Bench {
    pub(super) fn new(name: String, mut machine: Machine) -> Result<Self, String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        machine.shape = ShapeName::new("machine").map_err(|error| text(&error))?;
        // Only devices are asked for.
        (machine.cpu_milli, machine.memory_bytes) = (u64::from(u32::MAX), 1 << 50);
        let cluster = DomainName::new("c").map_err(|error| text(&error))?;
        let node = NodeName::new("n").map_err(|error| text(&error))?;
        let node = Node::new(node, vec![cluster], Arc::new(machine));
        let level = |word| LevelName::new(word).map_err(|error| text(&error));
        let levels = Levels::new(vec![level("cluster")?], level("node")?);
        let costs = compile(std::slice::from_ref(&node), &std::collections::BTreeMap::new());
        let devices = node.machine.device_count();
        let compiled = Compiled::new(std::slice::from_ref(&node), &levels, &costs, &Constants::DEFAULT);
        let mut scratch = Scratch::default();
        let mut time = |mask: u64| {
            let ranks: Vec<Rank> =
                DeviceMask(mask).iter().map(|at| Rank { node: 0, devices: DeviceMask::one(at) }).collect();
            if ranks.len() < 2 {
                return 0;
            }
            let estimate = compiled.time(&mut scratch, &ranks, Collective::AllReduce, BYTES, None);
            whole_ns(estimate.time.ns)
        };
        let time_ns = (0..1_u64 << devices).map(&mut time).collect();
        Ok(Self { name, devices, levels, node, costs, time_ns })
    }

    pub(super) fn time_ns(&self, set: DeviceMask) -> u64 {
        usize::try_from(set.0).ok().and_then(|mask| self.time_ns.get(mask)).copied().unwrap_or(0)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds at most")]
const fn whole_ns(ns: f64) -> u64 {
    ns as u64
}
