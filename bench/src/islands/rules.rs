//! Rules that choose devices, and what they are judged by. Nothing here knows the engine.

use phalanx_model::DeviceMask;

use super::machines::Bench;

/// Sizes of jobs, and how many of a hundred have them.
pub(super) const SIZES: [(u32, u64); 4] = [(1, 40), (2, 30), (4, 20), (8, 10)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Phalanx,
    /// The lowest numbers that are free.
    FirstFit,
    /// The lowest numbers of the group with the fewest free devices that holds the job: a PCIe switch, an NVLink island,
    /// a socket.
    BestFit,
    /// The fastest set, and of equals the lowest numbers.
    Fastest,
    /// Of all sets the one with the least sum of its own time and that of the next job.
    Foresight,
}

/// The last is what the others are measured by.
pub(super) const RULES: [Rule; 5] =
    [Rule::Phalanx, Rule::FirstFit, Rule::BestFit, Rule::Fastest, Rule::Foresight];

impl Rule {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Phalanx => "phalanx",
            Self::FirstFit => "first-fit",
            Self::BestFit => "best-fit",
            Self::Fastest => "fastest",
            Self::Foresight => "foresight",
        }
    }

    pub(super) fn choose(self, machine: &Bench, ahead: &Ahead, free: DeviceMask, size: u32) -> DeviceMask {
        let lowest = |free: DeviceMask| free.iter().take(size as usize).collect::<DeviceMask>();
        match self {
            Self::Phalanx | Self::FirstFit => lowest(free),
            Self::BestFit => {
                let groups = machine.node.machine.groups.iter().map(|group| group.devices.and(free));
                let holding = groups.filter(|free| free.count() >= size);
                lowest(holding.min_by_key(|free| (free.count(), *free)).unwrap_or(free))
            }
            Self::Fastest => best_of(free, size, |set| machine.time_ns(set)),
            Self::Foresight => best_of(free, size, |set| {
                // In hundredths, as the weights are.
                100 * machine.time_ns(set) + ahead.next_ns(free.minus(set))
            }),
        }
    }
}

/// The first set with the least price.
fn best_of(free: DeviceMask, size: u32, price: impl Fn(DeviceMask) -> u64) -> DeviceMask {
    subsets(free, size).min_by_key(|set| (price(*set), *set)).unwrap_or(DeviceMask::EMPTY)
}

/// All subsets of `free` with `size` members.
fn subsets(free: DeviceMask, size: u32) -> impl Iterator<Item = DeviceMask> {
    let mut next = Some(free.0);
    std::iter::from_fn(move || {
        let set = next?;
        next = (set > 0).then(|| (set - 1) & free.0);
        Some(DeviceMask(set))
    })
    .filter(move |set| set.count() == size)
}

/// For every mask and size the least time of a job there.
pub(super) struct Ahead {
    /// By size as in [`SIZES`], then by mask; 0 where the mask is too small.
    least_ns: Vec<Vec<u64>>,
}

impl Ahead {
    pub(super) fn new(machine: &Bench) -> Self {
        let of_size = |(size, _): &(u32, u64)| {
            let mut least = vec![0_u64; machine.time_ns.len()];
            for mask in 0..least.len() {
                let devices = DeviceMask(mask as u64);
                if devices.count() == *size {
                    least[mask] = machine.time_ns(devices);
                } else if devices.count() > *size {
                    let one_less = devices.iter().map(|at| mask ^ (1 << at));
                    least[mask] = one_less.map(|mask| least[mask]).min().unwrap_or(0);
                }
            }
            least
        };
        Self { least_ns: SIZES.iter().map(of_size).collect() }
    }

    /// The expected time of the next job on these devices, times 100; a job that does not fit counts nothing, as it fits
    /// nowhere else either.
    fn next_ns(&self, free: DeviceMask) -> u64 {
        let at = |least: &Vec<u64>| usize::try_from(free.0).ok().and_then(|mask| least.get(mask)).copied();
        let of_size = |(least, (_, weight)): (&Vec<u64>, &(u32, u64))| at(least).unwrap_or(0) * weight;
        self.least_ns.iter().zip(&SIZES).map(of_size).sum()
    }

    /// Whether a set is as fast as any of its size, to a thousandth; and whether the next job finds as fast a place as
    /// beside any of those that are.
    pub(super) fn judge(&self, machine: &Bench, free: DeviceMask, chosen: DeviceMask) -> (bool, bool) {
        let is_at_most = |a: u64, b: u64| a <= b + b / 1000;
        let size = chosen.count();
        let least = subsets(free, size).map(|set| machine.time_ns(set)).min().unwrap_or(0);
        let equal = subsets(free, size).filter(|set| is_at_most(machine.time_ns(*set), least));
        let best = equal.map(|set| self.next_ns(free.minus(set))).min().unwrap_or(0);
        (is_at_most(machine.time_ns(chosen), least), is_at_most(self.next_ns(free.minus(chosen)), best))
    }
}
