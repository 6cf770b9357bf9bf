//! What is told of whole and of damaged machines.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{fixture, read};
use phalanx_discover::check::{Cost, Severity, Unit, check};
use phalanx_discover::topo_m::parse;
use phalanx_model::DeviceMask;

/// Without the note that speeds of NICs are assumed, which `topo -m` never has.
fn told(name: &str) -> Vec<String> {
    let found = check(&read(name).machine);
    found.iter().map(ToString::to_string).filter(|f| !f.contains("is assumed")).collect()
}

#[test]
fn whole_machines_are_left_in_peace() {
    for name in ["h100-nvswitch-8.txt", "pcie-8.txt", "v100-nvswitch-16.txt", "ansi-truncated.txt"] {
        assert_eq!(told(name), [""; 0], "{name}");
    }
}

#[test]
fn a_device_off_nvlink_and_one_with_fewer_links_are_told() {
    let found = check(&read("h100-degraded-8.txt").machine);
    assert_eq!(
        found[0].to_string(),
        "severe: GPU2 is off NVLink, which 7 other devices have: to them it has PCIe alone \
         (48 of 370 GB/s, 12 % of the bandwidth)"
    );
    assert_eq!(
        found[1].to_string(),
        "warning: GPU6 has fewer NVLinks than its peers, and a ring through it is as slow as it is \
         (16 of 18 links, 88 % of the bandwidth)"
    );
    assert_eq!(
        (found[1].devices, found[1].cost),
        (DeviceMask::one(6), Some(Cost { have: 16, of: 18, unit: Unit::Links }))
    );
    assert_eq!(found.len(), 2);
}

#[test]
fn a_mesh_is_whole_although_its_pairs_differ_and_a_lost_link_shows() {
    let design = "note: devices 2-3,6-7 reach every NIC through a host bridge, where devices 0-1,4-5 have one on \
                  their own PCIe switch";
    assert_eq!(told("v100-hcm-8.txt"), [design]);
    // One of the two links between 0 and 3 is down, seen from both ends.
    let text = fixture("v100-hcm-8.txt");
    let text = text.replace("GPU0\t X \tNV1\tNV1\tNV2", "GPU0\t X \tNV1\tNV1\tNV1");
    let text = text.replace("GPU3\tNV2\tNV1\tNV2\t X ", "GPU3\tNV1\tNV1\tNV2\t X ");
    let found = check(&parse(&text).unwrap().machine);
    let weak: Vec<_> = found.iter().filter_map(|f| Some((f.devices.to_string(), f.cost?))).collect();
    let cost = Cost { have: 5, of: 6, unit: Unit::Links };
    assert_eq!(weak, [("0".to_owned(), cost), ("3".to_owned(), cost)]);
}

#[test]
fn lost_links_of_several_devices_are_told_apart() {
    let text = fixture("h100-nvswitch-8.txt");
    let with = |device: usize, count: &str, text: &str| {
        let hit = |line: &str| {
            let mut cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
            let is_row = cells[0].starts_with("GPU") && cells.len() > 8;
            if is_row && cells[0] == format!("GPU{device}") {
                cells[1..9].iter_mut().filter(|c| c.as_str() == "NV18").for_each(|c| *c = count.into());
            } else if is_row && cells[device + 1] == "NV18" {
                cells[device + 1] = count.into();
            }
            cells.join("\t")
        };
        text.lines().map(hit).collect::<Vec<_>>().join("\n")
    };
    let text = with(5, "NV17", &with(1, "NV16", &text));
    let found = check(&parse(&text).unwrap().machine);
    let weak: Vec<_> = found.iter().filter_map(|f| Some((f.devices.to_string(), f.cost?.have))).collect();
    assert_eq!(weak, [("1".to_owned(), 16), ("5".to_owned(), 17)]);
}

#[test]
fn a_sliced_device_has_not_lost_its_nvlinks() {
    let mut machine = read("h100-degraded-8.txt").machine;
    machine.devices[2].is_sliced = true;
    let found = check(&machine);
    assert!(found.iter().all(|f| f.severity < Severity::Severe));
    assert_eq!(
        found[1].to_string(),
        "note: devices 2 are cut into slices, and have no NVLink as long as they are"
    );
}

#[test]
fn a_nic_in_the_wrong_slot_is_told_with_what_it_costs() {
    let text = "\tGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\n\
                GPU0\tX\tNODE\tNODE\tPIX\tNODE\tSYS\t0-7\t0\n\
                GPU1\tNODE\tX\tNODE\tNODE\tPIX\tSYS\t0-7\t0\n\
                GPU2\tNODE\tNODE\tX\tNODE\tNODE\tSYS\t0-7\t0\n";
    let found = check(&parse(text).unwrap().machine);
    assert_eq!(
        found[0].to_string(),
        "warning: NIC2 is across the sockets from every device, and devices 2 have no NIC on their own PCIe \
         switch, as most others have (39 of 55 GB/s, 70 % of the bandwidth)"
    );
    let far = text.replace("GPU2\tNODE\tNODE\tX\tNODE\tNODE\tSYS", "GPU2\tSYS\tSYS\tX\tSYS\tSYS\tSYS");
    let found = check(&parse(&far).unwrap().machine);
    assert!(found.iter().any(|f| f.to_string().starts_with(
        "warning: devices 2 reach every NIC across the sockets, where devices 0-1 have one on their own PCIe switch"
    )));
}

#[test]
fn a_nic_far_from_all_is_told() {
    assert_eq!(told("a100-nps4-8.txt"), ["note: mlx5_8, mlx5_9 are across the sockets from every device"]);
}

#[test]
fn a_virtual_machine_that_hides_its_sockets_is_told() {
    let text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tSYS\t0-7\t0\nGPU1\tSYS\tX\t0-7\t0\n";
    let found = check(&parse(text).unwrap().machine);
    assert_eq!((found.len(), found[0].devices), (1, DeviceMask::first(2)));
}

/// A cut mesh has fewer links than a whole one because they were not read.
#[test]
fn a_cut_file_is_not_taken_for_lost_links() {
    for name in
        ["v100-hcm-8.txt", "h100-degraded-8.txt", "h100-nvswitch-8.txt", "v100-nvswitch-16.txt", "pcie-8.txt"]
    {
        let whole: Vec<String> = told(name);
        let text = fixture(name);
        let end = text.find("\n\n").unwrap_or(text.len());
        for cut in (0..end).filter(|at| text.is_char_boundary(*at)).step_by(7) {
            let Ok(found) = parse(&text[..cut]) else { continue };
            let claims = check(&found.machine).into_iter().filter(|f| f.severity > Severity::Note);
            for claim in claims.map(|f| f.to_string()) {
                // What costs how much may be less well known.
                let start = claim.split(" (").next().unwrap_or_default();
                let is_of_whole = whole.iter().any(|known| {
                    known.split(" (").next() == Some(start)
                        || start.contains("off NVLink") && known.contains("off NVLink")
                });
                assert!(is_of_whole, "{name} cut at {cut}: {claim}");
            }
        }
    }
}
