//! Amounts as people read them: exact, and as short as that allows.

const SECOND_NS: u64 = 1_000_000_000;

/// Longest first.
const UNITS_NS: [(&str, u64); 7] = [
    ("d", 86_400 * SECOND_NS),
    ("h", 3_600 * SECOND_NS),
    ("m", 60 * SECOND_NS),
    ("s", SECOND_NS),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A duration with units, longest first and exact, e.g. `1h30m`.
#[must_use]
pub fn duration_ns(ns: u64) -> String {
    let (mut rest, mut text) = (ns, String::new());
    for (name, factor) in UNITS_NS {
        let count = rest / factor;
        if count > 0 {
            text += &format!("{count}{name}");
            rest %= factor;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// `1h30m`, to the second; what is shorter than ten seconds to a tenth of one.
#[must_use]
pub fn span(ms: u64) -> String {
    let grain = if ms < 10_000 { 100 } else { 1_000 };
    duration_ns((ms / grain * grain).saturating_mul(1_000_000))
}

/// Thousandths as a decimal number, e.g. `0.25`.
#[must_use]
pub fn milli(milli: u64) -> String {
    let decimals = format!("{:03}", milli % 1_000);
    match decimals.trim_end_matches('0') {
        "" => (milli / 1_000).to_string(),
        decimals => format!("{}.{decimals}", milli / 1_000),
    }
}
