//! hwloc's XML: our own files of its versions, real ones where they are at hand, and damaged texts.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{groups, root};
use phalanx_discover::hwloc::{HwlocError, parse};
use phalanx_discover::{nccl, shape};
use phalanx_model::{LinkKind, Machine, Port};
use proptest::prelude::*;

const FIXTURES: [&str; 3] = ["v1-dual-socket.xml", "v2-bridged-pairs.xml", "v2-xgmi-pair.xml"];

fn fixture(name: &str) -> String {
    let path = root().join("fixtures/hwloc").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn machine(text: &str) -> (Machine, Vec<String>) {
    let (machine, gaps) = parse(text).unwrap().machine();
    (machine, gaps.iter().map(ToString::to_string).collect())
}

fn told(machine: &Machine, a: Port, b: Port) -> String {
    let link = machine.links.iter().find(|l| (l.a, l.b) == (a, b));
    link.map_or_else(|| "nothing".into(), |l| format!("{} {}", l.kind, l.nominal_mb_per_s))
}

const fn gpu(index: u32) -> Port {
    Port::Device(index)
}

#[test]
fn version_1_with_containers_switches_and_virtual_functions() {
    let (found, gaps) = machine(&fixture("v1-dual-socket.xml"));
    let left = "line 39, column 11: 1 virtual function of a network adapter is left out; its adapter is here";
    assert_eq!(gaps, [left]);
    let devices: Vec<_> = found.devices.iter().map(|d| (d.model.as_str(), d.numa, d.memory_bytes)).collect();
    let k80 = "Tesla K80";
    assert_eq!(
        devices,
        [(k80, Some(0), 11_761_280 << 10), (k80, Some(0), 0), ("AMD Instinct MI210", Some(1), 0)]
    );
    let nics: Vec<_> = found.nics.iter().map(|n| (n.name.as_str(), n.numa)).collect();
    assert_eq!(nics, [("eth0", Some(0)), ("mlx4_0", Some(0))]);
    assert_eq!((found.cpu_milli, found.memory_bytes), (8_000, 64 << 30), "the CPUs that are allowed");
    assert_eq!(told(&found, gpu(0), gpu(1)), "PIX 12000");
    assert_eq!(told(&found, gpu(0), gpu(2)), "SYS 12000");
    assert_eq!(told(&found, gpu(0), Port::Nic(1)), "PHB 6000");
    assert_eq!(told(&found, gpu(0), Port::Nic(0)), "NODE 12000");
    let pcie = found.groups.iter().find(|g| g.level.as_str() == shape::PCIE).unwrap();
    assert_eq!((pcie.devices.to_string().as_str(), pcie.uplink_mb_per_s), ("0-1", 12_000));
}

#[test]
fn version_2_with_matrices() {
    let (found, gaps) = machine(&fixture("v2-bridged-pairs.xml"));
    assert!(gaps.is_empty(), "{gaps:?}");
    assert_eq!(found.devices[0].memory_bytes, 41_487_360 << 10);
    assert_eq!(told(&found, gpu(0), gpu(1)), "NV12 300000");
    assert_eq!(told(&found, gpu(0), gpu(2)), "NODE 24000");
    assert_eq!(told(&found, gpu(1), Port::Nic(0)), "NODE 12000");
    assert_eq!((found.nics[0].name.as_str(), found.nics[0].numa), ("mlx5_0", Some(0)));

    let (found, gaps) = machine(&fixture("v2-xgmi-pair.xml"));
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert!(gaps[0].contains("no PCI bridge in the file"), "{gaps:?}");
    assert_eq!(
        (found.devices[0].model.as_str(), found.devices[0].memory_bytes),
        ("AMD Instinct MI300X OAM", 201_310_208 << 10)
    );
    assert_eq!(told(&found, gpu(0), gpu(1)), "XGMI 50000");
}

#[test]
fn what_is_not_told_is_a_gap() {
    // A model whose links are unknown, and a matrix that was cut.
    let text = fixture("v2-bridged-pairs.xml").replace("10de:20f1", "10de:9999");
    let (found, gaps) = machine(&text);
    assert_eq!(told(&found, gpu(0), gpu(1)), "NV1 300000");
    assert!(gaps[0].contains("what one NVLink of these GPUs carries is unknown"), "{gaps:?}");
    let text = fixture("v2-bridged-pairs.xml").replace("1000000 0 0 0 1000000", "");
    let (found, gaps) = machine(&text);
    assert_eq!(found.device_link(0, 1), Some(LinkKind::Nvlink(12)));
    assert!(gaps[0].ends_with("the matrix has 3 objects and 4 values"), "{gaps:?}");
    // Without PCI, what the libraries saw is still there.
    let text = "<topology version='2.0'><object type='Machine' cpuset='0xf...f,0x3'><object type='NUMANode' os_index='0'/>
      <object type='OSDev' name='cuda0' osdev_type='5'/><object type='OSDev' name='nvml0' osdev_type='1'/><object type='OSDev' name='nvml1' osdev_type='1'/></object></topology>";
    let (found, gaps) = machine(text);
    assert_eq!((found.devices.len(), found.cpu_milli, gaps.len()), (2, 2_000, 1));
    // The memory of a GPU is no place to hang on.
    let text = "<topology version='2.0'><object type='Machine' nodeset='0xf' cpuset='0x3'><object type='Package' nodeset='0x5'><object type='NUMANode' os_index='0' local_memory='5'/>
      <object type='NUMANode' os_index='2' subtype='GPUMemory' local_memory='7'/><object type='Bridge' bridge_type='0-1'><object type='PCIDev' pci_busid='0009:01:00.0' pci_type='0302 [10de:2342] [0000:0000] a1'/></object></object>
      <object type='Package' nodeset='0x2'><object type='NUMANode' os_index='1' local_memory='6'/></object></object></topology>";
    let (found, _) = machine(text);
    assert_eq!((found.devices[0].numa, found.memory_bytes), (Some(0), 11));
    assert!(matches!(parse("<system version='1'/>"), Err(HwlocError::Other { line: 1, column: 1, .. })));
    assert!(matches!(parse("\n<topology/>"), Err(HwlocError::NoObject { line: 2, column: 1 })));
    assert!(matches!(parse(""), Err(HwlocError::Xml(_))));
}

struct Real {
    file: &'static str,
    gpus: &'static str,
    nics: &'static str,
    threads: u64,
    memory_bytes: u64,
    pcie: &'static str,
    /// The kinds of all links, and how many.
    links: &'static [(LinkKind, u32, usize)],
    gaps: usize,
}

use LinkKind::{HostBridge, Nvlink, PcieSwitch, Socket};

/// As read in the files. GPUs and NICs are told as `NUMA node x how many`.
const REAL: [Real; 5] = [
    Real {
        file: "16intel64-manyVFs",
        gpus: "",
        nics: "0x4 1x2", // Two ports of one card, four of another; the functions without interfaces are free.
        threads: 16,
        memory_bytes: 68_682_809_344 + 68_719_476_736,
        pcie: "",
        links: &[(PcieSwitch, 0, 3), (HostBridge, 0, 4), (Socket, 0, 8)],
        gaps: 0,
    },
    Real {
        file: "32em64t-2n8c2t-pci-wholeio",
        gpus: "0x1 1x3", // One of them AMD's, seen by OpenCL; the board's own VGA is none.
        nics: "1x3",
        threads: 32,
        memory_bytes: 34_330_173_440 + 34_359_738_368,
        pcie: "2-3",
        links: &[(PcieSwitch, 0, 4), (HostBridge, 0, 11), (Socket, 0, 6)],
        gaps: 0,
    },
    Real {
        file: "96em64t-4n4d3ca2co-pci",
        gpus: "",
        nics: "0x2 1x2 2x2 3x2",
        threads: 96,
        memory_bytes: 51_269_931_008 + 3 * 51_271_172_096,
        pcie: "",
        links: &[(PcieSwitch, 0, 4), (Socket, 0, 24)],
        gaps: 0,
    },
    Real {
        file: "nvidia-dgx-gb10",
        gpus: "",
        nics: "",
        threads: 20,
        memory_bytes: 128_520_671_232,
        pcie: "",
        links: &[],
        gaps: 1, // No PCI in the file.
    },
    Real {
        file: "nvidiaDGX2",
        gpus: "0x8 1x8",
        nics: "",
        threads: 4,
        memory_bytes: 810_234_351_616 + 811_737_923_584,
        pcie: "0-3 4-7 8-11 12-15",
        links: &[(Nvlink(6), 150_000, 120)],
        gaps: 0,
    },
];

#[test]
fn real_files_are_read_as_expected() {
    let folder = root().join("../shared/data/topology/hwloc");
    if !folder.is_dir() {
        println!("skipped: ../shared/data is not there");
        return;
    }
    let numas = |all: Vec<Option<u32>>| {
        let mut all: Vec<u32> = all.into_iter().map(Option::unwrap).collect();
        all.sort_unstable();
        let groups = all.chunk_by(|a, b| a == b).map(|g| format!("{}x{}", g[0], g.len()));
        groups.collect::<Vec<_>>().join(" ")
    };
    for row in REAL {
        let text = std::fs::read_to_string(folder.join(format!("{}.xml", row.file))).unwrap();
        let (found, gaps) = machine(&text);
        assert_eq!(gaps.len(), row.gaps, "{}: {gaps:?}", row.file);
        assert_eq!(numas(found.devices.iter().map(|d| d.numa).collect()), row.gpus, "{}", row.file);
        assert_eq!(numas(found.nics.iter().map(|n| n.numa).collect()), row.nics, "{}", row.file);
        assert_eq!(
            (found.cpu_milli, found.memory_bytes),
            (row.threads * 1000, row.memory_bytes),
            "{}",
            row.file
        );
        assert_eq!(groups(&found, shape::PCIE), row.pcie, "{}", row.file);
        let mut links: Vec<_> = found.links.iter().map(|l| (l.kind, l.nominal_mb_per_s)).collect();
        links.sort_unstable();
        let links: Vec<_> = links.chunk_by(|a, b| a == b).map(|g| (g[0].0, g[0].1, g.len())).collect();
        assert_eq!(links, row.links, "{}", row.file);
    }
}

#[test]
fn a_real_tree_of_switches() {
    let path = root().join("../shared/data/topology/hwloc/nvidiaDGX2.xml");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: ../shared/data is not there");
        return;
    };
    // Without the matrix, PCIe shows: pairs below one switch, fours below one root port.
    let (found, gaps) = machine(&text.replace("NVLinkBandwidth", "Other"));
    assert!(gaps.is_empty(), "{gaps:?}");
    assert_eq!(
        (found.devices[0].model.as_str(), found.devices[15].name.as_str()),
        ("Tesla V100-SXM3-32GB-H", "GPU15")
    );
    for (b, class) in [(1, "PIX 12000"), (2, "PXB 12000"), (4, "NODE 12000"), (8, "SYS 12000")] {
        assert_eq!(told(&found, gpu(0), gpu(b)), class, "GPU0 and GPU{b}");
    }
    assert!(
        found.groups.iter().filter(|g| g.level.as_str() == shape::PCIE).all(|g| g.uplink_mb_per_s == 12_000)
    );
    // NCCL's form has no NODE of its own; it comes back all the same.
    let again = nccl::topo::parse(&nccl::write(&found)).unwrap().tree().machine().0;
    assert_eq!((again.links, again.groups), (found.links, found.groups));
}

proptest! {
    #[test]
    fn damaged_texts_are_survived(
        which in 0..FIXTURES.len(),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), 0..5_u8, any::<char>()), 1..12),
    ) {
        let mut lines: Vec<String> = fixture(FIXTURES[which]).lines().map(str::to_owned).collect();
        for (at, how, c) in hits {
            if lines.is_empty() {
                break;
            }
            let line = at.index(lines.len());
            match how {
                0 => drop(lines.remove(line)),
                1 => lines.insert(line, lines[line].clone()),
                2 => lines.truncate(line.max(1)),
                3 => lines[line] = lines[line].replacen('"', &c.to_string(), 1),
                _ => {
                    let at = lines[line].floor_char_boundary(line);
                    lines[line].insert(at, c);
                }
            }
        }
        if let Ok(found) = parse(&lines.join("\n")) {
            let _ = nccl::write(&found.machine().0);
        }
    }
}
