//! Advice: what the next run of a job should ask for, from what its earlier runs used.
//!
//! [`advise`] gets the runs of one user's jobs of one name, what the account charged for them, and the kinds of devices
//! that the cluster has. Everything is an integer, so equal runs give equal advice. A measurement that does not exist is
//! unknown, and no rule reads it as 0.
//!
//! | module | rules |
//! |---|---|
//! | `devices` | fewer devices, a share, a MIG slice, or a model with less memory |
//! | `pace` | parallel width, checkpoint interval, time limit |

mod devices;
mod pace;

pub use pace::EFFICIENCY_MIN_PERCENT;
use phalanx_model::Timestamp;
use serde::{Deserialize, Serialize};

/// A rule needs at least this many runs that were measured for it.
pub const RUNS_MIN: usize = 3;
/// Amounts in a month are of this many days.
const MONTH_MS: u64 = 30 * DAY_MS;
/// Runs of fewer days count as those of so many: a busy afternoon is no month.
const SPAN_MIN_MS: u64 = 7 * DAY_MS;
const DAY_MS: u64 = 24 * 3_600_000;
const MILLION: u32 = 1_000_000;

/// One attempt of a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// When its ranks started.
    pub began: Timestamp,
    pub ran_ms: u64,
    /// Counts from 1.
    pub attempt: u32,
    /// Its job succeeded.
    pub has_succeeded: bool,
    /// Its job reached its time limit.
    pub reached_limit: bool,
    /// A service or a session: nothing that ends by itself.
    pub is_service: bool,
    pub limit_ms: Option<u64>,
    /// `None` if it was not watched.
    pub used: Option<Used>,
}

impl Run {
    fn device_ms(&self) -> u128 {
        u128::from(self.ran_ms) * self.used.as_ref().map_or(0, |used| u128::from(used.devices))
    }
}

/// The devices of an attempt, and their measured use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub ranks: u32,
    /// Devices of all ranks; a part of a device counts as one.
    pub devices: u32,
    /// They had whole devices.
    pub is_whole: bool,
    /// Of one of the devices. Empty if unknown.
    pub model: String,
    /// Memory of one device. 0 if unknown.
    pub device_bytes: u64,
    /// For how long the use of all its devices was known.
    pub sampled_ms: u64,
    /// The part of that time in which kernels ran, as the mean of its devices.
    pub busy_ms: u64,
    /// The part of that time in which kernels ran on the busiest of its devices.
    pub busiest_ms: u64,
    /// How often the use of all its devices was sampled.
    pub samples: u64,
    /// Devices on which a kernel ran at any time, or that had memory in use, or may have had.
    pub used_devices: u32,
    /// The most memory that was in use on one device. `None` if it was never known.
    pub peak_bytes: Option<u64>,
    /// Steps that its slowest rank reported, and the time that they took.
    pub steps: u64,
    pub steps_ms: u64,
    /// Steps of the whole job, if its ranks report them.
    pub steps_of: Option<u64>,
    /// Time between its last two checkpoints.
    pub saves_every_ms: Option<u64>,
    /// The best interval for how long its checkpoints take, if its ranks report that.
    pub interval: Option<Interval>,
}

/// A checkpoint interval, by Young's formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// How long one checkpoint takes.
    pub takes_ms: u64,
    /// Mean time between losses of a node of the gang.
    pub loss_every_ms: u64,
    pub every_ms: u64,
}

/// A kind of device that the cluster has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    pub model: String,
    /// 0 if unknown.
    pub memory_bytes: u64,
    pub count: u32,
    /// Members can have a share of one.
    pub has_shares: bool,
    /// Some of them are in MIG mode.
    pub has_slices: bool,
    /// Of one device for an hour, in millionths. 0: unknown.
    pub price_micro: u64,
}

/// What the account charged for jobs of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Charged {
    /// Microseconds of one device.
    pub device_us: i64,
    /// Millionths of the unit of the prices.
    pub cost_micro: i64,
}

impl Charged {
    /// A part of it, in millionths, and of the cost alone.
    fn part(self, device_ppm: u32, cost_ppm: u32) -> Self {
        let part = |amount: i64, ppm: u32| {
            let part = i128::from(amount) * i128::from(ppm) / i128::from(MILLION);
            i64::try_from(part).unwrap_or(i64::MAX)
        };
        Self { device_us: part(self.device_us, device_ppm), cost_micro: part(self.cost_micro, cost_ppm) }
    }

    /// The charge of a month, if this is the charge of `span_ms`.
    #[must_use]
    pub fn in_a_month(self, span_ms: u64) -> Self {
        let span = i128::from(span_ms.max(SPAN_MIN_MS));
        let month =
            |amount: i64| i64::try_from(i128::from(amount) * i128::from(MONTH_MS) / span).unwrap_or(i64::MAX);
        Self { device_us: month(self.device_us), cost_micro: month(self.cost_micro) }
    }
}

/// One piece of advice, with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Advice {
    #[serde(flatten)]
    pub what: What,
    /// How many runs were measured for it.
    pub runs: u32,
    /// From the start of the first of them to the end of the last.
    pub span_ms: u64,
    /// The saving in a month, if the jobs go on at the same rate.
    pub saves: Charged,
}

/// A request for the next run, and the measurements behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "advice", rename_all = "snake_case")]
pub enum What {
    /// Fewer devices.
    Gpus {
        now: u32,
        next: u32,
        busy_gpus: u32,
        busy_percent: u32,
    },
    /// A share of a device for each rank.
    Share {
        next_milli: u32,
        next_bytes: u64,
        busy_percent: u32,
        peak_bytes: u64,
        device_bytes: u64,
    },
    /// A MIG slice for each rank: the smallest with so many sevenths of the compute, and so much memory.
    Mig {
        next_sevenths: u32,
        next_bytes: u64,
        busy_percent: u32,
        peak_bytes: u64,
        device_bytes: u64,
    },
    /// A model with less memory.
    Model {
        now: String,
        next: String,
        next_device_bytes: u64,
        peak_bytes: u64,
        device_bytes: u64,
    },
    /// Another number of devices, or of ranks if they have none.
    Width {
        now: u32,
        next: u32,
        is_of_ranks: bool,
        measured: Vec<Pace>,
    },
    TimeLimit {
        now_ms: Option<u64>,
        next_ms: u64,
        longest_ms: u64,
        median_ms: u64,
    },
    /// Another checkpoint interval.
    Checkpoint {
        now_ms: u64,
        next_ms: u64,
        takes_ms: u64,
        loss_every_ms: u64,
    },
}

impl What {
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Gpus { .. } => "gpus",
            Self::Share { .. } => "share",
            Self::Mig { .. } => "mig",
            Self::Model { .. } => "model",
            Self::Width { .. } => "width",
            Self::TimeLimit { .. } => "time_limit",
            Self::Checkpoint { .. } => "checkpoint",
        }
    }
}

/// The speed at one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pace {
    pub width: u32,
    pub runs: u32,
    /// Thousandths of a step in a second.
    pub milli_steps_per_s: u64,
    /// Of the narrowest width: speed(n) · n0 / (speed(n0) · n).
    pub efficiency_percent: u32,
}

/// All advice about jobs of one name. `charged` is what the account charged for them in `span_ms`.
#[must_use]
pub fn advise(runs: &[Run], charged: Charged, span_ms: u64, kinds: &[Kind]) -> Vec<Advice> {
    let mut runs: Vec<&Run> = runs.iter().collect();
    runs.sort_by_key(|run| run.began);
    let month = charged.in_a_month(span_ms);
    let rules = [
        devices::devices(&runs, kinds),
        devices::model(&runs, kinds),
        pace::width(&runs),
        pace::time_limit(&runs),
        pace::checkpoint(&runs),
    ];
    let mut found: Vec<Found<'_>> = rules.into_iter().flatten().collect();
    // A share or a slice keeps the model; both would save the same memory.
    if found.iter().any(|found| matches!(found.what, What::Share { .. } | What::Mig { .. })) {
        found.retain(|found| !matches!(found.what, What::Model { .. }));
    }
    let all_ms = runs.iter().map(|run| run.device_ms()).sum();
    found.into_iter().map(|found| found.into_advice(month, all_ms)).collect()
}

/// The finding of a rule.
struct Found<'a> {
    what: What,
    runs: Vec<&'a Run>,
    /// Those that would have cost less.
    dear: Vec<&'a Run>,
    /// Parts that are saved, of the device time and of its cost, in millionths.
    device_ppm: u32,
    cost_ppm: u32,
}

impl<'a> Found<'a> {
    /// Saves nothing, or the same part of the time and of the cost.
    fn new(what: What, runs: Vec<&'a Run>, ppm: u32) -> Self {
        Self { what, dear: runs.clone(), runs, device_ppm: ppm, cost_ppm: ppm }
    }

    /// `all_ms` is the device time of all runs.
    fn into_advice(self, month: Charged, all_ms: u128) -> Advice {
        let dear_ms = self.dear.iter().map(|run| run.device_ms()).sum::<u128>();
        let part = |ppm: u32| {
            let part = (u128::from(ppm) * dear_ms).checked_div(all_ms).unwrap_or(0);
            u32::try_from(part).unwrap_or(MILLION).min(MILLION)
        };
        let first = self.runs.iter().map(|run| run.began).min().unwrap_or_default();
        let last = self.runs.iter().map(|run| run.began.plus(run.ran_ms)).max().unwrap_or_default();
        Advice {
            what: self.what,
            runs: u32::try_from(self.runs.len()).unwrap_or(u32::MAX),
            span_ms: last.since(first),
            saves: month.part(part(self.device_ppm), part(self.cost_ppm)),
        }
    }
}

/// The part that is saved if `next` replaces `now`, in millionths.
fn saved_ppm(now: u64, next: u64) -> u32 {
    let rest = u128::from(next) * u128::from(MILLION) / u128::from(now.max(1));
    MILLION.saturating_sub(u32::try_from(rest).unwrap_or(MILLION))
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
