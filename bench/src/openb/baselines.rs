//! The policies to compare with, each as its authors' simulator has it.
//!
//! All nodes that fit are scored; the highest score wins, ties go to the first node in order. A share goes to the
//! device with the least left that holds it, unless the policy says otherwise.

use super::trace::{Node, Pod, WHOLE};

/// A policy that scores nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Random,
    DotProd,
    GpuClustering,
    GpuPacking,
    BestFit,
    Fgd,
    FirstFit,
}

pub(crate) const POLICIES: [Policy; 7] = [
    Policy::Random,
    Policy::DotProd,
    Policy::GpuClustering,
    Policy::GpuPacking,
    Policy::BestFit,
    Policy::Fgd,
    Policy::FirstFit,
];

impl Policy {
    /// As the published table writes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Random => "Random",
            Self::DotProd => "DotProd",
            Self::GpuClustering => "GpuClustering",
            Self::GpuPacking => "GpuPacking",
            Self::BestFit => "BestFit",
            Self::Fgd => "FGD",
            Self::FirstFit => "FirstFit",
        }
    }

    /// Score and device of a pod on a node that it fits.
    pub(crate) fn score(self, node: &Node, pod: &Pod, typical: &[(Pod, f64)]) -> (i64, usize) {
        let score = match self {
            Self::Fgd => return steepest(node, pod, typical),
            Self::Random | Self::FirstFit => 0,
            Self::DotProd => dot_product(node, pod),
            Self::GpuClustering => clustering(node, pod),
            Self::GpuPacking => packing(node, pod),
            Self::BestFit => best_fit(node, pod),
        };
        (score, if pod.is_share() { tightest(node, pod) } else { 0 })
    }
}

/// The largest node, as all scores are relative to it: 128 CPUs and 8 GPUs.
const CPU_MAX: f64 = 128_000.0;
const GPU_MAX: i64 = 8 * WHOLE;

#[expect(clippy::cast_precision_loss, reason = "amounts are far below 2^53")]
const fn real(number: i64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, reason = "scores are 0 to 100, and cut as the original cuts them")]
const fn cut(score: f64) -> i64 {
    score as i64
}

fn tightest(node: &Node, pod: &Pod) -> usize {
    let holding = (0..node.gpus.len()).filter(|device| node.gpus[*device] >= pod.milli);
    holding.min_by_key(|device| node.gpus[*device]).unwrap_or(0)
}

/// Tetris: the smaller the product of what is asked and what is left, the better.
fn dot_product(node: &Node, pod: &Pod) -> i64 {
    let cpu = real(node.cpu) / CPU_MAX * (real(pod.cpu) / CPU_MAX);
    let gpu = real(node.left()) / real(GPU_MAX) * (real(pod.total()) / real(GPU_MAX));
    cut(100.0 * (1.0 - (cpu + gpu) / 2.0))
}

/// Gandiva: beside pods of the same GPU demand, best where no others are; then on idle nodes.
fn clustering(node: &Node, pod: &Pod) -> i64 {
    if pod.devices == 0 {
        return 0;
    }
    let kinds = node.affinity.iter().filter(|count| **count > 0).count();
    let tier = match (node.affinity[pod.affinity()] > 0, kinds) {
        (true, 1) => 75,
        (true, _) => 50,
        (false, 0) => 25,
        (false, _) => 0,
    };
    tier + 25 * (GPU_MAX - node.left()) / GPU_MAX
}

/// Shared GPUs first, then free GPUs of used nodes, then idle nodes.
fn packing(node: &Node, pod: &Pod) -> i64 {
    if pod.devices == 0 {
        return 0;
    }
    let free = node.gpus.iter().filter(|gpu| **gpu == WHOLE).count() as i64;
    if free == node.gpus.len() as i64 {
        return (33 - free).max(free);
    }
    let mut holding: Vec<i64> = node.gpus.iter().copied().filter(|gpu| *gpu >= pod.milli).collect();
    holding.sort_unstable();
    holding.truncate(usize::try_from(pod.devices).unwrap_or(0));
    let opened = holding.iter().filter(|gpu| **gpu == WHOLE).count() as i64;
    if opened > 0 {
        return (50 - opened).max(33);
    }
    let left: i64 = holding.iter().map(|gpu| gpu * 100 / WHOLE).sum();
    (100 - left / 10).max(50)
}

fn best_fit(node: &Node, pod: &Pod) -> i64 {
    let cpu = real(node.cpu - pod.cpu) / CPU_MAX;
    let gpu = real(node.left() - pod.total()) / real(GPU_MAX);
    cut((1.0 - (cpu * 0.5 + gpu * 0.5)) * 100.0)
}

/// FGD: where the expected fragmentation falls most.
fn steepest(node: &Node, pod: &Pod, typical: &[(Pod, f64)]) -> (i64, usize) {
    let before = fragments(node, typical);
    let mut after = node.clone();
    let mut score = |device: usize| {
        after.clone_from(node);
        after.put(pod, device);
        cut(100.0 / (1.0 + (-(before - fragments(&after, typical)) / 1000.0).exp()))
    };
    if !pod.is_share() {
        return (score(0), 0);
    }
    let mut best: Option<(i64, usize)> = None;
    for device in 0..node.gpus.len() {
        let seen = node.gpus[..device].contains(&node.gpus[device]);
        if node.gpus[device] < pod.milli || seen {
            continue;
        }
        let score = score(device);
        if best.is_none_or(|(best, _)| score > best) {
            best = Some((score, device));
        }
    }
    best.unwrap_or((0, 0))
}

/// Expected milli-GPUs that a typical pod cannot use. Summed by reason, as the original does: the order of sums
/// decides how scores near a whole number are cut.
fn fragments(node: &Node, typical: &[(Pod, f64)]) -> f64 {
    let left = node.left();
    if left == 0 {
        return 0.0;
    }
    let mut by_reason = [0.0; 6];
    for (pod, share) in typical {
        let has_cpu = node.cpu >= pod.cpu;
        let holding = node.gpus.iter().filter(|gpu| **gpu >= pod.milli).count() as i64;
        let (reason, lost) =
            match (pod.milli == 0, node.model & pod.models != 0, holding >= pod.devices, has_cpu) {
                (true, _, _, true) => (3, left),
                (true, _, _, false) => (4, left),
                (_, false, _, _) => (5, left),
                (_, _, false, false) => (0, left),
                (_, _, false, true) => (1, left),
                (_, _, true, true) => (1, node.gpus.iter().filter(|gpu| **gpu < pod.milli).sum()),
                (_, _, true, false) => (2, left),
            };
        by_reason[reason] += share * real(lost);
    }
    by_reason.iter().sum()
}
