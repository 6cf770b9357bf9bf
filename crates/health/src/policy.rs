//! The thresholds.

use serde::{Deserialize, Serialize};

use crate::MINUTE_MS;

const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Incidents, drains and samples are remembered by their number; no threshold may need more than these.
pub(crate) const TIMES_MAX: usize = 8;
pub(crate) const JOBS_MAX: usize = 64;

/// When evidence changes a grade, and how a device comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// A suspect is ok again after this time without evidence. 1 h: a few times the interval of any check.
    pub suspect_ms: u64,
    /// A drained device that needs no repair comes back when it has been free of gangs and evidence for this time.
    /// 10 min: leftovers of a stopped job report for some minutes.
    pub settle_ms: u64,
    /// A device that comes back is watched for this time. 24 h: most faults that a reset did not cure come back within a
    /// day.
    pub probation_ms: u64,
    /// Lines of one incident come together (an NVLink error on each of 18 links) and count once.
    pub burst_ms: u64,
    /// Within this time, an Xid that `needs` to come more than once has to come. 1 h.
    pub needs_window_ms: u64,
    /// A watched Xid with a repair drains at this many incidents ...
    pub repeats: u32,
    /// ... within this time.
    pub repeat_window_ms: u64,
    /// A device is a lemon if this many more different jobs failed there, and nowhere else, than `lemon_ratio` times the
    /// average of the other devices ...
    pub lemon_jobs: u32,
    /// ... within this time. 5 and 7 days: Meta removed lemon nodes by job failures over weeks (RSC, 2024).
    pub lemon_window_ms: u64,
    /// How many times the average failures of other devices are still put down to chance and to workloads.
    pub lemon_ratio: u32,
    /// A device that comes back for this time is broken instead ...
    pub drains: u32,
    /// ... if it was drained so often within this time. 3 in 30 days: a third repair by reset does not cure it either.
    pub drain_window_ms: u64,
    /// Automation closes at most this share of all devices. 20 %: several times the hot spares of a large cluster (0.9
    /// to 2.9 %); more at once is an error of the driver, the network or this table.
    pub max_share_percent: u32,
    /// In a small cluster automation may close so many, though no more than half, and one in any case, unless this and
    /// the share are 0. 8: the devices of one usual node.
    pub small_devices: u32,
    /// A measured bandwidth counts less and less, and for nothing after this time. 1 h: congestion by others lasts for minutes to
    /// hours, and a lasting fault is measured again. A choice. 0: no measurement counts.
    pub bandwidth_decay_ms: u64,
    /// The path of a port is crowded if it gets more notices of congestion (RoCE) than this while it sends little. 1,000: one
    /// flow gets up to 20,000, one every 50 µs (the usual interval of an adapter). A choice.
    pub port_notices_per_s: u64,
    /// A device is lost after this many samples in a row. 2: one sample may fall into a reset.
    pub lost_samples: u32,
    /// A link is down after this many samples in a row.
    pub link_down_samples: u32,
    /// A network port is down, or at a lower rate than before, after this many samples in a row. 3, as for NVLinks: a link trains
    /// for some seconds. A choice.
    pub port_samples: u32,
    /// Such a port closes its node if its best rate was at least this. A slower one, and one of an unknown rate, makes the node
    /// suspect. 10 Gbit/s: slower networks are for management. A choice.
    pub port_closes_gbit: u64,
    /// More errors of one kind (of symbols, recoveries of the link, of received packets) make the node suspect. A choice: one
    /// per second is far above what a good cable has.
    pub port_errors_per_minute: u64,
    /// If a port goes down more often, its node is suspect. A choice: one restart of a switch is not more.
    pub port_flaps_per_hour: u64,
    /// More errors (packets sent again, recoveries, CRC errors) of one NVLink make the device suspect.
    pub link_errors_per_hour: u64,
    /// More make the device suspect. 8: `DCGM_LIMIT_MAX_PCIREPLAY_RATE`, where DCGM warns.
    pub pcie_replays_per_minute: u64,
    /// The device is suspect if the hardware lowers the clocks in most samples of this time.
    pub throttle_window_ms: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            suspect_ms: HOUR_MS,
            settle_ms: 10 * MINUTE_MS,
            probation_ms: DAY_MS,
            burst_ms: MINUTE_MS,
            needs_window_ms: HOUR_MS,
            repeats: 3,
            repeat_window_ms: DAY_MS,
            lemon_jobs: 5,
            lemon_window_ms: 7 * DAY_MS,
            lemon_ratio: 3,
            drains: 3,
            drain_window_ms: 30 * DAY_MS,
            max_share_percent: 20,
            small_devices: 8,
            bandwidth_decay_ms: HOUR_MS,
            port_notices_per_s: 1_000,
            lost_samples: 2,
            link_down_samples: 3,
            port_samples: 3,
            port_closes_gbit: 10,
            port_errors_per_minute: 60,
            port_flaps_per_hour: 2,
            link_errors_per_hour: 100,
            pcie_replays_per_minute: 8,
            throttle_window_ms: 10 * MINUTE_MS,
        }
    }
}

impl Policy {
    /// # Errors
    /// The first threshold that makes no sense.
    pub fn validate(&self) -> Result<(), String> {
        let counts = [
            ("repeats", self.repeats, 1, TIMES_MAX),
            ("lemon_jobs", self.lemon_jobs, 2, JOBS_MAX),
            ("lemon_ratio", self.lemon_ratio, 1, 100),
            ("drains", self.drains, 1, TIMES_MAX),
            ("max_share_percent", self.max_share_percent, 0, 100),
            ("lost_samples", self.lost_samples, 1, 100),
            ("link_down_samples", self.link_down_samples, 1, 100),
            ("port_samples", self.port_samples, 1, 100),
        ];
        for (name, value, least, most) in counts {
            let most = u32::try_from(most).unwrap_or(u32::MAX);
            if !(least..=most).contains(&value) {
                return Err(format!("{name}: expected {least} to {most}, and found {value}"));
            }
        }
        let spans = [
            ("suspect_ms", self.suspect_ms),
            ("probation_ms", self.probation_ms),
            ("needs_window_ms", self.needs_window_ms),
            ("repeat_window_ms", self.repeat_window_ms),
            ("lemon_window_ms", self.lemon_window_ms),
            ("drain_window_ms", self.drain_window_ms),
            ("throttle_window_ms", self.throttle_window_ms),
        ];
        match spans.into_iter().find(|(_, span)| *span == 0) {
            Some((name, _)) => Err(format!("{name}: expected at least 1 ms, and found 0")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_nonsense_is_refused() {
        assert_eq!(Policy::default().validate(), Ok(()));
        let bad = Policy { max_share_percent: 101, ..Policy::default() };
        assert_eq!(bad.validate(), Err("max_share_percent: expected 0 to 100, and found 101".to_owned()));
        let bad = Policy { suspect_ms: 0, ..Policy::default() };
        assert_eq!(bad.validate(), Err("suspect_ms: expected at least 1 ms, and found 0".to_owned()));
        let bad = Policy { repeats: 9, ..Policy::default() };
        assert_eq!(bad.validate(), Err("repeats: expected 1 to 8, and found 9".to_owned()));
    }

    #[test]
    fn fields_that_are_left_out_have_defaults_and_unknown_ones_are_errors() {
        let read = |text: &str| serde_json::from_str::<Policy>(text);
        let policy = read(r#"{"drains": 2}"#).unwrap();
        assert_eq!(policy, Policy { drains: 2, ..Policy::default() });
        assert!(read(r#"{"drain": 2}"#).unwrap_err().to_string().contains("unknown field `drain`"));
    }
}
