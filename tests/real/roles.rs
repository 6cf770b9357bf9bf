//! A job whose members are not all alike: each role runs its own program, and all start and end together.

use phalanx_model::{LaunchKind, Needs, Role, RoleName};

use crate::support::{Bench, NODE_OF_8, TWO_NODES_OF_8, gang, shell};

fn role(name: &str, size: u32, script: Option<&str>) -> Role {
    let mut job = shell(1, script.unwrap_or_default());
    let program = script.map(|_| std::mem::take(&mut gang(&mut job).program));
    Role { name: RoleName::new(name).unwrap(), size, needs: Needs::default(), segments: Vec::new(), program }
}

/// Lines of all ranks, in order.
fn lines(bench: &Bench, id: phalanx_model::JobId) -> Vec<(u32, String)> {
    let mut lines = bench.logs(id);
    lines.sort();
    lines
}

#[test]
fn every_role_runs_its_own_program() {
    let bench = Bench::up_with(NODE_OF_8);
    let mut job =
        shell(2, "echo $PHALANX_ROLE $PHALANX_ROLE_RANK of $PHALANX_ROLE_SIZE in $WORLD_SIZE rank $RANK");
    gang(&mut job).needs.devices = 1;
    let script =
        "echo $PHALANX_ROLE $PHALANX_ROLE_RANK beside $WORLD_SIZE rank ${RANK:-none} [$CUDA_VISIBLE_DEVICES]";
    gang(&mut job).roles = vec![role("ps", 2, Some(script))];
    let id = bench.submit(job);
    let view = bench.ended(id);
    assert_eq!(view.state, "succeeded", "{view:#?}");
    assert_eq!((view.gangs[0].member_count(), view.gangs[0].members.len()), (4, 4));
    let expected = [
        (0, "main 0 of 2 in 2 rank 0"),
        (1, "main 1 of 2 in 2 rank 1"),
        (2, "ps 0 beside 2 rank none []"),
        (3, "ps 1 beside 2 rank none []"),
    ];
    assert_eq!(lines(&bench, id), expected.map(|(rank, line)| (rank, line.to_owned())));
    bench.await_nobody();
}

/// A role that fails ends the ranks too.
#[test]
fn a_role_that_fails_ends_the_gang() {
    let bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(2, "sleep 1000");
    gang(&mut job).roles = vec![role("ps", 1, Some("exit 7"))];
    let view = bench.ended(bench.submit(job));
    assert_eq!((view.state.as_str(), view.exit_code), ("failed", Some(7)), "{view:#?}");
    assert!(view.detail.contains("rank 2 on n1"), "{}", view.detail);
    bench.await_nobody();
}

/// The launcher of an MPI job runs what the job runs; every other rank is a slot of it, rank 0 too.
#[test]
fn a_launcher_without_devices_launches() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let mut job = shell(2, "echo $PHALANX_ROLE; cat $PHALANX_HOSTFILE; sleep 0.2");
    gang(&mut job).program.launch = LaunchKind::Mpi;
    gang(&mut job).needs.devices = 8;
    gang(&mut job).roles = vec![role("launcher", 1, None)];
    let id = bench.submit(job);
    assert_eq!(bench.ended(id).state, "succeeded", "{:?}", bench.logs(id));
    assert_eq!(bench.logs(id), [(2, "launcher".to_owned()), (2, "127.0.0.1 slots=16".to_owned())]);
    bench.await_nobody();
}
