//! Orders to start from: every nesting of the axes, plainly or with whole groups packed into low domains.

use super::Sites;
use super::time::Lane;

/// Memory that is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// By cut: places inside it that no part has taken yet.
    lists: Vec<Vec<u32>>,
    /// By cut: whether it is in `around`.
    is_around: Vec<bool>,
    /// Cuts around the present places.
    around: Vec<u32>,
    list: Vec<u32>,
    taken: Vec<u32>,
    /// By place: how many places are left over in the domain that it comes from.
    left_over: Vec<u32>,
    /// The first place of each part, and the index of the part in `taken`.
    parts: Vec<(u32, usize)>,
}

/// All orders of the axes, innermost first; the first is their own.
pub(super) fn nestings(axes: &[Lane]) -> Vec<Vec<Lane>> {
    let mut found: Vec<Vec<Lane>> = vec![Vec::new()];
    for _ in axes {
        let longer = found.iter().flat_map(|begun| {
            let rest = axes.iter().filter(|axis| begun.iter().all(|used| used.kind != axis.kind));
            rest.map(|axis| begun.iter().chain([axis]).copied().collect())
        });
        found = longer.collect();
    }
    found
}

/// Seats the blocks along `order`, the axes one inside the other. The place of each block.
pub(super) fn lay(order: &[u32], nesting: &[Lane]) -> Vec<u32> {
    let mut seated = vec![0; order.len()];
    for (at, place) in (0_u32..).zip(order) {
        let mut rest = at;
        let mut block = 0;
        for axis in nesting {
            block += rest % axis.degree * axis.stride;
            rest /= axis.degree;
        }
        if let Some(seat) = seated.get_mut(block as usize) {
            *seat = *place;
        }
    }
    seated
}

/// How groups are laid into domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// In the order of the places.
    Plain,
    /// Each part in the smallest domain that holds it whole; the left-over places in their order.
    Whole,
    /// The same, but left-over places come from the domains with the fewest left over: these are not cut, and the cut
    /// ones have more uplink.
    SmallFirst,
}

impl Packing {
    pub(super) const ALL: [Self; 3] = [Self::Plain, Self::Whole, Self::SmallFirst];
}

/// Orders all places so that the groups of the nesting, from the widest to the innermost, are each in the
/// smallest domain that holds one whole. In sites of equal and fitting counts that is topology order.
pub(super) fn pack(
    order: &mut [u32],
    nesting: &[Lane],
    (sites, homes): (&Sites, &[u32]),
    packing: Packing,
    scratch: &mut Scratch,
) {
    order.sort_unstable();
    if packing == Packing::Plain {
        return;
    }
    scratch.left_over.clear();
    scratch.left_over.resize(order.len(), 0);
    scratch.lists.resize(sites.cuts.len(), Vec::new());
    scratch.is_around.resize(sites.cuts.len(), false);
    let mut size: usize = nesting.iter().map(|axis| axis.degree as usize).product();
    for axis in nesting.iter().rev() {
        let wide = size;
        size /= (axis.degree as usize).max(1);
        if size < 2 {
            return;
        }
        for group in order.chunks_mut(wide.max(1)) {
            pack_one(group, size, (sites, homes), packing, scratch);
        }
    }
}

/// Orders places into parts of `size`, each taken from the lowest domain that still has as many.
fn pack_one(
    places: &mut [u32],
    size: usize,
    (sites, homes): (&Sites, &[u32]),
    packing: Packing,
    scratch: &mut Scratch,
) {
    let Scratch { lists, is_around, around, list, taken, left_over, parts } = scratch;
    around.clear();
    taken.clear();
    for place in places.iter() {
        let mut cut = homes.get(*place as usize).copied().unwrap_or(0);
        if let Some(list) = lists.get_mut(cut as usize) {
            list.push(*place);
        }
        while let Some(seen) = is_around.get_mut(cut as usize).filter(|seen| !**seen) {
            *seen = true;
            around.push(cut);
            cut = sites.parent(cut);
        }
    }
    // Children come after their parents, so from the last on everything inside a cut is done before the cut.
    around.sort_unstable_by(|a, b| b.cmp(a));
    for cut in around.iter() {
        if let Some(found) = lists.get_mut(*cut as usize) {
            std::mem::swap(found, list);
        }
        if packing == Packing::SmallFirst && *cut < sites.first() {
            list.sort_unstable_by_key(|place| (left_over.get(*place as usize).copied(), *place));
        } else {
            list.sort_unstable();
        }
        let whole = list.len() / size * size;
        taken.extend(list.drain(..whole));
        for place in list.iter() {
            if let Some(left) = left_over.get_mut(*place as usize) {
                *left = u32::try_from(list.len()).unwrap_or(u32::MAX);
            }
        }
        if let Some(parent) = lists.get_mut(sites.parent(*cut) as usize).filter(|_| *cut != 0) {
            parent.append(list);
        }
        if let Some(seen) = is_around.get_mut(*cut as usize) {
            *seen = false;
        }
    }
    parts.clear();
    parts.extend(taken.chunks(size).zip(0..).filter_map(|(part, at)| Some((*part.first()?, at * size))));
    parts.sort_unstable();
    let in_order = parts.iter().flat_map(|(_, at)| taken.get(*at..at + size).unwrap_or(&[]));
    for (place, found) in places.iter_mut().zip(in_order) {
        *place = *found;
    }
}
