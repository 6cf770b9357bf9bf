//! A service that takes what it needs from opportunistic work as its replicas measure it, and gives it back; a session
//! that ends when nobody works in it.

use std::fs;

use phalanx_api::protocol::{Answer, JobRef, JobView, News, ServiceView, Verb};
use phalanx_model::{ClassName, Ending, FailureClass, Job, JobId, NodeName, Replicas, Target};

use crate::support::{Bench, NODE_OF_8, TWO_NODES_OF_8, gang, refused, retry, shell, until};

fn of_class(class: &str, job: Job) -> Job {
    let mut job = job;
    job.turn.class = Some(ClassName::new(class).unwrap());
    job
}

/// One to three replicas with two GPUs each. Every one of them tells what stands in the file `load`.
fn service(bench: &Bench) -> Job {
    let load = bench.path("load");
    fs::write(&load, "1000").unwrap();
    let script = format!(
        "while true; do
           value=$(cat {load})
           echo \"{{\\\"tell\\\": {{\\\"job\\\": {{\\\"id\\\": $PHALANX_JOB_ID}}, \\\"gang\\\": $PHALANX_GANG, \\\"news\\\":
             {{\\\"metric\\\": {{\\\"name\\\": \\\"tokens\\\", \\\"value_milli\\\": $value}}}}}}}}\" |
             $PHALANX_EXE ask $PHALANX_STATE/phalanx.sock > /dev/null
           echo . >> {told}
           sleep 0.2
         done",
        load = load.display(),
        told = bench.path("told").display(),
    );
    let mut job = of_class("serving", shell(1, &script));
    gang(&mut job).needs.devices = 2;
    job.gangs = vec![job.gangs[0].clone(); 3];
    let target = Target { settle_ms: 2_000, ..Target::new("tokens", 1_000) };
    job.turn.service = Some(Replicas { min: 1, target: Some(target), ..Replicas::default() });
    job.policy.retry = retry(u32::MAX, &FailureClass::ALL);
    job
}

fn seen(view: &JobView) -> (u32, u32) {
    let ServiceView { running, wanted, .. } = view.service.clone().unwrap();
    (running, wanted)
}

fn evictions(bench: &Bench, job: JobId) -> u32 {
    bench.get(job).gangs[0].evictions
}

#[test]
fn a_service_takes_gpus_as_its_replicas_measure_and_gives_them_back() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let mut filler = of_class("opportunistic", shell(1, "exec sleep 1000"));
    gang(&mut filler).needs.devices = 6;
    let filler = bench.submit(filler);
    let service = bench.submit(service(&bench));
    bench.await_state(filler, "running");
    until("the first replica", || seen(&bench.get(service)) == (1, 1));
    let resting = bench.get(service);
    assert_eq!((resting.state.as_str(), resting.reason.as_str()), ("running", ""), "{resting:#?}");

    // Three times its target: two more replicas, and the opportunistic job makes way.
    fs::write(bench.path("load"), "3000").unwrap();
    until("three replicas", || seen(&bench.get(service)) == (3, 3));
    assert_eq!(evictions(&bench, filler), 1);
    assert_eq!(bench.get(filler).state, "pending");
    let scaled = bench.get(service).events.into_iter().find(|event| event.what == "scaled").unwrap();
    assert!(scaled.detail.starts_with("from 1 to 3 replicas"), "{scaled:?}");

    // A daemon that is killed knows how many are wanted.
    bench.kill();
    bench.up();
    assert_eq!(bench.get(service).service.unwrap().wanted, 3);

    until("three replicas again", || seen(&bench.get(service)) == (3, 3));
    fs::write(bench.path("load"), "100").unwrap();
    until("one replica", || seen(&bench.get(service)) == (1, 1));
    bench.await_state(filler, "running");
    let Ok(Answer::Why(why)) = bench.ask(Verb::Why { job: JobRef::Id(service) }) else { panic!() };
    assert!(why.reports.iter().any(|report| report.reason.word() == "ScaledIn"), "{why:#?}");

    // By hand, within what it may have.
    let scale = |replicas| bench.ask(Verb::Scale { job: JobRef::Id(service), replicas });
    assert!(refused(scale(Some(4))).message.contains("1 to 3 replicas"));
    scale(Some(2)).unwrap();
    until("two replicas", || seen(&bench.get(service)) == (2, 2));
    let told = || bench.lines("told").len();
    let before = told();
    until("words of the metric", || told() > before + 20);
    assert_eq!(seen(&bench.get(service)), (2, 2), "the metric needs one");
    scale(None).unwrap();
    until("one replica", || seen(&bench.get(service)) == (1, 1));
    bench.cancel(service);
    assert!(matches!(bench.ended(service).ending, Some(Ending::Cancelled { .. })));
    assert!(refused(scale(Some(2))).message.contains("has ended"));
    bench.cancel(filler);
    bench.await_nobody();
}

#[test]
fn a_drained_node_keeps_its_replica_until_another_runs_in_its_stead() {
    let mut bench = Bench::up_with(TWO_NODES_OF_8);
    let mut job = of_class("serving", shell(1, "exec sleep 1000"));
    gang(&mut job).needs.devices = 2;
    job.gangs = vec![job.gangs[0].clone(); 2];
    job.turn.service = Some(Replicas { min: 1, surge: 1, ..Replicas::default() });
    let service = bench.submit(job);
    until("the replica", || seen(&bench.get(service)) == (1, 1));
    let from = bench.node_of(service);
    bench.done(Verb::Drain { node: NodeName::new(&from).unwrap(), by: None, reason: None });
    until("the one in its stead, alone", || {
        let view = bench.get(service);
        view.gangs[0].placement.is_none() && seen(&view) == (1, 1)
    });
    let view = bench.get(service);
    assert_ne!(view.gangs[1].placement.clone().unwrap().slots[0].node.as_str(), from);
    let events: Vec<&str> = view.events.iter().map(|event| event.what.as_str()).collect();
    let at =
        |what: &str| events.iter().position(|event| *event == what).unwrap_or_else(|| panic!("{events:?}"));
    assert!(at("replacing") < at("replaced") && at("replaced") < at("stopping"), "{events:?}");
    // A daemon that is killed knows which of them is wanted.
    bench.kill();
    bench.up();
    assert_eq!(seen(&bench.get(service)), (1, 1));
    assert_eq!(bench.get(service).gangs[1].attempt, 1, "it never noticed");
    bench.cancel(service);
    bench.await_nobody();
}

#[test]
fn a_session_ends_once_nobody_works_in_it() {
    let bench = Bench::up_with(NODE_OF_8);
    let session = |idle_limit_ms, script: &str| {
        let mut job = shell(1, script);
        job.policy.idle_limit_ms = Some(idle_limit_ms);
        job
    };
    let go = bench.path("over");
    let busy =
        bench.submit(session(6_000, &format!("until [ -e {} ]; do :; done; exec sleep 1000", go.display())));
    let idle = bench.submit(session(1_000, "exec sleep 1000"));
    let view = bench.ended(idle);
    assert_eq!((view.state.as_str(), view.exit_code), ("idle_limit", Some(124)));
    assert_eq!(bench.get(busy).state, "running", "it uses CPU time");
    bench.done(Verb::Tell { job: JobRef::Id(busy), gang: 0, news: News::Active });
    fs::write(&go, "").unwrap();
    assert_eq!(bench.ended(busy).state, "idle_limit");
    let other = bench.submit(shell(1, "exec sleep 1000"));
    bench.await_state(other, "running");
    let active = Verb::Tell { job: JobRef::Id(other), gang: 0, news: News::Active };
    assert!(refused(bench.ask(active)).message.contains("no session"));
    bench.cancel(other);
}
