//! Which part of a trace is read, and from what.

use std::str::FromStr;

use clap::{Args, ValueHint};
use phalanx_spec::quantity::parse_duration_ns;

use crate::command::CommandError;
use crate::command::values::{some_milli, whole};
use crate::trace::{Format, Selection, Trace, number};

/// How a trace is read, and the part of it that is kept.
#[derive(Debug, Args)]
pub(in crate::command) struct Part {
    /// Format of the trace [default: recognised]
    #[arg(long, value_enum, value_name = "NAME")]
    pub(super) format: Option<Format>,
    /// Table of jobs beside PAI's table of tasks
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) jobs: Option<String>,
    /// Jobs submitted from this time: since the start (3d, 12h) or a date (2017-10-01, UTC)
    #[arg(long, value_name = "TIME")]
    from: Option<When>,
    /// Jobs submitted before this time
    #[arg(long, value_name = "TIME")]
    until: Option<When>,
    /// Jobs of this user; repeat it for more
    #[arg(long = "user", value_name = "NAME")]
    users: Vec<String>,
    /// Jobs of this queue or virtual cluster; repeat it for more
    #[arg(long = "queue", value_name = "NAME")]
    queue_names: Vec<String>,
    /// Jobs with A to B GPUs; `A-` has no upper end
    #[arg(long, value_name = "A-B", value_parser = range)]
    gpus: Option<(u32, Option<u32>)>,
    /// GPUs of a job at most: larger jobs get this many
    #[arg(long, value_name = "N")]
    cap: Option<u32>,
    /// The first N of the jobs that are left
    #[arg(long, value_name = "N")]
    first: Option<usize>,
    /// Divide the gaps between submissions by X: 1.5, 0.5
    #[arg(long, value_name = "X", default_value = "1", value_parser = some_milli)]
    load: u32,
    /// Count processors as GPUs (SWF)
    #[arg(long)]
    cpus_as_gpus: bool,
}

impl Part {
    /// With the dates of this trace.
    ///
    /// # Errors
    /// If an option is a date and the trace has none.
    pub(super) fn of(&self, trace: &Trace) -> Result<Selection, CommandError> {
        let ms = |option: &str, when: Option<When>| {
            let wrong = |error| CommandError::Usage(format!("{option}: {error}"));
            when.map(|when| when.since_start_ms(trace).map_err(wrong)).transpose()
        };
        let (gpus_min, gpus_max) = self.gpus.unwrap_or((0, None));
        Ok(Selection {
            from_ms: ms("--from", self.from)?.unwrap_or(0),
            until_ms: ms("--until", self.until)?,
            users: self.users.clone(),
            queues: self.queue_names.clone(),
            gpus_min,
            gpus_max,
            gpus_cap: self.cap,
            first: self.first,
            load_milli: self.load,
            cpus_are_gpus: self.cpus_as_gpus,
        })
    }
}

/// A time in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    SinceStart { ms: u64 },
    Date { unix_ms: u64 },
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if matches!(text, "0" | "start") {
            return Ok(Self::SinceStart { ms: 0 });
        }
        if let Ok(ns) = parse_duration_ns(text) {
            return Ok(Self::SinceStart { ms: ns / 1_000_000 });
        }
        let date = number::date(text).map(|unix_ms| Self::Date { unix_ms });
        date.map_err(|_| {
            "expected a time since the start such as 3d, or a date such as 2017-10-01".to_owned()
        })
    }
}

impl When {
    fn since_start_ms(self, trace: &Trace) -> Result<u64, String> {
        match self {
            Self::SinceStart { ms } => Ok(ms),
            Self::Date { unix_ms } => {
                let start = trace
                    .start_unix_ms
                    .ok_or("the trace has no dates; give a time since its start, such as 3d")?;
                Ok(unix_ms.saturating_sub(start))
            }
        }
    }
}

/// `8`, `1-8`, `8-`.
fn range(text: &str) -> Result<(u32, Option<u32>), String> {
    let (least, most) = match text.split_once('-') {
        None => (whole(text)?, Some(whole(text)?)),
        Some((least, "")) => (whole(least)?, None),
        Some((least, most)) => (whole(least)?, Some(whole(most)?)),
    };
    if most.is_some_and(|most| most < least) {
        return Err("expected A-B with A of at most B".to_owned());
    }
    Ok((least, most))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        part: Part,
    }

    #[test]
    fn a_part_is_read_as_it_is_typed() {
        let words = "trace --from 1970-01-03 --until 2d --gpus 8- --load 1.5 --user ann";
        let part = Line::parse_from(words.split(' ')).part;
        let trace = Trace { start_unix_ms: Some(86_400_000), ..Trace::default() };
        let expected = Selection {
            from_ms: 86_400_000,
            until_ms: Some(172_800_000),
            gpus_min: 8,
            load_milli: 1_500,
            users: vec!["ann".to_owned()],
            ..Selection::default()
        };
        assert_eq!(part.of(&trace), Ok(expected));
        let undated = part.of(&Trace::default()).unwrap_err().to_string();
        assert_eq!(undated, "--from: the trace has no dates; give a time since its start, such as 3d");
        assert_eq!(Line::parse_from(["trace"]).part.of(&trace), Ok(Selection::default()));
    }
}
