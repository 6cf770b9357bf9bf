//! What is kept of jobs that no record knows any more.

use std::fs;
use std::time::{Duration, SystemTime};

use phalanx_model::JobId;

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
    assert!(
        bench.daemon_log().contains(&format!("an old folder of an unknown job is removed job={old}")),
        "{}",
        bench.daemon_log()
    );
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
