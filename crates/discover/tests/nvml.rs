//! NVIDIA's library, as far as ours that answers from fixtures/live is it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;
#[path = "common/fake.rs"]
mod fake;
#[path = "common/tree.rs"]
mod tree;

use std::path::Path;

use common::groups;
use fake::{Fake, MACHINES, description};
use phalanx_discover::host::merge;
use phalanx_discover::kfd::Kfd;
use phalanx_discover::nvml::{self, Found, NvmlError};
use phalanx_discover::{Severity, check, shape};
use phalanx_model::{LinkKind, Machine, Port};
use proptest::prelude::*;
use tree::Tree;

fn read(name: &str) -> Option<Found> {
    let fake = Fake::new(&description(name))?;
    Some(nvml::read(Some(&fake.library())).unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// The machine that a host without a readable `/sys` is.
fn alone(found: Found) -> Machine {
    merge(Tree::new(0).read(), &Kfd::default(), Ok(found)).machine
}

fn pairs(found: &Found) -> Vec<(u32, u32, LinkKind, u32)> {
    let links = found.links.iter().map(|l| match (l.a, l.b) {
        (Port::Device(a), Port::Device(b)) => (a, b, l.kind, l.nominal_mb_per_s),
        other => panic!("{other:?}"),
    });
    links.collect()
}

fn findings(found: &Found) -> Vec<String> {
    found.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_dump_of_a_description_is_the_description() {
    for name in MACHINES {
        let text = description(name);
        let Some(fake) = Fake::new(&text) else { return };
        let told = text.lines().filter(|line| !line.starts_with('#'));
        let dump = nvml::dump(Some(&fake.library())).unwrap();
        dump.lines().zip(told.clone()).for_each(|(dumped, told)| assert_eq!(dumped, told, "{name}"));
        assert_eq!(dump.lines().count(), told.count(), "{name}");
    }
}

#[test]
fn behind_switches_every_pair_has_all_links_and_their_speed() {
    let Some(found) = read("h100-nvswitch-8.txt") else { return };
    assert_eq!(found.notes, [""; 0]);
    assert_eq!(findings(&found), [""; 0]);
    let links = pairs(&found);
    assert_eq!(links.len(), 28);
    assert!(links.iter().all(|(.., kind, mb)| (*kind, *mb) == (LinkKind::Nvlink(18), 18 * 26_562)));
    assert_eq!(found.nvlink_domain, None, "a UUID of zeros is no domain");
    let machine = alone(found);
    assert_eq!(machine.devices[3].model, "NVIDIA H100 80GB HBM3");
    assert_eq!(machine.devices[3].pci_address.as_deref(), Some("0000:61:00.0"));
    assert_eq!(
        (groups(&machine, shape::NVLINK), groups(&machine, shape::SOCKET)),
        ("0-7".into(), "0-3 4-7".into())
    );
}

#[test]
fn links_that_fell_off_are_seen_from_every_side() {
    let Some(found) = read("h100-lost-nvlink-8.txt") else { return };
    let links = pairs(&found);
    let of = |a, b| links.iter().find(|l| (l.0, l.1) == (a, b)).map(|l| (l.2, l.3)).unwrap();
    assert_eq!(of(0, 2), (LinkKind::Nvlink(18), 478_116));
    assert_eq!(of(0, 1), (LinkKind::Nvlink(16), 424_992));
    // Off NVLink there is PCIe: gen 5, of which GPU6 has half the lanes.
    assert_eq!(of(4, 5), (LinkKind::Numa, 48_000));
    assert_eq!(of(5, 6), (LinkKind::Numa, 24_000));
    assert_eq!(
        found.notes,
        [
            "2 of 18 NVLinks of GPU1 are inactive",
            "GPU2-GPU3 have NVLinks, and the driver refuses peer access: it is disabled by a registry key of the driver",
        ]
    );
    assert_eq!(
        findings(&found),
        [
            "severe: GPU1 has degraded bandwidth on the NVLink fabric",
            "severe: GPU5 has not joined its NVLink fabric; is the fabric manager running",
            "warning: GPU6 has 8 of 16 PCIe lanes; seat it again, or look at its riser",
        ]
    );
    let machine = alone(found);
    assert_eq!(groups(&machine, shape::NVLINK), "0-4,6-7");
    let told: Vec<(Severity, String)> =
        check::check(&machine).into_iter().map(|f| (f.severity, f.devices.to_string())).collect();
    assert_eq!(told[..2], [(Severity::Severe, "5".into()), (Severity::Warning, "1".into())]);
}

#[test]
fn a_tray_knows_the_domain_that_it_is_a_part_of() {
    let Some(found) = read("gb200-tray-4.txt") else { return };
    assert_eq!(found.nvlink_domain.as_deref(), Some("7f2b1c64-9a3e-4d58-8c11-5e0f6a7b8c9d.32766"));
    assert!(pairs(&found).iter().all(|(.., kind, mb)| (*kind, *mb) == (LinkKind::Nvlink(18), 900_000)));
    assert_eq!(found.devices[2].pci_address.as_deref(), Some("0018:01:00.0"));
    assert_eq!(findings(&found), ["warning: GPU3 runs PCIe generation 5 of 6 though it is at work"]);
    let Some(fake) = Fake::new(&description("gb200-tray-4.txt").replacen("32766", "32767", 1)) else {
        return;
    };
    let found = nvml::read(Some(&fake.library())).unwrap();
    assert_eq!(found.nvlink_domain, None);
    assert!(found.notes[0].contains("this host is taken for a part of neither"), "{:?}", found.notes);
}

#[test]
fn a_device_in_mig_mode_has_slices_and_no_nvlink() {
    let Some(found) = read("a100-mig-4.txt") else { return };
    assert_eq!(found.notes, ["GPU2 is in MIG mode, which has no NVLink"]);
    let sliced: Vec<bool> = found.devices.iter().map(|d| d.is_sliced).collect();
    assert_eq!(sliced, [false, false, true, false]);
    let slices: Vec<_> = found
        .slices
        .iter()
        .map(|s| (s.device, s.profile.as_str(), s.placement, s.memory_bytes >> 20))
        .collect();
    assert_eq!(
        slices,
        [(2, "1g.5gb", None, 4864), (2, "2g.10gb", Some((2, 2)), 9856), (2, "3g.20gb", Some((4, 4)), 19_968),]
    );
    assert_eq!(found.slices[1].uuid, "MIG-a2222222-0000-5000-8000-000000000002");
    assert_eq!(groups(&alone(found), shape::NVLINK), "0-1,3");
}

#[test]
fn an_old_driver_tells_less_and_is_enough() {
    let Some(found) = read("v100-old-driver-4.txt") else { return };
    assert_eq!(found.notes, [""; 0]);
    assert_eq!(found.devices[0].memory_bytes, 34_089_730_048, "by the first version of the call");
    assert_eq!((found.devices[0].numa, found.devices[0].is_sliced), (None, false));
    // Who may use NVLink and has no link of its own is behind a switch.
    let links = pairs(&found);
    assert_eq!(links.len(), 6);
    assert!(links.iter().all(|(.., kind, mb)| (*kind, *mb) == (LinkKind::Nvlink(6), 6 * 25_781)));
    // Without a speed, the version tells.
    let text = description("v100-old-driver-4.txt").replace(" 25781 ", " !3 ");
    let Some(fake) = Fake::new(&text) else { return };
    assert_eq!(pairs(&nvml::read(Some(&fake.library())).unwrap())[0].3, 150_000);
}

#[test]
fn bridges_lost_devices_and_other_orders_are_read() {
    let Some(found) = read("a6000-bridged-3-of-4.txt") else { return };
    assert_eq!(
        found.notes,
        [
            "GPU1 does not answer and is left out: the GPU has fallen off the bus; reset it or restart the host",
            "2 of 4 NVLinks of GPU3 are inactive",
            "2 NVLinks of GPU3 lead to no device of this host",
            "GPU0 and 2 more run PCIe below its best generation, as resting devices do",
        ]
    );
    assert_eq!(findings(&found), [""; 0], "8 lanes are all that the slot has");
    assert_eq!(
        pairs(&found),
        [
            (0, 1, LinkKind::Nvlink(4), 56_248),
            (0, 2, LinkKind::Socket, 12_000),
            (1, 2, LinkKind::HostBridge, 12_000),
        ]
    );
    assert_eq!(found.uuids.len(), 3);

    // Together with what the kernel knows: nearer NUMA nodes, the way to a NIC, and the device that is lost.
    let tree = Tree::new(2);
    let switch = "pci0000:10/0000:10:01.0/0000:11:00.0";
    for (path, numa) in [
        (format!("{switch}/0000:12:00.0/0000:13:00.0"), 1),
        (format!("{switch}/0000:12:01.0/0000:14:00.0"), 0),
        (format!("{switch}/0000:12:02.0/0000:18:00.0"), 0),
        ("pci0000:80/0000:80:01.0/0000:81:00.0".to_owned(), 1),
    ] {
        tree.pci(&path, "0x10de", "0x030000", numa, "nvidia");
        tree.speed(&path, ("8.0 GT/s PCIe", 16), ("8.0 GT/s PCIe", 8));
    }
    let nic = format!("{switch}/0000:12:03.0/0000:15:00.0");
    tree.pci(&nic, "0x15b3", "0x020000", 0, "mlx5_core");
    tree.link("class/infiniband/mlx5_0/device", &format!("devices/{nic}"));
    let merged = merge(tree.read(), &Kfd::default(), Ok(found));
    let names: Vec<_> = merged.machine.devices.iter().map(|d| (d.name.as_str(), d.numa.unwrap())).collect();
    assert_eq!(names, [("GPU0", 1), ("GPU2", 1), ("GPU3", 0)]);
    assert_eq!(merged.machine.device_link(0, 1), Some(LinkKind::Nvlink(4)));
    assert_eq!(merged.machine.link(Port::Device(1), Port::Nic(0)), Some(LinkKind::PcieSwitch));
    let far = merged.machine.links.iter().find(|l| (l.a, l.b) == (Port::Device(0), Port::Device(2))).unwrap();
    assert_eq!((far.kind, far.nominal_mb_per_s), (LinkKind::Socket, 12_000));
    assert!(merged.notes.iter().any(|n| n.contains("0000:14:00.0 is left out")), "{:?}", merged.notes);
}

#[test]
fn a_library_without_a_driver_says_so_and_an_absent_one_is_told_apart() {
    let error = nvml::read(Some(Path::new("/nonexistent/libnvidia-ml.so.1"))).unwrap_err();
    assert!(matches!(error, NvmlError::Absent(_)), "{error}");
    let Some(fake) = Fake::new("init 9\n") else { return };
    assert!(matches!(nvml::dump(Some(&fake.library())), Err(NvmlError::NoDriver)));
    fake.describe("driver 1\n");
    assert_eq!(nvml::read(Some(&fake.library())).unwrap(), Found::default());
}

#[test]
fn a_library_that_talks_nonsense_is_read() {
    let Some(fake) = Fake::new("") else { return };
    let lines: Vec<String> = MACHINES
        .iter()
        .flat_map(|name| description(name).lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let cases = ProptestConfig::with_cases(128);
    let picks =
        proptest::collection::vec((0..lines.len(), 0..8_usize, "[0-9]{1,12}|![0-9]{1,3}|-1|[a-z]*"), 1..60);
    proptest!(cases, |(picks in picks)| {
        // Lines of several machines, in one: with fields in them that no driver writes.
        let mut text = String::from("gpu0 at 00000000:01:00.0\ngpu0 name X\n");
        for (line, field, word) in picks {
            let mut fields: Vec<&str> = lines[line].split(' ').collect();
            if let Some(place) = fields.get_mut(field + 1) {
                *place = &word;
            }
            text += &fields.join(" ");
            text.push('\n');
        }
        fake.describe(&text);
        if let Ok(found) = nvml::read(Some(&fake.library())) {
            prop_assert_eq!(found.devices.len(), found.uuids.len());
            alone(found);
        }
    });
}
