//! What is found in a map, what changed between two, and how they are drawn.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use phalanx_discover::Severity;
use phalanx_discover::fabric::ibnetdiscover;
use phalanx_discover::map::{
    MeasuredPair, SubjectKind, check, check_measured, diff, dot, not_compared, of_nodes, svg, to_nodes,
};
use phalanx_model::domains::{Domains, Rule, Source, derive, rules};
use phalanx_model::*;
use proptest::prelude::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares with a file below `fixtures/map`; `UPDATE=1` writes it.
fn golden(name: &str, text: &str) {
    let path = root().join("fixtures/map").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{} differs; UPDATE=1 writes it", path.display());
}

fn level(text: &str) -> LevelName {
    LevelName::new(text).unwrap()
}

fn domain(text: &str) -> DomainName {
    DomainName::new(text).unwrap()
}

/// A machine with devices on NVSwitch.
fn machine(devices: u32, nvlinks: u8) -> Machine {
    let mut machine = Machine::bare(Origin::Declared);
    for i in 0..devices {
        machine.devices.push(Device { name: format!("GPU{i}"), model: "H100".into(), ..Device::default() });
        for j in 0..i {
            let (a, b) = (Port::Device(j), Port::Device(i));
            machine.links.push(Link::new(a, b, LinkKind::Nvlink(nvlinks)));
        }
    }
    phalanx_model::shape::finish(&mut machine);
    machine
}

/// Units of hosts, each with a cable to one leaf per rail; every leaf has a cable to each spine of its rail.
#[derive(Clone, Copy, Debug)]
struct Size {
    units: u32,
    hosts: u32,
    rails: u32,
    spines: u32,
}

const SMALL: Size = Size { units: 4, hosts: 4, rails: 4, spines: 4 };

fn fabric(size: Size) -> Graph {
    let mut graph = Graph::default();
    let inside = Arc::new(machine(4, 18));
    let add = |graph: &mut Graph, name: String, rail: u32| {
        graph.switches.push(Switch { name: domain(&name), tier: None, rail: u16::try_from(rail).ok() });
        End::Switch(u32::try_from(graph.switches.len() - 1).unwrap())
    };
    for rail in 0..size.rails {
        for spine in 0..size.spines {
            add(&mut graph, format!("spine-{rail}-{spine}"), rail);
        }
    }
    for unit in 0..size.units {
        for rail in 0..size.rails {
            let leaf = add(&mut graph, format!("su{unit}-leaf{rail}"), rail);
            for spine in 0..size.spines {
                graph.links.push(cable(leaf, End::Switch(rail * size.spines + spine)));
            }
            for host in 0..size.hosts {
                graph.links.push(cable(End::Host(unit * size.hosts + host), leaf));
            }
        }
        for host in 0..size.hosts {
            let mut host = Host::new(NodeName::new(format!("n{unit}-{host:02}")).unwrap());
            let rack = Membership { level: level("rack"), domain: domain(&format!("rack-{unit}")) };
            host.domains = vec![rack];
            host.machine = Some(Arc::clone(&inside));
            graph.hosts.push(host);
        }
    }
    graph
}

fn cable(a: End, b: End) -> FabricLink {
    FabricLink { mb_per_s: 50_000, ..FabricLink::new(a, b) }
}

fn derived(graph: &Graph) -> Domains {
    derive(graph, &rules(graph, &level("cluster"), &[]))
}

fn found(graph: &Graph) -> String {
    check(graph, &derived(graph)).iter().map(|finding| format!("{finding}\n")).collect()
}

fn host(graph: &Graph, name: &str) -> End {
    let at = graph.hosts.iter().position(|host| host.name.as_str() == name).unwrap();
    End::Host(u32::try_from(at).unwrap())
}

fn switch(graph: &Graph, name: &str) -> End {
    let at = graph.switches.iter().position(|switch| switch.name.as_str() == name).unwrap();
    End::Switch(u32::try_from(at).unwrap())
}

fn end(graph: &Graph, name: &str) -> End {
    if name.starts_with('n') { host(graph, name) } else { switch(graph, name) }
}

fn link<'a>(graph: &'a mut Graph, a: &str, b: &str) -> &'a mut FabricLink {
    let (a, b) = (end(graph, a), end(graph, b));
    graph.links.iter_mut().find(|l| (l.a, l.b) == (a, b) || (l.a, l.b) == (b, a)).unwrap()
}

fn unplug(graph: &mut Graph, a: &str, b: &str) {
    let gone = *link(graph, a, b);
    graph.links.retain(|link| *link != gone);
}

fn links_of<'a>(graph: &'a mut Graph, name: &str) -> impl Iterator<Item = &'a mut FabricLink> {
    let end = end(graph, name);
    graph.links.iter_mut().filter(move |link| link.a == end || link.b == end)
}

/// Takes switches out of the fabric, with their cables.
fn without_switch(graph: &mut Graph, name: &str) {
    let End::Switch(gone) = switch(graph, name) else { return };
    graph.switches.remove(gone as usize);
    graph.links.retain(|link| link.a != End::Switch(gone) && link.b != End::Switch(gone));
    for link in &mut graph.links {
        for end in [&mut link.a, &mut link.b] {
            if let End::Switch(i) = end {
                *i -= u32::from(*i > gone);
            }
        }
    }
}

fn host_mut<'a>(graph: &'a mut Graph, name: &str) -> &'a mut Host {
    graph.hosts.iter_mut().find(|host| host.name.as_str() == name).unwrap()
}

fn label(graph: &mut Graph, name: &str, on: &str, to: &str) {
    let host = host_mut(graph, name);
    host.domains.retain(|membership| membership.level.as_str() != on);
    host.domains.push(Membership { level: level(on), domain: domain(to) });
}

type Fault = (&'static str, fn(&mut Graph));

/// Every fault that is planted into the small fabric, one at a time.
const FAULTS: &[Fault] = &[
    ("a leaf has no cable to a spine", |g| unplug(g, "su1-leaf2", "spine-2-3")),
    ("a leaf has lost every uplink", |g| {
        (0..4).for_each(|spine| unplug(g, "su1-leaf2", &format!("spine-2-{spine}")));
    }),
    ("every cable of a leaf is down", |g| links_of(g, "su1-leaf2").for_each(|link| link.live = 0)),
    ("a unit has lost a leaf", |g| without_switch(g, "su1-leaf2")),
    ("every cable of a spine is down", |g| links_of(g, "spine-0-1").for_each(|link| link.live = 0)),
    ("a spine has most of its cables missing", |g| {
        (0..3).for_each(|unit| unplug(g, &format!("su{unit}-leaf1"), "spine-1-2"));
    }),
    ("a spine is slow", |g| links_of(g, "spine-0-1").for_each(|link| link.mb_per_s = 25_000)),
    ("one cable is slow", |g| link(g, "n2-01", "su2-leaf3").mb_per_s = 25_000),
    ("a cable of a host is down", |g| link(g, "n2-01", "su2-leaf3").live = 0),
    ("two cables of hosts are missing alike", |g| {
        unplug(g, "n2-01", "su2-leaf3");
        unplug(g, "n3-02", "su3-leaf3");
    }),
    ("a host has no cable", |g| {
        (0..4).for_each(|rail| unplug(g, "n0-03", &format!("su0-leaf{rail}")));
    }),
    ("two cables of a host are in one rail", |g| {
        unplug(g, "n2-01", "su2-leaf3");
        let twice = link(g, "n2-01", "su2-leaf2");
        (twice.cables, twice.live) = (2, 2);
    }),
    ("two hosts of two units are swapped on a rail", |g| {
        for (host, from, to) in [("n0-00", "su0-leaf1", "su1-leaf1"), ("n1-03", "su1-leaf1", "su0-leaf1")] {
            unplug(g, host, from);
            let new = cable(end(g, host), end(g, to));
            g.links.push(new);
        }
    }),
    ("a manager of the fabric hangs on a spine", |g| {
        g.hosts.push(Host::new(NodeName::new("nanny").unwrap()));
        let new = cable(host(g, "nanny"), switch(g, "spine-0-0"));
        g.links.push(new);
    }),
    ("a host has the label of another rack", |g| label(g, "n1-02", "rack", "rack-3")),
    ("rooms are labelled, and one rack stands in two", |g| {
        for unit in 0..4 {
            for at in 0..4 {
                label(g, &format!("n{unit}-{at:02}"), "room", if unit < 2 { "east" } else { "west" });
            }
        }
        label(g, "n1-02", "room", "west");
    }),
    ("NVLink domains are labelled, and one is across two units", |g| {
        for unit in 0..4 {
            for at in 0..4 {
                label(g, &format!("n{unit}-{at:02}"), "nvlink-domain", &format!("nvl-{unit}-{}", at / 2));
            }
        }
        label(g, "n1-02", "nvlink-domain", "nvl-0-0");
    }),
    ("a host has no label", |g| host_mut(g, "n1-02").domains.clear()),
    ("one machine has three names", |g| {
        for name in ["N2-01", "n2-01.pod.example.org"] {
            let mut twin = host_mut(g, "n2-01").clone();
            twin.name = NodeName::new(name).unwrap();
            g.hosts.push(twin);
            let End::Host(new) = host(g, "n2-01") else { return };
            let last = u32::try_from(g.hosts.len() - 1).unwrap();
            let links: Vec<FabricLink> = g.links.iter().filter(|l| l.a == End::Host(new)).copied().collect();
            g.links.extend(links.iter().map(|l| FabricLink { a: End::Host(last), ..*l }));
        }
    }),
    ("measurements, one of them low", |g| {
        for unit in 0..4 {
            let (host, leaf) = (format!("n{unit}-00"), format!("su{unit}-leaf0"));
            let mb_per_s = if unit == 2 { 30_000 } else { 48_000 };
            link(g, &host, &leaf).measured = Some(Measured { mb_per_s, latency_ns: 2_000 });
        }
    }),
    ("measurements, all of them low", |g| {
        for unit in 0..4 {
            let (host, leaf) = (format!("n{unit}-00"), format!("su{unit}-leaf0"));
            link(g, &host, &leaf).measured = Some(Measured { mb_per_s: 10_000, latency_ns: 2_000 });
        }
    }),
    ("a torus lacks a host and has one place twice", |g| {
        let mut torus = Torus::new(domain("slice"), [2, 2, 4], true);
        torus.host_chips = [2, 2, 1];
        g.tori.push(torus);
        for (host, z) in [("n0-00", 0), ("n0-01", 1), ("n0-02", 1), ("n0-03", 9)] {
            host_mut(g, host).torus = Some(TorusPlace { torus: 0, at: [0, 0, z] });
        }
    }),
    ("two hosts have a device with fewer NVLinks", |g| {
        let mut weak = machine(4, 18);
        weak.links.iter_mut().filter(|l| l.a == Port::Device(1) || l.b == Port::Device(1)).for_each(|l| {
            l.kind = LinkKind::Nvlink(12);
        });
        let weak = Arc::new(weak);
        host_mut(g, "n0-01").machine = Some(Arc::clone(&weak));
        host_mut(g, "n3-03").machine = Some(weak);
    }),
];

#[test]
fn each_fault_is_told_and_nothing_else() {
    assert_eq!(found(&fabric(SMALL)), "");
    let mut text = String::new();
    for (name, plant) in FAULTS {
        let mut graph = fabric(SMALL);
        plant(&mut graph);
        text += &format!("# {name}\n{}\n", found(&graph));
    }
    golden("findings.txt", &text);
}

#[test]
fn a_change_is_told_as_a_patch() {
    let before = fabric(SMALL);
    let mut text = String::new();
    let mut tell = |name: &str, after: &Graph| {
        let (a, b) = (derived(&before), derived(after));
        let mut there: Vec<String> =
            diff((&before, &a), (after, &b)).iter().map(ToString::to_string).collect();
        there.extend(not_compared(&before, after));
        text += &format!("# {name}\n{}\n\n", there.join("\n"));
    };
    for (name, plant) in FAULTS {
        let mut after = fabric(SMALL);
        plant(&mut after);
        tell(name, &after);
    }
    tell("a unit more", &fabric(Size { units: 5, ..SMALL }));
    tell("a host less in each unit", &fabric(Size { hosts: 3, ..SMALL }));
    golden("changes.txt", &text);
}

/// A map of a cluster file: labels, machines, declared uplinks, no switches.
#[test]
fn a_map_without_switches() {
    let mut graph = fabric(SMALL);
    graph.switches.clear();
    graph.links.clear();
    let rules: Vec<Rule> = [("cluster", Source::Root), ("rack", Source::Named)]
        .map(|(name, source)| Rule { level: level(name), source })
        .to_vec();
    let clean = derive(&graph, &rules);
    assert_eq!(check(&graph, &clean), []);
    let mut weak = clean.clone();
    weak.domains[2].uplink.nominal_mb_per_s = 400_000;
    weak.domains[2].uplink.mb_per_s = 300_000;
    let told: Vec<String> = check(&graph, &weak).iter().map(ToString::to_string).collect();
    let expected = "warning: cluster/rack-1: its uplink carries less than those of others on its level (300 of 400 GB/s, 75 % left)";
    assert_eq!(told, [expected]);
    // Unknown before: no change.
    assert_eq!(diff((&graph, &clean), (&graph, &weak)), []);
    let mut full = weak.clone();
    full.domains[2].uplink.mb_per_s = 400_000;
    assert_eq!(
        diff((&graph, &full), (&graph, &weak))[0].to_string(),
        "~ cluster/rack-1: uplink 300 GB/s, was 400 GB/s"
    );
    for text in [dot(&graph, &weak), svg(&graph, &weak)] {
        assert!(text.contains("rack-1") && text.contains("n3-03"));
    }
    assert!(svg(&graph, &weak).contains("↑ 300 of 400 GB/s"));
}

/// A fabric, and the same as the nodes of a cluster, which know no switch.
fn as_cluster(graph: &Graph, domains: &Domains) -> (Graph, Domains) {
    let levels = Levels::new(domains.levels.clone(), level("node"));
    let (known, mut declared) = of_nodes(&levels, &to_nodes(graph, domains), &CostTable::default());
    for (to, from) in declared.domains.iter_mut().zip(&domains.domains) {
        let usual = from.uplink.nominal_mb_per_s;
        (to.uplink.mb_per_s, to.uplink.nominal_mb_per_s) = (from.uplink.mb_per_s, usual);
    }
    (known, declared)
}

#[test]
fn what_a_cluster_file_does_not_tell_is_no_change() {
    let graph = fabric(SMALL);
    let domains = derived(&graph);
    let (mut known, known_domains) = as_cluster(&graph, &domains);
    for host in &mut known.hosts {
        host.address = Some("127.0.0.1".into());
    }
    for (bare, expected) in [(false, 1), (true, 2)] {
        let mut fabric = graph.clone();
        if bare {
            fabric.hosts.iter_mut().for_each(|host| host.machine = None);
        }
        assert_eq!(diff((&known, &known_domains), (&fabric, &domains)), []);
        let notes = not_compared(&known, &fabric);
        assert_eq!(notes[0], "before tells nothing of switches; not compared");
        assert_eq!(notes.len(), expected, "{notes:?}");
    }
    // What both tell is still compared.
    let mut weak = graph;
    links_of(&mut weak, "su1-leaf2").for_each(|link| link.live = 0);
    let told: Vec<String> =
        diff((&known, &known_domains), (&weak, &derived(&weak))).iter().map(ToString::to_string).collect();
    assert_eq!(told, ["~ cluster/su1-leaf: uplink 600 GB/s, was 800 GB/s"]);
}

#[test]
fn a_change_has_all_names_and_a_line_has_some() {
    let before = fabric(Size { hosts: 1, ..SMALL });
    let mut after = before.clone();
    let names: Vec<String> = (0..80).map(|i| format!("x{}y{i}z", i * 7)).collect();
    let mut both = before;
    for name in &names {
        for graph in [&mut both, &mut after] {
            graph.switches.push(Switch { name: domain(name), tier: None, rail: None });
        }
        let link = cable(switch(&after, "su0-leaf0"), switch(&after, name));
        after.links.push(link);
    }
    let changes = diff((&both, &derived(&both)), (&after, &derived(&after)));
    let change = changes.iter().find(|change| change.what.starts_with("gained")).unwrap();
    assert!(names.iter().all(|name| change.what.contains(name.as_str())), "{}", change.what);
    assert!(change.to_string().ends_with(",…"), "{change}");
}

#[test]
fn measured_pairs_are_compared_with_peers_and_with_what_is_nominal() {
    let graph = fabric(SMALL);
    let domains = derived(&graph);
    let nodes = |a, b, mb_per_s| MeasuredPair { a: (a, None), b: (b, None), mb_per_s };
    let devices = |a, b, mb_per_s| MeasuredPair { a: ("n0-00", Some(a)), b: ("n0-00", Some(b)), mb_per_s };
    let pairs = [
        nodes("n0-00", "n0-01", 190_000),
        nodes("n0-00", "n1-00", 180_000),
        nodes("n0-01", "n1-01", 185_000),
        nodes("n0-02", "n2-00", 60_000),
        nodes("n0-03", "n2-01", 450_000),
        nodes("n0-03", "no-such-host", 1),
        devices(0, 1, 300_000),
        devices(3, 0, 310_000),
        devices(1, 2, 30_000),
        devices(1, 9, u64::MAX),
    ];
    let told: Vec<String> =
        check_measured(&graph, &domains, &pairs).iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "warning: n0-00: measured 30 GB/s between devices 1 and 2, where the median of its peers is 300 (30 of 300 GB/s, 10 % left)",
            "warning: n0-02: measured 60 GB/s to n2-00, where the median of its peers is 185 (60 of 185 GB/s, 32 % left)",
            "warning: n0-03: measured 450 GB/s to n2-01, which cannot be: 200 is nominal",
        ]
    );
    let alone = check_measured(&graph, &domains, &pairs[3..4]);
    assert!(alone[0].to_string().contains("far below what is nominal (60 of 200 GB/s"), "{alone:?}");
}

#[test]
fn a_picture_hides_nothing_that_is_wrong() {
    let mut graph = fabric(Size { units: 3, hosts: 40, ..SMALL });
    unplug(&mut graph, "su1-leaf2", "spine-2-3");
    host_mut(&mut graph, "n1-07").machine = None;
    for at in 0..30 {
        let name = format!("n0-{at:02}");
        label(&mut graph, &name, "rack", &format!("rack-with-a-rather-long-name-{}", at % 2 + 5));
    }
    let text = svg(&graph, &derived(&graph));
    assert!(text.contains("↑ 750 of 800 GB/s") && text.contains(">n1-07</text>"), "{text}");
    let foot = text.split("what leaves a domain").nth(1).unwrap();
    for finding in check(&graph, &derived(&graph)).iter().filter(|f| f.severity > Severity::Note).take(8) {
        let end = finding.to_string();
        let end = end.rsplit(' ').next().unwrap();
        assert!(foot.contains(end), "{end} is not in\n{foot}");
    }
    assert!(!foot.contains('…'), "{foot}");
}

#[test]
fn pictures() {
    let mut graph = fabric(Size { units: 2, hosts: 3, rails: 2, spines: 2 });
    link(&mut graph, "n1-01", "su1-leaf0").live = 0;
    golden("small.svg", &svg(&graph, &derived(&graph)));
    golden("small.dot", &dot(&graph, &derived(&graph)));
    // More than 16 equal hosts are one node; the one that differs is not among them.
    let mut graph = fabric(Size { units: 2, hosts: 20, rails: 2, spines: 2 });
    link(&mut graph, "n1-07", "su1-leaf0").live = 0;
    let text = dot(&graph, &derived(&graph));
    for expected in [
        "label=\"20 hosts: n0-[00-19]\\n4 devices each\"",
        "label=\"19 hosts: n1-[00-06,08-19]\\n4 devices each\"",
        "\"s:su0-leaf0\" -- \"h:n0-00\" [label=\"20 x 50 GB/s\"]",
        "\"s:su1-leaf0\" -- \"h:n1-07\" [label=\"0 of 1 x 50 GB/s up\", color=red, fontcolor=red]",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn a_large_fabric_is_a_small_picture() {
    let mut graph = fabric(Size { units: 400, hosts: 32, rails: 2, spines: 4 });
    links_of(&mut graph, "su7-leaf1").for_each(|link| link.live = 0);
    let domains = derived(&graph);
    let text = svg(&graph, &domains);
    assert!(text.len() < 400_000, "{} bytes", text.len());
    assert!(text.contains("12,800 hosts · 51,200 devices"));
    let told: Vec<String> = check(&graph, &domains).iter().map(ToString::to_string).collect();
    assert_eq!(told, ["severe: su7-leaf1: all of its 36 cables are down (0 of 1,800 GB/s, 0 % left)"]);
}

#[test]
fn the_real_fabric_lacks_what_its_cables_lack() {
    let data = root().join("../shared/data");
    if !data.is_dir() {
        println!("skipped: ../shared/data is not there");
        return;
    }
    let text = std::fs::read_to_string(data.join("topology/ibnetdiscover/topograph-example.out")).unwrap();
    let graph = ibnetdiscover::parse(&text).unwrap().graph;
    let domains = derived(&graph);
    let findings = check(&graph, &domains);
    // The first unit has no third leaf: IBLEAF-03-01 is absent.
    let severe: Vec<String> =
        findings.iter().filter(|f| f.severity == Severity::Severe).map(ToString::to_string).collect();
    let [leaf] = severe.as_slice() else { panic!("{severe:?}") };
    assert!(leaf.contains("IBLEAF-01-01: no leaf on rail 2: its hosts have 3 cables"), "{leaf}");
    // All the rest are uplinks: of 31 leaves with two cables to each of nine spines, 12 lack some.
    let rest: Vec<_> = findings.iter().filter(|f| f.severity < Severity::Severe).collect();
    assert!(
        rest.iter().all(|f| f.subject.kind == SubjectKind::Switch && f.what.contains("IBSPINE")),
        "{rest:?}"
    );
    let lacking: Vec<&String> = rest.iter().flat_map(|f| &f.subject.names).collect();
    assert_eq!(lacking.len(), 12, "{lacking:?}");
    let lost: u64 = rest
        .iter()
        .map(|f| f.cost.map_or(0, |cost| (cost.of - cost.have) / 50_000) * f.subject.names.len() as u64)
        .sum();
    // 31 leaves and 18 cables each, of which 538 are there.
    assert_eq!(lost, 31 * 18 - uplinks(&graph));
    assert_eq!(diff((&graph, &domains), (&graph, &domains)), []);
}

fn uplinks(graph: &Graph) -> u64 {
    let is_uplink = |link: &&FabricLink| matches!((link.a, link.b), (End::Switch(_), End::Switch(_)));
    graph.links.iter().filter(is_uplink).map(|link| u64::from(link.cables)).sum()
}

/// The same map with its vectors in another order.
fn shuffled(graph: &Graph, seed: u64) -> Graph {
    let mut state = seed | 1;
    let mut order = |count: usize| {
        let mut places: Vec<usize> = (0..count).collect();
        for i in (1..count).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(state >> 33).unwrap() % (i + 1);
            places.swap(i, at);
        }
        places
    };
    let (hosts, switches, links) =
        (order(graph.hosts.len()), order(graph.switches.len()), order(graph.links.len()));
    let place = |end: End| {
        let at = |places: &[usize], i: u32| {
            u32::try_from(places.iter().position(|old| *old == i as usize).unwrap()).unwrap()
        };
        match end {
            End::Host(i) => End::Host(at(&hosts, i)),
            End::Switch(i) => End::Switch(at(&switches, i)),
        }
    };
    let links =
        links.iter().map(|i| graph.links[*i]).map(|l| FabricLink { a: place(l.b), b: place(l.a), ..l });
    Graph {
        links: links.collect(),
        hosts: hosts.iter().map(|i| graph.hosts[*i].clone()).collect(),
        switches: switches.iter().map(|i| graph.switches[*i].clone()).collect(),
        tori: graph.tori.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_fabric_without_faults_has_no_findings(
        units in 1_u32..6, hosts in 1_u32..8, rails in 1_u32..5, spines in 1_u32..5, cables in 1_u16..4,
    ) {
        let mut graph = fabric(Size { units, hosts, rails, spines });
        graph.links.iter_mut().for_each(|link| (link.cables, link.live) = (cables, cables));
        prop_assert_eq!(found(&graph), "");
    }

    #[test]
    fn the_order_of_a_map_changes_nothing(seed in any::<u64>(), fault in 0..FAULTS.len(), is_unnamed in any::<bool>()) {
        let mut graph = fabric(SMALL);
        FAULTS[fault].1(&mut graph);
        if is_unnamed {
            // Switches with nothing in common in their names: the domain takes the name of the first.
            for (i, switch) in graph.switches.iter_mut().enumerate() {
                switch.name = domain(&format!("{}{i}", char::from(b'a' + u8::try_from(i * 7 % 26).unwrap())));
            }
        }
        let other = shuffled(&graph, seed);
        let (a, b) = (derived(&graph), derived(&other));
        let changes: Vec<String> = diff((&graph, &a), (&other, &b)).iter().map(ToString::to_string).collect();
        prop_assert_eq!(changes, Vec::<String>::new());
        if !is_unnamed {
            prop_assert_eq!(found(&graph), found(&other));
            // Labels that contradict the cables make the uplink of a unit that of its first host's domain.
            prop_assert!(FAULTS[fault].0.contains("label") || svg(&graph, &a) == svg(&other, &b));
        }
    }

    /// Nothing panics on a map that is nonsense, and the drawings are what they say they are.
    #[test]
    fn no_map_is_too_odd(
        links in prop::collection::vec((0_u32..12, 0_u32..12, any::<bool>(), any::<bool>(), 0_u16..3, 0_u16..3, prop_oneof![Just(0_u32), Just(u32::MAX), 1_u32..90_000]), 0..40),
        hosts in 0_usize..10, switches in 0_usize..10,
        tier in prop::option::of(any::<u8>()),
        torus in any::<[u16; 3]>(),
    ) {
        let mut graph = fabric(Size { units: 2, hosts: 3, rails: 2, spines: 1 });
        graph.hosts.truncate(hosts);
        graph.switches.truncate(switches);
        if let Some(switch) = graph.switches.last_mut() {
            switch.tier = tier;
        }
        graph.tori.push(Torus { host_chips: [0, 1, torus[0]], ..Torus::new(domain("t"), torus, true) });
        if let Some(host) = graph.hosts.first_mut() {
            host.torus = Some(TorusPlace { torus: 0, at: torus });
        }
        // Ends that are not there are left out: the tree of a reader has none.
        let end = |i: u32, is_host: bool| if is_host { End::Host(i) } else { End::Switch(i) };
        let is_there = |end: End| match end {
            End::Host(i) => (i as usize) < hosts.min(6),
            End::Switch(i) => (i as usize) < switches.min(6),
        };
        graph.links.retain(|link| is_there(link.a) && is_there(link.b));
        for (a, b, is_a, is_b, cables, live, mb_per_s) in links {
            let link = FabricLink { cables, live, mb_per_s, ..FabricLink::new(end(a, is_a), end(b, is_b)) };
            if is_there(link.a) && is_there(link.b) {
                graph.links.push(link);
            }
        }
        let domains = derived(&graph);
        for finding in check(&graph, &domains) {
            prop_assert!(!finding.subject.names.is_empty() && !finding.what.ends_with('.'));
        }
        let clean = fabric(SMALL);
        let _ = diff((&graph, &domains), (&clean, &derived(&clean)));
        let text = dot(&graph, &domains);
        prop_assert_eq!(text.matches('{').count(), text.matches('}').count());
        let text = svg(&graph, &domains);
        prop_assert_eq!(text.matches("<g>").count(), text.matches("</g>").count());
        // Another map's domains do not fit, and do no harm.
        let other = derived(&clean);
        let _ = check(&graph, &other);
        let _ = dot(&graph, &other);
        let _ = svg(&graph, &other);
    }
}
