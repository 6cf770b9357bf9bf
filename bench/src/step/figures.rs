//! What was measured, by name.

use serde_json::{Map, Value};

use crate::placement::percentile_us;

/// Figures in the order in which they were taken.
#[derive(Debug, Default)]
pub(super) struct Figures {
    all: Map<String, Value>,
    lines: Vec<String>,
}

/// What times are told in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Us,
    Ms,
}

impl Figures {
    /// Median, 99th percentile and largest of some times in nanoseconds, as `NAME_p50_us` and so on, and how many.
    pub(super) fn times(&mut self, name: &str, unit: Unit, ns: &mut [u64]) {
        if ns.is_empty() {
            return;
        }
        let (word, scale) = match unit {
            Unit::Us => ("us", 1.0),
            Unit::Ms => ("ms", 1_000.0),
        };
        let mut line = format!("  {name:<30}");
        for (part, percent) in [("p50", 50), ("p99", 99), ("max", 100)] {
            // Thousandths of a microsecond are below what the clock can tell.
            let value = (percentile_us(ns, percent) / scale * 1_000.0).round() / 1_000.0;
            self.all.insert(format!("{name}_{part}_{word}"), value.into());
            line += &format!(" {part} {value:>10.3} {word} ");
        }
        self.all.insert(format!("{name}_samples"), ns.len().into());
        self.lines.push(format!("{line} of {}", ns.len()));
    }

    /// One number.
    pub(super) fn count(&mut self, name: &str, value: u64) {
        self.all.insert(name.to_owned(), value.into());
        self.lines.push(format!("  {name:<30} {value:>14}"));
    }

    /// A number told once more under a short name.
    pub(super) fn alias(&mut self, name: &str, of: &str) {
        if let Some(value) = self.all.get(of).cloned() {
            self.all.insert(name.to_owned(), value);
        }
    }

    #[cfg(test)]
    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.all.get(name)?.as_f64()
    }

    /// Everything that is no time.
    #[cfg(test)]
    pub(super) fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.all.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_u64()?)))
    }

    pub(super) fn json(self) -> String {
        Value::Object(self.all).to_string()
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}
