//! Gangs with roles that a person can name.

use std::collections::BTreeMap;

use phalanx_engine::Placer;
use phalanx_model::{
    Axis, AxisKind, Change, Collective, Exit, FailureClass, Gang, Input, JobId, MemberId, Node, NodeName,
    Pattern, Phase, Reason, Rejection, Traffic,
};
use phalanx_testkit::{Watched, costs, gang, job, levels, node};

fn racks() -> Vec<Node> {
    let nodes = ["a1", "a2", "b1", "b2"].map(|name| {
        let rack = if name.starts_with('a') { "rack-a" } else { "rack-b" };
        node(name).path(["all", rack]).gpus(4).model("H100").cpus(16).nvswitch().build()
    });
    nodes.into()
}

/// Members by node, for the gang itself and for each of its roles.
fn placed(nodes: &[Node], gang: &Gang) -> Option<Vec<BTreeMap<String, u32>>> {
    let mut placer = Placer::new(&levels(&["cluster", "rack"]), nodes.to_vec(), &costs(nodes));
    placer.place(gang)?;
    let mut by_role = vec![BTreeMap::new(); gang.roles.len() + 1];
    for slot in placer.placement(gang)?.slots {
        let role = gang.role_of(slot.rank).map_or(0, |role| role + 1);
        *by_role[role].entry(slot.node.to_string()).or_default() += 1;
    }
    Some(by_role)
}

fn on(nodes: &[(&str, u32)]) -> BTreeMap<String, u32> {
    nodes.iter().map(|(name, members)| ((*name).to_owned(), *members)).collect()
}

#[test]
fn a_launcher_stands_with_its_workers() {
    let launcher = gang(1).cpu_milli(1_000);
    let mpi = gang(8).devices(1).cpu_milli(2_000).role("launcher", launcher.clone()).build();
    let found = placed(&racks(), &mpi).unwrap();
    assert_eq!(found, [on(&[("a1", 4), ("a2", 4)]), on(&[("a1", 1)])]);
    // The nodes of the workers have no CPUs left: the launcher goes to a neighbour, and breaks no whole node if a used
    // node is enough.
    let full = gang(4).devices(1).cpu_milli(4_000).role("launcher", launcher.clone()).build();
    assert_eq!(placed(&racks(), &full).unwrap(), [on(&[("a1", 4)]), on(&[("a2", 1)])]);
    let mut nodes = racks();
    nodes.push(node("c").path(["all", "rack-a"]).cpus(8).build());
    assert_eq!(placed(&nodes, &full).unwrap()[1], on(&[("c", 1)]), "a node without GPUs serves better");
    // Together with its workers the launcher must be inside the rack.
    let inside = gang(8).devices(1).cpu_milli(4_000).required("rack").role("launcher", launcher).build();
    assert_eq!(placed(&racks(), &inside), None);
    assert_eq!(placed(&nodes, &inside).unwrap()[1], on(&[("c", 1)]));
}

/// Prefill in one rack and decode in one rack, which need not be the same; each group of an inner level inside one
/// node.
#[test]
fn each_role_is_inside_one_domain_of_its_own_level() {
    let decode = |size: u32| gang(size).devices(1).segment(size, "rack");
    let own = |size: u32| gang(size).devices(1).segment(size, "rack");
    // Neither role fits beside the other: a rack has eight devices.
    let two = placed(&racks(), &own(6).role("decode", decode(6)).build()).unwrap();
    assert_eq!(two, [on(&[("a1", 4), ("a2", 2)]), on(&[("b1", 4), ("b2", 2)])]);
    // The role is near the others if it fits there as a whole.
    let beside = placed(&racks(), &own(6).role("decode", decode(2)).build()).unwrap();
    assert_eq!(beside, [on(&[("a1", 4), ("a2", 2)]), on(&[("a2", 2)])]);
    // Without a rule of its own the role takes the rest of both racks.
    let loose = placed(&racks(), &own(6).role("decode", gang(9).devices(1)).build()).unwrap();
    assert_eq!(loose[1].values().sum::<u32>(), 9);
    assert_eq!(placed(&racks(), &own(6).role("decode", decode(9)).build()), None);
    // Each pair is on one node, if the role can have no whole rack; and the rule of the gang holds for all.
    let pairs = |level: &str| gang(6).devices(1).segment(2, level);
    let in_parts = placed(&racks(), &own(7).role("decode", pairs("node")).build()).unwrap();
    assert!(in_parts[1].values().all(|members| members % 2 == 0), "{in_parts:?}");
    assert_eq!(placed(&racks(), &own(6).required("rack").role("decode", decode(6)).build()), None);
    assert!(placed(&racks(), &own(6).required("rack").role("decode", decode(2)).build()).is_some());
}

/// A rack that takes three members of the gang counted as a rack that takes three members of a role that come in pairs.
#[test]
fn parts_of_a_role_stay_whole_where_the_domain_around_them_takes_fewer() {
    // One of the gang's own members leaves one device of its node: too few for a pair.
    let mut nodes = racks();
    nodes.truncate(3);
    let role = gang(4).devices(1).segment(2, "node");
    let own = || gang(2).devices(3).spread(3, "rack");
    // If both own members are in one rack, that rack has room for one member of a pair, so they are apart.
    let found = placed(&nodes, &own().role("pairs", role.clone()).build());
    assert_eq!(
        found, None,
        "the only node of the second rack has one device left beside one of the gang's own"
    );
    let found = placed(&racks(), &own().role("pairs", role).build()).unwrap();
    assert!(found[1].values().all(|members| members % 2 == 0), "{found:?}");
    for rack in ["a", "b"] {
        let inside = found.iter().flatten().filter(|(node, _)| node.starts_with(rack));
        assert!(inside.map(|(_, members)| members).sum::<u32>() <= 3, "{found:?}");
    }
}

#[test]
fn parameter_servers_stand_on_the_best_nics() {
    let mut nodes = racks();
    nodes.push(node("c").path(["all", "rack-b"]).cpus(8).build());
    let mut table = costs(&nodes);
    let slow = nodes[0].machine.shape.clone();
    table.shapes.get_mut(&slow).unwrap().nic_mb_per_s = 12_500;
    let server = nodes[4].machine.shape.clone();
    table.shapes.entry(server).or_default().nic_mb_per_s = 50_000;
    let mut placer = Placer::new(&levels(&["cluster", "rack"]), nodes.clone(), &table);
    let mut servers = gang(8).devices(1).role("server", gang(3).cpu_milli(1_000)).build();
    servers.traffic = Some(Traffic { pattern: Pattern::AllReduce, bytes: 1 << 30, compute_ns: 0 });
    placer.place(&servers).unwrap();
    let slots = placer.placement(&servers).unwrap().slots;
    assert!(
        slots[8..].iter().all(|slot| slot.node.as_str() == "c"),
        "a third of 50 GB/s is more than all of 12.5"
    );
}

#[test]
fn prefill_and_decode_have_models_of_their_own() {
    let mut nodes = racks();
    nodes.extend(["b3", "c1"].map(|name| {
        let rack = if name == "b3" { "rack-b" } else { "rack-c" };
        node(name).path(["all", rack]).gpus(4).model("A100").cpus(16).nvswitch().build()
    }));
    let decode = gang(2).devices(2).model("A100");
    let serving = gang(4).devices(1).model("H100").role("decode", decode).build();
    assert_eq!(placed(&nodes, &serving).unwrap()[1], on(&[("b3", 2)]));
    // Inside one rack only rack-b has both.
    let mut inside = serving;
    inside.topology.required = Some(phalanx_model::LevelName::new("rack").unwrap());
    let found = placed(&nodes, &inside).unwrap();
    assert_eq!(found, [on(&[("b1", 4)]), on(&[("b3", 2)])]);
    inside.roles[0].size = 3;
    assert_eq!(placed(&nodes, &inside), None);
}

/// The main members alone would take the devices that the others need.
#[test]
fn members_make_room_for_roles_that_have_fewer_places() {
    let nodes: Vec<Node> = [("a", "H100"), ("b", "A100")]
        .map(|(name, model)| node(name).path(["all", "rack"]).gpus(4).model(model).build())
        .into();
    let any = gang(4).devices(1).role("special", gang(4).devices(1).model("H100")).build();
    assert_eq!(placed(&nodes, &any).unwrap(), [on(&[("b", 4)]), on(&[("a", 4)])]);
    let three = gang(4)
        .devices(1)
        .role("one", gang(2).devices(1).model("H100"))
        .role("two", gang(2).devices(1).model("H100"));
    assert_eq!(placed(&nodes, &three.build()).unwrap()[0], on(&[("b", 4)]));
}

fn submitted(id: u64, gang: Gang) -> Input {
    let mut built =
        job(id, phalanx_testkit::gang(1)).retry(1, &[FailureClass::UserCode]).backoff(1_000, 1_000).build();
    built.gangs[0] = gang;
    Input::JobSubmitted { job: Box::new(built) }
}

fn member(attempt: u32, rank: u32) -> MemberId {
    MemberId { gang: JobId(1).gang(0), attempt, rank }
}

/// Roles start, run, fail, stop and start again with their gang.
#[test]
fn all_roles_live_and_end_together() {
    let mut watched = Watched::with_nodes(&levels(&["cluster", "rack"]), &racks());
    let with_launcher =
        gang(2).devices(4).cpu_milli(1_000).role("launcher", gang(1).cpu_milli(1_000)).build();
    watched.step(&[submitted(1, with_launcher)]);
    let id = JobId(1).gang(0);
    assert_eq!(watched.record(id).members.len(), 3);
    watched.restart();
    let ready = |ranks: std::ops::Range<u32>| -> Vec<Input> {
        ranks.map(|rank| Input::MemberReady { member: member(1, rank) }).collect()
    };
    let out = watched.step(&ready(0..2));
    assert!(out.effects.is_empty(), "the launcher is not at the gate");
    let out = watched.step(&ready(2..3));
    assert_eq!(out.effects.len(), 1, "all are: the gate opens");
    let released: Vec<Input> = (0..3).map(|rank| Input::MemberReleased { member: member(1, rank) }).collect();
    watched.step(&released);
    assert!(matches!(watched.record(id).phase, Phase::Running { .. }));
    watched.restart();
    // The launcher fails: the workers are stopped, and all start again.
    watched.step(&[Input::MemberExited { member: member(1, 2), exit: Exit::code(3) }]);
    assert!(matches!(watched.record(id).phase, Phase::Stopping { .. }));
    let exits: Vec<Input> =
        (0..2).map(|rank| Input::MemberExited { member: member(1, rank), exit: Exit::code(143) }).collect();
    watched.step(&exits);
    watched.advance(1_000);
    assert_eq!((watched.record(id).attempt, watched.record(id).members.len()), (2, 3));
    watched.step(&[Input::CancelRequested { job: JobId(1), by: "user".into() }]);
    let exits: Vec<Input> =
        (0..3).map(|rank| Input::MemberExited { member: member(2, rank), exit: Exit::code(143) }).collect();
    watched.step(&exits);
    let free = watched.engine.free(&NodeName::new("a1").unwrap()).unwrap();
    assert_eq!((free.devices.count(), free.cpu_milli, free.tenants), (4, 16_000, 0));
}

#[test]
fn a_gang_waits_until_its_roles_fit_too() {
    let mut watched = Watched::with_nodes(&levels(&["cluster", "rack"]), &racks());
    let busy = gang(4).devices(2).cpu_milli(15_000).build();
    watched.step(&[submitted(1, busy)]);
    let with_server = gang(2).devices(2).role("server", gang(2).cpu_milli(9_000)).build();
    watched.step(&[submitted(2, with_server)]);
    assert!(matches!(watched.engine.reason(JobId(2).gang(0)), Some(Reason::Resources { asked: 2, .. })));
    watched.step(&[Input::CancelRequested { job: JobId(1), by: "user".into() }]);
    let exits: Vec<Input> =
        (0..4).map(|rank| Input::MemberExited { member: member(1, rank), exit: Exit::code(143) }).collect();
    watched.step(&exits);
    assert_eq!(watched.record(JobId(2).gang(0)).members.len(), 4);
}

#[test]
fn roles_are_checked_at_the_door() {
    let refused = |gang: Gang| {
        let mut watched = Watched::with_nodes(&levels(&["cluster", "rack"]), &racks());
        let out = watched.step(&[submitted(1, gang)]);
        out.changes.into_iter().find_map(|change| match change {
            Change::JobRejected { why, .. } => Some(why),
            _ => None,
        })
    };
    let field = |gang: Gang| match refused(gang) {
        Some(Rejection::BadField { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    let one = || gang(1).devices(1);
    assert_eq!(field(one().role("ps", gang(0)).build()), "roles.ps.size");
    assert_eq!(field(one().role("ps", gang(1)).role("ps", gang(1)).build()), "roles.ps");
    assert_eq!(field(one().role("ps", gang(1).devices(65)).build()), "roles.ps.devices");
    assert_eq!(field(one().role("ps", gang(1).exclusive()).build()), "roles.ps.exclusive");
    let many = (0..128).fold(one(), |gang, at| gang.role(&format!("r{at}"), phalanx_testkit::gang(1)));
    assert_eq!(field(many.build()), "roles");
    assert_eq!(field(one().role("ps", gang(phalanx_model::MEMBERS_PER_GANG_MAX)).build()), "roles");
    // More servers than the empty cluster holds.
    let large = refused(one().role("ps", gang(5).cpu_milli(16_000)).build());
    assert!(matches!(large, Some(Rejection::LargerThanCluster { asked: 1, largest: 0, .. })), "{large:?}");
    assert_eq!(refused(one().role("ps", gang(3).cpu_milli(16_000)).build()), None);
    // Segments are whole, and of levels that exist.
    assert_eq!(field(one().role("ps", gang(3).segment(2, "rack")).build()), "roles.ps.segments");
    let unknown = refused(one().role("ps", gang(2).segment(2, "pod")).build());
    assert!(matches!(unknown, Some(Rejection::UnknownLevel { .. })), "{unknown:?}");
}

/// Every rank of the grid keeps its position, and the launcher comes after the last rank.
#[test]
fn a_grid_has_a_launcher() {
    let axis =
        |kind, degree| Axis { kind, degree, collective: Collective::AllReduce, bytes: 1 << 26, calls: 1 };
    let mut grid = gang(8).devices(1).role("launcher", gang(1).cpu_milli(1_000)).build();
    grid.grid = vec![axis(AxisKind::Tensor, 4), axis(AxisKind::Data, 2)];
    let mut placer = Placer::new(&levels(&["cluster", "rack"]), racks(), &costs(&racks()));
    placer.place(&grid).unwrap();
    let slots = placer.placement(&grid).unwrap().slots;
    assert_eq!(slots.len(), 9);
    assert!(slots.iter().zip(0..).all(|(slot, rank)| slot.rank == rank));
    assert!(slots[..8].iter().all(|slot| slot.devices.count() == 1) && slots[8].devices.is_empty());
    assert!(slots[..8].chunks(4).all(|tensor| tensor.iter().all(|slot| slot.node == tensor[0].node)));
}

#[test]
fn a_role_has_a_share_of_a_device_that_the_gang_leaves() {
    let gib = 1 << 30;
    let nodes =
        ["a", "b"].map(|name| node(name).path(["all", "rack"]).gpus(2).device_memory(80 * gib).build());
    let with = |own: u32| gang(own).devices(1).role("eval", gang(2).share(500, 10 * gib, "me")).build();
    let found = placed(&nodes, &with(3)).unwrap();
    assert_eq!(found[1].values().sum::<u32>(), 2, "{found:?}");
    assert_eq!(placed(&nodes, &with(4)), None, "no device is left");
    let shares = gang(4).share(500, 10 * gib, "me").role("launcher", gang(1).cpu_milli(1_000)).build();
    assert_eq!(placed(&nodes, &shares).unwrap()[1].values().sum::<u32>(), 1);
}

#[test]
fn a_role_prefers_its_nodes_and_faster_models() {
    let mut nodes = racks();
    nodes.push(node("b3").path(["all", "rack-b"]).gpus(4).model("A100").build());
    let either = gang(2).devices(1).models([("A100", 500), ("H100", 1_000)]);
    let own = || gang(4).devices(1).on(["b1"]);
    let decode = own().role("decode", either.clone()).build();
    assert_eq!(placed(&nodes, &decode).unwrap()[1], on(&[("b2", 2)]));
    let decode = own().role("decode", either.prefer(["b3"])).build();
    assert_eq!(placed(&nodes, &decode).unwrap()[1], on(&[("b3", 2)]));
    let launcher = own().role("launcher", gang(1).cpu_milli(1_000).prefer(["a2"])).build();
    assert_eq!(placed(&nodes, &launcher).unwrap()[1], on(&[("a2", 1)]));
}

/// A gang with all of its roles has its nodes for itself.
#[test]
fn roles_are_on_exclusive_nodes_together() {
    let mut watched = Watched::with_nodes(&levels(&["cluster", "rack"]), &racks());
    watched.step(&[submitted(
        1,
        gang(2).devices(4).exclusive().role("launcher", gang(1).cpu_milli(1_000)).build(),
    )]);
    let slots =
        |watched: &Watched, id: u64| watched.record(JobId(id).gang(0)).placement.clone().unwrap().slots;
    let alone = slots(&watched, 1);
    assert_eq!(alone[2].node, alone[0].node);
    watched.step(&[submitted(2, gang(2).cpu_milli(1_000).spread(1, "node").build())]);
    assert!(slots(&watched, 2).iter().all(|slot| alone.iter().all(|other| other.node != slot.node)));
    watched.restart();
    watched.step(&[submitted(3, gang(1).cpu_milli(1_000).exclusive().build())]);
    assert!(watched.record(JobId(3).gang(0)).placement.is_none());
    watched.step(&[Input::CancelRequested { job: JobId(1), by: "user".into() }]);
    let exits: Vec<Input> =
        (0..3).map(|rank| Input::MemberExited { member: member(1, rank), exit: Exit::code(143) }).collect();
    watched.step(&exits);
    assert!(watched.record(JobId(3).gang(0)).placement.is_some());
}
