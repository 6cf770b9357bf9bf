//! Go's `math/rand`: the published runs drew their orders from it.
//!
//! The generator is `y[k] = y[k-607] + y[k-273]` modulo 2^64. A seed fills 607 words, each mixed with a word that
//! Go keeps in a table: the state of the same generator after 7.8e12 steps. Here the table is computed: the step is
//! linear, so 7.8e12 of them are the power `x^7.8e12` modulo `x^607 - x^334 - 1`.

const LENGTH: usize = 607;
const TAP: usize = 273;
/// Steps that Go's table is ahead of the seed 1.
const STEPS: u64 = 7_800_000_000_000;

type Words = Vec<u64>;

/// Go's table, to be computed once.
pub(crate) struct Table(Words);

impl Table {
    pub(crate) fn new() -> Self {
        let seeded = fill(1, [20, 10]);
        let words: Words = (0..LENGTH).map(|at| seeded[place(at, 0)]).collect();
        let mut power = vec![0; LENGTH];
        power[0] = 1;
        for bit in (0..u64::BITS - STEPS.leading_zeros()).rev() {
            power = product(&power, &power);
            if STEPS >> bit & 1 == 1 {
                times_x(&mut power);
            }
        }
        let mut table = vec![0; LENGTH];
        for at in 0..LENGTH {
            let terms = power.iter().zip(&words).map(|(factor, word)| factor.wrapping_mul(*word));
            table[place(at, STEPS)] = terms.fold(0, u64::wrapping_add);
            times_x(&mut power);
        }
        Self(table)
    }
}

/// Where the generator keeps word `y[steps - 606 + at]`: it writes downwards from position 334.
fn place(at: usize, steps: u64) -> usize {
    let length = LENGTH as u64;
    let down = (steps + at as u64 + 1) % length;
    usize::try_from((334 + length - down) % length).unwrap_or(0)
}

fn times_x(polynomial: &mut [u64]) {
    polynomial.rotate_right(1);
    polynomial[LENGTH - TAP] = polynomial[LENGTH - TAP].wrapping_add(polynomial[0]);
}

fn product(a: &[u64], b: &[u64]) -> Words {
    let mut wide = vec![0u64; 2 * LENGTH - 1];
    for (i, x) in a.iter().enumerate() {
        for (sum, y) in wide[i..].iter_mut().zip(b) {
            *sum = sum.wrapping_add(x.wrapping_mul(*y));
        }
    }
    for high in (LENGTH..wide.len()).rev() {
        let carried = wide[high];
        for low in [high - LENGTH, high - TAP] {
            wide[low] = wide[low].wrapping_add(carried);
        }
    }
    wide.truncate(LENGTH);
    wide
}

/// 607 words from a seed, each of three draws of a Lehmer generator.
fn fill(seed: u64, shifts: [u32; 2]) -> Words {
    let mut x = seed % 0x7fff_ffff;
    let mut draw = || {
        x = x * 48_271 % 0x7fff_ffff;
        x
    };
    (0..20).for_each(|_| _ = draw());
    (0..LENGTH).map(|_| draw() << shifts[0] ^ draw() << shifts[1] ^ draw()).collect()
}

/// One stream of Go's `rand.New(rand.NewSource(seed))`.
pub(crate) struct GoRand {
    words: Words,
    tap: usize,
    feed: usize,
}

impl GoRand {
    pub(crate) fn new(seed: u32, table: &Table) -> Self {
        let mut words = fill(u64::from(seed), [40, 20]);
        words.iter_mut().zip(&table.0).for_each(|(word, mixed)| *word ^= mixed);
        Self { words, tap: 0, feed: LENGTH - TAP }
    }

    /// `Int63`.
    pub(crate) fn int63(&mut self) -> u64 {
        self.tap = (self.tap + LENGTH - 1) % LENGTH;
        self.feed = (self.feed + LENGTH - 1) % LENGTH;
        let word = self.words[self.feed].wrapping_add(self.words[self.tap]);
        self.words[self.feed] = word;
        word & (u64::MAX >> 1)
    }

    /// `Intn`, for 0 < n < 2^31.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let n = n as u64;
        let mut draw = || self.int63() >> 32;
        if n.is_power_of_two() {
            return index(draw() & (n - 1));
        }
        let most = (1 << 31) - 1 - (1 << 31) % n;
        loop {
            let drawn = draw();
            if drawn <= most {
                return index(drawn % n);
            }
        }
    }

    /// `Shuffle`.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let n = last as u64 + 1;
            let least = (1u64 << 32) % n;
            let product = loop {
                let product = (self.int63() >> 31 & 0xffff_ffff) * n;
                if product & 0xffff_ffff >= least {
                    break product;
                }
            };
            items.swap(last, index(product >> 32));
        }
    }

    /// `Perm`.
    pub(crate) fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order = vec![0; n];
        for last in 0..n {
            let at = self.below(last + 1);
            order[last] = order[at];
            order[at] = last;
        }
        order
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Go prints for seed 42: `Int`, `Intn(8152)`, `Intn(1024)`, `Shuffle` of 0..20, `Perm(10)`.
    #[test]
    fn draws_what_go_draws() {
        let mut random = GoRand::new(42, &Table::new());
        assert_eq!(random.int63(), 3_440_579_354_231_278_675);
        assert_eq!((random.below(8_152), random.below(1_024)), (4_315, 644));
        let mut items: Vec<usize> = (0..20).collect();
        random.shuffle(&mut items);
        assert_eq!(items, [12, 11, 18, 7, 8, 15, 19, 10, 14, 1, 3, 2, 16, 9, 5, 17, 13, 6, 0, 4]);
        assert_eq!(random.permutation(10), [8, 5, 9, 2, 1, 3, 4, 7, 0, 6]);
    }
}
