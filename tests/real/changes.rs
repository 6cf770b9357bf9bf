//! What users change of a job that they have submitted, and what they start anew.

use phalanx_api::protocol::{JobRef, Verb};
use phalanx_model::{JobUpdate, QueueName};

use crate::support::{Bench, NODE_OF_8, gang, refused, shell, until};

fn limit(ms: u64) -> JobUpdate {
    JobUpdate { time_limit_ms: Some(ms), ..JobUpdate::default() }
}

#[test]
fn a_shorter_limit_ends_a_job_and_what_was_changed_survives_a_restart() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let whole = || {
        let mut job = shell(1, "exec sleep 1000");
        gang(&mut job).needs.devices = 8;
        job
    };
    let [first, second, third] = [(); 3].map(|()| bench.submit(whole()));
    bench.await_state(first, "running");
    let update = |job, update| Verb::Update { job: JobRef::Id(job), update };
    let done = bench.done(update(second, JobUpdate { priority: Some(-3), ..limit(7_200_000) }));
    assert!(done.contains("priority -3") && done.contains("time limit 2h"), "{done}");
    let message = refused(bench.ask(update(second, JobUpdate::default()))).message;
    assert_eq!(message, "nothing to change");
    let elsewhere = JobUpdate { queue: Some(QueueName::new("elsewhere").unwrap()), ..JobUpdate::default() };
    let message = refused(bench.ask(update(first, elsewhere))).message;
    assert!(message.contains("another queue is for jobs that wait"), "{message}");

    bench.kill();
    bench.up();
    bench.done(update(first, limit(1)));
    assert_eq!(bench.ended(first).state, "time_limit");
    bench.await_state(third, "running");
    let view = bench.get(second);
    assert_eq!((view.state.as_str(), view.priority), ("pending", -3), "the third went first");
    let changed = view.events.iter().find(|event| event.what == "changed").unwrap();
    assert!(changed.detail.starts_with("time limit 2h"), "{changed:?}");
    bench.cancel(second);
    bench.cancel(third);
    bench.await_nobody();
}

#[test]
fn a_requeued_job_starts_again_or_waits_for_its_release() {
    let bench = Bench::up_with(NODE_OF_8);
    let job = bench.submit(shell(2, "exec sleep 1000"));
    bench.await_state(job, "running");
    let requeue = |hold| Verb::Requeue { job: JobRef::Id(job), hold };
    bench.done(requeue(false));
    until("the second attempt", || {
        let view = bench.get(job);
        (view.state.as_str(), view.gangs[0].attempt, view.gangs[0].failures) == ("running", 2, 0)
    });
    bench.done(requeue(true));
    until("the hold", || bench.get(job).reason == "Held");
    assert!(refused(bench.ask(requeue(false))).message.contains("nothing of job"));
    bench.done(Verb::Release { job: JobRef::Id(job) });
    until("the third attempt", || {
        let view = bench.get(job);
        (view.state.as_str(), view.gangs[0].attempt) == ("running", 3)
    });
    bench.cancel(job);
    bench.await_nobody();
}
