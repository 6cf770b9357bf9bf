//! Cluster files, checked and written out.

use std::sync::Arc;

use phalanx_model::{Device, Link, LinkKind, Machine, Nic, Origin, Port, Spot};
use phalanx_spec::scalar::DeclaredLinkKind;
use phalanx_spec::{Cluster, ClusterFile, Hardware};
use proptest::prelude::*;

fn cluster(yaml: &str) -> Cluster {
    let file = ClusterFile::from_yaml(yaml, "cluster.yaml").unwrap_or_else(|error| panic!("{error}"));
    file.into_cluster().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_field_reaches_the_cluster() {
    let cluster = cluster(
        "
name: lab
levels: [cluster, block, leaf]
nodes:
  - name: node-[09-11]
    topo: dgx.txt
    model: NVIDIA H100 80GB HBM3
    gpu_memory: 80GB
    cpus: 128
    memory: 2TiB
    path: {block: b1, leaf: leaf-1}
    address: 10.0.0.[9-11]
    nic_bandwidth: 400Gb/s
    busy: [GPU0, 3, 5-6]
  - name: small
    devices: {count: 4, model: L40S, memory: 48GB, link: pcie}
    path: {cluster: other, block: b2, leaf: leaf-2}
links:
  block: {inside: 900GB/s}
  leaf: {bandwidth: 100GB/s, inside: 450GB/s, latency: 2us}
  node: {bandwidth: 50GB/s}
constants: site.toml
uplinks:
  - {path: {block: b1, leaf: leaf-1}, bandwidth: 75GB/s}
  - {node: node-10, bandwidth: 25GB/s, latency: 3us}
measured:
  - {a: node-09, b: node-11, bandwidth: 42GB/s, latency: 5us, by: nccl-tests}
  - {a: small/0, b: small/3, bandwidth: 20GB/s}
",
    );
    let uplinks: Vec<(String, u64, u64)> = cluster
        .uplinks
        .iter()
        .map(|(path, link)| {
            let path: Vec<&str> = path.iter().map(|domain| domain.as_str()).collect();
            (path.join("/"), link.bytes_per_s, link.latency_ns)
        })
        .collect();
    assert_eq!(
        uplinks,
        [
            ("lab/b1/leaf-1".to_owned(), 75_000_000_000, 2_000),
            ("lab/b1/leaf-1/node-10".to_owned(), 25_000_000_000, 3_000),
        ]
    );
    assert_eq!(cluster.measured[0].by.as_deref(), Some("nccl-tests"));
    assert_eq!((cluster.measured[1].a.device, cluster.measured[1].b.device), (Some(0), Some(3)));
    assert_eq!(cluster.name.as_str(), "lab");
    assert_eq!(cluster.levels.node.as_str(), "node");
    let above: Vec<&str> = cluster.levels.above.iter().map(|level| level.as_str()).collect();
    assert_eq!(above, ["cluster", "block", "leaf"]);
    let names: Vec<&str> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["node-09", "node-10", "node-11", "small"]);
    let node = &cluster.nodes[1];
    let path: Vec<&str> = node.path.iter().map(|domain| domain.as_str()).collect();
    assert_eq!(path, ["lab", "b1", "leaf-1"]);
    assert_eq!(
        (node.hardware.topo.as_deref(), node.hardware.model.as_deref()),
        (Some("dgx.txt"), Some("NVIDIA H100 80GB HBM3"))
    );
    assert_eq!(node.hardware.gpu_memory_bytes, Some(80_000_000_000));
    assert_eq!((node.hardware.cpu_milli, node.hardware.memory_bytes), (Some(128_000), Some(2 << 40)));
    assert_eq!(
        (node.address.as_deref(), node.hardware.nic_bytes_per_s),
        (Some("10.0.0.10"), Some(50_000_000_000))
    );
    assert_eq!((node.busy.to_string().as_str(), node.line), ("0,3,5-6", 5));
    let small = &cluster.nodes[3];
    let devices = small.hardware.devices.as_ref().unwrap();
    assert_eq!((devices.count, devices.model.as_str(), devices.memory_bytes), (4, "L40S", 48_000_000_000));
    assert_eq!(
        (devices.link, small.path[0].as_str(), small.address.as_deref()),
        (DeclaredLinkKind::Pcie, "other", None)
    );
    let links: Vec<(&str, u64, u64)> = cluster
        .links
        .iter()
        .map(|(level, link)| (level.as_str(), link.bytes_per_s, link.latency_ns))
        .collect();
    assert_eq!(links, [("block", 0, 0), ("leaf", 100_000_000_000, 2_000), ("node", 50_000_000_000, 0)]);
    let inside: Vec<u32> = cluster.level_costs().values().map(|cost| cost.inside_mb_per_s).collect();
    assert_eq!(inside, [900_000, 450_000, 0]);
    let inside: Vec<u32> = cluster.domain_costs().iter().map(|one| one.cost.inside_mb_per_s).collect();
    assert_eq!(inside, [450_000, 0], "an uplink that differs says nothing of what is inside");
    assert_eq!(cluster.constants.as_deref(), Some("site.toml"));
}

#[test]
fn prices_spot_nodes_and_windows_reach_the_cluster() {
    let cluster = cluster(
        "
levels: [cluster, rack]
nodes:
  - {name: 'a[1-2]', devices: {count: 8}, path: {rack: r1}, price: 3.50}
  - {name: s, devices: {count: 8}, path: {rack: r2}, price: 3.50, spot: {price: 1.20, notice: 2m}}
  - {name: t, path: {rack: r2}, spot: {}}
calendar:
  - {path: {rack: r1}, from: '2026-12-01T08:00Z', until: '2026-12-01T12:00+01:00'}
  - {nodes: [s, 'a[1-2]'], from: 2026-12-07T00:00Z, until: 2026-12-14T00:00Z, for: vision}
",
    );
    let spot = |notice_ms, price_micro_per_device_hour| Spot { price_micro_per_device_hour, notice_ms };
    let of: Vec<_> = cluster.nodes.iter().map(|n| (n.price_micro_per_device_hour, n.spot)).collect();
    let list = Some(3_500_000);
    let spot = [Some(spot(120_000, 1_200_000)), Some(spot(0, 0))];
    assert_eq!(of, [(list, None), (list, None), (list, spot[0]), (None, spot[1])]);
    let windows: Vec<String> = cluster
        .windows
        .iter()
        .map(|w| {
            let queue = w.held_for.as_ref().map_or("maintenance", |queue| queue.as_str());
            assert!(w.is_declared);
            format!("{} {} {} {queue}", w.node, w.begins_at.0 / 60_000, w.ends_at.since(w.begins_at) / 60_000)
        })
        .collect();
    let expected = [
        "a1 29935200 180 maintenance",
        "a2 29935200 180 maintenance",
        "s 29943360 10080 vision",
        "a1 29943360 10080 vision",
        "a2 29943360 10080 vision",
    ];
    assert_eq!(windows, expected);
}

#[test]
fn one_machine_needs_one_line() {
    let cluster = cluster("nodes: [{name: a, devices: {count: 8}}]");
    assert_eq!(cluster.levels.above.len(), 1);
    assert_eq!(cluster.nodes[0].path[0].as_str(), "cluster");
}

#[test]
fn a_cluster_holds_as_many_nodes_as_the_limit_says() {
    let cluster = cluster("nodes: [{name: \"n[1-100000]\", devices: {count: 8}}]");
    assert_eq!(cluster.nodes.len(), 100_000);
    let error = ClusterFile::from_yaml("nodes: [{name: \"n[1-100000]\"}, {name: m}]", "c")
        .unwrap()
        .into_cluster()
        .unwrap_err();
    assert!(error.to_string().contains("at most 100000"), "{error}");
}

#[test]
fn one_anchor_serves_every_node() {
    let mut text = "nodes:\n  - &base {name: n0, cpus: 64, devices: {count: 8}}\n".to_owned();
    text.extend((1..2000).map(|i| format!("  - {{<<: *base, name: n{i}}}\n")));
    let cluster = cluster(&text);
    assert_eq!((cluster.nodes.len(), cluster.nodes[1999].hardware.cpu_milli), (2000, Some(64_000)));
}

#[test]
fn one_name_twice_names_both_lines() {
    let error = ClusterFile::from_yaml("nodes:\n  - name: a\n  - name: b\n  - name: a\n", "c")
        .unwrap()
        .into_cluster()
        .unwrap_err();
    assert!(error.what().contains("lines 2 and 4"), "{error}");
}

/// A machine of twelve NICs: eight near to a GPU each, four for storage.
struct Dgx;

impl Hardware for Dgx {
    type Error = std::convert::Infallible;

    fn topology(&mut self, _: &str) -> Result<Machine, Self::Error> {
        let mut machine = Machine::bare(Origin::Found);
        machine.devices = vec![Device::default(); 8];
        machine.nics = vec![Nic { bytes_per_s: Some(25_000_000_000), ..Nic::default() }; 12];
        let pairs = (0..8).flat_map(|device| (0..12).map(move |nic| (device, nic)));
        let kind = |device, nic| if device == nic { LinkKind::PcieBridges } else { LinkKind::Socket };
        let link = |(device, nic)| Link::new(Port::Device(device), Port::Nic(nic), kind(device, nic));
        machine.links = pairs.map(link).collect();
        Ok(machine)
    }

    fn default_amounts(&mut self) -> (u64, u64) {
        (1000, 1 << 30)
    }
}

fn machine(node: &str) -> Arc<Machine> {
    let nodes = cluster(&format!("nodes: [{{name: a, {node}}}]")).nodes(&mut Dgx);
    let nodes = nodes.unwrap_or_else(|error| panic!("{error}"));
    Arc::clone(&nodes[0].machine)
}

#[test]
fn declared_nics_are_those_of_the_collective() {
    let machine = machine("topo: x, nic_bandwidth: 400GB/s");
    let speeds: Vec<u64> = machine.nics.iter().filter_map(|nic| nic.bytes_per_s).collect();
    assert_eq!(speeds[..8], [50_000_000_000; 8], "not split over those for storage");
    assert_eq!(speeds[8..], [25_000_000_000; 4]);
}

#[test]
fn declared_nvlinks_are_those_of_the_product() {
    for (model, links) in [("A800", 8), ("A30", 4), ("A6000", 4), ("P100", 4), ("V100", 6), ("H100", 18)] {
        let machine = machine(&format!("devices: {{count: 2, link: nvlink, model: NVIDIA {model}}}"));
        assert_eq!(machine.device_link(0, 1), Some(LinkKind::Nvlink(links)), "{model}");
    }
}

proptest! {
    #[test]
    fn no_value_panics(
        field in prop::sample::select(vec!["name", "topo", "devices", "path", "address", "busy", "nic_bandwidth", "cpus"]),
        value in "[-\\[\\]{}:,@a-z0-9.\" \\n\\t&*!|>#'é]{0,40}",
    ) {
        let text = format!("nodes:\n  - name: a\n    {field}: {value}\n");
        let _ = ClusterFile::from_yaml(&text, "f").map(ClusterFile::into_cluster).map_err(|error| error.to_string());
    }
}
