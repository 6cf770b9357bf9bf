//! Amounts for people: exact, and as short as possible.

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

/// `1h30m`, to the second. Spans below ten seconds are shown to a tenth of a second.
#[must_use]
pub fn span(ms: u64) -> String {
    let grain = if ms < 10_000 { 100 } else { 1_000 };
    duration_ns((ms / grain * grain).saturating_mul(1_000_000))
}

/// GPU time, rounded up so that "up to" holds: `16 GPU-seconds`, `4 GPU-minutes`, `2.5 GPU-hours`.
#[must_use]
pub fn gpu_time(device_ms: u64) -> String {
    const MINUTE_MS: u64 = 60_000;
    const HOUR_MS: u64 = 60 * MINUTE_MS;
    if device_ms < 2 * MINUTE_MS {
        return count(device_ms.div_ceil(1_000), "GPU-second");
    }
    if device_ms < 2 * HOUR_MS {
        return count(device_ms.div_ceil(MINUTE_MS), "GPU-minute");
    }
    let tenths_milli = device_ms.div_ceil(HOUR_MS / 10).saturating_mul(100);
    format!("{} GPU-hours", milli(tenths_milli))
}

/// A number with its noun: `1 replica`, `3 replicas`.
#[must_use]
pub fn count(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_time_is_rounded_up() {
        let shown = [0, 1, 1_000, 15_001, 120_000, 120_001, 3_600_000, 7_200_000, 7_200_001].map(gpu_time);
        let expected = [
            "0 GPU-seconds",
            "1 GPU-second",
            "1 GPU-second",
            "16 GPU-seconds",
            "2 GPU-minutes",
            "3 GPU-minutes",
            "60 GPU-minutes",
            "2 GPU-hours",
            "2.1 GPU-hours",
        ];
        assert_eq!(shown, expected);
    }
}
