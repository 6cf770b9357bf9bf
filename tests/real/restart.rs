//! The daemon is killed at any moment, and the next one goes on as if nothing had happened.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use phalanx_api::protocol::{Answer, NodeFilter, Verb};
use phalanx_local::doctor::{self, Finding, Severity};
use phalanx_local::losses;
use phalanx_model::{Ending, FailureClass, Job, JobId, JobName};
use phalanx_node::Process;

use crate::support::{Bench, NODE_OF_8, gang, retry, shell, signal, until};

#[test]
fn running_jobs_are_adopted_queued_ones_wait_and_finished_ones_keep_their_end_and_logs() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let done = bench.submit(shell(2, "echo rank $PHALANX_RANK; exit 5"));
    let before = bench.ended(done);
    let logs = bench.logs(done);
    let go = bench.path("go");
    let mut running = shell(2, &format!("while [ ! -e {} ]; do sleep 0.02; done; exit 6", go.display()));
    gang(&mut running).needs.devices = 4;
    let mut queued = shell(1, "echo ran");
    gang(&mut queued).needs.devices = 1;
    let running = bench.submit(running);
    bench.await_state(running, "running");
    let queued = bench.submit(queued);
    let pid = bench.shim(running, 1, 0).rank_pid.unwrap();

    bench.kill();
    bench.up();
    let view = bench.get(running);
    assert_eq!((view.state.as_str(), view.gangs[0].attempt), ("running", 1));
    assert!(Process::find(pid).is_some());
    assert_eq!(bench.get(queued).state, "pending");
    let after = bench.get(done);
    assert_eq!((after.ending, after.exit_code), (before.ending, Some(5)));
    assert_eq!(bench.logs(done), logs);

    // One exits while nobody listens.
    bench.kill();
    fs::write(go, "").unwrap();
    until("the exit", || bench.member(running, 1, 0).join("exit.json").exists());
    bench.up();
    assert_eq!(bench.ended(running).exit_code, Some(6));
    assert_eq!(bench.ended(queued).state, "succeeded");
    bench.await_nobody();
}

#[test]
fn a_shim_killed_while_the_daemon_is_down_is_an_infrastructure_failure_and_leaves_nobody() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let script =
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo up; wait; sleep 1000";
    let id = bench.submit(shell(2, script));
    until("both ranks", || bench.logs(id).len() == 2);
    let shim = bench.shim(id, 1, 1);
    bench.kill();
    signal(shim.pid, Signal::SIGKILL);
    until("the shim's end", || !shim.process().is_alive());
    bench.up();
    let view = bench.ended(id);
    let Some(Ending::Failed { class, rank, .. }) = &view.ending else { panic!("{view:#?}") };
    assert_eq!((*class, *rank), (FailureClass::Infrastructure, Some(1)));
    bench.await_nobody();
}

#[test]
fn a_member_of_a_former_boot_failed_with_its_node() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let id = bench.submit(shell(1, "exec sleep 1000"));
    bench.await_state(id, "running");
    let mut record = bench.shim(id, 1, 0);
    bench.kill();
    signal(record.pid, Signal::SIGKILL);
    bench.await_nobody();
    record.boot_id = "00000000-0000-0000-0000-000000000000".to_owned();
    let file = bench.member(id, 1, 0).join("shim.json");
    fs::write(file, serde_json::to_vec(&record).unwrap()).unwrap();
    bench.up();
    let view = bench.ended(id);
    let Some(Ending::Failed { class, detail, .. }) = &view.ending else { panic!("{view:#?}") };
    assert_eq!(*class, FailureClass::Node, "{detail}");
    assert!(detail.contains("the machine was restarted"), "{detail}");
}

/// The newest segment, and everything in the journal's folder.
fn journal(bench: &Bench) -> (PathBuf, BTreeMap<PathBuf, Vec<u8>>) {
    let files = fs::read_dir(bench.paths.journal()).unwrap().map(|e| e.unwrap().path());
    let files: BTreeMap<PathBuf, Vec<u8>> = files.map(|p| (p.clone(), fs::read(p).unwrap())).collect();
    let newest = files.keys().rfind(|p| p.extension().is_some_and(|e| e == "journal")).unwrap();
    (newest.clone(), files)
}

#[test]
fn a_torn_end_of_the_journal_is_cut_with_a_message_and_everything_before_is_kept() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let done = bench.submit(shell(1, "exit 4"));
    bench.ended(done);
    let running = bench.submit(shell(1, "exec sleep 1000"));
    bench.await_state(running, "running");
    bench.kill();
    let (newest, files) = journal(&bench);
    let bytes = &files[&newest];
    fs::write(&newest, &bytes[..bytes.len() - 10]).unwrap();
    bench.up();
    assert!(bench.daemon_log().contains("everything before is kept"), "{}", bench.daemon_log());
    assert_eq!(bench.get(done).exit_code, Some(4));
    bench.await_state(running, "running");
    bench.cancel(running);
    assert_eq!(bench.ended(running).state, "cancelled");
    bench.await_nobody();
}

#[test]
fn a_journal_damaged_in_the_middle_is_refused_and_nothing_is_touched() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let running = bench.submit(shell(1, "exec sleep 1000"));
    bench.await_state(running, "running");
    let pid = bench.shim(running, 1, 0).rank_pid.unwrap();
    bench.kill();
    let (newest, files) = journal(&bench);
    let good = files[&newest].clone();
    let mut bad = good.clone();
    let third_line = bad.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(2).unwrap().0 + 20;
    bad[third_line] ^= 1;
    fs::write(&newest, &bad).unwrap();
    let damaged = journal(&bench).1;

    let why = bench.refuses_to_start();
    assert!(why.contains(&newest.display().to_string()) && why.contains("damaged"), "{why}");
    assert!(journal(&bench).1 == damaged, "the journal was changed");
    assert!(Process::find(pid).is_some());
    let findings = doctor::examine(&bench.paths);
    let is_named = |f: &Finding| f.severity == Severity::Damage && f.hint.contains("doctor --cut");
    assert!(findings.iter().any(is_named), "{findings:#?}");
    assert!(journal(&bench).1 == damaged, "looking changes nothing");

    fs::write(&newest, good).unwrap();
    bench.up();
    assert!(doctor::examine(&bench.paths).iter().all(|f| f.severity == Severity::Good));
    assert!(doctor::cut(&bench.paths).unwrap_err().to_string().contains("a daemon runs"));
    assert_eq!(bench.get(running).state, "running");
    bench.cancel(running);
    bench.ended(running);
    bench.await_nobody();
}

#[test]
fn a_damaged_journal_is_cut_by_hand_with_a_copy_and_what_runs_goes_on() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let running = bench.submit(shell(1, "exec sleep 1000"));
    bench.await_state(running, "running");
    let later = bench.submit(shell(1, "true"));
    bench.ended(later);
    let pid = bench.shim(running, 1, 0).rank_pid.unwrap();
    bench.kill();
    let (newest, files) = journal(&bench);
    let good = &files[&newest];
    let ends: Vec<usize> =
        good.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
    let mut bad = good.clone();
    bad[ends[2] + 20] ^= 1;
    fs::write(&newest, &bad).unwrap();
    bench.refuses_to_start();

    let done = doctor::cut(&bench.paths).unwrap();
    assert!(done.len() == 1 && done[0].contains("the cut bytes are in"), "{done:?}");
    assert_eq!(fs::read(newest.with_extension("torn")).unwrap(), bad[ends[2]..]);
    bench.up();
    let warnings = bench.warnings().join("\n");
    assert!(warnings.contains("the journal was cut"), "{warnings}");
    // Their steps are cut off; the history knows of both.
    assert_eq!(bench.await_state(running, "running").gangs[0].attempt, 1);
    assert_eq!(bench.shim(running, 1, 0).rank_pid, Some(pid));
    assert_eq!(bench.get(later).state, "succeeded");
    bench.cancel(running);
    assert_eq!(bench.ended(running).state, "cancelled");
    bench.await_nobody();
}

#[test]
fn a_journal_that_was_lost_does_not_let_a_number_be_used_again() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let first = bench.submit(shell(1, "echo first"));
    bench.ended(first);
    bench.down();
    fs::remove_dir_all(bench.paths.journal()).unwrap();
    for file in ["history.db", "history.db-wal", "history.db-shm"] {
        let _ = fs::remove_file(bench.paths.root().join(file));
    }
    bench.up();
    let second = bench.submit(shell(1, "echo second"));
    assert!(second > first, "{second} meets the folders of {first}");
    bench.ended(second);
    assert_eq!(bench.logs(second).len(), 1);
}

/// Two ranks of four devices each, until a file is there.
fn gang_of_8(bench: &Bench, go: &str) -> Job {
    let wait = format!("while [ ! -e {} ]; do sleep 0.02; done; exit 6", bench.path(go).display());
    let mut job = shell(2, &wait);
    gang(&mut job).needs.devices = 4;
    job
}

fn free(bench: &Bench) -> u32 {
    match bench.ask(Verb::FindNodes(NodeFilter::default())) {
        Ok(Answer::Nodes(view)) => view.nodes.iter().map(|node| node.free.count()).sum(),
        other => panic!("{other:?}"),
    }
}

/// The next daemon gave the same devices out again, and said nothing.
#[test]
fn a_journal_that_is_lost_does_not_give_devices_out_twice() {
    for lose in [Lose::Folder, Lose::Contents, Lose::End] {
        let mut bench = Bench::up_with(NODE_OF_8);
        let first = bench.submit(gang_of_8(&bench, "go"));
        bench.await_state(first, "running");
        let mut waiting = gang_of_8(&bench, "go");
        waiting.name = JobName::new("second").unwrap();
        let second = bench.submit(waiting);
        bench.await_state(second, "pending");
        // The history may lag; who asks for all of it waits until it is written.
        bench.ask(Verb::History { job: None, limit: 1 }).unwrap();
        let pids = [0, 1].map(|rank| bench.shim(first, 1, rank).rank_pid.unwrap());
        bench.kill();
        lose.apply(&bench);
        bench.up();
        let warnings = bench.warnings().join("\n");
        assert!(warnings.contains(lose.told()), "{lose:?}: {warnings}");
        assert!(doctor::examine(&bench.paths).iter().any(|f| f.detail.contains(lose.told())), "{lose:?}");
        // The job goes on as itself, and the one that waited still waits for its devices.
        let view = bench.get(first);
        assert_eq!((view.state.as_str(), view.gangs[0].attempt), ("running", 1), "{lose:?}");
        assert!(pids.iter().all(|pid| Process::find(*pid).is_some()));
        assert_eq!((free(&bench), bench.get(second).state.as_str()), (0, "pending"), "{lose:?}");
        fs::write(bench.path("go"), "").unwrap();
        assert_eq!(bench.ended(first).exit_code, Some(6));
        assert_eq!(bench.ended(second).exit_code, Some(6));
        losses::forget(&bench.paths).unwrap();
        assert_eq!(bench.warnings(), [""; 0]);
        bench.await_nobody();
    }
}

#[derive(Clone, Copy, Debug)]
enum Lose {
    Folder,
    Contents,
    /// All but the first step, at the end of a line: nothing looks damaged.
    End,
}

impl Lose {
    fn apply(self, bench: &Bench) {
        let (newest, files) = journal(bench);
        match self {
            Self::Folder => fs::remove_dir_all(bench.paths.journal()).unwrap(),
            Self::Contents => fs::write(newest, "garbage\n".repeat(100)).unwrap(),
            Self::End => {
                let bytes = &files[&newest];
                let third = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(2).unwrap().0;
                fs::write(newest, &bytes[..=third]).unwrap();
            }
        }
    }

    const fn told(self) -> &'static str {
        match self {
            Self::Folder | Self::Contents => "is lost",
            Self::End => "did not know of living ranks",
        }
    }
}

#[test]
fn what_ranks_hold_of_which_nothing_is_known_is_held_until_they_end() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(2, "exec sleep 1000");
    gang(&mut job).needs.devices = 3;
    let lost = bench.submit(job);
    bench.await_state(lost, "running");
    let shims = [0, 1].map(|rank| bench.shim(lost, 1, rank).pid);
    bench.kill();
    fs::remove_dir_all(bench.paths.journal()).unwrap();
    for file in ["history.db", "history.db-wal", "history.db-shm"] {
        let _ = fs::remove_file(bench.paths.root().join(file));
    }
    bench.up();
    assert_eq!(free(&bench), 2);
    let Ok(Answer::Nodes(view)) = bench.ask(Verb::FindNodes(NodeFilter::default())) else { panic!("nodes") };
    assert_eq!(view.nodes[0].unknown.count(), 6);
    let unknown = format!("unknown use: 2 ranks of job {lost} live");
    assert!(view.warnings.iter().any(|w| w.contains(&unknown)), "{:?}", view.warnings);
    // Nothing starts there, and a restart does not change that.
    let mut next = shell(1, "true");
    gang(&mut next).needs.devices = 3;
    let next = bench.submit(next);
    bench.await_state(next, "pending");
    bench.kill();
    bench.up();
    assert_eq!((free(&bench), bench.get(next).state.as_str()), (2, "pending"));
    // A shim that is killed takes its rank along.
    signal(shims[0], Signal::SIGKILL);
    assert_eq!(bench.ended(next).state, "succeeded");
    signal(shims[1], Signal::SIGKILL);
    until("all devices", || free(&bench) == 8);
    assert!(!bench.warnings().iter().any(|w| w.contains("unknown use")));
    bench.await_nobody();
}

/// With another cluster file, gangs go on where no node of it is: that is said, as long as they run.
#[test]
fn gangs_on_nodes_that_the_cluster_file_lacks_are_told() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let mut one = shell(1, "exec sleep 1000");
    gang(&mut one).needs.devices = 1;
    let job = bench.submit(one);
    bench.await_state(job, "running");
    assert_eq!(bench.warnings(), Vec::<String>::new());
    let restart_with = |bench: &mut Bench, cluster: &str| {
        bench.kill();
        fs::write(bench.path("cluster.yaml"), cluster).unwrap();
        bench.up();
    };
    let renamed = NODE_OF_8.replace("n1", "renamed");
    let without_devices = "nodes:\n- {name: n1, cpus: 4}\n".to_owned();
    let said = format!("job {job} (test) on n1. They go on");
    for changed in [renamed, without_devices] {
        restart_with(&mut bench, &changed);
        assert!(bench.warnings().iter().any(|warning| warning.contains(&said)), "{:?}", bench.warnings());
    }
    restart_with(&mut bench, NODE_OF_8);
    assert_eq!(bench.warnings(), Vec::<String>::new());
    restart_with(&mut bench, &NODE_OF_8.replace("n1", "renamed"));
    bench.cancel(job);
    until("no warning", || bench.warnings().is_empty());
    bench.await_nobody();
}

#[test]
fn a_second_daemon_of_one_state_folder_is_refused() {
    let bench = Bench::up_with(NODE_OF_8);
    let why = bench.refuses_to_start();
    assert!(why.contains("a daemon already runs with"), "{why}");
    assert_eq!(bench.ended(bench.submit(shell(1, "true"))).state, "succeeded");
}

/// A child of a killed daemon holds the lock until its exec.
#[test]
fn a_lock_that_is_let_go_soon_is_waited_for() {
    let mut bench = Bench::up_with(NODE_OF_8);
    bench.kill();
    let lock = fs::File::open(bench.paths.lock()).unwrap();
    lock.lock().unwrap();
    let child = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(lock);
    });
    bench.up();
    child.join().unwrap();
}

/// A retry that is backing off goes on after a restart, and a stop that began is finished.
#[test]
fn timers_survive_a_restart() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let mut failing = shell(1, "[ $PHALANX_RESTART_COUNT = 1 ]");
    failing.policy.retry = retry(1, &[FailureClass::UserCode]);
    failing.policy.retry.backoff_ms = 1_000;
    let failing = bench.submit(failing);
    let mut deaf = shell(1, "trap '' TERM; echo up; while :; do sleep 0.1; done");
    deaf.policy.stop.grace_ms = 1_500;
    let deaf: JobId = bench.submit(deaf);
    bench.await_state(deaf, "running");
    until("the rank", || !bench.logs(deaf).is_empty());
    bench.cancel(deaf);
    until("the back-off", || bench.get(failing).gangs[0].failures == 1);
    bench.kill();
    bench.up();
    assert_eq!(bench.ended(deaf).state, "cancelled");
    assert_eq!(bench.ended(failing).state, "succeeded");
    bench.await_nobody();
}
