//! Topology-aware against naive placement: the same jobs in the same order on a real Clos, and only where they go differs.

use std::fmt::Write;
use std::path::Path;

use phalanx_model::DeviceMask;
use phalanx_sim::Rng;
use phalanx_sim::cluster::{Cluster, NodeShape};
use phalanx_sim::policies::{Rules, named};
use phalanx_sim::replay::metrics::Metrics;
use phalanx_sim::replay::{Act, Job, Machines, Part, Place, Placed, Replay, Scheduler, Settings, View};

use super::draw::{exponential_ms, weighted};
use crate::peers::{self, Ask, Peer};

const JOBS: u32 = 500;
const SEED: u64 = 1;
/// Devices, and how many of a hundred jobs have so many.
const SIZES: [(u32, u64); 7] = [(8, 20), (16, 20), (32, 20), (64, 16), (128, 14), (256, 7), (512, 3)];
const MEAN_RUN_MS: u64 = 4 * 3_600_000;
/// What the jobs ask for in the mean, of all devices.
const LOAD: f64 = 0.85;
/// Above the leaves there is half of what is below.
const OVERSUBSCRIPTION_MILLI: u32 = 2_000;
const TRAFFIC_MILLI: [u32; 3] = [150, 300, 500];
const POLICIES: [&str; 4] = ["phalanx", "topology", "first-fit", "spread"];
const NAIVE: [&str; 4] = ["first-fit", "spread", "naive", "random"];

/// Whoever fits starts, in the order of submission, where another scheduler would put it: whole nodes, or a part of one.
struct Peered {
    peer: Peer,
    cluster: peers::Cluster,
    /// By node of theirs: ours.
    ours: Vec<usize>,
    rng: peers::Rng,
}

impl Peered {
    fn new(peer: Peer, machines: &Machines) -> Self {
        let levels: Vec<&str> = machines.levels.above.iter().map(phalanx_model::LevelName::as_str).collect();
        let path = |node: &phalanx_model::Node| node.path.iter().map(ToString::to_string).collect();
        let nodes = machines.nodes.iter().map(|node| (node.name.to_string(), path(node))).collect();
        let cluster = peers::Cluster::new(&levels, nodes);
        let of =
            |name: &String| machines.nodes.iter().position(|node| node.name.as_str() == name).unwrap_or(0);
        let ours = cluster.names.iter().map(of).collect();
        Self { peer, cluster, ours, rng: peers::Rng(SEED) }
    }
}

impl Scheduler for Peered {
    fn name(&self) -> String {
        self.peer.name().to_owned()
    }

    fn decide(&mut self, view: &View<'_>, acts: &mut Vec<Act>) -> Option<u64> {
        let mut free: Vec<DeviceMask> = self.ours.iter().map(|node| view.free[*node]).collect();
        self.cluster.free = free.iter().map(|free| free.count()).collect();
        for job in view.waiting.iter().copied() {
            let gpus = view.jobs[job].gpus.min(peers::GPUS_PER_NODE);
            let pods = view.jobs[job].gpus / gpus.max(1);
            let preferred = Some(self.cluster.levels.len() - 1);
            let ask = Ask { pods, gpus, required: None, preferred, slice: None };
            let Some(placed) = self.peer.place(&self.cluster, &ask, &mut self.rng) else { continue };
            self.cluster.take(&placed, gpus);
            let mut place = Place::new();
            for (node, pods) in placed {
                let devices: DeviceMask = free[node].iter().take((pods * gpus) as usize).collect();
                free[node] = free[node].minus(devices);
                place.push(Part { node: self.ours[node], devices });
            }
            acts.push(Act::Start { job, place });
        }
        None
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ms of a day")]
fn jobs(gpus: u32) -> Vec<Job> {
    let mut rng = Rng::new(SEED);
    let mean: f64 = SIZES.iter().map(|(gpus, of_100)| f64::from(*gpus) * *of_100 as f64 / 100.0).sum();
    let every_ms = mean * MEAN_RUN_MS as f64 / (LOAD * f64::from(gpus));
    let mut now_ms = 0;
    let job = |number: u32| {
        let gpus = weighted(&mut rng, &SIZES);
        let work = exponential_ms(&mut rng, MEAN_RUN_MS).max(60_000) as f64;
        now_ms += exponential_ms(&mut rng, every_ms as u64);
        Job {
            name: number.to_string(),
            submit_ms: now_ms,
            work,
            gpus,
            gpus_min: gpus,
            gpus_max: gpus,
            ..Job::default()
        }
    };
    (0..JOBS).map(job).collect()
}

/// One policy where uplinks are taken to be full, and where jobs that send across them share them.
struct Compared {
    name: String,
    full: Metrics,
    shared: Metrics,
}

pub(super) fn measure(folder: &Path) -> Result<String, String> {
    let table = super::super::read(&folder.join("lingjun/topo.csv"))?;
    let cluster = Cluster::of_table(&table, &NodeShape::default(), OVERSUBSCRIPTION_MILLI);
    let machines = Machines::from(cluster.map_err(|e| e.to_string())?);
    let mut jobs = jobs(machines.gpus());
    let mean = jobs.iter().map(|job| f64::from(job.gpus)).sum::<f64>() / f64::from(JOBS);
    let mut out = format!(
        "### Topology-aware against naive placement (predicted)\n\n\
         Claimed: 30 to 50 % more throughput on a communication-heavy mix.\n\n\
         Declared: {JOBS} jobs of 8 to 512 GPUs (mean {mean:.0}), {} h on the average, which ask for {:.0} % of {} GPUs on {} \
         hosts in {} leaves; the topology is real (Alibaba Lingjun), 8 H100 with 400 Gb/s each are declared, and half as \
         much above the leaves as below; the part of their time in which jobs communicate at their best place. All run in the \
         order of submission, and who fits passes; `phalanx` has its own order. The other schedulers are asked for whole nodes, \
         which is better for them. Uplinks are full (a job has the part that its GPUs are of those below), or shared by the \
         jobs that send across them at the time. Gain: work for each GPU-hour held, against `first-fit`.\n\n\
         | communication | policy | useful, uplinks full | gain | useful, uplinks shared | gain | leaves over least | mean JCT, h |\n\
         |---|---|---|---|---|---|---|---|\n",
        MEAN_RUN_MS / 3_600_000,
        LOAD * 100.0,
        machines.gpus(),
        machines.nodes.len(),
        machines.leaves(),
    );
    let mut said = Vec::new();
    for traffic_milli in TRAFFIC_MILLI {
        jobs.iter_mut().for_each(|job| job.traffic_milli = traffic_milli);
        let all = compare(&machines, &jobs)?;
        rows(&mut out, traffic_milli / 10, &all);
        said.push(gains(traffic_milli / 10, &all));
    }
    let _ = writeln!(
        out,
        "\nThroughput under Phalanx where uplinks are shared: {}. Whoever packs nodes whole has NVLink inside, and loses no more than \
         the uplinks take; `spread` gives a job one GPU of each node.",
        said.join("; ")
    );
    Ok(out)
}

fn compare(machines: &Machines, jobs: &[Job]) -> Result<Vec<Compared>, String> {
    let mut all = Vec::new();
    let links = || [Placed::default(), Placed::among_others()];
    for name in POLICIES {
        let run = |placed: Placed| {
            let mut policy = named(name, machines, &Rules::default(), &std::collections::BTreeMap::new())?;
            run(machines, jobs, &placed, policy.as_mut())
        };
        let [full, shared] = links().map(run);
        all.push(Compared { name: name.to_owned(), full: full?, shared: shared? });
    }
    for peer in Peer::ALL {
        let run = |placed: Placed| run(machines, jobs, &placed, &mut Peered::new(peer, machines));
        let [full, shared] = links().map(run);
        all.push(Compared { name: peer.name().to_owned(), full: full?, shared: shared? });
    }
    Ok(all)
}

fn rows(out: &mut String, traffic_percent: u32, all: &[Compared]) {
    let Some(first) = all.iter().find(|one| one.name == "first-fit") else { return };
    let gain = |of: &Metrics, first: &Metrics| (of.goodput_percent / first.goodput_percent - 1.0) * 100.0;
    for Compared { name, full, shared } in all {
        let _ = writeln!(
            out,
            "| {traffic_percent} % | {name} | {:.1} % | {:+.1} % | {:.1} % | {:+.1} % | {:.2} | {:.2} |",
            full.goodput_percent,
            gain(full, &first.full),
            shared.goodput_percent,
            gain(shared, &first.shared),
            shared.leaves_over_least,
            shared.completion_s.mean / 3_600.0,
        );
    }
}

/// Against those who know nothing of the topology, and what there was to gain.
fn gains(traffic_percent: u32, all: &[Compared]) -> String {
    let of =
        |name: &str| all.iter().find(|one| one.name == name).map_or(0.0, |one| one.shared.goodput_percent);
    let gain = |name: &&str| format!("{:+.1} % against {name}", (of("phalanx") / of(name) - 1.0) * 100.0);
    let against: Vec<String> = NAIVE.iter().map(gain).collect();
    let slowdown = all.iter().find(|one| one.name == "naive").map_or(1.0, |one| one.shared.place_slowdown);
    format!(
        "at {traffic_percent} %, {} (the best place for every job would gain {:.1} % over naive)",
        against.join(", "),
        (slowdown - 1.0) * 100.0
    )
}

fn run(
    machines: &Machines,
    jobs: &[Job],
    progress: &Placed,
    scheduler: &mut dyn Scheduler,
) -> Result<Metrics, String> {
    let settings = Settings { start_ms: 30_000, restore_ms: 30_000, ..Settings::default() };
    let replay = Replay { cluster: machines, jobs, progress, settings, node_events: &[] };
    Ok(Metrics::of(&replay.run(scheduler).map_err(|e| e.to_string())?))
}
