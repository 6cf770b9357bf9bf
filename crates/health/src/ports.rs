//! Findings from samples of the network ports of a node: what changed since the samples before.
//!
//! A port that never was up is nothing. Load and congestion are no evidence for a grade: most of it is the job's own. The path
//! of a port counts as crowded, and the network of its node with less bandwidth, if the port is congested although it sends
//! less than half of its rate. Most often others crowd the path then, but its node may have caused the congestion before.

use std::collections::BTreeMap;

use phalanx_model::{Grade, PortVitals, Timestamp};
use serde::{Deserialize, Serialize};

use crate::evidence::{Finding, Kind};
use crate::vitals::{Count, has_grown};
use crate::{MINUTE_MS, Policy, Repair};

/// Ports that are remembered of one node.
const PORTS_MAX: usize = 64;
/// Ports that a finding names.
const NAMES_MAX: usize = 4;
const BYTES_PER_GBIT: u64 = 125_000_000;
/// The bytes that a port could have sent in a tick: the unit in which `InfiniBand` counts data. A choice: what a tick is depends on
/// the adapter.
const BYTES_PER_TICK: u128 = 4;
/// A port that waits for a smaller part of the time is not crowded, even if it sends less. A choice.
const LEAST_WAIT_PERMILLE: u128 = 50;

/// What is remembered of the ports of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Ports {
    at: Option<Timestamp>,
    ports: BTreeMap<String, Port>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Port {
    was_up: bool,
    /// The best rate that it had.
    bytes_per_s: Option<u64>,
    /// The rate that it has.
    rate: u64,
    /// Samples in a row.
    down: u32,
    slow: u32,
    /// By kind of error.
    errors: [Option<Count>; 3],
    flaps: Option<Count>,
    traffic: Option<Traffic>,
    /// Samples in a row.
    crowded: u32,
}

/// Counters of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Traffic {
    at: Timestamp,
    sent_bytes: u64,
    wait_ticks: u64,
    notices: u64,
}

/// What a sample says.
#[derive(Debug, Default)]
pub(crate) struct PortsSaid {
    pub(crate) findings: Vec<Finding>,
    /// Ports that are as they were before they went down or became slow.
    pub(crate) restored: Vec<String>,
    /// The share of the node's network that is there, in thousandths, and why; `None` if all of it is.
    pub(crate) slow: Option<(u16, String)>,
}

/// Names of ports with one fault, by whether it closes the node.
#[derive(Default)]
struct Faults {
    closing: Vec<String>,
    noted: Vec<String>,
}

impl Faults {
    fn add(&mut self, name: &str, closes: bool) {
        if closes { &mut self.closing } else { &mut self.noted }.push(name.to_owned());
    }

    /// One finding: ports that close the node are named alone.
    fn finding(&self, kind: Kind, now: Timestamp, what: &str) -> Option<Finding> {
        let (wants, names) = match (self.closing.is_empty(), self.noted.is_empty()) {
            (false, _) => (Grade::DrainAfterJob, &self.closing),
            (true, false) => (Grade::Suspect, &self.noted),
            (true, true) => return None,
        };
        Some(Finding::new(kind, wants, Repair::None, &format!("{} {what}", named(names)), now))
    }
}

/// `port a`, `ports a, b`.
pub(crate) fn named(names: &[String]) -> String {
    let shown = names.get(..NAMES_MAX).unwrap_or(names).join(", ");
    let more = names.len().saturating_sub(NAMES_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("port{} {shown}{more}", if names.len() == 1 { "" } else { "s" })
}

impl Ports {
    /// `None` for a sample that is older than the last one.
    pub(crate) fn sample(
        &mut self,
        now: Timestamp,
        all: &[PortVitals],
        policy: &Policy,
    ) -> Option<PortsSaid> {
        if self.at.is_some_and(|at| now <= at) {
            return None;
        }
        self.at = Some(now);
        self.make_room(all);
        let mut said = PortsSaid::default();
        let (mut noisy, mut flapping) = (Faults::default(), Faults::default());
        for of in all {
            if self.ports.len() >= PORTS_MAX && !self.ports.contains_key(&of.name) {
                continue;
            }
            let port = self.ports.entry(of.name.clone()).or_default();
            if port.follow(of, policy) {
                said.restored.push(of.name.clone());
            }
            port.follow_traffic(now, of, policy);
            if port.has_errors(now, of, policy) {
                noisy.add(&of.name, false);
            }
            let limit = policy.port_flaps_per_hour;
            if of.downed.is_some_and(|value| has_grown(&mut port.flaps, now, value, 60 * MINUTE_MS, limit)) {
                flapping.add(&of.name, false);
            }
        }
        let is_there = |name: &String| all.iter().any(|of| of.name == *name);
        for (_, port) in self.ports.iter_mut().filter(|(name, _)| !is_there(name)) {
            (port.traffic, port.crowded) = (None, 0);
        }
        // A port without a sample is as it was in its last one.
        let (mut down, mut slow) = (Faults::default(), Faults::default());
        for (name, port) in &self.ports {
            let closes = port.closes(policy);
            match port {
                _ if port.down >= policy.port_samples => down.add(name, closes),
                _ if port.slow >= policy.port_samples => slow.add(name, closes),
                _ => {}
            }
        }
        let errors = format!("had more than {} errors per minute", policy.port_errors_per_minute);
        let flaps = format!("went down more than {} times per hour", policy.port_flaps_per_hour);
        let findings = [
            down.finding(Kind::PortDown, now, "down"),
            slow.finding(Kind::PortSlow, now, "at a lower rate than before"),
            noisy.finding(Kind::PortErrors, now, &errors),
            flapping.finding(Kind::PortFlaps, now, &flaps),
        ];
        said.findings.extend(findings.into_iter().flatten());
        said.slow = self.slow(all, policy);
        Some(said)
    }

    /// The share of the node's network that is there, if it is not all of it. Ports that are far slower than the fastest one
    /// are of another network, and nothing is known of ports that are not in the sample.
    fn slow(&self, sampled: &[PortVitals], policy: &Policy) -> Option<(u16, String)> {
        let is_there = |name: &&String| sampled.iter().any(|of| of.name == **name);
        let present = || self.ports.iter().filter(|(name, _)| is_there(name));
        let fastest = present().filter_map(|(_, port)| port.bytes_per_s).max()?;
        let (mut all, mut left) = (0_u128, 0_u128);
        let (mut slow, mut crowded) = (Vec::new(), Vec::new());
        for (name, port) in present() {
            let Some(best) = port.bytes_per_s.filter(|best| *best >= fastest / 2) else { continue };
            all += u128::from(best);
            left += u128::from(match port {
                _ if port.down >= policy.port_samples => {
                    slow.push(name.clone());
                    0
                }
                _ if port.slow >= policy.port_samples => {
                    slow.push(name.clone());
                    port.rate.min(best)
                }
                _ if port.crowded >= policy.port_samples => {
                    crowded.push(name.clone());
                    // It waits for longer than it sends, so it has at most half. How much less is not counted.
                    best / 2
                }
                _ => best,
            });
        }
        let faults = [(slow, "down or slow"), (crowded, "congested at low use")];
        let faults = faults.iter().filter(|(names, _)| !names.is_empty());
        let why = faults.map(|(names, what)| format!("{} {what}", named(names))).collect::<Vec<_>>();
        let permille = u16::try_from(left * 1_000 / all.max(1)).unwrap_or(u16::MAX);
        (!why.is_empty()).then(|| (permille, why.join(", ")))
    }

    /// Ports that are gone and were as they should be make room for others.
    fn make_room(&mut self, all: &[PortVitals]) {
        if self.ports.len() >= PORTS_MAX {
            self.ports
                .retain(|name, port| port.down > 0 || port.slow > 0 || all.iter().any(|of| of.name == *name));
        }
    }

    /// The counters begin at zero after a boot. A port that was up before is still expected to be up.
    pub(crate) fn reboot(&mut self) {
        for port in self.ports.values_mut() {
            *port = Port { was_up: port.was_up, bytes_per_s: port.bytes_per_s, ..Port::default() };
        }
    }

    /// An operator says that all is as it should be.
    pub(crate) fn clear(&mut self) {
        *self = Self { at: self.at, ..Self::default() };
    }
}

impl Port {
    /// Follows the state and the rate. Whether it is as it was before a fault.
    fn follow(&mut self, of: &PortVitals, policy: &Policy) -> bool {
        if !of.state.is_up() {
            if self.was_up {
                self.down = self.down.saturating_add(1);
            }
            return false;
        }
        let is_lower = of.bytes_per_s.zip(self.bytes_per_s).is_some_and(|(now, before)| now < before);
        let limit = policy.port_samples;
        let was_faulty = self.down >= limit || self.slow >= limit;
        self.slow = if is_lower { self.slow.saturating_add(1) } else { 0 };
        self.bytes_per_s = self.bytes_per_s.max(of.bytes_per_s);
        self.rate = of.bytes_per_s.unwrap_or_default();
        (self.was_up, self.down) = (true, 0);
        was_faulty && !is_lower
    }

    /// Follows how much it sends and what it meets. It cannot know how much less it sends because of others, so a port that sends
    /// much is none that others crowd.
    fn follow_traffic(&mut self, now: Timestamp, of: &PortVitals, policy: &Policy) {
        let counters = [of.send_wait_ticks, of.congestion_notices];
        let Some(sent_bytes) = of.sent_bytes.filter(|_| counters.iter().any(Option::is_some)) else {
            (self.traffic, self.crowded) = (None, 0);
            return;
        };
        let [wait_ticks, notices] = counters.map(Option::unwrap_or_default);
        let after = Traffic { at: now, sent_bytes, wait_ticks, notices };
        let is_crowded = self.traffic.replace(after).zip(of.bytes_per_s).is_some_and(|(before, rate)| {
            // Counters that went down are those of a driver that was loaded again.
            let grown = |before: u64, after: u64| u128::from(after.saturating_sub(before));
            let ms = u128::from(now.since(before.at));
            let could = u128::from(rate) * ms / 1_000;
            let sent = grown(before.sent_bytes, sent_bytes);
            let waited = grown(before.wait_ticks, wait_ticks) * BYTES_PER_TICK;
            let notices = grown(before.notices, notices);
            let is_congested = waited > sent && waited > could * LEAST_WAIT_PERMILLE / 1_000
                || notices * 1_000 > u128::from(policy.port_notices_per_s) * ms;
            is_congested && sent * 2 < could
        });
        self.crowded = if is_crowded { self.crowded.saturating_add(1) } else { 0 };
    }

    fn has_errors(&mut self, now: Timestamp, of: &PortVitals, policy: &Policy) -> bool {
        let counters = [of.symbol_errors, of.recoveries, of.receive_errors];
        let mut is_over = false;
        // Each by itself: a counter that cannot be read for once does not look as if it grew afterwards.
        for (base, value) in self.errors.iter_mut().zip(counters) {
            let limit = policy.port_errors_per_minute;
            is_over |= value.is_some_and(|value| has_grown(base, now, value, MINUTE_MS, limit));
        }
        is_over
    }

    /// Slower ones, and those whose rate never was known, are of a network for management, or of a workstation.
    fn closes(&self, policy: &Policy) -> bool {
        let least = policy.port_closes_gbit.saturating_mul(BYTES_PER_GBIT);
        self.bytes_per_s.is_some_and(|rate| rate >= least)
    }
}
