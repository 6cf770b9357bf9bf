//! RCCL's models of real systems, where they are at hand.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{groups, root};
use phalanx_discover::nccl::topo;
use phalanx_discover::shape;
use phalanx_model::{LinkKind, Machine, Port};

struct Real {
    file: &'static str,
    gpus: usize,
    nics: usize,
    numa: &'static str,
    /// Pairs of GPUs that xGMI joins, by what they carry.
    xgmi: &'static [(u32, usize)],
    pcie: &'static str,
    /// `g0-n1 PIX 24000`.
    pairs: &'static str,
}

/// As read in the files; one xGMI link carries 24 GB/s up to MI100, 36 on MI200, 48 on MI300.
const REAL: [Real; 11] = [
    Real {
        file: "topo_3p_pcie",
        gpus: 3,
        nics: 1,
        numa: "0 1 1",
        xgmi: &[],
        pcie: "",
        pairs: "g0-g1 SYS 16000, g1-g2 PHB 24000, g0-n0 PHB 24000, g2-n0 SYS 16000",
    },
    Real {
        file: "topo_4p4h",
        gpus: 16,
        nics: 16,
        numa: "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        xgmi: &[(24_000, 24)],
        pcie: "0-7 8-15",
        // NIC 6 is mlx5_12, below the bridge of GPU 0; the bridges of one address are several.
        pairs: "g0-n6 PIX 12000, g0-n0 PXB 12000, g0-g1 PXB 12000, g1-g2 XGMI 24000, g0-g8 PHB 12000",
    },
    Real {
        file: "topo_8p1h_5",
        gpus: 8,
        nics: 8,
        numa: "0 0 0 0 1 1 1 1",
        xgmi: &[(36_000, 6), (72_000, 2), (144_000, 4)],
        pcie: "0-1 2-3 4-5 6-7",
        pairs: "g0-g1 XGMI 144000, g0-n0 PXB 24000, g0-n1 PXB 24000, g0-g2 XGMI 36000, g0-n2 PHB 24000",
    },
    Real {
        file: "topo_8p6l",
        gpus: 8,
        nics: 1,
        numa: "0 0 0 0 1 1 1 1",
        xgmi: &[(24_000, 24)],
        pcie: "",
        pairs: "g0-n0 SYS 16000, g4-n0 PHB 24000",
    },
    Real {
        file: "topo_8p6l_6nic",
        gpus: 8,
        nics: 6,
        numa: "0 0 0 0 1 1 1 1",
        xgmi: &[(24_000, 24)],
        pcie: "",
        pairs: "g0-n0 PHB 24000, g0-n5 SYS 16000",
    },
    Real {
        file: "topo_8p_90a",
        gpus: 8,
        nics: 1,
        numa: "0 0 0 0 0 0 0 0",
        xgmi: &[(36_000, 12)],
        pcie: "",
        // The NIC has one lane of 2.5 GT/s.
        pairs: "g0-g1 XGMI 36000, g0-g3 PHB 24000, g0-n0 PHB 187",
    },
    Real {
        file: "topo_8p_940",
        gpus: 8,
        nics: 8,
        numa: "0 0 0 0 1 1 1 1",
        xgmi: &[(48_000, 28)],
        pcie: "",
        pairs: "g0-g7 XGMI 48000, g0-n0 PXB 48000, g0-n1 PHB 48000, g0-n7 SYS 22000",
    },
    Real {
        file: "topo_8p_pcie",
        gpus: 8,
        nics: 1,
        numa: "0 0 0 0 0 0 0 0",
        xgmi: &[],
        pcie: "0-3 4-7",
        pairs: "g0-g1 PXB 12000, g0-g4 PHB 12000, g0-n0 PXB 12000, g7-n0 PHB 12000",
    },
    Real {
        file: "topo_8p_rome",
        gpus: 8,
        nics: 1,
        numa: "0 0 0 0 1 1 1 1",
        xgmi: &[(24_000, 8)],
        pcie: "",
        pairs: "g0-g1 XGMI 24000, g0-g2 PHB 24000, g2-g4 XGMI 24000, g0-n0 SYS 16000",
    },
    Real {
        file: "topo_8p_ts1_n4",
        gpus: 8,
        nics: 2,
        numa: "1 2 2 3 4 5 5 7",
        xgmi: &[(24_000, 8)],
        pcie: "",
        pairs: "g0-g1 XGMI 24000, g1-g2 XGMI 24000, g5-g6 PHB 24000, g0-n0 SYS 16000",
    },
    Real {
        file: "topo_collnet_n4",
        gpus: 8,
        nics: 4,
        numa: "0 0 1 1 2 2 3 3",
        xgmi: &[(24_000, 12)],
        pcie: "0-1 2-3 4-5 6-7",
        pairs: "g0-g1 XGMI 24000, g0-n0 PXB 24000, g0-n1 SYS 16000",
    },
];

#[test]
fn real_files_are_read_as_expected() {
    let folder = root().join("../shared/data/topology/rccl_topo_xml");
    if !folder.is_dir() {
        println!("skipped: ../shared/data is not there");
        return;
    }
    for row in REAL {
        let text = std::fs::read_to_string(folder.join(format!("{}.xml", row.file))).unwrap();
        let found = topo::parse(&text).unwrap();
        let (machine, gaps) = found.tree().machine();
        assert!(found.gaps.is_empty() && gaps.is_empty(), "{}: {:?} {gaps:?}", row.file, found.gaps);
        assert_eq!((machine.devices.len(), machine.nics.len()), (row.gpus, row.nics), "{}", row.file);
        let numa: Vec<String> = machine.devices.iter().map(|d| d.numa.unwrap().to_string()).collect();
        assert_eq!(
            (numa.join(" ").as_str(), groups(&machine, shape::PCIE).as_str()),
            (row.numa, row.pcie),
            "{}",
            row.file
        );
        assert_eq!(xgmi(&machine), row.xgmi, "{}", row.file);
        for pair in row.pairs.split(", ") {
            assert_eq!(told(&machine, pair), pair, "{}", row.file);
        }
    }
}

/// How many pairs xGMI joins, by what they carry.
fn xgmi(machine: &Machine) -> Vec<(u32, usize)> {
    let mut speeds: Vec<u32> =
        machine.links.iter().filter(|l| l.kind == LinkKind::Xgmi).map(|l| l.nominal_mb_per_s).collect();
    speeds.sort_unstable();
    speeds.chunk_by(|a, b| a == b).map(|same| (same[0], same.len())).collect()
}

/// The pair as the machine has it, in the same form.
fn told(machine: &Machine, pair: &str) -> String {
    let ports = pair.split(' ').next().unwrap();
    let port = |text: &str| {
        let number = text[1..].parse().unwrap();
        if text.starts_with('g') { Port::Device(number) } else { Port::Nic(number) }
    };
    let (a, b) = ports.split_once('-').unwrap();
    let link = machine.links.iter().find(|l| (l.a, l.b) == (port(a), port(b))).unwrap();
    format!("{ports} {} {}", link.kind, link.nominal_mb_per_s)
}
