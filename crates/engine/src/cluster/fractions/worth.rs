//! The worth of a device that is shared or cut to the running parts. [`crate::cluster::mix`] has the price.

use super::State;
use super::hardware::Wanted;
use crate::cluster::mix::{Mix, Prices};
use crate::cluster::tree::Tree;
use crate::share::{Device, Kind as Hardware, Share, Trust, WHOLE_MILLI};

/// Shares are of one class when they round up to the same eighths of a device ...
const COMPUTE_STEP_MILLI: u32 = 125;
/// ... and to the same three binary digits of these.
const MEMORY_STEP_BYTES: u64 = 1 << 30;
/// One device is room for at most so many of a class: some want next to nothing.
const ROOM_MAX: u32 = 1_000;

/// A class of parts. There are few: eighths of compute and powers of two of memory, and the profiles of all boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PartClass {
    Share(Share),
    Slice { board: &'static str, profile: u8 },
}

/// The classes of parts that run, and the room for each.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartMix {
    mix: Mix<PartClass>,
    /// By class: how many fit on the devices that are shared or cut.
    rooms: Vec<u64>,
}

impl PartClass {
    fn of(wanted: Wanted, hardware: &Hardware) -> Option<Self> {
        Some(match wanted {
            Wanted::Slice(profile) => Self::Slice { board: hardware.geometry?.board, profile },
            Wanted::Share { share, .. } => {
                let steps = share.memory_bytes.div_ceil(MEMORY_STEP_BYTES);
                // Three digits of two are told apart.
                let digit = 1_u64 << (u64::BITS - steps.leading_zeros()).saturating_sub(3);
                let memory = steps.checked_next_multiple_of(digit).unwrap_or(u64::MAX);
                Self::Share(Share {
                    compute_milli: share.compute_milli.next_multiple_of(COMPUTE_STEP_MILLI),
                    memory_bytes: if steps == 0 { 0 } else { memory.saturating_mul(MEMORY_STEP_BYTES) },
                })
            }
        })
    }

    /// How many fit on a device. Shares of any trust: a search compares devices of one trust only.
    fn room(&self, hardware: &Hardware, device: &Device) -> u32 {
        match (self, device) {
            (Self::Share(share), Device::Shared { trust, .. }) => {
                device.room_for_share(hardware, *trust, *share).min(ROOM_MAX)
            }
            (Self::Share(share), Device::Empty) => {
                device.room_for_share(hardware, Trust::default(), *share).min(ROOM_MAX)
            }
            (Self::Slice { board, profile }, Device::Empty | Device::Sliced(_)) => {
                let geometry = hardware.geometry.filter(|geometry| geometry.board == *board);
                geometry.map_or(0, |geometry| device.room_for_profile(geometry, *profile))
            }
            _ => 0,
        }
    }
}

impl PartMix {
    /// Adds the room of a device in some use, or subtracts it.
    pub(crate) fn see(&mut self, hardware: &Hardware, device: &Device, is_added: bool) {
        for (class, sum) in self.mix.classes().iter().zip(&mut self.rooms) {
            let room = u64::from(class.request.room(hardware, device));
            *sum = if is_added { sum.saturating_add(room) } else { sum.saturating_sub(room) };
        }
    }

    /// A part begins to run, or ends.
    pub(crate) fn count(
        &mut self,
        wanted: Wanted,
        hardware: &Hardware,
        is_added: bool,
        states: &[State],
        tree: &Tree,
    ) {
        let Some(class) = PartClass::of(wanted, hardware) else { return };
        self.mix.count(class, 1, is_added);
        if self.rooms.len() < self.mix.classes().len() {
            let rooms = states.iter().map(|state| {
                let (kind, number, device) = state.key;
                let hardware = &tree.kinds[usize::from(kind)].hardware[usize::from(number)].0;
                u64::from(class.room(hardware, &device)) * state.nodes.len() as u64
            });
            self.rooms.push(rooms.sum());
        }
    }

    /// Sets the present prices. `fresh` is the number of free devices by kind of node.
    pub(crate) fn price(&self, tree: &Tree, fresh: &[u64], prices: &mut Prices) {
        prices.set(self.mix.classes(), |at, class| {
            let (mut room, mut most) = (self.rooms.get(at).copied().unwrap_or(0), 0_u32);
            for (kind, devices) in tree.kinds.iter().zip(fresh) {
                let Some((hardware, _)) = kind.hardware.first() else { continue };
                let of_device = class.request.room(hardware, &Device::Empty);
                room = room.saturating_add(devices.saturating_mul(u64::from(of_device)));
                most = most.max(of_device);
            }
            Some(room.saturating_mul(u64::from(WHOLE_MILLI / most.max(1))))
        });
    }

    /// The worth of a device in some use to all classes. When its use changes, the classes lose the difference.
    pub(crate) fn worth(&self, prices: &Prices, hardware: &Hardware, device: &Device) -> u64 {
        let priced = self.mix.classes().iter().zip(prices.each()).filter(|(_, price)| **price > 0);
        priced.fold(0_u64, |worth, (class, price)| {
            worth.saturating_add(price.saturating_mul(u64::from(class.request.room(hardware, device))))
        })
    }
}
