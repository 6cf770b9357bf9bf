use phalanx_model::{Device, DeviceMask, DevicePart, NodeName, Origin};

use super::*;

const GIB: u64 = 1 << 30;
const KERNEL: u64 = 4_194_304;

/// Eight devices, 64 CPUs and 512 GiB.
fn machine() -> Machine {
    let devices = vec![Device::default(); 8];
    Machine { devices, cpu_milli: 64_000, memory_bytes: 512 * GIB, ..Machine::bare(Origin::Declared) }
}

fn slot(devices: u32) -> Slot {
    let part = None;
    Slot { rank: 0, node: NodeName::new("n1").unwrap(), devices: DeviceMask::first(devices), part }
}

fn limits_of(slot: &Slot, needs: &Needs) -> RankLimits {
    of_rank(&Limits::default(), &[(slot, needs, &machine())], KERNEL)
}

#[test]
fn a_rank_that_asks_for_nothing_has_the_share_of_its_devices() {
    let of = |devices| limits_of(&slot(devices), &Needs::default());
    let two = of(2);
    assert_eq!((two.cpu_milli, two.cpu_weight), (None, Some(2_500)));
    assert_eq!((two.memory_bytes, two.pids), (Some(128 * GIB), Some(KERNEL / 2 / 4)));
    assert_eq!((two.pids_of_user, two.pids_of_all), (Some(KERNEL / 2), Some(KERNEL / 4 * 3)));
    let all = of(8);
    assert_eq!((all.memory_bytes, all.pids), (Some(512 * GIB), Some(KERNEL / 2)));
    // As one CPU of 64.
    assert_eq!((of(0).memory_bytes, of(0).cpu_weight), (Some(8 * GIB), Some(156)));
}

#[test]
fn what_a_job_asks_for_is_its_limit() {
    let needs = Needs { cpu_milli: 32_000, memory_bytes: 300 * GIB, ..Needs::default() };
    let limits = limits_of(&slot(1), &needs);
    assert_eq!((limits.cpu_milli, limits.memory_bytes), (Some(32_000), Some(300 * GIB)));
    // CPUs are a share too.
    assert_eq!((limits.cpu_weight, limits.pids), (Some(5_000), Some(KERNEL / 4)));
}

#[test]
fn a_part_of_a_device_is_a_part_of_its_share() {
    let mut machine = machine();
    machine.replicas = 4;
    let slot = Slot { part: Some(DevicePart::Share), ..slot(1) };
    let bytes = |part| {
        let needs = Needs { part: Some(part), cpu_milli: 1, ..Needs::default() };
        of_rank(&Limits::default(), &[(&slot, &needs, &machine)], KERNEL).memory_bytes.unwrap()
    };
    let share = PartNeed::Share { compute_milli: 250, memory_bytes: 0, trust: String::new() };
    assert_eq!(bytes(share), 16 * GIB);
    assert_eq!(bytes(PartNeed::Replica), 16 * GIB);
    assert_eq!(bytes(PartNeed::Profile("7g.80gb".to_owned())), 64 * GIB);
    assert!(bytes(PartNeed::Profile(String::new())) < 10 * GIB);
}

#[test]
fn an_operator_can_change_the_shares() {
    let with = |percent, pids| {
        let limits = Limits { memory_share_percent: percent, pids, ..Limits::default() };
        of_rank(&limits, &[(&slot(4), &Needs::default(), &machine())], KERNEL)
    };
    assert_eq!(with(0, 0).memory_bytes, None);
    assert_eq!(with(150, 0).memory_bytes, Some(384 * GIB));
    assert_eq!(with(1_000, 0).memory_bytes, Some(512 * GIB), "never more than the node has");
    assert_eq!((with(100, 100).pids, with(100, 100).pids_of_user), (Some(100), Some(100)));
    assert_eq!(with(100, 10_000).pids, Some(5_000));
    assert_eq!(with(100, 3_000).pids, Some(PIDS_MIN));
}

/// Its processes are those of all slots.
#[test]
fn a_launcher_has_what_all_its_slots_have() {
    let (machine, slots) = (machine(), [slot(4), slot(4)]);
    let asking = |bytes: [u64; 2]| {
        let needs = bytes.map(|memory_bytes| Needs { memory_bytes, ..Needs::default() });
        let held = [(&slots[0], &needs[0], &machine), (&slots[1], &needs[1], &machine)];
        of_rank(&Limits::default(), &held, KERNEL)
    };
    assert_eq!(asking([3 * GIB, 4 * GIB]).memory_bytes, Some(7 * GIB));
    let limits = asking([2 * GIB, 0]);
    assert_eq!((limits.memory_bytes, limits.pids), (Some(512 * GIB), Some(KERNEL / 2)));
}

#[test]
fn unknown_hardware_is_no_obstacle() {
    let bare = Machine::bare(Origin::Declared);
    let limits = of_rank(&Limits::default(), &[(&slot(1), &Needs::default(), &bare)], 0);
    assert_eq!((limits.memory_bytes, limits.cpu_weight), (None, Some(1)));
    assert!(kernel_pids() > 300);
}
