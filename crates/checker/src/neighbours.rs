//! The neighbours of a start's members: on the same node, and on the same device.

use phalanx_model::{DeviceMask, DevicePart, GangId, Machine, Node, NodeName, PartNeed};

use crate::mig::Board;
use crate::start::{Member, Start};
use crate::{Checker, Violation};

/// A member on one device.
struct Occupant<'a> {
    gang: GangId,
    rank: u32,
    has: Has<'a>,
}

/// The amount of the device that the member has.
enum Has<'a> {
    Whole,
    Share {
        compute_milli: u32,
        memory_bytes: u64,
        trust: &'a str,
    },
    /// Memory slices, first and behind the last.
    Slice {
        first: u8,
        end: u8,
        has_media: bool,
    },
}

impl Checker {
    /// Checks devices in foreign use, shares and slices on the same device, and exclusive nodes. The start is in the
    /// state already.
    pub(crate) fn check_neighbours(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        for (name, members) in self.neighbours_of(start) {
            let Some(node) = self.nodes.get(name) else { continue };
            check_exclusive(start.id, node, &members, found);
            let own = members.iter().filter(|member| member.of.id == start.id);
            let devices = own.fold(DeviceMask::EMPTY, |all, member| all.union(member.slot.devices));
            for device in devices.iter() {
                let on = members.iter().filter(|member| member.slot.devices.contains(device));
                let there: Vec<Occupant<'_>> = on.map(|member| occupant(*member, node, device)).collect();
                check_shared_device(start.id, name, device, &there, found);
                check_shares(name, device, &node.machine, &there, found);
            }
        }
    }
}

/// An exclusive gang shares its nodes neither with other gangs nor with foreign processes. Exclusivity holds for all
/// of its roles.
fn check_exclusive(gang: GangId, node: &Node, there: &[Member<'_>], found: &mut Vec<Violation>) {
    let is_exclusive = |id: GangId| {
        let is_exclusive = |m: &Member<'_>| m.of.gang.needs.is_exclusive || m.needs().is_exclusive;
        there.iter().any(|m| m.of.id == id && is_exclusive(m))
    };
    let mut others: Vec<GangId> = there.iter().map(|member| member.of.id).filter(|id| *id != gang).collect();
    others.dedup();
    let mut neighbours: Vec<String> = others
        .into_iter()
        .filter(|other| is_exclusive(gang) || is_exclusive(*other))
        .map(|other| format!("gang {other}"))
        .collect();
    // Facts may name devices that the node does not have.
    let foreign = node.foreign.and(node.machine.device_mask());
    if is_exclusive(gang) && !foreign.is_empty() {
        neighbours.push(format!("foreign use of devices {foreign}"));
    }
    let node = &node.name;
    found.extend(neighbours.into_iter().map(|other| Violation::NotAlone { gang, other, node: node.clone() }));
}

fn occupant<'a>(member: Member<'a>, node: &Node, device: u32) -> Occupant<'a> {
    let has = match (&member.slot.part, &member.needs().part) {
        (Some(DevicePart::Share), Some(PartNeed::Share { compute_milli, memory_bytes, trust })) => {
            let of_device = node.machine.devices.get(device as usize).map_or(0, |of| of.memory_bytes);
            let memory_bytes = PartNeed::share_bytes(*compute_milli, *memory_bytes, of_device);
            Has::Share { compute_milli: *compute_milli, memory_bytes, trust }
        }
        (Some(DevicePart::Share), Some(PartNeed::Replica)) if node.machine.replicas > 0 => {
            Has::Share { compute_milli: node.machine.replica_milli(), memory_bytes: 0, trust: "" }
        }
        (Some(DevicePart::Slice { profile, start: first }), _) => {
            let board = node.machine.devices.get(device as usize).and_then(Board::of);
            let instance = board.and_then(|board| board.instance(profile));
            let (length, has_media) = instance.map_or((0, false), |of| (of.length, of.has_media));
            Has::Slice { first: *first, end: first.saturating_add(length), has_media }
        }
        _ => Has::Whole,
    };
    Occupant { gang: member.of.id, rank: member.slot.rank, has }
}

/// Two members on one device must be shares with the same trust, or slices that do not overlap.
fn check_shared_device(
    gang: GangId,
    node: &NodeName,
    device: u32,
    there: &[Occupant<'_>],
    found: &mut Vec<Violation>,
) {
    for (at, one) in there.iter().enumerate() {
        for other in &there[at + 1..] {
            if one.gang != gang && other.gang != gang {
                continue;
            }
            // The earlier member, which may belong to the same gang.
            let holder = if one.gang == gang { other.gang } else { one.gang };
            let (node, devices) = (node.clone(), DeviceMask::one(device));
            match (&one.has, &other.has) {
                (Has::Share { trust, .. }, Has::Share { trust: of_other, .. }) => {
                    if trust != of_other {
                        found.push(Violation::TrustMixed { gang, holder, node, device });
                    }
                }
                (
                    Has::Slice { first, end, has_media },
                    Has::Slice { first: of_other, end: end_of_other, has_media: media_of_other },
                ) => {
                    let is_over = first < end_of_other && of_other < end;
                    if is_over || (*has_media && *media_of_other) {
                        let ranks = (one.rank, other.rank);
                        found.push(Violation::SlicesOverlap { gang, holder, node, device, ranks });
                    }
                }
                _ => found.push(Violation::DeviceTwice { gang, holder, node, devices }),
            }
        }
    }
}

/// The shares of one device stay within its compute limit and its memory. Memory is not limited if the memory of the
/// device is unknown.
fn check_shares(
    node: &NodeName,
    device: u32,
    machine: &Machine,
    there: &[Occupant<'_>],
    found: &mut Vec<Violation>,
) {
    let (mut compute, mut memory) = (0_u64, 0_u64);
    for occupant in there {
        if let Has::Share { compute_milli, memory_bytes, .. } = occupant.has {
            compute = compute.saturating_add(compute_milli.into());
            memory = memory.saturating_add(memory_bytes);
        }
    }
    let limit = match (machine.replicas, machine.share_limit_milli) {
        (0, 0) => 1_000,
        (0, limit) => limit,
        (replicas, _) => replicas.saturating_mul(machine.replica_milli()),
    };
    let bytes = machine.devices.get(device as usize).map_or(0, |device| device.memory_bytes);
    let amounts = [
        ("compute_milli", u64::from(limit), compute),
        ("memory_bytes", if bytes == 0 { u64::MAX } else { bytes }, memory),
    ];
    for (what, has, wanted) in amounts.into_iter().filter(|(_, has, wanted)| wanted > has) {
        found.push(Violation::DeviceOverCommitted { node: node.clone(), device, what, has, wanted });
    }
}
