//! Amounts as people write them: memory, bandwidths, durations, CPUs. Integers throughout, so that `1.1GB` is
//! the same number of bytes everywhere; what is smaller than the unit of the result is dropped.

/// Durations as [`parse_duration_ns`] reads them, and thousandths as [`parse_milli`] does.
pub use phalanx_model::show::{duration_ns as format_duration_ns, milli as format_milli};

/// Longest duration that is read: ten years, in nanoseconds. Keeps every sum of a few of them inside a `u64`.
pub const DURATION_NS_MAX: u64 = 10 * 365 * DAY_NS;

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * SECOND_NS;

/// Units of a duration, longest first; the first name of each is the one that is written.
const DURATION_UNITS: &[(&[&str], u64)] = &[
    (&["d"], DAY_NS),
    (&["h"], 3_600 * SECOND_NS),
    (&["m", "min"], 60 * SECOND_NS),
    (&["s", "sec"], SECOND_NS),
    (&["ms"], 1_000_000),
    (&["us", "µs"], 1_000),
    (&["ns"], 1),
];

/// Prefixes of bytes and bits: SI (powers of 1000) and IEC 80000-13 (powers of 1024).
const PREFIXES: &[(&str, u64)] = &[
    ("", 1),
    ("k", 1_000),
    ("Ki", 1 << 10),
    ("M", 1_000_000),
    ("Mi", 1 << 20),
    ("G", 1_000_000_000),
    ("Gi", 1 << 30),
    ("T", 1_000_000_000_000),
    ("Ti", 1 << 40),
    ("P", 1_000_000_000_000_000),
    ("Pi", 1 << 50),
];

/// Why a text is not a quantity. The messages complete a sentence that begins with the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("is empty")]
    Empty,
    #[error("is negative")]
    Negative,
    #[error("does not begin with a plain decimal number")]
    NotANumber,
    #[error("has no unit")]
    NoUnit,
    #[error("has the unknown unit {0:?}")]
    UnknownUnit(String),
    #[error(
        "can be read in two ways: {0:?} is {0}B (powers of 1000) to some and {0}iB (powers of 1024) to others"
    )]
    Ambiguous(String),
    #[error("is too large")]
    TooLarge,
    #[error("has its units in the wrong order, or one of them twice")]
    UnitOrder,
    #[error("has a part that is out of range: minutes and seconds end at 59, hours after days at 23")]
    ClockRange,
}

/// Bytes: `512GB` (10^9), `512GiB` (2^30), `1.5TB`, or a plain number of bytes. Case does not matter.
///
/// # Errors
/// When the text is no number with such a unit, or does not fit in a `u64`.
pub fn parse_memory(text: &str) -> Result<u64, QuantityError> {
    let (number, unit) = split_number(text)?;
    if unit.is_empty() {
        return number.times(1, 1);
    }
    let lower = unit.to_ascii_lowercase();
    let prefix = lower.strip_suffix('b').unwrap_or(&lower);
    if !lower.ends_with('b') && !lower.ends_with('i') && prefix_factor(prefix).is_some() {
        return Err(QuantityError::Ambiguous(unit.to_ascii_uppercase()));
    }
    let factor = prefix_factor(prefix).ok_or_else(|| unknown_unit(unit))?;
    number.times(factor, 1)
}

/// Bytes per second, one way: `12.5GB/s`, `100Gb/s`, `100Gbps`, `400Gbit/s`. `B` is bytes and `b` is bits.
///
/// # Errors
/// When the text is no number with such a unit, or does not fit in a `u64`.
pub fn parse_bandwidth(text: &str) -> Result<u64, QuantityError> {
    let (number, unit) = split_number(text)?;
    if unit.is_empty() {
        return Err(QuantityError::NoUnit);
    }
    let amount =
        unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps")).ok_or_else(|| unknown_unit(unit))?;
    let (prefix, divisor) = if let Some(prefix) = amount.strip_suffix('B') {
        (prefix, 1)
    } else if let Some(prefix) = amount.strip_suffix("bit").or_else(|| amount.strip_suffix('b')) {
        (prefix, 8)
    } else {
        return Err(unknown_unit(unit));
    };
    let known = PREFIXES.iter().find(|(name, _)| *name == prefix || (*name == "k" && prefix == "K"));
    let (_, factor) = known.ok_or_else(|| unknown_unit(unit))?;
    number.times(*factor, divisor)
}

/// Nanoseconds: `90s`, `1h30m`, `1.5h`, `250ms`. Every number has a unit, longer ones first.
///
/// # Errors
/// When the text is no such sequence, or is longer than [`DURATION_NS_MAX`].
pub fn parse_duration_ns(text: &str) -> Result<u64, QuantityError> {
    let mut rest = text.trim();
    let (mut total, mut shortest) = (0_u64, u64::MAX);
    loop {
        let (number, after) = take_number(rest)?;
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, tail) = after.split_at(end);
        if unit.is_empty() {
            return Err(if after.is_empty() { QuantityError::NoUnit } else { QuantityError::NotANumber });
        }
        let known = DURATION_UNITS.iter().find(|(names, _)| names.contains(&unit));
        let (_, factor) = known.ok_or_else(|| unknown_unit(unit))?;
        if *factor >= shortest {
            return Err(QuantityError::UnitOrder);
        }
        shortest = *factor;
        let part = number.times(*factor, 1)?;
        total = total.checked_add(part).filter(|ns| *ns <= DURATION_NS_MAX).ok_or(QuantityError::TooLarge)?;
        rest = tail.trim_start();
        if rest.is_empty() {
            return Ok(total);
        }
    }
}

/// Nanoseconds: a duration with units, or Slurm's way of writing a time limit: `MM`, `MM:SS`, `HH:MM:SS`,
/// `D-HH`, `D-HH:MM`, `D-HH:MM:SS` (sbatch(1), `--time`).
///
/// # Errors
/// When the text is neither, or is longer than [`DURATION_NS_MAX`].
pub fn parse_time_limit_ns(text: &str) -> Result<u64, QuantityError> {
    let text = text.trim();
    let clock = |c: char| c.is_ascii_digit() || c == ':' || c == '-';
    if text.is_empty() || text.starts_with('-') || !text.chars().all(clock) {
        return parse_duration_ns(text);
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(whole(days)?), rest),
        None => (None, text),
    };
    let parts = rest.split(':').map(whole).collect::<Result<Vec<u64>, _>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (None, [m]) => (0, *m, 0),
        (None, [m, s]) => (0, *m, *s),
        (Some(_), [h]) => (*h, 0, 0),
        (Some(_), [h, m]) => (*h, *m, 0),
        (_, [h, m, s]) => (*h, *m, *s),
        _ => return Err(QuantityError::NotANumber),
    };
    let inner_minutes = days.is_some() || parts.len() == 3;
    let inner_seconds = parts.len() > 1;
    if (days.is_some() && hours > 23) || (inner_minutes && minutes > 59) || (inner_seconds && seconds > 59) {
        return Err(QuantityError::ClockRange);
    }
    let sum = [(days.unwrap_or(0), 86_400), (hours, 3_600), (minutes, 60), (seconds, 1)]
        .iter()
        .try_fold(0_u64, |sum, (count, seconds)| sum.checked_add(count.checked_mul(*seconds)?));
    sum.and_then(|s| s.checked_mul(SECOND_NS))
        .filter(|ns| *ns <= DURATION_NS_MAX)
        .ok_or(QuantityError::TooLarge)
}

/// Thousandths of a logical CPU: `64`, `0.5`, or `500m` as Kubernetes writes it.
///
/// # Errors
/// When the text is no such number.
pub fn parse_cpu_milli(text: &str) -> Result<u64, QuantityError> {
    let (number, unit) = split_number(text)?;
    match unit {
        "" => number.times(1_000, 1),
        "m" => number.times(1, 1),
        other => Err(unknown_unit(other)),
    }
}

/// Thousandths: `0.25` or `2/7`.
///
/// # Errors
/// When the text is neither.
pub fn parse_milli(text: &str) -> Result<u64, QuantityError> {
    let (above, below) = match text.split_once('/') {
        Some((above, below)) => (above, whole(below.trim())?),
        None => (text, 1),
    };
    let (number, unit) = split_number(above)?;
    match (unit, below) {
        ("", 0) => Err(QuantityError::NotANumber),
        ("", below) => number.times(1_000, below),
        (unit, _) => Err(unknown_unit(unit)),
    }
}

/// Millionths: `1.20`. What is finer is cut off.
///
/// # Errors
/// When the text is no number.
pub fn parse_micro(text: &str) -> Result<u64, QuantityError> {
    match split_number(text)? {
        (number, "") => number.times(1_000_000, 1),
        (_, unit) => Err(unknown_unit(unit)),
    }
}

/// The shortest exact way to write a number of bytes with a unit, e.g. `512GB`.
#[must_use]
pub fn format_memory(bytes: u64) -> String {
    if bytes == 0 {
        return "0B".to_owned();
    }
    // Prefixes ascend, so the last that divides gives the shortest number.
    let best = PREFIXES.iter().rev().find(|(_, factor)| bytes.is_multiple_of(*factor));
    best.map_or_else(|| format!("{bytes}B"), |(prefix, factor)| format!("{}{prefix}B", bytes / factor))
}

/// The shortest exact way to write bytes per second, e.g. `12500MB/s`.
#[must_use]
pub fn format_bandwidth(bytes_per_s: u64) -> String {
    format!("{}/s", format_memory(bytes_per_s))
}

/// CPUs as [`parse_cpu_milli`] reads them.
#[must_use]
pub fn format_cpu_milli(milli: u64) -> String {
    if milli.is_multiple_of(1_000) { (milli / 1_000).to_string() } else { format!("{milli}m") }
}

/// The shortest exact way to write millionths: `1.2`.
#[must_use]
pub fn format_micro(micro: u64) -> String {
    let decimals = format!("{:06}", micro % 1_000_000);
    match decimals.trim_end_matches('0') {
        "" => (micro / 1_000_000).to_string(),
        decimals => format!("{}.{decimals}", micro / 1_000_000),
    }
}

fn unknown_unit(unit: &str) -> QuantityError {
    QuantityError::UnknownUnit(unit.chars().take(20).collect())
}

fn prefix_factor(lower: &str) -> Option<u64> {
    PREFIXES.iter().find(|(name, _)| name.eq_ignore_ascii_case(lower)).map(|(_, factor)| *factor)
}

fn whole(digits: &str) -> Result<u64, QuantityError> {
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return Err(QuantityError::NotANumber);
    }
    digits.parse().map_err(|_| QuantityError::TooLarge)
}

/// A decimal number: `digits / 10^places`.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u128,
    places: u32,
}

impl Decimal {
    fn times(self, factor: u64, divisor: u64) -> Result<u64, QuantityError> {
        let scaled = self.digits.checked_mul(u128::from(factor)).ok_or(QuantityError::TooLarge)?;
        let value = scaled / (10_u128.pow(self.places) * u128::from(divisor));
        u64::try_from(value).map_err(|_| QuantityError::TooLarge)
    }
}

/// The number, and the unit behind it without the space between them.
fn split_number(text: &str) -> Result<(Decimal, &str), QuantityError> {
    let (number, unit) = take_number(text.trim())?;
    Ok((number, unit.trim_start()))
}

/// Reads `digits` or `digits.digits` from the beginning.
fn take_number(text: &str) -> Result<(Decimal, &str), QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Empty);
    }
    if text.starts_with('-') {
        return Err(QuantityError::Negative);
    }
    let digits_end = |from: &str| from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
    let (whole, mut rest) = text.split_at(digits_end(text));
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        (fraction, rest) = after.split_at(digits_end(after));
        if fraction.is_empty() {
            return Err(QuantityError::NotANumber);
        }
    }
    if whole.is_empty() {
        return Err(QuantityError::NotANumber);
    }
    let fraction = fraction.trim_end_matches('0');
    // 18 decimal places keep every product of a number below 2^64 and a factor inside a u128.
    if fraction.len() > 18 {
        return Err(QuantityError::NotANumber);
    }
    let places = u32::try_from(fraction.len()).map_err(|_| QuantityError::TooLarge)?;
    let digits = format!("{whole}{fraction}").parse().map_err(|_| QuantityError::TooLarge)?;
    Ok((Decimal { digits, places }, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn memory_is_read_exactly() {
        assert_eq!(parse_memory("512GB"), Ok(512_000_000_000));
        assert_eq!(parse_memory("512GiB"), Ok(512 << 30));
        assert_eq!(parse_memory("512 gib"), Ok(512 << 30));
        assert_eq!(parse_memory("1.5TB"), Ok(1_500_000_000_000));
        assert_eq!(parse_memory("64Gi"), Ok(64 << 30));
        assert_eq!(parse_memory("4096"), Ok(4096));
        assert_eq!(parse_memory("0.1GB"), Ok(100_000_000));
        assert_eq!(parse_memory("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_memory("18446744073709551616"), Err(QuantityError::TooLarge));
        assert_eq!(
            parse_memory("99999999999999999999999999999999999999999999"),
            Err(QuantityError::TooLarge)
        );
        assert_eq!(parse_memory("20000PB"), Err(QuantityError::TooLarge));
        assert_eq!(parse_memory("-1GB"), Err(QuantityError::Negative));
        assert_eq!(parse_memory("512G"), Err(QuantityError::Ambiguous("G".to_owned())));
        assert_eq!(parse_memory("5XB"), Err(QuantityError::UnknownUnit("XB".to_owned())));
        for text in [".nan", ".inf", "nan", "inf", "GB", "1.GB", "+5", "0x10", "1e9"] {
            assert!(parse_memory(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bandwidth_tells_bits_from_bytes() {
        assert_eq!(parse_bandwidth("12.5GB/s"), Ok(12_500_000_000));
        assert_eq!(parse_bandwidth("100Gb/s"), Ok(12_500_000_000));
        assert_eq!(parse_bandwidth("400Gbps"), Ok(50_000_000_000));
        assert_eq!(parse_bandwidth("100 Gbit/s"), Ok(12_500_000_000));
        assert_eq!(parse_bandwidth("1GiB/s"), Ok(1 << 30));
        assert_eq!(parse_bandwidth("100"), Err(QuantityError::NoUnit));
        assert_eq!(parse_bandwidth("100G"), Err(QuantityError::UnknownUnit("G".to_owned())));
        assert_eq!(parse_bandwidth("100gb/s"), Err(QuantityError::UnknownUnit("gb/s".to_owned())));
    }

    #[test]
    fn durations_and_slurm_times_are_read() {
        let seconds = |s: u64| Ok(s * SECOND_NS);
        assert_eq!(parse_duration_ns("90s"), seconds(90));
        assert_eq!(parse_duration_ns("1h30m"), seconds(5400));
        assert_eq!(parse_duration_ns("1.5h"), seconds(5400));
        assert_eq!(parse_duration_ns("1h 30m"), seconds(5400));
        assert_eq!(parse_duration_ns("250ms"), Ok(250_000_000));
        assert_eq!(parse_duration_ns("30"), Err(QuantityError::NoUnit));
        assert_eq!(parse_duration_ns("30m1h"), Err(QuantityError::UnitOrder));
        assert_eq!(parse_duration_ns("1h1h"), Err(QuantityError::UnitOrder));
        assert_eq!(parse_duration_ns("1h30"), Err(QuantityError::NoUnit));
        assert_eq!(parse_duration_ns("-5s"), Err(QuantityError::Negative));
        assert_eq!(parse_duration_ns("9999999d"), Err(QuantityError::TooLarge));
        assert_eq!(parse_time_limit_ns("30"), seconds(1800));
        assert_eq!(parse_time_limit_ns("90:30"), seconds(5430));
        assert_eq!(parse_time_limit_ns("12:30:00"), seconds(45_000));
        assert_eq!(parse_time_limit_ns("2-12"), seconds(216_000));
        assert_eq!(parse_time_limit_ns("2-12:30"), seconds(217_800));
        assert_eq!(parse_time_limit_ns("1-02:03:04"), seconds(93_784));
        assert_eq!(parse_time_limit_ns("24h"), seconds(86_400));
        assert_eq!(parse_time_limit_ns("00:75:00"), Err(QuantityError::ClockRange));
        assert_eq!(parse_time_limit_ns("1-24:00"), Err(QuantityError::ClockRange));
        assert_eq!(parse_time_limit_ns("1:2:3:4"), Err(QuantityError::NotANumber));
        assert_eq!(parse_time_limit_ns("-5"), Err(QuantityError::Negative));
        assert_eq!(parse_time_limit_ns("5-"), Err(QuantityError::NotANumber));
        assert_eq!(parse_time_limit_ns("99999999999999999"), Err(QuantityError::TooLarge));
    }

    #[test]
    fn cpus_are_thousandths() {
        assert_eq!(parse_cpu_milli("64"), Ok(64_000));
        assert_eq!(parse_cpu_milli("0.5"), Ok(500));
        assert_eq!(parse_cpu_milli("250m"), Ok(250));
    }

    #[test]
    fn parts_are_decimals_or_fractions() {
        assert_eq!(parse_milli("0.25"), Ok(250));
        assert_eq!(parse_milli("2/7"), Ok(285), "rounded down, so that two sevenths are no three");
        assert_eq!(parse_milli("1"), Ok(1_000));
        assert_eq!(parse_milli("0.0001"), Ok(0));
        assert_eq!(parse_milli("1/0"), Err(QuantityError::NotANumber));
        assert_eq!(parse_milli("25%"), Err(QuantityError::UnknownUnit("%".to_owned())));
        assert_eq!(parse_milli("-0.5"), Err(QuantityError::Negative));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(n: u64, shift in 0_u32..64) {
            let n = n >> shift;
            prop_assert_eq!(parse_memory(&format_memory(n)), Ok(n));
            prop_assert_eq!(parse_bandwidth(&format_bandwidth(n)), Ok(n));
            prop_assert_eq!(parse_cpu_milli(&format_cpu_milli(n / 1000)), Ok(n / 1000));
            let ns = n % (DURATION_NS_MAX + 1);
            prop_assert_eq!(parse_duration_ns(&format_duration_ns(ns)), Ok(ns));
            prop_assert_eq!(parse_time_limit_ns(&format_duration_ns(ns)), Ok(ns));
        }

        #[test]
        fn no_text_panics(text in "\\PC*", quantity in "-?[0-9]{0,30}[.:-]?[0-9]{0,30} ?[a-zA-Zµ/]{0,5}[0-9:smh-]{0,9}") {
            for text in [text, quantity] {
                let _ = parse_memory(&text);
                let _ = parse_bandwidth(&text);
                let _ = parse_duration_ns(&text);
                let _ = parse_time_limit_ns(&text);
                let _ = parse_cpu_milli(&text);
            }
        }
    }
}
