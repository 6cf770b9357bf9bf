//! Speeds of NICs: from cables, from text, from what is usual for a product, and never 100 Gb/s without a word.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fmt::Write as _;

use phalanx_discover::map::{Assembled, Options, Part, assemble};
use phalanx_discover::source::{self, Found};
use phalanx_discover::{check, describe, nccl};
use phalanx_model::{Machine, NodeName};

/// Eight GPUs of NVLink, each with a NIC on its switch, as `topo -m` prints it.
const MATRIX: &str = include_str!("../../../fixtures/nics/nvlink-8-rails.txt");

/// Hosts with cables to two leaves: so many, so fast, and a slow one for storage.
fn fabric(width: &str) -> String {
    let mut text = String::new();
    for leaf in 0..2 {
        writeln!(
            text,
            "vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x100{leaf}\nswitchguid=0x100{leaf}(100{leaf})"
        )
        .unwrap();
        writeln!(
            text,
            "Switch\t64 \"S-000000000000100{leaf}\"\t\t# \"leaf{leaf}\" enhanced port 0 lid {leaf} lmc 0"
        )
        .unwrap();
        let hosts = (0..2).flat_map(|host| (0..4).map(move |port| (host, port)));
        for (at, (host, port)) in hosts.enumerate() {
            let guid = format!("{:016x}", 0x2000 + host * 256 + leaf * 4 + port);
            let nic = leaf * 4 + port;
            writeln!(
                text,
                "[{}]\t\"H-{guid}\"[1]({guid}) \t\t# \"node-{host} mlx5_{nic}\" lid 9 {width}",
                at + 1
            )
            .unwrap();
        }
        text.push('\n');
    }
    for (host, nic) in (0..2).flat_map(|host| (0..8).map(move |nic| (host, nic))) {
        let guid = format!("{:016x}", 0x2000 + host * 256 + nic);
        writeln!(text, "vendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{guid}\ncaguid=0x{guid}").unwrap();
        writeln!(text, "Ca\t1 \"H-{guid}\"\t\t# \"node-{host} mlx5_{nic}\"").unwrap();
        let (leaf, port) = (nic / 4, host * 4 + nic % 4 + 1);
        writeln!(text, "[1]({guid}) \t\"S-000000000000100{leaf}\"[{port}]\t\t# lid 9 lmc 0 \"leaf{leaf}\" lid 1 {width}\n").unwrap();
    }
    text
}

fn put_together(texts: &[&str]) -> Assembled {
    let parts = texts.iter().enumerate().map(|(i, text)| {
        let found = source::read(text, None, Some("node-0")).unwrap_or_else(|e| panic!("{e}:\n{text}"));
        Part { name: format!("file {i}"), found }
    });
    assemble(parts.collect(), &Options { host: NodeName::new("node-0").ok(), ..Options::default() })
}

fn gb_per_s(machine: &Machine) -> Vec<Option<u64>> {
    let mut all: Vec<_> = machine.nics.iter().map(|nic| nic.bytes_per_s.map(|b| b / 125_000_000)).collect();
    all.dedup();
    all
}

#[test]
fn ports_of_a_fabric_tell_the_speed_of_nics() {
    let found = put_together(&[&fabric("4xNDR"), MATRIX]);
    assert_eq!(found.reading.graph.hosts.len(), 2, "{:?}", found.gaps);
    let machine = found.reading.graph.hosts[1].machine.as_ref().unwrap();
    assert_eq!(gb_per_s(machine), [Some(400)]);
    assert!(machine.nics.iter().all(|nic| !nic.is_assumed));
    assert_eq!(describe::assumed_nics(machine), None);
    // What is written for the cluster file has them.
    let again = nccl::topo::parse(&nccl::write(machine)).unwrap().tree().machine().0;
    assert_eq!(gb_per_s(&again), [Some(400)]);
    // A listing that has only some of the cables.
    let text = fabric("4xNDR");
    let few: String = text
        .lines()
        .filter(|line| !line.contains("[1](") || line.contains("mlx5_0"))
        .map(|line| format!("{line}\n"))
        .collect();
    let found = put_together(&[&few, MATRIX]);
    let machine = found.reading.graph.hosts.iter().find_map(|host| host.machine.as_ref()).unwrap();
    assert_eq!(gb_per_s(machine), [Some(400)]);
    let machine = put_together(&[&fabric("4xHDR"), MATRIX]);
    assert_eq!(gb_per_s(machine.reading.graph.hosts[0].machine.as_ref().unwrap()), [Some(200)]);
}

#[test]
fn a_speed_that_is_assumed_is_said_and_never_written() {
    let mut machine = match source::read(MATRIX, None, None).unwrap() {
        Found::Machine(found) => found.machine,
        _ => panic!("no machine"),
    };
    let told = |machine: &Machine| {
        check::check(machine).iter().map(ToString::to_string).find(|f| f.contains("assumed"))
    };
    assert_eq!(told(&machine).unwrap(), "note: the speed of 8 NICs is unknown; 100 Gb/s each is assumed");
    machine.devices.iter_mut().for_each(|device| "NVIDIA B200".clone_into(&mut device.model));
    machine.assume_nic_speeds();
    assert_eq!(gb_per_s(&machine), [Some(400)]);
    let what =
        "note: the speed of 8 NICs is unknown; 400 Gb/s each is assumed, as in usual machines of NVIDIA B200";
    assert_eq!(told(&machine).unwrap(), what);
    let again = nccl::topo::parse(&nccl::write(&machine)).unwrap().tree().machine().0;
    assert_eq!(gb_per_s(&again), [None]);
    // What a source says stays.
    machine.nics[3].bytes_per_s = Some(12_500_000_000);
    machine.nics[3].is_assumed = false;
    machine.assume_nic_speeds();
    machine.share_nic_speed(8 * 25_000_000_000);
    assert_eq!(gb_per_s(&machine), [Some(400), Some(100), Some(400)]);
}

/// What `ibstat`, `ibstatus` and `ethtool` print, one after another.
const TOOLS: &str = "\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 2
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 200
\t\tLink layer: InfiniBand
\tPort 2:
\t\tState: Down
\t\tRate: 40
CA 'mlx5_77'
\tPort 1:
\t\tState: Active
\t\tRate: 200
Infiniband device 'mlx5_1' port 1 status:
\tstate:\t\t 4: ACTIVE
\trate:\t\t 400 Gb/sec (4X NDR)
Settings for mlx5_2:
\tSpeed: 100000Mb/s
\tLink detected: yes
Settings for mlx5_3:
\tSpeed: Unknown!
\tLink detected: no
";

#[test]
fn tools_of_nics_tell_their_speeds() {
    let found = put_together(&[MATRIX, TOOLS]);
    let machine = &found.machine.as_ref().unwrap().machine;
    assert_eq!(gb_per_s(machine), [Some(200), Some(400), Some(100), None]);
    assert_eq!(found.gaps[0].1.what, "mlx5_77 is no NIC of the machine; its speed is not used");
    assert_eq!(found.gaps.len(), 1);
    assert!(source::read("Settings for a:\n\tSpeed: 1x\n", None, None).is_ok());
    assert!(source::read("CA ''\nRate: 5\n", Some(source::Kind::Nics), None).is_err());
}
