//! One launcher for all: rank 0 launches, the others hold their slots.

use std::fs;
use std::process::Command;

use phalanx_model::{Job, LaunchKind};

use crate::support::{Bench, NODE_OF_8, TWO_NODES_OF_8, env, gang, shell, until};

fn launcher(size: u32, devices: u32, script: &str) -> Job {
    let mut job = shell(size, script);
    gang(&mut job).program.launch = LaunchKind::Mpi;
    gang(&mut job).needs.devices = devices;
    job
}

#[test]
fn mpirun_finds_its_slots() {
    if Command::new("mpirun").arg("--version").output().is_err() {
        eprintln!("skipped mpirun_finds_its_slots: mpirun is not installed");
        return;
    }
    let bench = Bench::up_with(NODE_OF_8);
    let mut job = launcher(1, 4, "exec mpirun -np 4 sh -c 'echo rank=$OMPI_COMM_WORLD_RANK'");
    gang(&mut job).program.env =
        env(&[("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    let id = bench.submit(job);
    let view = bench.ended(id);
    assert_eq!(view.state, "succeeded", "{view:#?} {:?}", bench.logs(id));
    let mut lines: Vec<String> = bench.logs(id).into_iter().map(|(_, line)| line).collect();
    lines.sort();
    assert_eq!(lines, ["rank=0", "rank=1", "rank=2", "rank=3"]);
}

#[test]
fn the_launcher_is_told_of_every_slot_and_its_end_is_the_end() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let script = "env | grep hostfile; cat $PHALANX_HOSTFILE; sleep 0.2";
    let id = bench.submit(launcher(2, 8, script));
    assert_eq!(bench.ended(id).state, "succeeded");
    let logs = bench.logs(id);
    assert!(logs.iter().all(|(rank, _)| *rank == 0), "{logs:?}");
    let lines: Vec<&str> = logs.iter().map(|(_, line)| line.as_str()).collect();
    assert!(lines.contains(&"127.0.0.1 slots=16"), "{lines:?}");
    for name in ["OMPI_MCA_orte_default_hostfile=", "PRTE_MCA_prte_default_hostfile="] {
        assert!(lines.iter().any(|line| line.starts_with(name)), "{lines:?}");
    }
    bench.await_nobody();
}

/// What holds a slot may be told to end before it is up; that is no failure.
#[test]
fn a_launcher_that_ends_at_once_has_succeeded() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let ids: Vec<_> = (0..8).map(|_| bench.submit(launcher(4, 1, "exit 0"))).collect();
    for id in ids {
        let view = bench.ended(id);
        assert_eq!(view.state, "succeeded", "{view:#?}");
    }
    bench.await_nobody();
}

/// The ranks that hold slots waited for ever when their launcher ended while no daemon ran.
#[test]
fn a_launcher_that_ends_while_the_daemon_is_down_ends_its_gang() {
    let mut bench = Bench::up_with(TWO_NODES_OF_8);
    let go = bench.path("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.02; done", go.display());
    let id = bench.submit(launcher(2, 8, &script));
    bench.await_state(id, "running");
    bench.kill();
    fs::write(go, "").unwrap();
    until("the launcher's exit", || bench.member(id, 1, 0).join("exit.json").exists());
    bench.up();
    assert_eq!(bench.ended(id).state, "succeeded");
    bench.await_nobody();
}
