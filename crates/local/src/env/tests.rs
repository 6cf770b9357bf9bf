//! What members of roles and members with parts of devices are told.

use std::path::Path;
use std::sync::Arc;

use phalanx_model::{Device, JobId, LevelName, Machine, Policy, Role, RoleName, Slot, Timestamp, Topology};

use super::*;

fn node(name: &str, address: &str) -> (NodeName, Node) {
    let mut machine = Machine::bare(Origin::Declared);
    machine.devices = vec![Device::default(); 4];
    let name = NodeName::new(name).unwrap();
    let node = Node { address: address.to_owned(), ..Node::new(name.clone(), Vec::new(), Arc::new(machine)) };
    (name, node)
}

fn role(name: &str, size: u32, program: Option<Program>) -> Role {
    let needs = Needs { cpu_milli: 2_000, ..Needs::default() };
    Role { name: RoleName::new(name).unwrap(), size, needs, segments: Vec::new(), program }
}

fn gang(launch: LaunchKind, roles: Vec<Role>) -> Gang {
    let argv = vec!["train".to_owned()];
    Gang {
        size: 2,
        min: 2,
        max: 2,
        needs: Needs { devices: 2, ..Needs::default() },
        roles,
        members_per_node: None,
        topology: Topology::default(),
        traffic: None,
        grid: Vec::new(),
        program: Program { launch, argv, ..Program::default() },
    }
}

/// The environment of one rank, where slots are on these nodes, and the host file.
fn told(gang: &Gang, slots: &[(&str, Option<DevicePart>)], rank: u32) -> (Env, String) {
    with_attempt(gang, slots, |attempt| (attempt.env(rank), attempt.hostfile()))
}

fn with_attempt<T>(
    gang: &Gang,
    slots: &[(&str, Option<DevicePart>)],
    read: impl FnOnce(&Attempt<'_>) -> T,
) -> T {
    let nodes: BTreeMap<NodeName, Node> = [node("a", "10.0.0.1"), node("b", "10.0.0.2")].into();
    let slot = |(rank, (node, part)): (u32, &(&str, Option<DevicePart>))| Slot {
        rank,
        node: NodeName::new(*node).unwrap(),
        devices: if gang.role_of(rank).is_some() { DeviceMask::EMPTY } else { DeviceMask::one(rank) },
        part: part.clone(),
    };
    let slots = (0..).zip(slots).map(slot).collect();
    let placement = Placement { slots, level: LevelName::new("cluster").unwrap() };
    let job = Job {
        id: JobId(7),
        name: phalanx_model::JobName::new("train").unwrap(),
        key: None,
        owner: phalanx_model::Owner { uid: 0, gid: 0, name: "root".to_owned() },
        queue: phalanx_model::QueueName::new("default").unwrap(),
        priority: 0,
        submitted_at: Timestamp(0),
        gangs: vec![gang.clone()],
        policy: Policy::default(),
        turn: phalanx_model::Turn::default(),
    };
    let attempt = Attempt {
        job: &job,
        gang,
        placement: &placement,
        index: 0,
        number: 1,
        nodes: &nodes,
        master_port: 29_500,
        dir: Path::new("/state"),
        state: Path::new("/state"),
        home: "/home/of-root",
    };
    read(&attempt)
}

fn words<'a>(env: &'a Env, names: &[&str]) -> Vec<&'a str> {
    names.iter().map(|name| env.get(*name).map_or("-", String::as_str)).collect()
}

#[test]
fn a_rank_is_told_where_to_save_and_where_to_say_so() {
    let mut gang = gang(LaunchKind::Ranks, Vec::new());
    gang.program.checkpoint_dir = Some("/ckpt".to_owned());
    let names = [
        "PHALANX_GANG",
        "PHALANX_STATE",
        "PHALANX_CKPT_DIR",
        "PHALANX_CHECKPOINTED",
        "PHALANX_CHECKPOINT_EVERY",
        "PHALANX_PROGRESS",
        "PHALANX_PREEMPT_AT",
        "PHALANX_RESUME",
    ];
    let of = |number| with_attempt(&gang, &[("a", None), ("b", None)], |a| Attempt { number, ..*a }.env(0));
    let told = [
        "0",
        "/state",
        "/ckpt",
        "/state/checkpointed",
        "/state/checkpoint_every",
        "/state/progress.0",
        "/state/preempt_at",
    ];
    assert_eq!(words(&of(1), &names), [&told[..], &["-"]].concat());
    assert_eq!(words(&of(2), &names), [&told[..], &["1"]].concat());
}

#[test]
fn a_role_is_no_part_of_the_world() {
    let servers = Program { env: [("PORT".to_owned(), "9".to_owned())].into(), ..Program::default() };
    let gang = gang(LaunchKind::Ranks, vec![role("ps", 2, Some(servers)), role("web", 1, None)]);
    let slots = [("a", None), ("b", None), ("b", None), ("b", None), ("a", None)];
    let names =
        ["PHALANX_ROLE", "PHALANX_ROLE_RANK", "PHALANX_ROLE_SIZE", "PHALANX_RANK", "WORLD_SIZE", "RANK"];
    let of = |rank: u32| told(&gang, &slots, rank).0;
    assert_eq!(words(&of(1), &names), ["main", "1", "2", "1", "2", "1"]);
    assert_eq!(words(&of(3), &names), ["ps", "1", "2", "3", "2", "-"]);
    assert_eq!(words(&of(4), &names), ["web", "0", "1", "4", "2", "-"]);
    let names = [
        "MASTER_ADDR",
        "MASTER_PORT",
        "PORT",
        "OMP_NUM_THREADS",
        "CUDA_VISIBLE_DEVICES",
        "PHALANX_NODE_RANK",
    ];
    assert_eq!(words(&of(3), &names), ["10.0.0.1", "29500", "9", "2", "", "1"]);
    let names = ["LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "GROUP_RANK", "PORT"];
    assert_eq!(words(&of(1), &names), ["1", "2", "1", "-"], "servers beside it are not counted");
}

#[test]
fn jax_counts_its_own_processes_alone() {
    let gang = gang(LaunchKind::Jax, vec![role("data", 1, None)]);
    let slots = [("a", None), ("b", None), ("a", None)];
    let names = ["JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"];
    assert_eq!(words(&told(&gang, &slots, 1).0, &names), ["10.0.0.1:29500", "2", "1"]);
    assert_eq!(words(&told(&gang, &slots, 2).0, &names), ["10.0.0.1:29500", "2", "-"]);
}

#[test]
fn ranks_go_back_and_forth_between_hosts() {
    let mut gang = gang(LaunchKind::Mpi, Vec::new());
    (gang.size, gang.needs.devices) = (3, 1);
    let slots = [("a", None), ("b", None), ("a", None)];
    let files = with_attempt(&gang, &slots, |attempt| (attempt.hostfile(), attempt.rankfile()));
    assert_eq!(files.0, "10.0.0.1 slots=2\n10.0.0.2 slots=1\n");
    assert_eq!(files.1, "rank 0=10.0.0.1 slot=0\nrank 1=10.0.0.2 slot=0\nrank 2=10.0.0.1 slot=1\n");
    let place = with_attempt(&gang, &slots, |attempt| attempt.place(2));
    assert_eq!((place.node_rank, place.local_rank, place.local_size), (0, 1, 2));
}

#[test]
fn the_launcher_of_an_mpi_job_is_no_slot_of_it() {
    let beside = Program { argv: vec!["watch".to_owned()], ..Program::default() };
    let gang = gang(LaunchKind::Mpi, vec![role("monitor", 1, Some(beside)), role("launcher", 1, None)]);
    assert_eq!(launcher(&gang), Some(3));
    let slots = [("a", None), ("b", None), ("a", None), ("a", None)];
    let (env, hosts) = told(&gang, &slots, 3);
    assert_eq!(hosts, "10.0.0.1 slots=2\n10.0.0.2 slots=2\n");
    assert_eq!(
        words(&env, &["OMPI_MCA_orte_default_hostfile", "PHALANX_ROLE"]),
        ["/state/hostfile", "launcher"]
    );
    assert_eq!(launcher(&self::gang(LaunchKind::Mpi, Vec::new())), Some(0));
    assert_eq!(launcher(&self::gang(LaunchKind::Ranks, vec![role("launcher", 1, None)])), None);
}

#[test]
fn a_share_is_kept_to_its_part() {
    let mut gang = gang(LaunchKind::Ranks, Vec::new());
    let share =
        |compute_milli, memory_bytes| PartNeed::Share { compute_milli, memory_bytes, trust: "me".to_owned() };
    gang.needs = Needs { part: Some(share(255, 5 << 30)), ..Needs::default() };
    let slots = [("a", Some(DevicePart::Share)), ("a", Some(DevicePart::Share))];
    let names =
        ["CUDA_VISIBLE_DEVICES", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"];
    assert_eq!(words(&told(&gang, &slots, 1).0, &names), ["1", "25", "0=5120M"]);
    gang.needs.part = Some(share(0, 1));
    assert_eq!(words(&told(&gang, &slots, 1).0, &names), ["1", "-", "0=1M"]);
}

#[test]
fn a_slice_is_named() {
    let mut gang = gang(LaunchKind::Ranks, Vec::new());
    gang.needs = Needs { part: Some(PartNeed::Profile("3g.40gb".to_owned())), ..Needs::default() };
    let slice = |start| Some(DevicePart::Slice { profile: "3g.40gb".to_owned(), start });
    let (env, _) = told(&gang, &[("a", slice(0)), ("a", slice(4))], 1);
    let names = ["PHALANX_MIG_PROFILE", "PHALANX_MIG_START", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"];
    assert_eq!(words(&env, &names), ["3g.40gb", "4", "-"]);
}
