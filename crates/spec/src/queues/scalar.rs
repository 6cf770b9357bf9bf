//! Amounts of a quota, weights, parts of a cluster, and spans that may be nothing.

use schemars::{Schema, json_schema};

use crate::place::{Scalar, wrong};
use crate::quantity::{self, QuantityError};
use crate::scalar::{AMOUNT_MAX, Count, define_whole};

/// GPUs in thousandths, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GpuAmount(pub(crate) u64);

/// CPUs in thousandths, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuAmount(pub(crate) u64);

/// Bytes, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryAmount(pub(crate) u64);

/// Units of a named resource, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitAmount(pub(crate) u64);

/// In thousandths, from 0 to [`Weight::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(pub u64);

impl Weight {
    pub const MAX: u64 = 1_000_000_000;
}

/// What one device counts, in thousandths, from 1 to [`Worth::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worth(pub u64);

impl Worth {
    pub const MAX: u64 = 1_000_000;
}

/// A user or a group of the host: a name, a number, or `*` for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account(pub String);

impl Scalar for Account {
    const ACCEPTED: &'static str = "the name or number of an account, or '*' for every account";

    fn read(text: &str) -> Result<Self, String> {
        const BYTES_MAX: usize = 256;
        let is_name = |c: char| !c.is_control() && !c.is_whitespace() && !":,".contains(c);
        if text.is_empty() || text.len() > BYTES_MAX || !text.chars().all(is_name) {
            return Err(wrong(text, "is not an account"));
        }
        Ok(Self(text.to_owned()))
    }

    fn write(&self) -> String {
        self.0.clone()
    }

    fn schema() -> Schema {
        json_schema!({ "type": ["string", "integer"], "pattern": "^[^ :,]{1,256}$" })
    }
}

/// A part in thousandths, from 0 to 1,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(pub u32);

/// How many at the head of the line; `u32::MAX` for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth(pub u32);

/// Nanoseconds, also none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanFromZero(pub u64);

impl SpanFromZero {
    /// Whole milliseconds, rounded up.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }
}

/// Most GPUs and CPUs of a quota, in thousandths: more than any cluster has, and far from what a `u64` holds.
const MILLI_MAX: u64 = 1_000_000_000_000;
/// Most memory of a quota: a thousand petabytes.
const MEMORY_BYTES_MAX: u64 = 1_000_000_000_000_000_000;
const ALL: &str = "all";

/// Thousandths that nobody wrote finer.
pub(super) fn milli(text: &str, max: u64) -> Result<u64, String> {
    match quantity::parse_milli(text.trim()) {
        Ok(0) if text.contains(|c: char| ('1'..='9').contains(&c)) => {
            Err(wrong(text, "is less than a thousandth"))
        }
        Ok(amount) if amount > max => Err(wrong(text, "is too large")),
        Ok(amount) => Ok(amount),
        Err(error) => Err(wrong(text, error)),
    }
}

macro_rules! define_amount {
    ($kind:ident, $max:expr, $parse:path, $format:path, $accepted:literal, $schema:tt) => {
        impl Scalar for $kind {
            const ACCEPTED: &'static str = $accepted;

            fn read(text: &str) -> Result<Self, String> {
                match $parse(text) {
                    Ok(amount) if amount > $max => Err(wrong(text, "is too large")),
                    Ok(amount) => Ok(Self(amount)),
                    Err(error) => Err(wrong(text, error)),
                }
            }

            fn write(&self) -> String {
                $format(self.0)
            }

            fn schema() -> Schema {
                json_schema!($schema)
            }
        }
    };
}

define_amount!(CpuAmount, MILLI_MAX, quantity::parse_cpu_milli, quantity::format_cpu_milli,
    "a number of CPUs, such as 64 or 0.5",
    { "anyOf": [{ "type": "number", "minimum": 0 }, { "type": "string", "pattern": "^[0-9.]+ ?m?$" }], "examples": [64] });
define_amount!(MemoryAmount, MEMORY_BYTES_MAX, quantity::parse_memory, quantity::format_memory,
    "bytes with a unit, such as 512GB (powers of 1000) or 512GiB (powers of 1024)",
    { "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": "^[0-9.]+ ?([kKmMgGtTpP][iI]?)?[bB]?$|^[0-9.]+ ?[kKmMgGtTpP][iI]$" }],
      "examples": ["512GB", "512GiB"] });

macro_rules! define_milli {
    ($kind:ident, $max:expr, $accepted:literal, $most:literal) => {
        impl Scalar for $kind {
            const ACCEPTED: &'static str = $accepted;

            fn read(text: &str) -> Result<Self, String> {
                milli(text, $max).map(Self)
            }

            fn write(&self) -> String {
                quantity::format_milli(self.0)
            }

            fn schema() -> Schema {
                json_schema!({ "anyOf": [
                    { "type": "number", "minimum": 0, "maximum": $most },
                    { "type": "string", "pattern": "^[0-9]+([.][0-9]+)?(/[0-9]+)?$" },
                ]})
            }
        }
    };
}

define_milli!(GpuAmount, MILLI_MAX, "a number of GPUs, such as 8 or 0.5", 1_000_000_000);
define_milli!(Weight, Self::MAX, "a weight from 0 to 1000000, such as 2 or 0.5", 1_000_000);

impl Scalar for Worth {
    const ACCEPTED: &'static str = "a number from 0.001 to 1000, such as 0.4";

    fn read(text: &str) -> Result<Self, String> {
        match milli(text, Self::MAX)? {
            0 => Err(wrong(text, "is zero")),
            worth => Ok(Self(worth)),
        }
    }

    fn write(&self) -> String {
        quantity::format_milli(self.0)
    }

    fn schema() -> Schema {
        json_schema!({ "anyOf": [
            { "type": "number", "exclusiveMinimum": 0, "maximum": 1_000 },
            { "type": "string", "pattern": "^[0-9]+([.][0-9]+)?(/[0-9]+)?$" },
        ], "examples": [0.4] })
    }
}

define_whole!(UnitAmount, 0, AMOUNT_MAX, "a whole number from 0 to 1000000000000", Self, |units| units.0);

impl Scalar for Percent {
    const ACCEPTED: &'static str = "a part from 0% to 100%, such as 25% or 2.5%";

    fn read(text: &str) -> Result<Self, String> {
        let Some(number) = text.trim().strip_suffix('%') else {
            return Err(match milli(text, u64::MAX) {
                Ok(_) => wrong(text, format_args!("has no %; did you mean {}%?", text.trim())),
                Err(what) => what,
            });
        };
        // A thousandth of a percent is the hundredth part of what is kept.
        match milli(number.trim_end(), u64::MAX)? {
            fine if !fine.is_multiple_of(100) => Err(wrong(text, "is finer than a tenth of a percent")),
            fine => u32::try_from(fine / 100)
                .ok()
                .filter(|part| *part <= 1_000)
                .map(Self)
                .ok_or_else(|| wrong(text, "is more than all of it")),
        }
    }

    fn write(&self) -> String {
        format!("{}%", quantity::format_milli(u64::from(self.0) * 100))
    }

    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+([.][0-9])? ?%$", "examples": ["25%"] })
    }
}

impl Scalar for Depth {
    const ACCEPTED: &'static str = "a whole number from 1 to 1000000, or all";

    fn read(text: &str) -> Result<Self, String> {
        match text.trim() {
            ALL => Ok(Self(u32::MAX)),
            "0" => Err(wrong(text, "is less than 1: without a reservation a large job may never start")),
            number => Count::read(number).map(|count| Self(count.0)),
        }
    }

    fn write(&self) -> String {
        if self.0 == u32::MAX { ALL.to_owned() } else { self.0.to_string() }
    }

    fn schema() -> Schema {
        json_schema!({ "anyOf": [Count::schema(), { "type": "string", "const": ALL }] })
    }
}

impl Scalar for SpanFromZero {
    const ACCEPTED: &'static str =
        "a duration with its unit, such as 90s, 10m or 1h30m, or 0; at most ten years";

    fn read(text: &str) -> Result<Self, String> {
        match quantity::parse_duration_ns(text) {
            Ok(ns) => Ok(Self(ns)),
            Err(QuantityError::NoUnit) if text.trim() == "0" => Ok(Self(0)),
            Err(error) => Err(wrong(text, error)),
        }
    }

    fn write(&self) -> String {
        quantity::format_duration_ns(self.0)
    }

    fn schema() -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "const": 0 },
            { "type": "string", "pattern": "^([0-9.]+ ?(d|h|m|min|s|sec|ms|us|µs|ns) ?)+$" },
        ], "examples": ["90s", "1h30m", 0] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again<T: Scalar + PartialEq + std::fmt::Debug>(text: &str, value: T) {
        assert_eq!(T::read(text).as_ref(), Ok(&value), "{text}");
        assert_eq!(T::read(&value.write()), Ok(value), "{text}");
    }

    #[test]
    fn amounts_are_exact_and_bounded() {
        again("0.5", GpuAmount(500));
        again("0", GpuAmount(0));
        again("1000000000", GpuAmount(MILLI_MAX));
        again("512GB", MemoryAmount(512_000_000_000));
        again("1000PB", MemoryAmount(MEMORY_BYTES_MAX));
        again("0", UnitAmount(0));
        again("0", Weight(0));
        again("1000000", Weight(Weight::MAX));
        again("25%", Percent(250));
        again("2.5 %", Percent(25));
        again("100%", Percent(1_000));
        again("all", Depth(u32::MAX));
        again("7", Depth(7));
        again("0", SpanFromZero(0));
        again("30s", SpanFromZero(30_000_000_000));
        for (text, why) in
            [("25", "25%"), ("100.1%", "more"), ("1.25%", "finer"), ("-1%", "negative"), ("x", "number")]
        {
            assert!(Percent::read(text).unwrap_err().contains(why), "{text}");
        }
        assert!(GpuAmount::read("0.0001").unwrap_err().contains("thousandth"));
        assert!(GpuAmount::read("1000000000.001").unwrap_err().contains("large"));
        assert!(MemoryAmount::read("1001PB").unwrap_err().contains("large"));
        assert!(Weight::read("1000000.001").unwrap_err().contains("large"));
        assert!(Worth::read("0").unwrap_err().contains("zero"));
        assert!(Depth::read("0").unwrap_err().contains("reservation"));
        assert!(SpanFromZero::read("10").unwrap_err().contains("unit"));
    }
}
