//! Rules beside amounts of devices: named resources, limits of domains, spread, exclusive nodes, models of different
//! speed, nodes that are avoided or preferred, devices that are kept for some gangs.

#![allow(clippy::unwrap_used)]

use phalanx_engine::Placer;
use phalanx_model::{
    DomainLimit, DomainName, Gang, Input, JobId, Kept, LevelName, Levels, ModelNeed, Node, NodeName, NodeSet,
    Pattern, Reason, ResourceName, Spread, Traffic,
};
use phalanx_testkit::{Watched, costs, gang, job, levels, node};

fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).unwrap()
}

fn level(name: &str) -> LevelName {
    LevelName::new(name).unwrap()
}

/// Two racks of two nodes of 4 GPUs.
fn racks() -> (Levels, Vec<Node>) {
    let nodes = ["a1", "a2", "b1", "b2"].map(|name| {
        let rack = if name.starts_with('a') { "rack-a" } else { "rack-b" };
        node(name).path(["all", rack]).gpus(4).nvswitch().build()
    });
    (levels(&["cluster", "rack"]), nodes.into())
}

fn with_power(watts: u64) -> Levels {
    let (mut levels, _) = racks();
    let limit =
        |path, amount| DomainLimit { level: level("rack"), path, resource: resource("power_w"), amount };
    let path = ["all", "rack-b"].map(|name| DomainName::new(name).unwrap());
    levels.limits = vec![limit(None, watts), limit(Some(path.into()), 700)];
    levels
}

fn powered(mut gang: Gang) -> Gang {
    gang.needs.named = [(resource("power_w"), 700)].into();
    gang
}

/// Members by node.
fn members(placer: &mut Placer, gang: &Gang) -> Option<Vec<(String, usize)>> {
    placer.place(gang)?;
    let mut nodes: Vec<(String, usize)> = Vec::new();
    for slot in placer.placement(gang).unwrap().slots {
        match nodes.iter_mut().find(|(name, _)| *name == slot.node.as_str()) {
            Some((_, count)) => *count += 1,
            None => nodes.push((slot.node.to_string(), 1)),
        }
    }
    nodes.sort();
    Some(nodes)
}

fn on(nodes: &[(&str, usize)]) -> Option<Vec<(String, usize)>> {
    Some(nodes.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect())
}

#[test]
fn a_rack_has_power_for_so_many() {
    let (_, nodes) = racks();
    // Rack a has power for three members, rack b by its own setting for one.
    let mut placer = Placer::new(&with_power(2_100), nodes.clone(), &costs(&nodes));
    assert_eq!(members(&mut placer, &powered(gang(5).devices(1).build())), None);
    let four = powered(gang(4).devices(1).build());
    let placed = members(&mut placer, &four).unwrap();
    let in_a: usize = placed.iter().filter(|(name, _)| name.starts_with('a')).map(|(_, count)| count).sum();
    assert_eq!((placed.iter().map(|(_, count)| count).sum::<usize>(), in_a), (4, 3));
    placer.take(&four);
    let shares: Vec<_> = placer.shares().collect();
    assert_eq!(members(&mut placer, &powered(gang(1).devices(1).build())), None, "all power is used");
    assert!(placer.place(&gang(1).devices(1).build()).is_some(), "who needs no power is not asked for it");
    placer.give_back(&four, &shares);
    assert!(placer.place(&four).is_some());
}

#[test]
fn a_job_waits_for_power_and_starts_when_there_is_some() {
    let (_, nodes) = racks();
    let mut watched = Watched::with_nodes(&with_power(1_400), &nodes);
    let submit = |id: u64, size: u32| {
        let mut built = job(id, gang(size).devices(1).required("rack")).build();
        built.gangs[0] = powered(built.gangs[0].clone());
        Input::JobSubmitted { job: Box::new(built) }
    };
    watched.step(&[submit(1, 2)]);
    watched.step(&[submit(2, 2)]);
    let reason = watched.engine.reason(JobId(2).gang(0)).unwrap();
    assert!(matches!(reason, Reason::Topology { .. } | Reason::Resources { .. }), "{reason:?}");
    watched.step(&[Input::CancelRequested { job: JobId(1), by: "user".into() }]);
    let ranks = (0..2).map(|rank| phalanx_model::MemberId { gang: JobId(1).gang(0), attempt: 1, rank });
    let ended = ranks.map(|member| Input::MemberExited { member, exit: phalanx_model::Exit::code(0) });
    watched.step(&ended.collect::<Vec<_>>());
    assert!(watched.record(JobId(2).gang(0)).placement.is_some());
}

#[test]
fn named_resources_of_nodes_are_counted() {
    let (levels, mut nodes) = racks();
    for node in nodes.iter_mut().take(3) {
        let mut machine = (*node.machine).clone();
        machine.named = [(resource("nic"), 2)].into();
        node.machine = machine.into();
    }
    let mut placer = Placer::new(&levels, nodes.clone(), &costs(&nodes));
    let with_nic = |size| {
        let mut gang = gang(size).devices(1).build();
        gang.needs.named = [(resource("nic"), 1)].into();
        gang
    };
    assert_eq!(members(&mut placer, &with_nic(7)), None, "six NICs in all");
    assert_eq!(members(&mut placer, &with_nic(6)), on(&[("a1", 2), ("a2", 2), ("b1", 2)]));
}

#[test]
fn members_are_spread_over_racks_and_nodes() {
    let (levels, nodes) = racks();
    let mut placer = Placer::new(&levels, nodes.clone(), &costs(&nodes));
    let spread = |size, of: &str, max| {
        let mut gang = gang(size).devices(1).build();
        gang.topology.spread = vec![Spread { level: level(of), max }];
        gang
    };
    assert_eq!(members(&mut placer, &spread(3, "rack", 1)), None);
    assert_eq!(members(&mut placer, &spread(2, "rack", 1)).map(|on| on.len()), Some(2));
    assert_eq!(members(&mut placer, &spread(4, "node", 1)).map(|on| on.len()), Some(4));
    assert_eq!(members(&mut placer, &spread(5, "node", 1)), None);
    // A single member is never apart from itself.
    assert_eq!(members(&mut placer, &spread(1, "cluster", 1)).map(|on| on.len()), Some(1));
    assert_eq!(members(&mut placer, &spread(2, "cluster", 1)), None);
}

#[test]
fn an_exclusive_gang_has_its_nodes_for_itself() {
    let (levels, nodes) = racks();
    let mut watched = Watched::with_nodes(&levels, &nodes);
    let submit = |id: u64, size: u32, devices: u32, is_exclusive: bool| {
        let mut built = job(id, gang(size).devices(devices)).build();
        built.gangs[0].needs.is_exclusive = is_exclusive;
        Input::JobSubmitted { job: Box::new(built) }
    };
    // A process without any device counts as well.
    watched.step(&[submit(1, 1, 0, false)]);
    watched.step(&[submit(2, 3, 2, true)]);
    let nodes_of = |watched: &Watched, id: u64| {
        let placement = watched.record(JobId(id).gang(0)).placement.clone();
        let mut nodes: Vec<NodeName> =
            placement.iter().flat_map(|p| &p.slots).map(|slot| slot.node.clone()).collect();
        nodes.dedup();
        nodes
    };
    let (first, second) = (nodes_of(&watched, 1), nodes_of(&watched, 2));
    assert!(!second.is_empty() && !second.contains(&first[0]), "{first:?} {second:?}");
    watched.step(&[submit(3, 1, 4, true)]);
    let third = nodes_of(&watched, 3);
    assert!(third.iter().all(|node| !second.contains(node) && !first.contains(node)));
    watched.step(&[submit(4, 8, 1, false)]);
    let fourth = nodes_of(&watched, 4);
    assert!(fourth.iter().all(|node| !second.contains(node) && !third.contains(node)), "{fourth:?}");
}

#[test]
fn of_two_models_the_one_with_the_shorter_step_is_taken() {
    let fast =
        ["f1", "f2"].map(|name| node(name).path(["all", name]).gpus(2).model("H100").nvswitch().build());
    let slow = node("s").path(["all", "s"]).gpus(4).model("A100").nvswitch().build();
    let nodes = [fast[0].clone(), fast[1].clone(), slow];
    let mut placer = Placer::new(&levels(&["cluster", "leaf"]), nodes.clone(), &costs(&nodes));
    let mut four = gang(4).devices(1).build();
    let model = |model: &str, speed_milli| ModelNeed { model: model.into(), speed_milli };
    four.needs.models = vec![model("h100", 1_000), model("a100", 400)];
    assert_eq!(
        members(&mut placer, &four),
        on(&[("f1", 2), ("f2", 2)]),
        "who says nothing gets the fast ones"
    );
    let talks = |compute_ns| Some(Traffic { pattern: Pattern::AllReduce, bytes: 1 << 32, compute_ns });
    four.traffic = talks(1_000_000_000_000);
    assert_eq!(members(&mut placer, &four), on(&[("f1", 2), ("f2", 2)]));
    four.traffic = talks(1_000);
    assert_eq!(
        members(&mut placer, &four),
        on(&[("s", 4)]),
        "what it sends counts more than what it computes"
    );
    let mut six = gang(6).devices(1).build();
    six.needs.models.clone_from(&four.needs.models);
    assert_eq!(members(&mut placer, &six).map(|on| on.len()), Some(2), "on both when neither is enough");
    six.needs.models.pop();
    assert_eq!(members(&mut placer, &six), None);
}

#[test]
fn devices_that_are_kept_for_a_set_are_for_its_gangs_alone() {
    let (of_all, of_few) = (NodeSet::new("all"), NodeSet::new("few"));
    let nodes = ["a", "b"].map(|name| {
        let mut node = node(name).gpus(4).pcie().build();
        node.sets = vec![of_all.clone(), of_few.clone()];
        node.kept = Kept([(of_few.clone(), "2-3".parse().unwrap())].into());
        node
    });
    let mut placer = Placer::new(&levels(&["cluster"]), nodes.clone(), &costs(&nodes));
    let mut gang = |set: Option<&NodeSet>, devices| {
        let mut gang = gang(2).devices(devices).build();
        gang.needs.within = set.cloned();
        members(&mut placer, &gang)
    };
    for set in [None, Some(&of_all)] {
        assert_eq!(gang(set, 3), None, "each node has two for all");
        assert!(gang(set, 2).is_some());
    }
    assert_eq!(gang(Some(&of_few), 4), on(&[("a", 1), ("b", 1)]));
}

#[test]
fn a_preferred_set_holds_the_whole_gang_or_does_not_count() {
    let (all, plain) = (NodeSet::new("all"), NodeSet::new("plain"));
    let nodes = ["a", "b", "c"].map(|name| {
        let mut node = node(name).gpus(4).pcie().build();
        node.sets = vec![all.clone()];
        if name != "a" {
            node.sets.push(plain.clone());
        }
        node
    });
    let mut placer = Placer::new(&levels(&["cluster"]), nodes.clone(), &costs(&nodes));
    let mut asked = gang(4).devices(1).role("launcher", gang(1).devices(1)).build();
    for needs in [&mut asked.needs, &mut asked.roles[0].needs] {
        (needs.within, needs.prefer_within) = (Some(all.clone()), Some(plain.clone()));
    }
    let is_on_a = |placed: &[(String, usize)]| placed.iter().any(|(name, _)| name == "a");
    let placed = members(&mut placer, &asked).unwrap();
    assert!(!is_on_a(&placed), "{placed:?}");
    (asked.size, asked.min, asked.max) = (8, 8, 8);
    let placed = members(&mut placer, &asked).unwrap();
    assert!(is_on_a(&placed), "nine are more than the set has: {placed:?}");
    asked.needs.prefer_within = None;
    asked.roles[0].needs.prefer_within = None;
    (asked.size, asked.min, asked.max) = (3, 3, 3);
    let placed = members(&mut placer, &asked).unwrap();
    assert!(is_on_a(&placed), "the first node is the usual choice: {placed:?}");
}

#[test]
fn a_favoured_set_is_taken_where_it_is_as_good() {
    let (all, favoured) = (NodeSet::new("all"), NodeSet::new("favoured"));
    // Two racks of two nodes; one node of each is favoured.
    let nodes = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")].map(|(name, rack)| {
        let mut node = node(name).gpus(4).path(["cluster", rack]).pcie().build();
        node.sets = vec![all.clone()];
        if name.ends_with('2') {
            node.sets.push(favoured.clone());
        }
        node
    });
    let mut placer = Placer::new(&levels(&["cluster", "rack"]), nodes.to_vec(), &costs(&nodes));
    let mut asked = |size: u32, devices: u32| {
        let mut gang = gang(size).devices(devices).build();
        (gang.needs.within, gang.needs.favour_within) = (Some(all.clone()), Some(favoured.clone()));
        members(&mut placer, &gang)
    };
    assert_eq!(asked(1, 4), on(&[("a2", 1)]), "nodes are equal but for the wish");
    assert_eq!(asked(2, 2), on(&[("a2", 2)]));
    assert_eq!(asked(2, 4), on(&[("a1", 1), ("a2", 1)]), "one rack is nearer than two favoured nodes in two");
    assert_eq!(asked(4, 4), on(&[("a1", 1), ("a2", 1), ("b1", 1), ("b2", 1)]));
}

#[test]
fn nodes_are_avoided_and_preferred() {
    let (levels, nodes) = racks();
    let mut placer = Placer::new(&levels, nodes.clone(), &costs(&nodes));
    let name = |name: &str| NodeName::new(name).unwrap();
    let mut gang = gang(4).devices(1).build();
    gang.needs.prefer = vec![name("b2")];
    assert_eq!(members(&mut placer, &gang), on(&[("b2", 4)]));
    gang.needs.avoid = vec![name("b2"), name("a1"), name("nobody")];
    assert_eq!(members(&mut placer, &gang), on(&[("a2", 4)]), "what is avoided is not preferred");
    gang.needs.avoid.extend([name("a2"), name("b1")]);
    assert_eq!(members(&mut placer, &gang), None);
}
