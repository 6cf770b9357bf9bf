//! Every kind of request has its own promise: kept, nothing is said; broken, it is seen.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use phalanx_checker::{Checker, Violation};
use phalanx_model::{
    AxisKind, DeviceMask, DevicePart, DomainName, Effect, EffectId, Epoch, GangId, GangRecord, Input, JobId,
    LevelName, Levels, MemberRecord, MemberState, Node, NodeName, Order, Outcome, Phase, Placement, Slot,
    Timestamp, Torus,
};
use phalanx_testkit::{GangBuilder, gang, job, levels, limited, limited_at, node};

fn slot(rank: u32, node: &str, devices: u64) -> Slot {
    Slot { rank, node: NodeName::new(node).unwrap(), devices: DeviceMask(devices), part: None }
}

fn share(rank: u32, node: &str, device: u32) -> Slot {
    Slot { part: Some(DevicePart::Share), ..slot(rank, node, 1 << device) }
}

fn cut(rank: u32, node: &str, device: u32, profile: &str, start: u8) -> Slot {
    Slot {
        part: Some(DevicePart::Slice { profile: profile.to_owned(), start }),
        ..slot(rank, node, 1 << device)
    }
}

fn observe(checker: &mut Checker, facts: &[Input], effects: &[Effect]) -> Vec<Violation> {
    let out = Outcome { effects: effects.to_vec(), ..Outcome::default() };
    checker.observe(Timestamp(1), facts, &out)
}

/// A cluster, and gangs that start one after the other: what is seen at the last start.
fn seen(levels: &Levels, nodes: &[Node], starts: Vec<(GangBuilder, Vec<Slot>)>) -> Vec<Violation> {
    let mut checker = Checker::new();
    let known = nodes.iter().map(|node| Input::NodeObserved { node: Box::new(node.clone()) });
    let facts: Vec<Input> =
        std::iter::once(Input::LevelsConfigured { levels: levels.clone() }).chain(known).collect();
    let mut found = observe(&mut checker, &facts, &[]);
    for (number, (gang, slots)) in (1..).zip(starts) {
        assert_eq!(found, [], "before gang {number}");
        let submitted = Input::JobSubmitted { job: Box::new(job(number, gang).build()) };
        let placement = Placement { slots, level: LevelName::new("node").unwrap() };
        let order = Order::StartMembers {
            gang: JobId(number).gang(0),
            attempt: 1,
            placement,
            deadline: Timestamp(9),
        };
        let effect = Effect { id: EffectId { epoch: Epoch(1), seq: number }, order };
        found = observe(&mut checker, &[submitted], &[effect]);
    }
    found
}

/// Nodes `a`, `b` of leaf `l1` and `c` of leaf `l2`, with four H100s of 80 GB each; `c` has A100s of 40 GB.
fn nodes() -> Vec<Node> {
    let h100 = |name: &str| {
        node(name).path(["all", "l1"]).gpus(4).model("NVIDIA H100 80GB HBM3").device_memory(80_000).cpus(8)
    };
    vec![
        h100("a").has("nic", 2).build(),
        h100("b").has("nic", 2).share_limit(2_000).build(),
        node("c").path(["all", "l2"]).gpus(4).model("NVIDIA A100-SXM4-40GB").cpus(8).has("nic", 2).build(),
    ]
}

fn in_leaves(starts: Vec<(GangBuilder, Vec<Slot>)>) -> Vec<Violation> {
    seen(&levels(&["cluster", "leaf"]), &nodes(), starts)
}

type Case = (Vec<(GangBuilder, Vec<Slot>)>, Option<fn(&Violation) -> bool>);

/// Exactly what is expected is seen, and where nothing is, nothing.
fn check(cases: Vec<Case>, see: impl Fn(Vec<(GangBuilder, Vec<Slot>)>) -> Vec<Violation>) {
    for (at, (starts, expected)) in cases.into_iter().enumerate() {
        let found = see(starts);
        match expected {
            None => assert_eq!(found, [], "case {at}"),
            Some(is_it) => assert!(!found.is_empty() && found.iter().all(is_it), "case {at} gave {found:?}"),
        }
    }
}

macro_rules! sees {
    ($violation:ident) => {
        Some(|v: &Violation| matches!(v, Violation::$violation { .. }))
    };
}

#[test]
fn roles() {
    let with_launcher = || gang(2).devices(2).role("launcher", gang(1).cpu_milli(1_000));
    let workers = || vec![slot(0, "a", 0b11), slot(1, "a", 0b1100)];
    let and = |last: Slot| [workers(), vec![last]].concat();
    check(
        vec![
            (vec![(with_launcher(), and(slot(2, "b", 0)))], None),
            (vec![(with_launcher(), workers())], sees!(NotWhole)),
            // What a worker needs, given to the launcher.
            (vec![(with_launcher(), and(slot(2, "b", 0b11)))], sees!(WrongDeviceCount)),
            (vec![(with_launcher().required("leaf"), and(slot(2, "c", 0)))], sees!(OutsideRequiredLevel)),
            // Nodes are counted by members of the gang itself, and segments are theirs.
            (vec![(with_launcher().per_node(2), and(slot(2, "b", 0)))], None),
            (vec![(with_launcher().segment(2, "node"), and(slot(2, "b", 0)))], None),
            // Those of a role are the role's.
            (
                vec![(
                    gang(1).role("ps", gang(2).segment(2, "leaf")),
                    vec![slot(0, "c", 0), slot(1, "a", 0), slot(2, "b", 0)],
                )],
                None,
            ),
            (
                vec![(
                    gang(1).role("ps", gang(2).segment(2, "leaf")),
                    vec![slot(0, "a", 0), slot(1, "b", 0), slot(2, "c", 0)],
                )],
                sees!(SegmentApart),
            ),
            // The launcher has no devices, and is inside whichever group the workers are.
            (
                vec![(
                    gang(1).devices(1).required("pcie").role("launcher", gang(1)),
                    vec![slot(0, "a", 0b1000), slot(1, "a", 0)],
                )],
                None,
            ),
            (
                vec![(
                    gang(1).devices(1).required("pcie").role("other", gang(1).devices(1)),
                    vec![slot(0, "a", 0b1000), slot(1, "a", 1)],
                )],
                sees!(OutsideRequiredLevel),
            ),
            // Eight CPUs: two members of three and a launcher of three are too much.
            (
                vec![(
                    gang(2).cpu_milli(3_000).role("ps", gang(1).cpu_milli(3_000)),
                    vec![slot(0, "a", 0), slot(1, "a", 0), slot(2, "a", 0)],
                )],
                sees!(OverCapacity),
            ),
            (
                vec![(gang(1).role("other", gang(1).on(["b"])), vec![slot(0, "a", 0), slot(1, "a", 0)])],
                sees!(NodeNotNamed),
            ),
        ],
        in_leaves,
    );
}

#[test]
fn models_and_nodes() {
    let any_of = || gang(2).devices(1).models([("h100", 1_000), ("a100", 400)]);
    check(
        vec![
            (vec![(any_of(), vec![slot(0, "a", 1), slot(1, "c", 1)])], None),
            (vec![(gang(1).devices(1).model("h100"), vec![slot(0, "c", 1)])], sees!(NotItsDevices)),
            (vec![(gang(1).devices(1).avoid(["a"]), vec![slot(0, "b", 1)])], None),
            (vec![(gang(1).devices(1).avoid(["a"]), vec![slot(0, "a", 1)])], sees!(NodeAvoided)),
            // A wish is no promise.
            (vec![(gang(1).devices(1).prefer(["a"]), vec![slot(0, "b", 1)])], None),
        ],
        in_leaves,
    );
}

#[test]
fn alone_on_a_node() {
    let alone = || (gang(1).devices(1).exclusive(), vec![slot(0, "a", 1)]);
    let beside = |gang: GangBuilder, node: &str| (gang, vec![slot(0, node, 0b10)]);
    let none = (gang(1), vec![slot(0, "a", 0)]);
    check(
        vec![
            (vec![alone(), beside(gang(1).devices(1), "b")], None),
            (vec![alone(), beside(gang(1).devices(1), "a")], sees!(NotAlone)),
            (vec![beside(gang(1).devices(1), "a"), alone()], sees!(NotAlone)),
            (vec![none.clone(), alone()], sees!(NotAlone)),
            (vec![alone(), none], sees!(NotAlone)),
            // It is alone where its roles are, too.
            (
                vec![
                    (gang(1).exclusive().role("x", gang(1)), vec![slot(0, "a", 0), slot(1, "b", 0)]),
                    (gang(1), vec![slot(0, "b", 0)]),
                ],
                sees!(NotAlone),
            ),
            // Its own members are no others.
            (vec![(gang(2).devices(1).exclusive(), vec![slot(0, "a", 1), slot(1, "a", 2)])], None),
            (vec![(gang(1).role("x", gang(1).exclusive()), vec![slot(0, "a", 0), slot(1, "a", 0)])], None),
        ],
        in_leaves,
    );
    let busy = [node("a").path(["all", "l1"]).gpus(2).busy([1]).build()];
    check(vec![(vec![alone()], sees!(NotAlone))], |starts| {
        seen(&levels(&["cluster", "leaf"]), &busy, starts)
    });
    let busy_elsewhere = [node("a").path(["all", "l1"]).gpus(2).busy([7]).build()];
    check(vec![(vec![alone()], None)], |starts| seen(&levels(&["cluster", "leaf"]), &busy_elsewhere, starts));
}

#[test]
fn named_resources_and_limits() {
    let one = |node: &str| vec![slot(0, node, 0)];
    let two = |x: &str, y: &str| vec![slot(0, x, 0), slot(1, y, 0)];
    check(
        vec![
            (vec![(gang(1).uses("nic", 2), one("a")), (gang(1).uses("nic", 2), one("b"))], None),
            (
                vec![(gang(1).uses("nic", 2), one("a")), (gang(1).uses("nic", 1), one("a"))],
                sees!(OverCapacity),
            ),
            (vec![(gang(2).uses("nic", 2), two("a", "a"))], sees!(OverCapacity)),
            (vec![(gang(1).uses("fpga", 1), one("a"))], sees!(OverCapacity)),
        ],
        in_leaves,
    );
    // Leaves have 10 of power, `l2` has 3, and no node counts it.
    let capped = limited(levels(&["cluster", "leaf"]), "leaf", "power", 10);
    let capped = limited_at(capped, &["all", "l2"], "power", 3);
    check(
        vec![
            (vec![(gang(2).uses("power", 5), two("a", "b"))], None),
            (vec![(gang(2).uses("power", 6), two("a", "b"))], sees!(OverLimit)),
            (
                vec![(gang(1).uses("power", 6), one("a")), (gang(1).uses("power", 6), one("b"))],
                sees!(OverLimit),
            ),
            (vec![(gang(1).uses("power", 4), one("c"))], sees!(OverLimit)),
            (vec![(gang(2).uses("power", 3), two("a", "c"))], None),
        ],
        |starts| seen(&capped, &nodes(), starts),
    );
    // Beside limits of domains, nodes that count it have what they say, and others nothing.
    let mut counted = nodes();
    counted[0] = node("a").path(["all", "l1"]).has("power", 4).build();
    check(
        vec![
            (vec![(gang(1).uses("power", 4), one("a"))], None),
            (vec![(gang(1).uses("power", 5), one("a"))], sees!(OverCapacity)),
            (vec![(gang(1).uses("power", 1), one("b"))], sees!(OverCapacity)),
        ],
        |starts| seen(&capped, &counted, starts),
    );
}

#[test]
fn spread() {
    let three = |nodes: [&str; 3]| (0..).zip(nodes).map(|(rank, node)| slot(rank, node, 0)).collect();
    check(
        vec![
            (vec![(gang(3).spread(1, "node"), three(["a", "b", "c"]))], None),
            (vec![(gang(3).spread(1, "node"), three(["a", "b", "b"]))], sees!(NotSpread)),
            (vec![(gang(3).spread(2, "leaf"), three(["a", "b", "c"]))], None),
            (vec![(gang(3).spread(1, "leaf"), three(["a", "b", "c"]))], sees!(NotSpread)),
            (vec![(gang(2).spread(1, "leaf").role("x", gang(1)), three(["a", "c", "b"]))], sees!(NotSpread)),
        ],
        in_leaves,
    );
}

#[test]
fn tensor_groups() {
    let four = |nodes: [&str; 4]| (0..).zip(nodes).map(|(rank, node)| slot(rank, node, 0)).collect();
    let inner = || gang(4).axis(AxisKind::Tensor, 2, 1).axis(AxisKind::Data, 2, 1);
    let outer = || gang(4).axis(AxisKind::Data, 2, 1).axis(AxisKind::Tensor, 2, 1);
    check(
        vec![
            (vec![(inner(), four(["a", "a", "b", "b"]))], None),
            (vec![(inner(), four(["a", "b", "b", "a"]))], sees!(TensorApart)),
            (vec![(outer(), four(["a", "b", "a", "b"]))], None),
            (vec![(outer(), four(["a", "a", "b", "b"]))], sees!(TensorApart)),
        ],
        in_leaves,
    );
}

#[test]
fn shares() {
    let of = |compute, memory, trust: &str| gang(1).share(compute, memory, trust);
    let on = |device| vec![share(0, "a", device)];
    check(
        vec![
            (vec![(of(500, 0, "x"), on(0)), (of(500, 0, "x"), on(0))], None),
            (vec![(of(500, 0, "x"), on(0)), (of(501, 0, "x"), on(0))], sees!(DeviceOverCommitted)),
            (vec![(of(0, 50_000, "x"), on(0)), (of(0, 50_000, "x"), on(0))], sees!(DeviceOverCommitted)),
            (vec![(of(100, 0, "x"), on(0)), (of(100, 0, "y"), on(0))], sees!(TrustMixed)),
            (vec![(of(100, 0, "x"), on(0)), (of(100, 0, "y"), on(1))], None),
            (vec![(of(100, 0, "x"), on(0)), (gang(1).devices(1), vec![slot(0, "a", 1)])], sees!(DeviceTwice)),
            (vec![(gang(1).devices(1), vec![slot(0, "a", 1)]), (of(100, 0, "x"), on(0))], sees!(DeviceTwice)),
            // Both of one gang: rank 1 on the same device.
            (
                vec![(gang(2).share(600, 0, "x"), vec![share(0, "a", 0), share(1, "a", 0)])],
                sees!(DeviceOverCommitted),
            ),
            // `b` lets shares promise twice what there is.
            (vec![(gang(2).share(1_000, 1, "x"), vec![share(0, "b", 0), share(1, "b", 0)])], None),
            // Without a word on memory a share has as large a part of it, and of that there is never more.
            (
                vec![(gang(2).share(1_000, 0, "x"), vec![share(0, "b", 0), share(1, "b", 0)])],
                sees!(DeviceOverCommitted),
            ),
            (vec![(of(100, 0, "x"), vec![slot(0, "a", 1)])], sees!(WrongPart)),
            (vec![(gang(1).devices(1), on(0))], sees!(WrongPart)),
        ],
        in_leaves,
    );
}

#[test]
fn slices() {
    let of = |profile: &str| gang(1).profile(profile);
    let on = |profile: &str, start| vec![cut(0, "a", 0, profile, start)];
    check(
        vec![
            // The training job beside services.
            (
                vec![
                    (of("4g.40gb"), on("4g.40gb", 0)),
                    (of("1g.10gb"), on("1g.10gb", 4)),
                    (of("1g.10gb"), on("1g.10gb", 6)),
                    (of("1g.10gb"), on("1g.10gb", 5)),
                ],
                None,
            ),
            (
                vec![(of("4g.40gb"), on("4g.40gb", 0)), (of("1g.10gb"), on("1g.10gb", 3))],
                sees!(SlicesOverlap),
            ),
            (vec![(of("4g.40gb"), on("4g.40gb", 4))], sees!(WrongPart)),
            (vec![(of("1g.10gb"), on("1g.10gb", 7))], sees!(WrongPart)),
            // Of another size than was asked for, and of another board.
            (vec![(of("1g.10gb"), on("2g.20gb", 0))], sees!(WrongPart)),
            (vec![(of("1g.5gb"), on("1g.5gb", 0))], sees!(WrongPart)),
            (vec![(of("1g.5gb"), vec![cut(0, "c", 0, "1g.5gb", 0)])], None),
            // The same name is one slice of one board and two of the other.
            (
                vec![
                    (of("1g.10gb"), vec![cut(0, "c", 0, "1g.10gb", 0)]),
                    (of("1g.5gb"), vec![cut(0, "c", 0, "1g.5gb", 1)]),
                ],
                sees!(SlicesOverlap),
            ),
            (
                vec![(of("1g.10gb+me"), on("1g.10gb+me", 0)), (of("1g.10gb+me"), on("1g.10gb+me", 1))],
                sees!(SlicesOverlap),
            ),
            (
                vec![(of("7g.80gb"), on("7g.80gb", 0)), (of("1g.10gb"), on("1g.10gb", 6))],
                sees!(SlicesOverlap),
            ),
            (vec![(of("3g.40gb"), on("3g.40gb", 4)), (of("3g.40gb"), on("3g.40gb", 0))], None),
            // By amounts: the smallest that has them.
            (vec![(gang(1).slice(280, 0), on("2g.20gb", 2))], None),
            (vec![(gang(1).slice(280, 0), on("3g.40gb", 0))], sees!(WrongPart)),
            (vec![(gang(1).slice(280, 0), on("1g.10gb", 0))], sees!(WrongPart)),
            (vec![(gang(1).slice(0, 15_000_000_000), on("1g.20gb", 0))], None),
            // Trust does not matter, whole devices and shares do.
            (
                vec![(of("1g.10gb"), on("1g.10gb", 0)), (gang(1).devices(1), vec![slot(0, "a", 1)])],
                sees!(DeviceTwice),
            ),
            (
                vec![(of("1g.10gb"), on("1g.10gb", 0)), (gang(1).share(100, 0, "x"), vec![share(0, "a", 0)])],
                sees!(DeviceTwice),
            ),
        ],
        in_leaves,
    );
}

/// A torus of 4x4x1 chips that is a ring along x, in hosts of 2x2x1: `h00 h20` below, `h02 h22` above.
#[test]
fn boxes() {
    let mut torus = Torus::new(DomainName::new("pod").unwrap(), [4, 4, 1], false);
    torus.wraps[0] = true;
    torus.host_chips = [2, 2, 1];
    let mut levels = levels(&["cluster"]);
    levels.tori = vec![torus];
    let hosts = [("h00", [0, 0, 0]), ("h20", [2, 0, 0]), ("h02", [0, 2, 0]), ("h22", [2, 2, 0])];
    let nodes = hosts.map(|(name, at)| node(name).gpus(4).chip(0, at).build());
    let slice = |sides: [u16; 3], slots: Vec<Slot>| {
        let devices = slots[0].devices.count();
        vec![(gang(slots.len() as u32).devices(devices).chips(sides), slots)]
    };
    let two = |x: &str, of_x: u64, y: &str, of_y: u64| vec![slot(0, x, of_x), slot(1, y, of_y)];
    check(
        vec![
            (slice([4, 2, 1], two("h00", 0xf, "h20", 0xf)), None),
            (slice([2, 4, 1], two("h00", 0xf, "h20", 0xf)), None),
            (slice([1, 2, 4], two("h00", 0xf, "h20", 0xf)), None),
            (slice([4, 2, 1], two("h00", 0xf, "h22", 0xf)), sees!(NoBox)),
            (slice([8, 1, 1], two("h00", 0xf, "h20", 0xf)), sees!(NoBox)),
            (slice([4, 1, 1], two("h00", 0b11, "h20", 0b11)), None),
            (slice([4, 1, 1], two("h00", 0b11, "h20", 0b1100)), sees!(NoBox)),
            // Around the ring along x: the chips at x = 3 and x = 0. There is none along y.
            (slice([2, 1, 1], two("h20", 0b10, "h00", 0b01)), None),
            (slice([2, 1, 1], two("h02", 0b100, "h00", 0b01)), sees!(NoBox)),
            (slice([1, 2, 1], two("h02", 0b001, "h00", 0b100)), None),
        ],
        |starts| seen(&levels, &nodes, starts),
    );
}

/// Switches join whole cubes wherever they are; what is smaller stays inside one.
#[test]
fn cubes() {
    let mut torus = Torus::new(DomainName::new("pod").unwrap(), [2, 2, 4], true);
    torus.cube = 2;
    torus.host_chips = [2, 2, 1];
    let mut levels = levels(&["cluster"]);
    levels.tori = vec![torus];
    let nodes: Vec<Node> =
        (0..4).map(|z| node(&format!("h{z}")).gpus(4).chip(0, [0, 0, z]).build()).collect();
    let slice = |sides: [u16; 3], hosts: &[u32]| {
        let slots: Vec<Slot> = (0..).zip(hosts).map(|(rank, z)| slot(rank, &format!("h{z}"), 0xf)).collect();
        vec![(gang(slots.len() as u32).devices(4).chips(sides), slots)]
    };
    check(
        vec![
            (slice([2, 2, 4], &[0, 1, 2, 3]), None),
            (slice([2, 2, 2], &[2, 3]), None),
            (slice([2, 2, 2], &[1, 2]), sees!(NoBox)),
            (slice([2, 2, 1], &[1]), None),
        ],
        |starts| seen(&levels, &nodes, starts),
    );
}

/// After a restart it is told of the gang's place; that is the place it was ordered to.
#[test]
fn a_place_is_kept_over_a_restart() {
    let id: GangId = JobId(1).gang(0);
    let mut checker = Checker::new();
    let one = job(1, gang(1).devices(1)).build();
    let known = nodes().into_iter().map(|node| Input::NodeObserved { node: Box::new(node) });
    let facts: Vec<Input> = std::iter::once(Input::LevelsConfigured { levels: levels(&["cluster", "leaf"]) })
        .chain(known)
        .chain([Input::JobSubmitted { job: Box::new(one.clone()) }])
        .collect();
    let place =
        |devices| Placement { slots: vec![slot(0, "a", devices)], level: LevelName::new("node").unwrap() };
    let order = Order::StartMembers { gang: id, attempt: 1, placement: place(1), deadline: Timestamp(9) };
    let start = Effect { id: EffectId { epoch: Epoch(1), seq: 1 }, order };
    assert_eq!(observe(&mut checker, &facts, &[start]), []);
    let observed = |devices| Input::JobObserved {
        job: Box::new(one.clone()),
        gangs: vec![GangRecord {
            phase: Phase::Starting { deadline: Timestamp(9) },
            attempt: 1,
            placement: Some(place(devices)),
            members: vec![MemberRecord { state: MemberState::Requested }],
            ..GangRecord::pending(id, Timestamp(0))
        }],
    };
    assert_eq!(observe(&mut checker, &[observed(1)], &[]), []);
    assert_eq!(
        observe(&mut checker, &[observed(2)], &[]),
        [Violation::PlacementForgotten { gang: id, attempt: 1 }]
    );
}
