//! The measured use of each attempt of a gang, for the history: the use and the memory of its GPUs by samples, and its
//! steps and checkpoints as its ranks report them. The history adds up the rows of one attempt, so nothing is counted
//! twice after a restart of the daemon, and at most the last minute before a crash is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use phalanx_model::{DeviceMask, GangId, Placement, Timestamp, Vitals};
use phalanx_shell::Engine;

use crate::daemon::Daemon;
use crate::history::{Amounts, Had, UsedRow};
use crate::usage::Holds;
use phalanx_api::protocol::ProgressView;

/// How often rows go to the history.
const WRITE_EVERY_MS: u64 = 60_000;
/// Between samples that are farther apart the use is unknown.
const SAMPLES_APART_MAX_MS: u64 = 5 * 60_000;
/// A device with more memory than this is in use even if no kernel is seen to run: a context alone needs less.
const UNUSED_BYTES_MAX: u64 = 1 << 30;
/// What was written down for one user is good for another for so long.
const FRESH_MS: u64 = 1_000;

type Attempt = (GangId, u32);

/// Running attempts.
#[derive(Debug, Default)]
pub(crate) struct Used(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    attempts: BTreeMap<Attempt, OfAttempt>,
    written_at: Timestamp,
}

/// What ranks report.
pub(crate) struct Reported<'a> {
    pub(crate) view: Option<&'a ProgressView>,
    /// The longest checkpoint.
    pub(crate) takes_ms: Option<u64>,
    pub(crate) saves_every_ms: Option<u64>,
}

#[derive(Debug, Default)]
struct OfAttempt {
    /// `None` until it was seen to run.
    had: Option<Had>,
    sampled_at: Option<Timestamp>,
    /// Devices on which a kernel ran, or that had much memory in use, or whose memory is unknown.
    used: DeviceMask,
    /// How long each device was busy, and the longest of these as the rows have it.
    busy_ms: BTreeMap<u32, u64>,
    busiest_ms: u64,
    step: Option<(Timestamp, u64)>,
    /// Since the last row.
    amounts: Amounts,
}

impl Had {
    pub(crate) fn of(engine: &Engine, placement: &Placement) -> Self {
        let slots = &placement.slots;
        let nodes: BTreeSet<_> = slots.iter().map(|slot| &slot.node).collect();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let device = slots.iter().find_map(|slot| {
            let node = engine.node(&slot.node)?;
            node.machine.devices.get(slot.devices.iter().next()? as usize)
        });
        Self {
            ranks: number(slots.len()),
            nodes: number(nodes.len()),
            devices: slots.iter().map(|slot| slot.devices.count()).sum(),
            is_whole: slots.iter().all(|slot| slot.part.is_none()),
            model: device.map(|device| device.model.clone()).unwrap_or_default(),
            device_bytes: device.map_or(0, |device| device.memory_bytes),
        }
    }
}

impl OfAttempt {
    /// Counts the use of all its devices since the last sample, if all of them answered.
    fn sample(&mut self, now: Timestamp, devices: DeviceMask, samples: &BTreeMap<u32, &Vitals>) {
        let of_each: Option<Vec<(u32, &Vitals)>> =
            devices.iter().map(|device| Some((device, *samples.get(&device)?))).collect();
        let of_each = of_each.unwrap_or_default();
        let memory: Option<Vec<u64>> = of_each.iter().map(|(_, vitals)| vitals.memory_used_bytes).collect();
        self.amounts.peak_bytes =
            self.amounts.peak_bytes.max(memory.and_then(|bytes| bytes.into_iter().max()));
        let is_used = |(_, vitals): &&(u32, &Vitals)| {
            let has_memory = vitals.memory_used_bytes.is_none_or(|bytes| bytes > UNUSED_BYTES_MAX);
            vitals.busy_percent > Some(0) || has_memory
        };
        self.used = self.used.union(of_each.iter().filter(is_used).map(|(device, _)| *device).collect());
        self.amounts.used = self.used;
        let percents: Option<Vec<u64>> =
            of_each.iter().map(|(_, vitals)| vitals.busy_percent.map(u64::from)).collect();
        let Some(percents) = percents.filter(|percents| !percents.is_empty()) else {
            self.sampled_at = None;
            return;
        };
        self.amounts.samples += 1;
        let since = self.sampled_at.replace(now).map_or(0, |before| now.since(before));
        if since <= SAMPLES_APART_MAX_MS {
            let mean = percents.iter().sum::<u64>().min(100 * percents.len() as u64);
            self.amounts.sampled_ms += since;
            self.amounts.busy_ms += since * mean / (100 * percents.len() as u64);
            for ((device, _), percent) in of_each.iter().zip(&percents) {
                *self.busy_ms.entry(*device).or_default() += since * percent.min(&100) / 100;
            }
            let busiest_ms = self.busy_ms.values().copied().max().unwrap_or_default();
            self.amounts.busiest_ms += busiest_ms - self.busiest_ms;
            self.busiest_ms = busiest_ms;
        }
    }

    fn report(&mut self, reported: &Reported<'_>) {
        self.amounts.takes_ms = reported.takes_ms.or(self.amounts.takes_ms);
        self.amounts.saves_every_ms = reported.saves_every_ms.or(self.amounts.saves_every_ms);
        let Some(view) = reported.view else { return };
        self.amounts.steps_of = view.of.or(self.amounts.steps_of);
        let Some((at, step)) = view.told_at.zip(view.step) else { return };
        if let Some((before, last)) = self.step.replace((at, step)) {
            // A gang that went back to a checkpoint does these steps again.
            self.amounts.steps += step.saturating_sub(last);
            self.amounts.steps_ms += if step > last { at.since(before) } else { 0 };
        }
    }

    /// Takes the amounts since the last row. `None` if the attempt was never seen to run.
    fn take(&mut self, (gang, attempt): Attempt) -> Option<UsedRow> {
        let (had, amounts) = (self.had.clone()?, std::mem::take(&mut self.amounts));
        Some(UsedRow { job: gang.job, gang: gang.index, attempt, had, amounts })
    }
}

impl Used {
    fn state(&self) -> MutexGuard<'_, State> {
        // The sums of a panicking thread stay valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes samples of all devices of the machine.
    pub(crate) fn sampled(&self, now: Timestamp, holds: &[Holds], samples: &[(u32, Vitals)]) {
        let samples: BTreeMap<u32, &Vitals> =
            samples.iter().map(|(device, vitals)| (*device, vitals)).collect();
        let mut state = self.state();
        for held in holds.iter().filter(|held| held.is_known(holds)) {
            let attempt = state.attempts.entry((held.gang, held.attempt)).or_default();
            attempt.sample(now, held.devices, &samples);
        }
    }

    /// An attempt runs.
    pub(crate) fn ran(&self, attempt: Attempt, had: Had, reported: &Reported<'_>) {
        let mut state = self.state();
        let of = state.attempts.entry(attempt).or_default();
        of.had = Some(had);
        of.report(reported);
    }

    /// Writes down attempts that run no more, and once a minute those that do.
    pub(crate) fn ended(&self, daemon: &Daemon, now: Timestamp, runs: impl Fn(&Attempt) -> bool) {
        let mut state = self.state();
        let over = state.attempts.extract_if(.., |attempt, _| !runs(attempt));
        let rows: Vec<UsedRow> = over.filter_map(|(attempt, mut of)| of.take(attempt)).collect();
        if !rows.is_empty() {
            daemon.recorder.used(rows);
        }
        if now.since(state.written_at) >= WRITE_EVERY_MS {
            state.written_at = now;
            state.write_down(daemon);
        }
    }

    /// Writes down all that is new, but for a client that could ask without end.
    pub(crate) fn write_down_for_a_user(&self, daemon: &Daemon) {
        let (mut state, now) = (self.state(), daemon.clock.now());
        if now.since(state.written_at) >= FRESH_MS {
            state.written_at = now;
            state.write_down(daemon);
        }
    }

    /// Writes down all that is new.
    pub(crate) fn write_down(&self, daemon: &Daemon) {
        self.state().write_down(daemon);
    }
}

impl State {
    fn write_down(&mut self, daemon: &Daemon) {
        let rows: Vec<UsedRow> =
            self.attempts.iter_mut().filter_map(|(attempt, of)| of.take(*attempt)).collect();
        if !rows.is_empty() {
            daemon.recorder.used(rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use phalanx_model::JobId;

    use super::*;

    const SECOND: u64 = 1_000;

    fn attempt() -> OfAttempt {
        OfAttempt { had: Some(Had { devices: 2, ..Had::default() }), ..OfAttempt::default() }
    }

    fn vitals(busy_percent: Option<u32>, gib: Option<u64>) -> Vitals {
        Vitals { busy_percent, memory_used_bytes: gib.map(|gib| gib << 30), ..Vitals::default() }
    }

    fn sample(of: &mut OfAttempt, second: u64, of_each: &[Vitals; 2]) {
        let samples = (0..).zip(of_each).collect();
        of.sample(Timestamp(second * SECOND), "0-1".parse().unwrap(), &samples);
    }

    #[test]
    fn use_counts_between_samples_in_which_all_devices_answer() {
        let mut of = attempt();
        let half = || [vitals(Some(100), Some(10)), vitals(Some(0), Some(40))];
        sample(&mut of, 0, &half());
        assert_eq!((of.amounts.sampled_ms, of.amounts.peak_bytes), (0, Some(40 << 30)), "it begins");
        sample(&mut of, 10, &half());
        let Amounts { sampled_ms, busy_ms, busiest_ms, samples, .. } = of.amounts;
        assert_eq!((sampled_ms, busy_ms, busiest_ms, samples), (10_000, 5_000, 10_000, 2));
        sample(&mut of, 20, &[vitals(None, None), vitals(Some(0), Some(70))]);
        sample(&mut of, 30, &half());
        assert_eq!(
            (of.amounts.sampled_ms, of.amounts.peak_bytes),
            (10_000, Some(40 << 30)),
            "one did not answer"
        );
        sample(&mut of, 1_000, &half());
        assert_eq!(of.amounts.sampled_ms, 10_000, "too far apart");
        sample(&mut of, 1_010, &[vitals(Some(6), None), vitals(Some(6), None)]);
        assert_eq!((of.amounts.sampled_ms, of.amounts.used.count()), (20_000, 2));
    }

    #[test]
    fn a_device_is_used_if_a_kernel_or_memory_was_ever_seen_on_it() {
        let used = |second: Vitals| {
            let mut of = attempt();
            sample(&mut of, 0, &[vitals(Some(0), Some(0)), second]);
            sample(&mut of, 10, &[vitals(Some(0), Some(1)), vitals(Some(0), Some(0))]);
            of.amounts.used.to_string()
        };
        assert_eq!(used(vitals(Some(0), Some(1))), DeviceMask::EMPTY.to_string());
        assert_eq!(used(vitals(Some(1), Some(0))), "1", "little use is use");
        assert_eq!(used(vitals(Some(0), Some(2))), "1", "memory is use");
        assert_eq!(used(vitals(Some(0), None)), "1", "unknown memory is no sign that it is unused");
    }

    #[test]
    fn the_busiest_device_is_that_of_the_whole_attempt() {
        let mut of = attempt();
        let id = (JobId(3).gang(1), 2);
        let of_each = |first, second| [vitals(Some(first), Some(9)), vitals(Some(second), Some(9))];
        sample(&mut of, 0, &of_each(0, 0));
        sample(&mut of, 10, &of_each(100, 0));
        assert_eq!(of.take(id).unwrap().amounts.busiest_ms, 10_000);
        sample(&mut of, 20, &of_each(0, 100));
        assert_eq!(of.take(id).unwrap().amounts.busiest_ms, 0, "each was busy for 10 s");
        sample(&mut of, 30, &of_each(0, 50));
        let amounts = of.take(id).unwrap().amounts;
        assert_eq!((amounts.busiest_ms, amounts.used), (5_000, "0-1".parse().unwrap()));
    }

    #[test]
    fn rows_have_what_is_new() {
        let mut of = attempt();
        let report = |of: &mut OfAttempt, second: u64, step| {
            let told_at = Some(Timestamp(second * SECOND));
            let view = ProgressView { step: Some(step), of: Some(90), told_at, ..ProgressView::default() };
            of.report(&Reported { view: Some(&view), takes_ms: Some(7), saves_every_ms: None });
        };
        report(&mut of, 10, 5);
        report(&mut of, 14, 7);
        report(&mut of, 14, 7);
        let id = (JobId(3).gang(1), 2);
        let row = of.take(id).unwrap();
        assert_eq!((row.job, row.gang, row.attempt, row.had.devices), (JobId(3), 1, 2, 2));
        let Amounts { steps, steps_ms, steps_of, takes_ms, .. } = row.amounts;
        assert_eq!((steps, steps_ms, steps_of, takes_ms), (2, 4_000, Some(90), Some(7)));
        report(&mut of, 20, 6);
        report(&mut of, 21, 7);
        let row = of.take(id).unwrap();
        assert_eq!((row.amounts.steps, row.amounts.steps_ms), (1, 1_000), "back to a checkpoint, and on");
        assert!(OfAttempt::default().take(id).is_none(), "it was not seen to run");
    }
}
