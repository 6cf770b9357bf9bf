//! Evidence, and what is kept of it.

use phalanx_model::{Grade, PortVitals, Timestamp, Vitals};
use serde::{Deserialize, Serialize};

use crate::Repair;

/// Characters of a text that is kept.
const TEXT_MAX: usize = 200;
/// Evidence that is kept for one device.
const SEEN_MAX: usize = 16;

/// What was observed of a device or a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// An Xid, and its text in the kernel log.
    Xid { number: u32, text: String },
    /// One sample of a device.
    Vitals(Box<Vitals>),
    /// One sample of the network ports of a node: evidence of the node itself.
    Ports(Vec<PortVitals>),
    /// A person says so, or a tool with the rights of an operator. It closes without regard to the circuit breaker and
    /// stays until [`crate::Grader::clear`].
    Report { grade: Grade, by: String, text: String },
    /// A person, or a tool with the rights of an operator, measured the bandwidth of the node's network, in thousandths of the
    /// nominal one.
    Bandwidth { permille: u16, by: String, text: String },
    /// A check before a start: why it did not pass, or `None`.
    Preflight { failure: Option<String> },
}

/// Evidence as people read it. Equal evidence is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Seen {
    /// The last time.
    pub at: Timestamp,
    pub what: String,
    pub times: u32,
}

/// Adds evidence to a list, newest first.
pub(crate) fn note(list: &mut Vec<Seen>, at: Timestamp, what: &str) {
    let known = list.iter().position(|seen| seen.what == what);
    let times = known.map_or(0, |index| list.remove(index).times);
    list.insert(0, Seen { at, what: what.to_owned(), times: times.saturating_add(1) });
    list.truncate(SEEN_MAX);
}

/// The text of others as it may be shown: bounded, in one line, without control characters and changes of the writing
/// direction.
pub(crate) fn clean(text: &str) -> String {
    let is_bad =
        |c: char| matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let kept = text.chars().map(|c| if c.is_control() { ' ' } else { c }).filter(|c| !is_bad(*c));
    kept.take(TEXT_MAX).collect::<String>().trim().to_owned()
}

/// Where a finding comes from. A device has one of each at most. If several ask for the same grade, the first is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Report,
    Lost,
    Preflight,
    RowsFailed,
    TooOften,
    Xid(u32),
    UnknownXid,
    RowsPending,
    LinkDown,
    PortDown,
    PortSlow,
    Lemon,
    Ecc,
    LinkErrors,
    PortErrors,
    PortFlaps,
    Replays,
    Throttle,
}

impl Kind {
    /// Whether the circuit breaker lets it pass: people know what they do, and a lost device does no work in any case.
    pub(crate) const fn is_exempt(self) -> bool {
        matches!(self, Self::Report | Self::Lost)
    }

    /// Whether it lasts as long as samples show it, and needs no operator and no free node to end.
    pub(crate) const fn is_of_port(self) -> bool {
        matches!(self, Self::PortDown | Self::PortSlow)
    }
}

/// Evidence that asks for a grade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    pub(crate) wants: Grade,
    /// [`Repair::None`] unless it closes.
    pub(crate) repair: Repair,
    pub(crate) detail: String,
    pub(crate) last_at: Timestamp,
    /// The node of a lost device booted again; the device has not answered yet.
    #[serde(default)]
    pub(crate) is_rebooted: bool,
}

impl Finding {
    pub(crate) fn new(kind: Kind, wants: Grade, repair: Repair, detail: &str, at: Timestamp) -> Self {
        let repair = if wants.is_closed() { repair } else { Repair::None };
        Self { kind, wants, repair, detail: clean(detail), last_at: at, is_rebooted: false }
    }
}

/// A time as people say it: `24 h`, `30 days`.
pub(crate) fn span(ms: u64) -> String {
    const HOUR_MS: u64 = 60 * crate::MINUTE_MS;
    match ms {
        _ if ms >= 48 * HOUR_MS => format!("{} days", ms / (24 * HOUR_MS)),
        _ if ms >= HOUR_MS => format!("{} h", ms / HOUR_MS),
        _ => format!("{} min", ms / crate::MINUTE_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_bounded_and_equal_evidence_is_counted() {
        let mut list = Vec::new();
        for at in 0..100 {
            note(&mut list, Timestamp(at), &format!("Xid {}", at % 20));
        }
        assert_eq!(list.len(), SEEN_MAX);
        note(&mut list, Timestamp(100), "Xid 19");
        assert_eq!(list[0], Seen { at: Timestamp(100), what: "Xid 19".to_owned(), times: 2 });
        assert_eq!(list.len(), SEEN_MAX);
    }

    #[test]
    fn texts_are_bounded_and_plain() {
        assert_eq!(clean("a\u{1b}[31m\nb\u{202e}c "), "a [31m bc");
        assert_eq!(clean(&"ä".repeat(1_000)).chars().count(), TEXT_MAX);
    }
}
