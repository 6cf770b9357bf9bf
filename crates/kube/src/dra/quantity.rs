//! Quantities of the Kubernetes API as exact numbers, for counters, capacities and CEL.

use std::cmp::Ordering;
use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The finest step of a quantity; what is finer is rounded away from zero.
const NANO: i128 = 1_000_000_000;
/// The largest amount that Kubernetes knows; what is larger counts as this.
const LARGEST: i128 = i64::MAX as i128 * NANO;
/// Longer texts are no quantity: the API server stores canonical ones, which are far shorter.
const TEXT_MAX: usize = 128;

/// An exact amount in billionths. Sums stay within what is representable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i128);

/// A text that is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no quantity: write a number with a suffix such as `500m`, `8`, `40Gi` or `1e3`")]
pub struct NoQuantity {
    text: String,
}

impl Amount {
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub const fn whole(number: i64) -> Self {
        Self(number as i128 * NANO)
    }

    /// Reads a quantity as the API server does: binary and decimal suffixes, exponents, rounding up to billionths.
    ///
    /// # Errors
    /// When the text is no quantity.
    pub fn parse(text: &str) -> Result<Self, NoQuantity> {
        read(text).ok_or_else(|| NoQuantity { text: text.chars().take(TEXT_MAX).collect() })
    }

    /// # Errors
    /// When the text is no quantity.
    pub fn of(quantity: &Quantity) -> Result<Self, NoQuantity> {
        Self::parse(&quantity.0)
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// In whole units, rounded up.
    #[must_use]
    pub fn rounded_up(self) -> i64 {
        let whole = self.0.div_euclid(NANO) + i128::from(self.0.rem_euclid(NANO) != 0);
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    /// In whole units, if it is a whole number of them.
    #[must_use]
    pub fn exactly(self) -> Option<i64> {
        (self.0 % NANO == 0).then(|| i64::try_from(self.0 / NANO).ok()).flatten()
    }

    #[must_use]
    pub const fn sign(self) -> i64 {
        self.0.signum() as i64
    }

    /// For CEL's `asApproximateFloat`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "approximate by name")]
    pub fn approximately(self) -> f64 {
        self.0 as f64 / NANO as f64
    }
}

/// As the API server writes it: with the largest binary suffix that leaves a whole number, else in billionths.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        if self.0 % NANO != 0 {
            return write!(f, "{}n", self.0);
        }
        let (mut number, mut suffix) = (self.0 / NANO, 0);
        while number != 0 && number % 1024 == 0 && suffix + 1 < SUFFIXES.len() {
            number /= 1024;
            suffix += 1;
        }
        write!(f, "{number}{}", SUFFIXES[suffix])
    }
}

impl From<Amount> for Quantity {
    fn from(amount: Amount) -> Self {
        Self(amount.to_string())
    }
}

fn read(text: &str) -> Option<Amount> {
    if text.is_empty() || text.len() > TEXT_MAX {
        return None;
    }
    let (is_negative, rest) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (int, fraction) = number.split_once('.').unwrap_or((number, ""));
    if int.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (binary_power, decimal_power) = scale(suffix)?;
    let digits = Digits::of(int.bytes().chain(fraction.bytes()), binary_power);
    let fraction_digits = i64::try_from(fraction.len()).ok()?;
    let nano = digits.scaled(binary_power, decimal_power + 9 - fraction_digits);
    Some(Amount(if is_negative { -nano } else { nano }))
}

/// Powers of two and of ten that a suffix stands for.
fn scale(suffix: &str) -> Option<(u32, i64)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (0, i64::from(exponent))
        }
    })
}

/// The leading digits of a number, as many as a product with any suffix leaves room for.
struct Digits {
    leading: u128,
    /// Digits that stand behind the leading ones.
    left_out: i64,
    /// Whether one of them was not zero.
    is_inexact: bool,
}

impl Digits {
    fn of(digits: impl Iterator<Item = u8>, binary_power: u32) -> Self {
        let most = if binary_power == 0 { 10_u128.pow(36) } else { 10_u128.pow(19) };
        let mut read = Self { leading: 0, left_out: 0, is_inexact: false };
        for digit in digits {
            if read.leading < most {
                read.leading = read.leading * 10 + u128::from(digit - b'0');
            } else {
                read.left_out += 1;
                read.is_inexact |= digit != b'0';
            }
        }
        read
    }

    /// Times two to the one and ten to the other power, rounded up, at most the largest amount.
    fn scaled(&self, binary_power: u32, decimal_power: i64) -> i128 {
        let value = (self.leading + u128::from(self.is_inexact)) << binary_power;
        if value == 0 {
            return 0;
        }
        let power = decimal_power + self.left_out;
        let magnitude = u32::try_from(power.unsigned_abs()).ok().and_then(|power| 10_u128.checked_pow(power));
        let nano = match (power.cmp(&0), magnitude) {
            (Ordering::Less, Some(divisor)) => Some(value.div_ceil(divisor)),
            (Ordering::Less, None) => Some(1),
            (_, Some(factor)) => value.checked_mul(factor),
            (_, None) => None,
        };
        nano.and_then(|nano| i128::try_from(nano).ok()).map_or(LARGEST, |nano| nano.min(LARGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nano(text: &str) -> Option<i128> {
        Amount::parse(text).ok().map(|amount| amount.0)
    }

    #[test]
    fn quantities_are_read_as_the_api_server_reads_them() {
        let cases = [
            ("0", 0),
            ("1", NANO),
            ("500m", NANO / 2),
            ("+1.5", NANO * 3 / 2),
            ("-1.5Ki", -1536 * NANO),
            (".5", NANO / 2),
            ("5.", 5 * NANO),
            ("40Gi", 40 * (1 << 30) * NANO),
            ("1e3", 1000 * NANO),
            ("1E-3", NANO / 1000),
            ("1E", 1_000_000_000_000_000_000 * NANO),
            ("1n", 1),
            ("0.1n", 1),
            ("1.0000000001", NANO + 1),
            ("8Ei", LARGEST),
            ("9223372036854775807.000000001", LARGEST),
            ("1e1000000", LARGEST),
            ("1e-1000000", 1),
            ("0e1000000", 0),
            ("1.000000000000000000000000000000000000000000000001Gi", (1 << 30) * NANO + 1),
        ];
        for (text, expected) in cases {
            let got = nano(text);
            // Beyond nineteen digits a binary quantity is rounded up a little earlier than upstream's.
            if text.len() > 40 {
                assert!(got.is_some_and(|got| got >= expected && got < expected + NANO), "{text}: {got:?}");
            } else {
                assert_eq!(got, Some(expected), "{text}");
            }
        }
        for text in
            ["", "-", "Gi", "1.2.3", "1 Gi", "1gi", "1ee3", "1e", "0x10", "--1", "1KI", &"1".repeat(200)]
        {
            assert_eq!(nano(text), None, "{text}");
        }
    }

    #[test]
    fn amounts_are_written_canonically() {
        let cases =
            [("10240Mi", "10Gi"), ("1000", "1000"), ("0", "0"), ("1500m", "1500000000n"), ("1Ei", "1Ei")];
        for (text, expected) in cases {
            assert_eq!(Amount::parse(text).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn rounding_is_up() {
        assert_eq!(Amount::parse("1500m").unwrap().rounded_up(), 2);
        assert_eq!(Amount::parse("-1500m").unwrap().rounded_up(), -1);
        assert_eq!(Amount::parse("1500m").unwrap().exactly(), None);
        assert_eq!(Amount::parse("2Ki").unwrap().exactly(), Some(2048));
    }
}
