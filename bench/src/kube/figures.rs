//! What came of one run.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::draw::{GPUS, Gang, NODES_PER_RACK, place};
use super::trace::{Event, What};
use super::usage::Usage;

/// One run; times in seconds from the start of the scheduler, unless they say otherwise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) scenario: Cow<'static, str>,
    pub(super) runner: Cow<'static, str>,
    pub(super) nodes: usize,
    pub(super) gangs: usize,
    pub(super) pods: usize,
    pub(super) bound_pods: usize,
    /// Gangs of which all pods are bound.
    pub(super) whole_gangs: usize,
    /// Why it was over: everything bound, nothing more for a while, or the limit.
    pub(super) end: Cow<'static, str>,
    pub(super) first_bind_s: f64,
    pub(super) last_bind_s: f64,
    /// Bound pods by the time from the start to the last bind, and by that from the first bind to the last.
    pub(super) pods_per_s: f64,
    pub(super) binding_pods_per_s: f64,
    /// From the first bind of a gang to its last, over gangs of several pods.
    pub(super) spread_p50_ms: f64,
    pub(super) spread_p99_ms: f64,
    /// The most gangs that were bound in part at once, the longest that one was, and how many are at the end.
    pub(super) partial_at_once: usize,
    pub(super) partial_longest_s: f64,
    pub(super) partial_at_end: usize,
    /// Racks that whole gangs of several pods span, in sum, and the least that is possible.
    pub(super) racks: usize,
    pub(super) racks_least: usize,
    /// Gangs that could have started where room is left at the end, all of them one after the other.
    pub(super) waiting_that_fit: usize,
    pub(super) scheduler_cpu_s: f64,
    pub(super) api_server_cpu_s: f64,
    pub(super) etcd_cpu_s: f64,
    /// CPU of the scheduler while nothing changes at the end, in percent of one core.
    pub(super) idle_cpu_percent: Option<f64>,
    pub(super) scheduler_peak_mib: f64,
    /// From the request of a pod to its bind.
    pub(super) latency_p50_ms: Option<f64>,
    pub(super) latency_p99_ms: Option<f64>,
    /// From when a standby may bind, after its leader was killed, to its first bind.
    pub(super) takeover_s: Option<f64>,
    /// Pods and time from first to last bind of every gang of several pods.
    pub(super) spreads: Vec<(usize, f64)>,
}

impl Outcome {
    /// What the binds say; the free GPUs of every node are those before the first of them.
    pub(super) fn of(gangs: &[Gang], free: &[usize], began: Duration, events: &[Event]) -> Self {
        let mut gangs_now: Vec<Bound> = vec![Bound::default(); gangs.len()];
        let mut outcome =
            Self { gangs: gangs.len(), pods: gangs.iter().map(|gang| gang.pods).sum(), ..Self::default() };
        let mut partial = 0_usize;
        for event in events {
            let (gang, now) = (gangs[event.gang], &mut gangs_now[event.gang]);
            let was_partial = now.is_partial(gang);
            now.take(event);
            let is_partial = now.is_partial(gang);
            if is_partial && !was_partial {
                partial += 1;
                now.partial_since = event.at;
            } else if was_partial && !is_partial {
                partial -= 1;
                outcome.partial_for(event.at.saturating_sub(now.partial_since));
            }
            outcome.partial_at_once = outcome.partial_at_once.max(partial);
        }
        outcome.partial_at_end = partial;
        let mut binds = events.iter().filter(|event| matches!(event.what, What::Bound { .. }));
        let first = binds.next().map_or(began, |event| event.at);
        let last = binds.next_back().map_or(first, |event| event.at);
        let still = gangs_now.iter().zip(gangs).filter(|(now, gang)| now.is_partial(**gang));
        for (now, _) in still {
            outcome.partial_for(last.saturating_sub(now.partial_since));
        }
        outcome.bound_pods = gangs_now.iter().map(|now| now.nodes.len()).sum();
        outcome.times(first.saturating_sub(began), last.saturating_sub(began));
        outcome.places(gangs, &gangs_now);
        outcome.waiting_that_fit = waiting_that_fit(gangs, &gangs_now, free);
        outcome
    }

    fn partial_for(&mut self, time: Duration) {
        self.partial_longest_s = self.partial_longest_s.max(time.as_secs_f64());
    }

    fn times(&mut self, first: Duration, last: Duration) {
        (self.first_bind_s, self.last_bind_s) = (first.as_secs_f64(), last.as_secs_f64());
        let rate = |pods: usize, seconds: f64| if seconds > 0.0 { as_f64(pods) / seconds } else { 0.0 };
        self.pods_per_s = rate(self.bound_pods, self.last_bind_s);
        self.binding_pods_per_s =
            rate(self.bound_pods.saturating_sub(1), self.last_bind_s - self.first_bind_s);
    }

    fn places(&mut self, gangs: &[Gang], now: &[Bound]) {
        for (gang, now) in gangs.iter().zip(now).filter(|(gang, now)| now.nodes.len() == gang.pods) {
            self.whole_gangs += 1;
            if gang.pods > 1 {
                let mut racks: Vec<usize> = now.nodes.values().map(|node| node / NODES_PER_RACK).collect();
                racks.sort_unstable();
                racks.dedup();
                self.racks += racks.len();
                self.racks_least += (gang.pods * gang.gpus).div_ceil(GPUS * NODES_PER_RACK);
                self.spreads.push((gang.pods, now.last.saturating_sub(now.first).as_secs_f64()));
            }
        }
        let mut times: Vec<f64> = self.spreads.iter().map(|(_, seconds)| seconds * 1_000.0).collect();
        self.spread_p50_ms = percentile(&mut times, 50);
        self.spread_p99_ms = percentile(&mut times, 99);
    }

    /// What the programs used between two looks.
    pub(super) fn used(&mut self, before: [Usage; 2], after: [Usage; 2], scheduler: Usage) {
        let [api_server, etcd] = [0, 1].map(|of| after[of].cpu_s - before[of].cpu_s);
        (self.api_server_cpu_s, self.etcd_cpu_s) = (api_server, etcd);
        (self.scheduler_cpu_s, self.scheduler_peak_mib) = (scheduler.cpu_s, scheduler.peak_mib);
    }
}

/// The pods of one gang that have a node.
#[derive(Clone, Debug, Default)]
struct Bound {
    nodes: BTreeMap<usize, usize>,
    first: Duration,
    last: Duration,
    partial_since: Duration,
}

impl Bound {
    fn is_partial(&self, gang: Gang) -> bool {
        !self.nodes.is_empty() && self.nodes.len() < gang.pods
    }

    fn take(&mut self, event: &Event) {
        match event.what {
            What::Bound { node } => {
                if self.nodes.is_empty() {
                    self.first = event.at;
                }
                self.last = event.at;
                self.nodes.insert(event.member, node);
            }
            What::Gone => {
                self.nodes.remove(&event.member);
            }
        }
    }
}

/// Gangs without any node for which the room at the end would do, the smallest first.
fn waiting_that_fit(gangs: &[Gang], now: &[Bound], free: &[usize]) -> usize {
    let mut free = free.to_vec();
    for (gang, now) in gangs.iter().zip(now) {
        for node in now.nodes.values() {
            free[*node] = free[*node].saturating_sub(gang.gpus);
        }
    }
    let waiting = gangs.iter().zip(now).filter(|(_, now)| now.nodes.is_empty());
    let mut waiting: Vec<Gang> = waiting.map(|(gang, _)| *gang).collect();
    waiting.sort_by_key(|gang| gang.pods * gang.gpus);
    let racks = free.len().div_ceil(NODES_PER_RACK);
    waiting
        .iter()
        .filter(|gang| {
            let Some(nodes) = (0..racks).find_map(|rack| place(&free, **gang, rack)) else { return false };
            nodes.iter().for_each(|node| free[*node] -= gang.gpus);
            true
        })
        .count()
}

/// The value below which `percent` of some lie, the nearest of them; 0 where there is none.
pub(super) fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() * percent).div_ceil(100).max(1) - 1;
    values.get(at).copied().unwrap_or(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
pub(super) fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(ms: u64, gang: usize, member: usize, node: usize) -> Event {
        Event { at: Duration::from_millis(ms), gang, member, what: What::Bound { node } }
    }

    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} is not {right}");
    }

    #[test]
    fn what_was_bound_in_part_is_seen_as_long_as_it_was() {
        let gangs = [Gang { pods: 2, gpus: 8 }, Gang { pods: 2, gpus: 8 }, Gang { pods: 1, gpus: 2 }];
        let mut events = vec![
            bound(1_000, 0, 0, 0),
            bound(1_200, 1, 0, 40),
            bound(1_500, 0, 1, 1),
            bound(1_600, 2, 0, 2),
            bound(1_700, 1, 1, 5),
        ];
        let free = [8; 64];
        let began = Duration::from_millis(500);
        let outcome = Outcome::of(&gangs, &free, began, &events);
        assert_eq!((outcome.partial_at_once, outcome.partial_at_end, outcome.whole_gangs), (2, 0, 3));
        close(outcome.partial_longest_s, 0.5);
        assert_eq!((outcome.racks, outcome.racks_least), (3, 2), "gang 1 lies in two racks");
        close(outcome.first_bind_s, 0.5);
        close(outcome.last_bind_s, 1.2);
        close(outcome.pods_per_s, 5.0 / 1.2);
        close(outcome.spread_p99_ms, 500.0);
        // One pod of gang 1 is taken back: the gang is partial again, and to the end.
        events.push(Event { at: Duration::from_millis(1_800), gang: 1, member: 0, what: What::Gone });
        let outcome = Outcome::of(&gangs, &free, began, &events);
        assert_eq!((outcome.partial_at_end, outcome.bound_pods, outcome.whole_gangs), (1, 4, 2));
    }

    #[test]
    fn a_gang_that_waits_though_it_fits_is_counted_once_for_each_place() {
        let gangs = [Gang { pods: 2, gpus: 8 }, Gang { pods: 1, gpus: 4 }, Gang { pods: 1, gpus: 4 }];
        // Two free nodes in different racks, and 4 GPUs more: neither rack takes the gang of two.
        let mut free = [0; 64];
        (free[0], free[40]) = (8, 4);
        let outcome = Outcome::of(&gangs, &free, Duration::ZERO, &[]);
        assert_eq!(outcome.waiting_that_fit, 2);
        let outcome = Outcome::of(&gangs, &free, Duration::ZERO, &[bound(1, 1, 0, 40), bound(2, 2, 0, 0)]);
        assert_eq!(outcome.waiting_that_fit, 0);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        close(percentile(&mut values, 50), 50.0);
        close(percentile(&mut values, 99), 99.0);
        close(percentile(&mut [], 99), 0.0);
    }
}
