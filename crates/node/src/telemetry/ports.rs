//! What is served of each sample of a network port.

use std::collections::BTreeSet;

use phalanx_model::PortVitals;

pub use phalanx_discover::sysfs::ports::{PORTS_MAX, PortSample, Ports};

/// Notes that are remembered as logged.
const NOTES_MAX: usize = 256;

/// A value of a sample, in the unit of its metric.
pub type PortValue = fn(&PortVitals) -> Option<f64>;

/// The name of each metric, its help and its value. A port that does not give a value has no series.
pub const PORT_METRICS: [(&str, &str, PortValue); 11] = [
    ("port_up", "1 where the port carries traffic, 0 where it is down or its adapter is gone", |port| {
        Some(f64::from(u8::from(port.state.is_up())))
    }),
    ("port_rate_bytes_per_second", "Rate that the link has now, one way", |port| number(port.bytes_per_s)),
    ("port_received_bytes", "Bytes received since the counters of the port began", |port| {
        number(port.received_bytes)
    }),
    ("port_sent_bytes", "Bytes sent since then", |port| number(port.sent_bytes)),
    ("port_link_downed", "How often the link went down since then", |port| number(port.downed)),
    ("port_link_recoveries", "How often the link recovered by training again since then", |port| {
        number(port.recoveries)
    }),
    ("port_symbol_errors", "Errors of the physical link since then", |port| number(port.symbol_errors)),
    ("port_receive_errors", "Received packets with errors since then", |port| number(port.receive_errors)),
    ("port_send_discards", "Packets that were not sent since then", |port| number(port.send_discards)),
    (
        "port_send_wait_ticks",
        "Ticks since then in which the other end had no room for what was to be sent",
        |port| number(port.send_wait_ticks),
    ),
    (
        "port_congestion_notices",
        "How often the adapter slowed down since then because a switch was congested",
        |port| number(port.congestion_notices),
    ),
];

fn number(value: Option<u64>) -> Option<f64> {
    value.map(super::number)
}

/// Notes that were logged, so that each is logged once.
#[derive(Clone, Debug, Default)]
pub struct Noted(BTreeSet<String>);

impl Noted {
    /// Those of the notes that are new.
    pub fn fresh<'a>(&mut self, notes: &'a BTreeSet<String>) -> Vec<&'a str> {
        if self.0.len() > NOTES_MAX {
            self.0.clear();
        }
        notes.iter().filter(|note| self.0.insert((*note).clone())).map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_new_once() {
        let mut noted = Noted::default();
        let notes = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(noted.fresh(&notes), ["a", "b"]);
        assert!(noted.fresh(&notes).is_empty());
        let many: BTreeSet<String> = (0..10_000).map(|note| note.to_string()).collect();
        noted.fresh(&many);
        assert_eq!(noted.fresh(&notes), ["a", "b"], "what is remembered is bounded");
    }

    #[test]
    fn a_port_without_counters_has_the_series_of_its_state_alone() {
        let port = PortVitals::default();
        let series: Vec<&str> = PORT_METRICS
            .iter()
            .filter(|(_, _, value)| value(&port).is_some())
            .map(|(name, ..)| *name)
            .collect();
        assert_eq!(series, ["port_up"]);
    }
}
