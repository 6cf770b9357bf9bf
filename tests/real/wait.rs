//! Waiting for many jobs on one connection.

use std::fs;

use phalanx_api::client::ask;
use phalanx_api::protocol::{Answer, ErrorCode, Verb, WAIT_JOBS_MAX};
use phalanx_model::JobId;

use crate::support::{Bench, NODE_OF_8, refused, shell};

/// The jobs in the order of their ends, with their codes, until the stream ends or breaks.
fn ends(bench: &Bench, jobs: &[JobId]) -> Vec<(JobId, Option<i32>)> {
    let answers = ask(&bench.paths.socket(), Verb::Wait { jobs: jobs.to_vec() }).unwrap();
    let end = |answer| match answer {
        Answer::Job(view) => (view.id, view.exit_code),
        other => panic!("{other:?}"),
    };
    answers.map_while(Result::ok).map(end).collect()
}

#[test]
fn each_job_is_reported_once_when_it_ends_also_after_a_restart() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let go = bench.path("go");
    let slow =
        bench.submit(shell(1, &format!("while [ ! -e {} ]; do sleep 0.02; done; exit 6", go.display())));
    let quick = bench.submit(shell(1, "exit 5"));
    bench.ended(quick);
    let socket = bench.paths.socket();
    let mut answers = ask(&socket, Verb::Wait { jobs: vec![slow, quick] }).unwrap();
    let Some(Ok(Answer::Job(first))) = answers.next() else { panic!("no job") };
    assert_eq!(first.id, quick);
    bench.await_state(slow, "running");

    bench.kill();
    assert!(answers.next().unwrap().is_err(), "a stream that broke has no end");
    bench.up();
    fs::write(go, "").unwrap();
    assert_eq!(ends(&bench, &[slow]), [(slow, Some(6))]);
    assert_eq!(ends(&bench, &[slow, quick]), [(slow, Some(6)), (quick, Some(5))]);
    bench.await_nobody();
}

#[test]
fn unknown_jobs_and_too_many_jobs_are_refused() {
    let bench = Bench::up_with(NODE_OF_8);
    let error = refused(bench.ask(Verb::Wait { jobs: vec![JobId(99)] }));
    assert_eq!((error.code, error.message.as_str()), (ErrorCode::NotFound, "no job 99"));
    let error = refused(bench.ask(Verb::Wait { jobs: vec![JobId(1); WAIT_JOBS_MAX + 1] }));
    assert_eq!(error.code, ErrorCode::BadRequest);
    assert!(ends(&bench, &[]).is_empty());
}
