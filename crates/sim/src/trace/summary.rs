//! What a trace holds, in a few numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use serde::Serialize;

use super::{Trace, TraceJob};

/// A trace in a few numbers. All are integers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub jobs: u64,
    /// Rows that could not be read.
    pub bad_rows: u64,
    /// Date of the first submission, in milliseconds since 1970, where the trace has dates.
    pub first_unix_ms: Option<u64>,
    /// From the first submission to the last.
    pub span_ms: u64,
    /// Devices times run, of jobs whose run is known; none where no run is.
    pub gpu_seconds: Option<u64>,
    /// GPU time over span, in thousandths of a device: what all jobs together need on the average if none waits.
    pub mean_load_milli_gpus: Option<u64>,
    /// Jobs by number of devices.
    pub gpus: BTreeMap<u32, u64>,
    /// Jobs that take parts of devices.
    pub shared: u64,
    /// Of jobs whose run is known.
    pub run: Option<Spread>,
    /// Of jobs whose wait is known.
    pub waited: Option<Spread>,
    /// Jobs of which it is not known how long they ran.
    pub without_run: u64,
    pub users: u64,
    pub queues: u64,
    /// Columns that were drawn at random by whoever published the file.
    pub generated: Vec<String>,
}

/// A distribution of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spread {
    pub mean_ms: u64,
    /// By nearest rank.
    pub p50_ms: u64,
    pub p99_ms: u64,
    pub max_ms: u64,
}

impl Spread {
    /// None where there is no time.
    #[must_use]
    pub fn of(mut times: Vec<u64>) -> Option<Self> {
        times.sort_unstable();
        let max_ms = *times.last()?;
        let sum: u128 = times.iter().copied().map(u128::from).sum();
        let rank = |percent: usize| {
            let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
            times.get(at).copied().unwrap_or(max_ms)
        };
        let mean_ms = u64::try_from(sum / times.len() as u128).unwrap_or(max_ms);
        Some(Self { mean_ms, p50_ms: rank(50), p99_ms: rank(99), max_ms })
    }
}

impl Trace {
    #[must_use]
    pub fn summary(&self) -> Summary {
        let jobs = || self.jobs.iter();
        let first_ms = jobs().next().map_or(0, |job| job.submit_ms);
        let span_ms = jobs().next_back().map_or(0, |job| job.submit_ms) - first_ms;
        let mut gpus = BTreeMap::new();
        jobs().for_each(|job| *gpus.entry(job.gpus).or_insert(0) += 1);
        let names =
            |name: fn(&TraceJob) -> Option<&String>| jobs().filter_map(name).collect::<BTreeSet<_>>().len();
        let fits = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        let run = Spread::of(jobs().filter_map(|job| job.run_ms).collect());
        let gpu_time = run.map(|_| jobs().map(TraceJob::gpu_time).sum::<u128>());
        Summary {
            jobs: self.jobs.len() as u64,
            bad_rows: self.bad.len() as u64,
            first_unix_ms: self.start_unix_ms.map(|start| start + first_ms),
            span_ms,
            // Thousandths of a device times milliseconds.
            gpu_seconds: gpu_time.map(|time| fits(time / 1_000_000)),
            mean_load_milli_gpus: gpu_time.and_then(|time| time.checked_div(u128::from(span_ms))).map(fits),
            gpus,
            shared: jobs().filter(|job| job.gpu_milli < 1_000).count() as u64,
            run,
            waited: Spread::of(jobs().filter_map(|job| job.waited_ms).collect()),
            without_run: jobs().filter(|job| job.run_ms.is_none()).count() as u64,
            users: names(|job| job.user.as_ref()) as u64,
            queues: names(|job| job.queue.as_ref()) as u64,
            generated: self.generated.iter().map(|column| (*column).to_owned()).collect(),
        }
    }
}

/// Two columns: what, and how much.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: &str| writeln!(f, "{name:<16}{value}");
        line("jobs", &grouped(self.jobs))?;
        line("bad rows", &grouped(self.bad_rows))?;
        let span = span(self.span_ms);
        match self.first_unix_ms.and_then(dated) {
            Some(first) => line("submitted", &format!("over {span}, from {first}"))?,
            None => line("submitted", &format!("over {span}"))?,
        }
        if let Some(seconds) = self.gpu_seconds {
            line("GPU-hours", &grouped(seconds / 3_600))?;
        }
        if let Some(load) = self.mean_load_milli_gpus {
            line("mean load", &format!("{}.{} GPUs", grouped(load / 1_000), load / 100 % 10))?;
        }
        for (name, spread) in [("run", self.run), ("waited", self.waited)] {
            if let Some(spread) = spread {
                line(name, &spread.to_string())?;
            }
        }
        let rare = [
            ("run unknown", self.without_run),
            ("parts of a GPU", self.shared),
            ("users", self.users),
            ("queues", self.queues),
        ];
        for (name, count) in rare.into_iter().filter(|(_, count)| *count > 0) {
            line(name, &grouped(count))?;
        }
        if !self.generated.is_empty() {
            line("not measured", &format!("{} (drawn by the publisher)", self.generated.join(", ")))?;
        }
        writeln!(f, "{:<16}{:>10}{:>9}", "GPUs", "jobs", "share")?;
        for (gpus, jobs) in &self.gpus {
            // In tenths of a percent.
            let share = jobs * 1_000 / self.jobs.max(1);
            writeln!(f, "{gpus:>14}  {:>10}{:>5}.{} %", grouped(*jobs), share / 10, share % 10)?;
        }
        Ok(())
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean_ms, p50_ms, p99_ms, max_ms } = *self;
        let [mean, p50, p99, max] = [mean_ms, p50_ms, p99_ms, max_ms].map(span);
        write!(f, "mean {mean}, p50 {p50}, p99 {p99}, max {max}")
    }
}

/// Two units at most: `3 d 4 h`, `5 min 6 s`, `7.8 s`.
fn span(ms: u64) -> String {
    let (s, min, h, d) = (ms / 1_000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    match (d, h, min) {
        (0, 0, 0) => format!("{s}.{} s", ms / 100 % 10),
        (0, 0, _) => format!("{min} min {} s", s % 60),
        (0, _, _) => format!("{h} h {} min", min % 60),
        _ => format!("{} d {} h", grouped(d), h % 24),
    }
}

/// Thousands set apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Day and minute, UTC.
fn dated(unix_ms: u64) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(unix_ms).ok()?).ok()?;
    let at = at.to_zoned(jiff::tz::TimeZone::UTC).datetime();
    let (date, time) = (at.date(), at.time());
    let mut out = date.to_string();
    write!(out, " {:02}:{:02} UTC", time.hour(), time.minute()).ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_reads_as_a_table() {
        let job = |(id, at, gpus, run_ms): (&str, u64, u32, Option<u64>)| TraceJob {
            user: Some("ann".to_owned()),
            run_ms,
            ..TraceJob::new(id.to_owned(), at, gpus)
        };
        let rows = [
            ("a", 0, 1, Some(7_200_000)),
            ("b", 60_000, 8, Some(90_061_000)),
            ("c", 7_200_000, 8, Some(500)),
            ("d", 7_200_000, 0, None),
        ];
        let jobs: Vec<TraceJob> = rows.into_iter().map(job).collect();
        let half = TraceJob {
            gpu_milli: 500,
            run_ms: Some(3_600_000),
            ..TraceJob::new("e".to_owned(), 7_200_000, 1)
        };
        let jobs = jobs.into_iter().chain([half]).collect();
        let trace = Trace {
            jobs,
            start_unix_ms: Some(1_506_988_860_000),
            generated: &["deadline"],
            ..Trace::default()
        };
        let expected = "\
jobs            5
bad rows        0
submitted       over 2 h 0 min, from 2017-10-03 00:01 UTC
GPU-hours       202
mean load       101.3 GPUs
run             mean 7 h 0 min, p50 1 h 0 min, p99 1 d 1 h, max 1 d 1 h
run unknown     1
parts of a GPU  1
users           1
not measured    deadline (drawn by the publisher)
GPUs                  jobs    share
             0           1   20.0 %
             1           2   40.0 %
             8           2   40.0 %
";
        assert_eq!(trace.summary().to_string(), expected);
        let summary = Trace::default().summary();
        assert_eq!((summary.run, summary.gpu_seconds, summary.mean_load_milli_gpus), (None, None, None));
    }

    #[test]
    fn times_have_two_units() {
        let shown = [999, 61_000, 3_660_000, 90_000_000, 86_400_000_000].map(span);
        assert_eq!(shown, ["0.9 s", "1 min 1 s", "1 h 1 min", "1 d 1 h", "1,000 d 0 h"]);
    }
}
