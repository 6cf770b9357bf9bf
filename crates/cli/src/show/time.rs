//! Times as people read them.

use phalanx_model::Timestamp;

use super::Page;

/// The two largest units: `3m 12s`, `2d 4h`; below a second `0s`.
pub(crate) fn span(ms: u64) -> String {
    let s = ms / 1000;
    let (days, hours, minutes, seconds) = (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {seconds:02}s"),
        (0, ..) => format!("{hours}h {minutes:02}m"),
        _ => format!("{days}d {hours:02}h"),
    }
}

/// Microseconds in the unit that leaves one to three digits before the point: `12.4 ms`.
pub(crate) fn micros(us: u64) -> String {
    let (unit, size) = match us {
        0..1_000 => return format!("{us} us"),
        1_000..1_000_000 => ("ms", 1_000),
        _ => ("s", 1_000_000),
    };
    let tenths = (u128::from(us) * 10 + size / 2) / size;
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

impl Page {
    /// `3m 12s ago`.
    pub(crate) fn ago(&self, at: Timestamp) -> String {
        format!("{} ago", span(self.now.since(at)))
    }

    /// `in 3m 12s`, or `now`.
    pub(crate) fn ahead(&self, at: Timestamp) -> String {
        match at.since(self.now) {
            0 => "now".to_owned(),
            ms => format!("in {}", span(ms)),
        }
    }

    /// `2026-11-21 14:02:11`, in the time zone of the reader.
    pub(crate) fn date(&self, at: Timestamp) -> String {
        self.format(at, "%F %T")
    }

    /// `14:02:11`, or with the day where that is another one.
    pub(crate) fn clock(&self, at: Timestamp) -> String {
        let is_today = self.format(at, "%F") == self.format(self.now, "%F");
        self.format(at, if is_today { "%T" } else { "%F %T" })
    }

    fn format(&self, at: Timestamp, how: &str) -> String {
        let time = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        time.map_or_else(|| "?".to_owned(), |t| t.to_zoned(self.tz.clone()).strftime(how).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        let spans = [0, 999, 59_000, 60_000, 192_000, 3_600_000, 86_399_000, 187_200_000, u64::MAX];
        let shown: Vec<String> = spans.into_iter().map(span).collect();
        let expected =
            ["0s", "0s", "59s", "1m 00s", "3m 12s", "1h 00m", "23h 59m", "2d 04h", "213503982334d 14h"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn small_times_are_rounded_to_tenths() {
        let shown: Vec<String> =
            [0, 999, 1_000, 12_351, 999_999, 2_500_000].into_iter().map(micros).collect();
        assert_eq!(shown, ["0 us", "999 us", "1.0 ms", "12.4 ms", "1000.0 ms", "2.5 s"]);
    }
}
