//! What a rank may take of this machine besides its devices: its share of the node, where its job does not say.

use std::fs;

use phalanx_model::{Machine, Needs, PartNeed, Slot};
use phalanx_node::isolation::CPU_WEIGHT_MAX;

use crate::limits::Limits;

/// Processes and threads that every rank may have: data loaders start hundreds, each with threads of its own.
const PIDS_MIN: u64 = 2_048;
/// Memory that every rank may have.
const MEMORY_BYTES_MIN: u64 = 1 << 30;
/// What the kernel allows if it does not say: its default on small machines.
const KERNEL_PIDS: u64 = 32_768;
const MILLION: u64 = 1_000_000;

/// Limits of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RankLimits {
    pub(crate) cpu_milli: Option<u64>,
    pub(crate) cpu_weight: Option<u64>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) pids: Option<u64>,
    pub(crate) pids_of_user: Option<u64>,
    pub(crate) pids_of_all: Option<u64>,
}

/// What the processes of one rank have: their slots, what each asks for, and its node's hardware. More than one slot for
/// the launcher of an MPI job, which starts the processes of all.
pub(crate) type Held<'a> = [(&'a Slot, &'a Needs, &'a Machine)];

/// Limits of a rank that holds these slots, where `kernel_pids` processes can be.
///
/// What a job asks for is a hard limit, as before. What it does not ask for:
/// - CPU: a weight, so that idle CPUs can be used by any rank;
/// - memory: a hard limit, because memory that a rank has cannot be taken back for the others but by ending processes;
/// - processes: a hard limit, as no fair job comes near its share.
pub(crate) fn of_rank(limits: &Limits, held: &Held<'_>, kernel_pids: u64) -> RankLimits {
    let share = held.iter().map(|(slot, needs, machine)| share_ppm(slot, needs, machine)).sum::<u64>();
    let share = share.clamp(1, MILLION);
    let asked = |amount: fn(&Needs) -> u64| {
        // A launcher of which one slot asks for nothing is not limited by what the others ask.
        let mut amounts = held.iter().map(|(_, needs, _)| Some(amount(needs)).filter(|amount| *amount > 0));
        let sum = amounts.try_fold(0_u64, |sum, amount| Some(sum.saturating_add(amount?)));
        sum.filter(|sum| *sum > 0)
    };
    let pids = limits.pids_or(kernel_pids);
    RankLimits {
        cpu_milli: asked(|needs| needs.cpu_milli),
        cpu_weight: Some(part(CPU_WEIGHT_MAX, share).max(1)),
        memory_bytes: asked(|needs| needs.memory_bytes).or_else(|| memory_bytes(limits, held)),
        pids: Some(part(pids, share).max(PIDS_MIN.min(pids))),
        pids_of_user: Some(pids),
        pids_of_all: Some(kernel_pids / 4 * 3),
    }
}

/// Its share of the memory. None if the memory of a node is unknown, or the operator wants no limit.
fn memory_bytes(limits: &Limits, held: &Held<'_>) -> Option<u64> {
    let percent = limits.memory_share_percent;
    let mut sum = 0_u64;
    for (slot, needs, machine) in held {
        let all = machine.memory_bytes;
        let share = part(all, share_ppm(slot, needs, machine)).max(MEMORY_BYTES_MIN);
        let share = u128::from(share) * u128::from(percent) / 100;
        let share = u64::try_from(share).unwrap_or(u64::MAX).min(all);
        sum = sum.saturating_add(Some(share).filter(|share| *share > 0)?);
    }
    Some(sum).filter(|sum| *sum > 0)
}

/// The part of its node that a rank has, in millionths: that of its devices, or that of the CPUs it asks for, whichever
/// is more. A rank without devices has at least one CPU.
fn share_ppm(slot: &Slot, needs: &Needs, machine: &Machine) -> u64 {
    let devices = match &slot.part {
        None => u64::from(slot.devices.count()) * 1_000,
        Some(_) => needs.part.as_ref().map_or(1_000, |part| part_milli(part, machine)),
    };
    let of_devices = ratio(devices, u64::from(machine.device_count()) * 1_000);
    let cpus = if devices == 0 { needs.cpu_milli.max(1_000) } else { needs.cpu_milli };
    of_devices.max(ratio(cpus, machine.cpu_milli)).min(MILLION)
}

/// The part of a device in thousandths.
fn part_milli(part: &PartNeed, machine: &Machine) -> u64 {
    match part {
        PartNeed::Share { compute_milli: 0, .. } | PartNeed::Slice { compute_milli: 0, .. } => 1_000 / 8,
        PartNeed::Share { compute_milli, .. } | PartNeed::Slice { compute_milli, .. } => {
            u64::from(*compute_milli).min(1_000)
        }
        // A profile begins with the sevenths of its compute: `3g.40gb`.
        PartNeed::Profile(name) => {
            let sevenths = name.chars().next().and_then(|first| first.to_digit(10)).unwrap_or(1);
            (u64::from(sevenths) * 1_000 / 7).min(1_000)
        }
        PartNeed::Replica => machine.replica_milli().into(),
    }
}

fn ratio(part: u64, whole: u64) -> u64 {
    part.saturating_mul(MILLION).checked_div(whole).unwrap_or(0)
}

fn part(whole: u64, ppm: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(ppm) / u128::from(MILLION)).unwrap_or(u64::MAX)
}

/// Processes and threads that the kernel can have at once.
pub(crate) fn kernel_pids() -> u64 {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok();
    [read("pid_max"), read("threads-max")].into_iter().flatten().min().unwrap_or(KERNEL_PIDS)
}

#[cfg(test)]
mod tests;
