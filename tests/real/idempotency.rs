//! A submission that is sent twice runs once.

use std::collections::BTreeMap;

use phalanx_api::protocol::{Answer, Verb};
use phalanx_model::{Job, JobId, JobName};

use crate::support::{Bench, NODE_OF_8, gang, refused, shell};

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

#[test]
fn a_key_that_was_used_for_another_job_is_refused() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let mut job = shell(1, "true");
    job.key = Some("nightly".to_owned());
    let (id, _) = send(&bench, &job);
    bench.ended(id);
    let mut renamed = job.clone();
    renamed.name = JobName::new("other").unwrap();
    let mut changed = job.clone();
    gang(&mut changed).program.argv.push("more".to_owned());
    let mut wider = job.clone();
    gang(&mut wider).needs.devices = 2;
    for _ in 0..2 {
        for (other, what) in [(&renamed, "the name"), (&changed, "what runs"), (&wider, "what a rank needs")]
        {
            let verb = Verb::Submit { job: Box::new(other.clone()), secrets: BTreeMap::new() };
            let error = refused(bench.ask(verb));
            assert!(error.message.contains(&format!("is that of job {id}")), "{error:?}");
            assert!(error.message.contains(&format!("{what} differs")), "{error:?}");
        }
        assert_eq!(send(&bench, &job), (id, true));
        // The history says the same.
        bench.down();
        bench.up();
    }
}
