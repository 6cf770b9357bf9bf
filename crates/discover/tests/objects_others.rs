//! Topologies, HyperNodes, ResourceSlices and profiles, over real files and small ones.

mod objects_support;

use std::fmt::Write as _;

use objects_support::{damaged, damages, fixture, real};
use phalanx_discover::objects::{Preset, hyper_nodes, nodes, nvml_profile, resource_slices, topologies};
use phalanx_discover::shape;
use phalanx_model::{Host, LinkKind, Machine, Port};
use proptest::prelude::*;

fn path(host: &Host) -> String {
    let domains: Vec<&str> = host.domains.iter().map(|m| m.domain.as_str()).collect();
    format!("{}: {}", host.name, domains.join(" "))
}

fn groups(machine: &Machine, level: &str) -> String {
    shape::groups(machine, level).map(|g| g.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn real_topology_objects_become_presets() {
    let cases = [
        ("kueue-tas-queues.yaml", vec![("default", "topology-block topology-rack")]),
        ("kueue-tas-gpu-queues.yaml", vec![("default", "topology-block topology-rack")]),
        ("kueue-topology-oci-rdma.yaml", vec![("oci-rdma", "hpc-island network-block local-block")]),
        ("kai-topology-aliases.yaml", vec![("network", "rack")]),
        (
            "kai-multi-topology-jobs.yaml",
            vec![("rack-topology", "rack-domain"), ("zone-topology", "zone-domain")],
        ),
    ];
    for (file, wanted) in cases {
        let Some(text) = real(&format!("k8s/{file}")) else { return };
        let found = topologies::parse(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        let levels =
            |preset: &Preset| preset.levels.iter().map(|l| l.level.as_str()).collect::<Vec<_>>().join(" ");
        let have: Vec<(&str, String)> = found
            .topologies
            .iter()
            .map(|t| (t.name.as_str(), t.preset.as_ref().map_or_else(String::new, levels)))
            .collect();
        let wanted: Vec<(&str, String)> =
            wanted.into_iter().map(|(name, levels)| (name, levels.to_owned())).collect();
        assert_eq!((have, found.gaps), (wanted, vec![]), "{file}");
    }
}

#[test]
fn the_real_hyper_nodes_become_domains() {
    let Some(text) = real("k8s/volcano-hypernodes.yaml") else { return };
    let found = topologies::parse(&text).unwrap();
    // Twice, the line between two documents is a comment.
    assert_eq!((found.hyper_nodes.len(), found.gaps.len()), (13, 2), "{:?}", found.gaps);
    let reading = hyper_nodes::place(&found.hyper_nodes, None);
    let levels: Vec<&str> = reading.levels.iter().map(|level| level.as_str()).collect();
    assert_eq!(levels, ["tier-3", "tier-2", "tier-1"]);
    let paths: Vec<String> = reading.graph.hosts.iter().map(path).collect();
    assert_eq!(paths.len(), 9);
    assert_eq!(paths[0], "node0: s6 s4 s0");
    assert_eq!(paths[8], "node8: nvlink_network-3");
    // The file has two topologies for the same nodes, and one names its members otherwise than they are called.
    let gaps = reading.gaps.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(gaps.contains("\"nvlink-network0\" is not there; did you mean nvlink_network-0?"), "{gaps}");
    assert!(gaps.contains("the node node1 is in nvlink_network-0 and in s0, both of tier 1"), "{gaps}");
}

#[test]
fn every_selector_chooses_its_members() {
    let mut text = String::new();
    for (name, labels) in [
        ("n1", "{}"),
        ("n2", "{}"),
        ("n3", "{}"),
        ("n4", "{}"),
        ("n5", "{row: c}"),
        ("n6", "{row: c, broken: x}"),
    ] {
        write!(text, "---\nkind: Node\nmetadata: {{name: {name}, labels: {labels}}}\nstatus: {{capacity: {{cpu: 4}}}}\n").unwrap();
    }
    let nodes = nodes::read(&text).unwrap();
    let found = topologies::parse(&fixture("hypernodes.yaml")).unwrap();
    let reading = hyper_nodes::place(&found.hyper_nodes, Some(&nodes));
    let paths: Vec<String> = reading.graph.hosts.iter().map(path).collect();
    let wanted = [
        "n1: spine-1 rack-a",
        "n2: spine-1 rack-a",
        "n3: spine-1 rack-b",
        "n4: spine-1 rack-b",
        "n5: rack-c",
        "n6: ",
    ];
    assert_eq!(paths, wanted);
    let levels: Vec<&str> = reading.levels.iter().map(|level| level.as_str()).collect();
    assert_eq!(levels, ["tier-2", "rack"]);
    let gaps = reading.gaps.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for part in [
        "\"rack-C\" is not there; did you mean rack-c?",
        "loop is of tier 2, which is not below its own 2",
        "1 node in no HyperNode: n6",
    ] {
        assert!(gaps.contains(part), "{part}: {gaps}");
    }
    // What is written is read again as the same domains.
    let written = hyper_nodes::to_volcano(&reading.graph, &reading.levels);
    let again = topologies::parse(&written).unwrap();
    let again = hyper_nodes::place(&again.hyper_nodes, Some(&nodes));
    assert_eq!(again.levels, reading.levels);
    assert_eq!(path(&again.graph.hosts[2]), "n3: spine-1 rack-b");
    assert_eq!(path(&again.graph.hosts[4]), "n5: rack-c");
}

#[test]
fn a_kueue_topology_is_read_as_it_was_written() {
    let preset = Preset::named("oci").unwrap();
    let found = topologies::parse(&topologies::to_kueue("OCI rdma", &preset)).unwrap();
    let again = found.topologies[0].preset.clone().unwrap();
    assert_eq!(found.topologies[0].name, "oci-rdma");
    let keys = |preset: &Preset| preset.levels.iter().map(|l| l.keys[0].clone()).collect::<Vec<_>>();
    assert_eq!(keys(&again), keys(&preset));
    // The names of levels too, which Kueue's object has no field for.
    let preset = Preset::custom([("hall", "example.com/a"), ("row", "example.com/b")]).unwrap();
    let found = topologies::parse(&topologies::to_kueue("own", &preset)).unwrap();
    let again = found.topologies[0].preset.clone().unwrap();
    assert_eq!(again.levels, preset.levels);
}

#[test]
fn published_devices_become_machines() {
    let found = resource_slices::parse(&fixture("slices.yaml")).unwrap();
    let [n1, n2] = &found.reading.graph.hosts[..] else { panic!() };
    let machine = n1.machine.as_ref().unwrap();
    assert_eq!(found.nodes[0].uuids, ["GPU-a", "GPU-b", "GPU-c"]);
    assert!(found.nodes[0].has_compute_domain && !found.nodes[1].has_compute_domain);
    let devices: Vec<(Option<&str>, Option<u32>, u64, bool)> = machine
        .devices
        .iter()
        .map(|d| (d.pci_address.as_deref(), d.numa, d.memory_bytes >> 30, d.is_sliced))
        .collect();
    let wanted = [
        (Some("0000:1b:00.0"), None, 0, true),
        (Some("0000:3b:00.0"), Some(0), 80, false),
        (Some("0000:9a:00.0"), Some(1), 80, false),
    ];
    assert_eq!(devices, wanted);
    let parts: Vec<(u32, &str, &str, u64)> = found.nodes[0]
        .parts
        .iter()
        .map(|p| (p.parent, p.uuid.as_str(), p.profile.as_str(), p.memory_bytes >> 20))
        .collect();
    assert_eq!(parts, [(0, "MIG-a0", "1g.10gb", 9856)]);
    assert_eq!(machine.nics.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["mlx5_2"]);
    assert_eq!(machine.link(Port::Device(1), Port::Nic(0)), Some(LinkKind::PcieSwitch));
    assert_eq!(machine.link(Port::Device(2), Port::Nic(0)), Some(LinkKind::Socket));
    assert_eq!(machine.device_link(0, 1), None);
    let small = n2.machine.as_ref().unwrap();
    assert_eq!((small.devices[0].model.as_str(), small.devices[0].memory_bytes), ("NVIDIA A30", 24 << 30));
    let gaps = found.reading.gaps.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(gaps.contains("the pool n2 of gpu.nvidia.com has 1 of 2 slices"), "{gaps}");
}

#[test]
fn the_real_devices_are_one_gpu_cut_into_slices() {
    let Some(text) = real("k8s/resourceslice-devices-gpu-mig-vfio.yaml") else { return };
    let found = resource_slices::parse(&text).unwrap();
    let machine = found.reading.graph.hosts[0].machine.as_ref().unwrap();
    let [device] = &machine.devices[..] else { panic!("{:?}", machine.devices) };
    assert_eq!(device.model, "NVIDIA A100-PCIE-40GB");
    assert_eq!((device.pci_address.as_deref(), device.numa), (Some("0000:65:00.0"), Some(0)));
    assert_eq!((device.memory_bytes, device.is_sliced), (40 << 30, true));
    assert_eq!(found.nodes[0].uuids, ["GPU-2fa81118-5a5f-aa66-7660-471eed407181"]);
    assert_eq!(
        (found.nodes[0].parts[0].profile.as_str(), found.nodes[0].parts[0].memory_bytes),
        ("1g.5gb", 4864 << 20)
    );
    assert!(found.reading.gaps.iter().any(|gap| gap.what.contains("no slice says which node")));
}

#[test]
fn real_profiles_become_machines() {
    // Devices, GiB each, links of a pair, sockets, Gbit/s of the adapters, gaps.
    let cases = [
        ("a100", 8, 40, Some(12), "0-3 4-7", Some(200), 0),
        ("h100", 8, 80, Some(18), "0-3 4-7", Some(400), 0),
        ("b200", 8, 192, None, "0-3 4-7", Some(400), 1),
        ("gb200", 8, 192, Some(18), "0-1 2-3 4-5 6-7", Some(400), 0),
        ("gb300", 8, 288, Some(18), "0-1 2-3 4-5 6-7", Some(400), 0),
        ("l40s", 8, 48, None, "0-1,4-5 2-3,6-7", None, 0),
        ("t4", 4, 16, None, "0-3", None, 0),
    ];
    for (name, count, gib, nvlinks, sockets, rate, gaps) in cases {
        let Some(text) = real(&format!("k8s/nvml-mock-profile-{name}.yaml")) else { return };
        let profile = nvml_profile::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let machine = &profile.machine;
        assert_eq!(
            (machine.devices.len(), profile.uuids.len(), profile.gaps.len()),
            (count, count, gaps),
            "{name}: {:?}",
            profile.gaps
        );
        assert!(machine.devices.iter().all(|d| d.memory_bytes == gib << 30 && d.numa.is_some()), "{name}");
        let best = machine.device_link(0, 1).unwrap();
        assert_eq!(
            best,
            nvlinks.map_or(if name == "l40s" { LinkKind::PcieSwitch } else { best }, LinkKind::Nvlink),
            "{name}"
        );
        assert_eq!(groups(machine, shape::NVLINK).is_empty(), nvlinks.is_none(), "{name}");
        assert_eq!(groups(machine, shape::SOCKET).replace(' ', ";"), sockets.replace(' ', ";"), "{name}");
        let nics: Vec<Option<u64>> = machine.nics.iter().map(|n| n.bytes_per_s).collect();
        assert_eq!(
            nics,
            vec![rate.map(|r| r * 125_000_000); if rate.is_some() { count } else { 0 }],
            "{name}"
        );
        if rate.is_some() {
            assert_eq!(machine.link(Port::Device(0), Port::Nic(0)), Some(LinkKind::PcieSwitch), "{name}");
            assert_eq!(machine.link(Port::Device(0), Port::Nic(7)), Some(LinkKind::Socket), "{name}");
        }
    }
    let Some(text) = real("k8s/nvml-mock-profile-h100.yaml") else { return };
    let profile = nvml_profile::parse(&text).unwrap();
    assert_eq!(profile.clique.as_deref(), Some("00000000-0000-0000-0000-000000000001.0"));
    let link =
        profile.machine.links.iter().find(|l| (l.a, l.b) == (Port::Device(0), Port::Device(1))).unwrap();
    assert_eq!(link.nominal_mb_per_s, 18 * 26_562);
}

#[test]
fn links_that_a_profile_writes_out_are_counted() {
    let text = "
device_defaults: {name: V100, mig: {mode_current: disabled}}
devices:
- {index: 0, pci: {bus_id: '0000:06:00.0'}}
- {index: 1, pci: {bus_id: '0000:07:00.0'}}
- {index: 2, pci: {bus_id: '0000:0A:00.0'}, mig: {mode_current: Enabled}}
nvlink:
  links_per_gpu: 6
  bandwidth_per_link_mbps: 25000
  device_links:
  - index: 0
    links:
    - {link: 0, remote_index: 1}
    - {link: 1, remote_pci_bus_id: '0000:07:00.0'}
    - {link: 2, remote_pci_bus_id: '0000:07:00.0', state: inactive}
    - {link: 3, remote_index: 2}
";
    let machine = nvml_profile::parse(text).unwrap().machine;
    assert_eq!(machine.device_link(0, 1), Some(LinkKind::Nvlink(2)));
    // A device in MIG mode has no NVLink, and nothing says where it hangs.
    assert_eq!(machine.device_link(0, 2), None);
    assert!(machine.devices[2].is_sliced);
}

proptest! {
    #[test]
    fn damage_never_panics(damages in damages()) {
        let _ = resource_slices::parse(&damaged(&fixture("slices.yaml"), &damages));
        if let Ok(found) = topologies::parse(&damaged(&fixture("hypernodes.yaml"), &damages)) {
            let reading = hyper_nodes::place(&found.hyper_nodes, None);
            let _ = hyper_nodes::to_volcano(&reading.graph, &reading.levels);
        }
        if let Some(text) = real("k8s/nvml-mock-profile-h100.yaml") {
            let _ = nvml_profile::parse(&damaged(&text, &damages));
        }
    }
}

/// Members of a HyperNode are whole names, however long.
#[test]
fn a_long_name_is_written_whole() {
    let name = format!("node-{}", "x".repeat(200));
    let level = phalanx_model::LevelName::new("rack").unwrap();
    let domain = phalanx_model::DomainName::new("r1").unwrap();
    let mut host = phalanx_model::Host::new(phalanx_model::NodeName::new(name.as_str()).unwrap());
    host.domains = vec![phalanx_model::Membership { level: level.clone(), domain }];
    let graph = phalanx_model::Graph { hosts: vec![host], ..phalanx_model::Graph::default() };
    let text = phalanx_discover::objects::hyper_nodes::to_volcano(&graph, &[level]);
    assert!(text.contains(&name), "{text}");
}
