//! One device, and which parts may share it.

use super::mig::{Geometry, Reshape, SliceRequest, Slices};

/// A whole device in thousandths.
pub(crate) const WHOLE_MILLI: u32 = 1_000;

/// The trust of a share. Members of different trust never share a device unless MIG isolates them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Trust(pub u16);

impl Trust {
    /// The trust of a class of requests: it may share with every other.
    pub(crate) const ANY: Self = Self(u16::MAX - 2);
}

/// The hardware that the devices of one node have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The bit of this model in [`super::ShareRequest::models`], below 64.
    pub(crate) model: u8,
    pub(crate) memory_bytes: u64,
    /// Compute that may be promised to shares of one device, in thousandths; 1000 is no oversubscription. Memory is
    /// never oversubscribed: a neighbour would die of it.
    pub(crate) compute_limit_milli: u32,
    /// The slices that a device can be cut into; `None` if it has no MIG.
    pub(crate) geometry: Option<&'static Geometry>,
    /// The replicas in which the node offers each device; 0 if it offers whole devices.
    pub(crate) replicas: u32,
}

impl Kind {
    /// Of a node without devices.
    pub(crate) const NONE: Self =
        Self { model: 0, memory_bytes: 0, compute_limit_milli: WHOLE_MILLI, geometry: None, replicas: 0 };
}

/// A time-sliced or MPS share of one device. Not both may be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Share {
    pub(crate) compute_milli: u32,
    pub(crate) memory_bytes: u64,
}

/// How one device is used. Whole jobs, shares and slices never mix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Device {
    #[default]
    Empty,
    Whole,
    Shared {
        trust: Trust,
        /// Compute and memory that are promised to its shares.
        promised: Share,
    },
    Sliced(Slices),
}

impl Device {
    /// Nothing runs on it, whatever instances it is cut into.
    #[must_use]
    pub(crate) const fn is_free(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Sliced(slices) => slices.is_unused(),
            Self::Whole | Self::Shared { .. } => false,
        }
    }

    /// The device as other requests see it: idle instances do not block them.
    #[must_use]
    pub(crate) fn bare(self) -> Self {
        match self {
            Self::Sliced(slices) if slices.is_unused() => Self::Empty,
            Self::Sliced(slices) => Self::Sliced(slices.without_idle()),
            other => other,
        }
    }

    /// How many equal shares of one trust fit.
    #[must_use]
    pub(crate) fn room_for_share(&self, kind: &Kind, trust: Trust, share: Share) -> u32 {
        let promised = match self {
            Self::Shared { trust: there, promised } if *there == trust || trust == Trust::ANY => *promised,
            device if device.is_free() => Share { compute_milli: 0, memory_bytes: 0 },
            _ => return 0,
        };
        if share == (Share { compute_milli: 0, memory_bytes: 0 }) {
            return 0;
        }
        let compute = kind.compute_limit_milli.saturating_sub(promised.compute_milli);
        let memory = kind.memory_bytes.saturating_sub(promised.memory_bytes);
        let by_compute = compute.checked_div(share.compute_milli).unwrap_or(u32::MAX);
        // A share cannot compute more than one device does, however far it is oversubscribed.
        let by_compute = if share.compute_milli > WHOLE_MILLI { 0 } else { by_compute };
        let by_memory = memory.checked_div(share.memory_bytes).unwrap_or(u64::MAX);
        by_compute.min(u32::try_from(by_memory).unwrap_or(u32::MAX))
    }

    /// The places where a slice of a profile can begin, as a mask of starts.
    #[must_use]
    pub(crate) fn starts(&self, geometry: &Geometry, profile: u8) -> u8 {
        self.slices().map_or(0, |slices| slices.starts(geometry, profile))
    }

    /// How many slices of the smallest profile that will do fit.
    #[must_use]
    pub(crate) fn room_for_slice(&self, kind: &Kind, request: SliceRequest) -> u32 {
        let Some(geometry) = kind.geometry else { return 0 };
        geometry.smallest(request).map_or(0, |profile| self.room_for_profile(geometry, profile))
    }

    /// How many slices of one profile fit.
    #[must_use]
    pub(crate) fn room_for_profile(&self, geometry: &Geometry, profile: u8) -> u32 {
        self.slices().map_or(0, |slices| u32::from(slices.room(geometry, profile)))
    }

    /// The free part, in thousandths of a device.
    #[must_use]
    pub(crate) fn free_milli(&self, kind: &Kind) -> u32 {
        match self {
            Self::Empty => WHOLE_MILLI,
            Self::Whole => 0,
            Self::Shared { promised, .. } => {
                let left = kind.compute_limit_milli.saturating_sub(promised.compute_milli);
                left.saturating_mul(WHOLE_MILLI).checked_div(kind.compute_limit_milli).unwrap_or(0)
            }
            Self::Sliced(slices) => WHOLE_MILLI * (!slices.used()).count_ones() / 8,
        }
    }

    /// The slices of a device that is or can be cut.
    fn slices(&self) -> Option<Slices> {
        match self {
            Self::Empty => Some(Slices::default()),
            Self::Sliced(slices) => Some(*slices),
            Self::Whole | Self::Shared { .. } => None,
        }
    }

    pub(crate) fn take_share(&mut self, kind: &Kind, trust: Trust, share: Share) -> Option<Reshape> {
        if self.room_for_share(kind, trust, share) == 0 {
            return None;
        }
        if let Self::Shared { promised, .. } = self {
            promised.compute_milli += share.compute_milli;
            promised.memory_bytes += share.memory_bytes;
            return Some(Reshape::default());
        }
        let reshape = self.uncut()?;
        *self = Self::Shared { trust, promised: share };
        Some(reshape)
    }

    pub(crate) fn take_slice(&mut self, geometry: &Geometry, profile: u8, start: u8) -> Option<Reshape> {
        let mut slices = self.slices()?;
        let mut reshape = slices.take(geometry, profile, start)?;
        if *self == Self::Empty {
            reshape.mig = Some(true);
        }
        *self = Self::Sliced(slices);
        Some(reshape)
    }

    pub(crate) fn give_back_share(&mut self, trust: Trust, share: Share) -> bool {
        let Self::Shared { trust: there, promised } = self else { return false };
        let fits =
            promised.compute_milli >= share.compute_milli && promised.memory_bytes >= share.memory_bytes;
        if *there != trust || !fits {
            return false;
        }
        promised.compute_milli -= share.compute_milli;
        promised.memory_bytes -= share.memory_bytes;
        if promised.compute_milli == 0 && promised.memory_bytes == 0 {
            *self = Self::Empty;
        }
        true
    }

    pub(crate) fn give_back_slice(&mut self, geometry: &Geometry, profile: u8, start: u8) -> bool {
        let Self::Sliced(slices) = self else { return false };
        slices.give_back(geometry, profile, start)
    }

    /// The change that makes a free device whole again.
    fn uncut(&self) -> Option<Reshape> {
        match self {
            Self::Empty => Some(Reshape::default()),
            Self::Sliced(slices) if slices.is_unused() => {
                Some(Reshape { mig: Some(false), destroy: slices.idle(), create: None })
            }
            _ => None,
        }
    }
}
