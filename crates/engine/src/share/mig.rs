//! Multi-Instance GPU: the slices that a GPU can be cut into, and their placements.
//!
//! A GPU has memory slices in a row; an instance covers a run of them that begins at an allowed start. The starts
//! also keep the compute slices apart, so a bitmask of memory slices is the whole state. Placements are those of
//! `nvidia-smi mig -lgipp` (A100, A30, H100 NVL; H200 and B200 have the same rows).

/// How a GPU can be cut.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) board: &'static str,
    pub(crate) compute_slices: u8,
    pub(crate) memory_slices: u8,
    pub(crate) profiles: &'static [Profile],
}

/// One size of instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    /// As NVIDIA's tools write it: `3g.40gb`.
    pub(crate) name: &'static str,
    pub(crate) compute_slices: u8,
    /// Memory slices covered, from the start on.
    pub(crate) memory_slices: u8,
    /// Bit i: an instance may begin at memory slice i.
    pub(crate) starts: u8,
    /// Instances of one GPU.
    pub(crate) max: u8,
    pub(crate) memory_mib: u32,
    /// With the media extensions, of which a GPU has one set.
    pub(crate) has_media: bool,
}

const fn profile(name: &'static str, size: (u8, u8), starts: u8, max: u8, memory_mib: u32) -> Profile {
    Profile { name, compute_slices: size.0, memory_slices: size.1, starts, max, memory_mib, has_media: false }
}

const fn with_media(plain: Profile) -> Profile {
    Profile { max: 1, has_media: true, ..plain }
}

/// The seven profiles of an eight-slice GPU, smallest first.
macro_rules! eight_slices {
    ($(($name:ident, $board:literal,
        [$g1:literal $g1me:literal $g1x:literal $g2:literal $g3:literal $g4:literal $g7:literal], $mib:expr)),* $(,)?) => {
        $(pub(crate) static $name: Geometry = Geometry {
            board: $board,
            compute_slices: 7,
            memory_slices: 8,
            profiles: &[
                profile($g1, (1, 1), 0b0111_1111, 7, $mib[0]),
                with_media(profile($g1me, (1, 1), 0b0111_1111, 1, $mib[0])),
                profile($g1x, (1, 2), 0b0101_0101, 4, $mib[1]),
                profile($g2, (2, 2), 0b0001_0101, 3, $mib[1]),
                profile($g3, (3, 4), 0b0001_0001, 2, $mib[2]),
                profile($g4, (4, 4), 0b0000_0001, 1, $mib[2]),
                profile($g7, (7, 8), 0b0000_0001, 1, $mib[3]),
            ],
        };)*
    };
}

// MiB of an instance of one, two, four and eight memory slices, as `nvidia-smi mig -lgip` lists them. For H200 the
// third is twice the second (a lower bound), for B200 all are nominal: no listing was at hand.
eight_slices! {
    (A100_40GB, "A100-40GB",
        ["1g.5gb" "1g.5gb+me" "1g.10gb" "2g.10gb" "3g.20gb" "4g.20gb" "7g.40gb"], [4_864, 9_856, 19_968, 40_192]),
    (A100_80GB, "A100-80GB",
        ["1g.10gb" "1g.10gb+me" "1g.20gb" "2g.20gb" "3g.40gb" "4g.40gb" "7g.80gb"], [9_856, 19_968, 40_192, 80_384]),
    (H100_80GB, "H100-80GB",
        ["1g.10gb" "1g.10gb+me" "1g.20gb" "2g.20gb" "3g.40gb" "4g.40gb" "7g.80gb"], [9_984, 20_090, 40_448, 81_152]),
    (H100_NVL, "H100-NVL",
        ["1g.12gb" "1g.12gb+me" "1g.24gb" "2g.24gb" "3g.47gb" "4g.47gb" "7g.94gb"], [11_008, 22_138, 47_493, 95_354]),
    (H200, "H200",
        ["1g.18gb" "1g.18gb+me" "1g.35gb" "2g.35gb" "3g.71gb" "4g.71gb" "7g.141gb"],
        [16_384, 33_280, 66_560, 143_360]),
    (B200, "B200",
        ["1g.23gb" "1g.23gb+me" "1g.45gb" "2g.45gb" "3g.90gb" "4g.90gb" "7g.180gb"],
        [23_552, 46_080, 92_160, 184_320]),
}

pub(crate) static A30: Geometry = Geometry {
    board: "A30",
    compute_slices: 4,
    memory_slices: 4,
    profiles: &[
        profile("1g.6gb", (1, 1), 0b1111, 4, 5_836),
        with_media(profile("1g.6gb+me", (1, 1), 0b1111, 1, 5_836)),
        profile("2g.12gb", (2, 2), 0b0101, 2, 11_672),
        with_media(profile("2g.12gb+me", (2, 2), 0b0101, 1, 11_672)),
        profile("4g.24gb", (4, 4), 0b0001, 1, 23_344),
    ],
};

/// Every board known, by name.
pub(crate) static GEOMETRIES: [&Geometry; 7] =
    [&A100_40GB, &A100_80GB, &A30, &B200, &H100_80GB, &H100_NVL, &H200];

/// The size of a slice that a member requests; it gets the smallest profile with at least both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SliceRequest {
    pub(crate) compute_slices: u8,
    pub(crate) memory_bytes: u64,
    pub(crate) media: bool,
}

impl Geometry {
    #[must_use]
    pub(crate) fn profile(&self, index: u8) -> Option<&'static Profile> {
        self.profiles.get(usize::from(index))
    }

    /// The index of the profile with this name.
    #[must_use]
    pub(crate) fn named(&self, name: &str) -> Option<u8> {
        self.profiles
            .iter()
            .position(|profile| profile.name == name)
            .and_then(|index| u8::try_from(index).ok())
    }

    /// Whether a profile has the media extensions, of which a GPU has one set.
    fn has_media(&self, index: u8) -> bool {
        self.profile(index).is_some_and(|profile| profile.has_media)
    }

    /// The smallest profile that satisfies compute and memory: fewest memory slices, then fewest compute slices.
    #[must_use]
    pub(crate) fn smallest(&self, request: SliceRequest) -> Option<u8> {
        let enough = |profile: &Profile| {
            profile.compute_slices >= request.compute_slices
                && u64::from(profile.memory_mib) << 20 >= request.memory_bytes
                && profile.has_media == request.media
        };
        let good = (0u8..).zip(self.profiles).filter(|(_, profile)| enough(profile));
        good.min_by_key(|(_, profile)| (profile.memory_slices, profile.compute_slices))
            .map(|(index, _)| index)
    }
}

/// The longest row of memory slices.
const SLICES_MAX: usize = 8;

/// The instances of one GPU in MIG mode. An idle instance exists and has no user: it is kept for the next request of
/// its size, and destroyed when its slices are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slices {
    /// Memory slices of instances in use.
    used: u8,
    /// Starts of idle instances.
    idle: u8,
    /// By start: profile index + 1 of the instance there, in use or idle; 0 for none.
    at: [u8; SLICES_MAX],
}

/// The changes of a GPU that a placement on it needs before it can start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reshape {
    /// Switch MIG mode on or off; only while nothing runs on the GPU.
    pub(crate) mig: Option<bool>,
    /// Starts of the idle instances to destroy first.
    pub(crate) destroy: u8,
    /// Profile and start of the instance to create.
    pub(crate) create: Option<(u8, u8)>,
}

/// Memory slices that an instance covers.
fn span(profile: &Profile, start: u8) -> u8 {
    u8::try_from(((1u16 << profile.memory_slices) - 1) << start & 0xff).unwrap_or(0)
}

/// Bits of a mask, lowest first.
fn bits(mut mask: u8) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let bit = u8::try_from(mask.trailing_zeros()).ok().filter(|bit| *bit < 8)?;
        mask &= mask - 1;
        Some(bit)
    })
}

impl Slices {
    #[must_use]
    pub(crate) const fn is_unused(&self) -> bool {
        self.used == 0
    }

    /// Memory slices in use.
    #[must_use]
    pub(crate) const fn used(&self) -> u8 {
        self.used
    }

    /// The instances in use as (profile, start), by start.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (u8, u8)> + '_ {
        bits(!self.idle).filter_map(|start| Some((self.instance_at(start)?, start)))
    }

    /// The same GPU without its idle instances, which do not block other requests.
    #[must_use]
    pub(crate) fn without_idle(mut self) -> Self {
        for start in bits(self.idle) {
            self.set(start, 0);
        }
        self.idle = 0;
        self
    }

    /// The places where an instance of a profile can begin, as a mask of starts.
    #[must_use]
    pub(crate) fn starts(&self, geometry: &Geometry, profile: u8) -> u8 {
        let Some(shape) = geometry.profile(profile) else { return 0 };
        // The starts of a plain profile are as many as its most, so places alone keep to that.
        if shape.has_media && self.in_use().any(|(other, _)| geometry.has_media(other)) {
            return 0;
        }
        bits(shape.starts)
            .filter(|start| self.used & span(shape, *start) == 0)
            .fold(0, |mask, start| mask | 1 << start)
    }

    /// How many instances of a profile fit beside those in use.
    #[must_use]
    pub(crate) fn room(&self, geometry: &Geometry, profile: u8) -> u8 {
        let most = geometry.profile(profile).map_or(0, |shape| shape.max);
        // Instances of one profile never overlap, whatever their starts.
        u8::try_from(self.starts(geometry, profile).count_ones()).unwrap_or(u8::MAX).min(most)
    }

    /// Puts an instance into use. Returns the necessary changes, or `None` if it does not fit.
    pub(crate) fn take(&mut self, geometry: &Geometry, profile: u8, start: u8) -> Option<Reshape> {
        if start >= 8 || self.starts(geometry, profile) >> start & 1 == 0 {
            return None;
        }
        let shape = geometry.profile(profile)?;
        let mut reshape = Reshape::default();
        if self.idle >> start & 1 == 1 && self.instance_at(start) == Some(profile) {
            self.idle &= !(1 << start);
        } else {
            for other in bits(self.idle) {
                let overlaps = self.instance_at(other).and_then(|index| geometry.profile(index));
                if overlaps.is_some_and(|idle| span(idle, other) & span(shape, start) != 0) {
                    reshape.destroy |= 1 << other;
                    self.set(other, 0);
                }
            }
            self.idle &= !reshape.destroy;
            reshape.create = Some((profile, start));
            self.set(start, profile + 1);
        }
        self.used |= span(shape, start);
        Some(reshape)
    }

    /// Takes an instance out of use; it stays as an idle instance. False if no instance of that profile is in use
    /// there.
    pub(crate) fn give_back(&mut self, geometry: &Geometry, profile: u8, start: u8) -> bool {
        let in_use = start < 8 && self.idle >> start & 1 == 0 && self.instance_at(start) == Some(profile);
        let Some(shape) = geometry.profile(profile).filter(|_| in_use) else { return false };
        self.used &= !span(shape, start);
        self.idle |= 1 << start;
        true
    }

    /// Starts of idle instances.
    #[must_use]
    pub(crate) const fn idle(&self) -> u8 {
        self.idle
    }

    fn instance_at(&self, start: u8) -> Option<u8> {
        self.at.get(usize::from(start)).and_then(|index| index.checked_sub(1))
    }

    fn set(&mut self, start: u8, value: u8) {
        if let Some(at) = self.at.get_mut(usize::from(start)) {
            *at = value;
        }
    }
}
