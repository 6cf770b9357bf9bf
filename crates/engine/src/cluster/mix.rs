//! The fragmentation price: which requests run, and what room for one more of each is worth.
//!
//! A placement takes capacity that requests of other classes could have used. If `p` members of a class run, `n` more of
//! them still fit in the whole cluster, and each takes `s` of a device, then room for one of them is worth
//!
//! ```text
//! p / (n * s)^2
//! ```
//!
//! and a placement costs the sum over all classes of that price times the requests that no longer fit. FGD (ATC'23) sums
//! the GPUs that a class can no longer use, without the divisor: a GPU lost to a class that can go anywhere weighs as much
//! there as one lost to a class that has few left. The divisor makes scarce things expensive: a model, a whole
//! node, or the CPUs beside the GPUs. Counting the requests that fit, instead of the GPUs of nodes where one fits, also
//! counts the leftovers that a full device will have.
//!
//! A class counts the members that run, so the price is the same after a restart.
//!
//! # Two measures, one price
//! The two searches share the price, and differ in their classes and in how they count the requests that fit:
//!
//! - `placement::pack` compares nodes, in clusters of several models with up to [`NODES_MAX`] nodes. Its class is the
//!   exact request with CPU, memory and models ([`super::share_request`]), and it counts the requests that fit in every
//!   state of a node.
//! - [`super::fractions`] compares devices that are shared or cut, in clusters of any size. CPU and models decide which
//!   nodes are candidates and not which device of them, so they are no part of the class. Sizes are rounded until there
//!   are few classes, because every change of a device updates the counts of all of them.
//!
//! [`NODES_MAX`]: super::share_request::NODES_MAX

use std::collections::BTreeMap;

/// The highest price has so many bits: a sum over classes and counts stays within 64 bits.
const PRICE_BITS: u32 = 38;
/// At least half a device: the price of the last room is high, and bounded.
const USABLE_MIN_MILLI: u64 = 500;
/// Squared it stays within 128 bits.
const USABLE_MAX_MILLI: u64 = 1 << 48;
/// Classes without members are forgotten when there are so many more of them than of others.
const IDLE_MAX: usize = 128;

/// A class of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class<R> {
    pub(crate) request: R,
    /// Members of it that run.
    pub(crate) running: u32,
}

/// How many members of each class run.
#[derive(Clone, Debug)]
pub(crate) struct Mix<R> {
    classes: Vec<Class<R>>,
    /// Indices of `classes`.
    known: BTreeMap<R, u16>,
    idle: usize,
}

impl<R> Default for Mix<R> {
    fn default() -> Self {
        Self { classes: Vec::new(), known: BTreeMap::new(), idle: 0 }
    }
}

impl<R: Copy + Ord> Mix<R> {
    /// A new class comes last.
    pub(crate) fn classes(&self) -> &[Class<R>] {
        &self.classes
    }

    /// Adds running members of a class, or subtracts them.
    pub(crate) fn count(&mut self, request: R, members: u32, is_added: bool) {
        let next = u16::try_from(self.classes.len()).unwrap_or(u16::MAX);
        let at = usize::from(*self.known.entry(request).or_insert(next));
        if at == self.classes.len() {
            self.classes.push(Class { request, running: 0 });
            self.idle += 1;
        }
        let Some(Class { running, .. }) = self.classes.get_mut(at) else { return };
        let before = *running;
        *running = if is_added { before.saturating_add(members) } else { before.saturating_sub(members) };
        self.idle -= usize::from(before == 0 && *running > 0);
        self.idle += usize::from(before > 0 && *running == 0);
    }

    /// Forgets the classes without members if there are many; the others get new indices.
    pub(crate) fn forget_idle(&mut self) {
        if self.idle <= IDLE_MAX.max(self.classes.len() / 2) {
            return;
        }
        self.classes.retain(|class| class.running > 0);
        self.known = (0..).zip(&self.classes).map(|(at, class)| (class.request, at)).collect();
        self.idle = 0;
    }
}

/// By class, what room for one more is worth, scaled so that the highest price has [`PRICE_BITS`] bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prices {
    raw: Vec<u128>,
    each: Vec<u64>,
}

impl Prices {
    /// `usable_milli` says for a class and its index what the requests that fit take together, in thousandths of a device;
    /// `None` for a class that takes no device, which has no price.
    pub(crate) fn set<R>(
        &mut self,
        classes: &[Class<R>],
        usable_milli: impl Fn(usize, &Class<R>) -> Option<u64>,
    ) {
        let raw = |(at, class): (usize, &Class<R>)| {
            let usable = u128::from(usable_milli(at, class)?.clamp(USABLE_MIN_MILLI, USABLE_MAX_MILLI));
            Some((u128::from(class.running) << 96) / (usable * usable))
        };
        self.raw.clear();
        self.raw.extend(classes.iter().enumerate().map(|class| raw(class).unwrap_or(0)));
        let highest = self.raw.iter().copied().max().unwrap_or(0);
        let excess = (u128::BITS - highest.leading_zeros()).saturating_sub(PRICE_BITS);
        self.each.clear();
        self.each.extend(self.raw.iter().map(|raw| u64::try_from(raw >> excess).unwrap_or(u64::MAX)));
    }

    pub(crate) fn each(&self) -> &[u64] {
        &self.each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(of: &[(u8, u32)]) -> Mix<u8> {
        let mut mix = Mix::default();
        of.iter().for_each(|(request, members)| mix.count(*request, *members, true));
        mix
    }

    fn prices(of: &[(u8, u32)], usable_milli: &[Option<u64>]) -> Vec<u64> {
        let mut prices = Prices::default();
        prices.set(mix(of).classes(), |at, _| usable_milli[at]);
        prices.each().to_vec()
    }

    #[test]
    fn room_is_worth_what_runs_over_the_square_of_what_fits() {
        let of = prices(&[(1, 4), (2, 4), (3, 1), (4, 9)], &[Some(4_000), Some(8_000), Some(4_000), None]);
        assert_eq!(of[0].ilog2() + 1, PRICE_BITS);
        assert_eq!(of[1], of[0] / 4, "twice as much fits");
        assert_eq!(of[2], of[0] / 4, "a fourth as many run");
        assert_eq!(of[3], 0, "no device is taken");
    }

    #[test]
    fn prices_are_bounded() {
        let last = prices(&[(1, 1), (2, 1)], &[Some(0), Some(USABLE_MIN_MILLI)]);
        assert_eq!(last[0], last[1]);
        let many = prices(&[(1, u32::MAX), (2, u32::MAX)], &[Some(0), Some(u64::MAX)]);
        assert_eq!(many[0].ilog2() + 1, PRICE_BITS);
        assert!(many[1] < many[0]);
        assert_eq!(prices(&[(1, 0)], &[Some(1_000)]), [0]);
    }

    #[test]
    fn classes_without_members_are_forgotten_when_there_are_many() {
        let mut mix = Mix::default();
        for request in 0..200_u16 {
            mix.count(request, 2, true);
            mix.count(request, if request % 50 == 0 { 1 } else { 2 }, false);
            mix.forget_idle();
            assert!(mix.classes().len() <= IDLE_MAX + 5);
        }
        let running = mix.classes().iter().filter(|class| class.running > 0);
        assert_eq!(running.map(|class| class.request).collect::<Vec<_>>(), [0, 50, 100, 150]);
        mix.count(50, 1, true);
        assert_eq!(mix.classes().iter().find(|class| class.request == 50).unwrap().running, 2);
    }
}
