//! NCCL's XML: our own files, real ones where they are at hand, and texts that were hit by something.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{groups, machines, root};
use phalanx_discover::nccl::graph::{self, Pattern};
use phalanx_discover::nccl::{NcclError, merge, topo, write};
use phalanx_discover::shape;
use phalanx_model::{Device, Link, LinkKind, Machine, Nic, Origin, Port};
use proptest::prelude::*;

fn fixture(name: &str) -> String {
    let path = root().join("fixtures/nccl").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The real files of a folder; none, and a word about it, where they are not at hand.
fn real(folder: &str) -> Option<std::path::PathBuf> {
    let path = root().join("../shared/data/topology").join(folder);
    if !path.is_dir() {
        println!("skipped: ../shared/data is not there");
        return None;
    }
    Some(path)
}

/// The machine of the first host, and all gaps as people read them.
fn machine(text: &str) -> (Machine, Vec<String>) {
    let found = topo::parse(text).unwrap();
    let (machine, more) = found.tree().machine();
    (machine, found.gaps.iter().chain(&more).map(ToString::to_string).collect())
}

/// `g0-n1 PIX 24000`: a device and a NIC, their class, and what it carries.
fn assert_pairs(machine: &Machine, pairs: &str, what: &str) {
    let port = |text: &str| {
        let number = text[1..].parse().unwrap();
        if text.starts_with('g') { Port::Device(number) } else { Port::Nic(number) }
    };
    for pair in pairs.split(", ").filter(|p| !p.is_empty()) {
        let words: Vec<&str> = pair.split(' ').collect();
        let (a, b) = words[0].split_once('-').unwrap();
        let (a, b) = (port(a).min(port(b)), port(a).max(port(b)));
        let link = machine.links.iter().find(|l| (l.a, l.b) == (a, b));
        let link = link.unwrap_or_else(|| panic!("{what}: there is no link {pair}"));
        let found = format!("{} {}", link.kind, link.nominal_mb_per_s);
        assert_eq!(found, words[1..].join(" "), "{what}: {pair}");
    }
}

fn numas(machine: &Machine) -> String {
    let numa = |d: &Device| d.numa.map_or_else(|| "-".into(), |n| n.to_string());
    machine.devices.iter().map(numa).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_dump_of_a_job_tells_links_nics_and_uplinks() {
    let (machine, gaps) = machine(&fixture("hopper-pair.xml"));
    assert!(gaps.is_empty(), "{gaps:?}");
    assert_eq!(machine.devices[1].name, "GPU3", "the vendor's numbers, not the ranks");
    assert_eq!(machine.devices[0].model, "NVIDIA H100 80GB HBM3");
    assert_eq!(machine.cpu_milli, 128_000);
    let nics: Vec<_> = machine.nics.iter().map(|n| (n.name.as_str(), n.bytes_per_s, n.numa)).collect();
    let expected = [
        ("mlx5_2", Some(50_000_000_000), Some(0)),
        ("mlx5_3", None, Some(0)),
        ("ens1", Some(1_250_000_000), Some(0)),
        ("mlx5_9", Some(50_000_000_000), Some(1)),
    ];
    assert_eq!(nics, expected);
    // 18 and 16 links to switches: the pair has the fewer; the file has no rate of them.
    let pairs =
        "g0-g1 NV16 0, g0-n0 PIX 48000, g1-n1 PXB 24000, g0-n1 PHB 24000, g0-n2 PHB 48000, g0-n3 SYS 22000";
    assert_pairs(&machine, pairs, "hopper-pair");
    let up: Vec<_> = machine.groups.iter().map(|g| (g.level.as_str(), g.uplink_mb_per_s)).collect();
    assert_eq!(up, [(shape::NVLINK, 0), (shape::SOCKET, 22_000)]);
}

#[test]
fn hosts_of_one_dump_are_told_apart() {
    let found = topo::parse(&fixture("grace-two-hosts.xml")).unwrap();
    let hosts: Vec<_> =
        found.trees.iter().map(|t| (t.host.as_deref(), t.machine().0.devices.len())).collect();
    assert_eq!(hosts, [(Some("0xa1"), 2), (Some("0xa2"), 1)]);
    let (grace, gaps) = found.tree().machine();
    assert!(gaps.is_empty(), "{gaps:?}");
    // One lane of PCIe, and C2C beside it: what goes over the CPU is as fast as the NIC's 16 lanes.
    assert_pairs(&grace, "g0-g1 NV18 0, g0-n0 PHB 48000", "grace");
}

#[test]
fn links_that_do_not_agree_and_links_to_cpus() {
    let (power, gaps) = machine(&fixture("power-mesh.xml"));
    assert_eq!(gaps, ["line 3, column 5: GPU 0 says 3 links to GPU 1, which says 2; the fewer are taken"]);
    assert_eq!(numas(&power), "0 0 8");
    assert_pairs(&power, "g0-g1 NV2 0, g0-g2 SYS 32000", "power");
}

#[test]
fn details_of_the_format() {
    // pcilink: two bridges that are one switch. A target without a class is what the map says it is.
    let text = r#"<system version="1"><cpu numaid="-1"><pci busid="0000:01:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pcilink target="0000:02:00.0"/>
      <pci busid="00000000:0A:00.0" class="0x030200" link_speed="8 GT/s" link_width="8"><gpu dev="0" sm="80">
        <nvlink target="0000:0b:00.0" count="4"/><nvlink target="0000:99:00.0" count="1"/></gpu></pci></pci>
      <pci busid="0000:02:00.0" class="0x060400" link_speed="16 GT/s" link_width="16"><pcilink target="0000:01:00.0"/>
      <pci busid="0000:0b:00.0" class="0x0302" link_speed="8 GT/s" link_width="8"><gpu dev="1" sm="80"/></pci>
      <pci busid="0000:0c:00.0" class="0x020000"><nic><net name="a" dev="0" port="1"/><net name="b" dev="1" port="2"/><net name="a" dev="2" coll="1"/></nic></pci></pci>
    </cpu></system>"#;
    let (found, gaps) = machine(text);
    assert_eq!(gaps, ["line 4, column 50: a link leads to \"0000:99:00.0\", which is no GPU of this map"]);
    assert_eq!(
        (found.devices[0].numa, found.devices[0].pci_address.as_deref()),
        (None, Some("0000:0a:00.0"))
    );
    assert_pairs(&found, "g0-g1 NV4 0, g0-n0 PXB 6000, g1-n0 PIX 6000, n0-n1 PIX 0", "pcilink");
    assert_eq!(found.nics.len(), 2);
    let pcie = found.groups.iter().find(|g| g.level.as_str() == shape::PCIE).unwrap();
    assert_eq!((pcie.devices.count(), pcie.uplink_mb_per_s), (2, 48_000), "two ways out");
    // No CPUs, no classes, no speeds.
    let (bare, gaps) =
        machine("<system version='1'><pci busid='01:00.0'/><pci busid='x' class='0x030200'/></system>");
    assert_eq!((bare.devices.len(), gaps.len()), (1, 1));
    // One and the same number twice: by address.
    let text = "<system><cpu numaid='0'><pci busid='0:9:0.0' class='0x030000'><gpu dev='0'/></pci><pci busid='0:3:0.0'><gpu dev='0'/></pci></cpu></system>";
    assert_eq!(machine(text).0.devices[0].pci_address.as_deref(), Some("0000:03:00.0"));
}

#[test]
fn a_file_that_was_cut_keeps_what_is_there() {
    let text = fixture("hopper-pair.xml");
    let cut = text.find("<nvlink target=\"0000:06:00.0\"").unwrap();
    let (found, gaps) = machine(&text[..cut + 10]);
    assert_eq!(found.devices.len(), 1);
    assert_eq!((gaps.len(), gaps[0].starts_with("line 8, column 11: ")), (2, true), "{gaps:?}");
    assert_eq!(gaps[1], "line 8, column 21: the text ends inside <gpu>, which begins on line 6");
}

#[test]
fn what_is_no_topology_is_told_apart() {
    let error = topo::parse(&fixture("graphs.xml")).unwrap_err();
    assert!(matches!(error, NcclError::Other { line: 1, column: 1, .. }));
    assert!(error.to_string().contains("NCCL_TOPO_FILE"), "{error}");
    assert!(matches!(topo::parse("GPU0 GPU1"), Err(NcclError::Xml(_))));
    assert!(graph::parse("<system version='1'/>").unwrap_err().to_string().contains("NCCL_GRAPH_DUMP_FILE"));
}

#[test]
fn graphs_are_read() {
    let found = graph::parse(&fixture("graphs.xml")).unwrap();
    let gaps: Vec<String> = found.gaps.iter().map(ToString::to_string).collect();
    assert_eq!(
        gaps,
        [
            "line 11, column 7: <switch> of a channel is no GPU or NIC with a number; it is left out",
            "line 14, column 3: graph 4 says 16 channels and has 0",
        ]
    );
    let [ring, nvls] = found.graphs.as_slice() else { panic!("{:?}", found.graphs) };
    assert_eq!((ring.pattern, ring.mb_per_s_intra, ring.mb_per_s_inter), (Pattern::Ring, 20_000, 12_500));
    assert_eq!((ring.path_intra.as_str(), ring.path_inter.as_str()), ("NVL", "PIX"));
    assert!(ring.has_same_channels && ring.is_cross_nic);
    assert_eq!(
        (ring.channels[0].gpus.as_slice(), ring.channels[0].nets.as_slice()),
        (&[0, 1][..], &[0, 0x1_0000_0001][..])
    );
    assert_eq!((nvls.id, nvls.pattern, nvls.mb_per_s_intra), (4, Pattern::Nvls, 240));
    let Some(folder) = real("nccl_topo_xml") else { return };
    let found = graph::parse(&std::fs::read_to_string(folder.join("azure-ncv4-graph.xml")).unwrap()).unwrap();
    assert_eq!((found.gaps.len(), found.graphs.len()), (0, 3));
    let patterns = found.graphs.iter().map(|g| (g.pattern, g.channels.len(), g.mb_per_s_intra));
    let expected =
        [(Pattern::Ring, 2, 12_000), (Pattern::BalancedTree, 4, 12_000), (Pattern::Tree, 4, 12_000)];
    assert_eq!(patterns.collect::<Vec<_>>(), expected);
    assert_eq!(found.graphs[1].channels[2].gpus, [3, 2, 1, 0]);
}

struct Real {
    file: &'static str,
    gpus: usize,
    nics: usize,
    numa: &'static str,
    pcie: &'static str,
    /// What the PCIe groups' ways out carry.
    uplink: u32,
    pairs: &'static str,
    gaps: usize,
}

/// As read in the files. GPUs without numbers are in the order of their addresses.
const REAL: [Real; 6] = [
    Real {
        file: "a100-ndv4-full-gpu-nvlink-elasticflow",
        gpus: 8,
        nics: 8,
        numa: "0 0 1 1 2 2 3 3",
        pcie: "0-1 2-3 4-5 6-7",
        uplink: 24_000,
        pairs: "g0-g1 NV12 0, g0-g7 NV12 0, g0-n0 PIX 24000, g0-n1 PIX 24000, g0-n2 SYS 16000, n6-n7 PIX 24000",
        gaps: 0,
    },
    Real { file: "aws-g5.48xl-topo", gpus: 0, nics: 0, numa: "", pcie: "", uplink: 0, pairs: "", gaps: 0 },
    Real {
        file: "aws-p4d-24xl-topo",
        gpus: 8,
        nics: 4,
        numa: "0 0 0 0 1 1 1 1",
        pcie: "0-1 2-3 4-5 6-7",
        uplink: 12_000,
        pairs: "g0-g1 PIX 12000, g0-n0 PIX 12000, g0-g2 PHB 12000, g0-n1 PHB 12000, g3-g4 SYS 10000, n0-n3 SYS 10000",
        gaps: 0,
    },
    Real {
        file: "azure-ncv4-topo",
        gpus: 4,
        nics: 1,
        numa: "0 1 2 3",
        pcie: "",
        uplink: 0,
        pairs: "g0-g1 SYS 16000, g0-n0 PHB 0, g3-n0 SYS 16000",
        gaps: 4, // Each GPU is said to be linked with itself.
    },
    Real {
        file: "azure-ndv2-topo",
        gpus: 8,
        nics: 1,
        numa: "0 0 0 0 1 1 1 1",
        pcie: "",
        uplink: 0,
        pairs: "g0-g3 PHB 24000, g0-n0 PHB 24000, g4-n0 SYS 10000",
        gaps: 0,
    },
    Real {
        file: "azure-ndv4-topo",
        gpus: 8,
        nics: 8,
        numa: "1 1 0 0 3 3 2 2",
        pcie: "0-1 2-3 4-5 6-7",
        uplink: 24_000,
        pairs: "g0-g1 PIX 24000, g0-n0 PIX 24000, g2-n2 PIX 24000, g0-g2 SYS 16000, g4-n4 PIX 24000",
        gaps: 0,
    },
];

#[test]
fn real_files_are_read_as_expected() {
    let Some(folder) = real("nccl_topo_xml") else { return };
    for row in REAL {
        let text = std::fs::read_to_string(folder.join(format!("{}.xml", row.file))).unwrap();
        let (found, gaps) = machine(&text);
        assert_eq!((found.devices.len(), found.nics.len()), (row.gpus, row.nics), "{}", row.file);
        assert_eq!(gaps.len(), row.gaps, "{}: {gaps:?}", row.file);
        assert_eq!(
            (numas(&found).as_str(), groups(&found, shape::PCIE).as_str()),
            (row.numa, row.pcie),
            "{}",
            row.file
        );
        let pcie = found.groups.iter().filter(|g| g.level.as_str() == shape::PCIE);
        assert!(pcie.clone().all(|g| g.uplink_mb_per_s == row.uplink), "{}", row.file);
        assert_pairs(&found, row.pairs, row.file);
    }
}

/// A machine as a guest sees it: devices at these addresses, all NVLinked with `nvlinks`, and nothing else known.
fn live(gpus: &[&str], nics: &[(&str, &str)], nvlinks: u8) -> Machine {
    let mut machine = Machine::bare(Origin::Found);
    for (i, address) in (0..).zip(gpus) {
        let pci_address = Some((*address).to_owned());
        let model = "NVIDIA A100-SXM4-40GB".into();
        machine.devices.push(Device { name: format!("GPU{i}"), model, pci_address, ..Device::default() });
    }
    for (name, address) in nics {
        let pci_address = Some((*address).to_owned());
        machine.nics.push(Nic { name: (*name).to_owned(), pci_address, ..Nic::default() });
    }
    let count = u32::try_from(gpus.len()).unwrap();
    for a in 0..count {
        for b in a + 1..count {
            let kind = if nvlinks > 0 { LinkKind::Nvlink(nvlinks) } else { LinkKind::Socket };
            machine.links.push(Link::new(Port::Device(a), Port::Device(b), kind));
        }
    }
    shape::finish(&mut machine);
    machine
}

#[test]
fn vendors_files_are_completed_from_the_running_machine() {
    let Some(folder) = real("nccl_topo_xml") else { return };
    let tree = |name: &str| {
        let text = std::fs::read_to_string(folder.join(format!("{name}.xml"))).unwrap();
        topo::parse(&text).unwrap().tree().clone()
    };
    let gpus: Vec<String> =
        [1, 2, 3, 4, 0xb, 0xc, 0xd, 0xe].iter().map(|d| format!("{d:04x}:00:00.0")).collect();
    let gpus: Vec<&str> = gpus.iter().map(String::as_str).collect();
    let names: Vec<(String, String)> =
        (1..=8).map(|i| (format!("mlx5_ib{}", i - 1), format!("{:04x}:00:00.0", 0x100 + i))).collect();
    let nics: Vec<(&str, &str)> = names.iter().map(|(n, a)| (n.as_str(), a.as_str())).collect();
    let merged = merge(&tree("azure-ndv4-topo"), &live(&gpus, &nics, 12));
    assert_eq!(merged.gaps, []);
    let found = merged.machine;
    assert_eq!((numas(&found).as_str(), found.origin), ("1 1 0 0 3 3 2 2", Origin::Found));
    assert_eq!((found.nics[0].name.as_str(), found.nics[0].numa), ("mlx5_ib0", Some(1)));
    assert_pairs(&found, "g0-g7 NV12 0, g0-n0 PIX 24000, g0-n1 PIX 24000, g0-n2 SYS 16000", "ndv4");
    assert_eq!(
        (groups(&found, shape::PCIE).as_str(), groups(&found, shape::NVLINK).as_str()),
        ("0-1 2-3 4-5 6-7", "0-7")
    );

    // Slots alone: the NUMA nodes are all that the file tells; one GPU is missing, one NIC is not in the file.
    let gpus: Vec<String> = (0x17..=0x1d).map(|d| format!("0000:00:{d:02x}.0")).collect();
    let gpus: Vec<&str> = gpus.iter().map(String::as_str).collect();
    let merged = merge(
        &tree("aws-g5.48xl-topo"),
        &live(&gpus, &[("efa0", "0000:00:15.0"), ("eth9", "0000:77:00.0")], 0),
    );
    let gaps: Vec<String> = merged.gaps.iter().map(ToString::to_string).collect();
    assert_eq!(gaps, ["eth9 at 0000:77:00.0 is not in the file; it is placed nowhere"]);
    assert_eq!(numas(&merged.machine), "0 0 0 1 1 1 1");
    assert_pairs(&merged.machine, "g0-g1 PHB 0, g0-g3 SYS 0, g3-n0 PHB 0", "g5");

    // The file knows GPUs that are not there, and a bridge whose buses include a NIC that it does not name.
    let gpus = ["0000:10:1c.0", "0000:10:1d.0", "0000:20:1c.0"];
    let merged = merge(
        &tree("aws-p4d-24xl-topo"),
        &live(&gpus, &[("rdmap0", "0000:10:1b.0"), ("eth0", "0000:20:01.0")], 12),
    );
    assert_eq!(merged.gaps.len(), 8, "{:?}", merged.gaps);
    assert!(
        merged.gaps[0]
            .to_string()
            .ends_with("the file has a device at 0000:20:1d.0, and this machine has none there")
    );
    assert_pairs(&merged.machine, "g0-g1 NV12 0, g0-n0 PIX 12000, g2-n1 PIX 12000, g2-n0 PHB 12000", "p4d");
}

/// What must come back: every link that there was, and all of devices and NICs that the format carries.
fn assert_comes_back(machine: &Machine, what: &str) {
    let text = write(machine);
    let found = topo::parse(&text).unwrap();
    let (again, gaps) = found.tree().machine();
    assert!(found.gaps.is_empty() && gaps.is_empty(), "{what}: {:?} {gaps:?}\n{text}", found.gaps);
    assert_eq!(again.links, machine.links, "{what}\n{text}");
    assert_eq!((again.cpu_milli, again.memory_bytes), (machine.cpu_milli, machine.memory_bytes), "{what}");
    assert_eq!(again.nics, machine.nics, "{what}\n{text}");
    let of = |m: &Machine| {
        m.devices.iter().map(|d| (d.numa, d.pci_address.clone(), d.model.clone())).collect::<Vec<_>>()
    };
    assert_eq!(of(&again), of(machine), "{what}\n{text}");
}

#[test]
fn what_is_written_is_read_back() {
    let folder = root().join("fixtures/topo_m");
    let mut texts: Vec<std::path::PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    texts
        .extend(real("topo_m").iter().flat_map(|f| std::fs::read_dir(f).unwrap().map(|e| e.unwrap().path())));
    for path in texts {
        let Ok(found) = phalanx_discover::topo_m::parse(&std::fs::read_to_string(&path).unwrap()) else {
            continue;
        };
        assert_comes_back(&found.machine, &path.display().to_string());
    }
    for name in ["hopper-pair.xml", "grace-two-hosts.xml"] {
        let (found, _) = machine(&fixture(name));
        assert_comes_back(&found, name);
    }
    for folder in ["nccl_topo_xml", "rccl_topo_xml"].iter().filter_map(|f| real(f)) {
        for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            let Ok(found) = topo::parse(&std::fs::read_to_string(&path).unwrap()) else { continue };
            let (found, _) = found.tree().machine();
            assert_comes_back(&found, &path.display().to_string());
            let (again, _) = machine(&write(&found));
            assert_eq!(again.groups, found.groups, "{}", path.display());
        }
    }
}

#[test]
fn what_is_not_known_is_written_as_such() {
    let mut found = live(&["0000:01:00.0", "0000:02:00.0"], &[("eth0", "0000:03:00.0")], 0);
    found.links.clear();
    (found.cpu_milli, found.memory_bytes) = (96_000, 1 << 40);
    shape::finish(&mut found);
    let text = write(&found);
    assert!(text.contains("The source tells of no link between devices"), "{text}");
    assert!(text.contains(r#"unknown_gpus="00000002" unknown_nics="00000001""#), "{text}");
    assert!(!text.contains("affinity"), "NCCL binds to a mask, and none is known: {text}");
    let (again, gaps) = machine(&text);
    assert_eq!((again.links.as_slice(), gaps.len()), (&[][..], 0));
    assert_eq!((again.cpu_milli, again.memory_bytes), (96_000, 1 << 40));

    // A kind of CPU stands for its speed alone.
    let text = write(&machine(&fixture("hopper-pair.xml")).0);
    assert!(text.contains("true_cpu=\"unknown\"") && !text.contains("no link between"), "{text}");
}

/// Two levels of bridges with devices at all heights, on a few CPUs: `(cpu, top, switch, kind, lanes)` each.
fn trees() -> impl Strategy<Value = String> {
    let leaf = (0..3_usize, 0..3_usize, 0..3_usize, any::<bool>(), prop::sample::select(vec![1, 4, 8, 16]));
    (proptest::collection::vec(leaf, 1..14), any::<bool>(), 0..3_usize).prop_map(|(leaves, has_switch, model)| {
        let mut text = String::from("<system version='1'>");
        for cpu in 0..3 {
            text += &format!("<cpu numaid='{cpu}' arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='{}'>", [85, 143, 207][model]);
            for top in 0..3 {
                text += &format!("<pci busid='ffff:0{cpu}:0{top}.0' class='0x060400' link_speed='8 GT/s' link_width='16'>");
                for switch in 0..3 {
                    text += &format!("<pci busid='ffff:1{cpu}:{top}{switch}.0' class='0x060400' link_speed='16 GT/s' link_width='8'>");
                    for (i, leaf) in leaves.iter().enumerate().filter(|(_, l)| (l.0, l.1, l.2) == (cpu, top, switch)) {
                        let fabric = if has_switch { format!("<nvlink target='a' count='{}' tclass='0x068000'/>", i + 4) } else { String::new() };
                        let inside = if leaf.3 { format!("<gpu dev='{i}' sm='80'>{fabric}</gpu>") } else { format!("<nic><net name='n{i}' dev='{i}' speed='{i}000'/></nic>") };
                        text += &format!("<pci busid='0000:{:02x}:00.0' link_speed='16 GT/s' link_width='{}'>{inside}</pci>", i + 1, leaf.4);
                    }
                    text += "</pci>";
                }
                text += "</pci>";
            }
            text += "</cpu>";
        }
        text + "</system>"
    })
}

proptest! {
    #[test]
    fn trees_come_back(text in trees()) {
        let (found, gaps) = machine(&text);
        prop_assert!(gaps.is_empty(), "{:?}", gaps);
        assert_comes_back(&found, &text);
    }

    #[test]
    fn machines_that_are_no_tree_are_written_all_the_same(machine in machines()) {
        let found = topo::parse(&write(&machine)).unwrap();
        let (again, _) = found.tree().machine();
        prop_assert!(found.gaps.is_empty());
        prop_assert_eq!(again.devices.len(), machine.devices.len());
        prop_assert_eq!(again.nics.len(), machine.nics.len());
        prop_assert!(again.devices.iter().zip(&machine.devices).all(|(a, b)| a.numa == b.numa));
        let pairs = |m: &Machine| m.links.iter().map(|l| (l.a, l.b)).collect::<Vec<_>>();
        prop_assert_eq!(pairs(&again), pairs(&machine), "unknown pairs stay unknown");
        prop_assert_eq!(again.cpu_milli, machine.cpu_milli);
    }

    #[test]
    fn damaged_texts_are_survived(
        which in 0..4_usize,
        hits in proptest::collection::vec((any::<prop::sample::Index>(), 0..6_u8, any::<char>()), 1..12),
    ) {
        let name = ["hopper-pair.xml", "grace-two-hosts.xml", "power-mesh.xml", "graphs.xml"][which];
        let text = hit(&fixture(name), &hits);
        let _ = graph::parse(&text);
        if let Ok(found) = topo::parse(&text) {
            for tree in &found.trees {
                let (machine, _) = tree.machine();
                let _ = write(&machine);
                let _ = merge(tree, &machine);
            }
        }
    }

    #[test]
    fn any_text_is_survived(text in "(<|>|/|=|\"|'| |pci|cpu|system|gpu|nvlink|busid|\\PC){0,200}") {
        let _ = topo::parse(&text);
        let _ = graph::parse(&text);
    }
}

/// Characters taken out, put in and changed; lines twice, lines gone; the end cut off.
fn hit(text: &str, hits: &[(prop::sample::Index, u8, char)]) -> String {
    let mut text = text.to_owned();
    for (at, how, c) in hits {
        let mut lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() {
            break;
        }
        if *how < 2 {
            let line = at.index(lines.len());
            if *how == 0 {
                lines.insert(line, lines[line]);
            } else {
                lines.remove(line);
            }
            text = lines.join("\n");
            continue;
        }
        let mut chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        match how {
            2 => drop(chars.remove(at)),
            3 => chars.insert(at, *c),
            4 => chars[at] = *c,
            _ => chars.truncate(at.max(1)),
        }
        text = chars.into_iter().collect();
    }
    text
}
