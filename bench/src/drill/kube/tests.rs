use std::collections::BTreeSet;

use super::catalogue::FAULTS;
use super::seen::{Around, Pod, Whole, phases, whole};
use crate::drill::record::{Phases, Sample};

/// A pod of a gang of two ranks, as an event shows it.
fn pod(uid: &str, rank: u32, phase: &str) -> Pod {
    Pod {
        name: format!("train-{rank}-{uid}"),
        uid: uid.to_owned(),
        job: "train".to_owned(),
        rank,
        node: (phase != "Pending").then(|| "real-0".to_owned()),
        devices: (phase != "Pending").then(|| if rank == 0 { "0-3" } else { "4-7" }.to_owned()),
        phase: phase.to_owned(),
        ..Pod::default()
    }
}

fn leaving(pod: Pod) -> Pod {
    Pod { is_leaving: true, ..pod }
}

fn gone(pod: Pod) -> Pod {
    Pod { is_gone: true, ..pod }
}

/// The second rank fails at 1,000, and another pod runs in its place.
fn replaced() -> Vec<(u64, Pod)> {
    vec![
        (100, pod("a", 0, "Running")),
        (110, pod("b", 1, "Running")),
        (1_050, pod("b", 1, "Failed")),
        (3_000, pod("c", 1, "Pending")),
        (3_100, Pod { phase: "Pending".to_owned(), ..pod("c", 1, "Running") }),
        (3_500, pod("c", 1, "Running")),
        (9_000, pod("a", 0, "Succeeded")),
        (9_100, pod("c", 1, "Succeeded")),
        (9_200, gone(pod("a", 0, "Succeeded"))),
    ]
}

#[test]
fn faults_have_names_of_their_own_that_jobs_can_have() {
    let ids: BTreeSet<&str> = FAULTS.iter().map(|fault| fault.id).collect();
    assert_eq!(ids.len(), FAULTS.len());
    let is_name = |id: &&str| id.chars().all(|c| c.is_ascii_lowercase() || c == '-') && id.len() < 40;
    assert!(ids.iter().all(is_name), "{ids:?}");
}

#[test]
fn a_pod_that_is_replaced_gives_the_phases_of_its_gang() {
    let sample = |at_ms, attempt, step| Sample { at_ms, attempt, step };
    let samples = [sample(900, 1, 25), sample(4_000, 2, 21)];
    let around =
        Around { fault_ms: 1_000, noticed_ms: Some(1_050), ended_ms: Some(9_150), samples: &samples };
    let expected = Phases {
        noticed_ms: Some(50),
        stopping_ms: Some(50),
        stopped_ms: Some(50),
        placed_ms: Some(2_100),
        running_ms: Some(2_500),
        first_step_ms: Some(3_000),
        ended_ms: Some(8_150),
    };
    assert_eq!(phases(&replaced(), &around), expected);
    // A gang that goes on has no further phases.
    let on = Around { samples: &samples[..1], ..around };
    let expected = Phases { noticed_ms: Some(50), ended_ms: Some(8_150), ..Phases::default() };
    assert_eq!(phases(&replaced(), &on), expected);
}

#[test]
fn all_pods_of_a_gang_that_had_no_step_at_the_fault_are_new() {
    let samples = [Sample { at_ms: 900, attempt: 1, step: 1 }];
    let around = Around { fault_ms: 105, noticed_ms: None, ended_ms: None, samples: &samples };
    let found = phases(&replaced(), &around);
    assert_eq!([found.stopping_ms, found.placed_ms, found.running_ms], [None, Some(5), Some(5)]);
}

#[test]
fn a_pod_whose_node_is_silent_counts_as_stopped_when_it_is_to_leave() {
    let pods = [
        (100, pod("a", 0, "Running")),
        (110, pod("b", 1, "Running")),
        (2_000, leaving(pod("b", 1, "Running"))),
        (2_500, leaving(pod("a", 0, "Running"))),
        (2_700, gone(pod("a", 0, "Running"))),
        (3_500, pod("c", 0, "Running")),
        (3_600, pod("d", 1, "Running")),
        (9_000, gone(pod("b", 1, "Running"))),
    ];
    let samples =
        [Sample { at_ms: 900, attempt: 1, step: 25 }, Sample { at_ms: 4_000, attempt: 2, step: 21 }];
    let found =
        phases(&pods, &Around { fault_ms: 1_000, noticed_ms: None, ended_ms: None, samples: &samples });
    assert_eq!([found.stopping_ms, found.stopped_ms], [Some(1_000), Some(1_700)]);
    assert_eq!([found.placed_ms, found.running_ms], [Some(2_600), Some(2_600)]);
}

#[test]
fn the_time_that_a_gang_is_there_in_part_is_measured() {
    let found = whole(&replaced(), "train", 2);
    // From the failure until the other pod has a node; the start lasts 10.
    assert_eq!(found, Whole { longest_ms: 2_050, is_part: false, twice: BTreeSet::new() });
    assert!(whole(&replaced()[..3], "train", 2).is_part);
    assert_eq!(whole(&replaced(), "other", 2), Whole::default());
}

#[test]
fn a_gpu_that_two_pods_hold_for_longer_than_a_correction_takes_is_found() {
    let other = Pod { job: "other".to_owned(), name: "other-0-x".to_owned(), ..pod("x", 0, "Running") };
    let pods = |at| [(100, pod("a", 0, "Running")), (110, other.clone()), (at, pod("b", 1, "Running"))];
    let found = whole(&pods(20_000), "train", 2).twice;
    let expected = "other-0-x (real-0: GPU 0-3) and train-0-a (real-0: GPU 0-3)";
    assert_eq!(found, BTreeSet::from([expected.to_owned()]));
    assert!(whole(&pods(10_000), "train", 2).twice.is_empty());
    let elsewhere = Pod { node: Some("real-1".to_owned()), ..other.clone() };
    let pods = [(100, pod("a", 0, "Running")), (110, elsewhere), (20_000, pod("b", 1, "Running"))];
    assert!(whole(&pods, "train", 2).twice.is_empty());
}
