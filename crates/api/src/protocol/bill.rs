//! What devices were for, and what it cost.

use std::collections::BTreeMap;

use phalanx_account::State;
use phalanx_model::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the lines of a bill are by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BillBy {
    Queue,
    User,
    /// The number of the job and its name: `7 llama`.
    Job,
    Model,
    State,
    /// `2026-12`, in UTC as the days and hours.
    Month,
    /// `2026-12-01`.
    Day,
    /// `2026-12-01T08:00Z`.
    Hour,
    /// `spot`, or nothing.
    Spot,
    /// Of one device for an hour, in millionths of the unit of the site; nothing if unknown.
    Price,
    /// The price before its multipliers.
    ListPrice,
    /// The multipliers: `class batch 0.5, hours 1.25`; nothing if none applied.
    Rate,
}

impl BillBy {
    pub const ALL: [Self; 12] = [
        Self::Queue,
        Self::User,
        Self::Job,
        Self::Model,
        Self::State,
        Self::Month,
        Self::Day,
        Self::Hour,
        Self::Spot,
        Self::Price,
        Self::ListPrice,
        Self::Rate,
    ];

    /// As users write and read it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::User => "user",
            Self::Job => "job",
            Self::Model => "model",
            Self::State => "state",
            Self::Month => "month",
            Self::Day => "day",
            Self::Hour => "hour",
            Self::Spot => "spot",
            Self::Price => "price",
            Self::ListPrice => "list_price",
            Self::Rate => "rate",
        }
    }
}

/// Which part of the account; all that is said must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BillAsk {
    pub by: Vec<BillBy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// From the beginning of this hour on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Until the end of the hour before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A bill, in the order of what its lines are by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BillView {
    pub by: Vec<BillBy>,
    /// Until when everything is charged.
    pub until: Timestamp,
    pub lines: Vec<BillLine>,
    /// There are more lines than are given.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// One line of a bill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BillLine {
    /// In the order of [`BillView::by`]. Empty where no job had the devices.
    pub of: Vec<String>,
    /// Microseconds of one device.
    pub device_us: BTreeMap<State, i64>,
    /// In millionths of the unit of the site, by declared prices; devices without a price cost nothing.
    pub cost_micro: i64,
    /// The cost without multipliers.
    #[serde(default)]
    pub list_cost_micro: i64,
    /// Microseconds of one device by the multipliers that applied, if any did.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rates: BTreeMap<String, i64>,
}

impl BillLine {
    /// The device time in all states, in microseconds.
    #[must_use]
    pub fn total_us(&self) -> i64 {
        self.sum(|_| true)
    }

    /// The device time in some states, in microseconds.
    #[must_use]
    pub fn sum(&self, counts: impl Fn(State) -> bool) -> i64 {
        self.device_us.iter().filter(|(state, _)| counts(**state)).map(|(_, us)| us).sum()
    }
}
