//! Tables of `rocm-smi` and `amd-smi`: our own, real ones where they are at hand, and damaged ones.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{groups, root};
use phalanx_discover::rocm::{Rocm, RocmError, parse};
use phalanx_discover::shape;
use phalanx_model::LinkKind;
use proptest::prelude::*;

const FIXTURES: [&str; 2] = ["two-gcds-per-package.txt", "hive-and-sockets.txt"];

fn fixture(name: &str) -> String {
    let path = root().join("fixtures/rocm").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Kinds by pair: `0-1 XGMI`.
fn links(found: &Rocm) -> Vec<String> {
    let name = |link: &phalanx_model::Link| match (link.a, link.b) {
        (phalanx_model::Port::Device(a), phalanx_model::Port::Device(b)) => format!("{a}-{b}"),
        _ => unreachable!("there are no NICs"),
    };
    found.machine.links.iter().map(|l| format!("{} {}", name(l), l.kind)).collect()
}

#[test]
fn hops_come_from_weights_and_not_from_the_table_of_hops() {
    let found = parse(&fixture(FIXTURES[0])).unwrap();
    assert_eq!(found.gaps, []);
    assert_eq!(links(&found), ["0-1 XGMI", "0-2 XGMI", "0-3 SYS", "1-2 SYS", "1-3 XGMI", "2-3 XGMI"]);
    let hops: Vec<u32> = found.ways.iter().map(|w| w.hops).collect();
    assert_eq!(hops, [1, 1, 2, 2, 1, 1]);
    assert!(found.ways.iter().all(|w| w.is_xgmi));
    assert_eq!(
        found.machine.links[0].nominal_mb_per_s, 200_000,
        "four links between the halves of a package"
    );
    assert_eq!(found.machine.links[1].nominal_mb_per_s, 50_000);
    let numa: Vec<_> = found.machine.devices.iter().map(|d| d.numa).collect();
    assert_eq!(numa, [Some(0), Some(0), Some(1), None]);
}

#[test]
fn tables_by_address_and_by_json_are_read() {
    let found = parse(&fixture(FIXTURES[1])).unwrap();
    assert_eq!(found.gaps, []);
    assert_eq!(links(&found), ["0-1 PHB", "0-2 SYS", "1-2 XGMI"]);
    assert_eq!(found.machine.devices[2].pci_address.as_deref(), Some("0000:a7:00.0"));
    assert_eq!(found.machine.devices[2].name, "GPU2");
    assert_eq!(found.machine.links[2].nominal_mb_per_s, 50_000);

    let json = r#"{"system": {"(Topology) Weight between DRM devices 0 and 1": "40",
        "(Topology) Hops between DRM devices 0 and 1": "2",
        "(Topology) Link type between DRM devices 0 and 1": "PCIE",
        "(Topology) Weight between DRM devices 0 and 2": "72",
        "(Topology) Link type between DRM devices 0 and 2": "PCIE",
        "(Topology) Weight between DRM devices 1 and 2": "15",
        "(Topology) Link type between DRM devices 1 and 2": "XGMI"},
        "card0": {"(Topology) Numa Node": "0", "Card Series": "MI100"}, "card2": {"(Topology) Numa Node": "1"}}"#;
    let found = parse(json).unwrap();
    assert_eq!(links(&found), ["0-1 PHB", "0-2 SYS", "1-2 XGMI"]);
    assert_eq!((found.machine.devices[0].model.as_str(), found.machine.devices[2].numa), ("MI100", Some(1)));

    let json = r#"[{"gpu": 0, "bdf": "0000:0c:00.0", "links": [{"gpu": 0, "weight": 0, "link_type": "SELF"},
        {"gpu": 1, "weight": 15, "link_type": "XGMI", "bandwidth": "50000-50000"}]},
        {"gpu": 1, "bdf": "0000:22:00.0", "links": [{"gpu": 0, "weight": 15, "link_type": "XGMI"}]}]"#;
    let found = parse(json).unwrap();
    assert_eq!((links(&found), found.gaps.len()), (vec!["0-1 XGMI".to_owned()], 0));
    assert_eq!(found.machine.devices[1].pci_address.as_deref(), Some("0000:22:00.0"));
}

#[test]
fn one_table_alone_says_what_it_can() {
    let text = fixture(FIXTURES[0]);
    let part = |title: &str| {
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|l| l.contains(title)).unwrap();
        lines[at..at + 6].join("\n")
    };
    let kinds = parse(&part("Link Type")).unwrap();
    assert_eq!(groups(&kinds.machine, shape::NVLINK), "0-3", "without weights every pair may be direct");
    let weights = parse(&part("Weight")).unwrap();
    assert_eq!(links(&weights), links(&parse(&text).unwrap()));
    assert_eq!(parse(&part("Hops")), Err(RocmError::NoTable { line: 1 }));
    assert_eq!(parse(" \n"), Err(RocmError::Empty));
    assert!(matches!(parse("rocm-smi: command not found"), Err(RocmError::Trouble { line: 1, .. })));
}

#[test]
fn real_tables_are_read() {
    let folder = root().join("../shared/data/topology/rocm_topo");
    if !folder.is_dir() {
        println!("skipped: ../shared/data is not there");
        return;
    }
    for (file, islands, sockets, kind) in [
        ("mi300x-8gpu-xgmi.txt", "0-7", "0-3 4-7", LinkKind::Xgmi),
        ("mi300a-4apu-xgmi-4numa.txt", "0-3", "", LinkKind::Xgmi),
        ("mi50-4gpu-pcie-1numa.txt", "", "0-3", LinkKind::HostBridge),
    ] {
        let found = parse(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap();
        assert_eq!(found.gaps, [], "{file}");
        let machine = &found.machine;
        assert_eq!(groups(machine, shape::NVLINK), islands, "{file}");
        assert_eq!(groups(machine, shape::SOCKET), sockets, "{file}");
        assert!(machine.links.iter().all(|l| l.kind == kind), "{file}");
        let count = machine.devices.len();
        assert_eq!(machine.links.len(), count * (count - 1) / 2, "{file}");
    }
}

/// The rows of a table with something between the cells and around them.
fn rewritten(text: &str, write: impl Fn(&[&str], bool) -> String) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_table = words.first().is_some_and(|w| w.starts_with("GPU") && !w.contains('['));
        let is_header = is_table && words.iter().all(|w| w.starts_with("GPU"));
        out.push_str(&if is_table { write(&words, is_header) } else { line.to_owned() });
        out.push('\n');
    }
    out
}

#[test]
fn tables_of_markdown_csv_and_logs_are_read() {
    let text = fixture(FIXTURES[0]);
    let expected = parse(&text).unwrap();
    let markdown = rewritten(&text, |words, is_header| {
        let row = format!("| {}{} |", if is_header { "| " } else { "" }, words.join(" | "));
        if is_header { format!("{row}\n|{}", "---|".repeat(words.len() + 1)) } else { row }
    });
    assert_eq!(parse(&markdown).unwrap().machine, expected.machine, "{markdown}");
    let csv = rewritten(&text, |words, is_header| {
        format!("{}{}", if is_header { "," } else { "" }, words.join(","))
    });
    assert_eq!(parse(&csv).unwrap().machine.links, expected.machine.links, "{csv}");
    for prefix in ["2026-05-01T10:00:00.123Z ", "I0501 10:00:00.123456    1 main.go:12] ", "node-3: "] {
        let log: String = text.lines().map(|line| format!("{prefix}{line}\n")).collect();
        assert_eq!(parse(&log).unwrap().machine.links, expected.machine.links, "{log}");
    }
}

#[test]
fn csv_of_the_tools_is_read_or_refused_by_name() {
    let text = "device,(Topology) Weight between DRM devices 0 and 1,(Topology) Link type between DRM devices 0 and 1,\
                (Topology) Numa Node\nsystem,15,XGMI,\ncard0,,,0\ncard1,,,1\n";
    let found = parse(text).unwrap();
    assert_eq!((links(&found), found.gaps.len()), (vec!["0-1 XGMI".to_owned()], 0));
    assert_eq!(found.machine.devices[1].numa, Some(1));
    let text = "gpu,bdf,weight,link_type\n0,0000:0c:00.0,15,XGMI\n";
    assert_eq!(parse(text), Err(RocmError::Csv { line: 1 }));
    let told = parse(text).unwrap_err().to_string();
    assert!(told.contains("`amd-smi topology --json`"), "{told}");
    assert!(phalanx_discover::source::Kind::detect(text).is_some());
}

proptest! {
    #[test]
    fn damaged_tables_are_survived(
        which in 0..FIXTURES.len(),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), 0..4_u8, any::<char>()), 1..12),
    ) {
        let mut chars: Vec<char> = fixture(FIXTURES[which]).chars().collect();
        for (at, how, c) in hits {
            let at = at.index(chars.len());
            match how {
                0 => drop(chars.remove(at)),
                1 => chars.insert(at, c),
                2 => chars[at] = c,
                _ => chars.truncate(at.max(1)),
            }
            if chars.is_empty() {
                break;
            }
        }
        if let Ok(found) = parse(&chars.iter().collect::<String>()) {
            let mut again = found.machine.clone();
            shape::finish(&mut again);
            prop_assert_eq!(&again, &found.machine);
            prop_assert_eq!(found.ways.len(), found.machine.links.len());
        }
    }
}
