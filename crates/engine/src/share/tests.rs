//! What holds of slices, shares and packing; each against brute force or a known answer.

use std::collections::BTreeSet;

use super::mig::{A30, A100_40GB, A100_80GB, GEOMETRIES, H100_80GB, Slices};
use super::*;

const GIB: u64 = 1 << 30;

const fn kind(geometry: Option<&'static Geometry>) -> Kind {
    Kind { model: 0, memory_bytes: 80 * GIB, compute_limit_milli: WHOLE_MILLI, geometry, replicas: 0 }
}

const fn request(want: Want) -> ShareRequest {
    ShareRequest { want, cpu_milli: 1_000, memory_bytes: GIB, models: u64::MAX, trust: Trust(0) }
}

const fn share(compute_milli: u32, memory_gib: u64) -> Want {
    Want::Share(Share { compute_milli, memory_bytes: memory_gib * GIB })
}

fn node(devices: usize) -> NodeState {
    NodeState::empty(0, devices, 64_000, 512 << 30).unwrap()
}

/// All sets of (profile, start) that can stand on one GPU, by the rules as written down: allowed starts, no slice
/// twice, not more than the maximum of each profile, one with media extensions.
fn brute_force(geometry: &Geometry) -> BTreeSet<BTreeSet<(u8, u8)>> {
    let mut all = BTreeSet::from([BTreeSet::new()]);
    let mut frontier = vec![BTreeSet::new()];
    while let Some(set) = frontier.pop() {
        for (index, profile) in (0u8..).zip(geometry.profiles) {
            for start in 0..geometry.memory_slices {
                let covered = |profile: &Profile, start: u8| start..start + profile.memory_slices;
                let clashes = |(other, at): &(u8, u8)| {
                    let there = covered(geometry.profile(*other).unwrap(), *at);
                    covered(profile, start).any(|slice| there.contains(&slice))
                };
                let has_media = |index: u8| geometry.profile(index).unwrap().has_media;
                let is_like = |other: u8| other == index || profile.has_media && has_media(other);
                let same = set.iter().filter(|(other, _)| is_like(*other)).count();
                let mut larger = set.clone();
                let is_allowed = profile.starts >> start & 1 == 1 && same < usize::from(profile.max);
                if is_allowed
                    && !set.iter().any(clashes)
                    && larger.insert((index, start))
                    && all.insert(larger.clone())
                {
                    frontier.push(larger);
                }
            }
        }
    }
    all
}

/// All states that the code under test can reach.
fn reachable(geometry: &Geometry) -> BTreeSet<BTreeSet<(u8, u8)>> {
    let mut seen = BTreeSet::from([Slices::default()]);
    let mut frontier = vec![Slices::default()];
    while let Some(slices) = frontier.pop() {
        for profile in 0..u8::try_from(geometry.profiles.len()).unwrap() {
            for start in 0..8 {
                let mut more = slices;
                if more.take(geometry, profile, start).is_some() && seen.insert(more) {
                    frontier.push(more);
                }
            }
        }
    }
    seen.iter().map(|slices| slices.in_use().collect()).collect()
}

#[test]
fn slices_reach_exactly_the_combinations_that_are_allowed() {
    for geometry in GEOMETRIES {
        assert_eq!(reachable(geometry), brute_force(geometry), "{}", geometry.board);
    }
}

/// NVIDIA's table for A100 has 19 configurations of 1g, 2g, 3g, 4g and 7g; A30 has 5.
#[test]
fn full_gpus_are_those_of_the_table() {
    let full = |geometry: &Geometry, names: &[&str]| {
        let wanted: BTreeSet<u8> = names.iter().map(|name| geometry.named(name).unwrap()).collect();
        let all = brute_force(geometry);
        let plain: Vec<_> =
            all.iter().filter(|set| set.iter().all(|(profile, _)| wanted.contains(profile))).collect();
        plain
            .iter()
            .filter(|set| !plain.iter().any(|other| other.len() > set.len() && other.is_superset(set)))
            .count()
    };
    assert_eq!(full(&A100_40GB, &["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]), 19);
    assert_eq!(full(&A30, &["1g.6gb", "2g.12gb", "4g.24gb"]), 5);
}

/// The most instances of a profile that fit beside others, by trying all.
fn most(geometry: &Geometry, slices: Slices, profile: u8) -> u8 {
    let more = (0..8).filter_map(|start| {
        let mut then = slices;
        then.take(geometry, profile, start).map(|_| 1 + most(geometry, then, profile))
    });
    more.max().unwrap_or(0)
}

#[test]
fn room_counts_what_fits_at_most() {
    for geometry in [&A100_80GB, &A30] {
        for set in brute_force(geometry) {
            let mut slices = Slices::default();
            for (profile, start) in &set {
                slices.take(geometry, *profile, *start).unwrap();
            }
            // Seven small ones in any order are many; what is left of a GPU with something on it says as much.
            for profile in (0..u8::try_from(geometry.profiles.len()).unwrap()).filter(|_| !set.is_empty()) {
                assert_eq!(
                    slices.room(geometry, profile),
                    most(geometry, slices, profile),
                    "{set:?} {profile}"
                );
            }
        }
    }
}

#[test]
fn the_smallest_profile_with_both_is_taken() {
    let name = |geometry: &Geometry, compute_slices, memory_gib, media| {
        let request = SliceRequest { compute_slices, memory_bytes: memory_gib * GIB, media };
        geometry.smallest(request).map(|index| geometry.profile(index).unwrap().name)
    };
    assert_eq!(name(&H100_80GB, 1, 5, false), Some("1g.10gb"));
    assert_eq!(name(&H100_80GB, 1, 5, true), Some("1g.10gb+me"));
    assert_eq!(name(&H100_80GB, 1, 15, false), Some("1g.20gb"));
    assert_eq!(name(&H100_80GB, 2, 5, false), Some("2g.20gb"));
    assert_eq!(name(&H100_80GB, 2, 30, false), Some("3g.40gb"));
    assert_eq!(name(&H100_80GB, 4, 5, false), Some("4g.40gb"));
    assert_eq!(name(&H100_80GB, 5, 5, false), Some("7g.80gb"));
    assert_eq!(name(&H100_80GB, 1, 90, false), None);
}

#[test]
fn an_unused_gpu_is_cut_anew_and_says_how() {
    let profile = |name: &str| A100_80GB.named(name).unwrap();
    let (one, four) = (profile("1g.10gb"), profile("4g.40gb"));
    let mut device = Device::Empty;
    let first = device.take_slice(&A100_80GB, one, 2).unwrap();
    assert_eq!(first, Reshape { mig: Some(true), destroy: 0, create: Some((one, 2)) });
    assert_eq!(device.take_slice(&A100_80GB, four, 0), None);
    assert!(device.give_back_slice(&A100_80GB, one, 2));
    let mut again = device;
    let used = again.take_slice(&A100_80GB, one, 2);
    assert_eq!(used, Some(Reshape::default()), "the idle instance is used");
    let larger = device.take_slice(&A100_80GB, four, 0).unwrap();
    assert_eq!(larger, Reshape { mig: None, destroy: 1 << 2, create: Some((four, 0)) });
    assert!(device.give_back_slice(&A100_80GB, four, 0));
    let part = Share { compute_milli: 300, memory_bytes: GIB };
    let uncut = device.take_share(&kind(Some(&A100_80GB)), Trust(0), part).unwrap();
    assert_eq!(uncut, Reshape { mig: Some(false), destroy: 1, create: None });
}

#[test]
fn who_does_not_trust_does_not_share() {
    let hardware = kind(Some(&A100_80GB));
    let part = Share { compute_milli: 300, memory_bytes: 10 * GIB };
    let (mine, theirs) = (Trust(0), Trust(1));
    let mut device = Device::Empty;
    device.take_share(&hardware, mine, part).unwrap();
    assert_eq!(device.take_share(&hardware, theirs, part), None);
    device.take_share(&hardware, mine, part).unwrap();
    // MIG keeps them apart: a slice asks nobody whom it trusts.
    let mut cut = Device::Empty;
    cut.take_slice(&A100_80GB, 0, 0).unwrap();
    cut.take_slice(&A100_80GB, 0, 1).unwrap();
}

#[test]
fn compute_is_oversubscribed_as_declared_and_memory_never() {
    let mut hardware = kind(None);
    hardware.compute_limit_milli = 2_000;
    assert_eq!(node(1).room(&hardware, &request(share(500, 1))), 4);
    assert_eq!(node(1).room(&hardware, &request(share(500, 30))), 2);
    assert_eq!(node(1).room(&hardware, &request(share(1_500, 1))), 0, "more than a device can do");
    assert_eq!(node(1).room(&hardware, &request(share(0, 0))), 0, "nothing is not a share");
}
