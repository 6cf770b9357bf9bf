//! Selections and loads in words, as commands take them.

use phalanx_spec::quantity::{parse_duration_ns, parse_milli};

use super::generate::{Arrivals, Load, Runs};
use super::{Selection, Trace, number};

impl Selection {
    /// One line for each option.
    pub const OPTIONS: &'static str =
        "  --from TIME       submitted from here on: since the start (3d, 12h) or a date (2017-10-01, UTC)
  --until TIME      submitted before this
  --user NAME       of this user; again for more
  --queue NAME      of this queue or virtual cluster; again for more
  --gpus A-B        with A to B devices; A- has no upper end
  --cap N           jobs with more devices get N
  --first N         the first N of what is left
  --load X          gaps between submissions divided by X: 1.5, 0.5
  --cpus-as-gpus    processors count as devices (SWF)";

    /// Takes one option and its value; `false` where it is none of these.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn set(&mut self, option: &str, value: &str, trace: &Trace) -> Result<bool, String> {
        match option {
            "--from" => self.from_ms = time(value, trace)?,
            "--until" => self.until_ms = Some(time(value, trace)?),
            "--user" => self.users.push(value.to_owned()),
            "--queue" => self.queues.push(value.to_owned()),
            "--gpus" => (self.gpus_min, self.gpus_max) = range(value)?,
            "--cap" => self.gpus_cap = Some(number::whole(value)?),
            "--first" => self.first = Some(number::whole(value)?),
            "--load" => self.load_milli = milli(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// So long after the start of the trace, or a date.
fn time(text: &str, trace: &Trace) -> Result<u64, String> {
    if let Ok(ns) = parse_duration_ns(text) {
        return Ok(ns / 1_000_000);
    }
    if matches!(text, "0" | "start") {
        return Ok(0);
    }
    let at =
        number::date(text).map_err(|_| number::wrong(text, "is neither a time such as 3d nor a date"))?;
    let start =
        trace.start_unix_ms.ok_or_else(|| number::wrong(text, "is a date, and this trace has none"))?;
    Ok(at.saturating_sub(start))
}

/// `8`, `1-8`, `8-`.
fn range(text: &str) -> Result<(u32, Option<u32>), String> {
    match text.split_once('-') {
        None => number::whole(text).map(|gpus| (gpus, Some(gpus))),
        Some((least, "")) => Ok((number::whole(least)?, None)),
        Some((least, most)) => Ok((number::whole(least)?, Some(number::whole(most)?))),
    }
}

/// A decimal number in thousandths.
fn milli(text: &str) -> Result<u32, String> {
    let number = parse_milli(text).map_err(|error| number::wrong(text, &error.to_string()))?;
    u32::try_from(number).map_err(|_| number::wrong(text, "is too large"))
}

impl Load {
    /// One line for each option.
    pub const OPTIONS: &'static str = "  --jobs N          how many; without it 1,000
  --seed N          what is drawn; without it 1
  --like NAME       philly, gavel, gavel-multi; the options below change it
  --rate X          jobs an hour; without it 4
  --run WHAT        exponential:MEAN, log-normal:MEDIAN:SIGMA or pareto:LEAST:ALPHA, as in log-normal:15m:2.1
  --gpus LIST       numbers of devices with weights, as in 1:70,2:10,4:15,8:5
  --users N         equally busy; without it nobody is named
  --queues N        each user is in one of them
  --at-once         everything is submitted at the start";

    /// Reads all options, in any order.
    ///
    /// # Errors
    /// What is wrong with which.
    pub fn parse(options: &[&str]) -> Result<Self, String> {
        let mut said = Vec::new();
        let mut rest = options.iter().copied();
        while let Some(option) = rest.next() {
            let value = match option {
                "--at-once" => "",
                _ => rest.next().ok_or_else(|| format!("{option} needs a value behind it"))?,
            };
            said.push((option, value));
        }
        let last =
            |name: &str| said.iter().rev().find(|(option, _)| *option == name).map(|(_, value)| *value);
        let count = |name, default| last(name).map_or(Ok(default), number::whole);
        let (jobs, seed) = (count("--jobs", 1_000)?, count("--seed", 1)?);
        let rate = last("--rate").map_or(Ok(4_000), |text| milli(text).map(u64::from))?;
        let mut load = match last("--like") {
            None => Self {
                arrivals: Arrivals::Poisson { jobs_per_hour_milli: rate, day: None },
                ..Self::new(jobs, seed)
            },
            Some("philly") => Self::philly(jobs, seed, rate),
            Some("gavel") => Self::gavel(jobs, seed, rate, false),
            Some("gavel-multi") => Self::gavel(jobs, seed, rate, true),
            Some(other) => return Err(number::wrong(other, "is none of philly, gavel, gavel-multi")),
        };
        for (option, value) in said {
            match option {
                "--jobs" | "--seed" | "--rate" | "--like" => {}
                "--run" => load.runs = runs(value)?,
                "--gpus" => load.gpus = value.split(',').map(weighted).collect::<Result<_, _>>()?,
                "--users" => load.users = number::whole(value)?,
                "--queues" => load.queues = number::whole(value)?,
                "--at-once" => load.arrivals = Arrivals::AtOnce,
                other => return Err(format!("unknown option {other:?}")),
            }
        }
        Ok(load)
    }
}

fn runs(text: &str) -> Result<Runs, String> {
    let ms = |text| match parse_duration_ns(text) {
        Ok(ns) => Ok(ns / 1_000_000),
        Err(error) => Err(number::wrong(text, &error.to_string())),
    };
    match *text.split(':').collect::<Vec<_>>().as_slice() {
        ["exponential", mean] => Ok(Runs::Exponential { mean_ms: ms(mean)? }),
        ["log-normal", median, sigma] => {
            Ok(Runs::LogNormal { median_ms: ms(median)?, sigma_milli: milli(sigma)? })
        }
        ["pareto", least, alpha] => Ok(Runs::Pareto { least_ms: ms(least)?, alpha_milli: milli(alpha)? }),
        _ => Err(number::wrong(
            text,
            "is none of exponential:MEAN, log-normal:MEDIAN:SIGMA, pareto:LEAST:ALPHA",
        )),
    }
}

fn weighted(text: &str) -> Result<(u32, u32), String> {
    let (gpus, weight) = text.split_once(':').unwrap_or((text, "1"));
    Ok((number::whole(gpus)?, number::whole(weight)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_are_read_as_they_are_typed() {
        let trace = Trace { start_unix_ms: Some(86_400_000), ..Trace::default() };
        let mut selection = Selection::default();
        let said = [
            ("--from", "1970-01-03"),
            ("--until", "2d"),
            ("--gpus", "8-"),
            ("--load", "1.5"),
            ("--user", "ann"),
        ];
        for (option, value) in said {
            assert_eq!(selection.set(option, value, &trace), Ok(true));
        }
        let expected = Selection {
            from_ms: 86_400_000,
            until_ms: Some(172_800_000),
            gpus_min: 8,
            load_milli: 1_500,
            users: vec!["ann".to_owned()],
            ..Selection::default()
        };
        assert_eq!(selection, expected);
        assert_eq!(selection.set("--colour", "red", &trace), Ok(false));
        let undated = selection.set("--from", "1970-01-03", &Trace::default());
        assert_eq!(undated, Err("\"1970-01-03\" is a date, and this trace has none".to_owned()));
    }

    #[test]
    fn loads_are_read_as_they_are_typed() {
        let load =
            Load::parse(&["--run", "pareto:1m:1.1", "--jobs", "7", "--gpus", "1:3,8", "--at-once"]).unwrap();
        let runs = Runs::Pareto { least_ms: 60_000, alpha_milli: 1_100 };
        let expected =
            Load { runs, gpus: vec![(1, 3), (8, 1)], arrivals: Arrivals::AtOnce, ..Load::new(7, 1) };
        assert_eq!(load, expected);
        assert_eq!(
            Load::parse(&["--like", "gavel", "--rate", "5.6", "--seed", "2"]),
            Ok(Load::gavel(1_000, 2, 5_600, false))
        );
        for (options, error) in [
            (["--rate", "fast"], "\"fast\""),
            (["--like", "helios"], "\"helios\" is none of philly, gavel, gavel-multi"),
            (["--run", "normal:1h"], "\"normal:1h\" is none of"),
            (["--colour", "red"], "unknown option \"--colour\""),
        ] {
            let found = Load::parse(&options).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
