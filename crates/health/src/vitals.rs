//! Findings from samples of telemetry: what changed since the samples before.

use std::collections::BTreeMap;

use phalanx_model::{Grade, LinkVitals, Timestamp, Vitals};
use serde::{Deserialize, Serialize};

use crate::evidence::{Finding, Kind};
use crate::{MINUTE_MS, Policy, Repair};

const LINKS_MAX: usize = 64;

/// What is remembered of the samples of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Base {
    at: Option<Timestamp>,
    lost: u32,
    ecc_uncorrected: Option<u64>,
    replays: Option<Count>,
    links: BTreeMap<u32, Link>,
    throttle: Option<Slow>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Link {
    was_up: bool,
    down: u32,
    errors: Option<Count>,
}

/// A counter at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    at: Timestamp,
    value: u64,
}

/// Samples since a time, and those of them with clocks that the hardware lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Slow {
    since: Timestamp,
    samples: u32,
    slow: u32,
}

/// What a sample says.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) findings: Vec<Finding>,
    /// The device answers.
    pub(crate) answers: bool,
    /// No row and no page of memory waits for a reset.
    pub(crate) is_settled: bool,
}

impl Base {
    /// `None` for a sample that is older than the last one.
    pub(crate) fn sample(&mut self, now: Timestamp, vitals: &Vitals, policy: &Policy) -> Option<Said> {
        if self.at.is_some_and(|at| now <= at) {
            return None;
        }
        self.at = Some(now);
        let mut said = Said::default();
        if vitals.is_lost {
            self.lost = self.lost.saturating_add(1);
            if self.lost >= policy.lost_samples {
                let detail = "the device does not answer the driver";
                said.findings.push(Finding::new(Kind::Lost, Grade::Broken, Repair::Reboot, detail, now));
            }
            return Some(said);
        }
        (self.lost, said.answers) = (0, true);
        memory(now, vitals, &mut said);
        self.ecc(now, vitals, &mut said);
        self.links(now, &vitals.links, policy, &mut said);
        let limit = policy.pcie_replays_per_minute;
        let replays = vitals.pcie_replays.map(u64::from);
        if replays.is_some_and(|value| has_grown(&mut self.replays, now, value, MINUTE_MS, limit)) {
            let detail = format!("more than {limit} PCIe replays per minute");
            said.findings.push(Finding::new(Kind::Replays, Grade::Suspect, Repair::None, &detail, now));
        }
        self.throttle(now, vitals, policy, &mut said);
        Some(said)
    }

    /// The counters begin at zero after a boot. A link that was up before is still expected to be up.
    pub(crate) fn reboot(&mut self) {
        let links = std::mem::take(&mut self.links).into_iter();
        let links = links.map(|(number, link)| (number, Link { was_up: link.was_up, ..Link::default() }));
        *self = Self { at: self.at, links: links.collect(), ..Self::default() };
    }

    /// An operator says that it is as it should be.
    pub(crate) fn clear(&mut self) {
        *self = Self { at: self.at, ..Self::default() };
    }

    fn ecc(&mut self, now: Timestamp, vitals: &Vitals, said: &mut Said) {
        let Some(value) = vitals.ecc_uncorrected else { return };
        let more = self.ecc_uncorrected.map_or(0, |before| value.saturating_sub(before));
        self.ecc_uncorrected = Some(value);
        if more > 0 {
            let detail = format!("{more} uncorrected ECC error{}", if more == 1 { "" } else { "s" });
            said.findings.push(Finding::new(Kind::Ecc, Grade::Suspect, Repair::None, &detail, now));
        }
    }

    fn links(&mut self, now: Timestamp, links: &[LinkVitals], policy: &Policy, said: &mut Said) {
        let (mut down, mut noisy) = (Vec::new(), Vec::new());
        for of in links.iter().take(LINKS_MAX) {
            if self.links.len() >= LINKS_MAX && !self.links.contains_key(&of.number) {
                continue;
            }
            let link = self.links.entry(of.number).or_default();
            if of.is_up {
                (link.was_up, link.down) = (true, 0);
            } else if link.was_up {
                link.down = link.down.saturating_add(1);
                if link.down >= policy.link_down_samples {
                    down.push(of.number.to_string());
                }
            }
            let counters = [of.replays, of.recoveries, of.crc_errors];
            let errors = counters.into_iter().flatten().reduce(u64::saturating_add);
            let limit = policy.link_errors_per_hour;
            if errors.is_some_and(|value| has_grown(&mut link.errors, now, value, 60 * MINUTE_MS, limit)) {
                noisy.push(of.number.to_string());
            }
        }
        let names =
            |of: &[String]| format!("NVLink{} {}", if of.len() == 1 { "" } else { "s" }, of.join(","));
        if !down.is_empty() {
            let detail = format!("{} down", names(&down));
            let wants = Grade::DrainAfterJob;
            said.findings.push(Finding::new(Kind::LinkDown, wants, Repair::Reset, &detail, now));
        }
        if !noisy.is_empty() {
            let detail =
                format!("{}: more than {} errors per hour", names(&noisy), policy.link_errors_per_hour);
            said.findings.push(Finding::new(Kind::LinkErrors, Grade::Suspect, Repair::None, &detail, now));
        }
    }

    fn throttle(&mut self, now: Timestamp, vitals: &Vitals, policy: &Policy, said: &mut Said) {
        let Some(of) = vitals.throttle else { return };
        let slow = u32::from(of.is_hardware && (of.is_hot || of.is_power_brake));
        let span = policy.throttle_window_ms;
        // Nothing follows from samples with a long gap between them.
        let window = self.throttle.filter(|window| now.since(window.since) <= span.saturating_mul(2));
        let Some(before) = window else {
            self.throttle = Some(Slow { since: now, samples: 1, slow });
            return;
        };
        let window = Slow {
            samples: before.samples.saturating_add(1),
            slow: before.slow.saturating_add(slow),
            ..before
        };
        self.throttle = Some(window);
        if now.since(window.since) < span {
            return;
        }
        self.throttle = None;
        if window.slow > window.samples / 2 {
            let why = if of.is_power_brake { "the power supply" } else { "the temperature" };
            let detail = format!("the hardware lowers the clocks because of {why}");
            said.findings.push(Finding::new(Kind::Throttle, Grade::Suspect, Repair::None, &detail, now));
        }
    }
}

/// Rows and pages of memory.
fn memory(now: Timestamp, vitals: &Vitals, said: &mut Said) {
    if vitals.rows.is_some_and(|rows| rows.has_failed == Some(true)) {
        let detail = "a row of memory could not be replaced";
        said.findings.push(Finding::new(Kind::RowsFailed, Grade::Broken, Repair::Service, detail, now));
    }
    let pending = [vitals.rows.and_then(|rows| rows.is_pending), vitals.is_retirement_pending];
    if pending.contains(&Some(true)) {
        let detail = "memory waits for a reset to be replaced";
        let wants = Grade::DrainAfterJob;
        said.findings.push(Finding::new(Kind::RowsPending, wants, Repair::Reset, detail, now));
    } else {
        said.is_settled = pending.contains(&Some(false));
    }
}

/// Whether a counter grew by more than a limit per time. A counter that went down belongs to a driver that was loaded
/// again, and is a new base.
pub(crate) fn has_grown(
    base: &mut Option<Count>,
    now: Timestamp,
    value: u64,
    per_ms: u64,
    limit: u64,
) -> bool {
    let Some(before) = base.filter(|before| before.value <= value) else {
        *base = Some(Count { at: now, value });
        return false;
    };
    let (more, span) = (value - before.value, now.since(before.at));
    let allowed = u128::from(limit) * u128::from(span.max(per_ms));
    let is_over = u128::from(more) * u128::from(per_ms) > allowed;
    if is_over || span >= per_ms {
        *base = Some(Count { at: now, value });
    }
    is_over
}
