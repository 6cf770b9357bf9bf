//! Two declared nodes with real topology: where ranks land, and what they are told of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use phalanx_api::protocol::{Answer, NodeFilter, NodesView, Verb};
use phalanx_model::{DeviceMask, Job, LaunchKind, LevelName};

use crate::support::{Bench, env, gang, refused, shell, until};

const TOPOLOGY: &str = "v100-hcm-8.txt";

/// Two nodes of eight V100 as a hybrid cube mesh, whose quads 0-3 and 4-7 are the NVLink islands.
fn bench(busy: [&str; 2]) -> Bench {
    let mut text = String::from("nodes:\n");
    for (number, busy) in (1..).zip(busy) {
        text += &format!("- {{name: v{number}, topo: {TOPOLOGY}, model: V100, busy: {busy}}}\n");
    }
    let mut bench = Bench::new(&text);
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/topo_m").join(TOPOLOGY);
    fs::copy(fixture, bench.path(TOPOLOGY)).unwrap();
    bench.up();
    bench
}

/// One device per rank; runs until the file `go` is there.
fn devices(bench: &Bench, size: u32, script: &str) -> Job {
    let go = bench.path("go");
    let mut job = shell(size, &format!("{script}\nwhile [ ! -e {} ]; do sleep 0.02; done", go.display()));
    gang(&mut job).needs.devices = 1;
    job
}

fn nodes(bench: &Bench) -> NodesView {
    match bench.ask(Verb::FindNodes(NodeFilter::default())) {
        Ok(Answer::Nodes(nodes)) => nodes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_does_not_fit_waits_and_holds_nothing() {
    let bench = bench(["[0, 1]", "['0-7']"]);
    let first = bench.submit(devices(&bench, 1, ""));
    bench.await_state(first, "running");
    let waiting = bench.submit(devices(&bench, 6, ""));
    let view = bench.get(waiting);
    assert_eq!((view.state.as_str(), view.reason.as_str()), ("pending", "Resources"), "{view:#?}");
    assert!(view.detail.contains("needs 6 members at once, and 5 fit now"), "{}", view.detail);
    let nodes = nodes(&bench);
    let held: Vec<_> = nodes.nodes.iter().flat_map(|n| &n.held).map(|h| h.job).collect();
    assert_eq!(held, [first]);
    assert_eq!(nodes.nodes.iter().map(|n| n.free.count()).sum::<u32>(), 5);
    bench.cancel(first);
    bench.await_state(waiting, "running");
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(bench.ended(waiting).state, "succeeded");
}

#[test]
fn of_two_gangs_that_fit_only_once_one_runs_whole() {
    let bench = bench(["['0-3']", "['4-7']"]);
    let mark = format!("echo $PHALANX_JOB_ID >> {}", bench.path("ran").display());
    let first = bench.submit(devices(&bench, 8, &mark));
    let second = bench.submit(devices(&bench, 8, &mark));
    bench.await_state(first, "running");
    until("eight ranks", || bench.lines("ran").len() >= 8);
    assert_eq!(bench.get(second).state, "pending");
    let held: Vec<(String, DeviceMask)> = nodes(&bench)
        .nodes
        .iter()
        .flat_map(|n| n.held.iter().map(|h| (n.name.to_string(), h.devices)))
        .collect();
    assert_eq!(held, [("v1".to_owned(), DeviceMask(0xf0)), ("v2".to_owned(), DeviceMask(0x0f))]);
    assert_eq!(bench.lines("ran"), vec![first.to_string(); 8]);
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(bench.ended(second).state, "succeeded");
}

#[test]
fn four_ranks_land_on_one_nvlink_island() {
    // Five are free on the first node, and no island of it is whole.
    let bench = bench(["[0, 4, 5]", "[2]"]);
    let mut job = devices(&bench, 4, "");
    gang(&mut job).topology.required = Some(LevelName::new("nvlink").unwrap());
    let id = bench.submit(job);
    let view = bench.await_state(id, "running");
    let placement = view.gangs[0].placement.clone().unwrap();
    assert_eq!(placement.level.as_str(), "nvlink");
    let used = placement.slots.iter().fold(DeviceMask::EMPTY, |all, s| all.union(s.devices));
    assert!(placement.slots.iter().all(|s| s.node.as_str() == "v2"), "{placement:?}");
    assert_eq!(used, DeviceMask(0xf0));
}

/// Every variable that a rank sees, by rank.
fn environments(bench: &Bench, job: Job) -> Vec<BTreeMap<String, String>> {
    let size = job.gangs[0].size;
    let id = bench.submit(job);
    assert_eq!(bench.ended(id).state, "succeeded");
    let logs = bench.logs(id);
    let of = |rank| {
        let lines = logs.iter().filter(move |(r, _)| *r == rank);
        lines.filter_map(|(_, l)| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    (0..size).map(of).collect()
}

fn assert_env(found: &BTreeMap<String, String>, wanted: &[(&str, &str)]) {
    for (name, value) in wanted {
        assert_eq!(found.get(*name).map(String::as_str), Some(*value), "{name} of {found:#?}");
    }
}

#[test]
fn ranks_are_told_their_place_and_devices() {
    let bench = bench(["['0-3', 6, 7]", "['2-7']"]);
    let mut job = shell(4, "env");
    gang(&mut job).needs.devices = 1;
    let found = environments(&bench, job);
    for (rank, env) in found.iter().enumerate() {
        let text = rank.to_string();
        let (node_rank, local) = ((rank / 2).to_string(), (rank % 2).to_string());
        assert_env(
            env,
            &[
                ("RANK", &text),
                ("WORLD_SIZE", "4"),
                ("LOCAL_RANK", &local),
                ("LOCAL_WORLD_SIZE", "2"),
                ("GROUP_RANK", &node_rank),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", &found[0]["MASTER_PORT"]),
                ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
                ("PHALANX_RANK", &text),
                ("PHALANX_WORLD_SIZE", "4"),
                ("PHALANX_RESTART_COUNT", "0"),
                ("NCCL_SOCKET_IFNAME", "lo"),
            ],
        );
        assert!(!env.contains_key("NCCL_IB_HCA"), "declared NICs are not this host's");
    }
    let seen: Vec<(String, String)> =
        found.iter().map(|env| (env["PHALANX_NODE"].clone(), env["CUDA_VISIBLE_DEVICES"].clone())).collect();
    let mut sorted = seen.clone();
    sorted.sort();
    let wanted = [("v1", "4"), ("v1", "5"), ("v2", "0"), ("v2", "1")];
    assert_eq!(sorted, wanted.map(|(n, d)| (n.to_owned(), d.to_owned())), "{seen:?}");
}

#[test]
fn host_file_rank_file_and_topology_say_where_the_ranks_are() {
    let bench = bench(["['0-3', 6, 7]", "['2-7']"]);
    let script = "[ $RANK = 3 ] && cat $PHALANX_HOSTFILE $PHALANX_RANKFILE $PHALANX_TOPOLOGY; :";
    let mut job = shell(4, script);
    gang(&mut job).needs.devices = 1;
    let id = bench.submit(job);
    assert_eq!(bench.ended(id).state, "succeeded");
    let lines: Vec<String> = bench.logs(id).into_iter().map(|(_, line)| line).collect();
    let ranks = (0..4).map(|n| format!("rank {n}=127.0.0.1 slot={n}"));
    let wanted: Vec<String> = std::iter::once("127.0.0.1 slots=4".to_owned()).chain(ranks).collect();
    assert_eq!(lines[..5], wanted);
    let topology: serde_json::Value = serde_json::from_str(&lines[5]).unwrap();
    assert_eq!(topology["job"], id.0);
    assert_eq!(topology["narrowest_level"], "cluster");
    let ranks = topology["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 4);
    for (number, rank) in ranks.iter().enumerate() {
        assert_eq!(rank["rank"], number);
        assert_eq!(rank["origin"], "declared");
        assert_eq!(rank["devices"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn torchrun_and_jax_find_their_flags() {
    let bench = bench(["[]", "[]"]);
    let mut job = shell(2, "env");
    gang(&mut job).needs.devices = 8;
    gang(&mut job).program.launch = LaunchKind::Torchrun;
    for (rank, env) in environments(&bench, job.clone()).iter().enumerate() {
        let rank = rank.to_string();
        assert_env(
            env,
            &[
                ("PET_NODE_RANK", &rank),
                ("PET_NNODES", "2"),
                ("PET_NPROC_PER_NODE", "8"),
                ("PET_MASTER_ADDR", "127.0.0.1"),
                ("PET_MASTER_PORT", &env["MASTER_PORT"]),
                ("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"),
            ],
        );
        assert!(!env.contains_key("RANK"), "torchrun sets it for each of its workers");
    }
    gang(&mut job).program.launch = LaunchKind::Jax;
    let found = environments(&bench, job);
    for (rank, env) in found.iter().enumerate() {
        let rank = rank.to_string();
        assert_env(env, &[("JAX_NUM_PROCESSES", "2"), ("JAX_PROCESS_ID", &rank)]);
        let (host, port) = env["JAX_COORDINATOR_ADDRESS"].split_once(':').unwrap();
        assert_eq!((host, port.parse::<u16>().is_ok()), ("127.0.0.1", true));
        assert_eq!(env["JAX_COORDINATOR_ADDRESS"], found[0]["JAX_COORDINATOR_ADDRESS"]);
    }
}

#[test]
fn the_users_own_variables_win() {
    let bench = bench(["[]", "[]"]);
    let own = [
        ("CUDA_VISIBLE_DEVICES", "7"),
        ("MASTER_ADDR", "10.0.0.1"),
        ("PATH", "/usr/bin:/bin"),
        ("MINE", "x=y"),
    ];
    let mut job = shell(2, "env");
    gang(&mut job).needs.devices = 1;
    gang(&mut job).program.env = env(&own);
    for env in environments(&bench, job) {
        assert_env(&env, &own);
    }
}

#[test]
fn a_machine_without_gpus_says_so_and_what_to_do() {
    let bench = Bench::up_with("nodes:\n- {name: n1, cpus: 8, memory: 64GB}\n");
    let refusal = |devices| {
        let mut job = shell(1, "true");
        (gang(&mut job).needs.devices, gang(&mut job).needs.cpu_milli) = (devices, 64_000);
        refused(bench.ask(Verb::Submit { job: Box::new(job), secrets: BTreeMap::new() }))
    };
    let error = refusal(1);
    assert_eq!(error.message, "the job needs GPUs, and this machine has none");
    assert!(error.hint.contains("--cluster FILE") && error.hint.contains("--cpus"), "{error:?}");
    // Too many CPUs are another matter.
    assert!(refusal(0).message.contains("can never fit"));
}
