//! Rates: the price of a device in an hour, after the multipliers of the tariff.

use phalanx_model::Tariff;
use phalanx_model::show::milli;

use crate::{Entry, Key};

/// One, in thousandths.
const ONE_MILLI: u128 = 1_000;

/// What one device costs for an hour, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    /// In millionths, rounded down.
    pub price_micro: u64,
    /// Before the multipliers, in millionths.
    pub list_micro: u64,
    /// The multipliers that applied: `class batch 0.5, hours 1.25`. Empty if none did.
    pub rule: String,
}

/// An entry with its rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priced {
    pub entry: Entry,
    pub rate: Rate,
}

impl Priced {
    /// Jobs that name no priority class have `default_class`.
    #[must_use]
    pub fn of(entry: Entry, tariff: &Tariff, default_class: &str) -> Self {
        let rate = rate(tariff, default_class, entry.hour, &entry.key);
        Self { entry, rate }
    }
}

fn rate(tariff: &Tariff, default_class: &str, hour: u64, key: &Key) -> Rate {
    let list_micro = key.class.price_micro;
    let is_spot = key.class.is_spot && !key.class.has_spot_price;
    let class = key.payer.as_ref().map(|payer| match payer.class.as_str() {
        "" => default_class,
        class => class,
    });
    let of_class = class.and_then(|class| Some((format!("class {class}"), *tariff.classes.get(class)?)));
    let factors = [
        tariff.spot_milli.filter(|_| is_spot).map(|milli| ("spot".to_owned(), milli)),
        of_class,
        tariff.of_hour(hour).map(|milli| ("hours".to_owned(), milli)),
    ];
    let factors: Vec<(String, u32)> = factors.into_iter().flatten().filter(|_| list_micro > 0).collect();
    // Multiplied first and divided once, so that the order of the factors does not matter.
    let product = factors
        .iter()
        .fold(u128::from(list_micro), |price, (_, milli)| price.saturating_mul(u128::from(*milli)));
    let divisor = factors.iter().fold(1, |divisor, _| divisor * ONE_MILLI);
    let rule: Vec<String> =
        factors.iter().map(|(what, factor)| format!("{what} {}", milli(u64::from(*factor)))).collect();
    Rate {
        price_micro: u64::try_from(product / divisor).unwrap_or(u64::MAX),
        list_micro,
        rule: rule.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use phalanx_model::{JobId, PricedHours, QueueName};

    use super::*;
    use crate::{Class, Payer, State};

    fn key(class: Option<&str>, is_spot: bool) -> Key {
        let payer = |class: &str| Payer {
            queue: QueueName::new("vision").unwrap(),
            uid: 1,
            user: "ada".to_owned(),
            job: JobId(1),
            name: "train".to_owned(),
            class: class.to_owned(),
        };
        let class_of_device =
            Class { model: String::new(), is_spot, has_spot_price: false, price_micro: 3_333_333 };
        Key {
            state: State::Running,
            payer: class.map(|class| Arc::new(payer(class))),
            class: Arc::new(class_of_device),
        }
    }

    /// Spot nodes cost 0.4, batch jobs half, and the first hours of Thursdays a quarter more.
    fn tariff() -> Tariff {
        let mut days = [false; 7];
        days[3] = true;
        Tariff {
            spot_milli: Some(400),
            classes: [("batch".to_owned(), 500), ("free".to_owned(), 0)].into(),
            hours: vec![PricedHours { days, from: 0, until: 8, milli: 1_250 }],
        }
    }

    fn of(class: Option<&str>, is_spot: bool, hour: u64) -> (u64, String) {
        let rate = rate(&tariff(), "batch", hour, &key(class, is_spot));
        assert_eq!(rate.list_micro, 3_333_333);
        (rate.price_micro, rate.rule)
    }

    #[test]
    fn multipliers_apply_together_and_are_rounded_once() {
        assert_eq!(of(Some("serving"), false, 9), (3_333_333, String::new()));
        assert_eq!(of(Some(""), false, 9), (1_666_666, "class batch 0.5".to_owned()), "the default class");
        // 3,333,333 × 0.4 × 0.5 × 1.25 is 833,333.25.
        let all = "spot 0.4, class batch 0.5, hours 1.25";
        assert_eq!(of(Some("batch"), true, 7), (833_333, all.to_owned()));
        assert_eq!(of(None, true, 7), (1_666_666, "spot 0.4, hours 1.25".to_owned()), "no job has it");
        assert_eq!(of(Some("free"), false, 9), (0, "class free 0".to_owned()));
    }

    #[test]
    fn a_spot_node_with_a_price_of_its_own_keeps_it() {
        let mut key = key(Some("x"), true);
        let class = Class { has_spot_price: true, ..(*key.class).clone() };
        key.class = Arc::new(class);
        assert_eq!(rate(&tariff(), "", 9, &key).rule, "");
        key.class = Arc::new(Class { price_micro: 0, ..(*key.class).clone() });
        assert_eq!(rate(&tariff(), "batch", 1, &key), Rate::default(), "it has no price");
    }
}
