//! Who of one class goes first in a queue.

use phalanx_model::{QueueOrder, SERVICE_LEVELS_DEFAULT_MS, SERVICE_LEVELS_MAX};
use schemars::{Schema, json_schema};

use super::scalar::milli;
use super::{QueueEntry, QueueFile};
use crate::error::{Place, SpecError};
use crate::place::{At, Scalar, wrong};
use crate::quantity;
use crate::scalar::define_words;

/// What a queue goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderWord {
    /// Priority and age.
    Priority,
    /// Whoever had less service.
    LeastServed,
}

define_words!(OrderWord, "one of priority, least_served",
    "priority" => Self::Priority, "least_served" => Self::LeastServed);

/// GPU-hours in thousandths, from 0.001 to [`GpuHours::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuHours(pub u64);

impl GpuHours {
    pub const MAX: u64 = 1_000_000_000_000;
    /// Milliseconds in a thousandth of an hour.
    const MS: u64 = 3_600;

    /// Milliseconds of one device.
    #[must_use]
    pub const fn device_ms(self) -> u64 {
        self.0 * Self::MS
    }

    /// The nearest that can be written.
    pub(super) const fn of_device_ms(ms: u64) -> Self {
        let nearest = ms.saturating_add(Self::MS / 2) / Self::MS;
        Self(if nearest == 0 { 1 } else { nearest })
    }
}

impl Scalar for GpuHours {
    const ACCEPTED: &'static str = "a number of GPU-hours from 0.001 to 1000000000, such as 0.5 or 8";

    fn read(text: &str) -> Result<Self, String> {
        match milli(text, Self::MAX)? {
            0 => Err(wrong(text, "is zero")),
            hours => Ok(Self(hours)),
        }
    }

    fn write(&self) -> String {
        quantity::format_milli(self.0)
    }

    fn schema() -> Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000_000 },
            { "type": "string", "pattern": "^[0-9]+([.][0-9]+)?(/[0-9]+)?$" },
        ], "examples": [0.5] })
    }
}

impl QueueFile {
    /// What a queue goes by, if it says; `is_leaf`: jobs wait in it.
    pub(super) fn order(&self, entry: &QueueEntry, is_leaf: bool) -> Result<Option<QueueOrder>, SpecError> {
        let is_least_served = entry.order.is_some_and(|order| order.value == OrderWord::LeastServed);
        if let Some(order) = entry.order.filter(|_| !is_leaf) {
            let what = format!("no jobs wait in {}: it has queues below it", entry.name.value);
            return Err(self.source.error(order.place, what, "say it in those"));
        }
        let Some(levels) = &entry.levels else {
            return Ok(entry.order.map(|order| match order.value {
                OrderWord::LeastServed => {
                    QueueOrder::LeastServed { levels: SERVICE_LEVELS_DEFAULT_MS.to_vec() }
                }
                OrderWord::Priority => QueueOrder::Priority,
            }));
        };
        let place = levels.first().map_or(entry.name.place, |level| level.place);
        if !is_least_served {
            let what = format!("{} does not go by service", entry.name.value);
            return Err(self.source.error(place, what, "add `order: least_served`, or leave `levels` out"));
        }
        self.check_levels(entry, levels, place)?;
        let levels = levels.iter().map(|level| level.value.device_ms()).collect();
        Ok(Some(QueueOrder::LeastServed { levels }))
    }

    fn check_levels(
        &self,
        entry: &QueueEntry,
        levels: &[At<GpuHours>],
        place: Place,
    ) -> Result<(), SpecError> {
        if levels.is_empty() {
            let what = format!("`levels` of {} is empty", entry.name.value);
            return Err(self.source.error(place, what, "name at least one, or leave it out for the default"));
        }
        if let Some(beyond) = levels.get(SERVICE_LEVELS_MAX) {
            let what = format!("{} levels", levels.len());
            return Err(self.source.error(beyond.place, what, format!("at most {SERVICE_LEVELS_MAX}")));
        }
        for pair in levels.windows(2) {
            if let [one, next] = pair
                && one.value >= next.value
            {
                let what = format!("{} is not more than {}", next.value.write(), one.value.write());
                let error =
                    self.source.error(next.place, what, "begin with the least, each more than the last");
                return Err(error.also(&self.source, one.place, "the one before it"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_hours_are_exact_and_bounded() {
        for (text, hours) in [("0.5", 500), ("8", 8_000), ("1000000000", GpuHours::MAX)] {
            assert_eq!(GpuHours::read(text), Ok(GpuHours(hours)), "{text}");
            assert_eq!(GpuHours::of_device_ms(GpuHours(hours).device_ms()), GpuHours(hours));
        }
        assert!(GpuHours::read("0").unwrap_err().contains("zero"));
        assert!(GpuHours::read("1000000000.001").unwrap_err().contains("large"));
    }
}
