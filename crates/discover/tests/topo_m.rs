//! `topo -m` texts: our own, real ones where they are at hand, and texts that were hit by something.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{fixture, groups, machines, read, root};
use phalanx_discover::topo_m::{TEXT_BYTES_MAX, TopoError, parse};
use phalanx_discover::{describe, shape};
use phalanx_model::{LinkKind, Machine, Port};
use proptest::prelude::*;

const FIXTURES: [&str; 8] = [
    "a100-nps4-8.txt",
    "ansi-truncated.txt",
    "gpu-pair-old.txt",
    "h100-degraded-8.txt",
    "h100-nvswitch-8.txt",
    "pcie-8.txt",
    "v100-hcm-8.txt",
    "v100-nvswitch-16.txt",
];

#[test]
fn a_hybrid_cube_mesh_falls_into_its_quads() {
    let found = read("v100-hcm-8.txt");
    assert_eq!(found.gaps, []);
    let machine = found.machine;
    assert_eq!((machine.devices.len(), machine.nics.len()), (8, 2));
    assert_eq!(groups(&machine, shape::NVLINK), "0-3 4-7");
    assert_eq!(groups(&machine, shape::PCIE), "0-1 4-5");
    assert_eq!(groups(&machine, shape::SOCKET), "0-3 4-7");
    assert_eq!(machine.device_link(4, 0), Some(LinkKind::Nvlink(2)));
    assert_eq!(machine.device_link(0, 5), Some(LinkKind::Socket));
    assert_eq!(machine.link(Port::Nic(1), Port::Device(4)), Some(LinkKind::PcieSwitch));
    assert_eq!((machine.nics[0].numa, machine.nics[1].numa), (Some(0), Some(1)));
    assert_eq!(machine.cpu_milli, 80_000);
    assert_eq!(machine.shape.as_str(), "8x-nvlink2-5c2a95b5");
}

#[test]
fn a_switched_fabric_is_one_island_and_the_legend_names_nics() {
    let found = read("h100-nvswitch-8.txt");
    assert_eq!(found.gaps, []);
    let machine = found.machine;
    assert_eq!(groups(&machine, shape::NVLINK), "0-7");
    assert_eq!(groups(&machine, shape::SOCKET), "0-3 4-7");
    assert_eq!(machine.nics[7].name, "NIC7");
    assert_eq!(machine.nics[7].alias.as_deref(), Some("mlx5_11"));
    assert_eq!(machine.cpu_milli, 192_000);
}

#[test]
fn nics_tell_which_devices_share_a_switch_that_nvlink_hides() {
    let machine = read("a100-nps4-8.txt").machine;
    assert_eq!(groups(&machine, shape::PCIE), "0-1 2-3 4-5 6-7");
    assert_eq!(groups(&machine, shape::SOCKET), "0-1 2-3 4-5 6-7");
    assert_eq!(machine.devices[4].numa, Some(7));
    assert_eq!(machine.nics[9].numa, None);
}

#[test]
fn pcie_boxes_and_old_drivers_are_read() {
    let machine = read("pcie-8.txt").machine;
    assert_eq!(groups(&machine, shape::NVLINK), "");
    assert_eq!(groups(&machine, shape::PCIE), "0-1 2-3 4-5 6-7");
    assert_eq!(groups(&machine, shape::SOCKET), "0-3 4-7");
    let machine = read("gpu-pair-old.txt").machine;
    assert_eq!(groups(&machine, shape::SOCKET), "0-1 2-3");
    assert_eq!(machine.cpu_milli, 8_000);
    assert_eq!(machine.device_link(0, 2), Some(LinkKind::Socket));
}

#[test]
fn a_log_that_was_cut_keeps_what_is_there() {
    let found = read("ansi-truncated.txt");
    let told: Vec<String> = found.gaps.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "line 8, column 1: there is no row for GPU6",
            "line 8, column 1: there is no row for GPU7",
            "line 8, column 16: \"NV1\" ends a row that is cut off; it is left out",
            "line 8, column 16: the row has 3 of 8 cells",
        ]
    );
    let machine = found.machine;
    assert_eq!(machine.device_link(2, 5), Some(LinkKind::Nvlink(12)), "the other half knows");
    assert_eq!(machine.device_link(6, 7), None);
    assert_eq!(machine.devices[7].numa, None);
}

#[test]
fn halves_that_differ_are_told() {
    let text = fixture("pcie-8.txt").replacen("GPU3    PHB ", "GPU3    NODE", 1);
    let found = parse(&text).unwrap();
    assert_eq!(found.machine.device_link(0, 3), Some(LinkKind::HostBridge));
    assert_eq!(
        found.gaps[0].to_string(),
        "line 8, column 9: GPU3 says NODE to GPU0, whose own row says PHB; the row of GPU0 is kept"
    );
}

#[test]
fn a_row_that_does_not_line_up_is_left_out() {
    let text = "\tGPU0\tGPU1\tGPU2\nGPU0 X SYS PIX\nGPU1 X SYS\nGPU2 PIX SYS X\n";
    let found = parse(text).unwrap();
    assert_eq!(found.machine.device_link(1, 2), Some(LinkKind::Socket), "from the row of GPU2");
    assert_eq!(
        found.gaps[0].to_string(),
        "line 3, column 1: the row of GPU1 does not have its X in column 2; it is left out"
    );
    // With one tab per cell, an empty cell is seen as one.
    let found = parse("\tGPU0\tGPU1\tGPU2\nGPU0\tX\t\tPIX\nGPU1\t\tX\tSYS\nGPU2\tPIX\tSYS\tX\n").unwrap();
    assert_eq!(found.machine.device_link(0, 1), None);
    assert_eq!(found.machine.device_link(0, 2), Some(LinkKind::PcieSwitch));
}

#[test]
fn one_device_alone_is_a_machine() {
    let found = parse("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\tN/A\n").unwrap();
    assert_eq!((found.machine.devices.len(), found.machine.cpu_milli), (1, 8_000));
    assert!(found.machine.groups.is_empty());
}

#[test]
fn what_is_no_matrix_is_told_apart() {
    assert_eq!(parse(" \n\t\n"), Err(TopoError::Empty));
    assert_eq!(parse("\nhello there"), Err(TopoError::NoMatrix { line: 2, column: 1 }));
    assert_eq!(parse("GPU0 GPU1 CPU Affinity\n"), Err(TopoError::NoRows { line: 1 }));
    assert_eq!(
        parse(&"x".repeat(TEXT_BYTES_MAX + 1)),
        Err(TopoError::TooLarge { bytes: TEXT_BYTES_MAX + 1 })
    );
    let failed =
        "$ nvidia-smi topo -m\nNVIDIA-SMI has failed because it couldn't communicate with the driver.";
    assert!(matches!(parse(failed), Err(TopoError::Trouble { line: 2, column: 1, .. })));
    let peers = "\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n\nLegend:\n\n  X = Self\n";
    assert_eq!(parse(peers), Err(TopoError::PeerMatrix { line: 2, column: 8 }));
    let many: String = (0..65).map(|i| format!("\tGPU{i}")).collect();
    assert!(matches!(parse(&many), Err(TopoError::TooManyDevices { line: 1, .. })));
    let many: String = (0..257).map(|i| format!("\tNIC{i}")).collect();
    assert!(matches!(parse(&format!("GPU0{many}")), Err(TopoError::TooManyNics { line: 1, .. })));
    assert_eq!(parse("GPU0 GPU1\nGPU0 X N/A\nGPU1 N/A X\n"), Err(TopoError::NoLinks { line: 3 }));
}

#[test]
fn prose_and_captions_around_a_matrix_are_passed_over() {
    let text =
        format!("GPU0 to GPU3 first:\n\n> GPU0 GPU1\n\n{}\nGPU0 and GPU1 talk.\n", fixture("pcie-8.txt"));
    let found = parse(&text).unwrap();
    assert_eq!((found.machine.devices.len(), found.gaps.len()), (8, 0));
    // Nothing in a text makes reading it slow: each line is looked at a few times.
    assert_eq!(parse(&"GPU0 GPU1\n".repeat(100_000)), Err(TopoError::NoRows { line: 1 }));
}

#[test]
fn a_model_makes_another_shape() {
    let found = read("pcie-8.txt");
    let before = found.machine.shape.clone();
    let machine = found.with_model("NVIDIA L40S", 48 << 30).machine;
    assert_ne!(machine.shape, before);
    assert_eq!(machine.devices[7].model, "NVIDIA L40S");
}

/// File, NVLink groups, PCIe groups, socket groups, number of gaps; `*` where the file does not tell.
const REAL: [(&str, &str, &str, &str, usize); 20] = [
    ("a100-sxm-8gpu-spaced", "0-7", "", "0-3 4-7", 0),
    ("aws-2gpu-pix-noleadingtab", "", "0-1", "0-1", 0),
    ("dell-h100-8gpu-12nic-topo-mp-pcie-only", "", "", "0-3 4-7", 0),
    ("dgx-a100-8gpu-12hca-4numa", "0-7", "0-1 2-3 4-5 6-7", "0-1 2-3 4-5 6-7", 0),
    ("dgx-h100-8gpu-12nic-truncated", "0-7", "", "0-3 4-7", 6),
    ("dual-consumer-phb", "", "", "0-1", 0),
    ("dual-rtx-nv2", "0-1", "", "", 0),
    ("gb10-1gpu-4nic", "", "", "", 4),
    ("gb200-nvl72-tray-4gpu", "0-3", "", "0-1 2-3", 0),
    ("h100-sxm-8gpu-ht-ranges", "0-7", "", "0-3 4-7", 0),
    ("h100-sxm-8gpu-spaced", "0-7", "", "0-3 4-7", 0),
    ("k80-4gpu-node-hived", "", "", "0-3", 0),
    ("kepler-4gpu-oldformat-soc", "", "", "0-1 2-3", 0),
    ("pcie-8gpu-pix-phb-sys-nccl1439", "", "0-1 2-3 4-5 6-7", "0-3 4-7", 0),
    ("rtxpro6000-4gpu-node", "", "", "0-3", 0),
    ("rtxpro6000-8gpu-2switchflat-pix-node", "", "0-3 4-7", "0-7", 0),
    ("rtxpro6000-8gpu-esc8000-ansi-pix-node-sys", "", "0-1 2-3 4-5 6-7", "0-3 4-7", 0),
    ("rtxpro6000-8gpu-switch-pix-phb", "", "0-3 4-7", "0-7", 0),
    ("v100-sxm2-8gpu-alibaba-gn6v-hcm", "0-3 4-7", "", "", 0),
    ("v100-sxm2-8gpu-hcm-2nic-numa-raggedtabs", "0-3 4-7", "2-3 6-7", "0-3 4-7", 0),
];

#[test]
fn real_texts_are_read_as_expected() {
    let folder = root().join("../shared/data/topology/topo_m");
    if !folder.is_dir() {
        println!("SKIPPED: the folder of real texts is not there: ../shared/data/topology/topo_m");
        return;
    }
    let text = |name: &str| std::fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap();
    for (name, nvlink, pcie, socket, gaps) in REAL {
        let found = parse(&text(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let machine = &found.machine;
        let levels = [shape::NVLINK, shape::PCIE, shape::SOCKET].map(|l| groups(machine, l));
        assert_eq!(levels, [nvlink, pcie, socket], "{name}");
        assert_eq!(found.gaps.len(), gaps, "{name}: {:?}", found.gaps);
        let again = parse(&describe::topo_m(machine)).unwrap();
        assert_eq!(again.machine.links, machine.links, "{name}");
    }
    assert!(matches!(parse(&text("p2p-r-h100-8gpu")), Err(TopoError::PeerMatrix { line: 2, .. })));
}

#[test]
fn details_of_real_texts() {
    let folder = root().join("../shared/data/topology/topo_m");
    if !folder.is_dir() {
        println!("SKIPPED: the folder of real texts is not there: ../shared/data/topology/topo_m");
        return;
    }
    let read = |name: &str| {
        parse(&std::fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap()).unwrap().machine
    };
    let numa = |m: &Machine| m.devices.iter().map(|d| d.numa.unwrap()).collect::<Vec<_>>();
    let near = |m: &Machine, kind| {
        let links = m.links.iter().filter(|l| l.kind == kind);
        let pairs = links.filter_map(|l| match (l.a, l.b) {
            (Port::Device(d), Port::Nic(n)) => Some((d, n)),
            _ => None,
        });
        pairs.collect::<Vec<_>>()
    };

    let hcm = read("v100-sxm2-8gpu-alibaba-gn6v-hcm");
    for (a, b, count) in [(0, 6, 2), (1, 7, 2), (2, 4, 1), (3, 5, 1)] {
        assert_eq!(hcm.device_link(a, b), Some(LinkKind::Nvlink(count)));
    }
    let hcm = read("v100-sxm2-8gpu-hcm-2nic-numa-raggedtabs");
    for (a, b, count) in [(0, 7, 2), (1, 6, 2), (2, 5, 1), (3, 4, 1)] {
        assert_eq!(hcm.device_link(a, b), Some(LinkKind::Nvlink(count)));
    }
    assert_eq!(numa(&hcm), [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(near(&hcm, LinkKind::PcieSwitch), [(2, 0), (3, 0), (6, 1), (7, 1)]);

    let dgx = read("dgx-a100-8gpu-12hca-4numa");
    assert_eq!(numa(&dgx), [3, 3, 1, 1, 7, 7, 5, 5]);
    assert_eq!(dgx.cpu_milli, 128_000);
    let dgx = read("dgx-h100-8gpu-12nic-truncated");
    assert_eq!(
        near(&dgx, LinkKind::PcieBridges),
        [(0, 0), (1, 3), (2, 4), (3, 5), (4, 6), (5, 9), (6, 10), (7, 11)]
    );
    assert_eq!(dgx.link(Port::Nic(1), Port::Nic(2)), Some(LinkKind::PcieSwitch));
    assert_eq!(dgx.link(Port::Nic(6), Port::Nic(7)), None, "its rows are cut off");

    let dell = read("dell-h100-8gpu-12nic-topo-mp-pcie-only");
    let expected = [0, 0, 0, 1, 2, 3, 4, 4, 4, 5, 6, 7].into_iter().zip(0..).collect::<Vec<(u32, u32)>>();
    assert_eq!(near(&dell, LinkKind::PcieSwitch), expected);
    assert_eq!(dell.nics[11].alias.as_deref(), Some("mlx5_11"));
    assert_eq!(read("gb200-nvl72-tray-4gpu").cpu_milli, 144_000);
}

/// Two ports that are near each other are on one NUMA node, as far as the reader can conclude.
fn without_numa_of_nics(mut machine: Machine) -> Machine {
    machine.nics.iter_mut().for_each(|n| n.numa = None);
    shape::finish(&mut machine);
    machine
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(machine in machines()) {
        prop_assume!(!machine.links.is_empty());
        let found = parse(&describe::topo_m(&machine)).unwrap();
        prop_assert_eq!(without_numa_of_nics(found.machine), machine);
    }

    #[test]
    fn groups_of_a_level_are_disjoint_and_islands_are_linked(machine in machines()) {
        for level in [shape::NVLINK, shape::PCIE, shape::SOCKET] {
            let mut seen = phalanx_model::DeviceMask::EMPTY;
            for group in shape::groups(&machine, level) {
                prop_assert!(group.count() >= 2 && seen.and(group).is_empty());
                seen = seen.union(group);
            }
        }
        for island in shape::groups(&machine, shape::NVLINK) {
            for (a, b) in island.iter().flat_map(|a| island.iter().map(move |b| (a, b))).filter(|(a, b)| a < b) {
                prop_assert!(machine.device_link(a, b).is_some_and(shape::is_fabric));
            }
        }
        let mut again = machine.clone();
        shape::finish(&mut again);
        prop_assert_eq!(again, machine);
    }

    #[test]
    fn any_text_is_survived(text in ".{0,400}") {
        let _ = parse(&text);
    }

    #[test]
    fn any_bytes_below_a_header_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = parse(&format!("\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t{text}\nGPU1{text}"));
    }

    #[test]
    fn damaged_texts_are_survived_and_stay_consistent(
        which in 0..FIXTURES.len(),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), 0..4_u8, any::<char>()), 1..12),
    ) {
        let mut chars: Vec<char> = fixture(FIXTURES[which]).chars().collect();
        for (at, how, c) in hits {
            if chars.is_empty() {
                break;
            }
            let at = at.index(chars.len());
            match how {
                0 => drop(chars.remove(at)),
                1 => chars.insert(at, c),
                2 => chars[at] = c,
                _ => chars.truncate(at.max(1)),
            }
        }
        if let Ok(found) = parse(&chars.iter().collect::<String>()) {
            let mut again = found.machine.clone();
            shape::finish(&mut again);
            prop_assert_eq!(&again, &found.machine);
            prop_assert!(found.gaps.len() >= 1000 || found.gaps.windows(2).all(|g| (g[0].line, g[0].column) <= (g[1].line, g[1].column)));
        }
    }
}
