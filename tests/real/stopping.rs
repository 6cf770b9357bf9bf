//! How jobs are stopped, and that nothing of them is left.

use nix::sys::signal::Signal;
use phalanx_api::protocol::{NodeFilter, Verb};
use phalanx_model::{Advisory, Ending, FailureClass, Stop};
use phalanx_node::Process;

use crate::support::{Bench, NODE_OF_8, gang, retry, shell, signal, until};

#[test]
fn a_cancelled_job_ends_with_130_and_says_by_whom() {
    let bench = Bench::up_with(NODE_OF_8);
    let id = bench.submit(shell(3, "exec sleep 1000"));
    bench.await_state(id, "running");
    bench.cancel(id);
    let view = bench.ended(id);
    assert!(matches!(&view.ending, Some(Ending::Cancelled { .. })), "{view:#?}");
    assert_eq!(view.exit_code, Some(130));
    bench.await_nobody();
    assert!(bench.cancel(id).contains("has ended already"));
}

#[test]
fn a_job_over_its_time_limit_ends_with_124() {
    let bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(2, "exec sleep 1000");
    job.policy.time_limit_ms = Some(300);
    let view = bench.ended(bench.submit(job));
    assert_eq!((view.ending, view.exit_code), (Some(Ending::TimeLimit), Some(124)));
    bench.await_nobody();
}

/// The advisory signal only where it is handled, then SIGTERM, then SIGKILL after the grace.
#[test]
fn ranks_are_advised_then_asked_then_killed() {
    let bench = Bench::up_with(NODE_OF_8);
    let script = format!(
        "say() {{ echo $PHALANX_RANK $1 >> {}; }}
         [ $PHALANX_RANK = 0 ] && trap 'say usr1' USR1
         trap 'say term' TERM
         say up; while :; do sleep 0.05; done",
        bench.path("said").display()
    );
    let mut job = shell(2, &script);
    job.policy.stop =
        Stop { advisory: Some(Advisory { signal: Signal::SIGUSR1 as i32, lead_ms: 700 }), grace_ms: 700 };
    let id = bench.submit(job);
    bench.await_state(id, "running");
    until("both ranks", || bench.lines("said").len() == 2);
    bench.cancel(id);
    bench.ended(id);
    let said = bench.read("said");
    let of = |rank: &str| -> Vec<&str> { said.lines().filter_map(|l| l.strip_prefix(rank)).collect() };
    assert_eq!(of("0 "), ["up", "usr1", "term"]);
    assert_eq!(of("1 "), ["up", "term"]);
    bench.await_nobody();
}

#[test]
fn ranks_that_finish_on_advice_before_the_limit_have_succeeded() {
    let bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(2, "trap 'exit 0' USR1; while :; do sleep 0.05; done");
    job.policy.time_limit_ms = Some(40_000);
    job.policy.stop =
        Stop { advisory: Some(Advisory { signal: Signal::SIGUSR1 as i32, lead_ms: 39_000 }), grace_ms: 500 };
    let view = bench.ended(bench.submit(job));
    assert_eq!(view.state, "succeeded", "{view:#?}");
}

#[test]
fn grandchildren_are_gone_with_their_rank() {
    let bench = Bench::up_with(NODE_OF_8);
    let note = format!("echo $$ >> {}", bench.path("pids").display());
    // In a session of its own and deaf to SIGTERM; orphaned by a double fork; without a trace of the token.
    let script = format!(
        "trap '' TERM
         setsid sh -c 'trap \"\" TERM; {note}; while :; do sleep 1; done' &
         (setsid sh -c '{note}; exec sleep 1000' &)
         env -i setsid sh -c 'trap \"\" TERM; {note}; while :; do /bin/sleep 1; done' &
         {note}; wait; while :; do sleep 1; done"
    );
    let mut job = shell(2, &script);
    job.policy.stop.grace_ms = 300;
    let id = bench.submit(job);
    bench.await_state(id, "running");
    until("every process", || bench.lines("pids").len() == 8);
    let living = || -> Vec<i32> {
        let pids = bench.lines("pids").into_iter().map(|pid| pid.parse().unwrap());
        pids.filter(|pid| Process::find(*pid).is_some()).collect()
    };
    assert_eq!(living().len(), 8);
    bench.cancel(id);
    bench.ended(id);
    // Said to have ended only when the last process is gone.
    assert_eq!(living(), [0i32; 0]);
    bench.await_nobody();
}

#[test]
fn ranks_that_poll_see_the_file_of_the_coming_stop() {
    let bench = Bench::up_with(NODE_OF_8);
    let script = "trap '' TERM; [ -e $PHALANX_PREEMPT_AT ] && exit 9; echo up
        while [ ! -e $PHALANX_PREEMPT_AT ]; do sleep 0.02; done; echo saw=$(cat $PHALANX_PREEMPT_AT)";
    let mut job = shell(1, script);
    job.policy.stop.grace_ms = 50_000;
    let id = bench.submit(job);
    bench.await_state(id, "running");
    until("the rank", || bench.logs(id).iter().any(|(_, line)| line == "up"));
    bench.cancel(id);
    assert_eq!(bench.ended(id).state, "cancelled");
    let saw: u64 = bench.said(id)["saw"].parse().unwrap();
    assert!((1_600_000_000..100_000_000_000).contains(&saw), "Unix seconds: {saw}");
}

#[test]
fn a_job_is_cancelled_while_it_waits_or_backs_off() {
    let bench = Bench::up_with(NODE_OF_8);
    let mut all = shell(1, "exec sleep 1000");
    gang(&mut all).needs.devices = 8;
    let mut waiting = all.clone();
    gang(&mut waiting).program.argv = vec!["/bin/touch".to_owned(), bench.path("ran").display().to_string()];
    let (all, waiting) = (bench.submit(all), bench.submit(waiting));
    bench.await_state(all, "running");
    assert_eq!(bench.get(waiting).reason, "Resources");
    bench.cancel(waiting);
    assert_eq!(bench.ended(waiting).state, "cancelled");

    let mut failing = shell(1, "exit 1");
    failing.policy.retry = retry(5, &[FailureClass::UserCode]);
    (failing.policy.retry.backoff_ms, failing.policy.retry.backoff_max_ms) = (600_000, 600_000);
    let failing = bench.submit(failing);
    until("the back-off", || bench.get(failing).reason == "BackOff");
    bench.cancel(failing);
    assert_eq!(bench.ended(failing).state, "cancelled");
    bench.cancel(all);
    bench.ended(all);
    assert_eq!(bench.read("ran"), "");
    bench.await_nobody();
}

/// Also the regression: a shim that does not obey left its gang stopping for ever.
#[test]
fn a_job_is_cancelled_while_it_starts_although_a_shim_hangs() {
    let bench = Bench::up_with(NODE_OF_8);
    bench.hold_shim(1, 0);
    let id = bench.submit(shell(2, &format!("touch {}", bench.path("ran").display())));
    bench.await_state(id, "starting");
    bench.cancel(id);
    assert_eq!(bench.ended(id).state, "cancelled");
    assert!(!bench.path("ran").exists());
    bench.await_nobody();
    let Ok(phalanx_api::protocol::Answer::Nodes(nodes)) = bench.ask(Verb::FindNodes(NodeFilter::default()))
    else {
        panic!()
    };
    assert!(nodes.nodes.iter().all(|n| n.held.is_empty()));
}

/// A shim that is stopped while its rank runs obeys nobody; the rank is ended all the same.
#[test]
fn a_stopped_shim_does_not_keep_its_rank_alive() {
    let bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(1, "exec sleep 1000");
    job.policy.stop.grace_ms = 100;
    let id = bench.submit(job);
    bench.await_state(id, "running");
    signal(bench.shim(id, 1, 0).pid, Signal::SIGSTOP);
    bench.cancel(id);
    assert_eq!(bench.ended(id).state, "cancelled");
    bench.await_nobody();
}
