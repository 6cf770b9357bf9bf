//! The capacity that single requests take from others in a cluster of several models.

#![allow(clippy::unwrap_used)]

use phalanx_engine::{Placer, Share};
use phalanx_model::{Gang, Needs, Node, PartNeed};
use phalanx_testkit::{costs, gang, levels, node};
use proptest::prelude::*;

fn placer(nodes: &[Node]) -> Placer {
    Placer::new(&levels(&["cluster"]), nodes.to_vec(), &costs(nodes))
}

fn of_model(name: &str, model: &str, gpus: u32) -> Node {
    node(name).gpus(gpus).model(model).cpus(32).build()
}

fn whole(devices: u32, model: Option<&str>) -> Gang {
    let mut gang = gang(1).devices(devices).cpu_milli(1_000).build();
    gang.needs.models = model.map_or(Vec::new(), Needs::of_model);
    gang
}

fn share(compute_milli: u32, model: Option<&str>) -> Gang {
    let part = PartNeed::Share { compute_milli, memory_bytes: 0, trust: "all".into() };
    let mut gang = whole(0, model);
    gang.needs.part = Some(part);
    gang
}

fn put(placer: &mut Placer, gang: &Gang) -> Option<Vec<Share>> {
    placer.place(gang)?;
    placer.take(gang);
    Some(placer.shares().collect())
}

fn node_of(placer: &Placer, shares: &[Share]) -> String {
    placer.nodes().nth(shares[0].node as usize).unwrap().to_string()
}

/// Gangs that request an A100 run; gangs that accept any model leave the A100s to them, whole or in part.
#[test]
fn a_model_that_others_need_is_spared() {
    let nodes = [of_model("a", "A100", 4), of_model("b", "T4", 4)];
    let mut placer = placer(&nodes);
    put(&mut placer, &whole(1, Some("A100"))).unwrap();
    for any in [share(500, None), whole(1, None), share(500, None)] {
        let shares = put(&mut placer, &any).unwrap();
        assert_eq!(node_of(&placer, &shares), "b");
    }
    assert!(put(&mut placer, &whole(3, Some("a100"))).is_some(), "three are left");
}

/// Nodes of a model stay whole for gangs that request whole nodes.
#[test]
fn whole_nodes_are_left_to_those_who_ask_for_them() {
    let nodes = [of_model("a", "A100", 8), of_model("b", "A100", 8), of_model("c", "T4", 1)];
    let mut placer = placer(&nodes);
    let eight = put(&mut placer, &whole(8, None)).unwrap();
    let one = put(&mut placer, &whole(1, Some("A100"))).unwrap();
    assert_ne!(node_of(&placer, &one), node_of(&placer, &eight));
    placer.give_back(&whole(8, None), &eight);
    let other = put(&mut placer, &share(250, Some("A100"))).unwrap();
    assert_eq!(node_of(&placer, &other), node_of(&placer, &one));
    assert!(put(&mut placer, &whole(8, None)).is_some());
}

fn asks() -> impl Strategy<Value = Gang> {
    let model = prop_oneof![2 => Just(None), 1 => Just(Some("A100")), 1 => Just(Some("T4"))];
    (prop_oneof![Just(0_u32), 1..=4_u32], 0_u64..8, 1_u32..8, model).prop_map(
        |(devices, cpus, eighths, model)| {
            let mut gang = if devices == 0 { share(eighths * 125, model) } else { whole(devices, model) };
            gang.needs.cpu_milli = cpus * 1_000;
            gang
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The placement of a request is a function of what runs, and not of how that came about: so a restart changes
    /// nothing.
    #[test]
    fn a_place_does_not_depend_on_what_was_before(
        steps in prop::collection::vec((asks(), any::<bool>(), 0_usize..64), 1..40),
        last in asks(),
    ) {
        let nodes: Vec<Node> = (0..6)
            .map(|i| of_model(&format!("n{i}"), if i < 3 { "A100" } else { "T4" }, 4))
            .collect();
        let mut lived = placer(&nodes);
        let mut running: Vec<(Gang, Vec<Share>)> = Vec::new();
        for (ask, ends, at) in steps {
            if ends && !running.is_empty() {
                let (gang, shares) = running.swap_remove(at % running.len());
                lived.give_back(&gang, &shares);
            } else if let Some(shares) = put(&mut lived, &ask) {
                running.push((ask, shares));
            }
        }
        let mut restarted = placer(&nodes);
        for (gang, shares) in &running {
            restarted.take_shares(gang, shares);
        }
        let (lived_found, restarted_found) = (lived.place(&last), restarted.place(&last));
        prop_assert_eq!(lived_found, restarted_found);
        if lived_found.is_some() {
            prop_assert_eq!(lived.shares().collect::<Vec<_>>(), restarted.shares().collect::<Vec<_>>());
        }
    }
}
