//! Findings from samples of the network ports of a node: what changed since the samples before.
//!
//! A port that never was up is nothing. Load and congestion are no evidence: most of it is the job's own.

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

/// What is remembered of the ports of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub(crate) struct Ports {
    at: Option<Timestamp>,
    ports: BTreeMap<String, Port>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
struct Port {
    was_up: bool,
    /// The best rate that it had.
    bytes_per_s: Option<u64>,
    /// Samples in a row.
    down: u32,
    slow: u32,
    /// By kind of error.
    errors: [Option<Count>; 3],
    flaps: Option<Count>,
}

/// What a sample says.
#[derive(Debug, Default)]
pub(crate) struct PortsSaid {
    pub(crate) findings: Vec<Finding>,
    /// Ports that are as they were before they went down or became slow.
    pub(crate) restored: Vec<String>,
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
            if port.has_errors(now, of, policy) {
                noisy.add(&of.name, false);
            }
            let limit = policy.port_flaps_per_hour;
            if of.downed.is_some_and(|value| has_grown(&mut port.flaps, now, value, 60 * MINUTE_MS, limit)) {
                flapping.add(&of.name, false);
            }
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
        Some(said)
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
        (self.was_up, self.down) = (true, 0);
        was_faulty && !is_lower
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
