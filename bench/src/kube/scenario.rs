//! What is measured: which pods wait, what is there already, and when a run is over.

use std::time::{Duration, Instant};

use phalanx_controlplane::{Api, ControlPlane, Fleet, Options, Program};

use super::arguments::Arguments;
use super::cluster::{self, Pod, SERVING, group_name, pod_name};
use super::draw::{self, GPUS, Gang};
use super::figures::{Outcome, percentile};
use super::runner::{Runner, Running};
use super::takeover::{self, Takeover};
use super::trace::{Trace, What};
use super::usage::Usage;

/// A run is over when nothing was bound for so long: not everything fits, or the scheduler does not find how.
const SETTLED: Duration = Duration::from_secs(60);
/// For so long the scheduler's CPU is counted when nothing changes.
const IDLE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Of the fragmented cluster: what is deleted of pods of 1 to 4 GPUs, and the gangs that are to come in.
const DELETED_PERCENT: usize = 30;
const INTO_FRAGMENTS: Gang = Gang { pods: 16, gpus: 2 };
/// Replicas of the service that comes into a full cluster.
const REPLICAS: usize = 100;
const TRAINING: Gang = Gang { pods: 4, gpus: GPUS };

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scenario {
    /// The pods of `Gangs`, of which no object says that they belong together.
    Single,
    /// Gangs to 90 % full.
    Gangs,
    /// Gangs that ask for twice what there is.
    Twice,
    /// Gangs of 16 pods into what 30 % of small pods left.
    Fragmented,
    /// 100 pods that preempt training.
    Service,
    /// 8 pods on every node, and nothing that waits.
    Memory,
    /// The gangs of `Gangs`; the leader is killed when half of them are bound.
    Restart,
}

impl Scenario {
    pub(super) const ALL: [Self; 7] = [
        Self::Single,
        Self::Gangs,
        Self::Twice,
        Self::Fragmented,
        Self::Service,
        Self::Memory,
        Self::Restart,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Gangs => "gangs",
            Self::Twice => "twice",
            Self::Fragmented => "fragmented",
            Self::Service => "service",
            Self::Memory => "memory",
            Self::Restart => "restart",
        }
    }

    /// The bare binder is asked what the API server can do, and kube-scheduler preempts pods and no gangs.
    pub(super) fn is_for(self, runner: Runner) -> bool {
        match runner {
            Runner::Bare => matches!(self, Self::Single | Self::Gangs),
            Runner::KubeScheduler => !matches!(self, Self::Service | Self::Restart),
            Runner::Phalanx => true,
        }
    }

    /// Gangs that wait from the beginning, and the GPUs that are free then.
    fn waiting(self, nodes: usize, seed: u64) -> (Vec<Gang>, Vec<usize>) {
        let empty = vec![GPUS; nodes];
        match self {
            Self::Single | Self::Gangs | Self::Restart => (draw::gangs(nodes, 90, seed), empty),
            Self::Twice => (draw::gangs(nodes, 200, seed), empty),
            Self::Fragmented => {
                let mut free = empty;
                for (node, gpus, is_deleted) in draw::fragments(nodes, DELETED_PERCENT, seed) {
                    free[node] -= if is_deleted { 0 } else { gpus };
                }
                let count = draw::room(&free, INTO_FRAGMENTS);
                (vec![INTO_FRAGMENTS; 2 * count], free)
            }
            Self::Service => (vec![Gang { pods: 1, gpus: 1 }; REPLICAS], vec![0; nodes]),
            Self::Memory => (Vec::new(), vec![0; nodes]),
        }
    }

    /// Pods that are there before the scheduler starts, and the names of those that are deleted again.
    fn present(self, nodes: usize, seed: u64, scheduler: &'static str) -> (Vec<Pod>, Vec<String>) {
        let filler = |at: usize, gpus: usize, node: usize| Pod {
            name: format!("fill-{at}"),
            gpus,
            scheduler,
            bound: Some(node),
            ..Pod::default()
        };
        match self {
            Self::Single | Self::Gangs | Self::Twice | Self::Restart => (Vec::new(), Vec::new()),
            Self::Fragmented => {
                let fragments = draw::fragments(nodes, DELETED_PERCENT, seed);
                let pods = fragments.iter().enumerate().map(|(at, (node, gpus, _))| filler(at, *gpus, *node));
                let deleted = fragments.iter().enumerate().filter(|(_, (.., is_deleted))| *is_deleted);
                (pods.collect(), deleted.map(|(at, _)| format!("fill-{at}")).collect())
            }
            Self::Service => {
                // The scheduler itself places it, so that it is its own to preempt.
                let training = (0..nodes).map(|node| Pod {
                    group: Some(training_group(node / TRAINING.pods)),
                    bound: None,
                    ..filler(node, TRAINING.gpus, node)
                });
                (training.collect(), Vec::new())
            }
            Self::Memory => ((0..nodes * GPUS).map(|at| filler(at, 1, at / GPUS)).collect(), Vec::new()),
        }
    }
}

/// The groups of training lie behind those of the gangs that wait.
fn training_group(at: usize) -> String {
    group_name(REPLICAS + at)
}

/// One run, with a control plane of its own.
pub(super) fn measure(
    arguments: &Arguments,
    nodes: usize,
    scenario: Scenario,
    runner: Runner,
) -> Result<Outcome, String> {
    // Only what is preempted needs somebody who ends it.
    let options = Options { kwok: scenario == Scenario::Service, ..Options::default() };
    let mut plane = ControlPlane::start(&options).map_err(|e| e.to_string())?;
    let (gangs, free) = scenario.waiting(nodes, arguments.seed);
    let pods = waiting_pods(&gangs, nodes, scenario, runner);
    prepare(plane.api(), nodes, scenario, runner, arguments.seed).map_err(|e| e.to_string())?;
    let is_before = scenario != Scenario::Service;
    if is_before {
        create(plane.api(), &gangs, &pods, scenario).map_err(|e| e.to_string())?;
    }
    let trace = Trace::start(plane.api()).map_err(|e| e.to_string())?;
    let before = servers(&plane)?;
    let mut began = trace.began.elapsed();
    let mut running = runner.start(&mut plane, &arguments.phalanx)?;
    if !is_before {
        quiet(running.pid)?;
        let unbound = cluster::unbound(plane.api()).map_err(|e| e.to_string())?;
        if unbound > 0 {
            return Err(format!(
                "{unbound} pods of training are not bound, so that there is nothing to preempt"
            ));
        }
        began = trace.began.elapsed();
        create(plane.api(), &gangs, &pods, scenario).map_err(|e| e.to_string())?;
    }
    let takeover = match scenario {
        Scenario::Restart => {
            // Whoever comes second waits.
            takeover::until(1, &trace)?;
            let standby = runner.start(&mut plane, &arguments.phalanx)?;
            let leader = std::mem::replace(&mut running, standby);
            takeover::until(pods.len() / 2, &trace)?;
            Some(Takeover::begin(&trace, plane.api(), leader)?)
        }
        _ => None,
    };
    let end = match scenario {
        Scenario::Memory => {
            quiet(running.pid)?;
            "idle"
        }
        _ => until_bound(arguments, &plane, &mut running, &trace, pods.len())?,
    };
    let scheduler = Usage::of(running.pid)?;
    let after = servers(&plane)?;
    let events = trace.events();
    let mut outcome = Outcome::of(&gangs, &free, began, &events);
    outcome.used(before, after, scheduler);
    if end == "settled" {
        outcome.idle_cpu_percent = Some(idle_percent(running.pid)?);
    }
    outcome.takeover_s = takeover.and_then(|takeover| takeover.late_s(&trace));
    if scenario == Scenario::Service {
        let mut latencies: Vec<f64> = events
            .iter()
            .filter(|event| matches!(event.what, What::Bound { .. }))
            .map(|event| event.at.saturating_sub(began).as_secs_f64() * 1_000.0)
            .collect();
        outcome.latency_p50_ms = Some(percentile(&mut latencies, 50));
        outcome.latency_p99_ms = Some(percentile(&mut latencies, 99));
    }
    (outcome.scenario, outcome.runner, outcome.nodes, outcome.end) =
        (scenario.name().into(), runner.name().into(), nodes, end.into());
    Ok(outcome)
}

/// Nodes, and what is on them.
fn prepare(
    api: &Api,
    nodes: usize,
    scenario: Scenario,
    runner: Runner,
    seed: u64,
) -> Result<(), phalanx_controlplane::Error> {
    Fleet { nodes_per_rack: draw::NODES_PER_RACK, ..Fleet::new(nodes) }.create(api)?;
    if scenario == Scenario::Service {
        cluster::create_priority(api)?;
        cluster::create_groups(
            api,
            (0..nodes.div_ceil(TRAINING.pods)).map(|at| (training_group(at), TRAINING)),
        )?;
    }
    let (present, deleted) = scenario.present(nodes, seed, runner.scheduler());
    cluster::create_pods(api, &present)?;
    cluster::delete_pods(api, &deleted)
}

fn create(
    api: &Api,
    gangs: &[Gang],
    pods: &[Pod],
    scenario: Scenario,
) -> Result<(), phalanx_controlplane::Error> {
    if has_groups(scenario) {
        let groups = gangs.iter().enumerate().map(|(at, gang)| (group_name(at), *gang));
        cluster::create_groups(api, groups)?;
    }
    cluster::create_pods(api, pods)
}

fn has_groups(scenario: Scenario) -> bool {
    matches!(scenario, Scenario::Gangs | Scenario::Twice | Scenario::Fragmented | Scenario::Restart)
}

fn waiting_pods(gangs: &[Gang], nodes: usize, scenario: Scenario, runner: Runner) -> Vec<Pod> {
    // Only the bare binder needs places, and it is not asked about clusters that are used already.
    let places = match runner {
        Runner::Bare => draw::places(gangs, nodes),
        _ => gangs.iter().map(|gang| vec![None; gang.pods]).collect(),
    };
    let pods = gangs.iter().zip(places).enumerate().flat_map(|(gang, (of, places))| {
        places.into_iter().enumerate().map(move |(member, place)| Pod {
            name: pod_name(gang, member),
            gpus: of.gpus,
            scheduler: runner.scheduler(),
            group: has_groups(scenario).then(|| group_name(gang)),
            place,
            bound: None,
            priority: (scenario == Scenario::Service).then_some(SERVING),
        })
    });
    pods.collect()
}

/// Until all pods are bound, nothing was bound for a while, or the limit; says which.
fn until_bound(
    arguments: &Arguments,
    plane: &ControlPlane,
    running: &mut Running,
    trace: &Trace,
    pods: usize,
) -> Result<&'static str, String> {
    let began = trace.began.elapsed();
    loop {
        let (bound, last) = trace.progress()?;
        let now = trace.began.elapsed();
        if bound >= pods {
            return Ok("all bound");
        }
        if now.saturating_sub(began) > arguments.limit {
            return Ok("limit");
        }
        if now.saturating_sub(last.max(began)) > SETTLED {
            return Ok("settled");
        }
        running.check(plane)?;
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Until a process has used next to no CPU for two seconds: it has read what there is.
fn quiet(pid: u32) -> Result<(), String> {
    const WITHIN: Duration = Duration::from_secs(120);
    let began = Instant::now();
    while began.elapsed() < WITHIN {
        let before = Usage::of(pid)?;
        std::thread::sleep(Duration::from_secs(2));
        if Usage::of(pid)?.cpu_s - before.cpu_s < 0.1 {
            return Ok(());
        }
    }
    Err(format!("the scheduler was still busy after {} s with nothing to do", WITHIN.as_secs()))
}

fn idle_percent(pid: u32) -> Result<f64, String> {
    let before = Usage::of(pid)?;
    std::thread::sleep(IDLE);
    Ok((Usage::of(pid)?.cpu_s - before.cpu_s) / IDLE.as_secs_f64() * 100.0)
}

/// API server and etcd.
fn servers(plane: &ControlPlane) -> Result<[Usage; 2], String> {
    let used = |program: Program| {
        let pid = plane.pid(program).ok_or_else(|| format!("{program} does not run"))?;
        Usage::of(pid)
    };
    Ok([used(Program::ApiServer)?, used(Program::Etcd)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_can_be_bound_by_the_bare_binder_and_single_pods_are_those_of_the_gangs() {
        for (scenario, has_group) in [(Scenario::Gangs, true), (Scenario::Single, false)] {
            let (gangs, _) = scenario.waiting(1_000, 42);
            let pods = waiting_pods(&gangs, 1_000, scenario, Runner::Bare);
            assert!(pods.len() > 1_000);
            assert!(pods.iter().all(|pod| pod.place.is_some() && pod.group.is_some() == has_group));
        }
    }

    #[test]
    fn what_is_free_is_what_the_pods_that_stay_leave() {
        let (gangs, free) = Scenario::Fragmented.waiting(100, 42);
        let (present, deleted) = Scenario::Fragmented.present(100, 42, "default-scheduler");
        let mut left = vec![GPUS; 100];
        for pod in present.iter().filter(|pod| !deleted.contains(&pod.name)) {
            left[pod.bound.unwrap()] -= pod.gpus;
        }
        assert_eq!(left, free);
        assert_eq!(gangs.len(), 2 * draw::room(&free, INTO_FRAGMENTS));
        assert!(gangs.len() >= 4, "nothing to place: {}", gangs.len());
    }
}
