//! Faults of hardware: a GPU that does not answer, Xids, and a link between nodes.

use std::fs::OpenOptions;
use std::io::Write;

use phalanx_api::protocol::{Verb, hardware};
use phalanx_health::{Action, Line, xid};
use phalanx_model::{Grade, NodeName};

use super::fake::{Fake, NoFake};
use super::record::Basis;
use super::ring::{EVERY, now_ms};
use super::scene::{Kept, Late, Plan, Scene, Unplanned};
use crate::daemon::{Nodes, job};
use crate::network::{Network, is_possible};

/// A machine with 8 GPUs, as NVIDIA's library describes it.
const MACHINE: &str = include_str!("../../../fixtures/live/h100-nvswitch-8.txt");
const GPUS: u32 = 8;
const RANKS: u32 = 4;

pub(super) const FOUND: Basis = Basis {
    real: "the daemon, its reader of NVML and its samples, the ranks, their sockets and checkpoints",
    declared: "nothing",
    emulated: "8 H100: a library in place of NVIDIA's answers from a description of a real machine",
};
pub(super) const XID: Basis = Basis {
    real: "the daemon, its reader of the kernel log, the ranks, their sockets and checkpoints",
    declared: "nothing",
    emulated: "8 H100: a library in place of NVIDIA's; the line of the kernel log is written by the drill",
};
pub(super) const LINK: Basis = Basis {
    real: "the daemon, the ranks, and the network of 3 namespaces, which `tc` limits to 20 Mbit/s and `ip` cuts",
    declared: "3 nodes of 8 GPUs; each is a network namespace of this machine",
    emulated: "the monitor of the fabric: the drill reports the grade, as `phalanx health report` does",
};

/// A gang of four ranks, with a GPU each, on a machine with 8 GPUs.
pub(super) fn found(step_ms: u64) -> Result<Plan, Unplanned> {
    let fake = Fake::build(&description("")).map_err(|why| match why {
        NoFake::NoCompiler(why) => Unplanned::Missing(format!(
            "the library in place of NVIDIA's needs the C compiler `cc`, which cannot be started: {why}"
        )),
        NoFake::Failed(why) => Unplanned::Failed(format!("the library in place of NVIDIA's: {why}")),
    })?;
    let library = fake.library().parent().map(ToOwned::to_owned);
    let library = library.ok_or_else(|| Unplanned::Failed("the library has no folder".to_owned()))?;
    let kept = Kept { fake: Some(fake), ..Kept::default() };
    let nodes = Nodes::Found { library };
    Ok(Plan { nodes, queues: "", ranks: RANKS, devices: 1, step_ms, kept })
}

/// The machine, with samples that are healthy and further lines.
fn description(more: &str) -> String {
    let vitals = (0..GPUS).map(|gpu| {
        format!(
            "gpu{gpu} vitals busy=97 memory=0 temperature=61 power=650000 ecc=0,0 rows=0,0,0,0 replays=0\n"
        )
    });
    format!("{MACHINE}\n{}{more}", vitals.collect::<String>())
}

/// The GPU of a rank.
fn gpu_of(scene: &Scene, rank: usize) -> Result<u32, String> {
    let gang = scene.gang()?;
    let slot = gang.placement.as_ref().and_then(|placement| placement.slots.get(rank));
    slot.and_then(|slot| slot.devices.to_string().parse().ok())
        .ok_or_else(|| format!("rank {rank} has no GPU"))
}

fn uses(scene: &Scene, gpu: u32) -> Result<bool, String> {
    let ends = format!(": GPU {gpu}");
    Ok(scene.placed()?.iter().any(|place| place.ends_with(&ends)))
}

pub(super) fn gpu_is_lost(scene: &mut Scene) -> Result<(), String> {
    let gpu = gpu_of(scene, 1)?;
    scene.inject(format!(
        "removed GPU {gpu}, which rank 1 holds: calls of NVIDIA's library for it fail with GPU_IS_LOST"
    ))?;
    scene.at_end(2, Late::FewAgain);
    let fake = scene.kept.fake.as_ref().ok_or("there is no library")?;
    fake.describe(&description(&format!("gpu{gpu} lost\n")));
    let line = scene.graded(Some(gpu), Grade::Broken, "does not answer")?;
    scene.found.check(
        0,
        line.grade == Grade::Broken,
        format!("GPU {gpu} is graded {}: {}", line.grade, line.detail),
    );
    check_moves(scene, gpu, 1)
}

/// Whether the gang starts again on other GPUs.
fn check_moves(scene: &mut Scene, gpu: u32, number: usize) -> Result<(), String> {
    scene.runs_again(2)?;
    let (attempt, has_left) = (scene.gang()?.attempt, !uses(scene, gpu)?);
    let places = scene.placed()?.join(", ");
    scene.found.check(number, attempt == 2 && has_left, format!("attempt {attempt} runs on {places}"));
    Ok(())
}

/// An Xid of each class of the table.
pub(super) const fn xid_of(action: Action) -> u32 {
    match action {
        Action::Ignore => 45,
        Action::Application => 31,
        Action::Watch => 63,
        Action::DrainAfterJob => 78,
        Action::DrainNow => 48,
        Action::Broken => 79,
    }
}

pub(super) fn xid_is_logged(scene: &mut Scene, action: Action) -> Result<(), String> {
    let (number, gpu) = (xid_of(action), gpu_of(scene, 1)?);
    let verdict = xid::verdict(number, None, "");
    if verdict.action != action {
        return Err(format!("the table says {} of Xid {number}, and not {action}", verdict.action));
    }
    let address = address(gpu).ok_or_else(|| format!("GPU {gpu} has no address"))?;
    let line = format!("NVRM: Xid (PCI:{address}): {number}, pid=1, name=ring-allreduce, {}", verdict.detail);
    scene.inject(format!("wrote to the kernel log: {line}"))?;
    let moves = matches!(action, Action::DrainNow | Action::Broken);
    scene.at_end(if moves { 2 } else { 1 }, if moves { Late::FewAgain } else { Late::Stays });
    let log = OpenOptions::new().append(true).open(scene.daemon.kernel_log());
    log.and_then(|mut log| writeln!(log, "[  100.500000] {line}")).map_err(|e| e.to_string())?;
    let least = match action {
        Action::Ignore | Action::Application => Grade::Ok,
        Action::Watch => Grade::Suspect,
        Action::DrainAfterJob => Grade::DrainAfterJob,
        Action::DrainNow => Grade::DrainNow,
        Action::Broken => Grade::Broken,
    };
    // Other lines of the same GPU are no evidence of this Xid.
    let evidence = format!("Xid {number}:");
    let mut graded = scene.graded(Some(gpu), least, &evidence)?;
    if moves {
        check_moves(scene, gpu, 1)?;
    } else {
        scene.go_on(EVERY)?;
        graded = scene.line(Some(gpu), least, &evidence).ok_or("the evidence is gone")?;
    }
    let found = graded.evidence.iter().map(|seen| seen.what.as_str()).collect::<Vec<_>>().join("; ");
    scene.found.check(0, graded.grade == least, format!("GPU {gpu} is graded {}: {found}", graded.grade));
    if moves {
        return check_closed(scene, &graded, 3);
    }
    if action == Action::DrainAfterJob { check_closed(scene, &graded, 2) } else { Ok(()) }
}

/// Whether a GPU takes no job after the gang has ended, until it is cleared.
fn check_closed(scene: &mut Scene, graded: &Line, number: usize) -> Result<(), String> {
    scene.finish()?;
    let mut whole = job(1, "true")?;
    whole.gangs.iter_mut().for_each(|gang| gang.needs.devices = GPUS);
    let whole = scene.daemon.submit(whole)?;
    let waits = scene.wait("a decision on the new job", || {
        scene.daemon.job(whole).filter(|view| view.state != "pending" || !view.reason.is_empty())
    })?;
    let why = scene.why(whole)?;
    scene.found.quote(format!("phalanx why {whole}"), Some(now_ms()), why);
    let hardware = hardware(&graded.node, graded.device);
    scene.note(format!("cleared {hardware}, as `phalanx health clear` does"));
    scene.daemon.ask(Verb::ClearHealth { node: graded.node.clone(), device: graded.device })?;
    let ended = scene.wait("the end of the new job", || {
        scene.daemon.job(whole).filter(|view| view.ending.is_some()).map(|view| view.state)
    })?;
    let found = format!("job {whole} was {}; after the clear it {ended}", waits.state);
    scene.found.check(number, waits.state == "pending" && ended == "succeeded", found);
    Ok(())
}

/// `0000:1b:00`, as the kernel log has it.
fn address(gpu: u32) -> Option<String> {
    let head = format!("gpu{gpu} at ");
    let line = MACHINE.lines().find_map(|line| line.strip_prefix(&head))?;
    let address = line.trim().to_lowercase();
    address.strip_prefix("0000").and_then(|short| short.strip_suffix(".0")).map(ToOwned::to_owned)
}

/// A gang of two ranks with a node each, on a network that can be degraded.
pub(super) fn networked(step_ms: u64) -> Result<Plan, Unplanned> {
    if !is_possible() {
        let why = "network namespaces take root, `ip`, `tc` and `nsenter`";
        return Err(Unplanned::Missing(why.to_owned()));
    }
    let kept = Kept { network: Some(Network::build(3)?), ..Kept::default() };
    let cluster =
        "nodes:\n- {name: 'n[1-3]', devices: {count: 8, link: nvlink, model: NVIDIA H100 80GB HBM3}}\n";
    Ok(Plan {
        nodes: Nodes::Declared(cluster.to_owned()),
        // By default a job that ends within minutes stays: a move would cost it more.
        queues: "migration: {when: always}\n",
        ranks: 2,
        devices: 8,
        step_ms,
        kept,
    })
}

pub(super) fn link_degrades(scene: &mut Scene) -> Result<(), String> {
    let gang = scene.gang()?;
    let slots = gang.placement.map(|placement| placement.slots).unwrap_or_default();
    let [stays, leaves] = &slots[..] else { return Err("the gang has no two ranks".to_owned()) };
    let (stays, leaves) = (stays.node.clone(), leaves.node.clone());
    scene.inject(format!("limited the link of node {leaves} to 20 Mbit/s"))?;
    scene.at_end(2, Late::FewAgain);
    scene.at_end(3, Late::InAttempt(2));
    network(scene)?.degrade(&leaves)?;
    scene.note(format!("reported node {leaves} as drain_after_job"));
    scene.daemon.report(&leaves, Grade::DrainAfterJob, "its link is degraded")?;
    scene.graded(None, Grade::DrainAfterJob, "its link is degraded")?;
    let stopping = scene.event("stopping", |_| true)?;
    let at_checkpoint = stopping.detail.contains("moves after a checkpoint");
    scene.found.check(0, at_checkpoint, stopping.detail);
    scene.runs_again(2)?;
    let nodes = nodes(scene)?;
    let holds = nodes.contains(&stays) && !nodes.contains(&leaves);
    let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
    scene.found.check(1, holds, format!("the gang was on {stays}, {leaves} and is on {}", names.join(", ")));
    scene.note(format!("cut the link of node {leaves}, and reported the node as broken"));
    network(scene)?.cut(&leaves)?;
    scene.daemon.report(&leaves, Grade::Broken, "its link is down")?;
    scene.graded(None, Grade::Broken, "its link is down")?;
    let before = scene.step();
    scene.go_on(2 * EVERY)?;
    scene.note(format!("saw steps {before} to {} after the cut", scene.step()));
    Ok(())
}

fn network(scene: &Scene) -> Result<&Network, String> {
    scene.kept.network.as_ref().ok_or_else(|| "there is no network".to_owned())
}

fn nodes(scene: &Scene) -> Result<Vec<NodeName>, String> {
    let slots = scene.gang()?.placement.map(|placement| placement.slots).unwrap_or_default();
    Ok(slots.into_iter().map(|slot| slot.node).collect())
}
