//! `topo -m` texts as terminals, mail and logs leave them: glued, broken into lines, with something before each line.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::fixture;
use phalanx_discover::topo_m::{TopoM, parse};
use phalanx_model::{LinkKind, Machine, Port};
use proptest::prelude::*;

const FIXTURES: [&str; 7] = [
    "a100-nps4-8.txt",
    "gpu-pair-old.txt",
    "h100-degraded-8.txt",
    "h100-nvswitch-8.txt",
    "pcie-8.txt",
    "v100-hcm-8.txt",
    "v100-nvswitch-16.txt",
];

/// Tabs as a terminal shows them.
fn expanded(text: &str) -> String {
    let line = |line: &str| {
        let mut out = String::new();
        for c in line.chars() {
            match c {
                '\t' => out.push_str(&" ".repeat(8 - out.chars().count() % 8)),
                c => out.push(c),
            }
        }
        out
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Lines as a terminal of a width breaks them; what stands at the end of a line may lose its blanks.
fn wrapped(text: &str, width: usize, trims: bool) -> String {
    let mut out = Vec::new();
    for line in text.lines() {
        let chars: Vec<char> = line.chars().collect();
        if chars.is_empty() {
            out.push(String::new());
        }
        out.extend(chars.chunks(width).map(|part| {
            let part: String = part.iter().collect();
            if trims { part.trim_end().to_owned() } else { part }
        }));
    }
    out.join("\n")
}

/// Every link of a reading is that of the whole text, and what is missing is named.
fn never_wrong(found: &TopoM, whole: &Machine) -> Result<(), String> {
    let port = |port: Port| match port {
        Port::Device(d) => found.machine.devices[d as usize].name.clone(),
        Port::Nic(n) => found.machine.nics[n as usize].name.clone(),
    };
    for link in &found.machine.links {
        let known = whole.links.iter().find(|l| {
            let of = |p: Port| match p {
                Port::Device(d) => whole.devices[d as usize].name.clone(),
                Port::Nic(n) => whole.nics[n as usize].name.clone(),
            };
            of(l.a) == port(link.a) && of(l.b) == port(link.b)
        });
        match known {
            Some(known) if known.kind == link.kind => {}
            _ => return Err(format!("{} to {}: {:?}", port(link.a), port(link.b), link.kind)),
        }
    }
    let is_whole = found.machine.links.len() == whole.links.len()
        && found.machine.cpu_milli == whole.cpu_milli
        && found.machine.devices.iter().zip(&whole.devices).all(|(a, b)| a.numa == b.numa);
    if !is_whole && found.gaps.is_empty() {
        return Err("something is missing and not named".to_owned());
    }
    Ok(())
}

const NICS: &str = "\
        GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV12    NODE    SYS     0-31,64-95      0               N/A
GPU1    NV12     X      SYS     NODE    32-63,96-127    1               N/A
NIC0    NODE    SYS      X      SYS
NIC1    SYS     NODE    SYS      X
";

#[test]
fn glued_columns_are_repaired_if_there_is_one_way() {
    let whole = parse(NICS).unwrap();
    assert_eq!(whole.gaps, []);
    for (apart, glued) in [
        ("NIC1    CPU Affinity    NUMA", "NIC1CPU Affinity    NUMA"),
        ("NUMA Affinity   GPU NUMA ID", "NUMA AffinityGPU NUMA ID"),
        ("CPU Affinity    NUMA", "CPU AffinityNUMA"),
        ("GPU0    GPU1    NIC0    NIC1", "GPU0GPU1NIC0NIC1"),
        ("NV12    NODE    SYS", "NV12NODESYS"),
        ("GPU0     X      NV12", "GPU0X NV12"),
        ("SYS     NODE    32-63", "SYS     NODE32-63"),
        ("NIC0    NODE    SYS      X      SYS", "NIC0NODESYSXSYS"),
    ] {
        let text = NICS.replacen(apart, glued, 1);
        assert_ne!(text, NICS);
        assert_eq!(parse(&text).unwrap(), whole, "{glued}");
    }
}

#[test]
fn glued_columns_that_can_be_read_in_two_ways_are_named() {
    let whole = parse(NICS).unwrap().machine;
    for (apart, glued, gap) in [
        (
            "0-31,64-95      0               N/A",
            "0-31,64-950",
            "\"0-31,64-950\" may be the CPUs, or CPUs and NUMA",
        ),
        ("NV12    NODE    SYS     0-31", "NV12    NODESY   0-31", "the row of GPU0 does not have 4 cells"),
    ] {
        let found = parse(&NICS.replacen(apart, glued, 1)).unwrap();
        never_wrong(&found, &whole).unwrap();
        assert!(found.gaps.iter().any(|g| g.what.contains(gap)), "{glued}: {:?}", found.gaps);
    }
}

#[test]
fn a_row_that_lacks_a_cell_shifts_no_other() {
    // The blank cell of GPU0 and NIC0 is not seen without tabs.
    let found =
        parse(&NICS.replacen("NV12    NODE    SYS     0-31", "NV12            SYS     0-31", 1)).unwrap();
    assert_eq!(
        found.machine.link(Port::Device(0), Port::Nic(0)),
        Some(LinkKind::Numa),
        "from the row of NIC0"
    );
    assert_eq!(found.machine.link(Port::Device(0), Port::Nic(1)), Some(LinkKind::Socket));
    assert!(found.gaps[0].what.starts_with("the row of GPU0 does not have 4 cells"), "{:?}", found.gaps);
}

#[test]
fn a_table_that_was_broken_at_80_columns_is_read_whole() {
    for name in FIXTURES {
        let text = expanded(&fixture(name));
        let whole = parse(&text).unwrap();
        for width in [72, 80, 100, 120, 132] {
            for trims in [false, true] {
                let found =
                    parse(&wrapped(&text, width, trims)).unwrap_or_else(|e| panic!("{name} at {width}: {e}"));
                never_wrong(&found, &whole.machine).unwrap_or_else(|e| panic!("{name} at {width}: {e}"));
                if width == 80 {
                    assert_eq!(found.machine.links, whole.machine.links, "{name}");
                    assert_eq!(found.machine.nics, whole.machine.nics, "{name}");
                }
            }
        }
    }
}

/// The commonest case: eight GPUs, so that the titles of the affinities are cut.
#[test]
fn affinities_of_a_broken_table_are_read() {
    let mut text = "\t".to_owned();
    text.extend((0..8).map(|i| format!("GPU{i}\t")));
    text.push_str("CPU Affinity\tNUMA Affinity\tGPU NUMA ID\n");
    for i in 0..8 {
        let cells: Vec<&str> = (0..8).map(|j| if i == j { " X " } else { "NV18" }).collect();
        let near = if i < 4 { "0-55,112-167\t0" } else { "56-111,168-223\t1" };
        text.push_str(&format!("GPU{i}\t{}\t{near}\t\tN/A\n", cells.join("\t")));
    }
    let whole = parse(&text).unwrap();
    assert_eq!((whole.machine.cpu_milli, whole.gaps.len()), (224_000, 0));
    for width in [76, 79, 80, 81, 82, 90] {
        let found = parse(&wrapped(&expanded(&text), width, true)).unwrap();
        assert_eq!(found, TopoM { gaps: Vec::new(), ..whole.clone() }, "{width}");
    }
}

#[test]
fn lists_of_numa_nodes_and_cpus_give_the_sockets() {
    let table = |numa: &str, near: [&str; 4]| {
        let mut text = format!("\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity{numa}\n");
        for (i, near) in near.iter().enumerate() {
            let cells: Vec<&str> = (0..4).map(|j| if i == j { " X " } else { "NV18" }).collect();
            text.push_str(&format!("GPU{i}\t{}\t{near}\n", cells.join("\t")));
        }
        let found = parse(&text).unwrap();
        assert_eq!(found.gaps, []);
        found.machine.devices.iter().map(|d| d.numa).collect::<Vec<_>>()
    };
    let numa = "\tNUMA Affinity\tGPU NUMA ID";
    let (a, b) = ("0-71\t0,3-9,11-17\t\tN/A", "72-143\t1,19-25,27-33\t\tN/A");
    assert_eq!(table(numa, [a, a, b, b]), [Some(0), Some(0), Some(1), Some(1)]);
    // Numbers are those of the lists if these are disjoint, and otherwise counted.
    let (a, b) = ("0-15\t2,8\t\tN/A", "16-31\t5,9\t\tN/A");
    assert_eq!(table(numa, [b, a, a, b]), [Some(5), Some(2), Some(2), Some(5)]);
    let (a, b) = ("12-23,36-47", "0-11,24-35");
    assert_eq!(table("", [a, a, b, b]), [Some(1), Some(1), Some(0), Some(0)]);
    // One set for all is no socket, and neither are sets that overlap.
    assert_eq!(table("", ["0-95"; 4]), [None; 4]);
    assert_eq!(table("", ["0-9", "0-9", "5-14", "5-14"]), [None; 4]);
    assert_eq!(table(numa, ["0-95\t0-1\t\tN/A"; 4]), [None; 4]);
}

#[test]
fn cpus_do_not_part_devices_that_share_a_host_bridge() {
    let text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t8-15\n";
    assert!(parse(text).unwrap().machine.devices.iter().all(|d| d.numa.is_none()));
}

#[test]
fn what_stands_before_each_line_is_taken_off() {
    let whole = parse(NICS).unwrap();
    let tabbed = "\tGPU0\tGPU1\nGPU0\t X \t\nGPU1\tPIX\t X \n";
    let of = |text: &str, before: &dyn Fn(usize) -> String| {
        text.lines().enumerate().map(|(i, l)| format!("{}{l}\n", before(i))).collect::<String>()
    };
    let prefixes: [&dyn Fn(usize) -> String; 7] = [
        &|i| format!("2026-05-01T10:00:{i:02}.{}Z ", 12_345 * (i + 1)),
        &|i| format!("I0501 10:00:{i:02}.123456    {} main.go:{}] ", 1 + i, 12 + i),
        &|_| "node-7: ".to_owned(),
        &|_| "[1,0]<stdout>:".to_owned() + " ",
        &|i| format!("May {:2} 10:0{i}:00 node-7 job[77]: ", 1),
        &|_| "[pod/probe-x7k/main] ".to_owned(),
        &|_| "probe-1  | ".to_owned(),
    ];
    for before in prefixes {
        let text = of(NICS, before);
        let found = parse(&text).unwrap_or_else(|e| panic!("{e}:\n{text}"));
        assert_eq!((&found.machine, found.gaps.len()), (&whole.machine, 0), "{text}");
        let found = parse(&of(tabbed, before)).unwrap();
        assert_eq!(
            found.machine.device_link(0, 1),
            Some(LinkKind::PcieSwitch),
            "an empty cell is seen by its tabs"
        );
    }
    // Of several hosts, the first.
    let two: String = NICS.lines().map(|l| format!("a: {l}\nb: {}\n", l.replace("NV12", "SYS"))).collect();
    assert_eq!(parse(&two).unwrap().machine, whole.machine);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_broken_table_is_never_read_wrong(which in 0..FIXTURES.len(), width in 40_usize..200, trims: bool) {
        let text = expanded(&fixture(FIXTURES[which]));
        let whole = parse(&text).unwrap().machine;
        if let Ok(found) = parse(&wrapped(&text, width, trims)) {
            prop_assert_eq!(never_wrong(&found, &whole), Ok(()));
        }
    }

    #[test]
    fn a_table_without_some_blanks_is_never_read_wrong(
        which in 0..FIXTURES.len(),
        tabs: bool,
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 1..6),
    ) {
        let text = fixture(FIXTURES[which]);
        let mut text = if tabs { text } else { expanded(&text) };
        let whole = parse(&text).unwrap().machine;
        for cut in cuts {
            // A run of blanks between two words of one line.
            let mut runs = Vec::new();
            let mut from = None;
            for (at, c) in text.char_indices() {
                match (from, c) {
                    (None, ' ' | '\t') => from = Some(at),
                    (Some(_), ' ' | '\t') => {}
                    (Some(_), '\n') => from = None,
                    (Some(start), _) => { runs.push(start..at); from = None; }
                    (None, _) => {}
                }
            }
            if runs.is_empty() { break; }
            text.replace_range(runs[cut.index(runs.len())].clone(), "");
        }
        if let Ok(found) = parse(&text) {
            let told = never_wrong(&found, &whole);
            prop_assert_eq!(told, Ok(()), "{}", text);
        }
    }
}
