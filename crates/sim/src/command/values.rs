//! Values of options. An error says what is expected; clap puts the value and its option before it.

use phalanx_spec::quantity::{parse_duration_ns, parse_milli};

/// Milliseconds of a duration such as `90s`.
pub(super) fn ms(text: &str) -> Result<u64, String> {
    let ns = parse_duration_ns(text)
        .map_err(|error| format!("it {error}; expected a duration such as 30s, 1h30m or 20d"))?;
    Ok(ns / 1_000_000)
}

/// The same for what comes again and again: it takes some time until the next one.
pub(super) fn interval_ms(text: &str) -> Result<u64, String> {
    ms(text)?.checked_sub(1).map(|before| before + 1).ok_or_else(|| "expected more than 0s".to_owned())
}

/// Thousandths of a number.
pub(super) fn milli(text: &str) -> Result<u32, String> {
    let milli = parse_milli(text).ok().and_then(|milli| u32::try_from(milli).ok());
    milli.ok_or_else(|| "expected a number such as 1.5".to_owned())
}

/// Thousandths of a number above 0.
pub(super) fn some_milli(text: &str) -> Result<u32, String> {
    milli(text).ok().filter(|milli| *milli > 0).ok_or_else(|| "expected a number above 0".to_owned())
}

/// Thousandths of a part of a whole.
pub(super) fn part_milli(text: &str) -> Result<u32, String> {
    let part = milli(text).ok().filter(|milli| *milli <= 1_000);
    part.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

/// Thousandths of a factor that makes nothing smaller.
pub(super) fn factor_milli(text: &str) -> Result<u32, String> {
    let factor = milli(text).ok().filter(|milli| *milli >= 1_000);
    factor.ok_or_else(|| "expected a number of at least 1".to_owned())
}

/// A whole number.
pub(super) fn whole(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("expected a whole number, found {text:?}"))
}
