//! Counts only: nothing here depends on how fast the machine is.

use super::*;

const SMALL: Sizes = Sizes { gpus: 1_600, queues: 20, pending: 200, running: 160, seed: 42 };
const REPEAT: usize = 8;

fn measured(sizes: &Sizes) -> Figures {
    let asked = Asked { sizes: sizes.clone(), json: true, growth: false, only: None, repeat: Some(REPEAT) };
    let mut figures = Figures::default();
    let refused = measure(&asked, &mut figures).expect("the cluster comes to rest");
    assert_eq!(refused, [""; 0]);
    figures
}

#[test]
fn a_full_cluster_starts_what_waits_and_makes_way() {
    let figures = measured(&SMALL);
    let count = |name: &str| figures.get(name).unwrap_or_else(|| panic!("{name} was not measured"));
    assert!(count("used_gpus") >= 0.98 * f64::from(SMALL.gpus));
    assert!(count("pending") > 0.0);
    assert!(count("completion_ended") == REPEAT as f64 && count("completion_started") > 0.0);
    assert_eq!(count("heartbeat_said"), 0.0, "facts that change nothing say nothing");
    assert!(count("preempt_candidates_first") > 0.0);
    // What is held for the head of the line is there for a higher class as well: it need not evict every time.
    assert!(count("preempt_class_evicted") + count("preempt_owed_evicted") > 0.0);
    let burst = (REPEAT * SMALL.pending / BURST_PART) as f64;
    assert_eq!((count("burst_full_accepted"), count("burst_free_accepted")), (burst, burst));
    assert!(count("burst_free_started") > 0.0);
}

#[test]
fn gangs_move_where_every_node_is_half_used() {
    let asked =
        Asked { sizes: SMALL, json: true, growth: false, only: Some("moves".to_owned()), repeat: Some(1) };
    let mut figures = Figures::default();
    assert_eq!(measure(&asked, &mut figures), Ok(Vec::new()));
    let count = |name: &str| figures.get(name).unwrap_or_else(|| panic!("{name} was not measured"));
    assert_eq!((count("moves_gangs"), count("moves_candidates")), (8.0, 200.0));
}

#[test]
fn nodes_change_and_arrays_are_cancelled_in_idle_and_full_clusters() {
    let figures = measured(&SMALL);
    let count = |name: &str| figures.get(name).unwrap_or_else(|| panic!("{name} was not measured"));
    for name in ["cordon", "uncordon", "foreign_use_cpu", "foreign_use_device"] {
        assert_eq!(count(&format!("{name}_samples")), REPEAT as f64);
        assert_eq!(count(&format!("{name}_started")), 0.0, "{name} lets no gang start");
    }
    for name in ["remove_idle", "drain_idle", "notice_idle", "remove_full", "drain_full", "notice_full"] {
        assert_eq!(
            (count(&format!("{name}_samples")), count(&format!("{name}_nodes"))),
            (REPEAT as f64, 15.0)
        );
    }
    let tasks = (SMALL.pending / BURST_PART) as f64;
    let each = REPEAT as f64;
    assert_eq!(count("array_cancel_idle_started"), each * tasks);
    assert_eq!(count("array_cancel_idle_half_started"), each * tasks / 2.0);
    assert_eq!(count("array_cancel_idle_one_started"), each);
    assert_eq!((count("array_cancel_full_started"), count("array_cancel_full_ended")), (0.0, each * tasks));
}

#[test]
fn growth_measures_a_part_of_everything() {
    let asked =
        read(&["--growth", "--only", "cordon", "--repeat", "3"].map(str::to_owned)).expect("arguments");
    let sizes = |nodes: u32| {
        let arguments = growth::arguments(&asked, nodes);
        let part = read(&arguments[1..]).expect("arguments of a part");
        assert!(
            part.json && !part.growth && part.samples("cordon") == Some(3) && part.samples("mix").is_none()
        );
        let Sizes { gpus, queues, pending, running, seed } = part.sizes;
        (gpus, queues, pending, running, seed)
    };
    assert_eq!(sizes(200), (1_600, 15, 781, 156, 42));
    assert_eq!(sizes(12_800), (102_400, 1_000, 50_000, 10_000, 42));
}

#[test]
fn growth_compares_the_largest_cluster_with_the_smallest() {
    let measured = |gpus: u64, p99: f64| {
        let value =
            serde_json::json!({ "gpus": gpus, "drain_p50_ms": 1.0, "drain_p99_ms": p99, "drain_samples": 5 });
        value.as_object().cloned().expect("an object")
    };
    let lines = growth::lines(&[measured(1_600, 2.0), measured(12_800, 2.5), measured(102_400, 3.0)]);
    let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        words,
        [
            vec!["GPUs", "1600", "12800", "102400", "growth"],
            vec!["drain", "p50", "ms", "1.000", "1.000", "1.000", "1.000"],
            vec!["drain", "p99", "ms", "2.000", "2.500", "3.000", "1.500"],
        ]
    );
}

#[test]
fn the_same_seed_does_the_same() {
    let counts = || -> Vec<(String, u64)> {
        let figures = measured(&SMALL);
        let names =
            ["started", "evicted", "ended", "accepted", "said", "min", "pending", "running", "digest"];
        let counts = figures.counts().filter(|(name, _)| names.iter().any(|end| name.ends_with(end)));
        counts.map(|(name, value)| (name.to_owned(), value)).collect()
    };
    assert_eq!(counts(), counts());
}
