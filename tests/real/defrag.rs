//! A job that may move leaves its node, so that another one gets a whole rack, and goes on from its checkpoint elsewhere.

use phalanx_api::protocol::{Answer, DefragView, ErrorCode, Verb};
use phalanx_model::{Advisory, Job, JobId, LevelName};

use crate::story::settings;
use crate::support::{Bench, NOBODY, gang, is_root, number, shell, trainer, until};

/// Two racks of two nodes each.
const CLUSTER: &str = "\
levels: [rack]
nodes:
- {name: 'a-[0-1]', path: {rack: a}, devices: {count: 4, model: Test GPU}}
- {name: 'b-[0-1]', path: {rack: b}, devices: {count: 4, model: Test GPU}}
";

/// Trains on a whole node, and saves at once on SIGUSR1.
fn training(bench: &Bench) -> Job {
    let mut job = trainer(&bench.path("moves"), 1, 100);
    gang(&mut job).needs.devices = 4;
    let signal = nix::sys::signal::Signal::SIGUSR1 as i32;
    job.policy.stop.advisory = Some(Advisory { signal, lead_ms: 60_000 });
    job.policy.preempt.may_move = true;
    job
}

/// Holds so many nodes.
fn holder(nodes: u32) -> Job {
    let mut job = shell(nodes, "exec sleep 1000");
    gang(&mut job).needs.devices = 4;
    job
}

fn nodes(bench: &Bench, job: JobId) -> Vec<String> {
    let view = bench.get(job);
    let placement = view.gangs[0].placement.as_ref().unwrap();
    placement.slots.iter().map(|slot| slot.node.to_string()).collect()
}

fn defrag(bench: &Bench, apply: bool) -> DefragView {
    match bench.ask(Verb::Defrag { job: None, apply }) {
        Ok(Answer::Defrag(view)) => *view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_moves_and_goes_on_so_that_a_rack_opens() {
    let bench = Bench::up_with(CLUSTER);
    bench.done(Verb::ApplyQueues { settings: Box::new(settings()), queues: Vec::new() });
    let first = bench.submit(training(&bench));
    let [second, third, fourth] = [(); 3].map(|()| bench.submit(holder(1)));
    for job in [first, second, third, fourth] {
        bench.await_state(job, "running");
    }
    until("a checkpoint", || number(&bench, "moves/step") > 0);
    for gone in [second, fourth] {
        bench.cancel(gone);
        bench.ended(gone);
    }
    let mut wide = holder(2);
    gang(&mut wide).topology.required = Some(LevelName::new("rack").unwrap());
    let wide = bench.submit(wide);
    assert_eq!(bench.get(wide).state, "pending");

    let plan = defrag(&bench, false);
    let moves: Vec<JobId> = plan.moves.iter().map(|one| one.gang.job).collect();
    assert_eq!((plan.gang.job, moves), (wide, vec![first]));
    let before = nodes(&bench, first);
    assert_eq!(bench.get(first).state, "running", "a plan moves nobody");
    if is_root("that users move nobody") {
        let verb = Verb::Defrag { job: None, apply: true };
        match &bench.ask_as(NOBODY, &verb)[..] {
            [Answer::Error(error)] => assert_eq!(error.code, ErrorCode::Forbidden),
            other => panic!("{other:?}"),
        }
    }
    assert!(defrag(&bench, true).is_applied);
    bench.await_state(wide, "running");
    bench.await_state(first, "running");
    assert_eq!(nodes(&bench, first), [plan.moves[0].to[0].to_string()]);
    assert_ne!(nodes(&bench, first), before);
    let of_rack = |node: &String| node.starts_with(&before[0][..1]);
    assert!(nodes(&bench, wide).iter().all(of_rack), "the rack that it left");
    let ended = bench.ended(first);
    assert_eq!((ended.state.as_str(), ended.gangs[0].attempt, ended.gangs[0].evictions), ("succeeded", 2, 0));
    let said = bench.said(first);
    assert_eq!(said["resume"], "1");
    assert_ne!(said["resumed"], "0", "it went on from its checkpoint");
    bench.cancel(wide);
    bench.cancel(third);
    bench.await_nobody();
}
