//! The trace: nodes, pods in the order of their arrival, and what others published of it.

use std::collections::BTreeMap;
use std::path::Path;

use super::go_rand::{GoRand, Table};

/// Milli-GPUs of one device.
pub(crate) const WHOLE: i64 = 1_000;

/// Draws that the published runs spent between the pods' order and the nodes' order. With ten, all runs whose policy
/// draws nothing itself come out as published, seed by seed.
const DRAWS_BETWEEN: usize = 10;

/// A node and what it has left.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    /// Milli-GPUs left, by device.
    pub(crate) gpus: Vec<i64>,
    /// One bit: its GPU model.
    pub(crate) model: u32,
    /// Pods there by GPU demand (see [`Pod::affinity`]).
    pub(crate) affinity: [u32; 5],
}

/// What one pod asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pod {
    pub(crate) cpu: i64,
    /// Milli-GPUs of each of its devices.
    pub(crate) milli: i64,
    pub(crate) devices: i64,
    /// As written: models that will do, between bars; empty for any.
    pub(crate) spec: String,
    pub(crate) models: u32,
    pub(crate) memory: i64,
}

/// One workload on the cluster.
pub(crate) struct Trace {
    pub(crate) nodes: Vec<Node>,
    pub(crate) pods: Vec<Pod>,
    /// The different requests, and which one each pod has.
    pub(crate) classes: Vec<Pod>,
    pub(crate) class_of: Vec<usize>,
    /// The most frequent requests (without memory) that together are 95 % of all pods, and their shares.
    pub(crate) typical: Vec<(Pod, f64)>,
    /// Bits of [`Node::model`] in use.
    pub(crate) models: u32,
}

/// One run's input: pods by arrival, nodes by rank.
pub(crate) struct Arrivals {
    pub(crate) pods: Vec<usize>,
    pub(crate) nodes: Vec<usize>,
    /// The stream after both, for a policy that draws.
    pub(crate) random: GoRand,
}

impl Pod {
    pub(crate) const fn total(&self) -> i64 {
        self.devices * self.milli
    }

    /// Asks for less than one device.
    pub(crate) const fn is_share(&self) -> bool {
        self.devices == 1 && self.milli < WHOLE
    }

    pub(crate) const fn affinity(&self) -> usize {
        match self.devices {
            1 if self.is_share() => 0,
            1 => 1,
            2 => 2,
            4 => 3,
            _ => 4,
        }
    }

    pub(crate) fn fits(&self, node: &Node) -> bool {
        let holds = |gpu: &&i64| **gpu >= self.milli;
        self.cpu <= node.cpu
            && self.memory <= node.memory
            && (self.devices == 0
                || node.model & self.models != 0
                    && node.gpus.iter().filter(holds).count() as i64 >= self.devices)
    }
}

impl Node {
    pub(crate) fn left(&self) -> i64 {
        self.gpus.iter().sum()
    }

    /// Places a pod; a share on this device, whole devices on the first that are free.
    pub(crate) fn put(&mut self, pod: &Pod, device: usize) {
        self.cpu -= pod.cpu;
        self.memory -= pod.memory;
        if pod.devices > 0 {
            self.affinity[pod.affinity()] += 1;
        }
        if pod.is_share() {
            self.gpus[device] -= pod.milli;
        } else {
            let count = usize::try_from(pod.devices).unwrap_or(0);
            self.gpus.iter_mut().filter(|gpu| **gpu == WHOLE).take(count).for_each(|gpu| *gpu = 0);
        }
    }
}

impl Trace {
    pub(crate) fn read(folder: &Path, workload: &str) -> Result<Self, String> {
        let mut names: Vec<String> = Vec::new();
        let mut nodes = Vec::new();
        for row in rows(&folder.join("openb/openb_node_list_gpu_node.csv"))? {
            let name = row.text(4)?;
            let model = names.iter().position(|known| known == name).unwrap_or(names.len());
            if model == names.len() {
                names.push(name.to_owned());
            }
            let count = usize::try_from(row.number(3)?).ok().filter(|count| *count <= 16 && model < 32);
            let gpus =
                vec![WHOLE; count.ok_or("a node has more than 16 GPUs, or there are more than 32 models")?];
            let (cpu, memory) = (row.number(1)?, row.number(2)?);
            nodes.push(Node { cpu, memory, gpus, model: 1 << model, affinity: [0; 5] });
        }
        let bit = |name: &str| names.iter().position(|known| known == name).map_or(0, |at| 1u32 << at);
        let mut pods = Vec::new();
        for row in rows(&folder.join(format!("openb/openb_pod_list_{workload}.csv")))? {
            let spec = row.text(5).unwrap_or_default().to_owned();
            let models = if spec.is_empty() {
                u32::MAX
            } else {
                spec.split('|').map(bit).fold(0, |all, one| all | one)
            };
            let (cpu, memory) = (row.number(1)?, row.number(2)?);
            let (devices, milli) = (row.number(3)?, row.number(4)?);
            if !(0..=16).contains(&devices) || !(0..=WHOLE).contains(&milli) || cpu < 0 || memory < 0 {
                return Err(format!("{workload}: a pod asks for what cannot be"));
            }
            pods.push(Pod { cpu, milli, devices, spec, models, memory });
        }
        let models = nodes.iter().fold(0, |all, node: &Node| all | node.model);
        let (classes, class_of) = classify(&pods);
        Ok(Self { typical: typical(&pods), nodes, pods, classes, class_of, models })
    }

    /// Milli-GPUs of the cluster.
    pub(crate) fn capacity(&self) -> i64 {
        self.nodes.iter().map(Node::left).sum()
    }

    /// The order of the published run with this seed: pods shuffled, then random copies of pods until (or random
    /// pods dropped while not) 130 % of the GPU capacity is asked for. Copies stop at a pod's milli per GPU.
    pub(crate) fn arrivals(&self, seed: u32, table: &Table) -> Arrivals {
        let mut random = GoRand::new(seed, table);
        random.int63();
        let mut pods: Vec<usize> = (0..self.pods.len()).collect();
        random.shuffle(&mut pods);
        let goal = self.capacity() * 13 / 10;
        let mut asked: i64 = self.pods.iter().map(Pod::total).sum();
        if asked > goal {
            while asked > goal {
                let dropped = pods.remove(random.below(pods.len()));
                asked -= self.pods[dropped].total();
            }
        } else {
            loop {
                let copied = random.below(self.pods.len());
                if asked + self.pods[copied].milli > goal {
                    break;
                }
                asked += self.pods[copied].total();
                pods.push(copied);
            }
        }
        (0..DRAWS_BETWEEN).for_each(|_| _ = random.int63());
        let rank = random.permutation(self.nodes.len());
        let mut nodes = vec![0; rank.len()];
        rank.iter().enumerate().for_each(|(node, rank)| nodes[*rank] = node);
        Arrivals { pods, nodes, random }
    }

    /// Every n-th node and pod, for a quick look.
    #[cfg(test)]
    pub(crate) fn thinned(mut self, n: usize) -> Self {
        self.nodes = self.nodes.into_iter().step_by(n).collect();
        self.pods = self.pods.into_iter().step_by(n).collect();
        (self.classes, self.class_of) = classify(&self.pods);
        self.typical = typical(&self.pods);
        self
    }
}

fn classify(pods: &[Pod]) -> (Vec<Pod>, Vec<usize>) {
    let mut classes: Vec<Pod> = pods.to_vec();
    classes.sort_unstable();
    classes.dedup();
    let class_of = pods.iter().map(|pod| classes.binary_search(pod).unwrap_or(0)).collect();
    (classes, class_of)
}

/// Typical pods as FGD has them: memory aside, CPU-only pods included, ties by the larger request.
#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn typical(pods: &[Pod]) -> Vec<(Pod, f64)> {
    let mut counts: BTreeMap<Pod, u32> = BTreeMap::new();
    for pod in pods {
        *counts.entry(Pod { memory: 0, models: pod.models, ..pod.clone() }).or_default() += 1;
    }
    let mut list: Vec<(Pod, u32)> = counts.into_iter().collect();
    list.sort_by(|(a, some), (b, more)| {
        let key = |pod: &Pod| (pod.cpu, pod.milli, pod.devices, pod.spec.clone());
        more.cmp(some).then_with(|| key(b).cmp(&key(a)))
    });
    let total = pods.len() as f64;
    let mut covered = 0.0;
    list.retain(|(_, count)| {
        let wanted = covered < 0.95 * total;
        covered += if wanted { f64::from(*count) } else { 0.0 };
        wanted
    });
    list.into_iter().map(|(pod, count)| (pod, f64::from(count) / total / (covered / total))).collect()
}

/// Published allocated GPU % by (workload, policy), one pair per seed in order: at 100 % and at 130 % arrived.
pub(crate) type Published = BTreeMap<(String, String), BTreeMap<u32, [f64; 2]>>;

pub(crate) fn published(folder: &Path) -> Result<Published, String> {
    let mut all = Published::new();
    for row in rows(&folder.join("openb_expected/analysis_allo_discrete.csv"))? {
        let workload = row.text(0)?.trim_start_matches("openb_pod_list_").to_owned();
        let policy = row.text(1)?.split_once('-').map_or("", |(_, name)| name).to_owned();
        let seed = u32::try_from(row.number(3)?).map_err(|error| error.to_string())?;
        let at = |percent: usize| row.text(5 + percent)?.parse::<f64>().map_err(|error| error.to_string());
        all.entry((workload, policy)).or_default().insert(seed, [at(100)?, at(130)?]);
    }
    Ok(all)
}

/// Workloads with a pod list, in the order of the reference's table.
pub(crate) const WORKLOADS: [&str; 10] = [
    "default",
    "gpushare40",
    "gpushare100",
    "multigpu20",
    "multigpu50",
    "gpuspec10",
    "gpuspec33",
    "cpu050",
    "cpu100",
    "cpu250",
];

struct Row(Vec<String>);

impl Row {
    fn text(&self, column: usize) -> Result<&str, String> {
        self.0.get(column).map(String::as_str).ok_or_else(|| format!("a row has no column {column}"))
    }

    fn number(&self, column: usize) -> Result<i64, String> {
        let text = self.text(column)?;
        let number = text.parse().ok().filter(|number: &i64| number.abs() < 1 << 40);
        number.ok_or_else(|| format!("{text:?} is not a number that can be"))
    }
}

fn rows(file: &Path) -> Result<Vec<Row>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let lines = text.lines().skip(1).filter(|line| !line.is_empty());
    Ok(lines.map(|line| Row(line.split(',').map(str::to_owned).collect())).collect())
}
