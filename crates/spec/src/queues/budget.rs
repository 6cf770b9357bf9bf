//! Budgets of queues.

use phalanx_model::{Budget, Period};
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

use super::Percent;
use crate::place::{At, Scalar};
use crate::quantity;
use crate::scalar::{define_words, micro};

/// A budget of a queue, and of the queues below it. It counts the cost of `phalanx bill`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetFile {
    /// In the unit of the prices of the cluster file: `5000`.
    pub amount: At<Money>,
    /// `day`, `week` (from Monday on) or `month`, in UTC. Default: month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per: Option<At<Per>>,
    /// The part of the amount from which on its users and operators are warned. Default: 80%.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warn: Option<At<Percent>>,
    /// What happens once the amount is spent: `warn`, or `hold`, and no further job of the queue starts until the next
    /// period; running jobs go on. Default: warn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<At<Then>>,
}

/// In millionths of a unit that the site chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(pub u64);

impl Money {
    /// A million million units: what SQLite and sums can hold.
    const MAX: u64 = 1_000_000_000_000_000_000;
}

impl Scalar for Money {
    const ACCEPTED: &'static str = "an amount from 0 to 1000000000000 with at most 6 decimals, such as 5000";

    fn read(text: &str) -> Result<Self, String> {
        micro(text, Self::MAX).map(Self)
    }

    fn write(&self) -> String {
        quantity::format_micro(self.0)
    }

    fn schema() -> Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1_000_000_000_000_u64 },
            { "type": "string", "pattern": "^[0-9]+([.][0-9]+)?$" },
        ], "examples": [5_000] })
    }
}

/// The period of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    Day,
    Week,
    Month,
}

define_words!(Per, "one of day, week, month", "day" => Self::Day, "week" => Self::Week, "month" => Self::Month);

/// What happens once a budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Warn,
    Hold,
}

define_words!(Then, "one of warn, hold", "warn" => Self::Warn, "hold" => Self::Hold);

/// From this part of a budget on its users are warned, in thousandths, if the file does not say.
const WARN_MILLI: u32 = 800;

impl BudgetFile {
    pub(super) fn budget(&self) -> Budget {
        Budget {
            amount_micro: self.amount.value.0,
            per: match self.per.map_or(Per::Month, |per| per.value) {
                Per::Day => Period::Day,
                Per::Week => Period::Week,
                Per::Month => Period::Month,
            },
            warn_milli: self.warn.map_or(WARN_MILLI, |part| part.value.0),
            holds: self.then.is_some_and(|then| then.value == Then::Hold),
        }
    }

    pub(super) fn of(budget: &Budget) -> Self {
        let per = match budget.per {
            Period::Day => Per::Day,
            Period::Week => Per::Week,
            Period::Month => Per::Month,
        };
        Self {
            amount: Money(budget.amount_micro).into(),
            per: Some(per.into()),
            warn: Some(Percent(budget.warn_milli).into()),
            then: Some(if budget.holds { Then::Hold } else { Then::Warn }.into()),
        }
    }
}
