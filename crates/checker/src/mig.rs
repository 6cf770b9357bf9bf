//! NVIDIA's rules for MIG, as a person would write them down from `nvidia-smi mig -lgip` and `-lgipp`. The engine has
//! a table of its own; the two share nothing.

use phalanx_model::Device;

/// A board that supports MIG.
#[derive(Clone, Copy, Debug)]
pub struct Board {
    /// A word of its model's name.
    family: &'static str,
    memory_gb: u32,
    /// Memory slices. An instance covers consecutive memory slices.
    pub memory_slices: u8,
    compute_slices: u32,
    profiles: &'static [&'static str],
}

const fn board(family: &'static str, memory_gb: u32, profiles: &'static [&'static str]) -> Board {
    Board { family, memory_gb, memory_slices: 8, compute_slices: 7, profiles }
}

/// Of boards of one family, the commonest comes first. A100, A30 and H100 NVL are from listings of real boards, the
/// others from NVIDIA's MIG user guide.
const BOARDS: [Board; 7] = [
    board("A100", 80, &["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]),
    board("A100", 40, &["1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]),
    board("H100", 80, &["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]),
    board("H100", 94, &["1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"]),
    board("H200", 141, &["1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"]),
    board("B200", 180, &["1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"]),
    Board {
        memory_slices: 4,
        compute_slices: 4,
        ..board("A30", 24, &["1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"])
    },
];

/// An instance of a profile: `3g.40gb` is three compute slices and 40 GB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    pub compute: u32,
    memory_gb: u32,
    /// With the media extensions, of which a board has one set.
    pub has_media: bool,
    /// Memory slices that it covers.
    pub length: u8,
}

impl Board {
    /// By the words of the model; where several boards have the same family, by the memory that the name says or the
    /// device has.
    #[must_use]
    pub fn of(device: &Device) -> Option<Self> {
        let model = device.model.to_uppercase();
        let is_word = |family: &str| model.split(|c: char| !c.is_ascii_alphanumeric()).any(|w| w == family);
        let family = || BOARDS.into_iter().filter(|board| is_word(board.family));
        // An H100 NVL has 94 GB and does not say so.
        let says = |gb: u32| model.contains(&format!("{gb}GB")) || (gb == 94 && model.contains("NVL"));
        let bytes = device.memory_bytes;
        let is_near = |gb: u32| bytes > 0 && (u64::from(gb) << 30).abs_diff(bytes) < bytes / 8;
        family()
            .find(|board| says(board.memory_gb))
            .or_else(|| family().find(|board| is_near(board.memory_gb)))
            .or_else(|| family().next())
    }

    /// Its profiles by name, smallest first.
    #[must_use]
    pub const fn profiles(&self) -> &'static [&'static str] {
        self.profiles
    }

    /// The smallest profile that certainly has these amounts, see [`Self::is_smallest`].
    #[must_use]
    pub fn smallest(&self, compute_milli: u32, memory_bytes: u64) -> Option<&'static str> {
        let is_it = |name: &&&str| {
            self.instance(name).is_some_and(|of| {
                !of.has_media
                    && self.has_surely(&of, compute_milli, memory_bytes)
                    && self.is_smallest(&of, compute_milli, memory_bytes)
            })
        };
        self.profiles.iter().find(is_it).copied()
    }

    /// The instance of a profile of this board.
    #[must_use]
    pub fn instance(&self, profile: &str) -> Option<Instance> {
        self.profiles.iter().find(|name| **name == profile)?;
        let (plain, has_media) = profile.strip_suffix("+me").map_or((profile, false), |plain| (plain, true));
        let (compute, memory) = plain.split_once("g.")?;
        let compute: u8 = compute.parse().ok()?;
        let memory_gb: u32 = memory.strip_suffix("gb")?.parse().ok()?;
        // One memory slice has an eighth of the board's memory (a quarter on an A30).
        let slice_gb = self.memory_gb / u32::from(self.memory_slices);
        let length = match (self.memory_slices, compute) {
            (8, 1) if memory_gb > slice_gb * 3 / 2 => 2,
            (8, 3) => 4,
            (8, 7) => 8,
            (_, compute) => compute,
        };
        Some(Instance { compute: compute.into(), memory_gb, has_media, length })
    }

    /// Memory slices that an instance may begin at.
    #[must_use]
    pub fn starts(&self, of: &Instance) -> &'static [u8] {
        match (self.memory_slices, of.compute, of.length) {
            (8, 1, 1) => &[0, 1, 2, 3, 4, 5, 6],
            (8, 1, 2) => &[0, 2, 4, 6],
            (8, 2, _) => &[0, 2, 4],
            (8, 3, _) => &[0, 4],
            (8, 4 | 7, _) | (4, 4, _) => &[0],
            (4, 1, _) => &[0, 1, 2, 3],
            (4, 2, _) => &[0, 2],
            _ => &[],
        }
    }

    /// Whether an instance has the requested amounts and no smaller instance has them. The true memory of a profile
    /// is a little less than its name says, by up to 12 % (16 GiB of `1g.18gb`): a difference within 12 % is not
    /// checked.
    pub(crate) fn is_smallest(&self, of: &Instance, compute_milli: u32, memory_bytes: u64) -> bool {
        let has_enough = self.compute_milli(of) + 1 >= compute_milli && bytes(of) >= memory_bytes;
        let size = |one: &Instance| (one.length, one.compute);
        let is_better = |other: &Instance| {
            size(other) < size(of) && !other.has_media && self.has_surely(other, compute_milli, memory_bytes)
        };
        let all = self.profiles.iter().filter_map(|name| self.instance(name));
        has_enough && !all.into_iter().any(|other| is_better(&other))
    }

    fn has_surely(&self, of: &Instance, compute_milli: u32, memory_bytes: u64) -> bool {
        self.compute_milli(of) >= compute_milli && bytes(of) / 100 * 88 >= memory_bytes
    }

    /// What an instance counts as in a queue: its part of the compute or of the memory slices, whichever is larger.
    pub(crate) fn counted_milli(&self, of: &Instance) -> u32 {
        self.compute_milli(of).max(u32::from(of.length) * 1_000 / u32::from(self.memory_slices))
    }

    /// A compute slice is 142.86 thousandths, which people round up.
    fn compute_milli(&self, of: &Instance) -> u32 {
        of.compute * 1_000 / self.compute_slices
    }
}

/// As the name says.
fn bytes(of: &Instance) -> u64 {
    u64::from(of.memory_gb) << 30
}
