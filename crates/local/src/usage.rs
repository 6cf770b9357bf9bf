//! Which GPUs of jobs run kernels, by samples of the machine that is found.
//!
//! A gang is idle if none of its GPUs was busy for a time that the operator sets. A GPU whose use cannot be read (in MIG
//! mode, shared by several gangs, or not sampled) is unknown, and its gang is then never idle.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use phalanx_model::show::span;
use phalanx_model::{DeviceMask, GangId, GangRecord, IdleThen, NodeName, Phase, Timestamp, Vitals};
use phalanx_shell::Engine;

use crate::daemon::Daemon;
use crate::reclaim;
use phalanx_api::protocol::{EventView, JobView, UsageView};

/// A GPU is busy above this: kernels ran in more than so much of the last sampling period of the driver. What a process
/// does that only keeps its memory is 0 %.
pub(crate) const BUSY_PERCENT: u32 = 5;
/// Samples that may be missed before the use of GPUs is unknown.
const SAMPLES_MISSED: u64 = 4;

/// What each gang does with the GPUs that it holds.
#[derive(Debug)]
pub(crate) struct Usage {
    gangs: Mutex<BTreeMap<GangId, Used>>,
    /// After this time without a kernel a gang is idle.
    idle_after_ms: u64,
    /// After this time without a sample, nothing is known of what a gang did before.
    gap_ms: u64,
    /// Jobs that were stopped and held, and cancelled, by rules of queues.
    taken: [AtomicU64; 2],
}

#[derive(Clone, Debug)]
struct Used {
    attempt: u32,
    devices: DeviceMask,
    /// Of all of its GPUs in the last sample.
    busy_percent: u32,
    /// The last sample in which one was busy, or the first sample.
    busy_at: Timestamp,
    sampled_at: Timestamp,
    is_idle: bool,
    /// When its owner was last notified that it is idle, and in which words.
    told: Option<(Timestamp, String)>,
}

/// A gang that is idle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Idle {
    pub(crate) attempt: u32,
    /// The last kernel on any of its GPUs.
    pub(crate) busy_at: Timestamp,
    /// When its owner was notified, in the present words.
    pub(crate) told_at: Option<Timestamp>,
}

/// What a gang holds on the machine, and nothing elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Holds {
    pub(crate) gang: GangId,
    pub(crate) attempt: u32,
    pub(crate) devices: DeviceMask,
    /// It has whole devices, and its ranks run.
    pub(crate) is_readable: bool,
}

impl Holds {
    /// Whether the use of its devices is that of its ranks alone.
    pub(crate) fn is_known(&self, all: &[Self]) -> bool {
        let shares = |other: &Self| other.gang != self.gang && !other.devices.and(self.devices).is_empty();
        self.is_readable && !self.devices.is_empty() && !all.iter().any(shares)
    }
}

/// A gang became idle, or is idle no more.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IdleChange {
    gang: GangId,
    /// How long it had been idle, if it is no more.
    ended_after_ms: Option<u64>,
}

impl Usage {
    pub(crate) const fn new(idle_after_ms: u64, sample_every_ms: u64) -> Self {
        let taken = [const { AtomicU64::new(0) }; 2];
        let gap_ms = sample_every_ms.saturating_mul(SAMPLES_MISSED);
        Self { gangs: Mutex::new(BTreeMap::new()), idle_after_ms, gap_ms, taken }
    }

    /// The time without a kernel after which a gang is reported as idle.
    pub(crate) const fn idle_after_ms(&self) -> u64 {
        self.idle_after_ms
    }

    /// A rule of a queue took the GPUs of a job.
    pub(crate) fn taken(&self, then: IdleThen) {
        let [held, ended] = &self.taken;
        let count = if then == IdleThen::End { ended } else { held };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Jobs that were stopped and held, and cancelled, by rules of queues since the daemon started.
    pub(crate) fn taken_counts(&self) -> [u64; 2] {
        self.taken.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn gangs(&self) -> MutexGuard<'_, BTreeMap<GangId, Used>> {
        // What a panicking thread left are still samples.
        self.gangs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes samples of all devices of the machine. `false`: the engine answers no more.
    pub(crate) fn sampled(
        &self,
        daemon: &Daemon,
        now: Timestamp,
        holds: &[Holds],
        samples: &[(u32, Vitals)],
    ) -> bool {
        let busy: BTreeMap<u32, u32> =
            samples.iter().filter_map(|(device, vitals)| Some((*device, vitals.busy_percent?))).collect();
        let changes = self.count(now, holds, &busy);
        for change in &changes {
            if let Some(ms) = change.ended_after_ms {
                said(daemon, now, change.gang, "idle no more", format!("after {}", span(ms)));
            }
        }
        if !self.tell_owners(daemon, now) {
            return false;
        }
        let idle = self.idle();
        if !changes.is_empty() {
            let (account, gangs) = (daemon.account.clone(), idle.keys().copied().collect());
            if daemon.engine.look(move |engine| account.set_idle(now, gangs, engine)).is_err() {
                return false;
            }
        }
        reclaim::look(daemon, now, idle)
    }

    /// Gangs that are idle.
    fn idle(&self) -> BTreeMap<GangId, Idle> {
        let gangs = self.gangs();
        let of = |(gang, used): (&GangId, &Used)| {
            let told_at = used.told.as_ref().map(|(at, _)| *at);
            used.is_idle.then_some((*gang, Idle { attempt: used.attempt, busy_at: used.busy_at, told_at }))
        };
        gangs.iter().filter_map(of).collect()
    }

    /// Notifies owners of idle gangs, once, and again where the rule of the queue has changed. `false`: the engine answers no
    /// more.
    fn tell_owners(&self, daemon: &Daemon, now: Timestamp) -> bool {
        let gangs: Vec<GangId> = self.idle().into_keys().collect();
        if gangs.is_empty() {
            return true;
        }
        let Some(outlooks) = reclaim::outlooks(daemon, gangs) else { return false };
        for (gang, outlook) in outlooks {
            let detail = format!("no kernel ran on its GPUs for {}{outlook}", span(self.idle_after_ms));
            let is_news = self.gangs().get_mut(&gang).is_some_and(|used| {
                let is_news = used.is_idle && used.told.as_ref().is_none_or(|(_, told)| *told != detail);
                if is_news {
                    used.told = Some((now, detail.clone()));
                }
                is_news
            });
            if is_news {
                said(daemon, now, gang, "idle", detail.clone());
                daemon.warn_owner(gang.job, "idle", detail);
            }
        }
        true
    }

    /// Counts one round of samples.
    fn count(&self, now: Timestamp, holds: &[Holds], busy: &BTreeMap<u32, u32>) -> Vec<IdleChange> {
        let mut changes = Vec::new();
        let mut gangs = self.gangs();
        let mut before = std::mem::take(&mut *gangs);
        for held in holds {
            let known = before.remove(&held.gang);
            let of_each: Option<Vec<u32>> =
                held.devices.iter().map(|device| busy.get(&device).copied()).collect();
            let of_each = of_each.filter(|_| held.is_known(holds));
            let Some(of_each) = of_each else {
                changes.extend(known.filter(|used| used.is_idle).map(|used| ended(held.gang, &used, now)));
                continue;
            };
            let is_same = |used: &Used| {
                let is_gap = now.since(used.sampled_at) > self.gap_ms;
                (used.attempt, used.devices) == (held.attempt, held.devices) && !is_gap
            };
            let (same, other): (Option<Used>, Option<Used>) = match known {
                Some(used) if is_same(&used) => (Some(used), None),
                other => (None, other),
            };
            changes.extend(other.filter(|used| used.is_idle).map(|used| ended(held.gang, &used, now)));
            let sum: u64 = of_each.iter().map(|percent| u64::from(*percent)).sum();
            let busy_percent = u32::try_from(sum / of_each.len() as u64).unwrap_or(100);
            let is_busy = of_each.iter().any(|percent| *percent > BUSY_PERCENT);
            let mut used = same.unwrap_or(Used {
                attempt: held.attempt,
                devices: held.devices,
                busy_percent,
                busy_at: now,
                sampled_at: now,
                is_idle: false,
                told: None,
            });
            (used.busy_percent, used.sampled_at) = (busy_percent, now);
            if is_busy {
                changes.extend(used.is_idle.then(|| ended(held.gang, &used, now)));
                (used.busy_at, used.is_idle, used.told) = (now, false, None);
            } else if !used.is_idle && now.since(used.busy_at) >= self.idle_after_ms {
                used.is_idle = true;
                changes.push(IdleChange { gang: held.gang, ended_after_ms: None });
            }
            gangs.insert(held.gang, used);
        }
        changes.extend(
            before.into_iter().filter(|(_, used)| used.is_idle).map(|(g, used)| ended(g, &used, now)),
        );
        changes
    }

    /// Adds to views of jobs what their GPUs do.
    pub(crate) fn say(&self, jobs: &mut [JobView]) {
        let gangs = self.gangs();
        if gangs.is_empty() {
            return;
        }
        for gang in jobs.iter_mut().flat_map(|job| &mut job.gangs) {
            let used = gangs.get(&gang.id).filter(|used| used.attempt == gang.attempt);
            gang.usage = used.map(|used| UsageView {
                busy_percent: used.busy_percent,
                idle_since: used.is_idle.then_some(used.busy_at),
            });
        }
    }

    /// How busy the GPUs of all gangs are whose use is known, on average. `None` if that is known of none.
    pub(crate) fn busy_percent(&self) -> Option<u32> {
        let gangs = self.gangs();
        let sum = |of: fn(&Used) -> u32| gangs.values().map(|used| u64::from(of(used))).sum::<u64>();
        let devices = sum(|used| used.devices.count());
        let busy = sum(|used| used.busy_percent.saturating_mul(used.devices.count()));
        busy.checked_div(devices).and_then(|percent| u32::try_from(percent).ok())
    }

    /// GPUs of idle gangs.
    pub(crate) fn idle_devices(&self) -> u32 {
        self.gangs().values().filter(|used| used.is_idle).map(|used| used.devices.count()).sum()
    }
}

/// Logs what became of a gang, and records it in the history of its job.
fn said(daemon: &Daemon, now: Timestamp, gang: GangId, what: &str, detail: String) {
    tracing::info!(%gang, detail, "a gang is {what}");
    let view = EventView { at: now, what: what.to_owned(), detail, record: None };
    daemon.recorder.event(gang.job, view);
}

fn ended(gang: GangId, used: &Used, now: Timestamp) -> IdleChange {
    IdleChange { gang, ended_after_ms: Some(now.since(used.busy_at)) }
}

/// All devices that gangs hold.
pub(crate) fn devices(holds: &[Holds]) -> DeviceMask {
    holds.iter().fold(DeviceMask::EMPTY, |all, held| all.union(held.devices))
}

/// What gangs hold on the machine.
pub(crate) fn holds_on(engine: &Engine, node: &NodeName) -> Vec<Holds> {
    let of_record = |record: &GangRecord| {
        let held = record.held()?;
        let is_here = held.slots.iter().all(|slot| slot.node == *node);
        let devices = held.slots.iter().fold(DeviceMask::EMPTY, |all, slot| all.union(slot.devices));
        let is_running = matches!(record.phase, Phase::Running { .. });
        let is_whole = held.slots.iter().all(|slot| slot.part.is_none());
        let is_readable = is_here && is_running && is_whole;
        (!devices.is_empty()).then_some(Holds {
            gang: record.id,
            attempt: record.attempt,
            devices,
            is_readable,
        })
    };
    engine.jobs().flat_map(|(_, records)| records.iter().filter_map(of_record)).collect()
}

#[cfg(test)]
mod tests {
    use phalanx_model::JobId;

    use super::*;

    const MINUTE: u64 = 60_000;

    fn holds(job: u64, devices: &str) -> Holds {
        let devices = devices.parse().unwrap();
        Holds { gang: JobId(job).gang(0), attempt: 1, devices, is_readable: true }
    }

    /// Says who is idle after a round at a minute.
    fn round(usage: &Usage, minute: u64, holds: &[Holds], busy: &[(u32, u32)]) -> Vec<(u64, bool)> {
        let changes = usage.count(Timestamp(minute * MINUTE), holds, &busy.iter().copied().collect());
        changes.iter().map(|change| (change.gang.job.0, change.ended_after_ms.is_none())).collect()
    }

    #[test]
    fn a_gang_is_idle_once_none_of_its_gpus_was_busy_for_the_time() {
        let usage = Usage::new(15 * MINUTE, 5 * MINUTE);
        let two = [holds(1, "0-1"), holds(2, "2")];
        assert_eq!(round(&usage, 0, &two, &[(0, 90), (1, 0), (2, 0)]), []);
        assert_eq!(round(&usage, 10, &two, &[(0, 0), (1, 6), (2, 5)]), [], "one of its GPUs is enough");
        assert_eq!(round(&usage, 15, &two, &[(0, 0), (1, 0), (2, 5)]), [(2, true)]);
        assert_eq!(round(&usage, 16, &two, &[(0, 0), (1, 0), (2, 5)]), [], "it is said once");
        assert_eq!(usage.idle_devices(), 1);
        assert_eq!(round(&usage, 25, &two, &[(0, 0), (1, 0), (2, 99)]), [(1, true), (2, false)]);
        assert_eq!(round(&usage, 26, &two[1..], &[(2, 99)]), [(1, false)], "it ended");
    }

    /// It may have worked all the time.
    #[test]
    fn a_gang_is_not_idle_for_a_time_without_samples() {
        let usage = Usage::new(15 * MINUTE, MINUTE);
        let one = [holds(1, "0")];
        assert_eq!(round(&usage, 0, &one, &[(0, 0)]), []);
        assert_eq!(round(&usage, 60, &one, &[(0, 0)]), [], "no sample for an hour");
        for minute in (62..75).step_by(2) {
            assert_eq!(round(&usage, minute, &one, &[(0, 0)]), []);
        }
        assert_eq!(round(&usage, 76, &one, &[(0, 0)]), [(1, true)]);
        assert_eq!(round(&usage, 200, &one, &[(0, 0)]), [(1, false)], "nor is it known to be idle still");
    }

    #[test]
    fn unknown_use_is_not_idle() {
        let usage = Usage::new(15 * MINUTE, 5 * MINUTE);
        let shared = [holds(1, "0"), holds(2, "0")];
        let part = [Holds { is_readable: false, ..holds(3, "1") }];
        for minute in [0, 20, 40] {
            assert_eq!(round(&usage, minute, &shared, &[(0, 0)]), []);
            assert_eq!(round(&usage, minute, &part, &[(1, 0)]), []);
            assert_eq!(round(&usage, minute, &[holds(4, "2-3")], &[(2, 0)]), [], "one GPU says nothing");
        }
        // An attempt that starts anew may load for a while.
        assert_eq!(round(&usage, 50, &[holds(5, "0")], &[(0, 0)]), []);
        let again = [Holds { attempt: 2, ..holds(5, "0") }];
        assert_eq!(round(&usage, 64, &again, &[(0, 0)]), []);
        assert_eq!(round(&usage, 66, &again, &[(0, 0)]), []);
        assert_eq!(round(&usage, 79, &again, &[(0, 0)]), [(5, true)]);
    }
}
