//! The parts that a device can be divided into, and how a requested part fits on it.

use phalanx_model::machine::replica_milli;
use phalanx_model::{DeviceMask, PartNeed};

use crate::cluster::kind::Kind as NodeKind;
use crate::share::mig::{A30, A100_40GB, A100_80GB, B200, GEOMETRIES, H100_80GB, H100_NVL, H200};
use crate::share::{Device, Geometry, Kind as Hardware, Reshape, Share, SliceRequest, Trust, WHOLE_MILLI};

/// A part as devices of one hardware have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    Share {
        share: Share,
        trust: Trust,
    },
    /// Index of a profile of the board.
    Slice(u8),
}

/// Memory of a device that is not known: it limits nothing.
const UNKNOWN_BYTES: u64 = u64::MAX;

/// The trust of a share that shares with no other, not even of the same trust: it opens a device of its own.
pub(crate) const TRUST_NONE: Trust = Trust(u16::MAX);

impl Wanted {
    /// `None` if such a device never has the part, even when it is empty.
    pub(crate) fn of(need: &PartNeed, hardware: &Hardware, trust: Trust) -> Option<Self> {
        let slices = |milli: u32, geometry: &Geometry| {
            let whole = u64::from(WHOLE_MILLI);
            u8::try_from((u64::from(milli) * u64::from(geometry.compute_slices)).div_ceil(whole)).ok()
        };
        let wanted = match need {
            PartNeed::Replica => Self::replica(hardware),
            // Its devices are divided by others, and have no other parts.
            _ if hardware.replicas > 0 => return None,
            PartNeed::Share { compute_milli, memory_bytes, .. } => {
                let of_device =
                    if hardware.memory_bytes == UNKNOWN_BYTES { 0 } else { hardware.memory_bytes };
                let memory_bytes = PartNeed::share_bytes(*compute_milli, *memory_bytes, of_device);
                let share = Share { compute_milli: *compute_milli, memory_bytes };
                Self::Share { share, trust }
            }
            PartNeed::Slice { compute_milli, memory_bytes } => {
                let geometry = hardware.geometry?;
                let compute_slices = slices(*compute_milli, geometry)?;
                let request = SliceRequest { compute_slices, memory_bytes: *memory_bytes, media: false };
                Self::Slice(geometry.smallest(request)?)
            }
            PartNeed::Profile(name) => Self::Slice(hardware.geometry?.named(name)?),
        };
        (wanted.room(hardware, &Device::Empty) > 0).then_some(wanted)
    }

    /// A whole device is a share that no other share joins.
    fn replica(hardware: &Hardware) -> Self {
        let compute_milli = replica_milli(hardware.replicas).min(hardware.compute_limit_milli);
        let trust = if hardware.replicas == 0 { TRUST_NONE } else { Trust::default() };
        Self::Share { share: Share { compute_milli, memory_bytes: 0 }, trust }
    }

    /// How many of these parts fit on a device beside its present parts.
    pub(crate) fn room(&self, hardware: &Hardware, device: &Device) -> u32 {
        match self {
            Self::Share { share, trust } if *trust == TRUST_NONE && device.is_free() => {
                device.room_for_share(hardware, *trust, *share).min(1)
            }
            Self::Share { trust, .. } if *trust == TRUST_NONE => 0,
            Self::Share { share, trust } => device.room_for_share(hardware, *trust, *share),
            Self::Slice(profile) => {
                hardware.geometry.map_or(0, |geometry| device.room_for_profile(geometry, *profile))
            }
        }
    }

    /// The places where the part can begin on a device, as a mask of starts; shares begin at 0.
    pub(crate) fn starts(&self, hardware: &Hardware, device: &Device) -> u8 {
        match self {
            Self::Share { .. } => u8::from(self.room(hardware, device) > 0),
            Self::Slice(profile) => hardware.geometry.map_or(0, |geometry| device.starts(geometry, *profile)),
        }
    }

    /// Puts the part on the device. If it does not fit, the result is `None` and the device is unchanged.
    pub(crate) fn take(&self, hardware: &Hardware, device: &mut Device, start: u8) -> Option<Reshape> {
        match self {
            Self::Share { share, trust } => device.take_share(hardware, *trust, *share),
            Self::Slice(profile) => device.take_slice(hardware.geometry?, *profile, start),
        }
    }

    /// Takes the part off the device; false if the device does not have it.
    pub(crate) fn give_back(&self, hardware: &Hardware, device: &mut Device, start: u8) -> bool {
        let is_back = match self {
            Self::Share { share, trust } => device.give_back_share(*trust, *share),
            Self::Slice(profile) => {
                hardware.geometry.is_some_and(|geometry| device.give_back_slice(geometry, *profile, start))
            }
        };
        // Idle instances are for the executor to keep or to destroy. No decision depends on them, because a restart
        // forgets them.
        *device = device.bare();
        is_back
    }
}

/// The distinct hardware of a node's devices, and which devices are of it. Devices of different models are apart: a gang
/// may take one and not the other.
pub(crate) fn hardware_of(
    devices: impl Iterator<Item = (impl AsRef<str>, u64)>,
    share_limit_milli: u32,
    replicas: u32,
) -> Vec<(Hardware, DeviceMask)> {
    let mut all: Vec<(Hardware, DeviceMask)> = Vec::new();
    let mut models: Vec<String> = Vec::new();
    for (index, (model, memory_bytes)) in (0_u32..).zip(devices) {
        let text = model.as_ref().to_ascii_lowercase();
        let number = models.iter().position(|known| *known == text).unwrap_or_else(|| {
            models.push(text);
            models.len() - 1
        });
        let limit_milli = match (replicas, share_limit_milli) {
            (0, 0) => WHOLE_MILLI,
            (0, limit) => limit,
            // Exactly so many replicas fit, whatever was lost in rounding.
            (replicas, _) => replicas.saturating_mul(replica_milli(replicas)),
        };
        let hardware = Hardware {
            // A node has at most 64 devices.
            model: u8::try_from(number).unwrap_or(u8::MAX),
            // If the memory is unknown, it does not limit shares.
            memory_bytes: if memory_bytes == 0 { UNKNOWN_BYTES } else { memory_bytes },
            compute_limit_milli: limit_milli,
            geometry: board(model.as_ref(), memory_bytes).filter(|_| replicas == 0),
            replicas,
        };
        match all.iter_mut().find(|(known, _)| *known == hardware) {
            Some((_, mask)) => *mask = mask.union(DeviceMask::one(index)),
            None => all.push((hardware, DeviceMask::one(index))),
        }
    }
    all
}

/// The share of a device that a slice takes: of its compute or of its memory, whichever is larger, in thousandths.
pub(crate) fn milli_of_slice(kind: &NodeKind, devices: DeviceMask, profile: u8) -> u64 {
    let geometry = kind.hardware_of(devices).and_then(|hardware| hardware.geometry);
    let profile = geometry.and_then(|of| Some((of, of.profiles.get(usize::from(profile))?)));
    profile.map_or(u64::from(WHOLE_MILLI), |(of, profile)| {
        let part = |slices: u8, all: u8| u64::from(slices) * u64::from(WHOLE_MILLI) / u64::from(all.max(1));
        part(profile.compute_slices, of.compute_slices).max(part(profile.memory_slices, of.memory_slices))
    })
}

/// The boards that have a profile of this name.
pub(crate) fn board_names(profile: &str) -> impl Iterator<Item = &'static str> {
    GEOMETRIES.into_iter().filter(move |board| board.named(profile).is_some()).map(|board| board.board)
}

/// The names of the slices that some hardware can be cut into, in order.
pub(crate) fn profiles<'a>(hardware: impl Iterator<Item = &'a Hardware>) -> Vec<&'static str> {
    let boards = hardware.filter_map(|hardware| hardware.geometry);
    let mut names: Vec<&str> = boards.flat_map(|board| board.profiles).map(|profile| profile.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether a device of this hardware can have such a part at all.
pub(crate) fn can_have(hardware: &Hardware, need: &PartNeed) -> bool {
    Wanted::of(need, hardware, Trust::default()).is_some()
}

const GIB: u64 = 1 << 30;

/// The board of a device by its product name, as NVML prints it or a user writes it. Boards that are sold under two
/// names have one geometry (A800 and H800, see NVIDIA's examples of `nvidia-mig-manager`). An unknown product has no
/// MIG.
pub(crate) fn board(model: &str, memory_bytes: u64) -> Option<&'static Geometry> {
    let words = || model.split(|letter: char| !letter.is_ascii_alphanumeric());
    let has = |wanted: &str| words().any(|word| word.eq_ignore_ascii_case(wanted));
    // The memory size may be in the name. If neither the name nor the size tells, the smaller board promises no
    // memory that the device lacks.
    let is_larger_than = |gib: u64, name: &str| memory_bytes > gib * GIB || memory_bytes == 0 && has(name);
    let family = words().find_map(|word| {
        let names = ["A100", "A800", "A30", "H100", "H800", "H200", "B200"];
        names.into_iter().find(|name| word.eq_ignore_ascii_case(name))
    })?;
    let is_nvl = has("NVL") || is_larger_than(88, "94GB");
    Some(match family {
        "A100" | "A800" if is_larger_than(60, "80GB") => &A100_80GB,
        "A100" | "A800" => &A100_40GB,
        "A30" => &A30,
        "H100" | "H800" if is_nvl => &H100_NVL,
        "H100" | "H800" => &H100_80GB,
        "H200" => &H200,
        _ => &B200,
    })
}
