//! What devices cost, and nodes that may be taken back at short notice.

use phalanx_model::Spot;
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

use crate::place::{At, Scalar};
use crate::quantity;
use crate::scalar::{Span, micro};

/// Capacity that is lent until somebody wants it back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpotFile {
    /// Of one device for an hour, in the unit of the node's `price`. With both, what is saved is told of each job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<At<Price>>,
    /// From the notice until the node is gone, at least: `2m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<At<Span>>,
}

/// Of one device for an hour, in millionths of a unit that the site chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(pub u64);

impl Price {
    /// A million units: far above any price, and far from what sums can hold.
    const MAX: u64 = 1_000_000_000_000;
}

impl Scalar for Price {
    const ACCEPTED: &'static str =
        "a price of one device for an hour, from 0 to 1000000 with at most 6 decimals, such as 1.20";

    fn read(text: &str) -> Result<Self, String> {
        micro(text, Self::MAX).map(Self)
    }

    fn write(&self) -> String {
        quantity::format_micro(self.0)
    }

    fn schema() -> Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1_000_000 },
            { "type": "string", "pattern": "^[0-9]+([.][0-9]+)?$" },
        ], "examples": [1.20] })
    }
}

impl SpotFile {
    pub(super) fn model(&self) -> Spot {
        Spot {
            price_micro_per_device_hour: self.price.map_or(0, |price| price.value.0),
            notice_ms: self.notice.map_or(0, |notice| notice.value.millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_exactly() {
        for (text, micro, written) in [
            ("1.20", 1_200_000, "1.2"),
            ("0", 0, "0"),
            ("0.000001", 1, "0.000001"),
            ("98", 98_000_000, "98"),
            ("2.5000000", 2_500_000, "2.5"),
        ] {
            assert_eq!(Price::read(text), Ok(Price(micro)), "{text}");
            assert_eq!(Price(micro).write(), written);
        }
        for text in ["", "-1", "1.", ".5", "1,20", "1.0000001", "1000001", "1 EUR", "1e3", "nan"] {
            assert!(Price::read(text).is_err(), "{text}");
        }
    }
}
