//! Every real `topo -m` text that is at hand, with what its machine is known to look like.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{groups, root};
use phalanx_discover::nvidia::p2p;
use phalanx_discover::topo_m::parse;
use phalanx_discover::{TopoError, shape};
use phalanx_model::{LinkKind, Machine, Port};

/// What is known of one file. Lists are by device; `-` is a device whose NUMA node the file does not tell.
struct Known {
    file: &'static str,
    /// NVLink islands.
    islands: &'static str,
    /// What most pairs inside an island are linked by.
    nvlinks: u8,
    numa: &'static str,
    /// NICs that are near a device: `device-NIC`, by PIX or PXB.
    near: &'static str,
    gaps: usize,
}

const fn known(
    file: &'static str,
    islands: &'static str,
    nvlinks: u8,
    numa: &'static str,
    near: &'static str,
    gaps: usize,
) -> Known {
    Known { file, islands, nvlinks, numa, near, gaps }
}

const HALVES: &str = "0 0 0 0 1 1 1 1";
const NO_NUMA: &str = "- - - - - - - -";
/// Each device has two of the first NICs and of the last; four are for storage.
const DGX_A100: &str = "0-0 0-1 1-0 1-1 2-2 2-3 3-2 3-3 4-6 4-7 5-6 5-7 6-8 6-9 7-8 7-9";
const DELL: &str = "0-0 0-1 0-2 1-3 2-4 3-5 4-6 4-7 4-8 5-9 6-10 7-11";

const FILES: [Known; 20] = [
    known("a100-sxm-8gpu-spaced", "0-7", 12, HALVES, "", 0),
    known("aws-2gpu-pix-noleadingtab", "", 0, "0 0", "", 0),
    known("dell-h100-8gpu-12nic-topo-mp-pcie-only", "", 0, HALVES, DELL, 0),
    known("dgx-a100-8gpu-12hca-4numa", "0-7", 12, "3 3 1 1 7 7 5 5", DGX_A100, 0),
    known("dgx-h100-8gpu-12nic-truncated", "0-7", 18, HALVES, "0-0 1-3 2-4 3-5 4-6 5-9 6-10 7-11", 6),
    known("dual-consumer-phb", "", 0, "- -", "", 0),
    known("dual-rtx-nv2", "0-1", 2, "- -", "", 0),
    known("gb10-1gpu-4nic", "", 0, "0", "", 4),
    known("gb200-nvl72-tray-4gpu", "0-3", 18, "0 0 1 1", "", 0),
    known("h100-sxm-8gpu-ht-ranges", "0-7", 18, HALVES, "", 0),
    known("h100-sxm-8gpu-spaced", "0-7", 18, HALVES, "", 0),
    known("k80-4gpu-node-hived", "", 0, "- - - -", "", 0),
    // Without a NUMA column: the sockets follow from the CPUs.
    known("kepler-4gpu-oldformat-soc", "", 0, "0 0 1 1", "", 0),
    known("pcie-8gpu-pix-phb-sys-nccl1439", "", 0, HALVES, "", 0),
    known("rtxpro6000-4gpu-node", "", 0, "- - - -", "", 0),
    known("rtxpro6000-8gpu-2switchflat-pix-node", "", 0, NO_NUMA, "", 0),
    known("rtxpro6000-8gpu-esc8000-ansi-pix-node-sys", "", 0, HALVES, "", 0),
    known("rtxpro6000-8gpu-switch-pix-phb", "", 0, NO_NUMA, "", 0),
    known("v100-sxm2-8gpu-alibaba-gn6v-hcm", "0-3 4-7", 1, NO_NUMA, "", 0),
    known("v100-sxm2-8gpu-hcm-2nic-numa-raggedtabs", "0-3 4-7", 1, HALVES, "2-0 3-0 6-1 7-1", 0),
];

fn numa(machine: &Machine) -> String {
    let word = |numa: Option<u32>| numa.map_or_else(|| "-".to_owned(), |n| n.to_string());
    machine.devices.iter().map(|d| word(d.numa)).collect::<Vec<_>>().join(" ")
}

fn near(machine: &Machine) -> String {
    let is_near = |kind| matches!(kind, LinkKind::PcieSwitch | LinkKind::PcieBridges);
    let near = machine.links.iter().filter(|l| is_near(l.kind)).filter_map(|l| match (l.a, l.b) {
        (Port::Device(d), Port::Nic(n)) => Some(format!("{d}-{n}")),
        _ => None,
    });
    near.collect::<Vec<_>>().join(" ")
}

#[test]
fn every_file_is_read_as_its_machine_is_known_to_be() {
    let folder = root().join("../shared/data/topology/topo_m");
    if !folder.is_dir() {
        println!("skipped: ../shared/data is not there");
        return;
    }
    let text = |file: &str| std::fs::read_to_string(folder.join(format!("{file}.txt"))).unwrap();
    for Known { file, islands, nvlinks, numa: nodes, near: nics, gaps } in FILES {
        let found = parse(&text(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        let machine = &found.machine;
        assert_eq!(groups(machine, shape::NVLINK), islands, "{file}");
        let counts = shape::fabric_links(machine).map(|(.., kind)| kind);
        let least = counts.min().map_or(0, |kind| if let LinkKind::Nvlink(n) = kind { n } else { 0 });
        assert_eq!(least, nvlinks, "{file}");
        assert_eq!(numa(machine), nodes, "{file}");
        assert_eq!(near(machine), nics, "{file}");
        assert_eq!(found.gaps.len(), gaps, "{file}: {:?}", found.gaps);
    }

    // The hybrid cube meshes have six links each, and cross their quads in different ways.
    for (file, crossings) in [
        ("v100-sxm2-8gpu-alibaba-gn6v-hcm", [(0, 6, 2), (1, 7, 2), (2, 4, 1), (3, 5, 1)]),
        ("v100-sxm2-8gpu-hcm-2nic-numa-raggedtabs", [(0, 7, 2), (1, 6, 2), (2, 5, 1), (3, 4, 1)]),
    ] {
        let machine = parse(&text(file)).unwrap().machine;
        for (a, b, count) in crossings {
            assert_eq!(machine.device_link(a, b), Some(LinkKind::Nvlink(count)), "{file}");
        }
        let mut degrees = [0; 8];
        for (a, b, kind) in shape::fabric_links(&machine) {
            if let LinkKind::Nvlink(count) = kind {
                degrees[a as usize] += count;
                degrees[b as usize] += count;
            }
        }
        assert_eq!(degrees, [6; 8], "{file}");
    }

    let peers = text("p2p-r-h100-8gpu");
    assert!(matches!(parse(&peers), Err(TopoError::PeerMatrix { line: 2, .. })));
    let peers = p2p::parse(&peers).unwrap();
    assert_eq!((peers.pairs.len(), peers.gaps.len()), (28, 0));
    assert_eq!(peers.capability, Some(p2p::Capability::Read));
    assert!(peers.pairs.iter().all(|p| p.access == p2p::Access::Yes));
}

/// One small machine as it is found in many places.
#[test]
fn the_same_matrix_is_read_out_of_every_wrapping() {
    let rows = ["\tGPU0\tGPU1\tmlx5_bond_0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"];
    let rows = rows.into_iter().chain([
        "GPU0\t X \tNV18\tPIX\t0-55,112-167\t0-1\t\tN/A",
        "GPU1\tNV18\t X \tSYS\t0-55,112-167\t0-1\t\tN/A",
        "mlx5_bond_0\tPIX\tSYS\t X ",
    ]);
    let plain = rows.clone().collect::<Vec<_>>().join("\n");
    let each = |before: &str, after: &str| {
        rows.clone().map(|r| format!("{before}{r}{after}")).collect::<Vec<_>>().join("\n")
    };
    let escaped = plain.replace('\n', "\\n").replace('\t', "\\t");
    let table = "| | GPU0 | GPU1 | mlx5_bond_0 | CPU Affinity | NUMA Affinity |\n|---|---|---|---|---|---|\n\
                 |**GPU0**|X|NV18|PIX|0-55,112-167|0-1|\n|**GPU1**|NV18|X|SYS|0-55,112-167|0-1|\n\
                 |**mlx5_bond_0**|PIX|SYS|X| | |\n";
    let wrapped = [
        plain.clone(),
        plain.replace('\n', "\r\n"),
        plain.replacen("\tGPU0", "GPU0", 1),
        each("> ", ""),
        format!("output: |\n{}\nnext: key\n", each("    ", "")),
        format!("Here it is:\n\n```\n$ nvidia-smi topo -m\n{plain}\n```\nGPU0 and GPU1 are linked.\n"),
        format!("{{\"host\": \"a\", \"stdout\": \"{escaped}\\n\\nLegend:\\n\", \"rc\": 0}}"),
        format!("{{\"log\": \"{}\"}}", escaped.replace('\\', "\\\\")),
        format!("topology: \"\\x1b[4m{escaped}\\x1b[0m\"\n"),
        format!(
            "[\n  {}\n]",
            rows.clone().map(|r| format!("\"{}\"", r.replace('\t', "\\t"))).collect::<Vec<_>>().join(",\n  ")
        ),
        each("node-7: ", ""),
        format!("{}\n{}", each("node-7: ", ""), each("node-8: ", "")),
        table.to_owned(),
    ];
    let expected = parse(&plain).unwrap();
    assert_eq!(expected.gaps, []);
    assert_eq!((expected.machine.devices.len(), expected.machine.nics[0].name.as_str()), (2, "mlx5_bond_0"));
    assert_eq!(expected.machine.devices[0].numa, None, "near to two nodes");
    for text in wrapped {
        let found = parse(&text).unwrap_or_else(|e| panic!("{e}:\n{text}"));
        assert_eq!(found.machine, expected.machine, "{text}");
        assert_eq!(found.gaps, [], "{text}");
    }
}
