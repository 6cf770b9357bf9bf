//! A rank that dies takes its gang with it, and the gang comes back whole or not at all.

use std::collections::BTreeSet;
use std::fs;

use nix::sys::signal::Signal;
use phalanx_api::protocol::JobView;
use phalanx_model::{Ending, FailureClass};

use crate::support::{Bench, NODE_OF_8, retry, shell, signal, until};

/// When something of this kind was noted, in order.
fn times(view: &JobView, what: &str) -> Vec<u64> {
    view.events.iter().filter(|e| e.what == what).map(|e| e.at.0).collect()
}

#[test]
fn a_killed_rank_restarts_the_whole_gang_after_a_pause() {
    let bench = Bench::up_with(NODE_OF_8);
    let script = format!(
        "echo $PHALANX_RANK $PHALANX_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT $MASTER_PORT >> {}
         [ $PHALANX_RESTART_COUNT = 0 ] && exec sleep 1000; exit 0",
        bench.path("starts").display()
    );
    let mut job = shell(3, &script);
    job.policy.retry = retry(1, &[FailureClass::UserCode]);
    let id = bench.submit(job);
    bench.await_state(id, "running");
    until("three starts", || bench.lines("starts").len() == 3);
    signal(bench.shim(id, 1, 1).rank_pid.unwrap(), Signal::SIGKILL);

    let view = bench.ended(id);
    assert_eq!(view.state, "succeeded", "{view:#?}");
    let gang = view.gangs.first().unwrap();
    assert_eq!((gang.attempt, gang.failures), (2, 1));
    let starts: BTreeSet<Vec<String>> =
        bench.lines("starts").iter().map(|l| l.split(' ').map(str::to_owned).collect()).collect();
    assert_eq!(starts.len(), 6, "{starts:?}");
    for attempt in ["0", "1"] {
        let of_attempt: Vec<_> = starts.iter().filter(|s| s[1] == attempt && s[2] == attempt).collect();
        let ranks: Vec<&str> = of_attempt.iter().map(|s| s[0].as_str()).collect();
        let ports: BTreeSet<&str> = of_attempt.iter().map(|s| s[3].as_str()).collect();
        assert_eq!(ranks, ["0", "1", "2"]);
        assert_eq!(ports.len(), 1, "one port for all ranks: {ports:?}");
    }
    let (waits, starts) = (times(&view, "requeued"), times(&view, "starting"));
    assert!(starts[1] >= waits[0] + 100, "no back-off: {waits:?} {starts:?}");
    let stopped = view.events.iter().find(|e| e.what == "stopping").unwrap();
    assert!(stopped.detail.contains("rank 1 on n1: ended by signal 9"), "{stopped:?}");
    bench.await_nobody();
}

/// What a rank leaves behind keeps its end from being heard of, and another rank fails for it meanwhile.
#[test]
fn the_rank_that_ended_first_is_blamed_whoever_is_heard_of_first() {
    let bench = Bench::up_with(NODE_OF_8);
    let script = format!(
        "pid={}
         if [ $PHALANX_RANK = 1 ]; then
           (trap '' TERM; until [ -e $pid.done ]; do sleep 0.05; done) & echo $$ > $pid.next; mv $pid.next $pid
           exec sleep 1000
         fi
         until [ -e $pid ]; do sleep 0.02; done
         while kill -0 $(cat $pid) 2> /dev/null; do sleep 0.02; done
         touch $pid.seen; exit 1",
        bench.path("pid").display()
    );
    let mut job = shell(2, &script);
    job.policy.stop.grace_ms = 60_000;
    let id = bench.submit(job);
    bench.await_state(id, "running");
    until("both are there", || bench.path("pid").exists());
    signal(bench.shim(id, 1, 1).rank_pid.unwrap(), Signal::SIGKILL);
    let stopping =
        || bench.get(id).events.into_iter().filter(|event| event.what == "stopping").collect::<Vec<_>>();
    until("it stops", || !stopping().is_empty());
    fs::write(bench.path("pid.done"), "").unwrap();
    let view = bench.ended(id);
    let last = stopping().pop().unwrap();
    assert!(last.detail.contains("rank 1 on n1: ended by signal 9"), "{:#?}", view.events);
    assert_eq!(view.exit_code, Some(137));
    bench.await_nobody();
}

#[test]
fn without_a_retry_a_killed_rank_ends_the_job_with_137() {
    let bench = Bench::up_with(NODE_OF_8);
    let id = bench.submit(shell(3, "exec sleep 1000"));
    bench.await_state(id, "running");
    signal(bench.shim(id, 1, 2).rank_pid.unwrap(), Signal::SIGKILL);
    let view = bench.ended(id);
    assert_eq!(view.exit_code, Some(137));
    let Some(Ending::Failed { class, rank, detail, .. }) = &view.ending else { panic!("{view:#?}") };
    assert_eq!((*class, *rank), (FailureClass::UserCode, Some(2)));
    assert!(detail.contains("rank 2 on n1"), "{detail}");
    bench.await_nobody();
}

#[test]
fn an_exit_code_is_kept() {
    let bench = Bench::up_with(NODE_OF_8);
    let view = bench.ended(bench.submit(shell(3, "[ $PHALANX_RANK = 1 ] && exit 7; exec sleep 1000")));
    assert_eq!(view.exit_code, Some(7));
    assert!(view.detail.contains("rank 1 on n1: exit code 7"), "{view:#?}");
    bench.await_nobody();
}

#[test]
fn a_rank_that_is_done_early_does_not_end_its_gang() {
    let bench = Bench::up_with(NODE_OF_8);
    let go = bench.path("go");
    let script =
        format!("[ $PHALANX_RANK = 0 ] && exit 0; while [ ! -e {} ]; do sleep 0.02; done", go.display());
    let id = bench.submit(shell(3, &script));
    until("the end of rank 0", || {
        let view = bench.get(id);
        assert!(view.ending.is_none(), "{view:#?}");
        let members = view.gangs.first().map(|g| g.members.clone()).unwrap_or_default();
        members.iter().any(|m| m.rank == 0 && m.state == "exited")
            && members.iter().filter(|m| m.state == "running").count() == 2
    });
    assert_eq!(bench.get(id).state, "running");
    fs::write(go, "").unwrap();
    assert_eq!(bench.ended(id).state, "succeeded");
}

#[test]
fn pauses_double_and_retries_run_out() {
    let bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(2, "exit 3");
    job.policy.retry = retry(2, &[FailureClass::UserCode]);
    let view = bench.ended(bench.submit(job));
    assert_eq!((view.exit_code, view.gangs.first().unwrap().attempt), (Some(3), 3));
    let (waits, starts) = (times(&view, "requeued"), times(&view, "starting"));
    assert_eq!((waits.len(), starts.len()), (2, 3));
    assert!(starts[1] >= waits[0] + 100 && starts[2] >= waits[1] + 200, "{waits:?} {starts:?}");
}
