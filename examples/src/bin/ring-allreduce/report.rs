//! What rank 0 prints, by the conventions of nccl-tests.

use serde::Serialize;

use crate::settings::Settings;

/// At most about this many lines of steps.
const LINES: u64 = 20;
/// If the number of steps is not known, a line each so many steps.
const EVERY: u64 = 100;

/// Times of the steps; silent on all ranks but 0.
pub(crate) struct Table<'a> {
    settings: &'a Settings,
    resumed_from: u64,
    nanos: Vec<u64>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Summary {
    world_size: u32,
    bytes: u64,
    steps: u64,
    resumed_from: u64,
    steps_measured: u64,
    time_us_min: f64,
    time_us_avg: f64,
    time_us_max: f64,
    algbw_gb_s: f64,
    busbw_gb_s: f64,
    wrong: u64,
    stopped: bool,
}

impl<'a> Table<'a> {
    pub(crate) fn begin(settings: &'a Settings, resumed_from: u64) -> Self {
        let table = Self { settings, resumed_from, nanos: Vec::new() };
        if settings.rank == 0 {
            let Settings { bytes, world_size, steps, warmup, until, .. } = settings;
            let steps = until.as_ref().map_or_else(
                || format!("{steps} steps"),
                |file| format!("steps until {} exists", file.display()),
            );
            println!(
                "# ring all-reduce: {world_size} ranks, {bytes} B of float32 each, {steps}, {warmup} before"
            );
            println!(
                "# {:>10} {:>12} {:>14} {:>14} {:>6}",
                "step", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "wrong"
            );
        }
        table
    }

    /// A step that took this long on the slowest rank.
    pub(crate) fn step(&mut self, done: u64, nanos: u64) {
        self.nanos.push(nanos);
        let every = match &self.settings.until {
            Some(_) => EVERY,
            None => self.settings.steps.div_ceil(LINES).max(1),
        };
        if self.settings.rank == 0 && (done.is_multiple_of(every) || done == self.settings.last_step()) {
            print_row(&done.to_string(), &summary(self.settings, self.resumed_from, &[nanos], false));
        }
    }

    pub(crate) fn end(&self, stopped: bool) {
        if self.settings.rank != 0 {
            return;
        }
        let summary = summary(self.settings, self.resumed_from, &self.nanos, stopped);
        print_row("avg", &summary);
        match serde_json::to_string(&summary) {
            Ok(json) => println!("RESULT {json}"),
            Err(e) => eprintln!("rank 0: cannot write the result: {e}"),
        }
    }
}

fn print_row(step: &str, s: &Summary) {
    println!(
        "  {step:>10} {:>12.1} {:>14.3} {:>14.3} {:>6}",
        s.time_us_avg, s.algbw_gb_s, s.busbw_gb_s, s.wrong
    );
}

/// algbw is bytes over time; busbw is algbw·2(n−1)/n, what each link carries (nccl-tests, PERFORMANCE.md).
#[allow(clippy::cast_precision_loss, reason = "measured values, for people")]
fn summary(settings: &Settings, resumed_from: u64, nanos: &[u64], stopped: bool) -> Summary {
    let Settings { world_size, bytes, .. } = *settings;
    let measured = nanos.len() as u64;
    // The file of `--until` ends a run after the steps that are done.
    let steps = if settings.until.is_some() { resumed_from + measured } else { settings.steps };
    let average = nanos.iter().map(|n| *n as f64).sum::<f64>() / (nanos.len() as f64).max(1.0);
    // Bytes per nanosecond are GB per second.
    let algbw_gb_s = if average > 0.0 { bytes as f64 / average } else { 0.0 };
    let ranks = f64::from(world_size);
    Summary {
        world_size,
        bytes,
        steps,
        resumed_from,
        steps_measured: measured,
        time_us_min: nanos.iter().min().map_or(0.0, |n| *n as f64 / 1e3),
        time_us_avg: average / 1e3,
        time_us_max: nanos.iter().max().map_or(0.0, |n| *n as f64 / 1e3),
        algbw_gb_s,
        busbw_gb_s: algbw_gb_s * 2.0 * (ranks - 1.0) / ranks,
        // A wrong sum ends the run before it gets here.
        wrong: 0,
        stopped,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn bandwidth_is_what_nccl_tests_call_it() {
        let settings = Settings::parse_from(["x", "--world-size", "4", "--bytes", "1GB", "--rank", "0"]);
        let s = summary(&settings, 0, &[500_000_000, 1_500_000_000], false);
        assert!((s.algbw_gb_s - 1.0).abs() < 1e-9 && (s.busbw_gb_s - 1.5).abs() < 1e-9, "{s:?}");
        assert!((s.time_us_avg - 1e6).abs() < 1e-6, "{s:?}");
        let none = summary(&settings, 0, &[], false);
        assert!(none.algbw_gb_s == 0.0 && none.time_us_max == 0.0);
    }
}
