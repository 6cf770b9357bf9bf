//! Parts of devices from the submission to the order: refusals, placements, and changes of devices before a start.

#![allow(clippy::unwrap_used)]

use phalanx_engine::{Instance, Placer, Reshape};
use phalanx_model::{
    Change, DevicePart, Gang, GangId, Input, JobId, LevelName, Levels, Node, NodeName, Order, Outcome,
    Placement, Reason, Rejection, Segment,
};
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::{Watched, costs, gang, job, levels, node, queue};

const GIB: u64 = 1 << 30;

fn h100(name: &str, leaf: &str, gpus: u32) -> Node {
    let node = node(name).path(["c", leaf]).gpus(gpus).model("NVIDIA H100 80GB HBM3");
    node.device_memory(80 * GIB).memory(4_000 * GIB).build()
}

fn cluster() -> (Levels, Vec<Node>) {
    (levels(&["cluster", "leaf"]), vec![h100("a", "l1", 1), h100("b", "l2", 2)])
}

fn watched() -> Watched {
    let (levels, nodes) = cluster();
    Watched::with_nodes(&levels, &nodes)
}

fn submit(watched: &mut Watched, id: u64, gang: Gang) -> Outcome {
    watched.step(&[Input::JobSubmitted { job: Box::new(job(id, gang).build()) }])
}

/// Field and reason of a refusal.
fn refusal(gang: Gang) -> (String, String) {
    let out = submit(&mut watched(), 1, gang);
    match out.changes.first() {
        Some(Change::JobRejected { why: Rejection::BadField { field, why }, .. }) => {
            (field.clone(), why.clone())
        }
        other => panic!("{other:?}"),
    }
}

fn started(out: &Outcome) -> Option<&Placement> {
    out.effects.iter().find_map(|effect| match &effect.order {
        Order::StartMembers { placement, .. } => Some(placement),
        _ => None,
    })
}

fn first(id: u64) -> GangId {
    JobId(id).gang(0)
}

#[test]
fn what_no_device_can_do_is_refused_with_what_one_can() {
    let both = gang(1).share(500, 0, "me").devices(1).build();
    assert_eq!(refusal(both).0, "devices");
    let (field, why) = refusal(gang(1).share(0, 0, "me").build());
    assert_eq!((field.as_str(), why.as_str()), ("part", "the part is empty: give compute, memory or both"));
    let (_, why) = refusal(gang(1).slice(1_001, 0).build());
    assert_eq!(why, "a part has at most 1000 thousandths of the compute of a device, and this part has 1001");
    let (_, why) = refusal(gang(1).profile("9g.90gb").build());
    let known = "1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb";
    assert_eq!(
        why,
        format!("9g.90gb is not a known MIG profile; the devices of this cluster support {known}")
    );
    let mut parted = gang(4).share(500, 0, "me").build();
    parted.topology.segments = vec![Segment { size: 2, level: LevelName::new("node").unwrap() }];
    assert_eq!(refusal(parted).0, "segments");
    let out = submit(&mut watched(), 1, gang(1).profile("1g.5gb").build());
    let too_large = |why: &Rejection| matches!(why, Rejection::LargerThanCluster { largest: 0, .. });
    assert!(
        matches!(out.changes.first(), Some(Change::JobRejected { why, .. }) if too_large(why)),
        "a profile of boards that are elsewhere: {:?}",
        out.changes
    );
}

#[test]
fn an_order_says_which_part_and_a_question_what_to_do_first() {
    let mut watched = watched();
    let out = submit(&mut watched, 1, gang(2).profile("1g.10gb").build());
    let slots = &started(&out).unwrap().slots;
    let part = |start| Some(DevicePart::Slice { profile: "1g.10gb".to_owned(), start });
    assert_eq!([&slots[0].part, &slots[1].part], [&part(6), &part(5)]);
    let at = NodeName::new("a").unwrap();
    assert!(slots.iter().all(|slot| slot.node == at && slot.devices.count() == 1), "{slots:?}");
    let instance = |profile: &str, start| Instance { profile: profile.to_owned(), start };
    let small = [instance("1g.10gb", 6), instance("1g.10gb", 5)];
    let reshape = |create: &[Instance], keep: &[Instance]| {
        let (create, keep) = (create.to_vec(), keep.to_vec());
        vec![Reshape { node: at.clone(), device: 0, mig: Some(true), create, keep }]
    };
    assert_eq!(watched.engine.reshapes(first(1)), reshape(&small, &[]));
    let training = submit(&mut watched, 2, gang(1).slice(500, 30 * GIB).build());
    assert_eq!(started(&training).unwrap().slots[0].node, at, "beside the services, on one GPU");
    let kept = [instance("1g.10gb", 5), instance("1g.10gb", 6)];
    assert_eq!(watched.engine.reshapes(first(2)), reshape(&[instance("4g.40gb", 0)], &kept));
    assert_eq!(watched.engine.reshapes(first(3)), []);
}

#[test]
fn a_gpu_that_was_cut_is_made_whole_again() {
    let (levels, mut nodes) = cluster();
    nodes.truncate(1);
    let machine = std::sync::Arc::make_mut(&mut nodes[0].machine);
    machine.devices[0].is_sliced = true;
    let mut watched = Watched::with_nodes(&levels, &nodes);
    submit(&mut watched, 1, gang(2).share(500, GIB, "me").build());
    let reshapes = watched.engine.reshapes(first(1));
    assert_eq!(reshapes.len(), 1);
    assert_eq!((reshapes[0].mig, reshapes[0].create.len()), (Some(false), 0));
}

#[test]
fn reasons_count_what_fits() {
    let mut watched = watched();
    submit(&mut watched, 1, gang(7).share(500, GIB, "me").build());
    let reason = |watched: &Watched, id| watched.engine.reason(first(id));
    assert_eq!(reason(&watched, 1), None, "seven halves do not fit on three devices and are refused");
    submit(&mut watched, 2, gang(5).share(500, GIB, "me").build());
    submit(&mut watched, 3, gang(2).share(500, GIB, "me").build());
    assert_eq!(reason(&watched, 3), Some(Reason::Resources { asked: 2, fits: 1, segments: Vec::new() }));
    submit(&mut watched, 4, gang(1).share(500, GIB, "others").build());
    assert_eq!(reason(&watched, 4), Some(Reason::Resources { asked: 1, fits: 0, segments: Vec::new() }));
    submit(&mut watched, 5, gang(1).devices(1).build());
    assert!(matches!(reason(&watched, 5), Some(Reason::Resources { .. })));
}

fn any_gang() -> impl Strategy<Value = Gang> {
    let sizes = 1_u32..5;
    let whole = sizes.clone().prop_map(|size| gang(size).devices(1));
    let share = (sizes.clone(), prop::sample::select(vec![200, 250, 500, 700]), 1_u64..40, prop::bool::ANY);
    let share = share.prop_map(|(size, compute, gib, mine)| {
        gang(size).share(compute, gib * GIB, if mine { "me" } else { "them" })
    });
    let slice =
        (sizes, 0_u32..600, 1_u64..40).prop_map(|(size, compute, gib)| gang(size).slice(compute, gib * GIB));
    prop_oneof![1 => whole, 2 => share, 2 => slice].prop_map(|gang| gang.cpu_milli(500).build())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The order in which nodes arrive changes nothing. Other names in the same order change only the names.
    #[test]
    fn arrival_and_names_of_nodes_do_not_matter(
        gangs in prop::collection::vec((any_gang(), prop::bool::ANY), 1..20),
        turn in 0_usize..4,
    ) {
        let names = ["n1", "n2", "n3", "n4"];
        let build = |names: &[&str; 4]| -> Vec<Node> {
            let places = [("l1", 1), ("l1", 2), ("l2", 1), ("l2", 2)];
            names.iter().zip(places).map(|(name, (leaf, gpus))| h100(name, leaf, gpus)).collect()
        };
        let levels = levels(&["cluster", "leaf"]);
        let mut turned = build(&names);
        turned.rotate_left(turn);
        let renamed = build(&["k1", "k2", "m3", "z"]);
        let placer = |nodes: Vec<Node>| {
            let costs = costs(&nodes);
            Placer::new(&levels, nodes, &costs)
        };
        let mut all = [placer(build(&names)), placer(turned), placer(renamed)];
        let mut running = Vec::new();
        for (gang, ends) in gangs {
            let found = all.each_mut().map(|placer| placer.place(&gang).map(|found| (found, placer.shares().collect::<Vec<_>>())));
            prop_assert_eq!(&found[0], &found[1]);
            prop_assert_eq!(&found[0], &found[2]);
            let [Some((_, shares)), ..] = found else { continue };
            all.iter_mut().for_each(|placer| placer.take(&gang));
            running.push((gang, shares));
            if ends {
                let (gang, shares) = running.swap_remove(0);
                all.iter_mut().for_each(|placer| placer.give_back(&gang, &shares));
            }
        }
    }

    /// Watched by the checker, a mix of whole gangs, shares and slices starts, waits, ends and survives restarts.
    #[test]
    fn a_mix_is_kept_by_the_rules(gangs in prop::collection::vec((any_gang(), 0_u8..4), 1..25)) {
        let mut watched = watched();
        for (id, (gang, then)) in (1_u64..).zip(gangs) {
            submit(&mut watched, id, gang);
            match then {
                0 => _ = watched.step(&[Input::CancelRequested { job: JobId(id / 2 + 1), by: "me".to_owned() }]),
                1 => _ = watched.restart(),
                _ => {}
            }
        }
    }
}

/// A search of the future for another gang released a part on a reserved device, and the ledger then counted the device
/// as free.
#[test]
fn a_reserved_device_that_runs_in_part_is_not_free() {
    let mut watched = Watched::with_nodes(&levels(&["cluster", "leaf"]), &[h100("b", "l2", 2)]);
    let submit = |watched: &mut Watched, id: u64, gang: Gang| {
        let job = job(id, gang).time_limit(60_000 * (id + 1)).build();
        watched.step(&[Input::JobSubmitted { job: Box::new(job) }])
    };
    let out = submit(&mut watched, 1, gang(1).share(500, 0, "me").build());
    let runs_on = started(&out).unwrap().slots[0].devices;
    // One device is free, and two gangs reserve both devices.
    for id in [2, 3, 4] {
        submit(&mut watched, id, gang(2).devices(1).build());
    }
    let reserved = watched.record(first(2)).reserved.clone().unwrap();
    assert!(reserved.placement.slots.iter().any(|slot| slot.devices == runs_on));
    let name = &watched.engine.nodes().next().unwrap().name.clone();
    let free = watched.engine.free(name).unwrap().devices;
    assert_eq!((free.count(), free.and(runs_on).count()), (1, 0));
}

/// A reservation counted a device twice if two of its members are to share the device, and free capacity then missed it.
#[test]
fn a_device_that_members_are_to_share_is_reserved_once() {
    let nodes = [h100("a", "l1", 1), h100("b", "l2", 1)];
    let mut watched = Watched::with_nodes(&levels(&["cluster", "leaf"]), &nodes);
    let submit = |watched: &mut Watched, id: u64, gang: Gang| {
        let job = job(id, gang).time_limit(60_000 * id).build();
        watched.step(&[Input::JobSubmitted { job: Box::new(job) }])
    };
    submit(&mut watched, 1, gang(1).devices(1).build());
    // Two members on each device, of which one is idle.
    submit(&mut watched, 2, gang(4).share(500, 0, "me").build());
    assert_eq!(watched.record(first(2)).reserved.as_ref().map(|r| r.placement.slots.len()), Some(4));
    let free = |watched: &Watched| -> u32 {
        let nodes = watched.engine.nodes().map(|node| node.name.clone());
        nodes.filter_map(|node| watched.engine.free(&node)).map(|free| free.devices.count()).sum()
    };
    assert_eq!(free(&watched), 1);
    watched.restart();
    assert_eq!(free(&watched), 1);
}

/// Two GPUs of four replicas each, one of 48, and two that are whole.
fn divided() -> Watched {
    let of = |name: &str, gpus, replicas| {
        node(name).path(["c", "l1"]).gpus(gpus).model("NVIDIA H100 80GB HBM3").replicas(replicas)
    };
    let nodes = [of("four", 2, 4), of("many", 1, 48), of("whole", 2, 0)];
    Watched::with_nodes(&levels(&["cluster", "leaf"]), &nodes.map(|node| node.build()))
}

#[test]
fn a_replica_is_a_part_of_a_divided_device_or_a_whole_one() {
    let mut watched = divided();
    let mut by_node: std::collections::BTreeMap<String, u32> = std::collections::BTreeMap::new();
    for id in 1..=60 {
        let out = submit(&mut watched, id, gang(1).replica().build());
        let Some(placement) = started(&out) else { continue };
        let slot = &placement.slots[0];
        assert_eq!((slot.devices.count(), &slot.part), (1, &Some(DevicePart::Share)));
        *by_node.entry(slot.node.to_string()).or_default() += 1;
    }
    let counts: Vec<(&str, u32)> = by_node.iter().map(|(node, count)| (node.as_str(), *count)).collect();
    assert_eq!(counts, [("four", 8), ("many", 48), ("whole", 2)], "as many as there are, and no more");
}

#[test]
fn nobody_has_a_whole_device_of_a_node_that_divides_them() {
    let mut watched = divided();
    let out = submit(&mut watched, 1, gang(1).devices(2).build());
    assert_eq!(started(&out).unwrap().slots[0].node.as_str(), "whole");
    for other in [gang(1).devices(1), gang(1).share(10, 0, "me"), gang(1).profile("1g.10gb")] {
        let mut watched = divided();
        for id in 1..=2 {
            submit(&mut watched, id, gang(1).devices(1).on(["whole"]).build());
        }
        let out = submit(&mut watched, 3, other.build());
        assert!(started(&out).is_none(), "{out:?}");
    }
    let out = submit(&mut watched, 2, gang(3).devices(1).build());
    assert!(matches!(
        out.changes.first(),
        Some(Change::JobRejected { why: Rejection::LargerThanCluster { .. }, .. })
    ));
}

/// A fourth of a GPU counts as a fourth of a GPU.
#[test]
fn a_queue_is_charged_for_replicas_and_not_for_whole_devices() {
    let mut watched = divided();
    watched.step(&[queue("one").limit("gpus", 1).observed()]);
    let mut running = 0;
    for id in 1..=9 {
        let gang = gang(1).replica().on(["four"]).build();
        let out = watched.step(&[Input::JobSubmitted { job: Box::new(job(id, gang).queue("one").build()) }]);
        running += u32::from(started(&out).is_some());
    }
    assert_eq!(running, 4);
}
