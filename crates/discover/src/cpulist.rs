//! Lists of CPUs as the kernel and `nvidia-smi` write them: `0-3,8,10-11`.

/// The largest CPU number that is read; Linux itself is built for at most 8192.
pub const CPU_MAX: u32 = 65_535;

/// Disjoint, ascending ranges of CPU numbers, ends included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(Vec<(u32, u32)>);

impl CpuSet {
    /// Reads a list. Parts that cannot be read are left out; the second value is the first of them.
    #[must_use]
    pub fn read(text: &str) -> (Self, Option<&str>) {
        let (mut set, mut bad) = (Self::default(), None);
        for part in text.trim().split(',').map(str::trim) {
            match read_range(part) {
                Some((first, last)) => set.0.push((first, last)),
                None => bad = bad.or(Some(part)),
            }
        }
        set.merge();
        (set, bad)
    }

    /// Adds the CPUs of another set.
    pub fn add(&mut self, other: &Self) {
        self.0.extend(&other.0);
        self.merge();
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest number.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.0.first().map(|(first, _)| *first)
    }

    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().any(|(first, last)| other.0.iter().any(|(f, l)| first <= l && f <= last))
    }

    fn merge(&mut self) {
        self.0.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(self.0.len());
        for &(first, last) in &self.0 {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        self.0 = merged;
    }
}

fn read_range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last && last <= CPU_MAX).then_some((first, last))
}

/// Digits alone: `u32::from_str` would also take a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_united_and_bad_parts_named() {
        let (mut set, bad) = CpuSet::read("0-3,8,2-5");
        assert_eq!((set.count(), bad), (7, None));
        set.add(&CpuSet::read("6-7").0);
        assert_eq!(set, CpuSet(vec![(0, 8)]));
        for (text, count, bad) in [
            ("0-55,112-", 56, Some("112-")),
            ("5-3", 0, Some("5-3")),
            ("+1", 0, Some("+1")),
            ("0-99999999", 0, Some("0-99999999")),
            ("", 0, Some("")),
            ("N/A", 0, Some("N/A")),
        ] {
            let (set, found) = CpuSet::read(text);
            assert_eq!((set.count(), found), (count, bad), "{text}");
        }
    }
}
