//! Windows that slide over a grid: where all of a window is set, and how much of it is set.
//!
//! A grid lies in memory as lines of `len` steps with `inner` items each, so that one function slides along any
//! axis: x, y, z of a grid of X x Y x Z items are (X, Y·Z), (Y, Z) and (Z, 1) as (`len`, `inner`). Bit grids hold
//! one row of z in a word, so their axes are (X, Y) and (Y, 1), and z lies inside the word.

use std::cmp::min;

/// One axis of a grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// Steps along the axis.
    pub(super) len: usize,
    /// Items from one step to the next.
    pub(super) inner: usize,
    /// Whether the last step is next to the first.
    pub(super) wraps: bool,
}

/// Shifts a row of `len` bits towards bit 0, around the end where it wraps. `by` is below `len`.
const fn shift(row: u64, by: usize, len: usize, wraps: bool) -> u64 {
    if by == 0 {
        return row;
    }
    let ones = u64::MAX >> (64 - len);
    if wraps { (row >> by | row << (len - by)) & ones } else { row >> by }
}

/// Bit i becomes the AND of the bits i to i + size - 1 of its row of `len` bits. `size` is 1 to `len`.
pub(super) fn and_bits(rows: &mut [u64], len: usize, size: usize, wraps: bool) {
    let mut have = 1;
    while have < size {
        let step = min(have, size - have);
        for row in &mut *rows {
            *row &= shift(*row, step, len, wraps);
        }
        have += step;
    }
}

/// Row i along the axis becomes the AND of the rows i to i + size - 1. `size` is 1 to the length of the axis.
pub(super) fn and_rows(rows: &mut [u64], axis: Axis, size: usize, head: &mut Vec<u64>) {
    let mut have = 1;
    while have < size {
        let step = min(have, size - have);
        let cut = step * axis.inner;
        for line in rows.chunks_exact_mut(axis.len * axis.inner) {
            let rest = line.len() - cut;
            head.clear();
            head.extend_from_slice(&line[..cut]);
            for i in 0..rest {
                line[i] &= line[i + cut];
            }
            let tail = &mut line[rest..];
            if axis.wraps {
                tail.iter_mut().zip(&*head).for_each(|(row, first)| *row &= first);
            } else {
                tail.fill(0);
            }
        }
        have += step;
    }
}

/// `out[i]` becomes the sum of the steps i to i + size - 1 of `cells` along the axis; what lies behind an open end
/// counts 0. `size` is 1 to the length of the axis, and sums fit a `u16` (a torus has fewer chips than that).
pub(super) fn sum(cells: &[u16], axis: Axis, size: usize, out: &mut Vec<u16>) {
    out.resize(cells.len(), 0);
    let lines = cells.chunks_exact(axis.len * axis.inner).zip(out.chunks_exact_mut(axis.len * axis.inner));
    for (line, out) in lines {
        if axis.inner == 1 {
            sum_row(line, axis.wraps, size, out);
        } else {
            sum_steps(line, axis, size, out);
        }
    }
}

/// A row of single cells.
fn sum_row(row: &[u16], wraps: bool, size: usize, out: &mut [u16]) {
    let (first, rest) = row.split_at(size);
    let mut all: u16 = first.iter().sum();
    let around = first.iter().map(|cell| if wraps { *cell } else { 0 });
    for ((out, leaves), enters) in out.iter_mut().zip(row).zip(rest.iter().copied().chain(around)) {
        *out = all;
        all = all - leaves + enters;
    }
}

/// A line whose steps have several cells each.
fn sum_steps(line: &[u16], Axis { inner, wraps, .. }: Axis, size: usize, out: &mut [u16]) {
    let (first, rest) = line.split_at(size * inner);
    let (head, _) = out.split_at_mut(inner);
    head.fill(0);
    for step in first.chunks_exact(inner) {
        head.iter_mut().zip(step).for_each(|(sum, cell)| *sum += cell);
    }
    // From one window to the next, one step leaves and one enters: behind the end, the first ones or none.
    let enters = rest.chunks_exact(inner).map(Some);
    let enters = enters.chain(first.chunks_exact(inner).map(|step| wraps.then_some(step)));
    let mut done = out;
    for (leaves, enters) in line.chunks_exact(inner).zip(enters).take(line.len() / inner - 1) {
        let (before, next) = done.split_at_mut(inner);
        let now = &mut next[..inner];
        match enters {
            Some(enters) => {
                let cells = now.iter_mut().zip(&*before).zip(leaves).zip(enters);
                cells.for_each(|(((now, before), leaves), enters)| *now = before - leaves + enters);
            }
            None => {
                let cells = now.iter_mut().zip(&*before).zip(leaves);
                cells.for_each(|((now, before), leaves)| *now = before - leaves);
            }
        }
        done = next;
    }
}
