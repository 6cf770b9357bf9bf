//! What a cluster goes by when it is full, in one word.

use phalanx_model::{Delay, QueueOrder, SERVICE_LEVELS_DEFAULT_MS, Settings};
use schemars::{Schema, json_schema};

use crate::place::Scalar;
use crate::scalar::define_words;

/// Service levels of [`Preset::Fair`]: from a quarter of a GPU-hour to 4,096, each double the one before it.
const FAIR_LEVELS: usize = 15;
const QUARTER_HOUR_MS: u64 = 900_000;

/// What a cluster goes by when it is full. `docs/overload.md` has what each costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Jobs end soonest on the average: whoever had less GPU time goes first, and those that save their work make way.
    #[default]
    Throughput,
    /// The same in smaller steps: nobody waits long for a short job, and jobs are stopped more often.
    Fair,
    /// By priority and age; nobody makes way for another of the queue and class.
    FirstCome,
}

define_words!(Preset, "one of throughput, fair, first-come",
    "throughput" => Self::Throughput, "fair" => Self::Fair, "first-come" => Self::FirstCome);

impl Preset {
    pub const ALL: [Self; 3] = [Self::Throughput, Self::Fair, Self::FirstCome];

    /// The order of queues that say none.
    #[must_use]
    pub fn order(self) -> QueueOrder {
        match self {
            Self::Throughput => QueueOrder::LeastServed { levels: SERVICE_LEVELS_DEFAULT_MS.to_vec() },
            Self::Fair => {
                let levels = (0..FAIR_LEVELS).map(|level| QUARTER_HOUR_MS << level).collect();
                QueueOrder::LeastServed { levels }
            }
            Self::FirstCome => QueueOrder::Priority,
        }
    }

    /// The settings of a cluster of which nothing else is said.
    #[must_use]
    pub fn settings(self) -> Settings {
        Settings { order: self.order(), wait: Delay::PAR, ..Settings::default() }
    }

    /// The preset with the order of these settings.
    pub(super) fn of(settings: &Settings) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.order() == settings.order)
    }
}
