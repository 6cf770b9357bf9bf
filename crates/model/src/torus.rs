//! Neighbours and links of chips in a grid: with rings, without rings, and with a twist.

use crate::{DomainName, Torus};

impl Torus {
    /// A grid whose dimensions are all closed to rings, or none.
    #[must_use]
    pub const fn new(name: DomainName, chips: [u16; 3], wraps: bool) -> Self {
        Self {
            name,
            chips,
            wraps: [wraps; 3],
            is_twisted: false,
            cube: 0,
            host_chips: [1; 3],
            link_mb_per_s: 0,
        }
    }

    #[must_use]
    pub fn chip_count(&self) -> u64 {
        self.chips.iter().map(|edge| u64::from(*edge)).product()
    }

    /// The neighbour of a chip along an axis (0 to 2), forwards or backwards; none at an open edge, for a chip
    /// outside of the grid, and in a dimension of one chip.
    ///
    /// In a twisted torus, the ring of a short dimension comes back shifted by the short edge along every long
    /// one (n x n x 2n and n x 2n x 2n; Camara et al., "Twisted torus topologies for enhanced interconnection
    /// networks", IEEE TPDS 2010).
    #[must_use]
    pub fn neighbour(&self, at: [u16; 3], axis: usize, forwards: bool) -> Option<[u16; 3]> {
        let edge = *self.chips.get(axis)?;
        if edge < 2 || at.iter().zip(&self.chips).any(|(at, edge)| at >= edge) {
            return None;
        }
        let here = *at.get(axis)?;
        let step = match (forwards, here) {
            (true, here) if here + 1 < edge => Some(here + 1),
            (false, here) if here > 0 => Some(here - 1),
            _ => None,
        };
        let mut next = at;
        if let Some(step) = step {
            *next.get_mut(axis)? = step;
            return Some(next);
        }
        if !self.wraps.get(axis).copied().unwrap_or(false) {
            return None;
        }
        *next.get_mut(axis)? = if forwards { 0 } else { edge - 1 };
        if self.is_twisted {
            for (other, long) in next.iter_mut().zip(self.chips).filter(|(_, long)| *long > edge) {
                let shifted = if forwards {
                    u32::from(*other) + u32::from(edge)
                } else {
                    u32::from(*other) + u32::from(long) - u32::from(edge)
                };
                *other = u16::try_from(shifted % u32::from(long)).ok()?;
            }
        }
        Some(next)
    }

    /// Links of the grid, each counted once. A ring of two chips has two.
    #[must_use]
    pub fn link_count(&self) -> u64 {
        let chips = self.chip_count();
        let along = self.chips.iter().zip(self.wraps).map(|(edge, wraps)| match (u64::from(*edge), wraps) {
            (0 | 1, _) => 0,
            (_, true) => chips,
            (edge, false) => chips / edge * (edge - 1),
        });
        along.sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn torus(chips: [u16; 3], wraps: bool, is_twisted: bool) -> Torus {
        Torus { is_twisted, ..Torus::new(DomainName::new("pod").unwrap(), chips, wraps) }
    }

    fn all(torus: &Torus) -> Vec<[u16; 3]> {
        let [x, y, z] = torus.chips;
        (0..x).flat_map(|x| (0..y).flat_map(move |y| (0..z).map(move |z| [x, y, z]))).collect()
    }

    #[test]
    fn forwards_and_backwards_undo_each_other() {
        for torus in [
            torus([4, 4, 8], true, true),
            torus([4, 8, 8], true, true),
            torus([4, 4, 4], true, false),
            torus([2, 2, 4], false, false),
        ] {
            for at in all(&torus) {
                for axis in 0..3 {
                    if let Some(next) = torus.neighbour(at, axis, true) {
                        assert_eq!(torus.neighbour(next, axis, false), Some(at), "{at:?} along {axis}");
                    }
                }
            }
        }
    }

    /// Steps from one chip to the farthest, which a twist makes fewer.
    fn diameter(torus: &Torus) -> u32 {
        let mut seen = BTreeSet::from([[0, 0, 0]]);
        let mut edge = vec![[0, 0, 0]];
        let mut steps = 0;
        loop {
            let reached = edge
                .iter()
                .flat_map(|at| (0..3).flat_map(|axis| [true, false].map(|f| torus.neighbour(*at, axis, f))));
            let next: Vec<[u16; 3]> = reached.flatten().filter(|at| seen.insert(*at)).collect();
            if next.is_empty() {
                return steps;
            }
            steps += 1;
            edge = next;
        }
    }

    #[test]
    fn a_twist_shortens_the_longest_way() {
        assert_eq!(diameter(&torus([4, 4, 8], true, false)), 8);
        assert_eq!(diameter(&torus([4, 4, 8], true, true)), 6);
        assert_eq!(diameter(&torus([4, 4, 4], false, false)), 9);
    }

    #[test]
    fn links_are_counted_once() {
        assert_eq!(torus([4, 4, 4], true, false).link_count(), 192);
        assert_eq!(torus([4, 4, 4], false, false).link_count(), 144);
        assert_eq!(torus([2, 4, 1], false, false).link_count(), 10);
    }

    #[test]
    fn there_is_nothing_beyond_the_edge() {
        let open = torus([2, 2, 1], false, false);
        assert_eq!(open.neighbour([1, 0, 0], 0, true), None);
        assert_eq!(open.neighbour([0, 0, 0], 2, true), None);
        assert_eq!(open.neighbour([9, 0, 0], 0, true), None);
        assert_eq!(open.neighbour([0, 0, 0], 7, true), None);
    }
}
