//! Devices: how many, what part of one, and of which model.

use super::{Found, Kind, RUNS_MIN, Run, Used, What, saved_ppm};

/// An attempt that did not succeed tells something if it ran for so long; one that succeeded, after the second time.
const TELLS_MS: u64 = 3_600_000;
const TELLS_IF_IT_SUCCEEDED_MS: u64 = 60_000;
/// A run tells how much its devices are used with at least so many samples.
const SAMPLES_MIN: u64 = 20;
/// Below this mean use of its devices a job can do with fewer, and below the second use of the busiest with parts of them.
const FEW_PERCENT: u64 = 30;
const PART_PERCENT: u64 = 50;
/// Fewer devices are to be busy for this part of the time.
const AIM_PERCENT: u64 = 70;
/// Room above the highest use of compute and of memory.
const COMPUTE_ROOM_PERCENT: u64 = 125;
const MEMORY_ROOM_PERCENT: u64 = 110;
/// Shares are multiples of this.
const SHARE_GRAIN_MILLI: u64 = 50;
/// A share that is larger than this saves too little.
const SHARE_MAX_MILLI: u64 = 500;
/// Memory is asked for in whole multiples of this.
const GB: u64 = 1_000_000_000;
/// MIG cuts a device into so many parts.
const SEVENTHS: u64 = 7;

/// Measurements of the runs that had what the newest run had.
struct Measured<'a> {
    runs: Vec<&'a Run>,
    had: &'a Used,
    /// Of the run that used most.
    busy_percent: u64,
    busiest_percent: u64,
    used_devices: u32,
}

/// Runs that tell how much a job uses, if they had what the newest of them had.
fn telling<'a>(runs: &[&'a Run]) -> Option<(Vec<&'a Run>, &'a Used)> {
    let tells =
        |run: &&&Run| run.ran_ms >= TELLS_MS || run.has_succeeded && run.ran_ms >= TELLS_IF_IT_SUCCEEDED_MS;
    let tells: Vec<&Run> = runs.iter().filter(tells).copied().collect();
    let had = tells.iter().rev().find_map(|run| run.used.as_ref()).filter(|used| used.devices > 0)?;
    let is_alike = |used: &Used| {
        (used.ranks, used.devices, used.is_whole, &used.model)
            == (had.ranks, had.devices, had.is_whole, &had.model)
    };
    let alike = tells.into_iter().filter(|run| run.used.as_ref().is_some_and(is_alike));
    Some((alike.collect(), had))
}

impl<'a> Measured<'a> {
    /// `None` if too few runs were sampled for at least half of their time.
    fn of(runs: &[&'a Run]) -> Option<Self> {
        let (mut runs, had) = telling(runs)?;
        let is_sampled =
            |run: &Run, used: &Used| used.sampled_ms >= run.ran_ms.div_ceil(2) && used.samples >= SAMPLES_MIN;
        runs.retain(|run| run.used.as_ref().is_some_and(|used| is_sampled(run, used)));
        let used = || runs.iter().filter_map(|run| run.used.as_ref());
        let percent =
            |busy_ms: u64, used: &Used| busy_ms.saturating_mul(100).div_ceil(used.sampled_ms.max(1)).min(100);
        let busy_percent = used().map(|used| percent(used.busy_ms, used)).max()?;
        let busiest_percent = used().map(|used| percent(used.busiest_ms.max(used.busy_ms), used)).max()?;
        let used_devices = used().map(|used| used.used_devices).max()?;
        (runs.len() >= RUNS_MIN).then_some(Self { runs, had, busy_percent, busiest_percent, used_devices })
    }

    /// The most memory that one device had in use, and its room above that; unknown if one run did not know it.
    fn peak_bytes(&self) -> Option<(u64, u64)> {
        peak(&self.runs).filter(|_| self.had.device_bytes > 0)
    }

    fn fewer(self, next: u32) -> Option<Found<'a>> {
        let now = self.had.devices;
        let busy_percent = u32::try_from(self.busy_percent).unwrap_or(100);
        let what = What::Gpus { now, next, busy_gpus: self.used_devices, busy_percent };
        (next < now).then(|| Found::new(what, self.runs, saved_ppm(now.into(), next.into())))
    }
}

fn peak(runs: &[&Run]) -> Option<(u64, u64)> {
    let peaks: Option<Vec<u64>> = runs.iter().map(|run| run.used.as_ref()?.peak_bytes).collect();
    let most = peaks?.into_iter().max()?;
    let room = most.saturating_mul(MEMORY_ROOM_PERCENT).div_ceil(100);
    Some((most, room.div_ceil(GB).max(1).saturating_mul(GB)))
}

/// Fewer whole devices, or a part of one for each rank, if the use of its devices is known and low.
pub(super) fn devices<'a>(runs: &[&'a Run], kinds: &[Kind]) -> Option<Found<'a>> {
    let measured = Measured::of(runs)?;
    let had = measured.had;
    if !had.is_whole {
        return None;
    }
    // Without a kernel and without memory on any of them, it needs none.
    if measured.used_devices == 0 {
        return measured.fewer(0);
    }
    let memory = measured.peak_bytes();
    let least = |devices: u32| {
        let for_memory = memory.map_or(0, |(_, next_bytes)| {
            u64::from(devices).saturating_mul(next_bytes).div_ceil(had.device_bytes)
        });
        for_memory.max(had.ranks.into())
    };
    if measured.used_devices < had.devices {
        let next = least(measured.used_devices).max(measured.used_devices.into());
        return measured.fewer(u32::try_from(next).unwrap_or(had.devices));
    }
    let (peak_bytes, next_bytes) = memory?;
    if had.devices == had.ranks {
        return part(measured, peak_bytes, next_bytes, kinds);
    }
    if measured.busy_percent > FEW_PERCENT {
        return None;
    }
    let by_use = (u64::from(had.devices) * measured.busy_percent).div_ceil(AIM_PERCENT);
    let next = u32::try_from(by_use.max(least(had.devices))).unwrap_or(had.devices);
    measured.fewer(next)
}

/// A MIG slice, if the cluster has devices in MIG mode of the model, or else a share.
fn part<'a>(measured: Measured<'a>, peak_bytes: u64, next_bytes: u64, kinds: &[Kind]) -> Option<Found<'a>> {
    let device_bytes = measured.had.device_bytes;
    // A part is for the busiest of its ranks.
    if measured.busiest_percent > PART_PERCENT {
        return None;
    }
    let of_model = || kinds.iter().filter(|kind| kind.model == measured.had.model);
    let busy_percent = u32::try_from(measured.busiest_percent).unwrap_or(100);
    let compute_milli = (measured.busiest_percent * COMPUTE_ROOM_PERCENT / 10).max(1);
    let memory_milli = next_bytes.saturating_mul(1_000).div_ceil(device_bytes);
    if of_model().any(|kind| kind.has_slices) {
        let next = (compute_milli.max(memory_milli) * SEVENTHS).div_ceil(1_000);
        let next_sevenths = u32::try_from(next).unwrap_or(u32::MAX);
        let what = What::Mig { next_sevenths, next_bytes, busy_percent, peak_bytes, device_bytes };
        return (next < SEVENTHS).then(|| Found::new(what, measured.runs, saved_ppm(SEVENTHS, next)));
    }
    let next = compute_milli.max(memory_milli).div_ceil(SHARE_GRAIN_MILLI) * SHARE_GRAIN_MILLI;
    if next > SHARE_MAX_MILLI || !of_model().any(|kind| kind.has_shares) {
        return None;
    }
    let next_milli = u32::try_from(next).unwrap_or(u32::MAX);
    let what = What::Share { next_milli, next_bytes, busy_percent, peak_bytes, device_bytes };
    Some(Found::new(what, measured.runs, saved_ppm(1_000, next)))
}

/// The cheapest model that has enough memory, if its price is lower; without prices the smallest with half of the memory
/// or less. How fast the job is there is not measured.
pub(super) fn model<'a>(runs: &[&'a Run], kinds: &[Kind]) -> Option<Found<'a>> {
    let (mut runs, had) = telling(runs)?;
    runs.retain(|run| run.used.as_ref().is_some_and(|used| used.peak_bytes.is_some()));
    if runs.len() < RUNS_MIN || had.device_bytes == 0 || !had.is_whole {
        return None;
    }
    let (peak_bytes, next_bytes) = peak(&runs)?;
    let now = kinds.iter().find(|kind| kind.model == had.model)?;
    let is_priced = |kind: &Kind| now.price_micro > 0 && kind.price_micro > 0;
    let is_less = |kind: &&Kind| {
        let is_cheaper = if is_priced(kind) {
            kind.price_micro < now.price_micro
        } else {
            kind.memory_bytes <= had.device_bytes / 2
        };
        let is_enough = kind.memory_bytes >= next_bytes && kind.count >= had.devices;
        is_enough && is_cheaper && kind.memory_bytes < had.device_bytes && kind.model != had.model
    };
    let next =
        kinds.iter().filter(is_less).min_by_key(|kind| (kind.price_micro, kind.memory_bytes, &kind.model))?;
    let cost_ppm = if is_priced(next) { saved_ppm(now.price_micro, next.price_micro) } else { 0 };
    let what = What::Model {
        now: had.model.clone(),
        next: next.model.clone(),
        next_device_bytes: next.memory_bytes,
        peak_bytes,
        device_bytes: had.device_bytes,
    };
    Some(Found { device_ppm: 0, cost_ppm, ..Found::new(what, runs, 0) })
}
