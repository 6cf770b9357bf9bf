//! How many equal parts the devices of one node hold, device by device.

use phalanx_checker::mig::Board;
use phalanx_model::{DeviceMask, DevicePart, Node, PartNeed};

use super::Amounts;

/// More parts than any test requests.
const MANY: u64 = 1_000;

/// The members with this part that fit on some devices of a node.
pub(super) fn room(node: &Node, amounts: &Amounts, devices: DeviceMask, need: &PartNeed) -> u64 {
    devices.iter().map(|device| of_device(node, amounts, device, need)).sum()
}

fn of_device(node: &Node, amounts: &Amounts, device: u32, need: &PartNeed) -> u64 {
    let parts: Vec<_> = amounts.parts.iter().filter(|held| held.device == device).collect();
    if parts.is_empty() && !amounts.devices.contains(device) {
        return 0;
    }
    if *need == PartNeed::Replica {
        let each = u64::from(node.machine.replicas.max(1));
        return each.saturating_sub(parts.len() as u64);
    }
    if node.machine.replicas > 0 {
        return 0;
    }
    if let PartNeed::Share { compute_milli, memory_bytes, trust } = need {
        let bytes = node.machine.devices.get(device as usize).map_or(0, |device| device.memory_bytes);
        let (mut compute, mut memory) = (0, 0);
        for held in parts {
            match &held.need {
                PartNeed::Share { compute_milli, memory_bytes, trust: there } if there == trust => {
                    compute += u64::from(*compute_milli);
                    memory += PartNeed::share_bytes(*compute_milli, *memory_bytes, bytes);
                }
                _ => return 0,
            }
        }
        let limit = match node.machine.share_limit_milli {
            0 => 1_000,
            limit => u64::from(limit),
        };
        let wanted = PartNeed::share_bytes(*compute_milli, *memory_bytes, bytes);
        let times = |left: u64, need: u64| left.checked_div(need).unwrap_or(MANY);
        let by_memory = if bytes == 0 { MANY } else { times(bytes.saturating_sub(memory), wanted) };
        return times(limit.saturating_sub(compute), (*compute_milli).into()).min(by_memory);
    }
    let Some(board) = node.machine.devices.get(device as usize).and_then(Board::of) else { return 0 };
    let profile = match need {
        PartNeed::Profile(name) => Some(name.as_str()),
        PartNeed::Slice { compute_milli, memory_bytes } => board.smallest(*compute_milli, *memory_bytes),
        PartNeed::Share { .. } | PartNeed::Replica => None,
    };
    let Some(instance) = profile.and_then(|profile| board.instance(profile)) else { return 0 };
    let (mut used, mut has_media) = (0_u32, false);
    for held in parts {
        let DevicePart::Slice { profile, start } = &held.part else { return 0 };
        let Some(there) = board.instance(profile) else { return 0 };
        used |= run(*start, there.length);
        has_media |= there.has_media;
    }
    if instance.has_media {
        let fits = board.starts(&instance).iter().any(|start| used & run(*start, instance.length) == 0);
        return u64::from(fits && !has_media);
    }
    most(board.starts(&instance), instance.length, used)
}

fn run(start: u8, length: u8) -> u32 {
    ((1 << length) - 1) << start
}

/// The most runs that begin at some of these starts and do not overlap, by trying each start with and without.
fn most(starts: &[u8], length: u8, used: u32) -> u64 {
    let Some((start, rest)) = starts.split_first() else { return 0 };
    let without = most(rest, length, used);
    let run = run(*start, length);
    if used & run == 0 { without.max(1 + most(rest, length, used | run)) } else { without }
}
