//! The scheduler behind an API server that goes wrong in every way that one can.

use std::time::Duration;

use phalanx_kube::world::ANSWER;
use serde_json::json;

use crate::support::front::{FAULTS, Front, drawn};
use crate::support::record::Record;
use crate::support::{Cluster, JOBS, Times, job};

const TIMES: Times = Times { binding_s: 8, ready_s: 60, vacant_s: 20, min_run_s: 0 };

/// By then a gang is whole, or taken back: the deadline, and three calls in a row of which each may lose its answer: to look
/// where a pod is whose binding was not answered, to read the owner, and to tell it that its pods are to go.
fn part() -> Duration {
    TIMES.part() + 2 * ANSWER
}

const PATIENCE: Duration = Duration::from_secs(300);

/// Gangs of real Jobs, more than there is room for at once.
fn gangs_are_whole_in_spite_of(seed: u64, lease_s: u64) {
    const GANGS: u32 = 30;
    println!("seed {seed}");
    let mut cluster = Cluster::of(6);
    let name = |gang: u32| format!("g{gang:02}");
    let size = |gang: u32| 2 + gang % 4;
    let record = Record::begin(cluster.api(), (0..GANGS).map(|gang| (name(gang), size(gang) as usize)));
    let front = Front::of(&cluster.plane, drawn(seed));
    cluster.schedule_through(&front, lease_s, TIMES);
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
    record.judge(part());
    let faults = front.faults();
    println!("seed {seed}: {} bindings, faults {faults:#?}", record.bindings());
    for fault in FAULTS {
        assert!(faults.contains_key(*fault), "seed {seed}: no {fault}");
    }
    // One that loses its lease begins anew: that would be a gang in part for as long as nobody leads.
    let leaders = cluster.lines().iter().filter(|line| line["message"] == "leads").count();
    assert_eq!(leaders, 1, "seed {seed}:\n{}", cluster.log());
    if lease_s > 0 {
        assert!(faults.keys().any(|fault| fault.contains("PUT leases")), "seed {seed}: {faults:?}");
    }
}

#[test]
fn gangs_are_whole_behind_a_front_that_fails() {
    gangs_are_whole_in_spite_of(1, 0);
}

#[test]
fn gangs_are_whole_behind_a_front_that_fails_while_a_lease_is_held() {
    gangs_are_whole_in_spite_of(20_261_122, 15);
}
