//! Multipliers of prices: by spot nodes, by the class of a job, and by the hour of the week.

use std::collections::BTreeMap;

use phalanx_model::{ClassName, PricedHours, Tariff};
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

use super::ClusterFile;
use crate::error::SpecError;
use crate::place::{At, Scalar, wrong};
use crate::quantity;

/// Days of the week, as they are written.
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const HOURS_OF_DAY: u8 = 24;
/// Most windows of the week.
const WINDOWS_MAX: usize = 100;

/// What the prices of devices are multiplied by. All that applies is multiplied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PricesFile {
    /// On spot nodes that have no `spot.price`: `0.4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot: Option<At<Multiplier>>,
    /// By the class of the job: `{serving: 1.5, batch: 0.5}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<At<ClassName>, At<Multiplier>>,
    /// By the hour of the week. The first window that has the hour counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hours: Vec<HoursFile>,
}

/// Hours of some days of the week, in UTC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HoursFile {
    /// Days on which it begins: `[mon-fri]`. Default: every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<At<DaysOfWeek>>,
    /// First hour: `"08:00"`. Default: 00:00.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<At<HourOfDay>>,
    /// When it ends; no later than `from`, on the next day. Default: 24:00.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<At<HourOfDay>>,
    /// The multiplier.
    pub times: At<Multiplier>,
}

/// In thousandths, from 0 to [`Multiplier::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiplier(pub u32);

impl Multiplier {
    const MAX: u32 = 1_000_000;
}

impl Scalar for Multiplier {
    const ACCEPTED: &'static str = "a multiplier from 0 to 1000 with at most 3 decimals, such as 0.5";

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.trim_end_matches('0').len());
        match quantity::parse_milli(text).map_err(|error| wrong(text, error))? {
            _ if decimals > 3 => Err(wrong(text, "has more than 3 decimals")),
            milli => {
                let milli = u32::try_from(milli).ok().filter(|milli| *milli <= Self::MAX);
                milli.map(Self).ok_or_else(|| wrong(text, "is too large"))
            }
        }
    }

    fn write(&self) -> String {
        quantity::format_milli(self.0.into())
    }

    fn schema() -> Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1_000 },
            { "type": "string", "pattern": "^[0-9]+([.][0-9]+)?$" },
        ], "examples": [0.5] })
    }
}

/// One day, or a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaysOfWeek {
    first: usize,
    last: usize,
}

impl DaysOfWeek {
    fn has(self, day: usize) -> bool {
        if self.first <= self.last {
            (self.first..=self.last).contains(&day)
        } else {
            day >= self.first || day <= self.last
        }
    }
}

impl Scalar for DaysOfWeek {
    const ACCEPTED: &'static str = "a day of the week or a range of them, such as mon or sat-sun";

    fn read(text: &str) -> Result<Self, String> {
        let day = |word: &str| {
            let word = word.trim().to_ascii_lowercase();
            DAYS.iter().position(|day| *day == word).ok_or_else(|| wrong(text, "is no day of the week"))
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Ok(Self { first: day(first)?, last: day(last)? })
    }

    fn write(&self) -> String {
        let word = |day: usize| DAYS.get(day).copied().unwrap_or_default();
        if self.first == self.last {
            word(self.first).to_owned()
        } else {
            format!("{}-{}", word(self.first), word(self.last))
        }
    }

    fn schema() -> Schema {
        let day = "(mon|tue|wed|thu|fri|sat|sun)";
        json_schema!({ "type": "string", "pattern": format!("^{day}(-{day})?$"), "examples": ["mon-fri"] })
    }
}

/// A whole hour, from 0 to 24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourOfDay(pub u8);

impl Scalar for HourOfDay {
    const ACCEPTED: &'static str = "a whole hour in UTC from 00:00 to 24:00, such as 08:00";

    fn read(text: &str) -> Result<Self, String> {
        let hour = text.trim();
        let hour = hour.strip_suffix(":00").unwrap_or(hour);
        match hour.parse::<u8>() {
            Ok(hour) if hour <= HOURS_OF_DAY => Ok(Self(hour)),
            _ => Err(wrong(text, "is no whole hour of a day")),
        }
    }

    fn write(&self) -> String {
        format!("{:02}:00", self.0)
    }

    fn schema() -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": 24 },
            { "type": "string", "pattern": "^([01]?[0-9]|2[0-4])(:00)?$" },
        ], "examples": ["08:00"] })
    }
}

impl HoursFile {
    fn hours(&self) -> PricedHours {
        let mut days = [self.days.is_empty(); 7];
        for (day, is_on) in days.iter_mut().enumerate() {
            *is_on |= self.days.iter().any(|said| said.value.has(day));
        }
        PricedHours {
            days,
            from: self.from.map_or(0, |hour| hour.value.0),
            until: self.until.map_or(HOURS_OF_DAY, |hour| hour.value.0),
            milli: self.times.value.0,
        }
    }
}

impl ClusterFile {
    pub(super) fn tariff(&self) -> Result<Tariff, SpecError> {
        let Some(prices) = &self.prices else { return Ok(Tariff::default()) };
        if let Some(beyond) = prices.hours.get(WINDOWS_MAX) {
            let what = format!("{} windows of hours", prices.hours.len());
            return Err(self.source.error(beyond.times.place, what, format!("at most {WINDOWS_MAX}")));
        }
        let class =
            |(class, times): (&At<ClassName>, &At<Multiplier>)| (class.value.to_string(), times.value.0);
        Ok(Tariff {
            spot_milli: prices.spot.map(|times| times.value.0),
            classes: prices.classes.iter().map(class).collect(),
            hours: prices.hours.iter().map(HoursFile::hours).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tariff(prices: &str) -> Result<Tariff, String> {
        let text = format!("nodes: [{{name: a, devices: {{count: 1}}}}]\nprices: {prices}\n");
        let file = ClusterFile::from_yaml(&text, "cluster.yaml").map_err(|error| error.to_string())?;
        file.into_cluster().map(|cluster| cluster.tariff).map_err(|error| error.to_string())
    }

    #[test]
    fn multipliers_are_read_exactly() {
        let tariff = tariff(
            "{spot: 0.4, classes: {batch: 0.5}, hours: [{days: [mon-tue, sun], from: '22:00', until: 6, times: 1.255}, \
             {times: 2}]}",
        )
        .unwrap();
        assert_eq!((tariff.spot_milli, tariff.classes.get("batch")), (Some(400), Some(&500)));
        let days = [true, true, false, false, false, false, true];
        assert_eq!(tariff.hours[0], PricedHours { days, from: 22, until: 6, milli: 1_255 });
        assert_eq!(tariff.hours[1], PricedHours { days: [true; 7], from: 0, until: 24, milli: 2_000 });
    }

    #[test]
    fn what_is_no_multiplier_is_refused_with_its_place() {
        for (prices, why) in [
            ("{spot: -1}", "spot"),
            ("{spot: 0.0005}", "more than 3 decimals"),
            ("{spot: 1001}", "too large"),
            ("{hours: [{from: '08:30', times: 1}]}", "no whole hour"),
            ("{hours: [{until: 25, times: 1}]}", "no whole hour"),
            ("{hours: [{days: [mo], times: 1}]}", "no day of the week"),
            ("{hours: [{days: [mon]}]}", "times"),
            ("{weekend: 2}", "no such field"),
        ] {
            let error = tariff(prices).unwrap_err();
            assert!(error.contains(why) && error.contains("cluster.yaml:2"), "{prices}: {error}");
        }
    }

    #[test]
    fn days_and_hours_are_written_as_they_are_read() {
        for text in ["mon", "sat-sun", "fri-mon"] {
            assert_eq!(DaysOfWeek::read(text).unwrap().write(), text);
        }
        assert_eq!(HourOfDay::read("8").unwrap().write(), "08:00");
    }
}
