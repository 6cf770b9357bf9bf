//! Measured bandwidth: new gangs of several nodes avoid slow links where the cost model says so, and never wait for it.

#![allow(clippy::unwrap_used)]

use phalanx_model::{
    Bandwidth, Change, CostTable, Decision, DomainName, Gang, GangRecord, Input, LevelCost, LevelName, Node,
    NodeName, Outcome, Timestamp, Uplink, WeighedLink,
};
use phalanx_testkit::{Watched, costs, gang, job, levels, node};

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn measured(uplink: Uplink, permille: u16) -> Input {
    let (at, detail) = (Timestamp(0), "perftest".to_owned());
    let bandwidth = Bandwidth { uplink, permille, counts_permille: permille, at, detail };
    Input::BandwidthMeasured { bandwidth }
}

fn of_node(node: &str, permille: u16) -> Input {
    measured(Uplink::Node(name(node)), permille)
}

fn of_leaf(leaf: &str, permille: u16) -> Input {
    let path = ["cluster", leaf].map(|name| DomainName::new(name).unwrap());
    measured(Uplink::Domain(path.to_vec()), permille)
}

/// Two equal racks of two nodes.
fn two_racks() -> Watched {
    let of = |name: &str, leaf: &str| node(name).path(["cluster", leaf]).gpus(8).nvswitch().build();
    let nodes = [of("a-1", "a"), of("a-2", "a"), of("b-1", "b"), of("b-2", "b")];
    Watched::with_nodes(&levels(&["cluster", "leaf"]), &nodes)
}

fn submitted(id: u64, ranks: u32) -> Input {
    Input::JobSubmitted { job: Box::new(job(id, gang(ranks).devices(8)).build()) }
}

fn nodes_of(record: &GangRecord) -> Vec<String> {
    let slots = record.placement.iter().flat_map(|placement| &placement.slots);
    slots.map(|slot| slot.node.to_string()).collect()
}

fn placed(watched: &Watched, id: u64) -> Vec<String> {
    nodes_of(watched.record(phalanx_model::JobId(id).gang(0)))
}

fn refusals(out: &Outcome) -> Vec<String> {
    let why = |change: &Change| match change {
        Change::InputRejected { what, why } => Some(format!("{what}: {why}")),
        _ => None,
    };
    out.changes.iter().filter_map(why).collect()
}

#[test]
fn a_gang_avoids_the_rack_with_a_crowded_node() {
    let mut watched = two_racks();
    watched.step(&[submitted(1, 2)]);
    assert_eq!(placed(&watched, 1), ["a-1", "a-2"], "the first of equal racks");

    let mut watched = two_racks();
    watched.step(&[of_node("a-2", 400)]);
    watched.step(&[submitted(1, 2)]);
    assert_eq!(placed(&watched, 1), ["b-1", "b-2"]);
    // It is a preference: where nothing else is free, the gang starts on the slow node at once.
    watched.step(&[submitted(2, 2)]);
    assert_eq!(placed(&watched, 2), ["a-1", "a-2"]);
    let weighed = |id| watched.record(phalanx_model::JobId(id).gang(0)).weighed.clone();
    let said = |links: Vec<WeighedLink>| -> Vec<String> {
        links.iter().map(|link| link.sentence(Timestamp(240_000))).collect()
    };
    let measured = "its network has 40% of its bandwidth, measured 4m ago (perftest)";
    assert_eq!(said(weighed(1)), [format!("a-2 was avoided: {measured}")]);
    assert_eq!(said(weighed(2)), [format!("a-2 is used: {measured}")]);
    let report = watched.engine.explain(phalanx_model::JobId(2).gang(0)).unwrap();
    assert_eq!(report.weighed, weighed(2), "`why` says so while it runs");
}

#[test]
fn a_gang_prefers_two_racks_to_a_slow_node_where_that_is_faster() {
    let mut watched = two_racks();
    // One node of each rack is slow: crossing racks costs less than a quarter of the bandwidth.
    watched.step(&[of_node("a-1", 250), of_node("b-2", 250), submitted(1, 2)]);
    assert_eq!(placed(&watched, 1), ["a-2", "b-1"]);
}

#[test]
fn the_uplink_of_a_leaf_counts_for_gangs_that_cross_it() {
    let of = |name: &str, leaf: &str| node(name).path(["cluster", leaf]).gpus(8).nvswitch().build();
    let nodes = ["a", "b", "c"].map(|leaf| of(&format!("{leaf}-1"), leaf));
    let mut watched = Watched::with_nodes(&levels(&["cluster", "leaf"]), &nodes);
    watched.step(&[of_leaf("a", 500), submitted(1, 2)]);
    assert_eq!(placed(&watched, 1), ["b-1", "c-1"]);
    let weighed = &watched.record(phalanx_model::JobId(1).gang(0)).weighed;
    assert!(weighed.len() == 1 && weighed[0].is_avoided, "{weighed:?}");
}

#[test]
fn a_gang_on_one_node_needs_no_network_and_leaves_the_fast_ones_to_others() {
    let mut watched = two_racks();
    watched.step(&[of_node("b-1", 500), submitted(1, 1)]);
    assert_eq!(placed(&watched, 1), ["b-1"]);
    assert!(watched.record(phalanx_model::JobId(1).gang(0)).weighed.is_empty());
}

#[test]
fn a_gang_on_several_nodes_takes_none_that_is_slow_where_the_uplink_is_slower() {
    let names = ["a-1", "a-2", "b-1", "b-2"];
    let nodes = names.map(|name| node(name).path(["cluster", &name[..1]]).gpus(8).nvswitch().build());
    let leaf = LevelCost { uplink_mb_per_s: 1_000, ..LevelCost::default() };
    let levels_of = [(LevelName::new("leaf").unwrap(), leaf)].into();
    let table = CostTable { levels: levels_of, ..costs(&nodes) };
    let gang = gang(3).devices(8).build();
    for (slow, rest) in [("b-1", "b-2"), ("b-2", "b-1")] {
        let found = start_of(&table, &nodes, &[], &[of_node(slow, 500)], &gang);
        assert!(!found.contains(&slow.to_owned()) && found.contains(&rest.to_owned()), "{slow}: {found:?}");
    }
}

#[test]
fn only_nodes_that_the_gang_could_have_are_avoided() {
    let of = |name: &str| node(name).path(["cluster", "a"]).gpus(8).nvswitch();
    let nodes = [of("a-1").build(), of("a-2").build(), of("a-3").cpus(1).build()];
    let weighed = |slow: &str, cpus: u64| {
        let mut watched = Watched::with_nodes(&levels(&["cluster", "leaf"]), &nodes);
        let of = gang(2).devices(8).cpu_milli(cpus);
        watched.step(&[of_node(slow, 500)]);
        watched.step(&[Input::JobSubmitted { job: Box::new(job(1, of).build()) }]);
        let weighed = &watched.record(phalanx_model::JobId(1).gang(0)).weighed;
        weighed.iter().map(|link| link.is_avoided).collect::<Vec<_>>()
    };
    assert_eq!(weighed("a-3", 1_000), [true]);
    assert!(weighed("a-3", 2_000).is_empty(), "it has no CPUs for a member");
    assert_eq!(weighed("a-2", 2_000), [false]);
}

#[test]
fn the_links_that_a_gang_uses_are_named_before_those_that_it_avoids() {
    let names = ["a-1", "a-2", "a-3", "a-4", "a-5", "a-6"];
    let nodes = names.map(|name| node(name).path(["cluster", "a"]).gpus(8).nvswitch().build());
    let mut watched = Watched::with_nodes(&levels(&["cluster", "leaf"]), &nodes);
    watched.step(&names[1..].iter().map(|name| of_node(name, 250)).collect::<Vec<_>>());
    watched.step(&[of_node("a-2", 750), submitted(1, 2)]);
    assert_eq!(placed(&watched, 1), ["a-1", "a-2"]);
    let weighed = &watched.record(phalanx_model::JobId(1).gang(0)).weighed;
    let named: Vec<_> = weighed.iter().map(|of| (of.bandwidth.uplink.to_string(), of.is_avoided)).collect();
    assert_eq!((named.len(), &named[0]), (4, &("a-2".to_owned(), false)), "{named:?}");
}

#[test]
fn a_gang_that_waits_for_the_nearest_place_starts_on_slow_nodes_there() {
    let mut watched = two_racks();
    watched.step(&[submitted(1, 2)]);
    let nearest = gang(2).devices(8).build();
    let mut waits = job(2, nearest).build();
    waits.gangs[0].topology.wait_ms = u64::MAX;
    watched.step(&[of_node("b-1", 250)]);
    watched.step(&[Input::JobSubmitted { job: Box::new(waits) }]);
    assert_eq!(placed(&watched, 2), ["b-1", "b-2"], "no gang waits only because links are slow");
}

#[test]
fn a_gang_that_waits_for_the_nearest_place_crosses_racks_where_slow_nodes_are_as_near() {
    let of = |name: &str, leaf: &str| node(name).path(["cluster", leaf]).gpus(8).nvswitch().build();
    let nodes = [of("a-1", "a"), of("a-2", "a"), of("b-1", "b"), of("b-2", "b"), of("c-1", "c")];
    let mut watched = Watched::with_nodes(&levels(&["cluster", "leaf"]), &nodes);
    watched.step(&[submitted(1, 2)]);
    assert_eq!(placed(&watched, 1), ["a-1", "a-2"]);
    let mut waits = job(2, gang(2).devices(8).build()).build();
    waits.gangs[0].topology.wait_ms = u64::MAX;
    watched.step(&[of_node("b-2", 250)]);
    watched.step(&[Input::JobSubmitted { job: Box::new(waits) }]);
    assert_eq!(placed(&watched, 2), ["b-1", "c-1"], "it would have started at once without the measurement");
}

/// Bandwidths of a cluster with leaves: of nothing; of machines; of machines and uplinks.
fn tables(nodes: &[Node]) -> [CostTable; 3] {
    let known = costs(nodes);
    let leaf = LevelCost { uplink_mb_per_s: 4_000, latency_ns: 2_000, ..LevelCost::default() };
    let levels = [(LevelName::new("leaf").unwrap(), leaf)].into();
    [CostTable::default(), known.clone(), CostTable { levels, ..known }]
}

/// Leaves of two nodes, with fillers on some of the nodes and these measurements, and then a gang that may wait.
fn start_of(table: &CostTable, nodes: &[Node], fillers: &[&str], slow: &[Input], gang: &Gang) -> Vec<String> {
    let mut watched = Watched::with_nodes(&levels(&["cluster", "leaf"]), nodes);
    let mut facts = vec![Input::CostsCompiled { table: table.clone() }];
    facts.extend((10..).zip(fillers).map(|(id, node)| {
        let of = phalanx_testkit::gang(1).devices(8).on([node]);
        Input::JobSubmitted { job: Box::new(job(id, of).time_limit(7_200_000).build()) }
    }));
    watched.step(&facts);
    watched.step(slow);
    let waits = job(1, gang.clone()).time_limit(3_600_000).build();
    watched.step(&[Input::JobSubmitted { job: Box::new(waits) }]);
    placed(&watched, 1)
}

#[test]
fn a_gang_waits_for_the_nearest_place_as_if_no_link_were_measured() {
    let names = ["a-1", "a-2", "b-1", "b-2", "c-1", "c-2"];
    let nodes = names.map(|name| node(name).path(["cluster", &name[..1]]).gpus(8).nvswitch().build());
    let mut state = 7_u64;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(state >> 33).unwrap() % below
    };
    let mut counts = [0, 0];
    for round in 0..150 {
        let table = &tables(&nodes)[draw(3) as usize];
        let fillers: Vec<&str> = names.into_iter().filter(|_| draw(5) < 2).collect();
        let mut slow: Vec<Input> = Vec::new();
        slow.extend(names.iter().filter(|_| draw(3) == 0).map(|name| of_node(name, 400)).collect::<Vec<_>>());
        slow.extend(["a", "b", "c"].iter().filter(|_| draw(4) == 0).map(|leaf| of_leaf(leaf, 300)));
        let mut gang = gang(2 + draw(2)).devices(8).build();
        match draw(3) {
            0 => gang.topology.wait_ms = u64::MAX,
            1 => gang.topology.price_milli = Some(1_000),
            _ => gang.topology.price_milli = Some(1),
        }
        let of = |slow: &[Input]| start_of(table, &nodes, &fillers, slow, &gang);
        let (nominal, found) = (of(&[]), of(&slow));
        assert_eq!(nominal.len(), found.len(), "round {round}: {fillers:?} {slow:?} {gang:?} {table:?}");
        counts[usize::from(found.is_empty())] += 1;
    }
    assert!(counts.iter().all(|count| *count > 20), "{counts:?} start and wait");
}

#[test]
fn no_gang_waits_because_the_only_free_place_is_slow() {
    let names = ["a-1", "a-2", "b-1", "b-2"];
    let nodes = names.map(|name| node(name).path(["cluster", &name[..1]]).gpus(8).nvswitch().build());
    let mut gang = gang(2).devices(8).build();
    gang.topology.price_milli = Some(1_000);
    // Nothing is known of bandwidths, or the way between leaves has all of it: a farther place costs nothing.
    for table in &tables(&nodes)[..2] {
        for slow in [of_node("b-1", 250), of_leaf("b", 250)] {
            let found = start_of(table, &nodes, &["a-1", "b-2"], &[slow], &gang);
            assert_eq!(found, ["a-2", "b-1"]);
        }
    }
}

#[test]
fn a_slow_link_ends_no_wait_for_other_reasons() {
    let names = ["a-1", "a-2", "b-1", "b-2"];
    let nodes = names.map(|name| node(name).path(["cluster", &name[..1]]).gpus(8).nvswitch().build());
    let mut gang = gang(2).devices(8).build();
    gang.topology.wait_ms = u64::MAX;
    for table in &tables(&nodes) {
        for slow in [of_node("b-1", 250), of_leaf("b", 250)] {
            let found = start_of(table, &nodes, &["a-1", "b-2"], &[slow], &gang);
            assert!(found.is_empty(), "it waits for one leaf: {found:?}");
        }
    }
}

#[test]
fn measurements_are_facts_that_outlast_a_restart_and_end() {
    let mut watched = two_racks();
    watched.step(&[of_node("a-1", 400), of_leaf("b", 600)]);
    watched.restart();
    let known = |watched: &Watched| -> Vec<String> {
        watched.engine.bandwidths().map(|of| format!("{} {}", of.uplink, of.share())).collect()
    };
    assert_eq!(known(&watched), ["a-1 375", "cluster/b 625"]);
    watched.step(&[of_node("a-1", 990)]);
    assert_eq!(known(&watched), ["cluster/b 625"], "as good as nominal");
    watched.step(&[Input::NodeRemoved { node: name("b-1") }]);
    assert_eq!(known(&watched), ["cluster/b 625"], "the domain has another node");
    watched.step(&[Input::NodeRemoved { node: name("b-2") }]);
    assert!(known(&watched).is_empty(), "with the domain its measurement is gone");
}

#[test]
fn the_same_share_measured_again_changes_no_tree_and_is_said() {
    let mut watched = two_racks();
    watched.step(&[of_node("a-2", 400)]);
    let Input::BandwidthMeasured { bandwidth } = of_node("a-2", 380) else { unreachable!() };
    let later = Bandwidth { at: Timestamp(600_000), ..bandwidth };
    watched.step(&[Input::BandwidthMeasured { bandwidth: later.clone() }]);
    watched.step(&[submitted(1, 2)]);
    let weighed = watched.record(phalanx_model::JobId(1).gang(0)).weighed.clone();
    assert_eq!(weighed, [WeighedLink { bandwidth: later, is_avoided: true }]);
    watched.restart();
}

#[test]
fn bad_measurements_are_refused() {
    let mut watched = two_racks();
    let out = watched.step(&[of_node("c", 500), of_leaf("c", 500), of_node("a-1", 1_001)]);
    let expected = [
        "the bandwidth of c: no such node or domain",
        "the bandwidth of cluster/c: no such node or domain",
        "the bandwidth of a-1: more than its nominal bandwidth",
    ];
    assert_eq!(refusals(&out), expected);
    assert_eq!(watched.engine.bandwidths().count(), 0);
}

#[test]
fn a_follower_of_the_plans_knows_why_too() {
    let mut watched = two_racks();
    watched.step(&[of_node("a-2", 400)]);
    let out = watched.step(&[submitted(1, 2)]);
    let weighed = out.plan.decisions.iter().find_map(|decision| match decision {
        Decision::Start { weighed, .. } => Some(weighed.clone()),
        _ => None,
    });
    assert_eq!(weighed.unwrap(), watched.engine.gang(phalanx_model::JobId(1).gang(0)).unwrap().weighed);
}

#[test]
fn noise_changes_no_kind_of_node() {
    let nodes: Vec<Node> =
        (0..40_u16).map(|at| node(&format!("n{at}")).path(["cluster"]).gpus(8).nvswitch().build()).collect();
    let mut watched = Watched::with_nodes(&levels(&["cluster"]), &nodes);
    let noisy: Vec<Input> = (0..40).map(|at| of_node(&format!("n{at}"), 940 + at)).collect();
    watched.step(&noisy);
    assert_eq!(watched.engine.bandwidths().count(), 0, "all within half a step of nominal");
}
