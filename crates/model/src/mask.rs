//! A set of devices of one node.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A set of devices of one node, by index (bit i is device i).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct DeviceMask(pub u64);

impl DeviceMask {
    pub const EMPTY: Self = Self(0);

    /// The first `count` devices.
    #[must_use]
    pub const fn first(count: u32) -> Self {
        if count >= 64 { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    #[must_use]
    pub const fn one(index: u32) -> Self {
        Self(1 << (index & 63))
    }

    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub const fn contains(self, index: u32) -> bool {
        index < 64 && self.0 >> index & 1 == 1
    }

    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[must_use]
    pub const fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Device indices, ascending.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let index = rest.trailing_zeros();
            (rest != 0).then(|| {
                rest &= rest - 1;
                index
            })
        })
    }
}

impl FromIterator<u32> for DeviceMask {
    fn from_iter<I: IntoIterator<Item = u32>>(indices: I) -> Self {
        indices.into_iter().fold(Self::EMPTY, |mask, i| mask.union(Self::one(i)))
    }
}

/// Ranges as people write them: `0-3,6`; `-` for the empty set.
impl fmt::Display for DeviceMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.pad("-");
        }
        let mut text = String::new();
        let mut rest = self.0;
        while rest != 0 {
            let start = rest.trailing_zeros();
            let length = (rest >> start).trailing_ones();
            let end = start + length - 1;
            rest &= !(Self::first(length).0 << start);
            if !text.is_empty() {
                text.push(',');
            }
            text += &if length == 1 { start.to_string() } else { format!("{start}-{end}") };
        }
        f.pad(&text)
    }
}

/// Not devices as [`DeviceMask`] writes them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected device numbers from 0 to 63, such as 0-3,6, and found {0:?}")]
pub struct NotDevices(String);

/// As it is written.
impl FromStr for DeviceMask {
    type Err = NotDevices;

    fn from_str(text: &str) -> Result<Self, NotDevices> {
        if text == "-" {
            return Ok(Self::EMPTY);
        }
        let range = |part: &str| -> Option<Self> {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last && last < 64).then(|| (first..=last).collect())
        };
        let parts = text.split(',').map(range);
        let all: Option<Self> = parts
            .collect::<Option<Vec<Self>>>()
            .map(|parts| parts.into_iter().fold(Self::EMPTY, Self::union));
        all.ok_or_else(|| NotDevices(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_ranges() {
        let mask: DeviceMask = [0, 1, 2, 3, 6, 63].into_iter().collect();
        assert_eq!(mask.to_string(), "0-3,6,63");
        assert_eq!(DeviceMask::first(64).to_string(), "0-63");
        assert_eq!(DeviceMask::EMPTY.to_string(), "-");
        assert_eq!(mask.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 6, 63]);
    }

    #[test]
    fn is_read_as_it_is_written() {
        for mask in [DeviceMask::EMPTY, DeviceMask::first(64), DeviceMask(0b1011_0001)] {
            assert_eq!(mask.to_string().parse(), Ok(mask));
        }
        for bad in ["", "0-", "3-1", "64", "0-64", "a", "1,,2", "-1"] {
            assert!(bad.parse::<DeviceMask>().is_err(), "{bad}");
        }
    }
}
