//! What one rank can take from the others: processes, CPU time, memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use phalanx_api::protocol::{Answer, JobRef, Verb};
use phalanx_model::{Job, JobId};
use phalanx_node::isolation::Controller;
use phalanx_node::{IsolationChoice, MemberSpec};

use crate::support::{Bench, NODE_OF_8, env, gang, is_root, shell, until};

/// Users without a process on any machine.
const ATTACKER: u32 = 64_981;
const OTHER: u32 = 64_982;

fn submit_as(bench: &Bench, uid: u32, job: Job) -> JobId {
    let verb = Verb::Submit { job: Box::new(job), secrets: env(&[]) };
    match bench.ask_as(uid, &verb).as_slice() {
        [Answer::Submitted { job, .. }] => *job,
        other => panic!("{other:?}"),
    }
}

fn spec(bench: &Bench, id: JobId) -> MemberSpec {
    let path = bench.member(id, 1, 0).join("member.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A file of the cgroup that a running rank has for this controller; none if this machine has no such controller.
fn control(bench: &Bench, id: JobId, controller: Controller, v1: &str, v2: &str) -> Option<String> {
    let group = IsolationChoice::Best.detect().group(&spec(bench, id).token);
    let of_v1 = group.v1.get(&controller).map(|dir| dir.join(v1));
    let of_v2 = group.v2.filter(|_| group.v2_controllers.contains(&controller)).map(|dir| dir.join(v2));
    let read = |path: PathBuf| fs::read_to_string(path).unwrap().trim().to_owned();
    of_v2.or(of_v1).map(read)
}

/// Living processes of a user.
fn processes_of(uid: u32) -> usize {
    use std::os::unix::fs::MetadataExt;
    let is_pid = |path: &Path| path.file_name().is_some_and(|n| n.to_string_lossy().parse::<u32>().is_ok());
    let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    entries.filter(|path| is_pid(path) && fs::metadata(path).is_ok_and(|meta| meta.uid() == uid)).count()
}

/// It took every process that the machine could have: the daemon could start nothing for anybody.
#[test]
fn a_fork_bomb_is_contained() {
    if !is_root("a_fork_bomb_is_contained") {
        return;
    }
    let mut bench = Bench::new(NODE_OF_8);
    fs::create_dir_all(bench.paths.root()).unwrap();
    fs::write(bench.paths.limits(), r#"{"pids": 300}"#).unwrap();
    bench.up();
    // The limit of the shell is for this test's machine, should that of the daemon fail.
    let bomb = shell(1, "ulimit -u 1500; bomb() { bomb & bomb & exec sleep 1000; }; bomb");
    let bomb = submit_as(&bench, ATTACKER, bomb);
    bench.await_state(bomb, "running");
    until("an explosion", || processes_of(ATTACKER) > 100);
    let mut most = 0;
    for _ in 0..20 {
        most = most.max(processes_of(ATTACKER));
        assert!(matches!(bench.ask(Verb::Ping), Ok(Answer::Pong { .. })));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(most <= 300, "{most} processes");
    let other = submit_as(&bench, OTHER, shell(2, "for i in 1 2 3 4 5 6 7 8; do sleep 0.1 & done; wait"));
    assert_eq!(bench.ended(other).state, "succeeded");
    bench.cancel(bomb);
    bench.ended(bomb);
    until("the end of the bomb", || processes_of(ATTACKER) == 0);
    bench.await_nobody();
}

#[test]
fn a_rank_that_asks_for_nothing_has_the_share_of_its_devices() {
    if !is_root("a_rank_that_asks_for_nothing_has_the_share_of_its_devices") {
        return;
    }
    let bench = Bench::up_with(
        "nodes:\n- {name: n1, devices: {count: 8, model: Test GPU}, cpus: 8, memory: 16GiB}\n",
    );
    let mut job = shell(1, "exec sleep 1000");
    gang(&mut job).needs.devices = 2;
    let id = bench.submit(job.clone());
    bench.await_state(id, "running");
    let spec = spec(&bench, id);
    assert_eq!((spec.cpu_milli, spec.memory_bytes), (None, Some(4 << 30)));
    let pids = spec.pids_max.unwrap();
    for (controller, v1, v2, values) in [
        (Controller::Pids, "pids.max", "pids.max", [pids, pids]),
        (Controller::Memory, "memory.limit_in_bytes", "memory.max", [4 << 30, 4 << 30]),
        (Controller::Cpu, "cpu.shares", "cpu.weight", [25_600, 2_500]),
    ] {
        if let Some(value) = control(&bench, id, controller, v1, v2) {
            assert!(values.map(|value| value.to_string()).contains(&value), "{v2}: {value}");
        }
    }
    bench.cancel(id);
    // A job that asks has what it asks for.
    gang(&mut job).needs.memory_bytes = 6 << 30;
    let asking = bench.submit(job);
    bench.await_state(asking, "running");
    assert_eq!(self::spec(&bench, asking).memory_bytes, Some(6 << 30));
}

/// One job took all memory, and the kernel ended processes of others.
#[test]
fn a_rank_that_takes_more_memory_than_its_share_ends_alone_and_hears_why() {
    if !is_root("a_rank_that_takes_more_memory_than_its_share_ends_alone_and_hears_why") {
        return;
    }
    if !IsolationChoice::Best.detect().to_string().contains("memory") {
        println!(
            "SKIPPED a_rank_that_takes_more_memory_than_its_share_ends_alone_and_hears_why: no controller"
        );
        return;
    }
    // A share of 1 GiB; the rank takes a little more.
    let bench = Bench::up_with("nodes:\n- {name: n1, devices: {count: 8, model: Test GPU}, memory: 8GiB}\n");
    let mut job = shell(1, "head -c 1500m /dev/zero | tail -c 1400m >/dev/null");
    gang(&mut job).needs.devices = 1;
    let id = bench.submit(job);
    let ending = bench.ended(id);
    assert_eq!(ending.state, "failed", "{ending:#?}");
    assert!(ending.detail.contains("with a limit of 1073741824 bytes"), "{ending:#?}");
    assert!(matches!(bench.ask(Verb::Get { job: JobRef::Id(id) }), Ok(Answer::Job(_))));
}
