//! One node: its free capacity, and the request of a member.

use phalanx_model::DeviceMask;

use super::device::{Device, Kind, Share, Trust, WHOLE_MILLI};
use super::mig::SliceRequest;

/// Devices of one node.
pub(crate) const DEVICES_MAX: usize = 16;

/// The request of one member to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShareRequest {
    pub(crate) want: Want,
    /// CPUs in thousandths.
    pub(crate) cpu_milli: u64,
    /// Memory of the host.
    pub(crate) memory_bytes: u64,
    /// Device models that will do, one bit each (see [`Kind::model`]); all bits for any.
    pub(crate) models: u64,
    pub(crate) trust: Trust,
}

/// The devices of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    /// CPU and memory alone.
    Nothing,
    /// This many whole devices, at least one.
    Whole(u8),
    /// A share of one device, which other shares may use too.
    Share(Share),
    /// A MIG slice.
    Slice(SliceRequest),
}

/// Which devices, or which part of one, a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Nothing,
    Whole(DeviceMask),
    Share { device: u8 },
    Slice { device: u8, profile: u8, start: u8 },
}

/// The free capacity of a node. Equal states are equal for every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeState {
    /// Index of the node's [`Kind`].
    pub(crate) kind: u16,
    /// Free; negative if others over-commit the node.
    pub(crate) cpu_milli: i64,
    /// Free; negative if others over-commit the node.
    pub(crate) memory_bytes: i64,
    count: u8,
    devices: [Device; DEVICES_MAX],
}

impl ShareRequest {
    /// How much of a device it takes, in thousandths: by compute or memory, whichever is more.
    #[must_use]
    pub(crate) fn size_milli(&self, kind: &Kind) -> u64 {
        let whole = u64::from(WHOLE_MILLI);
        match self.want {
            Want::Nothing => 0,
            Want::Whole(count) => whole * u64::from(count),
            Want::Share(share) => {
                let memory = share.memory_bytes.min(kind.memory_bytes).saturating_mul(whole);
                u64::from(share.compute_milli).max(memory.checked_div(kind.memory_bytes).unwrap_or(0))
            }
            Want::Slice(request) => {
                let profile =
                    kind.geometry.and_then(|geometry| geometry.profile(geometry.smallest(request)?));
                profile.map_or(0, |profile| whole * u64::from(profile.memory_slices) / 8)
            }
        }
    }

    /// Whether the device model will do.
    #[must_use]
    pub(crate) fn admits(&self, kind: &Kind) -> bool {
        matches!(self.want, Want::Nothing) || self.models >> (kind.model & 63) & 1 == 1
    }

    /// How many such requests a device could hold; whole devices count one each.
    #[must_use]
    pub(crate) fn room_on(&self, kind: &Kind, device: &Device) -> u32 {
        match self.want {
            Want::Nothing => 0,
            Want::Whole(_) => u32::from(device.is_free()),
            Want::Share(share) => device.room_for_share(kind, self.trust, share),
            Want::Slice(request) => device.room_for_slice(kind, request),
        }
    }

    /// The places where the request can begin on a device, as a mask of starts; a share begins at 0.
    pub(crate) fn starts(&self, kind: &Kind, device: &Device) -> u8 {
        match self.want {
            Want::Slice(slice) => kind.geometry.map_or(0, |geometry| {
                geometry.smallest(slice).map_or(0, |profile| device.starts(geometry, profile))
            }),
            _ => u8::from(self.room_on(kind, device) > 0),
        }
    }

    /// The device with the part on it.
    pub(crate) fn put(&self, kind: &Kind, mut device: Device, start: u8) -> Option<Device> {
        match self.want {
            Want::Share(share) => device.take_share(kind, self.trust, share)?,
            Want::Slice(slice) => {
                let geometry = kind.geometry?;
                device.take_slice(geometry, geometry.smallest(slice)?, start)?
            }
            Want::Nothing | Want::Whole(_) => return None,
        };
        Some(device)
    }

    /// How many such requests fit, given the room of the devices and the free CPU and memory.
    #[must_use]
    pub(crate) fn fitting(&self, room: u32, cpu_milli: i64, memory_bytes: i64) -> u32 {
        let devices = match self.want {
            Want::Nothing => u32::MAX,
            Want::Whole(count) => room.checked_div(u32::from(count)).unwrap_or(0),
            Want::Share(_) | Want::Slice(_) => room,
        };
        let limit = |free: i64, each: u64, count: u32| match u64::try_from(free) {
            // Mostly there is enough: a product is cheaper than a quotient.
            Ok(free) if u64::from(count).saturating_mul(each) <= free => count,
            Ok(free) => u32::try_from(free.checked_div(each).unwrap_or(u64::MAX)).unwrap_or(u32::MAX),
            Err(_) if each == 0 => count,
            Err(_) => 0,
        };
        limit(memory_bytes, self.memory_bytes, limit(cpu_milli, self.cpu_milli, devices))
    }
}

impl NodeState {
    /// A node with nothing on it; `None` when it has more than [`DEVICES_MAX`] devices.
    pub(crate) fn empty(kind: u16, devices: usize, cpu_milli: i64, memory_bytes: i64) -> Option<Self> {
        let count = u8::try_from(devices).ok().filter(|_| devices <= DEVICES_MAX)?;
        Some(Self { kind, cpu_milli, memory_bytes, count, devices: [Device::Empty; DEVICES_MAX] })
    }

    #[must_use]
    pub(crate) fn devices(&self) -> &[Device] {
        self.devices.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// Sets the use of a device.
    pub(crate) fn set(&mut self, index: u8, device: Device) {
        if let Some(there) = self.device_mut(index) {
            *there = device;
        }
    }

    fn device_mut(&mut self, index: u8) -> Option<&mut Device> {
        self.devices.get_mut(usize::from(index)).filter(|_| index < self.count)
    }

    /// The same state with its devices in order and without idle instances: equal for nodes that are equal to every
    /// request.
    #[must_use]
    pub(crate) fn canonical(mut self) -> Self {
        for device in &mut self.devices {
            *device = device.bare();
        }
        if let Some(devices) = self.devices.get_mut(..usize::from(self.count)) {
            devices.sort_unstable();
        }
        self
    }

    /// How many equal requests fit at the same time.
    #[must_use]
    pub(crate) fn room(&self, kind: &Kind, request: &ShareRequest) -> u32 {
        let rooms = self.devices().iter().map(|device| request.room_on(kind, device));
        let devices = rooms.fold(0, u32::saturating_add);
        if request.admits(kind) { request.fitting(devices, self.cpu_milli, self.memory_bytes) } else { 0 }
    }

    /// The free part of all devices, in thousandths of one.
    #[must_use]
    pub(crate) fn free_milli(&self, kind: &Kind) -> u64 {
        self.devices().iter().map(|device| u64::from(device.free_milli(kind))).sum()
    }
}
