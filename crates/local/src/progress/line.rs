//! The line that a rank writes to report its progress, such as `step=1200 of=10000 work=412ms saved=5.2s`.

use phalanx_spec::quantity::parse_duration_ns;

use crate::rank_file;

/// The progress of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) step: u64,
    /// Steps of the whole job.
    pub(super) of: Option<u64>,
    /// Its own work for one step, without the time in which it waits for others, in microseconds.
    pub(super) work_us: Option<u64>,
    /// How long its last checkpoint took to write, in milliseconds.
    pub(super) saved_ms: Option<u64>,
}

impl Line {
    /// Parses the last whole line that is not blank. `None` if there is none, for example while the rank writes the file.
    ///
    /// # Errors
    /// If the line has no step, or a value that cannot be parsed.
    pub(super) fn last(text: &str) -> Result<Option<Self>, String> {
        let Some(line) = rank_file::last_line(text) else { return Ok(None) };
        Self::read(line).map(Some).map_err(|why| rank_file::unread(&why, line))
    }

    /// Ignores unknown words.
    fn read(line: &str) -> Result<Self, String> {
        let (mut step, mut of, mut work_us, mut saved_ms) = (None, None, None, None);
        for (key, value) in rank_file::words(line) {
            let number = || value.parse::<u64>().map_err(|_| format!("{key} is no whole number"));
            let ns = || parse_duration_ns(value).map_err(|error| format!("{key}: {error}"));
            match key {
                "step" => step = Some(number()?),
                "of" => of = Some(number()?),
                "work" => work_us = Some(ns()? / 1_000),
                "saved" => saved_ms = Some(ns()? / 1_000_000),
                _ => {}
            }
        }
        let step = step.ok_or("it has no step=NUMBER")?;
        Ok(Self { step, of, work_us, saved_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_counts() {
        let at = |step| Line { step, of: None, work_us: None, saved_ms: None };
        let whole = Line { of: Some(90), work_us: Some(412_500), saved_ms: Some(5_200), ..at(7) };
        for (text, read) in [
            ("", None),
            ("step=1", None),
            ("\n", None),
            ("step=1\n", Some(at(1))),
            ("step=1\nstep=2\nste", Some(at(2))),
            ("step=1\nstep=2\n\n \n", Some(at(2))),
            ("loss=0.3 step=7 of=90 work=412.5ms saved=5.2s\r\n", Some(whole)),
            ("�ep=1\nstep=3\n", Some(at(3))),
        ] {
            assert_eq!(Line::last(text), Ok(read), "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, why) in [
            ("epoch 7\n", "it has no step=NUMBER: \"epoch 7\""),
            ("step=-1\n", "step is no whole number: \"step=-1\""),
            ("step=1 of=1e9\n", "of is no whole number: \"step=1 of=1e9\""),
            ("step=1 work=0.4\n", "work: "),
            ("step=1 saved=99999999999999999999s\n", "saved: "),
        ] {
            let error = Line::last(text).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        assert!(Line::last(&("x".repeat(100_000) + "\n")).unwrap_err().len() < 150);
    }
}
