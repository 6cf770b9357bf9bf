//! What devices that stay free are worth to gangs that come later.
//!
//! Nobody knows who comes, so every size of job counts alike: the free devices are divided into as many places of 2, of 4,
//! of 8, of 16 as they hold, for each size in the best way, and the mean time of an all-reduce on these places is
//! summed over the sizes. A machine with a whole island of four beside two single devices is worth more than one with
//! two islands of three, although as many devices are free.

use phalanx_model::DeviceMask;

use super::subsets;

/// Sizes of jobs: powers of two, as tensor parallel groups are.
const SIZES: [u32; 4] = [2, 4, 8, 16];

/// Picoseconds of a second: one megabyte at one MB/s.
const PS: u64 = 1_000_000_000_000;

/// For every mask of `devices`, at most 16, what it is worth; less is better. Empty where all sets of a size are equally fast.
pub(super) fn table(devices: u32, speed: impl Fn(DeviceMask) -> u32) -> Vec<u64> {
    let mut table = Vec::new();
    for size in SIZES.into_iter().filter(|size| *size < devices) {
        let times = times_of(devices, size, &speed);
        let mut known = times.iter().filter(|ps| **ps > 0);
        let first = known.next();
        if known.all(|ps| Some(ps) == first) {
            continue;
        }
        table.resize(1 << devices, 0);
        for (mask, (worth, sum)) in table.iter_mut().zip(sums(devices, size, &times)).enumerate() {
            *worth += sum / u64::from((mask.count_ones() / size).max(1));
        }
    }
    table
}

/// For every mask of `size` devices the time of one megabyte of an all-reduce there: a ring sends 2 (k - 1) / k of it.
/// 0 for other masks.
fn times_of(devices: u32, size: u32, speed: impl Fn(DeviceMask) -> u32) -> Vec<u64> {
    let time = |mask: u64| match DeviceMask(mask) {
        set if set.count() == size => {
            let bytes_ps = 2 * PS * u64::from(size - 1) / u64::from(size);
            (bytes_ps / u64::from(speed(set).max(1))).max(1)
        }
        _ => 0,
    };
    (0..1 << devices).map(time).collect()
}

/// For every mask the least sum of times over as many separate places of `size` devices as it holds. Its lowest device is in
/// one of them, or stays out if devices are left over.
fn sums(devices: u32, size: u32, times: &[u64]) -> Vec<u64> {
    let mut sums = vec![0_u64; 1 << devices];
    for mask in 0..1_usize << devices {
        let free = mask.count_ones();
        if free < size {
            continue;
        }
        let others = mask & (mask - 1);
        let lowest = mask ^ others;
        let without_lowest = if free.is_multiple_of(size) { u64::MAX } else { sums[others] };
        let with = |subset: DeviceMask| times[lowest | subset.0 as usize] + sums[others ^ subset.0 as usize];
        sums[mask] = subsets(DeviceMask(others as u64), size - 1).map(with).fold(without_lowest, u64::min);
    }
    sums
}
