//! What a place for a part costs others: see [`crate::share`] for the measure. The mix of requests is what runs now, so
//! that it is the same after a restart.

use super::State;
use super::hardware::Wanted;
use crate::cluster::tree::Tree;
use crate::share::{Device, Kind as Hardware, Share, Trust, WHOLE_MILLI};

/// The dearest price, so that a sum over classes and counts stays within 64 bits.
const PRICE_BITS: u32 = 38;
/// Shares are of one class when they round up to the same eighths of a device ...
const COMPUTE_STEP_MILLI: u32 = 125;
/// ... and to the same three binary digits of these.
const MEMORY_STEP_BYTES: u64 = 1 << 30;
/// One device is room for at most so many of a class: some want next to nothing.
const ROOM_MAX: u32 = 1_000;

/// A class of requests. There are few: eighths of compute and powers of two of memory, and the profiles of all boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Share(Share),
    Slice { board: &'static str, profile: u8 },
}

#[derive(Clone, Copy, Debug)]
struct Class {
    key: Key,
    /// Members of it that run.
    running: u64,
    /// How many fit on the devices that are shared or cut.
    room: u64,
}

/// By class what one more is worth, see [`Mix::price`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Prices {
    raw: Vec<u128>,
    each: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Mix {
    /// By key.
    classes: Vec<Class>,
}

impl Key {
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

    /// How many fit on a device. Shares of any trust: whoever asks compares devices of one trust only.
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

impl Mix {
    /// A device in such a use is there, or is there no more.
    pub(crate) fn see(&mut self, hardware: &Hardware, device: &Device, is_added: bool) {
        for class in &mut self.classes {
            let room = u64::from(class.key.room(hardware, device));
            class.room =
                if is_added { class.room.saturating_add(room) } else { class.room.saturating_sub(room) };
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
        let Some(key) = Key::of(wanted, hardware) else { return };
        let at = self.classes.binary_search_by_key(&key, |class| class.key).unwrap_or_else(|at| {
            let rooms = states.iter().map(|state| {
                let (kind, number, device) = state.key;
                let hardware = &tree.kinds[usize::from(kind)].hardware[usize::from(number)].0;
                u64::from(key.room(hardware, &device)) * state.nodes.len() as u64
            });
            self.classes.insert(at, Class { key, running: 0, room: rooms.sum() });
            at
        });
        let running = &mut self.classes[at].running;
        *running = if is_added { running.saturating_add(1) } else { running.saturating_sub(1) };
    }

    /// What one more of each class is worth: `running / (n * s)^2`, where `n` of them fit in the whole cluster and each is
    /// `s` of a device, scaled so that the dearest has [`PRICE_BITS`] bits. `fresh` says by kind how many devices are
    /// free.
    pub(crate) fn price(&self, tree: &Tree, fresh: &[u64], prices: &mut Prices) {
        let raw = |class: &Class| -> u128 {
            let (mut room, mut most) = (class.room, 0_u32);
            for (kind, devices) in tree.kinds.iter().zip(fresh) {
                let Some((hardware, _)) = kind.hardware.first() else { continue };
                let of_device = class.key.room(hardware, &Device::Empty);
                room = room.saturating_add(devices.saturating_mul(u64::from(of_device)));
                most = most.max(of_device);
            }
            // At least half a device: the last place is dear, and not without bound.
            let usable = room.saturating_mul(u64::from(WHOLE_MILLI / most.max(1))).clamp(500, 1 << 48);
            // At most 2^54, squared 2^108.
            let inverse = u128::from((1 << 63) / usable);
            inverse * inverse * u128::from(class.running.min(1 << 19))
        };
        prices.raw.clear();
        prices.raw.extend(self.classes.iter().map(raw));
        let dearest = prices.raw.iter().copied().max().unwrap_or(0);
        let excess = (u128::BITS - dearest.leading_zeros()).saturating_sub(PRICE_BITS);
        prices.each.clear();
        prices.each.extend(prices.raw.iter().map(|raw| u64::try_from(raw >> excess).unwrap_or(u64::MAX)));
    }

    /// What a device in some use is worth to all: others lose the difference when its use changes.
    pub(crate) fn worth(&self, prices: &Prices, hardware: &Hardware, device: &Device) -> u64 {
        let priced = self.classes.iter().zip(&prices.each).filter(|(_, price)| **price > 0);
        priced.fold(0_u64, |worth, (class, price)| {
            worth.saturating_add(price.saturating_mul(u64::from(class.key.room(hardware, device))))
        })
    }
}
