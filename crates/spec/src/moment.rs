//! Points in time as people write them.

use phalanx_model::Timestamp;
use schemars::{Schema, json_schema};

use crate::place::{Scalar, wrong};
use crate::scalar::Span;

/// A point in time: itself, or so long after the submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    At(Timestamp),
    In(Span),
}

impl Moment {
    #[must_use]
    pub const fn from(self, submitted_at: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::In(span) => submitted_at.plus(span.millis()),
        }
    }
}

impl Scalar for Moment {
    const ACCEPTED: &'static str = "a time with its offset from UTC, such as 2026-12-01T08:00Z or 2026-12-01T08:00+01:00, or +2h from now";

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(span) = text.strip_prefix('+') {
            return Span::read(span).map(Self::In);
        }
        let Ok(at) = text.parse::<jiff::Timestamp>() else {
            return Err(match (text.parse::<jiff::civil::DateTime>(), Span::read(text)) {
                (Ok(_), _) => wrong(text, "says no offset from UTC"),
                (_, Ok(_)) => wrong(text, format_args!("is no point in time; did you mean \"+{text}\"?")),
                _ => wrong(text, "is no point in time"),
            });
        };
        let ms = u64::try_from(at.as_millisecond()).map_err(|_| wrong(text, "is before 1970"))?;
        Ok(Self::At(Timestamp(ms)))
    }

    fn write(&self) -> String {
        match self {
            Self::In(span) => format!("+{}", span.write()),
            Self::At(at) => {
                let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
                jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX).to_string()
            }
        }
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "examples": ["2026-12-01T08:00Z", "2026-12-01T08:00+01:00", "+2h"] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_and_written() {
        let at = |text: &str| match Moment::read(text) {
            Ok(moment) => {
                assert_eq!(Moment::read(&moment.write()), Ok(moment), "{text}");
                moment.from(Timestamp(1_000)).0
            }
            Err(why) => panic!("{why}"),
        };
        assert_eq!(at("+2h"), 7_201_000);
        assert_eq!(at("+1h30m"), 5_401_000);
        assert_eq!(at("1970-01-02T00:00Z"), 86_400_000);
        assert_eq!(at("1970-01-02 01:00:00.5+01:00"), 86_400_500);
        for (text, why) in [
            ("2026-12-01T08:00", "offset"),
            ("2026-12-01", "offset"),
            ("2h", "\"+2h\""),
            ("tomorrow", "no point"),
            ("1969-12-31T23:00Z", "1970"),
            ("+0s", "zero"),
            ("+", "empty"),
            ("2026-13-01T08:00Z", "no point"),
            ("", "no point"),
        ] {
            let error = Moment::read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
