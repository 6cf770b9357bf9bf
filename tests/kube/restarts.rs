//! Schedulers that are killed, and their successors.

use crate::support::{Cluster, JOBS, assert_disjoint, job};
use serde_json::json;

/// Killed at many moments while gangs start: whoever comes next finishes what was begun, binds nothing twice, and loses
/// no gang.
#[test]
fn gangs_are_whole_whenever_the_scheduler_is_killed() {
    const GANGS: u32 = 12;
    const KILLS: u64 = 10;
    let mut cluster = Cluster::of(12);
    for gang in 0..GANGS {
        cluster.create(JOBS, &job(&format!("g{gang:02}"), 4, 2, &json!({})));
    }
    for kill in 0..KILLS {
        let scheduler = cluster.schedule(0);
        std::thread::sleep(std::time::Duration::from_millis(150 + 37 * kill));
        cluster.kill(scheduler);
    }
    cluster.schedule(0);
    for gang in 0..GANGS {
        let seats = cluster.until_runs(&format!("g{gang:02}"), 4);
        let mut ranks: Vec<_> = seats.iter().filter_map(|seat| seat.rank).collect();
        ranks.sort_unstable();
        assert_eq!(ranks, [0, 1, 2, 3], "{seats:?}");
    }
    assert_disjoint(&cluster.seats());
}

/// Of two schedulers one leads; when it is killed the other goes on.
#[test]
fn a_standby_takes_over() {
    let mut cluster = Cluster::of(2);
    let leader = cluster.schedule(3);
    cluster.create(JOBS, &job("before", 2, 4, &json!({})));
    cluster.until_runs("before", 2);
    cluster.schedule(3);
    cluster.kill(leader);
    cluster.create(JOBS, &job("after", 2, 4, &json!({})));
    cluster.until_runs("after", 2);
    assert_disjoint(&cluster.seats());
}
