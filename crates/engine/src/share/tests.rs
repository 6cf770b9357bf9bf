//! What holds of slices, shares and packing; each against brute force or a known answer.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::mig::{A30, A100_40GB, A100_80GB, GEOMETRIES, H100_80GB};
use super::*;

const GIB: u64 = 1 << 30;

const fn kind(geometry: Option<&'static Geometry>) -> Kind {
    Kind { model: 0, memory_bytes: 80 * GIB, compute_limit_milli: WHOLE_MILLI, geometry }
}

const fn ask(want: Want) -> Ask {
    Ask { want, cpu_milli: 1_000, memory_bytes: GIB, models: u64::MAX, trust: Trust(0) }
}

const fn share(compute_milli: u32, memory_gib: u64) -> Want {
    Want::Share(Share { compute_milli, memory_bytes: memory_gib * GIB })
}

const fn slice(compute_slices: u8, memory_gib: u64) -> Want {
    Want::Slice(SliceAsk { compute_slices, memory_bytes: memory_gib * GIB, media: false })
}

fn node(devices: usize) -> NodeState {
    NodeState::empty(0, devices, 64_000, 512 << 30).unwrap()
}

/// All sets of (profile, start) that can stand on one GPU, by the rules as written down: allowed starts, no slice
/// twice, not more than the maximum of each profile.
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
                let same = set.iter().filter(|(other, _)| *other == index).count();
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
        let ask = SliceAsk { compute_slices, memory_bytes: memory_gib * GIB, media };
        geometry.smallest(ask).map(|index| geometry.profile(index).unwrap().name)
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

/// Services come first, and a training job that was seen before still finds its place at the front.
#[test]
fn a_training_job_stands_beside_services_on_one_gpu() {
    let mut packing = Packing::new(vec![kind(Some(&A100_80GB))]);
    packing.add(node(1)).unwrap();
    let (training, service) = (ask(slice(4, 30)), ask(slice(1, 5)));
    packing.observe(&training);
    let mut starts = Vec::new();
    for wanted in [service, service, service, training] {
        packing.observe(&wanted);
        let spot = packing.choose(&wanted).unwrap();
        let Part::Slice { start, profile, .. } = spot.part else { panic!("{spot:?}") };
        starts.push((A100_80GB.profile(profile).unwrap().name, start));
        packing.take(spot.node, &wanted, spot.part).unwrap();
    }
    assert_eq!(starts, [("1g.10gb", 6), ("1g.10gb", 5), ("1g.10gb", 4), ("4g.40gb", 0)]);
    assert_eq!(packing.choose(&service), None);
    assert_eq!(packing.choose(&ask(Want::Whole(1))), None);
    assert_eq!(packing.choose(&ask(share(100, 1))), None);
}

#[test]
fn best_start_leaves_room_for_what_is_asked_for() {
    let one = A100_80GB.named("1g.10gb").unwrap();
    let weights = |name: &str| {
        let mut weights = [0; 7];
        weights[usize::from(A100_80GB.named(name).unwrap())] = 1;
        weights
    };
    let mut slices = Slices::default();
    assert_eq!(slices.best_start(&A100_80GB, one, &weights("4g.40gb")), Some(6));
    slices.take(&A100_80GB, A100_80GB.named("3g.40gb").unwrap(), 4).unwrap();
    assert_eq!(slices.best_start(&A100_80GB, one, &weights("2g.20gb")), Some(3));
}

#[test]
fn an_unused_gpu_is_cut_anew_and_says_how() {
    let hardware = kind(Some(&A100_80GB));
    let (small, large, whole) = (ask(slice(1, 5)), ask(slice(4, 30)), ask(Want::Whole(1)));
    let part = |name: &str, start| Part::Slice { device: 0, profile: A100_80GB.named(name).unwrap(), start };
    let (one, four) = (part("1g.10gb", 2), part("4g.40gb", 0));
    let profile = |part: Part| if let Part::Slice { profile, .. } = part { profile } else { 0 };
    let mut state = node(1);
    let first = state.take(&hardware, &small, one).unwrap()[0];
    assert_eq!(first, Reshape { mig: Some(true), destroy: 0, create: Some((profile(one), 2)) });
    assert_eq!(state.take(&hardware, &large, four), Err(ShareError::DoesNotFit));
    state.give_back(&hardware, &small, one).unwrap();
    let mut again = state;
    assert_eq!(
        again.take(&hardware, &small, one).unwrap()[0],
        Reshape::default(),
        "the idle instance is used"
    );
    let larger = state.take(&hardware, &large, four).unwrap()[0];
    assert_eq!(larger, Reshape { mig: None, destroy: 1 << 2, create: Some((profile(four), 0)) });
    state.give_back(&hardware, &large, four).unwrap();
    let uncut = state.take(&hardware, &whole, Part::Whole(phalanx_model::DeviceMask::one(0))).unwrap()[0];
    assert_eq!(uncut, Reshape { mig: Some(false), destroy: 1, create: None });
}

#[test]
fn who_does_not_trust_does_not_share() {
    let hardware = kind(Some(&A100_80GB));
    let (mine, mut theirs) = (ask(share(300, 10)), ask(share(300, 10)));
    theirs.trust = Trust(1);
    let mut state = node(1);
    state.take(&hardware, &mine, Part::Share { device: 0 }).unwrap();
    assert_eq!(state.take(&hardware, &theirs, Part::Share { device: 0 }), Err(ShareError::DoesNotFit));
    state.take(&hardware, &mine, Part::Share { device: 0 }).unwrap();
    // MIG keeps them apart.
    let (mut here, mut there) = (ask(slice(1, 5)), ask(slice(1, 5)));
    (here.trust, there.trust) = (Trust(0), Trust(1));
    let mut cut = node(1);
    let at = |start| Part::Slice { device: 0, profile: 0, start };
    cut.take(&hardware, &here, at(0)).unwrap();
    cut.take(&hardware, &there, at(1)).unwrap();
}

#[test]
fn compute_is_oversubscribed_as_declared_and_memory_never() {
    let mut hardware = kind(None);
    hardware.compute_limit_milli = 2_000;
    assert_eq!(node(1).room(&hardware, &ask(share(500, 1))), 4);
    assert_eq!(node(1).room(&hardware, &ask(share(500, 30))), 2);
    assert_eq!(node(1).room(&hardware, &ask(share(1_500, 1))), 0, "more than a device can do");
    assert_eq!(node(1).room(&hardware, &ask(share(0, 0))), 0, "nothing is not a share");
}

#[test]
fn a_class_with_few_places_left_is_spared() {
    // Two nodes with one GPU each. Half of all requests need the first model, half take any.
    let kinds = [0, 1].map(|model| Kind { model, ..kind(None) }).to_vec();
    let mut packing = Packing::new(kinds);
    for index in 0..2 {
        packing.add(NodeState::empty(index, 1, 64_000, 512 << 30).unwrap()).unwrap();
    }
    let any = ask(Want::Whole(1));
    let picky = Ask { models: 1, ..any };
    packing.observe(&picky);
    packing.observe(&any);
    assert_eq!(packing.choose(&any).map(|spot| spot.node), Some(1));
}

#[test]
fn bad_indices_are_refused() {
    let mut packing = Packing::new(vec![kind(None)]);
    let whole = ask(Want::Whole(1));
    let part = Part::Whole(phalanx_model::DeviceMask::one(60));
    assert_eq!(packing.take(3, &whole, part), Err(ShareError::NoNode(3)));
    assert_eq!(packing.add(NodeState::empty(7, 1, 0, 0).unwrap()), Err(ShareError::NoKind(7)));
    assert_eq!(NodeState::empty(0, 17, 0, 0), Err(ShareError::TooManyDevices(17)));
    packing.add(node(2)).unwrap();
    assert_eq!(packing.take(0, &whole, part), Err(ShareError::DoesNotFit));
    assert_eq!(
        packing.give_back(0, &whole, Part::Whole(phalanx_model::DeviceMask::one(0))),
        Err(ShareError::NotTaken)
    );
    assert_eq!(packing.choose_on(9, &whole), None);
}

#[test]
fn old_and_rare_requests_are_forgotten() {
    let mut packing = cluster();
    let many = (0u32..70_000).map(|step| ask(share(1 + step % 900, 1)));
    for wanted in many {
        packing.observe(&wanted);
    }
    packing.check();
    // Of a class that is not kept, and of one that is.
    for compute in [899, 1] {
        let wanted = ask(share(compute, 1));
        let spot = packing.choose(&wanted).unwrap();
        packing.take(spot.node, &wanted, spot.part).unwrap();
        packing.check();
    }
}

#[test]
fn what_is_taken_does_not_depend_on_how_the_books_came_about() {
    let wanted =
        [ask(Want::Whole(2)), ask(share(400, 10)), ask(slice(1, 5)), ask(share(700, 4)), ask(Want::Whole(1))];
    let (mut plain, mut churned) = (cluster(), cluster());
    for wanted in wanted.iter().rev() {
        let spot = churned.choose(wanted).unwrap();
        churned.take(spot.node, wanted, spot.part).unwrap();
        churned.give_back(spot.node, wanted, spot.part).unwrap();
    }
    for wanted in wanted.iter().cycle().take(15) {
        plain.observe(wanted);
        churned.observe(wanted);
        let (here, there) = (plain.choose(wanted), churned.choose(wanted));
        assert_eq!(here.map(|spot| (spot.node, spot.cost)), there.map(|spot| (spot.node, spot.cost)));
        if let Some((here, there)) = here.zip(there) {
            plain.take(here.node, wanted, here.part).unwrap();
            churned.take(there.node, wanted, there.part).unwrap();
        }
    }
}

fn wants() -> impl Strategy<Value = Want> {
    prop_oneof![
        Just(Want::Nothing),
        (1u8..5).prop_map(Want::Whole),
        (1u32..1_001, 0u64..40).prop_map(|(compute, gib)| share(compute, gib)),
        (1u8..8, 0u64..40).prop_map(|(slices, gib)| slice(slices, gib)),
    ]
}

fn asks() -> impl Strategy<Value = Ask> {
    (wants(), 0u64..20_000, 0u64..100, 1u64..4, 0u16..2).prop_map(|(want, cpu_milli, gib, models, trust)| {
        Ask { want, cpu_milli, memory_bytes: gib * GIB, models, trust: Trust(trust) }
    })
}

/// A cluster of both kinds, negative amounts among them.
fn cluster() -> Packing {
    let mut packing = Packing::new(vec![kind(Some(&A100_80GB)), Kind { model: 1, ..kind(None) }]);
    for (kind, devices, cpu_milli) in
        [(0, 4, 64_000), (1, 2, 16_000), (0, 4, 64_000), (1, 8, 96_000), (0, 2, -5)]
    {
        packing.add(NodeState::empty(kind, devices, cpu_milli, 512 << 30).unwrap()).unwrap();
    }
    packing
}

/// Whether a request fits a node, asked of the definition: some part can be taken.
fn fits(packing: &Packing, node: u32, ask: &Ask, kinds: &[Kind; 2]) -> bool {
    let state = packing.node(node).unwrap();
    let hardware = &kinds[usize::from(state.kind)];
    let devices = 0..u8::try_from(state.devices().len()).unwrap();
    let mut parts = vec![Part::Nothing];
    parts.extend((0..1u64 << devices.end).map(|mask| Part::Whole(phalanx_model::DeviceMask(mask))));
    parts.extend(devices.clone().map(|device| Part::Share { device }));
    let slices = devices
        .flat_map(|device| (0..7).flat_map(move |profile| (0..8).map(move |start| (device, profile, start))));
    parts.extend(slices.map(|(device, profile, start)| Part::Slice { device, profile, start }));
    parts.into_iter().any(|part| state.clone().take(hardware, ask, part).is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A place is given exactly when there is one, and it can be taken; the books after each change are those made
    /// anew from the nodes; giving all back gives the same cluster.
    #[test]
    fn places_hold_and_everything_comes_back(steps in prop::collection::vec((asks(), any::<bool>(), 0usize..64), 1..60)) {
        let kinds = [kind(Some(&A100_80GB)), Kind { model: 1, ..kind(None) }];
        let mut packing = cluster();
        let mut taken: Vec<(u32, Ask, Part)> = Vec::new();
        for (ask, is_release, which) in steps {
            if is_release && !taken.is_empty() {
                let (node, ask, part) = taken.swap_remove(which % taken.len());
                packing.give_back(node, &ask, part).unwrap();
            }
            packing.observe(&ask);
            let spot = packing.choose(&ask);
            prop_assert_eq!(spot.is_some(), (0..5).any(|node| fits(&packing, node, &ask, &kinds)));
            let Some(spot) = spot else { continue };
            prop_assert_eq!(packing.choose_on(spot.node, &ask), Some(spot));
            packing.take(spot.node, &ask, spot.part).unwrap();
            packing.check();
            taken.push((spot.node, ask, spot.part));
        }
        for (node, ask, part) in taken {
            packing.give_back(node, &ask, part).unwrap();
        }
        let fresh = cluster();
        for node in 0..5 {
            prop_assert_eq!(packing.node(node).unwrap().canonical(), fresh.node(node).unwrap().canonical());
        }
    }

    /// The order in which devices were taken does not make another state.
    #[test]
    fn equal_nodes_are_one_state(mut parts in prop::collection::vec((0u8..4, 1u32..400), 1..8)) {
        let hardware = kind(None);
        let filled = |parts: &[(u8, u32)]| {
            let mut state = node(4);
            for (device, compute) in parts {
                _ = state.take(&hardware, &Ask { cpu_milli: 0, ..ask(share(*compute, 0)) }, Part::Share { device: *device });
            }
            state
        };
        let one = filled(&parts);
        parts.iter_mut().for_each(|(device, _)| *device = 3 - *device);
        prop_assert_eq!(one.canonical(), filled(&parts).canonical());
    }
}
