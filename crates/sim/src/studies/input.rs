//! Values of the input files, each with its limits in its type.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use phalanx_spec::quantity::{format_duration_ns, format_milli, parse_duration_ns, parse_milli};
use serde::de::{self, Deserialize, Deserializer};

pub(super) const SECOND: u64 = 1_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;
/// Longest time of an input.
pub(super) const LONG: u64 = 100 * DAY;

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Count<const MIN: u32, const MAX: u32>(pub(super) u32);

/// A duration such as `30s`, in milliseconds, from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Time<const MIN: u64, const MAX: u64>(pub(super) u64);

/// A decimal number such as `0.85`, in thousandths, from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Milli<const MIN: u32, const MAX: u32>(pub(super) u32);

/// A part of a whole: 0 to 1.
pub(super) type Part = Milli<0, 1_000>;

impl<const MIN: u32, const MAX: u32> Milli<MIN, MAX> {
    pub(super) fn real(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }

    pub(super) fn percent(self) -> f64 {
        f64::from(self.0) / 10.0
    }
}

/// A value that is written as one word.
trait Word: Sized {
    fn read(text: &str) -> Option<Self>;

    /// Completes "expected …".
    fn accepted() -> String;
}

impl<const MIN: u32, const MAX: u32> Word for Count<MIN, MAX> {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|count| (MIN..=MAX).contains(count)).map(Self)
    }

    fn accepted() -> String {
        format!("a whole number from {MIN} to {MAX}")
    }
}

impl<const MIN: u64, const MAX: u64> Word for Time<MIN, MAX> {
    fn read(text: &str) -> Option<Self> {
        let ms = parse_duration_ns(text).ok()? / 1_000_000;
        (MIN..=MAX).contains(&ms).then_some(Self(ms))
    }

    fn accepted() -> String {
        let [least, most] = [MIN, MAX].map(|ms| format_duration_ns(ms * 1_000_000));
        format!("a duration such as 30s, from {least} to {most}")
    }
}

impl<const MIN: u32, const MAX: u32> Word for Milli<MIN, MAX> {
    fn read(text: &str) -> Option<Self> {
        let milli = u32::try_from(parse_milli(text).ok()?).ok()?;
        (MIN..=MAX).contains(&milli).then_some(Self(milli))
    }

    fn accepted() -> String {
        let [least, most] = [MIN, MAX].map(|milli| format_milli(u64::from(milli)));
        format!("a number from {least} to {most}, with at most three decimals")
    }
}

struct Visitor<T>(PhantomData<T>);

impl<T: Word> de::Visitor<'_> for Visitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::accepted())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        let shown: String = text.chars().take(40).collect();
        T::read(text).ok_or_else(|| E::custom(format!("{shown:?} does not belong here\n{}", T::accepted())))
    }
}

macro_rules! read_words {
    ($($word:ident<$kind:ty>),+) => { $(
        impl<'de, const MIN: $kind, const MAX: $kind> Deserialize<'de> for $word<MIN, MAX> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Visitor(PhantomData))
            }
        }
    )+ };
}

read_words!(Count<u32>, Time<u64>, Milli<u32>);

/// One to `MAX` values.
#[derive(Clone, Debug)]
pub(super) struct List<T, const MAX: usize>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Vec::deserialize(deserializer)?;
        if !(1..=MAX).contains(&all.len()) {
            let found = all.len();
            return Err(de::Error::custom(format!("{found} values are listed\n1 to {MAX} of them")));
        }
        Ok(Self(all))
    }
}

/// Most entries of a mix.
const MIX_MAX: usize = 64;

/// Sizes of jobs in GPUs, and how often each comes.
#[derive(Clone, Debug)]
pub(super) struct Mix(pub(super) Vec<(u32, u32)>);

impl<'de> Deserialize<'de> for Mix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all: BTreeMap<Count<1, 10_000>, Count<1, 1_000_000>> = BTreeMap::deserialize(deserializer)?;
        if !(1..=MIX_MAX).contains(&all.len()) {
            let found = all.len();
            return Err(de::Error::custom(format!("{found} sizes are listed\n1 to {MIX_MAX} of them")));
        }
        Ok(Self(all.into_iter().map(|(gpus, weight)| (gpus.0, weight.0)).collect()))
    }
}

impl Mix {
    pub(super) fn mean(&self) -> f64 {
        let weights: f64 = self.0.iter().map(|(_, weight)| f64::from(*weight)).sum();
        self.0.iter().map(|(gpus, weight)| f64::from(*gpus) * f64::from(*weight)).sum::<f64>() / weights
    }
}
