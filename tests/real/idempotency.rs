//! A submission that is sent twice runs once.

use std::collections::BTreeMap;

use phalanx_local::protocol::{Answer, Verb};
use phalanx_model::{Job, JobId};

use crate::support::{Bench, NODE_OF_8, shell};

fn send(bench: &Bench, job: &Job) -> (JobId, bool) {
    match bench.ask(Verb::Submit { job: Box::new(job.clone()), secrets: BTreeMap::new() }) {
        Ok(Answer::Submitted { job, existing, .. }) => (job, existing),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_key_is_one_job_and_one_run_also_after_a_restart() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(2, &format!("echo $PHALANX_RANK >> {}", bench.path("ran").display()));
    job.key = Some("nightly".to_owned());
    let (id, existing) = send(&bench, &job);
    assert!(!existing);
    assert_eq!(send(&bench, &job), (id, true));
    bench.kill();
    bench.up();
    assert_eq!(send(&bench, &job), (id, true));
    bench.ended(id);
    assert_eq!(send(&bench, &job), (id, true));
    bench.down();
    bench.up();
    assert_eq!(send(&bench, &job), (id, true));
    assert_eq!(bench.lines("ran"), ["0", "1"]);

    job.key = Some("another".to_owned());
    let (other, existing) = send(&bench, &job);
    assert!(other != id && !existing);
    bench.ended(other);
    assert_eq!(bench.lines("ran"), ["0", "0", "1", "1"]);
}
