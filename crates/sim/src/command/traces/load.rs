//! Which load is drawn.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use phalanx_spec::quantity::parse_duration_ns;

use crate::command::values::{milli, some_milli, whole};
use crate::trace::ROWS_MAX;
use crate::trace::generate::{Arrivals, Load, Runs};

/// What jobs are drawn from.
#[derive(Debug, Args)]
pub(super) struct Drawn {
    /// Number of jobs
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=ROWS_MAX))]
    jobs: u64,
    /// Seed: the same seed draws the same jobs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Take the distributions of a published trace; the options below change them
    #[arg(long, value_enum, value_name = "NAME")]
    like: Option<Like>,
    /// Jobs an hour
    #[arg(long, value_name = "X", default_value = "4", value_parser = some_milli)]
    rate: u32,
    /// Run times: exponential:MEAN, log-normal:MEDIAN:SIGMA or pareto:LEAST:ALPHA, as in log-normal:15m:2.1
    #[arg(long, value_name = "WHAT")]
    run: Option<Runs>,
    /// Numbers of GPUs with weights, as in 1:70,2:10,4:15,8:5
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = weighted)]
    gpus: Vec<(u32, u32)>,
    /// Users, equally busy [default: jobs have no user]
    #[arg(long, value_name = "N")]
    users: Option<u32>,
    /// Queues: each user is in one of them
    #[arg(long, value_name = "N")]
    queues: Option<u32>,
    /// Submit all jobs at the start
    #[arg(long)]
    at_once: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Like {
    Philly,
    Gavel,
    GavelMulti,
}

impl Drawn {
    pub(super) fn load(&self) -> Load {
        let (jobs, seed, rate) = (self.jobs, self.seed, u64::from(self.rate));
        let mut load = match self.like {
            None => Load {
                arrivals: Arrivals::Poisson { jobs_per_hour_milli: rate, day: None },
                ..Load::new(jobs, seed)
            },
            Some(Like::Philly) => Load::philly(jobs, seed, rate),
            Some(Like::Gavel) => Load::gavel(jobs, seed, rate, false),
            Some(Like::GavelMulti) => Load::gavel(jobs, seed, rate, true),
        };
        load.runs = self.run.clone().unwrap_or(load.runs);
        if !self.gpus.is_empty() {
            load.gpus.clone_from(&self.gpus);
        }
        load.users = self.users.unwrap_or(load.users);
        load.queues = self.queues.unwrap_or(load.queues);
        if self.at_once {
            load.arrivals = Arrivals::AtOnce;
        }
        load
    }
}

impl FromStr for Runs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ms = |text| {
            parse_duration_ns(text).map(|ns| ns / 1_000_000).map_err(|error| format!("{text:?} {error}"))
        };
        match *text.split(':').collect::<Vec<_>>().as_slice() {
            ["exponential", mean] => Ok(Self::Exponential { mean_ms: ms(mean)? }),
            ["log-normal", median, sigma] => {
                Ok(Self::LogNormal { median_ms: ms(median)?, sigma_milli: milli(sigma)? })
            }
            ["pareto", least, alpha] => Ok(Self::Pareto { least_ms: ms(least)?, alpha_milli: milli(alpha)? }),
            _ => Err("expected exponential:MEAN, log-normal:MEDIAN:SIGMA or pareto:LEAST:ALPHA".to_owned()),
        }
    }
}

fn weighted(text: &str) -> Result<(u32, u32), String> {
    let (gpus, weight) = text.split_once(':').unwrap_or((text, "1"));
    Ok((whole(gpus)?, whole(weight)?))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        drawn: Drawn,
    }

    fn load(words: &str) -> Result<Load, String> {
        let line = Line::try_parse_from(format!("generate {words}").split(' '));
        line.map(|line| line.drawn.load()).map_err(|error| error.to_string())
    }

    #[test]
    fn loads_are_read_as_they_are_typed() {
        let runs = Runs::Pareto { least_ms: 60_000, alpha_milli: 1_100 };
        let expected =
            Load { runs, gpus: vec![(1, 3), (8, 1)], arrivals: Arrivals::AtOnce, ..Load::new(7, 1) };
        assert_eq!(load("--run pareto:1m:1.1 --jobs 7 --gpus 1:3,8 --at-once"), Ok(expected));
        assert_eq!(load("--like gavel --rate 5.6 --seed 2"), Ok(Load::gavel(1_000, 2, 5_600, false)));
        for (words, error) in [
            ("--rate fast", "invalid value 'fast' for '--rate <X>': expected a number above 0"),
            ("--jobs 0", "invalid value '0' for '--jobs <N>': 0 is not in 1..=16777216"),
            ("--like helios", "[possible values: philly, gavel, gavel-multi]"),
            ("--run normal:1h", "invalid value 'normal:1h' for '--run <WHAT>': expected exponential:MEAN"),
            ("--gpus 1:70,two", "invalid value 'two' for '--gpus <LIST>': expected a whole number"),
        ] {
            let found = load(words).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
    }
}
