//! Prices and budgets: integers in millionths of the unit that the site counts in. No decision of the engine depends on them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

const HOUR_MS: u64 = 3_600_000;
const DAY_HOURS: u64 = 24;
const DAY_MS: u64 = DAY_HOURS * HOUR_MS;
const DAYS_OF_WEEK: u64 = 7;
/// 1970-01-01 was a Thursday, and weeks begin on Monday.
const FIRST_DAY: u64 = 3;

/// Multipliers of prices, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tariff {
    /// On spot nodes that have no price of their own.
    pub spot_milli: Option<u32>,
    /// By the priority class of the job, for devices that a job has.
    pub classes: BTreeMap<String, u32>,
    /// Windows of the week. The first that has the hour counts.
    pub hours: Vec<PricedHours>,
}

/// Hours of some days of the week, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PricedHours {
    /// By day, from Monday on.
    pub days: [bool; 7],
    /// The first hour of the day, from 0.
    pub from: u8,
    /// The hour after the last, up to 24. If it is no later than `from`, the window ends on the next day.
    pub until: u8,
    pub milli: u32,
}

impl PricedHours {
    /// Whether an hour, by its number since 1970, is in the window.
    #[must_use]
    pub fn has(&self, hour: u64) -> bool {
        let day = (hour / DAY_HOURS + FIRST_DAY) % DAYS_OF_WEEK;
        let of_day = u8::try_from(hour % DAY_HOURS).unwrap_or_default();
        let is_on = |day: u64| usize::try_from(day).ok().and_then(|day| self.days.get(day)) == Some(&true);
        if self.from < self.until {
            return is_on(day) && (self.from..self.until).contains(&of_day);
        }
        let day_before = (day + DAYS_OF_WEEK - 1) % DAYS_OF_WEEK;
        is_on(day) && of_day >= self.from || is_on(day_before) && of_day < self.until
    }
}

impl Tariff {
    /// The multiplier of an hour, by its number since 1970.
    #[must_use]
    pub fn of_hour(&self, hour: u64) -> Option<u32> {
        self.hours.iter().find(|window| window.has(hour)).map(|window| window.milli)
    }
}

/// The highest cost of jobs of a queue, and of the queues below it, in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Budget {
    pub amount_micro: u64,
    pub per: Period,
    /// From this part of the amount on, in thousandths, users are warned.
    pub warn_milli: u32,
    /// Once the amount is spent, no gang of the queue starts in this period, also none that ran before.
    pub holds: bool,
}

/// A period of a budget, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Period {
    Day,
    /// From Monday on.
    Week,
    Month,
}

impl Period {
    pub const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// The beginning of the period that a time is in, and of the next one.
    #[must_use]
    pub fn around(self, at: Timestamp) -> (Timestamp, Timestamp) {
        let day = at.0 / DAY_MS;
        let (first, next) = match self {
            Self::Day => (day, day.saturating_add(1)),
            Self::Week => {
                let first = day.saturating_sub((day + FIRST_DAY) % DAYS_OF_WEEK);
                (first, (day + FIRST_DAY) / DAYS_OF_WEEK * DAYS_OF_WEEK + DAYS_OF_WEEK - FIRST_DAY)
            }
            Self::Month => {
                let (year, month, of_month) = civil(day);
                let first = day - (of_month - 1);
                (first, first + days_of(year, month))
            }
        };
        let time = |day: u64| Timestamp(day.saturating_mul(DAY_MS));
        (time(first), time(next))
    }
}

/// Year, month and day of a time, in UTC.
#[must_use]
pub const fn date(at: Timestamp) -> (u64, u64, u64) {
    civil(at.0 / DAY_MS)
}

/// Year, month and day of the month of a day since 1970, by the Gregorian calendar.
const fn civil(day: u64) -> (u64, u64, u64) {
    // Years from March on, so that the leap day is the last (Howard Hinnant, chrono-compatible date algorithms).
    let days = day + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

const fn days_of(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Monday, 2026-11-30 00:00 UTC.
    const MONDAY: u64 = 1_795_996_800_000;

    fn window(days: &[usize], from: u8, until: u8) -> PricedHours {
        let mut all = [false; 7];
        days.iter().for_each(|day| all[*day] = true);
        PricedHours { days: all, from, until, milli: 1_250 }
    }

    fn hours_of(window: &PricedHours) -> Vec<u64> {
        (0..168).filter(|hour| window.has(MONDAY / HOUR_MS + hour)).collect()
    }

    #[test]
    fn hours_of_a_window_are_those_of_its_days() {
        assert_eq!(hours_of(&window(&[0, 2], 8, 10)), [8, 9, 56, 57]);
        assert_eq!(hours_of(&window(&[6], 22, 2)), [0, 1, 166, 167], "Sunday night ends on Monday");
        assert_eq!(hours_of(&window(&[1], 0, 24)).len(), 24);
        assert_eq!(hours_of(&window(&[1], 7, 7)).len(), 24, "a day from 7 on");
        let tariff = Tariff { hours: vec![window(&[0], 8, 9), window(&[0], 0, 24)], ..Tariff::default() };
        assert_eq!(tariff.of_hour(MONDAY / HOUR_MS + 8), Some(1_250));
        assert_eq!(tariff.of_hour(MONDAY / HOUR_MS + 30), None);
    }

    #[test]
    fn periods_begin_and_end_as_the_calendar_says() {
        let days = |period: Period, at: u64| {
            let (from, until) = period.around(Timestamp(at));
            assert!(from.0 <= at && at < until.0 && from.0 % DAY_MS == 0, "{period:?} {at}");
            (from.0 / DAY_MS, until.0 / DAY_MS)
        };
        let monday = MONDAY / DAY_MS;
        assert_eq!(days(Period::Day, MONDAY + 5), (monday, monday + 1));
        assert_eq!(days(Period::Week, MONDAY), (monday, monday + 7));
        assert_eq!(days(Period::Week, MONDAY - 1), (monday - 7, monday));
        assert_eq!(days(Period::Month, MONDAY), (monday - 29, monday + 1));
        assert_eq!(days(Period::Month, MONDAY + DAY_MS), (monday + 1, monday + 32));
        // 2024-02-29, a leap day.
        assert_eq!(days(Period::Month, 19_782 * DAY_MS), (19_754, 19_783));
        // 2100 has none.
        assert_eq!(days(Period::Month, 47_540 * DAY_MS), (47_513, 47_541));
        assert_eq!(days(Period::Week, 0), (0, 4));
        let mut day = 0;
        while day < 200_000 {
            let (from, until) = days(Period::Month, day * DAY_MS);
            assert!((28..=31).contains(&(until - from)) && from == day);
            day = until;
        }
        assert!(Period::ALL.iter().all(|period| period.around(Timestamp(u64::MAX)).0 > Timestamp(0)));
        assert_eq!(date(Timestamp(MONDAY)), (2026, 11, 30));
    }
}
