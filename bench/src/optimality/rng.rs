//! Numbers from a seed, the same on every platform.

/// `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
pub(super) struct Rng(u64);

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn bits(&mut self) -> u64 {
        crate::rng::split_mix(&mut self.0)
    }

    /// 0 to `end - 1`; 0 when `end` is 0.
    pub(super) const fn below(&mut self, end: u64) -> u64 {
        let bits = self.bits();
        if end == 0 { 0 } else { bits % end }
    }

    /// `first` to `last`, both included.
    pub(super) const fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// 1 to `last`, about as often below as above its square root.
    pub(super) const fn up_to(&mut self, last: u64) -> u64 {
        let bits = 64 - last.leading_zeros() as u64;
        let end = 1 << self.between(1, if bits == 0 { 1 } else { bits });
        let end = if end > last + 1 { last + 1 } else { end };
        self.between(1, if end > 1 { end - 1 } else { 1 })
    }

    pub(super) const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// One of the items; there is at least one.
    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}
