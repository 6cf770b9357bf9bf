//! Time: how many ranks, how often to save, and how long to run.

use std::collections::BTreeMap;

use super::{Found, MILLION, Pace, RUNS_MIN, Run, Used, What, median, saved_ppm};

/// A width is worth its devices down to this efficiency.
pub const EFFICIENCY_MIN_PERCENT: u32 = 70;
/// Above this the steps at two widths are not the same work.
const EFFICIENCY_MAX_PERCENT: u32 = 120;
/// Runs at the narrowest width and at the one that is advised.
const RUNS_AT_WIDTH_MIN: usize = 2;
/// A width counts with two runs and some steps, or with many steps of one run.
const STEPS_MIN: u64 = 20;
const STEPS_OF_ONE_RUN_MIN: u64 = 100;
/// Room above the longest run, and the part of its limit up to which another one is worth asking for.
const TIME_ROOM_PERCENT: u64 = 125;
const LIMIT_MAX_PERCENT: u64 = 70;
/// A checkpoint interval is good within this factor of the best one.
const INTERVAL_FACTOR: u64 = 2;
const MINUTE_MS: u64 = 60_000;

/// All that was measured at one width.
#[derive(Default)]
struct AtWidth<'a> {
    runs: Vec<&'a Run>,
    steps: u64,
    /// Millionths of a step in a second, of each run.
    rates: Vec<u64>,
    /// Steps of the whole job, in the newest run.
    of: Option<u64>,
}

/// Devices, or ranks if there are none.
const fn width_of(used: &Used) -> u32 {
    if used.devices > 0 { used.devices } else { used.ranks }
}

impl AtWidth<'_> {
    fn is_repeated(&self) -> bool {
        self.runs.len() >= RUNS_AT_WIDTH_MIN
    }

    /// The median of its runs.
    fn rate(&self) -> u64 {
        median(self.rates.clone())
    }
}

/// Millionths of a step in a second.
fn rate(used: &Used) -> u64 {
    let rate = u128::from(used.steps) * u128::from(MILLION) * 1_000 / u128::from(used.steps_ms.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// On devices of the same model, whole or in parts, and as many for each rank.
fn is_alike(used: &Used, newest: &Used) -> bool {
    let per_rank = |a: &Used, b: &Used| u64::from(a.devices) * u64::from(b.ranks);
    (used.is_whole, &used.model) == (newest.is_whole, &newest.model)
        && per_rank(used, newest) == per_rank(newest, used)
}

/// The widest of the measured widths that is efficient.
pub(super) fn width<'a>(runs: &[&'a Run]) -> Option<Found<'a>> {
    let has_steps = |used: &&Used| used.steps > 0 && used.steps_ms > 0;
    let newest = runs.iter().rev().find_map(|run| run.used.as_ref().filter(has_steps))?;
    let (now, is_of_ranks) = (width_of(newest), newest.devices == 0);
    let mut widths: BTreeMap<u32, AtWidth<'a>> = BTreeMap::new();
    for run in runs {
        let used = run.used.as_ref().filter(has_steps).filter(|used| is_alike(used, newest));
        let Some(used) = used else { continue };
        let at = widths.entry(width_of(used)).or_default();
        at.runs.push(run);
        at.steps = at.steps.saturating_add(used.steps);
        at.rates.push(rate(used));
        at.of = used.steps_of;
    }
    widths.retain(|_, at| at.steps >= STEPS_OF_ONE_RUN_MIN || at.steps >= STEPS_MIN && at.is_repeated());
    let narrowest = widths.iter().find_map(|(width, at)| at.is_repeated().then_some(*width))?;
    widths.retain(|width, _| *width >= narrowest);
    let (first_width, first) = widths.first_key_value()?;
    let mut measured = Vec::new();
    for (width, at) in &widths {
        let efficiency_percent = efficiency((*first_width, first), (*width, at))?;
        measured.push(Pace {
            width: *width,
            runs: u32::try_from(at.runs.len()).unwrap_or(u32::MAX),
            milli_steps_per_s: at.rate() / 1_000,
            efficiency_percent,
        });
    }
    if measured.iter().any(|pace| pace.efficiency_percent > EFFICIENCY_MAX_PERCENT) {
        return None;
    }
    let is_efficient = |pace: &&Pace| {
        pace.efficiency_percent >= EFFICIENCY_MIN_PERCENT && pace.runs as usize >= RUNS_AT_WIDTH_MIN
    };
    let next = measured.iter().rev().find(is_efficient).copied()?;
    let current = measured.iter().find(|pace| pace.width == now).copied()?;
    let dear = widths.get(&now).map(|at| at.runs.clone()).unwrap_or_default();
    let runs: Vec<&Run> = widths.into_values().flat_map(|at| at.runs).collect();
    if next.width == now || runs.len() < RUNS_MIN {
        return None;
    }
    // The same work takes less device time at the width that is more efficient.
    let ppm = if next.width < now {
        saved_ppm(next.efficiency_percent.into(), current.efficiency_percent.into())
    } else {
        0
    };
    let what = What::Width { now, next: next.width, is_of_ranks, measured };
    Some(Found { dear, ..Found::new(what, runs, ppm) })
}

/// speed(n) · n0 / (speed(n0) · n), in percent. Where the job has as many steps in all, or reports none, a step is the same
/// work; where n times fewer, it is n times the work. `None` if it is neither.
fn efficiency((n0, base): (u32, &AtWidth<'_>), (n, at): (u32, &AtWidth<'_>)) -> Option<u32> {
    let (n0, n) = (u128::from(n0), u128::from(n));
    let (work0, work) = match (base.of, at.of) {
        (of0, of) if of0 == of => (1, 1),
        (Some(of0), Some(of)) if is_near(u128::from(of0) * n0, u128::from(of) * n) => (n0, n),
        _ => return None,
    };
    let speed = u128::from(at.rate()).saturating_mul(work * n0);
    let speed0 = u128::from(base.rate()).saturating_mul(work0 * n);
    u32::try_from(speed.saturating_mul(100).checked_div(speed0)?).ok()
}

/// Within a twentieth.
const fn is_near(a: u128, b: u128) -> bool {
    a.abs_diff(b) * 20 <= a
}

/// A limit with room above the longest run.
pub(super) fn time_limit<'a>(runs: &[&'a Run]) -> Option<Found<'a>> {
    let newest = runs.last()?;
    if newest.is_service || runs.iter().any(|run| run.reached_limit) {
        return None;
    }
    // A later attempt may only have finished what an earlier one began.
    let whole = |run: &&Run| run.attempt == 1 && run.has_succeeded && run.ran_ms > 0;
    let whole: Vec<&Run> = runs.iter().copied().filter(whole).collect();
    let times: Vec<u64> = whole.iter().map(|run| run.ran_ms).collect();
    let longest_ms = times.iter().copied().max().filter(|_| whole.len() >= RUNS_MIN)?;
    let next_ms = round_up(longest_ms.saturating_mul(TIME_ROOM_PERCENT) / 100);
    let limit_ms = newest.limit_ms;
    if limit_ms.is_some_and(|ms| next_ms > ms / 100 * LIMIT_MAX_PERCENT) {
        return None;
    }
    let what = What::TimeLimit { now_ms: limit_ms, next_ms, longest_ms, median_ms: median(times) };
    Some(Found::new(what, whole, 0))
}

/// To a minute, to five minutes from an hour on, and to half an hour from four hours on.
fn round_up(ms: u64) -> u64 {
    let grain = match ms / MINUTE_MS {
        0..60 => MINUTE_MS,
        60..240 => 5 * MINUTE_MS,
        _ => 30 * MINUTE_MS,
    };
    ms.div_ceil(grain).max(1).saturating_mul(grain)
}

/// Young's interval, if the job saves much more or much less often.
pub(super) fn checkpoint<'a>(runs: &[&'a Run]) -> Option<Found<'a>> {
    let of = |run: &&'a Run| {
        let used = run.used.as_ref()?;
        Some((*run, used.saves_every_ms?, used.interval?))
    };
    let saving: Vec<_> = runs.iter().filter_map(of).collect();
    let (_, _, best) = *saving.last().filter(|_| saving.len() >= RUNS_MIN)?;
    let now_ms = median(saving.iter().map(|(_, every_ms, _)| *every_ms).collect());
    let (low, high) = (now_ms.min(best.every_ms), now_ms.max(best.every_ms));
    if high <= low.saturating_mul(INTERVAL_FACTOR) {
        return None;
    }
    let cost = |every_ms| cost_ppm(every_ms, best.takes_ms, best.loss_every_ms);
    let ppm = cost(now_ms).saturating_sub(cost(best.every_ms));
    let what = What::Checkpoint {
        now_ms,
        next_ms: best.every_ms,
        takes_ms: best.takes_ms,
        loss_every_ms: best.loss_every_ms,
    };
    Some(Found::new(what, saving.into_iter().map(|(run, ..)| run).collect(), ppm))
}

/// The part of its time that a job spends on checkpoints and on work that is lost with a node: takes / every + every / (2 ·
/// loss_every), in millionths.
fn cost_ppm(every_ms: u64, takes_ms: u64, loss_every_ms: u64) -> u32 {
    let ppm = |part: u64, of: u64| u128::from(part) * u128::from(MILLION) / u128::from(of.max(1));
    let cost = ppm(takes_ms, every_ms) + ppm(every_ms, loss_every_ms.saturating_mul(2));
    u32::try_from(cost).unwrap_or(MILLION).min(MILLION)
}
