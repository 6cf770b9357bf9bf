//! Work that nobody had: arrivals, run times and sizes drawn from stated distributions. The same load and seed are the
//! same trace on every platform.

use super::draw::Draw;
use super::{BatchMode, GPUS_MAX, ROWS_MAX, Trace, TraceJob, Training};

/// The longest run that is drawn: 60 days, as the tails of Pareto and log-normal have no end.
const RUN_MAX_MS: u64 = 60 * 86_400_000;
const HOUR_US: u64 = 3_600_000_000;

/// What is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    pub jobs: u64,
    pub seed: u64,
    pub arrivals: Arrivals,
    pub runs: Runs,
    /// Numbers of devices and their weights.
    pub gpus: Vec<(u32, u32)>,
    /// What is trained; nothing where it is empty. Weights are equal.
    pub models: &'static [Model],
    /// Users, equally busy; 0: none is named. Each belongs to one queue, in turn.
    pub users: u32,
    pub queues: u32,
}

/// When jobs are submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrivals {
    AtOnce,
    /// A Poisson process: exponential gaps. With weights of the 24 hours of a day the rate follows them, and is `jobs_per_hour`
    /// on the average (thinning: Lewis and Shedler, Naval Research Logistics 26, 1979). Time 0 is midnight.
    Poisson {
        jobs_per_hour_milli: u64,
        day: Option<[u32; 24]>,
    },
}

/// How long jobs run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runs {
    Exponential {
        mean_ms: u64,
    },
    /// median · e^(σ·Z) with a standard normal Z.
    LogNormal {
        median_ms: u64,
        sigma_milli: u32,
    },
    /// P(longer than t) = (least / t)^α.
    Pareto {
        least_ms: u64,
        alpha_milli: u32,
    },
    /// Pieces (least, most) in milliseconds with weights; the logarithm is uniform in each.
    LogUniform(Vec<((u64, u64), u32)>),
    /// One of these, all equally likely.
    Measured(Vec<u64>),
}

/// Something to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    pub name: &'static str,
    /// Batch sizes, equally likely; none where the model has one of its own.
    pub batch_sizes: &'static [u32],
    /// Whether it can have more than one device.
    pub is_distributed: bool,
}

/// Why nothing can be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("{jobs} jobs are asked for, and at most {ROWS_MAX} are drawn, and at least one")]
    Jobs { jobs: u64 },
    #[error("a rate of 0 jobs per hour has no next job")]
    Rate,
    #[error("the rate is more than a million jobs per second")]
    RateTooHigh,
    #[error("no hour of the day has a weight")]
    Day,
    #[error("no number of devices has a weight")]
    Gpus,
    #[error("{gpus} devices are more than {GPUS_MAX}")]
    GpusTooMany { gpus: u32 },
    #[error("{what} of run times is 0, or none is given")]
    Runs { what: &'static str },
    #[error("no model that is named runs on several devices, and some jobs have several")]
    Models,
}

/// Jobs by number of GPUs in Microsoft Philly: counts of the 82,247 jobs of `philly_pollux.csv`.
pub const PHILLY_GPUS: &[(u32, u32)] = &[
    (1, 76_627),
    (2, 1_818),
    (4, 1_870),
    (8, 1_643),
    (12, 7),
    (16, 199),
    (24, 7),
    (32, 67),
    (64, 6),
    (128, 3),
];

/// Thousandths of Philly's submissions by hour of the day, counted in the same file, in its local time.
pub const PHILLY_DAY: [u32; 24] =
    [53, 41, 47, 46, 29, 48, 70, 87, 46, 42, 43, 36, 31, 29, 27, 27, 37, 28, 33, 30, 42, 38, 47, 42];

/// Gavel's multi-GPU jobs: its `_generate_scale_factor` (stanford-futuredata/gavel, `scheduler/utils.py`).
pub const GAVEL_GPUS: &[(u32, u32)] = &[(1, 70), (2, 10), (4, 15), (8, 5)];

/// Gavel's job types (`scheduler/job_table.py`); those that are distributed have throughputs on several devices.
pub const GAVEL_MODELS: &[Model] = &[
    Model { name: "ResNet-18", batch_sizes: &[16, 32, 64, 128, 256], is_distributed: true },
    Model { name: "ResNet-50", batch_sizes: &[16, 32, 64, 128], is_distributed: true },
    Model { name: "Transformer", batch_sizes: &[16, 32, 64, 128, 256], is_distributed: true },
    Model { name: "LM", batch_sizes: &[5, 10, 20, 40, 80], is_distributed: true },
    Model { name: "Recommendation", batch_sizes: &[512, 1024, 2048, 4096, 8192], is_distributed: false },
    Model { name: "CycleGAN", batch_sizes: &[], is_distributed: false },
    Model { name: "A3C", batch_sizes: &[], is_distributed: false },
];

impl Load {
    /// Single-GPU jobs at the rate of 4 an hour, an hour long on the average.
    #[must_use]
    pub fn new(jobs: u64, seed: u64) -> Self {
        Self {
            jobs,
            seed,
            arrivals: Arrivals::Poisson { jobs_per_hour_milli: 4_000, day: None },
            runs: Runs::Exponential { mean_ms: 3_600_000 },
            gpus: vec![(1, 1)],
            models: &[],
            users: 0,
            queues: 0,
        }
    }

    /// Gavel's continuous traces (OSDI 2020): Poisson arrivals; run times on a V100 of 60 · 10^x seconds, x uniform from 1.5
    /// to 3 for four jobs of five and from 3 to 4 for the fifth; job types equally likely. Multi-GPU jobs take their number
    /// from [`GAVEL_GPUS`] and a type that is distributed. The random stream is not Python's: compare distributions.
    #[must_use]
    pub fn gavel(jobs: u64, seed: u64, jobs_per_hour_milli: u64, is_multi: bool) -> Self {
        // 60 · 10^1.5 s is 1,897.367 s.
        let runs = vec![((1_897_367, 60_000_000), 8), ((60_000_000, 600_000_000), 2)];
        Self {
            arrivals: Arrivals::Poisson { jobs_per_hour_milli, day: None },
            runs: Runs::LogUniform(runs),
            gpus: if is_multi { GAVEL_GPUS.to_vec() } else { vec![(1, 1)] },
            models: GAVEL_MODELS,
            ..Self::new(jobs, seed)
        }
    }

    /// Like Microsoft Philly: its sizes and hours of the day, and the log-normal distribution with the mean (e^6.791 s) and
    /// deviation (2.156) of the logarithms of its run times. Its tail is lighter than Philly's, of which a mean run lasts
    /// 3.6 hours and not 2.5; size and run are independent here.
    #[must_use]
    pub fn philly(jobs: u64, seed: u64, jobs_per_hour_milli: u64) -> Self {
        Self {
            arrivals: Arrivals::Poisson { jobs_per_hour_milli, day: Some(PHILLY_DAY) },
            runs: Runs::LogNormal { median_ms: 889_720, sigma_milli: 2_156 },
            gpus: PHILLY_GPUS.to_vec(),
            users: 100,
            queues: 15,
            ..Self::new(jobs, seed)
        }
    }

    /// Draws the jobs.
    ///
    /// # Errors
    /// When a distribution has nothing to draw from.
    pub fn generate(&self) -> Result<Trace, LoadError> {
        self.check()?;
        let mut draw = Draw::new(self.seed);
        let mut at_us = 0;
        let mut jobs = Vec::new();
        for row in 1..=self.jobs {
            at_us = self.arrivals.after(at_us, &mut draw);
            let gpus = draw.weighted(&self.gpus).copied().unwrap_or(1);
            let run_ms = self.runs.draw(&mut draw).clamp(1, RUN_MAX_MS);
            let training = self.training(gpus, &mut draw);
            let user = draw.below(u64::from(self.users)) + 1;
            jobs.push(TraceJob {
                row,
                user: (self.users > 0).then(|| format!("user-{user}")),
                queue: (self.queues > 0).then(|| format!("queue-{}", user % u64::from(self.queues) + 1)),
                run_ms: Some(run_ms),
                training,
                ..TraceJob::new(row.to_string(), at_us / 1_000, gpus)
            });
        }
        Ok(Trace { rows: self.jobs, jobs, ..Trace::default() })
    }

    fn check(&self) -> Result<(), LoadError> {
        if !(1..=ROWS_MAX).contains(&self.jobs) {
            return Err(LoadError::Jobs { jobs: self.jobs });
        }
        match &self.arrivals {
            Arrivals::AtOnce => {}
            Arrivals::Poisson { jobs_per_hour_milli: 0, .. } => return Err(LoadError::Rate),
            Arrivals::Poisson { jobs_per_hour_milli, .. } if *jobs_per_hour_milli > HOUR_US * 1_000 => {
                return Err(LoadError::RateTooHigh);
            }
            Arrivals::Poisson { day: Some(day), .. } if day.iter().all(|weight| *weight == 0) => {
                return Err(LoadError::Day);
            }
            Arrivals::Poisson { .. } => {}
        }
        let drawn = || self.gpus.iter().filter(|(_, weight)| *weight > 0).map(|(gpus, _)| *gpus);
        match drawn().max() {
            None => return Err(LoadError::Gpus),
            Some(gpus) if gpus > GPUS_MAX => return Err(LoadError::GpusTooMany { gpus }),
            Some(gpus)
                if gpus > 1 && !self.models.is_empty() && !self.models.iter().any(|m| m.is_distributed) =>
            {
                return Err(LoadError::Models);
            }
            Some(_) => {}
        }
        let bad = match &self.runs {
            Runs::Exponential { mean_ms: 0 } => Some("the mean"),
            Runs::LogNormal { median_ms: 0, .. } => Some("the median"),
            Runs::Pareto { least_ms: 0, .. } => Some("the least"),
            Runs::Pareto { alpha_milli: 0, .. } => Some("the exponent"),
            Runs::LogUniform(pieces) if pieces.iter().all(|(_, weight)| *weight == 0) => Some("every weight"),
            Runs::Measured(runs) if runs.is_empty() => Some("the number"),
            _ => None,
        };
        bad.map_or(Ok(()), |what| Err(LoadError::Runs { what }))
    }

    /// A type that can have so many devices; types are equally likely, a model counting once for each batch size.
    fn training(&self, gpus: u32, draw: &mut Draw) -> Option<Training> {
        let weight = |model: &&'static Model| {
            let types = u32::try_from(model.batch_sizes.len()).unwrap_or(u32::MAX).max(1);
            (*model, if gpus > 1 && !model.is_distributed { 0 } else { types })
        };
        let weighted: Vec<(&Model, u32)> = self.models.iter().map(|model| weight(&model)).collect();
        let model = draw.weighted(&weighted)?;
        let at = draw.below(model.batch_sizes.len() as u64);
        let batch_size = usize::try_from(at).ok().and_then(|at| model.batch_sizes.get(at)).copied();
        let (model, batch) = (model.name.to_owned(), BatchMode::Static);
        Some(Training { model, batch_size, steps: None, step_us: None, batch })
    }
}

impl Arrivals {
    /// When the job after one at `at_us` comes.
    fn after(&self, mut at_us: u64, draw: &mut Draw) -> u64 {
        let Self::Poisson { jobs_per_hour_milli, day } = self else { return at_us };
        let mean_us = HOUR_US * 1_000 / jobs_per_hour_milli;
        let Some(day) = day else { return at_us.saturating_add(draw.exponential(mean_us)) };
        // At the rate of the busiest hour, and as many are dropped as an hour is less busy.
        let sum: u64 = day.iter().copied().map(u64::from).sum();
        let most = day.iter().copied().max().map_or(1, u64::from);
        let gap_us =
            u64::try_from(u128::from(mean_us) * u128::from(sum) / u128::from(24 * most)).unwrap_or(mean_us);
        loop {
            at_us = at_us.saturating_add(draw.exponential(gap_us));
            let hour = usize::try_from(at_us / HOUR_US % 24).unwrap_or(0);
            if draw.below(most) < day.get(hour).copied().map_or(0, u64::from) {
                return at_us;
            }
        }
    }
}

impl Runs {
    /// The run times of a trace.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        Self::Measured(trace.jobs.iter().filter_map(|job| job.run_ms).collect())
    }

    fn draw(&self, draw: &mut Draw) -> u64 {
        match self {
            Self::Exponential { mean_ms } => draw.exponential(*mean_ms),
            Self::LogNormal { median_ms, sigma_milli } => draw.log_normal(*median_ms, *sigma_milli),
            Self::Pareto { least_ms, alpha_milli } => draw.pareto(*least_ms, *alpha_milli),
            Self::LogUniform(pieces) => {
                let (least, most) = draw.weighted(pieces).copied().unwrap_or((1, 1));
                draw.log_uniform(least, most)
            }
            Self::Measured(runs) => {
                let at = usize::try_from(draw.below(runs.len() as u64)).unwrap_or(0);
                runs.get(at).copied().unwrap_or(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of what was drawn, within so many hundredths.
    #[track_caller]
    fn near(found: u64, expected: u64, percent: u64) {
        assert!(found.abs_diff(expected) * 100 <= expected * percent, "{found}, expected {expected}");
    }

    #[test]
    fn gavel_has_its_rate_its_runs_and_its_sizes() {
        let trace = Load::gavel(20_000, 3, 5_600, true).generate().unwrap();
        let summary = trace.summary();
        near(summary.span_ms, 20_000 * 3_600_000 / 5_600 * 1_000, 2);
        let share = |gpus| summary.gpus.get(&gpus).copied().unwrap_or(0);
        near(share(1), 14_000, 2);
        near(share(8), 1_000, 10);
        let run = summary.run.unwrap();
        // The median of all is at 5/8 of the first piece: 60 · 10^(1.5 + 1.5 · 0.625).
        near(run.p50_ms, 16_430_000, 4);
        assert!(run.max_ms <= 600_000_000);
        for job in &trace.jobs {
            let model = &job.training.as_ref().unwrap().model;
            let known = GAVEL_MODELS.iter().find(|known| known.name == model).unwrap();
            assert!(job.gpus == 1 || known.is_distributed, "{job:?}");
        }
        let single = Load::gavel(100, 3, 4_000, false).generate().unwrap();
        assert!(single.jobs.iter().all(|job| job.gpus == 1));
    }

    #[test]
    fn a_day_has_its_hours_and_keeps_its_rate() {
        let day = std::array::from_fn(|hour| if hour < 12 { 1 } else { 3 });
        let arrivals = Arrivals::Poisson { jobs_per_hour_milli: 100_000, day: Some(day) };
        let trace = Load { arrivals, ..Load::new(48_000, 5) }.generate().unwrap();
        near(trace.summary().span_ms, 480 * 3_600_000, 2);
        let morning = trace.jobs.iter().filter(|job| job.submit_ms / 3_600_000 % 24 < 12).count();
        near(morning as u64, 12_000, 3);
    }

    #[test]
    fn runs_may_be_those_of_a_trace() {
        let known = Trace {
            jobs: [5, 7]
                .map(|ms| TraceJob { run_ms: Some(ms), ..TraceJob::new(ms.to_string(), 0, 1) })
                .into(),
            ..Trace::default()
        };
        let load = Load { runs: Runs::of(&known), arrivals: Arrivals::AtOnce, ..Load::new(100, 1) };
        let trace = load.generate().unwrap();
        assert!(trace.jobs.iter().all(|job| job.submit_ms == 0 && matches!(job.run_ms, Some(5 | 7))));
        assert_eq!(load.generate(), Ok(trace));
    }

    #[test]
    fn a_load_that_has_nothing_to_draw_from_is_refused() {
        let good = Load::new(1, 1);
        let poisson = |jobs_per_hour_milli, day| Arrivals::Poisson { jobs_per_hour_milli, day };
        let bad = [
            (Load::new(0, 1), LoadError::Jobs { jobs: 0 }),
            (Load { arrivals: poisson(0, None), ..good.clone() }, LoadError::Rate),
            (Load { arrivals: poisson(u64::MAX, None), ..good.clone() }, LoadError::RateTooHigh),
            (Load { arrivals: poisson(1, Some([0; 24])), ..good.clone() }, LoadError::Day),
            (Load { gpus: vec![(1, 0)], ..good.clone() }, LoadError::Gpus),
            (
                Load { gpus: vec![(GPUS_MAX + 1, 1)], ..good.clone() },
                LoadError::GpusTooMany { gpus: GPUS_MAX + 1 },
            ),
            (
                Load { runs: Runs::Measured(Vec::new()), ..good.clone() },
                LoadError::Runs { what: "the number" },
            ),
            (Load { gpus: vec![(8, 1)], models: &GAVEL_MODELS[4..], ..good }, LoadError::Models),
        ];
        for (load, error) in bad {
            assert_eq!(load.generate(), Err(error));
        }
    }

    /// What a seed means stays the same, on every platform and in every version.
    #[test]
    fn a_seed_is_a_trace() {
        let runs = Runs::Pareto { least_ms: 60_000, alpha_milli: 1_100 };
        let loads = [
            ("philly", Load::philly(3, 42, 60_000)),
            ("gavel", Load::gavel(3, 42, 4_000, true)),
            ("pareto", Load { runs, ..Load::new(3, 42) }),
        ];
        let mut seen = String::new();
        for (name, load) in loads {
            for TraceJob { submit_ms, run_ms, gpus, .. } in load.generate().unwrap().jobs {
                seen += &format!("{name} {submit_ms} {} {gpus}\n", run_ms.unwrap());
            }
        }
        let expected = "\
philly 45269 2680652 1
philly 76244 792567 1
philly 87949 879422 1
gavel 269093 132538474 4
gavel 469211 3850384 1
gavel 836167 187780247 1
pareto 269093 191739 1
pareto 396264 73441 1
pareto 1822965 109995 1
";
        assert_eq!(seen, expected);
    }
}
