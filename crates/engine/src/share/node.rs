//! One node: what it has left, and what a request asks of it.

use phalanx_model::DeviceMask;

use super::device::{Device, Kind, Share, Trust, WHOLE_MILLI};
use super::mig::{Reshape, SliceAsk};

/// Devices of one node.
pub const DEVICES_MAX: usize = 16;

/// What one member asks of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    pub want: Want,
    /// CPUs in thousandths.
    pub cpu_milli: u64,
    /// Memory of the host.
    pub memory_bytes: u64,
    /// Device models that will do, one bit each (see [`Kind::model`]); all bits for any.
    pub models: u64,
    pub trust: Trust,
}

/// What it asks of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// CPU and memory alone.
    Nothing,
    /// This many whole devices, at least one.
    Whole(u8),
    /// A share of one device, beside others.
    Share(Share),
    /// A MIG slice.
    Slice(SliceAsk),
}

/// Which devices, or which part of one, a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Nothing,
    Whole(DeviceMask),
    Share { device: u8 },
    Slice { device: u8, profile: u8, start: u8 },
}

/// What has to be done to each device before a placement can start, by device index.
pub type Reshapes = [Reshape; DEVICES_MAX];

/// Why nothing was taken or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    #[error("there is no kind of hardware {0}")]
    NoKind(u16),
    #[error("there is no node {0}")]
    NoNode(u32),
    #[error("a node has at most {DEVICES_MAX} devices, not {0}")]
    TooManyDevices(usize),
    /// The part does not fit the node's devices as they are, or its CPUs or memory.
    #[error("the request does not fit there")]
    DoesNotFit,
    #[error("nothing of that kind was taken there")]
    NotTaken,
}

/// What a node has left. Equal states are equal to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeState {
    /// Index of the node's [`Kind`].
    pub kind: u16,
    /// Free; negative where others over-commit the node.
    pub cpu_milli: i64,
    /// Free; negative where others over-commit the node.
    pub memory_bytes: i64,
    count: u8,
    devices: [Device; DEVICES_MAX],
}

impl Ask {
    /// How much of a device it takes, in thousandths: by compute or memory, whichever is more.
    #[must_use]
    pub fn size_milli(&self, kind: &Kind) -> u64 {
        let whole = u64::from(WHOLE_MILLI);
        match self.want {
            Want::Nothing => 0,
            Want::Whole(count) => whole * u64::from(count),
            Want::Share(share) => {
                let memory = share.memory_bytes.min(kind.memory_bytes).saturating_mul(whole);
                u64::from(share.compute_milli).max(memory.checked_div(kind.memory_bytes).unwrap_or(0))
            }
            Want::Slice(ask) => {
                let profile = kind.geometry.and_then(|geometry| geometry.profile(geometry.smallest(ask)?));
                profile.map_or(0, |profile| whole * u64::from(profile.memory_slices) / 8)
            }
        }
    }

    /// Whether the device model will do.
    #[must_use]
    pub fn admits(&self, kind: &Kind) -> bool {
        matches!(self.want, Want::Nothing) || self.models >> (kind.model & 63) & 1 == 1
    }

    /// How many such requests a device could hold; whole devices count one each.
    #[must_use]
    pub fn room_on(&self, kind: &Kind, device: &Device) -> u32 {
        match self.want {
            Want::Nothing => 0,
            Want::Whole(_) => u32::from(device.is_free()),
            Want::Share(share) => device.room_for_share(kind, self.trust, share),
            Want::Slice(ask) => device.room_for_slice(kind, ask),
        }
    }

    /// Where it can begin on a device, as a mask of starts; a share begins at 0.
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

    /// How many such requests fit where the devices have this room and this much CPU and memory is left.
    #[must_use]
    pub fn fitting(&self, room: u32, cpu_milli: i64, memory_bytes: i64) -> u32 {
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
    /// A node with nothing on it.
    ///
    /// # Errors
    /// When it has more than [`DEVICES_MAX`] devices.
    pub fn empty(kind: u16, devices: usize, cpu_milli: i64, memory_bytes: i64) -> Result<Self, ShareError> {
        let count = u8::try_from(devices).ok().filter(|_| devices <= DEVICES_MAX);
        let count = count.ok_or(ShareError::TooManyDevices(devices))?;
        Ok(Self { kind, cpu_milli, memory_bytes, count, devices: [Device::Empty; DEVICES_MAX] })
    }

    #[must_use]
    pub fn devices(&self) -> &[Device] {
        self.devices.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// Says how a device is used.
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
    pub fn canonical(mut self) -> Self {
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
    pub fn room(&self, kind: &Kind, ask: &Ask) -> u32 {
        let rooms = self.devices().iter().map(|device| ask.room_on(kind, device));
        let devices = rooms.fold(0, u32::saturating_add);
        if ask.admits(kind) { ask.fitting(devices, self.cpu_milli, self.memory_bytes) } else { 0 }
    }

    /// What is free of all devices, in thousandths of one.
    #[must_use]
    pub fn free_milli(&self, kind: &Kind) -> u64 {
        self.devices().iter().map(|device| u64::from(device.free_milli(kind))).sum()
    }

    /// Takes a part, and says what has to be done to a device before.
    ///
    /// # Errors
    /// When it does not fit; nothing is taken then.
    pub fn take(&mut self, kind: &Kind, ask: &Ask, part: Part) -> Result<Reshapes, ShareError> {
        let mut after = *self;
        let has = |free: i64, need: u64| need == 0 || u64::try_from(free).is_ok_and(|free| free >= need);
        if !ask.admits(kind)
            || !has(self.cpu_milli, ask.cpu_milli)
            || !has(self.memory_bytes, ask.memory_bytes)
        {
            return Err(ShareError::DoesNotFit);
        }
        let reshape = after.take_devices(kind, ask, part).ok_or(ShareError::DoesNotFit)?;
        after.cpu_milli = after.cpu_milli.saturating_sub_unsigned(ask.cpu_milli);
        after.memory_bytes = after.memory_bytes.saturating_sub_unsigned(ask.memory_bytes);
        *self = after;
        Ok(reshape)
    }

    fn take_devices(&mut self, kind: &Kind, ask: &Ask, part: Part) -> Option<Reshapes> {
        let mut all = Reshapes::default();
        match (ask.want, part) {
            (Want::Nothing, Part::Nothing) => {}
            (Want::Whole(count), Part::Whole(mask)) if count > 0 && mask.count() == u32::from(count) => {
                for index in mask.iter() {
                    let device = self.device_mut(u8::try_from(index).ok()?)?;
                    *all.get_mut(usize::try_from(index).ok()?)? = device.take_whole()?;
                }
            }
            (Want::Share(share), Part::Share { device: index }) => {
                let device = self.device_mut(index)?;
                *all.get_mut(usize::from(index))? = device.take_share(kind, ask.trust, share)?;
            }
            (Want::Slice(slice), Part::Slice { device: index, profile, start }) => {
                let geometry = kind.geometry?;
                let device = self.device_mut(index).filter(|_| geometry.smallest(slice) == Some(profile))?;
                *all.get_mut(usize::from(index))? = device.take_slice(geometry, profile, start)?;
            }
            _ => return None,
        }
        Some(all)
    }

    /// Gives a part back.
    ///
    /// # Errors
    /// When nothing of that kind was taken there; nothing is changed then.
    pub fn give_back(&mut self, kind: &Kind, ask: &Ask, part: Part) -> Result<(), ShareError> {
        let mut after = *self;
        if !after.give_back_devices(kind, ask, part).unwrap_or(false) {
            return Err(ShareError::NotTaken);
        }
        after.cpu_milli = after.cpu_milli.saturating_add_unsigned(ask.cpu_milli);
        after.memory_bytes = after.memory_bytes.saturating_add_unsigned(ask.memory_bytes);
        *self = after;
        Ok(())
    }

    fn give_back_devices(&mut self, kind: &Kind, ask: &Ask, part: Part) -> Option<bool> {
        Some(match (ask.want, part) {
            (Want::Nothing, Part::Nothing) => true,
            (Want::Whole(count), Part::Whole(mask)) if mask.count() == u32::from(count) => {
                let mut all = true;
                for device in mask.iter() {
                    all &= self.device_mut(u8::try_from(device).ok()?)?.give_back_whole();
                }
                all
            }
            (Want::Share(share), Part::Share { device }) => {
                self.device_mut(device)?.give_back_share(ask.trust, share)
            }
            (Want::Slice(_), Part::Slice { device, profile, start }) => {
                self.device_mut(device)?.give_back_slice(kind.geometry?, profile, start)
            }
            _ => false,
        })
    }
}
