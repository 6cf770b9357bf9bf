//! Text for a terminal: times, columns, and sentences that wrap.

use std::str::FromStr;

use jiff::tz::TimeZone;
use phalanx_model::Timestamp;

/// Spaces between columns.
const GAP: usize = 2;
/// No column is made narrower than this.
const WIDTH_MIN: usize = 14;

/// Where text goes: so many columns, and clocks of that zone.
pub(super) struct Paper {
    /// None: nothing is wrapped.
    pub(super) width: Option<usize>,
    pub(super) zone: TimeZone,
}

/// A point in time as it is typed: with its offset from UTC, or as clocks here show it. A day is its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Exact(jiff::Timestamp),
    Local(jiff::civil::DateTime),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let local = || text.parse().map(Self::Local);
        let moment = text.parse().map(Self::Exact).or_else(|_| local());
        moment.map_err(|_: jiff::Error| {
            "expected a point in time such as 2026-11-20T14:03 or 2026-11-20T14:03Z".to_owned()
        })
    }
}

impl Paper {
    /// `2026-11-21 14:02:11`.
    pub(super) fn date(&self, at: Timestamp) -> String {
        self.format(at, "%F %T")
    }

    /// `14:02:11`.
    pub(super) fn clock(&self, at: Timestamp) -> String {
        self.format(at, "%T")
    }

    /// `2026-11-21`.
    pub(super) fn day(&self, at: Timestamp) -> String {
        self.format(at, "%F")
    }

    fn format(&self, at: Timestamp, how: &str) -> String {
        let time = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        time.map_or_else(|| "?".to_owned(), |t| t.to_zoned(self.zone.clone()).strftime(how).to_string())
    }

    /// The time of a moment, in the zone of this paper if the moment has no offset.
    pub(super) fn time(&self, moment: Moment) -> Result<Timestamp, String> {
        let at = match moment {
            Moment::Exact(at) => Some(at),
            Moment::Local(at) => at.to_zoned(self.zone.clone()).ok().map(|at| at.timestamp()),
        };
        let ms = at.and_then(|at| u64::try_from(at.as_millisecond()).ok());
        ms.map(Timestamp).ok_or_else(|| "it is before 1970".to_owned())
    }

    /// Columns as wide as what stands in them, and narrower where the paper is: then cells wrap. A `>` before a heading
    /// aligns its column to the right.
    pub(super) fn table(&self, headings: &[&str], rows: &[Vec<String>]) -> String {
        let heading: Vec<String> =
            headings.iter().map(|heading| heading.trim_start_matches('>').to_owned()).collect();
        let is_headed = heading.iter().any(|heading| !heading.is_empty());
        let all = || is_headed.then_some(&heading).into_iter().chain(rows);
        let width_of = |row: &Vec<String>, at: usize| row.get(at).map_or(0, |cell| cell.chars().count());
        let widest = |at| all().map(|row| width_of(row, at)).max();
        let mut widths: Vec<usize> = (0..headings.len()).map(|at| widest(at).unwrap_or(0)).collect();
        if let Some(width) = self.width {
            fit(&mut widths, width);
        }
        let mut out = String::new();
        for row in all() {
            let cells: Vec<Vec<String>> =
                row.iter().zip(&widths).map(|(cell, width)| wrapped(cell, *width)).collect();
            for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let mut text = String::new();
                for ((lines, width), heading) in cells.iter().zip(&widths).zip(headings) {
                    let cell = lines.get(line).map_or("", String::as_str);
                    let is_right = heading.starts_with('>');
                    text += &if is_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
                    text += &" ".repeat(GAP);
                }
                out += text.trim_end();
                out.push('\n');
            }
        }
        out
    }

    /// A text behind what leads to it, its further lines below its first.
    pub(super) fn hang(&self, lead: &str, text: &str) -> String {
        self.table(&["", ""], &[vec![lead.to_owned(), text.to_owned()]])
    }
}

/// Takes from the widest columns until all of them fit, or none is wide.
fn fit(widths: &mut [usize], width: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > WIDTH_MIN) else { return };
        *widest -= 1;
    }
}

/// Lines of whole words; a word that is longer stands alone.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines.push(line);
    lines
}

/// About how long: the two largest units, `2h10m`.
pub(super) fn about(ms: u64) -> String {
    let s = ms / 1_000;
    let (days, hours, minutes) = (s / 86_400, s / 3_600 % 24, s / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{s}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, 0) => format!("{hours}h"),
        (0, ..) => format!("{hours}h{minutes:02}m"),
        (_, 0, _) => format!("{days}d"),
        _ => format!("{days}d{hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_in_the_zone_of_the_reader() {
        let paper = Paper { width: None, zone: TimeZone::fixed(jiff::tz::offset(1)) };
        for (text, ms) in [
            ("1970-01-02T00:00Z", 86_400_000),
            ("1970-01-02T01:00", 86_400_000),
            ("1970-01-02 01:00:05", 86_405_000),
            ("1970-01-02", 82_800_000),
            ("1970-01-02T00:00+02:00", 79_200_000),
        ] {
            assert_eq!(text.parse().and_then(|moment| paper.time(moment)), Ok(Timestamp(ms)), "{text}");
        }
        for text in ["", "14:03", "tomorrow", "1969-01-01"] {
            assert!(text.parse().and_then(|moment| paper.time(moment)).is_err(), "{text}");
        }
        assert_eq!(paper.date(Timestamp(86_405_000)), "1970-01-02 01:00:05");
    }

    #[test]
    fn what_is_too_wide_wraps_inside_its_column() {
        let paper = Paper { width: Some(34), zone: TimeZone::UTC };
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["7", "big", "one two three four five six seven"]), row(["12", "x", "y"])];
        let expected = "\
JOB  NAME  WHY
  7  big   one two three four five
           six seven
 12  x     y
";
        assert_eq!(paper.table(&[">JOB", "NAME", "WHY"], &rows), expected);
    }
}
