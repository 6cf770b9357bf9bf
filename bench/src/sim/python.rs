//! The random numbers of Python's `random.Random(seed)`, so that what others drew can be drawn again: MT19937 (Matsumoto
//! and Nishimura, 1998), seeded by `init_by_array`, and what CPython's `random.py` makes of it.

const STATE: usize = 624;
const SHIFT: usize = 397;

#[derive(Clone, Debug)]
pub(super) struct Python {
    state: [u32; STATE],
    next: usize,
}

impl Python {
    #[expect(clippy::cast_possible_truncation, reason = "below 624")]
    pub(super) fn new(seed: u32) -> Self {
        let mut state = [0; STATE];
        state[0] = 19_650_218;
        for at in 1..STATE {
            state[at] = Self::mixed(state[at - 1], 1_812_433_253).wrapping_add(at as u32);
        }
        // One word of key: the seed.
        let mut at = 1;
        for _ in 0..STATE {
            state[at] = (state[at] ^ Self::mixed(state[at - 1], 1_664_525)).wrapping_add(seed);
            at = Self::after(&mut state, at);
        }
        for _ in 1..STATE {
            let mixed = Self::mixed(state[at - 1], 1_566_083_941);
            state[at] = (state[at] ^ mixed).wrapping_sub(at as u32);
            at = Self::after(&mut state, at);
        }
        state[0] = 1 << 31;
        Self { state, next: STATE }
    }

    fn mixed(word: u32, times: u32) -> u32 {
        (word ^ (word >> 30)).wrapping_mul(times)
    }

    fn after(state: &mut [u32; STATE], at: usize) -> usize {
        if at + 1 < STATE {
            return at + 1;
        }
        state[0] = state[STATE - 1];
        1
    }

    fn word(&mut self) -> u32 {
        if self.next == STATE {
            for at in 0..STATE {
                let both = (self.state[at] & (1 << 31)) | (self.state[(at + 1) % STATE] & !(1 << 31));
                let odd = if both & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[at] = self.state[(at + SHIFT) % STATE] ^ (both >> 1) ^ odd;
            }
            self.next = 0;
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// From 0 up to 1: `random()`.
    pub(super) fn random(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    pub(super) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.random()
    }

    /// Which of so many `choice` takes.
    pub(super) fn choice(&mut self, count: u32) -> u32 {
        let bits = u32::BITS - count.leading_zeros();
        loop {
            let drawn = self.word().checked_shr(u32::BITS - bits).unwrap_or(0);
            if drawn < count {
                return drawn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Python;

    /// `r = random.Random(42)`; `r.random()`, `r.uniform(1.5, 3)`, `[r.choice(range(26)) for _ in range(5)]`.
    #[test]
    fn draws_what_python_draws() {
        let mut rng = Python::new(42);
        assert!((rng.random() - 0.639_426_798_457_883_7).abs() < 1e-15);
        assert!((rng.uniform(1.5, 3.0) - 1.537_516_132_834_000_3).abs() < 1e-15);
        assert_eq!([(); 5].map(|()| rng.choice(26)), [8, 7, 7, 4, 23]);
        for _ in 0..1_000 {
            rng.random();
        }
        assert!((rng.random() - 0.060_550_089_166_608_756).abs() < 1e-15, "after the state was made anew");
    }
}
