//! The rank of each chip of a box.
//!
//! Two orders are useful. In *ring* order each rank is a neighbour of the next, and the last of the first if the box
//! allows it: one ring over all ranks crosses no chip twice. In *rows* order the last side runs fastest, as in an
//! array: the ranks of a row along the last side are consecutive, those along the other sides are at equal distances,
//! and a mesh of named axes maps to the box side by side.

/// A box of up to three sides as a sequence of its chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankOrder {
    sides: [u64; 3],
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Rows,
    /// There and back again, layer by layer: a path whose ends are apart.
    Snake,
    /// A cycle: up and down along this side but for its first layer, and back through that layer.
    Cycle(usize),
}

impl RankOrder {
    /// The last side runs fastest.
    pub(crate) fn rows(sides: [u16; 3]) -> Self {
        Self { sides: sides.map(u64::from), way: Way::Rows }
    }

    /// Neighbours in rank are neighbours in the box. `closed` lists the sides that are rings.
    ///
    /// The order returns to its beginning if this construction allows it: for every box with an even number of chips
    /// and at least two sides, and for odd ones with a closed side. No other box has such a cycle (a grid is
    /// two-coloured, and a cycle takes as many chips of one colour as of the other).
    pub(crate) fn ring(sides: [u16; 3], closed: [bool; 3]) -> Self {
        let sides = sides.map(u64::from);
        let all: u64 = sides.iter().product();
        let cycle = (0..3).find(|axis| {
            let side = sides[*axis].max(1);
            side > 1 && ((all / side).is_multiple_of(2) || closed[*axis] || side == 2)
        });
        Self { sides, way: cycle.map_or(Way::Snake, Way::Cycle) }
    }

    /// Chips of the box.
    pub(crate) fn len(&self) -> u64 {
        self.sides.iter().product()
    }

    /// Whether the last rank is a neighbour of the first.
    #[cfg(test)]
    pub(crate) const fn comes_back(&self) -> bool {
        matches!(self.way, Way::Cycle(_))
    }

    /// The position of a rank, counted from the corner of the box; `None` for a rank that the box does not have.
    pub(crate) fn coordinates(&self, rank: u64) -> Option<[u16; 3]> {
        if rank >= self.len() {
            return None;
        }
        let axis = match self.way {
            Way::Cycle(axis) => axis,
            Way::Rows | Way::Snake => 0,
        };
        let others = match axis {
            0 => [1, 2],
            1 => [0, 2],
            _ => [0, 1],
        };
        let (layers, line) = (self.sides[axis], self.sides[others[0]] * self.sides[others[1]]);
        let (layer, at) = match self.way {
            Way::Rows => (rank / line, rank % line),
            Way::Snake => (rank / line, fold(rank / line, rank % line, line)),
            Way::Cycle(_) => cycle(rank, layers, line),
        };
        let fast = self.sides[others[1]];
        let (slow_at, fast_at) = (at / fast, at % fast);
        let mut found = [0; 3];
        found[axis] = narrow(layer);
        found[others[0]] = narrow(slow_at);
        found[others[1]] = narrow(if self.way == Way::Rows { fast_at } else { fold(slow_at, fast_at, fast) });
        Some(found)
    }
}

/// Odd rows run backwards.
const fn fold(row: u64, at: u64, len: u64) -> u64 {
    if row.is_multiple_of(2) { at } else { len - 1 - at }
}

/// Rank 0 is the corner; the layers but the first are walked column by column along the line, and the first layer
/// is the way back. Columns end at layer 1 or, after an odd number of them, at the last layer, which has to be
/// next to the first.
const fn cycle(rank: u64, layers: u64, line: u64) -> (u64, u64) {
    let inner = (layers - 1) * line;
    if rank == 0 {
        (0, 0)
    } else if rank <= inner {
        let (column, at) = ((rank - 1) / (layers - 1), (rank - 1) % (layers - 1));
        (1 + fold(column, at, layers - 1), column)
    } else {
        (0, line - (rank - inner))
    }
}

/// Coordinates are below a side, which is a `u16`.
fn narrow(at: u64) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use phalanx_model::{DomainName, Torus};

    use super::*;

    fn neighbours(torus: &Torus, a: [u16; 3], b: [u16; 3]) -> bool {
        (0..3).any(|axis| [true, false].iter().any(|way| torus.neighbour(a, axis, *way) == Some(b)))
    }

    #[test]
    fn neighbours_in_rank_are_neighbours_in_the_box() {
        for (x, y, z) in (1..=5).flat_map(|x| (1..=5).flat_map(move |y| (1..=5).map(move |z| (x, y, z)))) {
            for bits in 0..8_u8 {
                let closed = [bits & 1 > 0, bits & 2 > 0, bits & 4 > 0];
                let mut torus = Torus::new(DomainName::new("t").unwrap(), [x, y, z], false);
                torus.wraps = closed;
                let order = RankOrder::ring([x, y, z], closed);
                let all: Vec<_> = (0..order.len()).map(|rank| order.coordinates(rank).unwrap()).collect();
                let mut sorted = all.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), usize::from(x * y * z), "each chip once: {x}x{y}x{z}");
                assert_eq!(all[0], [0; 3]);
                for pair in all.windows(2) {
                    assert!(neighbours(&torus, pair[0], pair[1]), "{x}x{y}x{z} {closed:?}: {pair:?}");
                }
                let comes_back = neighbours(&torus, all[all.len() - 1], all[0]);
                assert_eq!(order.comes_back(), comes_back && all.len() > 1, "{x}x{y}x{z} {closed:?}");
                let has_ring = (0..3).any(|i| closed[i] && [x, y, z][i] > 1);
                let sides = [x, y, z].iter().filter(|side| **side > 1).count();
                if all.len().is_multiple_of(2) && sides > 1 || has_ring {
                    assert!(order.comes_back(), "{x}x{y}x{z} {closed:?}");
                }
                assert_eq!(order.coordinates(order.len()), None);
            }
        }
    }

    #[test]
    fn the_picture_of_a_ring_is_right() {
        let order = RankOrder::ring([4, 3, 1], [false; 3]);
        let picture = [[0, 1, 2], [11, 4, 3], [10, 5, 6], [9, 8, 7]];
        for (x, row) in (0..).zip(picture) {
            for (y, rank) in (0..).zip(row) {
                assert_eq!(order.coordinates(rank), Some([x, y, 0]));
            }
        }
    }

    #[test]
    fn rows_run_like_an_array() {
        let order = RankOrder::rows([2, 3, 4]);
        let all: Vec<_> = (0..24).filter_map(|rank| order.coordinates(rank)).collect();
        assert_eq!(all[..5], [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3], [0, 1, 0]]);
        assert!(all.is_sorted());
    }
}
