//! The jobs that measure: one for each pair of nodes, and one for all pairs of devices of a node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use phalanx_api::protocol::TopologyView;
use phalanx_model::{
    Gang, Job, JobId, JobName, Needs, Node, Owner, Policy, Program, QueueName, Stop, Timestamp, Topology,
};

use super::judge::{self, Row};
use crate::args::Probe;
use crate::failure::Failure;
use crate::measure::{Measurement, Way};

/// Longest time of one job; a slow link and the start of NCCL are within it.
const TIME_LIMIT_MS: u64 = 5 * 60_000;
const GRACE_MS: u64 = 2_000;
/// What nccl-tests needs of the environment to find its libraries.
const PASSED_ON: [&str; 3] = ["PATH", "HOME", "LD_LIBRARY_PATH"];

/// What one job measures.
pub(super) struct Task<'a> {
    pub(super) what: What<'a>,
    pub(super) name: String,
}

pub(super) enum What<'a> {
    Between {
        a: &'a Node,
        b: &'a Node,
        way: Way,
    },
    /// Between two processes of one node.
    Inside {
        node: &'a Node,
    },
    /// Between devices of one node, by their place among those that are ours.
    Devices {
        node: &'a Node,
        pairs: Vec<(u32, u32)>,
        program: PathBuf,
    },
}

impl<'a> Task<'a> {
    pub(super) fn new(what: What<'a>) -> Self {
        let name = match &what {
            What::Between { a, b, .. } => format!("probe-{}-{}", a.name, b.name),
            What::Inside { node } | What::Devices { node, .. } => format!("probe-{}", node.name),
        };
        Self { what, name }
    }

    pub(super) fn nodes(&self) -> Vec<&'a Node> {
        match self.what {
            What::Between { a, b, .. } => vec![a, b],
            What::Inside { node } | What::Devices { node, .. } => vec![node],
        }
    }

    /// Exactly one rank on each node, and it asks for all that both have: nothing else runs there meanwhile.
    pub(super) fn job(&self, exe: &Path, probe: &Probe) -> Result<Job, Failure> {
        let nodes = self.nodes();
        let least = |of: &dyn Fn(&Node) -> u64| nodes.iter().map(|node| of(node)).min().unwrap_or(0);
        let (size, per_node) = match self.what {
            What::Between { .. } => (2, 1),
            What::Inside { .. } => (2, 2),
            What::Devices { .. } => (1, 1),
        };
        let share = |amount: u64| amount / u64::from(per_node);
        let devices = share(least(&|node| u64::from(ours(node).count())));
        let cpu_milli = if devices == 0 { share(least(&|node| node.machine.cpu_milli)) } else { 0 };
        let needs = Needs {
            devices: u32::try_from(devices).unwrap_or(0),
            cpu_milli,
            nodes: nodes.iter().map(|node| node.name.clone()).collect(),
            ..Needs::default()
        };
        let internal = |e: phalanx_model::NameError| Failure::internal(e.to_string());
        let gang = Gang {
            size,
            min: size,
            max: size,
            needs,
            members_per_node: Some(per_node),
            topology: Topology::default(),
            traffic: None,
            program: self.program(exe, probe),
            roles: Vec::new(),
            grid: Vec::new(),
        };
        Ok(Job {
            // Number, owner and time are the daemon's to set.
            id: JobId(0),
            name: JobName::new(self.name.as_str()).or_else(|_| JobName::new("probe")).map_err(internal)?,
            key: None,
            owner: Owner { uid: 0, gid: 0, name: String::new() },
            queue: QueueName::new("default").map_err(internal)?,
            priority: 0,
            submitted_at: Timestamp(0),
            gangs: vec![gang],
            policy: Policy {
                time_limit_ms: Some(TIME_LIMIT_MS),
                stop: Stop { advisory: None, grace_ms: GRACE_MS },
                ..Policy::default()
            },
            turn: phalanx_model::Turn::default(),
        })
    }

    fn program(&self, exe: &Path, probe: &Probe) -> Program {
        let mut argv = vec![exe.display().to_string(), "__measure".to_owned()];
        argv.extend([format!("--bytes={}", probe.bytes), format!("--repeat={}", probe.repeat)]);
        match &self.what {
            What::Between { way: Way::Socket, .. } => argv.push("--way=socket".to_owned()),
            What::Between { way: Way::Shm, .. } | What::Inside { .. } => argv.push("--way=shm".to_owned()),
            What::Devices { pairs, program, .. } => {
                argv.push(format!("--nccl={}", program.display()));
                argv.extend(pairs.iter().map(|(a, b)| format!("--pair={a}-{b}")));
            }
        }
        let passed =
            PASSED_ON.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        let env: BTreeMap<String, String> = passed.collect();
        Program { argv, env, workdir: "/".to_owned(), ..Program::default() }
    }

    /// The pairs of this task, each with its measurement where there is one.
    pub(super) fn rows(&self, view: &TopologyView, found: &[Measurement]) -> Vec<Row> {
        let first = found.first();
        match &self.what {
            What::Between { a, b, way } => {
                let nominal = if *way == Way::Socket { judge::nominal_between(view, a, b) } else { None };
                let row = Row {
                    a: a.name.to_string(),
                    b: b.name.to_string(),
                    class: judge::level_of(view, a, b),
                    nominal_bytes_per_s: nominal,
                    ..Row::default()
                };
                vec![with(row, first)]
            }
            What::Inside { node } => {
                let (a, b) = (node.name.to_string(), node.name.to_string());
                vec![with(Row { a, b, class: view.levels.node.to_string(), ..Row::default() }, first)]
            }
            What::Devices { node, pairs, .. } => {
                let ours: Vec<u32> = ours(node).iter().collect();
                let device = |at: u32| ours.get(usize::try_from(at).ok()?).copied();
                let row = |pair: &(u32, u32)| {
                    let (a, b) = (device(pair.0)?, device(pair.1)?);
                    let row = Row {
                        a: format!("{}/{a}", node.name),
                        b: format!("{}/{b}", node.name),
                        class: judge::link_of(node, a, b),
                        nominal_bytes_per_s: judge::nominal_inside(view, node, a, b),
                        ..Row::default()
                    };
                    Some(with(row, found.iter().find(|m| m.devices == Some(*pair))))
                };
                pairs.iter().filter_map(row).collect()
            }
        }
    }
}

/// The devices that nobody else holds.
pub(super) fn ours(node: &Node) -> phalanx_model::DeviceMask {
    node.machine.device_mask().minus(node.foreign)
}

fn with(row: Row, found: Option<&Measurement>) -> Row {
    let Some(found) = found else { return row };
    Row {
        over: found.over.clone(),
        bytes_per_s: Some(found.bytes_per_s),
        latency_ns: Some(found.latency_ns),
        is_loopback: found.is_loopback,
        ..row
    }
}
