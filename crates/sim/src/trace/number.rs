//! Numbers and times as traces write them, exactly: no float comes between the text and the integer.

/// The latest time and the longest run that is read: about 3,170 years, so that sums stay far from overflow.
const TIME_MAX_MS: u64 = 100_000_000_000_000;

/// Thousandths of a decimal number that is not negative, rounded half up: `1.5`, `66.0`, `2e3`.
pub(super) fn milli(text: &str) -> Result<u64, String> {
    decimal(text, 3).ok_or_else(|| wrong(text, "is no number of zero or more"))
}

/// A whole number; `4.0` is one.
pub(super) fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = milli(text)?;
    if !number.is_multiple_of(1_000) {
        return Err(wrong(text, "is no whole number"));
    }
    T::try_from(number / 1_000).map_err(|_| wrong(text, "is too large"))
}

/// Milliseconds of a number of seconds.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    in_time(text, milli(text)?)
}

/// Milliseconds of a number of minutes.
pub(super) fn minutes(text: &str) -> Result<u64, String> {
    in_time(text, milli(text)?.saturating_mul(60))
}

/// Milliseconds.
pub(super) fn millis(text: &str) -> Result<u64, String> {
    in_time(text, decimal(text, 0).ok_or_else(|| wrong(text, "is no number of zero or more"))?)
}

/// Milliseconds since 1970 of a date, with or without a time. One that names no offset from UTC is taken as UTC, so differences
/// across a change to summer time are an hour off.
pub(crate) fn date(text: &str) -> Result<u64, String> {
    let at = text.parse::<jiff::Timestamp>().or_else(|_| {
        let civil = text.parse::<jiff::civil::DateTime>()?;
        civil.to_zoned(jiff::tz::TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    let at = at.map_err(|_| wrong(text, "is no date such as 2017-10-09 07:01:55"))?;
    let ms = u64::try_from(at.as_millisecond()).map_err(|_| wrong(text, "is before 1970"))?;
    in_time(text, ms)
}

/// `text`, cut where it is long, and what is wrong with it.
pub(super) fn wrong(text: &str, what: &str) -> String {
    format!("{:?} {what}", shown(text))
}

/// The beginning of a text.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN: usize = 60;
    let mut begin: String = text.chars().take(SHOWN).collect();
    if begin.len() < text.len() {
        begin.push('…');
    }
    begin
}

fn in_time(text: &str, ms: u64) -> Result<u64, String> {
    if ms <= TIME_MAX_MS { Ok(ms) } else { Err(wrong(text, "is too long a time")) }
}

/// `text` times ten to the `shift`, rounded half up.
fn decimal(text: &str, shift: i32) -> Option<u64> {
    // More digits than any number here needs, few enough for 128 bits.
    const DIGITS_MAX: usize = 30;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i16>().ok()?),
        None => (text, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(part.bytes());
    if whole.len() + part.len() > DIGITS_MAX
        || digits().next().is_none()
        || !digits().all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let number = digits().fold(0_u128, |number, digit| number * 10 + u128::from(digit - b'0'));
    let power = shift + i32::from(exponent) - i32::try_from(part.len()).ok()?;
    let tens = 10_u128.checked_pow(power.unsigned_abs());
    let scaled = match (number, tens) {
        (0, _) => 0,
        (_, Some(tens)) if power >= 0 => number.checked_mul(tens)?,
        (_, Some(tens)) => number.checked_add(tens / 2)? / tens,
        (_, None) if power < 0 => 0,
        (_, None) => return None,
    };
    u64::try_from(scaled).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        for (text, thousandths) in [
            ("0", 0),
            ("66.0", 66_000),
            ("1.5", 1_500),
            (".25", 250),
            ("7.", 7_000),
            ("0.0005", 1),
            ("0.00049", 0),
            ("2e3", 2_000_000),
            ("1.25E-1", 125),
            ("1e-300", 0),
            ("9007199254740993", 9_007_199_254_740_993_000),
        ] {
            assert_eq!(milli(text), Ok(thousandths), "{text}");
        }
        for text in
            ["", ".", "-1", "+1", "nan", "1e400", "1e", "1 000", "0x1f", "1_0", "99999999999999999999", "²"]
        {
            let error = milli(text).unwrap_err();
            assert!(error.contains("is no number"), "{text}: {error}");
        }
        assert_eq!(whole::<u32>("4.0"), Ok(4));
        assert!(whole::<u32>("4.5").is_err_and(|e| e.contains("whole")));
        assert!(whole::<u8>("256").is_err_and(|e| e.contains("large")));
        assert!(seconds("1e12").is_err_and(|e| e.contains("long")));
    }

    #[test]
    fn dates_are_those_of_their_offset() {
        assert_eq!(date("1970-01-02 00:00:01"), Ok(86_401_000));
        assert_eq!(date("1970-01-02T00:00:01.5"), Ok(86_401_500));
        assert_eq!(date("1970-01-02 08:00:00+08:00"), Ok(86_400_000));
        for text in ["1969-12-31 23:00:00", "2017-13-01 00:00:00", "10/09/2017", "Unknown", ""] {
            assert!(date(text).is_err(), "{text}");
        }
    }
}
