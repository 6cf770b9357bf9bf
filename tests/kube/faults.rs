//! The scheduler behind an API server that goes wrong in every way that one can.

use std::time::Duration;

use serde_json::json;

use crate::support::front::{Front, drawn};
use crate::support::record::Record;
use crate::support::{Cluster, JOBS, Times, job};

const TIMES: Times = Times { binding_s: 8, ready_s: 60, vacant_s: 20 };

/// By then a gang is whole, or taken back: the deadline, what was on its way at its end, and the pods that go. The
/// deletions go wrong as well.
const PART: Duration = Duration::from_secs(60);

const PATIENCE: Duration = Duration::from_secs(300);

/// Gangs of real Jobs, more than there is room for at once.
fn gangs_are_whole_in_spite_of(seed: u64) {
    const GANGS: u32 = 30;
    println!("seed {seed}");
    let mut cluster = Cluster::of(6);
    let name = |gang: u32| format!("g{gang:02}");
    let size = |gang: u32| 2 + gang % 4;
    let record = Record::begin(cluster.api(), (0..GANGS).map(|gang| (name(gang), size(gang) as usize)));
    let front = Front::of(&cluster.plane, drawn(seed));
    cluster.schedule_through(&front, 0, TIMES);
    let ends = json!({ "controlplane.phalanx.dev/succeed-after": "2s" });
    for gang in 0..GANGS {
        cluster.create(JOBS, &job(&name(gang), size(gang), 1 + gang % 3, &ends));
    }
    cluster.until_within(PATIENCE, &format!("of seed {seed}, the end of all jobs"), |cluster| {
        cluster.keep_alive();
        let jobs = cluster.api().get(JOBS).unwrap();
        let jobs = jobs["items"].as_array().unwrap();
        let ended = jobs.iter().filter(|job| job["status"]["succeeded"] == job["spec"]["completions"]);
        (ended.count() == GANGS as usize).then_some(())
    });
    record.judge(PART);
    let faults = front.faults();
    println!("seed {seed}: {} bindings, faults {faults:#?}", record.bindings());
    for sort in ["Drop", "Forget", "Refuse", "Late", "Cut", "Expired"] {
        assert!(faults.keys().any(|fault| fault.starts_with(sort)), "seed {seed}: no {sort}");
    }
    assert!(faults.keys().any(|fault| fault.contains("pods/binding")), "seed {seed}: {faults:?}");
}

#[test]
fn gangs_are_whole_behind_a_front_that_fails_1() {
    gangs_are_whole_in_spite_of(1);
}

#[test]
fn gangs_are_whole_behind_a_front_that_fails_2() {
    gangs_are_whole_in_spite_of(20_261_122);
}
