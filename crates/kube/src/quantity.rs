//! Amounts as Kubernetes writes them: `1500m`, `2Gi`, `1e3`. What pods ask for and nodes have, and counters, capacities and
//! CEL of devices.
//!
//! Exact to a billionth. Amounts are added before they are rounded, as upstream does: two containers of `500u` CPU
//! need 1 milli, not 2.

use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use thiserror::Error;

/// An amount in billionths of its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i128);

/// Upstream holds no more than this many units; what is written larger counts as this.
const MOST_UNITS: i128 = i64::MAX as i128;
const MOST: i128 = MOST_UNITS * NANOS;
const NANOS: i128 = 1_000_000_000;
/// An API server never sends more: it rounds to billionths. More would not fit into 128 bits.
const MOST_DIGITS: usize = 37;
const MOST_DIGITS_BEHIND: usize = 18;
/// Of a text that is shown in an error.
const MOST_SHOWN: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{text:?} is no quantity: {why}. Write a number with at most one of n u m k M G T P E Ki Mi Gi Ti Pi Ei, or an exponent (1e3)"
)]
pub struct BadQuantity {
    pub text: String,
    pub why: &'static str,
}

impl Amount {
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub const fn whole(number: i64) -> Self {
        Self(number as i128 * NANOS)
    }

    /// # Errors
    /// Where the text is no quantity by the rules of Kubernetes. Amounts out of range are no error: they are capped.
    pub fn parse(text: &str) -> Result<Self, BadQuantity> {
        let bad = |why| BadQuantity { text: text.chars().take(MOST_SHOWN).collect(), why };
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') {
            return Err(bad("it has two decimal points"));
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(bad("it has no digits"));
        }
        if whole.len() + fraction.len() > MOST_DIGITS || fraction.len() > MOST_DIGITS_BEHIND {
            return Err(bad("it has more digits than any amount needs"));
        }
        let Some(scale) = Scale::of(suffix) else {
            return Err(bad("its suffix is unknown"));
        };
        let size = scale.apply(whole, fraction);
        Ok(Self(if text.starts_with('-') { -size } else { size }))
    }

    /// # Errors
    /// As [`Amount::parse`].
    pub fn of(quantity: &Quantity) -> Result<Self, BadQuantity> {
        Self::parse(&quantity.0)
    }

    #[must_use]
    pub fn units(units: u64) -> Self {
        Self((i128::from(units) * NANOS).min(MOST))
    }

    #[must_use]
    pub fn milli(milli: u64) -> Self {
        Self((i128::from(milli) * (NANOS / 1_000)).min(MOST))
    }

    /// Whole units, rounded up; what is negative counts as none.
    #[must_use]
    pub fn units_up(self) -> u64 {
        self.up(NANOS)
    }

    /// Thousandths of a unit, rounded up; what is negative counts as none.
    #[must_use]
    pub fn milli_up(self) -> u64 {
        self.up(NANOS / 1_000)
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self((self.0 + other.0).clamp(-MOST, MOST))
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.plus(Self(-other.0))
    }

    /// In whole units, rounded up; negative where the amount is.
    #[must_use]
    pub fn rounded_up(self) -> i64 {
        let whole = self.0.div_euclid(NANOS) + i128::from(self.0.rem_euclid(NANOS) != 0);
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    /// In whole units, if it is a whole number of them.
    #[must_use]
    pub fn exactly(self) -> Option<i64> {
        (self.0 % NANOS == 0).then(|| i64::try_from(self.0 / NANOS).ok()).flatten()
    }

    #[must_use]
    pub const fn sign(self) -> i64 {
        self.0.signum() as i64
    }

    /// For CEL's `asApproximateFloat`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "approximate by name")]
    pub fn approximately(self) -> f64 {
        self.0 as f64 / NANOS as f64
    }

    fn up(self, nanos: i128) -> u64 {
        let positive = self.0.max(0);
        let parts = positive / nanos + i128::from(positive % nanos > 0);
        u64::try_from(parts.min(MOST_UNITS)).unwrap_or(0)
    }
}

/// As the API server writes it: with the largest binary suffix that leaves a whole number, else in billionths.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        if self.0 % NANOS != 0 {
            return write!(f, "{}n", self.0);
        }
        let (mut number, mut suffix) = (self.0 / NANOS, 0);
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

/// What a suffix multiplies by.
#[derive(Clone, Copy)]
enum Scale {
    Ten(i64),
    Two(u32),
}

impl Scale {
    fn of(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "n" => Self::Ten(-9),
            "u" => Self::Ten(-6),
            "m" => Self::Ten(-3),
            "" => Self::Ten(0),
            "k" => Self::Ten(3),
            "M" => Self::Ten(6),
            "G" => Self::Ten(9),
            "T" => Self::Ten(12),
            "P" => Self::Ten(15),
            "E" => Self::Ten(18),
            "Ki" => Self::Two(10),
            "Mi" => Self::Two(20),
            "Gi" => Self::Two(30),
            "Ti" => Self::Two(40),
            "Pi" => Self::Two(50),
            "Ei" => Self::Two(60),
            _ => Self::Ten(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }

    /// The number in billionths, rounded away from zero and capped.
    fn apply(self, whole: &str, fraction: &str) -> i128 {
        // Digits behind the point are a power of ten less.
        let behind = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        match self {
            Self::Ten(power) => {
                let size = digits(whole.bytes().chain(fraction.bytes()));
                shift(size, power.saturating_sub(behind).saturating_add(9))
            }
            // Apart, since together they could be more than 128 bits hold. Only the second is ever rounded.
            Self::Two(power) => {
                let whole = shift(digits(whole.bytes()).saturating_mul(1 << power), 9);
                let fraction = shift(digits(fraction.bytes()).saturating_mul(1 << power), 9 - behind);
                (whole + fraction).min(MOST)
            }
        }
    }
}

/// At most [`MOST_DIGITS`] of them.
fn digits(digits: impl Iterator<Item = u8>) -> i128 {
    digits.fold(0, |size, digit| size * 10 + i128::from(digit - b'0'))
}

/// Times ten to the `power`, rounded up and capped.
fn shift(mut size: i128, power: i64) -> i128 {
    for _ in 0..power.clamp(0, 40) {
        size = size.saturating_mul(10);
    }
    let mut has_rest = false;
    for _ in 0..power.saturating_neg().clamp(0, 80) {
        has_rest |= size % 10 != 0;
        size /= 10;
    }
    (size + i128::from(has_rest)).min(MOST)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn milli_and_units(text: &str) -> (u64, u64) {
        let amount = Amount::parse(text).unwrap();
        (amount.milli_up(), amount.units_up())
    }

    #[test]
    fn every_suffix_means_what_kubernetes_says() {
        for (text, milli, units) in [
            ("0", 0, 0),
            ("1", 1_000, 1),
            ("+1", 1_000, 1),
            ("100m", 100, 1),
            ("1500m", 1_500, 2),
            ("1.5", 1_500, 2),
            (".5", 500, 1),
            ("1.", 1_000, 1),
            ("1n", 1, 1),
            ("1u", 1, 1),
            ("1001u", 2, 1),
            ("1k", 1_000_000, 1_000),
            ("1M", 1_000_000_000, 1_000_000),
            ("1G", 1_000_000_000_000, 1_000_000_000),
            ("1T", 1_000_000_000_000_000, 1_000_000_000_000),
            ("1P", 1_000_000_000_000_000_000, 1_000_000_000_000_000),
            ("1Ki", 1_024_000, 1_024),
            ("1Mi", 1_048_576_000, 1_048_576),
            ("1.5Gi", 1_610_612_736_000, 1_610_612_736),
            ("0.1Ki", 102_400, 103),
            ("1Ti", 1_099_511_627_776_000, 1_099_511_627_776),
            ("1Pi", 1_125_899_906_842_624_000, 1_125_899_906_842_624),
            ("1e3", 1_000_000, 1_000),
            ("1E3", 1_000_000, 1_000),
            ("12e-1", 1_200, 2),
            ("1e-30", 1, 1),
            ("-5", 0, 0),
        ] {
            assert_eq!(milli_and_units(text), (milli, units), "{text}");
        }
    }

    #[test]
    fn what_is_larger_than_kubernetes_holds_is_capped() {
        let most = u64::try_from(i64::MAX).unwrap();
        for text in
            ["8Ei", "9.999Ei", "10E", "1e30", "1e99999999999", "9999999999999999999999999999999999999"]
        {
            let text = text.to_owned();
            match Amount::parse(&text) {
                Ok(amount) => assert_eq!(amount.units_up(), most, "{text}"),
                Err(bad) => panic!("{bad}"),
            }
        }
        assert_eq!(Amount::parse("8E").unwrap().milli_up(), most, "as milli it is more than 63 bits");
    }

    #[test]
    fn what_is_no_quantity_is_refused_and_named() {
        for text in ["", "-", "Gi", "1.2.3", "1 Gi", "1gi", "1KB", "1e", "1e1.5", "0x10", "1Ee3", "١"] {
            let bad = Amount::parse(text).unwrap_err();
            assert!(bad.to_string().contains(&format!("{text:?}")), "{bad}");
        }
        assert!(Amount::parse(&"9".repeat(5_000)).unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn amounts_are_added_before_they_are_rounded() {
        let half = Amount::parse("500u").unwrap();
        assert_eq!(half.plus(half).milli_up(), 1);
    }

    #[test]
    fn amounts_are_exact_to_a_billionth_and_rounded_away_from_zero() {
        for (text, nanos) in [
            ("-1.5Ki", -1_536 * NANOS),
            ("0.1n", 1),
            ("1.0000000001", NANOS + 1),
            ("9223372036854775807.000000001", MOST),
            ("1e-1000000", 1),
            ("0e1000000", 0),
        ] {
            assert_eq!(Amount::parse(text), Ok(Amount(nanos)), "{text}");
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
    fn whole_units_are_rounded_up() {
        assert_eq!(Amount::parse("1500m").unwrap().rounded_up(), 2);
        assert_eq!(Amount::parse("-1500m").unwrap().rounded_up(), -1);
        assert_eq!(Amount::parse("1500m").unwrap().exactly(), None);
        assert_eq!(Amount::parse("2Ki").unwrap().exactly(), Some(2_048));
    }

    proptest! {
        #[test]
        fn an_amount_reads_back_as_written(nanos in -MOST..=MOST) {
            let amount = Amount(nanos);
            prop_assert_eq!(Amount::parse(&amount.to_string()), Ok(amount));
        }

        #[test]
        fn decimals_and_binaries_agree_with_whole_numbers(number in 0_u64..1 << 40, power in 0_u32..2) {
            let binary = Amount::parse(&format!("{number}{}", ["Ki", "Mi"][power as usize])).unwrap();
            prop_assert_eq!(binary.units_up(), number << (10 * (power + 1)));
            let decimal = Amount::parse(&format!("{number}{}", ["k", "M"][power as usize])).unwrap();
            prop_assert_eq!(decimal.units_up(), number * 1_000_u64.pow(power + 1));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-+0-9.eEinumkKMGTP]{0,70}") {
            let _ = Amount::parse(&text);
        }
    }
}
