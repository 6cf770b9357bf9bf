//! What is kept of jobs that no record knows any more.

use std::fs;
use std::time::{Duration, SystemTime};

use phalanx_api::client;
use phalanx_api::protocol::{Answer, JobRef, LogAsk, Verb};
use phalanx_model::{JobId, Timestamp};
use phalanx_shell::unix_now;

use crate::support::{Bench, NODE_OF_8, shell, until};

/// Every folder of a job, as if nothing had happened in it for 40 days.
fn age(bench: &Bench, job: JobId) {
    let at = SystemTime::now() - Duration::from_secs(40 * 24 * 3600);
    let rank = bench.member(job, 1, 0);
    for folder in rank.ancestors().take(4) {
        fs::File::open(folder).unwrap().set_modified(at).unwrap();
    }
}

/// Their folders stayed for ever: only a row of the history ever led to the removal of a folder.
#[test]
fn folders_of_jobs_that_no_record_knows_go_when_they_are_old() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let [old, young] = [(); 2].map(|()| bench.submit(shell(1, "true")));
    let living = bench.submit(shell(1, "exec sleep 1000"));
    bench.await_state(living, "running");
    for job in [old, young] {
        bench.ended(job);
    }
    bench.kill();
    fs::remove_dir_all(bench.paths.journal()).unwrap();
    // Its log would repair it.
    for companion in ["history.db-wal", "history.db-shm"] {
        let _ = fs::remove_file(bench.paths.root().join(companion));
    }
    fs::write(bench.paths.history(), "this is no database, and as long as its header: ".repeat(10)).unwrap();
    age(&bench, old);
    age(&bench, living);
    bench.up();
    let warnings = bench.warnings().join("\n");
    let damaged = bench.path("state/history.db.damaged-1");
    assert!(
        warnings
            .contains(&format!("is damaged: file is not a database; it was moved to {}", damaged.display())),
        "{warnings}"
    );
    assert!(damaged.exists());
    until("the removal of the old folder", || !bench.paths.job(old).exists());
    // The log says it once it is done.
    let said = format!("an old folder of an unknown job is removed job={old}");
    until("a line of the log", || bench.daemon_log().contains(&said));
    assert!(bench.paths.job(young).exists());
    assert!(bench.paths.job(living).exists(), "its rank lives");
    assert_eq!(bench.alive().len(), 2, "a shim and a rank");
}

#[test]
fn a_history_that_is_gone_is_a_loss() {
    let mut bench = Bench::up_with(NODE_OF_8);
    assert_eq!(bench.warnings(), [""; 0], "a first start lost nothing");
    let job = bench.submit(shell(1, "true"));
    bench.ended(job);
    bench.down();
    for file in ["history.db", "history.db-wal", "history.db-shm"] {
        let _ = fs::remove_file(bench.paths.root().join(file));
    }
    bench.up();
    let warnings = bench.warnings().join("\n");
    assert!(warnings.contains("history.db is gone; a new one was begun"), "{warnings}");
    assert!(bench.paths.job(job).exists());
}

/// Lines have the time at which they were written, also those that a daemon wrote nothing down of because it did not run.
#[test]
fn output_has_its_times_also_after_a_restart() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let script = format!(
        "echo early; while [ ! -e {0} ]; do sleep 0.02; done; echo late; while [ ! -e {1} ]; do sleep 0.02; done",
        bench.path("go").display(),
        bench.path("end").display()
    );
    let id = bench.submit(shell(1, &script));
    let lines = |bench: &Bench, since: Option<Timestamp>| -> Vec<(String, Timestamp)> {
        let ask = LogAsk { since, timestamps: true, ..LogAsk::default() };
        let line = |answer| match answer {
            Ok(Answer::Log { line, at, .. }) => (line, at.unwrap()),
            other => panic!("{other:?}"),
        };
        client::ask(&bench.paths.socket(), Verb::Logs { job: JobRef::Id(id), ask })
            .unwrap()
            .map(line)
            .collect()
    };
    // Noted: from then on its time does not move with what is written later.
    let times = bench.member(id, 1, 0).join("output.times");
    until("a note of the first line", || times.exists());
    let early = lines(&bench, None);
    assert_eq!(early.len(), 1);
    bench.kill();
    let between = unix_now();
    fs::write(bench.path("go"), "").unwrap();
    until("the second line", || {
        fs::read_to_string(bench.member(id, 1, 0).join("output.log"))
            .is_ok_and(|text| text.ends_with("late\n"))
    });
    let written = unix_now();
    bench.up();
    until("a note of the second line", || fs::metadata(&times).is_ok_and(|meta| meta.len() == 32));
    let both = lines(&bench, None);
    assert_eq!((both.len(), &both[0]), (2, &early[0]));
    // Files have the time of the kernel's last tick, which may be a few ms ago.
    assert!(both[1].1.plus(20) >= between && both[1].1 <= written, "{between:?} {both:?} {written:?}");
    assert_eq!(lines(&bench, Some(both[1].1)), both[1..], "{both:?}");
    assert_eq!(lines(&bench, Some(Timestamp(u64::MAX))), []);
    fs::write(bench.path("end"), "").unwrap();
    assert_eq!(bench.ended(id).state, "succeeded");
    assert_eq!(lines(&bench, None), both);
}
