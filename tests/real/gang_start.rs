//! A gang starts whole or not at all, and says which rank kept it from starting.

use std::fs;
use std::net::TcpListener;

use phalanx_api::protocol::JobView;
use phalanx_model::{Ending, FailureClass, Job};

use crate::support::{Bench, NODE_OF_8, env, gang, retry, shell};

/// Ranks that leave a mark when anything of theirs runs.
fn marking(bench: &Bench, size: u32) -> Job {
    shell(size, &format!("echo $PHALANX_RANK $PHALANX_RESTART_COUNT >> {}", bench.path("ran").display()))
}

fn assert_failed(view: &JobView, class: FailureClass, words: &[&str]) {
    let Some(Ending::Failed { class: found, detail, .. }) = &view.ending else { panic!("{view:#?}") };
    assert_eq!(*found, class, "{detail}");
    for word in words {
        assert!(detail.contains(word), "{word:?} is not in {detail:?}");
    }
}

#[test]
fn a_command_that_is_not_found_fails_the_start_and_says_where() {
    let bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(3, "");
    gang(&mut job).program.argv = vec!["/no/such/program".to_owned()];
    let view = bench.ended(bench.submit(job));
    assert_failed(
        &view,
        FailureClass::StartUp,
        &["rank ", " on n1: ", "command not found: /no/such/program"],
    );
    assert_eq!(view.exit_code, Some(1));
    bench.await_nobody();
}

#[test]
fn a_working_directory_that_is_not_there_fails_the_start() {
    let bench = Bench::up_with(NODE_OF_8);
    let mut job = marking(&bench, 2);
    gang(&mut job).program.workdir = "/no/such/folder".to_owned();
    let view = bench.ended(bench.submit(job));
    assert_failed(&view, FailureClass::StartUp, &["working directory /no/such/folder"]);
    assert_eq!(bench.read("ran"), "");
}

#[test]
fn one_rank_that_cannot_start_keeps_every_rank_from_running() {
    let bench = Bench::up_with(NODE_OF_8);
    // A file stands where the folder of rank 2 of the first job would be.
    let obstacle = bench.member(phalanx_model::JobId(1), 1, 2);
    fs::create_dir_all(obstacle.parent().unwrap()).unwrap();
    fs::write(&obstacle, "").unwrap();
    let view = bench.ended(bench.submit(marking(&bench, 4)));
    assert_failed(&view, FailureClass::StartUp, &["rank 2 on n1: "]);
    assert_eq!(bench.read("ran"), "");
    bench.await_nobody();
}

#[test]
fn a_taken_master_port_fails_the_start_and_a_retry_on_start_up_tries_again() {
    let bench = Bench::up_with(NODE_OF_8);
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let with_port = || {
        let mut job = marking(&bench, 3);
        gang(&mut job).program.env = env(&[("MASTER_PORT", &port)]);
        job
    };
    let view = bench.ended(bench.submit(with_port()));
    assert_failed(&view, FailureClass::StartUp, &["rank 0 on n1: ", &format!("port {port}")]);
    assert_eq!(bench.read("ran"), "");

    let mut again = with_port();
    again.policy.retry = retry(1000, &[FailureClass::StartUp]);
    let id = bench.submit(again);
    crate::support::until("a failed start", || bench.get(id).gangs.first().is_some_and(|g| g.failures > 0));
    assert_eq!(bench.read("ran"), "");
    drop(taken);
    let view = bench.ended(id);
    assert_eq!(view.state, "succeeded", "{view:#?}");
    let starts = view.gangs.first().unwrap().attempt - 1;
    assert_eq!(bench.lines("ran"), [0, 1, 2].map(|rank| format!("{rank} {starts}")));
}

#[test]
fn a_rank_that_never_gets_ready_ends_the_start_at_its_deadline() {
    let bench = Bench::up_with(NODE_OF_8);
    bench.hold_shim(1, 1);
    let mut job = marking(&bench, 3);
    job.policy.start_deadline_ms = 1_500;
    job.policy.retry = retry(1, &[FailureClass::StartUp]);
    let id = bench.submit(job);
    let stopping = bench.await_state(id, "stopping");
    assert!(stopping.detail.contains("rank 1 on n1: was not ready by the start deadline"), "{stopping:#?}");
    assert_eq!(bench.read("ran"), "");
    // The second attempt is not held.
    let view = bench.ended(id);
    assert_eq!(view.state, "succeeded", "{view:#?}");
    assert_eq!(bench.lines("ran"), ["0 1", "1 1", "2 1"]);
    bench.await_nobody();
}
