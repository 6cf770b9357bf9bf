//! How long a gang waits for a nearer place than one where it could start: our annotation, in the words of job files.

use std::fmt;

use phalanx_model::Topology;
use phalanx_spec::Scalar;
use phalanx_spec::scalar::{Span, Wait};

/// What the annotation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyWait {
    /// It starts in any place that is free.
    Anywhere,
    /// It starts at the nearest place, or not at all.
    Nearest,
    /// It waits so long, or as long as that is worth.
    Wait(Wait),
}

impl TopologyWait {
    pub(super) const ACCEPTED: &'static str = "anywhere, nearest, a time like 10m, priced, or priced:2";

    /// Reads the annotation.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        match text {
            "anywhere" | "0s" => Ok(Self::Anywhere),
            "nearest" => Ok(Self::Nearest),
            _ => Wait::read(text).map(Self::Wait),
        }
    }

    /// What a gang's rules say; `None` if the queue or the cluster decides.
    #[must_use]
    pub fn of(topology: &Topology) -> Option<Self> {
        match (topology.price_milli, topology.wait_ms) {
            (Some(Topology::ANYWHERE), _) => Some(Self::Anywhere),
            (Some(milli), _) => Some(Self::Wait(Wait::Priced(milli))),
            (None, Topology::FOREVER_MS) => Some(Self::Nearest),
            (None, 0) => None,
            (None, ms) => Some(Self::Wait(Wait::For(Span(ms.saturating_mul(1_000_000))))),
        }
    }

    /// The rules of a gang with this wait.
    pub(crate) fn in_rules(self, topology: Topology) -> Topology {
        let (wait_ms, price_milli) = match self {
            Self::Anywhere => (0, Some(Topology::ANYWHERE)),
            Self::Nearest => (Topology::FOREVER_MS, None),
            Self::Wait(Wait::For(span)) => (span.millis(), None),
            Self::Wait(Wait::Priced(milli)) => (0, Some(milli)),
        };
        Topology { wait_ms, price_milli, ..topology }
    }
}

impl fmt::Display for TopologyWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anywhere => f.write_str("anywhere"),
            Self::Nearest => f.write_str("nearest"),
            Self::Wait(wait) => f.write_str(&wait.write()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_is_read_as_it_is_written() {
        for text in ["anywhere", "nearest", "10m", "1h30m", "priced", "priced:2", "priced:0.5"] {
            let wait = TopologyWait::read(text).unwrap();
            assert_eq!(wait.to_string(), text);
            assert_eq!(TopologyWait::of(&wait.in_rules(Topology::default())), Some(wait), "{text}");
        }
        assert_eq!(TopologyWait::read("0s"), Ok(TopologyWait::Anywhere));
        assert_eq!(TopologyWait::of(&Topology::default()), None);
        for text in ["", "soon", "priced:0", "priced:", "-1m", "10"] {
            assert!(TopologyWait::read(text).is_err(), "{text}");
        }
    }
}
