use super::*;

/// Ratios and counts only: nothing here depends on how fast the machine is.
#[test]
fn a_small_cluster_in_use_places_refuses_and_releases() {
    let measured = measure(64, Duration::from_millis(200)).expect("the cluster is sound");
    assert!(measured.placed > 0 && measured.decisions == measured.placed + measured.refused);
    assert!(measured.proved_best == measured.placed, "{measured:?}");
}
