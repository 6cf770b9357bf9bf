//! One run: pods arrive, each is offered once, none leaves.

use std::time::Instant;

use phalanx_model::{Gang, NameError};

use super::baselines::Policy;
use super::engine::{gang, placer};
use super::trace::{Arrivals, Node, Pod, Trace};

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decider {
    Other(Policy),
    Ours,
}

/// Unallocated GPUs in percent, when 100 % and 130 % of the capacity have been asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) at: [f64; 2],
    /// Mean time of one decision, in µs.
    pub(crate) mean_us: f64,
}

/// Runs a trace to 130 % arrived, or to 100 % where that is enough.
pub(crate) fn run(
    trace: &Trace,
    arrivals: Arrivals,
    is_named: bool,
    decider: Decider,
) -> Result<Outcome, String> {
    let order = if is_named { (0..trace.nodes.len()).collect() } else { arrivals.nodes };
    let nodes: Vec<Node> = order.into_iter().map(|node| trace.nodes[node].clone()).collect();
    let mut curve = Curve { capacity: trace.capacity(), ..Curve::default() };
    let begin = Instant::now();
    match decider {
        Decider::Ours => {
            ours(trace, &nodes, &arrivals.pods, &mut curve).map_err(|error| error.to_string())?
        }
        Decider::Other(Policy::Random) => random(trace, nodes, &arrivals.pods, arrivals.random, &mut curve),
        Decider::Other(policy) => scored(trace, nodes, &arrivals.pods, policy, &mut curve),
    }
    let spent = begin.elapsed().as_secs_f64() * 1e6;
    #[expect(clippy::cast_precision_loss, reason = "pods are few")]
    Ok(Outcome { at: curve.percents(), mean_us: spent / arrivals.pods.len().max(1) as f64 })
}

/// The measure of the published table: the mean over all arrivals that round to the wanted percentage.
#[derive(Default)]
struct Curve {
    capacity: i64,
    arrived: i64,
    used: i64,
    sums: [(f64, u32); 2],
}

impl Curve {
    #[expect(clippy::cast_precision_loss, reason = "amounts are far below 2^53")]
    fn arrive(&mut self, pod: &Pod, is_placed: bool) {
        self.arrived += pod.total();
        self.used += if is_placed { pod.total() } else { 0 };
        let percent = |amount: i64| amount as f64 / self.capacity as f64 * 100.0;
        let arrived = percent(self.arrived).round_ties_even();
        for (sum, wanted) in self.sums.iter_mut().zip([100.0, 130.0]) {
            if arrived.to_bits() == f64::to_bits(wanted) {
                sum.0 += (percent(self.used) * 100.0).round_ties_even() / 100.0;
                sum.1 += 1;
            }
        }
    }

    fn percents(&self) -> [f64; 2] {
        self.sums
            .map(|(sum, count)| 100.0 - (sum / f64::from(count.max(1)) * 100.0).round_ties_even() / 100.0)
    }
}

fn scored(trace: &Trace, mut nodes: Vec<Node>, pods: &[usize], policy: Policy, curve: &mut Curve) {
    // By class and node: the node's version and what the class scores there.
    let mut known: Vec<(u32, Option<(i64, usize)>)> = vec![(0, None); nodes.len() * trace.classes.len()];
    let mut versions = vec![1u32; nodes.len()];
    for pod in pods {
        let class = trace.class_of[*pod];
        let pod = &trace.pods[*pod];
        let row = &mut known[class * nodes.len()..][..nodes.len()];
        let mut best: Option<(i64, usize, usize)> = None;
        for (at, node) in nodes.iter().enumerate() {
            if row[at].0 != versions[at] {
                row[at] = (versions[at], pod.fits(node).then(|| policy.score(node, pod, &trace.typical)));
            }
            if let Some((score, device)) =
                row[at].1.filter(|(score, _)| best.is_none_or(|(best, ..)| *score > best))
            {
                best = Some((score, at, device));
                if policy == Policy::FirstFit {
                    break;
                }
            }
        }
        if let Some((_, at, device)) = best {
            nodes[at].put(pod, device);
            versions[at] += 1;
        }
        curve.arrive(pod, best.is_some());
    }
}

fn random(
    trace: &Trace,
    mut nodes: Vec<Node>,
    pods: &[usize],
    mut random: super::go_rand::GoRand,
    curve: &mut Curve,
) {
    for pod in pods {
        let pod = &trace.pods[*pod];
        let fitting: Vec<usize> = (0..nodes.len()).filter(|at| pod.fits(&nodes[*at])).collect();
        if !fitting.is_empty() {
            let node = &mut nodes[fitting[random.below(fitting.len())]];
            let holding: Vec<usize> =
                (0..node.gpus.len()).filter(|device| node.gpus[*device] >= pod.milli).collect();
            let device = if pod.is_share() { holding[random.below(holding.len())] } else { 0 };
            node.put(pod, device);
        }
        curve.arrive(pod, !fitting.is_empty());
    }
}

fn ours(trace: &Trace, nodes: &[Node], pods: &[usize], curve: &mut Curve) -> Result<(), NameError> {
    let mut placer = placer(nodes)?;
    let gangs: Vec<Gang> = trace.classes.iter().map(|pod| gang(trace, pod)).collect();
    for pod in pods {
        let gang = &gangs[trace.class_of[*pod]];
        let is_placed = placer.place(gang).is_some();
        if is_placed {
            placer.take(gang);
        }
        curve.arrive(&trace.pods[*pod], is_placed);
    }
    Ok(())
}
